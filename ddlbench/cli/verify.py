"""`ddlbench verify`: prove an algorithm right on a number of ranks."""

import click


@click.command("verify", short_help="Prove an algorithm right on a number of ranks.")
@click.argument("algorithm", metavar="ALGORITHM")
@click.option("--ranks", metavar="N", help="Ranks to prove it for (8).")
@click.option("--grid", metavar="XxY", help="Ranks of a node × nodes, such as 4x64, for --ranks.")
def command(algorithm: str, ranks: str | None, grid: str | None) -> int:
    """Prove that ALGORITHM is an allreduce: that every contribution arrives exactly once, on every rank.

    The tables that the ranks would run are what is proved. Exit status 1 means that it was refused; the message names
    the round, the rank and the move.
    """
    from ddlbench.cli.catalogue import proof
    from ddlbench.cli.ending import on_first_rank

    return on_first_rank(lambda: proof(algorithm, ranks, grid))
