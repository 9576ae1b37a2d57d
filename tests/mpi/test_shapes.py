"""Sub-grids of one launch on real ranks: who takes part, who sleeps, and that no end leaves a rank asleep for ever."""

import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ddlbench.bench.agreement import AgreedError, agreed
from ddlbench.bench.sleeping import LauncherGoneError, apart
from ddlbench.cost.probe import probe_links, probe_memory
from ddlbench.errors import UsageError
from ddlbench.records import load
from launch import command, environment, start, stop

DDLBENCH = (sys.executable, "-m", "ddlbench")
FAST = ("--sizes", "8,1K", "-a", "ring,mpi", "-n", "3", "-w", "1", "--sync", "barrier")
ON_NODES = """
import dataclasses, os, sys
import ddlbench.comm
from ddlbench.topology import numbered
found, nodes = ddlbench.comm.discover, int(os.environ["FAKE_NODES"])
def placed(comm):
    here = found(comm)
    on = [rank % nodes for rank in here.launch_ranks]
    return dataclasses.replace(here, node_of=numbered(on), hosts=tuple(f"node{node}" for node in on))
ddlbench.comm.discover = placed
from ddlbench.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""ddlbench on ranks that were placed round-robin on nodes, which are made up."""


@pytest.fixture
def communicator(comm):
    from ddlbench import Communicator

    with Communicator(comm) as opened:
        yield opened


def on_nodes(communicator, node_of):
    """Make the ranks of a communicator stand on other nodes."""
    hosts = tuple(f"node{node}" for node in node_of)
    communicator.topology = dataclasses.replace(communicator.topology, node_of=tuple(node_of), hosts=hosts)


# ---- Parts of a communicator ---------------------------------------------------------------------------------------


@pytest.mark.mpi(2, 3, 5, 8)
def test_a_part_reduces_among_its_ranks_and_is_nothing_on_the_others(communicator):
    chosen = set(range(0, communicator.size, 2))
    part = communicator.part(chosen)
    assert (part is None) == (communicator.rank not in chosen)
    if part is not None:
        assert (part.size, part.topology.ranks) == (len(chosen), len(chosen))
        total = part.allreduce(np.full(7, communicator.rank + 1.0), algorithm="ring")
        assert total.tolist() == [sum(rank + 1.0 for rank in chosen)] * 7
        part.close()


