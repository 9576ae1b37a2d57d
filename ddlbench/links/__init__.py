"""The links of a launch: measured pair by pair, fitted, the slow ones named. `docs/fitting.md` derives each figure.

Here `pairs` says who is linked with whom by what, `timing` times messages of a few ranks, `survey` all of a launch,
`fit` draws lines through times, `judge` finds what is slow, `machine` makes a topology of it, `record` is the file of
the pairs and `heat` their picture.
"""
