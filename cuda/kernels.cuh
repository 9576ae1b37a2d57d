/* The kernels: one pass over 1 to 8 sources, into one or two destinations, at any alignment.
 *
 * Memory is read and written in *packs* of 16 bytes, each by one thread, in a loop over the whole grid. `head` elements
 * stand before the first pack, so that it begins at a multiple of 16 in dst, and some behind the last; these edges are
 * done one by one, and byte by byte, whatever their alignment.
 *
 * When some memory is not at a multiple of 16 where dst is, reduce_at_any_alignment reads the two aligned packs that
 * hold the 16 bytes in question and shifts them together: memory is still read 16 bytes at a time, and the second of
 * the two is the next thread's first, in the cache. The edges then are a pack longer at both ends, so that nothing
 * outside a source is read. Destinations off such a multiple are written in the widest pieces that their alignment
 * allows. What a thread reads of its neighbours' bytes it throws away, so that dst may be a source here too.
 */
#ifndef DDLBENCH_CUDA_KERNELS_CUH
#define DDLBENCH_CUDA_KERNELS_CUH

#include "elements.cuh"

/* Read in place, rather than copied by each thread to memory of its own; compute capability 7.0 made it possible. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
#define DDL_TASK const __grid_constant__ Task
#else
#define DDL_TASK const Task
#endif

namespace ddl {

enum { PACK_NBYTES = 16, MOST_SOURCES = 8 };

struct Task {
    char *dst, *forward; /* forward may be null */
    const char *sources[MOST_SOURCES];
    int n_sources;
    size_t count, head, packs; /* of elements, of elements and of packs */
    long long divisor;         /* 0: no division */
};

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Elements of any alignment. */
template <class Bits>
DDL_DEVICE Bits read_element(const char *from)
{
    Bits bits;
    memcpy(&bits, from, sizeof bits);
    return bits;
}

template <class Bits>
DDL_DEVICE void write_element(char *to, Bits bits)
{
    memcpy(to, &bits, sizeof bits);
}

DDL_DEVICE unsigned misalignment(const char *address)
{
    return (unsigned)((size_t)address % PACK_NBYTES);
}

/* The 16 bytes that begin `shift` (1 to 15) bytes into `low` and go on in `high`. */
DDL_DEVICE uint4 shifted(uint4 low, uint4 high, unsigned shift)
{
    unsigned w0 = low.x, w1 = low.y, w2 = low.z, w3 = low.w, w4 = high.x, w5 = high.y, w6 = high.z;
    unsigned w7 = high.w;
    if (shift & 8) {
        w0 = w2, w1 = w3, w2 = w4, w3 = w5, w4 = w6, w5 = w7;
    }
    if (shift & 4) {
        w0 = w1, w1 = w2, w2 = w3, w3 = w4, w4 = w5;
    }
    const unsigned bits = 8 * (shift & 3);
    return make_uint4(__funnelshift_r(w0, w1, bits), __funnelshift_r(w1, w2, bits), __funnelshift_r(w2, w3, bits),
                      __funnelshift_r(w3, w4, bits));
}

DDL_DEVICE uint4 read_pack(const char *from)
{
    const unsigned shift = misalignment(from);
    const uint4 *at = (const uint4 *)(from - shift);
    return shift == 0 ? at[0] : shifted(at[0], at[1], shift);
}

template <class Piece>
DDL_DEVICE void write_pieces(char *to, const uint4 &pack)
{
    Piece pieces[PACK_NBYTES / sizeof(Piece)];
    memcpy(pieces, &pack, PACK_NBYTES);
#pragma unroll
    for (int i = 0; i < (int)(PACK_NBYTES / sizeof(Piece)); i++)
        ((Piece *)to)[i] = pieces[i];
}

DDL_DEVICE void write_pack(char *to, const uint4 &pack)
{
    const unsigned off = misalignment(to);
    if (off == 0)
        *(uint4 *)to = pack;
    else if (off % 8 == 0)
        write_pieces<uint2>(to, pack);
    else if (off % 4 == 0)
        write_pieces<unsigned>(to, pack);
    else if (off % 2 == 0)
        write_pieces<unsigned short>(to, pack);
    else
        write_pieces<unsigned char>(to, pack);
}

/* ---- Reducing ---------------------------------------------------------------------------------------------------- */

/* What is done with the finished result: nothing, or for an average a division. */
template <class Rule>
struct Undivided {
    typedef typename Rule::Bits Bits;
    __device__ __forceinline__ explicit Undivided(long long) {}
    __device__ __forceinline__ Bits operator()(Bits bits) const { return bits; }
};

template <class Rule>
struct Divided {
    typedef typename Rule::Bits Bits;
    typename Rule::Divisor by;
    __device__ __forceinline__ explicit Divided(long long ranks) : by(Rule::divisor(ranks)) {}
    __device__ __forceinline__ Bits operator()(Bits bits) const { return Rule::divide(bits, by); }
};

