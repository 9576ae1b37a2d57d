"""What all formats share: a section is what one program wrote into a log, and it is read line by line into rows."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ddlbench.records import Stated
from ddlbench.records.point import Status

NUMBER = re.compile(r"[0-9]{1,300}(?:\.[0-9]{0,300})?(?:[eE][+-]?[0-9]{1,3})?")
WHOLE = re.compile(r"[0-9]{1,18}")


class UnreadError(ValueError):
    """A line is none that its program writes; the text says why, "" where the line says it all."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One allreduce as a log states it; None for what the log does not say.

    `line` is its line in the log. `dtype` is one of `elements.ITEMSIZES`, `count` the elements where the log has them.
    `wrong`, `status` and `reason` are those of a point. `hosts` names the host of each rank, empty where unknown.
    """

    line: int
    nbytes: int
    op: str
    count: int | None = None
    dtype: str | None = None
    in_place: bool | None = None
    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    device: str | None = None
    stated: Stated | None = None
    wrong: int | None = None
    status: Status = "ok"
    reason: str = ""


class Section:
    """What one program wrote into a log, from its title on. Each format derives its own from it.

    `program` names the program, `version` its version ("" where the log has none). `rows` are filled as lines are
    read. `left_out` says what was recognised and is not used, and why. `usual_dtype` is what the program reduces
    unless told otherwise, for a log that does not say.
    """

    program = ""
    usual_dtype: str | None = None

    def __init__(self, version: str = "") -> None:
        self.version = version
        self.rows: list[Row] = []
        self.left_out: list[str] = []
        self._unknown: dict[str, UnreadError] = {}

    @property
    def label(self) -> str:
        """The program with its version."""
        return f"{self.program} {self.version}".rstrip()

    def continues(self, title: str) -> bool:  # noqa: ARG002 - formats use it
        """Return whether a line that looks like the title of a section is a part of this one."""
        return False

    def read(self, number: int, line: str) -> None:
        """Take in the line of that number; raises `UnreadError` when it is none of the format's."""
        raise NotImplementedError

    def close(self) -> None:
        """Take note that the section is over."""

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Read a line that tells `what` of the rows after it; where that fails, `check_told` refuses them."""
        self._unknown.pop(what, None)
        try:
            yield
        except UnreadError as error:
            self._unknown[what] = error
            raise

    def check_told(self) -> None:
        """Raise `UnreadError` when a line could not be read that tells what the rows are."""
        for error in self._unknown.values():
            raise UnreadError(f"in the head above, {error}")


class OtherSection(Section):
    """A section of a known program that holds no allreduce: it is passed over, and said to be."""

    def __init__(self, what: str, within: Callable[[str], bool] = lambda _: False) -> None:
        super().__init__()
        self.left_out.append(f"{what}: only allreduce is read")
        self._within = within

    def continues(self, title: str) -> bool:
        """Return whether a line that looks like a title is a part of this section."""
        return self._within(title)

    def read(self, number: int, line: str) -> None:
        """Pass over the line."""


@dataclass(frozen=True)
class Format:
    """A format of logs: `opened` returns the section that a title line begins, None for any other line.

    `looked_for` shows such a title, for people whose log has none.
    """

    name: str
    looked_for: str
    opened: Callable[[str], Section | None]


def whole(text: str) -> int:
    """Return a whole number from 0 to 10¹⁸ - 1; raises `UnreadError`."""
    if not WHOLE.fullmatch(text):
        raise UnreadError(f"{shown(text, 24)} is no whole number")
    return int(text)


def decimal(text: str) -> float:
    """Return a finite number from 0 on; raises `UnreadError`."""
    value = float(text) if NUMBER.fullmatch(text) else math.inf
    if not value < math.inf:
        raise UnreadError(f"{shown(text, 24)} is no number")
    return value


def plain(text: str, most: int) -> str:
    """Return `text` cut to `most` characters, without anything that a terminal would take for a command."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(character if character.isprintable() else "?" for character in cut)


def shown(text: str, most: int = 80) -> str:
    """Return `text`, plain and cut, in quotes."""
    return f"'{plain(text, most)}'"
