"""What a run stores and how it is read back: the run directory is the truth that every report is made from."""

from ddlbench.records.point import Point, Stated
from ddlbench.records.reading import POINTS_FILE, RUN_FILE, Loaded, load, read_run
from ddlbench.records.run import Run, TrustFlag
from ddlbench.records.store import Store, add_fault

__all__ = [
    "POINTS_FILE",
    "RUN_FILE",
    "Loaded",
    "Point",
    "Run",
    "Stated",
    "Store",
    "TrustFlag",
    "add_fault",
    "load",
    "read_run",
]
