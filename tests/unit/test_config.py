"""A sweep's configuration: file and flags to one frozen object, and every mistake named with the way out."""

import dataclasses
import math

import pytest

from ddlbench.bench.config import PARSERS, SweepConfig, load, timeout_of
from ddlbench.dtypes import DTYPES
from ddlbench.errors import UsageError
from ddlbench.schedule.grid import Grid

FLOAT32 = DTYPES["float32"]
LONG = "9" * 5000
"""A number of more digits than Python reads."""


@pytest.fixture
def written(tmp_path):
    """Give a function that writes a configuration file and returns its path."""

    def write(text):
        path = tmp_path / "sweep.toml"
        path.write_text(text)
        return path

    return write


def refusal(path=None, **flags):
    """Return the message that `load` refuses with."""
    with pytest.raises(UsageError) as refused:
        load(path, flags)
    text = str(refused.value)
    assert "\n" not in text
    return text


def counts(config, dtype=FLOAT32):
    return [cell.count for cell in config.cells(dtype)]


def test_without_file_or_flags_there_is_a_sweep_worth_running():
    config = load(None, {})
    assert config.sizes[0] == 8
    assert config.sizes[-1] == 32 << 20
    assert (config.algorithms, config.dtypes, config.ops) == (("ring", "mpi"), (FLOAT32,), ("sum",))
    assert config.check
    assert config.iterations is None


def test_flags_are_read_as_nccl_tests_users_write_them():
    config = load(
        None,
        {"min_bytes": "8", "max_bytes": "64M", "step_factor": "4", "algorithms": ("ring,multi-ring:2", "mpi"),
         "dtypes": ("float,half",), "ops": ("sum,max",), "iterations": "30", "warmup": "0", "check": "0"},
    )  # fmt: skip
    assert config.sizes[:3] == (8, 32, 128)
    assert config.algorithms == ("ring", "multi-ring:2", "mpi")
    assert [dtype.name for dtype in config.dtypes] == ["float32", "float16"]
    assert (config.ops, config.iterations, config.warmup, config.check) == (("sum", "max"), 30, 0, False)


def test_a_file_may_use_texts_or_types_of_toml(written):
    typed = written('sizes = [8, "1K"]\nalgorithms = ["ring"]\niterations = 30\ncheck = false\nin_place = "both"\n')
    texts = load(None, {"sizes": "8,1K", "algorithms": "ring", "iterations": "30", "check": "no", "in_place": "both"})
    assert load(typed, {}) == texts


def test_all_dtypes_and_ops_have_one_word():
    config = load(None, {"dtypes": "all", "ops": "all"})
    assert set(config.dtypes) == set(DTYPES.values())
    assert len(config.ops) == 5


def test_names_are_measured_once_however_often_they_are_written():
    config = load(None, {"algorithms": ("ring,mpi", "ring"), "dtypes": "float,float32"})
    assert (config.algorithms, config.dtypes) == (("ring", "mpi"), (FLOAT32,))


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        load(None, {}).check = False


def test_a_flag_wins_over_the_file(written):
    path = written('algorithms = ["ring"]\nwarmup = 7\nchecks = true\n'.replace("checks", "check"))
    config = load(path, {"algorithms": "mpi", "check": "0"})
    assert (config.algorithms, config.warmup, config.check) == (("mpi",), 7, False)


def test_one_end_of_a_range_moves_the_other_only_when_it_must():
    assert load(None, {"min_bytes": "1G"}).sizes == (1 << 30,)
    assert load(None, {"max_bytes": "4"}).sizes == (4,)
    assert load(None, {"min_bytes": "16M"}).sizes == (16 << 20, 64 << 20)


def test_a_range_on_the_command_line_takes_the_place_of_the_files_sizes(written):
    path = written('sizes = ["1K", "1M"]\n')
    assert load(path, {"min_bytes": "8", "max_bytes": "8"}).sizes == (8,)


def test_sizes_on_the_command_line_take_the_place_of_the_files_workload(written):
    path = written('workload = "resnet50"\nfuse = "64M"\n')
    config = load(path, {"sizes": "1K"})
    assert (config.workload, config.fuse, config.sizes) == (None, None, (1024,))


def test_a_step_on_the_command_line_takes_the_place_of_the_files_factor(written):
    path = written('min_bytes = "1M"\nmax_bytes = "3M"\nstep_factor = 2\n')
    assert load(path, {"step_bytes": "1M"}).sizes == (1 << 20, 2 << 20, 3 << 20)


def test_fuse_on_the_command_line_gathers_the_files_workload(written):
    path = written('workload = "resnet50"\n')
    config = load(path, {"fuse": "64M"})
    cells = config.cells(FLOAT32)
    assert sum(cell.count * cell.multiplicity for cell in cells) == 25_557_032
    assert all(cell.nbytes <= 64 << 20 for cell in cells)
    assert len(cells) == 2


