"""What a lab looks like and the commands that make it, without making one; `tests/lab` makes them."""

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from ddlbench.cli import main
from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.lab import commands, control, hosts, launcher, network, start
from ddlbench.lab.spec import Lab, Rate, parse_node_rates
from ddlbench.lab.task import Task

GBIT = 10**9


@pytest.fixture(autouse=True)
def _outside_a_lab(monkeypatch):
    monkeypatch.delenv(control.INSIDE, raising=False)


# ---- Shape ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bits_per_s", "shown"),
    [
        ("1gbit", GBIT, "1gbit"),
        ("2.5Gbit", 2_500_000_000, "2.5gbit"),
        (" 100mbit ", 10**8, "100mbit"),
        ("64000bit", 64_000, "64kbit"),
        ("0.1tbit", 10**11, "100gbit"),
    ],
)
def test_a_rate_is_bits_per_second_as_tc_writes_it(text, bits_per_s, shown):
    rate = Rate.parse(text)
    assert (rate.bits_per_s, str(rate)) == (bits_per_s, shown)
    assert rate.bytes_per_s == bits_per_s / 8


@pytest.mark.parametrize(
    "text", ["", "1", "gbit", "1 gbit", "1mbps", "1gib", "1e3mbit", "-1mbit", "50%", "1gbit;true", "$(true)", "٣mbit"]
)
def test_another_text_is_no_rate(text):
    with pytest.raises(UsageError, match="expected bits per second as in 1gbit") as refused:
        Rate.parse(text)
    assert repr(text) in str(refused.value)


def test_a_rate_in_bytes_is_not_taken_for_bits():
    with pytest.raises(UsageError, match="tc's bps are bytes"):
        Rate.parse("100mbps")


@pytest.mark.parametrize("text", ["0gbit", "63kbit", "101gbit", "1tbit", pytest.param(f"{'9' * 500}gbit", id="long")])
def test_a_rate_that_no_packet_or_no_machine_has_is_refused(text):
    with pytest.raises(UsageError, match=r"expected 64kbit to 100gbit"):
        Rate.parse(text)


def test_nodes_of_their_own_rate_are_named_by_number_or_name():
    assert parse_node_rates(("2=100mbit", "node0=10mbit")) == {2: Rate(10**8), 0: Rate(10**7)}


@pytest.mark.parametrize(
    "text",
    ["2", "=1gbit", "x=1gbit", "-1=1gbit", "node=1gbit", "²=1gbit", pytest.param(f"{'9' * 5000}=1gbit", id="long")],
)
def test_a_node_rate_without_a_node_is_refused(text):
    with pytest.raises(UsageError, match="expected a node and its rate, as in 2=100mbit"):
        parse_node_rates((text,))


@pytest.mark.parametrize("texts", [("1=10mbit", "1=20mbit"), ("1=10mbit", "0=1gbit", "node01=10mbit")])
def test_a_second_rate_for_a_node_is_refused(texts):
    with pytest.raises(UsageError, match=f"--node-rate '{texts[-1]}': node 1 has a rate already, 10mbit"):
        parse_node_rates(texts)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"nodes": 0}, "--nodes 0: expected 1 to 200"),
        ({"nodes": 201}, "--nodes 201: expected 1 to 200"),
        ({"ranks_per_node": 0}, "--ranks-per-node 0: expected 1 to 1024"),
        ({"nics": 5}, "--nics 5: expected 1 to 4"),
        ({"racks": 5, "rack_rate": Rate(GBIT)}, "--racks 5: expected 1 to 4"),
        ({"racks": 2}, "--racks 2: say what the way between them carries"),
        ({"rack_rate": Rate(GBIT)}, "add --racks 2"),
        ({"node_rates": {4: Rate(GBIT)}}, "there is no node 4, only 0 to 3"),
    ],
)
def test_a_shape_that_makes_no_sense_is_refused(shape, said):
    with pytest.raises(UsageError) as refused:
        Lab(**shape)
    assert said in str(refused.value)


ODD = Lab(
    nodes=5, ranks_per_node=3, rate=Rate(10**8), node_rates={4: Rate(10**7)}, racks=2, rack_rate=Rate(GBIT), nics=2
)


def test_a_shape_is_described_in_words():
    assert Lab().describe() == "4 nodes, 1gbit each"
    assert Lab(nodes=1).describe() == "1 node, 1gbit each"
    assert ODD.describe() == "5 nodes, 2 x 100mbit each; node4 10mbit; 2 racks, 1gbit between them"


