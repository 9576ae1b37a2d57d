"""The pytest that starts ranks: one mpirun for all tests of a rank count, one report of each test from all ranks."""

import json
import os
import shlex
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from launch import PATIENCE, command, environment, start, stop
from mpi_rank import DIRECTORY, RANKS, SEPARATOR, timeout_of

STARTUP_S = 60 * PATIENCE
EXIT_S = 20 * PATIENCE
POLL_S = 0.02
# Ranks that hang write where they stand at the moment their time is up.
SIGHT_S = 1
LINES = 100


def ranks_of(item: pytest.Item) -> int:
    """Return the rank count `item` is to run on, 0 for a test outside MPI."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("mpi_ranks", 0) if callspec else 0


@dataclass
class Heard:
    """What one rank wrote about one test."""

    started: bool = False
    finished: bool = False
    reports: list[tuple[float, pytest.TestReport]] = field(default_factory=list)

    def failure(self) -> tuple[float, pytest.TestReport] | None:
        """Return the first failing phase and when it ended."""
        return next((entry for entry in self.reports if entry[1].failed), None)

    def state(self) -> str:
        """Return this rank's part in one word or two."""
        if not self.finished and not self.failure():
            return "did not finish" if self.started else "did not start"
        return next((report.outcome for _, report in self.reports if report.outcome != "passed"), "passed")


class Batch:
    """One mpirun over the tests `nodeids`, all of one rank count."""

    def __init__(self, config: pytest.Config, ranks: int, items: Sequence[pytest.Item]) -> None:
        self.config = config
        self.ranks = ranks
        self.last = items[-1].nodeid
        self.heard: dict[str, list[Heard]] = defaultdict(lambda: [Heard() for _ in range(ranks)])
        self.folder = tempfile.TemporaryDirectory(prefix="ddlbench-mpi-")
        self.directory = Path(self.folder.name)
        (self.directory / "tests").write_text("".join(f"{item.nodeid}\n" for item in items))
        self.read = [0] * ranks
        self.command = command(ranks, self.pytest_command(items))
        own = {DIRECTORY: str(self.directory), RANKS: str(ranks), "PYTEST_ADDOPTS": ""}
        with (self.directory / "mpirun.output").open("wb") as output:
            self.process = start(self.command, output, env=environment(own), cwd=config.invocation_params.dir)

    def pytest_command(self, items: Sequence[pytest.Item]) -> list[str]:
        """Return the command of one rank: a pytest with the same files and settings, which leaves capturing to us."""
        files = dict.fromkeys(str(item.path) for item in items)
        settings = ["--rootdir", str(self.config.rootpath), "-c", str(self.config.inipath)]
        options = ["--import-mode=importlib", "-s", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "timeout=0"]
        shown = [f"--tb={self.config.option.tbstyle}", *(["-l"] if self.config.option.showlocals else [])]
        return [sys.executable, "-m", "mpi4py", "-m", "pytest", *settings, *options, *shown, *files]

    def listen(self) -> None:
        """Take in what the ranks have written since the last call."""
        for rank in range(self.ranks):
            path = self.directory / f"rank-{rank}.events"
            if path.exists():
                with path.open("rb") as file:
                    file.seek(self.read[rank])
                    lines = file.read()
                complete = lines[: lines.rfind(b"\n") + 1]
                self.read[rank] += len(complete)
                for line in complete.splitlines():
                    self.take(rank, json.loads(line))

    def take(self, rank: int, event: dict) -> None:
        """Take in one event of one rank."""
        heard = self.heard[event["nodeid"]][rank]
        if event["event"] == "started":
            heard.started = True
        elif event["event"] == "finished":
            heard.finished = True
        else:
            report = self.config.hook.pytest_report_from_serializable(config=self.config, data=event["data"])
            if isinstance(report.longrepr, list):  # the place and reason of a skip, a tuple before it was JSON
                report.longrepr = tuple(report.longrepr)
            heard.reports.append((event["time"], report))

    def wait(self, item: pytest.Item) -> str:
        """Wait for `item` to end on all ranks; return "" when it did, else why it never will."""
        heard = self.heard[item.nodeid]
        allowed, called, begun = timeout_of(item), time.monotonic(), None
        while time.monotonic() < (called + STARTUP_S if begun is None else begun + allowed):
            ended = self.process.poll() is not None
            self.listen()
            if all(rank.finished for rank in heard):
                return self.leave() if item.nodeid == self.last else ""
            if ended:
                return f"mpirun ended with status {self.process.returncode}"
            if begun is None and any(rank.started for rank in heard):
                begun = time.monotonic()
            time.sleep(POLL_S)
        time.sleep(SIGHT_S)
        return f"not started after {STARTUP_S:g} s" if begun is None else f"not finished after {allowed:g} s"

    def leave(self) -> str:
        """Wait for mpirun to end after the last test; return "" when it did so in peace."""
        deadline = time.monotonic() + EXIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if self.process.returncode is None:
            return f"all tests done, but mpirun had not ended {EXIT_S:g} s later"
        return (
            f"all tests done, then mpirun ended with status {self.process.returncode}"
            if self.process.returncode
            else ""
        )

    def close(self) -> None:
        """End mpirun and its ranks if they still run, and remove their files."""
        stop(self.process)
        self.folder.cleanup()

    def sections(self, nodeid: str, told: pytest.TestReport | None) -> Iterator[tuple[str, str]]:
        """Yield what a reader needs beside the failure `told`: the command, and what every rank and mpirun said."""
        yield "command", shlex.join(self.command)
        for rank, heard in enumerate(self.heard[nodeid]):
            failure = heard.failure()
            own = failure[1].longreprtext if failure and failure[1] is not told else ""
            yield f"rank {rank} of {self.ranks}: {heard.state()}", last_lines(f"{self.output(rank, nodeid)}\n{own}")
        said = (self.directory / "mpirun.output").read_text(errors="replace")
        if said.strip():
            yield "mpirun", last_lines(said)

    def output(self, rank: int, nodeid: str) -> str:
        """Return what `rank` printed during one test, or all it printed if it never came to a test."""
        path = self.directory / f"rank-{rank}.output"
        text = path.read_text(errors="replace") if path.exists() else ""
        parts = text.split(SEPARATOR)
        return next((part.removeprefix(f"{nodeid}\n") for part in parts if part.startswith(f"{nodeid}\n")), parts[0])


