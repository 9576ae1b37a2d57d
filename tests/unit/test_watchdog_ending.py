"""What ends a process or its launcher that does not end by itself, outside MPI."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ddlbench.cli import faults
from ddlbench.watch.board import Beat
from ddlbench.watch.fault import Fault, Place

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this Python or kernel has no pidfd")


def rites(process, patience):
    """Run what ends a launcher on `process`; return the signal that ended it and for how long that took, seconds."""
    held = os.pidfd_open(process.pid)
    words = [sys.executable, "-S", "-c", faults.LAST_RITES, str(held), str(patience)]
    begin = time.monotonic()
    subprocess.run(words, pass_fds=[held], check=True, timeout=30)
    os.close(held)
    return -process.wait(10), time.monotonic() - begin


def test_a_launcher_that_ends_by_itself_is_left_alone():
    with subprocess.Popen(["sleep", "0.2"]) as process:
        number, seconds = rites(process, 20)
    assert number == 0
    assert seconds < 15


def test_a_launcher_that_does_not_end_is_told_to():
    with subprocess.Popen(["sleep", "100"]) as process:
        assert rites(process, 0.1)[0] == signal.SIGTERM


def test_a_launcher_that_does_not_listen_is_killed():
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert rites(process, 0.1)[0] == signal.SIGKILL


def test_mpi_may_take_a_minute_to_start_or_nine_seconds_more_than_was_asked_for():
    assert faults.start_seconds(None) == 60.0
    assert faults.start_seconds(3.0) <= 3.0 + 10
    assert faults.start_seconds(300.0) > 300.0


def told(capfd, *, silent_host, found=True, store=None, keep=True, tmp_path=None):
    places = (Place(0, "node0", 1, "here"), Place(1, silent_host, 2, "there", 61.0))
    end = faults.Faults(0)
    if keep:
        end.keep(tmp_path / "out of it", store)
    end.announce(Fault("stalled: x", found=found, point=None, places=places, at="now"))
    return capfd.readouterr().err.splitlines()


def test_a_fault_is_told_with_the_way_to_go_on_and_stored(capfd, tmp_path):
    stored = []
    lines = told(capfd, silent_host=os.uname().nodename, store=stored.append, tmp_path=tmp_path)
    assert lines[-1] == f"# the points that were finished are kept, --resume '{tmp_path}/out of it' goes on with them"
    assert [fault.to_json()["silent"] for fault in stored] == [[1]]


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("end.keep(Path('out'), None)", "the launcher is gone; the points that were finished are kept in out"),
        ("pass", "the launcher is gone"),
    ],
)
def test_a_rank_whose_launcher_is_gone_ends_and_the_first_says_so(keep, said):
    program = (
        "import time\nfrom pathlib import Path\nfrom ddlbench.cli import faults\nfaults.ORPHAN_SECONDS = 0.1\n"
        f"end = faults.Faults({{}})\n{keep}\nend.interrupted('the launcher is gone')\ntime.sleep(60)"
    )
    for rank, lines in ((0, f"ddlbench: interrupted: {said}\n"), (1, "")):
        done = subprocess.run(
            [sys.executable, "-c", program.format(rank)], capture_output=True, text=True, check=False, timeout=30
        )
        assert (done.returncode, done.stderr) == (130, lines)


def test_before_there_is_a_run_directory_nothing_was_measured(capfd):
    assert told(capfd, silent_host=os.uname().nodename, keep=False)[-1] == "# nothing was measured yet"


def test_only_a_launcher_that_lost_a_host_is_ended(capfd, monkeypatch, tmp_path):
    ended = []
    monkeypatch.setattr(faults, "_end_launcher", lambda: ended.append(1))
    told(capfd, silent_host=os.uname().nodename, tmp_path=tmp_path)
    told(capfd, silent_host="elsewhere", found=False, tmp_path=tmp_path)
    assert ended == []
    told(capfd, silent_host="elsewhere", tmp_path=tmp_path)
    assert ended == [1]


def test_a_parent_that_is_no_launcher_is_left_alone(capfd, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    faults._end_launcher()
    assert capfd.readouterr().err == ""


def test_a_rank_that_is_heard_by_nobody_says_where_it_stands(capfd):
    faults.Faults(1).alone(Beat("ring, 8 bytes", "round 1: waits for rank 0", 66.4, 60.0), ("rank 0 (node0)",))
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(
        f"# stalled: rank 0 on {os.uname().nodename} (pid {os.getpid()}): ring, 8 bytes, round 1: waits"
    )
    assert line.endswith("waits for rank 0: no progress for 66 s; nothing was heard from rank 0 (node0)")
