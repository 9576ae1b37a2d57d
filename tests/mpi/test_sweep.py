"""The sweep on real ranks: right results pass, wrong ones are counted, no failure on one rank leaves others waiting."""

import csv
import json
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ddlbench.bench import sweep as sweeping
from ddlbench.bench.agreement import AgreedError, agreed, from_root
from ddlbench.bench.config import load
from ddlbench.bench.inputs import pattern, shown
from ddlbench.bench.pace import LEAST_SAMPLES, MOST_SAMPLES
from ddlbench.bench.sweep import Layout, Priced, Sweep, groups, key_of, key_of_point
from ddlbench.bench.timer import BarrierTimer, Batch
from ddlbench.dtypes import DTYPES
from ddlbench.errors import DdlbenchError, UnsupportedError, UsageError
from launch import command, environment, start, stop

RANKS = (1, 2, 3, 5)
ALGORITHMS = (
    "ring,multi-ring:2,hierarchical,leader,recursive-doubling,halving-doubling,direct,double-binary-tree,swing,"
    "parameter-server,mpi"
)
DDLBENCH = (sys.executable, "-m", "ddlbench")
FAST = {"iterations": "3", "warmup": "1"}


class Listener:
    """Keeps the points it is told of."""

    def __init__(self):
        self.points = []

    def begin(self, group, pass_):
        pass

    def point(self, point):
        self.points.append(point)


class Tampered:
    """A plan whose result `tamper` changes after each run, on the ranks it chooses."""

    def __init__(self, plan, tamper):
        self._plan, self._tamper = plan, tamper

    def __getattr__(self, name):
        return getattr(self._plan, name)

    def execute(self):
        self._plan.execute()
        self._tamper()


@pytest.fixture
def communicator(comm):
    from ddlbench import Communicator

    with Communicator(comm) as opened:
        yield opened


@pytest.fixture
def run(communicator):
    """Give a function that sweeps with the given flags and returns the tally and, on rank 0, the points."""

    def sweep(listener=None, **flags):
        listener = listener or Listener()
        config = load(None, FAST | flags)
        ranks = communicator.size
        algorithms = [communicator.bind(name) for name in config.algorithms]
        layout = Layout(ranks, 1, str(ranks), ranks)
        rest = {"layout": layout, "price": lambda *_: Priced(1.0), "listener": listener, "timer": BarrierTimer()}
        tally = Sweep(communicator, config, algorithms, **rest).run()
        order = [key_of(group, a) for group in groups(config, tuple(algorithms), layout) for a in group.algorithms]
        return tally, sorted(listener.points, key=lambda point: order.index(key_of_point(point)))

    return sweep


@pytest.fixture
def tamper(communicator, monkeypatch):
    """Give a function that makes every plan of the communicator run `change(send, receive, rank)` after itself."""
    plan = communicator.plan

    def install(change):
        def tampered(send, receive=None, **names):
            target = send if receive is None else receive
            return Tampered(plan(send, receive, **names), lambda: change(send, target, communicator.rank))

        monkeypatch.setattr(communicator, "plan", tampered)

    return install


# ---- Measuring -----------------------------------------------------------------------------------------------------


@pytest.mark.mpi(1, 3, timeout=120)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8"])
def test_every_algorithm_is_right_for_every_reduction_in_and_out_of_place(run, dtype):
    check_reductions(run, dtype, ops="all", at_least=3 * 5 * 2 * 10)


@pytest.mark.mpi(2, 5, timeout=120)
def test_every_algorithm_is_right_for_every_type(run):
    check_reductions(run, "float16,bfloat16,float32,float64,int32,int64,uint8", ops="sum", at_least=7 * 3 * 2 * 10)


def check_reductions(run, dtypes: str, ops: str, at_least: int) -> None:
    """Sweep over all algorithms in and out of place, and see that nothing is wrong and enough was done."""
    tally, points = run(
        algorithms=ALGORITHMS, dtypes=dtypes, ops=ops, sizes="0,24,40K", in_place="both", iterations="1"
    )
    bad = [
        (point.algorithm, point.op, point.count, point.reason)
        for point in points
        if point.status in ("wrong", "failed")
    ]
    assert bad == []
    assert set(tally) <= {"ok", "skipped"}
    assert tally["ok"] >= at_least