@pytest.mark.mpi(3, 5, 8)
def test_a_part_over_nodes_has_the_grid_of_its_own_ranks(communicator):
    on_nodes(communicator, [rank // 2 for rank in range(communicator.size)])
    nodes = communicator.size // 2
    part = communicator.part(range(2 * nodes))
    if part is not None:
        assert str(part.grid) == (f"2x{nodes}" if nodes > 1 else "2")
        part.close()
    leaders = communicator.part(range(0, communicator.size, 2))
    if leaders is not None:
        assert str(leaders.grid) == f"1x{-(-communicator.size // 2)}"
        leaders.close()


@pytest.mark.mpi(2, 3)
def test_a_grid_that_does_not_fit_the_part_is_refused_on_all_ranks(communicator):
    from ddlbench.schedule.grid import Grid

    with pytest.raises(UsageError, match="grid 2x2 holds 4 ranks, but there are 1"):
        communicator.part([0], grid=Grid((2, 2)))


# ---- Sleeping ------------------------------------------------------------------------------------------------------


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@pytest.mark.mpi(2, 3, 5, 8)
def test_those_left_out_learn_what_the_others_found(comm):
    assert apart(comm, [0], lambda: f"of rank {comm.rank}") == "of rank 0"
    last = comm.size - 1
    assert apart(comm, [last], lambda: comm.rank) == last
    assert apart(comm, range(comm.size), lambda: comm.rank) == comm.rank, "with all at work each has its own"


@pytest.mark.mpi(2, 3, 5)
def test_those_left_out_use_next_to_no_processor(comm):
    comm.Barrier()
    began, before = time.monotonic(), cpu_seconds()

    def work():
        while cpu_seconds() < before + 1:
            pass

    apart(comm, [0], work)
    used = cpu_seconds() - before
    if comm.rank:
        assert used < 0.1 * (time.monotonic() - began)
        assert used < 0.5, "on a machine that has no more to give, as much as the one that works would be 1 s"


@pytest.mark.mpi(3, 5)
def test_an_agreed_error_wakes_those_that_sleep_and_is_theirs_too(communicator):
    part = communicator.part([0, 1])

    def refuse():
        raise UsageError("no")

    with pytest.raises(AgreedError, match="no") as raised:
        apart(communicator.comm, [0, 1], lambda: agreed(part.comm, refuse))
    assert raised.value.exit_status == 2
    assert apart(communicator.comm, [0], lambda: 7) == 7, "the ranks are of one mind afterwards"


@pytest.mark.mpi(2, 3)
def test_much_news_reaches_many_sleepers(comm):
    assert len(apart(comm, [0], lambda: "x" * 10_000_000)) == 10_000_000


@pytest.mark.mpi(2)
def test_a_sleeper_does_not_outlive_its_launcher(comm, monkeypatch):
    comm.Barrier()
    if comm.rank == 1:
        before = time.monotonic()
        monkeypatch.setattr(os, "getppid", lambda: time.monotonic() - before > 0.3)
        with pytest.raises(LauncherGoneError):
            apart(comm, [0], lambda: None)
    comm.Barrier()


# ---- Links ---------------------------------------------------------------------------------------------------------


@pytest.mark.mpi(2, 3, 5, timeout=120)
def test_every_nodes_link_is_probed_and_all_ranks_know_it(communicator):
    on_nodes(communicator, range(communicator.size))
    links = probe_links(communicator, partial(apart, communicator.comm))
    assert links.nodes == len(links.node_bytes_per_s) == communicator.size
    assert links.within is None
    assert min(links.node_bytes_per_s) > 1e6
    assert links.between.latency_s > 0
    assert max(links.node_bytes_per_s) >= links.between.bytes_per_s
    assert len(set(communicator.comm.allgather(links))) == 1


@pytest.mark.mpi(3, 5, timeout=120)
def test_uneven_nodes_are_probed_by_the_ranks_they_have(communicator):
    on_nodes(communicator, [0] + [1] * (communicator.size - 1))
    links = probe_links(communicator, partial(apart, communicator.comm))
    assert links.within is not None
    assert len(links.node_bytes_per_s) == links.nodes
    assert min(links.node_bytes_per_s) > 1e6


@pytest.mark.mpi(2, 3)
def test_memory_is_timed_for_each_number_of_ranks_that_have_processors_of_their_own(communicator):
    shapes = [(0,), (0, 1), tuple(range(communicator.size))]
    found = probe_memory(communicator, partial(apart, communicator.comm), shapes, 70000)
    able = [len(ranks) for ranks in shapes[1:] if not communicator.topology.part(ranks).crowded]
    assert [memory.ranks for memory in found] == sorted(set(able))
    assert communicator.comm.allgather(found) == [found] * communicator.size
    for memory in found:
        assert [nbytes for nbytes, _ in memory.copies] == [16384, 65536]
        assert min(memory.handoff_s, *(seconds for _, seconds in memory.copies)) > 0


# ---- The command ---------------------------------------------------------------------------------------------------


def shapes_of(points):
    return [(point.nodes, point.ranks_per_node, point.ranks) for point in points]


def errors(done):
    return [line for line in done.stderr.splitlines() if line.startswith(("ddlbench", "Traceback"))]


def test_one_launch_measures_all_its_shapes_and_says_so(mpirun, tmp_path):
    done = mpirun(4, *DDLBENCH, "sweep", *FAST, "--ranks-per-node", "1,2,4", "--out", "out", cwd=tmp_path)
    assert done.status == 0, done.stderr
    assert "# measured in turn: 1 node of 1 rank; 1 node of 2 ranks; 1 node of 4 ranks" in done.stdout
    assert "# proved for 1, 2, 4 ranks" in done.stdout
    heading = next(line for line in done.stdout.splitlines() if "nodes ranks" in line)
    assert heading.startswith("#")
    run, points = load(tmp_path / "out").run, load(tmp_path / "out").points
    assert shapes_of(points) == [(1, str(ranks), ranks) for ranks in (1, 2, 4) for _ in range(4)]
    assert {point.status for point in points} == {"ok"}
    timed = {memory["ranks"] for memory in run.links["memory"]}
    without = {point.ranks for point in points if point.bound_us is None}
    shared = {point.ranks for point in points if point.transport.startswith("direct")}
    assert without == {1} | (shared - timed), "ranks that share processors have no bound over memory"
    assert (run.config["nodes"], run.config["ranks_per_node"], run.finished) == ([], [1, 2, 4], True)
    assert {(proof["nodes"], proof["ranks_per_node"], proof["ranks"]) for proof in run.proofs} == {
        (1, "1", 1), (1, "2", 2), (1, "4", 4)
    }  # fmt: skip


def test_gpus_are_another_word_for_ranks_and_a_file_may_say_both_axes(mpirun, tmp_path):
    (tmp_path / "sweep.toml").write_text('nodes = [1]\nranks_per_node = [2, 1]\nsizes = ["8"]\nalgorithms = ["ring"]\n')
    flags = ("-n", "1", "-w", "0")
    assert mpirun(2, *DDLBENCH, "sweep", "sweep.toml", *flags, "--out", "file", cwd=tmp_path).status == 0
    assert shapes_of(load(tmp_path / "file").points) == [(1, "2", 2), (1, "1", 1)]
    gpus = ("--gpus-per-node", "1", "--out", "flag")
    assert mpirun(2, *DDLBENCH, "sweep", "sweep.toml", *flags, *gpus, cwd=tmp_path).status == 0
    assert shapes_of(load(tmp_path / "flag").points) == [(1, "1", 1)]


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (("--nodes", "2"), ["--nodes 2", "this launch has 1 node with 3 ranks"]),
        (("--ranks-per-node", "1,4"), ["--ranks-per-node 4", "node 0", "has 3 ranks", "1 node with 3 ranks"]),
        (("--ranks-per-node", "0"), ["--ranks-per-node", "'0'", "at least 1"]),
        (("--nodes", "one"), ["--nodes", "'one'"]),
        (("--ranks-per-node", "1,2", "--grid", "3"), ["on 1 node of 1 rank", "grid 3 holds 3 ranks", "there are 1"]),
        (("--ranks-per-node", "3,2", "-a", "r:3"), ["on 1 node of 2 ranks", "grid 3 holds 3 ranks"]),
    ],
)
def test_what_a_launch_does_not_hold_is_one_line_and_status_2(mpirun, tmp_path, flags, parts):
    done = mpirun(3, *DDLBENCH, "sweep", "--sizes", "8", *flags, "--out", "out", cwd=tmp_path, timeout=30)
    assert (done.status, done.stdout) == (2, "")
    (line,) = errors(done)
    assert [part for part in parts if part not in line] == [], line
    assert not (tmp_path / "out").exists()


