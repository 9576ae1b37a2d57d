"""Plans on device memory, over each transport, against the reference.

The devices are emulated: no proof of a GPU, unless DDLBENCH_TEST_GPU says to take the machine's own (make gpu-check).
"""

import ctypes
import dataclasses
import os
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import emulated_cuda
from ddlbench.algorithms import resolve
from ddlbench.bench.inputs import bits, encode, pattern, reduced
from ddlbench.device import nccl
from ddlbench.device import owner as owners
from ddlbench.dtypes import DTYPES
from ddlbench.errors import DeviceError, UnsupportedError, UsageError
from ddlbench.records import load
from ddlbench.topology import discover
from launch import environment

WHY_NOT = emulated_cuda.missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "")

ON_A_GPU = bool(os.environ.get("DDLBENCH_TEST_GPU"))
"""As `make gpu-check` runs these tests: on the machine's GPUs, and without cuda-aware, which its MPI may not be."""
HERE = Path(__file__).resolve().parents[1]
TRANSPORTS = ("staged", "cuda-ipc") if ON_A_GPU else ("staged", "cuda-ipc", "cuda-aware")
ALGORITHMS = ("ring", "multi-ring:2", "halving-doubling", "recursive-doubling", "direct", "double-binary-tree",
              "swing", "parameter-server", "leader")  # fmt: skip


@cache
def device(number):
    return owners.open_device(number)


@pytest.fixture
def communicator(monkeypatch):
    with opened(monkeypatch) as made:
        yield made


@contextmanager
def opened(monkeypatch):
    import emulated_device
    from ddlbench import Communicator
    from ddlbench.device import aware, plans

    if not ON_A_GPU:
        emulated_device.use()
        monkeypatch.setattr(aware, "support", lambda: "")
        monkeypatch.setattr(aware, "tried", lambda _: "")
    monkeypatch.setattr(plans, "PIECE_NBYTES", 3000)
    monkeypatch.setattr(plans, "SLOT_PIECE_NBYTES", 2000)
    with Communicator() as made:
        number = made.rank % len(owners.extension().devices()) if ON_A_GPU else 0
        made.use_device(device(number))
        yield made


def uploaded(communicator, array, dtype):
    made = communicator.device_empty(array.size, dtype.name)
    communicator.owner.cuda.copy(made.address, array.ctypes.data, array.nbytes)
    communicator.owner.cuda.synchronize()
    return made


def downloaded(communicator, made, dtype):
    array = np.empty(made.size, dtype.storage)
    communicator.owner.cuda.copy(array.ctypes.data, made.address, made.nbytes)
    communicator.owner.cuda.synchronize()
    return array


def check(communicator, count, *, algorithm, transport, dtype="float32", op="sum", in_place=False, runs=3, **more):
    """Run a plan several times, each on new input, and hold every bit against what it must be."""
    kind = DTYPES[dtype]
    given = pattern(kind, op, communicator.rank, communicator.size)
    send = communicator.device_empty(count, dtype)
    receive = send if in_place else communicator.device_empty(count, dtype)
    with communicator.plan(
        send,
        None if in_place else receive,
        op=op,
        algorithm=algorithm,
        dtype=dtype,
        transport="auto" if transport == "nccl" else transport,
        **more,
    ) as plan:
        assert plan.transport == transport
        for run in range(runs):
            source = np.resize(np.roll(given.sent, run), count).view(kind.storage)
            communicator.owner.cuda.copy(send.address, source.ctypes.data, source.nbytes)
            communicator.owner.cuda.synchronize()
            plan.execute()
            found = bits(downloaded(communicator, receive, kind))
            expected = np.resize(np.roll(given.expected, run), count)
            wrong = np.flatnonzero(found != expected)
            assert not len(wrong), f"{algorithm} over {transport}, run {run}: element {wrong[0]} of {count}"
        communicator.barrier()


@pytest.mark.mpi(2, 3)
def test_every_algorithm_gives_the_right_bits_over_every_transport(communicator):
    for algorithm in ALGORITHMS:
        try:
            resolve(algorithm, communicator.grid)
        except UsageError:
            continue
        for transport in TRANSPORTS:
            check(communicator, 1501, algorithm=algorithm, transport=transport, in_place=algorithm == "ring")
            check(communicator, 5000, algorithm=algorithm, transport=transport, runs=2, segment_nbytes=4096)


