/* The engine's reductions beside a plain C add of the same arrays, in turns, in one process.
 *
 * Both take the same operands: the sources, then the target. The engine's side is a program of one REDUCE, as the direct
 * transport runs it. */
#include <string.h>
#include <time.h>

#include "direct.h"

#define PUBLIC __attribute__((visibility("default")))

typedef void (*add_fn)(char *const *operands, size_t count);

#define ADD(TYPE, SOURCES, SUM)                                                                                     \
    static void TYPE##_##SOURCES(char *const *operands, size_t count)                                               \
    {                                                                                                               \
        const TYPE *a = (const TYPE *)operands[0], *b = (const TYPE *)operands[SOURCES > 1 ? 1 : 0];                \
        const TYPE *c = (const TYPE *)operands[SOURCES > 2 ? 2 : 0], *d = (const TYPE *)operands[SOURCES > 3 ? 3 : 0]; \
        TYPE *restrict to = (TYPE *)operands[SOURCES];                                                              \
        (void)b, (void)c, (void)d;                                                                                  \
        for (size_t i = 0; i < count; i++)                                                                          \
            to[i] = SUM;                                                                                            \
    }
#define ADDS(TYPE)                            \
    ADD(TYPE, 1, a[i])                        \
    ADD(TYPE, 2, a[i] + b[i])                 \
    ADD(TYPE, 3, a[i] + b[i] + c[i])          \
    ADD(TYPE, 4, a[i] + b[i] + c[i] + d[i])
ADDS(float)
ADDS(double)
ADDS(int32_t)

/* The plain add of so many sources, or NULL for a type that C cannot add. */
PUBLIC add_fn plain_add(int dtype, int sources)
{
    static const add_fn adds[DDL_DTYPES][4] = {
        [DDL_FLOAT32] = {float_1, float_2, float_3, float_4},
        [DDL_FLOAT64] = {double_1, double_2, double_3, double_4},
        [DDL_INT32] = {int32_t_1, int32_t_2, int32_t_3, int32_t_4},
    };
    return adds[dtype][sources - 1];
}

struct competitor {
    add_fn plain; /* NULL: the program */
    size_t count;
    char **operands;
    struct ddl_instruction step;
    struct ddl_direct direct;
};

static void prepare(struct competitor *one, add_fn plain, int dtype, int sources, char **operands, size_t nbytes)
{
    const struct ddl_instruction step = {.kind = DDL_REDUCE, .sources = sources, .targets = 1,
                                         .count = (int64_t)(nbytes / ddl_itemsize(dtype))};
    memset(one, 0, sizeof *one);
    one->plain = plain, one->count = (size_t)step.count, one->operands = operands, one->step = step;
    one->direct.instructions[0] = one->direct.instructions[1] = &one->step;
    one->direct.lengths[0] = one->direct.lengths[1] = 1;
    one->direct.operands = operands;
    one->direct.reducer = ddl_reducer(dtype, DDL_SUM);
    one->direct.of_three = ddl_reducer_of(dtype, DDL_SUM, 3);
    one->direct.of_four = ddl_reducer_of(dtype, DDL_SUM, 4);
    one->direct.itemsize = ddl_itemsize(dtype);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int64_t time_one(struct competitor *one, int times)
{
    const int64_t start = now_ns();
    for (int i = 0; i < times; i++) {
        if (one->plain)
            one->plain(one->operands, one->count);
        else
            ddl_direct_run(&one->direct);
        __asm__ volatile("" ::: "memory");
    }
    return now_ns() - start;
}

/* Take turns, `times` runs each, once more than `rounds`, for the first turn is not counted. `plain` NULL stands for the
 * engine's own float32 on as many bytes. */
PUBLIC void measure(add_fn plain, int dtype, int sources, char **operands, size_t nbytes, int times, int rounds,
                    int64_t *plain_ns, int64_t *engine_ns)
{
    struct competitor other, engine;
    prepare(&other, plain, plain ? dtype : DDL_FLOAT32, sources, operands, nbytes);
    prepare(&engine, NULL, dtype, sources, operands, nbytes);
    for (int round = -1; round < rounds; round++) {
        const int64_t first = time_one(round & 1 ? &other : &engine, times);
        const int64_t second = time_one(round & 1 ? &engine : &other, times);
        if (round >= 0) {
            plain_ns[round] = round & 1 ? first : second;
            engine_ns[round] = round & 1 ? second : first;
        }
    }
}

/* Run the engine's side once. */
PUBLIC void engine_add(int dtype, int sources, char **operands, size_t nbytes)
{
    struct competitor engine;
    prepare(&engine, NULL, dtype, sources, operands, nbytes);
    time_one(&engine, 1);
}
