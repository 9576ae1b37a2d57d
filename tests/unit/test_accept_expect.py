"""What a described machine promises of nodes, pairs and groups."""

from pathlib import Path

import pytest

from ddlbench.accept.examine import algorithm, bus
from ddlbench.accept.expect import Described
from ddlbench.accept.rules import Rules
from ddlbench.accept.vigil import NAP_SECONDS
from ddlbench.cost.described import read
from ddlbench.errors import UsageError
from made_links import topology

TOPOLOGIES = Path(__file__).parents[2] / "configs" / "topologies"


def test_a_topology_says_what_nodes_pairs_and_groups_should_do():
    machine = read(TOPOLOGIES / "x86-10gbe.toml")
    expected = Described(machine, topology(4, 2), Rules())
    assert expected.of("reduction", [1]).value == machine.rank.reduction.value
    assert expected.of("latency", [0, 3]).value == machine.nic.latency.value
    assert expected.of("bandwidth", [0, 3]).value <= machine.nic.bandwidth.value
    group = expected.of("bus bandwidth", [0, 1, 2]).value
    assert 0 < group <= machine.nic.bandwidth.value * machine.nic.count.value
    assert expected.of("allreduce", [0]).value > 0
    assert expected.of("copy", [0]) is None
    assert expected.of("reduction", [0]).basis == f"topology {machine.name}"


def test_uneven_nodes_have_no_group_to_be_priced():
    machine = read(TOPOLOGIES / "x86-10gbe.toml")
    uneven = topology(2, 2)
    uneven = type(uneven)(uneven.hosts[:3], uneven.node_of[:3], uneven.cpus[:3])
    assert Described(machine, uneven, Rules()).of("bus bandwidth", [0, 1]) is None


def test_a_launch_that_is_larger_than_the_machine_is_refused():
    machine = read(TOPOLOGIES / "two-cores.toml")
    with pytest.raises(UsageError, match=r"9 nodes: the machine 'two-cores' has 8 nodes"):
        Described(machine, topology(9, 1), Rules())


def test_groups_are_measured_with_rings_inside_and_between_nodes_where_they_can_be():
    assert [algorithm(counts) for counts in ((1, 1, 1), (2, 2), (4,), (2, 1))] == [
        "ring", "hierarchical", "ring", "ring",
    ]  # fmt: skip


def test_the_bus_bandwidth_is_what_each_node_must_have_sent():
    assert bus(1000, 2, 1.0) == 1000
    assert bus(1000, 4, 0.5) == 3000


def test_a_rank_looks_for_messages_more_often_than_it_is_called_late():
    assert Rules().watch.late > 3 * NAP_SECONDS
