"""Programs of the direct transport: race-free and right for every algorithm, and the proof finds what is not."""

import subprocess
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ddlbench import _engine
from ddlbench.algorithms import available, resolve
from ddlbench.dtypes import DTYPES
from ddlbench.errors import ProofError
from ddlbench.local.binding import layout_for
from ddlbench.local.program import (
    ARRIVE,
    INPUT,
    INSTRUCTION,
    OUTPUT,
    POST,
    PUBLISH,
    REDUCE,
    REQUEST,
    SENT,
    SLOT,
    STAGE,
    WAIT,
    Place,
    Program,
    Request,
)
from ddlbench.local.races import prove
from ddlbench.local.ways import Layout
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import Schedule, lower
from ddlbench.schedule.reference import combine, execute
from direct_image import build, programs_of, write_image

GRIDS = ((1,), (2,), (3,), (5,), (2, 3), (4, 2))
NAMES = (*(one.name for one in available()), "multi-ring:2", "parameter-server:2")
SHAPES = [
    (count, segments, registered, in_place)
    for count, segments in ((0, 1), (1, 1), (5, 2), (103, 1), (103, 7))
    for registered, in_place in product((False, True), repeat=2)
]


def schedule_of(text: str, dims: tuple[int, ...]) -> Schedule:
    return lower(resolve(text, Grid(dims)))


@dataclass
class Message:
    """A send or a receive of the machine; `done` once the bytes have moved."""

    rank: int
    request: Request
    done: bool = False


class Machine:
    """Runs the programs of all ranks on numpy memory, in an order of its own choice; messages move when it likes."""

    def __init__(self, programs: list[Program], layout: Layout, seed: int) -> None:
        self.programs, self.layout = programs, layout
        self.random = np.random.default_rng(seed)
        self.memory = {(rank, SLOT): np.zeros(one.slot_nbytes, np.uint8) for rank, one in enumerate(programs)}
        self.memory |= {(rank, STAGE): np.zeros(one.stage_nbytes, np.uint8) for rank, one in enumerate(programs)}
        self.counters = [0] * len(programs)
        self.posted: dict[tuple[int, int, bool], list[Message]] = {}
        """Of two ranks, by sender, receiver and whether it is the sender's side: what was posted, in order."""
        self.messages: dict[tuple[int, int, bool], Message] = {}
        """By rank, index of the request and whether it is a send: the last that was posted."""

    def run(self, inputs: list[np.ndarray], execution: int) -> list[np.ndarray]:
        for rank, values in enumerate(inputs):
            self.memory[rank, INPUT] = values.copy().view(np.uint8)
            fresh = np.full(values.nbytes, 0xA5, np.uint8)
            self.memory[rank, OUTPUT] = self.memory[rank, INPUT] if self.layout.in_place else fresh
        left = [list(one.variant(execution))[::-1] for one in self.programs]
        while any(left):
            order = self.random.permutation(len(left))
            moved = self.random.random() < 0.5 and self.move()
            stepped = [rank for rank in order if left[rank] and self.step(rank, left[rank], execution)]
            assert stepped or moved or self.move(), "nobody can go on"
        return [self.memory[rank, OUTPUT].view(np.float32) for rank in range(len(inputs))]

    def step(self, rank: int, left: list, execution: int) -> bool:
        one, base = left[-1], execution * self.programs[rank].span
        if one.kind == WAIT and self.counters[one.peer] < base + one.value:
            return False
        if one.kind == ARRIVE and not all(self.messages[rank, at, False].done for at in one.receives):
            return False
        if one.kind == SENT and not all(self.messages[rank, at, True].done for at in one.sends):
            return False
        if one.kind == PUBLISH:
            self.counters[rank] = base + one.value
        elif one.kind == POST:
            self.post(rank, one)
        elif one.kind == REDUCE:
            self.reduce(one)
        left.pop()
        return True

    def post(self, rank: int, one) -> None:
        program = self.programs[rank]
        for at in (*one.receives, *(-1 - at for at in one.sends)):
            sending, index = at < 0, max(at, -1 - at)
            request = (program.sends if sending else program.receives)[index]
            message = self.messages[rank, index, sending] = Message(rank, request)
            ends = (rank, request.peer) if sending else (request.peer, rank)
            self.posted.setdefault((*ends, sending), []).append(message)

    def move(self) -> bool:
        """Let one message arrive that both sides have posted, any of them; say whether there was one."""
        ready = [
            (sends[0], receives[0])
            for (sender, receiver, sending), sends in self.posted.items()
            if sending and sends and (receives := self.posted.get((sender, receiver, False)))
        ]
        if not ready:
            return False
        sent, received = ready[self.random.integers(len(ready))]
        assert sent.request.elements == received.request.elements
        self.at(received.request.place, received.request.elements)[:] = self.at(
            sent.request.place, sent.request.elements
        )
        for message, sending in ((sent, True), (received, False)):
            message.done = True
            self.posted[sent.rank, received.rank, sending].pop(0)
        return True

    def reduce(self, one) -> None:
        value = self.at(one.sources[0], one.count).copy()
        for source in one.sources[1:]:
            value = combine(DTYPES["float32"], "sum", value, self.at(source, one.count))
        for target in one.targets:
            self.at(target, one.count)[:] = value

    def at(self, place: Place, count: int) -> np.ndarray:
        return self.memory[place.rank, place.space][place.offset : place.offset + 4 * count].view(np.float32)


