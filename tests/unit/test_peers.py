"""`make peers`, with test doubles for the libraries, launchers and benchmarks that it starts."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from ddlbench.bench import config as configuration
from ddlbench.bench.inputs import pattern
from ddlbench.errors import UsageError
from ddlbench.peers import comparison, contender, environments, library, programs, tables
from ddlbench.peers.__main__ import main
from ddlbench.peers.choice import candidates, chosen, fastest
from ddlbench.peers.comparison import Comparison, Request, checked
from ddlbench.peers.contender import Job
from ddlbench.peers.environments import Workshop
from ddlbench.peers.figures import agreements, column, figure, mean_us
from ddlbench.peers.gloo_rank import Measurement, sample_count
from ddlbench.peers.library import WHEELS, Environment, Identity
from ddlbench.peers.merging import merged, stated, trust
from ddlbench.peers.outcome import Outcome
from ddlbench.peers.passes import Harvest, in_turns
from ddlbench.peers.process import PeerError, run
from ddlbench.peers.programs import IMB, NCCL, OSU, ProgramContender, Task, linked_with
from ddlbench.records import Point, Run, Stated, Store, TrustFlag, load
from processes import ended, eventually

OPEN_MPI, MPICH, INTEL = WHEELS
OSU_LOG = """# OSU MPI Allreduce Latency Test v7.4
# Datatype: MPI_FLOAT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
8                       2.00              1.90              2.10         100
1024                    4.00              3.90              4.10         100
"""


def point(nbytes=8, us=1.0, *, algorithm="mpi (MPICH 5.0.2)", samples=20, **other) -> Point:
    """Return a measured point of `samples` equal samples."""
    values = {
        "algorithm": algorithm,
        "nbytes": nbytes,
        "count": nbytes // 4,
        "dtype": "float32",
        "op": "sum",
        "in_place": False,
        "nodes": 1,
        "ranks_per_node": "2",
        "ranks": 2,
        "device": "cpu",
        "transport": "vendor",
        "sync": "barrier",
        "samples_ns": (round(us * 1000),) * samples,
        "status": "ok",
        "wrong": 0,
        "passes": (samples,),
    }
    return Point(**values | other)


def imported(nbytes=8, us=2.0, **other) -> Point:
    """Return a point of another program."""
    values = {"kind": "imported", "samples_ns": (), "passes": (), "sync": "", "wrong": None}
    return point(
        nbytes, **{"algorithm": "osu_allreduce 7.4 (MPICH 5.0.2)", "stated": Stated(mean_us=us)} | values | other
    )


def record(library="MPICH", version="5.0.2", **other) -> Run:
    """Return a run."""
    values = {"ddlbench": "0.1.0", "created": "2026-01-01T00:00:00+00:00", "command": (), "config": {}}
    known = {"environment": {}, "mpi": {"library": library, "version": version}, "topology": {"ranks": 2, "nodes": 1}}
    return Run(**values | known | other)


def silent(*_) -> None:
    """Do nothing."""


def script(path: Path, text: str) -> Path:
    """Write a program of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@dataclass
class Double:
    """A contender that leaves what it is given, pass by pass: points, or an error to raise."""

    name: str
    passes: list
    title: str = ""
    begun: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.name

    def measure(self, folder: Path) -> tuple[Run, list[Point]]:
        self.begun.append(f"{self.name} {folder.name}")
        found = self.passes.pop(0)
        if isinstance(found, BaseException):
            raise found
        return record(), found


# ---- Programs that are started ----


def test_a_program_that_fails_gives_the_line_that_names_its_error(tmp_path):
    program = script(tmp_path / "program", "echo all well; echo 'ERROR: no such wheel'; echo bye; exit 3")
    with pytest.raises(PeerError, match=r"^ERROR: no such wheel$") as caught:
        run([str(program)], tmp_path / "log", {}, seconds=20, cwd=tmp_path)
    assert caught.value.status == "failed"


def test_the_reason_is_not_taken_from_an_earlier_program_in_the_same_log(tmp_path):
    with pytest.raises(PeerError, match=r"^error: first$"):
        run(
            [str(script(tmp_path / "a", "echo 'error: first'; exit 1"))], tmp_path / "log", {}, seconds=20, cwd=tmp_path
        )
    with pytest.raises(PeerError, match=r"^b ended with status 4$"):
        run([str(script(tmp_path / "b", "exit 4"))], tmp_path / "log", {}, seconds=20, cwd=tmp_path)


