/* A CUDA runtime in which the device is the host: enough to compile cuda/ with g++ and run it in tests, no more.
 *
 * It is an emulation and proves nothing about a GPU: the kernels' C++ runs, thread by thread, on the CPU. It is made to
 * find mistakes, so it is unkind where a GPU may be: nothing put into a stream runs before somebody waits for that
 * stream, blocks and threads run last to first, and there are unmapped pages on both sides of each allocation.
 *
 * From the environment, read once: EMULATED_CUDA_DEVICES (2), EMULATED_CUDA_MEMORY (bytes of each, 1 GiB),
 * EMULATED_CUDA_ERROR (a cudaError_t with which every call fails, as 35 where there is no driver).
 */
#ifndef DDLBENCH_TESTS_CUDA_RUNTIME_H
#define DDLBENCH_TESTS_CUDA_RUNTIME_H

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

/* ---- The language ------------------------------------------------------------------------------------------------ */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}

template <class To, class From>
inline To shim_same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline float __uint_as_float(unsigned bits) { return shim_same_bits<float>(bits); }
inline unsigned __float_as_uint(float x) { return shim_same_bits<unsigned>(x); }
inline double __longlong_as_double(long long bits) { return shim_same_bits<double>(bits); }
inline long long __double_as_longlong(double x) { return shim_same_bits<long long>(x); }

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorStubLibrary = 34,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorDeviceUninitialized = 201,
    cudaErrorSymbolNotFound = 500,
    cudaErrorNotReady = 600,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorHostMemoryNotRegistered = 713,
};

struct ShimError {
    int code;
    const char *name, *text;
};

