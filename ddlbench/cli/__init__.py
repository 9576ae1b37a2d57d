"""The command line: `ddlbench VERB`, one file per verb. Nothing heavy is imported before a verb runs."""

import importlib
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from keyword import iskeyword

import click

from ddlbench import __version__
from ddlbench.cli.ending import ended
from ddlbench.errors import unknown

VERBS = (
    *("sweep", "report", "list", "show", "verify", "import", "compare", "predict", "fit", "accept", "tune"),
    *("lab", "launch"),
)
"""Each is a module of this package whose `command` is the click command; a keyword of Python has a `_` behind it."""


class Verbs(click.Group):
    """The verbs, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click gives it
        """Return the verbs in the order of the help."""
        return [*VERBS]  # `list` is the verb here, once it is loaded

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the verb `cmd_name`; raises `UsageError` with the nearest right spelling when there is none."""
        if cmd_name not in VERBS:
            raise unknown("command", cmd_name, VERBS)
        command: click.Command = importlib.import_module(f"ddlbench.cli.{cmd_name}{'_' * iskeyword(cmd_name)}").command
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="ddlbench", message="%(prog)s %(version)s")
def ddlbench() -> None:
    """Benchmark, prove and predict allreduce algorithms.

    \b
    mpirun -n 4 ddlbench sweep -b 8 -e 64M -f 4 -a ring,mpi --out results
    """  # noqa: D301 - \b is for click


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `arguments` (without the program's name; None: those of the process) and return the exit status."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a sign still gets the table
    return ended(lambda: ddlbench.main(words or ["--help"], prog_name="ddlbench", standalone_mode=False))