@pytest.mark.mpi(3)
def test_messages_to_other_nodes_start_and_end_in_pinned_memory_or_on_the_device(monkeypatch):
    """Three ranks of one machine that are told to be on two nodes."""

    def apart(comm):
        found = discover(comm)
        return dataclasses.replace(found, node_of=(0, 0, 1)[: comm.size], machine_of=found.machine_of or found.node_of)

    monkeypatch.setattr("ddlbench.comm.discover", apart)
    with opened(monkeypatch) as communicator:
        assert communicator.topology.ranks_per_node == (2, 1)
        for why in ("the library cannot", "") if not ON_A_GPU else ("the library cannot",):
            communicator.__dict__["_not_aware"] = why
            for algorithm in ("ring", "multi-ring:2", "direct", "halving-doubling", "parameter-server"):
                check(communicator, 1501, algorithm=algorithm, transport="cuda-ipc", runs=2)
                check(communicator, 5000, algorithm=algorithm, transport="cuda-ipc", segment_nbytes=2048, in_place=True)
        plans = communicator._on_device
        communicator.__dict__["_not_aware"] = "the library cannot"
        plans._mapped_buffers = lambda _: None
        check(communicator, 5000, algorithm="ring", transport="cuda-ipc", op="avg")
        check(communicator, 1501, algorithm="ring", transport="staged")


@pytest.mark.mpi(3)
def test_every_type_and_reduction_gives_the_right_bits_over_every_transport(communicator):
    for dtype in DTYPES:
        for op in ("sum", "prod", "min", "max", "avg"):
            for transport in TRANSPORTS:
                check(communicator, 997, algorithm="ring", transport=transport, dtype=dtype, op=op, runs=1)


@pytest.mark.mpi(2, 3)
def test_vectors_of_few_elements_and_of_none(communicator):
    for count in (0, 1, 2, 7):
        for transport in TRANSPORTS:
            check(communicator, count, algorithm="direct", transport=transport, runs=1)
            check(communicator, count, algorithm="ring", transport=transport, runs=2, in_place=True)


@pytest.mark.mpi(2)
def test_memory_without_handles_goes_through_slots(communicator):
    plans, handle = communicator._on_device, communicator._on_device._handle
    maps = []
    plans._mapped_buffers = lambda _: maps.append(1)
    check(communicator, 5000, algorithm="ring", transport="cuda-ipc")
    check(communicator, 5000, algorithm="ring", transport="cuda-ipc", in_place=True)
    assert maps
    plans._handle = lambda _: None
    send = communicator.device_empty(100)
    with pytest.raises(UnsupportedError, match="--transport staged"):
        communicator.plan(send, algorithm="ring", transport="cuda-ipc")
    with communicator.plan(send, algorithm="ring") as plan:
        assert (plan.transport, "not over cuda-ipc" in plan.why) == ("staged", True)
    plans._handle = handle


@pytest.mark.mpi(2)
def test_slots_are_freed_when_all_ranks_have_closed_the_plan(communicator):
    plans = communicator._on_device
    for _ in range(3):
        check(communicator, 100, algorithm="ring", transport="cuda-ipc", runs=1)
    assert len(plans._retired) == 1
    assert not plans._maps._bases


@pytest.mark.mpi(2)
def test_samples_are_timed_by_events_too(communicator):
    send, receive = communicator.device_empty(4000), communicator.device_empty(4000)
    for transport in TRANSPORTS:
        with communicator.plan(send, receive, algorithm="ring", transport=transport) as plan:
            taken = plan.time_samples(4)
            seen = plan.device_ns()
            assert len(seen) == 4
            assert (seen > 0).all()
            assert (seen <= taken).all()
            communicator.barrier()


