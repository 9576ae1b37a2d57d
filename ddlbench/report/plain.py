"""Tables for a terminal."""

from ddlbench.report.markup import TextTable


def plain(table: TextTable) -> str:
    """Return the table in aligned columns, its caption above it as a comment.

    Nothing in it makes a terminal do more than show it.
    """
    rows = [tuple(map(_printable, row)) for row in (table.titles, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    above = [f"# {_printable(table.caption)}"] if table.caption else []
    return "\n".join([*above, *(_line(row, widths, table.right) for row in rows)]) + "\n"


def _line(row: tuple[str, ...], widths: list[int], right: frozenset[int]) -> str:
    pairs = enumerate(zip(row, widths, strict=True))
    return "  ".join(cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in pairs).rstrip()


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)
