"""A course as a picture: ranks over time, one self-contained SVG, for light and dark.

Each rank has a row. A bar in it is a message on its way to that rank, in the colour of the chunk it carries: what is
filled is added there, what is outlined is kept. A thin line leads from the sender's row to the bar. So one sees a
chunk wander from rank to rank round a ring, or the halves of a vector shrink and grow.
"""

from collections.abc import Iterator
from math import ceil, floor, log10
from xml.sax.saxutils import escape

from ddlbench.errors import UsageError
from ddlbench.timeline.course import Course, Message
from ddlbench.timeline.trace import lanes

MOST_MESSAGES = 12_000
MARGIN, LEFT, TOP, FOOT, WIDTH = 24, 118, 96, 84, 1200
TALLEST, SHORTEST, TALLEST_PLOT, NODE_GAP = 46, 5, 900, 8
MOST_LANES = 4
"""Bars of a row above each other, at most; of more, some lie on others."""
NAMED, LINKED = 11, 600
"""The least height of a row that has its rank's name, and the most messages whose senders are shown by lines."""
TICKS = 8
SLANT = 6
"""How far a line from a sender leans."""
STYLE = """
svg { --paper: #fff; --ink: #16191d; --soft: #59616b; --edge: #d5dae0; --panel: #f3f5f7; --bound: #b3261e;
  --light: 47%; --pale: 88%; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #14171b; --ink: #e8eaed; --soft: #a2aab4; --edge: #353c44; --panel: #1d2126; --bound: #ff6a5c;
    --light: 60%; --pale: 20%; } }
text { font: 12px system-ui, "Segoe UI", "Noto Sans", "Liberation Sans", Arial, sans-serif; fill: var(--ink); }
.title { font-size: 18px; font-weight: 600; }
.soft { fill: var(--soft); }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.paper { fill: var(--paper); }
.panel { fill: var(--panel); }
.grid { stroke: var(--edge); stroke-width: 1; }
.bound { stroke: var(--bound); stroke-width: 1.5; stroke-dasharray: 6 4; }
.limit { fill: var(--bound); }
.adds { fill: hsl(var(--hue) 62% var(--light)); }
.keeps { fill: hsl(var(--hue) 62% var(--pale)); stroke: hsl(var(--hue) 62% var(--light)); stroke-width: 1.2; }
.way { fill: none; stroke: hsl(var(--hue) 62% var(--light)); stroke-width: 1; opacity: .7; }
"""


def picture(course: Course, caption: str, bound: tuple[str, float] | None = None) -> str:
    """Return the picture as the text of an SVG file; `caption` is the line under its title.

    `bound` is the name of the limit that binds, and its seconds. Raises `UsageError` for more messages than can be
    seen.
    """
    if len(course.messages) > MOST_MESSAGES:
        raise UsageError(
            f"a picture shows up to {MOST_MESSAGES:,} messages, these are {len(course.messages):,}: ask for fewer "
            "ranks, a smaller vector, or a trace (a file that ends in .json)"
        )
    plot = _Plot(course)
    title = f"{course.name} on {course.placement.ranks} ranks, predicted"
    size = f'viewBox="0 0 {WIDTH} {plot.height:g}" width="{WIDTH}" height="{plot.height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(caption)}. Ranks are rows, time runs to the right.</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{plot.height:g}"/>',
        _text(MARGIN, 36, title, "title"),
        _text(MARGIN, 58, caption, "soft"),
        *plot.rows(),
        *plot.axis(),
        *plot.ways(),
        *plot.bars(),
        *(plot.limit(*bound) if bound else ()),
        *plot.legend(),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _n(value: float) -> str:
    return f"{round(float(value), 2):g}"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{escape(text)}</text>'