@pytest.mark.mpi(2)
def test_arrays_of_others_are_taken_by_their_interface(communicator):
    kind = DTYPES["float32"]
    array = encode(reduced(kind, "sum", 1), kind)

    class Theirs:
        def __init__(self, made):
            self.made = made
            self.__cuda_array_interface__ = made.__cuda_array_interface__

    made = uploaded(communicator, array, kind)
    result = communicator.allreduce(Theirs(made), algorithm="ring")
    assert (downloaded(communicator, result, kind) == 2 * array).all()
    owner, communicator._owner = communicator.owner, None  # as where nobody chose a device: the buffer's is taken
    result = communicator.allreduce(Theirs(made), algorithm="ring")
    assert communicator.owner.device == owner.device
    assert (downloaded(communicator, result, kind) == 2 * array).all()
    out = uploaded(communicator, array, kind)
    communicator.allreduce(Theirs(made), Theirs(out), algorithm="ring", op="max")
    assert (downloaded(communicator, out, kind) == array).all()


@pytest.mark.mpi(2)
def test_what_does_not_fit_is_refused_in_a_line(communicator):
    made = communicator.device_empty(10)
    host = np.zeros(10, np.float32)
    with pytest.raises(UsageError, match="send buffer is in the memory of a GPU, the receive buffer in host memory"):
        communicator.plan(made, host)
    with pytest.raises(UsageError, match="send buffer is in host memory, the receive buffer in the memory of a GPU"):
        communicator.plan(host, made)
    with pytest.raises(UsageError, match="transport 'direct': for buffers on a device"):
        communicator.plan(made, transport="direct")
    with pytest.raises(UsageError, match="transport staged is for buffers on a device"):
        communicator.plan(host, transport="staged")
    with pytest.raises(UnsupportedError, match="mpi has no schedule to run over cuda-ipc"):
        communicator.plan(made, algorithm="mpi", transport="cuda-ipc")
    with pytest.raises(UnsupportedError, match="'nccl' reduces memory of GPUs"):
        communicator.plan(host, algorithm="nccl")
    with pytest.raises(MemoryError, match="has no room for"):
        communicator.device_empty(1 << 48)
    with pytest.raises(UnsupportedError, match="a buffer on device 1, but this rank's is 0"):
        communicator.plan(dataclasses.replace(made, device=1))


@pytest.mark.mpi(2)
def test_the_library_s_own_allreduce_takes_device_memory_by_both_ways(communicator):
    for transport in (way for way in TRANSPORTS if way != "cuda-ipc"):
        check(communicator, 1000, algorithm="mpi", transport=transport, op="avg")


class Refusing:
    """The capsule of the emulation's functions, of which waiting for a stream fails after `times` of it."""

    def __init__(self, capsule, times):
        name = b"ddlbench._cuda.calls"
        get, make = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        words = (ctypes.c_void_p * 11).from_address(get(capsule, name))
        left, wait = [times], ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        good = wait(words[5])

        def synchronize(stream):
            left[0] -= 1
            return good(stream) if left[0] >= 0 else 2

        self.kept = wait(synchronize), (ctypes.c_void_p * 11)(*words), name
        self.kept[1][5] = ctypes.cast(self.kept[0], ctypes.c_void_p)
        self.capsule = make(ctypes.addressof(self.kept[1]), name, None)


@pytest.mark.mpi(2)
def test_an_error_of_the_device_is_told_by_its_name(communicator, monkeypatch):
    capsule, made = communicator.owner.cuda.calls(), communicator.device_empty(5000)
    for transport in TRANSPORTS:
        refusing = Refusing(capsule, 1)  # the first wait is for what was before, the second for the plan's own work
        with monkeypatch.context() as patched:
            patched.setattr(communicator.owner, "cuda", Calling(communicator.owner.cuda, refusing.capsule))
            plan = communicator.plan(made, algorithm="ring", transport=transport)
            with pytest.raises(DeviceError, match="cudaErrorMemoryAllocation: out of memory"):
                plan.execute()
        communicator.barrier()
        del plan


class Calling:
    def __init__(self, cuda, capsule):
        self.cuda, self.capsule = cuda, capsule

    def __getattr__(self, name):
        return getattr(self.cuda, name)

    def calls(self):
        return self.capsule


