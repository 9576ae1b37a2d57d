"""When messages are through that share what carries them: each resource is shared fairly (max-min), from start to end.

At every moment the messages under way have the rates of max-min fairness: no message could be faster without another,
slower one becoming slower still. When one begins or ends, the rates change. One message alone, eight into one port, or
hundreds over one card are all the same rule; TCP and InfiniBand share about so.
"""

from dataclasses import dataclass, field

import numpy as np

from ddlbench.cost.buckets import SAME, Buckets, Tokens
from ddlbench.cost.network import Floats
from ddlbench.schedule.lower import Bools
from ddlbench.schedule.move import Ints

EVENTS = 100
"""Messages of a crowd that are followed one by one; of more, starts and ends next to each other are gathered."""


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
    _crowds: dict[bytes, Ints] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        names, used = np.unique(self.resources, return_inverse=True)
        used = used.reshape(self.resources.shape)
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_used", used)
        object.__setattr__(self, "_crowded", np.bincount(used.ravel(), minlength=len(names)) > 1)

    def finish(
        self, start: Floats, nbytes: Floats, capacity: Floats, underway: Underway | None = None,
        buckets: Buckets | None = None,
    ) -> Floats:  # fmt: skip
        """Return when each message is through, float64 (messages,); `capacity` is of all resources, by number.

        What passes takes from `buckets` where there are any.

        Exact, but for crowds: where more than `EVENTS` messages hold each other up, directly or through others, one in
        `EVENTS` of them begin, and end, at the rates of one moment. Each has a time of its own still, but what it
        leaves to others they get when the last of these has ended.
        """
        limited = capacity[self._names]
        load = _Load.of(underway, self._names, float(start.min()))
        busy = self._crowded | load.busy
        tokens = None if buckets is None else Tokens(buckets, self._names, float(start.min()))
        if tokens is not None:
            busy |= tokens.burst > 0
        alone = ~(busy & np.isfinite(limited))[self._used].any(axis=0)
        finish = np.empty(len(start))
        finish[alone] = start[alone] + nbytes[alone] / limited[self._used[:, alone]].min(axis=0, initial=np.inf)
        together = np.flatnonzero(~alone)
        if len(together):
            held = self._crowded | load.busy
            if tokens is not None:
                held |= tokens.burst > 0
            used, own = _apart(self._used[:, together], held & np.isfinite(limited), limited)
            crowd = self._crowd(used, len(limited))
            begins = _gathered(start[together], crowd)
            flow = _Flow(begins, nbytes[together], _Limits(used, own, limited, crowd), load, tokens)
            finish[together] = start[together] + flow.run() - begins
        if tokens is not None:
            tokens.store()
        return finish

    def _crowd(self, used: Ints, resources: int) -> Ints:
        """Return the number of the crowd that each message is in: of those that may hold each other up."""
        key = used.tobytes()
        if key not in self._crowds:
            self._crowds[key] = crowds(used, resources)
        return self._crowds[key]


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
        begin, end = (_merged(times[here], EVENTS) for times in (on.begin, on.end))
        return cls(at[here], begin, end, on.rate[here], busy)

    def taken(self, now: Floats) -> Floats:
        """Return what is taken of each resource at its moment `now`, bytes a second."""
        at = now[self.place]
        on = (self.begin <= at) & (at < self.end)
        return np.bincount(self.place[on], self.rate[on], len(self.busy)).astype(np.float64)

    def next_change(self, now: Floats) -> Floats:
        """Return when that changes next, entry by entry."""
        at = now[self.place]
        return np.where(self.begin > at, self.begin, np.where(self.end > at, self.end, np.inf))


