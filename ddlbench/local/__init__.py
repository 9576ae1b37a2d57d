"""The direct transport: how ranks that share memory run a schedule without messages.

A schedule's tables become, rank by rank, a program of three instructions (`program`), made by `compile` for buffers
that others can read or for pieces that are staged; `races` proves that a program of all ranks has no race and no
deadlock, and `pyx/direct.c` runs it.
"""
