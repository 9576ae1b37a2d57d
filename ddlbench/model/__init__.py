"""Predictions held against measurements on a virtual cluster, with links fitted there: `make bench-model`.

Here `launches` fits and measures, `pairing` sets what was predicted beside what was measured, `tables` says how far
they are apart, and `writing` stores it. Nothing here corrects a figure.
"""
