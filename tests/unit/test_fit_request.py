"""What `ddlbench fit` refuses before it measures: by name, in one line."""

import pytest

from ddlbench.cli import fit_request
from ddlbench.cli.fit_request import SIZES, Request, checked, sizes_of
from ddlbench.errors import UsageError


def request(**given):
    return Request(**dict.fromkeys(("out", "sizes", "max_seconds", "nodes_per_rack")) | {"overwrite": False} | given)


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"sizes": "8,64K,1M"}, "--sizes 8,64K,1M: a fit needs 4 different sizes or more, these are 3"),
        ({"sizes": "8,8,64K,1M"}, "these are 3"),
        ({"sizes": "4K,64K,1M,4M"}, "--sizes 4K,64K,1M,4M: a latency needs a size of up to 1K"),
        ({"sizes": "1,8,64,512,1M,4M"}, "a bandwidth needs 3 sizes from 4K on, such as 64K,512K,4M"),
        ({"sizes": "8,64K,1M,2G"}, "--sizes 8,64K,1M,2G: expected sizes up to 64M"),
        ({"sizes": "8,64K,1M,4MB"}, "size '4MB' is 1000ⁿ to some"),
        ({"sizes": "8,64K,many,4M"}, "size 'many': expected bytes"),
        ({"sizes": ""}, "size '': expected bytes"),
        ({"max_seconds": "soon"}, "--max-seconds soon: expected a number of seconds above 0"),
        ({"max_seconds": "0"}, "--max-seconds 0: expected"),
        ({"max_seconds": "nan"}, "--max-seconds nan: expected"),
        ({"nodes_per_rack": "1"}, "--nodes-per-rack 1: expected a whole number from 2 on"),
        ({"nodes_per_rack": "9" * 5000}, "expected a whole number from 2 on"),
        ({"max_seconds": "9" * 5000}, "expected a number of seconds"),
        ({"out": "links.json"}, "--out links.json: expected a name that ends in .toml"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(given, refusal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        checked(request(**given))
    assert refusal in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere/mine\.toml: cannot write there: No such file or directory"):
        checked(request(out=str(tmp_path / "nowhere" / "mine.toml")))
    with pytest.raises(UsageError, match="cannot write there"):
        checked(request(out="/proc/mine.toml"))


@pytest.mark.parametrize("name", ["mine.toml", "mine.links.json", "mine.links.svg"])
def test_files_that_are_there_are_replaced_only_when_asked(tmp_path, name):
    (tmp_path / name).write_text("old")
    with pytest.raises(UsageError, match=f"{name} exists; --overwrite replaces it"):
        checked(request(out=str(tmp_path / "mine.toml")))
    asked = checked(request(out=str(tmp_path / "mine.toml"), overwrite=True))
    assert [file.name for file in asked.files] == ["mine.toml", "mine.links.json", "mine.links.svg"]
    assert (tmp_path / name).read_text() == "old"


def test_without_scipy_nothing_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(fit_request, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="a fit needs scipy, which this Python lacks: python -m pip install scipy"):
        checked(request(out=str(tmp_path / "mine.toml")))


def test_sizes_are_taken_in_order_and_nothing_is_sent_as_one_byte():
    assert sizes_of("1M,0,64K,8,4K,8") == (1, 8, 4096, 65536, 1 << 20)
    assert sizes_of(None) == SIZES
    assert (SIZES[0], SIZES[-1]) == (1, 4 << 20)
