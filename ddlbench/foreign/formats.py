"""The formats that can be read."""

import re

from ddlbench.foreign.imb import IMB
from ddlbench.foreign.nccl_tests import HEADER, NCCL_TESTS
from ddlbench.foreign.oneccl import ONECCL
from ddlbench.foreign.osu import OMB_PY, OSU
from ddlbench.foreign.section import Format, OtherSection, Section

OURS = re.compile(r"# ddlbench \S+: ")


def _opened(line: str) -> Section | None:
    if not OURS.match(line):
        return None
    return OtherSection("a table of ddlbench, whose run directory holds more", lambda title: bool(HEADER.match(title)))


FORMATS = (OSU, OMB_PY, IMB, NCCL_TESTS, ONECCL)
RECOGNISED = (*FORMATS, Format("ddlbench", "", _opened))
"""Ours too, so that figures of a sweep do not come back as those of another program."""
