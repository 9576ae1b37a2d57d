"""`ddlbench import`: logs of other benchmarks as a run that reports and compares like ours."""

import sys

import click


@click.command("import", short_help="Read logs of other benchmarks into a run.")
@click.argument("logs", nargs=-1, required=True, metavar="[NAME=]LOG...")
@click.option("--out", metavar="DIR", help="Where the run goes (reports/import-DATE-TIME).")
@click.option("--overwrite", is_flag=True, help="Replace a run that is in DIR.")
@click.option("--ranks", metavar="N", help="Ranks, for logs that do not say (OSU, OMB-Py).")
@click.option("--nodes", metavar="N", help="Nodes, for logs that do not say (1).")
@click.option("--dtype", metavar="NAME", help="Element type, for logs that do not say.")
@click.option("--device", metavar="NAME", help="Where the vectors were, for logs that do not say (cpu).")
@click.option("--in-place", is_flag=True, help="The results replaced the input, for logs that do not say.")
def command(logs: tuple[str, ...], **options: str | bool | None) -> int:
    """Read the LOGs of osu_allreduce, OMB-Py, IMB, nccl-tests or oneCCL's benchmark into one run.

    \b
    ddlbench import osu.log --ranks 64 --nodes 4 --out osu
    ddlbench import mpich=a.log openmpi=b.log --ranks 64 --out two
    ddlbench import nccl.log imb.log

    Results are called after their program, or NAME: "mpi" sets them beside ddlbench's own mpi. Lines that cannot be
    read are named; the others are used. Exit status 2 means that nothing could be read.
    """  # noqa: D301 - \b is for click
    from ddlbench.cli.ending import on_first_rank
    from ddlbench.cli.importing import Request, run

    return on_first_rank(lambda: run(Request(logs, ("ddlbench", *sys.argv[1:]), **options)))  # type: ignore[arg-type]
