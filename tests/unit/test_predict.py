"""`ddlbench predict`: its tables, what it stores, and mistakes that are refused by name."""

import csv
import io
import json

import pytest

from ddlbench.algorithms import explore
from ddlbench.cli import main
from ddlbench.cli.counts import counts
from ddlbench.cost.described import dumps
from ddlbench.errors import UsageError
from ddlbench.records import Point, load
from ddlbench.report import results_table
from ddlbench.schedule import Grid
from machines import machine


@pytest.fixture
def topology(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(dumps(machine(8, 2, adding=1e10)))
    return str(file)


def predict(capsys, *words, status=0):
    assert main(["predict", *words]) == status
    return capsys.readouterr()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2,4", (1, 2, 4)),
        ("1..5", (1, 2, 3, 4, 5)),
        ("1,2,4,…,64", (1, 2, 4, 8, 16, 32, 64)),
        ("1,2,4,...,48", (1, 2, 4, 8, 16, 32, 48)),
        ("2,4,6,…,12", (2, 4, 6, 8, 10, 12)),
        ("1,3,9,…,81,100", (1, 3, 9, 27, 81, 100)),
        ("4,4,2", (4, 2)),
    ],
)
def test_numbers_of_nodes_are_read_as_people_write_them(text, expected):
    assert counts("--nodes", text) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "1,,2", "a", "1..0", "5..2", "1,2,…,64", "1,2,4,…", "1,2,5,…,9", "4,2,1,…,0"]
)
def test_numbers_that_are_none_are_refused(text):
    with pytest.raises(UsageError, match=f"--nodes '{text}'"):
        counts("--nodes", text)


def test_the_tables_show_every_point_and_the_best_of_each_size(capsys, topology):
    out = predict(capsys, "ring,halving-doubling", "--topology", topology, "--nodes", "2,4", "--sizes", "8,1M").out
    assert "predicted for made-up; nothing ran" in out
    assert "# predicted: float32 sum, out of place, 8 ranks on 4 nodes, 2 on each" in out
    best = out[out.index("# best algorithm of each size, predicted") :]
    assert best.count("halving-doubling") >= 4
    assert "Binds" in best


def test_points_are_of_the_kind_predicted_and_their_times_the_models(capsys, topology):
    lines = predict(capsys, "ring", "--topology", topology, "--nodes", "4", "--sizes", "8M", "--format", "jsonl").out
    (row,) = map(json.loads, lines.splitlines())
    # 14 rounds, the longest message of each over the card; and 7/8 of the vector added.
    n = 8 << 20
    assert row["time_us_median"] == pytest.approx(1e6 * (14 * 10e-6 + 14 / 8 * n / 1e9 + 7 / 8 * n / 1e10), rel=1e-6)
    assert (row["statistic"], row["sync"], row["samples"], row["ranks"]) == ("predicted", "model", 0, 8)
    assert row["time_us_ci_low"] is None


def test_what_is_stored_reads_back_reports_and_says_that_nothing_ran(capsys, topology, tmp_path):
    place = tmp_path / "run"
    options = ("--topology", topology, "--nodes", "1,2", "--sizes", "8,1M", "--out", str(place))
    predict(capsys, "all", *options)
    loaded = load(place)
    assert loaded.problems == []
    assert {point.kind for point in loaded.points} == {"predicted"}
    assert loaded.run.topology["described"]["name"] == "made-up"
    assert [flag.flag for flag in loaded.run.trust] == ["predicted"]
    assert set(results_table(loaded)["statistic"]) == {"predicted"}
    page = (place / "report.html").read_text()
    assert "nothing ran: priced on the described machine made-up" in page
    assert "predicted: float32 sum" in page
    assert "predicted" in (place / "results.csv").read_text()
    assert main(["report", str(place)]) == 0
    predict(capsys, "ring", *options, status=2)
    predict(capsys, "ring", *options, "--overwrite")
    assert {point.algorithm for point in load(place).points} == {"ring"}


def test_a_predicted_point_has_no_samples_and_must_have_its_time():
    words = {"nbytes": 8, "count": 2, "dtype": "float32", "op": "sum", "in_place": False, "nodes": 1}
    words |= {"ranks_per_node": "2", "ranks": 2, "device": "cpu", "transport": "p2p", "sync": "model", "status": "ok"}
    point = Point(kind="predicted", algorithm="ring", samples_ns=(), model_us=3.0, **words)
    assert Point.from_json(point.to_json()) == point
    with pytest.raises(UsageError, match="model_us, which is null"):
        Point.from_json(point.to_json() | {"model_us": None})
    with pytest.raises(UsageError, match="a measured point has samples"):
        Point.from_json(point.to_json() | {"samples_ns": [3000]})


