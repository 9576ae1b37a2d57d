"""A job under watch: it ends with all it started, and its record, not its launcher's status, says what came of it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import synthetic
from ddlbench.errors import UsageError
from ddlbench.launch import running
from ddlbench.launch.heartbeat import GRACE_SECONDS, VARIABLE, Heartbeat, beat
from ddlbench.launch.running import GRACE_SECONDS as LEAVE_SECONDS
from ddlbench.launch.running import Ended, run, session_of
from ddlbench.launch.started import SIZE_AND_RANK
from ddlbench.launch.verdict import Expected, judged
from ddlbench.records import Store

AGAIN = ("ddlbench", "launch", "--", "ddlbench", "sweep", "--resume", "a folder")
NEVER = 60
"""Seconds that no test waits for."""


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def runs(program: str, watch=lambda: None) -> Ended:
    return run(python(program), os.environ, watch)


def gone(path: Path) -> bool:
    """Say whether the process whose number `path` holds has ended."""
    state = Path("/proc", path.read_text(), "stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"


# ---- Running -------------------------------------------------------------------------------------------------------


def test_the_status_is_the_command_s():
    assert runs("raise SystemExit(7)") == Ended(7)
    assert runs("import os; os.kill(os.getpid(), 9)") == Ended(-9)


def test_a_command_that_cannot_be_started_is_named():
    with pytest.raises(UsageError, match=r"no-such-program cannot be started: No such file"):
        run(["no-such-program"], {}, lambda: None)


def test_the_command_has_a_session_of_its_own_and_the_environment_it_was_given(tmp_path):
    program = "import os; open(os.environ['X'], 'w').write(f'{os.getsid(0)} {os.getpid()} {os.environ.get(\"HOME\")}')"
    run(python(program), {"X": str(tmp_path / "x")}, lambda: None)
    session, process, value = (tmp_path / "x").read_text().split()
    assert session == process != str(os.getsid(0))
    assert value == "None"


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", child], process_group=0)
open({place!r}, "w").write(str(child.pid))
{more}
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_that_was_started_however_it_resists(tmp_path, monkeypatch, number):
    monkeypatch.setattr(running, "GRACE_SECONDS", 0.3)
    place = tmp_path / "child"
    timer = threading.Thread(target=lambda: (_until(place.exists), time.sleep(0.2), os.kill(os.getpid(), number)))
    timer.start()
    begin = time.monotonic()
    ended = runs(STUBBORN.format(place=str(place), more="time.sleep(60)"))
    timer.join()
    assert ended.interrupted == number
    assert time.monotonic() - begin < NEVER
    _until(lambda: gone(place))


def test_ctrl_c_leaves_the_launcher_less_than_three_seconds():
    assert LEAVE_SECONDS <= 2.0


def test_what_a_command_left_behind_is_ended_too(tmp_path):
    place = tmp_path / "child"
    assert runs(STUBBORN.format(place=str(place), more="")) == Ended(0)
    _until(lambda: gone(place))


def test_ranks_whose_launcher_ended_before_them_may_still_say_and_store_why(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "GRACE_SECONDS", float(NEVER))
    for _, name in SIZE_AND_RANK:
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "said"
    rank = f"import os, time; time.sleep(0.5); open({str(place)!r}, 'w').close()"
    begin = time.monotonic()
    start = f"subprocess.Popen([sys.executable, '-c', {rank!r}], env={{**os.environ, 'OMPI_COMM_WORLD_RANK': '0'}})"
    assert runs(f"import os, subprocess, sys; {start}") == Ended(0)
    assert place.exists()
    assert time.monotonic() - begin < NEVER  # they are not waited for any longer than they are there


def test_the_handlers_of_signals_are_as_before():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    runs("pass")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_signal_that_is_ignored_stays_so_as_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert runs("import os, signal; os.kill(os.getppid(), signal.SIGHUP)") == Ended(0)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_job_that_the_watch_wants_ended_is_ended_with_the_reason():
    ended = runs("import time; time.sleep(60)", lambda: "no sign of life")
    assert ended.stalled == "no sign of life"
    assert ended.status < 0


def test_the_processes_of_a_session_are_found_whatever_they_are_called(tmp_path):
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to(sys.executable)
    with subprocess.Popen([str(odd), "-c", "import time; time.sleep(60)"], start_new_session=True) as process:
        try:
            assert session_of(process.pid) == [process.pid]
        finally:
            process.kill()
    assert session_of(process.pid) == []


def _until(there) -> None:
    deadline = time.monotonic() + NEVER
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- The sign of life ----------------------------------------------------------------------------------------------


class Clock:
    """A clock that stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_said_before_the_first_sign_and_while_signs_come(tmp_path):
    clock = Clock()
    watch = Heartbeat(tmp_path / "alive", clock)
    for _ in range(5):
        clock.now += 1000
        assert watch() is None
        if clock.now > 2500:
            beat(60.0, {VARIABLE: str(tmp_path / "alive")})


