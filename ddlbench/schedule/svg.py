"""Schedules as pictures for pages: one self-contained SVG, for light and dark.

Ranks are columns and time runs down. A rank's strip shows how much of the sum each of its chunks holds; an arrow goes
from the chunks that are sent to where they arrive, in the colour of its lane.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from xml.sax.saxutils import escape

import numpy as np

from ddlbench.schedule.draw import Scene, left_out, ranks_in_words
from ddlbench.schedule.lower import Schedule
from ddlbench.schedule.move import ADD, Ints, Table

STRIP, FLIGHT, MOST_FLIGHT, SKIP = 16, 42, 76, 40
"""Heights: of a strip, of a round's arrows where they are short and where long, of the note on rounds left out."""
GAP, NODE_GAP, PANEL = 20, 40, 12
"""Between the strips of neighbours, in a node and across nodes; and how far a node's panel reaches beyond them."""
MARGIN, LEFT, TOP, FOOT, LEGEND, NARROWEST_PAGE = 20, 100, 104, 32, 24, 640
NARROWEST, CHUNK, WIDEST = 45, 9, 144
"""Widths: of a strip at least, of one chunk in it, of a strip at most."""
THIN, THICK, HEAD = 1.3, 4.0, 7
"""Widths of an arrow with hardly a chunk and with the whole vector; the length of its head."""
LETTER, TITLE_LETTER, SIGN = 6.2, 9.5, 34
"""Widths: of a letter, roughly, in the caption and legend and in the title; of a sign of the legend."""
COLOURS = 7
"""Further lanes take the first colours again."""
STYLE = """
svg { --paper: #fff; --ink: #16191d; --soft: #59616b; --edge: #b9c0c8; --panel: #f3f5f7;
  --lane0: #2d69f0; --lane1: #c37800; --lane2: #5a965a; --lane3: #87000f; --lane4: #d23cb4; --lane5: #6900a5;
  --lane6: #5a2d69; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #14171b; --ink: #e8eaed; --soft: #a2aab4; --edge: #565e68; --panel: #1d2126;
    --lane0: #0f87ff; --lane1: #f0b469; --lane2: #96f0b4; --lane3: #e15a0f; --lane4: #f0a5ff; --lane5: #d2f04b;
    --lane6: #f05a69; } }
text { font: 12px system-ui, "Segoe UI", "Noto Sans", "Liberation Sans", Arial, sans-serif; fill: var(--ink); }
.title { font-size: 16px; font-weight: 600; }
.soft { fill: var(--soft); }
.middle { text-anchor: middle; }
.paper { fill: var(--paper); }
.panel { fill: var(--panel); }
.strip { fill: var(--paper); stroke: var(--edge); }
.part { opacity: .45; }
.move { fill: none; opacity: .9; }
.keep { stroke-dasharray: 4 3; }
"""


def svg(drawn: Scene, caption: str = "") -> str:
    """Return the picture as the text of an SVG file; `caption` is the line under its title."""
    title = f"{drawn.schedule.name} on {ranks_in_words(drawn.schedule.ranks)}"
    plot = _Plot(drawn, max(LETTER * len(caption), TITLE_LETTER * len(title)) + 2 * MARGIN)
    size = f'viewBox="0 0 {_n(plot.width)} {_n(plot.height)}" width="{_n(plot.width)}" height="{_n(plot.height)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(caption)}. Ranks are columns, rounds follow each other downwards.</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{_n(plot.width)}" height="{_n(plot.height)}"/>',
        _text(MARGIN, 32, title, "title"),
        _text(MARGIN, 53, caption, "soft"),
        *_nodes(plot),
        *_names(plot),
        *_moves(plot),
        *_strips(plot),
        *_notes(plot),
        *_legend(plot),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _n(value: float) -> str:
    """Return a coordinate with one decimal at most."""
    return f"{round(float(value), 1):g}"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{attribute}>{escape(text)}</text>'


def _colour(lane: int) -> str:
    return f"var(--lane{lane % COLOURS})"


