"""What the hosts are asked before a job, and what is said of their answers."""

import json
import sys
import threading
import time

import pytest

from ddlbench.errors import UsageError
from ddlbench.launch import probe
from ddlbench.launch.checks import Answer, NoAnswerError, asked, check, heard, token
from ddlbench.launch.hosts import Host
from ddlbench.launch.layout import Layout
from processes import ended, eventually

HOSTS = Layout(tuple(Host(f"node{at}", 2) for at in range(4)))
FACTS = {"ddlbench": "0.1.0 abc", "Python": "3.11.7", "MPI": "Open MPI 5.0.11", "processors": 16, "GPUs": "none"}


def answer(changed=None, *, silent=(), met=4, status=0, words=""):
    """Return the answer of four hosts, all alike but for those `changed`."""
    ranks = [rank for rank in range(4) if rank not in silent]
    facts = {rank: FACTS | {"rank": rank, "host": f"node{rank}"} | (changed or {}).get(rank, {}) for rank in ranks}
    return Answer(facts, dict.fromkeys(ranks, met) if met else {}, words, status)


def said(given, *, singly=True, alone=()):
    """Return what `check` says or refuses; hosts that are asked `alone` answer."""
    layouts = []

    def ask(layout):
        layouts.append(layout)
        assert layout.counts == (1,) * len(layout.hosts)
        if len(layout.hosts) > 1:
            return given
        return Answer({0: FACTS | {"rank": 0}}) if layout.hosts[0].name in alone else Answer()

    try:
        return check(HOSTS, ask, 60, singly=singly)
    except (UsageError, NoAnswerError) as error:
        return f"{type(error).__name__}: {error}"


def test_hosts_that_are_alike_are_nothing_to_speak_of():
    assert said(answer()) == []


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({2: {"MPI": "MPICH 5.0.2"}}, "MPI is MPICH 5.0.2 on node2, Open MPI 5.0.11 on the other 3"),
        ({1: {"ddlbench": "0.1.0 xyz"}}, "ddlbench is 0.1.0 xyz on node1, 0.1.0 abc on the other 3"),
        (
            {0: {"Python": "3.12"}, 3: {"Python": "3.13"}},
            "Python is 3.12 on node0, 3.13 on node3, 3.11.7 on the other 2",
        ),
    ],
)
def test_different_programs_are_refused_by_the_names_of_the_hosts(changed, part):
    text = said(answer(changed))
    assert text.startswith("UsageError: the hosts do not have the same programs: ")
    assert part in text
    assert "--no-check" in text


def test_different_hardware_is_told_by_the_names_of_the_hosts_and_is_no_refusal():
    changed = {3: {"processors": 8, "GPUs": "4 Tesla V100"}, 2: {"machine": "ppc64le"}}
    assert said(answer(changed)) == [
        "to mind: hosts differ: processors is 8 on node3, 16 on the other 3",
        "to mind: hosts differ: GPUs is 4 Tesla V100 on node3, none on the other 3",
        "to mind: hosts differ: machine is ppc64le on node2, None on the other 3",
    ]


def test_a_host_that_does_not_answer_is_named():
    text = said(answer(silent=[2], met=None, status=None))
    assert text == "NoAnswerError: no answer from node2 within 60 s; --no-check starts anyway"


def test_hosts_that_are_silent_together_are_asked_one_by_one_to_find_the_one_that_is_lost():
    nobody = answer(silent=range(4), met=None, status=1)
    text = said(nobody, alone=("node0", "node1", "node3"))
    assert text.startswith("NoAnswerError: no answer from node2 (the launcher ended with status 1)")
    assert "no answer from node0, node1, node2, node3" in said(nobody, alone=("node0", "node1", "node2", "node3"))
    assert "no answer from node0, node1, node2, node3" in said(nobody, singly=False)


def test_ranks_that_are_each_alone_are_a_launcher_of_another_mpi():
    text = said(answer(met=1))
    assert text.startswith("UsageError: the launcher started 4 ranks, but MPI says 1")
    assert "--launcher" in text


