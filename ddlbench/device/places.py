"""Which device is whose, and where devices stand: their nodes, network cards, and what lies between two of them."""

import ctypes
import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.device.owner import extension
from ddlbench.errors import NoDeviceError

PCI = Path("/sys/bus/pci/devices")
CARDS = (Path("/sys/class/infiniband"), Path("/sys/class/net"))
ANCESTORS = {0: "one board", 10: "one switch", 20: "switches", 30: "host bridge", 40: "one NUMA node", 50: "NUMA nodes"}
"""What NVML's nvmlGpuTopologyLevel_t calls the way between two devices over PCIe, in words."""
NVLINK, OK = 2, 0


@dataclass(frozen=True)
class Place:
    """Where a rank's device stands: its number for this process, what it is, and what is near it.

    `uuid` is the same for all processes that use the device. `numa` is -1 where the system does not say, and `cards`
    are the network cards behind the same bridges, nearest first.
    """

    number: int
    name: str
    uuid: str
    bus: str
    total_nbytes: int
    numa: int
    cards: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the place as a JSON object."""
        return {
            "number": self.number,
            "name": self.name,
            "uuid": self.uuid,
            "bus": self.bus,
            "total_nbytes": self.total_nbytes,
            "numa": self.numa,
            "cards": list(self.cards),
        }


def device_number(local: int, ranks: int, *, share: bool) -> int:
    """Return the device of the rank that is number `local` of the `ranks` on its node.

    Raises `NoDeviceError` where there are too few and they are not to be shared, or none.
    """
    found = len(extension().devices())
    if ranks > found and found > 1 and not share:
        raise NoDeviceError(f"{ranks} ranks on a node with {found} devices: start at most {found}, or --share-device")
    # One visible device may be a different one for each rank, as srun --gpus-per-task gives them: UUIDs will tell.
    return local % found


def place_of(number: int) -> Place:
    """Return where device `number` of this process stands."""
    cuda = extension()
    found = cuda.devices()[number]
    bus = found.bus.lower()
    numa = _number(PCI / bus / "numa_node")
    return Place(number, found.name, _uuid(number) or bus, bus, found.total_nbytes, numa, near_cards(bus))


def check_apart(places: Sequence[Place], nodes: Sequence[int]) -> None:
    """Refuse ranks of one node that use the same device; `nodes` has each rank's. Raises `NoDeviceError`."""
    seen: dict[tuple[int, str], int] = {}
    for rank, (place, node) in enumerate(zip(places, nodes, strict=True)):
        other = seen.setdefault((node, place.uuid), rank)
        if other != rank:
            raise NoDeviceError(
                f"ranks {other} and {rank} share the device {place.name} at {place.bus}: start fewer ranks on a node, "
                "see that the launcher gives each rank a GPU of its own, or --share-device if that is meant"
            )


def _uuid(number: int) -> str:
    """Return the UUID of a device, of a part of one where it is cut in parts (MIG); "" where the driver says none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        found, told = ctypes.c_int(), ctypes.create_string_buffer(16)
        ask = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
        failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(found), number) or ask(told, found)
    except (OSError, AttributeError):
        return ""
    text = told.raw.hex()
    return "" if failed else f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return -1


def near_cards(bus: str, pci: Path = PCI, cards: Sequence[Path] = CARDS) -> tuple[str, ...]:
    """Return the network cards that share the most bridges with the device at `bus`, as sysfs has them."""
    own = _bridges(pci / bus)
    names = {card: len(_common(own, _bridges(card / "device"))) for folder in cards for card in _in(folder)}
    most = max(names.values(), default=0)
    return tuple(sorted(card.name for card, shared in names.items() if shared == most and most))


def _in(folder: Path) -> list[Path]:
    return [card for card in folder.iterdir() if (card / "device").exists()] if folder.is_dir() else []


def _bridges(path: Path) -> tuple[str, ...]:
    """Return the root and bridges above the PCI device that `path` leads to, from the root on."""
    parts = path.resolve().parts
    return tuple(part for part in parts[:-1] if re.fullmatch(r"pci[0-9a-f:]+|[0-9a-f]{4,}:[0-9a-f:.]+", part))


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
    shared = []
    for here, there in zip(one, other, strict=False):
        if here != there:
            break
        shared.append(here)
    return shared


def distances(buses: Sequence[str], nvml: Any = None) -> dict[str, str] | None:
    """Return what NVML says lies between each two of the devices at `buses`, by "i-j"; None where there is no NVML.

    `nvml` is the module pynvml, of nvidia-ml-py, when None the one that is installed.
    """
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except ImportError:
        return None
    except Exception as error:  # pynvml's own error, of a module that may not be there
        if type(error).__module__.partition(".")[0] != "pynvml":
            raise
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByPciBusId(bus.encode()) for bus in buses]
        pairs = [(i, j) for j in range(len(buses)) for i in range(j)]
        return {f"{i}-{j}": _between(nvml, handles[i], handles[j], buses[i] == buses[j]) for i, j in pairs}
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _between(nvml: Any, one: Any, other: Any, same: bool) -> str:
    if same:
        return "the same device"
    if nvml.nvmlDeviceGetP2PStatus(one, other, NVLINK) == OK:
        return "NVLink"
    level = nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
    return f"PCIe: {ANCESTORS.get(level, level)}"


def spelt(version: int) -> str:
    """Return a version of CUDA, 1000 · major + 10 · minor, as it is written: 12.4."""
    return f"{version // 1000}.{version % 1000 // 10}"


def facts(places: Sequence[Place], versions: tuple[int, int], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run's record has of its devices, a JSON object; `versions` are the driver's and the runtime's."""
    driver, runtime = map(spelt, versions)
    return {"driver": driver, "runtime": runtime, "ranks": [place.to_json() for place in places], **more}
