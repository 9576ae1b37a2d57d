"""A page of the docs as something to follow: its code blocks, and the commands in them with what they print."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """A line after `$ ` of a console block, and the output below it."""

    line: str
    output: str


def blocks(page: Path, language: str) -> list[str]:
    """Return the texts of the page's blocks in `language`, in order."""
    found = re.findall(r"^( *)```(\w+)\n(.*?)^\1```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for _, of, text in found if of == language]


def commands(page: Path) -> Iterator[Command]:
    """Yield the commands of the page's console blocks, in order."""
    for text in blocks(page, "console"):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            yield Command(line, output)


def timeless(output: str) -> str:
    """Return output with times left out and no space at the ends of lines."""
    return re.sub(r"[0-9.]+ s$", "T s", re.sub(r" +$", "", output, flags=re.MULTILINE), flags=re.MULTILINE)
