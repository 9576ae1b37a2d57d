"""One rank of the measurement of ddlbench beside what memory can do; started by mpirun.

The arguments are the file for the result, and for each size its bytes and the algorithm to use: 1048576:ring. Rank 0
writes JSON: by size, the samples in nanoseconds of the slowest rank, of each of the `WAYS` to copy the bytes that must
move and of the allreduce, all taken in turns.
"""

import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ddlbench.comm import Communicator, Plan
from ddlbench.errors import DdlbenchError

TURNS, SAMPLES = 6, 8
"""So many times each has its turn, of so many samples; together well under a second, while the machine is the same."""
WAYS = {"plain": False, "past the caches": True}
OURS = "allreduce"


def times(communicator: Communicator, nbytes: int, algorithm: str) -> dict[str, list[int]]:
    """Return the samples in nanoseconds of `OURS` and of each of `WAYS` (collective).

    Raises `DdlbenchError` for a wrong result.
    """
    source, target = communicator.empty(nbytes // 4), communicator.empty(nbytes // 4)
    source[:], target[:] = communicator.rank + 1, 0
    plans = {name: communicator.floor_plan(source, target, stream=stream) for name, stream in WAYS.items()}
    plans[OURS] = communicator.plan(source, target, algorithm=algorithm, transport="direct")  # last: its result stays
    found: dict[str, list[int]] = {name: [] for name in plans}
    for turn in range(1 + TURNS):
        for name, plan in plans.items():
            taken = _slowest(communicator, plan)
            found[name] += taken if turn else ()
    _check(communicator, target)
    for plan in plans.values():
        plan.close()
    communicator.release(source)
    communicator.release(target)
    return found


def _slowest(communicator: Communicator, plan: Plan) -> list[int]:
    """Return samples of `plan`, of each the slowest rank's."""
    from mpi4py import MPI

    taken = plan.time_samples(SAMPLES)
    communicator.comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
    return [int(sample) for sample in taken]


def _check(communicator: Communicator, target: npt.NDArray[np.float32]) -> None:
    expected = communicator.size * (communicator.size + 1) // 2
    wrong = np.flatnonzero(target != expected)
    if wrong.size:
        at = int(wrong[0])
        raise DdlbenchError(f"rank {communicator.rank}: element {at} is {target[at]} and should be {expected}")


def main() -> int:
    """Measure every size and write what was found."""
    pairs = (word.split(":", 1) for word in sys.argv[2:])
    with Communicator() as communicator:
        found = {nbytes: times(communicator, int(nbytes), algorithm) for nbytes, algorithm in pairs}
        if communicator.rank == 0:
            Path(sys.argv[1]).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
