"""The file of the pairs: what each link was found to do, what is slow, and the times that it rests on. JSON.

version 1    the first
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from ddlbench.errors import UsageError
from ddlbench.links.fit import typical
from ddlbench.links.judge import FACTORS, LIMIT, Measured, Slow
from ddlbench.links.survey import Survey

FORMAT, VERSION = "ddlbench-links", 1


def to_data(survey: Survey, pairs: Sequence[Measured], slow: Sequence[Slow], created: str) -> dict[str, Any]:
    """Return the JSON value: pairs with figures and median times, what is slow, and the rule that named it."""
    topology = survey.places.topology
    return {
        "format": FORMAT,
        "version": VERSION,
        "created": created,
        "hosts": list(topology.hosts),
        "node_of": list(topology.node_of),
        "rule": {"score": LIMIT, **{f"{what}_factor": factor for what, factor in FACTORS.items()}},
        "pairs": [asdict(pair) | {"times": _times(survey, pair)} for pair in pairs],
        "slow": [_slow(found) for found in slow],
    }


def _times(survey: Survey, pair: Measured) -> list[dict[str, Any]]:
    curve = survey.pings[pair.ranks]
    return [
        {"nbytes": int(x), "quartile_us": typical(times) * 1e6, "median_us": median(times) * 1e6, "samples": len(times)}
        for x, times in zip(curve.x, curve.samples, strict=True)
    ]


def _slow(found: Slow) -> dict[str, Any]:
    named = {"node": found.node} if found.pair is None else {"ranks": list(found.pair.ranks)}
    return named | {"what": found.what, "factor": found.factor, "score": found.score}


def dumps(data: dict[str, Any]) -> str:
    """Return the value as the text of the file."""
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def read(path: Path) -> dict[str, Any]:
    """Return what `path` holds; raises `UsageError` when it is not such a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"links {str(path)!r}: {error}") from None
    if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
        raise UsageError(f"links {str(path)!r}: expected format {FORMAT!r}, version {VERSION}")
    return data
