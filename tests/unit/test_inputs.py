"""Inputs and checks: sums exact in any order, and no fault that an allreduce can have passes for a right result."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from ddlbench.bench.inputs import (
    GUARD_NBYTES,
    PERIOD,
    Buffers,
    Guarded,
    WrongElement,
    bits,
    count_wrong,
    encode,
    fill,
    first_wrong,
    pattern,
    reduced,
    shown,
    values,
)
from ddlbench.dtypes import DTYPES, OPS

FLOATS = [dtype for dtype in DTYPES.values() if dtype.significand_bits]
INTEGERS = [dtype for dtype in DTYPES.values() if not dtype.significand_bits]
RANKS = [1, 2, 3, 5, 8, 64, 300]


def named(dtype):
    return dtype.name


def decoded(array, dtype):
    """Return the elements of a buffer in float64 or int64, exactly."""
    if dtype.name == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64 if dtype.significand_bits else np.int64)


def tables(dtype, op, ranks):
    return [values(dtype, op, rank, ranks) for rank in range(ranks)]


@pytest.mark.parametrize("op", list(OPS))
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=named)
@pytest.mark.parametrize("ranks", [1, 2, 5, 300])
def test_every_value_is_exact_in_its_dtype(dtype, op, ranks):
    for table in tables(dtype, op, min(ranks, 5)):
        assert np.array_equal(decoded(encode(table, dtype), dtype), table)


@pytest.mark.parametrize("dtype", FLOATS, ids=named)
@pytest.mark.parametrize("ranks", RANKS)
def test_no_partial_sum_of_floats_can_round(dtype, ranks):
    """The sum of magnitudes bounds every partial sum over every subset; integers below 2^bits are exact."""
    magnitudes = sum(abs(table) for table in tables(dtype, "sum", ranks))
    assert magnitudes.max() <= 2**dtype.significand_bits


@pytest.mark.parametrize("dtype", FLOATS, ids=named)
@pytest.mark.parametrize("ranks", RANKS)
def test_no_partial_product_of_floats_leaves_the_normal_range(dtype, ranks):
    exponents = sum(abs(np.log2(abs(table))) for table in tables(dtype, "prod", ranks))
    smallest = {"float16": 14, "bfloat16": 126, "float32": 126, "float64": 1022}[dtype.name]
    assert exponents.max() <= smallest


@pytest.mark.parametrize("dtype", INTEGERS, ids=named)
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_no_partial_sum_of_integers_wraps(dtype, ranks, op):
    columns = zip(*(map(int, table[:100]) for table in tables(dtype, op, ranks)), strict=True)
    magnitudes = [sum(map(abs, column)) for column in columns]
    assert 0 < max(magnitudes) <= np.iinfo(dtype.storage).max


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if dtype.name != "bfloat16"], ids=named)
@pytest.mark.parametrize("op", ["sum", "prod"])
def test_any_order_of_reduction_gives_the_expected_bits(dtype, op):
    """Reduce in the dtype itself, in every order of four ranks. numpy has no bfloat16: tests under MPI cover it."""
    sent = [encode(values(dtype, op, rank, 4), dtype) for rank in range(4)]
    expected = encode(reduced(dtype, op, 4), dtype)
    combine = np.add if op == "sum" else np.multiply
    with np.errstate(over="ignore"):
        for a, b, c, d in itertools.permutations(sent):
            assert np.array_equal(bits(combine(combine(combine(a, b), c), d)), bits(expected))
            assert np.array_equal(bits(combine(combine(a, b), combine(c, d))), bits(expected))


@pytest.mark.parametrize("dtype", FLOATS, ids=named)
@pytest.mark.parametrize("ranks", [3, 7, 12])
def test_an_average_is_the_exact_sum_over_the_ranks_rounded_once(dtype, ranks):
    total, average = reduced(dtype, "sum", ranks), encode(reduced(dtype, "avg", ranks), dtype)
    for at in range(200):
        exact = Fraction(int(total[at]), ranks)
        found = Fraction(float(decoded(average[at : at + 1], dtype)[0]))
        step = exact.limit_denominator() and Fraction(2) ** (np.frexp(float(abs(exact)))[1] - dtype.significand_bits)
        assert abs(found - exact) * 2 <= step


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=named)
@pytest.mark.parametrize("op", list(OPS))
@pytest.mark.parametrize("ranks", [2, 5, 100])
def test_leaving_any_rank_out_changes_the_result(dtype, op, ranks):
    every = tables(dtype, op, ranks)
    combine = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    for rank in (0, ranks // 2, ranks - 1):
        others = combine.reduce([table for other, table in enumerate(every) if other != rank])
        assert np.count_nonzero(encode(combine(others, every[rank]), dtype) != encode(others, dtype)) > 5


@pytest.mark.parametrize("count", [0, 1, 2, 7, PERIOD - 1, PERIOD, PERIOD + 1, 3 * PERIOD + 5])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=named)
def test_what_is_laid_out_checks_out(count, dtype):
    given = pattern(dtype, "sum", 0, 1)
    array = np.empty(count, dtype.storage)
    fill(array, given.sent)
    assert count_wrong(array, given.expected) == 0


@pytest.mark.parametrize("place", [0, 1, PERIOD - 1, PERIOD, 2 * PERIOD + 3])
def test_one_wrong_bit_is_one_wrong_element(place):
    given = pattern(DTYPES["float32"], "sum", 0, 2)
    array = np.empty(2 * PERIOD + 4, np.float32)
    fill(array, given.expected)
    assert first_wrong(array, given.expected) is None
    good = int(bits(array)[place])
    bits(array)[place] ^= 1
    bits(array)[place + 1 :] ^= 2
    assert count_wrong(array, given.expected) == array.size - place
    assert first_wrong(array, given.expected) == WrongElement(place, good, good ^ 1)


@pytest.mark.parametrize(
    ("dtype", "pattern_", "said"),
    [
        ("float32", 0x40D00000, "6.5 (0x40d00000)"),
        ("bfloat16", 0x40D0, "6.5 (0x40d0)"),
        ("float16", 0x4680, "6.5 (0x4680)"),
        ("float64", 0x7FF8000000000000, "nan (0x7ff8000000000000)"),
        ("int32", 0xFFFFFFFF, "-1 (0xffffffff)"),
        ("uint8", 7, "7 (0x07)"),
    ],
)
def test_an_element_is_shown_as_its_value_and_its_bits(dtype, pattern_, said):
    assert shown(pattern_, DTYPES[dtype]) == said


def test_minus_zero_is_not_zero():
    given = pattern(DTYPES["float32"], "sum", 0, 2)
    array = np.empty(PERIOD, np.float32)
    fill(array, given.expected)
    zero = int(np.flatnonzero(array == 0)[0]) if (array == 0).any() else 0
    array[zero] = -array[zero] if array[zero] else 1
    assert count_wrong(array, given.expected) == 1


@pytest.mark.parametrize("shift", [1, 16, 1024, PERIOD, 17 * PERIOD, 2 * PERIOD + 3, 1 << 16])
def test_a_chunk_in_the_wrong_place_is_seen(shift):
    given = pattern(DTYPES["float32"], "sum", 0, 2)
    array = np.empty(40 * PERIOD, np.float32)
    fill(array, given.expected)
    moved = np.roll(array, shift)
    assert count_wrong(moved, given.expected) > 0.9 * array.size


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=named)
def test_a_right_result_has_no_findings(dtype, in_place):
    given, buffers = pattern(dtype, "sum", 1, 3), Buffers(1000, dtype, in_place=in_place)
    buffers.prepare(given)
    fill(buffers.receive, given.expected)
    assert buffers.check(given) == type(buffers.check(given))(0, 0, 0)


def test_a_result_nobody_wrote_is_wrong_everywhere():
    given, buffers = pattern(DTYPES["float64"], "sum", 0, 2), Buffers(1000, DTYPES["float64"], in_place=False)
    buffers.prepare(given)
    fill(buffers.receive, given.expected)
    buffers.prepare(given)
    assert buffers.check(given).wrong == 1000


def test_a_changed_input_is_counted():
    given, buffers = pattern(DTYPES["int32"], "max", 0, 2), Buffers(1000, DTYPES["int32"], in_place=False)
    buffers.prepare(given)
    fill(buffers.receive, given.expected)
    buffers.send[17] ^= 1
    found = buffers.check(given)
    assert (found.wrong, found.changed, found.damaged) == (0, 1, 0)


@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.parametrize("beyond", ["before", "after"])
def test_a_write_beyond_a_buffer_is_counted(count, beyond):
    guarded = Guarded(count, DTYPES["float32"])
    base = guarded.array
    while base.base is not None:
        base = base.base
    first = guarded.array.ctypes.data - base.ctypes.data
    at = first - 1 if beyond == "before" else first + guarded.array.nbytes
    base.view(np.uint8)[at] ^= 1
    assert guarded.damaged() == 1


def test_buffers_start_on_a_cache_line_between_whole_guards():
    guarded = Guarded(5, DTYPES["uint8"])
    assert guarded.array.ctypes.data % 64 == 0
    assert guarded.damaged() == 0
    assert GUARD_NBYTES >= 64


def test_buffers_that_do_not_fit_raise_memory_error():
    with pytest.raises(MemoryError):
        Guarded(1 << 52, DTYPES["float64"])
