"""What the device path decides before there is a device: whose is whose, whose arrays are taken, what is refused."""

import ctypes
import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ddlbench.bench.config import load
from ddlbench.device import aware, nccl, owner, places
from ddlbench.device.arrays import DeviceArray, device_array, kind_of, pair
from ddlbench.device.plans import PIECE_NBYTES, piece_bounds
from ddlbench.errors import NoDeviceError, UsageError
from ddlbench.report.payload import _names


class Interface:
    """What CuPy, torch and JAX show of an array on a GPU."""

    def __init__(self, shape=(10,), typestr="<f4", strides=None, stream=None, address=4096, readonly=False):
        told = {"shape": shape, "typestr": typestr, "strides": strides, "stream": stream, "version": 3}
        self.__cuda_array_interface__ = {**told, "data": (address, readonly)}


class Capsuled:
    """What shows itself by DLPack: a numpy array that says it is on a GPU, or of another type."""

    def __init__(self, array, device=(2, 1), code=None, bits=None):
        self.array, self.device, self.code, self.bits = array, device, code, bits

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self):
        capsule = self.array.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        from ddlbench.device.arrays import _Tensor

        tensor = _Tensor.from_address(get(capsule, b"dltensor"))
        tensor.code = tensor.code if self.code is None else self.code
        tensor.bits = tensor.bits if self.bits is None else self.bits
        return capsule


def test_an_array_is_read_by_its_interface():
    found = device_array(Interface((4, 5), stream=7))
    assert (found.address, found.size, found.dtype, found.nbytes, found.stream) == (4096, 20, "float32", 80, 7)
    assert device_array(Interface((4, 5), strides=(20, 4))).size == 20
    assert device_array(np.zeros(3)) is None


@pytest.mark.parametrize("strides", [(4, 16), (40, 4), (-20, 4)])
def test_an_array_with_gaps_is_refused(strides):
    with pytest.raises(UsageError, match="C-contiguous device array"):
        device_array(Interface((4, 5), strides=strides))


def test_an_array_is_read_by_dlpack():
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    found = device_array(Capsuled(array))
    assert (found.address, found.size, found.dtype, found.device) == (array.ctypes.data, 6, "float64", 1)
    assert kind_of(device_array(Capsuled(array.astype(np.uint16), code=4)), None).name == "bfloat16"
    with pytest.raises(UsageError, match="C-contiguous device array"):
        device_array(Capsuled(array.T))
    with pytest.raises(UsageError, match="managed memory"):
        device_array(Capsuled(array, device=(13, 0)))


def test_types_the_device_has_no_kernels_for_are_refused_by_name():
    with pytest.raises(UsageError, match="no kernels for complex64: expected one of float16, "):
        kind_of(device_array(Interface(typestr="<c8")), None)
    with pytest.raises(UsageError, match="an array of float32 cannot hold bfloat16"):
        kind_of(device_array(Interface()), "bfloat16")
    assert kind_of(device_array(Interface(typestr="<u2")), "bfloat16").name == "bfloat16"
    assert kind_of(device_array(Interface(typestr="<V2")), "bfloat16").name == "bfloat16"


def test_buffers_that_do_not_fit_each_other_are_refused():
    with pytest.raises(UsageError, match="10 float32 in the memory of a GPU, but receive buffer of 11 float32"):
        pair(Interface(), Interface((11,)))
    with pytest.raises(UsageError, match="overlap"):
        pair(Interface(), Interface(address=4100))
    with pytest.raises(UsageError, match="read-only"):
        pair(Interface(), Interface(address=8192, readonly=True))
    with pytest.raises(UsageError, match="on device 1, the receive buffer on 2"):
        pair(Capsuled(np.zeros(2)), Capsuled(np.zeros(2), device=(2, 2)))
    assert pair(np.zeros(2), np.zeros(2)) is None
    made = DeviceArray(4096, 10, "float32", 4)
    assert pair(made, made) == (made, made)


@pytest.fixture
def devices(monkeypatch):
    def have(number):
        monkeypatch.setattr(places, "extension", lambda: SimpleNamespace(devices=lambda: (None,) * number))

    return have


