"""`ddlbench lab` for real: nodes that are hosts to MPI, links with rates, and nothing left of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddlbench.launch.allocation import cores
from ddlbench.records import load
from ddlbench.report.facts import facts
from virtual import PROGRAM, Lab, Labs, eventually, everything_of_the_network, namespaces_in_use

PYTHON = [sys.executable, "-c"]


@pytest.fixture(autouse=True)
def _network_is_left_alone():
    before = everything_of_the_network()
    yield
    assert everything_of_the_network() == before


# ---- Nodes ---------------------------------------------------------------------------------------------------------

WHERE = """
import json, os, socket, sys
from pathlib import Path
from mpi4py import MPI
from ddlbench import Communicator

world = MPI.COMM_WORLD
Path(f"/dev/shm/{world.rank}").touch()
node = world.Split_type(MPI.COMM_TYPE_SHARED)
with Communicator(world) as comm:
    found = comm.topology
    told = {
        "host": socket.gethostname(), "mpi": MPI.Get_processor_name(), "mates": node.size, "arguments": sys.argv[1:],
        "hosts": found.hosts, "node_of": found.node_of, "grid": str(comm.grid), "yielding": comm.yielding,
        "machines": len(found.machines), "lab": os.environ["DDLBENCH_LAB"], "scratch": os.environ["TMPDIR"],
        "shared": sorted(int(name) for name in os.listdir("/dev/shm") if name.isdecimal()),
    }
told = world.gather(told)
if world.rank == 0:
    print(json.dumps(told))
"""
ODD = ["two words", "$(touch /tmp/never)", "; exit 9", "", "'", '"', "*", "\\"]


def test_ranks_are_on_nodes_that_share_no_memory_and_get_their_arguments_as_they_are(labs: Labs):
    (ranks,) = labs.answers("run", "--nodes", "4", "--ranks-per-node", "2", "--", *PYTHON, WHERE, *ODD)
    nodes = ["node0", "node0", "node1", "node1", "node2", "node2", "node3", "node3"]
    assert [rank["host"] for rank in ranks] == [rank["mpi"] for rank in ranks] == nodes
    for rank in ranks:
        assert (rank["hosts"], rank["node_of"]) == (nodes, [0, 0, 1, 1, 2, 2, 3, 3])
        assert (rank["grid"], rank["mates"], rank["machines"], rank["yielding"]) == ("2x4", 2, 1, True)
        assert rank["arguments"] == ODD
        assert rank["lab"] == "4 nodes, 1gbit each"
    assert [rank["shared"] for rank in ranks] == [[0, 1]] * 2 + [[2, 3]] * 2 + [[4, 5]] * 2 + [[6, 7]] * 2
    assert len({rank["scratch"] for rank in ranks}) == 4


HOSTS = "from mpi4py import MPI; print(*(MPI.COMM_WORLD.gather(MPI.Get_processor_name()) or ()), flush=True)"
SHELL = f"""
mpirun -n 4 '{sys.executable}' -c '{HOSTS}'
mpirun -n 5 true
hostname; ssh node1 hostname; ssh -x -o Quiet=yes root@10.9.0.2 'hostname; echo "two words"'
for name in 'node1;touch {{0}}' '$(touch {{0}})' '*' node9 ''; do ssh "$name" touch '{{0}}'; echo $?; done
cat "$DDLBENCH_LAB_HOSTFILE"
ddlbench lab link node1 down >&2; exit 7
"""


def test_in_the_shell_launchers_and_ssh_know_the_nodes(labs: Labs, tmp_path):
    never = tmp_path / "never"
    shape = ["--nodes", "2", "--ranks-per-node", "2"]
    done = labs("shell", *shape, "--", "sh", "-c", SHELL.replace("{0}", str(never)))
    ranks, *lines = [line for line in done.stdout.splitlines() if line]
    assert ranks.split() == ["node0", "node0", "node1", "node1"], done.stderr
    assert lines[:4] == ["node0", "node1", "node1", "two words"]
    assert lines[4:9] == ["255"] * 5
    assert lines[9:] == ["node0 slots=2", "node1 slots=2"]
    assert "There are not enough slots" in done.stderr
    assert "node1: down" in done.stderr
    assert not never.exists()
    assert done.status == 7


def test_the_exit_status_is_that_of_the_command_on_the_ranks(labs: Labs):
    assert labs("run", "--nodes", "2", "--", *PYTHON, "import mpi4py.MPI, sys; sys.exit(3)").status == 3


def test_the_record_of_a_run_says_that_its_nodes_are_virtual(labs: Labs, tmp_path):
    axes = ["-a", "ring,hierarchical", "--sizes", "16K", "-n", "3", "--passes", "1", "--out", str(tmp_path / "run")]
    done = labs("run", "--nodes", "4", "--ranks-per-node", "2", "--", "ddlbench", "sweep", *axes, timeout=120)
    assert done.status == 0, done.stderr
    loaded = load(tmp_path / "run")
    assert loaded.run.environment["variables"]["DDLBENCH_LAB"] == "4 nodes, 1gbit each"
    assert (loaded.run.topology["nodes"], loaded.run.topology["ranks_per_node"]) == (4, [2, 2, 2, 2])
    assert [(point.status, point.wrong) for point in loaded.points] == [("ok", 0)] * 2
    assert "4 nodes, 1gbit each" in str(facts(loaded))


# ---- Links ---------------------------------------------------------------------------------------------------------

# Seconds that rank 0 needs to send to each other rank, one after the other, and all pairs of the arguments at once.
SEND = """
import json, sys
from time import perf_counter
import numpy as np
from mpi4py import MPI

