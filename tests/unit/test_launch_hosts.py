"""Lists of hosts and host files, as schedulers, MPI libraries and people write them; names that are none."""

import pytest

from ddlbench.errors import UsageError
from ddlbench.launch import hostfile, hosts
from ddlbench.launch.hosts import Host, check_resolve, expanded, is_here, merged, read_list, slurm_names

# As `scontrol show hostnames` of SLURM 22.05 writes them out; tests/slurm asks the real one.
LISTS = {
    "node0": "node0",
    "node0,node1": "node0 node1",
    "node[0-3]": "node0 node1 node2 node3",
    "node[1-2,08-10]": "node1 node2 node08 node09 node10",
    "n[7,9],login1": "n7 n9 login1",
    "r[0-1]c[0-1]n3": "r0c0n3 r0c1n3 r1c0n3 r1c1n3",
    "nid[00008-00011]": "nid00008 nid00009 nid00010 nid00011",
    "gpu[8-11].cluster.org": "gpu8.cluster.org gpu9.cluster.org gpu10.cluster.org gpu11.cluster.org",
    "node[099-101]": "node099 node100 node101",
    "node1,node1": "node1 node1",
}


@pytest.mark.parametrize("text", LISTS)
def test_a_compressed_list_is_written_out(text):
    assert expanded(text, "here") == LISTS[text].split()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a list"),
        ("node[0-3", "is not a list"),
        ("node0,,node1", "is not a list"),
        ("node0,", "is not a list"),
        ("node0]", "is not a list"),
        ("node[]", "''"),
        ("node[3-1]", "'3-1'"),
        ("node[a-c]", "'a-c'"),
        ("node[0-1-2]", "'0-1-2'"),
        ("node[0-999999999]", "more than 100000"),
        ("node[1-999999999999]", "more than 100000"),
        pytest.param(f"node[1-{'9' * 5000}]", "cannot be read, expected such as 0-3 or 08", id="endless"),
        pytest.param(f"node[{'9' * 5000}]", "cannot be read, expected such as 0-3 or 08", id="long"),
        ("n[0-99999][0-99999]", "more than 100000"),
        ("n[0-60000],m[0-60000]", "more than 100000"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused_with_the_part_and_the_place(text, said):
    with pytest.raises(UsageError) as refused:
        expanded(text, "SLURM_JOB_NODELIST")
    assert "SLURM_JOB_NODELIST: " in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["node[1-999999999999]", "n[0-9999][0-9999]", "n[0-99999,0-99999]"])
def test_a_list_of_more_hosts_than_can_be_meant_is_refused_before_it_is_written_out(text, monkeypatch):
    monkeypatch.setattr(hosts, "_values", None)
    with pytest.raises(UsageError, match="more than 100000 hosts"):
        expanded(text, "here")


def test_hosts_have_the_slots_that_were_given_and_a_repeated_host_has_those_of_all_mentions():
    assert read_list("node0:2,node1", "-H") == (Host("node0", 2), Host("node1"))
    assert read_list("node[0-1]:4", "-H") == (Host("node0", 4), Host("node1", 4))
    assert read_list("a,b,a", "-H") == (Host("a", 2), Host("b"))
    assert read_list("a:3,a", "-H") == (Host("a", 4),)
    assert merged([Host("b", 1), Host("a", 1), Host("b", 1)]) == (Host("b", 2), Host("a", 1))


HOSTILE = [
    "a;reboot",
    "$(reboot)",
    "`reboot`",
    "a b",
    "a\nb",
    "-oProxyCommand=reboot",
    "--hostfile",
    "user@host",
    "a|b",
    "a&b",
    "a'b",
    'a"b',
    "a\\b",
    "../a",
    "a/b",
    "ä",
    "a*",
    "",
    ".",
    "a" * 300,
    "node\x00",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_a_shell_or_a_launcher_takes_for_something_else_is_refused_by_name(name):
    with pytest.raises(UsageError) as refused:
        hosts.checked(name, "-H")
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize("name", [name for name in HOSTILE if name and "," not in name and "\n" not in name])
def test_hostile_names_are_refused_wherever_they_stand(name, tmp_path):
    file = tmp_path / "hosts"
    file.write_text(f"node0\n{name}\n")
    for read in (lambda: read_list(f"node0,{name}", "-H"), lambda: hostfile.read(file), lambda: slurm_names(name, "S")):
        with pytest.raises(UsageError):
            read()


@pytest.mark.parametrize("text", ["a:0", "a:-1", "a:x", "a:", "a:1:2", "a:99999999"])
def test_slots_that_are_no_number_of_ranks_are_refused(text):
    with pytest.raises(UsageError, match="the number after a: is"):
        read_list(text, "-H")


def test_scontrol_reads_a_list_where_there_is_one_and_what_it_says_is_checked_too(tmp_path, monkeypatch):
    double = tmp_path / "scontrol"
    double.write_text('#!/bin/sh\n[ "$1 $2" = \'show hostnames\' ] && echo x1 && echo "${3}y"\n')
    double.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UsageError, match="is no name of a host"):
        slurm_names("node[0-1]", "S")
    assert slurm_names("z", "S") == ["x1", "zy"]
    double.write_text("#!/bin/sh\nexit 1\n")
    assert slurm_names("node[0-1]", "S") == ["node0", "node1"]