def crowds(used: Ints, resources: int) -> Ints:
    """Return the number of the crowd of each message, for what they use, int (ways, messages).

    Two messages that use the same resource are of one crowd, and so are all that are linked so. Numbers of resources
    from `resources` on link nothing.
    """
    label = np.arange(used.shape[1])
    while True:
        least = np.full(max(resources, int(used.max(initial=0))) + 1, len(label))
        np.minimum.at(least, used.ravel(), np.tile(label, len(used)))
        least[resources:] = len(label)
        lower = np.minimum(label, least[used].min(axis=0, initial=len(label)))
        lower = lower[lower]
        if np.array_equal(lower, label):
            return np.unique(label, return_inverse=True)[1].reshape(-1)
        label = lower


def _merged(times: Floats, most: int | None = None) -> Floats:
    """Return the times, those that differ by rounding as one; of more than `most` different ones neighbours too."""
    order = np.argsort(times, kind="stable")
    ascending = times[order]
    fresh = np.diff(ascending, prepend=-np.inf) > SAME * (ascending[-1] - ascending[0])
    if most is not None and np.count_nonzero(fresh) > most:
        fresh &= np.diff(np.cumsum(fresh) * most // np.count_nonzero(fresh), prepend=-1) > 0
    merged: Floats = np.empty(len(times))
    merged[order] = ascending[np.maximum.accumulate(np.where(fresh, np.arange(len(times)), 0))]
    return merged


def _gathered(start: Floats, crowd: Ints) -> Floats:
    """Return the starts, those that differ by rounding as one; in large crowds neighbours at the first one's."""
    begins = _merged(start)
    for large in np.flatnonzero(np.bincount(crowd) > EVENTS):
        begins[crowd == large] = _merged(start[crowd == large], EVENTS)
    return begins


@dataclass(frozen=True)
class _Limits:
    """What holds messages up: the resources they share, their own limits, all capacities, the crowds they are in."""

    used: Ints
    own: Floats
    capacity: Floats
    crowd: Ints

    def crowd_of_resource(self, count: int) -> Ints:
        """Return the crowd that uses each resource, `count` where none does."""
        found = np.full(len(self.capacity) + 1, count)
        found[self.used.ravel()] = np.tile(self.crowd, len(self.used))
        return found[:-1]


class _Flow:
    """Messages on their way: what is left of each, and the time, which is each crowd's own."""

    def __init__(
        self, begins: Floats, nbytes: Floats, limits: _Limits, load: _Load, tokens: Tokens | None
    ) -> None:  # fmt: skip
        self._begins, self._load, self._tokens = begins, load, tokens
        self._used, self._own, self._capacity, self._crowd = limits.used, limits.own, limits.capacity, limits.crowd
        members = np.bincount(self._crowd)
        self._count = len(members)
        self._of = limits.crowd_of_resource(self._count)
        self._now = np.full(self._count + 1, float(begins.min()))
        self._now[:-1] = self._least(begins, self._crowd)[:-1]
        self._few = np.maximum(1, members // EVENTS)
        self._left = nbytes.copy()
        self._through = np.zeros(len(begins))

    def _least(self, values: Floats, crowd: Ints) -> Floats:
        """Return the least value of each crowd, inf where it has none."""
        least = np.full(self._count + 1, np.inf)
        if self._count == 1:
            least[0] = values.min(initial=np.inf)
        else:
            np.minimum.at(least, crowd, values)
        return least

    def run(self) -> Floats:
        """Return when each is through."""
        waiting = self._begins > self._now[self._crowd]
        going = np.flatnonzero(~waiting)
        while len(going) or waiting.any():
            later = np.flatnonzero(waiting)
            going = self._go_on(going, self._least(self._begins[later], self._crowd[later]))
            begun = waiting & (self._begins <= self._now[self._crowd])
            waiting &= ~begun
            going = np.concatenate([going, np.flatnonzero(begun)])
        return self._through

    def _go_on(self, going: Ints, until: Floats) -> Ints:
        """Let the messages `going` run, in each crowd until one is through (of a large one a few), or until its moment.

        Return those that go on.
        """
        now, crowd = self._now[self._of], self._crowd[going]
        capacity, taken = self._capacity, None
        if self._tokens is not None:
            capacity = self._tokens.capacity(capacity, now)
        if len(self._load.end):
            taken = self._load.taken(now)
            capacity = np.maximum(capacity - taken, 0.0)
            np.minimum.at(until, self._of[self._load.place], self._load.next_change(now))
        rates = fair_rates(self._used[:, going], capacity, self._own[going])
        spent = self._spent(going, rates, taken)
        if self._tokens is not None:
            np.minimum.at(until, self._of, now + self._tokens.lasting(spent, self._capacity))
        needed = np.divide(self._left[going], rates, out=np.full(len(going), np.inf), where=rates > 0)
        wanted = self._wanted(needed, crowd)
        until = np.where(np.isfinite(wanted) | np.isfinite(until), until, self._now)  # a crowd that is through stays
        step = np.minimum(wanted, until - self._now)
        through = needed <= step[crowd] * (1 + SAME)
        self._through[going[through]] = self._now[crowd[through]] + needed[through]
        self._left[going] -= rates * step[crowd]
        if self._tokens is not None:
            self._tokens.spend(spent, self._capacity, step[self._of])
        self._now = np.where(step < wanted, until, self._now + step)
        rest: Ints = going[~through]
        return rest

    def _wanted(self, needed: Floats, crowd: Ints) -> Floats:
        """Return in how many seconds the first of each crowd is through, or the first few of a large one."""
        wanted = self._least(needed, crowd)
        for large in np.flatnonzero(self._few > 1):
            own = needed[crowd == large]
            if len(own):
                few = min(int(self._few[large]), len(own)) - 1
                wanted[large] = np.partition(own, few)[few]
        return wanted

    def _spent(self, going: Ints, rates: Floats, taken: Floats | None) -> Floats:
        """Return what passes each resource a second, with what others take of it; nothing where no bucket asks."""
        if self._tokens is None:
            return np.zeros(0)
        used = self._used[:, going]
        spent = np.bincount(used.ravel(), np.tile(rates, len(used)), len(self._capacity) + 1)[:-1]
        return np.asarray(spent if taken is None else spent + taken, np.float64)


def _apart(used: Ints, shared: Bools, capacity: Floats) -> tuple[Ints, Floats]:
    """Return what messages share, int (ways, messages), and the most that each could have by what it has for itself.

    `shared` says which resources hold up several messages. Ways on which no message meets another are left out; a
    message that has nothing to share on a way has the place after the last resource there.
    """
    meets = shared[used]
    own = np.where(meets, np.inf, capacity[used]).min(axis=0)
    ways = meets.any(axis=1)
    return np.where(meets[ways], used[ways], len(capacity)), own


def fair_rates(used: Ints, capacity: Floats, own: Floats | None = None) -> Floats:
    """Return the max-min fair rate of each message, float64 (messages,), for the resources it uses, int (ways, …).

    A resource is a bottleneck when none of its messages is held up more elsewhere. All bottlenecks there are get their
    messages' rates at once; what these leave of other resources goes to the next. `own` is the most that each message
    could have alone; the place after the last resource holds nothing up.
    """
    ways, count = used.shape
    rates = np.zeros(count)
    most = np.full(count, np.inf) if own is None else own
    left, open_ = np.append(capacity, np.inf), np.arange(count)
    while len(open_):
        of = used[:, open_]
        flat = of.ravel()
        sharing = np.bincount(flat, minlength=len(left))
        fair = np.divide(left, sharing, out=np.full(len(left), np.inf), where=sharing > 0)
        each = fair[of]
        share = np.minimum(each.min(axis=0, initial=np.inf), most[open_])
        elsewhere = np.bincount(flat[(share < each * (1 - SAME)).ravel()], minlength=len(left))
        settled = ((elsewhere == 0) & np.isfinite(fair))[of].any(axis=0) | (share >= most[open_])
        through = share[settled]
        rates[open_[settled]] = through
        open_ = open_[~settled]
        if len(open_):
            spent = np.bincount(of[:, settled].ravel(), np.tile(through, ways), len(left))
            left = np.maximum(left - spent, 0.0)
    return rates
