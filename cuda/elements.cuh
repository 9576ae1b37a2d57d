/* Elements on a device: how each type is added, multiplied, compared and divided, with the bits of pyx/kernels.c.
 *
 * A *rule* reduces one element type by one operation: `load` turns an element into what is accumulated, `combine` joins
 * two of those and rounds as the type does, `finish` makes an element of the last. What the host does after each
 * operation, to give every NaN one pattern, is done once in `finish` here: a NaN stays one through all that follow.
 *
 * No host header is included, so that NVRTC compiles this for devices that a newer nvcc no longer knows.
 */
#ifndef DDLBENCH_CUDA_ELEMENTS_CUH
#define DDLBENCH_CUDA_ELEMENTS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define DDL_DEVICE static __device__ __forceinline__

namespace ddl {

/* ---- Element types ----------------------------------------------------------------------------------------------- */

/* Bits is the memory of an element, Signed the same bits as a number. */
struct Float16 {
    typedef unsigned short Bits;
    typedef short Signed;
    typedef float Wide;
    static constexpr Bits INF = 0x7c00, QUIET_NAN = 0x7e00;
    DDL_DEVICE Wide widen(Bits bits) { return __half2float(__ushort_as_half(bits)); }
    DDL_DEVICE Bits narrow(Wide x) { return __half_as_ushort(__float2half_rn(x)); }
};

struct BFloat16 {
    typedef unsigned short Bits;
    typedef short Signed;
    typedef float Wide;
    static constexpr Bits INF = 0x7f80, QUIET_NAN = 0x7fc0;
    DDL_DEVICE Wide widen(Bits bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }
    DDL_DEVICE Bits narrow(Wide x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
};

struct Float32 {
    typedef unsigned Bits;
    typedef int Signed;
    typedef float Wide;
    static constexpr Bits INF = 0x7f800000u, QUIET_NAN = 0x7fc00000u;
    DDL_DEVICE Wide widen(Bits bits) { return __uint_as_float(bits); }
    DDL_DEVICE Bits narrow(Wide x) { return __float_as_uint(x); }
};

struct Float64 {
    typedef unsigned long long Bits;
    typedef long long Signed;
    typedef double Wide;
    static constexpr Bits INF = 0x7ffull << 52, QUIET_NAN = 0x7ff8ull << 48;
    DDL_DEVICE Wide widen(Bits bits) { return __longlong_as_double((long long)bits); }
    DDL_DEVICE Bits narrow(Wide x) { return (Bits)__double_as_longlong(x); }
};

struct Int32 {
    typedef unsigned Bits;
    typedef int Value;
};

struct Int64 {
    typedef unsigned long long Bits;
    typedef long long Value;
};

struct UInt8 {
    typedef unsigned char Bits;
    typedef unsigned char Value;
};

/* ---- Sums and products ------------------------------------------------------------------------------------------- */

/* float32 holds a sum or product of two 16-bit floats closely enough for one rounding in effect (docs/numerics.md). */
template <class Type>
struct Rounding {
    typedef typename Type::Bits Bits;
    typedef typename Type::Wide Partial;
    DDL_DEVICE Partial load(Bits bits) { return Type::widen(bits); }
    DDL_DEVICE Partial rounded(Partial x) { return Type::widen(Type::narrow(x)); }

