"""auto on real ranks: all choose alike, whoever sees the table, and what is chosen runs and says why."""

import json
import sys

import numpy as np
import pytest

from ddlbench import Communicator
from ddlbench.cli import main
from ddlbench.errors import UsageError
from ddlbench.records import load
from ddlbench.topology import processor
from ddlbench.tuning import Range, Rule, Source, Table, places
from ddlbench.tuning.table import write

SMALL, LARGE = 16, 4096
"""Elements of float32 on both sides of where the tables here change the algorithm."""


def rule(ranks, *names, **changes):
    """A rule for so many ranks of one node: the first name, and from 1 KiB on the second."""
    ranges = (Range(from_nbytes=1024 * at, algorithm=name, measured=(), clear=()) for at, name in enumerate(names))
    values = {
        "nodes": 1,
        "ranks_per_node": str(ranks),
        "ranks": ranks,
        "grid": str(ranks),
        "virtual": False,
        "device": "cpu",
        "transport": "p2p",
        "dtype": "float32",
        "op": "sum",
        "in_place": False,
        "run": 0,
    }
    return Rule(**(values | changes), ranges=tuple(ranges))


def library():
    from mpi4py import MPI

    return MPI.get_vendor()[0]


def table(*rules):
    run = Source(directory="mine", created="2026-03-02T09:41:07+00:00", ddlbench="0.1.0", mpi_version="5.0.11",
                 hosts=(), finished=True, cache="warm", trust=())  # fmt: skip
    created = "2026-03-03T08:00:00+00:00"
    return Table(ddlbench="0.1.0", created=created, processor=processor(), mpi=library(), runs=(run,), rules=rules)


@pytest.fixture
def opened(comm, monkeypatch, tmp_path):
    """Give a function that makes a communicator whose rank 0 alone has a table with these rules."""
    made = []

    def new(*rules):
        path = tmp_path / "mine.json"
        if comm.rank == 0:
            write(table(*rules), path)
        monkeypatch.setenv(places.VARIABLE, str(path if comm.rank == 0 else tmp_path / "none.json"))
        made.append(Communicator(comm))
        return made[-1]

    yield new
    for one in made:
        one.close()


def planned(communicator, count, **more):
    """Return the algorithm and the reason of a plan over messages, after checking that it reduces rightly."""
    given = np.full(count, communicator.rank + 1, np.float32)
    target = None if more.pop("in_place", False) else np.empty_like(given)
    with communicator.plan(given, target, algorithm="auto", transport="p2p", **more) as plan:
        plan.execute()
        assert np.all((given if target is None else target) == sum(range(1, communicator.size + 1)))
        return plan.algorithm, plan.why


@pytest.mark.mpi(2, 3)
def test_all_ranks_choose_by_the_table_that_only_rank_0_sees(opened, comm):
    ours = opened(rule(comm.size, "double-binary-tree", "swing"), rule(comm.size, "mpi", "direct", in_place=True))
    took = [planned(ours, count, in_place=place) for place in (False, True) for count in (SMALL, LARGE)]
    assert [name for name, _ in took] == ["double-binary-tree", "swing", "mpi", "direct"]
    assert {why for _, why in took} == {"measured table mine.json of 2026-03-03"}
    assert comm.allgather(took) == [took] * comm.size


@pytest.mark.mpi(2, 3)
def test_without_a_rule_for_these_ranks_the_closed_form_decides_alike_everywhere(opened, comm):
    ours = opened(rule(comm.size + 1, "swing", "swing"))
    took = [planned(ours, count) for count in (SMALL, LARGE, 1 << 20)]
    assert comm.allgather(took) == [took] * comm.size
    assert all("closed form: measured table mine.json of 2026-03-03 has nothing for 1 node" in why for _, why in took)


@pytest.mark.mpi(2, 3)
def test_allreduce_takes_auto_and_a_communicator_asks_once(opened, comm, monkeypatch):
    ours = opened(rule(comm.size, "ring", "ring"))
    values = np.arange(6, dtype=np.float32)
    assert np.array_equal(ours.allreduce(values, algorithm="auto"), comm.size * np.arange(6))
    monkeypatch.setenv(places.VARIABLE, "/no/longer/there.json")
    assert planned(ours, SMALL)[0] == "ring"


