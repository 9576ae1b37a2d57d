"""The devices of a sweep: each rank's own, all of them checked, and what the record says of them."""

from functools import partial
from typing import Any

from ddlbench.bench.agreement import agreed
from ddlbench.bench.config import SweepConfig
from ddlbench.comm import Communicator
from ddlbench.device import owner as owners
from ddlbench.device.owner import Owner
from ddlbench.device.places import Place, check_apart, device_number, distances, facts, place_of


def take_devices(communicator: Communicator, config: SweepConfig) -> dict[str, Any]:
    """Give each rank its device (collective) and return what is stored of them.

    Raises `AgreedError` of a `NoDeviceError` where there is no GPU, or ranks share one and are not meant to.
    """
    comm, topology = communicator.comm, communicator.topology
    owner, place = agreed(comm, partial(_taken, communicator, share=config.share_device))
    places = comm.allgather(place)
    if not config.share_device:
        agreed(comm, partial(check_apart, places, topology.node_of))
    communicator.use_device(owner)
    near = distances([one.bus for one, node in zip(places, topology.node_of, strict=True) if node == 0])
    return facts(places, owner.cuda.versions(), {"distances": near, "shared": config.share_device})


def _taken(communicator: Communicator, *, share: bool) -> tuple[Owner, Place]:
    topology = communicator.topology
    node = sorted(topology.ranks_of(topology.node_of[communicator.rank]))
    number = device_number(node.index(communicator.rank), len(node), share=share)
    return owners.open_device(number), place_of(number)
