"""What `make bench-fast` runs on a virtual cluster: figures of all who take turns, wrong results, settings in force."""

import json
import sys
from pathlib import Path

import pytest

from ddlbench.lab.spec import Lab
from ddlbench.peers.lab import LabContender, Row
from ddlbench.peers.library import Environment, Identity
from ddlbench.records import load
from virtual import Labs

IN_USE = Environment(Path(sys.executable), ("mpirun",)), Identity("Open MPI", "5.0.11", ())
# An allreduce whose ranks keep what they have.
FORGETFUL = """
from ddlbench.schedule import Phase, flat_algorithm

def allreduce(group):
    yield Phase(0, ())

forgetful = flat_algorithm("forgetful", "nobody sends anything", pieces=lambda p: 1, allreduce=allreduce)
"""


def test_all_take_turns_in_one_launch_and_a_wrong_result_is_told(labs: Labs, tmp_path):
    task, folder, mine = tmp_path / "task.json", tmp_path / "run", tmp_path / "mine.py"
    mine.write_text(FORGETFUL)
    rows = tuple(Row(nbytes, ("ring", f"{mine}:forgetful"), ("as it comes", "ring")) for nbytes in (8, 1 << 20))
    contender = LabContender(Lab(nodes=2), IN_USE, tmp_path, rows, turns=2)
    task.write_text(json.dumps(contender.task))
    words = contender.command(task, folder)
    done = labs(*words[words.index("lab") + 1 :])
    assert done.status == 0, done.stderr + done.stdout
    loaded = load(folder)
    assert loaded.run.finished
    own, library = "lab 2 x 1", f"{loaded.run.mpi['library']} {loaded.run.mpi['version']}, lab 2 x 1"
    names = [f"ring ({own})", f"mine.py:forgetful ({own})", f"mpi as it comes ({library})", f"mpi ring ({library})"]
    assert [point.algorithm for point in loaded.points] == 2 * names
    for point in loaded.points:
        assert (point.nodes, point.ranks_per_node, point.ranks) == (2, "1", 2)
        if point.status == "skipped":
            pytest.skip(point.reason)
        assert 4 <= len(point.samples_ns) <= 2 * {8: 40, 1 << 20: 2}[point.nbytes]
        wrong = "forgetful" in point.algorithm
        assert point.status == ("wrong" if wrong else "ok")
        assert bool(point.wrong) == wrong
        assert ("wrong elements or changed bytes: rank 0, element 0: expected" in point.reason) == wrong


# The bytes that each node sends in an allreduce of 1 MiB, as multiples of it, with each setting of the arguments.
SENT = """
import json, sys
from ddlbench import Communicator
from ddlbench.peers.lab_rank import Row, Vendors

def sent():
    return next(int(line.split()[9]) for line in open("/proc/self/net/dev") if "eth0" in line)

found = {}
with Communicator() as communicator:
    comm, vendors = communicator.comm, Vendors(communicator.comm)
    for setting in sys.argv[1:]:
        row = Row(communicator, vendors, {"nbytes": 1 << 20, "samples": 1, "ours": [], "theirs": [setting]}, set())
        comm.Barrier()
        before = sent()
        comm.Barrier()
        (entry,) = row.measure(1, None, check=False)
        comm.Barrier()
        found[setting] = entry.missing or comm.gather((sent() - before) / (2 << 20))  # one more run makes connections
    vendors.close()
    if communicator.rank == 0:
        print(json.dumps(found))
"""


def test_a_setting_of_open_mpi_is_in_force_in_its_turn(labs: Labs):
    settings = ("ring", "simple HAN", "recursive doubling")
    shape = ["--nodes", "4", "--ranks-per-node", "2"]
    (found,) = labs.answers("run", *shape, "--", sys.executable, "-c", SENT, *settings)
    if missing := [reason for reason in found.values() if isinstance(reason, str)]:
        pytest.skip(missing[0])
    assert found["ring"] == pytest.approx([1.75] * 8, rel=0.1)
    assert found["simple HAN"] == pytest.approx([1.5] * 8, rel=0.1)
    assert found["recursive doubling"] == pytest.approx([4] * 8, rel=0.1)
