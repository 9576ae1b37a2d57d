# The monotonic clock of the host, in nanoseconds.
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, nanosleep, timespec

cdef enum:
    SPIN_NS = 1000000

cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return <int64_t>at.tv_sec * 1000000000 + at.tv_nsec


cdef inline int64_t wait_until(int64_t start) noexcept nogil:
    """Wait for the time `start`, asleep while it is far; return when the waiting ended."""
    cdef int64_t now = now_ns(), left = start - now
    cdef timespec nap
    if left > SPIN_NS:
        nap.tv_sec = (left - SPIN_NS) // 1000000000
        nap.tv_nsec = (left - SPIN_NS) % 1000000000
        nanosleep(&nap, NULL)
        now = now_ns()
    while now < start:
        now = now_ns()
    return now
