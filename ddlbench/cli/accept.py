"""`ddlbench accept`: pass or fail a cluster, and name the node that spoils it."""

import click


@click.command(
    "accept",
    short_help="Pass or fail a cluster: nodes alone, pairs, growing groups; bad nodes named.",
    context_settings={"max_content_width": 110},
)
@click.option("--topology", metavar="NAME|FILE", help="Expect what this machine should do: minsky, … or a TOML file.")
@click.option("--baseline", metavar="RUN", help="Expect what an earlier acceptance measured: its folder.")
@click.option("--rules", metavar="FILE.toml", help="What is demanded (docs/acceptance.md has the defaults).")
@click.option("--out", metavar="DIR", help="Where the files go (reports/accept-DATE).")
@click.option("--overwrite", is_flag=True, help="Replace an acceptance that is in DIR.")
def command(**options: object) -> int:
    """Judge a cluster under mpirun: each node alone, nodes in pairs, all of them for a while, and growing groups.

    \b
    ddlbench launch -- ddlbench accept --topology mine.toml
    mpirun -n 64 ddlbench accept --baseline reports/accept-good --rules strict.toml

    Exit status: 0 when nothing is too slow, 1 when something is. Without --topology and --baseline nodes are compared
    with each other. Writes a page, a CSV, JUnit XML, JSON, and the largest good group as a host file.
    """  # noqa: D301 - \b is for click
    from ddlbench.cli.faults import start_mpi

    start_mpi(None)
    from ddlbench.cli.accept_request import Request
    from ddlbench.cli.accepting import run

    return run(Request(**options))  # type: ignore[arg-type]
