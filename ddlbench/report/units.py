"""Numbers as people read them: 4 KiB, 12.3 µs, 1.41×. A no-break space stands between number and unit."""

import numpy as np

SPACE = "\u00a0"
SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
TIMES = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))


def digits(value: float) -> str:
    """Return `value` to three significant digits without an exponent; from 100 on to the whole number."""
    if value >= 100:
        return f"{value:.0f}"
    return np.format_float_positional(value, precision=3, fractional=False, trim="-")


def interval_text(low: float, high: float) -> str:
    """Return an interval, both ends to three significant digits, zeros among them: 9.95 – 10.0."""
    return " – ".join(map(_even, (low, high)))


def _even(value: float) -> str:
    if value >= 100 or value == 0:
        return digits(value)
    return np.format_float_positional(value, precision=3, min_digits=3, fractional=False).removesuffix(".")


def size_text(nbytes: int) -> str:
    """Return a size in bytes in the largest unit of 1024ⁿ that leaves at least one: 8 B, 1.5 KiB, 64 MiB."""
    power = min((max(nbytes, 1).bit_length() - 1) // 10, len(SIZES) - 1)
    return f"{digits(nbytes / 1024**power)}{SPACE}{SIZES[power]}"


def time_text(time_us: float) -> str:
    """Return a time given in microseconds as µs, ms or s."""
    unit, scale = next(((unit, scale) for unit, scale in TIMES if time_us >= scale), TIMES[-1])
    return f"{digits(time_us / scale)}{SPACE}{unit}"


def ratio_text(ratio: float) -> str:
    """Return how many times one figure is another: 1.07×, 12.3×."""
    return f"{ratio:.2f}×" if ratio < 10 else f"{digits(ratio)}×"


def rate_text(gb_per_s: float) -> str:
    """Return a bandwidth in GB/s (1e9)."""
    return f"{digits(gb_per_s)}{SPACE}GB/s"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun, in the plural (with an s where not given) unless there is one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def percent_text(share: float) -> str:
    """Return a share as per cent, to the whole number; below ten to one decimal, and what is almost none as that."""
    percent = 100 * share
    if 0 < percent < 0.05:
        return f"<{SPACE}0.1{SPACE}%"
    return f"{percent:.0f}{SPACE}%" if percent >= 9.95 or percent == 0 else f"{percent:.1f}{SPACE}%"
