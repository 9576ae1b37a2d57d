/* The conversions of CUDA's cuda_bf16.h that cuda/ uses, for the host. */
#ifndef DDLBENCH_TESTS_CUDA_BF16_H
#define DDLBENCH_TESTS_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    unsigned short bits;
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float((unsigned)x.bits << 16); }

/* To the nearer neighbour, and to the even one when they are as near. Every NaN becomes 0x7fff, as on a device. */
inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    if (x != x)
        return {0x7fff};
    const unsigned bits = __float_as_uint(x), below = bits >> 16, rest = bits & 0xffff;
    return {(unsigned short)(below + (rest > 0x8000 || (rest == 0x8000 && (below & 1))))};
}

#endif
