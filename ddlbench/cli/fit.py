"""`ddlbench fit`: measure the links of a launch, write them as a topology, and name what is slow."""

import click


@click.command(
    "fit",
    short_help="Measure the links of a launch, write a topology, name slow nodes and links.",
    epilog="Sizes: K, M and G are 1024ⁿ. Lists are separated by commas.",
    context_settings={"max_content_width": 110},
)
@click.option("--out", metavar="FILE.toml", help="Where the topology goes (topology.toml); pairs and map beside it.")
@click.option("--overwrite", is_flag=True, help="Replace the files that are there.")
@click.option("--sizes", metavar="SIZE,…", help="Sizes of messages, 0 being sent as 1 B (1 B to 4M, log spaced).")
@click.option("--max-seconds", metavar="S", help="What the measurement may take, about (60).")
@click.option("--nodes-per-rack", metavar="N", help="So many nodes stand in one rack, in order (all in one).")
def command(**options: object) -> int:
    """Measure the links of a launch under mpirun: every pair of ranks, both ways, and all pairs at once.

    \b
    mpirun -n 8 ddlbench fit --out mine.toml
    ddlbench predict all --topology mine.toml

    Writes the topology, each figure with its interval, and beside it the pairs (.links.json) and their map
    (.links.svg). Nodes and links that are slower than the others are named; docs/fitting.md says by which rule.
    """  # noqa: D301 - \b is for click
    from ddlbench.cli.faults import start_mpi

    start_mpi(None)
    from ddlbench.cli.fit_request import Request
    from ddlbench.cli.fitting import run

    return run(Request(**options))  # type: ignore[arg-type]
