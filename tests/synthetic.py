"""Made-up runs for tests of records and reports: the shape of real ones, the figures of a formula with noise."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ddlbench.records import Point, Run, Store, TrustFlag

SIZES = tuple(2**power for power in range(3, 27))
ALGORITHMS = ("ring", "multi-ring:2", "recursive-doubling", "halving-doubling", "hierarchical", "mpi")


def run(**changes) -> Run:
    """A finished run of four ranks on two nodes."""
    values = {
        "ddlbench": "0.1.0",
        "created": "2026-03-02T09:41:07+00:00",
        "command": ("ddlbench", "sweep", "-b", "8", "-e", "64M", "-f", "2", "--check", "--out", "reports/latest"),
        "config": {"sizes": [8, 67108864], "algorithms": list(ALGORITHMS), "dtypes": ["float32"], "check": True},
        "environment": {
            "processor": "AMD EPYC 7543",
            "processors": 32,
            "python": "3.11.7",
            "variables": {"OMP_NUM_THREADS": "1"},
        },
        "mpi": {"library": "Open MPI", "version": "5.0.11"},
        "topology": {
            "nodes": 2,
            "ranks": 4,
            "ranks_per_node": [2, 2],
            "hosts": ["node0", "node0", "node1", "node1"],
            "node_of": [0, 0, 1, 1],
            "cpus": [[0, 1]] * 4,
        },
        "links": {
            "nodes": 2,
            "within": {"latency_s": 0.4e-6, "bytes_per_s": 14.0e9, "exchange_bytes_per_s": 9.4e9},
            "between": {"latency_s": 1.1e-6, "bytes_per_s": 11.2e9, "exchange_bytes_per_s": 10.8e9},
            "reduce_bytes_per_s": 9.1e9,
        },
        "trust": (),
        "proofs": (
            {"algorithm": "ring", "ranks": 4, "rounds": 6, "moves": 24, "seconds": 0.0007},
            {"algorithm": "hierarchical", "ranks": 4, "rounds": 4, "moves": 16, "seconds": 0.0009},
        ),
        "finished": True,
    }
    return Run(**(values | changes))


def seconds(algorithm: str, nbytes: int, ranks: int) -> float:
    """A time from latency and bandwidth: few rounds win small vectors, few bytes large ones."""
    steps = math.ceil(math.log2(max(ranks, 2)))
    share = 2 * (ranks - 1) / ranks
    base = algorithm.partition(":")[0]
    rounds, wire = {
        "recursive-doubling": (steps, steps),
        "halving-doubling": (2 * steps, 1.10 * share),
        "hierarchical": (steps + 2, 1.04 * share),
        "multi-ring": (2 * (ranks - 1), 0.99 * share),
        "mpi": (steps * 0.85, steps * 1.03 if nbytes < 2**15 else 1.55 * share),
    }.get(base, (2 * (ranks - 1), share))
    return rounds * 1.1e-6 + wire * nbytes / 10e9 + nbytes * 2e-11


def samples(median_s: float, count: int, random: np.random.Generator) -> tuple[int, ...]:
    """Samples in nanoseconds about a median, with the long tail that timings have."""
    noise = random.lognormal(0, 0.03, count) + random.exponential(0.015, count)
    return tuple(int(value) for value in median_s * 1e9 * noise)


def point(algorithm: str = "ring", nbytes: int = 1024, **changes) -> Point:
    """An ok point with 20 samples about 10 µs."""
    values = {
        "algorithm": algorithm,
        "nbytes": nbytes,
        "count": nbytes // 4,
        "dtype": "float32",
        "op": "sum",
        "in_place": False,
        "nodes": 2,
        "ranks_per_node": "2",
        "ranks": 4,
        "device": "cpu",
        "transport": "vendor" if algorithm == "mpi" else "p2p",
        "sync": "barrier",
        "samples_ns": tuple(range(9900, 10100, 10)),
        "status": "ok",
        "wrong": 0,
    }
    return Point(**(values | changes))


def points(
    algorithms: Sequence[str] = ALGORITHMS, sizes: Iterable[int] = SIZES, *, count: int = 40, seed: int = 1, **changes
) -> list[Point]:
    """The points of a sweep, with bound and model."""
    random = np.random.default_rng(seed)
    ranks = changes.get("ranks", 4)
    return [
        point(
            algorithm,
            nbytes,
            samples_ns=samples(seconds(algorithm, nbytes, ranks), count, random),
            bound_us=(math.ceil(math.log2(max(ranks, 2))) * 1.1e-6 + 2 * (ranks - 1) / ranks * nbytes / 11.2e9) * 1e6,
            model_us=seconds(algorithm, nbytes, ranks) * 1e6 * 0.97,
            **changes,
        )
        for nbytes in sizes
        for algorithm in algorithms
    ]


def rich_points() -> list[Point]:
    """A sweep with several settings, wrong, failed and skipped points."""
    found = points() + points(dtype="float16", seed=2) + points(in_place=True, seed=3)
    found += points(ranks=2, nodes=1, ranks_per_node="2", seed=4)
    found += [
        point(
            "mpi",
            nbytes,
            dtype="bfloat16",
            status="skipped",
            reason="Open MPI has no bfloat16",
            samples_ns=(),
            wrong=None,
        )
        for nbytes in SIZES
    ]
    found += [point("swing", 4096, status="wrong", wrong=12, reason="12 elements of 1,024 differ from the sum")]
    found += [
        point("swing", 2**20, status="failed", reason="MPI_ERR_TRUNCATE: message truncated", samples_ns=(), wrong=None)
    ]
    return found


def flags() -> tuple[TrustFlag, ...]:
    """Trust flags as a laptop earns them."""
    return (
        TrustFlag("oversubscribed", "4 ranks on 2 cores"),
        TrustFlag("unpinned", "ranks may move between cores"),
    )


def store(directory: Path, stored: Iterable[Point] = (), **changes) -> Path:
    """Write a run directory; it is marked finished unless `finished=False`."""
    finished = changes.pop("finished", True)
    with Store.create(directory, run(finished=False, **changes)) as opened:
        for one in stored:
            opened.append(one)
        if finished:
            opened.finish()
    return directory
