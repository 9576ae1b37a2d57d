"""`ddlbench tune`: from measured runs, the table that `algorithm="auto"` chooses by."""

import click


@click.command(
    "tune",
    short_help="Make the table that the algorithm auto chooses by, from measured runs.",
    context_settings={"max_content_width": 110},
)
@click.argument("directories", nargs=-1, required=True, metavar="DIR...")
@click.option("--out", metavar="FILE", help="Write one table of all shapes to FILE; DDLBENCH_TUNING=FILE has it used.")
def command(directories: tuple[str, ...], out: str | None) -> int:
    """Write down which algorithm to use at which size, as the run in DIR measured it.

    \b
    mpirun -n 4 ddlbench sweep -a ring,halving-doubling,direct,mpi --in-place both --out reports/mine
    ddlbench tune reports/mine
    mpirun -n 4 ddlbench sweep -a auto,mpi

    Without --out the table of each shape (nodes, and ranks on each) goes where auto looks for it: below
    ~/.config/ddlbench/tuning, by processor and MPI library. Several runs are put together when they are of one machine
    and measured different things. No algorithm wins where intervals overlap; docs/tuning.md has the rules.
    """  # noqa: D301 - \b is for click
    from ddlbench.cli.ending import on_first_rank
    from ddlbench.cli.tuned import Wanted, make

    return on_first_rank(lambda: make(Wanted(directories, out)))
