"""The kernels against numpy, bit for bit, at every SIMD level this processor has."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from ddlbench import _reduce
from ddlbench.dtypes import DTYPES, OPS
from ddlbench.errors import UsageError

Array = np.ndarray[Any, Any]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int32", "int64", "uint8")
QUIET_NAN = {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000, "float64": 0x7FF8 << 48}
EXPONENT_BITS = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}
SIZES = (*range(68), 1021, 4099)
SENTINEL = 0xA5


@pytest.fixture(params=_reduce.simd_levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test at one SIMD level; the level before is put back."""
    before = _reduce.simd()
    _reduce.set_simd(request.param)
    yield request.param
    _reduce.set_simd(before)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence numpy: overflow and NaN are what these tests provoke."""
    with np.errstate(all="ignore"):
        yield


# ---- References: numpy, independent of the kernels -------------------------------------------------------------------


def bits_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(f"u{DTYPES[name].itemsize}")


def values(name: str, patterns: Array) -> Array:
    """Return bit patterns as numbers of a type numpy has; bfloat16 as the float64 of the same value."""
    if name == "bfloat16":
        return (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return patterns.view(DTYPES[name].storage)


def round_to_bfloat16(x: Array) -> Array:
    """Round float64 values to 8 significant bits, ties to even, in one step; return float64."""
    _, exponent = np.frexp(x)
    quantum = np.ldexp(1.0, np.maximum(exponent - 1, -126) - 7)
    return np.where(np.isfinite(x), np.rint(x / quantum) * quantum, x)


def patterns_of(name: str, x: Array) -> Array:
    """Return numbers as bit patterns of `name`, any NaN as the canonical one."""
    if name == "bfloat16":
        found = (round_to_bfloat16(x).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        found = x.astype(DTYPES[name].storage).view(bits_dtype(name))
    return np.where(np.isnan(x), bits_dtype(name).type(QUIET_NAN[name]), found) if name in FLOATS else found


def least(x: Array, y: Array) -> Array:
    """Return the smaller number, -0 below +0, NaN where either is."""
    number = np.where((x < y) | ((x == y) & np.signbit(x)), x, y)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, number)


REFERENCE: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": least,
    "max": lambda x, y: -least(-x, -y),
    "avg": np.add,
}
INTEGER_REFERENCE = REFERENCE | {"min": np.minimum, "max": np.maximum}


def expected(name: str, op: str, a: Array, b: Array) -> Array:
    """Return the bit patterns of `a op b`; bfloat16 by way of float64, which is wide enough to leave no trace."""
    reference = REFERENCE if name in FLOATS else INTEGER_REFERENCE
    return patterns_of(name, reference[op](values(name, a), values(name, b)))


# ---- Inputs ----------------------------------------------------------------------------------------------------------


def special_floats(name: str) -> Array:
    """Return patterns of both signs: zero, subnormals, the edges of every range, 1 and ulps about it, inf, NaNs."""
    mantissa = DTYPES[name].significand_bits - 1
    top = (1 << EXPONENT_BITS[name]) - 1
    one = (top >> 1) << mantissa
    infinity = top << mantissa
    half_range = 1 << (mantissa - 1)
    normal = 1 << mantissa
    magnitudes = [0, 1, 2, 3, half_range, normal - 1, normal, normal + 1]
    magnitudes += [one - 1, one, one + 1, one + half_range, one + (3 << mantissa) + 1]
    magnitudes += [infinity - 2, infinity - 1, infinity]
    magnitudes += [infinity + 1, infinity + half_range, infinity + half_range + 1, infinity + normal - 1]
    sign = 1 << (mantissa + EXPONENT_BITS[name])
    return np.array([s | m for m in magnitudes for s in (0, sign)], bits_dtype(name))


def special_integers(name: str) -> Array:
    limits = np.iinfo(DTYPES[name].storage)
    edges = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 3, limits.max // 2, limits.max // 3]
    if limits.min < 0:
        edges += [-1, -2, -3]
    return np.array(edges, DTYPES[name].storage).view(bits_dtype(name))


def specials(name: str) -> Array:
    return special_floats(name) if name in FLOATS else special_integers(name)


def mixed(name: str, n: int, seed: int) -> Array:
    """Return `n` patterns: one part special, one part any bits, and two parts of floats near 1, whose sums round."""
    rng = np.random.default_rng(seed)
    any_bits = rng.integers(0, 256, n * DTYPES[name].itemsize, dtype=np.uint8).view(bits_dtype(name))
    near = patterns_of(name, rng.normal(size=n) * 2.0 ** rng.integers(-6, 6, n)) if name in FLOATS else any_bits
    return np.choose(rng.integers(0, 4, n), [rng.choice(specials(name), n), any_bits, near, near])


def placed(patterns: Array, offset: int) -> Array:
    """Return the bytes of `patterns` at a memory address that is `offset` beyond a multiple of 64."""
    raw = np.full(patterns.nbytes + 256, SENTINEL, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + offset
    raw[start : start + patterns.nbytes] = patterns.view(np.uint8)
    return raw[start : start + patterns.nbytes]


def reduced(name: str, op: str, a: Array, b: Array) -> Array:
    dst = np.empty_like(a)
    _reduce.reduce(DTYPES[name].code, OPS[op], dst, a, b)
    return dst


def divided(name: str, patterns: Array, divisor: int) -> Array:
    dst = patterns.copy()
    _reduce.divide(DTYPES[name].code, dst, divisor)
    return dst


# ---- Reductions ------------------------------------------------------------------------------------------------------


def test_codes_are_those_of_the_python_tables() -> None:
    assert {name: dtype.code for name, dtype in DTYPES.items()} == _reduce.DTYPE_CODES
    assert _reduce.OP_CODES == OPS


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPES)
def test_every_size_and_alignment_matches_numpy(level: str, name: str, op: str) -> None:
    a, b = mixed(name, max(SIZES), 1), mixed(name, max(SIZES), 2)
    wanted = expected(name, op, a, b)
    for n, (to, x, y) in product(SIZES, [(0, 0, 0), (1, 2, 3), (7, 0, 5), (16, 33, 8)]):
        dst = placed(np.zeros(n, a.dtype), to)
        _reduce.reduce(DTYPES[name].code, OPS[op], dst, placed(a[:n], x), placed(b[:n], y))
        np.testing.assert_array_equal(dst, wanted[:n].view(np.uint8), err_msg=f"n={n}, offsets {to} {x} {y}")


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPES)
def test_nothing_beyond_either_end_is_touched(level: str, name: str, op: str) -> None:
    for n in SIZES:
        a = mixed(name, n, 3)
        dst = placed(a, 1)
        _reduce.reduce(DTYPES[name].code, OPS[op], dst, a, a)
        raw = dst.base
        assert isinstance(raw, np.ndarray)
        start = dst.ctypes.data - raw.ctypes.data
        assert (raw[:start] == SENTINEL).all()
        assert (raw[start + a.nbytes :] == SENTINEL).all()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPES)
def test_every_pair_of_special_values_matches_numpy(level: str, name: str, op: str) -> None:
    pool = specials(name)
    a, b = np.repeat(pool, pool.size), np.tile(pool, pool.size)
    np.testing.assert_array_equal(reduced(name, op, a, b), expected(name, op, a, b))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("offset", [0, 3])
def test_destination_may_be_either_source_or_both(level: str, name: str, op: str, offset: int) -> None:
    for n in (1, 5, 16, 63, 64, 1021):
        a, b = mixed(name, n, 4), mixed(name, n, 5)
        onto_a, onto_b, onto_both = placed(a, offset), placed(b, offset), placed(a, offset)
        _reduce.reduce(DTYPES[name].code, OPS[op], onto_a, onto_a, placed(b, 0))
        _reduce.reduce(DTYPES[name].code, OPS[op], onto_b, placed(a, 0), onto_b)
        _reduce.reduce(DTYPES[name].code, OPS[op], onto_both, onto_both, onto_both)
        np.testing.assert_array_equal(onto_a, expected(name, op, a, b).view(np.uint8))
        np.testing.assert_array_equal(onto_b, expected(name, op, a, b).view(np.uint8))
        np.testing.assert_array_equal(onto_both, expected(name, op, a, a).view(np.uint8))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("sources", [3, 4])
def test_many_sources_in_one_pass_give_the_bits_of_one_after_the_other(
    level: str, name: str, op: str, sources: int
) -> None:
    for n in (*range(36), 63, 65, 1021):
        inputs = [mixed(name, n, seed) for seed in range(20, 20 + sources)]
        wanted = inputs[0]
        for one in inputs[1:]:
            wanted = reduced(name, op, wanted, one)
        for offset, onto in ((0, None), (3, 0), (1, sources - 1)):
            memory = [placed(one, offset) for one in inputs]
            dst = placed(np.zeros_like(wanted), offset) if onto is None else memory[onto]
            _reduce.reduce_many(DTYPES[name].code, OPS[op], dst, memory)
            np.testing.assert_array_equal(dst, wanted.view(np.uint8), err_msg=f"n={n}, onto {onto}")


@pytest.mark.parametrize("op", ["sum", "prod"])
@pytest.mark.parametrize("name", FLOATS)
def test_special_values_among_many_sources_are_as_one_after_the_other(level: str, name: str, op: str) -> None:
    pool = specials(name)
    a, b = np.repeat(pool, pool.size), np.tile(pool, pool.size)
    dst = np.empty_like(a)
    _reduce.reduce_many(DTYPES[name].code, OPS[op], dst, [a, b, a[::-1].copy(), b])
    wanted = reduced(name, op, reduced(name, op, reduced(name, op, a, b), a[::-1].copy()), b)
    np.testing.assert_array_equal(dst, wanted)


@pytest.mark.parametrize("sources", [0, 1, 2, 5])
def test_another_number_of_sources_is_refused(sources: int) -> None:
    memory = np.zeros(4, np.float32)
    with pytest.raises(UsageError, match=rf"^{sources} sources and op code 0; expected 3 or 4"):
        _reduce.reduce_many(DTYPES["float32"].code, OPS["sum"], memory, [memory] * sources)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPES)
def test_operands_may_be_swapped_without_changing_a_bit(level: str, name: str, op: str) -> None:
    pool = np.concatenate([specials(name), mixed(name, 40, 6)])
    a, b = np.repeat(pool, pool.size), np.tile(pool, pool.size)
    np.testing.assert_array_equal(reduced(name, op, a, b), reduced(name, op, b, a))


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_all_65536_short_floats_match_numpy(level: str, name: str, op: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    for other in np.concatenate([specials(name), mixed(name, 24, 7)]):
        others = np.full_like(every, other)
        np.testing.assert_array_equal(reduced(name, op, every, others), expected(name, op, every, others))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize(("op", "neutral"), [("sum", -0.0), ("prod", 1.0)])
def test_all_65536_short_floats_survive_the_conversions(level: str, name: str, op: str, neutral: float) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    neutrals = np.broadcast_to(patterns_of(name, np.array([neutral])), every.shape).copy()
    is_nan = np.isnan(values(name, every))
    assert is_nan.sum() == 2 * ((1 << (DTYPES[name].significand_bits - 1)) - 1)
    wanted = np.where(is_nan, np.uint16(QUIET_NAN[name]), every)
    np.testing.assert_array_equal(reduced(name, op, every, neutrals), wanted)


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("name", FLOATS)
def test_zeros_are_ordered_by_sign(level: str, name: str, op: str) -> None:
    zeros = patterns_of(name, np.array([0.0, -0.0] * 20))
    found = np.signbit(values(name, reduced(name, op, zeros, zeros[::-1].copy())))
    assert found.all() if op == "min" else not found.any()


# ---- Average ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 8, 64, 1000, 4095, 4096])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_quotient_of_all_65536_short_floats_rounds_once(level: str, name: str, divisor: int) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    exact_enough = values(name, every).astype(np.float64) / divisor
    np.testing.assert_array_equal(divided(name, every, divisor), patterns_of(name, exact_enough))


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 64, 4097, 65537])
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_quotient_of_floats_matches_numpy(level: str, name: str, divisor: int) -> None:
    for n in SIZES:
        x = mixed(name, n, 8)
        wanted = patterns_of(name, values(name, x) / DTYPES[name].storage.type(divisor))
        np.testing.assert_array_equal(divided(name, x, divisor), wanted)


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 64, 255, 256, 4097, 2**31 - 1, 2**31, 2**31 + 1, 2**40, 2**63 - 1])
@pytest.mark.parametrize("name", INTEGERS)
def test_quotient_of_integers_truncates_toward_zero(level: str, name: str, divisor: int) -> None:
    storage = DTYPES[name].storage
    limits = np.iinfo(storage)
    multiples = [m * divisor + d for m in (-5, -1, 0, 1, 2, limits.max // divisor) for d in (-1, 0, 1)]
    fitting = [m for m in multiples if limits.min <= m <= limits.max]
    x = np.concatenate([np.array(fitting, storage), specials(name).view(storage), mixed(name, 500, 9).view(storage)])
    wanted = [abs(int(v)) // divisor * (-1 if v < 0 else 1) for v in x]
    np.testing.assert_array_equal(divided(name, x, divisor), np.array(wanted, storage))


def test_average_of_integers_divides_the_wrapped_sum(level: str) -> None:
    for inputs, wanted in (((2**31 - 1, 2**31 - 1), -1), ((-3, -4), -3)):
        a, b = (np.full(20, x, np.int32) for x in inputs)
        np.testing.assert_array_equal(divided("int32", reduced("int32", "avg", a, b), 2), np.full(20, wanted, np.int32))


# ---- What docs/numerics.md promises of a whole allreduce -------------------------------------------------------------


def chain(name: str, vectors: list[Array]) -> tuple[Array, int]:
    """Return the sum of one vector after another, as a ring makes it, and the depth."""
    total = vectors[0]
    for vector in vectors[1:]:
        total = reduced(name, "sum", vector, total)
    return total, len(vectors) - 1


def tree(name: str, vectors: list[Array]) -> tuple[Array, int]:
    """Return the sum by halves, as recursive doubling makes it, and the depth."""
    depth = 0
    while len(vectors) > 1:
        pairs = [reduced(name, "sum", x, y) for x, y in zip(vectors[::2], vectors[1::2], strict=False)]
        vectors = pairs + vectors[2 * len(pairs) :]
        depth += 1
    return vectors[0], depth


def fractions_of(name: str, patterns: Array) -> list[Fraction]:
    return [Fraction(float(x)) for x in values(name, patterns)]


@pytest.mark.parametrize("shape", [chain, tree])
@pytest.mark.parametrize("ranks", [2, 3, 8, 33, 64])
@pytest.mark.parametrize("name", FLOATS)
def test_error_of_a_sum_is_within_the_bound(level: str, name: str, ranks: int, shape: Any) -> None:
    rng = np.random.default_rng(ranks)
    inputs = [patterns_of(name, rng.normal(size=40) * 2.0 ** rng.integers(-20, 4, 40)) for _ in range(ranks)]
    total, depth = shape(name, inputs)
    unit = Fraction(1, 2 ** DTYPES[name].significand_bits)
    columns = zip(*(fractions_of(name, x) for x in inputs), strict=True)
    for result, column in zip(fractions_of(name, total), columns, strict=True):
        assert abs(result - sum(column)) <= ((1 + unit) ** depth - 1) * sum(map(abs, column))


def test_a_chain_of_ones_stalls_where_the_page_says(level: str) -> None:
    for name, stall in (("bfloat16", 256), ("float16", 2048)):
        ones = [patterns_of(name, np.ones(3))] * (stall + 50)
        assert values(name, chain(name, ones)[0]).tolist() == [stall] * 3
        assert values(name, tree(name, ones)[0]).tolist() == [stall + 50] * 3


def combine(name: str, op: str, vectors: list[Array], swaps: np.random.Generator) -> Array:
    """Return one fixed tree over `vectors`, the operands of each operation in an order drawn from `swaps`."""
    if len(vectors) == 1:
        return vectors[0]
    middle = len(vectors) // 2
    halves = [combine(name, op, part, swaps) for part in (vectors[:middle], vectors[middle:])]
    swapped = int(swaps.integers(2))
    return reduced(name, op, halves[swapped], halves[1 - swapped])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPES)
def test_ranks_that_share_a_tree_share_every_bit(level: str, name: str, op: str) -> None:
    inputs = [mixed(name, 200, seed) for seed in range(10, 21)]
    ranks = [combine(name, op, inputs, np.random.default_rng(seed)).tobytes() for seed in range(6)]
    assert len(set(ranks)) == 1


# ---- SIMD levels and refusals ----------------------------------------------------------------------------------------


def test_the_best_level_is_in_use_at_first() -> None:
    assert _reduce.simd_levels()[0] == "baseline"
    assert _reduce.simd() == _reduce.simd_levels()[-1]


def test_a_chosen_level_is_in_use(level: str) -> None:
    assert _reduce.simd() == level


def test_an_unknown_level_is_refused_and_changes_nothing() -> None:
    before = _reduce.simd()
    with pytest.raises(UsageError, match="unknown SIMD level 'avx1024'"):
        _reduce.set_simd("avx1024")
    assert _reduce.simd() == before


@pytest.mark.parametrize(
    ("dtype", "op", "dst", "a", "b", "message"),
    [
        (7, 0, 4, 4, 4, "dtype code 7"),
        (-1, 0, 4, 4, 4, "dtype code -1"),
        (2, 5, 4, 4, 4, "op code 5"),
        (2, -1, 4, 4, 4, "op code -1"),
        (2, 0, 4, 8, 4, "4, 8 and 4 bytes"),
        (2, 0, 4, 4, 8, "4, 4 and 8 bytes"),
        (2, 0, 6, 6, 6, "6 bytes are not whole elements of 4"),
    ],
)
def test_bad_codes_and_lengths_are_refused(dtype: int, op: int, dst: int, a: int, b: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _reduce.reduce(dtype, op, bytearray(dst), bytes(a), bytes(b))


@pytest.mark.parametrize("shift", [1, 4, 15, -1, -15])
def test_partial_overlap_is_refused(shift: int) -> None:
    raw = np.zeros(64, np.uint8)
    dst, source = raw[16:32], raw[16 + shift : 32 + shift]
    apart = np.zeros(16, np.uint8)
    for a, b in ((source, apart), (apart, source)):
        with pytest.raises(UsageError, match="overlaps"):
            _reduce.reduce(6, 0, dst, a, b)


def test_neighbouring_memory_is_no_overlap() -> None:
    raw = np.ones(48, np.uint8)
    _reduce.reduce(6, 0, raw[16:32], raw[:16], raw[32:])
    assert raw.tolist() == [1] * 16 + [2] * 16 + [1] * 16


def test_buffers_with_gaps_and_read_only_destinations_are_refused() -> None:
    x = np.zeros(8, np.float32)
    with pytest.raises((ValueError, BufferError)):
        _reduce.reduce(2, 0, x[::2], x[:4], x[4:])
    with pytest.raises((ValueError, BufferError)):
        _reduce.reduce(2, 0, bytes(4), bytes(4), bytes(4))


@pytest.mark.parametrize("divisor", [0, -2])
def test_a_divisor_below_one_is_refused(divisor: int) -> None:
    with pytest.raises(UsageError, match=f"divisor {divisor}"):
        _reduce.divide(2, bytearray(8), divisor)
