/* Element-wise reductions over plain memory: what every transport of the engine adds with.
 *
 * The codes are those of ddlbench/dtypes.py; a test holds them equal. docs/numerics.md says what the results promise:
 * one rounding to nearest even per operation, the same bits whichever operand comes first, the same bits at every SIMD
 * level and on every architecture.
 */
#ifndef DDLBENCH_KERNELS_H
#define DDLBENCH_KERNELS_H

#include <stddef.h>

enum ddl_dtype {
    DDL_FLOAT16 = 0,
    DDL_BFLOAT16 = 1,
    DDL_FLOAT32 = 2,
    DDL_FLOAT64 = 3,
    DDL_INT32 = 4,
    DDL_INT64 = 5,
    DDL_UINT8 = 6,
    DDL_DTYPES = 7
};

/* DDL_AVG adds; ddl_divider does the rest, once, after the last addition. */
enum ddl_op { DDL_SUM = 0, DDL_PROD = 1, DDL_MIN = 2, DDL_MAX = 3, DDL_AVG = 4, DDL_OPS = 5 };

/* dst[i] = a[i] op b[i] for n elements. dst may be a, or b, or both; partial overlap is not allowed.
 * No pointer needs any alignment. */
typedef void (*ddl_reduce_fn)(void *dst, const void *a, const void *b, size_t n);

/* dst[i] = (of[0][i] op of[1][i]) op of[2][i] ... for n elements of three or four sources, each operation rounded as
 * that of ddl_reduce_fn. dst may be any of them. */
typedef void (*ddl_reduce_many_fn)(void *dst, const void *const *of, size_t n);
enum { DDL_MOST_SOURCES = 4 };

/* dst[i] = dst[i] / divisor for n elements, divisor >= 1. Integers truncate toward zero. */
typedef void (*ddl_divide_fn)(void *dst, size_t n, long divisor);

/* The kernel for the current SIMD level, or NULL when a code is unknown. */
ddl_reduce_fn ddl_reducer(int dtype, int op);
ddl_reduce_many_fn ddl_reducer_of(int dtype, int op, int sources); /* NULL too unless sources is 3 or 4 */
ddl_divide_fn ddl_divider(int dtype);

/* Bytes of one element, or 0 when the code is unknown. */
size_t ddl_itemsize(int dtype);

/* The current SIMD level: "avx512", "avx2" or "baseline" (what the compiler was told to assume). The best one that
 * the processor runs, unless ddl_set_simd chose another. */
const char *ddl_simd(void);

/* The name of the i-th SIMD level that runs here, weakest first, or NULL past the last. */
const char *ddl_simd_level(size_t i);

/* Choose the level of the kernels handed out from now on, for tests. Returns 0, or -1 when it does not run here. */
int ddl_set_simd(const char *name);

#endif
