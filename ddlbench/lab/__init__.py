"""A virtual cluster on one machine: hosts in network namespaces, real TCP between them at a rate of choice.

`spec` says what it looks like, `network` which commands make it, `start` runs it from outside, `inside` is its first
process, and `control` reaches one that runs. Whatever it makes belongs to that first process and ends with it.
"""
