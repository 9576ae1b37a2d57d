"""Going on with a run that ended early: whether two parts make one run, and what its record then says."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddlbench.bench.config import SweepConfig
from ddlbench.bench.environment import TUNING, allowed
from ddlbench.errors import UsageError
from ddlbench.records import Run, TrustFlag, read_run
from ddlbench.report.units import counted

LONGEST = 60
"""Characters of a value that a message shows."""
NOTHING = "nothing"
NO_PLACEMENT = ("launch_ranks", "cores", "physical", "host_cores")
"""What the topology has besides where the ranks are, `cpus`."""


def config_of(directory: Path) -> SweepConfig:
    """Return the configuration of the run in `directory`; raises `UsageError` when it cannot be read back exactly."""
    run = read_run(directory)
    _check_sweep(directory, run)
    config = SweepConfig.from_json(run.config)
    if config is None:
        raise UsageError(
            f"{directory} does not say exactly what was to be measured: give --resume the configuration of that run too"
        )
    return config


def check_same(directory: Path, there: Run, here: Run) -> None:
    """Raise `UsageError` naming what keeps `here` from going on with the run `there` in `directory`."""
    _check_sweep(directory, there)
    differences = list(differing(there, here))
    if differences:
        raise UsageError(f"{directory} cannot be gone on with: {'; '.join(differences)}")


def _check_sweep(directory: Path, run: Run) -> None:
    if "sizes" not in run.config:
        raise UsageError(f"{directory} holds no run of ddlbench sweep: there is nothing to go on with")


def differing(there: Run, here: Run) -> Iterator[str]:
    """Yield what keeps two parts of a run from being one: configuration, ranks, hosts, programs and their tuning."""
    yield from _contrasts("config.", there.config, here.config)
    yield from _contrasts("", {"ranks": there.topology.get("ranks")}, {"ranks": here.topology["ranks"]})
    if there.topology.get("ranks") == here.topology["ranks"]:
        yield from _contrasts("", *(_placement(run) for run in (there, here)))
    yield from _contrasts("MPI ", there.mpi, here.mpi)
    yield from _contrasts("", _tuning(there), _tuning(here))
    yield from _contrasts("", {"ddlbench": there.ddlbench}, {"ddlbench": here.ddlbench})


def _placement(run: Run) -> Mapping[str, Any]:
    """Return where the ranks are; how a launcher numbers them does not matter."""
    return {name: value for name, value in run.topology.items() if name not in NO_PLACEMENT}


def _tuning(run: Run) -> Mapping[str, Any]:
    return allowed(run.environment.get("variables", {}), TUNING)


def _contrasts(kind: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of either that do not stand for the same value in both, with both values."""
    for name in dict.fromkeys((*there, *here)):
        old, new = there.get(name), here.get(name)
        if old != new:
            yield _contrast(f"{kind}{name}", old, new)


def _contrast(name: str, old: Any, new: Any) -> str:
    """Return the two values of `name`; of long lists the first place where they differ."""
    if isinstance(old, list) and isinstance(new, list) and max(len(repr(old)), len(repr(new))) > LONGEST:
        shared = (at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1])
        at = next(shared, min(len(old), len(new)))
        return f"{name}[{at}] is {_item(old, at)} there and {_item(new, at)} here"
    return f"{name} is {_shown(old)} there and {_shown(new)} here"


def _item(values: list[Any], at: int) -> str:
    return _shown(values[at]) if at < len(values) else NOTHING


def _shown(value: Any) -> str:
    text = NOTHING if value is None else repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def joined(there: Run, here: Run, points: int) -> Run:
    """Return the record of the run `there`, of which `points` are kept, when `here` goes on with it.

    It keeps when and how it was begun, all doubts, and with its points how their ranks started; the rest is of now.
    """
    before = counted(points, "point was there", "points were there")
    flag = TrustFlag("resumed", f"gone on with at {here.created}, when {before}")
    trust = tuple(dict.fromkeys((*there.trust, flag, *here.trust)))
    clock = there.clock if points else None
    return replace(here, created=there.created, command=there.command, clock=clock, trust=trust)
