"""The thread beside each rank that finds out when the job hangs or a rank is gone, and sees to it that it ends.

Two ranks lead: rank 0, and a deputy on another node where there is one. Every rank tells both where it stands, about
once a second. A leader that sees no rank make progress for the time limit asks all of them, waits a moment, and tells
what it knows: rank 0, or the deputy when rank 0 is the silent one. A rank that hears neither ends for itself.
"""

import math
import os
import secrets
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ddlbench.errors import MPIError
from ddlbench.watch import channel
from ddlbench.watch.board import WORK_FACTOR, Beat, Board, Step
from ddlbench.watch.channel import Address, Guest, Message, Wire
from ddlbench.watch.fault import Fault
from ddlbench.watch.roll import Member, Roll

if TYPE_CHECKING:
    from mpi4py import MPI

BEAT_SECONDS = 1.0
BEATS_PER_LIMIT = 8
RANKS_PER_BEAT = 128
"""A leader hears so many ranks a second at most; with more ranks each is heard less often."""
ANSWER_SECONDS = 2.0
"""How long ranks that are asked have to answer."""
ALONE_SECONDS = 6.0
"""How much longer than the limit a rank that hears no leader waits for one."""
DEPUTY_SECONDS = 0.15
"""How long the deputy leaves it to rank 0 to tell of a death."""
LAST_SECONDS = 1.0
"""After an error of MPI's a rank gives the watchdog so long to say that another one is gone, which causes them."""
LOST_BEATS = 3
"""A rank that was not heard for so many beats is missed when the run is ended from outside."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ending(Protocol):
    """What is done about a fault. All are called in the watchdog's thread; `leave` need not return."""

    def announce(self, fault: Fault) -> None:
        """Tell the user and the record, on one rank of the job."""

    def alone(self, beat: Beat, leaders: tuple[str, ...]) -> None:
        """Tell where this rank stands, which is not heard by `leaders`, its names for them (none known: none)."""

    def interrupted(self, why: str) -> None:
        """Take note that this process is to end, `why` if it was not sent a signal, and see to it that it does."""

    def alive(self, beat: Beat) -> None:
        """Take note that this thread runs."""

    def unwatched(self) -> None:
        """Take note that this thread has ended."""

    def leave(self, *, first: bool) -> None:
        """End this process for certain, and the job; `first` on the rank that announced."""