def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr("ddlbench.peers.process.GRACE_SECONDS", 0.2)
    program = script(tmp_path / "program", f"trap '' TERM; sleep 60 & echo $! > {tmp_path}/child; wait; wait")
    began = time.monotonic()
    with pytest.raises(PeerError, match=r"was not done after 0\.5 s"):
        run([str(program)], tmp_path / "log", {}, seconds=0.5, cwd=tmp_path)
    assert time.monotonic() - began < 20
    child = (tmp_path / "child").read_text().strip()
    assert eventually(lambda: ended(child)), "the child of the program lives"


def test_a_program_that_is_not_there_is_a_reason_and_no_traceback(tmp_path):
    with pytest.raises(PeerError, match="cannot be started: No such file"):
        run([str(tmp_path / "none")], tmp_path / "log", {}, seconds=1, cwd=tmp_path)


def test_packages_of_this_python_are_kept_from_another(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    program = script(tmp_path / "program", f'echo "${{PYTHONPATH-none}} $OWN" > {tmp_path}/seen')
    run([str(program)], tmp_path / "log", {"OWN": "yes"}, seconds=20, cwd=tmp_path)
    assert (tmp_path / "seen").read_text() == "none yes\n"


# ---- Which library is loaded ----


def test_the_library_that_was_asked_for_is_accepted(tmp_path):
    found = Identity("MPICH", "5.0.2", (tmp_path / "lib" / "libmpi.so.12",))
    assert library.checked(MPICH, tmp_path, found) == found


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Identity("Open MPI", "5.0.11", (Path("lib/libmpi.so.40"),)), "Open MPI 5.0.11 was loaded in its place"),
        (Identity("MPICH", "5.0.2", (Path("/usr/lib/libmpi.so.12"),)), "expected one MPI library, from"),
        (Identity("MPICH", "5.0.2", (Path("lib/libmpi.so.12"), Path("/usr/lib/libmpi.so.40"))), "loaded were"),
        (Identity("MPICH", "5.0.2", (Path("lib/libmpi.so"), Path("lib/libmpi.so.12"))), "expected one MPI library"),
        (Identity("MPICH", "5.0.2", ()), "no file"),
    ],
)
def test_another_library_or_a_second_one_is_refused(tmp_path, found, message):
    files = tuple(path if path.is_absolute() else tmp_path / path for path in found.files)
    with pytest.raises(PeerError, match=message):
        library.checked(MPICH, tmp_path, replace(found, files=files))


def test_an_environment_that_does_not_load_ddlbench_gives_python_s_reason(tmp_path):
    python = script(tmp_path / "python", "echo 'Traceback'; echo 'ImportError: undefined symbol: ompi_x' >&2; exit 1")
    with pytest.raises(PeerError, match="ImportError: undefined symbol: ompi_x"):
        library.identify(Environment(python, ()))


def test_the_library_of_this_python_is_found_by_its_file():
    if subprocess.run(
        [sys.executable, "-I", "-c", "import ddlbench, mpi4py"], check=False, capture_output=True
    ).returncode:
        pytest.skip("ddlbench or mpi4py is not installed in this Python (make test installs them)")
    found = library.identify(Environment(Path(sys.executable), ()))
    assert found.vendor
    assert found.version
    assert len(found.files) == 1


def test_ranks_are_pinned_alike_where_each_has_a_core(tmp_path):
    assert "-bind-to" in MPICH.environment(tmp_path, pinned=True).launcher
    assert "-bind-to" not in MPICH.environment(tmp_path, pinned=False).launcher
    assert INTEL.environment(tmp_path, pinned=True).variables["I_MPI_PIN_DOMAIN"] == "core"
    assert INTEL.environment(tmp_path, pinned=False).variables["I_MPI_PIN"] == "0"
    assert set(library.OPEN_MPI_BINDING) <= set(OPEN_MPI.environment(tmp_path, pinned=True).variables)


def test_hardware_threads_of_one_core_are_one_core(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "CORES", tmp_path)
    for number, threads in enumerate(("0,2", "1,3", "0,2", "1,3")):
        path = tmp_path / f"cpu{number}" / "topology" / "thread_siblings_list"
        path.parent.mkdir(parents=True)
        path.write_text(threads)
    assert [library.physical_cores({0, 2}), library.physical_cores({0, 1, 2, 3})] == [1, 2]


# ---- Environments ----


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """Give a workshop that installs and compiles nothing, and the commands that it would have run."""
    commands: list[list[str]] = []

    def noted(command, log, variables, *, seconds, cwd):
        commands.append(list(command))
        if "venv" in command:
            run(command, log, variables, seconds=seconds, cwd=cwd)

    monkeypatch.setattr(environments, "run", noted)
    return Workshop(tmp_path, tmp_path / ".venv", tmp_path / "log"), commands


