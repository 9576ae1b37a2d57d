"""One rank of gloo's allreduce, as torch gives it to its users; started by `python -m torch.distributed.run`.

Inputs, checks and the way to time are those of a sweep: exact sums, a barrier before each sample, the time of the
slowest rank. torch reduces in place only, so a sample is a copy into the result and the allreduce of that.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench import __version__
from ddlbench.bench import config as configuration
from ddlbench.bench.axes import Cell
from ddlbench.bench.config import SweepConfig
from ddlbench.bench.environment import environment, load_average, trust
from ddlbench.bench.inputs import Buffers, pattern
from ddlbench.dtypes import DType
from ddlbench.records import Point, Run, Store
from ddlbench.topology import Topology

LEAST_SAMPLES, MOST_SAMPLES = 20, 2000
NOTE = "torch reduces in place: a sample is a copy and an allreduce in place"


def sample_count(seconds_each: float, most_seconds: float) -> int:
    """Return how many samples of `seconds_each` fit into `most_seconds`, at least 20 and at most 2000."""
    return int(min(max(most_seconds / max(seconds_each, 1e-9), LEAST_SAMPLES), MOST_SAMPLES))


class Rank:
    """One process of the group; torch is imported when there is one, for others read this module too."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as group

        group.init_process_group("gloo")
        self._torch: Any = torch
        self._group: Any = group
        self.rank, self.size = int(group.get_rank()), int(group.get_world_size())
        self.version = str(torch.__version__)

    def close(self) -> None:
        """Leave the group."""
        self._group.destroy_process_group()

    def gathered(self, value: Any) -> list[Any]:
        """Return the `value` of every rank (collective)."""
        values: list[Any] = [None] * self.size
        self._group.all_gather_object(values, value)
        return values

    def runner(self, buffers: Buffers) -> Callable[[], None]:
        """Return what reduces the buffers once, out of place."""
        source, target = self._torch.from_numpy(buffers.send), self._torch.from_numpy(buffers.receive)
        group = self._group

        def reduce() -> None:
            target.copy_(source)
            group.all_reduce(target)

        return reduce

    def timed(self, reduce: Callable[[], None], samples: int) -> npt.NDArray[np.int64]:
        """Return the nanoseconds of each sample on this rank, from a barrier on (collective)."""
        durations = np.empty(samples, np.int64)
        for at in range(samples):
            self._group.barrier()
            start = time.perf_counter_ns()
            reduce()
            durations[at] = time.perf_counter_ns() - start
        return durations


class Measurement:
    """The sweep `config` on the ranks of `rank`: one point after the other, each checked before and after."""

    def __init__(self, rank: Rank, config: SweepConfig) -> None:
        self._rank, self._config = rank, config
        self._dtype: DType = config.dtypes[0]
        places = rank.gathered((platform.node(), tuple(sorted(os.sched_getaffinity(0)))))
        hosts, processors = zip(*places, strict=True)
        self.topology = Topology(tuple(hosts), (0,) * rank.size, tuple(processors))

    def points(self) -> Iterator[Point]:
        """Yield the points (collective)."""
        for cell in self._config.cells(self._dtype):
            yield self._point(cell)

    def _point(self, cell: Cell) -> Point:
        buffers = Buffers(cell.count, self._dtype, in_place=False)
        reduce = self._rank.runner(buffers)
        wrong = self._wrong(buffers, reduce)
        warm = self._rank.timed(reduce, max(1, self._config.warmup))
        each = max(self._rank.gathered(float(np.median(warm))))
        count = self._config.iterations or sample_count(each * 1e-9, self._config.max_seconds)
        own = self._rank.timed(reduce, count)
        wrong += self._wrong(buffers, reduce)
        everyone = np.stack(self._rank.gathered(own))
        return Point(
            algorithm="gloo",
            nbytes=cell.nbytes,
            count=cell.count,
            dtype=self._dtype.name,
            op="sum",
            in_place=False,
            nodes=1,
            ranks_per_node=str(self._rank.size),
            ranks=self._rank.size,
            device="cpu",
            transport="vendor",
            sync="barrier",
            samples_ns=tuple(map(int, everyone.max(axis=0))),
            status="wrong" if wrong else "ok",
            reason=f"{wrong} elements are wrong; {NOTE}" if wrong else NOTE,
            wrong=wrong,
            multiplicity=cell.multiplicity,
            passes=(count,),
            stopped="samples" if self._config.iterations or count == MOST_SAMPLES else "time",
        )

    def _wrong(self, buffers: Buffers, reduce: Callable[[], None]) -> int:
        """Run once on fresh input and return the wrong elements, changed inputs and guard bytes of all ranks."""
        given = pattern(self._dtype, "sum", self._rank.rank, self._rank.size)
        buffers.prepare(given)
        reduce()
        found = buffers.check(given)
        return sum(self._rank.gathered(found.wrong + found.changed + found.damaged))


def main(arguments: Sequence[str]) -> int:
    """Measure the sweep in the file `arguments[0]`; rank 0 stores the run in the folder `arguments[1]`."""
    config = configuration.load(Path(arguments[0]), {})
    rank = Rank()
    measurement = Measurement(rank, config)
    flags = trust(measurement.topology, rank.gathered(load_average()))
    if rank.rank:
        for _ in measurement.points():
            pass
    else:
        record = Run(
            ddlbench=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=("python", "-m", "ddlbench.peers.gloo_rank", *arguments),
            config=config.to_json(),
            environment=environment(),
            mpi={"library": "none: gloo of torch", "version": rank.version},
            topology=measurement.topology.to_json(),
            trust=flags,
        )
        with Store.create(arguments[1], record, overwrite=True) as store:
            for point in measurement.points():
                store.append(point)
            store.finish()
    rank.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