@pytest.mark.mpi(1, 2, 3)
def test_each_point_says_what_was_run(run, communicator):
    tally, points = run(algorithms="ring,mpi", sizes="8,10,1K", in_place="both", iterations="7")
    assert tally == {"ok": 8}
    if communicator.rank:
        assert points == []
        return
    assert [(p.algorithm, p.nbytes, p.count, p.in_place) for p in points[:4]] == [
        ("ring", 8, 2, False), ("mpi", 8, 2, False), ("ring", 8, 2, True), ("mpi", 8, 2, True)
    ]  # fmt: skip
    assert {len(p.samples_ns) for p in points} == {7}
    assert all(min(p.samples_ns) >= 0 for p in points)
    assert {(p.ranks, p.wrong, p.sync, p.bound_us, p.model_us) for p in points} == {
        (communicator.size, 0, "barrier", 1.0, None)
    }
    assert {p.transport for p in points if p.algorithm == "mpi"} == {"vendor"}


@pytest.mark.mpi(2)
def test_a_sample_is_that_of_the_slowest_rank(run, communicator, monkeypatch):
    plan = communicator.plan

    class Clocked(Tampered):
        def time_samples(self, n):
            return np.arange(n) + 1000 * (np.arange(n) % 2 == communicator.rank)

    monkeypatch.setattr(communicator, "plan", lambda *a, **k: Clocked(plan(*a, **k), lambda: None))
    _, points = run(algorithms="ring", sizes="8", iterations="4", warmup="0")
    assert all(sample >= 1000 for point in points for sample in point.samples_ns)


@pytest.mark.mpi(2)
def test_without_a_number_there_are_at_least_twenty_samples(communicator):
    listener, config = Listener(), load(None, {"algorithms": "ring,mpi", "sizes": "8", "max_seconds": "0.01"})
    algorithms = [communicator.bind(name) for name in config.algorithms]
    layout = Layout(2, 1, "2", 2)
    rest = {"layout": layout, "price": lambda *_: Priced(), "listener": listener, "timer": BarrierTimer()}
    Sweep(communicator, config, algorithms, **rest).run()
    assert all(LEAST_SAMPLES <= len(point.samples_ns) <= MOST_SAMPLES for point in listener.points)


@pytest.mark.mpi(2)
def test_algorithms_take_turns_batch_by_batch(run, communicator, monkeypatch):
    plan, turns = communicator.plan, []

    class Noted(Tampered):
        def time_samples(self, n):
            turns.append(self._plan.algorithm)
            return self._plan.time_samples(n)

    monkeypatch.setattr(communicator, "plan", lambda *a, **k: Noted(plan(*a, **k), lambda: None))
    run(algorithms="ring,mpi", sizes="8", iterations="40", warmup="0", passes="2")
    assert len(turns) >= 2 * 2 * 3
    assert all({turns[at], turns[at + 1]} == {"ring", "mpi"} for at in range(0, len(turns), 2))


@pytest.mark.mpi(2)
def test_passes_go_in_other_orders_that_the_seed_gives_alike_on_all_ranks(communicator):
    orders = []
    for seed in ("1", "1", "2"):
        seen = []

        class Noting(Listener):
            def begin(self, group, pass_, seen=seen):
                seen.append((pass_, group.cell.nbytes))

        flags = {"algorithms": "ring", "sizes": "8,16,32,64,128,256", "seed": seed, "iterations": "6"}
        config = load(None, FAST | flags)
        rest = {"layout": Layout(2, 1, "2", 2), "price": lambda *_: Priced(), "timer": BarrierTimer()}
        Sweep(communicator, config, [communicator.bind("ring")], listener=Noting(), **rest).run()
        orders.append(communicator.comm.bcast(seen))
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    first, last = ([size for pass_, size in orders[0] if pass_ == which] for which in (0, 4))
    assert first != last
    assert sorted(first) == last == [8, 16, 32, 64, 128, 256]


