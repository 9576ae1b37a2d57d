"""Renderings of runs: the tables of results and of scaling, the CSV and the HTML page.

They read records and nothing else.
"""

from ddlbench.report.csv import write_csv, write_scaling_csv
from ddlbench.report.html import write_html
from ddlbench.report.scaling_table import scaling_table, scalings
from ddlbench.report.tables import COLUMNS, results_table

__all__ = ["COLUMNS", "results_table", "scaling_table", "scalings", "write_csv", "write_html", "write_scaling_csv"]
