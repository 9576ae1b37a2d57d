# The direct transport's inner loop: pyx/direct.h.
from device cimport ddl_cuda_table
from kernels cimport ddl_reduce_fn, ddl_reduce_many_fn
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "direct.h" nogil:
    enum:
        DDL_WAIT
        DDL_ARRIVE
        DDL_SENT

    struct ddl_instruction:
        int32_t kind
        int32_t peer
        int32_t sources
        int32_t targets
        int32_t operands
        int64_t value

    struct ddl_messages:
        void *self
        int (*post)(void *, int, int, int, int) noexcept nogil
        int (*arrive)(void *, int) noexcept nogil
        int (*sent)(void *, int, int) noexcept nogil
        int (*progress)(void *) noexcept nogil

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
        ddl_reduce_many_fn of_three
        ddl_reduce_many_fn of_four
        size_t itemsize
        int yielding
        int64_t at
        const ddl_messages *messages
        int tries
        int past_caches
        const ddl_cuda_table *device
        void *stream
        void *scratch
        int dtype
        int op
        int pending
        int device_error

    int ddl_direct_run(ddl_direct *)