def test_shapes_are_numbers_of_nodes_and_of_ranks_on_each(written):
    flags = load(None, {"nodes": "1,2,2,4", "ranks_per_node": "2"})
    assert (flags.nodes, flags.ranks_per_node) == ((1, 2, 4), (2,))
    assert load(written("nodes = [1, 2, 4]\nranks_per_node = 2\n"), {"sizes": "8"}).nodes == (1, 2, 4)
    assert (load(None, {}).nodes, load(None, {}).ranks_per_node) == ((), ())
    for key, value in {"nodes": "0", "ranks_per_node": "1,x"}.items():
        text = refusal(**{key: value})
        assert f"--{key.replace('_', '-')}: " in text
        assert "expected a whole number of at least 1" in text


def test_a_workload_has_each_tensor_size_once_with_its_number():
    cells = load(None, {"workload": "resnet50"}).cells(FLOAT32)
    assert sum(cell.multiplicity for cell in cells) == 161
    assert sum(cell.multiplicity * cell.count for cell in cells) == 25_557_032
    assert len({cell.count for cell in cells}) == len(cells)


def test_a_workload_of_a_file_lies_beside_the_file(tmp_path):
    (tmp_path / "mine.csv").write_text("index,name,numel,shape\n0,bias,10,10\n")
    (tmp_path / "sweep.toml").write_text('workload = "mine.csv"\n')
    assert counts(load(tmp_path / "sweep.toml", {})) == [10]


def test_the_grid_is_read():
    assert load(None, {"grid": "4x2"}).grid == Grid((4, 2))


def test_a_size_is_rounded_down_for_each_dtype_on_its_own():
    config = load(None, {"sizes": "2,10", "dtypes": "float16,float64"})
    assert counts(config, DTYPES["float16"]) == [1, 5]
    assert counts(config, DTYPES["float64"]) == [1]
    assert config.too_small(DTYPES["float64"]) == (2,)