def test_an_environment_is_made_once(workshop):
    made, commands = workshop
    for _ in range(2):
        made.torch("torch==2.13.0")
    assert next(command for command in commands if "pip" in command)[-1] == "torch==2.13.0"
    assert len(commands) == 2


def test_an_environment_is_made_anew_for_another_requirement(workshop):
    made, commands = workshop
    made.torch("torch==2.13.0")
    made.torch("torch==2.14.0")
    assert len(commands) == 4


def test_pip_does_not_see_packages_that_are_installed_here(workshop, monkeypatch):
    made, _ = workshop
    plain, seen = environments.run, []

    def looking(command, *rest, **named):
        if "pip" in command:
            seen.extend(made.folder("torch").rglob("*.pth"))
        plain(command, *rest, **named)

    monkeypatch.setattr(environments, "run", looking)
    made.torch("torch")
    assert seen == []
    assert len(list(made.folder("torch").rglob("*.pth"))) == 1


def test_only_wheels_are_installed_lest_mpi4py_be_compiled_for_another_mpi(workshop):
    made, commands = workshop
    made.torch("torch")
    assert commands[-1][commands[-1].index("--only-binary") + 1] == ":all:"


def test_what_cannot_be_installed_is_skipped_with_pip_s_reason_and_tried_again(workshop, monkeypatch):
    made, commands = workshop
    plain = environments.run

    def without_wheel(command, *rest, **named):
        if "pip" in command:
            raise PeerError("ERROR: No matching distribution found for impi-devel", "failed")
        plain(command, *rest, **named)

    monkeypatch.setattr(environments, "run", without_wheel)
    with pytest.raises(PeerError, match=r"impi-devel mpi4py\S* cannot be installed: ERROR: No matching") as caught:
        made.library(INTEL, pinned=True)
    assert caught.value.status == "skipped"
    assert not environments.finished(made.folder("impi"))
    monkeypatch.setattr(environments, "run", plain)
    monkeypatch.setattr(environments, "identify", lambda _: Identity("MPICH", "5.0.2", ()))
    with pytest.raises(PeerError, match="loaded in its place"):
        made.library(INTEL, pinned=True)
    assert any("pip" in command for command in commands)


def test_an_environment_of_somebody_else_is_left_alone(workshop):
    made, commands = workshop
    folder = made.folder("torch")
    folder.mkdir()
    (folder / "precious").touch()
    with pytest.raises(PeerError, match="was not made by make peers"):
        made.torch("torch")
    assert (folder / "precious").exists()
    assert commands == []


def test_torch_can_be_left_out(workshop):
    made, commands = workshop
    with pytest.raises(PeerError, match="left out by PEERS_TORCH=0") as caught:
        made.torch(None)
    assert caught.value.status == "skipped"
    made.torch("torch")
    made.torch(None)
    assert len(commands) == 2


def test_a_new_environment_sees_this_one_s_packages_after_its_own(workshop):
    made, _ = workshop
    python = made.torch("torch").python
    told = subprocess.run(
        [python, "-I", "-c", "import sys, numpy; print(*sys.path, sep='\\n')"],
        capture_output=True,
        text=True,
        check=True,
    )
    paths = told.stdout.splitlines()
    own = next(path for path in paths if str(made.folder("torch")) in path)
    assert paths.index(own) < paths.index(str(environments.packages()))


# ---- Passes ----


def test_contenders_take_turns(tmp_path):
    begun: list[str] = []
    doubles = [Double(name, [[point()], [point()]], begun=begun) for name in "AB"]
    in_turns([Harvest(one) for one in doubles], 2, tmp_path, silent)
    assert begun == ["A pass-1", "B pass-1", "A pass-2", "B pass-2"]


def test_one_that_fails_is_left_out_and_the_others_go_on(tmp_path):
    told: list[str] = []
    harvests = [
        Harvest(Double("A", [[point()], PeerError("it broke", "failed")])),
        Harvest(Double("B", [[point()]] * 3)),
    ]
    in_turns(harvests, 3, tmp_path, told.append)
    assert [len(one.passes) for one in harvests] == [1, 3]
    assert "A failed: it broke" in told
    assert TrustFlag("incomplete", "A: pass 2 and those after it: it broke") in trust(record(), harvests)


def test_what_happened_before_counts_as_busy_only_once(tmp_path):
    busy = TrustFlag("busy", "load of 2.0")
    harvest = Harvest(Double("A", []), runs=[record(trust=(busy, TrustFlag("unpinned", "2 ranks")))])
    flags = trust(record(trust=(busy,)), [harvest])
    assert flags == (busy, TrustFlag("unpinned", "A: 2 ranks"))


# ---- Merging ----


