"""A run: the file `run.json`.

History of the format
    1   the first: command, config, environment, MPI, topology, probed links, trust flags, proofs, finished or not.
    2   the clock: how the ranks' clocks were brought together, and how well.
    3   the fault: what ended a run early, and where each rank stood then.
    4   huge pages: whether memory was asked to lie in them, and how much of it did.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ddlbench.errors import UsageError
from ddlbench.records.fields import read_fields, read_object, read_version, with_added

FORMAT = "ddlbench-run"
VERSION = 4
ADDED: Mapping[int, Mapping[str, Any]] = {2: {"clock": None}, 3: {"fault": None}, 4: {"huge_pages": None}}
"""From a version of the format to the fields it added, with what stands for them in a run of an older version."""


@dataclass(frozen=True)
class TrustFlag:
    """A reason to doubt a run's figures: a short name ("oversubscribed") and what was seen ("4 ranks on 2 cores")."""

    flag: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """What was run, on what, and whether its figures can be trusted.

    `ddlbench` is the version of the program, `created` the start in UTC (ISO 8601), `command` the words of the command
    line. `config`, `environment`, `mpi`, `topology`, `links` and `clock` (None when not probed), `huge_pages` (None
    when nobody asked for them), `proofs` and `fault` (None when there was none that could be told) are JSON objects of
    the parts that own them. `finished` says that the sweep came to its end.
    """

    ddlbench: str
    created: str
    command: tuple[str, ...]
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    mpi: Mapping[str, Any]
    topology: Mapping[str, Any]
    links: Mapping[str, Any] | None = None
    clock: Mapping[str, Any] | None = None
    huge_pages: Mapping[str, Any] | None = None
    trust: tuple[TrustFlag, ...] = ()
    proofs: tuple[Mapping[str, Any], ...] = ()
    fault: Mapping[str, Any] | None = None
    finished: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the run as the JSON object of `run.json`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        trust = [asdict(flag) for flag in self.trust]
        lists = {"command": list(self.command), "trust": trust, "proofs": list(self.proofs)}
        return {"format": FORMAT, "version": VERSION, **values, **lists}

    @classmethod
    def from_json(cls, data: Any, where: str = "run.json") -> "Run":
        """Return the run that the JSON object `data` holds; `where` names the file in messages.

        Raises `UsageError` when it is no run of ddlbench, is of a newer version, or has a field that is unknown,
        missing or wrong; the message names it.
        """
        run = read_object(data, where)
        if run.get("format") != FORMAT:
            raise UsageError(f"{where}: format is {run.get('format')!r}, expected {FORMAT!r}: not a run of ddlbench")
        read_version(run, VERSION, where)
        run = with_added(run, ADDED)
        return cls(**read_fields(cls, run, where, besides=("format", "version")))
