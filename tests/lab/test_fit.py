"""Links of virtual hosts, fitted: real rates, and a slow node by its name."""

from ddlbench.cost.described import read
from ddlbench.links import record
from virtual import Labs

SMALL = ("--sizes", "1,512,16K,128K,512K", "--max-seconds", "2")


def test_a_node_with_a_slow_link_is_named(labs: Labs, tmp_path):
    out = tmp_path / "mine.toml"
    rates = ("--nodes", "3", "--rate", "400mbit", "--node-rate", "2=100mbit")
    done = labs("run", *rates, "--", "ddlbench", "fit", *SMALL, "--out", str(out), timeout=120)
    assert done.status == 0, done.stderr
    slow = [one for one in record.read(out.with_suffix(".links.json"))["slow"] if one["what"] == "bandwidth"]
    assert [one.get("node") for one in slow] == [2]
    assert slow[0]["factor"] > 2
    assert "# slow node: node2 (rank 2): bandwidth" in done.stdout
    machine = read(out)
    assert (machine.nodes, machine.ranks_per_node) == (3, 1)
    assert machine.nic.bandwidth.source.startswith("fitted: ping-pong")
