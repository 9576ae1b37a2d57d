"""The reference executor: exact results for every algorithm, and the kernels' arithmetic bit for bit."""

from typing import Any

import numpy as np
import pytest

from ddlbench import _reduce
from ddlbench.algorithms import available, resolve
from ddlbench.dtypes import DTYPES, OPS, DType, dtype_named
from ddlbench.schedule import Grid, Schedule, lower
from ddlbench.schedule.lower import lower_phase
from ddlbench.schedule.move import ADD, FROM_INPUT, LATE, SEND, Phase, steps
from ddlbench.schedule.reference import combine, divide, execute, narrow, widen
from ddlbench.schedule.segments import chunk_bounds, segment_bounds

Array = np.ndarray[Any, Any]

NAMES = [algorithm.name for algorithm in available()]
TEXTS = [*NAMES, "multi-ring:3", "multi-ring:form=grid", "hierarchical:across=double-binary-tree", "parameter-server:2"]
GRIDS = [Grid((1,)), Grid((2,)), Grid((3,)), Grid((5,)), Grid((8,)), Grid((2, 3)), Grid((2, 2, 2))]
DTYPE_NAMES = list(DTYPES)
FLOATS = [name for name, dtype in DTYPES.items() if dtype.significand_bits]
INT64 = dtype_named("int64")


def schedule_of(text: str, grid: Grid) -> Schedule:
    return lower(resolve(text, grid))


def counts(ranks: int) -> list[int]:
    """Return vector lengths: none, one, fewer than ranks, as many, and a number that nothing divides."""
    return sorted({0, 1, ranks - 1, ranks, 37})


def bits(array: Array) -> Array:
    return array.view(f"u{array.itemsize}")


# ---- Every algorithm, exactly ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("text", TEXTS)
def test_every_rank_gets_the_exact_sum(text, grid, segments):
    schedule, random = schedule_of(text, grid), np.random.default_rng(1)
    for count in counts(grid.size):
        inputs = list(random.integers(-1000, 1000, (grid.size, count)))
        kept = [values.copy() for values in inputs]
        results = execute(schedule, inputs, INT64, "sum", segments)
        assert [result.tolist() for result in results] == [np.sum(inputs, axis=0).tolist()] * grid.size
        assert all(np.array_equal(a, b) for a, b in zip(inputs, kept, strict=True))


EXACT = {"sum": np.sum, "avg": np.mean, "prod": np.prod, "min": np.min, "max": np.max}


def exact_inputs(op: str, ranks: int, count: int) -> Array:
    """Return small whole numbers, (ranks, count), whose partial results are exact in every element type.

    For prod they are 1 and 2, for avg the sum is a multiple of the ranks, and for all a uint8 holds them.
    """
    random = np.random.default_rng(len(op))
    if op == "prod":
        return random.integers(1, 3, (ranks, count))
    values = random.integers(0, 12, (ranks, count))
    if op == "avg":
        values[-1] += -values.sum(axis=0) % ranks
    return values


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_every_dtype_and_op_is_exact_where_the_numbers_are_small(name, op):
    dtype = dtype_named(name)
    for text in ("ring", "halving-doubling", "recursive-doubling", "double-binary-tree", "direct"):
        for ranks, segments in ((2, 1), (5, 3), (6, 1)):
            wanted = EXACT[op](exact_inputs(op, ranks, 13), axis=0)
            inputs = [stored(dtype, row) for row in exact_inputs(op, ranks, 13)]
            for result in execute(schedule_of(text, Grid((ranks,))), inputs, dtype, op, segments):
                assert result.dtype == dtype.storage
                assert np.array_equal(widen(dtype, result), wanted)


def stored(dtype: DType, values: Array) -> Array:
    """Return whole numbers as elements of `dtype`."""
    return narrow(dtype, values.astype(np.float32 if dtype.name in ("float16", "bfloat16") else dtype.storage))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("text", TEXTS)
def test_all_ranks_hold_the_same_bits_where_sums_round(text, name):
    dtype, random = dtype_named(name), np.random.default_rng(2)
    for grid in (Grid((7,)), Grid((3, 4))):
        inputs = [stored(dtype, row) for row in np.ldexp(random.standard_normal((grid.size, 41)), 3)]
        first, *others = execute(schedule_of(text, grid), inputs, dtype, "sum", 3)
        assert all(np.array_equal(bits(first), bits(other)) for other in others)