@pytest.mark.mpi(2)
@pytest.mark.skipif(ON_A_GPU, reason="the stand-in for NCCL knows emulated devices only")
def test_nccl_is_loaded_called_and_held_against_the_reference(communicator, monkeypatch, tmp_path):
    library = communicator.comm.bcast(str(tmp_path / "libnccl.so.2"))
    if communicator.rank == 0:
        source = HERE / "cuda" / "nccl_double.c"
        mpicc = Path(sys.executable).with_name("mpicc")
        subprocess.run([mpicc if mpicc.exists() else "mpicc", "-shared", "-fPIC", source, "-o", library], check=True)
    communicator.barrier()
    monkeypatch.setenv("DDLBENCH_NCCL", library)
    for op in ("sum", "prod", "min", "max", "avg"):
        for dtype in ("float32", "float64", "int32"):
            check(communicator, 3001, algorithm="nccl", transport="nccl", dtype=dtype, op=op, in_place=op == "sum")
    assert communicator._nccl.version == "2.28.3"
    with pytest.raises(DeviceError, match=r"ncclAllReduce: unhandled \(4\)"):
        communicator.allreduce(communicator.device_empty(10, "uint8"), algorithm="nccl")
    communicator.barrier()
    monkeypatch.setenv("NCCL_DOUBLE_REFUSES", "1")
    with pytest.raises(DeviceError, match=r"ncclCommInitRank: invalid usage \(5\)"):
        nccl.Nccl(communicator.comm)


# ---- sweep --device --------------------------------------------------------------------------------------------------

ONE = {"EMULATED_CUDA_DEVICES": "1", "EMULATED_CUDA_MEMORY": str(3 << 20)}


def sweep(mpirun, ranks, *flags, program=None, env=None):
    argv = [sys.executable, program or str(HERE / "emulated_device.py"), "sweep", "-n", "3", "-w", "1", "--passes", "1"]
    return mpirun(ranks, *argv, "--timeout", "30", *flags, env={"PYTHONPATH": f"{HERE.parent}:{HERE}"} | (env or {}))


def test_a_sweep_of_device_memory_checks_and_times_every_point_in_two_ways(mpirun, tmp_path):
    out = tmp_path / "run"
    flags = ("--device", "cuda", "--sizes", "1000,2M", "-a", "ring,mpi", "--in-place", "both", "--out", str(out))
    done = sweep(mpirun, 2, *flags, "--share-device", env=ONE)
    points = {(p.algorithm, p.nbytes, p.in_place): p for p in load(out).points}
    assert done.status == 1, done.stderr
    good = [point for point in points.values() if point.nbytes < 1 << 21]
    assert len(good) == 4
    for point in good:
        assert (point.status, point.wrong, point.device) == ("ok", 0, "cuda"), point.reason
        assert point.transport == ("staged" if point.algorithm == "mpi" else "cuda-ipc")
        assert len(point.device_ns) == len(point.samples_ns) == 3
        assert 0 < max(point.device_ns) <= max(point.samples_ns)
        assert point.first_us > 0
    # Two vectors of 2 MiB have no room, one has: the sweep went on, and the point says why.
    full = points["ring", 2 << 20, False]
    assert (full.status, "device 0 has no room for" in full.reason) == ("failed", True)
    assert points["mpi", 2 << 20, True].status == "ok"
    devices = load(out).run.environment["devices"]
    assert [one["name"] for one in devices["ranks"]] == ["emulated GPU 0"] * 2
    assert (devices["driver"], devices["runtime"], devices["shared"]) == ("12.0", "12.0", True)


def test_ranks_that_share_a_device_by_accident_are_refused_in_a_line(mpirun, tmp_path):
    flags = ("--device", "cuda", "--sizes", "1000", "-a", "ring", "--out", str(tmp_path / "run"))
    refused = sweep(mpirun, 2, *flags, env={"EMULATED_CUDA_DEVICES": "1"})
    assert (refused.status, refused.stderr.count("ddlbench: error")) == (2, 1), refused.stderr
    assert "ranks 0 and 1 share the device emulated GPU 0 at 0000:01:00.0" in refused.stderr
    assert "--share-device if that is meant" in refused.stderr


def test_without_a_driver_a_sweep_says_so_in_a_line():
    argv = [sys.executable, str(HERE / "emulated_device.py"), "sweep", "--device", "cuda"]
    told = environment({"PYTHONPATH": f"{HERE.parent}:{HERE}", "EMULATED_CUDA_ERROR": "35"})
    done = subprocess.run(argv, env=told, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert "cudaErrorInsufficientDriver" in done.stderr
    assert "nvidia-smi" in done.stderr