world, nbytes = MPI.COMM_WORLD, int(sys.argv[1])
data, sign = np.zeros(nbytes, np.uint8), np.zeros(1, np.uint8)

def seconds(pairs):
    world.Barrier()
    begun = perf_counter()
    for source, target in pairs:
        if world.rank == source:
            world.Send(data, target)
            world.Recv(sign, target)
        elif world.rank == target:
            world.Recv(data, source)
            world.Send(sign, source)
    return max(world.allgather(perf_counter() - begun))

seconds([(0, rank) for rank in range(1, world.size)])
for pairs in json.loads(sys.argv[2]):
    taken = seconds(pairs)
    if world.rank == 0:
        print(taken)
"""
MEGABYTE = 1_000_000


def least(nbytes: float, bits_per_s: float) -> float:
    """Return the seconds that `nbytes` take at a rate, less an eighth for what a link lets through at once."""
    return 0.875 * 8 * nbytes / bits_per_s


def test_a_slow_node_is_slow_and_the_others_are_not(labs: Labs):
    shape = ["--nodes", "3", "--rate", "200mbit", "--node-rate", "2=20mbit"]
    pairs = [[[0, 1]], [[1, 0]], [[0, 2]], [[2, 0]]]
    taken = labs.answers("run", *shape, "--", *PYTHON, SEND, str(2 * MEGABYTE), json.dumps(pairs))
    assert min(taken[:2]) > least(2 * MEGABYTE, 200e6)
    assert min(taken[2:]) > least(2 * MEGABYTE, 20e6)
    assert min(taken[2:]) > 2 * min(taken[:2])


def test_the_way_between_racks_is_narrower_and_shared(labs: Labs):
    shape = ["--nodes", "4", "--rate", "400mbit", "--racks", "2", "--rack-rate", "20mbit"]
    pairs = [[[0, 1]], [[2, 3]], [[0, 2]], [[0, 2], [1, 3]]]
    taken = labs.answers("run", *shape, "--", *PYTHON, SEND, str(2 * MEGABYTE), json.dumps(pairs))
    assert min(taken[:2]) > least(2 * MEGABYTE, 400e6)
    assert taken[2] > least(2 * MEGABYTE, 20e6)
    assert taken[2] > 2 * min(taken[:2])
    assert taken[3] > least(4 * MEGABYTE, 20e6)


COUNTERS = """
print({line.split(":")[0].strip(): int(line.split()[9]) for line in open("/proc/self/net/dev") if "eth" in line}
      if MPI.COMM_WORLD.rank == 0 else "", file=sys.stderr)
"""


def test_two_network_cards_carry_messages_together(labs: Labs):
    arguments = [*PYTHON, SEND + COUNTERS, str(8 * MEGABYTE), "[]"]
    done = labs("run", "--nodes", "2", "--nics", "2", "--rate", "200mbit", "--", *arguments)
    assert done.status == 0, done.stderr
    (sent,) = [line for line in done.stderr.splitlines() if line.startswith("{")]
    cards = json.loads(sent.replace("'", '"'))
    assert set(cards) == {"eth0", "eth1"}
    assert all(nbytes > 2 * MEGABYTE for nbytes in cards.values()), cards


# Does what is asked for in a file, answers in its output between marks that no command prints: whether node1 can be
# reached, or a command's output.
OBEY = """
import os, socket, subprocess, sys, time

