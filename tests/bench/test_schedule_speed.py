"""How long proof and lowering take: `make microbench` prints the table; nothing here asserts a time.

Goals: 256 ranks proved in under 0.1 s and 1,024 in under 2 s each; a rank of 4,096 lowered in under 0.25 s.
"""

import pytest

from ddlbench.algorithms import available, resolve
from ddlbench.schedule import Grid, lower, verify

NAMES = [a.name for a in available()]


@pytest.mark.parametrize("text", NAMES)
@pytest.mark.parametrize("ranks", [64, 256, 1024])
def test_verify(benchmark, text, ranks):
    benchmark.group = f"verify, {ranks} ranks"
    schedule = lower(resolve(text, Grid((ranks,))))
    proof = benchmark.pedantic(verify, (schedule,), rounds=3, warmup_rounds=1)
    assert proof.ranks == ranks


@pytest.mark.parametrize("text", ["multi-ring", "hierarchical", "leader"])
def test_verify_on_a_grid(benchmark, text):
    benchmark.group = "verify, grid 4x256"
    schedule = lower(resolve(text, Grid((4, 256))))
    assert benchmark.pedantic(verify, (schedule,), rounds=3, warmup_rounds=1).ranks == 1024


@pytest.mark.parametrize("text", NAMES)
def test_lower_one_rank_of_4096(benchmark, text):
    benchmark.group = "lower one rank of 4096"
    bound = resolve(text, Grid((4096,)))
    program = benchmark.pedantic(lower, (bound, [4095]), rounds=5, warmup_rounds=1)
    assert set(program.table["rank"].tolist()) == {4095}