def test_a_rank_s_device_is_that_of_its_number_on_the_node(devices):
    devices(4)
    assert [places.device_number(local, 4, share=False) for local in range(4)] == [0, 1, 2, 3]
    with pytest.raises(NoDeviceError, match="5 ranks on a node with 4 devices: start at most 4, or --share-device"):
        places.device_number(0, 5, share=False)
    assert places.device_number(4, 5, share=True) == 0
    devices(1)  # as a launcher shows each rank another one: their UUIDs tell
    assert places.device_number(3, 4, share=False) == 0


def test_ranks_of_one_node_with_one_device_are_told_apart_by_its_uuid():
    one, other = (places.Place(0, "GPU", uuid, "0000:01:00.0", 1, -1, ()) for uuid in ("a", "b"))
    places.check_apart([one, other, one], [0, 0, 1])
    with pytest.raises(NoDeviceError, match=r"ranks 0 and 2 share the device GPU at 0000:01:00.0"):
        places.check_apart([one, other, one], [0, 0, 0])


def test_the_nearest_card_shares_the_most_bridges(tmp_path):
    for path in ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00/0000:00:01.0/0000:02:00.0",
                 "pci0000:00/0000:00:02.0/0000:03:00.0", "pci0000:80/0000:81:00.0"):  # fmt: skip
        (tmp_path / "devices" / path).mkdir(parents=True)
    (tmp_path / "pci").mkdir()
    (tmp_path / "pci" / "0000:01:00.0").symlink_to(tmp_path / "devices/pci0000:00/0000:00:01.0/0000:01:00.0")
    near = {"mlx0": "pci0000:00/0000:00:01.0/0000:02:00.0", "mlx1": "pci0000:00/0000:00:02.0/0000:03:00.0"}
    for name, path in {**near, "eth9": "pci0000:80/0000:81:00.0"}.items():
        (tmp_path / "cards" / name).mkdir(parents=True)
        (tmp_path / "cards" / name / "device").symlink_to(tmp_path / "devices" / path)
    assert places.near_cards("0000:01:00.0", tmp_path / "pci", [tmp_path / "cards", tmp_path / "none"]) == ("mlx0",)


def test_nvml_s_levels_are_told_in_words():
    class Nvml:
        NVMLError = KeyError
        nvmlInit = nvmlShutdown = staticmethod(lambda: None)  # noqa: N815
        nvmlDeviceGetHandleByPciBusId = staticmethod(bytes.decode)  # noqa: N815

        @staticmethod
        def nvmlDeviceGetP2PStatus(one, other, index):  # noqa: ARG004, N802
            return 0 if {one, other} == {"a", "b"} else 3

        @staticmethod
        def nvmlDeviceGetTopologyCommonAncestor(one, other):  # noqa: ARG004, N802
            return 50

    assert places.distances(["a", "b", "c", "a"], Nvml) == {
        "0-1": "NVLink",
        "0-2": "PCIe: NUMA nodes",
        "1-2": "PCIe: NUMA nodes",
        "0-3": "the same device",
        "1-3": "NVLink",
        "2-3": "PCIe: NUMA nodes",
    }