inline const ShimError *shim_error(int code)
{
    static const ShimError all[] = {
        {0, "cudaSuccess", "no error"},
        {1, "cudaErrorInvalidValue", "invalid argument"},
        {2, "cudaErrorMemoryAllocation", "out of memory"},
        {34, "cudaErrorStubLibrary", "CUDA driver is a stub library"},
        {35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
        {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
        {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
        {201, "cudaErrorDeviceUninitialized", "invalid device context"},
        {500, "cudaErrorSymbolNotFound", "named symbol not found"},
        {600, "cudaErrorNotReady", "device not ready"},
        {704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
        {713, "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    };
    for (const ShimError &error : all)
        if (error.code == code)
            return &error;
    static const ShimError unknown = {999, "cudaErrorUnknown", "unknown error"};
    return &unknown;
}

inline const char *cudaGetErrorName(cudaError_t error) { return shim_error(error)->name; }
inline const char *cudaGetErrorString(cudaError_t error) { return shim_error(error)->text; }

/* ---- The process's devices, memory and streams ------------------------------------------------------------------- */

/* Work in its order; `done` counts what has run of all that was ever put in. */
struct ShimStream {
    std::deque<std::function<void()>> waiting;
    size_t done = 0;

    void run_one()
    {
        std::function<void()> work = std::move(waiting.front());
        waiting.pop_front();
        done++;
        work();
    }
    void run_until(size_t target)
    {
        while (done < target && !waiting.empty())
            run_one();
    }
    void run_all() { run_until(done + waiting.size()); }
    size_t put(std::function<void()> work)
    {
        waiting.push_back(std::move(work));
        return done + waiting.size();
    }
};

/* Happens when its stream has run up to `target`; the time is kept apart, since the event may be destroyed before. */
struct ShimEvent {
    ShimStream *stream = nullptr;
    size_t target = 0;
    std::shared_ptr<double> at = std::make_shared<double>(0);
};

struct ShimMemory {
    size_t nbytes;
    int device, file; /* device -1: pinned host memory; file -1: not memory of a file */
    bool mapped_from_elsewhere;
};

typedef ShimStream *cudaStream_t;
typedef ShimEvent *cudaEvent_t;

struct ShimState {
    std::recursive_mutex lock;
    ShimStream default_stream;
    std::map<ShimStream *, std::unique_ptr<ShimStream>> streams;
    std::map<char *, ShimMemory> memory;
    std::map<int, size_t> in_use;
    int devices, error;
    size_t total_nbytes;

    static long long setting(const char *name, long long otherwise)
    {
        const char *text = getenv(name);
        return text ? atoll(text) : otherwise;
    }
    ShimState()
        : devices((int)setting("EMULATED_CUDA_DEVICES", 2)), error((int)setting("EMULATED_CUDA_ERROR", 0)),
          total_nbytes((size_t)setting("EMULATED_CUDA_MEMORY", 1 << 30))
    {
    }
    ShimStream *of(ShimStream *stream) { return stream ? stream : &default_stream; }
    void run_everything()
    {
        default_stream.run_all();
        for (auto &each : streams)
            each.second->run_all();
    }
    std::map<char *, ShimMemory>::iterator holding(const void *address)
    {
        auto found = memory.upper_bound((char *)address);
        if (found == memory.begin())
            return memory.end();
        --found;
        return (char *)address < found->first + found->second.nbytes ? found : memory.end();
    }
};

/* Never destroyed: memory is freed and streams run until the very end. */
inline ShimState &shim()
{
    static ShimState *state = new ShimState;
    return *state;
}

inline thread_local int shim_device = 0;

#define SHIM_CALL                                                 \
    std::lock_guard<std::recursive_mutex> shim_guard(shim().lock); \
    if (shim().error != 0)                                        \
        return (cudaError_t)shim().error;                         \
    if (shim().devices == 0)                                      \
        return cudaErrorNoDevice

/* ---- Devices ----------------------------------------------------------------------------------------------------- */

struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    size_t totalGlobalMem;
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
enum { SHIM_MULTIPROCESSORS = 2 };

inline cudaError_t shim_check_device(int device)
{
    return device >= 0 && device < shim().devices ? cudaSuccess : cudaErrorInvalidDevice;
}

inline cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    SHIM_CALL;
    *count = shim().devices;
    return cudaSuccess;
}

inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    SHIM_CALL;
    snprintf(properties->name, sizeof properties->name, "emulated GPU %d", device);
    properties->major = 7, properties->minor = 0;
    properties->multiProcessorCount = SHIM_MULTIPROCESSORS;
    properties->totalGlobalMem = shim().total_nbytes;
    return shim_check_device(device);
}

inline cudaError_t cudaDeviceGetPCIBusId(char *bus, int nbytes, int device)
{
    SHIM_CALL;
    snprintf(bus, (size_t)nbytes, "0000:%02x:00.0", device + 1);
    return shim_check_device(device);
}

inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int device)
{
    SHIM_CALL;
    *value = SHIM_MULTIPROCESSORS;
    return shim_check_device(device);
}

inline cudaError_t cudaSetDevice(int device)
{
    SHIM_CALL;
    if (shim_check_device(device) == cudaSuccess)
        shim_device = device;
    return shim_check_device(device);
}

inline cudaError_t cudaGetDevice(int *device)
{
    SHIM_CALL;
    *device = shim_device;
    return cudaSuccess;
}

inline cudaError_t cudaDriverGetVersion(int *version)
{
    *version = shim().error ? 0 : 12000;
    return cudaSuccess;
}

inline cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 12000;
    return cudaSuccess;
}

inline cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    SHIM_CALL;
    *can = device != peer;
    return shim_check_device(device) == cudaSuccess ? shim_check_device(peer) : cudaErrorInvalidDevice;
}

inline cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    SHIM_CALL;
    return shim_check_device(peer);
}

inline cudaError_t cudaGetLastError() { return cudaSuccess; }

/* ---- Memory: files that other processes can map, with unmapped pages on both sides ------------------------------- */

enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum { cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2 };
enum { cudaIpcMemLazyEnablePeerAccess = 1 };

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
};

inline size_t shim_pages(size_t nbytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (nbytes + page - 1) / page * page;
}