def test_a_merged_point_holds_all_samples_and_says_how_many_each_pass_gave():
    found = merged([point(us=1, samples=3, late=1, bound_us=0.5), point(us=2, samples=2, late=2, bound_us=0.4)])
    assert found.samples_ns == (1000, 1000, 1000, 2000, 2000)
    assert (found.passes, found.late, found.bound_us) == ((3, 2), 3, 0.4)
    assert Point.from_json(found.to_json()) == found


def test_one_wrong_pass_makes_the_merged_point_wrong():
    found = merged([point(), point(status="wrong", wrong=7, reason="7 of 16 elements are wrong"), point()])
    assert (found.status, found.wrong, found.reason) == ("wrong", 7, "7 of 16 elements are wrong")


def test_means_of_several_passes_are_weighted_by_their_repetitions():
    assert stated([Stated(mean_us=1.0, repetitions=300), Stated(mean_us=5.0, repetitions=100)]) == Stated(
        mean_us=2.0, repetitions=400
    )
    assert stated([Stated(mean_us=1.0), Stated(mean_us=3.0, repetitions=1)]) == Stated(mean_us=2.0)
    found = merged([imported(us=1.0), imported(us=3.0)])
    assert (found.kind, found.samples_ns, found.stated) == ("imported", (), Stated(mean_us=2.0))


# ---- Figures ----


def test_the_table_divides_by_the_fastest_library_and_by_nothing_else():
    columns = [
        column("mpi (A)", [[point(us=4)]], vendor=True),
        column("mpi (B)", [[point(us=2)]], vendor=True),
        column("gloo", [[point(us=1)]], vendor=False),
    ]
    row = tables.comparison(columns)[1].split()
    assert [cell for cell in row if cell.endswith("×")] == ["2.00×", "1.00×", "0.50×"]


def test_the_interval_holds_the_median_of_every_pass():
    passes = [point(us=9), point(us=10), point(us=11)]
    found = figure(passes)
    assert (found.median_us, found.low_us, found.high_us, found.passes) == (10, 9, 11, 3)
    assert "10 ±10 %" in tables.comparison([column("mpi (A)", [passes], vendor=True)])[1]


def test_a_size_with_a_wrong_pass_has_no_figure():
    assert figure([point(), point(status="wrong", wrong=1)]) is None
    lines = tables.comparison([column("mpi (A)", [[point(8)], [point(64, status="failed")]], vendor=True)])
    assert lines == tables.comparison([column("mpi (A)", [[point(8)]], vendor=True)])


def test_the_csv_has_the_interval_of_every_cell():
    text = tables.figures_csv([column("mpi (A)", [[point(us=2), point(us=4)]], vendor=True)])
    titles, row = (line.split(",") for line in text.splitlines())
    cells = dict(zip(titles, row, strict=True))
    assert (cells["time_us_ci_low"], cells["time_us_ci_high"]) == ("2.000", "4.000")
    assert (cells["samples"], cells["passes"], cells["times_fastest_vendor"]) == ("40", "2", "1.0000")


def test_our_mean_is_over_ranks_where_each_rank_s_times_are_stored():
    slowest = point(us=3, samples=2)
    assert mean_us(slowest) == pytest.approx(3.0)
    assert mean_us(replace(slowest, per_rank_ns=((1000, 3000), (3000, 1000)))) == pytest.approx(2.0)
    assert mean_us(point(samples=0)) is None


def test_means_are_those_of_the_middle_pass():
    theirs = {("osu", 8): [imported(us=2.0), imported(us=2.2), imported(us=90.0)]}
    ours = {("mpi (A)", 8): [point(us=3.3), point(us=50), point(us=3.0)]}
    (found,) = agreements(theirs, ours, "mpi (A)")
    assert (found.ours_us, found.theirs_us) == (pytest.approx(3.3), pytest.approx(2.2))
    assert found.ratio == pytest.approx(1.5)


@pytest.mark.parametrize("other", [{"dtype": "uint8"}, {"in_place": True}, {"op": "max"}, {"status": "wrong"}])
def test_only_the_same_right_work_is_held_against_ours(other):
    assert agreements({("osu", 8): [imported(**other)]}, {("mpi (A)", 8): [point()]}, "mpi (A)") == []
    assert agreements({("osu", 8): [imported()]}, {("mpi (A)", 64): [point(64)]}, "mpi (A)") == []


# ---- Other programs ----


@pytest.fixture
def job(tmp_path, repository) -> Job:
    """Give a job of two ranks."""
    return Job(repository / "configs" / "sweeps" / "peers.toml", 2, tmp_path)


