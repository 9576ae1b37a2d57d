"""Allocations as schedulers describe them: the variables and files of recorded jobs, with other names."""

from pathlib import Path

import pytest

from ddlbench.errors import UsageError
from ddlbench.launch import allocation
from ddlbench.launch.allocation import HERE, cores, find
from ddlbench.launch.hosts import Host, this_host

# salloc -N4 --ntasks-per-node=2, SLURM 22.05
SLURM = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOBID": "17",
    "SLURM_JOB_NODELIST": "node[0-3]",
    "SLURM_NODELIST": "node[0-3]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_NNODES": "4",
    "SLURM_NTASKS": "8",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_TASKS_PER_NODE": "2(x4)",
    "SLURM_JOB_CPUS_PER_NODE": "2(x4)",
    "SLURM_JOB_PARTITION": "lab",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
}
# bsub -nnodes 2 on a system of Power8 or Power9 with a launch node, LSF 10.1
LSF = {
    "LSB_JOBID": "99123",
    "LSB_MCPU_HOSTS": "batch5 1 h41n04 42 h41n05 42 ",
    "LSB_HOSTS": "batch5 " + "h41n04 " * 42 + "h41n05 " * 42,
    "LSB_DJOB_NUMPROC": "85",
    "LSB_QUEUE": "batch",
    "LSF_BINDIR": "/opt/lsf/bin",
}
# qsub -l select=2:ncpus=4:mpiprocs=4, PBS Pro
PBS = {"PBS_JOBID": "1234.pbs01", "PBS_NODEFILE": "nodefile", "PBS_QUEUE": "workq", "PBS_ENVIRONMENT": "PBS_BATCH"}


@pytest.fixture(autouse=True)
def _no_scontrol(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def slots(found):
    return {host.name: host.slots for host in found.hosts}


def test_a_slurm_job_has_its_nodes_and_their_tasks():
    found = find(None, None, SLURM)
    assert slots(found) == {"node0": 2, "node1": 2, "node2": 2, "node3": 2}
    assert (found.source, found.scheduler, found.promised, found.named, found.slots) == (
        "SLURM job 17",
        "slurm",
        True,
        True,
        8,
    )


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [("2(x3),1", [2, 2, 2, 1]), ("1,2,3,4", [1, 2, 3, 4]), ("1(x2),16(x2)", [1, 1, 16, 16]), ("", [7, 7, 7, 7])],
)
def test_nodes_of_a_slurm_job_may_have_different_numbers_of_tasks(tasks, expected):
    environ = SLURM | {"SLURM_TASKS_PER_NODE": tasks, "SLURM_JOB_CPUS_PER_NODE": "7(x4)"}
    assert list(slots(find(None, None, environ)).values()) == expected


def test_a_slurm_job_that_says_nothing_of_tasks_has_one_on_each_node():
    environ = {name: SLURM[name] for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST")}
    assert slots(find(None, None, environ)) == dict.fromkeys(("node0", "node1", "node2", "node3"), 1)


@pytest.mark.parametrize(
    ("tasks", "parts"),
    [
        ("2(x3)", ["2(x3)", "3 nodes", "has 4"]),
        ("2*4", ["2*4", "2(x3),1"]),
        pytest.param(f"2(x{'9' * 5000})", ["cannot be read", "2(x3),1"], id="endless"),
        pytest.param(f"{'9' * 5000}(x4)", ["cannot be read", "2(x3),1"], id="long"),
    ],
)
def test_variables_of_slurm_that_do_not_fit_together_are_refused(tasks, parts):
    with pytest.raises(UsageError) as refused:
        find(None, None, SLURM | {"SLURM_TASKS_PER_NODE": tasks})
    assert [part for part in parts if part not in str(refused.value)] == []


def test_tasks_of_more_nodes_than_memory_holds_are_refused_before_they_are_written_out(monkeypatch):
    monkeypatch.setattr(allocation, "repeat", None)
    with pytest.raises(UsageError, match=r"counts 999999999999 nodes, but SLURM_JOB_NODELIST=node\[0-3\] has 4"):
        find(None, None, SLURM | {"SLURM_TASKS_PER_NODE": "2(x999999999999)"})


def test_a_list_of_slurm_with_a_name_that_is_none_is_refused():
    with pytest.raises(UsageError, match=r"SLURM_JOB_NODELIST: 'node0;x' is no name"):
        find(None, None, SLURM | {"SLURM_JOB_NODELIST": "node0;x"})


def test_a_launch_from_a_part_of_a_slurm_job_is_refused_with_both_numbers():
    step = SLURM | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}
    with pytest.raises(UsageError, match="on 1 of the 4 nodes"):
        find(None, None, step)
    for whole in ("4", "²", "9" * 5000):
        assert find(None, None, step | {"SLURM_STEP_NUM_NODES": whole}).slots == 8


