# The part of MPI that ddlbench calls; nothing else declares it. The types are opaque: libraries differ in them.
cdef extern from "mpi.h" nogil:
    ctypedef void *MPI_Comm
    ctypedef void *MPI_Datatype
    ctypedef void *MPI_Errhandler
    ctypedef void *MPI_Op
    ctypedef void *MPI_Request
    ctypedef int MPI_Fint
    ctypedef struct MPI_Status:
        pass

    int MPI_ANY_SOURCE
    int MPI_SUCCESS
    void *MPI_IN_PLACE
    MPI_Status *MPI_STATUS_IGNORE
    MPI_Status *MPI_STATUSES_IGNORE
    MPI_Errhandler MPI_ERRORS_RETURN
    MPI_Datatype MPI_BYTE, MPI_FLOAT, MPI_DOUBLE, MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T
    MPI_Op MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX

    MPI_Comm MPI_Comm_f2c(MPI_Fint)
    int MPI_Comm_rank(MPI_Comm, int *)
    int MPI_Comm_size(MPI_Comm, int *)
    int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler)
    int MPI_Error_string(int, char *, int *)
    int MPI_Finalized(int *)
    int MPI_Barrier(MPI_Comm)
    int MPI_Ibarrier(MPI_Comm, MPI_Request *)
    int MPI_Send_init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)
    int MPI_Recv_init(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)
    int MPI_Isend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)
    int MPI_Irecv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)
    int MPI_Iprobe(int, int, MPI_Comm, int *, MPI_Status *)
    int MPI_Startall(int, MPI_Request *)
    int MPI_Test(MPI_Request *, int *, MPI_Status *)
    int MPI_Wait(MPI_Request *, MPI_Status *)
    int MPI_Waitall(int, MPI_Request *, MPI_Status *)
    int MPI_Testall(int, MPI_Request *, int *, MPI_Status *)
    int MPI_Request_free(MPI_Request *)
    int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)
