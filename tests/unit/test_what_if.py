"""`ddlbench predict --sweep`: the same on machines of which one figure differs."""

import csv
import io
import json
import re

import pytest

from ddlbench.cli import main
from ddlbench.cli.what_if import variants_of
from ddlbench.cost.described import dumps
from ddlbench.errors import UsageError
from machines import machine, price

SIZE = 8 << 20


@pytest.fixture
def topology(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(dumps(machine(8, 2)))
    return str(file)


def predict(capsys, *words, status=0):
    assert main(["predict", *words]) == status
    return capsys.readouterr()


def test_variants_are_in_the_order_of_their_values():
    found = variants_of(machine(4), "nic.bandwidth = 100gbit, 25gbit")
    assert [one.text for one in found] == ["25gbit", "100gbit"]
    assert [one.machine.nic.bandwidth.value for one in found] == [25e9 / 8, 100e9 / 8]
    assert found[0].machine.nic.latency == machine(4).nic.latency


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nic.bandwidth", "expected NAME=FIGURE"),
        ("nic.bandwidth=", "expected NAME=FIGURE"),
        ("nic.bandwidth=25gbit,,50gbit", "expected NAME=FIGURE"),
        ("nic.bandwith=25gbit", "nic.bandwidth"),
        ("nic.bandwidth=25gbit,100 GB", "GB is an amount and no rate"),
        ("rack.uplink=1 GB/s", r"no section \[rack\]"),
    ],
)
def test_a_sweep_that_is_none_is_refused_by_name(text, told):
    with pytest.raises(UsageError, match=told) as error:
        variants_of(machine(4), text)
    assert repr(text) in str(error.value)


def test_rows_and_curves_are_those_of_the_other_machines(capsys, topology, tmp_path):
    place = tmp_path / "out"
    words = ("ring,direct", "--topology", topology, "--nodes", "4", "--sizes", "1K,8M", "--out", str(place))
    out = predict(capsys, *words, "--sweep", "nic.bandwidth=1GB/s,4GB/s").out
    table = out[out.index("# what if: nic.bandwidth, predicted") :]
    assert re.search(r"8.MiB +1GB/s +\S+ +.*1\.00×", table)
    rows = list(csv.DictReader(io.StringIO((place / "what-if.csv").read_text())))
    assert len(rows) == 2 * 2 * 2
    assert {row["kind"] for row in rows} == {"predicted"}
    (fast,) = [r for r in rows if (r["value"], r["algorithm"], r["nbytes"]) == ("4GB/s", "ring", str(SIZE))]
    faster = machine(8, 2, nic_bandwidth=4e9)
    expected = price("ring", faster, SIZE, nodes=4, segments=None)
    assert float(fast["time_us"]) == pytest.approx(1e6 * expected, rel=1e-5)
    assert fast["binds"] in ("cards", "bandwidth", "reduction")
    data = json.loads(re.search(r'id="charts">(.*?)</script>', (place / "what-if.html").read_text())[1])
    assert len(data) == 2
    assert {trace["name"] for trace in data[0]["traces"]} == {"ring", "direct", "lower bound"}
    assert data[1]["traces"][0]["x"] == [1e9, 4e9]
    assert data[1]["traces"][1]["name"] == "ring"
    assert data[1]["traces"][1]["y"][1] == pytest.approx(expected, rel=1e-5)


def test_a_models_training_is_told_for_each_figure(capsys, topology):
    words = ("ring", "--topology", topology, "--nodes", "1,4", "--workload", "resnet50", "--fuse", "64M")
    times = ("--batch", "32", "--forward-ms", "10", "--backward-ms", "20")
    out = predict(capsys, *words, *times, "--sweep", "nic.bandwidth=0.1GB/s,0.5GB/s").out
    table = out[out.index("training, predicted\n", out.index("what if: nic.bandwidth, training")) :].splitlines()
    slow, fast = (float(line.split()[3]) for line in table[1:] if line.split()[:1] == ["4"])
    assert slow > fast


def test_points_of_several_machines_are_no_ordinary_output(capsys, topology):
    words = ("ring", "--topology", topology, "--sizes", "1M", "--sweep", "nic.bandwidth=1GB/s", "--format", "csv")
    assert "--format csv is of one machine" in predict(capsys, *words, status=2).err
