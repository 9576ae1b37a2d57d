"""Which algorithm to use at which size: tables made of measured runs, and what `auto` makes of them."""

from ddlbench.tuning.measured import Tuned, tune
from ddlbench.tuning.table import Range, Rule, Source, Table

__all__ = ["Range", "Rule", "Source", "Table", "Tuned", "tune"]