inline char *shim_map(int file, size_t nbytes)
{
    const size_t page = shim_pages(1), inside = shim_pages(nbytes);
    void *whole = mmap(nullptr, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED)
        return nullptr;
    char *start = (char *)whole + page;
    if (mmap(start, inside, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED)
        return start;
    munmap(whole, inside + 2 * page);
    return nullptr;
}

inline cudaError_t shim_new_memory(void **memory, size_t nbytes, int device)
{
    const int file = memfd_create("emulated-cuda", MFD_CLOEXEC);
    char *start = nullptr;
    if (file >= 0 && ftruncate(file, (off_t)shim_pages(nbytes)) == 0)
        start = shim_map(file, nbytes);
    if (!start) {
        if (file >= 0)
            close(file);
        return cudaErrorMemoryAllocation;
    }
    shim().memory[start] = {nbytes, device, file, false};
    *memory = start;
    return cudaSuccess;
}

inline void shim_forget(std::map<char *, ShimMemory>::iterator found)
{
    munmap(found->first - shim_pages(1), shim_pages(found->second.nbytes) + 2 * shim_pages(1));
    if (found->second.file >= 0)
        close(found->second.file);
    shim().memory.erase(found);
}

inline cudaError_t cudaMalloc(void **memory, size_t nbytes)
{
    SHIM_CALL;
    size_t &in_use = shim().in_use[shim_device];
    if (nbytes > shim().total_nbytes - in_use)
        return cudaErrorMemoryAllocation;
    const cudaError_t error = shim_new_memory(memory, nbytes, shim_device);
    in_use += error == cudaSuccess ? nbytes : 0;
    return error;
}

inline cudaError_t cudaFree(void *memory)
{
    SHIM_CALL;
    if (!memory)
        return cudaSuccess;
    const auto found = shim().memory.find((char *)memory);
    if (found == shim().memory.end() || found->second.device < 0 || found->second.mapped_from_elsewhere)
        return cudaErrorInvalidValue;
    shim().run_everything();
    shim().in_use[found->second.device] -= found->second.nbytes;
    shim_forget(found);
    return cudaSuccess;
}

inline cudaError_t cudaHostAlloc(void **memory, size_t nbytes, unsigned)
{
    SHIM_CALL;
    return shim_new_memory(memory, nbytes, -1);
}

inline cudaError_t cudaFreeHost(void *memory)
{
    SHIM_CALL;
    const auto found = shim().memory.find((char *)memory);
    if (found == shim().memory.end() || found->second.device >= 0 || found->second.file < 0)
        return cudaErrorInvalidValue;
    shim().run_everything();
    shim_forget(found);
    return cudaSuccess;
}

inline cudaError_t cudaHostRegister(void *memory, size_t nbytes, unsigned)
{
    SHIM_CALL;
    shim().memory[(char *)memory] = {nbytes, -1, -1, false};
    return cudaSuccess;
}

inline cudaError_t cudaHostUnregister(void *memory)
{
    SHIM_CALL;
    const auto found = shim().memory.find((char *)memory);
    if (found == shim().memory.end() || found->second.device >= 0 || found->second.file >= 0)
        return cudaErrorHostMemoryNotRegistered;
    shim().run_everything();
    shim().memory.erase(found);
    return cudaSuccess;
}

inline cudaError_t cudaMemGetInfo(size_t *free_nbytes, size_t *total_nbytes)
{
    SHIM_CALL;
    *total_nbytes = shim().total_nbytes;
    *free_nbytes = *total_nbytes - shim().in_use[shim_device];
    return cudaSuccess;
}

inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *memory)
{
    SHIM_CALL;
    const auto found = shim().holding(memory);
    if (found == shim().memory.end())
        *attributes = {cudaMemoryTypeUnregistered, -2};
    else if (found->second.device < 0)
        *attributes = {cudaMemoryTypeHost, 0};
    else
        *attributes = {cudaMemoryTypeDevice, found->second.device};
    return cudaSuccess;
}

inline cudaError_t cudaMemcpyAsync(void *dst, const void *source, size_t nbytes, cudaMemcpyKind, cudaStream_t stream)
{
    SHIM_CALL;
    const bool known = shim().holding(dst) != shim().memory.end() && shim().holding(source) != shim().memory.end();
    shim().of(stream)->put([=] { memmove(dst, source, nbytes); });
    if (!known) /* memory that is not pinned: the call returns when it has been read or written */
        shim().of(stream)->run_all();
    return cudaSuccess;
}

inline cudaError_t cudaMemsetAsync(void *dst, int byte, size_t nbytes, cudaStream_t stream)
{
    SHIM_CALL;
    shim().of(stream)->put([=] { memset(dst, byte, nbytes); });
    return cudaSuccess;
}

/* ---- Memory of other processes ----------------------------------------------------------------------------------- */

struct cudaIpcMemHandle_t {
    char reserved[64];
};
struct ShimHandle {
    long long process, file, nbytes, device;
};

inline cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
    SHIM_CALL;
    const auto found = shim().holding(memory);
    if (found == shim().memory.end() || found->second.device < 0 || found->second.mapped_from_elsewhere)
        return cudaErrorInvalidValue;
    const ShimHandle made = {getpid(), found->second.file, (long long)found->second.nbytes, found->second.device};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &made, sizeof made);
    return cudaSuccess;
}

