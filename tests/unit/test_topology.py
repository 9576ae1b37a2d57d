"""Where ranks are: nodes, machines, processors, and the topology of some of the ranks."""

import pytest

from ddlbench import topology as topology_module
from ddlbench.topology import Topology, numbered, spans

FOUR_BY_TWO = Topology(
    ("a", "a", "b", "b", "c", "c", "d", "d"), (0, 0, 1, 1, 2, 2, 3, 3), ((0,), (1,)) * 4, tuple(range(8))
)


@pytest.mark.parametrize(
    ("cpus", "text"),
    [((), ""), ((5,), "5"), ((0, 1, 2, 3), "0-3"), ((9, 0, 1, 4), "0-1,4,9"), ((2, 4, 6), "2,4,6"), ((7, 7, 8), "7-8")],
)
def test_processors_are_written_as_spans(cpus, text):
    assert spans(cpus) == text


def test_things_are_numbered_as_they_come():
    assert numbered(["b", "a", "b", "c"]) == (0, 1, 0, 2)


def test_a_topology_is_had_back_from_its_record():
    topology = Topology(("a", "b"), (0, 1), ((0, 1), (0, 1)), (1, 0), (0, 0), ((0,), (0,)), (2, 2))
    stored = topology.to_json()
    assert Topology.from_json(stored) == topology
    assert (stored["cores"], stored["launch_ranks"], stored["machine_of"]) == (["0-1", "0-1"], [1, 0], [0, 0])


def test_a_record_that_knows_no_launch_ranks_and_machines_is_read():
    stored = {"nodes": 1, "ranks": 1, "ranks_per_node": [1], "hosts": ["a"], "node_of": [0], "cpus": [[0, 3]]}
    assert Topology.from_json(stored) == Topology(("a",), (0,), ((0, 3),))


def test_hardware_threads_of_one_core_are_one_core(tmp_path, monkeypatch):
    monkeypatch.setattr(topology_module, "CPUS", tmp_path)
    for cpu, siblings in ((0, "0,64"), (3, "2-3"), (64, "0,64")):
        (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(siblings + "\n")
    assert [topology_module._core(cpu) for cpu in (0, 64, 3, 5)] == [0, 0, 2, 5]


def test_a_part_keeps_the_order_of_ranks_and_numbers_nodes_anew():
    part = FOUR_BY_TWO.part({7, 2, 3})
    assert part == Topology(("b", "b", "d"), (0, 0, 1), ((0,), (1,), (1,)), (2, 3, 7))
    assert (part.nodes, part.ranks_per_node, part.even) == (2, (2, 1), False)


def test_each_node_is_a_machine_unless_the_ranks_say_that_they_share_one():
    assert FOUR_BY_TWO.machines == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert not FOUR_BY_TWO.crowded
    namespaces = Topology(FOUR_BY_TWO.hosts, FOUR_BY_TWO.node_of, FOUR_BY_TWO.cpus, (), (0,) * 8)
    assert namespaces.machines == (tuple(range(8)),)
    assert namespaces.crowded, "8 ranks on the 2 processors of one machine, whatever its nodes are called"
    assert not namespaces.part({0, 3}).crowded


def test_ranks_of_a_node_are_found_wherever_they_stand():
    assert Topology(("a", "b", "a"), (0, 1, 0), ((0,),) * 3).ranks_of(0) == (0, 2)
