"""Two runs side by side: by how much each point changed, and whether that can be told from chance.

It reads records and nothing else. `docs/comparing.md` derives every figure.
"""

from ddlbench.compare.comparison import Comparison, Finding, compare
from ddlbench.compare.likeness import Difference
from ddlbench.compare.margin import Margin
from ddlbench.compare.tables import COLUMNS, comparison_table, write_csv

__all__ = ["COLUMNS", "Comparison", "Difference", "Finding", "Margin", "compare", "comparison_table", "write_csv"]
