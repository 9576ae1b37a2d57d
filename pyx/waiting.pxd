# Waiting for MPI without starving a peer that shares the core: spin briefly, then yield.
from errors cimport check
from libmpi cimport (
    MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE, MPI_Barrier, MPI_Comm, MPI_Ibarrier, MPI_Request, MPI_Test, MPI_Testall,
    MPI_Wait, MPI_Waitall,
)

cdef extern from "sched.h" nogil:
    int sched_yield()

cdef enum:
    SPINS = 50


cdef inline int until_one(MPI_Request *request, bint yielding) noexcept nogil:
    """Wait and return MPI's error code."""
    cdef int done = 0, spins = 0, error = 0
    if not yielding:
        return MPI_Wait(request, MPI_STATUS_IGNORE)
    while True:
        error = MPI_Test(request, &done, MPI_STATUS_IGNORE)
        if done or error:
            return error
        spins += 1
        if spins > SPINS:
            sched_yield()


cdef inline int until_all(int count, MPI_Request *requests, bint yielding) noexcept nogil:
    """Wait and return MPI's error code."""
    cdef int done = 0, spins = 0, error = 0
    if not yielding:
        return MPI_Waitall(count, requests, MPI_STATUSES_IGNORE)
    while True:
        error = MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE)
        if done or error:
            return error
        spins += 1
        if spins > SPINS:
            sched_yield()


cdef inline int wait_one(MPI_Request *request, bint yielding) except -1 nogil:
    return check(until_one(request, yielding))


cdef inline int wait_all(int count, MPI_Request *requests, bint yielding) except -1 nogil:
    return check(until_all(count, requests, yielding))


cdef inline int barrier(MPI_Comm comm, bint yielding) except -1 nogil:
    cdef MPI_Request request
    if not yielding:
        return check(MPI_Barrier(comm))
    check(MPI_Ibarrier(comm, &request))
    return wait_one(&request, yielding)
