"""The watchdog outside MPI: what a rank tells of itself, what a leader makes of it, how it is said, and the channel."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from ddlbench.watch import board as board_module
from ddlbench.watch import channel, watchdog
from ddlbench.watch.board import LEAST_SECONDS, WORK_FACTOR, Beat, Board, Step, where
from ddlbench.watch.fault import MOST_LINES, Fault, Place
from ddlbench.watch.roll import Member, Roll
from ddlbench.watch.watchdog import Watchdog, leaders_of

# ---- What a rank tells ----------------------------------------------------------------------------------------------


class Time:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Plan:
    """A plan that stands where it is told to."""

    transport, segments = "p2p", 1

    def __init__(self, doing="run", waiting=None):
        self.doing, self.runs, self._waiting = doing, 0, waiting

    def position(self):
        return self.doing, self.runs, 0, 0

    def waiting(self):
        return self._waiting


@pytest.fixture
def clock():
    return Time()


@pytest.fixture(autouse=True)
def stack(monkeypatch):
    """Give the stack of the thread that is looked at: what it does stands in `f_lasti`."""
    frame = SimpleNamespace(f_code=look.__code__, f_lasti=0, f_lineno=1, f_back=None)
    monkeypatch.setattr(board_module, "_frame_of", lambda _: frame)
    return frame


def look(board):
    return board.look()


def test_a_step_that_does_not_move_is_idle_since_it_began(clock):
    board = Board(5.0, clock)
    board.begin("the proof of ring")
    first = look(board)
    for later in (1.0, 2.5):
        clock.now = 100.0 + later
        beat = look(board)
        assert (beat.what, beat.idle_s, beat.limit_s) == ("the proof of ring", first.idle_s + later, 5.0)
    board.begin("the probe of the links")
    assert look(board).idle_s == 0.0


def test_a_plan_that_runs_on_is_progress_and_one_that_stands_is_not(clock):
    plan = Plan()
    board = Board(5.0, clock)
    board.begin(Step("ring, 8 bytes", plan, limit_s=77.0))
    look(board)
    clock.now += 3
    assert (look(board).idle_s, look(board).limit_s) == (3.0, 77.0)
    plan.runs += 1
    assert look(board).idle_s == 0.0


def test_work_in_python_is_progress_within_its_own_limit(clock, stack):
    board = Board(5.0, clock)
    look(board)
    while clock.now < 100 + WORK_FACTOR * 5 - 2:
        clock.now += 2
        stack.f_lasti += 1
        assert look(board).idle_s == 0
    clock.now += 4
    stack.f_lasti += 1
    assert look(board).idle_s > WORK_FACTOR * 5


def test_a_loop_that_stays_in_one_place_is_work_and_a_thread_that_waits_is_not():
    stopped = threading.Event()

    def work():
        while not stopped.is_set():
            sum(range(9999))

    worker = threading.Thread(target=work)
    assert not board_module._python_runs()
    worker.start()
    try:
        assert eventually_true(board_module._python_runs)
    finally:
        stopped.set()
        worker.join()
    assert not board_module._python_runs()


def eventually_true(holds):
    return any(holds() for _ in range(100))


def test_a_rank_that_sleeps_says_so_and_goes_on_with_what_it_did(clock):
    board = Board(5.0, clock)
    board.begin("the sweep")
    with board.asleep("the turn of 2 other ranks"):
        assert look(board).asleep
    assert (look(board).what, look(board).asleep) == ("the sweep", False)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan("barrier"), "in the barrier before a sample"),
        (Plan("start"), "waits for the start of a sample"),
        (Plan("run", (3, 0, (2,), ())), "round 3: waits for rank 12"),
        (Plan("run", (3, 0, (), (1, 2))), "round 3: waits to send to ranks 11, 12"),
        (Plan("run"), "between rounds"),
        (Plan("idle"), "outside ddlbench"),
    ],
)
def test_where_a_rank_stands_is_said_with_the_numbers_of_the_launch(plan, said):
    assert where(Step("ring", plan), None, (10, 11, 12)) == said


def test_segments_and_the_librarys_own_allreduce_are_said():
    plan = Plan("run", (3, 4, (2,), ()))
    plan.segments = 9
    assert where(Step("ring", plan), None) == "round 3, segment 4: waits for rank 2"
    vendor = Plan("run")
    vendor.transport = "vendor"
    assert where(Step("mpi", vendor), None) == "inside MPI_Allreduce"


# ---- What a leader makes of it --------------------------------------------------------------------------------------

MEMBERS = [Member("node0", 10), Member("node0", 11), Member("node1", 12), Member("node1", 13)]
HERE = "ring, 8 bytes"


def beat(idle_s, what=HERE, where_="round 1: waits for rank 0", limit_s=60.0, **more):
    return Beat(what, where_, idle_s, limit_s, **more)


def test_a_run_moves_while_one_rank_does():
    roll = Roll(MEMBERS, 0.0)
    for rank, idle in enumerate((50, 40, 3, 70)):
        roll.heard(rank, beat(idle), 100.0)
    assert roll.idle_s(100.0) == 3
    assert roll.idle_s(110.0) == 13


def test_ranks_that_sleep_say_nothing_of_progress_or_its_limit():
    roll = Roll(MEMBERS, 0.0)
    roll.heard(0, beat(70, limit_s=80.0), 100.0)
    roll.heard(1, beat(0, limit_s=900.0, asleep=True), 100.0)
    assert (roll.idle_s(100.0), roll.limit_s(5.0)) == (70, 80.0)


def test_the_limit_of_a_rank_that_fell_silent_in_an_earlier_step_is_not_waited_for():
    roll = Roll(MEMBERS, 0.0)
    roll.heard(2, beat(0, "the first exchange", limit_s=600.0), 30.0)
    roll.heard(0, beat(70, limit_s=60.0), 100.0)
    assert roll.limit_s(5.0) == 60.0


def test_before_any_rank_was_heard_the_start_counts():
    roll = Roll(MEMBERS, 40.0)
    assert (roll.idle_s(100.0), roll.limit_s(5.0)) == (60, 5.0)


def test_a_stall_names_who_did_not_answer_and_for_how_long():
    roll = Roll(MEMBERS, 0.0)
    roll.heard(3, beat(1, where_="round 0: waits for rank 2"), 40.0)
    roll.heard(0, beat(60), 100.5)
    roll.heard(1, beat(60, "mpi, 8 bytes", "inside MPI_Allreduce"), 100.5)
    roll.left(2)
    fault = roll.stall(101.0, 100.0)
    assert fault.lines() == [
        "# stalled: ring, 8 bytes: no progress for 60 s",
        "#   rank 0 (node0): round 1: waits for rank 0",
        "#   rank 1 (node0): inside MPI_Allreduce, in mpi, 8 bytes",
        "#   rank 2 (node1): gone: it ended on its own",
        "# nobody heard from rank 3 (node1, pid 13) for 61 s; it was last round 0: waits for rank 2",
    ]
    assert fault.to_json()["silent"] == [3]
    assert fault.to_json()["ranks"][1] == {
        "rank": 1,
        "host": "node0",
        "where": "inside MPI_Allreduce, in mpi, 8 bytes",
    }


def test_what_most_ranks_do_that_answer_is_what_stalled():
    roll = Roll(MEMBERS, 0.0)
    roll.heard(0, beat(9, "the clocks"), 10.0)
    for rank in (1, 2, 3):
        roll.heard(rank, beat(60, HERE, point={"algorithm": "ring"}), 100.0)
    fault = roll.stall(100.0, 90.0)
    assert (fault.what, fault.point) == (f"stalled: {HERE}: no progress for 60 s", {"algorithm": "ring"})


def test_ranks_are_told_by_the_numbers_that_people_know():
    roll = Roll(MEMBERS, 0.0, numbers=(0, 2, 1, 3))
    for rank in (0, 1, 3):
        roll.heard(rank, beat(60), 100.0)
    fault = roll.stall(100.0, 90.0)
    assert [place.rank for place in fault.places] == [0, 1, 2, 3]
    assert fault.lines()[-1] == "# nobody ever heard from rank 1 (node1, pid 12)"


def test_a_death_is_told_with_what_the_others_do():
    roll = Roll(MEMBERS, 0.0)
    roll.heard(2, beat(0, "the clocks"), 99.0)
    roll.heard(0, beat(0), 100.0)
    assert roll.death(2, 100.0).lines() == [
        "# rank 2 (node1, pid 12) died during ring, 8 bytes: it was killed, or it crashed"
    ]
    assert roll.gone(2)


# ---- How it is said -------------------------------------------------------------------------------------------------


def fault(places):
    return Fault("stalled: x", found=True, point=None, places=tuple(places), at="")


def test_ranks_alike_share_a_line():
    places = [Place(rank, f"node{rank // 2}", 1, "inside MPI_Allreduce") for rank in (0, 1, 2, 5, 6, 9)]
    (_, line, rest) = fault(places).lines()
    assert line == "#   ranks 0-2, 5-6, 9 (node0, node1 … node4): inside MPI_Allreduce"
    assert rest.startswith("# every rank answers")


def test_many_ranks_that_wait_for_each_other_share_lines_too():
    places = [Place(rank, "node0", 1, f"round {rank % 3}: waits for rank {rank + 1}") for rank in range(300)]
    lines = fault(places).lines()
    assert len(lines) == 5
    assert lines[1].endswith("(node0): round 0: waits for other ranks")


def test_the_table_stays_short():
    unlike = [Place(rank, "node0", 1, f"in line {rank}") for rank in range(100)]
    silent = [Place(rank, "node1", 1, "in a line", 61.0) for rank in range(100, 200)]
    lines = fault([*unlike, *silent]).lines()
    assert len(lines) == 1 + MOST_LINES + MOST_LINES + 1
    assert lines[MOST_LINES] == "#   and 81 lines more, all in run.json"
    assert lines[-1] == "# and nobody heard from 80 more ranks"


# ---- The channel ----------------------------------------------------------------------------------------------------

TOKEN = b"0123456789abcdef"


@pytest.fixture(autouse=True)
def closing(monkeypatch):
    """Close all connections at the end of a test."""
    with ExitStack() as stack:
        made = channel.Wire.__init__

        def make(self, connection):
            stack.enter_context(connection)
            made(self, connection)

        monkeypatch.setattr(channel.Wire, "__init__", make)
        yield


@pytest.fixture
def server():
    with channel.listen(beyond_this_host=False) as listening:
        yield listening


def admitted(server, token=TOKEN):
    """Accept one connection, as a leader does, and return the rank it shows, or the error."""
    connection, _ = server.accept()
    guest = channel.Guest(connection, token, 4)
    try:
        while not (messages := guest.wire.receive()):
            time.sleep(0.001)
        return guest.admit(messages[0]), guest
    except (OSError, EOFError) as error:
        guest.wire.close()
        return error, guest


def until_raised(kind, action):
    """Call `action` until it raises an error of a `kind`; return whether it did within some seconds."""
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        try:
            action()
        except kind:
            return True
    return False


def beside(action):
    """Run `action` in a thread; return what gives its result."""
    found = []
    thread = threading.Thread(target=lambda: found.append(action()), daemon=True)
    thread.start()

    def result():
        thread.join(20)
        return found[0]

    return result


def test_a_rank_that_knows_the_token_is_let_in_and_messages_arrive_whole(server):
    wire = beside(lambda: channel.connect(channel.addresses_of(server), TOKEN, 3))
    rank, guest = admitted(server)
    mine = wire()
    assert rank == 3
    mine.send({"beat": "x" * 5000})
    mine.send({"bye": True})
    got = []
    while len(got) < 2:
        got += guest.wire.receive()
    assert got == [{"beat": "x" * 5000}, {"bye": True}]
    mine.close()
    assert until_raised(EOFError, guest.wire.receive)


@pytest.mark.parametrize(("theirs", "rank"), [(b"another", 3), (TOKEN, 4), (TOKEN, -1)])
def test_who_does_not_know_the_token_or_is_no_rank_is_refused(server, theirs, rank):
    wire = beside(lambda: channel.connect(channel.addresses_of(server), theirs, rank))
    error, _ = admitted(server)
    assert isinstance(error, OSError)
    assert wire() is None


def test_a_rank_does_not_trust_a_listener_without_the_token(server):
    wire = beside(lambda: channel.connect(channel.addresses_of(server), TOKEN, 1))
    connection, _ = server.accept()
    connection.sendall(b'{"nonce": "1"}\n')
    connection.recv(1000)
    connection.sendall(b'{"mac": "0"}\n')
    assert wire() is None
    connection.close()


@pytest.mark.parametrize("line", [b"no JSON\n", b"[1]\n", b"{}\n", b'{"rank": "0", "mac": 1}\n', b"x" * 70000])
def test_nonsense_is_refused(server, line):
    with socket.create_connection(server.getsockname()) as stranger:
        stranger.sendall(line)
        error, _ = admitted(server)
        assert isinstance(error, OSError)


def test_addresses_that_lead_nowhere_are_passed_over(server, monkeypatch):
    monkeypatch.setattr(channel, "CONNECT_SECONDS", 0.3)
    with channel.listen(beyond_this_host=False) as closed:
        nowhere = closed.getsockname()
    wire = beside(lambda: channel.connect([nowhere, server.getsockname()], TOKEN, 0))
    assert admitted(server)[0] == 0
    assert wire() is not None


def test_what_nobody_reads_is_dropped_in_the_end(server):
    with socket.create_connection(server.getsockname()) as mine:
        wire = channel.Wire(mine)
        for _ in range(2000):
            wire.send({"beat": "x" * 10000})
        assert len(wire._out) < channel.MOST_UNSENT + 20000


def test_the_addresses_of_a_listener_for_other_hosts_are_of_no_loopback():
    with channel.listen(beyond_this_host=True) as server:
        assert [address for address, _ in channel.addresses_of(server) if address.startswith("127.")] == []


# ---- All together, ranks being threads ------------------------------------------------------------------------------


class Comm:
    """As much of a communicator as the watchdog needs, between threads of one process."""

    def __init__(self, size):
        self.size, self._slots, self._barrier = size, [None] * size, threading.Barrier(size)

    def of(self, rank):
        comm = object.__new__(Comm)
        comm.__dict__.update(self.__dict__, rank=rank)
        return comm

    def allgather(self, value):
        self._slots[self.rank] = value
        self._barrier.wait()
        gathered = list(self._slots)
        self._barrier.wait()
        return gathered

    def bcast(self, value, root=0):
        return self.allgather(value)[root]


class Told:
    """What a watchdog would do, noted down."""

    def __init__(self):
        self.faults, self.alone_, self.left, self.unwatched_ = [], [], threading.Event(), False
        self.why, self.told_to_end = [], threading.Event()

    def announce(self, fault):
        self.faults.append(fault)

    def alone(self, _, leaders):
        self.alone_.append(leaders)

    def interrupted(self, why):
        self.why.append(why)
        self.told_to_end.set()

    def alive(self, beat):
        pass

    def unwatched(self):
        self.unwatched_ = True

    def leave(self, **_):
        self.left.set()


@pytest.fixture
def job(monkeypatch):
    """Give a function that starts watchdogs of so many ranks and returns them and what they told."""
    monkeypatch.setattr(watchdog, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(watchdog, "ALONE_SECONDS", 1.0)
    with ExitStack() as stack:

        def start(ranks, limit_s=0.6):
            told = [Told() for _ in range(ranks)]
            comm, dogs = Comm(ranks), []

            def begin(rank):
                dog = stack.enter_context(Watchdog(limit_s, told[rank]))
                dog.connect(comm.of(rank))
                dog.awake = threading.Event()
                stack.callback(dog.awake.set)
                return dog

            results = [beside(lambda rank=rank: begin(rank)) for rank in range(ranks)]
            dogs = [result() for result in results]
            end = time.monotonic() + 20
            while not all(dog._job and len(dog._job._leaders) == 2 - (rank < 2) for rank, dog in enumerate(dogs)):
                assert time.monotonic() < end
                time.sleep(0.01)
            return dogs, told

        yield start


def silence(dog):
    """Have a watchdog's thread stand still, as that of a stopped process does."""
    dog.call(lambda: dog.awake.wait(20))


