"""`ddlbench launch`: start a command on the hosts of an allocation, and say whether it did what it was to do."""

import sys
from pathlib import Path

import click

from ddlbench.cli.numbers import Seconds, Whole

WHOLE = Whole(1)


@click.command(
    "launch",
    short_help="Start a sweep on the hosts of an allocation, checked first and watched.",
    context_settings={"allow_interspersed_args": False, "max_content_width": 110},
)
@click.option("-H", "--hosts", metavar="HOST[:N],…", help="These hosts, with N slots each; node[0-3]:2 works too.")
@click.option("--hostfile", metavar="FILE", help="The hosts of a file: `node0 slots=2` or `node0:2` on each line.")
@click.option("--mode", metavar="p:4x2", help="PowerAI DDL's mode: a letter and a grid, ranks of a node × nodes.")
@click.option("-n", "--ranks", type=WHOLE, metavar="N", help="Ranks in all (as many as there are slots).")
@click.option(
    "--ranks-per-node",
    "--gpus-per-node",
    "ranks_per_node",
    type=WHOLE,
    metavar="N",
    help="Ranks on each host; one rank drives one GPU.",
)
@click.option("--nodes", type=WHOLE, metavar="N", help="The first N hosts only.")
@click.option("--oversubscribe", is_flag=True, help="More ranks on a host than it has slots are meant.")
@click.option("--mpi", metavar="NAME", help="openmpi5, openmpi4, mpich, intel or spectrum (the one this Python uses).")
@click.option("--launcher", metavar="WORDS", help="Start with these words, such as 'srun --mpi=pmix' (as found).")
@click.option("--check/--no-check", default=True, help="Ask the hosts before the start whether they are alike.")
@click.option("--check-seconds", type=Seconds(1), default=60.0, metavar="S", help="Time for that (60).")
@click.option("--dry-run", is_flag=True, help="Print the command and start nothing.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
def command(
    words: tuple[str, ...],
    hosts: str | None,
    hostfile: str | None,
    check: bool,
    check_seconds: float,
    dry_run: bool,
    launcher: str | None,
    mpi: str | None,
    **wish: str | int | bool | None,
) -> int:
    """Start COMMAND on the hosts of this job (SLURM, LSF, PBS), of -H or --hostfile, or on this machine.

    Exit status: 0 when the run is finished, 3 when it is not, 2 for what was refused, else the command's own.

    \b
    ddlbench launch -- ddlbench sweep configs/sweeps/quick.toml --out results
    ddlbench launch -H node0:2,node1:2 --mode p:2x2 -- ddlbench sweep -b 1M -e 64M
    ddlbench launch --dry-run -n 8 -- ddlbench sweep
    """  # noqa: D301 - \b is for click
    from ddlbench.cli.launching import Request, launch
    from ddlbench.launch.layout import Wish

    arguments = sys.argv[1:]
    own = arguments[: len(arguments) - len(words)] if tuple(arguments[-len(words) :]) == words else ["launch"]
    request = Request(
        words=words,
        hosts=hosts,
        hostfile=None if hostfile is None else Path(hostfile),
        wish=Wish(**wish),  # type: ignore[arg-type]  # click has seen to the types
        mpi=mpi,
        launcher=launcher,
        check_seconds=check_seconds if check else None,
        dry_run=dry_run,
        own=("ddlbench", *(word for word in own if word != "--")),
    )
    return launch(request)
