"""A prediction from its command line to its tables: what is asked for is priced, and stored if wanted."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args

from ddlbench import __version__
from ddlbench.algorithms import available, resolve
from ddlbench.algorithms.naming import BUILT_IN
from ddlbench.bench import config as configuration
from ddlbench.bench.config import SweepConfig
from ddlbench.bench.workload import SHIPPED as WORKLOADS
from ddlbench.cli import outputs
from ddlbench.cli.counts import counts
from ddlbench.cli.predicted import Prediction, best_table, header, limits_csv, limits_table
from ddlbench.cli.pricing import priced
from ddlbench.cli.timelines import Asked, draw
from ddlbench.cli.timelines import checked as checked_timeline
from ddlbench.cli.trained import Training, training_csv, training_tables
from ddlbench.cli.what_if import Outcome, Variant, variants_of, what_if_files, what_if_tables
from ddlbench.cost import described
from ddlbench.cost.limits import binding, limits
from ddlbench.cost.machine import Machine
from ddlbench.cost.network import Placement
from ddlbench.cost.predictor import Predictor
from ddlbench.errors import ProofError, UsageError, unknown
from ddlbench.records import Loaded, Point, Run, Store, TrustFlag
from ddlbench.records.disk import write_atomically
from ddlbench.report.markup import results_tables
from ddlbench.report.plain import fitting, plain
from ddlbench.report.printed import FORMS, printed
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.lower import lower
from ddlbench.schedule.verify import verify
from ddlbench.training import compute as computing
from ddlbench.training.compute import Compute
from ddlbench.training.iteration import Ready

MOST_SHOWN = 400
"""Points whose tables are written to a terminal; of more, the best of each size only."""
PROVED_RANKS = 1024
"""Schedules of one's own are proved before they are priced, up to so many ranks."""
DEFAULT_NODES = 64
TRAINING_FILE, LIMITS_FILE = "training.csv", "limits.csv"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line asks for, as it was typed; the fields from `min_bytes` to `dtypes` are keys of a sweep."""

    algorithms: str
    command: tuple[str, ...]
    topology: str
    nodes: str | None = None
    ranks_per_node: str | None = None
    min_bytes: str | None = None
    max_bytes: str | None = None
    step_factor: str | None = None
    step_bytes: str | None = None
    sizes: str | None = None
    workload: str | None = None
    fuse: str | None = None
    dtypes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    swept: str | None = None
    timeline: str | None = None
    batch: str | None = None
    forward_ms: str | None = None
    backward_ms: str | None = None
    ready: Ready = "even"
    overlap: bool = True
    out: str | None = None
    overwrite: bool = False
    form: str = "table"


def run(request: Request) -> int:
    """Price what `request` asks for, and write it; return the exit status.

    Raises `UsageError` for a mistake in the request, before anything is priced.
    """
    if request.form not in ("table", *FORMS):
        raise unknown("format", request.form, ("table", *FORMS))
    if request.ready not in get_args(Ready):
        raise unknown("--ready", request.ready, get_args(Ready))
    machine = _machine(request)
    config = _config(request, machine)
    placements = [Placement.on(machine, n, r) for n in config.nodes for r in config.ranks_per_node]
    compute = _compute(request, machine, config)
    algorithms = _resolved(request, config, placements)
    follow = None if request.timeline is None else checked_timeline(_asked(request, machine, config, algorithms))
    variants = [] if request.swept is None else variants_of(machine, request.swept)
    if variants and request.form != "table":
        raise UsageError(
            f"--format {request.form} is of one machine: leave --sweep out, or take the CSV that --out gets"
        )
    predictor = Predictor(machine)
    points = _all(predictor, machine, config, placements, algorithms)
    prediction = Prediction(machine, config, tuple(placements), points)
    training = None if compute is None else Training(prediction, compute, request.ready, overlap=request.overlap)
    record = _record(request, prediction)
    if request.out is not None:
        _store(Path(request.out), record, prediction, training, overwrite=request.overwrite)
    _show(request, record, prediction, training)
    if follow is not None:
        _write(f"\n# timeline: {draw(follow)}\n")
    if variants:
        _what_if(request, predictor, prediction, variants, compute)
    return 0


def _asked(request: Request, machine: Machine, config: SweepConfig, algorithms: "Resolved") -> Asked:
    """Return what a timeline is asked of."""
    sizes = [cell.nbytes for dtype in config.dtypes for cell in config.cells(dtype)]
    return Asked(Path(request.timeline or ""), machine, algorithms, sizes, overwrite=request.overwrite)


def _what_if(
    request: Request, predictor: Predictor, prediction: Prediction, variants: list[Variant], compute: Compute | None
) -> None:
    """Price the same on each of the other machines, show what changes, and store it if wanted."""
    found = []
    for variant in variants:
        machine, config = variant.machine, prediction.config
        placements = [Placement.on(machine, place.nodes, place.ranks_per_node) for place in prediction.placements]
        algorithms = _resolved(request, config, placements)
        points = _all(predictor, machine, config, placements, algorithms)
        other = Prediction(machine, config, tuple(placements), points)
        trained = None if compute is None else Training(other, compute, request.ready, overlap=request.overlap)
        found.append(Outcome(variant, other, trained))
    name = (request.swept or "").partition("=")[0].strip()
    _write("".join(f"\n{plain(table)}" for table in what_if_tables(name, prediction, found)))
    if request.out is not None:
        files = what_if_files(name, prediction, found, Path(request.out))
        _write(f"\n# what if: {'   '.join(map(str, files))}\n")


def _machine(request: Request) -> Machine:
    """Return the machine, with what `--set` changes of it."""
    machine = described.read(described.find(request.topology))
    for change in request.changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise UsageError(f"--set {change!r}: expected NAME=FIGURE, such as nic.bandwidth=200gbit")
        try:
            machine = machine.with_figure(name.strip(), text.strip(), f"--set {change}")
        except UsageError as error:
            raise UsageError(f"--set {change!r}: {error}") from None
    return machine


def _config(request: Request, machine: Machine) -> SweepConfig:
    """Return what is to be priced, in the words of a sweep."""
    names = [algorithm.name for algorithm in available()] if request.algorithms == "all" else [request.algorithms]
    few = min(machine.nodes, DEFAULT_NODES)
    doubling = ",".join(str(1 << power) for power in range(few.bit_length()))
    nodes = counts("--nodes", request.nodes or f"{doubling},{few}")
    per_node = counts("--ranks-per-node", request.ranks_per_node or str(machine.ranks_per_node))
    keys = [field.name for field in fields(Request) if field.name in configuration.PARSERS]
    given = {name: value for name in keys if (value := getattr(request, name)) not in (None, ())}
    given |= {"algorithms": names, "nodes": list(nodes), "ranks_per_node": list(per_node)}
    return configuration.load(None, given)


def _compute(request: Request, machine: Machine, config: SweepConfig) -> Compute | None:
    """Return how long a rank computes in an iteration of the workload; None without one."""
    times = (request.forward_ms, request.backward_ms)
    if config.workload is None:
        given = ("--forward-ms", "--backward-ms", "--batch")
        lacking = [name for name, value in zip(given, (*times, request.batch), strict=True) if value is not None]
        if lacking:
            raise UsageError(f"{lacking[0]} is about the training of a model: give a --workload beside it")
        return None
    batch = None if request.batch is None else counts("--batch", request.batch)[0]
    if times == (None, None):
        rows = computing.read(WORKLOADS / "compute_times.tsv")
        return computing.published(rows, config.workload.name, machine.device, batch)
    if None in times or batch is None:
        raise UsageError("the time of an iteration needs --forward-ms, --backward-ms and --batch together")
    forward, backward = (
        _milliseconds(name, text) for name, text in zip(("--forward-ms", "--backward-ms"), times, strict=True)
    )
    return computing.given(forward, backward, batch)


def _milliseconds(option: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise UsageError(f"{option} {text!r}: expected milliseconds from 0 to below 1,000,000,000, such as 120")
    return value / 1e3


Resolved = dict[tuple[str, Placement], BoundAlgorithm | str]
"""The algorithms on each placement, or why there is none."""


def _resolved(request: Request, config: SweepConfig, placements: list[Placement]) -> Resolved:
    """Return the algorithms on each placement; raises `UsageError` for one asked for by name that fits none of them."""
    found: Resolved = {}
    for text in config.algorithms:
        errors = []
        for placement in placements:
            try:
                found[text, placement] = _checked(resolve(text, placement.grid))
            except UsageError as error:
                found[text, placement] = str(error)
                errors.append(error)
        if len(errors) == len(placements) and request.algorithms != "all":
            raise errors[0]
    return found


def _checked(bound: BoundAlgorithm) -> BoundAlgorithm:
    """Return an algorithm that can be priced: not a vendor's, and proved where it is none of ours."""
    if bound.vendor:
        raise UsageError(f"algorithm {bound.name!r} is a vendor's own code: there is no schedule to price")
    if not bound.explore and bound.algorithm not in BUILT_IN and bound.grid.size <= PROVED_RANKS:
        try:
            verify(lower(bound))
        except ProofError as error:
            raise UsageError(f"algorithm {bound.name!r} on {bound.grid} is refused: {error}") from None
    return bound


