# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Runs lowered programs: MPI messages by persistent requests, reductions by the kernels, no Python on the way.

The vector is cut into segments, each an independent instance of the schedule, started one round apart. At tick t the
engine does round t-s of every segment s that is under way: copies, then all receives posted, then all sends, then each
arrival in the order of the table, as it is waited for; late ones after the sends are done. A wait depends only on peers
that reach the same tick, so nothing can deadlock.

All requests, addresses and counts are worked out once, when the plan is made; running it walks flat arrays.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from clock cimport now_ns, wait_until
from device cimport ddl_cuda_table
from direct cimport DDL_ARRIVE, DDL_SENT, DDL_WAIT, ddl_direct, ddl_direct_run, ddl_instruction, ddl_messages
from errors cimport check
from kernels cimport ddl_divide_fn, ddl_divider, ddl_itemsize, ddl_reduce_fn, ddl_reducer, ddl_reducer_of, ddl_simd
from libmpi cimport (
    MPI_ANY_SOURCE, MPI_BYTE, MPI_DOUBLE, MPI_ERRORS_RETURN, MPI_FLOAT, MPI_IN_PLACE, MPI_INT32_T, MPI_INT64_T,
    MPI_MAX, MPI_MIN, MPI_PROD, MPI_STATUS_IGNORE, MPI_SUM, MPI_UINT8_T, MPI_Allreduce, MPI_Comm, MPI_Comm_f2c,
    MPI_Comm_rank, MPI_Comm_set_errhandler, MPI_Comm_size, MPI_Datatype, MPI_Finalized, MPI_Fint, MPI_Iprobe, MPI_Op,
    MPI_Recv_init, MPI_Request, MPI_Request_free, MPI_Send_init, MPI_Startall,
)
from posix.stdlib cimport posix_memalign
from step cimport COPY, FROM_INPUT, KEEP, LATE, SEND, Step
from waiting cimport barrier, until_all, until_one, wait_all, wait_one

import numpy as np

from ddlbench.errors import DeviceError, UnsupportedError

cdef enum:
    TAG = 17
    PROBED = 18
    SHARED_NBYTES = 2048
    LINE = 128
    MOST_AT_ONCE = 1 << 30
    AVERAGE = 4
    SENDING = -1

cdef enum Doing:
    # What a plan is at, in the order of DOING.
    IDLE
    BARRIER
    START
    RUN

cdef extern from *:
    """
    #if defined(__x86_64__)
    #define DDL_PAST_CACHES 1
    #else
    #define DDL_PAST_CACHES 0
    #endif
    """
    bint PAST_CACHES "DDL_PAST_CACHES"


STEP_SIZE = sizeof(Step)
INSTRUCTION_SIZE = sizeof(ddl_instruction)
REQUEST_SIZE = sizeof(Request)
DOING = ("idle", "barrier", "start", "run")


cdef struct Arrival:
    # One arrival or local copy of a segment. `own` NULL: store `source` at `target`; else target = own op source.
    char *target
    const char *own
    const char *source
    size_t count
    bint late


cdef struct Message:
    # What is worth knowing of a request by whoever asks where a run stands; running it needs none of this.
    int peer
    int round
    int segment


cdef struct Standing:
    # Where a plan is, told to other threads by plain stores: they may see one a moment late, never a wrong address.
    # `waiting` is the arrival that is waited for, or SENDING.
    int64_t runs
    int doing
    int tick
    int waiting


cdef struct Tick:
    # Where a tick's part of the flat arrays begins; the next tick's begin is its end.
    int copies
    int receives
    int sends


def simd():
    """Return the SIMD level of the reduction kernels in use: "avx512bf16", "avx512", "avx2" or "baseline"."""
    return ddl_simd().decode()


cdef extern from *:
    """
    #if defined(__GNUC__) && !defined(__clang__)
    #define DDL_COMPILER "gcc " __VERSION__
    #elif defined(__VERSION__)
    #define DDL_COMPILER __VERSION__
    #else
    #define DDL_COMPILER ""
    #endif
    """
    const char *DDL_COMPILER


def compiler():
    """Return the name and version of the C compiler that this module was built with; "" where it does not say."""
    return DDL_COMPILER.decode()


cdef class Memory:
    """A block of aligned memory that is freed with its owner."""
    cdef char *data

    def __cinit__(self, size_t nbytes):
        cdef void *data = NULL
        if nbytes and posix_memalign(&data, LINE, nbytes):
            raise MemoryError(f"no memory for {nbytes} bytes of staging")
        self.data = <char *>data

    def __dealloc__(self):
        free(self.data)


