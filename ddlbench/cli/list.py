"""`ddlbench list`: the algorithms there are, with what each costs."""

import click

EXAMPLE_RANKS = 8


@click.command("list", short_help="List the algorithms, with what each costs.")
@click.option("--ranks", metavar="N", help=f"Ranks that rounds and bytes are for ({EXAMPLE_RANKS}).")
@click.option("--grid", metavar="XxY", help="Ranks of a node × nodes, for --ranks.")
def command(ranks: str | None, grid: str | None) -> int:
    """List the algorithms that can be named wherever ddlbench wants one, with their rounds and bytes."""
    from ddlbench.cli.catalogue import listing
    from ddlbench.cli.ending import on_first_rank

    return on_first_rank(lambda: listing(ranks, grid))