def time_text(seconds: float) -> str:
    """Return a time as µs, ms or s, to three digits or four."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds * 1e6:.4g} µs"


def marks(seconds: float) -> list[float]:
    """Return some round times from 0 on, up to `seconds`."""
    if seconds <= 0:
        return [0.0]
    rough = seconds / TICKS
    scale = 10.0 ** floor(log10(rough))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= rough)
    return [at * step for at in range(int(seconds / step * (1 + 1e-9)) + 1)]


class _Plot:
    """Where everything is."""

    def __init__(self, course: Course) -> None:
        self._course = course
        ranks, nodes = course.placement.ranks, course.placement.nodes
        self._row = min(TALLEST, max(SHORTEST, (TALLEST_PLOT - NODE_GAP * nodes) // ranks))
        self._gap = NODE_GAP if course.placement.ranks_per_node > 1 else 0
        self._bottom = TOP + self._row * ranks + self._gap * (nodes - 1)
        self.height = self._bottom + FOOT
        self._span = max(course.seconds, 1e-12)
        self._placed = {rank: lanes([m for m in course.messages if m.target == rank]) for rank in range(ranks)}
        most = max((lane for placed in self._placed.values() for lane, _ in placed), default=0) + 1
        self._lanes = min(MOST_LANES, most)

    def _x(self, seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - MARGIN) * seconds / self._span

    def _y(self, rank: int) -> float:
        return TOP + self._row * rank + self._gap * (rank // self._course.placement.ranks_per_node)

    def rows(self) -> Iterator[str]:
        """Yield a panel for each node, and the names of nodes and ranks."""
        place = self._course.placement
        each = place.ranks_per_node
        every = ceil(NAMED / self._row)
        for node in range(place.nodes):
            top, height = self._y(node * each), self._row * each
            if each > 1 or node % 2 == 0:
                size = f'width="{_n(WIDTH - LEFT - MARGIN)}" height="{_n(height)}"'
                yield f'<rect class="panel" x="{LEFT}" y="{_n(top)}" {size}/>'
            if height >= NAMED and (each > 1 or node % every == 0):
                yield _text(MARGIN, top + height / 2 + 4, f"node {node}", "soft")
        for rank in range(0, place.ranks, every):
            yield _text(LEFT - 8, self._y(rank) + self._row / 2 + 4, str(rank), "soft end")

    def axis(self) -> Iterator[str]:
        """Yield the lines of round times, and their names."""
        for at in marks(self._span):
            x = self._x(at)
            yield f'<path class="grid" d="M{_n(x)} {TOP - 4}V{_n(self._bottom + 4)}"/>'
            yield _text(x, self._bottom + 20, time_text(at) if at else "0", "soft middle")

    def bars(self) -> Iterator[str]:
        """Yield a bar for each message, in the row of its receiver."""
        for rank, placed in self._placed.items():
            for lane, message in placed:
                y, height = self._bar(rank, lane)
                x, end = self._x(message.left), self._x(message.arrived)
                size = f'x="{_n(x)}" y="{_n(y)}" width="{_n(max(end - x, 0.6))}" height="{_n(height)}" rx="1.5"'
                kind, hue = "adds" if message.adds else "keeps", self._hue(message)
                yield f'<rect class="{kind}" style="--hue:{hue}" {size}><title>{_told(message)}</title></rect>'

    def _bar(self, rank: int, lane: int) -> tuple[float, float]:
        """Return the top and the height of a bar."""
        inner = self._row * (0.76 if self._row > SHORTEST else 0.9)
        height = inner / self._lanes
        return self._y(rank) + (self._row - inner) / 2 + height * min(lane, self._lanes - 1), max(height - 1, 1)

    def _hue(self, message: Message) -> int:
        return round(360 * (message.chunk + 0.5 * (message.nchunks - 1)) / self._course.chunks) % 360

    def ways(self) -> Iterator[str]:
        """Yield a line from each message's sender to its bar, where they are few enough to be followed."""
        if len(self._course.messages) > LINKED:
            return
        for rank, placed in self._placed.items():
            for lane, message in placed:
                y, height = self._bar(rank, lane)
                start, x = self._y(message.source) + self._row / 2, self._x(message.left)
                path = f"M{_n(x - SLANT)} {_n(start)}L{_n(x)} {_n(y + height / 2)}"
                yield f'<path class="way" style="--hue:{self._hue(message)}" d="{path}"/>'

    def limit(self, name: str, seconds: float) -> Iterator[str]:
        """Yield the line before which no algorithm can be done."""
        x = self._x(min(seconds, self._span))
        yield f'<path class="bound" d="M{_n(x)} {TOP - 10}V{_n(self._bottom + 4)}"/>'
        told = f"no algorithm ends before {time_text(seconds)}: {name}"
        room = x > LEFT + 7 * len(told)
        yield _text(x + (-6 if room else 6), TOP - 12, told, "limit end" if room else "limit")

    def legend(self) -> Iterator[str]:
        """Yield what bars and colours mean."""
        y, course = self._bottom + 46, self._course
        for kind, x, told in (
            ("adds", LEFT, "on its way to the rank of the row, which adds it"),
            ("keeps", LEFT + 350, "which keeps it"),
        ):
            yield f'<rect class="{kind}" style="--hue:210" x="{x}" y="{_n(y - 10)}" width="22" height="12" rx="1.5"/>'
            yield _text(x + 30, y, told, "soft")
        of = f" of each of {course.segments} segments" if course.segments > 1 else ""
        yield from self._scale(LEFT + 510, y, f"chunk 0 … {course.chunks - 1}{of}")

    def _scale(self, x: float, y: float, told: str) -> Iterator[str]:
        steps = min(self._course.chunks, 24)
        for at in range(steps):
            hue, left = round(360 * at / steps), x + 120 * at / steps
            size = f'width="{_n(120 / steps)}" height="12"'
            yield f'<rect class="adds" style="--hue:{hue}" x="{_n(left)}" y="{_n(y - 10)}" {size}/>'
        yield _text(x + 130, y, told, "soft")


def _told(message: Message) -> str:
    """Return what a bar says when it is pointed at."""
    last = message.chunk + message.nchunks - 1
    chunks = f"chunk {message.chunk}" if message.nchunks == 1 else f"chunks {message.chunk} to {last}"
    where = f"rank {message.source} to {message.target}, {chunks}, {message.nbytes:.0f} B, over {message.link}"
    when = f"{time_text(message.left)} to {time_text(message.arrived)}"
    return escape(f"{where}: {when}; round {message.round}, segment {message.segment}")