def test_an_algorithm_that_does_not_fit_is_left_out_with_its_reason(capsys, topology):
    text = "multi-ring:2x4"
    out = predict(capsys, f"{text},ring", "--topology", topology, "--nodes", "2,4", "--sizes", "1K").out
    assert "left out, where it does not fit: multi-ring:2x4: grid 2x4 holds 8 ranks, but there are 4" in out


def test_a_mode_that_explores_chooses_the_fastest_and_says_what(capsys, topology):
    candidates = [bound.name for bound in explore(Grid((2, 4)))]
    words = ("--topology", topology, "--nodes", "4", "--sizes", "8", "--format", "jsonl")
    out = predict(capsys, ",".join(["p:2x4", *candidates]), *words).out
    chosen, *others = map(json.loads, out.splitlines())
    fastest = min(others, key=lambda row: row["time_us_median"])
    assert chosen["time_us_median"] == fastest["time_us_median"] < max(row["time_us_median"] for row in others)
    assert chosen["reason"] == f"chose {fastest['algorithm']}"


def test_an_algorithm_of_ones_own_is_proved_before_it_is_priced(capsys, topology, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from ddlbench.schedule import flat_algorithm, Phase\n"
        "def phases(group):\n"
        "    yield Phase(1, (group.send(0, to=(group.position + 1) % group.size, piece=0),\n"
        "                    group.add(0, source=(group.position - 1) % group.size, piece=0)))\n"
        "wrong = flat_algorithm('wrong', 'one step only', pieces=lambda p: 1, allreduce=phases)\n"
    )
    refused = predict(capsys, f"{file}:wrong", "--topology", topology, "--nodes", "4", "--sizes", "8", status=2)
    assert "is refused" in refused.err


def test_what_if_makes_it_faster_and_is_named(capsys, topology):
    words = (
        "ring",
        "--topology",
        topology,
        "--nodes",
        "4",
        "--ranks-per-node",
        "1",
        "--sizes",
        "8M",
        "--format",
        "csv",
    )
    plain, faster = (
        float(next(csv.DictReader(io.StringIO(predict(capsys, *words, *more).out)))["time_us_median"])
        for more in ((), ("--set", "nic.bandwidth=16gbit"))
    )
    assert faster < plain
    out = predict(capsys, *words[:-2], "--set", "nic.bandwidth=16gbit").out
    assert "what if: nic.bandwidth=16gbit" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mpi"], "algorithm 'mpi' is a vendor's own code: there is no schedule to price"),
        (["rign"], "unknown algorithm 'rign': did you mean 'ring'?"),
        (["ring", "--nodes", "9"], "9 nodes: the machine 'made-up' has 8 nodes"),
        (["ring", "--ranks-per-node", "3"], "3 ranks per node: the machine 'made-up' has 2 ranks per node"),
        (["ring", "--nodes", "0"], "--nodes '0': expected numbers such as"),
        (["ring:4x4", "--nodes", "4"], "grid 4x4 holds 16 ranks, but there are 8"),
        (["ring", "--set", "nic.bandwidth"], "--set 'nic.bandwidth': expected NAME=FIGURE"),
        (["ring", "--set", "nic.bandwidth=100 GB"], "'100 GB': GB is an amount and no rate"),
        (["ring", "--format", "xml"], "unknown format 'xml'"),
        (["ring", "--batch", "3"], "--batch is about the training of a model: give a --workload"),
        (["--workload", "resnet50"], "no compute time of 'resnet50' on this machine, whose topology names no device"),
        (["--workload", "resnet50", "--forward-ms", "3"], "needs --forward-ms, --backward-ms and --batch together"),
        (
            ["--workload", "resnet50", "--forward-ms", "x", "--backward-ms", "1", "--batch", "1"],
            "--forward-ms 'x': expected milliseconds",
        ),
        (
            ["--workload", "resnet50", "--forward-ms", "nan", "--backward-ms", "1", "--batch", "1"],
            "--forward-ms 'nan': expected milliseconds from 0 to below 1,000,000,000",
        ),
        (["ring", "--nodes", "9" * 5000], "9': expected numbers such as"),
        (["ring", "--set", f"nic.count={'9' * 5000}"], "9': expected a whole number from 1 on, at most 2147483647"),
        (["ring", "--set", "nic.bandwidth=1e999gbit"], "'1e999gbit': expected a finite figure"),
        (["--workload", "resnet5"], "unknown workload 'resnet5': did you mean 'resnet50'?"),
        (["--workload", "resnet50", "--ready", "evn"], "unknown --ready 'evn': did you mean 'even'?"),
    ],
)
def test_a_mistake_is_refused_in_one_line(capsys, topology, words, said):
    refused = predict(capsys, *words, "--topology", topology, status=2)
    assert said in refused.err
    assert refused.err.count("\n") == 1
    assert refused.out == ""