def test_python_and_c_agree_on_an_instruction():
    assert INSTRUCTION.itemsize == _engine.INSTRUCTION_SIZE
    assert REQUEST.itemsize == _engine.REQUEST_SIZE


@pytest.mark.parametrize("dims", GRIDS, ids=lambda dims: "x".join(map(str, dims)))
@pytest.mark.parametrize("text", NAMES)
def test_every_algorithm_is_free_of_races_and_gives_the_reference_s_bits(text, dims):
    schedule = schedule_of(text, dims)
    for count, segments, registered, in_place in SHAPES:
        layout = Layout(count, 4, segments, registered, in_place)
        programs = programs_of(schedule, layout)
        assert prove(programs, layout)
        assert_right(schedule, programs, layout, seed=segments)


# Ranks of a grid by node: as it says, uneven, and some on their own.
NODES = {"2x3": ((2, 3), (2, 2, 2)), "3+2": ((5,), (3, 2)), "1+3+1": ((5,), (1, 3, 1))}


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("text", NAMES)
def test_over_several_nodes_every_algorithm_is_free_of_races_and_gives_the_reference_s_bits(text, nodes):
    dims, ranks_per_node = NODES[nodes]
    schedule = schedule_of(text, dims)
    for count, segments, registered, in_place in SHAPES:
        layout = Layout(count, 4, segments, registered, in_place)
        programs = programs_of(schedule, layout, ranks_per_node)
        assert any(one.receives for one in programs) or not count
        assert prove(programs, layout)
        assert_right(schedule, programs, layout, seed=segments)


def assert_right(schedule: Schedule, programs: list[Program], layout: Layout, seed: int) -> None:
    """Run the programs three times over and hold every rank's result against the reference."""
    machine = Machine(programs, layout, seed)
    for execution in range(3):
        draws = [np.random.default_rng((rank, execution)) for rank in range(schedule.ranks)]
        inputs = [draw.standard_normal(layout.count).astype("f4") for draw in draws]
        expected = execute(schedule, inputs, DTYPES["float32"], "sum", layout.segments)
        for found, wanted in zip(machine.run(inputs, execution), expected, strict=True):
            assert found.tobytes() == wanted.tobytes(), (layout, execution)


def without(program: Program, variant: int, at: int) -> Program:
    """Return `program` without one instruction of a variant."""
    variants = [list(one) for one in program.variants]
    del variants[variant][at]
    return replace(program, variants=tuple(map(tuple, variants)))


def spoilt(programs: list[Program], kind: int):
    """Yield the programs with one instruction of a kind left out, each in turn, and which it was."""
    for rank, program in enumerate(programs):
        for variant, instructions in enumerate(program.variants):
            for at, one in enumerate(instructions):
                if one.kind == kind:
                    yield [without(p, variant, at) if r == rank else p for r, p in enumerate(programs)], (rank, at)


BETWEEN = [
    ("recursive-doubling", (2, 2), Layout(9, 4, 1, registered=True, in_place=True)),
    ("ring", (2, 2), Layout(50, 4, 3, registered=False, in_place=False)),
    ("hierarchical", (2, 2), Layout(50, 4, 1, registered=True, in_place=False)),
]


@pytest.mark.parametrize("kind", [POST, ARRIVE, SENT], ids=["post", "arrive", "sent"])
@pytest.mark.parametrize(("text", "dims", "layout"), BETWEEN)
def test_a_program_that_does_not_mind_its_messages_is_refused(text, dims, layout, kind):
    """What is not posted never comes, and nobody may touch what is under way; the end of a program ends nothing."""
    programs = programs_of(schedule_of(text, dims), layout, (2, 2))
    mutants = [(mutant, at) for mutant, (_, at) in spoilt(programs, kind)]
    assert mutants
    for mutant, at in mutants:
        assert _refused(mutant, layout), (kind, at)


CASES = [
    ("recursive-doubling", (2,), Layout(2, 4, 1, registered=False, in_place=False)),
    ("recursive-doubling", (4,), Layout(9, 4, 1, registered=True, in_place=False)),
    ("direct", (2,), Layout(100, 4, 1, registered=True, in_place=True)),
    ("direct", (3,), Layout(100, 4, 9, registered=False, in_place=False)),
    ("ring", (3,), Layout(100, 4, 1, registered=True, in_place=False)),
]