@pytest.mark.mpi(2)
def test_a_type_that_the_vendor_lacks_is_reduced_all_the_same(opened, comm):
    ours = opened(rule(comm.size, "mpi", "mpi"))
    halves = ours.allreduce(np.ones(3, np.float16), algorithm="auto")
    assert np.all(halves == comm.size)


@pytest.mark.mpi(2, 3)
def test_a_table_that_cannot_be_used_is_refused_on_all_ranks(opened, comm, monkeypatch):
    ours = opened(rule(comm.size, "rign", "ring"))
    for _ in range(2):
        with pytest.raises(UsageError, match=r"mine\.json: the rule for .*'rign': did you mean 'ring'"):
            planned(ours, SMALL)
    monkeypatch.setenv(places.VARIABLE, "/nowhere/at/all.json")
    with Communicator(comm) as other, pytest.raises(UsageError, match="there is no such file"):
        planned(other, SMALL)


@pytest.mark.mpi(2, 3)
def test_ranks_that_do_not_all_ask_for_auto_are_refused_before_any_waits(opened, comm):
    ours = opened(rule(comm.size, "ring", "ring"))
    with pytest.raises(UsageError, match="ranks ask for different allreduces"):
        ours.plan(np.zeros(4, np.float32), algorithm="ring" if comm.rank else "auto")


@pytest.mark.mpi(2, 3)
def test_a_proof_of_auto_is_one_of_all_that_it_may_choose(opened, comm, monkeypatch):
    ours = opened(rule(comm.size, "mpi", "swing"))
    proved = []
    prove = ours._prove_one
    monkeypatch.setattr(ours, "_prove_one", lambda bound: proved.append(bound.name) or prove(bound))
    assert ours.prove("auto").ranks == comm.size
    assert "swing" in proved
    assert "mpi" not in proved


@pytest.mark.mpi(4)
def test_a_part_of_the_ranks_has_the_choice_of_its_own_shape(opened, comm):
    ours = opened(rule(4, "swing", "swing"), rule(2, "double-binary-tree", "double-binary-tree"))
    assert planned(ours, SMALL)[0] == "swing"
    part = ours.part((0, 1))
    if part is not None:
        assert planned(part, SMALL)[0] == "double-binary-tree"
        part.close()


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_a_sweep_of_auto_says_what_it_chose_and_tune_leaves_it_out(mpirun, tmp_path, monkeypatch, capsys, cache):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.delenv(places.VARIABLE, raising=False)
    ddlbench = (sys.executable, "-m", "ddlbench")
    sweep = (*ddlbench, "sweep", "--sizes", "64,16K", "-n", "6", "-w", "1", "--cache", cache, "--sync", "barrier")
    measured = mpirun(2, *sweep, "-a", "ring,direct", "--out", str(tmp_path / "first"))
    assert measured.status == 0, measured.stderr
    assert main(["tune", str(tmp_path / "first")]) == 0
    again = mpirun(2, *sweep, "-a", "auto,ring", "--out", str(tmp_path / "second"))
    assert again.status == 0, again.stderr
    (stored,) = (tmp_path / "settings").rglob("*.json")
    ranges = json.loads(stored.read_text())["rules"][0]["ranges"]
    expected = {64: ranges[0]["algorithm"], 16384: ranges[-1]["algorithm"]}
    reasons = {point.nbytes: point.reason for point in load(tmp_path / "second").points if point.algorithm == "auto"}
    day = json.loads(stored.read_text())["created"][:10]
    assert reasons == {
        nbytes: f"chose {name} (measured table 1-node-of-2-ranks.json of {day})" for nbytes, name in expected.items()
    }
    assert main(["tune", str(tmp_path / "second")]) == 2
    assert "only ring was measured" in capsys.readouterr().err


def test_a_sweep_with_a_table_that_is_none_ends_with_one_line(mpirun, tmp_path, monkeypatch):
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "none.json"))
    ddlbench = (sys.executable, "-m", "ddlbench")
    done = mpirun(2, *ddlbench, "sweep", "--sizes", "64", "-a", "auto", "--out", str(tmp_path / "run"))
    assert done.status == 2
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("ddlbench"))
    assert line.startswith(f"ddlbench: error: DDLBENCH_TUNING={tmp_path / 'none.json'}: there is no such file")
    assert line.endswith("DDLBENCH_TUNING=none does without")
