"""`ddlbench tune`: what it writes where, what it says, and what it refuses."""

import json
from dataclasses import replace

import pytest

from ddlbench.cli import main
from ddlbench.records import TrustFlag
from ddlbench.topology import processor
from ddlbench.tuning.table import read
from synthetic import point, points, store

ALONE = {"nodes": 1, "ranks_per_node": "2", "ranks": 2}


@pytest.fixture(autouse=True)
def settings(monkeypatch, tmp_path):
    """Give the folder of the user's settings, and keep launchers out of it."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "JSM_NAMESPACE_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return tmp_path / "settings" / "ddlbench" / "tuning"


@pytest.fixture
def tune(capsys):
    """Give a function that runs `ddlbench tune` and returns the status, standard output and standard error."""

    def run(*arguments):
        status = main(["tune", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


def test_a_run_of_several_shapes_gives_each_a_table_where_auto_looks_for_it(tune, tmp_path, settings):
    stored = [*points(), *points(**ALONE), *points(**ALONE, in_place=True)]
    status, out, err = tune(store(tmp_path / "run", stored))
    assert (status, err) == (0, "")
    folder = settings / "amd-epyc-7543" / "open-mpi"
    two, one = read(folder / "2-nodes-of-2-ranks.json"), read(folder / "1-node-of-2-ranks.json")
    assert [rule.nodes for rule in two.rules] == [2]
    assert [(rule.nodes, rule.in_place) for rule in one.rules] == [(1, False), (1, True)]
    assert {rule.ranges[0].algorithm for rule in (*two.rules, *one.rules)} <= {"recursive-doubling", "mpi"}
    lines = out.splitlines()
    assert lines[0] == "# 2 nodes of 2 ranks: float32 sum, out of place, p2p"
    assert lines[1].startswith("from 0 B to ")
    assert "clearly the best at " in lines[1]
    assert "# for AMD EPYC 7543 with Open MPI, from " in out
    assert f"# written: {folder / '1-node-of-2-ranks.json'}" in lines


def test_one_table_of_all_shapes_goes_into_a_file_that_is_given(tune, tmp_path, settings):
    run, file = store(tmp_path / "run", [*points(), *points(**ALONE)]), tmp_path / "mine.json"
    status, out, _ = tune(run, "--out", file)
    assert (status, settings.exists()) == (0, False)
    assert [str(shape) for shape in read(file).shapes()] == ["2 nodes of 2 ranks", "1 node of 2 ranks"]
    assert f"# written: {file}; DDLBENCH_TUNING={file} has it used" in out
    assert tune(run, "--out", file)[0] == 0
    assert json.loads(file.read_text())["runs"][0]["directory"] == str(run)


def test_what_speaks_against_a_run_and_what_is_left_out_is_told(tune, tmp_path):
    flags = (TrustFlag("busy", "load of 2.0 on 2 cores"),)
    file = point("mine.py:bruck", 1024)
    run = store(tmp_path / "run", [*points(), file], trust=flags, finished=False)
    status, _, err = tune(run)
    assert status == 0
    assert f"ddlbench: warning: {run}: to mind: busy: load of 2.0 on 2 cores" in err
    assert f"ddlbench: warning: {run}: the run did not finish" in err
    assert "left out: mine.py:bruck: its file is not found again by its name alone" in err


def test_runs_that_give_no_table_are_refused_in_one_line(tune, tmp_path, settings):
    imported = [replace(one, kind="imported", samples_ns=()) for one in points(["osu_allreduce"])]
    cases = {
        "empty": ([], "holds no measured point: it has no points at all"),
        "imported": (imported, "holds no measured point: it has 24 imported"),
        "alone": (points(["ring"]), "only ring was measured"),
        "unknown": (points(["gloo", "nccl"]), "gives no rule: left out: gloo: unknown algorithm 'gloo'"),
    }
    for name, (stored, said) in cases.items():
        status, out, err = tune(store(tmp_path / name, stored))
        assert (status, out) == (2, "")
        assert said in err
        assert err.count("\n") == 1
    assert not settings.exists()


def test_several_runs_are_put_together_or_refused(tune, tmp_path):
    first = store(tmp_path / "first", points())
    other = store(tmp_path / "other", points(**ALONE))
    elsewhere = store(tmp_path / "elsewhere", points(**ALONE), environment={"processor": "POWER8"})
    assert tune(first, other, "--out", tmp_path / "both.json")[0] == 0
    assert len(read(tmp_path / "both.json").rules) == 2
    assert tune(first, first, "--out", tmp_path / "both.json")[0] == 0
    again = store(tmp_path / "again", points())
    for second, said in ((elsewhere, "on POWER8 with Open MPI: tune each by itself"), (again, "both measured")):
        status, _, err = tune(first, second)
        assert status == 2
        assert said in err


def test_what_cannot_be_written_is_refused(tune, tmp_path):
    run = store(tmp_path / "run", points())
    mine = tmp_path / "mine.json"
    mine.write_text("{}")
    for out, said in ((mine, "is there, and no table"), (run / "run.json", "is where a run is stored")):
        status, _, err = tune(run, "--out", out)
        assert status == 2
        assert said in err
    status, _, err = tune(tmp_path / "none")
    assert (status, err.count("\n")) == (2, 1)
    assert "holds no run" in err


def test_a_broken_table_in_its_place_is_named(tune, tmp_path, settings):
    run = store(tmp_path / "run", points())
    place = settings / "amd-epyc-7543" / "open-mpi" / "2-nodes-of-2-ranks.json"
    place.parent.mkdir(parents=True)
    place.write_text("{")
    status, _, err = tune(run)
    assert status == 2
    assert f"{place} is there, and no table of ddlbench tune: remove it, or give another file" in err


@pytest.mark.parametrize("verb", [("show", "auto"), ("verify", "auto"), ("predict", "auto", "--topology", "minsky")])
def test_verbs_that_look_at_a_schedule_say_that_auto_has_none(verb, capsys):
    assert main([*verb]) == 2
    assert "'auto' has no schedule of its own: it takes another's when it is planned" in capsys.readouterr().err


def test_the_list_of_algorithms_has_auto(capsys):
    assert main(["list"]) == 0
    assert any(line.startswith("auto ") for line in capsys.readouterr().out.splitlines())


def test_the_machine_of_a_table_is_named_as_a_run_names_it():
    from ddlbench.bench.environment import environment

    assert environment({})["processor"] == processor() != ""
