"""Asking the hosts before a job: whether they answer, have the same programs and hardware, and reach each other."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.launch.hosts import Host, shown
from ddlbench.launch.layout import Layout
from ddlbench.launch.running import end

HARDWARE = ("machine", "processor", "processors", "memory (GiB)", "GPUs")
"""What hosts may differ in without being refused; the rest must be the same for one job to be possible."""
AT_ONCE = 8
LINES = 20
GRACE_SECONDS = 2.0
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Answer:
    """What came of asking some hosts: what each rank said, by rank, and what else the launcher wrote."""

    facts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    words: str = ""
    status: int | None = None


Ask = Callable[[Layout], Answer]
"""Asks the hosts of a layout, one rank on each."""


class NoAnswerError(DdlbenchError):
    """Hosts do not answer, or do not reach each other: nothing was started. `words` is what the launcher said."""

    exit_status = 2

    def __init__(self, text: str, words: str) -> None:
        super().__init__(text)
        self.words = words


def words(token: str) -> tuple[str, ...]:
    """Return the words of the program that hosts are asked with."""
    return (sys.executable, "-m", "ddlbench.launch.probe", token)


def asked(
    command: Sequence[str], token: str, environ: Mapping[str, str], seconds: float, stop: threading.Event
) -> Answer:
    """Run the `command` that asks, for up to `seconds` or until `stop`, and return what was heard until then."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environ),
        start_new_session=True,
    ) as process:
        try:
            output = _output(process, time.monotonic() + seconds, stop)
            status = None if output is None else process.returncode
        finally:
            end(process, signal.SIGTERM, GRACE_SECONDS)
        if output is None:
            output = process.communicate()[0]
    return heard(output.decode(errors="replace"), token, status)


def _output(process: "subprocess.Popen[bytes]", deadline: float, stop: threading.Event) -> bytes | None:
    """Return what `process` writes until its end, None when it has not ended by the `deadline` or before `stop`."""
    while time.monotonic() < deadline and not stop.is_set():
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=POLL_SECONDS)[0]
    return None


def heard(output: str, token: str, status: int | None) -> Answer:
    """Return what the ranks said in `output`; `status` is the launcher's, None when it was ended."""
    facts: dict[int, Mapping[str, Any]] = {}
    sizes: dict[int, int] = {}
    others = []
    for line in output.splitlines():
        told = _told(line, token)
        if told is None:
            others.append(line)
        elif "size" in told:
            sizes[told["rank"]] = told["size"]
        else:
            facts[told["rank"]] = told
    return Answer(facts, sizes, "\n".join(others[-LINES:]).strip(), status)


def _told(line: str, token: str) -> dict[str, Any] | None:
    _, found, text = line.partition(token)
    if not found:
        return None
    try:
        told = json.loads(text)
    except ValueError:
        return None
    return told if isinstance(told, dict) and isinstance(told.get("rank"), int) else None


def check(layout: Layout, ask: Ask, seconds: float, *, singly: bool) -> list[str]:
    """Ask all hosts of `layout` at once and return lines about differences in hardware.

    Raises `NoAnswerError` naming the hosts that do not answer; to find them out, hosts are asked one by one where that
    is possible (`singly`). Raises `UsageError` naming the hosts whose programs differ.
    """
    answer = ask(layout.one_per_node())
    names = [host.name for host in layout.hosts]
    if set(answer.facts) != set(range(len(names))):
        raise NoAnswerError(_silence(layout, answer, ask, seconds, singly=singly), answer.words)
    told = {name: answer.facts[rank] for rank, name in enumerate(names)}
    if differing := list(differences(told, lambda what: what not in (*HARDWARE, "host"))):
        raise UsageError(f"the hosts do not have the same programs: {'; '.join(differing)}; --no-check starts anyway")
    _check_met(answer, names, seconds)
    return [f"to mind: hosts differ: {line}" for line in differences(told, lambda what: what in HARDWARE)]


def _check_met(answer: Answer, names: list[str], seconds: float) -> None:
    """Raise when the ranks did not find each other: each alone, or some never."""
    alone = [size for size in answer.sizes.values() if size != len(names)]
    if alone:
        raise UsageError(
            f"the launcher started {len(names)} ranks, but MPI says {alone[0]}: this launcher does not start the MPI"
            " that mpi4py uses; name the one that does with --launcher"
        )
    if len(answer.sizes) < len(names) or answer.status != 0:
        lost = [name for rank, name in enumerate(names) if rank not in answer.sizes]
        how = f"within {seconds:g} s" if answer.status is None else f"(status {answer.status})"
        raise NoAnswerError(
            f"all {len(names)} hosts answer, but an allreduce between them did not end {how}, not on {shown(lost)}:"
            f" look at firewalls and at the network that MPI chose",
            answer.words,
        )


def _silence(layout: Layout, answer: Answer, ask: Ask, seconds: float, *, singly: bool) -> str:
    """Return what to say when not every host was heard."""
    deaf = [host for rank, host in enumerate(layout.hosts) if rank not in answer.facts]
    lost = [host.name for host in deaf]
    if singly and len(layout.hosts) > 1:
        lost = [host.name for host in _silent(deaf, ask)] or lost
    how = f"within {seconds:g} s" if answer.status is None else f"(the launcher ended with status {answer.status})"
    return f"no answer from {shown(lost)} {how}; --no-check starts anyway"


def _silent(hosts: Sequence[Host], ask: Ask) -> list[Host]:
    """Return those of the hosts that do not answer when each is asked alone."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        answers = pool.map(lambda host: ask(Layout((host,)).one_per_node()), hosts)
        return [host for host, answer in zip(hosts, answers, strict=True) if not answer.facts]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # whoever is interrupted stops those that still ask


def differences(told: Mapping[str, Mapping[str, Any]], chosen: Callable[[str], bool]) -> Iterator[str]:
    """Yield for each chosen fact in which hosts differ what most have, and who has what else.

    `told` has the facts of each host by its name.
    """
    for what in dict.fromkeys(key for facts in told.values() for key in facts):
        values = {name: facts.get(what) for name, facts in told.items()}
        if what != "rank" and chosen(what) and len(set(values.values())) > 1:
            most = Counter(values.values()).most_common(1)[0][0]
            others = (f"{value} on {shown(_with(values, value))}" for value in dict.fromkeys(values.values()))
            odd = [text for text, value in zip(others, dict.fromkeys(values.values()), strict=True) if value != most]
            yield f"{what} is {', '.join(odd)}, {most} on {_rest(values, most)}"


def _with(values: Mapping[str, Any], value: Any) -> list[str]:
    return [name for name, found in values.items() if found == value]


def _rest(values: Mapping[str, Any], most: Any) -> str:
    names = _with(values, most)
    return names[0] if len(names) == 1 else f"the other {len(names)}"


def token() -> str:
    """Return a word that no other program writes by chance."""
    return f"ddlbench-probe-{os.urandom(6).hex()}"
