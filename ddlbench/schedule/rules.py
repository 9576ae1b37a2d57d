"""What every step must keep to, lowered or not, and how a schedule is refused: by round, rank and move."""

from typing import NoReturn

import numpy as np

from ddlbench.errors import ProofError
from ddlbench.schedule.move import COPY, SEND, Ints, Table


def check_ranges(table: Table, ranks: int, chunks: int, rounds: int) -> None:
    """Refuse steps that are on no rank, in no round or of no chunk there is; raises `ProofError` naming the first."""
    if chunks < 1:
        raise ProofError(f"the schedule has {chunks} chunks; expected at least 1")
    last = table["chunk"].astype("i8") + table["nchunks"]
    copy = table["kind"] == COPY
    rules = (
        ((table["kind"] > COPY), "is of no known kind"),
        ((table["rank"] < 0) | (table["rank"] >= ranks), f"is on a rank outside 0 … {ranks - 1}"),
        ((table["peer"] < 0) | (table["peer"] >= ranks), f"has a peer outside 0 … {ranks - 1}"),
        ((table["peer"] == table["rank"]) & ~copy, "goes to the rank itself"),
        ((table["peer"] != table["rank"]) & copy, "is local, but names another rank"),
        ((table["chunk"] < 0) | (table["nchunks"] < 1) | (last > chunks), f"leaves the {chunks} chunks"),
        ((table["round"] < 0) | (table["round"] >= max(1, rounds)), f"is outside the {rounds} rounds"),
        ((table["lane"] < 0), "has a negative lane"),
    )
    for wrong, why in rules:
        if wrong.any():
            refuse(table, int(wrong.argmax()), why)


def describe(step: np.void) -> str:
    """Return a step of a table in words: what it does with which chunks."""
    known = step["kind"] <= COPY
    kind = ("send of", "store of", "add of", "copy of")[step["kind"]] if known else f"kind {step['kind']} of"
    many = f"chunk {step['chunk']}" if step["nchunks"] == 1 else f"chunks {step['chunk']}+{step['nchunks']}"
    return f"{kind} {many}"


def refuse(table: Table, row: int | Ints, why: str) -> NoReturn:
    """Raise `ProofError` about the step in `row`; `why` finishes the sentence."""
    step = table[int(row)]
    way = {SEND: f" to rank {step['peer']}", COPY: ""}.get(int(step["kind"]), f" from rank {step['peer']}")
    raise ProofError(f"round {step['round']}, rank {step['rank']}: {describe(step)}{way} {why}")
