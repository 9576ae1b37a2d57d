/* See direct.h. */
#include "direct.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* Reductions of more sources than a kernel takes, or into more than one target, go block by block through a piece of
 * memory that stays in the first-level cache: each source is read once and each target written once, in whole lines. */
#define BLOCK_NBYTES 4096
/* A waiting rank looks this often before it gives its processor away, where ranks share processors, and lets messages
 * go on, where there are any. With 3 ranks on 2 cores 8 bytes took 10 us after 200 looks, 4.7 after 20 and 4.1 after 5. */
#define SPINS 5

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__powerpc64__)
    __asm__ volatile("or 27,27,27");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- Past the caches --------------------------------------------------------------------------------------------- */

void ddl_stream_copy(void *dst, const void *src, size_t n)
{
#if defined(__x86_64__)
    char *to = dst;
    const char *from = src;
    size_t head = (size_t)(-(uintptr_t)to & 15);
    if (head > n)
        head = n;
    memcpy(to, from, head);
    to += head, from += head, n -= head;
    for (; n >= 64; n -= 64, to += 64, from += 64) {
        const __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)(from + 16));
        const __m128i c = _mm_loadu_si128((const __m128i *)(from + 32)), d = _mm_loadu_si128((const __m128i *)(from + 48));
        _mm_stream_si128((__m128i *)to, a);
        _mm_stream_si128((__m128i *)(to + 16), b);
        _mm_stream_si128((__m128i *)(to + 32), c);
        _mm_stream_si128((__m128i *)(to + 48), d);
    }
    memcpy(to, from, n);
#else
    memcpy(dst, src, n);
#endif
}

void ddl_stream_fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* ---- Reductions -------------------------------------------------------------------------------------------------- */

/* dst = of[0] op of[1] ..., two to four of them. */
static inline void reduce_few(const struct ddl_direct *direct, void *dst, const void *const *of, int few, size_t count)
{
    if (few == 2)
        direct->reducer(dst, of[0], of[1], count);
    else
        (few == 3 ? direct->of_three : direct->of_four)(dst, of, count);
}

/* Return where the reduced block of `count` elements at element `first` is: `block`, or the one source itself. */
static const char *reduce_block(const struct ddl_direct *direct, const struct ddl_instruction *step,
                                char *const *sources, size_t first, size_t count, char *block)
{
    const size_t offset = first * direct->itemsize;
    const void *of[DDL_MOST_SOURCES];
    int done = 0, few = 0;
    if (step->sources == 1)
        return sources[0] + offset;
    while (done < step->sources) {
        while (few < DDL_MOST_SOURCES && done < step->sources)
            of[few++] = sources[done++] + offset;
        reduce_few(direct, block, of, few, count);
        of[0] = block, few = 1;
    }
    return block;
}

static void reduce_in_blocks(const struct ddl_direct *direct, const struct ddl_instruction *step, int32_t stream)
{
    char block[BLOCK_NBYTES] __attribute__((aligned(64)));
    char *const *sources = direct->operands + step->operands, *const *targets = sources + step->sources;
    const size_t most = BLOCK_NBYTES / direct->itemsize, whole = (size_t)step->count;
    for (size_t first = 0; first < whole; first += most) {
        const size_t count = whole - first < most ? whole - first : most;
        const char *reduced = reduce_block(direct, step, sources, first, count, block);
        for (int i = 0; i < step->targets; i++) {
            char *to = targets[i] + first * direct->itemsize;
            if (i < 31 && stream >> i & 1)
                ddl_stream_copy(to, reduced, count * direct->itemsize);
            else
                memcpy(to, reduced, count * direct->itemsize);
        }
    }
    if (stream)
        ddl_stream_fence();
}

static inline void reduce(const struct ddl_direct *direct, const struct ddl_instruction *step, int past_caches)
{
    char *const *of = direct->operands + step->operands;
    const int32_t stream = step->stream | (past_caches ? step->shared : 0);
    if (stream || step->targets > 1 || step->sources > DDL_MOST_SOURCES)
        reduce_in_blocks(direct, step, stream);
    else if (step->sources == 1)
        memcpy(of[1], of[0], (size_t)step->count * direct->itemsize);
    else {
        const void *sources[DDL_MOST_SOURCES];
        for (int i = 0; i < step->sources; i++)
            sources[i] = of[i];
        reduce_few(direct, of[step->sources], sources, step->sources, (size_t)step->count);
    }
}

/* ---- Counters and messages --------------------------------------------------------------------------------------- */

static int wait_longer(struct ddl_direct *direct, int peer, int64_t value)
{
    uint64_t *counter = direct->counters[peer];
    int spins = 0, error = 0;
    int64_t seen;
    while ((seen = (int64_t)__atomic_load_n(counter, __ATOMIC_ACQUIRE)) < value) {
        pause_briefly();
        if (++spins % SPINS)
            continue;
        if (direct->messages && (error = direct->messages->progress(direct->messages->self)))
            return error;
        if (direct->yielding)
            sched_yield();
    }
    direct->seen[peer] = seen;
    return 0;
}

static int exchange(const struct ddl_messages *by, const struct ddl_instruction *step)
{
    if (step->kind == DDL_POST)
        return by->post(by->self, (int)step->value, step->sources, step->operands, step->targets);
    if (step->kind == DDL_ARRIVE)
        return by->arrive(by->self, (int)step->value);
    return by->sent(by->self, step->operands, step->targets);
}

