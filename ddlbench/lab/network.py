"""The commands that wire a lab: bridges, cables with a rate in both directions, addresses. Lists, no shell.

           rack 0                            rack 1
  node0 ── v0n0 ┐                         ┌ v2n0 ── node2        vAnB   cable of node A's network card ethB
  node1 ── v1n0 ┴ r0n0 ══ core n0 ══ r1n0 ┴ v3n0 ── node3        rAnB   switch of rack A in network B

Every end of a cable is shaped, so that both directions have the rate. A lab of one rack has one switch and no core.
"""

from collections.abc import Iterator

from ddlbench.lab.spec import Lab, Rate

Command = list[str]
BURST_SECONDS = 2e-3
LEAST_BURST_NBYTES = 4 * 1500
QUEUE = "20ms"


def wire(lab: Lab) -> Iterator[Command]:
    """Yield the commands that make all of the network, to run in a network namespace of its own."""
    yield ["ip", "link", "set", "lo", "up"]
    for node in range(lab.nodes):
        yield ["ip", "netns", "add", f"node{node}"]
        yield ["ip", "-n", f"node{node}", "link", "set", "lo", "up"]
    for nic in range(lab.nics):
        yield from _switches(lab, nic)
        for node in range(lab.nodes):
            yield from _cable(lab, node, nic)


def _switches(lab: Lab, nic: int) -> Iterator[Command]:
    for rack in range(lab.racks):
        yield from _bridge(f"r{rack}n{nic}")
    if lab.racks == 1:
        return
    yield from _bridge(f"core{nic}")
    for rack in range(lab.racks):
        down, up = f"d{rack}n{nic}", f"u{rack}n{nic}"
        yield ["ip", "link", "add", down, "type", "veth", "peer", "name", up]
        yield ["ip", "link", "set", up, "master", f"r{rack}n{nic}", "up"]
        yield ["ip", "link", "set", down, "master", f"core{nic}", "up"]
        if lab.rack_rate is not None:  # as it is with several racks
            yield from (shape(end, lab.rack_rate) for end in (down, up))


def _bridge(name: str) -> Iterator[Command]:
    yield ["ip", "link", "add", name, "type", "bridge"]
    yield ["ip", "link", "set", name, "up"]


def _cable(lab: Lab, node: int, nic: int) -> Iterator[Command]:
    host, card, end = f"node{node}", f"eth{nic}", cable(node, nic)
    yield ["ip", "link", "add", end, "type", "veth", "peer", "name", card, "netns", host]
    yield ["ip", "link", "set", end, "master", f"r{lab.rack_of(node)}n{nic}", "up"]
    yield ["ip", "-n", host, "addr", "add", f"{lab.address(node, nic)}/24", "dev", card]
    yield ["ip", "-n", host, "link", "set", card, "up"]
    yield from rate_commands(node, nic, lab.rate_of(node))


def cable(node: int, nic: int) -> str:
    """Return the name of the switch's end of the cable to a network card."""
    return f"v{node}n{nic}"


def rate_commands(node: int, nic: int, rate: Rate) -> Iterator[Command]:
    """Yield the commands that give the cable of a network card its rate, whatever it had before."""
    yield shape(cable(node, nic), rate)
    yield shape(f"eth{nic}", rate, host=f"node{node}")


def shape(device: str, rate: Rate, host: str | None = None) -> Command:
    """Return the command that lets `device`, of `host` or of a switch, send at `rate`."""
    burst = max(LEAST_BURST_NBYTES, round(rate.bytes_per_s * BURST_SECONDS))
    options = ["rate", f"{rate.bits_per_s}bit", "burst", f"{burst}b", "latency", QUEUE]
    return ["tc", *(["-n", host] if host else []), "qdisc", "replace", "dev", device, "root", "tbf", *options]


def plug(node: int, nic: int, *, up: bool) -> Command:
    """Return the command that connects or cuts the cable of a network card: the node sees its carrier go."""
    return ["ip", "link", "set", cable(node, nic), "up" if up else "down"]