def test_ranks_placed_round_robin_on_uneven_nodes_are_taken_node_by_node(mpirun, tmp_path):
    argv = (sys.executable, "-c", ON_NODES, "sweep", *FAST)
    axes = ("--nodes", "1,2", "--ranks-per-node", "1,2", "--out", "out")
    done = mpirun(5, *argv, *axes, cwd=tmp_path, env={"FAKE_NODES": "2"}, timeout=120)
    assert done.status == 0, done.stderr
    run, points = load(tmp_path / "out").run, load(tmp_path / "out").points
    assert list(dict.fromkeys(shapes_of(points))) == [(1, "1", 1), (1, "2", 2), (2, "1", 2), (2, "2", 4)]
    assert {point.status for point in points} == {"ok"}
    assert (run.topology["node_of"], run.topology["launch_ranks"]) == ([0, 0, 0, 1, 1], [0, 2, 4, 1, 3])
    assert len(run.links["node_bytes_per_s"]) == 2
    refused = mpirun(5, *argv, "--ranks-per-node", "3", "--out", "no", cwd=tmp_path, env={"FAKE_NODES": "2"})
    assert refused.status == 2
    (line,) = errors(refused)
    there = "this launch has 2 nodes: 1 with 3 ranks, 1 with 2 ranks"
    assert line == f"ddlbench: error: --ranks-per-node 3: node 1 (node1) has 2 ranks; {there}"


def test_an_uneven_launch_is_measured_whole_and_algorithms_that_cannot_are_skipped(mpirun, tmp_path):
    argv = (sys.executable, "-c", ON_NODES, "sweep", "--sizes", "8", "-a", "ring,hierarchical", "-n", "1")
    done = mpirun(3, *argv, "--out", "out", cwd=tmp_path, env={"FAKE_NODES": "2"}, timeout=120)
    assert done.status == 0, done.stderr
    ring, hierarchical = load(tmp_path / "out").points
    assert (ring.status, ring.nodes, ring.ranks_per_node, ring.ranks) == ("ok", 2, "", 3)
    assert (hierarchical.status, "here they have 2, 1" in hierarchical.reason) == ("skipped", True)


def test_a_run_over_shapes_is_gone_on_with_shape_by_shape(mpirun, tmp_path):
    sweep = (*DDLBENCH, "sweep", *FAST, "--ranks-per-node", "1,2,3", "--out", "out")
    assert mpirun(3, *sweep, cwd=tmp_path, timeout=120).status == 0
    path = tmp_path / "out" / "points.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["ranks"] != 2]
    kept = kept[:-1]
    path.write_text("".join(kept))
    done = mpirun(3, *DDLBENCH, "sweep", "--resume", "out", cwd=tmp_path, timeout=120)
    assert done.status == 0, done.stderr
    assert "# going on with out: 7 of 12 points are there" in done.stdout
    assert path.read_text().startswith("".join(kept))
    points = load(tmp_path / "out").points
    assert shapes_of(points) == [(1, str(ranks), ranks) for ranks in (1, 2, 3) for _ in range(4)]
    other = mpirun(
        3, *DDLBENCH, "sweep", *FAST, "--ranks-per-node", "1,2", "--resume", "out", cwd=tmp_path, timeout=120
    )
    assert other.status == 2
    assert "config.ranks_per_node is [1, 2, 3] there and [1, 2] here" in errors(other)[0]


