"""Workloads: the shipped models are whole, and a broken file is refused by its line."""

import csv

import pytest

from ddlbench.bench.workload import SHIPPED, Workload, find, read
from ddlbench.errors import UsageError

HEAD = "index,name,numel,shape\n"


@pytest.mark.parametrize(
    ("name", "tensors", "parameters"),
    [
        ("resnet50", 161, 25_557_032),
        ("vgg16", 32, 138_357_544),
        ("bert-base", 199, 109_482_240),
        ("llama2-7b", 291, 6_738_415_616),
    ],
)
def test_a_shipped_model_has_its_published_size(name, tensors, parameters, tmp_path):
    found = read(find(name, tmp_path))
    assert (found.name, len(found.numels), sum(found.numels)) == (name, tensors, parameters)


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.csv")), ids=lambda path: path.stem)
def test_every_shipped_model_reads(path):
    with path.open(newline="") as file:
        assert len(read(path).numels) == len(list(csv.DictReader(file)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "columns are None"),
        ("name,numel\na,3\n", "columns are"),
        (HEAD, "has no tensor"),
        (HEAD + "0,bias,ten,10\n", "line 2: numel 'ten'"),
        (HEAD + f"0,bias,{10**30},{10**30}\n", f"line 2: numel {10**30}: expected at most"),
        (HEAD + "0,bias,10,10\n1,weight,10,2x4\n", "line 3: numel 10 is not the product of shape '2x4'"),
        (HEAD + "0,bias,0,0\n", "line 2"),
        (HEAD + "0,bias\n", "line 2"),
    ],
)
def test_a_broken_file_is_refused_by_its_line(tmp_path, text, expected):
    path = tmp_path / "model.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=expected):
        read(path)


def test_a_missing_file_is_named_with_its_neighbour(tmp_path):
    (tmp_path / "model.csv").write_text(HEAD)
    with pytest.raises(UsageError, match=r"No such file.*did you mean .*model\.csv"):
        read(tmp_path / "modle.csv")


def test_tensors_are_gathered_in_order_and_never_split():
    workload = Workload("model", (3, 4, 2, 20, 1, 1))
    assert workload.fused(9).numels == (9, 20, 2)
    assert workload.fused(1).numels == workload.numels
    assert workload.fused(1000).numels == (31,)


@pytest.mark.parametrize("limit", [1, 7, 100, 10_000])
def test_gathering_keeps_every_element(limit):
    workload = Workload("model", (64, 9408, 64, 64, 4096))
    assert sum(workload.fused(limit).numels) == sum(workload.numels)
