/* Runs the programs of all ranks of the direct transport, as threads (for ThreadSanitizer) or as processes, many times
 * over with changing values and random delays, and checks every element.
 *
 *     stress IMAGE EXECUTIONS threads|processes SEED
 *
 * IMAGE is what tests/direct_image.py writes: float32 sums of whole numbers, exact in any order.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "direct.h"

enum { HEAD = 8, INPUT = 0, OUTPUT = 1, SLOT = 2 };

struct place {
    int64_t rank, space, offset;
};

struct image {
    int64_t ranks, count, in_place, span, variants, slot_nbytes, unused[2];
    char *memory[64][3];
};

struct rank {
    struct image *image;
    int64_t rank, executions;
    uint64_t random;
    struct ddl_direct direct;
    long wrong;
};

static void *shared(size_t nbytes)
{
    void *memory = mmap(NULL, nbytes + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(2);
    return memory;
}

static void take(void *to, size_t nbytes, FILE *file)
{
    if (fread(to, 1, nbytes, file) != nbytes) {
        fprintf(stderr, "stress: the image is too short\n");
        exit(2);
    }
}

static void load_variant(struct rank *one, int which, FILE *file, char ***operands, size_t *used)
{
    int64_t lengths[2];
    take(lengths, sizeof lengths, file);
    struct ddl_instruction *table = calloc((size_t)lengths[0] + 1, sizeof *table);
    take(table, (size_t)lengths[0] * sizeof *table, file);
    *operands = realloc(*operands, (*used + (size_t)lengths[1] + 1) * sizeof **operands);
    for (int64_t i = 0; i < lengths[1]; i++) {
        struct place place;
        take(&place, sizeof place, file);
        (*operands)[(*used)++] = one->image->memory[place.rank][place.space] + place.offset;
    }
    one->direct.instructions[which] = table;
    one->direct.lengths[which] = (size_t)lengths[0];
}

static void load_rank(struct rank *one, FILE *file)
{
    struct image *image = one->image;
    char **operands = NULL;
    size_t used = 0;
    uint64_t **counters = calloc((size_t)image->ranks, sizeof *counters);
    for (int64_t i = 0; i < image->ranks; i++)
        counters[i] = (uint64_t *)image->memory[i][SLOT];
    for (int64_t which = 0; which < image->variants; which++)
        load_variant(one, (int)which, file, &operands, &used);
    if (image->variants == 1) {
        one->direct.instructions[1] = one->direct.instructions[0];
        one->direct.lengths[1] = one->direct.lengths[0];
    }
    one->direct.operands = operands;
    one->direct.counters = counters;
    one->direct.seen = calloc((size_t)image->ranks, sizeof(int64_t));
    one->direct.own = counters[one->rank];
    one->direct.span = image->span;
    one->direct.reducer = ddl_reducer(DDL_FLOAT32, DDL_SUM);
    one->direct.of_three = ddl_reducer_of(DDL_FLOAT32, DDL_SUM, 3);
    one->direct.of_four = ddl_reducer_of(DDL_FLOAT32, DDL_SUM, 4);
    one->direct.itemsize = sizeof(float);
    one->direct.yielding = 1;
    one->direct.tries = 1;
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static float value(int64_t execution, int64_t rank, int64_t i)
{
    return (float)((execution * 7 + rank * 13 + i * 3) % 1021);
}

static void delay(uint64_t *random)
{
    const uint64_t drawn = next(random);
    for (volatile uint64_t i = 0; (drawn & 3) == 0 && i < (drawn >> 54); i++) {
    }
}

static void *run(void *argument)
{
    struct rank *one = argument;
    struct image *image = one->image;
    float *input = (float *)image->memory[one->rank][INPUT];
    const float *output = (const float *)image->memory[one->rank][OUTPUT];
    for (int64_t execution = 0; execution < one->executions; execution++) {
        for (int64_t i = 0; i < image->count; i++)
            input[i] = value(execution, one->rank, i);
        delay(&one->random);
        ddl_direct_run(&one->direct);
        for (int64_t i = 0; i < image->count; i++) {
            float sum = 0;
            for (int64_t rank = 0; rank < image->ranks; rank++)
                sum += value(execution, rank, i);
            one->wrong += output[i] != sum;
        }
        delay(&one->random);
    }
    return NULL;
}

static long as_threads(struct rank *ranks, int64_t count)
{
    pthread_t threads[64];
    long wrong = 0;
    for (int64_t i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, run, &ranks[i]);
    for (int64_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        wrong += ranks[i].wrong;
    }
    return wrong;
}

static long as_processes(struct rank *ranks, int64_t count)
{
    long wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        if (fork() == 0) {
            run(&ranks[i]);
            _exit(ranks[i].wrong != 0);
        }
    }
    for (int64_t i = 0; i < count; i++) {
        int status = 0;
        wait(&status);
        wrong += status != 0;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    static struct image image;
    static struct rank ranks[64];
    FILE *file = argc == 5 ? fopen(argv[1], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: stress IMAGE EXECUTIONS threads|processes SEED\n");
        return 2;
    }
    take(&image, HEAD * sizeof(int64_t), file);
    for (int64_t rank = 0; rank < image.ranks; rank++) {
        const size_t nbytes = (size_t)image.count * sizeof(float);
        int64_t slot_nbytes;
        take(&slot_nbytes, sizeof slot_nbytes, file);
        image.memory[rank][INPUT] = shared(nbytes);
        image.memory[rank][OUTPUT] = image.in_place ? image.memory[rank][INPUT] : shared(nbytes);
        image.memory[rank][SLOT] = shared((size_t)slot_nbytes);
    }
    for (int64_t rank = 0; rank < image.ranks; rank++) {
        ranks[rank].image = &image;
        ranks[rank].rank = rank;
        ranks[rank].executions = atoll(argv[2]);
        ranks[rank].random = (strtoull(argv[4], NULL, 10) + 1) * 0x9E3779B97F4A7C15u + (uint64_t)rank;
        load_rank(&ranks[rank], file);
    }
    const long wrong = strcmp(argv[3], "threads") == 0 ? as_threads(ranks, image.ranks) : as_processes(ranks, image.ranks);
    printf("%s executions of %s ranks: %ld wrong\n", argv[2], argv[3], wrong);
    return wrong != 0;
}
