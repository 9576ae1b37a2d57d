"""The command that `make bench-model` runs."""

import sys
from pathlib import Path

import click

from ddlbench.bench.axes import parse_size
from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.lab import start
from ddlbench.lab.spec import Rate
from ddlbench.model import launches
from ddlbench.model.launches import Shape
from ddlbench.model.pairing import agreements
from ddlbench.model.tables import Seen, by_size, summary, verdict, worst
from ddlbench.model.writing import write
from ddlbench.records import load
from ddlbench.report.plain import fitting, plain

SIZES = "1K,4K,16K,64K,256K,1M,4M,16M"
SHAPES = "4x1,4x2,8x1"
INTERRUPTED = 130


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--shapes", default=SHAPES, show_default=True, metavar="NxR,…", help="Nodes x ranks on each.")
@click.option("--sizes", default=SIZES, show_default=True, metavar="SIZE,…", help="Sizes of the vector.")
@click.option("--rate", default="1gbit", show_default=True, metavar="RATE", help="What each network card carries.")
@click.option(
    "--fit-seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="For the links of a shape."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("reports/model"), show_default=True, help="Results."
)
@click.option("--again", is_flag=True, help="Measure nothing: compare what is in --out once more.")
def command(shapes: str, sizes: str, rate: str, fit_seconds: float, out: Path, *, again: bool) -> int:
    """Fit links on virtual clusters, measure all algorithms there, and hold their predictions against it."""
    given = Rate.parse(rate)
    asked = [Shape.parse(text, given) for text in shapes.split(",")]
    wanted = sorted({parse_size(text) for text in sizes.split(",")})
    if not again:
        if reason := start.missing():
            raise UsageError(f"no lab can run here: {reason}")
        for shape in asked:
            launches.measure(shape, wanted, fit_seconds, out / shape.name, tell)
    seen = compared(asked, out)
    files = write(seen, out, conditions(asked, out))
    text = "".join(f"{plain(table)}\n" for table in (summary(seen), by_size(seen), worst(seen)))
    text += f"# {verdict(seen)}\n" + "".join(f"{file}\n" for file in files)
    sys.stdout.write(fitting(text, sys.stdout.encoding))
    return 0


def compared(shapes: list[Shape], out: Path) -> Seen:
    """Return how far predictions with the fitted links are from what was measured, both read from `out`."""
    machines = {shape.name: launches.topology(out / shape.name) for shape in shapes}
    found = [pair for name, machine in machines.items()
             for pair in launches.pairs(name, machine, launches.points(out / name))]  # fmt: skip
    return Seen(agreements(found), machines)


def conditions(shapes: list[Shape], out: Path) -> list[str]:
    """Return what may have spoilt the measurements, as their records say: other work, stolen time."""
    folders = [out / shape.name / part for shape in shapes for part in launches.PARTS]
    flags = [flag for folder in folders if folder.is_dir() for flag in load(folder).run.trust]
    return list(dict.fromkeys(f"{flag.flag}: {flag.detail}" for flag in flags if flag.flag in ("busy", "stolen")))


def tell(text: str) -> None:
    """Show a line of progress."""
    sys.stderr.write(f"# {text}\n")
    sys.stderr.flush()


def main() -> int:
    """Run the command and return its exit status; a user's mistake is one line."""
    try:
        return int(command.main(standalone_mode=False) or 0)
    except click.ClickException as error:
        return _refused(error.format_message(), error.exit_code)
    except DdlbenchError as error:
        return _refused(str(error), error.exit_status)
    except OSError as error:
        return _refused(str(error), 1)
    except (KeyboardInterrupt, click.Abort):
        return _refused("interrupted", INTERRUPTED)


def _refused(text: str, status: int) -> int:
    sys.stderr.write(f"ddlbench: error: {text}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
