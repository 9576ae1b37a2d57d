"""Topology files: TOML in which every figure stands with its source.

    format = "ddlbench-topology"
    version = 1
    name = "minsky"
    summary = "…"
    device = "Tesla P100"                     optional: what computes, as the table of compute times calls it

    [nic]
    latency = { value = "1.5 us", source = "estimate: …" }
    bandwidth = { value = "100 Gbit/s", source = "…", low = "96 Gbit/s", high = "101 Gbit/s" }

An unknown field is refused by name, and so is a missing one; `docs/prediction.md` lists them.
"""

import difflib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from ddlbench.cost.machine import SECTIONS, Figure, Machine, unit_of, whole
from ddlbench.cost.quantity import Unit
from ddlbench.errors import UsageError, unknown

FORMAT = "ddlbench-topology"
VERSION = 1
SHIPPED = Path(__file__).parents[2] / "configs" / "topologies"
"""Where the topologies of a source tree lie. An editable install finds them; a wheel does not carry them."""

HEAD = {"format": True, "version": True, "name": True, "summary": True, "device": False}
FIGURE = {"value": True, "source": True, "low": False, "high": False}
"""Fields, and whether they must be there."""


def find(text: str) -> Path:
    """Return the file of the topology `text`: a path that ends in .toml, or the name of a shipped one.

    Raises `UsageError`, with the nearest right spelling.
    """
    if text.endswith(".toml"):
        return Path(text)
    path = SHIPPED / f"{text}.toml"
    if path.is_file():
        return path
    if not SHIPPED.is_dir():
        raise UsageError(f"topology {text!r}: only a source tree has topologies by name; give the path of a TOML file")
    raise unknown("topology", text, sorted(file.stem for file in SHIPPED.glob("*.toml")))


def read(path: Path) -> Machine:
    """Return the machine that the file `path` describes; raises `UsageError` naming the field that is wrong."""
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"topology {str(path)!r}: {error.strerror}{_nearest(path)}") from None
    except (ValueError, RecursionError) as error:  # no TOML, no text, a number of thousands of digits
        raise UsageError(f"topology {str(path)!r} is not TOML: {error}") from None
    try:
        return from_data(data)
    except (UsageError, ValueError) as error:  # ValueError: a number that is too long to be shown
        raise UsageError(f"topology {str(path)!r}: {error}") from None


def _nearest(path: Path) -> str:
    siblings = [file.name for file in path.parent.glob("*.toml")] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, siblings, n=1)
    return f"; did you mean {str(path.parent / near[0])!r}?" if near else ""


def from_data(data: Mapping[str, Any]) -> Machine:
    """Return the machine that the TOML (or JSON) value `data` describes; raises `UsageError` naming the field."""
    _check_names(data, HEAD | dict.fromkeys(SECTIONS, False) | {"shape": True, "rank": True}, "")
    if data["format"] != FORMAT:
        raise UsageError(f"format is {data['format']!r}, expected {FORMAT!r}: not a topology of ddlbench")
    if data["version"] != VERSION:
        raise UsageError(f"version is {data['version']!r}; this ddlbench reads version {VERSION}")
    given: dict[str, Any] = {name: _text(data[name], name) for name in ("name", "summary", "device") if name in data}
    given |= {name: _section(part, data[name], name) for name, part in SECTIONS.items() if name in data}
    return Machine(**given)


def _check_names(data: Mapping[str, Any], names: Mapping[str, bool], where: str) -> None:
    """Refuse a field that is none of `names`, and one that must be there and is not."""
    for name in data:
        if name not in names:
            raise unknown(f"field of the topology{f', [{where}]' if where else ''}", name, names)
    for name, needed in names.items():
        if needed and name not in data:
            raise UsageError(f"the {'field' if where else 'field or section'} {_within(where, name)} is missing")


def _within(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{name} is {value!r}, expected a text")
    return value


def _section(part: type, data: object, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise UsageError(f"{where} is {data!r}, expected a section [{where}]")
    _check_names(data, {one.name: one.default is MISSING for one in fields(part)}, where)
    return part(**{name: _figure(value, f"{where}.{name}") for name, value in data.items()})


def _figure(data: object, name: str) -> Figure:
    if not isinstance(data, Mapping):
        raise UsageError(f'{name} is {data!r}, expected {{ value = …, source = "…" }}')
    _check_names(data, FIGURE, name)
    unit = unit_of(name)
    numbers = {key: _number(data[key], unit, _within(name, key)) for key in ("value", "low", "high") if key in data}
    figure = Figure(source=_text(data["source"], f"{name}.source"), **numbers)
    if not (figure.low or 0) <= figure.value <= (figure.value if figure.high is None else figure.high):
        raise UsageError(f"{name}: the value does not lie between low and high")
    return figure


def _number(value: object, unit: Unit | None, name: str) -> float:
    try:
        return whole(value) if unit is None else unit.parse(value)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def to_data(machine: Machine) -> dict[str, Any]:
    """Return the machine as the JSON value that `from_data` reads."""
    head = {"format": FORMAT, "version": VERSION, "name": machine.name, "summary": machine.summary}
    if machine.device:
        head["device"] = machine.device
    parts = {name: getattr(machine, name) for name in SECTIONS}
    return head | {name: _section_data(part) for name, part in parts.items() if part is not None}


def _section_data(part: Any) -> dict[str, Any]:
    given = ((one, getattr(part, one.name)) for one in fields(part))
    return {one.name: _figure_data(figure, one) for one, figure in given if figure is not None}


def _figure_data(figure: Figure, of: "Field[Any]") -> dict[str, Any]:
    unit: Unit | None = of.metadata["unit"]
    named = (("value", figure.value), ("low", figure.low), ("high", figure.high))
    numbers = {name: int(n) if unit is None else unit.written(n) for name, n in named if n is not None}
    return {"value": numbers.pop("value"), "source": figure.source, **numbers}


def dumps(machine: Machine) -> str:
    """Return the machine as the text of a topology file."""
    return "\n".join(_lines(to_data(machine))) + "\n"


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines: JSON's texts and numbers are TOML's as well."""
    for name, value in data.items():
        if not isinstance(value, Mapping):
            yield f"{name} = {json.dumps(value, ensure_ascii=False)}"
    for name, section in data.items():
        if isinstance(section, Mapping):
            yield f"\n[{name}]"
            for key, figure in section.items():
                parts = ", ".join(f"{part} = {json.dumps(value, ensure_ascii=False)}" for part, value in figure.items())
                yield f"{key} = {{ {parts} }}"
