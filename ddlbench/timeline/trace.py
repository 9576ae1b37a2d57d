"""A course as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: JSON, in the Trace Event Format.

A process is a node and a thread a rank: its ticks are slices, arrows lead from the tick that sent a message to the tick
that took it. Below them each rank has further threads for its messages under way, as many as there are at once.
Times are in microseconds.
"""

import json
from collections.abc import Iterator
from typing import Any

from ddlbench.timeline.course import Course, Message, Span

Event = dict[str, Any]
APART = 1_000_000
"""Threads for messages have numbers from here on, so that ranks keep theirs."""
MOST_AT_ONCE = 1000


def trace(course: Course) -> str:
    """Return the trace as JSON."""
    events = [*_names(course), *_ticks(course), *_arrows(course), *_flights(course)]
    about = {
        "algorithm": course.name,
        "machine": course.machine,
        "nbytes": course.nbytes,
        "segments": course.segments,
        "kind": "predicted",
        "microseconds": _micro(course.seconds),
    }
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}, separators=(",", ":"))


def lanes(messages: list[Message]) -> list[tuple[int, Message]]:
    """Return each message with the first lane that is free when it leaves: those of one lane do not overlap."""
    found, free = [], [0.0]
    for message in sorted(messages, key=lambda one: (one.left, one.arrived)):
        lane = next((at for at, when in enumerate(free) if when <= message.left), len(free))
        free[lane : lane + 1] = [message.arrived]
        found.append((lane, message))
    return found


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 4)


def _node(course: Course, rank: int) -> int:
    return rank // course.placement.ranks_per_node


def _names(course: Course) -> Iterator[Event]:
    for node in range(course.placement.nodes):
        yield {"ph": "M", "name": "process_name", "pid": node, "tid": 0, "args": {"name": f"node {node}"}}
    for rank in range(course.placement.ranks):
        at = {"pid": _node(course, rank), "tid": rank}
        yield {"ph": "M", "name": "thread_name", **at, "args": {"name": f"rank {rank}"}}
        yield {"ph": "M", "name": "thread_sort_index", **at, "args": {"sort_index": rank * MOST_AT_ONCE}}


def _ticks(course: Course) -> Iterator[Event]:
    for span in course.spans:
        yield {
            "ph": "X",
            "name": _title(span, course.segments),
            "cat": "tick",
            "pid": _node(course, span.rank),
            "tid": span.rank,
            "ts": _micro(span.begun),
            "dur": _micro(span.ended - span.begun),
        }


def _title(span: Span, segments: int) -> str:
    if segments == 1:
        return f"round {span.at[0][1]}"
    return f"tick {span.tick}: " + ", ".join(f"round {round_} of segment {segment}" for segment, round_ in span.at)


def _arrows(course: Course) -> Iterator[Event]:
    """Yield the two ends of each message's arrow, each within the tick of its rank."""
    for number, message in enumerate(course.messages):
        both = {"cat": "message", "name": "message", "id": number}
        yield {**both, "ph": "s", "ts": _micro(message.left), **_place(course, message.source)}
        yield {**both, "ph": "f", "bp": "e", "ts": _micro(message.arrived), **_place(course, message.target)}


def _place(course: Course, rank: int) -> Event:
    return {"pid": _node(course, rank), "tid": rank}


def _flights(course: Course) -> Iterator[Event]:
    """Yield the messages under way, by their receivers."""
    by_rank: dict[int, list[Message]] = {}
    for message in course.messages:
        by_rank.setdefault(message.target, []).append(message)
    for rank, messages in sorted(by_rank.items()):
        placed = lanes(messages)
        for lane in range(max(lane for lane, _ in placed) + 1):
            at = {"pid": _node(course, rank), "tid": APART + rank * MOST_AT_ONCE + lane}
            yield {"ph": "M", "name": "thread_name", **at, "args": {"name": f"to rank {rank}"}}
            order = rank * MOST_AT_ONCE + 1 + lane
            yield {"ph": "M", "name": "thread_sort_index", **at, "args": {"sort_index": order}}
        for lane, message in placed:
            yield {
                "ph": "X",
                "name": f"{'add' if message.adds else 'keep'} chunk {message.chunk} from rank {message.source}",
                "cat": "message",
                "pid": _node(course, rank),
                "tid": APART + rank * MOST_AT_ONCE + lane,
                "ts": _micro(message.left),
                "dur": _micro(message.arrived - message.left),
                "args": _told(message),
            }


def _told(message: Message) -> dict[str, Any]:
    names = ("source", "target", "segment", "round", "chunk", "nchunks", "link")
    return {name: getattr(message, name) for name in names} | {"nbytes": round(message.nbytes)}
