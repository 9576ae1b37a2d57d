# cython: language_level=3
"""The engine's reductions on Python buffers: for the reference executor, the harness and the tests.

Kernels, codes and SIMD levels are those of `kernels.h`; `docs/numerics.md` says what the results promise.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

from ddlbench.errors import UsageError, unknown

from kernels cimport (
    ddl_divide_fn, ddl_divider, ddl_itemsize, ddl_reduce_fn, ddl_reduce_many_fn, ddl_reducer, ddl_reducer_of, ddl_simd,
)


# What only this module needs of kernels.h: the codes by name, and the choice of a SIMD level.
cdef extern from "kernels.h" nogil:
    enum:
        DDL_FLOAT16
        DDL_BFLOAT16
        DDL_FLOAT32
        DDL_FLOAT64
        DDL_INT32
        DDL_INT64
        DDL_UINT8
        DDL_SUM
        DDL_PROD
        DDL_MIN
        DDL_MAX
        DDL_AVG

    const char *ddl_simd_level(size_t i)
    int ddl_set_simd(const char *name)


DTYPE_CODES = {
    "float16": DDL_FLOAT16,
    "bfloat16": DDL_BFLOAT16,
    "float32": DDL_FLOAT32,
    "float64": DDL_FLOAT64,
    "int32": DDL_INT32,
    "int64": DDL_INT64,
    "uint8": DDL_UINT8,
}
OP_CODES = {"sum": DDL_SUM, "prod": DDL_PROD, "min": DDL_MIN, "max": DDL_MAX, "avg": DDL_AVG}


cdef class _Bytes:
    """The memory of a contiguous buffer, held while this object lives."""

    cdef Py_buffer view

    def __cinit__(self, exporter, int flags):
        PyObject_GetBuffer(exporter, &self.view, flags)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef int check_overlap(_Bytes dst, _Bytes source) except -1:
    cdef char *x = <char *> dst.view.buf
    cdef char *y = <char *> source.view.buf
    if x != y and x < y + source.view.len and y < x + dst.view.len:
        raise UsageError("dst overlaps a source in part; expected the same memory or memory apart")
    return 0


cdef size_t elements(int dtype, _Bytes memory) except? 0:
    cdef size_t itemsize = ddl_itemsize(dtype)
    if itemsize == 0:
        raise UsageError(f"unknown dtype code {dtype}; expected one of {DTYPE_CODES}")
    if memory.view.len % itemsize:
        raise UsageError(f"{memory.view.len} bytes are not whole elements of {itemsize} bytes")
    return memory.view.len // itemsize


def reduce(int dtype, int op, dst, a, b):
    """Set `dst[i] = a[i] op b[i]` for every element.

    `dtype` and `op` are codes of `DTYPE_CODES` and `OP_CODES`; "avg" adds, and `divide` finishes it. `dst`, `a` and
    `b` are contiguous buffers of the same number of bytes, of any alignment; `dst` may be `a` or `b`. The GIL is
    released. Raises `UsageError` for an unknown code, unequal lengths, a part of an element or partial overlap, and
    `BufferError` or `ValueError` (whichever the exporter raises) for a buffer that is not contiguous or a `dst` that
    is read-only.
    """
    cdef _Bytes to = _Bytes(dst, PyBUF_WRITABLE)
    cdef _Bytes x = _Bytes(a, PyBUF_SIMPLE)
    cdef _Bytes y = _Bytes(b, PyBUF_SIMPLE)
    cdef size_t n = elements(dtype, to)
    cdef ddl_reduce_fn run = ddl_reducer(dtype, op)
    if run == NULL:
        raise UsageError(f"unknown op code {op}; expected one of {OP_CODES}")
    if not to.view.len == x.view.len == y.view.len:
        raise UsageError(f"dst, a and b hold {to.view.len}, {x.view.len} and {y.view.len} bytes; expected the same")
    check_overlap(to, x)
    check_overlap(to, y)
    with nogil:
        run(to.view.buf, x.view.buf, y.view.buf, n)


def reduce_many(int dtype, int op, dst, sources):
    """Set `dst[i] = (sources[0][i] op sources[1][i]) op sources[2][i] …` for every element, of 3 or 4 sources.

    `dst` may be any of the sources; the rest is as `reduce` has it, errors included.
    """
    cdef _Bytes to = _Bytes(dst, PyBUF_WRITABLE)
    cdef size_t n = elements(dtype, to)
    cdef const void *pointers[4]
    cdef _Bytes one
    held = [_Bytes(source, PyBUF_SIMPLE) for source in sources]
    cdef ddl_reduce_many_fn run = ddl_reducer_of(dtype, op, len(held))
    if run == NULL:
        raise UsageError(f"{len(held)} sources and op code {op}; expected 3 or 4, and one of {OP_CODES}")
    for at, one in enumerate(held):
        if one.view.len != to.view.len:
            raise UsageError(f"dst holds {to.view.len} bytes and a source {one.view.len}; expected the same")
        check_overlap(to, one)
        pointers[at] = one.view.buf
    with nogil:
        run(to.view.buf, pointers, n)


def divide(int dtype, dst, long divisor):
    """Set `dst[i] = dst[i] / divisor` for every element: the second half of "avg".

    Integers truncate toward zero; floats round once. `dst` is a contiguous writable buffer of whole elements. Raises
    `UsageError` for an unknown code, a part of an element or a divisor below 1.
    """
    cdef _Bytes to = _Bytes(dst, PyBUF_WRITABLE)
    cdef size_t n = elements(dtype, to)
    cdef ddl_divide_fn run = ddl_divider(dtype)
    if divisor < 1:
        raise UsageError(f"divisor {divisor}; expected the number of ranks, 1 or more")
    with nogil:
        run(to.view.buf, n, divisor)


def simd():
    """Return the SIMD level of the kernels in use: "avx512bf16", "avx512", "avx2" or "baseline"."""
    return ddl_simd().decode("ascii")


def simd_levels():
    """Return the SIMD levels this processor runs, weakest first; the last is in use unless `set_simd` chose another."""
    cdef size_t i = 0
    names = []
    while ddl_simd_level(i) != NULL:
        names.append(ddl_simd_level(i).decode("ascii"))
        i += 1
    return tuple(names)


def set_simd(str name):
    """Use the kernels of SIMD level `name` from now on, in the whole process: for tests.

    Raises `UsageError` when the level is unknown or this processor does not run it.
    """
    if ddl_set_simd(name.encode()) != 0:
        raise unknown("SIMD level", name, simd_levels())