cdef class Device:
    """Where a plan's buffers are when they are a GPU's: its functions, the stream for its work, and whom to wait for.

    `calls` is the capsule "ddlbench._cuda.calls", `stream` the address of a stream that is the plan's alone, and
    `before` that of the one whose work on the buffers is waited for when the plan runs (0: the default stream).
    """
    cdef const ddl_cuda_table *calls
    cdef void *stream
    cdef void *before
    cdef object kept

    def __init__(self, calls, size_t stream, size_t before):
        self.calls = <const ddl_cuda_table *>PyCapsule_GetPointer(calls, "ddlbench._cuda.calls")
        if self.calls.nbytes != sizeof(ddl_cuda_table):
            raise UnsupportedError("ddlbench._engine and ddlbench._cuda are of different builds: build both anew")
        self.stream, self.before, self.kept = <void *>stream, <void *>before, calls


cdef class Runner:
    """What all plans share: a communicator, two buffers, a reduction, and how it is run and timed.

    Buffers are numpy's arrays or, with a `Device`, what has its memory's `address` and `size`.
    """
    cdef MPI_Comm comm
    cdef bint yielding
    cdef const ddl_cuda_table *calls
    cdef void *stream
    cdef void *last
    cdef void *before
    cdef int dtype, op
    cdef uint64_t *marks
    cdef uint64_t *mark
    cdef Py_ssize_t marked
    cdef object held
    cdef char *input
    cdef char *output
    cdef size_t count, itemsize
    cdef int ranks
    cdef ddl_divide_fn divide
    cdef Standing at
    cdef object buffers

    def __init__(self, MPI_Fint comm, sendbuf, recvbuf, int dtype, int op, bint yielding, Device device=None):
        self.buffers = (sendbuf, recvbuf, device)
        self.comm = MPI_Comm_f2c(comm)
        check(MPI_Comm_set_errhandler(self.comm, MPI_ERRORS_RETURN))
        check(MPI_Comm_size(self.comm, &self.ranks))
        self.yielding = yielding
        self.input = <char *><size_t>(sendbuf.ctypes.data if device is None else sendbuf.address)
        self.output = <char *><size_t>(recvbuf.ctypes.data if device is None else recvbuf.address)
        self.count = recvbuf.size
        self.itemsize = ddl_itemsize(dtype)
        self.divide = ddl_divider(dtype) if op == AVERAGE else NULL
        self.dtype, self.op = dtype, op
        if device is not None:
            self.calls, self.stream, self.before = device.calls, device.stream, device.before
            self.last = self.stream

    cdef int reduce(self) except -1 nogil:
        raise NotImplementedError

    cdef inline int asked(self, int error) except -1 nogil:
        """Raise `DeviceError` unless the device did what it was asked for."""
        return 0 if error == 0 else self._refused(error)

    cdef int _refused(self, int error) except -1 with gil:
        raise DeviceError(f"{self.calls.error_name(error).decode()}: {self.calls.error_string(error).decode()}")

    cdef int _run_on_device(self) except -1 nogil:
        """Run between two waits for the device; if there are marks, the next two events tell the time in between."""
        self.asked(self.calls.synchronize(self.before))
        if self.mark != NULL:
            self.asked(self.calls.event_record(<void *>self.mark[0], self.stream))
        self.reduce()
        if self.divide != NULL and self.count:
            self.asked(self.calls.divide(self.output, self.count, self.dtype, self.ranks, self.stream))
        if self.mark != NULL:
            self.asked(self.calls.event_record(<void *>self.mark[1], self.last))
            self.mark += 2
        if self.last != self.stream:
            self.asked(self.calls.synchronize(self.stream))
        return self.asked(self.calls.synchronize(self.last))

    cdef inline int run(self) except -1 nogil:
        self.at.doing = RUN
        self.at.runs += 1
        if self.calls != NULL:
            return self._run_on_device()
        self.reduce()
        if self.divide != NULL and self.count:
            self.divide(self.output, self.count, self.ranks)
        return 0

    def execute(self):
        """Run the allreduce once, from the send buffer's present content; raises `MPIError`."""
        with nogil:
            self.run()
        self.at.doing = IDLE

    def set_marks(self, events):
        """Let the next timed samples be marked by `events` of the device, uint64 (2·samples,), a pair for each."""
        self.held = events
        self.marks = <uint64_t *><size_t>events.ctypes.data
        self.marked = len(events)

    cdef inline void begin_marks(self, Py_ssize_t samples) noexcept nogil:
        self.mark = self.marks if self.marked >= 2 * samples else NULL

    def position(self):
        """Return where the plan stands: one of `DOING`, the runs begun, the tick of this one, and the wait in it.

        Another thread may ask while the plan runs. Two equal answers say that nothing has moved.
        """
        return DOING[self.at.doing], self.at.runs, self.at.tick, self.at.waiting

    def waiting(self):
        """Return what the run waits for: (round, segment, ranks it receives from, ranks it sends to).

        None where that is not known: between runs, and inside the MPI library's own allreduce.
        """
        return None

    def time_samples(self, Py_ssize_t samples):
        """Run the allreduce `samples` times and return each one's nanoseconds on this rank, int64 (samples,).

        Each starts when this rank leaves a barrier; the time of the slowest rank is the maximum over ranks.
        """
        durations = np.empty(samples, np.int64)
        cdef int64_t[::1] view = durations
        cdef int64_t start
        cdef Py_ssize_t i
        self.begin_marks(samples)
        with nogil:
            for i in range(samples):
                self.at.doing = BARRIER
                barrier(self.comm, self.yielding)
                start = now_ns()
                self.run()
                view[i] = now_ns() - start
        self.at.doing, self.mark = IDLE, NULL
        return durations

    def time_windows(self, const int64_t[::1] starts):
        """Run the allreduce once at each of `starts`, int64 (samples,), ascending nanoseconds of this host's clock.

        Returns int64 (samples,) each: when this rank began, and when it was done. A rank that was not ready at the
        start, or was held up while it waited for it, begins late: the sample says nothing of an aligned start.
        """
        cdef Py_ssize_t samples = starts.shape[0], i
        begun, done = np.empty(samples, np.int64), np.empty(samples, np.int64)
        cdef int64_t[::1] begun_at = begun, done_at = done
        self.begin_marks(samples)
        with nogil:
            for i in range(samples):
                self.at.doing = START
                begun_at[i] = wait_until(starts[i])
                self.run()
                done_at[i] = now_ns()
        self.at.doing, self.mark = IDLE, NULL
        return begun, done


