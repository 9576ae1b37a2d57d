"""`ddlbench sweep`: measure algorithms over sizes, dtypes and reductions, under mpirun."""

import sys
from pathlib import Path

import click

from ddlbench.cli.numbers import Whole


@click.command(
    "sweep",
    short_help="Measure and check algorithms over sizes, dtypes and reductions.",
    epilog="Sizes: K, M and G are 1024ⁿ. Lists are separated by commas. A flag takes the place of the file's value.",
    context_settings={"max_content_width": 110},
)
@click.argument("config", required=False, metavar="[CONFIG.toml]")
@click.option("-b", "--min-bytes", "--minbytes", "min_bytes", metavar="SIZE", help="First size (8).")
@click.option("-e", "--max-bytes", "--maxbytes", "max_bytes", metavar="SIZE", help="Last size (64M).")
@click.option("-f", "--step-factor", "--stepfactor", "step_factor", metavar="N", help="Factor between sizes (4).")
@click.option("-i", "--step-bytes", "--stepbytes", "step_bytes", metavar="SIZE", help="Step between sizes, for -f.")
@click.option("--sizes", metavar="SIZE,…", help="These sizes, for -b, -e, -f and -i.")
@click.option("--workload", metavar="NAME", help="The gradient tensors of a model: resnet50, … or a CSV file.")
@click.option("--fuse", metavar="SIZE", help="Gather the workload's tensors into buffers of up to this size.")
@click.option("-a", "--algorithms", "algorithms", multiple=True, metavar="NAME,…", help="Algorithms (ring,mpi).")
@click.option(
    "-d", "--dtypes", "--datatype", "dtypes", multiple=True, metavar="NAME,…", help="Types, or all (float32)."
)
@click.option("-o", "--ops", "--op", "ops", multiple=True, metavar="NAME,…", help="Reductions, or all (sum).")
@click.option(
    "--in-place",
    is_flag=False,
    flag_value="yes",
    metavar="[no|yes|both]",
    help="Reduce within one buffer; alone it means yes (no).",
)
@click.option(
    "-n",
    "--iterations",
    "--iters",
    "iterations",
    metavar="N",
    help="Samples of a point (as many as --ci and --max-seconds ask).",
)
@click.option("-w", "--warmup", "--warmup-iters", "warmup", metavar="N", help="Runs before the samples (5).")
@click.option("--ci", metavar="SHARE", help="Stop when the median's 95 % interval is narrower than this (5%).")
@click.option("--max-seconds", metavar="S", help="Time for the samples of a point, without -n (0.5).")
@click.option("--passes", metavar="N", help="Passes over the sweep that a point's samples come from (5).")
@click.option("--seed", metavar="N", help="Orders of the passes (1).")
@click.option("--sync", metavar="[auto|barrier|window]", help="How ranks start together (auto: window where it may).")
@click.option("--cache", metavar="[warm|cold]", help="Whether a vector may still be in cache from the last run (warm).")
@click.option("--per-rank", is_flag=False, flag_value="1", metavar="[0|1]", help="Store each rank's own times (0).")
@click.option("-c", "check", is_flag=False, flag_value="1", metavar="[0|1]", help="Check results, as --check (1).")
@click.option("--check/--no-check", "checked", default=None, help="Compare every element of every result, or none.")
@click.option(
    "--transport",
    metavar="[auto|direct|p2p]",
    help="Shared memory inside nodes (direct, auto), or messages alone; on GPUs cuda-ipc, cuda-aware or staged.",
)
@click.option(
    "--buffers", metavar="[ordinary|registered]", help="Arrays of any memory, or such as all ranks of a node address."
)
@click.option(
    "--huge-pages",
    is_flag=False,
    flag_value="1",
    metavar="[0|1]",
    help="Put buffers, and what ranks share, in huge pages (0); refused where there are none.",
)
@click.option("--device", metavar="[host|cuda]", help="Where the vectors are: cuda is in the memory of GPUs (host).")
@click.option(
    "--share-device",
    is_flag=False,
    flag_value="1",
    metavar="[0|1]",
    help="Let ranks of a node use one GPU together (0); without it that is refused.",
)
@click.option("--grid", metavar="XxY", help="Ranks of a node × nodes (as found).")
@click.option("--nodes", metavar="N,…", help="Measure on the first N nodes, and so on for each number (all nodes).")
@click.option(
    "--ranks-per-node",
    "--gpus-per-node",
    "ranks_per_node",
    metavar="R,…",
    help="With the first R ranks of each, for each number (all ranks); one rank drives one GPU.",
)
@click.option("--out", metavar="DIR", help="Where the results go (reports/sweep-DATE-TIME).")
@click.option("--overwrite", is_flag=True, help="Replace a run that is in DIR.")
@click.option(
    "--format",
    "form",
    default="table",
    metavar="FORM",
    help="What stdout gets: table, or at the end csv, jsonl, osu or nccl.",
)
@click.option(
    "--expect-ranks",
    type=Whole(1),
    envvar="DDLBENCH_EXPECT_RANKS",
    metavar="N",
    help="Refuse a launch of another number of ranks; ddlbench launch sets it.",
)
@click.option(
    "--expect-nodes",
    type=Whole(1),
    envvar="DDLBENCH_EXPECT_NODES",
    metavar="N",
    help="The same for nodes.",
)
@click.option(
    "--timeout",
    metavar="S",
    help="End with status 3 when nothing moves for S seconds, or none (60, more where the model says so).",
)
@click.option("--resume", metavar="DIR", help="Go on with the run in DIR: measure what is missing there.")
def command(
    config: str | None,
    out: str | None,
    resume: str | None,
    form: str,
    checked: bool | None,
    overwrite: bool,
    expect_ranks: int | None,
    expect_nodes: int | None,
    **flags: str | tuple[str, ...] | None,
) -> int:
    """Measure and check algorithms over sizes, dtypes and reductions.

    \b
    mpirun -n 4 ddlbench sweep -b 8 -e 64M -f 4 -a ring,multi-ring:2,mpi
    mpirun -n 4 ddlbench sweep --workload resnet50 --fuse 64M
    mpirun -n 4 ddlbench sweep configs/sweeps/quick.toml --out results
    mpirun -n 8 ddlbench sweep --nodes 1,2,4 --ranks-per-node 1,2
    """  # noqa: D301 - \b is for click
    from ddlbench.bench.config import timeout_of
    from ddlbench.cli.faults import start_mpi

    start_mpi(timeout_of({name: value for name, value in flags.items() if value is not None}))
    from ddlbench.cli.session import Request, run
    from ddlbench.errors import unknown
    from ddlbench.report.printed import FORMS

    if form not in ("table", *FORMS):
        raise unknown("format", form, ("table", *FORMS))
    if resume is not None and (out is not None or overwrite):
        raise click.UsageError("--resume DIR names the run to go on with: leave out --out and --overwrite")
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    if checked is not None:
        given["check"] = str(checked)
    request = Request(
        config=None if config is None else Path(config),
        flags=given,
        out=Path(place) if (place := resume or out) else None,
        overwrite=overwrite,
        resume=resume is not None,
        form=form,
        command=("ddlbench", *sys.argv[1:]),
        expect_ranks=expect_ranks,
        expect_nodes=expect_nodes,
    )
    return run(request)
