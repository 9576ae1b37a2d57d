"""Processors that all nodes share, as those of a virtual cluster: messages that leave together hold each other up."""

from dataclasses import dataclass

import numpy as np

from ddlbench.cost.machine import Machine
from ddlbench.cost.network import ISLAND, LEVELS, NIC, NODE, Floats, Placement
from ddlbench.schedule.move import Ints


@dataclass(frozen=True)
class Processors:
    """So many processors, and the seconds that a message keeps one of them busy, by the level at which ranks meet.

    From `large` bytes on that a node sends at once, bytes count for more: `one_way` times as much, `both_ways` where
    the receiver sends to the sender's node as well.
    """

    count: int
    busy: Floats
    large: float = np.inf
    one_way: float = 1.0
    both_ways: float = 1.0

    def stretch(self, nbytes: Floats, source: Ints, target: Ints, level: Ints, placement: Placement) -> Floats:
        """Return how many times as long the bytes of messages take that leave together."""
        out = level >= NIC
        sender, receiver = placement.node_of(source), placement.node_of(target)
        sent = np.bincount(sender, np.where(out, nbytes, 0.0), placement.nodes)
        ways = sender * placement.nodes + receiver
        mutual = np.isin(receiver * placement.nodes + sender, ways[out])
        factor = np.where(mutual, self.both_ways, self.one_way)
        return np.where(out & (sent[sender] >= self.large), factor, 1.0)

    def waits(self, left: Floats, level: Ints, latency: Floats) -> Floats:
        """Return the seconds by which each message of a tick is late because others need the processors too.

        They take turns: whatever leaves within a message's latency, before or after it, has its share of every
        processor meanwhile, and polling ranks leave none idle that a late message could catch up on. A message alone
        waits for none: what it keeps a processor busy is part of the latency.
        """
        order = np.argsort(left, kind="stable")
        at, busy = left[order], self.busy[level[order]]
        before = np.concatenate([[0.0], np.cumsum(busy)])
        first = np.searchsorted(at, at - latency[order], side="left")
        last = np.searchsorted(at, at + latency[order], side="right")
        waits = np.empty(len(left))
        waits[order] = np.maximum(0.0, (before[last] - before[first]) / self.count - busy)
        return waits


def processors_of(machine: Machine) -> Processors | None:
    """Return the processors that the nodes of `machine` share; None where each has its own."""
    part = machine.processors
    if part is None:
        return None
    inside = part.message if part.inside is None else part.inside
    busy = np.full(len(LEVELS), part.message.value)
    busy[[ISLAND, NODE]] = inside.value
    if part.large is None or machine.nic is None:
        return Processors(int(part.count.value), busy)
    rate = machine.nic.bandwidth.value
    one_way = max(1.0, rate / part.one_way.value) if part.one_way else 1.0
    both_ways = max(1.0, 2 * rate / part.both_ways.value) if part.both_ways else one_way
    return Processors(int(part.count.value), busy, part.large.value, one_way, both_ways)
