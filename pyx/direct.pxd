# The direct transport's inner loop: pyx/direct.h.
from kernels cimport ddl_reduce_fn
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "direct.h" nogil:
    enum:
        DDL_WAIT

    struct ddl_instruction:
        int32_t kind
        int32_t peer
        int64_t value

    struct ddl_direct:
        const ddl_instruction *instructions[2]
        size_t lengths[2]
        char **operands
        uint64_t **counters
        int64_t *seen
        uint64_t *own
        int64_t base
        int64_t span
        uint64_t executions
        ddl_reduce_fn reducer
        size_t itemsize
        int yielding
        int64_t at

    void ddl_direct_run(ddl_direct *)
