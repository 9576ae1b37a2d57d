"""Topology files and the figures in them: units, sources, and what is refused by name."""

import tomllib

import pytest

from ddlbench.cost.described import SHIPPED, dumps, find, from_data, read, to_data
from ddlbench.cost.machine import Figure, unit_of
from ddlbench.cost.quantity import AMOUNT, RATE, TIME
from ddlbench.errors import UsageError
from machines import figure, machine

NAMES = sorted(path.stem for path in SHIPPED.glob("*.toml"))


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        (TIME, "1.3 us", 1.3e-6),
        (TIME, "1.3µs", 1.3e-6),
        (TIME, "20ns", 20e-9),
        (TIME, "0 s", 0.0),
        (RATE, "12.5 GB/s", 12.5e9),
        (RATE, "100 Gbit/s", 12.5e9),
        (RATE, "100 Gb/s", 12.5e9),
        (RATE, "200gbit", 25e9),
        (RATE, "1 GiB/s", 2.0**30),
        (RATE, "1e9 B/s", 1e9),
        (AMOUNT, "64 KiB", 65536.0),
    ],
)
def test_a_figure_is_read_with_its_unit(unit, text, value):
    assert unit.parse(text) == pytest.approx(value)
    assert unit.parse(unit.written(value)) == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize(
    ("unit", "text", "said"),
    [
        (RATE, "100 GB", "'100 GB': GB is an amount and no rate"),
        (RATE, "100 gb/s", "'100 gb/s': gb/s may mean bits or bytes"),
        (RATE, "100", "'100': the unit is missing"),
        (RATE, "0 GB/s", "'0 GB/s': expected a figure above 0"),
        (RATE, 100, "100: expected bytes or bits a second"),
        (RATE, "fast", "'fast': expected bytes or bits a second"),
        (TIME, "3 h", "'3 h': unknown unit 'h'"),
        (TIME, "-1 us", "'-1 us': expected a time"),
        (AMOUNT, "64 KB", "'64 KB': unknown unit 'KB'"),
    ],
)
def test_a_figure_that_is_none_is_refused_with_the_way_out(unit, text, said):
    with pytest.raises(UsageError) as refused:
        unit.parse(text)
    assert str(refused.value).startswith(said)
    assert "such as" in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_topology_reads_and_is_written_back_as_it_is(name):
    found = read(find(name))
    assert found.name == name
    assert from_data(tomllib.loads(dumps(found))) == found
    assert all(one.source for _, one in found.figures())


def test_the_papers_machine_is_there_with_its_shape():
    found = read(find("minsky"))
    assert (found.nodes, found.ranks_per_node, found.islands_per_node) == (64, 4, 2)
    assert found.device == "Tesla P100"
    assert {"dgx-1", "hgx-400g", "minsky", "two-cores", "x86-100gbe", "x86-10gbe"} <= set(NAMES)


def test_a_fitted_figure_keeps_its_interval():
    data = to_data(machine(2))
    data["nic"]["bandwidth"] = {"value": "1 GB/s", "source": "fitted", "low": "0.9 GB/s", "high": "1.1 GB/s"}
    found = from_data(data)
    assert found.nic.bandwidth == Figure(1e9, "fitted", low=0.9e9, high=1.1e9)
    assert from_data(tomllib.loads(dumps(found))) == found