def last_lines(text: str) -> str:
    """Return the end of `text`, which is where an error stands."""
    lines = text.replace("\0", "").strip("\n").splitlines()
    cut = [f"({len(lines) - LINES} lines before)"] if len(lines) > LINES else []
    return "\n".join([*cut, *lines[-LINES:]]) or "(no output)"


class Batches:
    """Pytest plugin that runs the marked tests of a session in batches; `missing` says why it cannot."""

    def __init__(self, config: pytest.Config, missing: str) -> None:
        self.config = config
        self.missing = missing
        self.batch: Batch | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep pytest-timeout, which knows one process, away from tests of several."""
        for item in items:
            if ranks_of(item):
                if item.get_closest_marker("timeout"):
                    raise pytest.UsageError(
                        f"{item.nodeid}: the time limit of an MPI test is mpi(..., timeout=seconds)"
                    )
                item.add_marker(pytest.mark.timeout(0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Report a marked test from its ranks instead of running it here."""
        if not ranks_of(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in [skipped(item, self.missing)] if self.missing else self.run(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        item.session._setupstate.teardown_exact(nextitem)  # fixtures of unmarked tests in the same module
        return True

    def run(self, item: pytest.Item) -> list[pytest.TestReport]:
        """Return the reports of one test; a batch that cannot go on after it is closed."""
        batch = self.batch_for(item)
        why = batch.wait(item)
        heard = batch.heard[item.nodeid]
        reports = agreed(heard) if not why else None
        if reports is None:
            reports = [failed(item, batch, why)]
            self.close()
        elif item.nodeid == batch.last:
            self.close()
        return reports

    def batch_for(self, item: pytest.Item) -> Batch:
        """Return the running batch of `item`, or start one for it and all tests after it with as many ranks."""
        if self.batch is None:
            items = item.session.items
            rest = [other for other in items[items.index(item) :] if ranks_of(other) == ranks_of(item)]
            self.batch = Batch(self.config, ranks_of(item), rest)
        return self.batch

    def close(self) -> None:
        """End the running batch."""
        if self.batch is not None:
            self.batch.close()
            self.batch = None

    def pytest_sessionfinish(self) -> None:
        """End what an interrupt or -x left running."""
        self.close()


def agreed(heard: Sequence[Heard]) -> list[pytest.TestReport] | None:
    """Return rank 0's reports when no rank failed and all came to the same end, else None."""
    if any(rank.failure() for rank in heard) or len({rank.state() for rank in heard}) > 1:
        return None
    return [report for _, report in heard[0].reports]


def failed(item: pytest.Item, batch: Batch, why: str) -> pytest.TestReport:
    """Return the report of a test that went wrong: the failure that came first, or `why` when no rank wrote one."""
    heard = batch.heard[item.nodeid]
    _, first = min(filter(None, (rank.failure() for rank in heard)), key=lambda entry: entry[0], default=(0, None))
    states = "\n".join(f"rank {rank}: {entry.state()}" for rank, entry in enumerate(heard))
    longrepr = first.longrepr if first else f"{why or 'the ranks do not agree'}\n{states}"
    return report_of(item, "failed", longrepr, "call", list(batch.sections(item.nodeid, first)))


def skipped(item: pytest.Item, reason: str) -> pytest.TestReport:
    """Return the report of a test that cannot run here."""
    path, line, _ = item.location
    return report_of(item, "skipped", (os.fspath(path), (line or 0) + 1, f"Skipped: {reason}"), "setup", [])


def report_of(item, outcome, longrepr, when, sections) -> pytest.TestReport:
    """Return a report of `item`."""
    keywords = dict.fromkeys(item.keywords, 1)
    return pytest.TestReport(item.nodeid, item.location, keywords, outcome, longrepr, when, sections=sections)