def test_a_task_is_the_same_when_it_is_read():
    task = Task(lab=ODD, listener=3, terminal=True, interactive=False, ranks=True)
    assert Task.from_json(task.to_json()) == task


def test_nodes_stand_in_racks_in_order():
    assert [ODD.rack_of(node) for node in range(ODD.nodes)] == [0, 0, 0, 1, 1]


# ---- Network -------------------------------------------------------------------------------------------------------


def rates(lab: Lab) -> dict[str, str]:
    """Return which device gets which rate, a node's as node0:eth0."""
    shaped = {}
    for command in network.wire(lab):
        if command[0] == "tc":
            where = f"{command[command.index('-n') + 1]}:" if "-n" in command else ""
            shaped[where + command[command.index("dev") + 1]] = command[command.index("rate") + 1]
    return shaped


def test_both_ends_of_every_cable_have_its_rate():
    ends = {
        end: "100000000bit"
        for node in range(4)
        for nic in range(2)
        for end in (f"v{node}n{nic}", f"node{node}:eth{nic}")
    }
    slow = {end: "10000000bit" for nic in range(2) for end in (f"v4n{nic}", f"node4:eth{nic}")}
    racks = {f"{end}{rack}n{nic}": "1000000000bit" for end in "du" for rack in range(2) for nic in range(2)}
    assert rates(ODD) == ends | slow | racks


def test_devices_have_names_that_linux_takes_and_each_once():
    largest = Lab(nodes=200, racks=200, rack_rate=Rate(GBIT), nics=4)
    added = [words for words in network.wire(largest) if words[:3] == ["ip", "link", "add"]]
    names = [words[3] for words in added] + [words[8] for words in added if "netns" not in words and "peer" in words]
    assert len(names) == len(set(names))
    assert max(map(len, names)) <= 15


def test_addresses_are_different_and_of_one_network_for_each_card():
    largest = Lab(nodes=200, nics=4)
    found = [words[words.index("add", 4) + 1] for words in network.wire(largest) if "addr" in words]
    assert len(set(found)) == 800
    assert {address.rsplit(".", 1)[0] for address in found} == {f"10.9.{nic}" for nic in range(4)}


def test_what_a_link_lets_through_at_once_is_two_milliseconds_of_its_rate_and_at_least_some_packets():
    assert "250000b" in network.shape("eth0", Rate(GBIT))
    assert "6000b" in network.shape("eth0", Rate(10**6))


@pytest.mark.parametrize(
    ("command", "said", "part"),
    [
        (network.shape("eth0", Rate(GBIT)), "Error: Specified qdisc kind is unknown.", "modprobe sch_tbf"),
        (["ip", "link", "add", "r0n0", "type", "bridge"], "Error: Unknown device type.", "modprobe bridge"),
        (["mount", "-t", "tmpfs", "x", "/run"], "permission denied", "mount -t tmpfs x /run: permission denied"),
    ],
)
def test_a_command_that_fails_says_what_the_kernel_lacks(command, said, part):
    text = commands.explained(command, said)
    assert text.startswith("no lab can run here: ")
    assert part in text


def test_a_command_that_fails_is_told_in_one_line():
    with pytest.raises(commands.LabError) as refused:
        commands.run([sys.executable, "-c", "import sys; sys.exit('first\\nsecond')"])
    assert str(refused.value).endswith(": first second")
    with pytest.raises(commands.LabError, match="No such file"):
        commands.run(["/nowhere/ip"])


# ---- Hosts and launchers -------------------------------------------------------------------------------------------


def test_a_name_is_the_first_card_of_its_node():
    assert hosts.names(Lab(nodes=2, nics=2)).splitlines() == [
        "10.9.0.1 node0 node0-eth0",
        "10.9.0.2 node1 node1-eth0",
        "10.9.1.1 node0-eth1",
        "10.9.1.2 node1-eth1",
    ]