class _Plot:
    """Where everything is: `x` by rank, `y` of the strips by the round before them, `notes` on rounds left out."""

    def __init__(self, drawn: Scene, narrowest: float) -> None:
        self.drawn, self.schedule, self.ranks = drawn, drawn.schedule, drawn.view.ranks
        self.strip = min(WIDEST, max(NARROWEST, CHUNK * self.schedule.chunks))
        self.cell = self.strip / self.schedule.chunks
        self.x: dict[int, float] = {}
        self.y: dict[int, float] = {}
        self.notes: list[tuple[float, int, int]] = []
        self._place_columns()
        self.width = max(max(self.x.values()) + self.strip + MARGIN, NARROWEST_PAGE, narrowest)
        self.top = TOP + (self.schedule.grid.nodes > 1) * STRIP
        self.bottom = self._place_rows()
        self.legend = self._place_legend()
        self.height = self.legend[-1][1] + LEGEND

    def _place_columns(self) -> None:
        x: float = LEFT
        for at, rank in enumerate(self.ranks):
            if at:
                x += self.strip + (GAP if self.node(rank) == self.node(self.ranks[at - 1]) else NODE_GAP)
            self.x[rank] = x

    def _place_rows(self) -> float:
        """Place the strips and notes, and return where they end."""
        y: float = self.top
        runs = [(*span, True) for span in self.drawn.view.spans()]
        runs += [(*gap, False) for gap in self.drawn.view.gaps(self.schedule.rounds)]
        for first, last, drawn in sorted(runs or [(0, -1, True)]):
            if not drawn:
                self.notes.append((y + SKIP / 2 + 4, first, last))
                y += SKIP
                continue
            self.y[first - 1] = y
            for round_ in range(first, last + 1):
                y += STRIP + self._flight(round_)
                self.y[round_] = y
            y += STRIP
        return y

    def _flight(self, round_: int) -> float:
        """Return the height for a round's arrows: more when they go far, so that they do not lie flat on each other."""
        far = [abs(self.x[int(move["rank"])] - self.x[int(move["peer"])]) for move in self.shown(round_)]
        mean = sum(far) / len(far) if far else 0.0
        return min(MOST_FLIGHT, FLIGHT + max(0.0, mean - 180) * 0.15)

    def _place_legend(self) -> list[tuple[float, float, "_Entry"]]:
        """Return where the entries of the legend stand, in as many lines as they need."""
        x, y, placed = float(MARGIN), self.bottom + FOOT + STRIP, []
        for entry in _entries(self):
            width = SIGN + LETTER * len(entry.words)
            if x + width > self.width and x > MARGIN:
                x, y = float(MARGIN), y + LEGEND
            placed.append((x, y, entry))
            x += width + 22
        return placed

    def node(self, rank: int) -> int:
        return rank // self.schedule.grid.ranks_per_node

    def shown(self, round_: int) -> Table:
        """Return the moves of a round between drawn ranks."""
        moves = self.drawn.moves[round_]
        return moves[np.isin(moves["peer"], self.ranks) & np.isin(moves["rank"], self.ranks)]


# ---- Columns ---------------------------------------------------------------------------------------------------------


def _nodes(plot: _Plot) -> Iterator[str]:
    """Yield a panel behind the ranks of each node, where there are several nodes."""
    if plot.schedule.grid.nodes == 1:
        return
    for node in sorted({plot.node(rank) for rank in plot.ranks}):
        xs = [plot.x[rank] for rank in plot.ranks if plot.node(rank) == node]
        left, right, top = min(xs) - PANEL, max(xs) + plot.strip + PANEL, plot.top - 46
        box = f'x="{_n(left)}" y="{_n(top)}" width="{_n(right - left)}" height="{_n(plot.bottom - top + PANEL)}" rx="4"'
        yield f'<rect class="panel" {box}/>'
        yield _text((left + right) / 2, plot.top - 29, f"node {node}", "soft middle")


def _names(plot: _Plot) -> Iterator[str]:
    """Yield the names of ranks and rounds."""
    for rank in plot.ranks:
        yield _text(plot.x[rank] + plot.strip / 2, plot.top - 9, f"rank {rank}", "middle")
    for round_ in plot.drawn.view.rounds:
        yield _text(MARGIN, (plot.y[round_ - 1] + plot.y[round_] + STRIP) / 2 + 4, f"round {round_}", "soft")


def _notes(plot: _Plot) -> Iterator[str]:
    for y, first, last in plot.notes:
        yield _text(LEFT, y, left_out("round", first, last), "soft")
    if len(plot.ranks) < plot.schedule.ranks:
        yield _text(LEFT, plot.bottom + 20, f"{len(plot.ranks)} of {plot.schedule.ranks} ranks are drawn", "soft")


# ---- What is held ----------------------------------------------------------------------------------------------------


def _strips(plot: _Plot) -> Iterator[str]:
    """Yield each rank's strip after each round: the outline, what is part of the sum, what is all of it."""
    frames: list[str] = []
    parts: dict[int, list[str]] = {}
    whole: dict[int, list[str]] = {}
    lane = _lane_of_chunk(plot.schedule)
    for round_, y in plot.y.items():
        for rank in plot.ranks:
            frames.append(f"M{_n(plot.x[rank])},{_n(y)}h{_n(plot.strip)}v{STRIP}h-{_n(plot.strip)}z")
            for first, count, held in _runs(plot.drawn.held[round_][rank], lane):
                full = held >= plot.schedule.ranks
                kind = whole if full else parts
                kind.setdefault(int(lane[first]), []).append(_bar(plot, rank, y, first, count, held))
    yield f'<path class="strip" d="{"".join(frames)}"/>'
    for name, found in (("part", parts), ("all", whole)):
        for number, bars in sorted(found.items()):
            yield f'<path class="{name}" fill="{_colour(number)}" d="{"".join(bars)}"/>'


