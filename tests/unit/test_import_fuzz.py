"""Logs damaged at random: whatever stands in them, lines are read, named or passed over, and nothing else happens.

`DDLBENCH_FUZZ_LINES` sets how many lines; a million take about a minute.
"""

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

import synthetic
from ddlbench.errors import UsageError
from ddlbench.foreign import Given, points_of, read_lines
from ddlbench.records import Loaded, Point
from ddlbench.report import results_table
from ddlbench.report.printed import FORMS, printed

LOGS = Path(__file__).resolve().parents[1] / "logs"
LINES = int(os.environ.get("DDLBENCH_FUZZ_LINES", "200000"))
NUMBERS = [
    *(
        "0",
        "1",
        "-1",
        "8",
        "00",
        "1e5",
        "1e999",
        "-0",
        "nan",
        "inf",
        "N/A",
        "0x10",
        "٣",
        "９",
        "1_000",
        "1.",
        ".5",
        "1,5",
    ),
    *(str(2**63), str(2**63 - 1), "9" * 18, "9" * 19, "9" * 400, "1." + "9" * 400),
]
OTHERS = [
    *("", "#", "# ", "\x1b[2J", "\0", "\ufeff", "\u2028", "é", "=", ",", "[1,0]<stdout>:", "0: ", "NCCL INFO"),
    *("Pass", "Fail", "sum", "avg", "none", "float", "half", "MPI_INT"),
]
WORDS = [word.encode() for word in NUMBERS + OTHERS]


class Fuzzer:
    """Damaged logs, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        logs = sorted(path for path in LOGS.iterdir() if path.suffix != ".md")
        self.logs = [path.read_bytes().splitlines(keepends=True) for path in logs]
        self.lines = [line for log in self.logs for line in log]

    def log(self) -> list[bytes]:
        """A log with lines damaged, missing, doubled or from another log; most titles are left alone."""
        some = self.random
        harm = some.choice((0.02, 0.1, 0.5))
        made = []
        for line in some.choice(self.logs):
            hurt = some.random() < (harm / 5 if line.lstrip().startswith(b"#") else harm)
            made += self.hurt(line) if hurt else [line]
        return made

    def hurt(self, line: bytes) -> list[bytes]:
        ways = (self.word, self.word, self.word, self.noise, self.cut, self.splice)
        match self.random.randrange(10):
            case 0:
                return []
            case 1:
                return [line, line]
            case 2:
                return [self.random.choice(self.lines)]
        return [self.random.choice(ways)(line)]

    def word(self, line: bytes) -> bytes:
        """Put an odd word in the place of one, or between two."""
        comma = line.count(b",") > 5
        words = line.split(b",") if comma else line.split()
        at = self.random.randrange(len(words) + 1)
        words[at : at + self.random.randint(0, 1)] = [self.random.choice(WORDS)]
        return (b"," if comma else b" ").join(words) + b"\n"

    def noise(self, line: bytes) -> bytes:
        data = bytearray(line)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randrange(len(data) + 1)
            data[at : at + self.random.randint(0, 2)] = self.random.randbytes(self.random.randint(0, 2))
        return bytes(data)

    def cut(self, line: bytes) -> bytes:
        return line[: self.random.randrange(len(line) + 1)]

    def splice(self, line: bytes) -> bytes:
        other = self.random.choice(self.lines)
        return self.cut(line) + other[self.random.randrange(len(other) + 1) :]

    def given(self) -> Given:
        some = self.random
        return Given(
            ranks=some.choice((None, 1, 8, 10**9)),
            nodes=some.choice((None, None, 1, 3)),
            dtype=some.choice((None, None, "int64")),
        )


@pytest.mark.timeout(3600)
def test_damaged_lines_are_read_named_or_passed_over_and_what_is_read_can_be_stored_and_shown():
    fuzzer, seen, lines, logs = Fuzzer(7), Counter(), 0, 0
    while lines < LINES:
        log = fuzzer.log()
        lines, logs = lines + len(log), logs + 1
        try:
            found = points_of(read_lines("a.log", log), fuzzer.given())
        except UsageError as error:
            seen["refused"] += "--ranks" in str(error) or "--nodes" in str(error)
            continue
        seen.update({"points": len(found.points), "unread": len(found.log.unread)})
        assert all(notice.isprintable() for notice in found.notices)
        assert all(len(notice) < 600 for notice in found.notices)
        assert [Point.from_json(json.loads(json.dumps(point.to_json()))) for point in found.points] == found.points
        if logs % 20 == 0:
            results_table(Loaded(synthetic.run(), tuple(found.points), []))
            for form in FORMS:
                printed(form, synthetic.run(), found.points)
    assert seen["points"] > lines / 20  # the damage is such that much can still be read
    assert seen["unread"] > lines / 200
    assert seen["refused"] > logs / 50
