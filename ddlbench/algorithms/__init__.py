"""The allreduce algorithms: one file each, and the table of their names."""

from ddlbench.algorithms.naming import available, explore, resolve

__all__ = ["available", "explore", "resolve"]
