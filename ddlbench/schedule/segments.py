"""How a vector is cut: into segments, each an independent instance of the schedule, and those into chunks.

The engine and the reference executor both use these, so they add up the same elements in the same order.
"""

from ddlbench.schedule.lower import Schedule
from ddlbench.schedule.move import COPY

MESSAGE_NBYTES = 1 << 20
"""Default bytes of the longest message: on two ranks of a node, 1 MiB was as fast as 256 KiB or faster at all sizes."""
MOST_MESSAGE_NBYTES = 1 << 30
"""No message is longer than this, whatever is asked: MPI counts are ints."""
MOST_REQUESTS = 1 << 16
"""About how many requests a plan may hold; segments become longer where they would be more."""


def longest_message(program: Schedule) -> int:
    """Return the most chunks that one message of the schedule carries, at least 1."""
    return max(1, int(program.table["nchunks"][program.table["kind"] != COPY].max(initial=1)))


def segments_for(chunks: int, message_chunks: int, steps: int, nbytes: int, message_nbytes: int | None = None) -> int:
    """Return the number of segments so that messages carry about `message_nbytes` (the default when None).

    `steps` is the number of steps of the rank that has most, so that all ranks agree.
    """
    whole = nbytes * message_chunks // chunks
    wanted = max(1, -(-whole // (message_nbytes or MESSAGE_NBYTES)))
    fewest = max(1, -(-whole // MOST_MESSAGE_NBYTES))
    return max(fewest, min(wanted, max(1, MOST_REQUESTS // max(1, steps))))


def segment_bounds(count: int, segments: int, segment: int) -> tuple[int, int]:
    """Return the first element of a segment and the one after its last."""
    return count * segment // segments, count * (segment + 1) // segments


def chunk_bounds(first: int, last: int, chunks: int, chunk: int, nchunks: int) -> tuple[int, int]:
    """Return the elements of chunks chunk … chunk+nchunks-1 of the segment first … last-1."""
    length = last - first
    return first + length * chunk // chunks, first + length * (chunk + nchunks) // chunks
