# The C interface of cuda/reduce.h: device buffers, reductions and copies on a CUDA stream.
cdef extern from "reduce.h" nogil:
    enum:
        DDL_CUDA_MOST_SOURCES
        DDL_CUDA_HANDLE_NBYTES
        DDL_CUDA_NAME_NBYTES
        DDL_CUDA_BUS_NBYTES

    struct ddl_cuda_device_info:
        char name[256]
        char bus[32]
        int major
        int minor
        int multiprocessors
        size_t total_nbytes

    struct ddl_cuda_table:
        size_t nbytes
        int (*reduce)(void *dst, const void *const *sources, int n_sources, size_t count, int dtype, int op,
                      long long divisor, void *stream) noexcept nogil
        int (*reduce_forward)(void *dst, void *forward, const void *const *sources, int n_sources, size_t count,
                              int dtype, int op, long long divisor, void *stream) noexcept nogil
        int (*divide)(void *dst, size_t count, int dtype, long long divisor, void *stream) noexcept nogil
        int (*copy)(void *dst, const void *source, size_t nbytes, void *stream) noexcept nogil
        int (*synchronize)(void *stream) noexcept nogil
        int (*stream_query)(void *stream, int *done) noexcept nogil
        int (*stream_wait)(void *stream, void *event) noexcept nogil
        int (*event_record)(void *event, void *stream) noexcept nogil
        const char *(*error_name)(int error) noexcept nogil
        const char *(*error_string)(int error) noexcept nogil

    const char *ddl_cuda_error_name(int error)
    const char *ddl_cuda_error_string(int error)
    int ddl_cuda_error_is_no_device(int error)

    int ddl_cuda_reduce_forward(void *dst, void *forward, const void *const *sources, int n_sources, size_t count,
                                int dtype, int op, long long divisor, void *stream)
    int ddl_cuda_divide(void *dst, size_t count, int dtype, long long divisor, void *stream)

    int ddl_cuda_device_count(int *count)
    int ddl_cuda_device(int device, ddl_cuda_device_info *found)
    int ddl_cuda_set_device(int device)
    int ddl_cuda_current_device(int *device)
    int ddl_cuda_versions(int *driver, int *runtime)
    int ddl_cuda_memory(size_t *free_nbytes, size_t *total_nbytes)
    int ddl_cuda_can_access_peer(int *can, int device, int peer)
    int ddl_cuda_enable_peer(int peer)

    int ddl_cuda_malloc(void **memory, size_t nbytes)
    int ddl_cuda_free(void *memory)
    int ddl_cuda_malloc_host(void **memory, size_t nbytes)
    int ddl_cuda_free_host(void *memory)
    int ddl_cuda_host_register(void *memory, size_t nbytes)
    int ddl_cuda_host_unregister(void *memory)
    int ddl_cuda_pointer_device(const void *memory, int *device)
    int ddl_cuda_copy(void *dst, const void *source, size_t nbytes, void *stream)
    int ddl_cuda_fill(void *dst, int byte, size_t nbytes, void *stream)
    int ddl_cuda_ipc_handle(void *memory, unsigned char *handle, size_t *offset)
    int ddl_cuda_ipc_open(void **base, const unsigned char *handle)
    int ddl_cuda_ipc_close(void *base)

    int ddl_cuda_stream_create(void **stream)
    int ddl_cuda_stream_destroy(void *stream)
    int ddl_cuda_stream_wait(void *stream, void *event)
    int ddl_cuda_synchronize(void *stream)
    int ddl_cuda_stream_query(void *stream, int *done)
    int ddl_cuda_event_create(void **event)
    int ddl_cuda_event_destroy(void *event)
    int ddl_cuda_event_record(void *event, void *stream)
    int ddl_cuda_event_synchronize(void *event)
    int ddl_cuda_event_seconds(double *seconds, void *start, void *end)

    const ddl_cuda_table *ddl_cuda_calls()
