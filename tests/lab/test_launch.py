"""`ddlbench launch` over the hosts of a virtual cluster: it knows them, asks them, and says when one was lost."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from virtual import Lab, Labs, eventually

LAUNCH = (sys.executable, "-m", "ddlbench", "launch")
SHORT = ("--sizes", "8,4K", "-a", "ring,mpi", "-n", "3", "-w", "1", "--passes", "1", "--sync", "barrier")
LONG = ("--sizes", "8", "-a", "ring", "-n", "100000000", "--passes", "1", "--sync", "barrier", "--timeout", "5")
FOUR = ("--nodes", "4", "--ranks-per-node", "2")
EVERYWHERE = ["node0", "node0", "node1", "node1", "node2", "node2", "node3", "node3"]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def record(place: Path) -> dict:
    return json.loads((place / "run.json").read_text())


def command(text: str) -> list[str]:
    """Return the command that a launch says it runs."""
    lines = [line.removeprefix("# launch: ") for line in text.splitlines() if "DDLBENCH_EXPECT_RANKS" in line]
    return shlex.split(lines[0])


def test_the_hosts_of_a_lab_are_known_are_asked_and_run_their_ranks(labs: Labs, tmp_path):
    place = tmp_path / "run"
    done = labs("shell", *FOUR, "--", *LAUNCH, "--", "ddlbench", "sweep", *SHORT, "--out", str(place), timeout=170)
    assert done.status == 0, done.stderr
    assert record(place)["finished"] is True
    assert record(place)["topology"]["hosts"] == EVERYWHERE
    assert "# launch: 8 ranks, 2 on each of 4 nodes: node0, node1, node2, node3 (the lab), " in done.stderr
    assert "DDLBENCH_EXPECT_NODES=4" in command(done.stderr)


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (["-H", "node[1-2]:2", "--mode", "p:2x2"], ["node1", "node1", "node2", "node2"]),
        (["-n", "3"], ["node0", "node0", "node1"]),
        (["--nodes", "3", "--ranks-per-node", "1"], ["node0", "node1", "node2"]),
    ],
)
def test_hosts_and_ranks_are_those_that_were_asked_for(labs: Labs, tmp_path, words, hosts):
    place = tmp_path / "run"
    launch = (*LAUNCH, "--no-check", *words, "--", "ddlbench", "sweep", *SHORT, "--out", str(place))
    done = labs("shell", *FOUR, "--", *launch, timeout=170)
    assert done.status == 0, done.stderr
    assert record(place)["topology"]["hosts"] == hosts


def test_a_host_that_does_not_answer_is_named_before_anything_starts(labs: Labs, tmp_path):
    place = tmp_path / "run"
    launch = shlex.join((*LAUNCH, "--check-seconds", "15", "--", "ddlbench", "sweep", *SHORT, "--out", str(place)))
    cut = shlex.join((sys.executable, "-m", "ddlbench", "lab", "link", "node2", "down"))
    done = labs("shell", *FOUR, "--", "sh", "-c", f"{cut} >&2 && exec {launch}", timeout=170)
    assert done.status == 2
    assert "ddlbench: error: no answer from node2 " in done.stderr
    assert not place.exists()


def test_a_host_with_another_ddlbench_is_named(labs: Labs, tmp_path):
    other = tmp_path / "site"
    other.mkdir()
    (other / "sitecustomize.py").write_text(
        "import platform, socket\nif socket.gethostname() == 'node3':\n    platform.python_version = lambda: '3.99.0'\n"
    )
    launch = (*LAUNCH, "--", "ddlbench", "sweep", *SHORT, "--out", str(tmp_path / "run"))
    path = f"{other}:{Path(__file__).resolve().parents[2]}"
    done = labs("shell", *FOUR, "--", *launch, env={"PYTHONPATH": path}, timeout=170)
    assert done.status == 2, done.stderr
    assert "the hosts do not have the same programs: Python is 3.99.0 on node3, " in done.stderr
    assert not (tmp_path / "run").exists()


def running(labs: Labs, place: Path) -> Lab:
    """Return a lab in which a launch has begun to measure into `place`."""
    lab = labs.start("shell", *FOUR, "--", *LAUNCH, "--no-check", "--", "ddlbench", "sweep", *LONG, "--out", str(place))
    assert eventually((place / "points.jsonl").exists, 90), lab.err.read_text()
    return lab


def check_lost(lab: Lab, place: Path) -> None:
    """See that a launch which lost something ends with 3, says how to go on, and leaves nothing."""
    done = lab.wait(90)
    assert done.status == 3, done.stderr
    assert "the run is not complete" in done.stderr
    assert f"-- ddlbench sweep --resume {place}" in done.stderr
    assert record(place)["finished"] is False
    assert eventually(lambda: not lab.processes)


def test_a_run_that_lost_a_daemon_is_incomplete_though_mpirun_says_0(labs: Labs, tmp_path):
    place = tmp_path / "run"
    lab = running(labs, place)
    os.kill(lab.daemon, signal.SIGKILL)
    check_lost(lab, place)
    assert "the launcher ended with status 0, which says nothing" in lab.err.read_text()


def test_a_run_that_lost_a_link_is_incomplete(labs: Labs, tmp_path):
    place = tmp_path / "run"
    lab = running(labs, place)
    assert labs("link", "node2", "down", "--lab", str(lab.process.pid)).status == 0
    check_lost(lab, place)
    assert record(place)["fault"]["silent"] == [4, 5]


def test_an_interrupt_ends_every_rank_on_every_host(labs: Labs, tmp_path):
    place = tmp_path / "run"
    lab = running(labs, place)
    lab.process.terminate()
    done = lab.wait(60)
    assert done.status in (130, 143), done.stderr
    assert eventually(lambda: not lab.processes)
