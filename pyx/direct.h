/* Runs a program of the direct transport: ranks that share memory, each behind a counter that the others watch, and
 * messages to ranks that do not.
 *
 * A program is a list of instructions made once, by ddlbench/local/compile.py:
 *
 *     PUBLISH v    all that this rank has written and read so far is done: its counter becomes base + v (release)
 *     WAIT p v     until the counter of rank p is at least base + v (acquire)
 *     REDUCE       targets = source 0 op source 1 op ..., in one pass; with one source, a copy
 *     POST         start a tick's messages, receives first
 *     ARRIVE i     until receive i is done
 *     SENT         until a tick's sends are done
 *
 * base grows by `span` with each execution, so counters never go back. docs/direct.md argues that no data is read
 * before it is there or overwritten before it was read; ddlbench/local/races.py proves it for a program.
 */
#ifndef DDLBENCH_DIRECT_H
#define DDLBENCH_DIRECT_H

#include <stddef.h>
#include <stdint.h>

#include "../cuda/reduce.h"
#include "kernels.h"

enum ddl_direct_kind { DDL_PUBLISH = 0, DDL_WAIT = 1, DDL_REDUCE = 2, DDL_POST = 3, DDL_ARRIVE = 4, DDL_SENT = 5 };

/* The same packed struct as ddlbench.local.program.INSTRUCTION, which a test holds equal. `operands` is the index of
 * the first of `sources` + `targets` pointers. Bit i of `stream`: target i is written past the caches; of `shared`:
 * another rank reads it next.
 * Of POST, ARRIVE and SENT, `sources` receives begin at `value`, and `targets` sends at `operands`. */
struct ddl_instruction {
    int32_t kind;
    int32_t peer;
    int32_t sources;
    int32_t targets;
    int32_t operands;
    int32_t stream;
    int32_t shared;
    int32_t unused;
    int64_t value;
    int64_t count;
};

/* How messages are sent, which is MPI's business; each returns 0 or its error code. `progress` lets the library work on
 * what is under way while this rank waits for something else. */
struct ddl_messages {
    void *self;
    int (*post)(void *self, int receive, int receives, int send, int sends);
    int (*arrive)(void *self, int receive);
    int (*sent)(void *self, int send, int sends);
    int (*progress)(void *self);
};

struct ddl_direct {
    const struct ddl_instruction *instructions[2]; /* of even and of odd executions */
    size_t lengths[2];
    char **operands;
    uint64_t **counters; /* of each rank */
    int64_t *seen;             /* the last that this rank saw of each, relative to 0 */
    uint64_t *own;
    int64_t base;
    int64_t span;
    uint64_t executions;
    ddl_reduce_fn reducer;
    ddl_reduce_many_fn of_three;
    ddl_reduce_many_fn of_four;
    size_t itemsize;
    int yielding;
    volatile int64_t at; /* the instruction under way, for a watchdog */
    const struct ddl_messages *messages; /* NULL for a program without any */
    int tries;                           /* whether the program writes enough for others to try how it is best done */
    int past_caches;                     /* whether what another rank reads next is written past the caches */
    int64_t least_ns[2];                 /* of the last trial of either way */
    /* Where the operands are a device's memory: its functions (NULL for plain memory), the stream that all work goes on,
     * room for partial results of instructions with more sources than a kernel takes, and the device's error, if one of
     * its calls was what failed. */
    const struct ddl_cuda_table *device;
    void *stream;
    void *scratch;
    int dtype;
    int op;
    int pending; /* whether there is work on the stream that nobody has waited for */
    int device_error;
};

/* Run the program once; return 0, or the error code of a message, or of the device, which `device_error` then has too.
 *
 * On a device the work is queued on the stream. The stream is waited for before each publication and before messages
 * start, since others may then see what it wrote and overwrite what it reads. At the end it may still be at work.
 *
 * Whether others had better find in this processor's cache what it writes for them, or in memory, depends on where the
 * processors are: with one cache above both, 64 KiB took 9.5 us either way and 256 KiB 23 or 33; on the same machine
 * with the two far apart 33 or 8, and 127 or 28. So either way is tried in a few executions of every 256. */
int ddl_direct_run(struct ddl_direct *direct);

/* Copy n bytes, none of them overlapping, past the caches where the processor can. The copy is complete for other
 * cores only after ddl_stream_fence. */
void ddl_stream_copy(void *dst, const void *src, size_t n);
void ddl_stream_fence(void);

#endif
