"""What rules of an acceptance may say; what is refused, by name, in one line."""

import tomllib
from pathlib import Path

import pytest

from ddlbench.accept.rules import Rules, from_data, read
from ddlbench.errors import UsageError


def test_what_a_file_does_not_say_is_as_by_default(tmp_path):
    file = tmp_path / "rules.toml"
    file.write_text('looks = 2\n[pair]\nmin_fraction = 0.9\nsize = "4M"\n[watch]\nseconds = "30 s"\nlate = "2 ms"\n')
    rules = read(file)
    assert (rules.looks, rules.pair.min_fraction, rules.pair.size) == (2, 0.9, 4 << 20)
    assert (rules.watch.seconds, rules.watch.late) == (30.0, 0.002)
    assert (rules.node, rules.group, rules.pair.partners) == (Rules().node, Rules().group, Rules().pair.partners)
    file.write_text("")
    assert read(file) == Rules()


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("[pairs]\n", "unknown key 'pairs': did you mean 'pair'?"),
        ("[pair]\nmin_fracton = 0.9\n", "unknown key of [pair] 'min_fracton': did you mean 'min_fraction'?"),
        ("pair = 3\n", "pair = 3: expected a section, [pair]"),
        ("[pair]\nmin_fraction = 70\n", "pair.min_fraction: 70: expected a share above 0, up to 1"),
        ("[pair]\nmin_fraction = true\n", "pair.min_fraction: True: expected a share"),
        ("[pair]\nmin_fraction = nan\n", "pair.min_fraction: nan: expected a share"),
        ("[pair]\nmax_latency_factor = inf\n", "pair.max_latency_factor: inf: expected a factor of 1 or more"),
        ('[pair]\nsize = "1MB"\n', "pair.size: size '1MB' is 1000ⁿ to some"),
        ('[pair]\nsize = "8"\n', "pair.size: '8': expected 64K to 64M"),
        ("[pair]\nsize = 1000000\n", "pair.size: 1000000: expected a size as a text"),
        ("[watch]\nseconds = 6\n", "watch.seconds: 6: expected a time"),
        ('[watch]\nseconds = "6"\n', "watch.seconds: '6': the unit is missing"),
        ('[watch]\nseconds = "6 min"\n', "watch.seconds: '6 min': unknown unit 'min'"),
        ('[watch]\nseconds = "0 s"\n', "watch.seconds: '0 s': expected more than nothing"),
        ("looks = 0\n", "looks: 0: expected a whole number from 1"),
        ("looks = 2.5\n", "looks: 2.5: expected a whole number"),
        ("[pair\n", "is not TOML"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(text, refusal, tmp_path):
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read(file)
    assert refusal in str(caught.value)
    assert str(caught.value).startswith(f"rules {str(file)!r}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"rules '.*none\.toml': No such file or directory"):
        read(tmp_path / "none.toml")


def test_defaults_are_what_the_manual_says():
    manual = (Path(__file__).parents[2] / "docs" / "acceptance.md").read_text()
    block = manual.partition("```toml\n")[2].partition("```")[0]
    assert from_data(tomllib.loads(block)) == Rules()
    assert {*tomllib.loads(block)} == {"node", "pair", "watch", "group", "looks"}
