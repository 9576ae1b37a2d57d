"""The least that an allreduce in shared memory must do: the bytes moved, and nothing else.

Of n bytes on p ranks, each rank must read its part of every input, p · n/p bytes together, and its part of the result
must come to every output, p · n/p bytes again: as many as it reads and writes to copy n bytes. Reduction is done while
memory is waited for. So no allreduce of vectors that do not stay in a cache is faster than all ranks copying n bytes
at once, each from its part of all inputs to its part of all outputs, by plain stores or past the caches, whichever is
faster.
"""

from collections.abc import Iterator

from ddlbench.local.program import INPUT, OUTPUT, PUBLISH, REDUCE, WAIT, Instruction, Place, Program


def floor_program(ranks: int, rank: int, count: int, itemsize: int, *, stream: bool) -> Program:
    """Return the program of `rank` that copies its part of every input to every output, once all have begun."""
    first, last = count * rank // ranks, count * (rank + 1) // ranks
    others = [(rank + step) % ranks for step in range(1, ranks)]

    def copies() -> Iterator[Instruction]:
        for peer in (rank, *others):
            source, target = (Place(peer, space, first * itemsize) for space in (INPUT, OUTPUT))
            yield Instruction(REDUCE, -1, 0, (source,), (target,), last - first, int(stream))

    def waits(value: int) -> list[Instruction]:
        return [Instruction(WAIT, peer=peer, value=value) for peer in others]

    body = (Instruction(PUBLISH, value=1), *waits(1), *copies(), Instruction(PUBLISH, value=2), *waits(2))
    return Program((body,), span=2, slot_nbytes=8)
