# The reduction kernels of kernels.c.
cdef extern from "kernels.h" nogil:
    ctypedef void (*ddl_reduce_fn)(void *dst, const void *a, const void *b, size_t n) noexcept nogil
    ctypedef void (*ddl_reduce_many_fn)(void *dst, const void *const *of, size_t n) noexcept nogil
    ctypedef void (*ddl_divide_fn)(void *dst, size_t n, long divisor) noexcept nogil
    ddl_reduce_fn ddl_reducer(int dtype, int op)
    ddl_reduce_many_fn ddl_reducer_of(int dtype, int op, int sources)
    ddl_divide_fn ddl_divider(int dtype)
    size_t ddl_itemsize(int dtype)
    const char *ddl_simd()