@pytest.mark.parametrize(
    "ranks",
    [
        {"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3", "SLURM_STEP_NUM_NODES": "4"},
        {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "0"},
        {"PMI_SIZE": "8", "PMI_RANK": "0"},
    ],
)
def test_a_launch_that_was_itself_launched_on_every_rank_is_refused(ranks):
    with pytest.raises(UsageError, match="itself started 8 times"):
        find(None, None, SLURM | ranks)


def test_an_lsf_job_has_its_hosts_without_the_one_that_only_runs_the_script():
    found = find(None, None, LSF)
    assert slots(found) == {"h41n04": 42, "h41n05": 42}
    assert found.scheduler == "lsf"
    assert "batch5" in found.source


def test_an_lsf_job_whose_first_host_takes_part_keeps_it():
    assert slots(find(None, None, LSF | {"LSB_MCPU_HOSTS": "a 4 b 4"})) == {"a": 4, "b": 4}
    assert slots(find(None, None, LSF | {"LSB_MCPU_HOSTS": "a 1 b 1"})) == {"a": 1, "b": 1}
    assert slots(find(None, None, LSF | {"LSB_MCPU_HOSTS": "a 1"})) == {"a": 1}
    assert slots(find(None, None, LSF | {"LSB_MCPU_HOSTS": "a 4 b 4 batch 1"})) == {"a": 4, "b": 4}


@pytest.mark.parametrize("variable", ["LSB_DJOB_RANKFILE", "LSB_DJOB_HOSTFILE"])
def test_a_file_of_lsf_has_a_line_for_each_rank(tmp_path, variable):
    (tmp_path / "ranks").write_text("batch5\nh41n04\nh41n04\nh41n05\nh41n05\n")
    found = find(None, None, LSF | {variable: str(tmp_path / "ranks")})
    assert slots(found) == {"h41n04": 2, "h41n05": 2}


def test_a_pbs_job_has_a_line_for_each_rank(tmp_path):
    (tmp_path / "nodefile").write_text("n1.cluster\n" * 4 + "n2.cluster\n" * 4)
    found = find(None, None, PBS)
    assert slots(found) == {"n1.cluster": 4, "n2.cluster": 4}
    assert (found.source, found.scheduler) == ("PBS job 1234.pbs01", "pbs")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        (PBS, "PBS_NODEFILE, nodefile cannot be read: No such file"),
        (LSF | {"LSB_DJOB_RANKFILE": "gone"}, "LSB_DJOB_RANKFILE, gone cannot be read"),
        (LSF | {"LSB_MCPU_HOSTS": "a 4 b"}, "LSB_MCPU_HOSTS='a 4 b' cannot be read"),
        (LSF | {"LSB_MCPU_HOSTS": "a x"}, "'x'"),
    ],
)
def test_a_scheduler_s_variable_that_leads_nowhere_is_an_error_and_no_single_machine(environ, said):
    with pytest.raises(UsageError) as refused:
        find(None, None, environ)
    assert said in str(refused.value)


def test_an_empty_file_of_pbs_is_refused(tmp_path):
    (tmp_path / "nodefile").write_text("\n")
    with pytest.raises(UsageError, match="names no host"):
        find(None, None, PBS)


def test_hosts_that_were_named_win_over_a_job_and_the_job_is_known_all_the_same(tmp_path):
    (tmp_path / "hosts").write_text("x slots=3\n")
    named, file = find("x:2,y:2", None, SLURM), find(None, tmp_path / "hosts", SLURM)
    assert (slots(named), named.scheduler, named.promised) == ({"x": 2, "y": 2}, "slurm", True)
    assert (slots(file), file.scheduler) == ({"x": 3}, "slurm")
    assert not find("x,y", None, {}).promised


def test_hosts_that_are_named_in_two_ways_are_refused_whatever_the_file_says(tmp_path):
    (tmp_path / "hosts").write_text("x slots=3\n")
    for file in ("hosts", "gone"):
        with pytest.raises(UsageError, match=f"-H x:2 and --hostfile {file} both name the hosts: give one of them"):
            find("x:2", Path(file), {})


def test_a_lab_is_an_allocation(tmp_path):
    (tmp_path / "hostfile").write_text("node0 slots=2\nnode1 slots=2\n")
    found = find(None, None, {"DDLBENCH_LAB_HOSTFILE": str(tmp_path / "hostfile")})
    assert (slots(found), found.source, found.scheduler) == ({"node0": 2, "node1": 2}, "the lab", "")


def test_without_anything_there_is_this_machine_with_its_cores(monkeypatch):
    found = find(None, None, {})
    assert found.hosts == (Host(this_host(), cores()),)
    assert (found.source, found.promised, found.named) == (HERE, False, False)


def test_hardware_threads_of_a_core_are_one_slot(tmp_path, monkeypatch):
    for cpu, threads in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(threads)
    monkeypatch.setattr(allocation, "CORES", tmp_path)
    assert cores({0, 1, 2, 3}) == 2
    assert cores({0, 2}) == 1
    assert cores({0, 7}) == 2
