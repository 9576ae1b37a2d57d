"""The lines above the table: what is measured, on what, how, and what speaks against it."""

from collections.abc import Iterator, Sequence

from ddlbench.bench.axes import format_size
from ddlbench.bench.config import SweepConfig
from ddlbench.bench.shapes import Shape
from ddlbench.cost.links import Link, Links, Memory
from ddlbench.records import Run


def header(run: Run, config: SweepConfig, links: Links, shapes: Sequence[Shape], sync: str) -> list[str]:
    """Return the lines, each a comment to whoever reads the table by program."""
    about = (_machine(run, config, shapes), _devices(run), _shapes(shapes), _links(links), _proofs(run), _clock(run))
    lines = (*about, _method(config, sync), *_notes(run, config))
    return [f"# {line}" for line in lines if line]


def _machine(run: Run, config: SweepConfig, shapes: Sequence[Shape]) -> str:
    topology = run.topology
    hosts = list(dict.fromkeys(topology["hosts"]))
    shown = hosts[0] if len(hosts) == 1 else f"{hosts[0]} … {hosts[-1]}"
    where = f"{_counted(topology['ranks'], 'rank')} on {_counted(topology['nodes'], 'node')} ({shown})"
    grid = "" if len(shapes) > 1 else f"grid {config.grid or shapes[0].topology.grid()}, "
    return f"ddlbench {run.ddlbench}: {where}, {grid}{run.mpi['library']} {run.mpi['version']}"


def _devices(run: Run) -> str:
    """Return which GPUs hold the vectors; nothing where the host does."""
    devices = run.environment.get("devices")
    if devices is None:
        return ""
    kinds = ", ".join(dict.fromkeys(place["name"] for place in devices["ranks"]))
    shared = ", shared by ranks of a node" if devices["shared"] else ""
    return f"vectors on {kinds}{shared}; CUDA of the driver {devices['driver']}, of the build {devices['runtime']}"


def _shapes(shapes: Sequence[Shape]) -> str:
    """Return what is measured one after the other, where it is more than one thing."""
    return f"measured in turn: {'; '.join(map(str, shapes))}" if len(shapes) > 1 else ""


def _links(links: Links) -> str:
    known = (("within a node", links.within), ("between nodes", links.between))
    parts = [f"{_link(link)} {where}" for where, link in known if link is not None]
    parts += map(_memory, links.memory)
    return f"links as probed: {'; '.join(parts)}" if parts else ""


def _link(link: Link) -> str:
    return f"{link.latency_s * 1e6:.2f} us, {link.bytes_per_s / 1e9:.2f} GB/s one way"


def _memory(memory: Memory) -> str:
    """Return how long ranks that share memory take at least."""
    nbytes, seconds = memory.copies[-1]
    copied = f"{format_size(nbytes)}B copied in {seconds * 1e6:.4g} us"
    return f"{_counted(memory.ranks, 'rank')} in memory hear of each other in {memory.handoff_s * 1e6:.2f} us, {copied}"


def _proofs(run: Run) -> str:
    if not run.proofs:
        return ""
    seconds = sum(proof["seconds"] for proof in run.proofs)
    names = ", ".join(dict.fromkeys(proof["algorithm"] for proof in run.proofs))
    counts = sorted({proof["ranks"] for proof in run.proofs})
    ranks = _counted(counts[0], "rank") if len(counts) == 1 else f"{', '.join(map(str, counts))} ranks"
    return f"proved for {ranks} in {seconds:.2f} s: {names}"


def _method(config: SweepConfig, sync: str) -> str:
    """Return how samples start, how many there are, and what else a reader must know of them."""
    start = {"window": "each from an agreed moment", "barrier": "each after a barrier"}[sync]
    until = f"until their interval is within {config.ci:.3g} of it, for at most {config.max_seconds:g} s"
    samples = _counted(config.iterations, "sample") if config.iterations is not None else f"samples {until}"
    checked = "every element checked before and after" if config.check else "results not checked"
    cold = "; cold caches" if config.cache == "cold" else ""
    passes = f"{config.passes} {'pass' if config.passes == 1 else 'passes'}, seed {config.seed}"
    times = f"median of {samples}, {start} and of the slowest rank"
    return f"time: {times}; {passes}; {config.warmup} to warm up{cold}; {checked}"


def _clock(run: Run) -> str:
    """Return how well the clocks of several nodes are known; nothing on one node."""
    clock = run.clock
    if not clock or clock["method"] == "shared":
        return ""
    return f"clocks: {clock['method']}, known to {clock['error_before_us']:.2f} us"


def _notes(run: Run, config: SweepConfig) -> Iterator[str]:
    if run.topology["ranks"] == 1:
        yield "one rank: nothing is sent and there is no bus bandwidth; start it with mpirun -n 4 ddlbench sweep …"
    if config.workload is not None:
        yield _workload(config)
    for dtype in config.dtypes:
        if small := config.too_small(dtype):
            sizes = ", ".join(map(format_size, small))
            yield f"left out: {sizes} B, less than one element of {dtype.name} ({dtype.itemsize} B)"
    for flag in run.trust:
        yield f"to mind: {flag.flag}: {flag.detail}"


def _workload(config: SweepConfig) -> str:
    """Return what the tensors of the workload come to in each dtype."""
    if config.workload is None:
        return ""
    tensors = _counted(len(config.workload.numels), "tensor")
    parts = []
    for dtype in config.dtypes:
        cells = config.cells(dtype)
        buffers = "" if config.fuse is None else f"{_counted(sum(cell.multiplicity for cell in cells), 'buffer')}, "
        parts.append(f"{buffers}{_counted(len(cells), 'size')} in {dtype.name}")
    return f"workload {config.workload.name}: {tensors}, {sum(config.workload.numels)} elements; {'; '.join(parts)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