def broken(section, key, value):
    """The data of a machine of all sections with one thing changed; None takes it away."""
    data = to_data(machine(4, 4, islands=2, rack=2))
    place = data if section is None else data[section]
    if value is None:
        del place[key]
    else:
        place[key] = value
    return data


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        (None, "format", "ddlbench-run", "format is 'ddlbench-run', expected 'ddlbench-topology'"),
        (None, "version", 2, "version is 2; this ddlbench reads version 1"),
        (None, "name", "", "name is '', expected a text"),
        (None, "sumary", "x", "unknown field of the topology 'sumary': did you mean 'summary'?"),
        (None, "rank", None, "the field or section rank is missing"),
        (None, "nic", None, "the section [nic] is missing"),
        (None, "node", None, "the section [node] is missing"),
        (None, "rack", 3, "rack is 3, expected a section [rack]"),
        ("nic", "bandwidth", None, "the field nic.bandwidth is missing"),
        ("nic", "speed", 3, "unknown field of the topology, [nic] 'speed'"),
        ("nic", "latency", "1 us", "nic.latency is '1 us', expected { value"),
        ("nic", "latency", {"value": "1 us"}, "the field nic.latency.source is missing"),
        ("nic", "latency", {"value": "1 us", "source": ""}, "nic.latency.source is '', expected a text"),
        ("nic", "bandwidth", {"value": "100 GB", "source": "x"}, "nic.bandwidth.value: '100 GB': GB is an amount"),
        ("nic", "count", {"value": 0, "source": "x"}, "nic.count.value: 0: expected a whole number from 1 on"),
        ("nic", "count", {"value": True, "source": "x"}, "nic.count.value: True: expected a whole number"),
        ("shape", "islands_per_node", {"value": 3, "source": "x"}, "4 ranks of a node are no whole number for each"),
        (
            *("rank", "message_overhead", {"value": "6 us", "source": "x"}),
            "island.latency is 10 us, less than rank.message_overhead on both sides, 2 × 6 us",
        ),
        (
            *("nic", "latency", {"value": "2 us", "source": "x", "low": "3 us", "high": "4 us"}),
            "nic.latency: the value does not lie between low and high",
        ),
    ],
)
def test_a_topology_that_is_none_is_refused_by_the_field(section, key, value, said):
    with pytest.raises(UsageError) as refused:
        from_data(broken(section, key, value))
    assert said in str(refused.value)


def test_a_section_without_such_links_is_refused():
    data = to_data(machine(4, 4)) | {"rack": to_data(machine(4, 4, rack=2))["rack"]}
    with pytest.raises(UsageError, match=r"the section \[rack\] describes links that the shape does not have"):
        from_data(data)


def test_a_file_that_cannot_be_read_is_named_with_the_nearest(tmp_path):
    (tmp_path / "long.toml").write_text(f"version = {'9' * 5000}")
    with pytest.raises(UsageError, match=r"long.toml' is not TOML: .* 5000 digits"):
        read(tmp_path / "long.toml")
    (tmp_path / "minsky.toml").write_text("nodes = [")
    with pytest.raises(UsageError, match=r"minsky.toml' is not TOML"):
        read(tmp_path / "minsky.toml")
    with pytest.raises(UsageError, match=r"No such file or directory; did you mean '.*minsky.toml'"):
        read(tmp_path / "minski.toml")
    with pytest.raises(UsageError, match=r"unknown topology 'minski': did you mean 'minsky'"):
        find("minski")
    (tmp_path / "minsky.toml").write_text('format = "ddlbench-topology"\n')
    with pytest.raises(UsageError, match=r"minsky.toml': the field or section version is missing"):
        read(tmp_path / "minsky.toml")


def test_what_if_changes_one_figure_and_says_so():
    found = machine(2).with_figure("nic.bandwidth", "200gbit", "what if")
    assert found.nic.bandwidth == Figure(25e9, "what if")
    assert found.nic.latency == machine(2).nic.latency
    assert machine(2).with_figure("nic.count", "2").nic.count.value == 2
    with pytest.raises(UsageError, match=r"unknown figure of a topology 'nic.bandwith': did you mean 'nic.bandwidth'"):
        machine(2).with_figure("nic.bandwith", "200gbit")
    with pytest.raises(UsageError, match=r"the machine 'made-up' has no section \[rack\]"):
        machine(2).with_figure("rack.uplink", "1 GB/s")
    assert unit_of("shape.nodes") is None


def test_an_estimate_says_so_in_its_source():
    assert Figure(1.0, "estimate: half of it").estimated
    assert not figure(1.0).estimated