@pytest.mark.parametrize("kind", [PUBLISH, WAIT], ids=["publish", "wait"])
@pytest.mark.parametrize(("text", "dims", "layout"), CASES)
def test_a_program_without_one_of_its_instructions_is_refused_or_right_all_the_same(text, dims, layout, kind):
    """A wait may follow from others, though most do not; and a later publication may say what a missing one would."""
    schedule = schedule_of(text, dims)
    mutants = [mutant for mutant, _ in spoilt(programs_of(schedule, layout), kind)]
    accepted = [mutant for mutant in mutants if not _refused(mutant, layout)]
    assert kind == PUBLISH or len(accepted) <= len(mutants) / 2
    for mutant, seed in product(accepted, range(3)):
        assert_right(schedule, mutant, layout, seed)


def _refused(programs: list[Program], layout: Layout) -> bool:
    try:
        prove(programs, layout)
    except ProofError as error:
        return "race" in str(error) or "deadlock" in str(error)
    return False


def test_a_race_is_told_with_both_sides():
    layout = Layout(4, 4, 1, registered=False, in_place=False)
    programs = programs_of(schedule_of("recursive-doubling", (2,)), layout)
    at = next(i for i, one in enumerate(programs[1].variants[0]) if one.kind == WAIT and one.value == 1)
    with pytest.raises(
        ProofError, match=r"race: rank \d \w+ 16 bytes of the slot of rank 0 .*, and rank \d \w+ 16 bytes"
    ):
        prove([programs[0], without(programs[1], 0, at)], layout)


def test_what_lies_outside_is_refused():
    layout = Layout(4, 4, 1, registered=False, in_place=False)
    programs = programs_of(schedule_of("recursive-doubling", (2,)), layout)
    with pytest.raises(ProofError, match=r"the slot of rank 0 .* it has 8 bytes"):
        prove([replace(programs[0], slot_nbytes=8), programs[1]], layout)


def test_two_ranks_read_and_write_a_large_registered_vector_once():
    layout = layout_for(schedule_of("direct", (2,)), 1, 1 << 20, 4, registered=True, in_place=False)
    (instructions,) = {one.variants[0] for one in programs_of(schedule_of("direct", (2,)), layout)[:1]}
    (reduction,) = [one for one in instructions if one.kind == REDUCE]
    assert reduction.count == 1 << 19
    assert [place.rank for place in reduction.targets] == [0, 1]


def test_a_few_bytes_share_the_counter_s_line():
    layout = layout_for(schedule_of("recursive-doubling", (2,)), 1, 4, 4, registered=False, in_place=False)
    program = programs_of(schedule_of("recursive-doubling", (2,)), layout)[0]
    places = [place for variant in program.variants for one in variant for place in one.targets]
    slots = [place.offset for place in places if place.space == SLOT]
    assert len(set(slots)) == 2
    assert min(slots) >= 8
    assert max(slots) + 16 <= 64


@pytest.fixture(scope="module")
def repository() -> Path:
    return Path(__file__).resolve().parents[2]


STRESS = [
    ("recursive-doubling", (2,), Layout(2, 4, 1, registered=False, in_place=False)),
    ("recursive-doubling", (3,), Layout(5, 4, 1, registered=False, in_place=True)),
    ("direct", (2,), Layout(1000, 4, 1, registered=True, in_place=False, stream=True)),
    ("direct", (3,), Layout(100, 4, 1, registered=True, in_place=True)),
    ("direct", (2,), Layout(300, 4, 8, registered=False, in_place=False)),
    ("ring", (5,), Layout(100, 4, 1, registered=True, in_place=False)),
    ("double-binary-tree", (3,), Layout(100, 4, 5, registered=False, in_place=False)),
]


def run_stress(program: Path, image: Path, executions: int, kind: str) -> str:
    command = [program, image, str(executions), kind, "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_element_is_ever_wrong_between_processes(tmp_path, repository):
    program = build(repository, tmp_path / "stress")
    for at, (text, dims, layout) in enumerate(STRESS):
        image = write_image(tmp_path / str(at), programs_of(schedule_of(text, dims), layout), layout)
        assert "0 wrong" in run_stress(program, image, 10_000, "processes")


def test_thread_sanitizer_finds_no_race(tmp_path, repository):
    try:
        program = build(repository, tmp_path / "stress", "-fsanitize=thread", "-g")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this compiler has no ThreadSanitizer: {error.stderr.strip().splitlines()[-1]}")
    for at, (text, dims, layout) in enumerate(STRESS):
        image = write_image(tmp_path / str(at), programs_of(schedule_of(text, dims), layout), layout)
        assert "0 wrong" in run_stress(program, image, 500, "threads")


def test_thread_sanitizer_finds_a_race_that_is_there(tmp_path, repository):
    try:
        program = build(repository, tmp_path / "stress", "-fsanitize=thread", "-g")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this compiler has no ThreadSanitizer: {error.stderr.strip().splitlines()[-1]}")
    layout = Layout(1000, 4, 1, registered=True, in_place=False)
    programs = programs_of(schedule_of("direct", (2,)), layout)
    at = next(i for i, one in enumerate(programs[1].variants[0]) if one.kind == WAIT)
    image = write_image(tmp_path / "image", [programs[0], without(programs[1], 0, at)], layout)
    command = [program, image, "500", "threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert "data race" in done.stderr
