"""Numbers of options: what is none, or not finite, is refused in words, and the environment named where it said so."""

import math
import re
from typing import Any

import click
from click.core import ParameterSource

MOST_WHOLE = 10**9 - 1
MOST_SECONDS = 1e6
"""Eleven days; more is taken for a slip of the keyboard."""


class Whole(click.IntRange):
    """A whole number from `least` to `MOST_WHOLE`."""

    def __init__(self, least: int) -> None:
        super().__init__(least)
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number that `value` says; raises `click.BadParameter`."""
        text = str(value).strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not self._least <= int(text) <= MOST_WHOLE:
            expected = f"expected a whole number from {self._least} to {MOST_WHOLE}"
            raise click.BadParameter(f"{text!r}: {expected}", ctx, param, _variable(param, ctx))
        return int(text)


class Seconds(click.FloatRange):
    """A finite number of seconds from `least` to `MOST_SECONDS`; click's own range lets nan pass."""

    def __init__(self, least: float) -> None:
        super().__init__(least)
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds that `value` says; raises `click.BadParameter`, also for `nan` and `inf`."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not self._least <= seconds <= MOST_SECONDS:  # as it is not for nan
            expected = f"expected seconds from {self._least:g} to {MOST_SECONDS:,.0f}"
            raise click.BadParameter(f"{str(value)!r}: {expected}", ctx, param, _variable(param, ctx))
        return seconds


def _variable(param: click.Parameter | None, ctx: click.Context | None) -> str | None:
    """Return the variable that `param` was taken from, to be named for its option; None where it was not."""
    if ctx is None or param is None or not isinstance(param.envvar, str):
        return None
    return param.envvar if ctx.get_parameter_source(str(param.name)) is ParameterSource.ENVIRONMENT else None
