"""ddlbench: which allreduce a cluster should use, how far that is from the hardware's limit, and how training scales.

The library's public face is `Communicator` and `Plan`. They are loaded when first named, so that `import ddlbench`
starts neither MPI nor CUDA and takes no time.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddlbench.comm import Communicator, Plan

__version__ = "0.1.0"
__all__ = ["Communicator", "Plan", "__version__"]


def __getattr__(name: str) -> object:
    """Load a public name on first use and keep it (PEP 562)."""
    if name not in ("Communicator", "Plan"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ddlbench import comm

    value: object = getattr(comm, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