def test_the_try_with_device_memory_tells_how_the_child_ended():
    def ended(program):
        return aware.tried([sys.executable, "-c", program])

    assert ended("pass") == ""
    assert "signal 11" in ended("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert ended("import sys; sys.exit('no such memory')") == (
        "a process that sent device memory ended with status 1: no such memory"
    )
    told = "import os, sys; sys.exit(str(sorted(n for n in os.environ if n[:5] in ('OMPI_', 'PMIX_'))))"
    found = aware.tried([sys.executable, "-c", told], {"OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "PATH": ""})
    assert found.endswith(": []")


def test_without_the_extension_pycuda_or_nccl_a_line_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "ddlbench._cuda", None)
    with pytest.raises(NoDeviceError, match=r"built without CUDA .*DDLBENCH_CUDA=1"):
        owner.extension()
    monkeypatch.setitem(sys.modules, "pycuda", None)
    with pytest.raises(NoDeviceError, match=r"pycuda, which is not installed: pip install 'ddlbench\[cuda\]'"):
        owner._pycuda()
    monkeypatch.setenv("DDLBENCH_NCCL", "libnone.so.2")
    with pytest.raises(NoDeviceError, match=r"algorithm 'nccl' needs NCCL, which does not load .*nvidia-nccl-cu12"):
        nccl.load()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"transport": "staged"}, "--transport staged is for memory of GPUs: add --device cuda"),
        ({"algorithms": "ring,nccl"}, "algorithm 'nccl' reduces memory of GPUs: add --device cuda"),
        ({"share_device": "1"}, "--share-device says that ranks share GPUs: add --device cuda"),
        ({"device": "cuda", "transport": "p2p"}, "--transport p2p is for host memory: leave it out"),
        ({"device": "cuda", "cache": "cold"}, "--cache cold is for host memory: leave it out"),
        ({"device": "cuda", "buffers": "registered"}, "--buffers registered is for host memory"),
        ({"device": "cuda", "huge_pages": "1"}, "--huge-pages is for host memory"),
        ({"device": "cude"}, "--device: 'cude': expected host or cuda"),
    ],
)
def test_what_does_not_exist_where_the_vectors_are_is_refused(flags, told):
    with pytest.raises(UsageError, match=told):
        load(None, flags)


def test_a_staged_vector_is_cut_into_pieces_that_hold_all_of_it():
    assert piece_bounds(100, 4).tolist() == [0, 100]
    bounds = piece_bounds(7 * PIECE_NBYTES // 4 + 3, 4)
    assert (len(bounds), bounds[0], bounds[-1]) == (8, 0, 7 * PIECE_NBYTES // 4 + 3)
    assert (np.diff(bounds) > 0).all()
    assert len(piece_bounds(1 << 30, 4)) == 17


def test_a_vendor_s_allreduce_on_devices_stands_behind_ours_in_reports():
    table = pd.DataFrame({"series": ["mpi", "nccl", "ring"], "transport": ["staged", "nccl", "cuda-ipc"]})
    assert _names(table) == (["ring", "mpi", "nccl"], 1)


# ---- make gpu-check --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu_check(repository):
    spec = importlib.util.spec_from_file_location("gpu_check", repository / "tests" / "cuda" / "gpu_check.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_check_without_a_gpu_is_a_line_and_writes_nothing(gpu_check, monkeypatch, tmp_path, capsys):
    def none(number):
        raise NoDeviceError("no GPU to work with: install the driver")

    monkeypatch.setattr(owner, "open_device", none)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--out", str(tmp_path / "gpu")])
    assert gpu_check.main() == 2
    assert capsys.readouterr() == ("", "gpu-check: no GPU to work with: install the driver\n")
    assert not (tmp_path / "gpu").exists()


def test_the_check_has_2_4_and_8_ranks_which_share_devices_only_where_there_are_fewer(gpu_check, tmp_path):
    sweeps = [step.argv for step in gpu_check.steps(tmp_path, 4, ["mpirun"], "") if "sweep" in step.argv]
    ranks = [(argv[argv.index("-n") + 1], "--share-device" in argv) for argv in sweeps]
    assert ranks == [("2", False), ("4", False), ("8", True), ("2", False), ("4", False)]
    assert sum("ring,halving-doubling,nccl" in argv for argv in sweeps) == 1
    assert not any("nccl" in word for step in gpu_check.steps(tmp_path, 1, ["x"], "one") for word in step.argv)
    assert gpu_check.why_no_nccl(1).endswith("there is one here")


def test_the_check_tells_how_each_step_ended_and_stops_in_time(gpu_check, tmp_path):
    def ran(program, left=30.0):
        return gpu_check.run(gpu_check.Step("a step", (sys.executable, "-c", program)), tmp_path, left).told

    assert ran("pass") == "ok"
    assert ran("raise SystemExit(3)") == "status 3, see a-step.log"
    assert ran("pass", 0.5) == "left out: the time was up"
    outcomes = [gpu_check.Outcome("a step", "ok", 1.5)]
    assert "GPU 0: Tesla P100" in gpu_check.text(["Tesla P100"], (12040, 12090), outcomes, "")