def test_a_job_without_a_sign_for_its_limit_and_ten_seconds_is_to_be_ended(tmp_path):
    clock = Clock()
    watch = Heartbeat(tmp_path / "alive", clock)
    beat(30.0, {VARIABLE: str(tmp_path / "alive")})
    assert watch() is None
    clock.now += 30 + GRACE_SECONDS
    assert watch() is None
    clock.now += 1
    assert watch() == "no sign of life for 41 s, with a time limit of 30 s"
    beat(30.0, {VARIABLE: str(tmp_path / "alive")})
    assert watch() is None


def test_a_job_without_a_limit_may_take_its_time(tmp_path):
    clock = Clock()
    watch = Heartbeat(tmp_path / "alive", clock)
    beat(None, {VARIABLE: str(tmp_path / "alive")})
    assert watch() is None
    clock.now += 1e6
    assert watch() is None


def test_a_sign_that_was_cut_off_leaves_the_limit_as_it_was(tmp_path):
    clock, path = Clock(), tmp_path / "alive"
    watch = Heartbeat(path, clock)
    beat(30.0, {VARIABLE: str(path)})
    watch()
    path.write_text("")
    os.utime(path, ns=(1, 1))
    clock.now += 20
    assert watch() is None
    clock.now += 41
    assert watch() is not None


def test_a_sign_is_given_only_where_one_is_asked_for_and_its_place_may_be_gone(tmp_path):
    beat(1.0, {})
    beat(1.0, {VARIABLE: str(tmp_path / "gone" / "alive")})
    assert list(tmp_path.iterdir()) == []
    watch = Heartbeat(tmp_path / "alive")
    beat(1.0, {VARIABLE: str(tmp_path / "alive")})
    watch.remove()
    watch.remove()
    assert list(tmp_path.iterdir()) == []


# ---- The verdict ---------------------------------------------------------------------------------------------------


def left(place: Path, *, finished: bool, points: int = 2) -> None:
    """Leave a run in `place`, as a job does."""
    with Store.create(place, synthetic.run(finished=finished)) as store:
        for at in range(points):
            store.append(synthetic.point(nbytes=8 << at))


@pytest.fixture
def place(tmp_path):
    return tmp_path / "a folder"


def expected(place: Path, *, goes_on: bool = False) -> Expected:
    return Expected.of(place, AGAIN, goes_on=goes_on)


@pytest.mark.parametrize("status", [0, 1, 14])
def test_a_finished_run_has_the_status_of_the_launcher(place, status):
    job = expected(place)
    left(place, finished=True)
    assert judged(Ended(status), job) == judged(Ended(status), None)
    assert judged(Ended(status), job).status == status


@pytest.mark.parametrize("status", [0, 1, 2, 14, -9])
def test_a_run_that_is_not_finished_is_3_whatever_the_launcher_says_and_how_to_go_on_is_said(place, status):
    job = expected(place)
    left(place, finished=False)
    verdict = judged(Ended(status), job)
    assert verdict.status == 3
    for part in (
        "not complete",
        f"2 points are kept in {place}",
        "ddlbench launch -- ddlbench sweep --resume 'a folder'",
    ):
        assert part in verdict.text


@pytest.mark.parametrize(("status", "expected_status"), [(0, 3), (14, 3), (-11, 3), (1, 3), (2, 2)])
def test_a_job_that_never_began_its_run_is_incomplete_unless_it_was_refused(place, status, expected_status):
    verdict = judged(Ended(status), expected(place))
    assert verdict.status == expected_status
    assert ("nothing was written" in verdict.text) == (expected_status == 3)


def test_a_finished_run_of_before_is_not_taken_for_this_job_s(place):
    left(place, finished=True)
    assert judged(Ended(0), expected(place)).status == 3
    assert judged(Ended(0), expected(place, goes_on=True)).status == 0


def test_a_run_that_is_gone_on_with_counts_by_its_record_too(place):
    left(place, finished=False)
    verdict = judged(Ended(0), expected(place, goes_on=True))
    assert verdict.status == 3
    assert "2 points are kept" in verdict.text


def test_a_broken_record_is_no_finished_one(place):
    job = expected(place)
    place.mkdir()
    (place / "run.json").write_text("{")
    assert judged(Ended(0), job).status == 3


def test_a_job_that_was_ended_for_its_silence_is_3_even_when_its_record_is_whole(place):
    job = expected(place)
    left(place, finished=True)
    verdict = judged(Ended(-15, stalled="no sign of life for 71 s"), job)
    assert verdict.status == 3
    assert "no sign of life for 71 s" in verdict.text


def test_an_interrupt_is_130_and_says_how_to_go_on(place):
    job = expected(place)
    left(place, finished=False, points=1)
    verdict = judged(Ended(-15, interrupted=2), job)
    assert verdict.status == 130
    assert "1 point is kept" in verdict.text
    assert "--resume" in verdict.text


def test_other_programs_have_their_own_status():
    assert [judged(Ended(status), None).status for status in (0, 5, -9)] == [0, 5, 137]
    assert judged(Ended(0, interrupted=2), None).status == 130
