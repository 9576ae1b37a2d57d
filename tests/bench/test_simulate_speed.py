"""How long a prediction takes: `make microbench` prints the table; nothing here asserts a time.

Goals: 256 ranks of any algorithm in under 1 s, 4,096 in under 10 s, 65,536 of the grid forms in under 30 s.
"""

import pytest

from ddlbench.algorithms import available, resolve
from ddlbench.cost.network import Placement
from ddlbench.cost.rounds import prepare
from ddlbench.cost.simulate import seconds
from machines import machine

NBYTES = 64 << 20
NAMES = [algorithm.name for algorithm in available()]
GRIDS = [("multi-ring:4x128x128", 4), ("multi-ring", 16), ("hierarchical", 8), ("multi-ring:256x256", 1)]


def predicted(text, nodes, each):
    on = machine(nodes, each, nic_bandwidth=12.5e9)
    placement = Placement.on(on, nodes, each)
    return seconds(prepare(resolve(text, placement.grid), placement), on, NBYTES)


@pytest.mark.parametrize("text", NAMES)
@pytest.mark.parametrize("ranks", [256, 4096])
def test_predict(benchmark, text, ranks):
    benchmark.group = f"predict, {ranks} ranks, 4 on a node"
    assert benchmark.pedantic(predicted, (text, ranks // 4, 4), rounds=1) > 0


@pytest.mark.parametrize(("text", "each"), GRIDS)
def test_predict_a_grid_of_65536(benchmark, text, each):
    benchmark.group = "predict, 65,536 ranks"
    assert benchmark.pedantic(predicted, (text, 65_536 // each, each), rounds=1) > 0
