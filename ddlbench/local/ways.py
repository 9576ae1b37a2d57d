"""How each message gets to its receiver: through a slot, from the sender's buffer, pushed, or over the wire.

What is sent within the node is read from one of two places:

* the sender's buffer itself, where buffers are `registered`, which is to say that all ranks of the node can address
  them. What must not be overwritten before it was read is waited for: a rank's counter tells how far it has read.
* a slot, to which the sender copies it. Slots are used in turn, so that a rank need not wait until what it has sent is
  read; small vectors have two sets of slots, of even and of odd executions.

Two things make a pass over the vector the only one. What a rank reduces and then sends is written to the slot by the
same instruction. And in registered buffers it is written straight to the output of those that would only store it (a
*push*), where nobody else uses that part of their output until then.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ddlbench.local.exchange import Exchange, Message, Step, overlap
from ddlbench.schedule.move import KEEP


@dataclass(frozen=True)
class Layout:
    """What a program is made for.

    `count` elements of `itemsize` bytes in `segments`; `registered` says that all ranks of a node can address all
    their buffers, and `in_place` that input and output are one. `stream`: results go past the caches.
    """

    count: int
    itemsize: int
    segments: int
    registered: bool
    in_place: bool
    stream: bool = False


def choose_ways(of: Exchange, layout: Layout) -> None:
    """Decide how each message gets to its receiver: from registered buffers where nothing speaks against it."""
    for message in of.messages():
        message.lands = message.wire and _may_land(of, message)
    if not layout.registered:
        return
    for (rank, round_), messages in of.sent.items():
        written = [message.arrival for message in of.arriving[rank, round_]]
        for message in messages:
            safe = message.wire or (message.send.from_input and not layout.in_place)
            message.slot = not safe and any(overlap(message.send, arrival) for arrival in written)
    for message in of.messages():
        local = not (message.slot or message.wire)
        message.push = local and layout.segments == 1 and _may_push(of, message)


def _may_land(of: Exchange, message: Message) -> bool:
    """Say whether a message may land in the output, at any time in its round: nothing else there is about that part."""
    arrival = message.arrival
    here = arrival.rank, arrival.round
    others = [one.arrival for one in of.arriving[here] if one is not message] + [one.send for one in of.sent[here]]
    return arrival.kind == KEEP and not any(overlap(one, arrival) for one in others)


def _may_push(of: Exchange, message: Message) -> bool:
    """Say whether the sender may write to the receiver's output while it reduces, a round before it would send.

    It must reduce just that part in the round before; and until the message is taken in, nobody but the sender may
    touch that part of the receiver's output.
    """
    send, arrival = message.send, message.arrival
    if arrival.kind != KEEP or send.from_input or send.range != arrival.range:
        return False
    made = [one for one in of.arriving[send.rank, send.round - 1] if overlap(one.arrival, send)]
    if not made or any(one.arrival.range != send.range or one.lands for one in made):
        return False
    return not any(overlap(step, arrival) for step in _touching(of, message))


def _touching(of: Exchange, message: Message) -> Iterator[Step]:
    """Yield the steps on the receiver's buffers up to the message's round, but for what the sender itself reads."""
    receiver, sender = message.arrival.rank, message.send.rank
    for round_ in range(message.send.round + 1):
        yield from of.copies[receiver, round_]
        yield from (one.arrival for one in of.arriving[receiver, round_] if one is not message)
        reads_itself = (message.send.round - 1,)
        for one in of.sent[receiver, round_]:
            if one.arrival.rank != sender or round_ not in reads_itself:
                yield one.send