def test_nothing_in_the_lab_remembers_an_allocation_or_a_launcher_outside():
    outside = {
        "HOME": "/h",
        "PATH": "/bin",
        "SLURM_JOB_ID": "7",
        "PMIX_RANK": "0",
        "OMPI_COMM_WORLD_SIZE": "2",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_btl": "^ofi",
    }
    found = launcher.environment(Lab(nics=2), outside)
    assert set(outside) - set(found) == {
        "SLURM_JOB_ID",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "PRTE_MCA_rmaps_default_mapping_policy",
    }
    assert found["HOME"] == "/h"
    assert found["OMPI_MCA_btl"] == "tcp,self,sm"
    assert found["OMPI_MCA_btl_tcp_if_include"] == "eth0,eth1"
    assert found["DDLBENCH_LAB"] == "4 nodes, 2 x 1gbit each"
    folders = found["PATH"].split(":")
    assert (folders[0], folders[-1]) == ("/run/ddlbench-lab/bin", "/bin")


def test_how_soon_a_lost_node_is_missed_is_said_unless_the_environment_says_it():
    mine = {"PRTE_MCA_oob_tcp_keepalive_time": "600"}
    found = launcher.environment(Lab(), mine)
    assert found.items() >= mine.items()
    assert found["OMPI_MCA_oob_tcp_keepalive_time"] == launcher.KEEPALIVE["time"]


def test_every_rank_gets_the_command_word_by_word():
    words = ["sh", "-c", "echo $HOME; true"]
    line = launcher.on_all_ranks(Lab(nodes=3, ranks_per_node=2), "mpirun", "openmpi", words)
    assert line[:5] == ["mpirun", "-n", "6", "--map-by", "ppr:2:node:oversubscribe"]
    assert line[-3:] == words
    assert launcher.on_all_ranks(Lab(nodes=3), "mpirun", "hydra", words) == ["mpirun", "-n", "3", *words]


def program(folder: Path, name: str, *lines: str) -> None:
    """Write a program of the shell."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("mpirun (Open MPI) 5.0.11", "openmpi"),
        ("HYDRA build details:", "hydra"),
        ("Intel(R) MPI Library for Linux", "hydra"),
    ],
)
def test_the_launcher_beside_this_python_comes_first_and_says_what_it_is(told, kind, tmp_path, monkeypatch):
    program(tmp_path / "beside", "mpirun", f"echo '{told}'")
    program(tmp_path / "path", "mpirun", "echo other")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    assert launcher.find(f"{tmp_path}/path:/bin") == (f"{tmp_path}/beside/mpirun", kind)


def test_a_launcher_that_is_unknown_or_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    with pytest.raises(UsageError, match="there is no mpirun beside"):
        launcher.find(str(tmp_path))
    program(tmp_path / "path", "mpirun", "echo Some MPI 1.0")
    with pytest.raises(UsageError, match=r"neither Open MPI's.*Some MPI 1.0.*ddlbench lab shell"):
        launcher.find(f"{tmp_path}/path:/bin")


# ---- Where there can be none ---------------------------------------------------------------------------------------


def folder_of_programs(folder: Path, *without: str) -> str:
    """Return a folder that has the programs a lab needs, which do nothing, but not those `without`."""
    for name in {*start.PROGRAMS, "true"} - {*without}:
        program(folder, name, "exit 0")
    return str(folder)


@pytest.fixture
def only(monkeypatch):
    """Give a function that leaves the programs of one folder, of all that are looked for."""

    def leave(folder: str) -> None:
        monkeypatch.setattr(start, "ADMINISTRATORS", folder)
        monkeypatch.setenv("PATH", folder)

    return leave


@pytest.mark.parametrize(("name", "package"), start.PROGRAMS.items())
def test_a_program_that_is_missing_is_named_with_its_package(name, package, tmp_path, only):
    only(folder_of_programs(tmp_path / "bin"))
    assert start.missing() is None
    (tmp_path / "bin" / name).unlink()
    assert start.missing() == f"there is no program {name} (package {package})"


@pytest.mark.parametrize(
    ("name", "value"), [("kernel/unprivileged_userns_clone", "0"), ("user/max_user_namespaces", "0")]
)
def test_the_setting_that_forbids_namespaces_is_named(name, value, tmp_path):
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("1\n" if value == "0" else "0\n")
    assert start.forbidden("said", tmp_path) == "namespaces are forbidden, as in most containers (said)"
    (tmp_path / name).write_text(f"{value}\n")
    assert start.forbidden("said", tmp_path) == (
        f"user namespaces are forbidden by sysctl {name.replace('/', '.')} = {value} (said)"
    )


def test_where_no_lab_can_run_one_line_says_why(tmp_path, only, capsys):
    only(folder_of_programs(tmp_path / "bin", "unshare"))
    program(tmp_path / "bin", "unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1")
    assert main(["lab", "shell", "--", "true"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no lab can run here: " in err
    assert "unshare failed: Operation not permitted" in err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run", "--rate", "fast", "--", "true"], ["'fast'", "1gbit"]),
        (["run", "--rate", "1gbit; true", "--", "true"], ["'1gbit; true'"]),
        (["run", "--ranks-per-node", "0", "--", "true"], ["--ranks-per-node 0", "1 to"]),
        (["run", "--nodes", "four", "--", "true"], ["--nodes", "'four'"]),
        (["shell", "--node-rate", "9=1gbit"], ["no node 9", "0 to 3"]),
        (["shell", "--", "no-such-program"], ["'no-such-program'", "not a program"]),
        (["run"], ["COMMAND"]),
        (["link", "node2", "dwn"], ["'dwn'"]),
        (["lnk"], ["'lnk'"]),
        ([], ["Missing command"]),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, parts, capsys):
    assert main(["lab", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    assert [part for part in parts if part not in err] == [], err


# ---- Control -------------------------------------------------------------------------------------------------------


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Give the control of a lab that makes no commands run: what it was asked to do is in `done`."""
    monkeypatch.setattr(hosts, "CONTROL", tmp_path / "control")
    done: list[object] = []
    monkeypatch.setattr(control, "run", lambda command: done.append(tuple(command)))
    listener = control.listen()
    server = control.Server(Lab(nodes=2, nics=2), listener, done.append)
    stopping = False

    def serve() -> None:
        while not stopping:
            server.answer(listener)

    thread = threading.Thread(target=serve)
    thread.start()
    yield done
    stopping = True
    with socket.socket(socket.AF_UNIX) as last:
        last.connect(control.own().address)
    thread.join()
    for end in server.listeners:
        end.close()