# ---- Host files ----------------------------------------------------------------------------------------------------

OPEN_MPI = """
# a comment
node0 slots=2
node1 slots = 4 max_slots=8   # and another
node2

node0 slots=1
"""


def test_open_mpi_s_host_file_is_read(tmp_path):
    file = tmp_path / "hosts"
    file.write_text(OPEN_MPI)
    assert hostfile.read(file) == (Host("node0", 3), Host("node1", 4), Host("node2"))


def test_mpich_s_host_file_is_read(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("node0:2 binding=user:0\nnode1:2 ifhn=node1-ib\n192.168.1.7\n")
    assert hostfile.read(file) == (Host("node0", 2), Host("node1", 2), Host("192.168.1.7"))


@pytest.mark.parametrize("colon", [True, False])
def test_what_is_written_is_read_back(tmp_path, colon):
    given = (Host("node0", 2), Host("node1", 1))
    file = tmp_path / "hosts"
    file.write_text(hostfile.rendered(given, colon=colon))
    assert hostfile.read(file) == given


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("node0 slots=two", ["line 1", "slots is 'two'"]),
        ("node0 solts=2", ["line 1", "'solts'", "'slots'"]),
        ("node0 2", ["line 1", "'2'", "slots=2"]),
        ("node0 slots=0", ["line 1", "'0'"]),
        ("# nothing", ["names no host"]),
    ],
)
def test_a_host_file_that_cannot_be_read_is_refused_with_the_line(tmp_path, line, parts):
    file = tmp_path / "hosts"
    file.write_text(f"{line}\n")
    with pytest.raises(UsageError) as refused:
        hostfile.read(file)
    assert [part for part in [*parts, str(file)] if part not in str(refused.value)] == []


def test_a_host_file_that_is_none_is_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere cannot be read: No such file"):
        hostfile.read(tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="binary is not a text file"):
        hostfile.read(tmp_path / "binary")


def test_a_host_file_is_written_below_the_cache_under_a_name_that_its_text_gives(tmp_path):
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": "/nonexistent"}
    one, again = hostfile.write("a slots=1\n", environ), hostfile.write("a slots=1\n", environ)
    other = hostfile.write("a slots=2\n", environ)
    assert one == again != other
    assert one.read_text() == "a slots=1\n"
    assert one.parent == tmp_path / "cache" / "ddlbench"


def test_a_host_file_finds_a_place_where_there_is_no_home(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = hostfile.write("a slots=1\n", {"HOME": "/proc/nowhere"})
    assert path.is_relative_to(tmp_path)
    assert path.read_text() == "a slots=1\n"


# ---- Names and addresses -------------------------------------------------------------------------------------------


def test_hosts_without_an_address_are_named_and_others_are_not(monkeypatch):
    monkeypatch.setattr(hosts, "_resolves", lambda name: name != "lost")
    check_resolve([Host("found")])
    with pytest.raises(UsageError, match="no address is known for lost:"):
        check_resolve([Host("found"), Host("lost")])


def test_a_name_that_cannot_be_one_has_no_address():
    with pytest.raises(UsageError, match=r"nowhere\.invalid"):
        check_resolve([Host("nowhere.invalid")])


def test_this_machine_is_known_by_its_own_names(monkeypatch):
    monkeypatch.setattr(hosts, "this_host", lambda: "node0.cluster.org")
    assert [name for name in ("node0.cluster.org", "node0", "localhost", "127.0.0.1") if not is_here(name)] == []
    monkeypatch.setattr(hosts, "this_host", lambda: "node0")
    assert is_here("node0.cluster.org")
    assert not is_here("node1")
    assert not is_here("node01.cluster.org")