class Watchdog:
    """Watches this rank alone from the moment it is made, and all ranks together from `connect` on.

    A context manager; it says goodbye to the others when it is closed. `limit_s` is how long nothing may move, in
    seconds; infinite to wait for ever. `parent` is the process that started this one where that is a launcher: when
    it is gone, this rank is to end. None: whoever started it may go.
    """

    def __init__(
        self,
        limit_s: float,
        ending: Ending,
        clock: Callable[[], float] = time.monotonic,
        parent: int | None = None,
    ) -> None:
        self.board = Board(limit_s, clock)
        self.clock, self.ending = clock, ending
        self._parent, self._held = parent, _held(parent)
        self.leaving = False
        self._closing = False
        self._job: Job | None = None
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)  # noqa: FBT003
        self._selector.register(self._woken, selectors.EVENT_READ, self._on_wake)
        if self._held is not None:
            self._selector.register(self._held, selectors.EVENT_READ, self._on_orphaned)
        self._signals = _wakeup(self._wake.fileno())
        self._thread = threading.Thread(target=self._watch, name="ddlbench-watchdog", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None and (issubclass(kind, MPIError) or kind.__module__.startswith("mpi4py")):
            time.sleep(LAST_SECONDS)
        self.close()

    def connect(self, comm: "MPI.Comm", limit_s: float | None = None) -> None:
        """Watch the ranks of `comm` together from now on; collective.

        `limit_s` is how long the others may take to come to it, None: the usual time.
        """
        self.board.begin(Step("the first exchange between all ranks", limit_s=limit_s))
        members = comm.allgather(Member(socket.gethostname(), os.getpid(), _network_stack()))
        leaders = leaders_of(members)
        beyond = len({member.stack for member in members}) > 1
        server = channel.listen(beyond_this_host=beyond) if comm.rank in leaders and comm.size > 1 else None
        token: bytes = comm.bcast(secrets.token_bytes(16) if comm.rank == 0 else b"")
        places = {leader: comm.bcast(server and channel.addresses_of(server), root=leader) for leader in leaders}
        job = Job(self, comm.rank, members, token, places, server)
        self.call(lambda: self._begin(job))

    def number(self, numbers: Sequence[int]) -> None:
        """Say what people know the ranks of `connect` by, in their order."""
        self.call(lambda: self._job.number(numbers) if self._job else None)

    def close(self) -> None:
        """Say goodbye and stop watching."""
        if self._closing:
            return
        self._closing = True
        self._poke()
        self._thread.join()
        if self._signals is not None:
            signal.set_wakeup_fd(self._signals)
        self._selector.close()
        if self._held is not None:
            os.close(self._held)
        self._wake.close()
        self._woken.close()

    def call(self, action: Callable[[], None]) -> None:
        """Have the watchdog's thread run `action` soon."""
        self._calls.put(action)
        self._poke()

    def _poke(self) -> None:
        with suppress(OSError):
            self._wake.send(b"\0")

    # ---- In the thread ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        next_beat = self.clock()
        try:
            while not self._closing:
                for key, _ in self._selector.select(max(0.0, self._patience(next_beat) - self.clock())):
                    key.data()
                if self._job:
                    self._job.look_after(self.clock())
                if self.clock() >= next_beat and not self.leaving:
                    next_beat = self.clock() + self._period()
                    self._on_beat()
            if self._job:
                self._job.close()
        finally:
            self.ending.unwatched()

    def _patience(self, next_beat: float) -> float:
        """Return until when there is nothing to do unless something comes in."""
        return min(next_beat, self._job.next_look) if self._job else next_beat

    def _begin(self, job: "Job") -> None:
        self._job = job
        job.open()

    def _period(self) -> float:
        """Return the seconds until the next beat."""
        base = min(BEAT_SECONDS, self.board.limit_s / BEATS_PER_LIMIT)
        return base * (self._job.rarely if self._job else 1.0)

    def _on_beat(self) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            self._on_orphaned()
            return
        beat = self.board.look()
        self.ending.alive(beat)
        if self._job:
            self._job.beat(beat, self.clock())
        else:
            self.give_up(beat, (), 1.0)

    def give_up(self, beat: Beat, leaders: tuple[str, ...], patience: float) -> None:
        """Leave when this rank has not moved for too long, and there is nobody else to find that out."""
        if not beat.asleep and beat.idle_s > beat.limit_s * patience:
            self.leaving = True
            self.ending.alone(beat, leaders)
            self.ending.leave(first=False)

    def watch_for(self, wire: socket.socket, handler: Callable[[], None]) -> None:
        """Have `handler` called whenever something comes in on `wire`; in place of an earlier handler."""
        with suppress(KeyError):
            self._selector.unregister(wire)
        self._selector.register(wire, selectors.EVENT_READ, handler)

    def drop(self, wire: socket.socket) -> None:
        """Close `wire`, and listen to it no more."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(wire)
        wire.close()

    def _on_wake(self) -> None:
        with suppress(BlockingIOError):
            if set(self._woken.recv(64)) & set(SIGNALS):
                self._interrupted()
        with suppress(Empty):
            while True:
                self._calls.get_nowait()()

    def _on_orphaned(self) -> None:
        """End as if told to: Open MPI's launcher that lost a host may end without a word to the ranks beside it."""
        if self._held is not None:
            self._selector.unregister(self._held)  # it stays readable
            os.close(self._held)
            self._held = None
        self._parent = None
        self._interrupted("the launcher is gone")

    def _interrupted(self, why: str = "") -> None:
        """Tell the others at once that this rank leaves of its own will: it may be killed any moment."""
        if self.leaving:
            return
        if self._job:
            self._job.told_to_end()
        self.leaving = True
        self.ending.interrupted(why)


class Job:
    """The ranks `members` together, as rank `rank` sees it; all but the constructor is for the watchdog's thread.

    `places` has the leading ranks and where each listens; `server` is this rank's, where it leads others.
    """

    def __init__(
        self,
        watchdog: Watchdog,
        rank: int,
        members: Sequence[Member],
        token: bytes,
        places: Mapping[int, Sequence[Address] | None],
        server: socket.socket | None,
    ) -> None:
        self.rank, self.members = rank, members
        self._watchdog, self._token, self._places, self._server = watchdog, token, places, server
        self._last_word = watchdog.clock()
        self._roll = Roll(members, self._last_word) if rank in places else None
        self._guests: dict[int, Wire] = {}
        self._leaders: dict[int, Wire] = {}
        self._reached = False
        self._asked_at: float | None = None
        self._death: Fault | None = None
        self._death_at = 0.0
        self.rarely = 1.0 if self._roll else max(1.0, len(members) / RANKS_PER_BEAT)
        """How much rarer than usual this rank beats."""

    def number(self, numbers: Sequence[int]) -> None:
        """Take in what people know the ranks by."""
        if self._roll:
            self._roll.numbers = numbers

    # ---- Connections --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Listen, and connect to the leading ranks: in threads, as an address that swallows packets takes seconds."""
        if self._server:
            self._server.setblocking(False)  # noqa: FBT003
            self._watchdog.watch_for(self._server, self._accept)
        for leader in self._places:
            if leader != self.rank:
                threading.Thread(target=self._connect, args=(leader,), daemon=True).start()

    def _connect(self, leader: int) -> None:
        addresses = self._places[leader] or ()
        same = self.members[leader].stack == self.members[self.rank].stack
        near = [(channel.LOOPBACK, port) for _, port in addresses[:1]] if same else []
        try:
            wire = channel.connect([*near, *addresses], self._token, self.rank)
        except TimeoutError:
            self._reached = True
            return
        if wire:
            self._watchdog.call(lambda: self._connected(leader, wire))

    def _connected(self, leader: int, wire: Wire) -> None:
        self._reached = True
        self._leaders[leader] = wire
        self._last_word = self._watchdog.clock()
        self._watchdog.watch_for(wire.socket, lambda: self._from_leader(leader, wire))
        wire.send(_told(self._watchdog.board.look()))

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._server.accept() if self._server else (None, None)
            if connection:
                guest = Guest(connection, self._token, len(self.members))
                self._watchdog.watch_for(connection, lambda: self._introduction(guest))

    def _introduction(self, guest: Guest) -> None:
        """Take in which rank a connection is of; one that shows none is closed."""
        try:
            messages = guest.wire.receive()
            rank = guest.admit(messages[0]) if messages else None
        except (OSError, EOFError):
            self._watchdog.drop(guest.wire.socket)
            return
        if rank is not None:
            self._guests[rank] = guest.wire
            self._watchdog.watch_for(guest.wire.socket, lambda: self._from_guest(rank, guest.wire))
            self._take(rank, guest.wire, messages[1:])

    def _from_guest(self, rank: int, wire: Wire) -> None:
        """Take in what `rank` says; the end of its connection is the end of its process, if it said no goodbye."""
        try:
            self._take(rank, wire, wire.receive())
        except OSError:
            self._lose(rank, wire)
        except EOFError:
            self._lose(rank, wire)
            self._ended(rank)

    def _lose(self, rank: int, wire: Wire) -> None:
        self._watchdog.drop(wire.socket)
        self._guests.pop(rank, None)

    def _take(self, rank: int, wire: Wire, messages: Sequence[Message]) -> None:
        for message in messages:
            if "bye" in message and self._roll:
                self._roll.left(rank)
            elif "beat" in message and self._roll:
                self._roll.heard(rank, Beat(**message["beat"]), self._watchdog.clock())
                wire.send({"heard": True})

    def _from_leader(self, leader: int, wire: Wire) -> None:
        try:
            messages = wire.receive()
        except (OSError, EOFError):
            self._watchdog.drop(wire.socket)
            self._leaders.pop(leader, None)
            return
        self._last_word = self._watchdog.clock()
        for message in messages:
            if "ask" in message:
                wire.send(_told(self._watchdog.board.look()))
            elif "leave" in message and not self._watchdog.leaving:
                self._watchdog.leaving = True
                self._watchdog.ending.leave(first=False)

    # ---- What comes of it ---------------------------------------------------------------------------------------

    def beat(self, beat: Beat, now: float) -> None:
        """Tell the leaders where this rank stands, and as one of them look whether any rank makes progress."""
        for wire in list(self._leaders.values()):
            wire.send(_told(beat))
        if self._roll:
            self._roll.heard(self.rank, beat, now)
            self._judge(self._roll, beat, now)
        elif now - self._last_word > beat.limit_s + ALONE_SECONDS:
            names = tuple(f"rank {leader} ({self.members[leader].host})" for leader in self._places)
            self._watchdog.give_up(beat, names, 1.0 if self._reached else WORK_FACTOR)

    def _judge(self, roll: Roll, beat: Beat, now: float) -> None:
        """Ask all ranks when nothing moves, and some time later say what came of it."""
        stalled = roll.idle_s(now) > roll.limit_s(beat.limit_s)
        if self._asked_at is None:
            if stalled:
                self._asked_at = now
                self._to_guests({"ask": True})
        elif not roll.unheard(self._asked_at) or now - self._asked_at > ANSWER_SECONDS:
            since, self._asked_at = self._asked_at, None
            if stalled and self._mine_to_tell(roll, since):
                self._tell(roll.stall(now, since))

    def _ended(self, rank: int) -> None:
        """Tell of the death of `rank`, at once: a launcher kills the others within half a second.

        When a rank has said goodbye the job ends already, and it is the launcher that ends ranks. Open MPI may end
        rank 0 before it could say who died; then the deputy does.
        """
        roll, ending = self._roll, self._watchdog.leaving
        if roll and not ending and not any(map(roll.gone, range(len(self.members)))):
            roll.heard(self.rank, self._watchdog.board.look(), self._watchdog.clock())
            self._death = roll.death(rank, self._watchdog.clock())
            self._death_at = self._watchdog.clock()
        if self._death and 0 in (self.rank, rank):
            self._tell(self._death)

    @property
    def next_look(self) -> float:
        """When `look_after` has something to do; infinite while it has not."""
        return self._death_at + DEPUTY_SECONDS if self._death and not self._watchdog.leaving else math.inf

    def look_after(self, now: float) -> None:
        """Tell of a death, as the deputy, that rank 0 has not told of for a moment."""
        if self._death and now > self._death_at + DEPUTY_SECONDS:
            self._tell(self._death)

    def told_to_end(self) -> None:
        """Say goodbye, and first of all who is missing: a launcher ends all ranks, too, when it has lost a host."""
        now = self._watchdog.clock()
        since = now - LOST_BEATS * BEAT_SECONDS * max(1.0, len(self.members) / RANKS_PER_BEAT)
        roll = self._roll
        if roll and roll.began < since and roll.unheard(since) and self._mine_to_tell(roll, since):
            self._tell(roll.stall(now, since, "told to end"))
        self.goodbye()

    def _mine_to_tell(self, roll: Roll, since: float) -> bool:
        """Say whether no leader before this one was heard `since` then: the first that is there speaks."""
        return not any(roll.there(leader, since) for leader in self._places if leader < self.rank)

    def _tell(self, fault: Fault) -> None:
        if self._watchdog.leaving:
            return
        self._watchdog.leaving = True
        self._watchdog.ending.announce(fault)
        self._to_guests({"leave": True})
        self._watchdog.ending.leave(first=True)

    def _to_guests(self, message: Message) -> None:
        for wire in list(self._guests.values()):
            wire.send(message)

    def goodbye(self) -> None:
        """Tell all that this rank ends of its own will."""
        for wire in (*self._leaders.values(), *self._guests.values()):
            wire.send({"bye": True})

    def close(self) -> None:
        """Say goodbye and close all connections."""
        self.goodbye()
        for wire in (*self._leaders.values(), *self._guests.values()):
            self._watchdog.drop(wire.socket)
        if self._server:
            self._watchdog.drop(self._server)


def _told(beat: Beat) -> Message:
    return {"beat": asdict(beat)}


def leaders_of(members: Sequence[Member]) -> tuple[int, ...]:
    """Return rank 0 and the deputy: the first rank of another node, the next rank where there is one node only."""
    others = [rank for rank, member in enumerate(members) if member.stack != members[0].stack]
    return (0, *(others or range(1, len(members)))[:1])


def _network_stack() -> str:
    """Return a mark that two processes share exactly when they can reach each other over the loopback interface."""
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")
    try:
        return f"{boot.read_text().strip()} {space.stat().st_ino}"
    except OSError:
        return socket.gethostname()


def _held(process: int | None) -> int | None:
    """Return a descriptor that becomes readable when `process` ends; None where there is none (before Linux 5.3)."""
    if process is None:
        return None
    try:
        return os.pidfd_open(process)
    except (OSError, AttributeError):
        return None


def _wakeup(descriptor: int) -> int | None:
    """Have signals written to `descriptor` the moment they arrive; None where this is not the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