@pytest.mark.mpi(2, 3)
def test_points_that_are_there_are_not_measured_again(run, communicator):
    _, points = run(algorithms="ring,mpi", sizes="8,16")
    there = communicator.comm.bcast([key_of_point(point) for point in points[:3]])
    config = load(None, FAST | {"algorithms": "ring,mpi", "sizes": "8,16"})
    listener = Listener()
    ranks = communicator.size
    rest = {"layout": Layout(ranks, 1, str(ranks), ranks), "price": lambda *_: Priced(), "timer": BarrierTimer()}
    bound = [communicator.bind(name) for name in ("ring", "mpi")]
    tally = Sweep(communicator, config, bound, listener=listener, done=there, **rest).run()
    assert tally == {"ok": 1}
    last = ("mpi", 4, "float32", "sum", False, 1, str(ranks), ranks)
    assert [key_of_point(point) for point in listener.points] in ([], [last])


@pytest.mark.mpi(2)
def test_ranks_that_cannot_start_together_are_timed_after_barriers_and_say_so(communicator):
    class Never:
        sync = "window"

        def __init__(self, fallback=None):
            self.fallback = fallback

        def batch(self, plan, samples, *_):
            return Batch(plan.time_samples(samples), np.ones(samples, bool))

    config, listener = load(None, FAST | {"algorithms": "ring", "sizes": "8", "iterations": "40"}), Listener()
    rest = {"layout": Layout(2, 1, "2", 2), "price": lambda *_: Priced(), "listener": listener}
    bound = [communicator.bind("ring")]
    assert Sweep(communicator, config, bound, timer=Never(BarrierTimer()), **rest).run() == {"ok": 1}
    for point in listener.points:
        assert (point.sync, len(point.samples_ns), point.late >= sweeping.MANY_LATE) == ("barrier", 40, True)
        assert "aligned starts were late" in point.reason
    listener.points.clear()
    assert Sweep(communicator, config, bound, timer=Never(), **rest).run() == {"failed": 1}
    assert all("the ranks never began together" in point.reason for point in listener.points)


@pytest.mark.mpi(2)
@pytest.mark.parametrize("pause", [0.0, 0.012, 0.05])
def test_slow_samples_that_are_all_late_fall_back_too(communicator, pause):
    """A point is not given up before it had the time to fall back on barriers."""

    class Never:
        sync = "window"
        fallback = BarrierTimer()

        def batch(self, plan, samples, *_):
            time.sleep(pause * samples)
            return Batch(plan.time_samples(samples), np.ones(samples, bool))

    flags = {"algorithms": "ring", "sizes": "8", "max_seconds": "0.1", "warmup": "1"}
    rest = {"layout": Layout(2, 1, "2", 2), "price": lambda *_: Priced(), "listener": Listener()}
    bound = [communicator.bind("ring")]
    assert Sweep(communicator, load(None, flags), bound, timer=Never(), **rest).run() == {"ok": 1}


