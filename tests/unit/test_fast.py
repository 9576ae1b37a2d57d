"""What `make bench-fast` says: ratios, goals and means by hand; and the program that only moves bytes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddlbench.errors import UsageError, unknown
from ddlbench.lab import start
from ddlbench.lab.spec import Lab, Rate
from ddlbench.local.compile import Layout
from ddlbench.local.floor import floor_program
from ddlbench.local.program import INPUT, OUTPUT, REDUCE
from ddlbench.local.races import prove
from ddlbench.peers import fast as fast_module
from ddlbench.peers import lab, memory_rank
from ddlbench.peers.__main__ import command
from ddlbench.peers.comparison import Comparison, Request
from ddlbench.peers.fast import CROWDED, TITLES, Fast, as_csv, crowd, lines, moved_race
from ddlbench.peers.figures import Figure
from ddlbench.peers.goals import Race
from ddlbench.peers.lab import LabContender, LabPart, Row
from ddlbench.peers.lab_rank import Entry, fitting, kept
from ddlbench.peers.library import Environment, Identity, this_python
from ddlbench.peers.process import PeerError
from ddlbench.peers.settings import SETTINGS
from ddlbench.records import Point, Run, load
from synthetic import point, run


def figure(nbytes: int, us: float) -> Figure:
    return Figure("direct (Open MPI 5.0.11, registered)", nbytes, us, us * 0.9, us * 1.1, 60, 3)


def race(**goals: float) -> Race:
    ours = {8: figure(8, 1.0), 1024: figure(1024, 2.0), 4096: figure(4096, 5.0)}
    return Race("ours against theirs", ours, {8: 4.0, 1024: 1.0, 65536: 9.0}, **goals)


def test_a_ratio_is_their_time_over_ours_where_both_have_one():
    assert race(mean=1, least=1).ratios == {8: 4.0, 1024: 0.5}


def test_the_mean_is_geometric_and_sizes_where_the_other_is_faster_are_named():
    found = race(mean=1.4, least=0.5)
    assert found.reached_mean == pytest.approx(2**0.5)
    assert found.behind == [1024]
    assert found.reached


@pytest.mark.parametrize(("mean", "least"), [(1.5, 0.5), (1.4, 0.6)])
def test_a_goal_is_missed_by_the_mean_or_by_the_least(mean, least):
    assert not race(mean=mean, least=least).reached


def test_nothing_to_compare_reaches_no_goal():
    empty = Race("nobody", {}, {8: 1.0}, 1, 1)
    assert not empty.reached
    assert lines([empty])[-1] == "# nobody: nothing to compare"


def test_the_table_shows_each_size_and_says_whether_the_goals_are_reached():
    text = "\n".join(lines([race(mean=2.5, least=1.15)]))
    assert "# ours against theirs: medians in µs" in text
    assert "geometric mean 1.41× (goal 2.5), least 0.50× (goal 1.15): NOT reached; behind at 1" in text


def test_the_csv_has_a_line_for_each_ratio():
    head, *rows = as_csv([race(mean=1, least=1)]).splitlines()
    assert head.split(",") == list(TITLES)
    assert rows[0].endswith(',8,"direct (Open MPI 5.0.11, registered)",4.000,1.000,0.900,1.100,4.0000')
    assert len(rows) == 2


def test_ranks_beyond_the_cores_are_not_pinned_and_yield():
    pinned = Environment(this_python(), ("mpirun",), {"PRTE_MCA_hwloc_default_binding_policy": "core", "A": "1"})
    assert crowd(pinned).variables == {"A": "1", **CROWDED}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_floor_copies_a_part_of_every_input_to_every_output_and_nothing_twice(ranks):
    layout = Layout(103, 4, 1, registered=True, in_place=False)
    programs = [floor_program(ranks, rank, 103, 4, stream=False) for rank in range(ranks)]
    assert prove(programs, layout)
    written = np.zeros((ranks, 103 * 4), int)
    for one in (one for program in programs for one in program.variants[0] if one.kind == REDUCE):
        (source,), (target,) = one.sources, one.targets
        assert (source.space, target.space) == (INPUT, OUTPUT)
        assert (source.rank, source.offset) == (target.rank, target.offset)
        written[target.rank, target.offset : target.offset + 4 * one.count] += 1
    assert (written == 1).all()


# ---- On a virtual cluster ------------------------------------------------------------------------------------------

MIB = 1 << 20
LIBRARY = Environment(this_python(), ("mpirun",), {"A": "1"}), Identity("Open MPI", "5.0.11", ())


def cell(algorithm: str, nbytes: int, us: float, transport: str = "mixed", status: str = "ok") -> Point:
    samples = tuple(int(1000 * us * part) for part in (0.9, 1.0, 1.0, 1.1))
    return point(algorithm=algorithm, nbytes=nbytes, transport=transport, status=status, samples_ns=samples)


def vendor(setting: str, nbytes: int, us: float, status: str = "ok") -> Point:
    return cell(f"mpi {setting} (Open MPI 5.0.11, lab 4 x 1)", nbytes, us, "vendor", status)


def trial(*sizes: int, **shape: int) -> LabContender:
    rows = tuple(Row(nbytes, ("ring", "direct"), tuple(SETTINGS)) for nbytes in sizes)
    return LabContender(Lab(**shape), LIBRARY, Path(), rows, turns=2, drop=2.0)


def test_the_bound_is_what_the_cards_of_all_nodes_must_carry_at_their_rate():
    four = Lab(nodes=4, ranks_per_node=2, rate=Rate.parse("1gbit"))
    assert lab.bound_us(16 * MIB, four) == pytest.approx(1.5 * 16 * MIB / 125e6 * 1e6)
    assert lab.bound_us(MIB, Lab(nodes=2, rate=Rate.parse("100mbit"))) == pytest.approx(MIB / 12.5e6 * 1e6)
    assert lab.bound_us(MIB, Lab(nodes=4, nics=2)) == pytest.approx(lab.bound_us(MIB, Lab(nodes=4)) / 2)


def test_the_goal_at_the_bound_is_for_large_vectors_alone():
    found = lab.bound_race("here", {8: figure(8, 1.0), MIB: figure(MIB, 1.07 * 12582.912)}, Lab())
    assert found.ratios == {MIB: pytest.approx(1 / 1.07)}
    assert found.reached
    assert not lab.bound_race("here", {MIB: figure(MIB, 1.09 * 12582.912)}, Lab()).reached


def test_the_best_algorithm_and_the_settings_near_the_best_take_part():
    times = {"linear": 100, "ring": 90, "as it comes": 110, "without HAN": 92, "Rabenseifner": 91, "simple HAN": 120}
    points = [vendor(setting, 8, us) for setting, us in times.items()]
    points += [cell("ring (lab 4 x 1)", 8, 80), cell("direct (lab 4 x 1)", 8, 70), cell("direct (lab 4 x 1)", 64, 9)]
    shape = lab.chosen(trial(8), points)
    assert shape.best == {8: "direct (lab 4 x 1)"}
    (row,) = shape.contender.rows
    assert (row.nbytes, row.ours, row.theirs) == (8, ("direct",), ("ring", "Rabenseifner", "without HAN"))
    assert shape.contender.task["drop"] is None
    assert shape.contender.task["check"]


def test_a_setting_far_from_the_best_and_one_that_was_wrong_do_not_take_part():
    points = [vendor("linear", 8, 100), vendor("ring", 8, 130), vendor("as it comes", 8, 9, "wrong")]
    points += [cell("ring (lab 4 x 1)", 8, 80), cell("direct (lab 4 x 1)", 8, 70, status="wrong")]
    (row,) = lab.chosen(trial(8), points).contender.rows
    assert (row.ours, row.theirs) == (("ring",), ("linear",))


def test_where_nothing_was_right_the_cluster_is_absent_with_the_reason():
    with pytest.raises(PeerError, match="7 wrong elements"):
        lab.chosen(trial(8), [point(nbytes=8, status="wrong", reason="7 wrong elements")])


def test_theirs_is_the_best_setting_of_each_size():
    shape = lab.chosen(trial(8, 64), [cell("ring (lab 4 x 1)", nbytes, 80) for nbytes in (8, 64)])
    for times in ((50, 40, 10, 20), (52, 42, 11, 21)):
        ours = [cell("ring (lab 4 x 1)", nbytes, 30) for nbytes in (8, 64)]
        theirs = [
            vendor(*which, us)
            for which, us in zip((("linear", 8), ("ring", 8), ("linear", 64), ("ring", 64)), times, strict=True)
        ]
        shape.harvest.passes.append([*ours, *theirs])
    found = lab.settings_race("here", "Open MPI", shape.ours, shape.theirs)
    assert found.names == {8: "mpi ring", 64: "mpi linear"}
    assert found.ratios == {8: pytest.approx(41 / 30, rel=0.05), 64: pytest.approx(10.5 / 30, rel=0.05)}
    assert found.behind == [64]
    assert not found.reached
    text = "\n".join(lines([found]))
    assert "against\n" in text
    assert text.splitlines()[3].split()[-3:] == ["ring", "mpi", "ring"]
    assert ",mpi linear,64,ring (lab 4 x 1)," in as_csv([found])


def test_two_cards_are_held_against_one_at_the_largest_size():
    one = {MIB: figure(MIB, 10.0), 16 * MIB: figure(16 * MIB, 90.0)}
    found = lab.cards_race({16 * MIB: figure(16 * MIB, 50.0)}, one)
    assert found.ratios == {16 * MIB: pytest.approx(1.8)}
    assert found.reached
    assert not lab.cards_race({16 * MIB: figure(16 * MIB, 50.1)}, one).reached


def test_a_launch_names_its_cluster_its_rate_and_the_runner_that_ends_all_ranks():
    words = trial(8, nodes=2, ranks_per_node=3, nics=2).command(Path("/a/task.json"), Path("/a/run"))
    assert words[: words.index("--")] == [
        *(str(this_python()), "-I", "-m", "ddlbench", "lab", "run", "--nodes", "2", "--ranks-per-node", "3"),
        *("--nics", "2", "--rate", "1gbit"),
    ]
    rank = [str(this_python()), "-I", "-m", "mpi4py", "-m", "ddlbench.peers.lab_rank", "/a/task.json", "/a/run"]
    assert words[words.index("--") + 1 :] == rank


def test_where_no_lab_can_run_its_rows_are_absent_with_the_reason_and_nothing_else_is(monkeypatch, tmp_path):
    monkeypatch.setattr(start, "missing", lambda: "there is no program tc (package iproute2)")
    part = LabPart(LIBRARY, Path(), lambda _: None)
    assert part.choose(tmp_path) == []
    assert part.races() == []
    reason = "# the virtual cluster: not measured: no lab can run here: there is no program tc (package iproute2)"
    assert lab.lines(part.absent) == ["", reason]


@pytest.mark.parametrize(("each_ns", "samples"), [(0, 40), (1_000_000, 40), (5_000_000, 10), (10**9, 2)])
def test_a_turn_has_fewer_samples_where_they_take_long(each_ns, samples):
    assert fitting(each_ns, 40) == samples


def test_who_is_slow_is_left_out_at_larger_sizes_too_where_that_is_carried_over():
    entries = [Entry(name, vendor, samples=[us]) for name, vendor, us in (("ring", True, 21), ("ring", False, 10))]
    slow: set[tuple[bool, str]] = set()
    assert kept(entries, None, slow, carried=True) == entries
    assert kept(entries, 2.0, slow, carried=False) == entries[1:]
    assert slow == set()
    assert kept(entries, 2.0, slow, carried=True) == entries[1:]
    assert slow == {(True, "ring")}


def made_up(contender: LabContender, folder: Path) -> tuple[Run, list[Point]]:
    """Return what a launch gives in which everything takes as long as its bytes, with one card more than with two."""
    found = []
    for row in contender.rows:
        us = (10 + row.nbytes / 100) / contender.lab.nics
        found += [cell(f"{name} ({contender.label})", row.nbytes, us) for name in row.ours]
        named = f"(Open MPI 5.0.11, {contender.label})"
        found += [cell(f"mpi {name} {named}", row.nbytes, 2 * us, "vendor") for name in row.theirs]
    return run(), found


def fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: Callable[..., Any]) -> tuple[str, int]:
    """Run the part of the virtual cluster with made-up launches; return what is shown and the exit status."""
    monkeypatch.setattr(start, "missing", lambda: None)
    monkeypatch.setattr(LabContender, "measure", measure)
    monkeypatch.setattr(Comparison, "in_use", lambda _: LIBRARY)
    config = Path(__file__).parents[2] / "configs" / "sweeps" / "fast.toml"
    request = Request(2, ("mpirun",), tmp_path, config, tmp_path / "out", 2, None, frozenset({0}), only="lab")
    told, status = Fast(request, tmp_path, lambda _: None).run()
    return "\n".join(told), status


def test_the_virtual_cluster_alone_is_measured_stored_and_told(tmp_path, monkeypatch):
    text, status = fast(tmp_path, monkeypatch, made_up)
    assert status == 0
    assert [line.partition(":")[0] for line in text.splitlines() if "medians in" in line] == [
        "# lab, 4 nodes of 1 at 1gbit, against what the links allow",
        "# lab, 4 nodes of 1 at 1gbit, against Open MPI 5.0.11 at its best setting",
        "# lab, 4 nodes of 2 at 1gbit, against what the links allow",
        "# lab, 4 nodes of 2 at 1gbit, against Open MPI 5.0.11 at its best setting",
        "# lab, 4 nodes of 1 with two network cards, against one",
    ]
    loaded = load(tmp_path / "out")
    assert {point.passes for point in loaded.points} == {(4, 4)}
    *_, last = (tmp_path / "out" / "fast.csv").read_text().splitlines()
    assert last.startswith(
        '"lab, 4 nodes of 1 with two network cards, against one",ring,16777216,"ring (lab 4 x 1, 2 c'
    )
    assert last.endswith(",2.0000")


@pytest.mark.parametrize("failing", ["choosing-lab-4x2", "pass-2"])
def test_a_cluster_that_fails_is_told_and_the_others_go_on(failing, tmp_path, monkeypatch):
    def measure(contender: LabContender, folder: Path) -> tuple[Run, list[Point]]:
        if contender.lab.ranks_per_node == 2 and folder.name == failing:
            raise PeerError("a rank died", "failed")
        return made_up(contender, folder)

    text, status = fast(tmp_path, monkeypatch, measure)
    assert status == 1
    assert "two network cards, against one: medians" in text
    assert ("# lab 4 x 2: not measured: a rank died" in text) == (failing != "pass-2")


def test_a_part_of_another_comparison_is_refused():
    with pytest.raises(UsageError, match=r"--only lab is for --fast"):
        command.main(["--only", "lab"], standalone_mode=False)


def test_what_is_moved_at_least_is_the_faster_way_of_all_passes_together():
    passes = [
        {"plain": [4000, 4000], "past the caches": [3000, 3000], "allreduce": [4000, 5000]},
        {"plain": [2000, 2000], "past the caches": [4000, 5000], "allreduce": [6000, 5000]},
    ]
    race = moved_race({1 << 20: passes}, {1 << 20: "ring (A)", 8: "direct (A)"})
    assert race.theirs_us == {1 << 20: 3.0}
    assert (race.ours[1 << 20].median_us, race.ours[1 << 20].passes, race.ours[1 << 20].samples) == (5.0, 2, 4)
    assert race.ratios == {1 << 20: 0.6}


def test_both_sides_know_the_allreduce_by_one_name():
    assert fast_module.ALLREDUCE == memory_rank.OURS


PARAMETERS = """
import json, ddlbench._engine
from ddlbench.errors import DdlbenchError
from ddlbench.peers.settings import SETTINGS, Parameters