def reachable():
    try:
        socket.create_connection(("node1", 9), timeout=1).close()
    except ConnectionRefusedError:
        return "yes"
    except OSError:
        return "no"

done = 0
while True:
    asked = open(sys.argv[1]).read().splitlines()
    for line in asked[done:]:
        found = reachable() if line == "reach" else subprocess.check_output(line.split(), text=True)
        print(f"<{done}>{found}</{done}>", flush=True)
        done += 1
    time.sleep(0.02)
"""


def test_a_link_is_cut_restored_and_slowed_from_outside(labs: Labs, tmp_path):
    orders = tmp_path / "orders"
    orders.touch()
    lab = labs.start("shell", "--nodes", "2", "--", *PYTHON, OBEY, str(orders))
    asked = iter(range(100))

    def answer(order: str) -> str:
        with orders.open("a") as file:
            file.write(f"{order}\n")
        number = next(asked)
        lab.says(f"</{number}>")
        return lab.out.read_text().split(f"<{number}>", 1)[1]

    def link(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [*PROGRAM, "link", "--lab", str(lab.process.pid), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    assert answer("reach").startswith("yes")
    assert link("node1", "down").stdout == "node1: down\n"
    assert answer("reach").startswith("no")
    assert "NO-CARRIER" in answer("ssh node1 ip -o link show eth0")
    assert link("node1", "up").returncode == 0
    assert answer("reach").startswith("yes")
    assert link("node1", "25mbit").returncode == 0
    assert "rate 25Mbit" in answer("ssh node1 tc qdisc show dev eth0")
    listed = subprocess.run([*PROGRAM, "list"], capture_output=True, text=True, check=True).stdout
    assert f"{lab.process.pid}  2 nodes, 1gbit each; node1 25mbit\n" in listed
    for arguments, part in (
        (("node2", "down"), "did you mean 'node"),
        (("--nic", "eth1", "node1", "down"), "eth0"),
        (("node1", "dwn"), "'dwn'"),
    ):
        refused = link(*arguments)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert part in refused.stderr
    lab.process.terminate()
    assert lab.wait().status == 143


def test_a_launch_takes_the_slots_of_a_lab_at_their_word_though_there_are_fewer_cores(labs: Labs):
    each = cores() + 1
    launch = (sys.executable, "-m", "ddlbench", "launch", "--dry-run", "--", "ddlbench", "sweep")
    done = labs("shell", "--nodes", "2", "--ranks-per-node", str(each), "--", *launch)
    assert done.status == 0, done.stderr
    assert f" -n {2 * each} " in done.stdout
    assert f"{each} ranks share the " in done.stderr


# ---- What is left --------------------------------------------------------------------------------------------------

BUSY = """
import time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print("all here", flush=True)
while True:
    MPI.COMM_WORLD.allreduce(1)
    time.sleep(0.01)
"""
INSIDE = r"^\S+ -m ddlbench\.lab\.inside "
KILLED = {
    "the command": r"^\S+ -m ddlbench lab run",
    "unshare": r"^unshare ",
    "process 1": INSIDE,
    "mpirun": r"^\S*(mpirun|prterun) ",
}


def running(labs: Labs, scratch: Path) -> Lab:
    """Return a lab in which two ranks on each of two nodes are busy."""
    shape = ["--nodes", "2", "--ranks-per-node", "2"]
    lab = labs.start("run", *shape, "--", *PYTHON, BUSY, env={"TMPDIR": str(scratch)})
    lab.says("all here")
    assert lab.listed
    assert len(lab.processes) > 4
    return lab


def assert_gone(lab: Lab, namespaces: dict[str, str], scratch: Path) -> None:
    """Check that no process, namespace, socket or file of `lab` is left."""
    assert eventually(lambda: not lab.processes, 5), lab.processes
    gone = eventually(lambda: all(name not in namespaces_in_use(kind) for kind, name in namespaces.items()), 5)
    assert gone, [kind for kind, name in namespaces.items() if name in namespaces_in_use(kind)]
    assert not lab.listed
    assert list(scratch.iterdir()) == []
    assert [*Path("/dev/shm").glob("*node[01]*")] == []


def namespaces_of(lab: Lab) -> dict[str, str]:
    """Return the namespaces of the lab's first process, none of which is this process's."""
    inside = lab.process_of(INSIDE)
    found = {kind: str(Path(f"/proc/{inside}/ns/{kind}").readlink()) for kind in ("net", "mnt", "pid", "uts", "user")}
    assert [kind for kind, name in found.items() if name == str(Path(f"/proc/self/ns/{kind}").readlink())] == []
    return found


@pytest.mark.parametrize("killed", KILLED)
def test_nothing_is_left_when_one_of_its_processes_is_killed(killed, labs: Labs, tmp_path):
    lab = running(labs, tmp_path)
    namespaces = namespaces_of(lab)
    os.kill(lab.process_of(KILLED[killed]), signal.SIGKILL)
    assert lab.wait(10).status != 0
    assert_gone(lab, namespaces, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_told_to_end(number, labs: Labs, tmp_path):
    lab = running(labs, tmp_path)
    namespaces = namespaces_of(lab)
    lab.process.send_signal(number)
    assert lab.wait(10).status != 0
    assert_gone(lab, namespaces, tmp_path)


def test_ctrl_c_at_a_terminal_ends_the_ranks(labs: Labs):
    lab = labs.at_a_terminal("run", "--nodes", "2", "--", *PYTHON, BUSY)
    lab.says("all here")
    os.write(lab.keyboard, b"\x03")
    assert lab.wait(10).status != 0
    assert eventually(lambda: not lab.processes, 5), lab.processes


# Says what it gets from the terminal, and goes on for longer than a command has that is told to end.
PATIENT = """
import time
try:
    print("waiting", flush=True)
    time.sleep(300)
