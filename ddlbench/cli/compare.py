"""`ddlbench compare`: what changed from one run to another, and whether it can be told from chance."""

import click


@click.command(
    "compare",
    short_help="Compare two runs point by point: slower, faster, same or unclear.",
    epilog="Fractions: 5% or 0.05.",
    context_settings={"max_content_width": 110},
)
@click.argument("base", metavar="BASE")
@click.argument("new", metavar="NEW")
@click.option("--margin", metavar="FRACTION", help="Change up to which times count as the same (5%).")
@click.option(
    "--fail-if-slower",
    metavar="FRACTION",
    help="Take this for --margin; exit status 1 if a point of NEW is slower by more, or lost.",
)
@click.option("--anyway", is_flag=True, help="Compare runs of different topologies or ways of measuring.")
@click.option("--csv", metavar="FILE", help="Write a row for each point to FILE.")
@click.option("--table", metavar="FORM", help="Write the table as markdown or latex.")
def command(base: str, new: str, **options: str | bool | None) -> int:
    """Compare the run in the directory NEW with the run in BASE, point by point.

    \b
    ddlbench compare reports/before reports/after
    ddlbench compare reports/accepted reports/latest --fail-if-slower 5%

    A point is slower or faster when the rank-sum test, corrected for the number of points, and the 95 % interval of the
    ratio of medians both say so by more than the margin; the same when the interval lies within the margin; otherwise
    it is unclear. docs/comparing.md says what that rests on.
    """  # noqa: D301 - \b is for click
    from ddlbench.cli.comparison import Wanted, show
    from ddlbench.cli.ending import on_first_rank

    return on_first_rank(lambda: show(Wanted(base, new, **options)))  # type: ignore[arg-type]
