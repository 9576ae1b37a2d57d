/* Element-wise reductions, compiled once per SIMD level from one set of scalar definitions.
 *
 * Each element type has four functions of two elements (TYPE_sum, _prod, _min, _max) and one quotient (TYPE_div), free
 * of branches so that the compiler vectorises the loops around them. REDUCER and DIVIDER wrap a loop for one level.
 * Only float16 is written by hand above the baseline: compilers that vectorise its conversion instructions are rare.
 */
#include "kernels.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "NaN, infinity and signed zero matter here: build without -ffast-math"
#endif

#define INLINE static inline __attribute__((always_inline))

/* The next loop carries nothing from one iteration to another, though dst may be a or b. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Memory of any alignment and any declared type. */
#define IN_MEMORY __attribute__((aligned(1), may_alias))
typedef uint16_t IN_MEMORY f16;
typedef uint16_t IN_MEMORY bf16;
typedef uint32_t IN_MEMORY bf16_pair;
typedef float IN_MEMORY f32;
typedef double IN_MEMORY f64;
typedef int32_t IN_MEMORY i32;
typedef int64_t IN_MEMORY i64;
typedef uint8_t IN_MEMORY u8;

/* Each type with the type it divides in; in the order of enum ddl_dtype. */
#define FOR_EACH_TYPE(APPLY, LEVEL) \
    APPLY(LEVEL, f16, float)        \
    APPLY(LEVEL, bf16, float)       \
    FOR_EACH_PLAIN_TYPE(APPLY, LEVEL)
#define FOR_EACH_PLAIN_TYPE(APPLY, LEVEL) \
    APPLY(LEVEL, f32, float)              \
    APPLY(LEVEL, f64, double)             \
    APPLY(LEVEL, i32, double)             \
    APPLY(LEVEL, i64, int64_t)            \
    APPLY(LEVEL, u8, float)

/* ---- Bits ---------------------------------------------------------------------------------------------------- */