def test_the_sums_above_do_round():
    """Else the test before would hold for any order: two algorithms differ in their last bits."""
    inputs = list(np.random.default_rng(2).standard_normal((7, 41)).astype(np.float32))
    ring, tree = (
        execute(schedule_of(text, Grid((7,))), inputs, dtype_named("float32"), "sum")[0]
        for text in ("ring", "recursive-doubling")
    )
    assert np.allclose(ring, tree, rtol=1e-4, atol=1e-5)
    assert not np.array_equal(ring, tree)


def test_a_chain_of_ones_stalls_where_the_docs_say_and_a_tree_adds_them_exactly():
    ones = {name: [stored(dtype_named(name), np.ones(1))] for name in ("bfloat16", "float16")}
    for text, name, ranks, wanted in (
        ("parameter-server", "bfloat16", 300, 256),
        ("recursive-doubling", "bfloat16", 512, 512),
        ("parameter-server", "float16", 2060, 2048),
    ):
        dtype = dtype_named(name)
        result = execute(schedule_of(text, Grid((ranks,))), ones[name] * ranks, dtype, "sum")[0]
        assert widen(dtype, result).tolist() == [wanted]


def test_an_average_is_the_wrapped_sum_divided_toward_zero():
    grid, schedule = Grid((2,)), schedule_of("ring", Grid((2,)))
    for name, a, b, wanted in (
        ("int32", -7, 0, -3),
        ("int32", 7, 0, 3),
        ("int32", 2**31 - 1, 2**31 - 1, -1),
        ("int64", -(2**63), 0, -(2**62)),
        ("uint8", 255, 3, 1),
    ):
        inputs = [np.array([value], dtype_named(name).storage) for value in (a, b)]
        assert [r.tolist() for r in execute(schedule, inputs, dtype_named(name), "avg")] == [[wanted]] * grid.size


# ---- What it reads and when ------------------------------------------------------------------------------------------


def test_reads_come_before_writes_in_a_round():
    """Recursive doubling exchanges one chunk between partners: without that, one would add the other's new value."""
    schedule = schedule_of("recursive-doubling", Grid((2,)))
    assert (schedule.table["flags"][schedule.table["kind"] == 2] & LATE).all()
    results = execute(schedule, [np.array([1]), np.array([10])], INT64, "sum")
    assert [result.tolist() for result in results] == [[11], [11]]


def test_what_arrives_where_the_same_round_reads_is_added_after_the_rest():
    """Rank 0 sends chunk 1 while both chunks arrive from rank 1; chunk 0 from rank 2 need not wait and comes first."""
    moves = [(0, 1, 1, 1), (1, 0, 0, 2), (2, 0, 0, 1)]
    sends = [steps(SEND, 0, source, target, chunk, count) for source, target, chunk, count in moves]
    adds = [steps(ADD, 0, target, source, chunk, count) for source, target, chunk, count in moves]
    schedule = Schedule("late", Grid((3,)), 2, 1, lower_phase(Phase(1, (*sends, *adds)), np.arange(3), 2))
    inputs = [np.array([value, 0], np.float32) for value in (1e8, 1, -1e8)]
    assert execute(schedule, inputs, dtype_named("float32"), "sum")[0][0] == 1


def test_a_flag_that_is_missing_changes_the_result():
    """The executor reads input and output as the flags say, so that it would show a wrong lowering."""
    schedule = schedule_of("ring", Grid((3,)))
    first = int(np.flatnonzero(schedule.table["flags"] & FROM_INPUT)[0])
    schedule.table["flags"][first] = 0
    results = execute(schedule, list(np.arange(9).reshape(3, 3)), INT64, "sum")
    assert not all(np.array_equal(result, [9, 12, 15]) for result in results)


@pytest.mark.parametrize("count", [0, 1, 5, 64, 1001])
@pytest.mark.parametrize(("segments", "chunks"), [(1, 1), (1, 8), (3, 5), (7, 16)])
def test_segments_and_chunks_cover_every_element_once(count, segments, chunks):
    covered = []
    for segment in range(segments):
        first, last = segment_bounds(count, segments, segment)
        for chunk in range(chunks):
            covered += range(*chunk_bounds(first, last, chunks, chunk, 1))
        assert chunk_bounds(first, last, chunks, 0, chunks) == (first, last)
    assert covered == list(range(count))


def test_chunks_of_a_segment_differ_by_one_element_at_most():
    lengths = [len(range(*chunk_bounds(0, 1001, 16, chunk, 1))) for chunk in range(16)]
    assert max(lengths) - min(lengths) == 1