except KeyboardInterrupt:
    time.sleep(4)
    print(input("interrupted"))
    raise SystemExit(4)
"""


def test_ctrl_c_at_a_terminal_is_for_the_command_of_a_shell_alone(labs: Labs):
    lab = labs.at_a_terminal("shell", "--nodes", "1", "--", *PYTHON, PATIENT)
    lab.says("waiting")
    os.write(lab.keyboard, b"\x03")
    lab.says("interrupted")
    os.write(lab.keyboard, b"and typed\n")
    done = lab.wait()
    assert (done.status, done.stdout.splitlines()[-1]) == (4, "interruptedand typed")


def test_a_command_that_does_not_end_when_told_is_ended(labs: Labs):
    stubborn = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; print('deaf', flush=True)"
    lab = labs.start("shell", "--nodes", "1", "--", *PYTHON, f"{stubborn}; time.sleep(300)")
    lab.says("deaf")
    lab.process.terminate()
    assert lab.wait(30).status == 128 + signal.SIGTERM
    assert eventually(lambda: not lab.processes, 5), lab.processes


# ---- Who may -------------------------------------------------------------------------------------------------------

NOBODY = 65534
# Makes the folders of the first argument reachable for everybody, in a mount namespace of its own, and runs the rest of
# the arguments as the user nobody.
AS_NOBODY = f"""
import json, os, subprocess, sys
from pathlib import Path

def run(*argv):
    subprocess.run(argv, check=True)

folders = [Path(folder).resolve() for folder in json.loads(sys.argv[1])]
closed = {{}}
for folder in folders:
    above = [parent for parent in (*folder.parents[::-1], folder) if not parent.stat().st_mode & 1]
    if above:
        closed.setdefault(above[0], []).append(folder)
run("mount", "-t", "tmpfs", "none", "/mnt")
for top, inside in closed.items():
    for number, folder in enumerate(inside):
        Path(f"/mnt/{{number}}").mkdir(exist_ok=True)
        run("mount", "--bind", folder, f"/mnt/{{number}}")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "none", top)
    for number, folder in enumerate(inside):
        folder.mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", f"/mnt/{{number}}", folder)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
os.chdir("/")
os.execvp(sys.argv[2], sys.argv[2:])
"""
WHO = """
import json, os, socket
from mpi4py import MPI
told = MPI.COMM_WORLD.gather([socket.gethostname(), os.getuid(), open("/proc/self/uid_map").read().split()])
if told:
    print(json.dumps(told))
"""


def test_an_ordinary_user_may_have_one(labs: Labs, repository):
    if os.geteuid():
        pytest.skip("the other tests are run by an ordinary user")
    folders = [sys.base_prefix, sys.prefix, str(repository)]
    prefix = ("unshare", "--mount", "--propagation", "private", *PYTHON, AS_NOBODY, json.dumps(folders))
    command = ["run", "--nodes", "2", "--", *PYTHON, WHO]
    (told,) = labs.answers(*command, prefix=prefix, env={"HOME": "/nonexistent", "TMPDIR": "/tmp"})
    assert told == [[host, 0, ["0", str(NOBODY), "1"]] for host in ("node0", "node1")]
