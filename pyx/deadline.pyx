# cython: language_level=3
"""A deadline for the process that neither a stuck MPI call nor a held interpreter lock can put off."""

from posix.time cimport CLOCK_MONOTONIC, clock_gettime, nanosleep, timespec

import os

cdef extern from "expiry.h" nogil:
    int ddl_deadline_arm(double seconds, const char *text, int status)
    void ddl_deadline_disarm()

LONGEST_TEXT = 1000
"""Bytes of a text that are kept."""


def arm(double seconds, str text, int status):
    """Write `text` to standard error and leave with `status` unless another call comes within `seconds`.

    It takes the place of an earlier deadline. Nothing is cleaned up then. Raises `OSError` where there can be no
    thread.
    """
    cdef bytes line = text.encode("utf-8", "backslashreplace")[:LONGEST_TEXT]
    cdef int error = ddl_deadline_arm(max(seconds, 0.0), line, status)
    if error:
        raise OSError(error, os.strerror(error))


def interpreter_wait():
    """Let other threads run Python for 2 ms; return the seconds it took to have the interpreter back after that.

    That is some microseconds when no thread ran Python, and sys.getswitchinterval() or more when one did.
    """
    cdef timespec nap, asked, had
    nap.tv_sec, nap.tv_nsec = 0, 2000000
    with nogil:
        nanosleep(&nap, NULL)
        clock_gettime(CLOCK_MONOTONIC, &asked)
    clock_gettime(CLOCK_MONOTONIC, &had)
    return had.tv_sec - asked.tv_sec + (had.tv_nsec - asked.tv_nsec) * 1e-9


def disarm():
    """Take the deadline away."""
    ddl_deadline_disarm()