def _runs(held: Ints, lane: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield the first chunk, the number and the contributions of neighbouring chunks of one lane that hold as much."""
    edges = np.flatnonzero((np.diff(held) != 0) | (np.diff(lane) != 0)) + 1
    for first, last in zip([0, *edges], [*edges, len(held)], strict=True):
        yield int(first), int(last - first), int(held[first])


def _bar(plot: _Plot, rank: int, y: float, first: int, count: int, held: int) -> str:
    height = STRIP * min(1.0, held / plot.schedule.ranks)
    x, width = plot.x[rank] + first * plot.cell, count * plot.cell
    return f"M{_n(x)},{_n(y + STRIP)}v-{_n(height)}h{_n(width)}v{_n(height)}z"


def _lane_of_chunk(schedule: Schedule) -> Ints:
    """Return the lane that each chunk belongs to, int (chunks,)."""
    lane = np.zeros(schedule.chunks, np.int64)
    for step in np.unique(schedule.table[["chunk", "nchunks", "lane"]]):
        lane[step["chunk"] : step["chunk"] + step["nchunks"]] |= step["lane"]
    return lane


# ---- What moves ------------------------------------------------------------------------------------------------------


def _moves(plot: _Plot) -> Iterator[str]:
    """Yield the arrows: all of a lane, kind and width in one path, their heads in another."""
    lines: dict[tuple[int, bool, str], list[str]] = {}
    heads: dict[int, list[str]] = {}
    for round_ in plot.drawn.view.rounds:
        top, bottom = plot.y[round_ - 1] + STRIP + 1, plot.y[round_] - 1
        for move in plot.shown(round_):
            lane, adds = int(move["lane"]), bool(move["kind"] == ADD)
            thick = THIN + (THICK - THIN) * float(move["nchunks"]) / plot.schedule.chunks
            middle = (move["chunk"] + move["nchunks"] / 2) * plot.cell
            start, end = plot.x[int(move["peer"])] + middle, plot.x[int(move["rank"])] + middle
            lines.setdefault((lane, adds, _n(thick)), []).append(_curve(start, top, end, bottom - HEAD))
            heads.setdefault(lane, []).append(_head(end, bottom, thick))
    for (number, added, width), curves in sorted(lines.items()):
        kind = "move" if added else "move keep"
        yield f'<path class="{kind}" stroke="{_colour(number)}" stroke-width="{width}" d="{"".join(curves)}"/>'
    for number, triangles in sorted(heads.items()):
        yield f'<path fill="{_colour(number)}" d="{"".join(triangles)}"/>'


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a path that leaves and arrives vertically."""
    bend = (to_y - y) * 0.55
    return f"M{_n(x)},{_n(y)}C{_n(x)},{_n(y + bend)} {_n(to_x)},{_n(to_y - bend)} {_n(to_x)},{_n(to_y)}"


def _head(x: float, y: float, thick: float) -> str:
    half = 2.2 + thick * 0.7
    return f"M{_n(x)},{_n(y)}l-{_n(half)},-{HEAD}h{_n(2 * half)}z"


# ---- The legend ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """A sign of the legend, drawn at x and y, and its words."""

    draw: Callable[[float, float], Iterator[str]]
    words: str


def _legend(plot: _Plot) -> Iterator[str]:
    for x, y, entry in plot.legend:
        yield from entry.draw(x, y)
        yield _text(x + SIGN, y + 4, entry.words, "soft")


def _entries(plot: _Plot) -> Iterator[_Entry]:
    """Yield what the legend explains."""
    lanes = sorted({int(move["lane"]) for at in plot.drawn.view.rounds for move in plot.shown(at)})
    yield _Entry(partial(_sample_strip, plot), "own value, part of the sum, all of it")
    yield _Entry(partial(_sample_arrow, 0, "move"), "sent and added")
    yield _Entry(partial(_sample_arrow, 0, "move keep"), "sent and kept")
    for lane in lanes if len(lanes) > 1 else ():
        yield _Entry(partial(_sample_arrow, lane, "move"), f"lane {lane}")


def _sample_strip(plot: _Plot, x: float, y: float) -> Iterator[str]:
    third, own = 9, STRIP / plot.schedule.ranks
    top, low = y - STRIP / 2, y + STRIP / 2
    yield f'<path class="strip" d="M{_n(x)},{_n(top)}h{3 * third}v{STRIP}h-{3 * third}z"/>'
    heights = (own, max(own, STRIP / 2))
    bars = [f"M{_n(x + at * third)},{_n(low)}v-{_n(h)}h{third}v{_n(h)}z" for at, h in enumerate(heights)]
    yield f'<path class="part" fill="{_colour(0)}" d="{"".join(bars)}"/>'
    yield f'<path fill="{_colour(0)}" d="M{_n(x + 2 * third)},{_n(low)}v-{STRIP}h{third}v{STRIP}z"/>'


def _sample_arrow(lane: int, kind: str, x: float, y: float) -> Iterator[str]:
    yield f'<path class="{kind}" stroke="{_colour(lane)}" stroke-width="2" d="M{_n(x)},{_n(y)}h20"/>'
    yield f'<path fill="{_colour(lane)}" d="M{_n(x + 27)},{_n(y)}l-{HEAD},-3.2v6.4z"/>'