cdef class Engine(Runner):
    """A program bound to buffers: a rank's step table (`STEP`), cut into `segments` segments, over MPI messages.

    `chunks` is the number of chunks of the schedule; chunk c of a segment of m elements is elements c*m//chunks up to
    (c+1)*m//chunks. The arrays are one-dimensional and contiguous; the same one twice means in place.

    On a `device` MPI is given addresses of its memory; `staging` is then a function from bytes to memory there.
    """
    cdef MPI_Request *receive_requests
    cdef MPI_Request *send_requests
    cdef Arrival *arrivals
    cdef Arrival *copies
    cdef Tick *ticks
    cdef Message *receives
    cdef Message *sends
    cdef int ticks_count, receives_count, sends_count, copies_count
    cdef ddl_reduce_fn reducer
    cdef char *staged_at
    cdef object staging
    cdef bint pending
    cdef readonly object staging_nbytes

    def __init__(self, MPI_Fint comm, table, int chunks, int segments, sendbuf, recvbuf, int dtype, int op,
                 bint yielding, Device device=None, staging=None):
        Runner.__init__(self, comm, sendbuf, recvbuf, dtype, op, yielding, device)
        self.staging = staging
        self.reducer = ddl_reducer(dtype, op)
        if self.reducer == NULL:
            raise UnsupportedError(f"no kernel for dtype code {dtype} and op code {op}")
        cdef int rounds = int(table["round"].max()) + 1 if len(table) else 0
        cdef const Step[::1] steps = table
        starts = np.searchsorted(table["round"], np.arange(rounds + 1)).astype(np.intc)
        self._allocate(len(table), segments, rounds)
        self._bind(steps, starts, rounds, chunks, segments)

    def _allocate(self, size_t rows, size_t segments, int rounds):
        cdef size_t most = rows * segments + 1
        self.ticks_count = rounds + <int>segments - 1 if rounds else 0
        self.receive_requests = <MPI_Request *>calloc(most, sizeof(MPI_Request))
        self.send_requests = <MPI_Request *>calloc(most, sizeof(MPI_Request))
        self.arrivals = <Arrival *>calloc(most, sizeof(Arrival))
        self.copies = <Arrival *>calloc(most, sizeof(Arrival))
        self.ticks = <Tick *>calloc(self.ticks_count + 1, sizeof(Tick))
        self.receives = <Message *>calloc(most, sizeof(Message))
        self.sends = <Message *>calloc(most, sizeof(Message))
        if not (self.receive_requests and self.send_requests and self.arrivals and self.copies and self.ticks
                and self.receives and self.sends):
            raise MemoryError(f"no memory for a plan of {most} requests")

    def _bind(self, const Step[::1] steps, const int[::1] starts, int rounds, int chunks, int segments):
        """Make the requests and addresses of all ticks, staging in banks that the rounds under way at once share."""
        cdef int banks = min(segments, rounds), tick, segment, round_, row
        cdef size_t bank_nbytes = self._bank_nbytes(steps, starts, rounds, chunks, segments)
        cdef size_t used
        cdef char *base
        self._stage(banks * bank_nbytes)
        for tick in range(self.ticks_count):
            for segment in range(max(0, tick - rounds + 1), min(tick, segments - 1) + 1):
                round_ = tick - segment
                used = 0
                base = self.staged_at + (round_ % banks) * bank_nbytes
                for row in range(starts[round_], starts[round_ + 1]):
                    used += self._bind_step(steps[row], chunks, segment, segments, base + used)
            self.ticks[tick + 1] = Tick(self.copies_count, self.receives_count, self.sends_count)

    cdef _stage(self, size_t nbytes):
        """Take memory for what arrives and is to be added: the host's, or the device's that the buffers are on."""
        cdef Memory memory
        self.staging_nbytes = nbytes
        if self.calls == NULL:
            memory = self.staging = Memory(nbytes)
            self.staged_at = memory.data
        elif nbytes:
            self.staging = self.staging(nbytes)
            self.staged_at = <char *><size_t>self.staging.address

    cdef size_t _bank_nbytes(self, const Step[::1] steps, const int[::1] starts, int rounds, int chunks, int segments):
        cdef size_t most = 0, used
        cdef int round_, row
        for round_ in range(rounds):
            used = 0
            for row in range(starts[round_], starts[round_ + 1]):
                used += self._staged(steps[row], self._longest(steps[row], chunks, segments))
            most = max(most, used)
        return most

    cdef size_t _longest(self, Step step, int chunks, int segments) noexcept:
        """Return a bound on a step's elements in any segment."""
        cdef size_t segment = self.count // segments + 1
        return min(segment, (segment * step.nchunks) // chunks + 1)

    cdef size_t _staged(self, Step step, size_t count) noexcept:
        """Return the bytes of staging that a step needs for `count` elements, in whole cache lines.

        What arrives on time lands in the output, if it is to be stored, or added to a value that is still in the input.
        """
        cdef bint lands_in_place = step.kind == KEEP or (step.flags & FROM_INPUT and self.input != self.output)
        if step.kind == SEND or step.kind == COPY or (lands_in_place and not step.flags & LATE):
            return 0
        return (count * self.itemsize + LINE - 1) // LINE * LINE

    cdef size_t _bind_step(self, Step step, int chunks, int segment, int segments, char *staging) except? 0:
        """Add a step of a segment to the arrays; return the bytes of staging it took."""
        cdef size_t first = self.count * segment // segments
        cdef size_t length = self.count * (segment + 1) // segments - first
        cdef size_t begin = first + length * step.chunk // chunks
        cdef size_t count = first + length * (step.chunk + step.nchunks) // chunks - begin
        cdef size_t offset = begin * self.itemsize
        cdef const char *own = (self.input if step.flags & FROM_INPUT else self.output) + offset
        cdef char *target = self.output + offset
        cdef size_t staged = self._staged(step, count)
        cdef char *landing = staging if staged else target
        if count == 0:
            return 0
        if step.kind == COPY:
            self.copies[self.copies_count] = Arrival(target, NULL, self.input + offset, count, False)
            self.copies_count += 1
        elif step.kind == SEND:
            check(MPI_Send_init(own, <int>(count * self.itemsize), MPI_BYTE, step.peer, TAG, self.comm,
                                &self.send_requests[self.sends_count]))
            self.sends[self.sends_count] = Message(step.peer, step.round, segment)
            self.sends_count += 1
        else:
            if step.kind == KEEP:
                own = NULL
            self.arrivals[self.receives_count] = Arrival(target, own, landing, count, step.flags & LATE)
            check(MPI_Recv_init(landing, <int>(count * self.itemsize), MPI_BYTE, step.peer, TAG, self.comm,
                                &self.receive_requests[self.receives_count]))
            self.receives[self.receives_count] = Message(step.peer, step.round, segment)
            self.receives_count += 1
        return staged

    cdef inline int apply(self, Arrival *arrival) except -1 nogil:
        if self.calls != NULL:
            return self._apply_on_device(arrival)
        if arrival.own != NULL:
            self.reducer(arrival.target, arrival.own, arrival.source, arrival.count)
        elif arrival.source != arrival.target:
            memcpy(arrival.target, arrival.source, arrival.count * self.itemsize)
        return 0

    cdef int _apply_on_device(self, Arrival *arrival) except -1 nogil:
        cdef const void **of = [arrival.own, arrival.source]
        if arrival.own == NULL and arrival.source == arrival.target:
            return 0
        self.pending = True
        if arrival.own == NULL:
            return self.asked(self.calls.copy(arrival.target, arrival.source, arrival.count * self.itemsize,
                                              self.stream))
        return self.asked(self.calls.reduce(arrival.target, of, 2, arrival.count, self.dtype, self.op, 0, self.stream))

    cdef inline int finish(self) except -1 nogil:
        """Wait for the device before MPI, and so other ranks, may see what it wrote or overwrite what it reads."""
        if self.pending:
            self.pending = False
            return self.asked(self.calls.synchronize(self.stream))
        return 0

    cdef int reduce(self) except -1 nogil:
        cdef int tick
        self.pending = False
        for tick in range(self.ticks_count):
            self.at.tick = tick
            self._do_tick(self.ticks[tick], self.ticks[tick + 1])
        return 0

    cdef int _do_tick(self, Tick begin, Tick end) except -1 nogil:
        cdef int receives = end.receives - begin.receives, sends = end.sends - begin.sends, i
        cdef bint late = False
        for i in range(begin.copies, end.copies):
            self.apply(&self.copies[i])
        self.finish()
        if receives:
            check(MPI_Startall(receives, &self.receive_requests[begin.receives]))
        if sends:
            check(MPI_Startall(sends, &self.send_requests[begin.sends]))
        for i in range(begin.receives, end.receives):
            if self.arrivals[i].late:
                late = True
                continue
            self.at.waiting = i
            wait_one(&self.receive_requests[i], self.yielding)
            self.apply(&self.arrivals[i])
        if sends:
            self.at.waiting = SENDING
            wait_all(sends, &self.send_requests[begin.sends], self.yielding)
        if late:
            for i in range(begin.receives, end.receives):
                if self.arrivals[i].late:
                    self.at.waiting = i
                    wait_one(&self.receive_requests[i], self.yielding)
                    self.apply(&self.arrivals[i])
        return 0

    def waiting(self):
        """Return what the run waits for, as `Runner.waiting` says; sends of a tick are waited for together."""
        cdef int tick = self.at.tick, i = self.at.waiting
        if self.at.doing != RUN or tick >= self.ticks_count:
            return None
        if i != SENDING:
            if i >= self.receives_count:
                return None
            return self.receives[i].round, self.receives[i].segment, (self.receives[i].peer,), ()
        span = range(self.ticks[tick].sends, self.ticks[tick + 1].sends)
        if not span:
            return None
        first = span[0]
        peers = {self.sends[at].peer for at in span}
        return self.sends[first].round, self.sends[first].segment, (), tuple(sorted(peers))

    def close(self):
        """Free the requests; the plan cannot run afterwards."""
        cdef int finalized = 0, i
        MPI_Finalized(&finalized)
        if not finalized:
            for i in range(self.receives_count):
                MPI_Request_free(&self.receive_requests[i])
            for i in range(self.sends_count):
                MPI_Request_free(&self.send_requests[i])
        self.receives_count = self.sends_count = self.copies_count = self.ticks_count = 0

    def __dealloc__(self):
        self.close()
        free(self.receive_requests)
        free(self.send_requests)
        free(self.arrivals)
        free(self.copies)
        free(self.ticks)
        free(self.receives)
        free(self.sends)


cdef class Vendor(Runner):
    """The MPI library's own allreduce, run and timed as the engine is."""
    cdef MPI_Datatype mpi_type
    cdef MPI_Op mpi_op

    def __init__(self, MPI_Fint comm, sendbuf, recvbuf, int dtype, int op, bint yielding, Device device=None):
        Runner.__init__(self, comm, sendbuf, recvbuf, dtype, op, yielding, device)
        if dtype < 2:
            raise UnsupportedError("MPI_Allreduce has no 16-bit floating-point type")
        if dtype == 2:
            self.mpi_type = MPI_FLOAT
        elif dtype == 3:
            self.mpi_type = MPI_DOUBLE
        elif dtype == 4:
            self.mpi_type = MPI_INT32_T
        elif dtype == 5:
            self.mpi_type = MPI_INT64_T
        else:
            self.mpi_type = MPI_UINT8_T
        if op == 1:
            self.mpi_op = MPI_PROD
        elif op == 2:
            self.mpi_op = MPI_MIN
        elif op == 3:
            self.mpi_op = MPI_MAX
        else:
            self.mpi_op = MPI_SUM

    cdef int reduce(self) except -1 nogil:
        """Reduce at most 2^30 elements a call: MPI counts are ints."""
        cdef size_t done = 0, part
        while True:
            part = min(self.count - done, <size_t>MOST_AT_ONCE)
            self._reduce_part(self.input + done * self.itemsize, self.output + done * self.itemsize, <int>part)
            done += part
            if done >= self.count:
                return 0

    cdef int _reduce_part(self, char *source, char *target, int count) except -1 nogil:
        if source == target:
            return check(MPI_Allreduce(MPI_IN_PLACE, target, count, self.mpi_type, self.mpi_op, self.comm))
        return check(MPI_Allreduce(source, target, count, self.mpi_type, self.mpi_op, self.comm))

    def close(self):
        """Nothing to free: MPI_Allreduce keeps nothing between calls."""


cdef struct Request:
    # A message of the direct transport; ddlbench.local.program.REQUEST is the same struct.
    uint64_t address
    int64_t nbytes
    int peer
    int round
    int segment
    int unused


cdef struct Exchanged:
    # The messages of a plan of the direct transport, for functions that the loop in C calls.
    MPI_Comm comm
    MPI_Request *receives
    MPI_Request *sends
    bint yielding
    # On a device, where messages do not start and end there: what is sent and received there, and the functions and
    # stream that copy it from and to the messages' buffers.
    const ddl_cuda_table *calls
    void *stream
    const Request *received
    const Request *sent
    const Request *landed
    const Request *staged
    int device_error


cdef class Direct(Runner):
    """A program of the direct transport (ddlbench/local), bound to buffers and to memory that a node's ranks address.

    `variants` are `ddlbench.local.program.INSTRUCTION` tables, one or two, and `operands` their addresses, uint64.
    `counters` are the addresses of all ranks' counters, which are 0 when no rank has run the plan yet, and `span` by
    how much an execution moves them; 0 is the address of a rank of another node. `memory` is kept alive with the plan.
    `receives` and `sends` are `REQUEST` tables, of messages to and from other nodes.

    On a `device` all addresses but the counters' are its memory's, and `scratch` is the address of as much of it as
    the longest instruction writes. `mirror` are tables like `receives` and `sends` with host addresses in their place,
    None where MPI takes the device's.
    """
    cdef ddl_direct direct
    cdef ddl_messages messages
    cdef Exchanged exchanged
    cdef int receives_count, sends_count
    cdef object receives, sends
    cdef object kept

    def __init__(self, MPI_Fint comm, variants, operands, counters, int64_t span, memory, receives, sends, sendbuf,
                 recvbuf, int dtype, int op, bint yielding, Device device=None, size_t scratch=0, mirror=None):
        Runner.__init__(self, comm, sendbuf, recvbuf, dtype, op, yielding, device)
        self.direct.reducer = ddl_reducer(dtype, op)
        self.direct.of_three, self.direct.of_four = ddl_reducer_of(dtype, op, 3), ddl_reducer_of(dtype, op, 4)
        if self.direct.reducer == NULL:
            raise UnsupportedError(f"no kernel for dtype code {dtype} and op code {op}")
        cdef int rank
        check(MPI_Comm_rank(self.comm, &rank))
        seen = np.zeros(self.ranks, np.int64)
        self.kept = (tuple(variants), operands, counters, seen, memory)
        for at in range(2):
            table = variants[at % len(variants)]
            self.direct.instructions[at] = <const ddl_instruction *><size_t>table.ctypes.data
            self.direct.lengths[at] = len(table)
        self.direct.operands = <char **><size_t>operands.ctypes.data
        self.direct.counters = <uint64_t **><size_t>counters.ctypes.data
        self.direct.seen = <int64_t *><size_t>seen.ctypes.data
        self.direct.own = self.direct.counters[rank]
        self.direct.span = span
        self.direct.itemsize = self.itemsize
        self.direct.yielding = yielding
        # From 2 KiB on; below, and where a processor has no such stores, either way is the same.
        most = max((int(np.max(table["count"][table["shared"] > 0], initial=0)) for table in variants), default=0)
        self.direct.tries = PAST_CACHES and most * self.itemsize >= SHARED_NBYTES
        self.direct.device, self.direct.stream, self.direct.scratch = self.calls, self.stream, <void *>scratch
        self.direct.dtype, self.direct.op = dtype, op
        self.receives, self.sends = receives, sends
        self.exchanged.comm, self.exchanged.yielding = self.comm, yielding
        if mirror is not None:
            self._copy_messages(receives, sends, *mirror)
        if len(receives) or len(sends):
            self._make_requests(*((receives, sends) if mirror is None else mirror))
            self.messages = ddl_messages(&self.exchanged, post_messages, arrive_message, sent_messages,
                                         progress_messages)
            self.direct.messages = &self.messages

    def _copy_messages(self, receives, sends, landed, staged):
        """Let messages start and end at the host's addresses of `landed` and `staged`, which the plan keeps."""
        self.kept += (receives, sends, landed, staged)
        self.exchanged.calls, self.exchanged.stream = self.calls, self.stream
        self.exchanged.received = <const Request *><size_t>receives.ctypes.data
        self.exchanged.sent = <const Request *><size_t>sends.ctypes.data
        self.exchanged.landed = <const Request *><size_t>landed.ctypes.data
        self.exchanged.staged = <const Request *><size_t>staged.ctypes.data

    def _make_requests(self, const Request[::1] receives, const Request[::1] sends):
        cdef Py_ssize_t i
        self.exchanged.receives = <MPI_Request *>calloc(receives.shape[0] + 1, sizeof(MPI_Request))
        self.exchanged.sends = <MPI_Request *>calloc(sends.shape[0] + 1, sizeof(MPI_Request))
        if not (self.exchanged.receives and self.exchanged.sends):
            raise MemoryError(f"no memory for a plan of {receives.shape[0] + sends.shape[0]} requests")
        for i in range(receives.shape[0]):
            check(MPI_Recv_init(<void *><size_t>receives[i].address, <int>receives[i].nbytes, MPI_BYTE,
                                receives[i].peer, TAG, self.comm, &self.exchanged.receives[i]))
            self.receives_count += 1
        for i in range(sends.shape[0]):
            check(MPI_Send_init(<const void *><size_t>sends[i].address, <int>sends[i].nbytes, MPI_BYTE,
                                sends[i].peer, TAG, self.comm, &self.exchanged.sends[i]))
            self.sends_count += 1

    cdef int reduce(self) except -1 nogil:
        cdef int error
        self.exchanged.device_error = 0
        error = ddl_direct_run(&self.direct)
        self.asked(self.direct.device_error or self.exchanged.device_error)
        return check(error)

    def waiting(self):
        """Return what the run waits for, as `Runner.waiting` says; a wait for a reader counts as receiving."""
        cdef size_t which = self.direct.executions & 1
        cdef int64_t at = self.direct.at
        if self.at.doing != RUN or <size_t>at >= self.direct.lengths[which]:
            return None
        cdef const ddl_instruction *step = &self.direct.instructions[which][at]
        if step.kind == DDL_WAIT:
            return int(step.value), 0, (step.peer,), ()
        if step.kind == DDL_ARRIVE:
            one = self.receives[step.value]
            return int(one["round"]), int(one["segment"]), (int(one["peer"]),), ()
        if step.kind == DDL_SENT:
            some = self.sends[step.operands:step.operands + step.targets]
            peers = tuple(sorted(set(some["peer"].tolist())))
            return int(some["round"][0]), int(some["segment"][0]), (), peers
        return None

    def close(self):
        """Free the requests; the memory belongs to the communicator."""
        cdef int finalized = 0, i
        MPI_Finalized(&finalized)
        if not finalized:
            for i in range(self.receives_count):
                MPI_Request_free(&self.exchanged.receives[i])
            for i in range(self.sends_count):
                MPI_Request_free(&self.exchanged.sends[i])
        self.receives_count = self.sends_count = 0

    def __dealloc__(self):
        self.close()
        free(self.exchanged.receives)
        free(self.exchanged.sends)


cdef int post_messages(void *plan, int receive, int receives, int send, int sends) noexcept nogil:
    cdef Exchanged *of = <Exchanged *>plan
    cdef int error = 0, i
    if of.calls != NULL and sends:
        for i in range(send, send + sends):
            error = error or of.calls.copy(<void *>of.staged[i].address, <const void *>of.sent[i].address,
                                           of.sent[i].nbytes, of.stream)
        of.device_error = error or of.calls.synchronize(of.stream)
        if of.device_error:
            return of.device_error
    if receives:
        error = MPI_Startall(receives, &of.receives[receive])
    if sends and not error:
        error = MPI_Startall(sends, &of.sends[send])
    return error


cdef int arrive_message(void *plan, int receive) noexcept nogil:
    cdef Exchanged *of = <Exchanged *>plan
    cdef int error = until_one(&of.receives[receive], of.yielding)
    if of.calls != NULL and not error:
        error = of.device_error = of.calls.copy(<void *>of.received[receive].address,
                                                <const void *>of.landed[receive].address,
                                                of.landed[receive].nbytes, of.stream)
    return error


cdef int sent_messages(void *plan, int send, int sends) noexcept nogil:
    cdef Exchanged *of = <Exchanged *>plan
    return until_all(sends, &of.sends[send], of.yielding)


cdef int progress_messages(void *plan) noexcept nogil:
    cdef Exchanged *of = <Exchanged *>plan
    cdef int found
    return MPI_Iprobe(MPI_ANY_SOURCE, PROBED, of.comm, &found, MPI_STATUS_IGNORE)


cdef class Staged(Runner):
    """An allreduce of a device's memory by way of the host's: `pieces` are plans for parts of pinned host buffers.

    Piece i is of the elements bounds[i] up to bounds[i + 1]. While one is reduced between the ranks the next comes from
    the device, and the one before goes back there, on the stream `up`. `host` are the two buffers, or one twice.
    """
    cdef list pieces
    cdef object kept
    cdef int64_t[::1] bounds
    cdef char *host_input
    cdef char *host_output

    def __init__(self, MPI_Fint comm, pieces, bounds, host, sendbuf, recvbuf, int dtype, bint yielding, Device device,
                 size_t up):
        Runner.__init__(self, comm, sendbuf, recvbuf, dtype, 0, yielding, device)
        self.pieces, self.bounds, self.kept = list(pieces), bounds, host
        self.last = <void *>up
        self.host_input = <char *><size_t>host[0].ctypes.data
        self.host_output = <char *><size_t>host[1].ctypes.data

    cdef int _down(self, Py_ssize_t piece) except -1 nogil:
        cdef size_t begin = self.bounds[piece] * self.itemsize, end = self.bounds[piece + 1] * self.itemsize
        if piece + 1 >= self.bounds.shape[0] or begin == end:
            return 0
        return self.asked(self.calls.copy(self.host_input + begin, self.input + begin, end - begin, self.stream))

    cdef int _up(self, Py_ssize_t piece) except -1 nogil:
        cdef size_t begin = self.bounds[piece] * self.itemsize, end = self.bounds[piece + 1] * self.itemsize
        if begin == end:
            return 0
        return self.asked(self.calls.copy(self.output + begin, self.host_output + begin, end - begin, self.last))

    cdef int _run_piece(self, Py_ssize_t piece) except -1 with gil:
        cdef Runner runner = <Runner>self.pieces[piece]
        with nogil:
            runner.run()
        runner.at.doing = IDLE
        return 0

    cdef int reduce(self) except -1 nogil:
        cdef Py_ssize_t piece, pieces = self.bounds.shape[0] - 1
        self._down(0)
        for piece in range(pieces):
            self.at.tick = <int>piece
            self.asked(self.calls.synchronize(self.stream))
            if piece + 1 < pieces:
                self._down(piece + 1)
            self._run_piece(piece)
            self._up(piece)
        return 0

    def position(self):
        """Return where the plan stands, and where the piece under way does."""
        return *Runner.position(self), *self._piece().position()

    def waiting(self):
        """Return what the piece under way waits for."""
        return self._piece().waiting()

    def _piece(self):
        return self.pieces[min(self.at.tick, len(self.pieces) - 1)]

    def close(self):
        """Nothing to free: the pieces are plans of their own."""


ctypedef int (*AllReduce)(const void *, void *, size_t, int, int, void *, void *) noexcept nogil


cdef class Nccl(Runner):
    """NCCL's allreduce: `function` is the address of ncclAllReduce, `kind` and `reduction` are NCCL's own codes.

    `communicator` is the address of an ncclComm_t, and `told` gives the text of an error of NCCL.
    """
    cdef AllReduce function
    cdef void *communicator
    cdef int kind, reduction
    cdef object told

    def __init__(self, MPI_Fint comm, size_t function, size_t communicator, int kind, int reduction, told, sendbuf,
                 recvbuf, int dtype, int op, bint yielding, Device device):
        Runner.__init__(self, comm, sendbuf, recvbuf, dtype, op, yielding, device)
        self.function, self.communicator = <AllReduce>function, <void *>communicator
        self.kind, self.reduction, self.told = kind, reduction, told

    cdef int reduce(self) except -1 nogil:
        cdef int error = self.function(self.input, self.output, self.count, self.kind, self.reduction,
                                       self.communicator, self.stream)
        if error:
            self._failed(error)
        return 0

    cdef int _failed(self, int error) except -1 with gil:
        raise DeviceError(f"ncclAllReduce: {self.told(error)}")

    def close(self):
        """Nothing to free: the communicator belongs to who made it."""
