"""What a run that was not finished lacks, told from its record."""

from pathlib import Path

import pytest

import synthetic
from ddlbench.bench.config import load
from ddlbench.cli.missing import missing
from ddlbench.records import Store


@pytest.fixture
def left(tmp_path):
    """Give a function that leaves a run of some points, over what `flags` ask for, and says what is missing."""

    def leave(points, config=None, **flags) -> str:
        asked = (
            load(None, {"sizes": "1K,4K", "algorithms": "ring,mpi", **flags}).to_json() if config is None else config
        )
        with Store.create(tmp_path / "run", synthetic.run(finished=False, config=asked)) as store:
            for point in points:
                store.append(point)
        return missing(Path(tmp_path, "run")).replace(f"{tmp_path}/", "")

    return leave


def test_the_points_there_are_those_that_are_missing_and_the_first_of_them_are_told(left):
    ring, mpi = (synthetic.point(name, 1024) for name in ("ring", "mpi"))
    told = (
        "2 of 4 points are kept in run, the first that is missing is ring (1024 x float32, sum) on 2 nodes of 2 ranks"
    )
    assert left([ring, mpi]) == told


def test_a_point_that_failed_is_missing(left):
    failed = synthetic.point("ring", 1024, status="failed", reason="memory", samples_ns=(), wrong=None)
    assert left([failed]).startswith("0 of 4 points are kept in run, the first that is missing is ring (256 x")


def test_a_run_that_only_lacks_its_end_says_so(left):
    points = [synthetic.point(name, nbytes) for nbytes in (1024, 4096) for name in ("ring", "mpi")]
    assert left(points) == "4 of 4 points are kept in run"


def test_points_of_all_shapes_count(left):
    points = [synthetic.point(name, nbytes, nodes=1, ranks=2) for nbytes in (1024, 4096) for name in ("ring", "mpi")]
    assert left(points, nodes="1,2", in_place="both").startswith("4 of 16 points are kept in run, ")


def test_a_record_that_does_not_say_exactly_what_was_wanted_is_told_as_far_as_it_goes(left):
    assert left([synthetic.point()], config={"sizes": [1024]}) == "1 point is kept in run"


def test_a_name_that_was_given_twice_is_measured_once(left):
    assert left([], algorithms="ring,ring").startswith("0 of 2 points")
