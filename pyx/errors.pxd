# One check for all MPI calls: an error code becomes ddlbench.errors.MPIError.
from libmpi cimport MPI_SUCCESS, MPI_Error_string

cdef inline int raise_mpi_error(int code) except -1 with gil:
    cdef char text[4096]
    cdef int length = 0
    from ddlbench.errors import MPIError
    MPI_Error_string(code, text, &length)
    raise MPIError(f"MPI error {code}: {text[:length].decode(errors='replace')}")


cdef inline int check(int code) except -1 nogil:
    if code == MPI_SUCCESS:
        return 0
    return raise_mpi_error(code)
