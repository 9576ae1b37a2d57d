"""Schedules as pictures for a terminal: rounds as rows, ranks as columns.

     round  rank 0     rank 1     rank 2     rank 3
     start  ▂▂▂▂       ▂▂▂▂       ▂▂▂▂       ▂▂▂▂         how much of the sum each chunk holds, on each rank
         0  3→1 +2←3   0→2 +3←0   1→3 +0←1   2→0 +1←2     what the rank sends, and what it adds (+) or keeps (=)
            ▂▂▄▂       ▂▂▂▄       ▄▂▂▂       ▂▄▂▂         what it holds after the round; █ is complete

Long schedules are folded, and a line says what was left out. `svg.py` draws the same view for pages.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddlbench.schedule.lower import Schedule, spread
from ddlbench.schedule.move import ADD, Ints, Table
from ddlbench.schedule.verify import raise_moves

MOST_ROUNDS, MOST_RANKS = 36, 16
"""What is drawn when nobody asks for more."""
MOST_LINES = 3
"""A rank's messages of one round and direction take this many lines at most."""
MOST_BARS = 32
LEVELS = "▁▂▃▄▅▆▇█"
PLAIN = str.maketrans("→←×…│" + LEVELS, "><x~|12345678")
"""Turns a picture into ASCII for terminals that cannot show its signs: bars become digits from 1 to 8."""


@dataclass(frozen=True)
class View:
    """The part of a schedule that is drawn: these rounds and these ranks, in ascending order."""

    rounds: tuple[int, ...]
    ranks: tuple[int, ...]

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the rounds as first and last of what is drawn without a gap."""
        yield from spans(self.rounds)

    def gaps(self, rounds: int) -> list[tuple[int, int]]:
        """Return, as first and last, those of `rounds` rounds that are left out."""
        return list(spans(sorted(set(range(rounds)) - set(self.rounds))))


def view(schedule: Schedule, rounds: range | None = None, ranks: range | None = None) -> View:
    """Return the part to draw: the `rounds` and `ranks` asked for, else what is readable of all of them.

    Of too many rounds the first two thirds of the limit and the last third are taken, of too many ranks the first.
    """
    if rounds is None and schedule.rounds > MOST_ROUNDS:
        tail = MOST_ROUNDS // 3
        chosen = (*range(MOST_ROUNDS - tail), *range(schedule.rounds - tail, schedule.rounds))
    else:
        chosen = tuple(range(schedule.rounds) if rounds is None else rounds)
    return View(chosen, tuple(range(min(schedule.ranks, MOST_RANKS)) if ranks is None else ranks))


def spans(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of consecutive numbers, which ascend."""
    first = last = None
    for number in numbers:
        if first is None or last is None or number != last + 1:
            if first is not None and last is not None:
                yield first, last
            first = number
        last = number
    if first is not None and last is not None:
        yield first, last


@dataclass(frozen=True)
class Scene:
    """What happens in the drawn rounds: their moves, as the arrivals' rows of the table, and what is held after each.

    `held` are int arrays (ranks, chunks): of how many ranks' values a chunk is the sum. Key -1 is the start, and where
    rounds were left out, the round before the next drawn one is there too.
    """

    schedule: Schedule
    view: View
    moves: dict[int, Table]
    held: dict[int, Ints]


def scene(schedule: Schedule, shown: View) -> Scene:
    """Follow `schedule`, which need not be right, and return what `shown` wants of it.

    Raises `ProofError` when its sends and receives do not pair up.
    """
    arrived = _drawable(schedule, schedule.table[raise_moves(schedule.table, schedule.ranks).receive])
    bounds = np.searchsorted(arrived["round"], np.arange(max(1, schedule.rounds) + 1))
    wanted = {-1, *shown.rounds, *(first - 1 for first, _ in shown.spans())}
    held = np.ones(schedule.ranks * schedule.chunks, np.int64)
    moves, states = {}, {-1: held.reshape(schedule.ranks, -1).copy()}
    for round_ in range(max(shown.rounds, default=-1) + 1):
        now = arrived[bounds[round_] : bounds[round_ + 1]]
        _move(held, now, schedule.chunks)
        if round_ in wanted:
            moves[round_], states[round_] = now, held.reshape(schedule.ranks, -1).copy()
    return Scene(schedule, shown, moves, states)


def _drawable(schedule: Schedule, moves: Table) -> Table:
    """Return the moves between ranks and chunks that exist: what the proof refuses can be drawn too."""
    inside = (moves["chunk"] >= 0) & (moves["nchunks"] >= 1)
    inside &= moves["chunk"].astype(np.int64) + moves["nchunks"] <= schedule.chunks
    for name in ("rank", "peer"):
        inside &= (moves[name] >= 0) & (moves[name] < schedule.ranks)
    return moves[inside]


