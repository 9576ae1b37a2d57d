# What a loop without Python calls of a device: cuda/reduce.h. Nothing of CUDA is needed to compile this.
cdef extern from "../cuda/reduce.h" nogil:
    struct ddl_cuda_table:
        size_t nbytes
        int (*reduce)(void *, const void *const *, int, size_t, int, int, long long, void *) noexcept nogil
        int (*divide)(void *, size_t, int, long long, void *) noexcept nogil
        int (*copy)(void *, const void *, size_t, void *) noexcept nogil
        int (*synchronize)(void *) noexcept nogil
        int (*event_record)(void *, void *) noexcept nogil
        const char *(*error_name)(int) noexcept nogil
        const char *(*error_string)(int) noexcept nogil
