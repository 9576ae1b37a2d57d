"""Lists of numbers as people write them: `1,2,4`, `1..64`, `1,2,4,…,64`."""

import re
from collections.abc import Iterator

from ddlbench.errors import UsageError

MOST = 4096
"""More numbers than this in one list are taken for a slip of the keyboard."""
GO_ON = ("…", "...")
EXPECTED = "expected numbers such as 1,2,4, a range such as 1..64, or a progression such as 1,2,4,…,64"


def counts(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers that `text` says, each once; raises `UsageError` naming the `option` and the text.

    `1..64` is every number from 1 to 64. The sign … (or three dots) goes on as the three numbers before it do, by a
    factor or by a step, up to the number behind it.
    """
    try:
        found = tuple(dict.fromkeys(_numbers(text)))
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}") from None
    if len(found) > MOST:
        raise UsageError(f"{option} {text!r}: {len(found)} numbers, expected at most {MOST}")
    return found


def _numbers(text: str) -> Iterator[int]:
    before: list[int] = []
    words = [word.strip() for word in text.split(",")]
    for at, word in enumerate(words):
        if word in GO_ON:
            part = _progression(before, _number(words[at + 1]) if at + 1 < len(words) else None)
        elif found := re.fullmatch(r"([0-9]{1,9})\.\.([0-9]{1,9})", word):
            part = _range(int(found[1]), int(found[2]))
        else:
            part = [_number(word)]
        yield from part
        before += part


def _number(word: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", word) or int(word) < 1:
        raise ValueError(EXPECTED)
    return int(word)


def _range(first: int, last: int) -> list[int]:
    if not 1 <= first <= last < first + MOST:
        raise ValueError(f"{first}..{last} is no range of at most {MOST} numbers from 1 on")
    return [*range(first, last + 1)]


def _progression(before: list[int], last: int | None) -> list[int]:
    """Return the numbers that go on as the last three of `before` do, below `last`."""
    if len(before) < 3 or last is None or last <= before[-1]:
        raise ValueError("… goes on as the three numbers before it do, up to a greater one behind it: 1,2,4,…,64")
    a, b, c = before[-3:]
    factor = b * b == a * c and b > a
    if not factor and not b - a == c - b > 0:
        raise ValueError(f"{a},{b},{c} grow neither by a factor nor by a step, so … says nothing")
    found: list[int] = []
    while (c := c * b // a if factor else c + b - a) < last and len(found) < MOST:
        found.append(c)
    return found
