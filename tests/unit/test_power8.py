"""What `make test-power8` says where it cannot run; that it runs where it can, only `make test-power8` shows."""

import importlib.util
import os
import subprocess
import sys

import pytest

from ddlbench.algorithms import resolve
from ddlbench.local.exchange import exchange
from ddlbench.local.slots import Slots
from ddlbench.local.ways import Layout, choose_ways
from ddlbench.local.windows import Window
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import lower


@pytest.fixture(scope="module")
def script(repository):
    """Give tests/power8/run.py as a module."""
    found = importlib.util.spec_from_file_location("power8_run", repository / "tests" / "power8" / "run.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def run(repository, *arguments, path):
    argv = [sys.executable, repository / "tests" / "power8" / "run.py", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, env=os.environ | {"PATH": str(path)}, check=False)


def test_where_programs_are_missing_one_line_names_their_packages(tmp_path, repository):
    done = run(repository, path=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "test-power8 cannot run here: there is no git, no mmdebstrap, no qemu-user-static, no util-linux: "
        "apt-get install git mmdebstrap qemu-user-static util-linux\n"
    )


def test_an_unknown_option_is_refused_before_anything_is_made(tmp_path, repository):
    done = run(repository, "--miror", "x", path=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "make test-power8: error: unrecognized arguments: --miror" in done.stderr


def test_who_is_not_root_is_told_so(script, monkeypatch):
    monkeypatch.setattr(script.shutil, "which", lambda program: program)
    monkeypatch.setattr(script.os, "geteuid", lambda: 1000)
    with pytest.raises(script.CannotRunError, match="run it as root"):
        script.refuse_what_lacks()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("disabled\ninterpreter /usr/bin/qemu\nflags: F\n", "is disabled: update-binfmts --enable qemu-ppc64le"),
        ("enabled\ninterpreter /usr/bin/qemu\nflags: OC\n", "lacks the flag F"),
        ("enabled\ninterpreter /usr/bin/qemu\nflags: \n", "lacks the flag F"),
    ],
)
def test_an_emulator_that_a_debian_system_of_its_own_cannot_use_is_refused(script, entry, said):
    with pytest.raises(script.CannotRunError, match=said):
        script.check_entry(entry)


def test_an_emulator_that_serves_is_taken(script):
    script.check_entry("enabled\ninterpreter /usr/bin/qemu\nflags: POF\noffset 0\n")


def test_a_debian_system_that_is_there_is_not_made_again(script, tmp_path, monkeypatch):
    calls = []

    def make(command, _output):
        calls.append(command)
        (tmp_path / "root").mkdir(exist_ok=True)
        return 0

    monkeypatch.setattr(script, "contained", make)
    script.make_root(tmp_path / "root", None)
    script.make_root(tmp_path / "root", None)
    assert len(calls) == 1
    monkeypatch.setattr(script, "PACKAGES", ("gcc",))
    script.make_root(tmp_path / "root", "a-mirror")
    assert calls[1][-2:] == [str(tmp_path / "root"), "a-mirror"]


def test_a_debian_system_that_cannot_be_made_says_why_and_is_tried_again(script, tmp_path, monkeypatch):
    def fail(command, output):
        output.write(b"I: begun\nE: no mirror answers\n")
        return 1

    monkeypatch.setattr(script, "contained", fail)
    for _ in range(2):
        with pytest.raises(script.CannotRunError, match=r"mmdebstrap failed.*: E: no mirror answers"):
            script.make_root(tmp_path / "root", None)


# ---- What POWER has otherwise than x86-64 ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [30, 1000])
def test_pieces_of_a_slot_share_no_line_of_128_bytes(count):
    of = exchange(lower(resolve("ring", Grid((3,)))))
    layout = Layout(count, 4, 2, registered=False, in_place=False)
    choose_ways(of, layout)
    slots = Slots(of, layout, 0)
    sent = [
        (message.send, segment) for round_ in range(of.rounds) for message in of.sent[0, round_] for segment in (0, 1)
    ]
    offsets = {slots.place(send, segment, execution).offset for send, segment in sent for execution in (0, 1)}
    assert len(offsets) > 2
    assert {offset % 128 for offset in offsets} == {0}


def test_a_window_is_in_order_for_all_before_and_after_a_barrier():
    calls = []

    class Recorder:
        def Sync(self):  # noqa: N802 - the name is mpi4py's
            calls.append("sync")

        def Barrier(self):  # noqa: N802
            calls.append("barrier")

    window = object.__new__(Window)
    window._window = Recorder()
    window.barrier(Recorder())
    assert calls == ["sync", "barrier", "sync"]
