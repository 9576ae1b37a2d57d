"""Made-up launches and times of their links."""

import numpy as np

from ddlbench.links.timing import Curve
from ddlbench.topology import Topology

SIZES = (1, 8, 64, 512, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20)


def curve(seconds, *, seed=1, samples=20, outliers=0.0, sizes=SIZES):
    """Return times of `seconds(x)` with half a per cent of jitter, a share of them three to thirty times too long."""
    random = np.random.default_rng(seed)
    taken = []
    for x in sizes:
        times = seconds(x) * (1 + 0.005 * random.standard_normal(samples))
        late = random.random(samples) < outliers
        taken.append(tuple(np.where(late, times * random.uniform(3, 30, samples), times)))
    return Curve(tuple(map(float, sizes)), tuple(taken))


def topology(nodes, each, *, one_machine=False):
    node_of = tuple(node for node in range(nodes) for _ in range(each))
    hosts = tuple(f"node{node}" for node in node_of)
    machines = (0,) * len(node_of) if one_machine else ()
    return Topology(hosts, node_of, tuple((rank,) for rank in range(len(node_of))), (), machines)