def _move(held: Ints, moves: Table, chunks: int) -> None:
    """Do the moves of one round: all reads come before the writes."""
    targets = spread(moves["rank"].astype(np.int64), moves, chunks)
    sources = spread(moves["peer"].astype(np.int64), moves, chunks)
    values, adds = held[sources.cell], moves["kind"][targets.row] == ADD
    held[targets.cell[~adds]] = values[~adds]
    np.add.at(held, targets.cell[adds], values[adds])


# ---- Text ------------------------------------------------------------------------------------------------------------


def text(drawn: Scene, width: int = 100) -> str:
    """Return the picture as lines of up to `width` characters where one column fits; ranks beyond go below."""
    cells = _cells(drawn)
    column = _column_width(drawn, cells)
    label = max(len("before"), len(str(drawn.schedule.rounds)))
    ranks = drawn.view.ranks
    count = _ranks_per_block(drawn, max(1, (width - label + 1) // (column + 3)))
    blocks = [_block(drawn, cells, ranks[at : at + count], column, label) for at in range(0, len(ranks), count)]
    parts = [_legend(drawn), *blocks, _left_out(drawn)]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _ranks_per_block(drawn: Scene, most: int) -> int:
    """Return how many columns stand beside each other: whole nodes where they fit, else blocks of about one size."""
    x, ranks = drawn.schedule.grid.ranks_per_node, len(drawn.view.ranks)
    if most >= ranks:
        return ranks
    return most // x * x if 1 < x <= most else -(-ranks // -(-ranks // most))


@dataclass(frozen=True)
class _Cell:
    """What one rank does in one round, as short texts."""

    sends: list[str]
    arrivals: list[str]


Cells = dict[tuple[int, int], _Cell]


def _cells(drawn: Scene) -> Cells:
    found = {}
    for round_ in drawn.view.rounds:
        moves = drawn.moves[round_]
        for rank in drawn.view.ranks:
            sends, arrivals = moves[moves["peer"] == rank], moves[moves["rank"] == rank]
            listed = [_listed(drawn.schedule, sends, "rank", "", "→")]
            for sign, which in (("+", arrivals["kind"] == ADD), ("=", arrivals["kind"] != ADD)):
                listed.append(_listed(drawn.schedule, arrivals[which], "peer", sign, "←"))
            found[round_, rank] = _Cell(listed[0], listed[1] + listed[2])
    return found


def _listed(schedule: Schedule, moves: Table, other: str, sign: str, arrow: str) -> list[str]:
    """Return moves of one rank in one direction as short texts: the same chunk for several ranks is one of them."""
    peers: dict[str, list[int]] = {}
    for move in moves:
        peers.setdefault(_chunks(schedule, move), []).append(int(move[other]))
    if len(peers) > MOST_LINES and np.array_equal(moves["chunk"], moves[other]) and (moves["nchunks"] == 1).all():
        return [f"{sign}j{arrow}j ×{len(moves)}"]
    lines = [f"{sign}{chunks}{arrow}{_ranks(schedule, found)}" for chunks, found in peers.items()]
    more = len(lines) - MOST_LINES + 1
    return lines if more < 2 else [*lines[: MOST_LINES - 1], f"{sign}… {more} more"]


def _chunks(schedule: Schedule, move: np.void) -> str:
    first, count = int(move["chunk"]), int(move["nchunks"])
    if count == schedule.chunks:
        return "all"
    return _numbers(first, first + count - 1)


def _ranks(schedule: Schedule, ranks: list[int]) -> str:
    if len(ranks) > 2 and len(ranks) == schedule.ranks - 1:
        return "others"
    return ",".join(_numbers(first, last) for first, last in spans(sorted(ranks)))


def bars(drawn: Scene, round_: int, rank: int) -> str:
    """Return how much of the sum each chunk of a rank holds after a round, one sign a chunk, or for several if many."""
    counts = drawn.held[round_][rank]
    several = -(-len(counts) // MOST_BARS)
    grouped = [counts[at : at + several] for at in range(0, len(counts), several)]
    return "".join(_bar(group, drawn.schedule.ranks) for group in grouped)


def _bar(counts: Ints, ranks: int) -> str:
    if counts.min() >= ranks:
        return LEVELS[-1]
    share = min(float(counts.mean()) / ranks, 1.0)
    return LEVELS[max(0, min(len(LEVELS) - 2, int(share * len(LEVELS)) - 1))]


def _column_width(drawn: Scene, cells: Cells) -> int:
    sends, arrivals = _widths(cells)
    bar = min(drawn.schedule.chunks, -(-drawn.schedule.chunks // -(-drawn.schedule.chunks // MOST_BARS)))
    return max(sends + arrivals + (sends > 0 and arrivals > 0), bar, len(f"rank {drawn.view.ranks[-1]}"))


def _widths(cells: Cells) -> tuple[int, int]:
    return (
        max((len(line) for cell in cells.values() for line in cell.sends), default=0),
        max((len(line) for cell in cells.values() for line in cell.arrivals), default=0),
    )


def _block(drawn: Scene, cells: Cells, ranks: Sequence[int], column: int, label: int) -> list[str]:
    """Return the lines of the columns of `ranks`."""
    row = _Row(drawn.schedule.grid.ranks_per_node, ranks, column, label)
    lines = [row.nodes()] if drawn.schedule.grid.nodes > 1 else []
    lines.append(row.line("round", [f"rank {rank}" for rank in ranks]))
    sends = _widths(cells)[0]
    for first, last in drawn.view.spans():
        state = "before" if first else "start"
        lines.append(row.line(state, [bars(drawn, first - 1, rank) for rank in ranks]))
        for round_ in range(first, last + 1):
            found = [_side_by_side(cells[round_, rank], sends) for rank in ranks]
            height = max(1, *map(len, found))
            for at in range(height):
                parts = [cell[at] if at < len(cell) else "" for cell in found]
                lines.append(row.line(str(round_) if at == 0 else "", parts))
            lines.append(row.line("", [bars(drawn, round_, rank) for rank in ranks]))
    return lines


def _side_by_side(cell: _Cell, width: int) -> list[str]:
    """Return the lines of a cell: sends on the left, arrivals on the right."""
    count = max(len(cell.sends), len(cell.arrivals))
    left, right = (texts + [""] * (count - len(texts)) for texts in (cell.sends, cell.arrivals))
    return [f"{a:<{width}} {b}" if width else b for a, b in zip(left, right, strict=True)]


@dataclass(frozen=True)
class _Row:
    """Puts the cells of one line beside each other, with a rule between nodes."""

    ranks_per_node: int
    ranks: Sequence[int]
    column: int
    label: int

    def line(self, label: str, cells: Sequence[str]) -> str:
        parts = [f"{label:>{self.label}}"]
        for at, cell in enumerate(cells):
            rule = at > 0 and self.ranks[at] // self.ranks_per_node != self.ranks[at - 1] // self.ranks_per_node
            parts.append((" │ " if rule else "  " if at == 0 else "   ") + f"{cell:<{self.column}}")
        return "".join(parts).rstrip()

    def nodes(self) -> str:
        cells, before = [], None
        for rank in self.ranks:
            node = rank // self.ranks_per_node
            cells.append("" if node == before else f"node {node}")
            before = node
        return self.line("", cells)


def _legend(drawn: Scene) -> list[str]:
    """Return how to read the picture, by its own first moves."""
    moves = np.concatenate([drawn.moves[at] for at in drawn.view.rounds] or [drawn.schedule.table[:0]])
    moves = moves[np.isin(moves["peer"], drawn.view.ranks)]
    if not len(moves):
        return []
    move = moves[np.argmin(moves["peer"])]
    chunks = _chunks(drawn.schedule, move)
    named = "the whole vector" if chunks == "all" else f"chunk{'s' if '-' in chunks else ''} {chunks}"
    source, target = move["peer"], move["rank"]
    example = f"{chunks}→{target} in column {source}: rank {source} sends {named} to rank {target}."
    return [
        f"{example}  + adds what arrives, = keeps it.",
        f"{LEVELS[0]} to {LEVELS[-1]}: how much of the sum each chunk holds after the round.",
    ]


def _left_out(drawn: Scene) -> list[str]:
    """Return the lines that say what is not drawn."""
    ranks = spans(sorted(set(range(drawn.schedule.ranks)) - set(drawn.view.ranks)))
    found = [("round", "--rounds", *gap) for gap in drawn.view.gaps(drawn.schedule.rounds)]
    found += [("rank", "--only", *gap) for gap in ranks]
    return [f"# {left_out(what, first, last)}: {option} {_numbers(first, last)}" for what, option, first, last in found]


def left_out(what: str, first: int, last: int) -> str:
    """Return the words that say which rounds or ranks a picture does not have."""
    return f"{what} {first} is left out" if first == last else f"{what}s {first} to {last} are left out"


def ranks_in_words(ranks: int) -> str:
    """Return "1 rank" or "8 ranks"."""
    return f"{ranks} rank" + "s" * (ranks > 1)


def _numbers(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
