"""One rank of the measurement of how fast memory can move what an allreduce must move; started by mpirun.

The arguments are the file for the result and the sizes in bytes. Rank 0 writes JSON: by size, the median in
microseconds of each way to copy.
"""

import json
import sys
from pathlib import Path

from ddlbench.comm import Communicator
from ddlbench.statistics import summarise

SAMPLES = 25
WAYS = {"plain": False, "past the caches": True}


def least_us(communicator: Communicator, nbytes: int) -> dict[str, float]:
    """Return the median in microseconds of the slowest rank, for each way to copy (collective)."""
    from mpi4py import MPI

    source, target = communicator.empty(nbytes // 4), communicator.empty(nbytes // 4)
    source[:], target[:] = 1, 0
    found = {}
    for name, stream in WAYS.items():
        with communicator.floor_plan(source, target, stream=stream) as plan:
            plan.time_samples(3)
            taken = plan.time_samples(SAMPLES)
        communicator.comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
        found[name] = summarise(taken.tolist()).median_us
    communicator.release(source)
    communicator.release(target)
    return found


def main() -> int:
    """Measure every size and write what was found."""
    with Communicator() as communicator:
        found = {nbytes: least_us(communicator, nbytes) for nbytes in map(int, sys.argv[2:])}
        if communicator.rank == 0:
            Path(sys.argv[1]).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