/* ---- On a device ------------------------------------------------------------------------------------------------- */

/* Put an instruction's work on the stream. Sources that are more than a kernel takes are reduced by way of the scratch,
 * for a target may be one of the sources that are still to come. */
static int reduce_on_device(struct ddl_direct *direct, const struct ddl_instruction *step)
{
    const struct ddl_cuda_table *by = direct->device;
    char *const *sources = direct->operands + step->operands, *const *targets = sources + step->sources;
    const size_t count = (size_t)step->count;
    const void *of[DDL_CUDA_MOST_SOURCES];
    int done = 0, few = 0, error = 0;
    for (;;) {
        while (few < DDL_CUDA_MOST_SOURCES && done < step->sources)
            of[few++] = sources[done++];
        if (done == step->sources)
            break;
        if ((error = by->reduce(direct->scratch, of, few, count, direct->dtype, direct->op, 0, direct->stream)))
            return error;
        of[0] = direct->scratch, few = 1;
    }
    if (step->targets == 1)
        return by->reduce(targets[0], of, few, count, direct->dtype, direct->op, 0, direct->stream);
    error = by->reduce_forward(targets[0], targets[1], of, few, count, direct->dtype, direct->op, 0, direct->stream);
    for (int i = 2; i < step->targets && !error; i++)
        error = by->copy(targets[i], targets[0], count * direct->itemsize, direct->stream);
    return error;
}

static int finish(struct ddl_direct *direct)
{
    const int error = direct->pending ? direct->device->synchronize(direct->stream) : 0;
    direct->pending = 0;
    return error;
}

static int step_on_device(struct ddl_direct *direct, const struct ddl_instruction *step)
{
    const int64_t base = direct->base;
    if (step->kind == DDL_WAIT)
        return direct->seen[step->peer] < base + step->value ? wait_longer(direct, step->peer, base + step->value) : 0;
    if (step->kind == DDL_REDUCE)
        direct->device_error = reduce_on_device(direct, step);
    else if (step->kind == DDL_PUBLISH || step->kind == DDL_POST)
        direct->device_error = finish(direct);
    if (step->kind == DDL_PUBLISH && !direct->device_error)
        __atomic_store_n(direct->own, (uint64_t)(base + step->value), __ATOMIC_RELEASE);
    direct->pending |= step->kind == DDL_REDUCE || step->kind == DDL_ARRIVE;
    if (step->kind == DDL_REDUCE || step->kind == DDL_PUBLISH || direct->device_error)
        return direct->device_error;
    return exchange(direct->messages, step);
}

static int run_on_device(struct ddl_direct *direct)
{
    const size_t which = direct->executions & 1, length = direct->lengths[which];
    int error = 0;
    direct->device_error = direct->pending = 0;
    for (size_t i = 0; i < length && !error; i++) {
        direct->at = (int64_t)i;
        error = step_on_device(direct, &direct->instructions[which][i]);
    }
    direct->base += direct->span;
    direct->executions++;
    return error;
}

/* ---- Which way to write for others ------------------------------------------------------------------------------- */

/* In executions 0 to 3 of every TRY_EVERY the one way is tried, in 4 to 7 the other; the first of each still finds what
 * the other left behind, and does not count. */
#define TRY_EVERY 256
#define TRIES 4
/* It must be so much better, or nothing changes: times scatter. */
#define CLEARLY(ns) ((ns) - (ns) / 16)

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void take_in(struct ddl_direct *direct, uint64_t turn, int64_t ns)
{
    const int way = turn >= TRIES;
    if (turn % TRIES == 0)
        direct->least_ns[way] = INT64_MAX;
    else if (ns < direct->least_ns[way])
        direct->least_ns[way] = ns;
    if (turn == 2 * TRIES - 1)
        direct->past_caches = direct->least_ns[1] < CLEARLY(direct->least_ns[0]);
}

int ddl_direct_run(struct ddl_direct *direct)
{
    if (direct->device)
        return run_on_device(direct);
    const uint64_t turn = direct->executions % TRY_EVERY;
    const int trial = direct->tries && turn < 2 * TRIES, past_caches = trial ? turn >= TRIES : direct->past_caches;
    const int64_t start = trial ? now_ns() : 0;
    const size_t which = direct->executions & 1, length = direct->lengths[which];
    const struct ddl_instruction *step = direct->instructions[which];
    const int64_t base = direct->base;
    int error = 0;
    for (size_t i = 0; i < length && !error; i++, step++) {
        direct->at = (int64_t)i;
        if (step->kind == DDL_REDUCE)
            reduce(direct, step, past_caches);
        else if (step->kind == DDL_PUBLISH)
            __atomic_store_n(direct->own, (uint64_t)(base + step->value), __ATOMIC_RELEASE);
        else if (step->kind != DDL_WAIT)
            error = exchange(direct->messages, step);
        else if (direct->seen[step->peer] < base + step->value)
            error = wait_longer(direct, step->peer, base + step->value);
    }
    if (trial)
        take_in(direct, turn, now_ns() - start);
    direct->base = base + direct->span;
    direct->executions++;
    return error;
}
