"""`ddlbench report`: make the tables and the page of a run again, from what it stored."""

import click


@click.command("report", short_help="Make results.csv and report.html again from a run.")
@click.argument("directory", metavar="DIR")
def command(directory: str) -> int:
    """Make DIR/results.csv and DIR/report.html again from the run stored in DIR."""
    from ddlbench.cli.ending import on_first_rank
    from ddlbench.cli.outputs import render

    return on_first_rank(lambda: render(directory))
