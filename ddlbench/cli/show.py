"""`ddlbench show`: a schedule as a picture."""

import click


@click.command("show", short_help="Draw an algorithm's schedule, or write it to a file.")
@click.argument("algorithm", metavar="ALGORITHM")
@click.option("--ranks", metavar="N", help="Ranks to draw it for (8).")
@click.option("--grid", metavar="XxY", help="Ranks of a node × nodes, such as 4x2, for --ranks.")
@click.option("--rounds", metavar="A-B", help="Draw these rounds (all, or the first and last of many).")
@click.option("--only", metavar="A-B", help="Draw these ranks (the first 16).")
@click.option("--explain", is_flag=True, help="Say how the algorithm works, in the words of its file.")
@click.option("--svg", metavar="FILE", help="Write the picture to an SVG file.")
@click.option("--json", metavar="FILE", help="Write the schedule to a JSON file, which can be run as an algorithm.")
def command(algorithm: str, ranks: str | None, grid: str | None, **options: str | bool | None) -> int:
    """Draw what every rank sends, adds and keeps in every round of ALGORITHM, and how much of the sum it then holds.

    \b
    ddlbench show ring --ranks 4
    ddlbench show multi-ring:4x2 --svg multi-ring.svg
    ddlbench show ./mine.py:bruck --ranks 6 --json bruck-6.json

    ALGORITHM may be a schedule file. Exit status 1 means that the schedule is drawn, but is no allreduce.
    """  # noqa: D301 - \b is for click
    from ddlbench.cli.ending import on_first_rank
    from ddlbench.cli.picture import Wanted, show

    return on_first_rank(lambda: show(Wanted(algorithm, ranks, grid, **options)))  # type: ignore[arg-type]
