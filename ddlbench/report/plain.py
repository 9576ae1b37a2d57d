"""Tables for a terminal."""

from textwrap import wrap

from ddlbench.report.markup import TextTable

PLAIN = str.maketrans({"µ": "u", "×": "x", "₀": "0", "–": "-", "…": "...", "≈": "~"})
"""What stands for a sign where there is ASCII only."""
COLUMNS = 116
"""Characters of a line of a note."""


def plain(table: TextTable) -> str:
    """Return the table in aligned columns, its caption above it and its notes below as comments.

    Nothing in it makes a terminal do more than show it.
    """
    rows = [tuple(map(_printable, row)) for row in (table.titles, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    above = [f"# {_printable(table.caption)}"] if table.caption else []
    below = [f"# {line}" for note in table.notes for line in wrap(_printable(note), COLUMNS, subsequent_indent="  ")]
    return "\n".join([*above, *(_line(row, widths, table.right) for row in rows), *below]) + "\n"


def fitting(text: str, encoding: str | None) -> str:
    """Return `text` with the signs that `encoding` lacks in other words: a terminal or a log may be ASCII."""
    try:
        text.encode(encoding or "ascii")
    except UnicodeEncodeError:
        return text.translate(PLAIN).encode(encoding or "ascii", "replace").decode(encoding or "ascii")
    return text


def _line(row: tuple[str, ...], widths: list[int], right: frozenset[int]) -> str:
    pairs = enumerate(zip(row, widths, strict=True))
    return "  ".join(cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in pairs).rstrip()


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)
