"""How long the reports of a large run take; the browser's share is in tests/browser."""

from dataclasses import replace

import pytest

import synthetic
from ddlbench.records import load
from ddlbench.report import write_csv, write_html

DTYPES = ("float16", "float32", "float64", "int32")
RANKS = (2, 4, 8, 16)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A stored run of 10,000 points of 40 samples in 16 settings."""
    names = [f"algorithm-{number}" for number in range(26)] + ["mpi"]
    one = synthetic.points(names)[:625]
    points = [replace(point, dtype=dtype, ranks=ranks) for dtype in DTYPES for ranks in RANKS for point in one]
    assert len(points) == 10_000
    return synthetic.store(tmp_path_factory.mktemp("large") / "run", points)


def test_loading_ten_thousand_points(benchmark, large):
    assert len(benchmark(load, large).points) == 10_000


def test_the_csv_of_ten_thousand_points(benchmark, large):
    benchmark(write_csv, load(large), large / "results.csv")


def test_the_page_of_ten_thousand_points(benchmark, large):
    benchmark(write_html, load(large), large / "report.html")
