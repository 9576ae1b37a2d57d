"""Sizes as people write them, and the vectors they become: nothing measured twice, nothing rounded silently."""

import pytest

from ddlbench.bench.axes import (
    LARGEST_NBYTES,
    MOST_SIZES,
    Cell,
    arithmetic,
    cells_of_sizes,
    cells_of_tensors,
    format_size,
    geometric,
    parse_size,
    too_small,
)
from ddlbench.errors import UsageError


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("8", 8),
        ("8B", 8),
        ("4K", 4096),
        ("4k", 4096),
        ("4KiB", 4096),
        ("64M", 64 << 20),
        ("64MIB", 64 << 20),
        ("1G", 1 << 30),
        ("1.5G", 3 << 29),
        ("0.25K", 256),
        (" 64 M ", 64 << 20),
        ("9007199254740.993K", None),
        ("1125899906842624", 1 << 50),
    ],
)
def test_a_size_is_read_in_powers_of_1024_and_exactly(text, nbytes):
    if nbytes is None:
        with pytest.raises(UsageError, match="no whole number of bytes"):
            parse_size(text)
    else:
        assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "M", "-8", "8Q", "1e6", "0x10", "8 8", "١", "nan", "64Mi", "1,5M", "1.M"])
def test_what_is_no_size_is_refused_by_name(text):
    with pytest.raises(UsageError) as refused:
        parse_size(text)
    assert repr(text) in str(refused.value)
    assert "64K" in str(refused.value)


def test_decimal_units_are_refused_with_the_way_to_write_both_meanings():
    with pytest.raises(UsageError, match="write 64M for 1024"):
        parse_size("64MB")


def test_a_size_beyond_reason_is_refused():
    with pytest.raises(UsageError, match="1024T"):
        parse_size(str(LARGEST_NBYTES + 1))


@pytest.mark.parametrize("nbytes", [0, 1, 8, 1000, 1024, 1536, 64 << 20, 3 << 29, 1 << 40, (1 << 40) + 1])
def test_a_size_that_is_shown_reads_back(nbytes):
    assert parse_size(format_size(nbytes)) == nbytes


def test_sizes_are_shown_in_the_largest_unit_that_is_exact():
    assert [format_size(n) for n in (0, 1000, 1024, 1536, 64 << 20)] == ["0", "1000", "1K", "1536", "64M"]


def test_a_factor_stops_before_the_end_as_in_nccl_tests():
    assert geometric(8, 600, 4) == (8, 32, 128, 512)
    assert geometric(8, 512, 4) == (8, 32, 128, 512)


def test_a_range_from_zero_has_the_empty_vector_and_ends():
    assert geometric(0, 8, 2) == (0, 1, 2, 4, 8)
    assert geometric(0, 0, 2) == (0,)
    assert arithmetic(0, 8, 4) == (0, 4, 8)


def test_a_step_includes_both_ends():
    assert arithmetic(1 << 20, 3 << 20, 1 << 20) == (1 << 20, 2 << 20, 3 << 20)


@pytest.mark.parametrize("sizes", [geometric, arithmetic])
def test_a_range_that_runs_backwards_names_both_ends(sizes):
    with pytest.raises(UsageError, match=r"1M, is above the last, 1K"):
        sizes(1 << 20, 1 << 10, 4)


def test_a_step_that_would_sweep_for_days_is_refused_before_it_is_listed():
    with pytest.raises(UsageError, match=f"at most {MOST_SIZES}"):
        arithmetic(0, 1 << 40, 1)


def test_sizes_of_the_same_count_are_measured_once():
    assert cells_of_sizes((8, 9, 10, 11, 12), 4) == (Cell(2, 8), Cell(3, 12))


def test_a_size_is_rounded_down_and_its_bytes_say_so():
    assert cells_of_sizes((1000,), 8) == (Cell(125, 1000),)
    assert cells_of_sizes((1001,), 8) == (Cell(125, 1000),)


def test_a_size_below_one_element_is_left_out_but_zero_is_measured():
    assert cells_of_sizes((1, 2, 3), 4) == ()
    assert cells_of_sizes((0, 1, 2, 3, 4), 4) == (Cell(0, 0), Cell(1, 4))
    assert too_small((0, 1, 2, 3, 4), 4) == (1, 2, 3)


def test_tensors_of_one_size_are_one_cell_that_counts_them():
    assert cells_of_tensors((64, 9408, 64, 64), 2) == (Cell(64, 128, 3), Cell(9408, 18816))
