"""`ddlbench report`: make the tables and the page of a run again, from what it stored, or those of several runs."""

import click


@click.command(
    "report",
    short_help="Make tables and the HTML page of a run, or of several.",
    context_settings={"max_content_width": 110},
)
@click.argument("directories", nargs=-1, required=True, metavar="DIR...")
@click.option("--html", metavar="FILE", help="Write the page to FILE.")
@click.option("--csv", metavar="FILE", help="Write a row for each point to FILE.")
@click.option(
    "--table",
    is_flag=False,
    flag_value="plain",
    metavar="[plain|markdown|latex]",
    help="Write the tables to standard output; alone, as the last option, it means plain.",
)
@click.option(
    "--scaling",
    is_flag=False,
    flag_value="plain",
    metavar="[plain|markdown|latex|csv]",
    help="Write the scaling tables to standard output; alone, as the last option, it means plain.",
)
@click.option("--all", "every", is_flag=True, help="With --scaling: every size and algorithm.")
@click.option(
    "--baseline", metavar="NxR", help="Hold shapes against N nodes of R ranks (the fewest ranks above one there are)."
)
def command(directories: tuple[str, ...], every: bool, **options: str | None) -> int:
    """Make DIR/results.csv and DIR/report.html again from the run stored in DIR, or what is asked for instead.

    \b
    ddlbench report reports/latest
    ddlbench report reports/latest --baseline 2x1
    ddlbench report reports/p2 reports/p4 reports/p8 --html all.html --csv all.csv
    ddlbench report reports/latest --table markdown
    ddlbench report reports/latest --scaling latex --all

    Of a run with several shapes (nodes, and ranks on each), or of several runs, the page shows who wins as ranks are
    added, and how efficiency falls; DIR/scaling.csv has its table. Algorithms are compared within a run only; ddlbench
    compare holds one run against another.
    """  # noqa: D301 - \b is for click
    from ddlbench.cli.ending import on_first_rank
    from ddlbench.cli.reporting import Wanted, show

    return on_first_rank(lambda: show(Wanted(directories, every=every, **options)))
