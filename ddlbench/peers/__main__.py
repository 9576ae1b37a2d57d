"""The command that `make peers` runs."""

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import click

import ddlbench
from ddlbench.errors import DdlbenchError, UsageError

SOURCE = Path(ddlbench.__file__).resolve().parents[1]
INTERRUPTED = 130


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--ranks", type=click.IntRange(min=1), default=2, show_default=True, help="Ranks of every contender.")
@click.option("--launcher", default="mpirun", show_default=True, help="Starts ranks of this Python's MPI, with -n N.")
@click.option("--venv", default=".venv", show_default=True, help="The environment that the others are made beside.")
@click.option("--config", default=str(SOURCE / "configs" / "sweeps" / "peers.toml"), help="What each measures.")
@click.option("--out", default="reports/peers", show_default=True, help="Where the results go.")
@click.option("--passes", type=click.IntRange(min=1), default=5, show_default=True, help="Starts of each contender.")
@click.option("--torch", default="1", help="What brings gloo: 1 for torch, torch==2.13.0, or 0 for none [default: 1].")
@click.option("--fast", is_flag=True, help="Hold the direct transport against the fastest MPI library instead.")
@click.option("--only", type=click.Choice(["node", "lab"]), help="With --fast: this node or the virtual cluster alone.")
def command(launcher: str, torch: str, *, fast: bool, only: str | None, **given: Any) -> int:
    """Compare MPI_Allreduce of Open MPI, MPICH and Intel MPI, gloo and ddlbench's best algorithm, in turns."""
    from ddlbench.peers.comparison import Comparison, Request
    from ddlbench.peers.fast import Fast

    if not (SOURCE / "setup.py").is_file():
        raise UsageError("ddlbench is compiled for each MPI, so peers are compared from its source tree: make peers")
    if only and not fast:
        raise UsageError(f"--only {only} is for --fast, as in make bench-fast ARGS='--only {only}'")
    request = Request(
        ranks=given["ranks"],
        launcher=tuple(shlex.split(launcher)),
        venv=Path(given["venv"]).absolute(),
        config=Path(given["config"]),
        out=Path(given["out"]),
        passes=given["passes"],
        torch={"": None, "0": None, "1": "torch"}.get(torch, torch),
        processors=frozenset(os.sched_getaffinity(0)),
        only=only,
    )
    lines, status = (Fast if fast else Comparison)(request, SOURCE, tell).run()
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return status


def tell(text: str) -> None:
    """Show a line of progress."""
    sys.stderr.write(f"# {text}\n")
    sys.stderr.flush()


def main() -> int:
    """Run the command and return its exit status; a user's mistake is one line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended, and what was measured kept
    try:
        return int(command.main(standalone_mode=False) or 0)
    except click.ClickException as error:
        return _refused(error.format_message(), error.exit_code)
    except DdlbenchError as error:
        return _refused(str(error), error.exit_status)
    except OSError as error:
        return _refused(str(error), 1)
    except (KeyboardInterrupt, click.Abort):
        return _refused("interrupted; what the passes gave is stored", INTERRUPTED)


def _refused(text: str, status: int) -> int:
    sys.stderr.write(f"ddlbench: error: {text}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
