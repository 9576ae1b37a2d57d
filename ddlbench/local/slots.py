"""Where in its slot a rank puts what it sends within the node."""

from ddlbench.local.exchange import Exchange, Step
from ddlbench.local.program import SLOT, Place
from ddlbench.local.ways import Layout

COUNTER_NBYTES = 8
LINE_NBYTES = 128
"""POWER's line, and two of x86-64's, which that fetches in pairs; slots begin a line after the counter."""
SMALL_NBYTES = 64
"""Slots that end before this share the counter's line, of any processor."""
MOST_BANKS = 4
"""How many segments of a round have slots at once."""


class Slots:
    """Where in a rank's slot each of its sends lies.

    Every round has room for its regions, `banks` times over: segment s uses bank s mod `banks`. `sets` sets of all
    that are used in turn by executions.
    """

    def __init__(self, of: Exchange, layout: Layout, rank: int) -> None:
        self.banks = min(MOST_BANKS, layout.segments)
        self.sets = 2 if layout.segments == 1 else 1
        self._places: dict[tuple[int, tuple[int, int], bool], int] = {}
        self._room: dict[int, int] = {}
        end = 0
        for round_ in range(of.rounds):
            begin = end
            for message in of.sent[rank, round_]:
                key = (round_, message.send.range, message.send.from_input)
                if message.slot and key not in self._places:
                    self._places[key] = end
                    end += _room(of, layout, message.send)
            self._room[round_] = end - begin
            end = begin + (end - begin) * self.banks
        self._set_nbytes = end
        small = COUNTER_NBYTES + end * self.sets <= SMALL_NBYTES
        self._begin = COUNTER_NBYTES if small else LINE_NBYTES
        if small:
            return
        self._set_nbytes = whole_lines(end)

    @property
    def nbytes(self) -> int:
        """Bytes of the slot with the counter, in whole lines."""
        return whole_lines(self._begin + self._set_nbytes * self.sets)

    def place(self, send: Step, segment: int, execution: int) -> Place:
        """Return where a send of a segment lies in the executions that are `execution` modulo `sets`."""
        at = self._places[send.round, send.range, send.from_input]
        bank = (segment % self.banks) * self._room[send.round]
        return Place(send.rank, SLOT, self._begin + self._set_nbytes * (execution % self.sets) + at + bank)


def _room(of: Exchange, layout: Layout, send: Step) -> int:
    """Return the most bytes that a send takes in any segment; whole lines, unless it is a few bytes."""
    segment = layout.count // layout.segments + (layout.count % layout.segments > 0)
    most = min(segment, segment * send.nchunks // of.chunks + 1) * layout.itemsize
    return most if most <= SMALL_NBYTES // 4 else whole_lines(most)


def whole_lines(nbytes: int) -> int:
    """Return the bytes of the lines that `nbytes` take."""
    return -(-nbytes // LINE_NBYTES) * LINE_NBYTES
