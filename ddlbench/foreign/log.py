"""Reading a log: which program wrote which lines, and which lines nobody could have written."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ddlbench.errors import UsageError
from ddlbench.foreign.formats import FORMATS, RECOGNISED
from ddlbench.foreign.section import Section, UnreadError, shown

LONGEST_LINE = 1 << 16
NAMED = 100
"""Unread lines of a log that are named before the rest are only counted."""
LAUNCHER = re.compile(r"\[[0-9]+,[0-9]+\]<std(?:out|err)>:|[0-9]+: ")
"""What `mpirun --tag-output` and `srun --label` put before each line."""


@dataclass(frozen=True)
class Unread:
    """A line that could not be read: its text and why, as far as there is something to say."""

    number: int
    text: str = ""
    why: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (f"{self.number}: not read", self.text and shown(self.text), self.why)))


@dataclass
class Log:
    """A log as it was read: its sections, and what was passed over.

    `unread` are lines inside sections, the first `NAMED` of them; `more_unread` counts the others. `outside` counts
    the lines before the first section, but for comments.
    """

    name: str
    sections: list[Section] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    more_unread: int = 0
    outside: int = 0

    @property
    def notices(self) -> list[str]:
        """What of the log is not used, each with the name of the log."""
        found = [f"{self.name}:{unread}" for unread in self.unread]
        if self.more_unread:
            found.append(f"{self.name}: not read, besides: {lines_counted(self.more_unread)}")
        left_out = dict.fromkeys(what for section in self.sections for what in section.left_out)
        found += [f"{self.name}: left out: {what}" for what in left_out]
        if self.sections and self.outside:
            found.append(f"{self.name}: passed over before the first title: {lines_counted(self.outside)}")
        if not self.sections:
            found.append(f"{self.name}: {UNKNOWN}")
        elif not any(section.rows for section in self.sections):
            found.append(f"{self.name}: there is no result in it that can be read")
        return found


UNKNOWN = "not a log of a known program; looked for a line that begins with " + ", ".join(
    f"{known.looked_for!r} ({known.name})" for known in FORMATS
)


def lines_counted(number: int) -> str:
    """Return a number of lines in words."""
    return f"{number} line{'' if number == 1 else 's'}"


def read_log(path: Path) -> Log:
    """Read the log `path`; what it holds besides results is told by `Log.notices`.

    Raises `UsageError` when the file cannot be opened or read.
    """
    try:
        with path.open("rb") as file:
            return read_lines(str(path), iter(lambda: file.readline(LONGEST_LINE), b""))
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error


def read_lines(name: str, lines: Iterable[bytes]) -> Log:
    """Read the lines of the log that is called `name` in messages."""
    log = Log(name)
    for number, line in enumerate(map(_plain, lines), 1):
        if line:
            _take(log, number, line)
    for section in log.sections[-1:]:
        section.close()
    return log


def _plain(line: bytes) -> str:
    """Return the text of a line, without what a launcher put before it and the blanks around it."""
    text = line.decode(errors="replace").strip()
    found = LAUNCHER.match(text)
    return text[found.end() :].lstrip() if found else text


def _take(log: Log, number: int, line: str) -> None:
    current = log.sections[-1] if log.sections else None
    try:
        opened = _opened(line, current)
        if opened is not None:
            if current is not None:
                current.close()
            log.sections.append(opened)
        elif current is not None:
            current.read(number, line)
        elif not line.startswith("#"):
            log.outside += 1
    except UnreadError as why:
        _note(log, Unread(number, line, str(why)))


def _opened(line: str, current: Section | None) -> Section | None:
    """Return the section that a line begins; None when it is no title, or one within the section being read."""
    if not line.startswith("#"):
        return None
    opened = next(_opening(line), None)
    return None if opened is None or (current is not None and current.continues(line)) else opened


def _opening(line: str) -> Iterator[Section]:
    return (section for known in RECOGNISED if (section := known.opened(line)) is not None)


def _note(log: Log, unread: Unread) -> None:
    if len(log.unread) < NAMED:
        log.unread.append(unread)
    else:
        log.more_unread += 1
