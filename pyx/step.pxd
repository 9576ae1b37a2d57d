# The row of a step table: the same packed struct as ddlbench.schedule.move.STEP, which a test holds equal.
from libc.stdint cimport int16_t, int32_t, uint8_t

cdef enum:
    SEND = 0
    KEEP = 1
    ADD = 2
    COPY = 3

cdef enum:
    FROM_INPUT = 1
    LATE = 2

cdef packed struct Step:
    int32_t round
    int32_t rank
    int32_t peer
    int32_t chunk
    int32_t nchunks
    int16_t lane
    uint8_t kind
    uint8_t flags
