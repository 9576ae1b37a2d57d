"""Programs of the direct transport as a file for tests/direct/stress.c, and the compiled program that reads it."""

import subprocess
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from ddlbench.local.binding import program_for
from ddlbench.local.program import Instruction, Program, tabulate
from ddlbench.local.ways import Layout
from ddlbench.schedule.lower import Schedule

SOURCES = ("tests/direct/stress.c", "pyx/direct.c", "pyx/kernels.c")


def programs_of(schedule: Schedule, layout: Layout, ranks_per_node: Sequence[int] = ()) -> list[Program]:
    """Return the programs of all ranks, which stand node by node; without `ranks_per_node` on one."""
    ends = list(accumulate(ranks_per_node or [schedule.ranks], initial=0))
    nodes = [range(begin, end) for begin, end in pairwise(ends)]
    return [program_for(schedule, layout, rank, node) for node in nodes for rank in node]


def write_image(path: Path, programs: list[Program], layout: Layout) -> Path:
    """Write the programs to `path` and return it."""
    head = [len(programs), layout.count, layout.in_place, programs[0].span, len(programs[0].variants), 0, 0, 0]
    parts = [np.array(head, np.int64).tobytes()]
    parts += [np.array([program.slot_nbytes], np.int64).tobytes() for program in programs]
    for program in programs:
        operands = 0
        for variant in program.variants:
            part, count = _variant(variant, operands)
            parts.append(part)
            operands += count
    path.write_bytes(b"".join(parts))
    return path


def _variant(instructions: tuple[Instruction, ...], first_operand: int) -> tuple[bytes, int]:
    table, operands = tabulate(instructions, first_operand)
    lengths = np.array([len(table), len(operands)], np.int64)
    return lengths.tobytes() + table.tobytes() + np.array(operands, np.int64).tobytes(), len(operands)


def build(repository: Path, target: Path, *flags: str) -> Path:
    """Compile the stress program with gcc and `flags`, and return it."""
    sources = [str(repository / source) for source in SOURCES]
    command = ["gcc", "-std=gnu11", "-O2", "-pthread", f"-I{repository / 'pyx'}", *flags, *sources, "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target
