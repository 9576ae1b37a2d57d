# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The host's clock, and how far another rank's clock is from it: exchanges of a time stamp, timed without Python."""

from libc.stdint cimport int64_t

from clock cimport now_ns
from errors cimport check
from libmpi cimport MPI_BYTE, MPI_Comm, MPI_Comm_f2c, MPI_Fint, MPI_Irecv, MPI_Isend, MPI_Request
from waiting cimport wait_one

import numpy as np

cdef enum:
    TAG = 18


def now():
    """Return the host's monotonic clock in nanoseconds."""
    return now_ns()


cdef int send_stamp(MPI_Comm comm, int peer, int64_t *stamp, bint yielding) except -1 nogil:
    cdef MPI_Request request
    check(MPI_Isend(stamp, sizeof(int64_t), MPI_BYTE, peer, TAG, comm, &request))
    return wait_one(&request, yielding)


cdef int receive_stamp(MPI_Comm comm, int peer, int64_t *stamp, bint yielding) except -1 nogil:
    cdef MPI_Request request
    check(MPI_Irecv(stamp, sizeof(int64_t), MPI_BYTE, peer, TAG, comm, &request))
    return wait_one(&request, yielding)


def answer(MPI_Fint handle, int peer, int exchanges, bint yielding):
    """Answer `exchanges` questions of `peer` for the time; the other side of `ask`."""
    cdef MPI_Comm comm = MPI_Comm_f2c(handle)
    cdef int64_t stamp = 0
    cdef int _i
    with nogil:
        for _i in range(exchanges):
            receive_stamp(comm, peer, &stamp, yielding)
            stamp = now_ns()
            send_stamp(comm, peer, &stamp, yielding)


def ask(MPI_Fint handle, int peer, int exchanges, bint yielding):
    """Ask `peer` for its time `exchanges` times; the other side of `answer`.

    Returns int64 arrays (exchanges,): the local time half-way, the peer's time minus that, and the round trip, all in
    nanoseconds. An offset is wrong by at most half its round trip.
    """
    cdef MPI_Comm comm = MPI_Comm_f2c(handle)
    times, offsets, trips = (np.empty(exchanges, np.int64) for _ in range(3))
    cdef int64_t[::1] at = times, offset = offsets, trip = trips
    cdef int64_t stamp = 0, start, half
    cdef int i
    with nogil:
        for i in range(exchanges):
            start = now_ns()
            send_stamp(comm, peer, &start, yielding)
            receive_stamp(comm, peer, &stamp, yielding)
            trip[i] = now_ns() - start
            half = start + trip[i] // 2
            at[i] = half
            offset[i] = stamp - half
    return times, offsets, trips