    /* Narrowed in any case: a choice between two numbers is no branch. */
    DDL_DEVICE Bits finish(Partial x)
    {
        const Bits number = Type::narrow(x);
        return x == x ? number : Type::QUIET_NAN;
    }
};

/* Integers wrap: in their unsigned kin, which has no undefined overflow. */
template <class Type>
struct Wrapping {
    typedef typename Type::Bits Bits;
    typedef Bits Partial;
    DDL_DEVICE Partial load(Bits bits) { return bits; }
    DDL_DEVICE Bits finish(Partial x) { return x; }
};

template <class Type>
struct FloatSum : Rounding<Type> {
    typedef typename Type::Wide Partial;
    DDL_DEVICE Partial combine(Partial a, Partial b) { return Rounding<Type>::rounded(a + b); }
};

template <class Type>
struct FloatProd : Rounding<Type> {
    typedef typename Type::Wide Partial;
    DDL_DEVICE Partial combine(Partial a, Partial b) { return Rounding<Type>::rounded(a * b); }
};

template <class Type>
struct IntegerSum : Wrapping<Type> {
    typedef typename Type::Bits Partial;
    DDL_DEVICE Partial combine(Partial a, Partial b) { return (Partial)(a + b); }
};

template <class Type>
struct IntegerProd : Wrapping<Type> {
    typedef typename Type::Bits Partial;
    DDL_DEVICE Partial combine(Partial a, Partial b) { return (Partial)(a * b); }
};

/* ---- Minimum and maximum ----------------------------------------------------------------------------------------- */

/* Flipping the magnitude of negatives makes the patterns of floats integers in the order of the numbers, -0 below +0;
 * flipping again undoes it. SIGN is 1 for a maximum and -1 for a minimum, for which a NaN counts as the greatest and as
 * the least of all. */
template <class Type, int SIGN>
struct FloatExtreme {
    typedef typename Type::Bits Bits;
    typedef typename Type::Signed Partial;
    static constexpr int TOP = 8 * sizeof(Bits) - 1;
    static constexpr Bits MAGNITUDE = (Bits)((Bits)~(Bits)0 >> 1);
    static constexpr Partial ABOVE_ALL = (Partial)MAGNITUDE, BELOW_ALL = (Partial)(-ABOVE_ALL - 1);
    static constexpr Partial IS_NAN = SIGN > 0 ? ABOVE_ALL : BELOW_ALL;

    DDL_DEVICE Partial flipped(Partial x) { return (Partial)(x ^ ((x >> TOP) & (Partial)MAGNITUDE)); }

    DDL_DEVICE Partial load(Bits bits)
    {
        return (Bits)(bits & MAGNITUDE) > Type::INF ? IS_NAN : flipped((Partial)bits);
    }

    DDL_DEVICE Partial combine(Partial a, Partial b) { return (SIGN > 0 ? a > b : a < b) ? a : b; }

    DDL_DEVICE Bits finish(Partial x) { return x == IS_NAN ? Type::QUIET_NAN : (Bits)flipped(x); }
};

template <class Type, int SIGN>
struct IntegerExtreme {
    typedef typename Type::Bits Bits;
    typedef typename Type::Value Partial;
    DDL_DEVICE Partial load(Bits bits) { return (Partial)bits; }
    DDL_DEVICE Partial combine(Partial a, Partial b) { return (SIGN > 0 ? a > b : a < b) ? a : b; }
    DDL_DEVICE Bits finish(Partial x) { return (Bits)x; }
};

/* ---- Average: the sum, and one division of what the sum rounded to ----------------------------------------------- */

template <class Type>
struct FloatAvg : FloatSum<Type> {
    typedef typename Type::Wide Divisor;
    DDL_DEVICE Divisor divisor(long long ranks) { return (Divisor)ranks; }
    DDL_DEVICE typename Type::Bits divide(typename Type::Bits sum, Divisor by)
    {
        return Rounding<Type>::finish(Type::widen(sum) / by);
    }
};

template <class Type>
struct IntegerAvg;

template <>
struct IntegerAvg<Int64> : IntegerSum<Int64> {
    typedef long long Divisor;
    DDL_DEVICE Divisor divisor(long long ranks) { return ranks; }
    DDL_DEVICE unsigned long long divide(unsigned long long sum, Divisor by)
    {
        return (unsigned long long)((long long)sum / by);
    }
};

/* By magnitudes of 32 bits, which divide five times faster than 64. A divisor beyond 2^31 gives 0 either way. */
template <>
struct IntegerAvg<Int32> : IntegerSum<Int32> {
    typedef unsigned Divisor;
    DDL_DEVICE Divisor divisor(long long ranks) { return ranks > 0xffffffffll ? 0xffffffffu : (unsigned)ranks; }
    DDL_DEVICE unsigned divide(unsigned sum, Divisor by)
    {
        const bool negative = (int)sum < 0;
        const unsigned quotient = (negative ? 0u - sum : sum) / by;
        return negative ? 0u - quotient : quotient;
    }
};

/* (sum + 1/2) / divisor lies at least 1 / (2 divisor) from an integer, farther than two roundings of a float32 move a
 * number below 256 / divisor: truncating it gives the quotient. */
template <>
struct IntegerAvg<UInt8> : IntegerSum<UInt8> {
    typedef float Divisor;
    DDL_DEVICE Divisor divisor(long long ranks) { return 1.0f / (float)ranks; }
    DDL_DEVICE unsigned char divide(unsigned char sum, Divisor inverse)
    {
        return (unsigned char)(((float)sum + 0.5f) * inverse);
    }
};

}  // namespace ddl

#endif