def told(do):
    try:
        return do()
    except DdlbenchError as error:
        return f"{type(error).__name__}: {error}"

parameters = Parameters(ddlbench._engine.__file__)
name, found = "coll_tuned_allreduce_algorithm", []
if not isinstance(told(lambda: parameters.read(name)), str):
    found.append(parameters.read(name))
    for setting in ("ring", "Rabenseifner"):
        with parameters.set(setting):
            found.append([parameters.read(name), parameters.read("coll_han_priority")])
    found += [parameters.read(name), told(lambda: parameters.read("coll_none")),
              told(lambda: parameters.write("coll_tuned_allreduce_algorithm_count", 3)),
              told(lambda: parameters.set("rign").__enter__())]
parameters.close()
print(json.dumps(found))
"""


def test_a_setting_is_in_force_meanwhile_and_what_cannot_be_set_is_told():
    done = subprocess.run([sys.executable, "-c", PARAMETERS], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    if not found:
        pytest.skip("the MPI library in use is not Open MPI, or has no parameters of these names")
    before, ring, rabenseifner, after, missing, refused, misspelt = found
    assert (ring, rabenseifner, after) == ([4, -1], [6, -1], before)
    assert missing == "UnsupportedError: this MPI library has no parameter coll_none"
    assert refused.startswith("MPIError: MPI_T_cvar_write returned ")
    assert misspelt == f"UsageError: {unknown('setting', 'rign', SETTINGS)}"
