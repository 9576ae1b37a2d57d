"""`make peers`: MPI_Allreduce of several MPI libraries, gloo and ddlbench's best, measured in turns on one machine.

`python -m ddlbench.peers` sets up an environment for each library, starts each under its own launcher, pass by pass,
and writes one run directory of all of them. It needs a source tree, since ddlbench is compiled for each MPI.
"""
