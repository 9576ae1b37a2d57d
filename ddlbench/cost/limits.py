"""What no algorithm can beat on a described machine: latency, bandwidth, network cards, uplinks and reduction.

With p ranks on N nodes in R racks, V bytes, and a, b, g of the machine:

    latency      the time until a message, passed on and on, can have reached p ranks: ceil(log2 p) a for a rank that
                 is busy with a message until it has arrived; less for one that begins the next after the overhead
    bandwidth    2(p-1)/p V over all that a rank sends at once on all its links
    cards        2(N-1)/N V over the cards that a node's ranks use
    uplink       2(R-1)/R V over the uplink of a rack
    reduction    (p-1)/p V over what a rank adds

Where cards let a burst pass, it takes no time in the second and the third.

Source: Chan et al., Concurrency and Computation 19 (2007); Bar-Noy and Kipnis, SPAA 1992, for the latency.
"""

import heapq
from collections.abc import Mapping
from functools import lru_cache

from ddlbench.cost.machine import Machine
from ddlbench.cost.network import Placement


def limits(machine: Machine, placement: Placement, nbytes: float) -> dict[str, float]:
    """Return the lower bounds of an allreduce of `nbytes` by name, in seconds; none with one rank."""
    ranks = placement.ranks
    if ranks < 2:
        return {}
    burst = _burst(machine, placement)
    found = {
        "latency": _latency(machine, placement),
        "bandwidth": max(0.0, _traffic(ranks, nbytes) - burst) / _rank_rate(machine, placement),
        "reduction": _traffic(ranks, nbytes) / 2 / machine.rank.reduction.value,
    }
    if placement.nodes > 1:
        found["cards"] = max(0.0, _traffic(placement.nodes, nbytes) - burst) / _cards_rate(machine, placement)
    if placement.racks > 1 and machine.rack is not None:
        found["uplink"] = _traffic(placement.racks, nbytes) / machine.rack.uplink.value
    return found


def _burst(machine: Machine, placement: Placement) -> float:
    """Return the bytes that a node's cards let pass at once."""
    if machine.nic is None or machine.nic.burst is None or placement.nodes == 1:
        return 0.0
    return placement.cards_used * machine.nic.burst.value


def binding(bounds: Mapping[str, float]) -> str:
    """Return the name of the greatest bound, "" of none."""
    return max(bounds, key=bounds.__getitem__, default="")


def _traffic(parties: int, nbytes: float) -> float:
    """Return the bytes that the busiest of so many parties sends at least."""
    return 2 * (parties - 1) / parties * nbytes


def _latency(machine: Machine, placement: Placement) -> float:
    links = [link for link in (machine.island, machine.node) if link is not None and placement.ranks_per_node > 1]
    least = [link.latency.value for link in links]
    if machine.nic is not None and placement.nodes > 1:
        least.append(machine.nic.latency.value)
    return _reached(placement.ranks, min(least), machine.message_overhead)


@lru_cache(maxsize=256)
def _reached(ranks: int, latency: float, overhead: float) -> float:
    """Return when a message can have reached `ranks` ranks, each passing it on as often as it can.

    A rank that has it at t passes it on with arrivals at t + latency, t + latency + overhead, and so on.
    """
    if overhead <= 0:
        return latency
    arrivals, last = [latency], 0.0
    for _ in range(ranks - 1):
        last = heapq.heappop(arrivals)
        heapq.heappush(arrivals, last + latency)
        heapq.heappush(arrivals, last + overhead)
    return last


def _rank_rate(machine: Machine, placement: Placement) -> float:
    """Return the most that a rank sends a second on all its links together."""
    rate = 0.0
    for link in (machine.island, machine.node):
        if link is not None and placement.ranks_per_node > 1:
            rate += link.bandwidth.value
    if machine.nic is not None and placement.nodes > 1:
        nic = machine.nic
        rate += min(nic.bandwidth.value, nic.per_rank.value if nic.per_rank else nic.bandwidth.value)
    return rate


def _cards_rate(machine: Machine, placement: Placement) -> float:
    """Return what a node's ranks send a second over the cards they use, while as much arrives."""
    if machine.nic is None:
        raise ValueError(f"{machine.name} has no network cards")
    one = min(machine.nic.bandwidth.value, machine.nic.both_ways.value / 2 if machine.nic.both_ways else float("inf"))
    rate = placement.cards_used * one
    if machine.nic.per_rank is not None:
        rate = min(rate, placement.ranks_per_node * machine.nic.per_rank.value)
    return rate
