/* A stand-in for libnccl.so.2 in tests: its allreduce is MPI's, once the emulated stream is at rest. It proves nothing of
 * NCCL but how it is found, called and held against the reference. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char internal[128];
} UniqueId;

int ncclGetVersion(int *version)
{
    *version = 22803;
    return 0;
}

const char *ncclGetErrorString(int error)
{
    return error == 5 ? "invalid usage" : "unhandled";
}

int ncclGetUniqueId(UniqueId *id)
{
    strcpy(id->internal, "the id of rank 0");
    return 0;
}

int ncclCommInitRank(void **comm, int ranks, UniqueId id, int rank)
{
    MPI_Comm *made = malloc(sizeof *made);
    int size, own;
    MPI_Comm_dup(MPI_COMM_WORLD, made);
    MPI_Comm_size(*made, &size);
    MPI_Comm_rank(*made, &own);
    *comm = made;
    if (getenv("NCCL_DOUBLE_REFUSES") || strcmp(id.internal, "the id of rank 0") || size != ranks || own != rank)
        return 5;
    return 0;
}

int ncclCommDestroy(void *comm)
{
    MPI_Comm_free(comm);
    free(comm);
    return 0;
}

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, void *comm, void *stream)
{
    const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
    (void)stream;
    if ((type != 7 && type != 8 && type != 2) || op < 0 || op > 3)
        return 4;
    return MPI_Allreduce(send == recv ? MPI_IN_PLACE : send, recv, (int)count,
                         type == 7 ? MPI_FLOAT : type == 8 ? MPI_DOUBLE : MPI_INT32_T, ops[op], *(MPI_Comm *)comm);
}
