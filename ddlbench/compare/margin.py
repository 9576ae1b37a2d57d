"""How large a change must be to matter."""

import re
from dataclasses import dataclass
from typing import Self

from ddlbench.errors import UsageError

WRITTEN = re.compile(r"(\d+\.?\d*|\.\d+)\s*(%?)", re.ASCII)
LARGEST = 10.0


@dataclass(frozen=True)
class Margin:
    """A change by the factor 1 + `fraction`, either way, as the limit of what counts as the same."""

    fraction: float

    @classmethod
    def parse(cls, text: str, name: str) -> Self:
        """Return the margin that `text` spells, 5% or 0.05; raises `UsageError` with the option's `name`."""
        written = WRITTEN.fullmatch(text.strip())
        value = float(written[1]) if written else 0.0
        if written and not written[2] and 1 <= value <= 100:
            raise UsageError(f"{name} {text}: as a fraction that is {value * 100:g} %; did you mean {written[1]}%?")
        fraction = value / 100 if written and written[2] else value
        if not 0 < fraction <= LARGEST:
            raise UsageError(f"{name} {text}: expected a fraction above 0 such as 5% or 0.05, up to {LARGEST:.0%}")
        return cls(fraction)

    @property
    def low(self) -> float:
        """The least ratio that counts as the same; swapping the two runs gives the same limits."""
        return 1 / (1 + self.fraction)

    @property
    def high(self) -> float:
        """The greatest ratio that counts as the same."""
        return 1 + self.fraction

    def __str__(self) -> str:
        return f"{self.fraction * 100:g} %"
