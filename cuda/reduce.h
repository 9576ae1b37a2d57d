/* Device buffers: reductions and copies on a CUDA stream, and what little of the CUDA runtime a rank needs around them.
 *
 * Every function returns 0 or the cudaError_t of the call that failed, as an int; ddl_cuda_error_name and
 * ddl_cuda_error_string say what it means. A wrong argument (an unknown code, 0 or 9 sources, a null pointer, a partial
 * overlap) is cudaErrorInvalidValue, 1, and nothing is launched. Nothing throws, prints or allocates on its own, and no
 * function needs a driver to be called: without one each returns 35 (cudaErrorInsufficientDriver) or a kin of it.
 *
 * `stream` is a cudaStream_t, which a CUstream (of pycuda, CuPy, torch) is too; NULL is the default stream. Work is
 * ordered within a stream and done when ddl_cuda_synchronize of it has returned. Functions act on the calling thread's
 * current device, which ddl_cuda_set_device chooses; the context is the device's primary one.
 *
 * Element types and operations are the codes of pyx/kernels.h, and results have the bits of the kernels there:
 * docs/numerics.md holds for both.
 */
#ifndef DDLBENCH_CUDA_REDUCE_H
#define DDLBENCH_CUDA_REDUCE_H

#include <stddef.h>

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DDL_CUDA_MOST_SOURCES = 8, DDL_CUDA_HANDLE_NBYTES = 64, DDL_CUDA_NAME_NBYTES = 256, DDL_CUDA_BUS_NBYTES = 32 };

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

const char *ddl_cuda_error_name(int error);   /* "cudaErrorMemoryAllocation" */
const char *ddl_cuda_error_string(int error); /* "out of memory" */

/* Whether `error` means that this process has no GPU to work with: 34, 35 and 100, a stub, an old or no driver, and a
 * driver without a device. */
int ddl_cuda_error_is_no_device(int error);

/* ---- Reductions -------------------------------------------------------------------------------------------------- */

/* dst[i] = (sources[0][i] op sources[1][i]) op sources[2][i] ... for `count` elements of 1 to 8 sources, in this order
 * and each operation rounded. With one source it is a copy.
 *
 * `divisor` is 0, or with DDL_AVG 1 or more: the rounded sum is then divided by it, once, as ddl_divider does. Sources
 * and destinations are memory that the device can address (its own, a mapped peer's, pinned host memory) at any
 * alignment. dst may be any of the sources; partial overlap is not allowed. */
int ddl_cuda_reduce(void *dst, const void *const *sources, int n_sources, size_t count, int dtype, int op,
                    long long divisor, void *stream);

/* The same, writing the result to `dst` and to `forward` in one pass: a rank's own output and a mapped peer's slot.
 * `forward` may be a source too, but may not touch dst. */
int ddl_cuda_reduce_forward(void *dst, void *forward, const void *const *sources, int n_sources, size_t count,
                            int dtype, int op, long long divisor, void *stream);

/* dst[i] = dst[i] / divisor, divisor >= 1. */
int ddl_cuda_divide(void *dst, size_t count, int dtype, long long divisor, void *stream);

/* ---- Devices ----------------------------------------------------------------------------------------------------- */

struct ddl_cuda_device_info {
    char name[DDL_CUDA_NAME_NBYTES];
    char bus[DDL_CUDA_BUS_NBYTES]; /* PCI address: "0000:3b:00.0" */
    int major, minor;              /* compute capability */
    int multiprocessors;
    size_t total_nbytes;
};

int ddl_cuda_device_count(int *count);
int ddl_cuda_device(int device, struct ddl_cuda_device_info *found);
int ddl_cuda_set_device(int device);
int ddl_cuda_current_device(int *device);
/* The CUDA version of the driver and of the runtime in this build, 1000 * major + 10 * minor; the driver's is 0 where
 * there is none. */
int ddl_cuda_versions(int *driver, int *runtime);
int ddl_cuda_memory(size_t *free_nbytes, size_t *total_nbytes);
int ddl_cuda_can_access_peer(int *can, int device, int peer);
int ddl_cuda_enable_peer(int peer); /* of the current device; 0 also when it is enabled already */

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

int ddl_cuda_malloc(void **memory, size_t nbytes);
int ddl_cuda_free(void *memory);
int ddl_cuda_malloc_host(void **memory, size_t nbytes); /* pinned, and addressable by the device at the same address */
int ddl_cuda_free_host(void *memory);
int ddl_cuda_host_register(void *memory, size_t nbytes); /* pins memory that exists */
int ddl_cuda_host_unregister(void *memory);
/* The device whose memory `memory` is, or -1 for the host's, pinned or not. */
int ddl_cuda_pointer_device(const void *memory, int *device);

/* Between any two of device, mapped peer and host; asynchronous unless the host's side is not pinned. */
int ddl_cuda_copy(void *dst, const void *source, size_t nbytes, void *stream);
int ddl_cuda_fill(void *dst, int byte, size_t nbytes, void *stream);

/* Memory of ddl_cuda_malloc (or pycuda's mem_alloc) for other processes of the node. A handle stands for the whole
 * allocation, also when it was asked for an address inside it: `offset` says where in it that is. A process opens
 * another's allocation once, and not its own. */
int ddl_cuda_ipc_handle(void *memory, unsigned char handle[DDL_CUDA_HANDLE_NBYTES], size_t *offset);
int ddl_cuda_ipc_open(void **base, const unsigned char handle[DDL_CUDA_HANDLE_NBYTES]);
int ddl_cuda_ipc_close(void *base);

/* ---- Streams and events ------------------------------------------------------------------------------------------ */

int ddl_cuda_stream_create(void **stream); /* does not wait for the default stream */
int ddl_cuda_stream_destroy(void *stream);
int ddl_cuda_stream_wait(void *stream, void *event);
int ddl_cuda_synchronize(void *stream);
int ddl_cuda_stream_query(void *stream, int *done);

int ddl_cuda_event_create(void **event); /* one that keeps the time */
int ddl_cuda_event_destroy(void *event);
int ddl_cuda_event_record(void *event, void *stream);
int ddl_cuda_event_synchronize(void *event);
int ddl_cuda_event_seconds(double *seconds, void *start, void *end); /* both recorded and done */

/* ---- For code in another extension ------------------------------------------------------------------------------- */

/* What a loop without Python calls, handed over as the capsule "ddlbench._cuda.calls" that _cuda.calls() returns: an
 * extension that takes it needs neither CUDA's headers nor its libraries. */
struct ddl_cuda_table {
    size_t nbytes; /* sizeof(struct ddl_cuda_table) of the build it comes from; to be compared before use */
    int (*reduce)(void *dst, const void *const *sources, int n_sources, size_t count, int dtype, int op,
                  long long divisor, void *stream);
    int (*reduce_forward)(void *dst, void *forward, const void *const *sources, int n_sources, size_t count, int dtype,
                          int op, long long divisor, void *stream);
    int (*divide)(void *dst, size_t count, int dtype, long long divisor, void *stream);
    int (*copy)(void *dst, const void *source, size_t nbytes, void *stream);
    int (*synchronize)(void *stream);
    int (*stream_query)(void *stream, int *done);
    int (*stream_wait)(void *stream, void *event);
    int (*event_record)(void *event, void *stream);
    const char *(*error_name)(int error);
    const char *(*error_string)(int error);
};

const struct ddl_cuda_table *ddl_cuda_calls(void);

#ifdef __cplusplus
}
#endif

#endif
