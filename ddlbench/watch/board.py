"""What this rank is doing, for a thread that looks while the program, or MPI inside it, may be stuck.

The program says what it begins (`Board.begin`), a plan that runs tells its position by plain stores, and whatever is
neither is read off the stack of Python. So being watched costs the program an assignment now and then.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Protocol

from ddlbench import _deadline

LEAST_SECONDS = 60.0
"""The time limit where nobody gave one and no model asks for more."""
WORK_FACTOR = 10.0
"""A rank at work in Python alone, while the others wait for it, may take so many times the limit."""
TRIES = 3
"""So many times in a row the interpreter must be taken: once may be chance."""
PACKAGE = Path(__file__).resolve().parents[1]

Waiting = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""The round and the segment a run is in, the ranks it waits to receive from, and those it waits to send to."""


class Watched(Protocol):
    """A plan, as far as it is watched."""

    transport: str
    segments: int

    def position(self) -> tuple[Any, ...]:
        """Return what it does ("idle", "barrier", "start" or "run") and values that change when it moves."""

    def waiting(self) -> Waiting | None:
        """Return what its run waits for, None where that is not known."""


@dataclass(frozen=True)
class Step:
    """What a rank has begun: in words, and what is watched in it.

    plan
        runs in this step, one of its runs after the other
    limit_s
        how long nothing may move, seconds; None: the usual time
    point
        the point that is measured, for the record
    asleep
        the rank has no part in what goes on and waits for its turn: that it does not move says nothing
    """

    what: str
    plan: Watched | None = None
    limit_s: float | None = None
    point: Mapping[str, Any] | None = None
    asleep: bool = False


@dataclass(frozen=True)
class Beat:
    """Where a rank stands, as it is told to others; `idle_s` is for how long nothing has moved there."""

    what: str
    where: str
    idle_s: float
    limit_s: float
    asleep: bool = False
    point: Mapping[str, Any] | None = None


class Board:
    """What the thread that makes it is doing; `limit_s` is the time limit of steps that have none of their own.

    `begin` and `asleep` are for that thread, `look` is for another one.
    """

    def __init__(self, limit_s: float = LEAST_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._thread = threading.get_ident()
        self._numbers: Sequence[int] | None = None
        self._now: tuple[int, Step] = (0, Step("the start"))
        self._moves: object = None
        self._stack: object = None
        self._moved_at = self._worked_at = clock()

    @property
    def step(self) -> Step:
        """What has been begun last."""
        return self._now[1]

    def begin(self, step: Step | str) -> None:
        """Say what begins now; the plan of the step before is let go."""
        self._now = (self._now[0] + 1, Step(step) if isinstance(step, str) else step)

    @contextmanager
    def asleep(self, what: str) -> Iterator[None]:
        """Say that this rank waits for its turn, inside."""
        before = self.step
        self.begin(Step(what, asleep=True))
        try:
            yield
        finally:
            self.begin(before)

    @contextmanager
    def numbering(self, numbers: Sequence[int]) -> Iterator[None]:
        """Say what the ranks are called that plans number from 0, inside."""
        self._numbers = numbers
        try:
            yield
        finally:
            self._numbers = None

    def number(self, rank: int) -> int:
        """Return what `rank` of a plan is called."""
        return self._numbers[rank] if self._numbers else rank

    def look(self) -> Beat:
        """Return where the rank stands now, and for how long it has."""
        number, step = self._now
        now, frame = self._clock(), _frame_of(self._thread)
        stack = _stack(frame)
        moves = (number, step.plan and step.plan.position())
        if moves != self._moves:
            self._moves, self._moved_at = moves, now
        elif stack != self._stack or _python_runs():
            self._worked_at = now
        self._stack = stack
        limit = self.limit_s if step.limit_s is None else step.limit_s
        return Beat(
            step.what, where(step, frame, self._numbers), self._idle(now, limit), limit, step.asleep, step.point
        )

    def _idle(self, now: float, limit_s: float) -> float:
        """Return for how long nothing has moved; work in Python counts as moving, within its own limit."""
        idle = now - self._moved_at
        return min(idle, now - self._worked_at) if idle < WORK_FACTOR * limit_s else idle


def _frame_of(thread: int) -> FrameType | None:
    """Return the innermost frame of `thread`."""
    return sys._current_frames().get(thread)  # noqa: SLF001 - the way there is, and documented


def _python_runs() -> bool:
    """Say whether another thread runs Python and nothing else, which is no waiting for other ranks.

    Such a thread takes the interpreter the moment it may, and gives it back when it must. Where it is on its stack does
    not tell it: it gives the interpreter back at few places of a loop.
    """
    return all(_deadline.interpreter_wait() > sys.getswitchinterval() / 2 for _ in range(TRIES))


def _stack(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    """Return where each function on the stack of `frame` is."""
    found = []
    while frame is not None:
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def where(step: Step, frame: FrameType | None, numbers: Sequence[int] | None = None) -> str:
    """Return in words where a rank is in `step`: in a round of its plan, or at a line of ddlbench.

    `numbers` are what the ranks are called that the plan numbers from 0; None: the same.
    """
    doing = step.plan.position()[0] if step.plan else "idle"
    if step.plan and doing == "run":
        return _in_run(step.plan, numbers)
    return {"barrier": "in the barrier before a sample", "start": "waits for the start of a sample"}.get(
        doing, _in_python(frame)
    )


def _in_run(plan: Watched, numbers: Sequence[int] | None) -> str:
    waiting = plan.waiting()
    if waiting is None:
        return "inside MPI_Allreduce" if plan.transport == "vendor" else "between rounds"
    round_, segment, sources, targets = waiting
    part = f", segment {segment}" if plan.segments > 1 else ""
    whom = f"waits for {_ranks(sources, numbers)}" if sources else f"waits to send to {_ranks(targets, numbers)}"
    return f"round {round_}{part}: {whom}"


def _ranks(ranks: Sequence[int], numbers: Sequence[int] | None) -> str:
    named = [numbers[rank] if numbers else rank for rank in ranks]
    return f"{'rank' if len(named) == 1 else 'ranks'} {', '.join(map(str, named))}"


def _in_python(frame: FrameType | None) -> str:
    """Return the innermost function of ddlbench on the stack of `frame`."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            return f"in {frame.f_code.co_qualname} ({path.relative_to(PACKAGE)}:{frame.f_lineno})"
        frame = frame.f_back
    return "outside ddlbench"