@pytest.fixture
def in_use(tmp_path) -> tuple[Environment, Identity]:
    """Give an environment whose launcher starts one process of what it is told, a double of mpirun."""
    launcher = script(tmp_path / "launcher", f'printf "%s\\n" "$*" >> {tmp_path}/launched; shift 2; exec "$@"')
    file = tmp_path / "lib" / "libmpi.so.12"
    file.parent.mkdir()
    file.touch()
    return Environment(tmp_path / "bin" / "python", (str(launcher),)), Identity("MPICH", "5.0.2", (file,))


def fake_osu(folder: Path, *, refuses: str = "-none") -> Path:
    """Write a double of osu_allreduce that prints a log, but for an option that it does not know."""
    folder.mkdir()
    log = folder / "osu.log"
    log.write_text(OSU_LOG)
    text = f'for word; do [ "$word" = {refuses} ] && {{ echo "usage: error: {refuses}"; exit 1; }}; done; cat {log}'
    return script(folder / "osu_allreduce", text)


def test_a_benchmark_on_path_runs_under_the_library_s_launcher_and_is_read(tmp_path, job, in_use, monkeypatch):
    monkeypatch.setenv("PATH", f"{fake_osu(tmp_path / 'osu').parent}:{os.environ['PATH']}")
    found = programs.contender(OSU, job, (8, 1024), [in_use])
    _, points = found.measure(tmp_path / "out" / "pass-1")
    assert {one.algorithm for one in points} == {"osu_allreduce 7.4 (MPICH 5.0.2)"}
    assert [(one.nbytes, one.stated.mean_us, one.dtype, one.ranks) for one in points] == [
        (8, 2.0, "float32", 2),
        (1024, 4.0, "float32", 2),
    ]
    assert (tmp_path / "launched").read_text().startswith("-n 2 ")
    assert load(tmp_path / "out" / "pass-1").points == tuple(points)


def test_an_older_benchmark_that_does_not_know_an_option_is_asked_again_without_it(tmp_path, job, in_use, monkeypatch):
    monkeypatch.setenv("PATH", f"{fake_osu(tmp_path / 'osu', refuses='-T').parent}:{os.environ['PATH']}")
    _, points = programs.contender(OSU, job, (8, 1024), [in_use]).measure(tmp_path / "out")
    assert len(points) == 2
    assert ["-T" in line for line in (tmp_path / "launched").read_text().splitlines()] == [True, False]


def test_a_benchmark_that_breaks_gives_its_reason_and_counts_as_skipped(tmp_path, job, in_use):
    broken = script(tmp_path / "all_reduce_perf", "echo 'Test CUDA failure: no device'; exit 2")
    with pytest.raises(PeerError, match="no device") as caught:
        ProgramContender(job, NCCL, broken, *in_use, (8,)).measure(tmp_path / "out")
    assert caught.value.status == "skipped"
    assert not (tmp_path / "launched").exists()


def test_a_benchmark_that_is_not_installed_is_absent_with_that_reason(job, in_use, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerError, match="not found on PATH"):
        programs.contender(OSU, job, (8,), [in_use])


def fake_ldd(folder: Path, line: str, monkeypatch) -> None:
    """Put a double of ldd on PATH that says `line`."""
    script(folder / "ldd", f"echo '\t{line}'")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_benchmark_of_another_mpi_is_refused_and_not_run_under_this_launcher(tmp_path, job, in_use, monkeypatch):
    other = tmp_path / "other" / "libmpi.so.40"
    other.parent.mkdir()
    other.touch()
    fake_osu(tmp_path / "osu")
    fake_ldd(tmp_path / "osu", f"libmpi.so.40 => {other} (0x00007f0000000000)", monkeypatch)
    with pytest.raises(PeerError, match=r"is linked with .*other/libmpi\.so\.40, which is the MPI of none"):
        programs.contender(OSU, job, (8,), [in_use])


def test_a_benchmark_runs_over_the_library_that_it_is_linked_with(tmp_path, job, in_use, monkeypatch):
    fake_osu(tmp_path / "osu")
    fake_ldd(tmp_path / "osu", f"libmpi.so.12 => {in_use[1].files[0]} (0x00007f0000000000)", monkeypatch)
    base = (Environment(tmp_path / "python", ("base",)), Identity("Open MPI", "5.0.11", ()))
    found = programs.contender(OSU, job, (8,), [base, in_use])
    assert (found.partner.name, found.environment) == ("MPICH 5.0.2", in_use[0])


def test_a_benchmark_that_does_not_find_its_library_is_absent(tmp_path, monkeypatch):
    fake_ldd(tmp_path, "libmpi.so.40 => not found", monkeypatch)
    with pytest.raises(PeerError, match=r"does not find its libmpi\.so\.40"):
        linked_with(tmp_path / "osu_allreduce", None)