def _points(
    predictor: Predictor, machine: Machine, config: SweepConfig, placements: list[Placement], algorithms: Resolved
) -> Iterator[Point]:  # fmt: skip
    """Yield a point for each placement, dtype, size and algorithm, in this order."""
    for placement in placements:
        for dtype in config.dtypes:
            for cell in config.cells(dtype):
                least = limits(machine, placement, cell.nbytes)
                for text in config.algorithms:
                    yield Point(
                        kind="predicted",
                        nbytes=cell.nbytes,
                        count=cell.count,
                        multiplicity=cell.multiplicity,
                        dtype=dtype.name,
                        op=config.ops[0],
                        in_place=False,
                        nodes=placement.nodes,
                        ranks_per_node=str(placement.ranks_per_node),
                        ranks=placement.ranks,
                        device=machine.device or "cpu",
                        sync="model",
                        samples_ns=(),
                        bound_us=max(least.values()) * 1e6 if least else None,
                        limit=binding(least),
                        **_priced(predictor, machine, algorithms[text, placement], text, placement, cell.nbytes),
                    )


def _all(
    predictor: Predictor, machine: Machine, config: SweepConfig, placements: list[Placement], algorithms: Resolved
) -> tuple[Point, ...]:  # fmt: skip
    """Return all points, placement by placement."""
    parts = [partial(_points, predictor, machine, config, [placement], algorithms) for placement in placements]
    return priced(parts, len(algorithms) * sum(len(config.cells(dtype)) for dtype in config.dtypes))


