"""What `ddlbench accept` refuses before it measures: by name, in one line, and nothing is left behind."""

import pytest

from ddlbench.cli import accept_request
from ddlbench.cli.accept_request import FILES, Request, checked
from ddlbench.errors import UsageError


def request(**given):
    return Request(**dict.fromkeys(("topology", "baseline", "rules", "out")) | {"overwrite": False} | given)


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"topology": "minsky", "baseline": "x"}, "--topology and --baseline: give one of them"),
        ({"topology": "minski"}, "unknown topology 'minski': did you mean 'minsky'?"),
        ({"topology": "none.toml"}, "topology 'none.toml': No such file or directory"),
        ({"baseline": "nowhere"}, "--baseline nowhere: "),
        ({"rules": "none.toml"}, "rules 'none.toml': No such file or directory"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(given, refusal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        checked(request(**given))
    assert refusal in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "file").write_text("")
    for out in ("/proc/mine", str(tmp_path / "file" / "mine")):
        with pytest.raises(UsageError, match=f"--out {out}: cannot write there"):
            checked(request(out=out))


@pytest.mark.parametrize("name", FILES)
def test_an_acceptance_that_is_there_is_replaced_only_when_asked(tmp_path, name):
    (tmp_path / name).write_text("old")
    with pytest.raises(UsageError, match=f"{name} exists; --overwrite replaces it"):
        checked(request(out=str(tmp_path)))
    assert checked(request(out=str(tmp_path), overwrite=True)).out == tmp_path
    assert (tmp_path / name).read_text() == "old"


def test_without_scipy_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(accept_request, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="accept needs scipy, which this Python lacks"):
        checked(request())


def test_what_figures_are_held_against_is_told(tmp_path):
    asked = checked(request(topology="minsky", out=str(tmp_path / "new" / "folder")))
    assert asked.against == "the topology minsky; the peers' median where it says nothing"
    assert asked.out.is_dir()
    assert checked(request(out=str(tmp_path))).against == "the peers' median"
