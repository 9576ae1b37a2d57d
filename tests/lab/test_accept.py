"""A virtual cluster with a bad node, judged."""

import json

from ddlbench.launch import hostfile
from virtual import Labs

# Little of everything: what is held here is that the slow one is found, not that no other is.
QUICK = """
looks = 2
[node]
windows = 1
window = "20 ms"
[pair]
size = "128K"
[watch]
seconds = "200 ms"
[group]
size = "64K"
samples = 3
"""


def test_a_node_at_a_tenth_of_the_rate_fails_and_is_not_in_the_good_group(labs: Labs, tmp_path):
    rules, out = tmp_path / "rules.toml", tmp_path / "out"
    rules.write_text(QUICK)
    rates = ("--nodes", "3", "--rate", "400mbit", "--node-rate", "1=40mbit")
    accept = ("ddlbench", "accept", "--rules", str(rules), "--out", str(out))
    done = labs("run", *rates, "--", *accept, timeout=120)
    assert done.status == 1, done.stderr + done.stdout
    data = json.loads((out / "accept.json").read_text())
    assert "bandwidth" in {why for one in data["bad"] if one["host"] == "node1" for why in one["why"]}
    assert "bad node: node1: " in done.stdout
    assert "The nodes are virtual" in done.stdout
    text = (out / "hosts").read_text()
    assert not text or "node1" not in {host.name for host in hostfile.read(out / "hosts")}
