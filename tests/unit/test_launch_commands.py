"""The words that start a job, as exact lists for each MPI library and launcher; and whose launcher a program is."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from ddlbench.errors import UsageError
from ddlbench.launch import libraries
from ddlbench.launch.commands import (
    ROOT_VARIABLES,
    Job,
    command,
    needs_hostfile,
    settings_of,
    variables_of,
    with_colon,
)
from ddlbench.launch.hosts import Host
from ddlbench.launch.layout import Layout
from ddlbench.launch.libraries import Launcher, Library, launcher_of, of_family

FOUR = Layout(tuple(Host(f"node{at}", 2) for at in range(4)))
UNEVEN = Layout((Host("node0", 2), Host("node1", 1)))
HERE = Layout((Host("localhost", 2),), named=False)
EIGHT_RANKS = ["env", "DDLBENCH_EXPECT_RANKS=8", "DDLBENCH_EXPECT_NODES=4", "ddlbench", "sweep"]
OPEN_MPI = ["mpirun", "--hostfile", "/f", "-n", "8", "--map-by", "ppr:2:node", "--bind-to", "core:if-supported"]
KEEPALIVE = ["oob_tcp_keepalive_time", "10", "oob_tcp_keepalive_intvl", "5", "oob_tcp_keepalive_probes", "3"]


def keepalive(option):
    return [word for at in range(0, 6, 2) for word in (option, *KEEPALIVE[at : at + 2])]


def job(family, layout=FOUR, launcher="mpirun", kind="mpirun", **more):
    words = ("ddlbench", "sweep")
    place = Path("/f") if needs_hostfile(Launcher(kind, (launcher,)), layout) else None
    made = Job(of_family(family), Launcher(kind, (launcher,)), layout, words, variables_of(layout, {}), place)
    return replace(made, **more)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            job("openmpi5"),
            [*OPEN_MPI, *keepalive("--prtemca")],
        ),
        (
            job("openmpi4"),
            [*OPEN_MPI, *keepalive("--mca")],
        ),
        (
            job("spectrum"),
            [*OPEN_MPI, *keepalive("--mca")],
        ),
        (job("mpich", launcher="mpiexec.hydra"), ["mpiexec.hydra", "-f", "/f", "-n", "8", "-bind-to", "core"]),
        (
            job("intel", launcher="mpiexec.hydra"),
            ["mpiexec.hydra", "-machinefile", "/f", "-n", "8", "-genv", "I_MPI_PIN_DOMAIN", "core"],
        ),
        (
            job("openmpi5", launcher="srun", kind="srun"),
            [
                "srun",
                "--mpi=pmix",
                "--nodelist=node0,node1,node2,node3",
                "--nodes=4",
                "--ntasks=8",
                "--ntasks-per-node=2",
                "--distribution=block",
                "--kill-on-bad-exit=1",
                "--cpu-bind=cores",
            ],
        ),
        (
            job("spectrum", launcher="jsrun", kind="jsrun"),
            shlex.split(
                "jsrun --nrs 4 --rs_per_host 1 --tasks_per_rs 2 --cpu_per_rs ALL_CPUS --gpu_per_rs ALL_GPUS"
                " --launch_distribution packed --bind packed:1"
            ),
        ),
    ],
)
def test_each_library_is_started_in_its_own_way(made, expected):
    assert command(made) == [*expected, *EIGHT_RANKS]


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("openmpi5", ["mpirun", "-n", "2", "--bind-to", "core:if-supported"]),
        ("openmpi4", ["mpirun", "-n", "2", "--bind-to", "core:if-supported"]),
        ("mpich", ["mpirun", "-n", "2", "-bind-to", "core"]),
        ("intel", ["mpirun", "-n", "2", "-genv", "I_MPI_PIN_DOMAIN", "core"]),
    ],
)
def test_on_this_machine_no_host_is_named_and_none_can_be_lost(family, expected):
    env = ["env", "DDLBENCH_EXPECT_RANKS=2", "DDLBENCH_EXPECT_NODES=1"]
    assert command(job(family, HERE)) == [*expected, *env, "ddlbench", "sweep"]


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("openmpi5", ["--map-by", "slot:oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]),
        ("mpich", []),
        ("intel", ["-genv", "I_MPI_PIN", "0"]),
    ],
)
def test_ranks_beyond_the_cores_are_not_pinned_and_yield(family, expected):
    found = command(job(family, replace(HERE, oversubscribed=True)))
    assert found[3 : found.index("env")] == expected


def test_hosts_with_different_numbers_of_ranks_are_filled_slot_by_slot():
    words = command(job("openmpi5", UNEVEN))
    assert words[words.index("--map-by") + 1] == "slot"
    assert words[words.index("-n") + 1] == "3"


@pytest.mark.parametrize("kind", ["srun", "jsrun"])
def test_a_launcher_that_takes_one_number_for_all_nodes_refuses_several(kind):
    with pytest.raises(UsageError, match=f"{kind} is asked for as many ranks on each node, but there are 2/1"):
        command(job("openmpi5", UNEVEN, kind, kind))


@pytest.mark.parametrize(("family", "pmi"), [("openmpi4", "pmix"), ("mpich", "pmi2"), ("intel", "pmi2")])
def test_srun_speaks_the_protocol_of_the_library(family, pmi):
    assert f"--mpi={pmi}" in command(job(family, launcher="srun", kind="srun"))


def test_what_the_user_said_is_not_said_again():
    given = Launcher("mpirun", ("mpirun", "--bind-to", "socket", "--map-by", "node"))
    words = command(replace(job("openmpi5"), launcher=given))
    assert words.count("--bind-to") == words.count("--map-by") == 1
    assert "--bind-to" not in command(job("openmpi5", bound=True))
    assert "-bind-to" not in command(job("mpich", bound=True))
    assert "-genv" not in command(job("intel", bound=True))
    asked = Launcher("srun", ("srun", "--mpi=none", "--cpu-bind=v"))
    assert [word for word in command(replace(job("openmpi5"), launcher=asked)) if word.startswith("--mpi")] == [
        "--mpi=none"
    ]


def test_host_files_are_in_the_form_of_the_library_and_named_only_to_launchers_that_read_them():
    assert [family for family in libraries.TRAITS if with_colon(of_family(family))] == ["mpich", "intel"]
    assert needs_hostfile(Launcher("mpirun", ()), FOUR)
    assert not needs_hostfile(Launcher("srun", ()), FOUR)
    assert not needs_hostfile(Launcher("jsrun", ()), FOUR)
    assert not needs_hostfile(Launcher("mpirun", ()), HERE)
    assert needs_hostfile(Launcher("mpirun", ()), replace(HERE, named=True))


def test_other_hosts_are_given_the_variables_that_no_launcher_carries_over_and_no_others():
    environ = {"PYTHONPATH": "/p", "NCCL_DEBUG": "INFO", "PASSWORD": "x", "DDLBENCH_X": "1", "SLURM_JOB_ID": "1"}
    expected = {"DDLBENCH_EXPECT_RANKS": "8", "DDLBENCH_EXPECT_NODES": "4"}
    assert variables_of(FOUR, environ) == {"PYTHONPATH": "/p", "NCCL_DEBUG": "INFO", "DDLBENCH_X": "1"} | expected
    assert set(variables_of(HERE, environ)) == set(expected)
    assert variables_of(FOUR, {"DDLBENCH_EXPECT_RANKS": "99"}) == expected


def test_only_as_root_open_mpi_is_told_that_this_is_meant():
    assert settings_of(of_family("openmpi5"), {"A": "1"}, root=True) == dict.fromkeys(ROOT_VARIABLES, "1")
    assert settings_of(of_family("openmpi5"), {}, root=False) == {}
    assert settings_of(of_family("mpich"), {}, root=True) == {}
    assert set(settings_of(of_family("openmpi4"), {ROOT_VARIABLES[0]: "0"}, root=True)) == set(ROOT_VARIABLES[1:])


def test_intel_mpi_is_told_to_place_ranks_as_it_is_asked_unless_the_user_says_something():
    assert settings_of(of_family("intel"), {}, root=True) == {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "0"}
    assert settings_of(of_family("intel"), {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "1"}, root=False) == {}


def test_variables_of_the_launcher_itself_stand_before_it():
    words = command(job("intel", launcher="mpiexec.hydra", settings={"A": "1", "B": "x y"}))
    assert words[:4] == ["env", "A=1", "B=x y", "mpiexec.hydra"]
    assert words[4:] == command(job("intel", launcher="mpiexec.hydra"))[1:]


@pytest.mark.parametrize("family", ["openmpi5", "openmpi4"])
def test_how_soon_a_lost_host_is_missed_is_not_said_where_the_environment_says_it(family):
    assert command(job(family, kept_alive=True)) == [*OPEN_MPI, *EIGHT_RANKS]


# ---- Libraries and launchers ---------------------------------------------------------------------------------------

VERSIONS = {
    "openmpi5": "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/",
    "openmpi4": "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/",
    "mpich": "HYDRA build details:\n    Version:                                 5.0.2",
    "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)",
    "spectrum": "mpirun (IBM Spectrum MPI) 10.4.0.3",
}


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def empty(monkeypatch, tmp_path):
    """Have no launcher beside this Python or on PATH; what scripts need is there."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


