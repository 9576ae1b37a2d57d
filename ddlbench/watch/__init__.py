"""Faults of a running job: a rank that stops, dies or waits for ever is found out, named, and ends the run.

    board      what this rank does, kept by the program and read by a thread beside it
    roll       what the leading ranks know of all: who was heard, where each stands, whether anything moves
    fault      what is told of it, as lines and as JSON
    channel    connections between the ranks that are none of MPI's
    watchdog   the thread that puts these together

docs/faults.md says why it is made so. Nothing here prints or ends a process: that is `ddlbench.cli.faults`.
"""