def test_the_benchmark_that_intel_s_wheel_brings_runs_with_its_libraries(tmp_path, job, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    script(tmp_path / "bin" / "IMB-MPI1", "true")
    file = tmp_path / "lib" / "libmpi.so.12"
    base = (Environment(tmp_path / "python", ("base",)), Identity("Open MPI", "5.0.11", ()))
    intel = (Environment(tmp_path / "bin" / "python", ("mpiexec",)), Identity("Intel MPI", "2021.18.1", (file,)))
    monkeypatch.setattr(programs, "linked_with", lambda *_: file)
    file.parent.mkdir()
    file.touch()
    found = programs.contender(IMB, job, (8,), [base, intel])
    assert found.environment.variables["LD_LIBRARY_PATH"].split(":")[0] == str(file.parent)
    assert found.partner.vendor == "Intel MPI"


def test_imb_is_asked_for_every_size_and_room_for_the_largest(tmp_path):
    (options,) = IMB.options(Task((8, 1024, 64 << 20), 2, tmp_path))
    assert (tmp_path / "lengths").read_text().split() == ["8", "1024", str(64 << 20)]
    assert options[options.index("-msglog") + 1] == "0:26"
    assert options[options.index("-npmin") + 1] == "2"


# ---- One library's sweep ----


def leaves(folder: Path, run_: Run, points=(), *, finished=True):
    """Return a double of `run` whose program leaves a run."""

    def start(command, log, variables, *, seconds, cwd):
        with Store.create(folder, run_) as store:
            for one in points:
                store.append(one)
            if finished:
                store.finish()
        raise PeerError("launcher: it ended with status 1", "failed")

    return start


def test_a_sweep_counts_by_the_run_it_left_not_by_its_status(tmp_path, job, in_use, monkeypatch):
    folder = tmp_path / "mpich" / "pass-1"
    monkeypatch.setattr(contender, "run", leaves(folder, record(), [point(algorithm="mpi")]))
    sweep = contender.SweepContender(job, *in_use, ("mpi",), "mpich")
    _, (found,) = sweep.measure(folder)
    assert found.algorithm == "mpi (MPICH 5.0.2)"


def test_a_sweep_that_did_not_finish_has_failed(tmp_path, job, in_use, monkeypatch):
    folder = tmp_path / "mpich" / "pass-1"
    monkeypatch.setattr(contender, "run", leaves(folder, record(), [point()], finished=False))
    with pytest.raises(PeerError, match="it ended with status 1"):
        contender.SweepContender(job, *in_use, ("mpi",), "mpich").measure(folder)


def test_points_of_another_library_are_refused(tmp_path, job, in_use, monkeypatch):
    folder = tmp_path / "mpich" / "pass-1"
    monkeypatch.setattr(contender, "run", leaves(folder, record("Open MPI", "5.0.11"), [point()]))
    with pytest.raises(PeerError, match=r"ran over Open MPI 5\.0\.11, not over MPICH 5\.0\.2"):
        contender.SweepContender(job, *in_use, ("mpi",), "mpich").measure(folder)


# ---- gloo ----


class OneRank:
    """A double of a rank of torch: of two ranks that always say the same."""

    rank, size, version = 0, 2, "2.13.0"

    def __init__(self, result) -> None:
        self._result = result

    def gathered(self, value):
        return [value, value]

    def runner(self, buffers):
        return lambda: self._result(buffers)

    def timed(self, _, samples):
        return np.full(samples, 5000)


def gloo_config(repository):
    """Return the sweep of the passes, of two sizes."""
    return replace(configuration.load(repository / "configs" / "sweeps" / "peers.toml", {}), sizes=(8, 1024))


def right(buffers):
    """Leave what an allreduce of two ranks must leave."""
    config = configuration.load(None, {})
    expected = pattern(config.dtypes[0], "sum", 0, 2).expected
    buffers.receive.view(expected.dtype)[:] = expected[: buffers.receive.size]


def test_gloo_s_points_are_checked_and_timed_like_a_sweep_s(repository):
    found = list(Measurement(OneRank(right), gloo_config(repository)).points())
    assert [(one.status, one.wrong, one.sync, one.nbytes) for one in found] == [
        ("ok", 0, "barrier", 8),
        ("ok", 0, "barrier", 1024),
    ]
    assert set(found[0].samples_ns) == {5000}
    assert len(found[0].samples_ns) == sample_count(5e-6, 0.1)


@pytest.mark.parametrize(
    ("changes", "stopped"), [({}, "samples"), ({"max_seconds": 1e-3}, "time"), ({"iterations": 7}, "samples")]
)
def test_what_ended_gloo_s_points_is_told(repository, changes, stopped):
    (first, _) = Measurement(OneRank(right), replace(gloo_config(repository), **changes)).points()
    assert first.stopped == stopped


def test_gloo_s_wrong_results_are_found(repository):
    found = list(Measurement(OneRank(silent), gloo_config(repository)).points())
    assert [one.status for one in found] == ["wrong", "wrong"]
    assert found[0].wrong >= 2 * 2


def test_samples_of_gloo_are_bounded_both_ways():
    assert [sample_count(each, 0.1) for each in (0.0, 1e-6, 1e-3, 1.0)] == [2000, 2000, 100, 20]


# ---- The whole ----


@pytest.fixture
def request_(tmp_path, repository) -> Request:
    """Give what the command line asks for."""
    return Request(
        ranks=2,
        launcher=("mpirun",),
        venv=tmp_path / ".venv",
        config=repository / "configs" / "sweeps" / "peers.toml",
        out=tmp_path / "peers",
        passes=2,
        torch=None,
        processors=frozenset({0, 1}),
    )


@pytest.fixture
def doubles(tmp_path, monkeypatch):
    """Stand in for all libraries: Open MPI is in use, MPICH can be had, Intel MPI cannot; no program is installed."""

    def had(self, wheel, *, pinned):
        if wheel.vendor != "MPICH":
            raise PeerError("impi-devel cannot be installed: ERROR: No matching distribution found for impi-devel")
        return Environment(tmp_path / "mpich", ()), Identity("MPICH", "5.0.2", ())

    def measured(self, folder):
        points = [
            point(
                nbytes, us=nbytes / 8, algorithm=f"{one} ({self.name})", transport="vendor" if one == "mpi" else "p2p"
            )
            for nbytes in (8, 1024)
            for one in self.algorithms
        ]
        return record(self.identity.vendor, self.identity.version), points

    monkeypatch.setattr(comparison, "identify", lambda _: Identity("Open MPI", "5.0.11", ()))
    monkeypatch.setattr(Workshop, "library", had)
    monkeypatch.setattr(contender.SweepContender, "measure", measured)
    monkeypatch.setenv("PATH", str(tmp_path))
    return measured


def test_one_run_directory_holds_all_libraries_and_the_reasons_of_those_that_are_missing(request_, tmp_path, doubles):
    lines, status = Comparison(request_, tmp_path, silent).run()
    loaded = load(request_.out)
    ours = {one.algorithm: one for one in loaded.points if one.nbytes == 8}
    assert status == 0
    assert loaded.run.finished
    assert loaded.problems == []
    assert loaded.run.mpi["library"] == "Open MPI 5.0.11 / MPICH 5.0.2"
    assert ours["mpi (MPICH 5.0.2)"].passes == (20, 20)
    assert ours["mpi (Intel MPI)"].status == "skipped"
    assert "No matching distribution" in ours["mpi (Intel MPI)"].reason
    assert "PEERS_TORCH=0" in ours["gloo (torch)"].reason
    assert {"results.csv", "report.html", "peers.csv", "programs.csv"} <= {path.name for path in request_.out.iterdir()}
    assert any("mpi (Intel MPI): skipped" in line for line in lines)
    assert any("ddlbench's best" in line for line in lines)


def test_every_size_is_missing_where_a_library_is(request_, tmp_path, doubles):
    Comparison(request_, tmp_path, silent).run()
    missing = [one.nbytes for one in load(request_.out).points if one.algorithm == "mpi (Intel MPI)"]
    assert missing == [8, 1024]


def test_a_second_run_takes_the_place_of_the_first(request_, tmp_path, doubles):
    for _ in range(2):
        Comparison(request_, tmp_path, silent).run()
    sizes = [one.nbytes for one in load(request_.out).points if one.algorithm == "mpi (MPICH 5.0.2)"]
    assert sizes == [8, 1024]


def test_a_wrong_result_under_one_library_is_the_exit_status(request_, tmp_path, doubles, monkeypatch):
    def wrong(self, folder):
        run_, points = doubles(self, folder)
        bad = self.identity.vendor == "MPICH"
        return run_, [replace(one, status="wrong", wrong=1) if bad else one for one in points]

    monkeypatch.setattr(contender.SweepContender, "measure", wrong)
    lines, status = Comparison(request_, tmp_path, silent).run()
    assert status == 1
    assert any(line.startswith("# mpi (MPICH 5.0.2): wrong") for line in lines)


def test_an_interrupt_keeps_what_the_passes_gave(request_, tmp_path, doubles, monkeypatch):
    calls = []

    def interrupted(self, folder):
        calls.append(folder)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return doubles(self, folder)

    monkeypatch.setattr(contender.SweepContender, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Comparison(request_, tmp_path, silent).run()
    loaded = load(request_.out)
    assert not loaded.run.finished
    kept = {one.algorithm: one.passes for one in loaded.points if one.nbytes == 8}
    assert kept["mpi (Open MPI 5.0.11)"] == (20, 20)
    assert kept["mpi (MPICH 5.0.2)"] == (20,)


def test_a_folder_of_somebody_else_is_refused(request_, tmp_path, doubles):
    (request_.out / "passes").mkdir(parents=True)
    (request_.out / "passes" / "precious").touch()
    with pytest.raises(UsageError, match="was not made by make peers"):
        Comparison(request_, tmp_path, silent).run()
    assert (request_.out / "passes" / "precious").exists()


def test_the_library_in_use_is_not_installed_once_more(request_, tmp_path, doubles):
    told: list[str] = []
    Comparison(request_, tmp_path, told.append).run()
    assert [text for text in told if text.startswith("set-up")] == [
        "set-up: MPICH, in .venv-mpich",
        "set-up: Intel MPI, in .venv-impi",
    ]


def test_the_best_algorithm_is_chosen_by_another_sweep_than_the_one_that_is_shown(request_, tmp_path, doubles):
    Comparison(request_, tmp_path, silent).run()
    loaded = load(request_.out)
    own = [one for one in loaded.points if one.transport == "p2p"]
    assert own
    assert all(one.passes == (20, 20) for one in own)  # not a sample of the sweep before the passes


def test_a_library_is_none_of_ddlbench_s_algorithms_however_fast():
    points = [point(8, us=1, algorithm="mpi (A)"), point(8, us=5, algorithm="ring (A)", transport="p2p")]
    points += [point(8, us=3, algorithm="direct (A)", transport="p2p")]
    assert chosen(record(), points) == {8: "direct (A)"}


def test_the_fastest_is_decided_at_each_size_alone_by_the_median_of_right_results():
    points = [point(8, us=1, algorithm="mpi (A)"), point(8, us=5, algorithm="ring (A)", transport="direct")]
    points += [point(8, us=4.9, algorithm="direct (A)", transport="direct")]
    points += [point(64, us=9, algorithm="direct (A)", transport="direct")]
    points += [point(64, us=8.9, algorithm="ring (A)", transport="direct")]
    points += [point(64, us=1, algorithm="swing (A)", transport="direct", status="wrong")]
    assert fastest(points) == {8: "direct (A)", 64: "ring (A)"}


def test_candidates_are_algorithms_that_so_many_ranks_can_run():
    assert {"ring", "halving-doubling", "direct"} <= set(candidates(3))
    assert "mpi" not in candidates(3)


def test_an_outcome_shows_the_algorithm_that_was_chosen_for_each_size():
    passes = [[point(8, us=1, algorithm="ring (A)"), point(64, us=9, algorithm="direct (A)")]]
    harvest = Harvest(Double("A", [], title="mpi (A)"), passes=passes)
    outcome = Outcome(record(), passes[0], {8: "ring (A)", 64: "direct (A)"}, [harvest])
    best = outcome.columns()[-1]
    assert {nbytes: found.algorithm for nbytes, found in best.figures.items()} == {8: "ring (A)", 64: "direct (A)"}


def test_what_is_not_pinned_is_named():
    free = record(trust=(TrustFlag("unpinned", "2 ranks of 2 may move between cores"),))
    harvests = [Harvest(Double("A", []), runs=[record()]), Harvest(Double("B", []), runs=[record(), free])]
    assert Outcome(record(), [], {}, harvests).unpinned() == ["B"]


def test_the_sweep_of_the_passes_is_one_that_all_can_do(repository):
    config = checked(configuration.load(repository / "configs" / "sweeps" / "peers.toml", {}))
    assert (min(config.sizes), max(config.sizes)) == (8, 64 << 20)
    assert config.check


@pytest.mark.parametrize(
    "flags", [{"dtypes": "float64"}, {"ops": "max"}, {"in_place": "both"}, {"workload": "resnet50"}]
)
def test_a_sweep_that_not_all_can_do_is_refused(flags):
    with pytest.raises(UsageError, match="must"):
        checked(configuration.load(None, flags))


def test_a_mistake_on_the_command_line_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["peers", "--ranks", "0"])
    assert main() == 2
    assert capsys.readouterr().err.startswith("ddlbench: error: Invalid value for '--ranks'")


def test_without_a_source_tree_there_is_nothing_to_compile(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("ddlbench.peers.__main__.SOURCE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["peers", "--out", str(tmp_path / "out")])
    assert main() == 2
    assert "from its source tree: make peers" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