@pytest.mark.parametrize("family", libraries.TRAITS)
def test_a_library_s_launcher_is_known_by_what_it_says_and_no_other_is_taken_for_it(empty, family):
    for other, text in VERSIONS.items():
        path = program(empty / other / "mpirun", text)
        assert libraries._is_of(of_family(family), path) == (other == family)


def test_the_launcher_beside_the_library_comes_before_the_one_on_path(empty):
    beside = program(empty / "mpi" / "bin" / "mpirun", VERSIONS["openmpi5"])
    program(empty / "path" / "mpirun", VERSIONS["openmpi5"])
    library = Library("openmpi5", "Open MPI 5.0.11", (empty / "mpi" / "lib" / "libmpi.so.40",))
    assert launcher_of(library, "", None, must_be_there=True) == Launcher("mpirun", (beside,))


def test_the_launcher_of_another_library_on_path_is_passed_over(empty):
    program(empty / "path" / "mpirun", VERSIONS["mpich"])
    right = program(empty / "path" / "mpiexec", VERSIONS["openmpi5"])
    assert launcher_of(of_family("openmpi5"), "", None, must_be_there=True) == Launcher("mpirun", (right,))


def test_without_a_launcher_it_is_srun_in_a_slurm_job_and_else_an_error_that_says_where_was_looked(empty):
    program(empty / "path" / "mpirun", VERSIONS["mpich"])
    with pytest.raises(UsageError, match=r"no launcher of Open MPI 5 \(mpirun or mpiexec\)"):
        launcher_of(of_family("openmpi5"), "", None, must_be_there=True)
    srun = program(empty / "path" / "srun", "slurm 22.05")
    assert launcher_of(of_family("openmpi5"), "slurm", None, must_be_there=True) == Launcher("srun", (srun,))


