"""Renderings of runs: the table of results, the CSV and the HTML page. They read records and nothing else."""

from ddlbench.report.csv import write_csv
from ddlbench.report.html import write_html
from ddlbench.report.tables import COLUMNS, results_table

__all__ = ["COLUMNS", "results_table", "write_csv", "write_html"]
