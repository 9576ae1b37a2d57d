/* What a rank needs of the CUDA runtime besides kernels: each function is one call of it, or few. */
#include "reduce.h"

#include <cstdio>
#include <cstring>

#include <cuda_runtime.h>

static_assert(sizeof(cudaIpcMemHandle_t) == DDL_CUDA_HANDLE_NBYTES, "the size of an IPC handle");

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

const char *ddl_cuda_error_name(int error)
{
    return cudaGetErrorName((cudaError_t)error);
}

const char *ddl_cuda_error_string(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}

int ddl_cuda_error_is_no_device(int error)
{
    return error == cudaErrorStubLibrary || error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice;
}

/* ---- Devices ----------------------------------------------------------------------------------------------------- */

int ddl_cuda_device_count(int *count)
{
    return cudaGetDeviceCount(count);
}

int ddl_cuda_device(int device, struct ddl_cuda_device_info *found)
{
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess)
        return error;
    snprintf(found->name, sizeof found->name, "%s", properties.name);
    found->major = properties.major;
    found->minor = properties.minor;
    found->multiprocessors = properties.multiProcessorCount;
    found->total_nbytes = properties.totalGlobalMem;
    return cudaDeviceGetPCIBusId(found->bus, sizeof found->bus, device);
}

int ddl_cuda_set_device(int device)
{
    return cudaSetDevice(device);
}

int ddl_cuda_current_device(int *device)
{
    return cudaGetDevice(device);
}

int ddl_cuda_versions(int *driver, int *runtime)
{
    const cudaError_t error = cudaDriverGetVersion(driver);
    return error != cudaSuccess ? error : cudaRuntimeGetVersion(runtime);
}

int ddl_cuda_memory(size_t *free_nbytes, size_t *total_nbytes)
{
    return cudaMemGetInfo(free_nbytes, total_nbytes);
}

int ddl_cuda_can_access_peer(int *can, int device, int peer)
{
    return cudaDeviceCanAccessPeer(can, device, peer);
}

int ddl_cuda_enable_peer(int peer)
{
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled)
        return error;
    cudaGetLastError(); /* or a later call that asks for the last error is told of this one */
    return cudaSuccess;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

int ddl_cuda_malloc(void **memory, size_t nbytes)
{
    return cudaMalloc(memory, nbytes);
}

int ddl_cuda_free(void *memory)
{
    return cudaFree(memory);
}

int ddl_cuda_malloc_host(void **memory, size_t nbytes)
{
    return cudaHostAlloc(memory, nbytes, cudaHostAllocPortable | cudaHostAllocMapped);
}

int ddl_cuda_free_host(void *memory)
{
    return cudaFreeHost(memory);
}

int ddl_cuda_host_register(void *memory, size_t nbytes)
{
    return cudaHostRegister(memory, nbytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
}

int ddl_cuda_host_unregister(void *memory)
{
    return cudaHostUnregister(memory);
}

int ddl_cuda_pointer_device(const void *memory, int *device)
{
    cudaPointerAttributes attributes;
    const cudaError_t error = cudaPointerGetAttributes(&attributes, memory);
    if (error != cudaSuccess)
        return error;
    const bool on_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    *device = on_device ? attributes.device : -1;
    return cudaSuccess;
}

int ddl_cuda_copy(void *dst, const void *source, size_t nbytes, void *stream)
{
    return cudaMemcpyAsync(dst, source, nbytes, cudaMemcpyDefault, (cudaStream_t)stream);
}

int ddl_cuda_fill(void *dst, int byte, size_t nbytes, void *stream)
{
    return cudaMemsetAsync(dst, byte, nbytes, (cudaStream_t)stream);
}

/* ---- Memory of other processes ----------------------------------------------------------------------------------- */

/* cuMemGetAddressRange of the driver, which the runtime has no name for: this build needs no libcuda to be loaded. */
typedef int (*address_range_fn)(unsigned long long *base, size_t *nbytes, unsigned long long address);

static cudaError_t find_address_range(address_range_fn *found)
{
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult query;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 3020, cudaEnableDefault, &query);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuMemGetAddressRange", &entry, cudaEnableDefault, &query);
#endif
    if (error == cudaSuccess && !entry)
        return cudaErrorSymbolNotFound;
    memcpy(found, &entry, sizeof entry);
    return error;
}

