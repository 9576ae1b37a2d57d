/* Launching the reductions: which kernel, how many blocks, and where the packs begin. */
#include "reduce.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#include <cuda_runtime.h>

#include "kernels.cuh"

namespace ddl {
namespace {

static_assert((int)DDL_CUDA_MOST_SOURCES == (int)MOST_SOURCES, "reduce.h and kernels.cuh disagree");

enum { THREADS = 256, REMEMBERED_DEVICES = 64 };

/* ---- How many blocks --------------------------------------------------------------------------------------------- */

/* The blocks of `kernel` that the current device holds at a time. */
cudaError_t ask_resident_blocks(const void *kernel, int device, int *blocks)
{
    int each = 0, multiprocessors = 0;
    cudaError_t error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, THREADS, 0);
    *blocks = each * multiprocessors;
    return error;
}

/* The same, asked once for each kernel and device. Threads that race here store the same answer. */
cudaError_t resident_blocks(const void *kernel, std::atomic<int> (&known)[REMEMBERED_DEVICES], int *blocks)
{
    int device = 0;
    const cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess)
        return error;
    if (device >= REMEMBERED_DEVICES)
        return ask_resident_blocks(kernel, device, blocks);
    *blocks = known[device].load(std::memory_order_relaxed);
    if (*blocks > 0)
        return cudaSuccess;
    const cudaError_t asked = ask_resident_blocks(kernel, device, blocks);
    if (asked == cudaSuccess)
        known[device].store(*blocks, std::memory_order_relaxed);
    return asked;
}

/* Run `kernel`, whose resident blocks are remembered in `known`. */
cudaError_t launch(void (*kernel)(Task), std::atomic<int> (&known)[REMEMBERED_DEVICES], const Task &task, size_t work,
                   cudaStream_t stream)
{
    int most = 0;
    const cudaError_t error = resident_blocks((const void *)kernel, known, &most);
    if (error != cudaSuccess)
        return error;
    const size_t wanted = (work + THREADS - 1) / THREADS;
    const unsigned blocks = wanted < (size_t)most ? (unsigned)wanted : (unsigned)most;
    Task argument = task;
    void *arguments[] = {&argument};
    return cudaLaunchKernel(kernel, dim3(blocks), dim3(THREADS), arguments, 0, stream);
}

/* ---- Where the packs begin --------------------------------------------------------------------------------------- */

/* The elements before the first multiple of 16 in dst; 0 where none of its elements begins at one. */
size_t elements_before_pack(const void *dst, size_t itemsize)
{
    const size_t nbytes = (PACK_NBYTES - (uintptr_t)dst % PACK_NBYTES) % PACK_NBYTES;
    return nbytes % itemsize == 0 ? nbytes / itemsize : 0;
}

bool begins_pack(const void *memory, size_t nbytes)
{
    return ((uintptr_t)memory + nbytes) % PACK_NBYTES == 0;
}

bool all_begin_packs(const Task &task, size_t nbytes)
{
    bool all = begins_pack(task.dst, nbytes) && (!task.forward || begins_pack(task.forward, nbytes));
    for (int k = 0; k < task.n_sources; k++)
        all = all && begins_pack(task.sources[k], nbytes);
    return all;
}

/* Settle head and packs of `task`, and return whether the kernel for aligned memory does. */
bool divide_into_packs(Task &task, size_t itemsize)
{
    const size_t per_pack = PACK_NBYTES / itemsize;
    const size_t head = elements_before_pack(task.dst, itemsize);
    const bool aligned = all_begin_packs(task, head * itemsize);
    const size_t margin = aligned ? 0 : per_pack;
    task.packs = task.count > head + 2 * margin ? (task.count - head - 2 * margin) / per_pack : 0;
    task.head = task.packs ? head + margin : 0;
    return aligned;
}

/* ---- Which kernel ------------------------------------------------------------------------------------------------ */

template <class Rule, int ROOM, class Last>
cudaError_t launch_aligned(const Task &task, size_t work, cudaStream_t stream)
{
    static std::atomic<int> known[REMEMBERED_DEVICES];
    return launch(reduce_aligned<Rule, ROOM, Last>, known, task, work, stream);
}

template <class Rule, class Last>
cudaError_t launch_at_any_alignment(const Task &task, size_t work, cudaStream_t stream)
{
    static std::atomic<int> known[REMEMBERED_DEVICES];
    return launch(reduce_at_any_alignment<Rule, Last>, known, task, work, stream);
}

/* FEW sources, the usual number, have a kernel with fewer registers, and so more threads, than what serves up to 8. */
template <class Rule, int FEW, class Last>
cudaError_t reduce_packs(Task &task, cudaStream_t stream)
{
    const size_t itemsize = sizeof(typename Rule::Bits);
    const bool aligned = divide_into_packs(task, itemsize);
    const size_t edges = task.count - task.packs * (PACK_NBYTES / itemsize);
    const size_t work = task.packs > edges ? task.packs : edges;
    if (!aligned)
        return launch_at_any_alignment<Rule, Last>(task, work, stream);
    if (task.n_sources <= FEW)
        return launch_aligned<Rule, FEW, Last>(task, work, stream);
    return launch_aligned<Rule, MOST_SOURCES, Last>(task, work, stream);
}

template <class Rule>
cudaError_t reduce_several(Task &task, cudaStream_t stream)
{
    return reduce_packs<Rule, 2, Undivided<Rule>>(task, stream);
}