inline cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned)
{
    SHIM_CALL;
    ShimHandle given;
    memcpy(&given, &handle, sizeof given);
    if (given.process == getpid())
        return cudaErrorDeviceUninitialized;
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", given.process, given.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    char *start = file >= 0 ? shim_map(file, (size_t)given.nbytes) : nullptr;
    if (file >= 0)
        close(file);
    if (!start)
        return cudaErrorInvalidValue;
    shim().memory[start] = {(size_t)given.nbytes, (int)given.device, -1, true};
    *memory = start;
    return cudaSuccess;
}

inline cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    SHIM_CALL;
    const auto found = shim().memory.find((char *)memory);
    if (found == shim().memory.end() || !found->second.mapped_from_elsewhere)
        return cudaErrorInvalidValue;
    shim().run_everything();
    shim_forget(found);
    return cudaSuccess;
}

enum { cudaEnableDefault = 0 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };

inline int shim_address_range(unsigned long long *base, size_t *nbytes, unsigned long long address)
{
    std::lock_guard<std::recursive_mutex> guard(shim().lock);
    const auto found = shim().holding((const void *)address);
    if (found == shim().memory.end())
        return 1;
    *base = (unsigned long long)found->first, *nbytes = found->second.nbytes;
    return 0;
}

inline cudaError_t cudaGetDriverEntryPoint(const char *name, void **entry, int, cudaDriverEntryPointQueryResult *)
{
    SHIM_CALL;
    *entry = strcmp(name, "cuMemGetAddressRange") == 0 ? (void *)shim_address_range : nullptr;
    return cudaSuccess;
}

/* ---- Streams and events ------------------------------------------------------------------------------------------ */

enum { cudaStreamNonBlocking = 1 };

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    SHIM_CALL;
    auto made = std::make_unique<ShimStream>();
    *stream = made.get();
    shim().streams[*stream] = std::move(made);
    return cudaSuccess;
}

inline cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    SHIM_CALL;
    stream->run_all();
    return shim().streams.erase(stream) ? cudaSuccess : cudaErrorInvalidValue;
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    SHIM_CALL;
    shim().of(stream)->run_all();
    return cudaSuccess;
}

/* One piece of work is done at each question. */
inline cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    SHIM_CALL;
    if (shim().of(stream)->waiting.empty())
        return cudaSuccess;
    shim().of(stream)->run_one();
    return cudaErrorNotReady;
}

inline cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    SHIM_CALL;
    *event = new ShimEvent;
    return cudaSuccess;
}

inline cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    SHIM_CALL;
    delete event;
    return cudaSuccess;
}

inline double shim_now()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    SHIM_CALL;
    event->stream = shim().of(stream);
    auto at = event->at;
    event->target = event->stream->put([at] { *at = shim_now(); });
    return cudaSuccess;
}

inline cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    SHIM_CALL;
    if (event->stream)
        event->stream->run_until(event->target);
    return cudaSuccess;
}

inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    SHIM_CALL;
    ShimStream *const other = event->stream;
    const size_t target = event->target;
    if (other && other != shim().of(stream))
        shim().of(stream)->put([=] { other->run_until(target); });
    return cudaSuccess;
}

inline cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    SHIM_CALL;
    if (!start->stream || !end->stream)
        return cudaErrorInvalidValue;
    if (start->stream->done < start->target || end->stream->done < end->target)
        return cudaErrorNotReady;
    *milliseconds = (float)((*end->at - *start->at) * 1e3);
    return cudaSuccess;
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int, size_t)
{
    SHIM_CALL;
    *blocks = 1;
    return cudaSuccess;
}

template <class Argument>
inline void shim_run(void (*kernel)(Argument), const Argument &argument, dim3 grid, dim3 block)
{
    gridDim = grid, blockDim = block;
    for (unsigned b = grid.x; b-- > 0;)
        for (unsigned t = block.x; t-- > 0;) {
            blockIdx.x = b, threadIdx.x = t;
            kernel(argument);
        }
}

template <class Argument>
inline cudaError_t cudaLaunchKernel(void (*kernel)(Argument), dim3 grid, dim3 block, void **arguments, size_t,
                                    cudaStream_t stream)
{
    SHIM_CALL;
    if (grid.x == 0 || block.x == 0 || block.x > 1024)
        return cudaErrorInvalidValue;
    const Argument argument = *(const Argument *)arguments[0];
    shim().of(stream)->put([=] { shim_run<Argument>(kernel, argument, grid, block); });
    return cudaSuccess;
}

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

#endif