static cudaError_t find_offset(void *memory, size_t *offset)
{
    address_range_fn address_range = nullptr;
    const cudaError_t error = find_address_range(&address_range);
    if (error != cudaSuccess)
        return error;
    unsigned long long base = 0;
    size_t nbytes = 0;
    if (address_range(&base, &nbytes, (unsigned long long)memory) != 0)
        return cudaErrorInvalidValue;
    *offset = (size_t)((unsigned long long)memory - base);
    return cudaSuccess;
}

int ddl_cuda_ipc_handle(void *memory, unsigned char handle[DDL_CUDA_HANDLE_NBYTES], size_t *offset)
{
    cudaIpcMemHandle_t made;
    const cudaError_t error = cudaIpcGetMemHandle(&made, memory);
    if (error != cudaSuccess)
        return error;
    memcpy(handle, &made, sizeof made);
    return find_offset(memory, offset);
}

int ddl_cuda_ipc_open(void **base, const unsigned char handle[DDL_CUDA_HANDLE_NBYTES])
{
    cudaIpcMemHandle_t given;
    memcpy(&given, handle, sizeof given);
    return cudaIpcOpenMemHandle(base, given, cudaIpcMemLazyEnablePeerAccess);
}

int ddl_cuda_ipc_close(void *base)
{
    return cudaIpcCloseMemHandle(base);
}

/* ---- Streams and events ------------------------------------------------------------------------------------------ */

int ddl_cuda_stream_create(void **stream)
{
    return cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking);
}

int ddl_cuda_stream_destroy(void *stream)
{
    return cudaStreamDestroy((cudaStream_t)stream);
}

int ddl_cuda_stream_wait(void *stream, void *event)
{
    return cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0);
}

int ddl_cuda_synchronize(void *stream)
{
    return cudaStreamSynchronize((cudaStream_t)stream);
}

int ddl_cuda_stream_query(void *stream, int *done)
{
    const cudaError_t error = cudaStreamQuery((cudaStream_t)stream);
    *done = error == cudaSuccess;
    return error == cudaErrorNotReady ? cudaSuccess : error;
}

int ddl_cuda_event_create(void **event)
{
    return cudaEventCreate((cudaEvent_t *)event);
}

int ddl_cuda_event_destroy(void *event)
{
    return cudaEventDestroy((cudaEvent_t)event);
}

int ddl_cuda_event_record(void *event, void *stream)
{
    return cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream);
}

int ddl_cuda_event_synchronize(void *event)
{
    return cudaEventSynchronize((cudaEvent_t)event);
}

int ddl_cuda_event_seconds(double *seconds, void *start, void *end)
{
    float milliseconds = 0;
    const cudaError_t error = cudaEventElapsedTime(&milliseconds, (cudaEvent_t)start, (cudaEvent_t)end);
    *seconds = milliseconds / 1e3;
    return error;
}

/* ---- For code in another extension ------------------------------------------------------------------------------- */

const struct ddl_cuda_table *ddl_cuda_calls(void)
{
    static const struct ddl_cuda_table calls = {
        sizeof(struct ddl_cuda_table), ddl_cuda_reduce,       ddl_cuda_reduce_forward, ddl_cuda_divide,
        ddl_cuda_copy,                 ddl_cuda_synchronize,  ddl_cuda_stream_query,   ddl_cuda_stream_wait,
        ddl_cuda_event_record,         ddl_cuda_error_name,   ddl_cuda_error_string,
    };
    return &calls;
}
