"""What keeps two parts of a run from being one, and the record of a run that was gone on with."""

import json
from dataclasses import replace

import pytest

import synthetic
from ddlbench.bench.config import SweepConfig, load
from ddlbench.cli.resuming import differing, joined
from ddlbench.records import TrustFlag

RUN = synthetic.run(config=load(None, {}).to_json(), finished=False)
OTHER = {
    "algorithms": "direct", "dtypes": "int32", "ops": "max", "sizes": "8,64", "in_place": "both", "iterations": "7",
    "warmup": "1", "ci": "1%", "max_seconds": "0.25", "passes": "2", "seed": "9", "sync": "barrier", "cache": "cold",
    "per_rank": "1", "check": "0", "grid": "2x2", "workload": "resnet50", "fuse": "1M", "nodes": "1,2",
    "ranks_per_node": "1,2", "transport": "p2p", "buffers": "registered", "huge_pages": "1",
    "device": "cuda", "share_device": "1",
}  # fmt: skip

ON_GPUS = ("device", "share_device")
"""Keys of sweeps on GPUs: others of `OTHER` are for host memory alone."""


def changed(run, part, **values):
    return replace(run, **{part: {**getattr(run, part), **values}})


def test_a_run_can_be_gone_on_with_by_itself():
    assert list(differing(RUN, replace(RUN, created="later", command=("x",), links=None, finished=True))) == []


def test_there_is_another_value_for_every_key_of_a_configuration():
    assert OTHER.keys() == load(None, {}).to_json().keys()


@pytest.mark.parametrize("key", sorted(OTHER.keys() - {"fuse", "share_device"}))
def test_every_key_of_the_configuration_must_be_the_same(key):
    other = replace(RUN, config=load(None, {key: OTHER[key]}).to_json())
    differences = list(differing(RUN, other))
    assert any(difference.startswith(f"config.{key}") for difference in differences)
    assert len(differences) == (2 if key == "workload" else 1)  # a workload takes the place of the sizes


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        ("topology", {"ranks": 8, "hosts": ["a"] * 8}, "ranks is 4 there and 8 here"),
        ("topology", {"nodes": 1}, "nodes is 2 there and 1 here"),
        ("topology", {"hosts": ["a", "b"]}, "hosts is ['node0', 'node0', 'node1', 'node1'] there and ['a', 'b'] here"),
        ("topology", {"node_of": [0, 1, 0, 1]}, "node_of is [0, 0, 1, 1] there and [0, 1, 0, 1] here"),
        ("topology", {"cpus": [[0], [1], [0], [1]]}, "cpus is [[0, 1], [0, 1], [0, 1], [0, 1]] there and [[0], "),
        ("mpi", {"library": "MPICH"}, "MPI library is 'Open MPI' there and 'MPICH' here"),
        ("mpi", {"version": "5.0.12"}, "MPI version is '5.0.11' there and '5.0.12' here"),
        ("environment", {"variables": {}}, "OMP_NUM_THREADS is '1' there and nothing here"),
    ],
)
def test_what_differs_is_named_with_both_values(part, values, said):
    (difference,) = differing(RUN, changed(RUN, part, **values))
    assert difference.startswith(said)


def test_another_version_of_the_program_is_another_run():
    assert list(differing(RUN, replace(RUN, ddlbench="0.2.0"))) == ["ddlbench is '0.1.0' there and '0.2.0' here"]


def test_another_job_of_the_scheduler_is_the_same_run():
    job = {"OMP_NUM_THREADS": "1", "SLURM_JOB_ID": "8", "OMPI_COMM_WORLD_SIZE": "4"}
    assert list(differing(RUN, changed(RUN, "environment", variables=job))) == []


def test_of_long_lists_the_first_difference_is_named():
    many = load(None, {"sizes": ",".join(str(8 * n) for n in range(1, 200))}).to_json()
    there = replace(RUN, config=many)
    more = [*many["sizes"][:100], 7, *many["sizes"][101:]]
    assert list(differing(there, changed(there, "config", sizes=more))) == ["config.sizes[100] is 808 there and 7 here"]
    assert list(differing(there, changed(there, "config", sizes=many["sizes"][:50]))) == [
        "config.sizes[50] is 408 there and nothing here"
    ]


def test_the_record_keeps_how_the_run_began_and_every_doubt():
    there = replace(RUN, trust=(TrustFlag("busy", "then"), TrustFlag("unpinned", "both")), clock={"sync": "barrier"})
    here = replace(RUN, created="now", command=("other",), trust=(TrustFlag("unpinned", "both"), TrustFlag("new", "")))
    found = joined(there, here, 3)
    assert (found.created, found.command, found.clock) == (RUN.created, RUN.command, {"sync": "barrier"})
    assert [flag.flag for flag in found.trust] == ["busy", "unpinned", "resumed", "new"]
    assert [flag.detail for flag in found.trust if flag.flag == "resumed"] == [
        "gone on with at now, when 3 points were there"
    ]
    assert joined(there, here, 1).trust[2].detail.endswith("when 1 point was there")
    assert joined(there, here, 0).clock is None, "without points there is no start to keep to"


@pytest.mark.parametrize("flags", [{}, {key: OTHER[key] for key in OTHER.keys() - {"workload", "fuse", *ON_GPUS}},
                                   {key: OTHER[key] for key in ON_GPUS},
                                   {key: OTHER[key] for key in OTHER.keys() - {"sizes", *ON_GPUS}}])  # fmt: skip
def test_a_configuration_is_had_back_from_its_record(flags):
    config = load(None, flags)
    assert SweepConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"}, {"sizes": "8"}, {"dtypes": ["float99"]}, {"algorithms": []}, {"workload": {"name": "x"}},
        {"in_place": 3}, {"ci": 7}, {"seed": "x"}, {"grid": 4}, {"check": "maybe"},
    ],
)  # fmt: skip
def test_a_configuration_that_is_not_ours_is_not_guessed_at(change):
    assert SweepConfig.from_json(load(None, {}).to_json() | change) is None


def test_a_configuration_without_a_key_is_not_guessed_at():
    whole = load(None, {}).to_json()
    assert SweepConfig.from_json({key: value for key, value in whole.items() if key != "seed"}) is None