def test_totals_of_a_workload_are_told_for_each_shape(mpirun, tmp_path):
    (tmp_path / "model.csv").write_text("index,name,numel,shape\n0,a,10,10\n1,b,300,3x100\n")
    flags = ("--workload", "model.csv", "-a", "ring", "-n", "3", "--ranks-per-node", "1,2", "--out", "out")
    done = mpirun(2, *DDLBENCH, "sweep", *flags, cwd=tmp_path)
    assert done.status == 0, done.stderr
    totals = [line for line in done.stdout.splitlines() if " ms  on " in line]
    assert [line.split(" ms  on ")[1] for line in totals] == ["1 node of 1 rank", "1 node of 2 ranks"]


SMALL_FILES = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000)); "
    "from ddlbench.cli import main; sys.exit(main(sys.argv[1:]))"
)


def test_an_error_while_others_sleep_ends_all_ranks(mpirun, tmp_path):
    flags = ("-e", "1K", "-i", "16", "-a", "ring,mpi", "-n", "200", "--passes", "1", "--ranks-per-node", "2,3")
    done = mpirun(
        3, sys.executable, "-c", SMALL_FILES, "sweep", *flags, "--out", "out", cwd=tmp_path, timeout=50,
        env={"OMPI_MCA_btl": "self,tcp"},
    )  # fmt: skip
    assert done.status == 1
    (line,) = errors(done)
    assert "points.jsonl" in line
    assert "points before it are kept" in line
    assert {json.loads(text)["ranks"] for text in (tmp_path / "out" / "points.jsonl").read_text().splitlines()} == {2}


def ticks(pid):
    """Return the processor time of a process in seconds, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ranks_below(pid):
    """Return the process of each rank among the descendants of the process `pid`."""
    found, waiting = {}, [pid]
    while waiting:
        here = waiting.pop()
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(here)], capture_output=True, text=True, check=False)
        waiting += map(int, listed.stdout.split())
        words = dict(word.partition("=")[::2] for word in environ(here))
        rank = words.get("OMPI_COMM_WORLD_RANK") or words.get("PMI_RANK")
        if rank is not None:
            found[int(rank)] = here
    return found


def environ(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def test_ranks_left_out_of_a_sweep_sleep_while_it_measures(tmp_path):
    flags = ("sweep", "--sizes", "4M", "-a", "ring", "-n", "50000", "--ranks-per-node", "2,3", "--out", "out")
    with (tmp_path / "output").open("wb") as output:
        process = start(command(3, [*DDLBENCH, *flags]), output, env=environment(), cwd=tmp_path)
        try:
            limit = time.monotonic() + 40
            while "algbw" not in (tmp_path / "output").read_text() and process.poll() is None:
                assert time.monotonic() < limit, (tmp_path / "output").read_text()
                time.sleep(0.05)
            pids, began = ranks_below(process.pid), time.monotonic()
            before = {rank: ticks(pid) for rank, pid in pids.items()}
            time.sleep(1.5)
            shares = {rank: (ticks(pid) - before[rank]) / (time.monotonic() - began) for rank, pid in pids.items()}
        finally:
            stop(process)
    assert sorted(shares) == [0, 1, 2], (tmp_path / "output").read_text()
    assert shares[2] < 0.1
    assert shares[0] > 2 * shares[2]


def test_the_shipped_sweep_over_shapes_runs(mpirun, tmp_path, repository):
    argv = (sys.executable, "-c", ON_NODES, "sweep", str(Path(repository, "configs", "sweeps", "scaling.toml")))
    flags = ("--sizes", "8", "-n", "1", "-w", "0", "--passes", "1", "--out", "out")
    done = mpirun(8, *argv, *flags, cwd=tmp_path, timeout=170, env={"FAKE_NODES": "4"})
    assert done.status == 0, done.stderr
    points = load(tmp_path / "out").points
    assert list(dict.fromkeys(shapes_of(points))) == [
        (nodes, str(each), nodes * each) for nodes in (1, 2, 4) for each in (1, 2)
    ]
    assert {point.status for point in points} == {"ok"}