@pytest.mark.mpi(4)
@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_an_algorithm_that_explores_chooses_once_for_all_passes(run, communicator, monkeypatch, cache):
    plan, made = communicator.plan, []

    def noted(*arguments, **options):
        made.append(plan(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(communicator, "plan", noted)
    _, points = run(algorithms="p:2x2", sizes="1K", iterations="10", passes="5", cache=cache)
    names = {one.algorithm for one in made}
    assert len(names) == 1
    assert [point.reason for point in points] in ([], [f"chose {names.pop()}"])


@pytest.mark.mpi(2, 3)
def test_each_ranks_own_times_are_stored_when_asked_for(run, communicator):
    _, points = run(algorithms="ring", sizes="1K", per_rank="1", iterations="9")
    for point in points:
        own = np.array(point.per_rank_ns)
        assert own.shape == (communicator.size, 9)
        assert np.array_equal(own.max(axis=0), point.samples_ns)
        assert sum(point.passes) == 9


@pytest.mark.mpi(2)
@pytest.mark.parametrize("sizes", ["8", "2M"])
def test_cold_caches_change_the_time_and_not_the_result(run, sizes):
    tally, points = run(algorithms="ring,mpi", sizes=sizes, cache="cold", iterations="8")
    assert tally == {"ok": 2}
    assert {(p.cache, len(p.samples_ns)) for p in points} in (set(), {("cold", 8)})


@pytest.mark.mpi(2)
def test_large_vectors_are_measured_one_algorithm_at_a_time(run, communicator, monkeypatch):
    monkeypatch.setattr(sweeping, "TAKE_TURNS_NBYTES", 1000)
    plan, open_plans = communicator.plan, []

    class Counted(Tampered):
        def close(self):
            open_plans.pop()
            self._plan.close()

    def counted(*arguments, **names):
        open_plans.append(1)
        assert len(open_plans) == 1
        return Counted(plan(*arguments, **names), lambda: None)

    monkeypatch.setattr(communicator, "plan", counted)
    tally, _ = run(algorithms="ring,direct,mpi", sizes="1K")
    assert tally == {"ok": 3}
    assert open_plans == []


# ---- Wrong results -------------------------------------------------------------------------------------------------


@pytest.mark.mpi(2, 3)
@pytest.mark.parametrize("in_place", ["no", "yes"])
def test_one_wrong_bit_on_one_rank_is_one_wrong_element_and_the_sweep_goes_on(run, tamper, communicator, in_place):
    def change(send, receive, rank):
        if rank == 1 and receive.size == 256:
            receive.view(np.uint32)[17] ^= 1

    tamper(change)
    tally, points = run(algorithms="ring,direct", sizes="1K,2K", in_place=in_place)
    assert tally == {"wrong": 2, "ok": 2}
    for point in points[:2]:
        assert (point.wrong, point.status) == (1, "wrong")
        good = int(pattern(DTYPES["float32"], "sum", 1, communicator.size).expected[17])
        assert point.reason == (
            f"1 of {256 * communicator.size} elements are wrong, the ranks' results differ; the first: rank 1, "
            f"element 17: expected {shown(good, DTYPES['float32'])}, got {shown(good ^ 1, DTYPES['float32'])}"
        )
        assert point.samples_ns


@pytest.mark.mpi(2)
def test_a_result_that_is_wrong_alike_on_all_ranks_is_said_to_be(run, tamper):
    def change(send, receive, rank):
        receive[0] += 1

    tamper(change)
    _, points = run(algorithms="ring", sizes="1K")
    assert all(point.wrong == 2 and "all ranks have the same result" in point.reason for point in points)


@pytest.mark.mpi(2)
def test_an_allreduce_that_does_nothing_is_wrong_everywhere(run, communicator, monkeypatch):
    class Idle(Tampered):
        def execute(self):
            pass

    plan = communicator.plan
    monkeypatch.setattr(communicator, "plan", lambda *a, **k: Idle(plan(*a, **k), lambda: None))
    tally, points = run(algorithms="ring", sizes="1K", in_place="both")
    assert tally == {"wrong": 2}
    assert all(point.wrong >= 500 for point in points)


@pytest.mark.mpi(2)
def test_a_changed_input_and_a_write_beyond_a_buffer_are_wrong(run, tamper):
    def change(send, receive, rank):
        if rank == 0:
            send[3] += 1
        beyond = np.lib.stride_tricks.as_strided(receive, shape=(receive.size + 1,))
        if rank == 1:
            beyond.view(np.uint8)[receive.nbytes] ^= 1

    tamper(change)
    _, points = run(algorithms="ring", sizes="1K")
    for point in points:
        assert point.status == "wrong"
        assert "1 elements of the input were changed" in point.reason
        assert "1 bytes beyond the buffers were overwritten" in point.reason


@pytest.mark.mpi(2)
def test_a_plan_that_goes_wrong_while_it_is_timed_is_found(run, communicator, monkeypatch):
    plan = communicator.plan

    class Wearing(Tampered):
        worn = False

        def time_samples(self, n):
            self.worn = True
            return self._plan.time_samples(n)

    def wearing(send, receive=None, **names):
        made = Wearing(plan(send, receive, **names), lambda: None)
        made._tamper = lambda: made.worn and receive.__setitem__(0, -1)
        return made

    monkeypatch.setattr(communicator, "plan", wearing)
    _, points = run(algorithms="ring", sizes="1K")
    assert all(point.status == "wrong" and "after the timed samples" in point.reason for point in points)


@pytest.mark.mpi(2)
def test_an_unchecked_result_says_so(run, tamper):
    tamper(lambda _, receive, __: receive.fill(0))
    tally, points = run(algorithms="ring", sizes="1K", check="0")
    assert tally == {"ok": 1}
    assert all(point.wrong is None for point in points)


# ---- What cannot be measured ---------------------------------------------------------------------------------------


@pytest.mark.mpi(1, 2)
def test_a_combination_that_does_not_exist_is_skipped_with_its_reason(run):
    tally, points = run(algorithms="ring,mpi", dtypes="bfloat16", sizes="1K")
    assert tally == {"ok": 1, "skipped": 1}
    for point in points[1:]:
        assert (point.status, point.samples_ns, point.wrong) == ("skipped", (), None)
        assert "MPI_Allreduce" in point.reason


@pytest.mark.mpi(2, 3)
def test_memory_that_is_short_on_one_rank_fails_the_point_on_all(run, communicator, monkeypatch):
    buffers = sweeping.Buffers

    def short(count, dtype, *, in_place):
        if communicator.rank == 1 and count > 100:
            raise MemoryError("no room here")
        return buffers(count, dtype, in_place=in_place)

    monkeypatch.setattr(sweeping, "Buffers", short)
    tally, points = run(algorithms="ring,direct", sizes="8,1K,16")
    assert tally == {"ok": 4, "failed": 2}
    assert [point.status for point in points] in ([], ["ok", "ok", "failed", "failed", "ok", "ok"])
    assert all(re.fullmatch(r"rank 1 on \S+: out of memory: no room here", point.reason) for point in points[2:4])


@pytest.mark.mpi(2)
def test_buffers_beyond_the_hosts_memory_are_not_even_tried(run, monkeypatch):
    monkeypatch.setattr(sweeping, "available_nbytes", lambda: 1000)
    tally, points = run(algorithms="ring", sizes="8,1K")
    assert tally == {"ok": 1, "failed": 1}
    assert all("out of memory" in point.reason for point in points[1:])


@pytest.mark.mpi(2, 3)
def test_a_listener_that_fails_ends_the_sweep_on_all_ranks(run):
    class Full(Listener):
        def point(self, _):
            raise OSError(28, "No space left on device")

    with pytest.raises(AgreedError, match="No space left"):
        run(Full(), algorithms="ring", sizes="8")


# ---- Agreement -----------------------------------------------------------------------------------------------------


@pytest.mark.mpi(1, 2, 3)
def test_what_fails_nowhere_gives_each_rank_its_value(comm):
    assert agreed(comm, lambda: comm.rank * 2) == comm.rank * 2
    assert from_root(comm, lambda: comm.rank + 7) == 7


@pytest.mark.mpi(2, 3)
@pytest.mark.parametrize("error", [UsageError("bad"), UnsupportedError("bad"), MemoryError("bad"), OSError(2, "bad")])
def test_what_fails_on_one_rank_is_raised_on_all_and_names_it(comm, error):
    def action():
        if comm.rank == comm.size - 1:
            raise error

    with pytest.raises(AgreedError, match=rf"rank {comm.size - 1} on \S+: .*bad") as raised:
        agreed(comm, action)
    assert type(raised.value.error) is type(error)
    assert raised.value.exit_status == (2 if isinstance(error, UsageError) else 1)


@pytest.mark.mpi(2, 3)
def test_what_fails_alike_on_all_ranks_names_none(comm):
    def action():
        raise UsageError("all wrong")

    with pytest.raises(AgreedError) as raised:
        agreed(comm, action)
    assert str(raised.value) == "all wrong"


@pytest.mark.mpi(2)
def test_what_fails_on_the_first_rank_alone_is_raised_on_all(comm):
    def action():
        assert comm.rank == 0
        raise DdlbenchError("disk full")

    with pytest.raises(AgreedError, match="disk full"):
        from_root(comm, action)


# ---- The command under mpirun --------------------------------------------------------------------------------------


def first_lines(finished):
    """Return what ddlbench itself wrote on standard error, without mpirun's remarks on the exit status."""
    return [line for line in finished.stderr.splitlines() if line.startswith(("ddlbench", "Traceback"))]


def rows(path):
    with (path / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_a_sweep_leaves_a_table_a_record_a_csv_and_a_page(mpirun, tmp_path, ranks):
    done = mpirun(
        ranks, *DDLBENCH, "sweep", "-b", "8", "-e", "8K", "-f", "32", "-a", "ring,multi-ring:2,mpi", "-n", "20",
        "--check", "--sync", "barrier", "--out", "out", cwd=tmp_path,
    )  # fmt: skip
    assert done.status == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(table) == 9
    assert all(line.split()[-1] == "0" for line in table)
    stored = rows(tmp_path / "out")
    assert [(row["algorithm"], row["nbytes"], row["status"], row["wrong"]) for row in stored[:3]] == [
        (name, "8", "ok", "0") for name in ("ring", "multi-ring:2", "mpi")
    ]
    assert {(row["ranks"], row["samples"]) for row in stored} == {(str(ranks), "20")}
    assert {row["busbw_gb_per_s"] == "" for row in stored} == {ranks == 1}
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["finished"] is True
    assert [proof["algorithm"] for proof in record["proofs"]] == ["ring", "multi-ring:2"]
    assert "<html" in (tmp_path / "out" / "report.html").read_text()


def test_a_sweep_without_mpirun_is_one_rank_and_says_so(tmp_path):
    done = subprocess.run(
        [*DDLBENCH, "sweep", "--sizes", "8", "-n", "1", "--out", "out"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "one rank: nothing is sent" in done.stdout
    assert "mpirun -n 4" in done.stdout


def test_a_run_that_is_there_is_kept_unless_it_may_be_replaced(mpirun, tmp_path):
    sweep = (*DDLBENCH, "sweep", "--sizes", "8", "-n", "1", "-a", "ring", "--out", "out")
    assert mpirun(2, *sweep, cwd=tmp_path).status == 0
    before = (tmp_path / "out" / "run.json").read_bytes()
    refused = mpirun(2, *sweep, cwd=tmp_path)
    assert refused.status == 2
    assert first_lines(refused) == [
        "ddlbench: error: out already holds a run; give another directory, or --overwrite to replace it"
    ]
    assert (tmp_path / "out" / "run.json").read_bytes() == before
    assert mpirun(2, *sweep, "--overwrite", cwd=tmp_path).status == 0


def test_the_report_is_made_again_from_the_record(mpirun, tmp_path):
    assert mpirun(2, *DDLBENCH, "sweep", "--sizes", "8", "-n", "1", "--out", "out", cwd=tmp_path).status == 0
    first = (tmp_path / "out" / "results.csv").read_bytes()
    for name in ("results.csv", "report.html"):
        (tmp_path / "out" / name).unlink()
    done = subprocess.run([*DDLBENCH, "report", "out"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "results.csv").read_bytes() == first
    assert (tmp_path / "out" / "report.html").exists()


def test_a_workload_ends_with_the_total_of_each_algorithm(mpirun, tmp_path):
    (tmp_path / "model.csv").write_text("index,name,numel,shape\n0,a,10,10\n1,b,10,10\n2,c,300,3x100\n")
    done = mpirun(
        2, *DDLBENCH, "sweep", "--workload", "model.csv", "-a", "ring,mpi", "-n", "5", "--out", "o", cwd=tmp_path
    )
    assert done.status == 0, done.stderr
    assert "workload model: 3 tensors, 320 elements; 2 sizes in float32" in done.stdout
    lines = done.stdout[done.stdout.index("# model:") :].splitlines()
    assert {line.split()[0] for line in lines[1:3]} == {"ring", "mpi"}
    points = [json.loads(line) for line in (tmp_path / "o" / "points.jsonl").read_text().splitlines()]
    assert {(point["count"], point["multiplicity"]) for point in points} == {(10, 2), (300, 1)}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("sweep", "-b", "8Q"), ["'8Q'", "64K"]),
        (("sweep", "-a", "rnig"), ["'rnig'", "'ring'"]),
        (("sweep", "--grid", "4x2"), ["4x2", "8", "3"]),
        (("sweep", "quick.tmol"), ["'quick.tmol'"]),
        (("sweep", "--sizess", "8"), ["--sizess", "--sizes"]),
        (("swep",), ["'swep'", "'sweep'"]),
        (("verify", "rnig"), ["'rnig'", "'ring'"]),
    ],
)
def test_a_mistake_is_one_line_from_one_rank_and_status_2(mpirun, tmp_path, arguments, parts):
    done = mpirun(3, *DDLBENCH, *arguments, cwd=tmp_path, timeout=30)
    assert done.status == 2
    assert done.stdout == ""
    (line,) = first_lines(done)
    assert line.startswith("ddlbench: error: ")
    assert [part for part in parts if part not in line] == [], line
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


ON_RANK_1 = (
    "import os, sys; rank = os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ.get('PMI_RANK'); "
    "os.chdir(sys.argv.pop(1) if rank == '1' else sys.argv.pop(1) + '/..'); "
    "from ddlbench.cli import main; sys.exit(main(sys.argv[1:]))"
)


def test_a_file_that_one_rank_lacks_ends_all_ranks_and_names_the_rank(mpirun, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine.py").write_text("from ddlbench.algorithms.ring import ALGORITHM\n")
    done = mpirun(
        3, sys.executable, "-c", ON_RANK_1, "elsewhere", "sweep", "-a", "./mine.py:ALGORITHM", cwd=tmp_path, timeout=30
    )
    assert done.status == 2
    (line,) = first_lines(done)
    assert re.match(r"ddlbench: error: rank 1 on \S+: .*'\./mine\.py'", line)


def test_ranks_with_other_arguments_do_not_wait_for_each_other(mpirun, tmp_path):
    good = [*DDLBENCH, "sweep", "--sizes", "8", "-n", "1", "--out", "out"]
    done = mpirun(1, *good, ":", "-n", "1", *DDLBENCH, "swep", cwd=tmp_path, timeout=40)
    assert done.status == 2


def test_an_algorithm_of_ones_own_is_proved_before_anything_is_measured(mpirun, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\n"
        "from ddlbench.algorithms.ring import ALGORITHM as GOOD\n"
        "def phases(grid, ranks, **given):\n"
        "    for phase in GOOD.phases(grid, ranks, **given):\n"
        "        yield type(phase)(phase.rounds, phase.steps[:-1])\n"
        "LOSSY = replace(GOOD, name='lossy', phases=phases)\n"
    )
    sweep = (*DDLBENCH, "sweep", "--sizes", "8", "-n", "1", "--out", "out", "-a")
    refused = mpirun(2, *sweep, "ring,./mine.py:LOSSY", cwd=tmp_path)
    assert (refused.status, refused.stdout) == (2, "")
    (line,) = first_lines(refused)
    assert "'mine.py:LOSSY' is refused" in line
    assert "round 0" in line
    assert not (tmp_path / "out").exists()
    assert mpirun(2, *sweep, "./mine.py:GOOD", cwd=tmp_path).status == 0
    assert [row["algorithm"] for row in rows(tmp_path / "out")] == ["mine.py:GOOD"]


def test_a_defect_on_one_rank_is_told_with_its_traceback_and_ends_the_job(mpirun, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "from dataclasses import replace\n"
        "from ddlbench.algorithms.ring import ALGORITHM\n"
        "def phases(grid, ranks, **given):\n"
        "    if 1 in ranks and len(ranks) == 1:\n"
        "        raise ZeroDivisionError('only here')\n"
        "    return ALGORITHM.phases(grid, ranks, **given)\n"
        "BROKEN = replace(ALGORITHM, name='broken', phases=phases)\n"
    )
    done = mpirun(3, *DDLBENCH, "sweep", "-a", "./mine.py:BROKEN", "--sizes", "8", cwd=tmp_path, timeout=30)
    assert done.status != 0
    assert "ZeroDivisionError: only here" in done.stderr
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_launcher_that_is_not_this_mpis_is_an_error_and_not_many_runs(tmp_path, rank):
    environ = {
        name: value for name, value in environment().items() if not name.startswith(("OMPI_COMM", "PMI", "PMIX"))
    }
    done = subprocess.run(
        [*DDLBENCH, "sweep", "--sizes", "8", "--out", "out"], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=environ | {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": rank}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()
    if rank == "0":
        (line,) = done.stderr.splitlines()
        for part in ("4 ranks", "SLURM_STEP_NUM_TASKS=4", "MPI says 1", "mpirun"):
            assert part in line
    else:
        assert done.stderr == ""


def test_a_full_disk_ends_the_sweep_with_its_reason_and_keeps_the_points(tmp_path):
    limit = 20_000
    done = subprocess.run(
        [*DDLBENCH, "sweep", "-e", "1K", "-i", "16", "-a", "ring,mpi", "-n", "200", "--out", "out"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment(), timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = first_lines(done)
    kept = int(re.search(r"the (\d+) points before it are kept", line)[1])
    assert "points.jsonl" in line
    stored = [json.loads(text) for text in (tmp_path / "out" / "points.jsonl").read_text().splitlines()]
    assert len(stored) == kept > 0
    assert subprocess.run([*DDLBENCH, "report", "out"], capture_output=True, check=False, cwd=tmp_path).returncode == 0
    assert len(rows(tmp_path / "out")) == kept


def test_a_page_that_does_not_fit_costs_no_points(tmp_path):
    limit = 20_000
    done = subprocess.run(
        [*DDLBENCH, "sweep", "--sizes", "8", "-n", "20", "--out", "out"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment(), timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = first_lines(done)
    assert "report.html" in line
    assert "every point is stored" in line
    assert [row["status"] for row in rows(tmp_path / "out")] == ["ok", "ok"]


def interrupted(argv, tmp_path, number):
    """Start a long sweep, send it a signal once it has stored points; return status, seconds to its end, errors."""
    points = tmp_path / "out" / "points.jsonl"
    with (tmp_path / "stdout").open("wb") as out, (tmp_path / "stderr").open("wb") as err:
        process = start(argv, out, err, env=environment(), cwd=tmp_path)
        try:
            limit = time.monotonic() + 40
            while not (points.exists() and points.stat().st_size) and process.poll() is None:
                assert time.monotonic() < limit, (tmp_path / "stderr").read_text()
                time.sleep(0.05)
            begin = time.monotonic()
            process.send_signal(number)
            status = process.wait(30)
        finally:
            stop(process)
    return status, time.monotonic() - begin, (tmp_path / "stderr").read_text()


# In one pass, so that points come from the first second on; those after it take many seconds.
LONG = ("sweep", "-b", "8", "-e", "16K", "-i", "8", "-n", "500", "--passes", "1", "--out", "out")


def test_ctrl_c_ends_a_sweep_and_keeps_its_points(tmp_path):
    status, _, err = interrupted([*DDLBENCH, *LONG], tmp_path, signal.SIGINT)
    assert status == 130
    assert err.splitlines()[-1] == "ddlbench: interrupted: the points that were finished are kept in out"
    assert subprocess.run([*DDLBENCH, "report", "out"], capture_output=True, check=False, cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "out" / "run.json").read_text())["finished"] is False


def test_ctrl_c_under_mpirun_ends_all_ranks(tmp_path):
    status, seconds, _ = interrupted(command(3, [*DDLBENCH, *LONG]), tmp_path, signal.SIGINT)
    assert status != 0
    assert seconds < 20
    text = (tmp_path / "out" / "points.jsonl").read_text()
    assert all(json.loads(line)["status"] == "ok" for line in text.splitlines())


def test_the_shipped_sweeps_run(mpirun, tmp_path, repository):
    for name in ("quick", "gradients"):
        path = Path(repository, "configs", "sweeps", f"{name}.toml")
        sizes = ("--sizes", "8,4K") if name == "quick" else ("-a", "ring,mpi")
        done = mpirun(
            2, *DDLBENCH, "sweep", str(path), *sizes, "-n", "1", "-w", "0", "--out", name, cwd=tmp_path, timeout=120
        )
        assert done.status == 0, done.stderr
        assert {row["status"] for row in rows(tmp_path / name)} == {"ok"}
