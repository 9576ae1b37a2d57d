"""Pages for tests that open them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

import synthetic
from ddlbench.records import Loaded, load
from ddlbench.report import write_html


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function that makes the page of points, or that of several runs."""

    def make(name: str, points, **changes) -> Path:
        directory = tmp_path_factory.mktemp(name)
        runs = points if isinstance(points, Mapping) else load(synthetic.store(directory / "run", points, **changes))
        write_html(runs, directory / "report.html")
        return directory / "report.html"

    return make


@pytest.fixture(scope="module")
def scaled(made) -> Path:
    """Return the page of runs of 2, 4 and 8 ranks, four on each node."""
    layouts = {2: 1, 4: 1, 8: 2}
    runs = {
        f"p{ranks}": Loaded(
            synthetic.run(), tuple(synthetic.points(ranks=ranks, nodes=nodes, ranks_per_node=str(ranks // nodes))), []
        )
        for ranks, nodes in layouts.items()
    }
    return made("scaled", runs)