def test_the_record_of_a_configuration_is_json():
    import json

    config = load(None, {"workload": "resnet50", "grid": "4x2", "fuse": "64M"})
    stored = json.loads(json.dumps(config.to_json()))
    assert stored["workload"] == {"name": "resnet50", "tensors": 161, "numels": list(config.workload.numels)}
    assert set(stored) == {field.name for field in dataclasses.fields(SweepConfig)} - {"timeout"}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"min_bytes": "8Q"}, ["-b", "'8Q'", "64K"]),
        ({"max_bytes": "64MB"}, ["-e", "'64MB'", "64M"]),
        ({"step_factor": "1"}, ["-f", "'1'", "at least 2"]),
        ({"step_factor": "two"}, ["-f", "'two'", "at least 2"]),
        ({"step_bytes": "0"}, ["-i", "'0'", "at least one byte"]),
        ({"min_bytes": "1M", "max_bytes": "1K"}, ["1M", "1K"]),
        ({"dtypes": "float33"}, ["-d", "'float33'", "'float32'"]),
        ({"ops": "summ"}, ["-o", "'summ'", "'sum'"]),
        ({"algorithms": "ring,,mpi"}, ["-a", "'ring,,mpi'", "commas"]),
        ({"iterations": "0"}, ["-n", "'0'", "at least 1"]),
        ({"iterations": "1e3"}, ["-n", "'1e3'"]),
        ({"iterations": "2147483648"}, ["-n", "'2147483648'", "at most 2147483647"]),
        ({"iterations": LONG}, ["-n", LONG, "at most 2147483647"]),
        ({"nodes": LONG}, ["--nodes", LONG, "at most 2147483647"]),
        ({"sizes": LONG}, ["--sizes", LONG, "beyond the largest", "1024T"]),
        ({"sizes": f"1.{LONG}M"}, ["--sizes", LONG, "no whole number of bytes"]),
        ({"grid": "2" + "x999999999" * 500}, ["--grid", "more than 2147483647 ranks"]),
        ({"max_seconds": LONG}, ["--max-seconds", LONG, "below 1,000,000"]),
        ({"max_seconds": "1e9"}, ["--max-seconds", "'1e9'", "below 1,000,000"]),
        ({"ci": "100%"}, ["--ci", "'100%'", "below 100%"]),
        ({"ci": LONG}, ["--ci", LONG, "below 100%"]),
        ({"warmup": "-1"}, ["-w", "'-1'", "at least 0"]),
        ({"check": "maybe"}, ["-c", "'maybe'", "0 or 1"]),
        ({"check": "quick.toml"}, ["-c", "'quick.toml'", "before a configuration file"]),
        ({"in_place": "sometimes"}, ["--in-place", "'sometimes'", "both"]),
        ({"grid": "4y2"}, ["--grid", "'4y2'", "4x2"]),
        ({"max_seconds": "nan"}, ["--max-seconds", "'nan'"]),
        ({"ci": "5"}, ["--ci", "'5'", "5% or 0.05"]),
        ({"ci": "nan"}, ["--ci", "'nan'", "5% or 0.05"]),
        ({"sync": "windows"}, ["--sync", "'windows'", "auto, barrier or window"]),
        ({"cache": "hot"}, ["--cache", "'hot'", "warm or cold"]),
        ({"passes": "0"}, ["--passes", "'0'"]),
        ({"workload": "resnet5"}, ["'resnet5'", "'resnet50'"]),
        ({"workload": "nowhere.csv"}, ["'nowhere.csv'", "No such file"]),
        ({"fuse": "64M"}, ["fuse", "workload"]),
        ({"sizes": "8", "min_bytes": "8"}, ["a range of sizes", "sizes", "one of them"]),
        ({"sizes": "8", "workload": "resnet50"}, ["sizes", "a workload", "one of them"]),
        ({"step_bytes": "8", "step_factor": "2"}, ["-i", "-f"]),
        ({"sizes": "1,2,3"}, ["float32", "4 bytes"]),
    ],
)  # fmt: skip
def test_a_wrong_flag_is_named_with_its_value_and_what_was_expected(flags, expected):
    message = refusal(**flags)
    assert [part for part in expected if part not in message] == [], message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('algoritms = ["ring"]', ["sweep.toml", "'algoritms'", "'algorithms'"]),
        ("iterations = 0", ["sweep.toml: iterations", "0", "at least 1"]),
        ("iterations = true", ["sweep.toml: iterations", "True"]),
        ('sizes = ["8", "9Q"]', ["sweep.toml: sizes", "'9Q'"]),
        ("sizes = []", ["sweep.toml: sizes"]),
        ('dtypes = "bfloat61"', ["sweep.toml: dtypes", "'bfloat16'"]),
        ('sizes = "8"\nworkload = "resnet50"', ["sweep.toml", "one of them"]),
        ("sizes = [", ["sweep.toml", "not TOML"]),
        pytest.param(f"iterations = {LONG}", ["sweep.toml", "5000 digits"], id="long"),
        pytest.param(f"sizes = [0x{'f' * 5000}]", ["sweep.toml: sizes", "digits"], id="hexadecimal"),
        pytest.param("sizes = " + "[" * 5000, ["sweep.toml", "not TOML"], id="deep"),
        ('[sizes]\nbegin = "8"', ["sweep.toml: sizes"]),
    ],
)
def test_a_wrong_file_is_named_with_key_and_value(written, text, expected):
    message = refusal(written(text))
    assert [part for part in expected if part not in message] == [], message


def test_a_missing_file_is_named_with_its_neighbour(written):
    path = written("")
    message = refusal(path.with_name("sweeep.toml"))
    assert "No such file" in message
    assert repr(str(path)) in message


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "sweep.toml").write_bytes(b"\xff\xfe")
    assert "not TOML" in refusal(tmp_path / "sweep.toml")
    assert "directory" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["quick", "gradients"])
def test_the_shipped_sweeps_are_read(repository, name):
    config = load(repository / "configs" / "sweeps" / f"{name}.toml", {})
    assert "mpi" in config.algorithms
    assert config.check


def test_every_key_of_a_file_is_a_field_or_a_part_of_the_sizes():
    fields = {field.name for field in dataclasses.fields(SweepConfig)}
    assert set(PARSERS) - fields == {"min_bytes", "max_bytes", "step_bytes", "step_factor"}


# ---- The time limit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "seconds"), [("120", 120.0), ("0.5", 0.5), ("none", math.inf), ("None", math.inf)])
def test_the_time_limit_is_seconds_or_none(text, seconds):
    assert load(None, {"timeout": text}).timeout == seconds
    assert timeout_of({"timeout": text}) == seconds


def test_without_a_time_limit_there_is_the_usual_one():
    assert load(None, {}).timeout is None
    assert timeout_of({}) is None


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "", "1e9", "1000000"])
def test_a_time_limit_that_is_none_is_refused_by_name(text):
    with pytest.raises(UsageError) as raised:
        load(None, {"timeout": text})
    expected = "expected seconds above 0 and below 1,000,000, such as 120, or none"
    assert str(raised.value) == f"--timeout: {text!r}: {expected}"


def test_the_time_limit_is_no_part_of_what_is_measured():
    assert load(None, {"timeout": "5"}).to_json() == load(None, {}).to_json()
