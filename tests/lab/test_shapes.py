"""Shapes of one launch on the nodes of a virtual cluster: real links with a rate, and ranks placed in any order."""

import pytest

from ddlbench.records import load
from virtual import Labs

GBIT = 125e6
"""Bytes a second of a link at 1 Gbit/s, with all that goes around the data."""
BURST = 256e3
"""At most what the lab's links let pass at once at that rate."""
FEW = ("-n", "3", "-w", "1", "--passes", "1")


def shapes_of(points):
    return list(dict.fromkeys((point.nodes, point.ranks_per_node, point.ranks) for point in points))


def test_one_launch_over_nodes_measures_all_its_shapes_against_what_the_nodes_links_carry(labs: Labs, tmp_path):
    nbytes = 4 << 20
    axes = ("--nodes", "1,2,4", "--ranks-per-node", "1,2")
    sweep = (
        "ddlbench",
        "sweep",
        *axes,
        "--sizes",
        "4M",
        "-a",
        "ring,hierarchical",
        *FEW,
        "--out",
        str(tmp_path / "run"),
    )
    done = labs("run", "--nodes", "4", "--ranks-per-node", "2", "--rate", "1gbit", "--", *sweep, timeout=170)
    assert done.status == 0, done.stderr
    loaded = load(tmp_path / "run")
    assert shapes_of(loaded.points) == [(nodes, str(each), nodes * each) for nodes in (1, 2, 4) for each in (1, 2)]
    assert {point.status for point in loaded.points} == {"ok"}
    rates = loaded.run.links["node_bytes_per_s"]
    assert len(rates) == 4
    assert min(rates) > 0.6 * GBIT
    assert max(rates) < 1.05 * GBIT, "a burst is no rate"
    assert loaded.run.links["burst_nbytes"] < 1.2 * BURST
    for point in loaded.points:
        if point.nodes > 1:
            sent = 2 * (point.nodes - 1) / point.nodes * nbytes
            assert (sent - 1.2 * BURST) / (1.05 * GBIT) < point.bound_us / 1e6 < sent / (0.6 * GBIT)
            assert min(point.samples_ns) / 1e3 > 0.7 * point.bound_us


def test_a_slow_node_bounds_only_the_shapes_that_it_is_in(labs: Labs, tmp_path):
    sweep = ("ddlbench", "sweep", "--nodes", "2,3", "--sizes", "1M", "-a", "ring", *FEW, "--out", str(tmp_path / "run"))
    done = labs("run", "--nodes", "3", "--node-rate", "2=100mbit", "--", *sweep, timeout=170)
    assert done.status == 0, done.stderr
    loaded = load(tmp_path / "run")
    first, second, slow = loaded.run.links["node_bytes_per_s"]
    assert slow < 0.11 * GBIT
    assert min(first, second) > 3 * slow
    two, three = (point.bound_us for point in loaded.points)
    assert three > 3 * two


def test_ranks_placed_round_robin_over_nodes_are_taken_node_by_node(labs: Labs, tmp_path):
    sweep = f"ddlbench sweep --nodes 1,2 --ranks-per-node 1,2 --sizes 8 -a ring -n 1 --out {tmp_path}/run"
    command = f"mpirun -n 5 --map-by node {sweep}"
    done = labs("shell", "--nodes", "3", "--ranks-per-node", "2", "--", "sh", "-c", command, timeout=170)
    assert done.status == 0, done.stderr
    loaded = load(tmp_path / "run")
    topology = loaded.run.topology
    assert topology["hosts"] == ["node0", "node0", "node1", "node1", "node2"]
    assert topology["launch_ranks"] == [0, 3, 1, 4, 2]
    assert set(topology["machine_of"]) == {0}
    assert shapes_of(loaded.points) == [(1, "1", 1), (1, "2", 2), (2, "1", 2), (2, "2", 4)]


@pytest.mark.parametrize(
    ("flags", "refusal"),
    [
        (
            ("--ranks-per-node", "2"),
            "node 2 (node2) has 1 rank; this launch has 3 nodes: 2 with 2 ranks, 1 with 1 rank",
        ),
        (("--nodes", "4"), "--nodes 4: this launch has 3 nodes: 2 with 2 ranks, 1 with 1 rank"),
    ],
)
def test_what_uneven_nodes_do_not_hold_is_refused_by_name(labs: Labs, tmp_path, flags, refusal):
    command = f"mpirun -n 5 --map-by node ddlbench sweep {' '.join(flags)} --sizes 8 --out {tmp_path}/run"
    done = labs("shell", "--nodes", "3", "--ranks-per-node", "2", "--", "sh", "-c", command, timeout=120)
    assert done.status == 2
    assert refusal in done.stderr
    assert not (tmp_path / "run").exists()
