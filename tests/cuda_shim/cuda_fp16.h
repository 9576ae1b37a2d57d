/* The conversions of CUDA's cuda_fp16.h that cuda/ uses, for the host. */
#ifndef DDLBENCH_TESTS_CUDA_FP16_H
#define DDLBENCH_TESTS_CUDA_FP16_H

#include <cmath>

#include "cuda_runtime.h"

struct __half {
    unsigned short bits;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }

inline float __half2float(__half x)
{
    const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
    const float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                            : exponent == 0 ? ldexpf((float)fraction, -24)
                                            : ldexpf((float)(1024 + fraction), exponent - 25);
    return x.bits & 0x8000 ? -magnitude : magnitude;
}

inline unsigned short shim_half_magnitude(float magnitude)
{
    if (magnitude >= 65520.0f)
        return 0x7c00;
    if (magnitude < 0x1p-14f)
        return (unsigned short)nearbyintf(magnitude * 0x1p24f);
    int exponent;
    const float fraction = frexpf(magnitude, &exponent);
    return (unsigned short)(((exponent + 13) << 10) + (int)nearbyintf(fraction * 2048.0f));
}

/* Every NaN becomes 0x7fff, as on a device. */
inline __half __float2half_rn(float x)
{
    if (x != x)
        return {0x7fff};
    return {(unsigned short)((std::signbit(x) ? 0x8000 : 0) | shim_half_magnitude(fabsf(x)))};
}

#endif
