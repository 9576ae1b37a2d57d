"""`ddlbench accept` on ranks of one node: its files, its refusals, and messages that are watched for a while."""

import sys
import time
from itertools import count

import pytest

from ddlbench.accept import record, vigil
from ddlbench.accept.rules import WatchRules
from ddlbench.cli.accept_request import FILES

ACCEPT = (sys.executable, "-m", "ddlbench", "accept")
QUICK = """
[node]
windows = 1
window = "5 ms"
size = "64K"
[watch]
seconds = "100 ms"
"""


def test_one_node_is_measured_and_judged_and_its_files_are_there(mpirun, tmp_path):
    (tmp_path / "rules.toml").write_text(QUICK)
    done = mpirun(2, *ACCEPT, "--rules", "rules.toml", "--out", "mine", cwd=tmp_path)
    assert done.status == 0, done.stderr + done.stdout
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == sorted(FILES)
    data = record.read(tmp_path / "mine")
    assert [(check["what"], check["status"]) for check in data["checks"]] == [
        ("reduction", "unjudged"), ("copy", "unjudged"), ("allreduce", "unjudged"), ("late", "pass"),
    ]  # fmt: skip
    assert all(check["measured"] is not None for check in data["checks"])
    assert (tmp_path / "mine" / "hosts").read_text().endswith(" slots=2\n")
    assert "# PASS: 1 node, 4 figures, 0 too slow, 3 without anything to compare with" in done.stdout


def test_rules_that_make_no_sense_are_refused_by_one_rank(mpirun, tmp_path):
    (tmp_path / "rules.toml").write_text("[pair]\nsize = '1MB'\n")
    done = mpirun(2, *ACCEPT, "--rules", "rules.toml", "--out", "mine", cwd=tmp_path)
    assert done.status == 2
    [line] = [line for line in (done.stdout + done.stderr).splitlines() if "ddlbench: error" in line]
    assert "rules 'rules.toml': pair.size: size '1MB' is 1000ⁿ to some" in line
    assert not (tmp_path / "mine").exists()


@pytest.mark.mpi(3)
def test_who_is_late_is_told_and_its_links_are_not_blamed(comm):
    # Everyone asks those with a higher number; rank 1 is not run for a while after a few steps.
    steps = count()

    def clock():
        if comm.rank == 1 and next(steps) == 20:
            time.sleep(0.4)
        return time.perf_counter()

    ranks = range(comm.size)
    seen = vigil.watch(
        comm,
        [rank for rank in ranks if rank > comm.rank],
        [rank for rank in ranks if rank < comm.rank],
        WatchRules(seconds=1.0),
        clock,
    )
    assert {*seen.trips} == {rank for rank in ranks if rank > comm.rank}
    assert all(len(trips) > 1 for trips in seen.trips.values())
    assert seen.seconds > 0.9
    if comm.rank == 1:
        assert seen.late_s >= 0.4
    for peer in seen.trips if comm.rank == 1 else seen.trips.keys() & {1}:
        longest = max(range(len(seen.trips[peer])), key=seen.trips[peer].__getitem__)
        if seen.trips[peer][longest] > 0.35:  # unless nobody waited for rank 1 just then
            assert seen.links[peer][longest] < seen.trips[peer][longest] - 0.3
