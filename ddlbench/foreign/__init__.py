"""Logs of other benchmarks, read into points that say what they are: means, from a program that is not ours.

One module per program; `read_log` finds out which wrote a log, or a part of it, by the titles it prints.
"""

from ddlbench.foreign.formats import FORMATS
from ddlbench.foreign.log import Log, Unread, read_lines, read_log
from ddlbench.foreign.points import Given, Imported, points_of
from ddlbench.foreign.section import Row, Section

__all__ = [
    "FORMATS",
    "Given",
    "Imported",
    "Log",
    "Row",
    "Section",
    "Unread",
    "points_of",
    "read_lines",
    "read_log",
]