@pytest.mark.parametrize(("silent", "teller"), [(2, 0), (1, 0), (0, 1)])
def test_the_first_leader_that_is_there_tells_and_all_leave(job, silent, teller):
    dogs, told = job(4)
    silence(dogs[silent])
    assert all(one.left.wait(15) for rank, one in enumerate(told) if rank != silent)
    assert [rank for rank, one in enumerate(told) if one.faults] == [teller]
    assert [place.rank for place in told[teller].faults[0].silent] == [silent]


def test_ranks_that_hear_no_leader_tell_for_themselves(job):
    dogs, told = job(4)
    silence(dogs[0])
    silence(dogs[1])
    assert told[2].left.wait(15)
    assert told[3].left.wait(15)
    assert told[2].alone_ == [(f"rank 0 ({socket.gethostname()})", f"rank 1 ({socket.gethostname()})")]


def test_a_rank_whose_leaders_never_answer_tells_for_itself(monkeypatch):
    monkeypatch.setattr(channel, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(watchdog, "ALONE_SECONDS", 0.5)
    told = Told()
    with channel.listen(beyond_this_host=False) as mute, Watchdog(0.3, told) as dog:
        here = Member("node0", 1, "A")
        places = {0: channel.addresses_of(mute), 1: channel.addresses_of(mute)}
        job = watchdog.Job(dog, 2, [here] * 3, TOKEN, places, None)
        dog.call(lambda: dog._begin(job))
        assert told.left.wait(2.5)  # not the ten times as long that a rank waits which can reach nobody
    assert told.alone_


def test_one_rank_that_moves_keeps_the_job_alive(job):
    dogs, told = job(3)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        dogs[2].board.begin("something new")
        time.sleep(0.05)
    assert not any(one.left.is_set() for one in told)
    assert told[0].left.wait(15)


def die(dog):
    """Have a rank go as a process that is killed does: its connections end without a goodbye."""

    def vanish():
        dog.leaving = True
        for wire in list(dog._job._leaders.values()):
            dog.drop(wire.socket)
        dog._job._leaders.clear()

    dog.call(vanish)


@pytest.mark.parametrize(("silent", "teller"), [(None, 0), (0, 1)])
def test_a_death_is_told_at_once_by_the_deputy_when_rank_0_does_not(job, silent, teller):
    dogs, told = job(4, limit_s=60.0)
    if silent is not None:
        silence(dogs[silent])
    die(dogs[2])
    assert all(one.left.wait(15) for rank, one in enumerate(told) if rank not in (2, silent))
    assert [rank for rank, one in enumerate(told) if one.faults] == [teller]
    assert re.match(r"rank 2 .* died during the first exchange", told[teller].faults[0].what)


def test_a_rank_that_said_goodbye_is_no_death(job):
    dogs, told = job(3, limit_s=60.0)
    dogs[2].call(dogs[2]._job.goodbye)
    die(dogs[2])
    for dog in dogs[:2]:  # what rank 1 says goes another way, and could come first
        while not dog._job._roll.gone(2):
            time.sleep(0.01)
    die(dogs[1])
    time.sleep(0.5)
    assert [one.faults for one in told] == [[], [], []]


def until(holds):
    limit = time.monotonic() + 20
    while not (found := holds()) and time.monotonic() < limit:
        time.sleep(0.01)
    return found


@pytest.mark.parametrize(("silent", "teller"), [(2, 0), (0, 1)])
def test_a_rank_whose_launcher_is_gone_says_who_was_not_heard(job, monkeypatch, silent, teller):
    monkeypatch.setattr(watchdog, "LOST_BEATS", 30)
    dogs, told = job(4, limit_s=60.0)
    silence(dogs[silent])
    roll = dogs[teller]._job._roll
    assert until(lambda: all(entry.heard_at for entry in roll._entries))

    def orphan():
        roll.began -= 100
        roll._entries[silent].heard_at -= 100
        dogs[teller]._on_orphaned()

    dogs[teller].call(orphan)
    assert told[teller].left.wait(15)
    (fault,) = told[teller].faults
    assert fault.what.startswith("told to end: ")
    assert [place.rank for place in fault.silent] == [silent]


@pytest.mark.parametrize("seen_at_once", [True, False])
def test_a_rank_ends_when_its_launcher_does(monkeypatch, seen_at_once):
    if not seen_at_once:  # as before Linux 5.3
        monkeypatch.setattr(watchdog, "_held", lambda _: None)
    elif not hasattr(os, "pidfd_open"):
        pytest.skip("this Python or kernel has no pidfd")
    told = Told()
    with subprocess.Popen(["sleep", "60"]) as launcher:
        parent = [launcher.pid]
        monkeypatch.setattr(os, "getppid", lambda: parent[0])
        with Watchdog(1.0, told, parent=launcher.pid):
            assert not told.told_to_end.wait(0.5)
            launcher.kill()
            if not seen_at_once:
                parent[0] = 1
            assert told.told_to_end.wait(15)
    assert told.why == ["the launcher is gone"]


def test_a_rank_that_nobody_launched_may_outlive_its_parent(monkeypatch):
    told, parent = Told(), [17]
    monkeypatch.setattr(os, "getppid", lambda: parent[0])
    with Watchdog(0.5, told) as dog:
        parent[0] = 1
        beats = [threading.Event() for _ in range(2)]
        monkeypatch.setattr(told, "alive", lambda _: next((one for one in beats if not one.is_set()), beats[0]).set())
        assert all(beat.wait(15) for beat in beats)
        assert not dog.leaving
    assert told.why == []


def test_a_watchdog_that_is_closed_is_no_dead_rank(job):
    dogs, told = job(3, limit_s=30.0)
    for dog in (dogs[1], dogs[0], dogs[2]):
        dog.close()
        time.sleep(0.1)
    assert [one.faults for one in told] == [[], [], []]
    assert all(one.unwatched_ for one in told)


def test_the_deputy_is_on_another_host_where_there_is_one():
    assert leaders_of([Member("a", 1, "A")]) == (0,)
    assert leaders_of([Member("a", 1, "A"), Member("a", 2, "A")]) == (0, 1)
    assert leaders_of([Member("a", 1, "A"), Member("a", 2, "A"), Member("b", 3, "B")]) == (0, 2)


def test_the_usual_limit_is_a_minute():
    assert Board().limit_s == LEAST_SECONDS == 60.0


# ---- The last resort ------------------------------------------------------------------------------------------------


def ended(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30)


def test_a_deadline_ends_a_process_that_never_lets_python_run_again():
    done = ended(
        "import ctypes; from ddlbench import _deadline\n"
        "_deadline.arm(0.2, 'that was long\\n', 3); ctypes.PyDLL(None).pause()"
    )
    assert (done.returncode, done.stderr) == (3, "that was long\n")


def test_a_deadline_is_put_off_and_taken_away():
    done = ended(
        "import time; from ddlbench import _deadline\n"
        "for _ in range(4): _deadline.arm(0.5, 'first', 4); time.sleep(0.2)\n"
        "_deadline.disarm(); time.sleep(0.6); _deadline.arm(0.05, 'x' * 5000, 3); time.sleep(9)"
    )
    assert (done.returncode, done.stderr) == (3, "x" * 1000)


def test_a_child_has_a_deadline_of_its_own():
    done = ended(
        "import os, time; from ddlbench import _deadline\n"
        "_deadline.arm(60, 'parent', 3)\n"
        "child = os.fork()\n"
        "if not child: _deadline.arm(0.1, 'child', 5); time.sleep(20)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert (done.stdout, done.stderr) == ("5\n", "child")
