"""Sub-grids of a launch: which ranks they have, what they are called, and which are refused."""

import pytest

from ddlbench.bench.environment import trust
from ddlbench.bench.shapes import Shape, shape_text, shapes
from ddlbench.cli.stage import layout_of
from ddlbench.errors import UsageError
from ddlbench.topology import Topology


def launch(*ranks_per_node, cores=(0, 1)):
    """Return the topology of a launch with so many ranks on each node."""
    node_of = tuple(node for node, ranks in enumerate(ranks_per_node) for _ in range(ranks))
    return Topology(tuple(f"node{node}" for node in node_of), node_of, (cores,) * len(node_of))


def members(topology, nodes=(), ranks_per_node=()):
    return [shape.members for shape in shapes(topology, nodes, ranks_per_node)]


def refusal(topology, nodes=(), ranks_per_node=()):
    with pytest.raises(UsageError) as refused:
        shapes(topology, nodes, ranks_per_node)
    return str(refused.value)


def test_without_a_wish_the_whole_launch_is_one_shape_also_when_it_is_uneven():
    assert members(launch(2, 2)) == [(0, 1, 2, 3)]
    assert members(launch(2, 1)) == [(0, 1, 2)]


def test_nodes_alone_take_all_ranks_of_each():
    assert members(launch(2, 2, 1), nodes=(1, 2, 3)) == [(0, 1), (0, 1, 2, 3), (0, 1, 2, 3, 4)]


def test_ranks_alone_take_all_nodes():
    assert members(launch(3, 2), ranks_per_node=(1, 2)) == [(0, 3), (0, 1, 3, 4)]


def test_nodes_are_the_outer_axis_and_each_shape_comes_once_in_the_order_asked_for():
    found = shapes(launch(2, 2, 2, 2), (4, 1, 4), (2, 1))
    assert [(shape.nodes, shape.ranks_per_node, shape.ranks) for shape in found] == [
        (4, "2", 8), (4, "1", 4), (1, "2", 2), (1, "1", 1)
    ]  # fmt: skip
    assert [str(shape) for shape in found] == [
        "4 nodes of 2 ranks", "4 nodes of 1 rank", "1 node of 2 ranks", "1 node of 1 rank"
    ]  # fmt: skip


def test_rank_0_is_in_every_shape():
    assert {shape.members[0] for shape in shapes(launch(2, 2, 2), (1, 2, 3), (1, 2))} == {0}


def test_an_uneven_shape_says_so():
    (shape,) = shapes(launch(2, 2, 1), (), ())
    assert (shape.ranks_per_node, str(shape)) == ("", "3 nodes with 5 ranks")
    assert shape_text(3, "", 5) == "3 nodes with 5 ranks"


def test_ranks_that_stand_round_robin_are_found_by_their_nodes():
    topology = Topology(("a", "b", "a", "b"), (0, 1, 0, 1), ((0,),) * 4)
    assert members(topology, nodes=(1, 2), ranks_per_node=(1, 2)) == [(0,), (0, 2), (0, 1), (0, 1, 2, 3)]


def test_more_nodes_than_there_are_are_refused_with_what_there_is():
    assert refusal(launch(2, 2), nodes=(1, 4)) == "--nodes 4: this launch has 2 nodes with 2 ranks on each"
    assert refusal(launch(3), nodes=(2,)) == "--nodes 2: this launch has 1 node with 3 ranks"


def test_more_ranks_than_a_node_has_are_refused_by_the_name_of_the_node():
    assert refusal(launch(2, 2, 1), ranks_per_node=(2,)) == (
        "--ranks-per-node 2: node 2 (node2) has 1 rank; this launch has 3 nodes: 2 with 2 ranks, 1 with 1 rank"
    )
    assert "node 0 (node0) has 1 rank; this launch has 2 nodes with 1 rank on each" in refusal(launch(1, 1), (1,), (2,))


def test_a_smaller_node_that_is_not_among_the_first_does_not_matter():
    assert members(launch(2, 2, 1), (1, 2), (2,)) == [(0, 1), (0, 1, 2, 3)]


def test_a_layout_counts_the_ranks_on_this_ones_node():
    (shape,) = shapes(launch(2, 2, 1), (), ())
    assert [layout_of(shape, rank).neighbours for rank in range(5)] == [2, 2, 2, 2, 1]
    first = shapes(launch(2, 2, 1), (2,), (1,))[0]
    assert [layout_of(first, rank).neighbours for rank in range(5)] == [1, 0, 1, 0, 0]
    assert (layout_of(first, 4).nodes, layout_of(first, 4).ranks, str(layout_of(first, 4))) == (
        2, 2, "2 nodes of 1 rank"
    )  # fmt: skip


# ---- Doubts, shape by shape ----------------------------------------------------------------------------------------


def doubts(topology, nodes=(), ranks_per_node=()):
    found = shapes(topology, nodes, ranks_per_node)
    together = Shape.of(topology, {rank for shape in found for rank in shape.members})
    return [(flag.flag, flag.detail) for flag in trust(together.topology, [0.0] * together.ranks, found)]


def test_only_the_shapes_with_too_many_ranks_for_the_processors_are_named():
    assert doubts(launch(2, 2, cores=(0,)), ranks_per_node=(1, 2)) == [
        ("oversubscribed", "2 ranks on 1 core of node0 (2 nodes of 2 ranks)"),
        ("oversubscribed", "2 ranks on 1 core of node1 (2 nodes of 2 ranks)"),
    ]
    assert doubts(launch(2, 2, cores=(0,)), ranks_per_node=(1,)) == []


def test_what_holds_for_all_shapes_names_none():
    assert doubts(launch(2, 2, cores=(0,)), nodes=(1, 2))[0] == ("oversubscribed", "2 ranks on 1 core of node0")


def test_nodes_that_are_one_machine_share_its_processors():
    nodes = launch(1, 1, 1, 1)
    machine = Topology(nodes.hosts, nodes.node_of, nodes.cpus, machine_of=(0,) * 4)
    assert doubts(machine, nodes=(2, 4))[0] == (
        "oversubscribed", "4 ranks on 2 cores of the one machine of node0 … node3 (4 nodes of 1 rank)"
    )  # fmt: skip


def test_ranks_that_may_move_are_counted_among_those_that_are_measured():
    pinned = Topology(("a", "a", "a"), (0,) * 3, ((0,), (1,), (2, 3)))
    assert doubts(pinned, ranks_per_node=(1, 2)) == []
    ((flag, detail),) = doubts(pinned, ranks_per_node=(1, 3))
    assert (flag, detail.partition(":")[0]) == ("unpinned", "1 rank of 3 may move between cores")
