"""Run a command as a rank of a lab, on a node that has a fault: its processor is slow, or its link comes and goes.

    planted.py FAULT HOST SEED -- COMMAND…

    stopped   every rank of HOST is stopped for 20 ms of every 40, as a machine does whose processors others use
    busy      two programs that spin are pinned to the one processor that the ranks of HOST may use
    drop      the link of HOST is cut for a second every five

Every rank runs this. What does the mischief is a child of the rank, or of the first host's rank, and ends with it.
"""

import os
import random
import signal
import socket
import sys
import time

from ddlbench.lab import control

STOPPED_SECONDS, RUNNING_SECONDS = 0.02, 0.02
DOWN_SECONDS, EVERY_SECONDS = 1.0, 5.0
SPINNERS = 2


def stop_and_go(rank: int, seed: int) -> None:
    time.sleep(random.Random(seed).random())
    while os.getppid() == rank:
        os.kill(rank, signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        os.kill(rank, signal.SIGCONT)
        time.sleep(RUNNING_SECONDS)


def spin(rank: int) -> None:
    while os.getppid() == rank:
        for _ in range(1_000_000):
            pass


def cut_and_mend(rank: int, host: str, seed: int) -> None:
    time.sleep(random.Random(seed).random() * (EVERY_SECONDS - DOWN_SECONDS))
    lab = control.chosen(None)
    while os.getppid() == rank:
        lab.ask(do="link", node=host, card=None, state="down")
        time.sleep(DOWN_SECONDS)
        lab.ask(do="link", node=host, card=None, state="up")
        time.sleep(EVERY_SECONDS - DOWN_SECONDS)


def child() -> bool:
    """Fork; in the child, which keeps none of the rank's streams open, return True.

    It has a session of its own: a launcher kills what is left of a rank's, and a link that is cut must be mended.
    """
    if os.fork():
        return False
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    return True


def main() -> None:
    fault, host, seed, _, *command = sys.argv[1:]
    rank, here = os.getpid(), socket.gethostname()
    if fault == "drop":
        if here == "node0" and child():
            cut_and_mend(rank, host, int(seed))
            os._exit(0)
    elif here == host:
        if fault == "busy":
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        for _ in range(SPINNERS if fault == "busy" else 1):
            if child():
                stop_and_go(rank, int(seed)) if fault == "stopped" else spin(rank)
                os._exit(0)
    os.execvp(command[0], command)


main()