def test_the_machine_must_be_named_and_known(capsys):
    assert "--topology" in predict(capsys, "ring", status=2).err
    assert (
        "unknown topology 'minski': did you mean 'minsky'?"
        in predict(capsys, "ring", "--topology", "minski", status=2).err
    )


TRAINING = ("--forward-ms", "10", "--backward-ms", "20", "--batch", "8", "--fuse", "64M")


def test_a_training_shows_how_it_scales_what_pays_and_what_was_published(capsys, topology, tmp_path):
    place = tmp_path / "run"
    words = ("--workload", "resnet50", "--topology", topology, "--nodes", "1,2,4", *TRAINING, "--out", str(place))
    out = predict(capsys, "hierarchical,ring", *words).out
    scaling = out[out.index("# training resnet50, predicted: 8 samples on each rank") :]
    assert "N₀ is 1 node of 2 ranks" in scaling
    assert "# which upgrade pays, on 4 nodes of 2 ranks" in scaling
    published = scaling[scaling.index("# published results") :]
    assert "95 percent" in published
    assert "No efficiency here is of as many ranks on as many nodes of this device" in published
    with (place / "training.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["ranks"] for row in rows] == ["2", "4", "8"]
    assert float(rows[0]["efficiency"]) == 1.0
    for row in rows:
        compute, exposed, iteration = (float(row[f"{name}_ms"]) for name in ("compute", "exposed", "iteration"))
        assert compute == 30.0
        assert iteration == pytest.approx(compute + exposed, rel=1e-5)
        assert float(row["samples_per_s"]) == pytest.approx(8 * int(row["ranks"]) / iteration * 1e3, rel=1e-5)
        assert 0 < float(row["efficiency_without_overlap"]) <= float(row["efficiency_of_compute"]) <= 1


def test_the_papers_figure_stands_beside_the_models(capsys):
    words = ("--workload", "resnet50", "--fuse", "128M", "--topology", "minsky", "--nodes", "1,64")
    out = predict(capsys, "hierarchical", *words).out
    row = next(line for line in out.splitlines() if line.startswith("PowerAI DDL") and "efficiency" in line)
    assert "95 percent" in row
    assert row.count(" %") == 1
    assert "PowerAI DDL, 256 GPUs: 95 % reported" in out
    assert "source C of compute_times.tsv" in out


def test_every_limit_of_every_point_is_told_with_the_one_that_binds(capsys, topology, tmp_path):
    place = tmp_path / "run"
    options = ("--topology", topology, "--nodes", "1,4", "--sizes", "8,8M", "--out", str(place))
    out = predict(capsys, "ring,direct", *options).out
    table = out[out.index("# limits that no algorithm can beat") :].splitlines()
    assert table[1].split() == [
        "Nodes",
        "Ranks",
        "Size",
        "Latency",
        "Bandwidth",
        "Cards",
        "Uplink",
        "Reduction",
        "Binds",
    ]
    rows = list(csv.DictReader(io.StringIO((place / "limits.csv").read_text())))
    assert len(rows) == 2 * 2 * 2
    (ring,) = [r for r in rows if (r["nodes"], r["nbytes"], r["algorithm"]) == ("4", str(8 << 20), "ring")]
    n = 8 << 20
    assert float(ring["bound_cards_us"]) == pytest.approx(1e6 * 1.5 * n / 1e9, rel=1e-5)
    assert float(ring["bound_bandwidth_us"]) == pytest.approx(1e6 * 14 / 8 * n / 2e9, rel=1e-5)
    assert float(ring["bound_reduction_us"]) == pytest.approx(1e6 * 7 / 8 * n / 1e10, rel=1e-5)
    assert float(ring["bound_latency_us"]) == pytest.approx(10, rel=1e-5)
    assert (ring["binds"], ring["bound_us"], ring["bound_uplink_us"]) == ("cards", ring["bound_cards_us"], "")
    assert all(float(r["time_us"]) >= float(r["bound_us"]) for r in rows)
    assert [r["bound_cards_us"] for r in rows if r["nodes"] == "1"] == [""] * 4


def test_many_points_priced_by_several_processes_are_those_of_one(capsys, topology, monkeypatch):
    words = ("ring,swing", "--topology", topology, "--nodes", "1..8", "--sizes", "8,1M", "--format", "csv")
    alone = predict(capsys, *words).out
    monkeypatch.setattr("ddlbench.cli.pricing.FEW", 1)
    monkeypatch.setattr("ddlbench.cli.pricing.os.sched_getaffinity", lambda _: {0, 1})
    assert predict(capsys, *words).out == alone
