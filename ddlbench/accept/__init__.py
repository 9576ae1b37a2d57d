"""Is this cluster as it should be, and which node spoils it? `docs/acceptance.md` says by which rules.

Here `rules` says what is demanded, `alone` lets a rank work by itself, `vigil` sends small messages for seconds on end,
`examine` measures both, pairs and groups over a launch, `expect` knows what figures should be, `judge` says by name
what is too slow, `growing` doubles groups of good nodes and finds who spoils one, `course` goes through all of it,
and `record`, `tables`, `junit` and `page` make the files.
"""
