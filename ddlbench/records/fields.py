"""Strict reading of JSON objects into frozen dataclasses: an unknown, missing or mistyped field is refused by name.

The annotation of a dataclass field says what its JSON value must be: a choice (`Literal`), one of `READERS`, a further
dataclass or None, or a tuple of further dataclasses.
"""

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ddlbench.errors import UsageError, unknown

LIMIT = 2**63
"""Whole numbers stay below this: they are held in int64 columns."""


class MismatchError(ValueError):
    """A JSON value is not what its field holds; the text says what was expected."""


class NewerVersionError(UsageError):
    """A record is of a version of its format that this ddlbench does not know yet."""


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < LIMIT:
        raise MismatchError("a whole number from 0 to 2^63 - 1")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MismatchError("a text")
    return _printable(value)


def _printable(text: str) -> str:
    """Return `text` with half characters, as undecodable bytes of a command line leave them, written as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise MismatchError("true or false")
    return value


def _number(value: Any, expected: str = "a number from 0 on") -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise MismatchError(expected)
    return float(value)


def _number_or_null(value: Any) -> float | None:
    return None if value is None else _number(value, "a number from 0 on, or null")


def _whole_or_null(value: Any) -> int | None:
    return None if value is None else _whole(value)


def _list(value: Any, of: type | UnionType, expected: str) -> list[Any]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, of) for item in value):
        raise MismatchError(expected)
    return list(value)


def _wholes(value: Any) -> tuple[int, ...]:
    items = _list(value, int, "a list of whole numbers")
    if items and (set(map(type, items)) != {int} or min(items) < 0 or max(items) >= LIMIT):
        raise MismatchError("a list of whole numbers from 0 to 2^63 - 1")
    return tuple(items)


def _tables_or_null(value: Any) -> tuple[tuple[int, ...], ...] | None:
    return None if value is None else tuple(map(_wholes, _list(value, list | tuple, "a list of lists, or null")))


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_printable, _list(value, str, "a list of texts")))


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MismatchError("an object")
    return value


def _object_or_null(value: Any) -> Mapping[str, Any] | None:
    return None if value is None else _object(value)


def _objects(value: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(_list(value, Mapping, "a list of objects"))


READERS: dict[Any, Callable[[Any], Any]] = {
    int: _whole,
    str: _text,
    bool: _truth,
    float: _number,
    float | None: _number_or_null,
    int | None: _whole_or_null,
    tuple[int, ...]: _wholes,
    tuple[tuple[int, ...], ...] | None: _tables_or_null,
    tuple[str, ...]: _texts,
    Mapping[str, Any]: _object,
    Mapping[str, Any] | None: _object_or_null,
    tuple[Mapping[str, Any], ...]: _objects,
}


@lru_cache
def _kinds(cls: type) -> dict[str, Any]:
    """Return the annotation of each field of the dataclass `cls`, in order."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _read(name: str, value: Any, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise unknown(name, value, get_args(kind))
        return value
    if kind in READERS:
        return READERS[kind](value)
    record = get_args(kind)[0]
    if get_origin(kind) is UnionType:
        entry = _object_or_null(value)
        return None if entry is None else record(**read_fields(record, entry, name))
    return tuple(record(**read_fields(record, entry, name)) for entry in _objects(value))


def read_field(name: str, value: Any, kind: Any, where: str) -> Any:
    """Return the JSON `value` of the field `name` as its annotation `kind` wants it; raises `UsageError`."""
    try:
        return _read(name, value, kind)
    except MismatchError as mismatch:
        raise UsageError(f"{where}: {name} is {reprlib.repr(value)}, expected {mismatch}") from None
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def read_object(data: Any, where: str) -> Mapping[str, Any]:
    """Return `data` when it is a JSON object; raises `UsageError`."""
    if not isinstance(data, Mapping):
        raise UsageError(f"{where}: expected an object, found {reprlib.repr(data)}")
    return data


def read_names(data: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    """Refuse a field of `data` that is not one of `names`, and a name that `data` lacks; raises `UsageError`."""
    for name in data:
        if name not in names:
            raise UsageError(f"{where}: {unknown('field', name, names)}")
    for name in names:
        if name not in data:
            raise UsageError(f"{where}: the field {name!r} is missing")


def read_version(data: Mapping[str, Any], newest: int, where: str) -> None:
    """Refuse a format version above `newest`, by name, before anything else is looked at; raises `UsageError`."""
    if "version" not in data:
        raise UsageError(f"{where}: the field 'version' is missing")
    version = read_field("version", data["version"], int, where)
    if version > newest:
        raise NewerVersionError(
            f"{where}: format version {version} is newer than this ddlbench reads (up to {newest}); update ddlbench"
        )
    if version < 1:
        raise UsageError(f"{where}: version is {version}, expected 1 to {newest}")


def with_added(data: Mapping[str, Any], added: Mapping[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return `data`, whose version was read, with what stands for the fields that later versions `added`."""
    later = [names for version, names in added.items() if data["version"] < version]
    return {**{name: value for names in later for name, value in names.items()}, **data}


def read_fields(cls: type, data: Mapping[str, Any], where: str, *, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the keyword arguments of the dataclass `cls` that the JSON object `data` holds.

    `where` names the file (and line) in messages. `besides` are fields of the format that are none of the dataclass,
    such as its version. Raises `UsageError` for a field that is unknown, missing or not what its annotation says.
    """
    kinds = _kinds(cls)
    read_names(data, (*besides, *kinds), where)
    return {name: read_field(name, data[name], kind, where) for name, kind in kinds.items()}
