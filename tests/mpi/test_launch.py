"""The way MPI tests run: on ranks that are one job, with every kind of failure pinned on its test and told in full."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

RANK_COUNTS = (1, 2, 3, 5, 8)


@pytest.mark.mpi(*RANK_COUNTS)
def test_ranks_of_a_test_are_one_job(comm):
    assert comm.allgather(comm.rank) == list(range(comm.size))


@pytest.mark.mpi(*RANK_COUNTS)
@pytest.mark.parametrize("root", ["first", "last"])
def test_a_marked_test_takes_parameters_and_fixtures(comm, root, tmp_path):
    source = 0 if root == "first" else comm.size - 1
    (tmp_path / "written").write_text(root)
    assert comm.bcast(root if comm.rank == source else None, source) == root


def test_an_unmarked_test_runs_outside_mpi_and_can_start_it(mpirun):
    program = (
        "from mpi4py import MPI; c = MPI.COMM_WORLD; c.rank == 0 and print(c.allreduce(1)) or c.rank and c.allreduce(1)"
    )
    finished = mpirun(3, sys.executable, "-c", program)
    assert (finished.status, finished.stdout.strip()) == (0, "3"), finished.stderr


SUITE = """
import os, signal, sys, time
import pytest

@pytest.mark.mpi(1, 2)
def test_good(comm):
    assert comm.allreduce(1) == comm.size

@pytest.mark.mpi(2)
def test_one_rank_fails_while_the_other_waits(comm):
    print("words of rank", comm.rank)
    assert comm.rank != 1, "rank one says no"
    comm.Barrier()

@pytest.mark.mpi(2)
def test_good_after_a_failure(comm):
    comm.Barrier()

@pytest.mark.mpi(2)
def test_crash(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    comm.Barrier()

@pytest.mark.mpi(2, timeout=2)
def test_hang(comm):
    def waiting_for_godot():
        comm.recv(source=1 - comm.rank)
    waiting_for_godot()

@pytest.mark.mpi(2)
def test_ranks_disagree(comm):
    if comm.rank == 1:
        pytest.skip("only I")

@pytest.mark.mpi(2)
def test_all_skip(comm):
    pytest.skip("all of us")

@pytest.mark.mpi(2)
def test_leaves_early(comm):
    if comm.rank == 1:
        os._exit(0)
    comm.Barrier()

@pytest.mark.mpi(2)
@pytest.mark.xfail(reason="known")
def test_known_fault_of_all_ranks(comm):
    raise ValueError

@pytest.mark.mpi(2)
def test_last(comm):
    if comm.rank == 0:
        import atexit
        atexit.register(os._exit, 5)

def test_unmarked():
    pass
"""


@dataclass(frozen=True)
class Told:
    """What pytest printed about a suite."""

    status: int
    text: str

    def outcome(self, test: str) -> str:
        """Return the outcome pytest printed for `test`."""
        found = re.search(rf"::{re.escape(test)} (\w+)", self.text)
        assert found, self.text
        return found[1]

    def failure(self, test: str) -> str:
        """Return the part of the report about the failure of `test`."""
        found = re.search(rf"^_+ {re.escape(test)} _+$(.*?)^(_+ test|=+ )", self.text, re.MULTILINE | re.DOTALL)
        assert found, self.text
        return found[1]


def told(folder: Path, text: str, python: str = sys.executable, **env: str) -> Told:
    """Run `text` as a suite of its own under the conftest beside this file."""
    here = Path(__file__).parent
    shutil.copy(here / "conftest.py", folder)
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {here.parent}\nmarkers = mpi: under mpirun\n")
    argv = [
        python,
        "-m",
        "pytest",
        "-v",
        "-ra",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        "test_it.py",
    ]
    done = subprocess.run(
        argv, cwd=folder, env=os.environ | env, capture_output=True, text=True, timeout=120, check=False
    )
    return Told(done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> Told:
    return told(tmp_path_factory.mktemp("suite"), SUITE)


def test_each_rank_count_is_a_test_and_good_tests_pass_among_bad_ones(suite):
    good = ["test_good[1-ranks]", "test_good[2-ranks]", "test_good_after_a_failure[2-ranks]", "test_unmarked"]
    assert [suite.outcome(test) for test in good] == ["PASSED"] * 4
    assert suite.outcome("test_all_skip[2-ranks]") == "SKIPPED"
    assert suite.outcome("test_known_fault_of_all_ranks[2-ranks]") == "XFAIL"
    assert "6 failed, 4 passed, 1 skipped, 1 xfailed" in suite.text
    assert suite.status == 1


def test_a_failing_rank_ends_the_waiting_ones_and_is_told_with_the_command_and_all_output(suite):
    failure = suite.failure("test_one_rank_fails_while_the_other_waits[2-ranks]")
    assert "AssertionError: rank one says no" in failure
    assert "-n 2" in failure
    assert re.search(r"rank 0 of 2: did not finish -+\nwords of rank 0\n", failure)
    assert re.search(r"rank 1 of 2: failed -+\nwords of rank 1\n", failure)


def test_a_crash_is_pinned_on_its_test(suite):
    failure = suite.failure("test_crash[2-ranks]")
    assert "mpirun ended with status" in failure
    assert "Fatal Python error: Segmentation fault" in failure


def test_a_hang_ends_in_time_and_shows_where_each_rank_stood(suite):
    failure = suite.failure("test_hang[2-ranks]")
    assert "not finished after 2 s" in failure
    assert failure.count("in waiting_for_godot") == 2


def test_ranks_that_do_not_agree_fail(suite):
    failure = suite.failure("test_ranks_disagree[2-ranks]")
    assert "the ranks do not agree\nrank 0: passed\nrank 1: skipped" in failure


def test_a_rank_that_leaves_with_status_0_fails_its_test(suite):
    assert "rank 1: did not finish" in suite.failure("test_leaves_early[2-ranks]")


def test_a_bad_end_of_the_job_fails_its_last_test(suite):
    assert "all tests done, then mpirun ended with status 5" in suite.failure("test_last[2-ranks]")


ONE_TEST = "import pytest\n@pytest.mark.mpi(2)\ndef test_one(comm): pass\n"


def test_without_mpirun_marked_tests_skip_with_the_reason(tmp_path):
    alone = tmp_path / "python"
    alone.symlink_to(sys._base_executable)
    packages = sysconfig.get_path("purelib")
    one = told(tmp_path, ONE_TEST, str(alone), PATH=str(tmp_path), PYTHONPATH=packages, MPIRUN="")
    assert one.outcome("test_one[2-ranks]") == "SKIPPED"
    assert "no mpirun" in one.text
    assert one.status == 0


def test_an_mpirun_that_was_asked_for_and_is_missing_is_an_error(tmp_path):
    one = told(tmp_path, ONE_TEST, MPIRUN="no-such-launcher")
    assert "MPIRUN=no-such-launcher is not a program" in one.text
    assert one.status != 0


@pytest.mark.parametrize("mark", ["mpi", "mpi()", "mpi(0)", "mpi('2')"])
def test_a_mark_without_rank_counts_is_refused(tmp_path, mark):
    one = told(tmp_path, f"import pytest\n@pytest.mark.{mark}\ndef test_one(): pass\n")
    assert "expected rank counts" in one.text
    assert one.status != 0