# ---- The arithmetic, against the kernels -----------------------------------------------------------------------------


def patterns(name: str) -> Array:
    """Return elements: for floats zeros, subnormals, ordinary numbers, limits, infinities and NaNs of both signs."""
    dtype, random = dtype_named(name), np.random.default_rng(3)
    if not dtype.significand_bits:
        limits = np.iinfo(dtype.storage)
        edges = [limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1, 2, 3, limits.max // 2]
        some = random.integers(limits.min, limits.max, 40, dtype.storage, endpoint=True)
        return np.concatenate([np.array(edges, dtype.storage), some])
    width, fraction = 8 * dtype.itemsize, dtype.significand_bits - 1
    top = ((1 << (width - 1 - fraction)) - 1) << fraction
    one = ((top >> fraction) >> 1) << fraction
    magnitudes = [0, 1, 2, (1 << fraction) - 1, 1 << fraction, one - 1, one, one + 1, one + (1 << (fraction - 1))]
    magnitudes += [top - 1, top, top + 1, top + (1 << (fraction - 1)), top + (1 << fraction) - 1]
    unsigned = np.dtype(f"u{dtype.itemsize}")
    signs = np.array([0, 1 << (width - 1)], unsigned)
    every = (np.array(magnitudes, unsigned) | signs[:, None]).reshape(-1)
    some = (
        random.integers(0, 1 << width, 40, unsigned, endpoint=False) if width < 64 else random.integers(0, 1 << 63, 40)
    )
    return np.concatenate([every, some.astype(unsigned)]).view(dtype.storage)


def pairs(name: str) -> tuple[Array, Array]:
    """Return every element of `patterns` against every other."""
    found = patterns(name)
    return np.repeat(found, len(found)), np.tile(found, len(found))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_an_operation_gives_the_bits_of_the_kernels(name, op):
    dtype = dtype_named(name)
    a, b = pairs(name)
    wanted = np.empty_like(a)
    _reduce.reduce(dtype.code, OPS[op], wanted, a, b)
    found = combine(dtype, op, a, b)
    assert found.dtype == dtype.storage
    assert np.array_equal(bits(found), bits(wanted))
    assert np.array_equal(bits(combine(dtype, op, b, a)), bits(found))  # whichever comes first


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_a_division_gives_the_bits_of_the_kernels(name, divisor):
    dtype, values = dtype_named(name), patterns(name)
    wanted = values.copy()
    _reduce.divide(dtype.code, wanted, divisor)
    assert np.array_equal(bits(divide(dtype, values, divisor)), bits(wanted))


@pytest.mark.parametrize("name", FLOATS)
def test_zeros_and_nans_are_as_the_docs_say(name):
    dtype = dtype_named(name)
    width = 8 * dtype.itemsize
    plus, minus, nan, infinity = (
        np.array([pattern], f"u{dtype.itemsize}").view(dtype.storage)
        for pattern in (0, 1 << (width - 1), quiet_nan(dtype) | 1 << (width - 1) | 1, infinity_of(dtype))
    )
    for a, b in ((plus, minus), (minus, plus)):
        assert bits(combine(dtype, "max", a, b)) == 0
        assert bits(combine(dtype, "min", a, b)) == 1 << (width - 1)
        assert bits(combine(dtype, "sum", a, b)) == 0
    for op in OPS:
        for a, b in ((nan, plus), (plus, nan), (nan, nan), (infinity, nan)):
            assert bits(combine(dtype, op, a, b)) == quiet_nan(dtype)
    assert bits(combine(dtype, "prod", infinity, minus)) == quiet_nan(dtype)
    assert bits(divide(dtype, nan, 1)) == quiet_nan(dtype)


def infinity_of(dtype: DType) -> int:
    fraction = dtype.significand_bits - 1
    return ((1 << (8 * dtype.itemsize - 1 - fraction)) - 1) << fraction


def quiet_nan(dtype: DType) -> int:
    """Return the pattern of the canonical NaN: sign clear, payload zero."""
    return infinity_of(dtype) | 1 << (dtype.significand_bits - 2)


def test_one_rank_copies_what_it_has():
    nan = np.array([0xFFC00001, 0x80000000], np.uint32).view(np.float32)
    (result,) = execute(schedule_of("ring", Grid((1,))), [nan], dtype_named("float32"), "sum")
    assert np.array_equal(bits(result), bits(nan))