def test_a_lab_is_found_while_it_runs_and_by_its_number(lab):
    mine = str(os.getpid())
    assert mine in {found.identity for found in control.running()}
    assert control.chosen(mine) == control.own()
    with pytest.raises(UsageError, match=f"--lab 1: no such lab runs; those that do: .*{mine}"):
        control.chosen("1")


def test_a_lab_that_has_ended_is_not_found():
    control.listen().close()
    assert str(os.getpid()) not in {found.identity for found in control.running()}


def test_in_a_lab_there_is_that_one_alone(monkeypatch):
    monkeypatch.setenv(control.INSIDE, "/run/somewhere")
    assert control.running() == [control.chosen(None)] == [control.Running("", "/run/somewhere")]
    with pytest.raises(UsageError, match="--lab 77: within a lab no other can be reached, and this one needs no --lab"):
        control.chosen("77")


def test_links_are_changed_on_request(lab):
    assert control.own().ask(do="link", node="node1", card=None, state="down") == "node1: down"
    assert lab == [("ip", "link", "set", f"v1n{nic}", "down") for nic in (0, 1)]
    lab.clear()
    assert control.own().ask(do="link", node="node0", card="eth1", state="10mbit") == "node0 eth1: 10mbit"
    assert lab == [tuple(command) for command in network.rate_commands(0, 1, Rate(10**7))]
    assert control.own().ask(do="describe")["links"] == {"node1": "down", "node0 eth1": "10mbit"}


@pytest.mark.parametrize(
    ("request_", "part"),
    [
        ({"do": "link", "node": "node7", "card": None, "state": "up"}, "unknown node 'node7'"),
        ({"do": "link", "node": "node1", "card": "eth7", "state": "up"}, "unknown network card 'eth7'"),
        ({"do": "link", "node": "node1", "card": None, "state": "fast"}, "rate 'fast'"),
        ({"do": "dance"}, "does not understand"),
        ({}, "does not understand"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_the_next_is_answered(request_, part, lab):
    with pytest.raises(UsageError) as refused:
        control.own().ask(**request_)
    assert part in str(refused.value)
    assert lab == []
    control.own().ask(do="signal", number=15)
    assert lab == [15]


def test_what_is_no_request_harms_nobody(lab):
    for text in (b"", b"no json\n", b"[]\n", b"{", b"\xff\n"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(control.own().address)
            connection.sendall(text)
    assert control.own().ask(do="describe")["lab"] == "2 nodes, 2 x 1gbit each"


def test_a_lab_that_does_not_answer_is_an_error(tmp_path):
    with pytest.raises(DdlbenchError, match="the lab 7 does not answer"):
        control.Running("7", str(tmp_path / "nothing")).ask(do="describe")