/* The elements of one pack while sources are joined to it, in their order. */
template <class Rule>
struct Partials {
    typedef typename Rule::Bits Bits;
    static constexpr int SIZE = PACK_NBYTES / sizeof(Bits);
    typename Rule::Partial of[SIZE];

    __device__ __forceinline__ explicit Partials(const uint4 &pack)
    {
        Bits bits[SIZE];
        memcpy(bits, &pack, sizeof bits);
#pragma unroll
        for (int i = 0; i < SIZE; i++)
            of[i] = Rule::load(bits[i]);
    }

    __device__ __forceinline__ void join(const uint4 &pack)
    {
        Bits bits[SIZE];
        memcpy(bits, &pack, sizeof bits);
#pragma unroll
        for (int i = 0; i < SIZE; i++)
            of[i] = Rule::combine(of[i], Rule::load(bits[i]));
    }

    template <class Last>
    __device__ __forceinline__ uint4 finished(const Last &last) const
    {
        Bits bits[SIZE];
#pragma unroll
        for (int i = 0; i < SIZE; i++)
            bits[i] = last(Rule::finish(of[i]));
        uint4 pack;
        memcpy(&pack, bits, sizeof pack);
        return pack;
    }
};

/* All sources are read before the first is needed: what hides the time that memory takes. */
template <class Rule, int ROOM, class Last>
DDL_DEVICE uint4 reduced_aligned(const Task &task, size_t at, const Last &last)
{
    uint4 packs[ROOM];
#pragma unroll
    for (int k = 0; k < ROOM; k++)
        if (k < task.n_sources)
            packs[k] = *(const uint4 *)(task.sources[k] + at);
    Partials<Rule> partials(packs[0]);
#pragma unroll
    for (int k = 1; k < ROOM; k++)
        if (k < task.n_sources)
            partials.join(packs[k]);
    return partials.finished(last);
}

template <class Rule, class Last>
DDL_DEVICE uint4 reduced_at_any_alignment(const Task &task, size_t at, const Last &last)
{
    Partials<Rule> partials(read_pack(task.sources[0] + at));
#pragma unroll 1
    for (int k = 1; k < task.n_sources; k++)
        partials.join(read_pack(task.sources[k] + at));
    return partials.finished(last);
}

template <class Rule, class Last>
DDL_DEVICE void reduce_edge(const Task &task, size_t at, const Last &last)
{
    typedef typename Rule::Bits Bits;
    typename Rule::Partial partial = Rule::load(read_element<Bits>(task.sources[0] + at));
#pragma unroll 1
    for (int k = 1; k < task.n_sources; k++)
        partial = Rule::combine(partial, Rule::load(read_element<Bits>(task.sources[k] + at)));
    const Bits result = last(Rule::finish(partial));
    write_element(task.dst + at, result);
    if (task.forward)
        write_element(task.forward + at, result);
}

/* ---- The kernels ------------------------------------------------------------------------------------------------- */

DDL_DEVICE size_t first_of_thread()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

DDL_DEVICE size_t all_threads()
{
    return (size_t)gridDim.x * blockDim.x;
}

template <class Rule, class Last>
DDL_DEVICE void reduce_edges(const Task &task, const Last &last)
{
    constexpr size_t SIZE = sizeof(typename Rule::Bits);
    const size_t inside = task.packs * (PACK_NBYTES / SIZE);
    for (size_t edge = first_of_thread(); edge < task.count - inside; edge += all_threads())
        reduce_edge<Rule>(task, (edge < task.head ? edge : edge + inside) * SIZE, last);
}

/* For up to ROOM sources, all at multiples of 16 where dst is. */
template <class Rule, int ROOM, class Last>
__global__ void reduce_aligned(DDL_TASK task)
{
    const Last last(task.divisor);
    for (size_t pack = first_of_thread(); pack < task.packs; pack += all_threads()) {
        const size_t at = task.head * sizeof(typename Rule::Bits) + pack * PACK_NBYTES;
        const uint4 result = reduced_aligned<Rule, ROOM>(task, at, last);
        *(uint4 *)(task.dst + at) = result;
        if (task.forward)
            *(uint4 *)(task.forward + at) = result;
    }
    reduce_edges<Rule>(task, last);
}

/* For any sources. */
template <class Rule, class Last>
__global__ void reduce_at_any_alignment(DDL_TASK task)
{
    const Last last(task.divisor);
    for (size_t pack = first_of_thread(); pack < task.packs; pack += all_threads()) {
        const size_t at = task.head * sizeof(typename Rule::Bits) + pack * PACK_NBYTES;
        const uint4 result = reduced_at_any_alignment<Rule>(task, at, last);
        write_pack(task.dst + at, result);
        if (task.forward)
            write_pack(task.forward + at, result);
    }
    reduce_edges<Rule>(task, last);
}

}  // namespace ddl

#endif