def test_spectrum_mpi_is_started_by_jsrun_where_there_is_one(empty):
    mpirun = program(empty / "path" / "mpirun", VERSIONS["spectrum"])
    assert launcher_of(of_family("spectrum"), "lsf", None, must_be_there=True) == Launcher("mpirun", (mpirun,))
    jsrun = program(empty / "path" / "jsrun", "jsrun 10.3")
    assert launcher_of(of_family("spectrum"), "lsf", None, must_be_there=True) == Launcher("jsrun", (jsrun,))


def test_a_launcher_that_was_asked_for_is_taken_with_its_words(empty):
    path = program(empty / "path" / "mpirun", VERSIONS["openmpi5"])
    found = launcher_of(of_family("openmpi5"), "slurm", "mpirun --mca btl 'tcp,self'", must_be_there=True)
    assert found == Launcher("mpirun", (path, "--mca", "btl", "tcp,self"))
    assert launcher_of(of_family("mpich"), "", "srun -v", must_be_there=False) == Launcher("srun", ("srun", "-v"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no-such-mpirun -x", "'no-such-mpirun' is not a program"),
        ("mpirun 'x", "cannot be read"),
        ("", "not a program"),
    ],
)
def test_a_launcher_that_is_none_is_refused_by_name(empty, text, said):
    with pytest.raises(UsageError) as refused:
        launcher_of(of_family("openmpi5"), "", text, must_be_there=True)
    assert said in str(refused.value)
    assert f"--launcher {text!r}" in str(refused.value)


def test_the_launcher_of_another_library_is_refused_before_it_starts_ranks_that_are_alone(empty):
    path = program(empty / "path" / "mpiexec", VERSIONS["mpich"])
    with pytest.raises(UsageError) as refused:
        launcher_of(of_family("openmpi5"), "", "mpiexec", must_be_there=True)
    assert f"{path} is the launcher of MPICH, but this Python uses Open MPI 5" in str(refused.value)


def test_a_launcher_that_does_not_say_whose_it_is_may_be_the_site_s_own(empty):
    path = program(empty / "path" / "our-mpirun", "version 1")
    found = launcher_of(of_family("openmpi5"), "", "our-mpirun -x", must_be_there=True)
    assert found == Launcher("other", (path, "-x"))
    assert command(job("openmpi5", launcher=path, kind="other"))[:4] == [path, "-n", "8", "env"]


@pytest.mark.parametrize(
    ("vendor", "version", "family"),
    [
        ("Open MPI", "5.0.11", "openmpi5"),
        ("Open MPI", "4.1.4", "openmpi4"),
        ("Open MPI", "6.0.0", "openmpi5"),
        ("MPICH", "5.0.2", "mpich"),
        ("Cray MPI", "8.1.0", "mpich"),
        ("MVAPICH", "3.0.0", "mpich"),
        ("Intel MPI", "2021.18.1", "intel"),
        ("Spectrum MPI", "10.4.0", "spectrum"),
    ],
)
def test_libraries_have_families(vendor, version, family):
    assert libraries._family(vendor, version) == family


def test_an_unknown_library_is_refused_with_the_way_out():
    with pytest.raises(UsageError, match=r"Strange MPI 1\.0\.0 is no MPI library .* --mpi"):
        libraries._family("Strange MPI", "1.0.0")
    with pytest.raises(UsageError, match="did you mean 'openmpi5'"):
        of_family("openmpi")


def test_the_library_of_this_python_is_found_without_starting_mpi():
    found = libraries.of_this_python()
    assert found.name.split()[-1][0].isdigit()
    assert found.family in libraries.TRAITS
    assert all(path.exists() for path in found.files)


def test_a_python_without_mpi_is_an_error_that_names_it(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named mpi4py' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(UsageError, match=r"cannot load MPI: ModuleNotFoundError: No module named mpi4py; .*/python"):
        libraries.of_this_python()
