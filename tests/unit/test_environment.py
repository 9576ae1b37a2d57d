"""What a run stores of its surroundings: an allow list, and the reasons not to trust its figures."""

import json

import pytest

from ddlbench.bench.environment import allowed, environment, trust
from ddlbench.topology import Topology


def on_one_node(*cpus):
    return Topology(("node0",) * len(cpus), (0,) * len(cpus), tuple(cpus))


def flags(topology, load=0.0):
    return {flag.flag: flag.detail for flag in trust(topology, [load] * topology.ranks)}


def test_only_listed_variables_are_stored():
    secret = {"AWS_SECRET_ACCESS_KEY": "x", "HOME": "/root", "OMPI_MCA_orte_hnp_uri": "x", "PATH": "/bin"}
    listed = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMP_NUM_THREADS": "1", "SLURM_JOB_ID": "7"}
    assert allowed(secret | listed) == listed


def test_the_environment_is_json_and_says_what_was_run_on():
    stored = json.loads(json.dumps(environment({"OMP_NUM_THREADS": "1", "HOME": "/root"})))
    assert stored["variables"] == {"OMP_NUM_THREADS": "1"}
    assert stored["packages"]["numpy"]
    assert stored["processor"]


def test_pinned_ranks_on_a_quiet_machine_are_trusted():
    assert flags(on_one_node((0,), (1,))) == {}


@pytest.mark.parametrize(
    ("cpus", "detail"),
    [
        ([(0, 1)] * 4, "4 ranks on 2 cores of node0"),
        ([(0,), (0,)], "2 ranks on 1 core of node0"),
    ],
)
def test_more_ranks_than_cores_are_flagged(cpus, detail):
    assert flags(on_one_node(*cpus))["oversubscribed"] == detail


def test_ranks_that_may_move_are_flagged():
    assert flags(on_one_node((0, 1), (2,)))["unpinned"] == "1 rank of 2 may move between cores"


def test_a_machine_that_was_at_work_is_flagged():
    assert "load of 3.0 on 2 cores of node0" in flags(on_one_node((0,), (1,)), load=3.0)["busy"]


def test_each_node_is_looked_at_and_flagged_once():
    topology = Topology(("a", "b", "a", "b"), (0, 1, 0, 1), ((0,), (0,), (1,), (0,)))
    found = [flag.detail for flag in trust(topology, [0.0] * 4) if flag.flag == "oversubscribed"]
    assert found == ["2 ranks on 1 core of b"]
