"""An iteration of data-parallel training: buckets of gradients that are reduced while the rest is still computed.

    computation     forward ─────────► backward ────────────────────►
    gradients                          ▲ bucket 0    ▲ bucket 1      ▲ bucket 2
    communication                      └─────────►   └───────────►   └────────►
                                                                     ├ exposed ┤

Gradients become ready in the order of back-propagation, the last layer's first. One bucket is reduced at a time, when
its last gradient is ready and the bucket before is done. What communication lasts beyond computation is *exposed*.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ddlbench.training.compute import Compute

Ready = Literal["even", "size"]
"""How the backward pass spreads over the tensors: the same time for each, or in proportion to their elements."""


@dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together: their bytes, and at what share of the backward pass the last is ready."""

    nbytes: int
    ready: float


@dataclass(frozen=True)
class Iteration:
    """What an iteration comes to, in seconds: the whole, all communication, and the part of it that is exposed."""

    seconds: float
    communication_s: float
    exposed_s: float


def buckets(numels: Sequence[int], gathered: Sequence[int], itemsize: int, ready: Ready = "even") -> list[Bucket]:
    """Return the buckets of a model whose tensors of `numels` elements are gathered, in order, into `gathered` ones."""
    filled = np.cumsum(gathered)
    total = np.cumsum(numels)
    last = np.searchsorted(total, filled)
    share = (last + 1) / len(numels) if ready == "even" else filled / total[-1]
    return [Bucket(int(n) * itemsize, float(at)) for n, at in zip(gathered, share, strict=True)]


def iterate(
    parts: Sequence[Bucket], compute: Compute, seconds: Callable[[int], float], *, overlap: bool = True
) -> Iteration:
    """Return what an iteration comes to, `seconds(nbytes)` being the time of an allreduce.

    Without `overlap`, communication begins when the backward pass is done.
    """
    done, spent = compute.forward_s, 0.0
    for part in parts:
        ready = compute.forward_s + compute.backward_s * (part.ready if overlap else 1.0)
        taken = seconds(part.nbytes)
        done, spent = max(done, ready) + taken, spent + taken
    whole = max(done, compute.seconds)
    return Iteration(whole, spent, whole - compute.seconds)