INLINE uint32_t f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float f32_from(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE uint64_t f64_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE double f64_from(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The one NaN that any operation gives. */
#define F16_NAN 0x7e00u
#define BF16_NAN 0x7fc0u
#define F32_NAN 0x7fc00000u
#define F64_NAN 0x7ff8000000000000u

/* Choices without `?:`, of which a compiler may make a branch to spare the float arithmetic behind the side not taken;
 * it then vectorises nothing. */

/* All ones when a < b, else zero; both below 2^31. */
INLINE uint32_t below(uint32_t a, uint32_t b)
{
    return (uint32_t)((int32_t)(a - b) >> 31);
}

INLINE uint32_t either(uint32_t mask, uint32_t yes, uint32_t no)
{
    return no ^ ((yes ^ no) & mask);
}

/* ---- float16 and bfloat16 to float32 and back ------------------------------------------------------------------ */

/* No step meets a subnormal float32, so a processor told to flush those changes nothing. */
INLINE float f16_widen(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7fffu;
    const uint32_t subnormal = f32_bits((float)(int32_t)magnitude * 0x1p-24f);
    const uint32_t normal = (magnitude << 13) + (112u << 23);
    const uint32_t special = (magnitude << 13) | 0x7f800000u;
    const uint32_t finite = either(below(magnitude, 0x400u), subnormal, normal);
    return f32_from(sign | either(below(magnitude, 0x7c00u), finite, special));
}

INLINE uint16_t f16_narrow(float x)
{
    const uint32_t magnitude = f32_bits(x) & 0x7fffffffu;
    const uint32_t sign = (f32_bits(x) >> 16) & 0x8000u;
    /* Below 2^-14 a float16 is a multiple of 2^-24, which is what a float32 from 0.5 to 1 is too. */
    const uint32_t subnormal = f32_bits(f32_from(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t nearest = ((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10);
    const uint32_t normal = either(below(magnitude, 0x47800000u), nearest, 0x7c00u);
    const uint32_t number = sign | either(below(magnitude, 0x38800000u), subnormal, normal);
    return (uint16_t)either(below(0x7f800000u, magnitude), F16_NAN, number);
}

INLINE float bf16_widen(uint16_t brain)
{
    return f32_from((uint32_t)brain << 16);
}

/* The bfloat16 in the upper half of what is returned, and anything below. */
INLINE uint32_t bf16_above(float x)
{
    const uint32_t bits = f32_bits(x);
    const uint32_t nearest = bits + 0x7fffu + ((bits >> 16) & 1u);
    return x != x ? F32_NAN : nearest;
}

INLINE float bf16_rounded(float x)
{
    return f32_from(bf16_above(x) & 0xffff0000u);
}

INLINE uint16_t bf16_narrow(float x)
{
    return (uint16_t)(bf16_above(x) >> 16);
}

/* ---- Elements -------------------------------------------------------------------------------------------------- */

/* TYPE_first_OP is for all but the last of several operations; most types have one for both. */
#define FIRST_AS_LAST(TYPE, C)          \
    FIRST_AS_LAST_OF(TYPE, C, sum)      \
    FIRST_AS_LAST_OF(TYPE, C, prod)     \
    FIRST_AS_LAST_OF(TYPE, C, min)      \
    FIRST_AS_LAST_OF(TYPE, C, max)
#define FIRST_AS_LAST_OF(TYPE, C, OP)           \
    INLINE C TYPE##_##OP(C a, C b);             \
    INLINE C TYPE##_first_##OP(C a, C b)        \
    {                                           \
        return TYPE##_##OP(a, b);               \
    }

/* float16 and bfloat16: arithmetic in float32. Minimum and maximum compare the patterns themselves: flipping the
 * magnitude of negatives makes them integers in the order of the numbers, -0 below +0 (and flipping again undoes it).
 * A magnitude beyond that of INF is a NaN. */
#define SHORT_FLOAT_OPS(TYPE, INF, QUIET_NAN)                                       \
    FIRST_AS_LAST(TYPE, uint16_t)                                                   \
    INLINE int16_t TYPE##_flipped(uint16_t x)                                       \
    {                                                                               \
        return (int16_t)(x ^ (((int16_t)x >> 15) & 0x7fff));                        \
    }                                                                               \
    INLINE uint16_t TYPE##_unless_nan(uint16_t a, uint16_t b, int16_t flipped)      \
    {                                                                               \
        const int16_t x = a & 0x7fff, y = b & 0x7fff, most = x > y ? x : y;         \
        const int16_t is_nan = (int16_t)((INF) - most) >> 15;                       \
        const int16_t number = TYPE##_flipped((uint16_t)flipped);                   \
        return (uint16_t)(number ^ ((number ^ (QUIET_NAN)) & is_nan));              \
    }                                                                               \
    INLINE uint16_t TYPE##_sum(uint16_t a, uint16_t b)                              \
    {                                                                               \
        return TYPE##_narrow(TYPE##_widen(a) + TYPE##_widen(b));                    \
    }                                                                               \
    INLINE uint16_t TYPE##_prod(uint16_t a, uint16_t b)                             \
    {                                                                               \
        return TYPE##_narrow(TYPE##_widen(a) * TYPE##_widen(b));                    \
    }                                                                               \
    INLINE uint16_t TYPE##_min(uint16_t a, uint16_t b)                              \
    {                                                                               \
        const int16_t x = TYPE##_flipped(a), y = TYPE##_flipped(b);                 \
        return TYPE##_unless_nan(a, b, x < y ? x : y);                              \
    }                                                                               \
    INLINE uint16_t TYPE##_max(uint16_t a, uint16_t b)                              \
    {                                                                               \
        const int16_t x = TYPE##_flipped(a), y = TYPE##_flipped(b);                 \
        return TYPE##_unless_nan(a, b, x > y ? x : y);                              \
    }                                                                               \
    INLINE uint16_t TYPE##_div(uint16_t a, float divisor)                           \
    {                                                                               \
        return TYPE##_narrow(TYPE##_widen(a) / divisor);                            \
    }

SHORT_FLOAT_OPS(f16, 0x7c00, F16_NAN)
SHORT_FLOAT_OPS(bf16, 0x7f80, BF16_NAN)

/* float32 and float64. Asking both ways round differs only where both are zeros (or one is NaN); joining the bits of
 * the two answers then orders -0 below +0. The first of several operations leave a NaN as it is, for the last to make the
 * one NaN of it: of a constant in between gcc 14 makes a branch around what follows, and vectorises nothing. Where a or b
 * is a NaN the two answers are b and a, whose bits joined by `or` are a NaN. */
#define FLOAT_OPS(TYPE, C, QUIET_NAN)                                               \
    INLINE C TYPE##_quiet(C x)                                                      \
    {                                                                               \
        return x == x ? x : TYPE##_from(QUIET_NAN);                                 \
    }                                                                               \
    INLINE C TYPE##_first_sum(C a, C b)                                             \
    {                                                                               \
        return a + b;                                                               \
    }                                                                               \
    INLINE C TYPE##_first_prod(C a, C b)                                            \
    {                                                                               \
        return a * b;                                                               \
    }                                                                               \
    INLINE C TYPE##_first_min(C a, C b)                                             \
    {                                                                               \
        const C x = a < b ? a : b, y = b < a ? b : a;                               \
        return TYPE##_from(TYPE##_bits(x) | TYPE##_bits(y));                        \
    }                                                                               \
    INLINE C TYPE##_first_max(C a, C b)                                             \
    {                                                                               \
        const C x = a > b ? a : b, y = b > a ? b : a;                               \
        const C greatest = TYPE##_from(TYPE##_bits(x) & TYPE##_bits(y));            \
        const C nan = TYPE##_from(TYPE##_bits(x) | TYPE##_bits(y));                 \
        return __builtin_isunordered(a, b) ? nan : greatest;                        \
    }                                                                               \
    INLINE C TYPE##_sum(C a, C b)                                                   \
    {                                                                               \
        return TYPE##_quiet(a + b);                                                 \
    }                                                                               \
    INLINE C TYPE##_prod(C a, C b)                                                  \
    {                                                                               \
        return TYPE##_quiet(a * b);                                                 \
    }                                                                               \
    INLINE C TYPE##_min(C a, C b)                                                   \
    {                                                                               \
        const C least = TYPE##_first_min(a, b);                                     \
        return __builtin_isunordered(a, b) ? TYPE##_from(QUIET_NAN) : least;        \
    }                                                                               \
    INLINE C TYPE##_max(C a, C b)                                                   \
    {                                                                               \
        const C x = a > b ? a : b, y = b > a ? b : a;                               \
        const C greatest = TYPE##_from(TYPE##_bits(x) & TYPE##_bits(y));            \
        return __builtin_isunordered(a, b) ? TYPE##_from(QUIET_NAN) : greatest;     \
    }                                                                               \
    INLINE C TYPE##_div(C a, C divisor)                                             \
    {                                                                               \
        return TYPE##_quiet(a / divisor);                                           \
    }

FLOAT_OPS(f32, float, F32_NAN)
FLOAT_OPS(f64, double, F64_NAN)

/* Integers: sums and products wrap in UNSIGNED, which has no undefined overflow. */
#define INTEGER_OPS(TYPE, C, UNSIGNED)                                              \
    FIRST_AS_LAST(TYPE, C)                                                          \
    INLINE C TYPE##_sum(C a, C b)                                                   \
    {                                                                               \
        return (C)((UNSIGNED)a + (UNSIGNED)b);                                      \
    }                                                                               \
    INLINE C TYPE##_prod(C a, C b)                                                  \
    {                                                                               \
        return (C)((UNSIGNED)a * (UNSIGNED)b);                                      \
    }                                                                               \
    INLINE C TYPE##_min(C a, C b)                                                   \
    {                                                                               \
        return a < b ? a : b;                                                       \
    }                                                                               \
    INLINE C TYPE##_max(C a, C b)                                                   \
    {                                                                               \
        return a > b ? a : b;                                                       \
    }

INTEGER_OPS(i32, int32_t, uint32_t)
INTEGER_OPS(i64, int64_t, uint64_t)
INTEGER_OPS(u8, uint8_t, unsigned)

/* A quotient that is not whole lies at least 1/divisor from the next integer, farther than a double (here) or a float
 * (below) rounds; so truncating it is exact, and vector units divide these. */
INLINE int32_t i32_div(int32_t a, double divisor)
{
    return (int32_t)(a / divisor);
}

INLINE uint8_t u8_div(uint8_t a, float divisor)
{
    return (uint8_t)(int32_t)(a / divisor);
}

INLINE int64_t i64_div(int64_t a, int64_t divisor)
{
    return a / divisor;
}

/* ---- Loops ----------------------------------------------------------------------------------------------------- */

#define TARGET_baseline

#define REDUCER(LEVEL, TYPE, OP)                                                                                \
    TARGET_##LEVEL static void LEVEL##_##TYPE##_##OP(void *dst, const void *a, const void *b, size_t n)         \
    {                                                                                                           \
        TYPE *to = dst;                                                                                         \
        const TYPE *x = a, *y = b;                                                                              \
        INDEPENDENT                                                                                             \
        for (size_t i = 0; i < n; i++)                                                                          \
            to[i] = TYPE##_##OP(x[i], y[i]);                                                                    \
    }

/* Three and four sources in one pass, which would else be so many passes over what is in a cache. */
#define MANY_REDUCERS(LEVEL, TYPE, OP)                                                                          \
    TARGET_##LEVEL static void LEVEL##_##TYPE##_##OP##_3(void *dst, const void *const *of, size_t n)            \
    {                                                                                                           \
        TYPE *to = dst;                                                                                         \
        const TYPE *w = of[0], *x = of[1], *y = of[2];                                                          \
        INDEPENDENT                                                                                             \
        for (size_t i = 0; i < n; i++)                                                                          \
            to[i] = TYPE##_##OP(TYPE##_first_##OP(w[i], x[i]), y[i]);                                           \
    }                                                                                                           \
    TARGET_##LEVEL static void LEVEL##_##TYPE##_##OP##_4(void *dst, const void *const *of, size_t n)            \
    {                                                                                                           \
        TYPE *to = dst;                                                                                         \
        const TYPE *w = of[0], *x = of[1], *y = of[2], *z = of[3];                                              \
        INDEPENDENT                                                                                             \
        for (size_t i = 0; i < n; i++)                                                                          \
            to[i] = TYPE##_##OP(TYPE##_first_##OP(TYPE##_first_##OP(w[i], x[i]), y[i]), z[i]);                  \
    }

#define REDUCERS(LEVEL, TYPE, OP) \
    REDUCER(LEVEL, TYPE, OP)      \
    MANY_REDUCERS(LEVEL, TYPE, OP)

#define DIVIDER(LEVEL, TYPE, WIDE)                                                   \
    TARGET_##LEVEL static void LEVEL##_##TYPE##_div(void *dst, size_t n, long divisor) \
    {                                                                                \
        TYPE *to = dst;                                                              \
        const WIDE by = (WIDE)divisor;                                               \
        for (size_t i = 0; i < n; i++)                                               \
            to[i] = TYPE##_div(to[i], by);                                           \
    }

#define KERNELS(LEVEL, TYPE, WIDE) \
    REDUCERS(LEVEL, TYPE, sum)     \
    REDUCERS(LEVEL, TYPE, prod)    \
    REDUCERS(LEVEL, TYPE, min)     \
    REDUCERS(LEVEL, TYPE, max)     \
    DIVIDER(LEVEL, TYPE, WIDE)

/* Two elements of 32 bits at a time, the one shifted up and the other masked: vector units widen and narrow elements
 * only by moving them between lanes, which costs more than the sum (AVX-512 on Zen 4: 13 GB/s, and 20 by pairs). */
#define BF16_REDUCER(LEVEL, OP, SIGN)                                                                           \
    TARGET_##LEVEL static void LEVEL##_bf16_##OP(void *dst, const void *a, const void *b, size_t n)             \
    {                                                                                                           \
        bf16_pair *to = dst;                                                                                    \
        const bf16_pair *x = a, *y = b;                                                                         \
        INDEPENDENT                                                                                             \
        for (size_t i = 0; i < n / 2; i++) {                                                                    \
            const uint32_t p = x[i], q = y[i];                                                                  \
            const float low = f32_from(p << 16) SIGN f32_from(q << 16);                                         \
            const float high = f32_from(p & 0xffff0000u) SIGN f32_from(q & 0xffff0000u);                        \
            to[i] = bf16_above(low) >> 16 | (bf16_above(high) & 0xffff0000u);                                   \
        }                                                                                                       \
        if (n % 2)                                                                                              \
            ((bf16 *)dst)[n - 1] = bf16_##OP(((const bf16 *)a)[n - 1], ((const bf16 *)b)[n - 1]);               \
    }

/* The same of three or four sources, whose addresses are taken out of `of` first: what is stored might lie in `of` as
 * far as a compiler knows, and it then vectorises nothing. */
#define BF16_MANY_REDUCER(LEVEL, OP, SIGN, SOURCES)                                                             \
    TARGET_##LEVEL static void LEVEL##_bf16_##OP##_##SOURCES(void *dst, const void *const *of, size_t n)        \
    {                                                                                                           \
        bf16_pair *to = dst;                                                                                    \
        const bf16_pair *from[SOURCES];                                                                         \
        for (int k = 0; k < SOURCES; k++)                                                                       \
            from[k] = of[k];                                                                                    \
        INDEPENDENT                                                                                             \
        for (size_t i = 0; i < n / 2; i++) {                                                                    \
            const uint32_t first = from[0][i];                                                                  \
            float low = f32_from(first << 16), high = f32_from(first & 0xffff0000u);                            \
            for (int k = 1; k < SOURCES; k++) {                                                                 \
                const uint32_t next = from[k][i];                                                               \
                low = bf16_rounded(low SIGN f32_from(next << 16));                                              \
                high = bf16_rounded(high SIGN f32_from(next & 0xffff0000u));                                    \
            }                                                                                                   \
            to[i] = f32_bits(low) >> 16 | f32_bits(high);                                                       \
        }                                                                                                       \
        if (n % 2) {                                                                                            \
            uint16_t last = ((const bf16 *)of[0])[n - 1];                                                       \
            for (int k = 1; k < SOURCES; k++)                                                                   \
                last = bf16_##OP(last, ((const bf16 *)of[k])[n - 1]);                                           \
            ((bf16 *)dst)[n - 1] = last;                                                                        \
        }                                                                                                       \
    }

#define BF16_REDUCERS(LEVEL, OP, SIGN)      \
    BF16_REDUCER(LEVEL, OP, SIGN)           \
    BF16_MANY_REDUCER(LEVEL, OP, SIGN, 3)   \
    BF16_MANY_REDUCER(LEVEL, OP, SIGN, 4)

#define BF16_KERNELS(LEVEL)       \
    BF16_REDUCERS(LEVEL, sum, +)  \
    BF16_REDUCERS(LEVEL, prod, *) \
    REDUCERS(LEVEL, bf16, min)    \
    REDUCERS(LEVEL, bf16, max)    \
    DIVIDER(LEVEL, bf16, float)

KERNELS(baseline, f16, float)
BF16_KERNELS(baseline)
FOR_EACH_PLAIN_TYPE(KERNELS, baseline)

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define TARGET_avx2 __attribute__((target("avx2,f16c")))
#define TARGET_avx512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")))

typedef __m256 avx2_vector;
typedef __m512 avx512_vector;

BF16_KERNELS(avx2)
BF16_KERNELS(avx512)
FOR_EACH_PLAIN_TYPE(KERNELS, avx2)
FOR_EACH_PLAIN_TYPE(KERNELS, avx512)
REDUCERS(avx2, f16, min)
REDUCERS(avx2, f16, max)
REDUCERS(avx512, f16, min)
REDUCERS(avx512, f16, max)

TARGET_avx2 INLINE __m256 avx2_load(const f16 *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

TARGET_avx2 INLINE __m128i avx2_narrow(__m256 x)
{
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(F32_NAN));
    const __m256 quiet = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_cvtps_ph(quiet, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

TARGET_avx2 INLINE void avx2_store(f16 *to, __m256 x)
{
    _mm_storeu_si128((__m128i *)to, avx2_narrow(x));
}

TARGET_avx2 INLINE __m256 avx2_rounded(__m256 x)
{
    return _mm256_cvtph_ps(avx2_narrow(x));
}

TARGET_avx512 INLINE __m512 avx512_load(const f16 *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

TARGET_avx512 INLINE __m256i avx512_narrow(__m512 x)
{
    /* A table of what becomes of each class of numbers: `nan` of NaNs (0), of all others what they are (1). One
     * instruction; comparing and selecting made the sum 15 % slower on Zen 4. */
    const __m512i classes = _mm512_set1_epi32(0x11111100);
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(F32_NAN));
    const __m512 quiet = _mm512_fixupimm_ps(nan, x, classes, 0);
    return _mm512_cvtps_ph(quiet, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

TARGET_avx512 INLINE void avx512_store(f16 *to, __m512 x)
{
    _mm256_storeu_si256((__m256i *)to, avx512_narrow(x));
}

TARGET_avx512 INLINE __m512 avx512_rounded(__m512 x)
{
    return _mm512_cvtph_ps(avx512_narrow(x));
}

/* WIDTH elements at a time; what is left goes to the level below, which gives the same bits. */
#define F16_REDUCER(LEVEL, OP, WIDTH, OF_VECTORS, BELOW)                                                \
    TARGET_##LEVEL static void LEVEL##_f16_##OP(void *dst, const void *a, const void *b, size_t n)      \
    {                                                                                                   \
        f16 *to = dst;                                                                                  \
        const f16 *x = a, *y = b;                                                                       \
        const size_t whole = n - n % (WIDTH);                                                           \
        for (size_t i = 0; i < whole; i += (WIDTH))                                                     \
            LEVEL##_store(to + i, OF_VECTORS(LEVEL##_load(x + i), LEVEL##_load(y + i)));                \
        BELOW##_f16_##OP(to + whole, x + whole, y + whole, n - whole);                                  \
    }                                                                                                   \
    F16_MANY_REDUCER(LEVEL, OP, WIDTH, OF_VECTORS, BELOW, 3)                                            \
    F16_MANY_REDUCER(LEVEL, OP, WIDTH, OF_VECTORS, BELOW, 4)

#define F16_MANY_REDUCER(LEVEL, OP, WIDTH, OF_VECTORS, BELOW, SOURCES)                                          \
    TARGET_##LEVEL static void LEVEL##_f16_##OP##_##SOURCES(void *dst, const void *const *of, size_t n)         \
    {                                                                                                           \
        f16 *to = dst;                                                                                          \
        const size_t whole = n - n % (WIDTH);                                                                   \
        const void *rest[SOURCES];                                                                              \
        for (int k = 0; k < SOURCES; k++)                                                                       \
            rest[k] = (const f16 *)of[k] + whole;                                                               \
        for (size_t i = 0; i < whole; i += (WIDTH)) {                                                           \
            LEVEL##_vector sum = OF_VECTORS(LEVEL##_load((const f16 *)of[0] + i),                               \
                                            LEVEL##_load((const f16 *)of[1] + i));                              \
            for (int k = 2; k < SOURCES; k++)                                                                   \
                sum = OF_VECTORS(LEVEL##_rounded(sum), LEVEL##_load((const f16 *)of[k] + i));                   \
            LEVEL##_store(to + i, sum);                                                                         \
        }                                                                                                       \
        BELOW##_f16_##OP##_##SOURCES(to + whole, rest, n - whole);                                              \
    }

#define F16_DIVIDER(LEVEL, WIDTH, VECTOR, OF_VECTORS, BROADCAST, BELOW)                 \
    TARGET_##LEVEL static void LEVEL##_f16_div(void *dst, size_t n, long divisor)       \
    {                                                                                   \
        f16 *to = dst;                                                                  \
        const VECTOR by = BROADCAST((float)divisor);                                    \
        const size_t whole = n - n % (WIDTH);                                           \
        for (size_t i = 0; i < whole; i += (WIDTH))                                     \
            LEVEL##_store(to + i, OF_VECTORS(LEVEL##_load(to + i), by));                \
        BELOW##_f16_div(to + whole, n - whole, divisor);                                \
    }

F16_REDUCER(avx2, sum, 8, _mm256_add_ps, baseline)
F16_REDUCER(avx2, prod, 8, _mm256_mul_ps, baseline)
F16_DIVIDER(avx2, 8, __m256, _mm256_div_ps, _mm256_set1_ps, baseline)
F16_REDUCER(avx512, sum, 16, _mm512_add_ps, avx2)
F16_REDUCER(avx512, prod, 16, _mm512_mul_ps, avx2)
F16_DIVIDER(avx512, 16, __m512, _mm512_div_ps, _mm512_set1_ps, avx2)

/* The processor's own conversion flushes subnormals and keeps what a NaN says, so where a sum is either, the vectors of
 * the level below do that part. Pairs as there: 33 to 37 GB/s of sums in the caches of a Zen 4, where rounding in
 * integers gives 20 to 23 and float32 28 to 36. */
#if defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 10
#define HAS_NATIVE_BF16
#define TARGET_avx512bf16 __attribute__((target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")))
enum { PAIRS = 16 };

typedef struct {
    __m512 low, high; /* the even elements and the odd ones */
} bf16_vector;

TARGET_avx512bf16 INLINE bf16_vector bf16_load(const bf16 *from)
{
    const __m512i pairs = _mm512_loadu_si512(from);
    return (bf16_vector){_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
                         _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)))};
}

TARGET_avx512bf16 INLINE int bf16_odd(bf16_vector x)
{
    return _mm512_fpclass_ps_mask(x.low, 0xa1) | _mm512_fpclass_ps_mask(x.high, 0xa1); /* NaNs and subnormals */
}

TARGET_avx512bf16 INLINE void bf16_store(bf16 *to, bf16_vector x)
{
    const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(x.high, x.low);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(zip, halves));
}

/* A NaN stays one: what was bfloat16 has nothing in the lower half, so nothing carries. */
TARGET_avx512bf16 INLINE __m512 bf16_rounded_of(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    const __m512i nearest = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), even);
    return _mm512_castsi512_ps(_mm512_and_si512(nearest, _mm512_set1_epi32((int)0xffff0000u)));
}

#define NATIVE_BF16_REDUCER(OP, OF_VECTORS)                                                                     \
    TARGET_avx512bf16 INLINE bf16_vector bf16_##OP##_of(bf16_vector a, bf16_vector b)                           \
    {                                                                                                           \
        return (bf16_vector){OF_VECTORS(a.low, b.low), OF_VECTORS(a.high, b.high)};                             \
    }                                                                                                           \
    TARGET_avx512bf16 static void avx512bf16_bf16_##OP(void *dst, const void *a, const void *b, size_t n)       \
    {                                                                                                           \
        bf16 *to = dst;                                                                                         \
        const bf16 *x = a, *y = b;                                                                              \
        const size_t whole = n - n % (2 * PAIRS);                                                               \
        for (size_t i = 0; i < whole; i += 2 * PAIRS) {                                                         \
            const bf16_vector found = bf16_##OP##_of(bf16_load(x + i), bf16_load(y + i));                       \
            if (__builtin_expect(bf16_odd(found), 0))                                                           \
                avx512_bf16_##OP(to + i, x + i, y + i, 2 * PAIRS);                                              \
            else                                                                                                \
                bf16_store(to + i, found);                                                                      \
        }                                                                                                       \
        avx512_bf16_##OP(to + whole, x + whole, y + whole, n - whole);                                          \
    }                                                                                                           \
    NATIVE_BF16_MANY_REDUCER(OP, 3)                                                                             \
    NATIVE_BF16_MANY_REDUCER(OP, 4)

#define NATIVE_BF16_MANY_REDUCER(OP, SOURCES)                                                                   \
    TARGET_avx512bf16 static void avx512bf16_bf16_##OP##_##SOURCES(void *dst, const void *const *of, size_t n)  \
    {                                                                                                           \
        bf16 *to = dst;                                                                                         \
        const size_t whole = n - n % (2 * PAIRS);                                                               \
        const bf16 *from[SOURCES];                                                                              \
        const void *part[SOURCES];                                                                              \
        for (int k = 0; k < SOURCES; k++)                                                                       \
            from[k] = of[k];                                                                                    \
        for (size_t i = 0; i < whole; i += 2 * PAIRS) {                                                         \
            bf16_vector found = bf16_##OP##_of(bf16_load(from[0] + i), bf16_load(from[1] + i));                 \
            for (int k = 2; k < SOURCES; k++) {                                                                 \
                found = (bf16_vector){bf16_rounded_of(found.low), bf16_rounded_of(found.high)};                 \
                found = bf16_##OP##_of(found, bf16_load(from[k] + i));                                          \
            }                                                                                                   \
            if (__builtin_expect(bf16_odd(found), 0)) {                                                         \
                for (int k = 0; k < SOURCES; k++)                                                               \
                    part[k] = from[k] + i;                                                                      \
                avx512_bf16_##OP##_##SOURCES(to + i, part, 2 * PAIRS);                                          \
            } else {                                                                                            \
                bf16_store(to + i, found);                                                                      \
            }                                                                                                   \
        }                                                                                                       \
        for (int k = 0; k < SOURCES; k++)                                                                       \
            part[k] = from[k] + whole;                                                                          \
        avx512_bf16_##OP##_##SOURCES(to + whole, part, n - whole);                                              \
    }

NATIVE_BF16_REDUCER(sum, _mm512_add_ps)
NATIVE_BF16_REDUCER(prod, _mm512_mul_ps)
REDUCERS(avx512bf16, bf16, min)
REDUCERS(avx512bf16, bf16, max)
DIVIDER(avx512bf16, bf16, float)
#endif

/* Asked of the processor itself: older compilers do not know "f16c" in __builtin_cpu_supports. AVX2 without it exists
 * only where a hypervisor hides it. */
static int runs_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

static int runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && runs_f16c();
}

static int runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#ifdef HAS_NATIVE_BF16
static int runs_avx512bf16(void)
{
    unsigned eax, ebx, ecx, edx;
    return runs_avx512() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & 1u << 5);
}
#endif
#endif

static int runs_baseline(void)
{
    return 1;
}

/* ---- Dispatch -------------------------------------------------------------------------------------------------- */

struct level {
    const char *name;
    int (*runs_here)(void);
    ddl_reduce_fn reducers[DDL_DTYPES][DDL_OPS];
    ddl_reduce_many_fn of_three[DDL_DTYPES][DDL_OPS];
    ddl_reduce_many_fn of_four[DDL_DTYPES][DDL_OPS];
    ddl_divide_fn dividers[DDL_DTYPES];
};

#define REDUCERS_OF(LEVEL, TYPE, WIDE) \
    {LEVEL##_##TYPE##_sum, LEVEL##_##TYPE##_prod, LEVEL##_##TYPE##_min, LEVEL##_##TYPE##_max, LEVEL##_##TYPE##_sum},
#define MANY_OF(LEVEL, TYPE, N)                                                                                 \
    {LEVEL##_##TYPE##_sum_##N, LEVEL##_##TYPE##_prod_##N, LEVEL##_##TYPE##_min_##N, LEVEL##_##TYPE##_max_##N,   \
     LEVEL##_##TYPE##_sum_##N},
#define THREE_OF(LEVEL, TYPE, WIDE) MANY_OF(LEVEL, TYPE, 3)
#define FOUR_OF(LEVEL, TYPE, WIDE) MANY_OF(LEVEL, TYPE, 4)
#define DIVIDER_OF(LEVEL, TYPE, WIDE) LEVEL##_##TYPE##_div,
#define LEVEL_OF(LEVEL) \
    {#LEVEL, runs_##LEVEL,                                                                    \
     {FOR_EACH_TYPE(REDUCERS_OF, LEVEL)}, {FOR_EACH_TYPE(THREE_OF, LEVEL)},                   \
     {FOR_EACH_TYPE(FOUR_OF, LEVEL)}, {FOR_EACH_TYPE(DIVIDER_OF, LEVEL)}}

/* Weakest first. Each runs wherever a later one does. */
static const struct level levels[] = {
    LEVEL_OF(baseline),
#if defined(__x86_64__)
    LEVEL_OF(avx2),
    LEVEL_OF(avx512),
#endif
#ifdef HAS_NATIVE_BF16
    {"avx512bf16", runs_avx512bf16,
     {REDUCERS_OF(avx512, f16, float) REDUCERS_OF(avx512bf16, bf16, float) FOR_EACH_PLAIN_TYPE(REDUCERS_OF, avx512)},
     {THREE_OF(avx512, f16, float) THREE_OF(avx512bf16, bf16, float) FOR_EACH_PLAIN_TYPE(THREE_OF, avx512)},
     {FOUR_OF(avx512, f16, float) FOUR_OF(avx512bf16, bf16, float) FOR_EACH_PLAIN_TYPE(FOUR_OF, avx512)},
     {DIVIDER_OF(avx512, f16, float) DIVIDER_OF(avx512bf16, bf16, float) FOR_EACH_PLAIN_TYPE(DIVIDER_OF, avx512)}},
#endif
};
#define LEVELS (sizeof levels / sizeof levels[0])

static _Atomic(const struct level *) chosen;

static const struct level *best(void)
{
    size_t i = LEVELS - 1;
    while (!levels[i].runs_here())
        i--;
    return &levels[i];
}

/* Threads that race here store the same answer. */
static const struct level *current(void)
{
    const struct level *level = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!level) {
        level = best();
        atomic_store_explicit(&chosen, level, memory_order_relaxed);
    }
    return level;
}

static int is_dtype(int dtype)
{
    return dtype >= 0 && dtype < DDL_DTYPES;
}

ddl_reduce_fn ddl_reducer(int dtype, int op)
{
    return is_dtype(dtype) && op >= 0 && op < DDL_OPS ? current()->reducers[dtype][op] : NULL;
}

ddl_reduce_many_fn ddl_reducer_of(int dtype, int op, int sources)
{
    if (!is_dtype(dtype) || op < 0 || op >= DDL_OPS)
        return NULL;
    const struct level *level = current();
    return sources == 3 ? level->of_three[dtype][op] : sources == 4 ? level->of_four[dtype][op] : NULL;
}

ddl_divide_fn ddl_divider(int dtype)
{
    return is_dtype(dtype) ? current()->dividers[dtype] : NULL;
}

size_t ddl_itemsize(int dtype)
{
#define SIZE_OF(LEVEL, TYPE, WIDE) sizeof(TYPE),
    static const size_t sizes[DDL_DTYPES] = {FOR_EACH_TYPE(SIZE_OF, any)};
    return is_dtype(dtype) ? sizes[dtype] : 0;
}

const char *ddl_simd(void)
{
    return current()->name;
}

const char *ddl_simd_level(size_t i)
{
    return i < LEVELS && levels[i].runs_here() ? levels[i].name : NULL;
}

int ddl_set_simd(const char *name)
{
    for (size_t i = 0; i < LEVELS; i++) {
        if (strcmp(levels[i].name, name) == 0 && levels[i].runs_here()) {
            atomic_store_explicit(&chosen, &levels[i], memory_order_relaxed);
            return 0;
        }
    }
    return -1;
}