template <class Sum, class Prod, class Min, class Max, class Avg>
cudaError_t reduce_by(int op, Task &task, cudaStream_t stream)
{
    if (task.divisor)
        return reduce_packs<Avg, 2, Divided<Avg>>(task, stream);
    switch (op) {
    case DDL_SUM:
    case DDL_AVG:
        return reduce_several<Sum>(task, stream);
    case DDL_PROD:
        return reduce_several<Prod>(task, stream);
    case DDL_MIN:
        return reduce_several<Min>(task, stream);
    default:
        return reduce_several<Max>(task, stream);
    }
}

template <class Type>
cudaError_t reduce_floats(int op, Task &task, cudaStream_t stream)
{
    return reduce_by<FloatSum<Type>, FloatProd<Type>, FloatExtreme<Type, -1>, FloatExtreme<Type, 1>, FloatAvg<Type>>(
        op, task, stream);
}

template <class Type>
cudaError_t reduce_integers(int op, Task &task, cudaStream_t stream)
{
    return reduce_by<IntegerSum<Type>, IntegerProd<Type>, IntegerExtreme<Type, -1>, IntegerExtreme<Type, 1>,
                     IntegerAvg<Type>>(op, task, stream);
}

/* One source and no division: bytes, whatever they mean. */
cudaError_t pass_on_bytes(Task task, size_t itemsize, cudaStream_t stream)
{
    task.count *= itemsize;
    return reduce_several<IntegerSum<UInt8>>(task, stream);
}

cudaError_t reduce_elements(int dtype, int op, Task &task, cudaStream_t stream)
{
    switch (dtype) {
    case DDL_FLOAT16:
        return reduce_floats<Float16>(op, task, stream);
    case DDL_BFLOAT16:
        return reduce_floats<BFloat16>(op, task, stream);
    case DDL_FLOAT32:
        return reduce_floats<Float32>(op, task, stream);
    case DDL_FLOAT64:
        return reduce_floats<Float64>(op, task, stream);
    case DDL_INT32:
        return reduce_integers<Int32>(op, task, stream);
    case DDL_INT64:
        return reduce_integers<Int64>(op, task, stream);
    default:
        return reduce_integers<UInt8>(op, task, stream);
    }
}

/* ---- What is refused --------------------------------------------------------------------------------------------- */

size_t itemsize_of(int dtype)
{
    static const size_t sizes[DDL_DTYPES] = {2, 2, 4, 8, 4, 8, 1}; /* in the order of enum ddl_dtype */
    return dtype >= 0 && dtype < DDL_DTYPES ? sizes[dtype] : 0;
}

bool overlap(const void *a, const void *b, size_t nbytes)
{
    return (uintptr_t)a < (uintptr_t)b + nbytes && (uintptr_t)b < (uintptr_t)a + nbytes;
}

/* Whether a source may be read while `dst` is written: the same memory or memory apart. */
bool may_read_while_writing(const void *dst, const void *source, size_t nbytes)
{
    return source && (source == dst || !overlap(dst, source, nbytes));
}

bool destinations_are_good(const Task &task, size_t nbytes)
{
    return task.dst && !(task.forward && overlap(task.dst, task.forward, nbytes));
}

bool memory_is_good(const Task &task, size_t nbytes)
{
    bool good = destinations_are_good(task, nbytes);
    for (int k = 0; k < task.n_sources; k++)
        good = good && may_read_while_writing(task.dst, task.sources[k], nbytes) &&
               (!task.forward || may_read_while_writing(task.forward, task.sources[k], nbytes));
    return good;
}

bool codes_are_good(int dtype, int op, int n_sources, long long divisor)
{
    const bool divides = divisor != 0;
    return itemsize_of(dtype) > 0 && op >= 0 && op < DDL_OPS && n_sources >= 1 && n_sources <= MOST_SOURCES &&
           divisor >= 0 && (!divides || op == DDL_AVG);
}

cudaError_t reduce(const void *const *sources, int dtype, int op, Task &task, cudaStream_t stream)
{
    if (!codes_are_good(dtype, op, task.n_sources, task.divisor) || !sources)
        return cudaErrorInvalidValue;
    const size_t itemsize = itemsize_of(dtype);
    if (task.count > PTRDIFF_MAX / itemsize)
        return cudaErrorInvalidValue;
    if (task.count == 0)
        return cudaSuccess;
    memcpy(task.sources, sources, (size_t)task.n_sources * sizeof *sources);
    if (!memory_is_good(task, task.count * itemsize))
        return cudaErrorInvalidValue;
    if (task.n_sources == 1 && !task.divisor)
        return pass_on_bytes(task, itemsize, stream);
    return reduce_elements(dtype, op, task, stream);
}

}  // namespace
}  // namespace ddl

/* ---- The C interface --------------------------------------------------------------------------------------------- */

int ddl_cuda_reduce_forward(void *dst, void *forward, const void *const *sources, int n_sources, size_t count,
                            int dtype, int op, long long divisor, void *stream)
{
    ddl::Task task = {(char *)dst, (char *)forward, {}, n_sources, count, 0, 0, divisor};
    return ddl::reduce(sources, dtype, op, task, (cudaStream_t)stream);
}

int ddl_cuda_reduce(void *dst, const void *const *sources, int n_sources, size_t count, int dtype, int op,
                    long long divisor, void *stream)
{
    return ddl_cuda_reduce_forward(dst, nullptr, sources, n_sources, count, dtype, op, divisor, stream);
}

int ddl_cuda_divide(void *dst, size_t count, int dtype, long long divisor, void *stream)
{
    const void *source = dst;
    if (divisor < 1)
        return cudaErrorInvalidValue;
    return ddl_cuda_reduce(dst, &source, 1, count, dtype, DDL_AVG, divisor, stream);
}