@pytest.mark.parametrize(("status", "how"), [(None, "within 60 s"), (14, "(status 14)"), (0, "(status 0)")])
def test_hosts_that_answer_and_do_not_reach_each_other_are_another_matter(status, how):
    given = answer(met=None, status=status, words="mpirun: no route")
    assert f"all 4 hosts answer, but an allreduce between them did not end {how}" in said(given)


def test_lines_of_other_programs_are_kept_and_broken_ones_are_not_taken_for_answers():
    word = token()
    lines = [
        "a warning",
        f"{word} {json.dumps({'rank': 1, 'host': 'b'})}",
        f"[1,0]<stdout>: {word} {json.dumps({'rank': 0, 'host': 'a'})}",
        f"{word} {{cut off",
        f"{word} [1]",
        f"{word} {json.dumps({'rank': 1, 'size': 2})}",
        "another",
    ]
    found = heard("\n".join(lines), word, 0)
    assert {rank: facts["host"] for rank, facts in found.facts.items()} == {0: "a", 1: "b"}
    assert found.sizes == {1: 2}
    assert found.words.splitlines()[0] == "a warning"
    assert found.words.splitlines()[-1] == "another"


def test_asking_ends_in_time_with_what_was_heard_until_then():
    program = 'import os, time; os.write(1, b\'T {"rank": 0, "host": "a"}\\n\'); time.sleep(60)'
    found = asked([sys.executable, "-c", program], "T", {}, 2, threading.Event())
    assert (found.status, set(found.facts)) == (None, {0})


def test_asking_that_is_stopped_ends_at_once_and_leaves_nothing(tmp_path):
    place, stop = tmp_path / "pid", threading.Event()
    program = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"

    def stop_it() -> None:
        while not (place.exists() and place.read_text()):
            time.sleep(0.01)
        stop.set()

    threading.Thread(target=stop_it).start()
    assert asked([sys.executable, "-c", program, str(place)], "T", {}, 60, stop).status is None
    assert eventually(lambda: ended(place.read_text()))


def test_an_interrupt_does_not_wait_for_hosts_that_are_asked_one_by_one():
    stop = threading.Event()

    def ask(layout):
        if len(layout.hosts) > 1:
            return Answer(status=1)
        if layout.hosts[0].name == "node0":
            raise KeyboardInterrupt
        stop.wait(60)
        return Answer()

    with pytest.raises(KeyboardInterrupt):
        check(HOSTS, ask, 60, singly=True)
    stop.set()


def test_one_host_is_asked_for_real_and_says_what_it_is(capfd):
    token_ = token()
    probe.say(token_, 3, {"host": "x"})
    assert heard(capfd.readouterr().out, token_, 0).facts == {3: {"rank": 3, "host": "x"}}
    facts = probe.facts()
    assert {"host", "ddlbench", "Python", "MPI", "machine", "processor", "processors", "memory (GiB)", "GPUs"} <= set(
        facts
    )
    assert all(isinstance(value, str | int | float | None) for value in facts.values())


def test_a_changed_file_of_the_package_is_another_package(tmp_path, monkeypatch):
    for name, text in (("launch/probe.py", "a"), ("x.py", "b"), ("y.so", "c"), ("z.txt", "d")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(probe, "__file__", str(tmp_path / "launch" / "probe.py"))
    digests = [probe.package_digest()]
    for name in ("x.py", "y.so"):
        (tmp_path / name).write_text("other")
        digests.append(probe.package_digest())
    assert len(set(digests)) == 3
    (tmp_path / "z.txt").write_text("other")
    assert probe.package_digest() == digests[-1]


def test_gpus_are_counted_by_model(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "NVIDIA", tmp_path)
    assert probe.gpus() == "none"
    for number, model in enumerate(["V100", "V100", "K80"]):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "information").write_text(f"Model: \t\t {model}\nIRQ:   1\n")
    assert probe.gpus() == "2 V100, 1 K80"


def test_memory_that_differs_by_megabytes_is_the_same():
    assert probe.round_to_digits(251.7) == probe.round_to_digits(251.1)
    assert probe.round_to_digits(251.7) != probe.round_to_digits(125.5)
