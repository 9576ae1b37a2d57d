"""The pairs as a picture: two maps of rank × rank, for latency and bandwidth, in one self-contained SVG.

The slower, the darker, compared with the best pair of the same class: inside nodes, between nodes, between racks. The
scale is logarithmic and goes to a factor of four at least, so that noise stays pale. What was named slow has a thick
edge, and a line below that says so.
"""

from collections.abc import Iterator, Sequence
from math import log
from xml.sax.saxutils import escape

from ddlbench.links.judge import Measured, Slow
from ddlbench.topology import Topology

MARGIN, TOP, LABEL, GAP, LINE = 20, 96, 92, 60, 20
LARGEST, SMALLEST = 62, 9
"""Sides of a cell, where there are few ranks and many."""
PLOT = 520
"""A map is no wider, unless cells would become too small."""
MOST_TEXTS = 12
"""Ranks up to which cells carry their figures, and all ranks their names."""
LETTER, NARROWEST = 6.2, 640
LEAST_FACTOR = 4.0
STYLE = """
svg { --paper: #fff; --ink: #16191d; --soft: #59616b; --edge: #b9c0c8; --heat: #b3261e; --none: #eef0f2; --on: #16191d;
  --bad: #16191d; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #14171b; --ink: #e8eaed; --soft: #a2aab4; --edge: #565e68; --heat: #ff6a5c; --none: #1d2126;
    --on: #e8eaed; --bad: #fff; } }
text { font: 12px system-ui, "Segoe UI", "Noto Sans", "Liberation Sans", Arial, sans-serif; fill: var(--ink); }
.title { font-size: 16px; font-weight: 600; }
.soft { fill: var(--soft); }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.figure { text-anchor: middle; font-size: 11px; fill: var(--on); }
.paper { fill: var(--paper); }
.none { fill: var(--none); stroke: var(--edge); stroke-width: .5; }
.pair { fill: var(--heat); stroke: none; }
.slow { fill: none; stroke: var(--bad); stroke-width: 2.5; }
"""
MAPS = (("latency", "latency (µs)"), ("bandwidth", "bandwidth (GB/s)"))


def svg(topology: Topology, pairs: Sequence[Measured], slow: Sequence[Slow], words: Sequence[str], title: str) -> str:
    """Return the picture as the text of an SVG file; `words` are the lines that stand below the maps."""
    plot = _Plot(topology, pairs, slow)
    below = TOP + plot.side + 2 * LINE
    width = max(plot.width, NARROWEST, 2 * MARGIN + LETTER * max(map(len, (title, *words))))
    height = below + LINE * (len(words) + 1)
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape('. '.join(words))}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>',
        _text(MARGIN, 32, title, "title"),
        *plot.map("latency", MARGIN + LABEL, MAPS[0][1]),
        *plot.map("bandwidth", MARGIN + LABEL + plot.side + GAP + LABEL, MAPS[1][1]),
        *(_text(MARGIN, below + LINE * at, line, "soft" if at else "") for at, line in enumerate(words)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{escape(text)}</text>'


class _Plot:
    """Where the cells are; ranks that were in no pair have no row."""

    def __init__(self, topology: Topology, pairs: Sequence[Measured], slow: Sequence[Slow]) -> None:
        self._topology, self._pairs, self._slow = topology, pairs, slow
        ranks = sorted({rank for pair in pairs for rank in pair.ranks})
        self._at = {rank: at for at, rank in enumerate(ranks)}
        self._cell = min(LARGEST, max(SMALLEST, PLOT // max(len(ranks), 1)))
        self.side = self._cell * len(ranks)
        self.width = 2 * MARGIN + 2 * LABEL + 2 * self.side + GAP

    def map(self, what: str, left: float, title: str) -> Iterator[str]:
        """Yield one map: names, cells, edges of what is slow."""
        yield _text(left, TOP - 34, title, "title")
        yield from self._names(left)
        yield f'<rect class="none" x="{left:g}" y="{TOP}" width="{self.side}" height="{self.side}"/>'
        least: dict[str, float] = {}
        for pair in self._pairs:
            least[pair.kind] = min(least.get(pair.kind, pair.cost(what)), pair.cost(what))
        over = [pair.cost(what) - least[pair.kind] for pair in self._pairs]
        span = max(*over, log(LEAST_FACTOR))
        for pair, cost in zip(self._pairs, over, strict=True):
            for row, column in (pair.ranks, pair.ranks[::-1]):
                yield from self._pair(pair, what, (left, row, column), cost / span)
        yield from self._edges(what, left)

    def _names(self, left: float) -> Iterator[str]:
        every = max(1, -(-len(self._at) // (2 * MOST_TEXTS)))
        for rank, at in self._at.items():
            if at % every == 0:
                middle = (at + 0.5) * self._cell
                node = self._topology.hosts[rank]
                yield _text(left - 6, TOP + middle + 4, f"{node[:9]} {rank}", "soft end")
                yield _text(left + middle, TOP - 8, str(rank), "soft middle")

    def _pair(self, pair: Measured, what: str, where: tuple[float, int, int], heat: float) -> Iterator[str]:
        left, row, column = where
        x, y, c = left + self._at[column] * self._cell, TOP + self._at[row] * self._cell, self._cell
        told = f"ranks {row} and {column}: {figure(pair, 'latency')} µs, {figure(pair, 'bandwidth')} GB/s"
        cell = f'x="{x:g}" y="{y:g}" width="{c - 1}" height="{c - 1}" fill-opacity="{0.08 + 0.8 * heat:.2f}"'
        yield f'<rect class="pair" {cell}><title>{escape(told)}</title></rect>'
        if len(self._at) <= MOST_TEXTS:
            yield _text(x + c / 2, y + c / 2 + 4, figure(pair, what), "figure")

    def _edges(self, what: str, left: float) -> Iterator[str]:
        for found in self._slow:
            if found.what != what:
                continue
            if found.pair is not None:
                rows = [self._at[rank] for rank in found.pair.ranks]
                for row, column in (rows, rows[::-1]):
                    yield self._edge(left, row, column, 1, 1)
                continue
            own = [at for rank, at in self._at.items() if self._topology.node_of[rank] == found.node]
            yield self._edge(left, min(own), 0, len(own), len(self._at))
            yield self._edge(left, 0, min(own), len(self._at), len(own))

    def _edge(self, left: float, row: int, column: int, rows: int, columns: int) -> str:
        c = self._cell
        x, y, width, height = left + column * c, TOP + row * c, columns * c - 1, rows * c - 1
        return f'<rect class="slow" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'


def figure(pair: Measured, what: str) -> str:
    """Return a pair's latency in microseconds or bandwidth in GB/s, three digits."""
    value = pair.latency_s * 1e6 if what == "latency" else pair.bytes_per_s / 1e9
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
