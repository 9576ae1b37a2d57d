"""A group: ranks that reduce one range of chunks among themselves, as the algorithms see it.

An algorithm is written for positions 0 … size-1 of a group and pieces 0 … pieces-1 of its range. The group turns
positions
into ranks and pieces into chunks, so the same page of code serves a flat allreduce, one dimension of a grid, a lane
with a rank order of its own, or the leaders of nodes.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ddlbench.schedule.grid import Grid
from ddlbench.schedule.move import ADD, KEEP, SEND, Ints, Table, steps


@dataclass(frozen=True)
class Group:
    """The group of each rank of interest; arrays have one element per rank of interest.

    ranks
        the ranks of interest themselves, int (R,)
    position
        where each stands in its group, int (R,), 0 <= position < size
    origin, stride
        the rank at position q is `origin + q*stride`, unless `order` (a permutation, int (size,)) gives it
    chunk
        first chunk of the range the group works on, int (R,)
    pieces, nchunks
        the range is `pieces` pieces of `nchunks` chunks each
    shared
        whether other phases use the same chunks, so that no further lane can own some of them
    """

    size: int
    ranks: Ints
    position: Ints
    origin: Ints
    stride: int
    chunk: Ints
    pieces: int
    nchunks: int
    lane: int = 0
    order: Ints | None = None
    shared: bool = False

    @classmethod
    def world(cls, ranks: npt.ArrayLike, size: int, chunks: int, *, first_chunk: int = 0, lane: int = 0) -> "Group":
        """Return the group of all `size` ranks, for the ranks of interest, over `chunks` chunks in as many pieces."""
        me = np.asarray(ranks, dtype=np.int64)
        zero = np.zeros_like(me)
        return cls(size, me, me, zero, 1, zero + first_chunk, chunks, 1, lane)

    def ordered(self, order: Ints) -> "Group":
        """Return the group with its members in another `order`: the rank at position q is `order[q]`."""
        where = np.empty_like(order)
        where[order] = np.arange(len(order))
        return replace(self, position=where[self.ranks], order=order)

    def in_pieces(self, pieces: int) -> "Group":
        """Return the group with its range cut into `pieces` pieces; the range must divide."""
        total = self.pieces * self.nchunks
        if total % pieces:
            raise ValueError(f"{total} chunks do not divide into {pieces} pieces")
        return replace(self, pieces=pieces, nchunks=total // pieces)

    def along(self, grid: Grid, dimension: int, chunk: Ints, nchunks: int) -> "Group":
        """Return the groups along one dimension of `grid`, working on `nchunks` chunks from `chunk` on."""
        size, stride = grid.dims[dimension], grid.stride(dimension)
        position = self.ranks // stride % size
        origin = self.ranks - position * stride
        return Group(size, self.ranks, position, origin, stride, chunk, nchunks, 1, self.lane, shared=True)

    def next_lane(self) -> "Group":
        """Return the group on a lane of its own, where its chunks are not shared with other phases."""
        return self if self.shared else replace(self, lane=self.lane + 1)

    def only(self, mask: npt.NDArray[np.bool_]) -> "Group":
        """Return the group for those ranks of interest that `mask` selects."""
        picked = {name: getattr(self, name)[mask] for name in ("ranks", "position", "origin", "chunk")}
        return replace(self, **picked)

    def member(self, position: npt.ArrayLike) -> Ints:
        """Return the rank at each `position` (broadcast against the ranks of interest)."""
        where = np.asarray(position)
        ranks: Ints = self.origin + where * self.stride if self.order is None else self.order[where]
        return ranks

    def send(
        self, step: npt.ArrayLike, to: npt.ArrayLike, piece: npt.ArrayLike, pieces: npt.ArrayLike = 1, *,
        where: npt.ArrayLike = True,
    ) -> Table:  # fmt: skip
        """In round `step`, send `pieces` pieces from `piece` on to position `to`."""
        return self._steps(SEND, step, to, piece, pieces, where)

    def keep(
        self, step: npt.ArrayLike, source: npt.ArrayLike, piece: npt.ArrayLike, pieces: npt.ArrayLike = 1, *,
        where: npt.ArrayLike = True,
    ) -> Table:  # fmt: skip
        """In round `step`, store the pieces that position `source` sends."""
        return self._steps(KEEP, step, source, piece, pieces, where)

    def add(
        self, step: npt.ArrayLike, source: npt.ArrayLike, piece: npt.ArrayLike, pieces: npt.ArrayLike = 1, *,
        where: npt.ArrayLike = True,
    ) -> Table:  # fmt: skip
        """In round `step`, reduce the pieces that position `source` sends into one's own."""
        return self._steps(ADD, step, source, piece, pieces, where)

    def _steps(
        self, kind: int, step: npt.ArrayLike, other: npt.ArrayLike, piece: npt.ArrayLike, pieces: npt.ArrayLike,
        where: npt.ArrayLike,
    ) -> Table:  # fmt: skip
        # A masked-out position may be out of range (-1 for "no child"); clip it, the mask drops the step.
        peer = self.member(np.clip(other, 0, self.size - 1))
        chunk = self.chunk + np.asarray(piece) * self.nchunks
        return steps(
            kind, step, self.ranks, peer, chunk, np.asarray(pieces) * self.nchunks, lane=self.lane, where=where
        )
