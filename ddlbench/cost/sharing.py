"""When messages are through that share what carries them: each resource is shared fairly (max-min), from start to end.

At every moment the messages under way have the rates of max-min fairness: no message could be faster without another,
slower one becoming slower still. When one begins or ends, the rates change. One message alone, eight into one port, or
hundreds over one card are all the same rule; TCP and InfiniBand share about so.
"""

from dataclasses import dataclass, field

import numpy as np

from ddlbench.cost.network import Floats
from ddlbench.schedule.lower import Bools
from ddlbench.schedule.move import Ints

SAME = 1e-9
"""Times that differ by less than this share of what is left are one event: they differ by rounding."""
EVENTS = 40
"""Starts and ends that are followed one by one; of more, those next to each other are gathered."""


@dataclass(frozen=True)
class Underway:
    """What messages of earlier ticks take of resources: which, int (n,), from when to when, and how much a second.

    Ranks that share a card need not be at the same tick. What is under way when another rank's messages of a later tick
    begin keeps its mean rate; the later messages share what is left.
    """

    resource: Ints
    begin: Floats
    end: Floats
    rate: Floats

    @classmethod
    def nothing(cls) -> "Underway":
        """Return that nothing is under way."""
        none = np.zeros(0)
        return cls(np.zeros(0, np.int64), none, none, none)

    def and_of(self, resources: Ints, shared: Bools, begin: Floats, end: Floats, nbytes: Floats) -> "Underway":
        """Return this and what messages take of those of their `resources`, int (ways, messages), that are `shared`."""
        way, message = np.nonzero(shared[resources])
        rate = np.divide(nbytes, end - begin, out=np.zeros(len(nbytes)), where=end > begin)
        return Underway(
            np.concatenate([self.resource, resources[way, message]]),
            np.concatenate([self.begin, begin[message]]),
            np.concatenate([self.end, end[message]]),
            np.concatenate([self.rate, rate[message]]),
        )

    def after(self, moment: float) -> "Underway":
        """Return what lasts longer than `moment`."""
        on = self.end > moment
        return self if on.all() else Underway(self.resource[on], self.begin[on], self.end[on], self.rate[on])

    def later(self, seconds: float) -> "Underway":
        """Return the same, so many seconds later."""
        return Underway(self.resource, self.begin + seconds, self.end + seconds, self.rate)


@dataclass(frozen=True)
class Sharing:
    """Messages that may be under way together, and the resources each of them uses, int (ways, messages)."""

    resources: Ints
    _names: Ints = field(init=False, repr=False)
    _used: Ints = field(init=False, repr=False)
    _crowded: Bools = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names, used = np.unique(self.resources, return_inverse=True)
        used = used.reshape(self.resources.shape)
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_used", used)
        object.__setattr__(self, "_crowded", np.bincount(used.ravel(), minlength=len(names)) > 1)

    def finish(self, start: Floats, nbytes: Floats, capacity: Floats, underway: Underway | None = None) -> Floats:
        """Return when each message is through, float64 (messages,); `capacity` is of all resources, by number.

        Exact while there are few different moments at which messages begin or end, as in schedules whose ranks are
        alike. Of more than `EVENTS` messages, one in `EVENTS` of them begin, and end, at the rates of one moment: each
        has a time of its own still, but what it leaves to others they get when the last of these has ended.
        """
        limited = capacity[self._names]
        load = _Load.of(underway, self._names, float(start.min()))
        busy = self._crowded | load.busy
        alone = ~(busy & np.isfinite(limited))[self._used].any(axis=0)
        finish = np.empty(len(start))
        finish[alone] = start[alone] + nbytes[alone] / limited[self._used[:, alone]].min(axis=0, initial=np.inf)
        together = np.flatnonzero(~alone)
        if len(together):
            begins = _gathered(start[together])
            flow = _Flow(begins, nbytes[together], self._used[:, together], limited, load)
            finish[together] = start[together] + flow.run() - begins
        return finish