def _priced(
    predictor: Predictor, machine: Machine, bound: BoundAlgorithm | str, text: str, placement: Placement, nbytes: int
) -> dict[str, Any]:  # fmt: skip
    """Return what of a point says how it was priced."""
    if isinstance(bound, str):
        return {"algorithm": text, "transport": "", "status": "skipped", "reason": bound}
    try:
        priced = predictor.price(bound, placement, nbytes, machine)
    except UsageError as error:
        return {"algorithm": bound.name, "transport": "", "status": "skipped", "reason": str(error)}
    reason = f"chose {priced.chosen}" if bound.explore else ""
    figures = {"model_us": priced.seconds * 1e6, "status": "ok", "reason": reason}
    return {"algorithm": bound.name, "transport": "p2p", **figures}


def _record(request: Request, prediction: Prediction) -> Run:
    """Return what is stored of the prediction as a run."""
    machine, placements = prediction.machine, prediction.placements
    figures = [figure for _, figure in machine.figures()]
    guessed = sum(figure.estimated for figure in figures)
    detail = f"nothing ran: priced on the described machine {machine.name}; {guessed} of its {len(figures)} figures"
    return Run(
        ddlbench=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=request.command,
        config=prediction.config.to_json(),
        environment={},
        mpi={},
        topology={
            "ranks": max(placement.ranks for placement in placements),
            "nodes": max(placement.nodes for placement in placements),
            "described": described.to_data(machine),
        },
        trust=(TrustFlag("predicted", f"{detail} are estimates"),),
    )


def _store(place: Path, record: Run, prediction: Prediction, training: Training | None, *, overwrite: bool) -> None:
    """Store the prediction as a run, and make its reports."""
    with Store.create(place, record, overwrite=overwrite) as store:
        for point in prediction.points:
            store.append(point)
        store.finish()
    outputs.write(place)
    write_atomically(place / LIMITS_FILE, limits_csv(prediction))
    if training is not None:
        write_atomically(place / TRAINING_FILE, training_csv(training))


def _show(request: Request, record: Run, prediction: Prediction, training: Training | None) -> None:
    if request.form != "table":
        _write(printed(request.form, record, prediction.points))
        return
    _write("".join(f"# {line}\n" for line in header(record, prediction)))
    tables = list(results_tables(Loaded(record, prediction.points, []))) if _few(prediction, training) else []
    largest = None if training is None else max(prediction.placements, key=lambda place: place.ranks)
    tables += [
        best_table(prediction, largest),
        limits_table(prediction, largest),
        *(training_tables(training) if training is not None else ()),
    ]
    _write("".join(f"\n{plain(table)}" for table in tables))
    if request.out is not None:
        _write(
            f"\n# results: {Path(request.out) / outputs.CSV_FILE}   report: {Path(request.out) / outputs.HTML_FILE}\n"
        )


def _few(prediction: Prediction, training: Training | None) -> bool:
    """Say whether every point is shown: there are few, and they are not there for the sake of a model's training."""
    return training is None and len(prediction.points) <= MOST_SHOWN


def _write(text: str) -> None:
    sys.stdout.write(fitting(text, sys.stdout.encoding))
