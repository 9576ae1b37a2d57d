"""`ddlbench predict`: what algorithms would take on a machine that is described and not here."""

import sys

import click


@click.command(
    "predict",
    short_help="Price algorithms on a described machine, and the training of a model.",
    epilog="Sizes: K, M and G are 1024ⁿ. Lists are separated by commas. A topology is a name or a TOML file.",
    context_settings={"max_content_width": 110},
)
@click.argument("algorithms", required=False, default="all", metavar="[ALGORITHM,…|all]")
@click.option("--topology", required=True, metavar="NAME|FILE", help="The machine: minsky, dgx-1, … or a TOML file.")
@click.option("--nodes", metavar="N,…", help="Numbers of nodes: 1,2,4  1..64  1,2,4,…,64 (doubling, up to 64).")
@click.option("--ranks-per-node", "ranks_per_node", metavar="R,…", help="Ranks on each node (all it has).")
@click.option("-b", "--min-bytes", "--minbytes", "min_bytes", metavar="SIZE", help="First size (8).")
@click.option("-e", "--max-bytes", "--maxbytes", "max_bytes", metavar="SIZE", help="Last size (64M).")
@click.option("-f", "--step-factor", "--stepfactor", "step_factor", metavar="N", help="Factor between sizes (4).")
@click.option("-i", "--step-bytes", "--stepbytes", "step_bytes", metavar="SIZE", help="Step between sizes, for -f.")
@click.option("--sizes", metavar="SIZE,…", help="These sizes, for -b, -e, -f and -i.")
@click.option("--workload", metavar="NAME", help="The training of a model: resnet50, … or a CSV file of its tensors.")
@click.option("--fuse", metavar="SIZE", help="Gather the model's tensors into buffers of up to this size.")
@click.option("-d", "--dtypes", "--datatype", "dtypes", multiple=True, metavar="NAME,…", help="Types (float32).")
@click.option("--set", "changes", multiple=True, metavar="NAME=FIGURE", help="What if: nic.bandwidth=200gbit.")
@click.option("--sweep", "swept", metavar="NAME=FIGURE,…", help="What if, curve by curve: nic.bandwidth=25gbit,50gbit.")
@click.option("--timeline", metavar="FILE", help="One run, message by message: a picture (.svg) or a trace (.json).")
@click.option("--batch", metavar="N", help="Samples of an iteration on each rank (as the source of its time).")
@click.option("--forward-ms", metavar="MS", help="Time of the forward pass (a published one).")
@click.option("--backward-ms", metavar="MS", help="Time of the backward pass (a published one).")
@click.option("--ready", default="even", metavar="[even|size]", help="How backward spreads over tensors (even).")
@click.option("--overlap/--no-overlap", default=True, help="Whether gradients are reduced during backward (they are).")
@click.option("--out", metavar="DIR", help="Store the points as a run of the kind predicted, with its reports.")
@click.option("--overwrite", is_flag=True, help="Replace a run that is in DIR.")
@click.option("--format", "form", default="table", metavar="FORM", help="table, or csv, jsonl, osu or nccl.")
def command(algorithms: str, **options: object) -> int:
    """Price the schedules of algorithms, and the training of a model, on a machine that is described and not here.

    \b
    ddlbench predict all --topology minsky --nodes 64 -b 8 -e 64M -f 4
    ddlbench predict ring,multi-ring:4x8x8 --topology minsky --nodes 64 --sizes 1M,64M
    ddlbench predict --workload resnet50 --fuse 64M --topology minsky --nodes 1,2,4,…,64
    ddlbench predict all --topology minsky --sizes 64M --sweep nic.bandwidth=25gbit,50gbit,100gbit --out what-if
    ddlbench predict ring --topology minsky --nodes 2 --sizes 1M --timeline ring.svg

    Nothing runs: every figure follows from the topology file, and docs/model.md says how.
    """  # noqa: D301 - \b is for click
    from ddlbench.cli.ending import on_first_rank
    from ddlbench.cli.predicting import Request, run

    words = ("ddlbench", *sys.argv[1:])
    return on_first_rank(lambda: run(Request(algorithms=algorithms, command=words, **options)))  # type: ignore[arg-type]
