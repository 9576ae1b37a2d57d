"""Figures with their units, as topology files and options spell them: `1.3 us`, `12.5 GB/s`, `100 Gbit/s`, `64 KiB`.

Rates are bytes or bits a second with prefixes of 1000, or KiB, MiB and GiB a second. An amount where a rate is wanted
(`100 GB`), a number without a unit and a unit of unclear case (`100 gb/s`: bits or bytes?) are refused.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ddlbench.errors import UsageError

TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
AMOUNTS = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
RATES = {f"{name}/s": scale for name, scale in AMOUNTS.items()}
RATES |= {f"{prefix}B/s": scale for prefix, scale in PREFIXES.items()}
RATES |= {f"{prefix}{bit}/s": scale / 8 for prefix, scale in PREFIXES.items() for bit in ("bit", "b")}
SHORT_RATES = {unit.removesuffix("/s").lower(): scale for unit, scale in RATES.items() if unit.endswith("bit/s")}
"""`200gbit`, as networks are called: only bits a second are ever meant by it."""

_FORM = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([^\s0-9].*?)?\s*")


@dataclass(frozen=True)
class Unit:
    """A kind of figure: its units with their scales, the one it is written in, and what a message says is expected."""

    scales: Mapping[str, float]
    written: Callable[[float], str]
    expected: str
    zero: bool = False

    def parse(self, text: object) -> float:
        """Return `text` in seconds, bytes a second or bytes; raises `UsageError` naming it."""
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise UsageError(f"{_shown(text)}: expected {self.expected}")
        number, unit = float(found[1]), found[2] or ""
        if unit not in self.scales:
            raise UsageError(f"{_shown(text)}: {_mistake(unit, self)}expected {self.expected}")
        if number == 0 and not self.zero:
            raise UsageError(f"{_shown(text)}: expected a figure above 0, {self.expected}")
        if not math.isfinite(value := number * self.scales[unit]):
            raise UsageError(f"{_shown(text)}: expected a finite figure, {self.expected}")
        return value


def _shown(text: object) -> str:
    return repr(text)


def _mistake(unit: str, wanted: Unit) -> str:
    """Return what is wrong with a unit that is none of the wanted ones, where that can be told."""
    if not unit:
        return "the unit is missing; "
    if wanted is RATE and f"{unit}/s" in RATES:
        return f"{unit} is an amount and no rate; "
    if unit.lower() in {known.lower() for known in wanted.scales}:
        return f"{unit} may mean bits or bytes (b or B), or is of another case; "
    return f"unknown unit {unit!r}; "


def _time(value: float) -> str:
    return f"{value * 1e6:.12g} us"


def _rate(value: float) -> str:
    return f"{value / 1e9:.12g} GB/s"


def _amount(value: float) -> str:
    return f"{value:.12g} B"


TIME = Unit(TIMES, _time, "a time in s, ms, us or ns, such as '1.3 us'", zero=True)
RATE = Unit(RATES | SHORT_RATES, _rate, "bytes or bits a second, such as '12.5 GB/s' or '100 Gbit/s'")
AMOUNT = Unit(AMOUNTS, _amount, "bytes, such as '64 KiB'", zero=True)