@dataclass(frozen=True)
class _Load:
    """What is taken of the resources of a `Sharing`, by their place in it; `busy` says of which."""

    place: Ints
    begin: Floats
    end: Floats
    rate: Floats
    busy: Bools

    @classmethod
    def of(cls, underway: Underway | None, names: Ints, moment: float) -> "_Load":
        """Return what is taken after `moment`."""
        on = Underway.nothing() if underway is None else underway.after(moment)
        at = np.minimum(np.searchsorted(names, on.resource), len(names) - 1)
        here = names[at] == on.resource
        busy = np.zeros(len(names), bool)
        busy[at[here]] = True
        if not here.any():
            return cls(at[here], on.begin[here], on.end[here], on.rate[here], busy)
        return cls(at[here], _gathered(on.begin[here]), _gathered(on.end[here]), on.rate[here], busy)

    def taken(self, now: float) -> Floats:
        """Return what is taken of each resource, bytes a second."""
        on = (self.begin <= now) & (now < self.end)
        return np.bincount(self.place[on], self.rate[on], len(self.busy)).astype(np.float64)

    def next_change(self, now: float) -> float:
        """Return when that changes next."""
        later = (times[times > now].min(initial=np.inf) for times in (self.begin, self.end))
        return float(min(later))


def _gathered(start: Floats) -> Floats:
    """Return the starts, those that differ by rounding as one; of many different ones, neighbours at the first's."""
    order = np.argsort(start, kind="stable")
    ascending = start[order]
    fresh = np.diff(ascending, prepend=-np.inf) > SAME * (ascending[-1] - ascending[0])
    if np.count_nonzero(fresh) > EVENTS:
        fresh &= np.diff(np.cumsum(fresh) * EVENTS // np.count_nonzero(fresh), prepend=-1) > 0
    begins: Floats = np.empty(len(start))
    begins[order] = ascending[np.maximum.accumulate(np.where(fresh, np.arange(len(start)), 0))]
    return begins


class _Flow:
    """Messages on their way: what is left of each, and the time."""

    def __init__(self, begins: Floats, nbytes: Floats, used: Ints, capacity: Floats, load: _Load) -> None:
        limited = np.isfinite(capacity[used]).any(axis=1)
        self._begins, self._used, self._capacity, self._load = begins, used[limited], capacity, load
        self._left = nbytes.copy()
        self._through = np.zeros(len(begins))
        self._now = float(begins.min())
        self._few = max(1, len(begins) // EVENTS)

    def run(self) -> Floats:
        """Return when each is through."""
        waiting = self._begins > self._now
        going = np.flatnonzero(~waiting)
        while len(going) or waiting.any():
            going = self._go_on(going, float(self._begins[waiting].min(initial=np.inf)))
            begun = waiting & (self._begins <= self._now)
            waiting &= ~begun
            going = np.concatenate([going, np.flatnonzero(begun)])
        return self._through

    def _go_on(self, going: Ints, until: float) -> Ints:
        """Let the messages `going` run until a few are through, or the moment `until`; return those that go on."""
        if not len(going):
            self._now = until
            return going
        capacity = self._capacity
        if len(self._load.end):
            capacity = np.maximum(capacity - self._load.taken(self._now), 0.0)
            until = min(until, self._load.next_change(self._now))
        rates = fair_rates(self._used[:, going], capacity)
        needed = np.divide(self._left[going], rates, out=np.full(len(going), np.inf), where=rates > 0)
        few = min(self._few, len(going)) - 1
        wanted = float(np.partition(needed, few)[few])
        step = min(wanted, until - self._now)
        through = needed <= step * (1 + SAME)
        self._through[going[through]] = self._now + needed[through]
        self._left[going] -= rates * step
        self._now = until if step < wanted else self._now + step
        rest: Ints = going[~through]
        return rest


def fair_rates(used: Ints, capacity: Floats) -> Floats:
    """Return the max-min fair rate of each message, float64 (messages,), for the resources it uses, int (ways, …).

    A resource is a bottleneck when none of its messages is held up more elsewhere. All bottlenecks there are get their
    messages' rates at once; what these leave of other resources goes to the next.
    """
    rates = np.zeros(used.shape[1])
    left, open_ = capacity.copy(), np.arange(used.shape[1])
    while len(open_):
        of = used[:, open_]
        count = np.bincount(of.ravel(), minlength=len(left))
        fair = np.divide(left, count, out=np.full(len(left), np.inf), where=count > 0)
        share = fair[of].min(axis=0)
        held_up = share < fair[of] * (1 - SAME)
        elsewhere = np.bincount(of[held_up], minlength=len(left))
        settled = ((elsewhere == 0) & np.isfinite(fair))[of].any(axis=0)
        rates[open_[settled]] = share[settled]
        spent = np.bincount(of[:, settled].ravel(), np.tile(share[settled], len(of)), len(left))
        left = np.maximum(left - spent, 0.0)
        open_ = open_[~settled]
    return rates
