"""A schedule under SimGrid: run by a Python that has the `simgrid` module; prints the seconds that it took there.

    python3 actors.py job.json platform.xml

The job holds for each rank its ticks: sends [peer, bytes], arrivals [peer, bytes to add, late], both in order. Each
rank is an actor on a host of its own and does what the engine does: starts all, takes arrivals in order, waits for its
sends.
"""

import json
import sys
from pathlib import Path

from simgrid import Actor, Engine, Host, Mailbox, this_actor


def mailboxes(number: int, ends: list, side: str):
    """Yield the mailbox of each message: the k-th between the same two ranks in a tick meets the k-th arrival."""
    count = {}
    me = int(this_actor.get_host().name[1:])
    for peer, *_ in ends:
        k = count[peer] = count.get(peer, 0) + 1
        pair = (me, peer) if side == "out" else (peer, me)
        yield Mailbox.by_name(f"{pair[0]}-{pair[1]}-{number}-{k}")


def rank(ticks: list) -> None:
    for number, (sends, arrivals) in enumerate(ticks):
        # SimGrid writes what arrives into the second of each pair: it must live as long.
        coming = [box.get_async() for box in mailboxes(number, arrivals, "in")]
        boxes = mailboxes(number, sends, "out")
        going = [box.put_async("", round(nbytes)) for box, (_, nbytes) in zip(boxes, sends, strict=True)]
        for wanted in (False, True):
            if wanted:
                for comm in going:
                    comm.wait()
            for (comm, _), (_, added, late) in zip(coming, arrivals, strict=True):
                if late == wanted:
                    comm.wait()
                    if added:
                        this_actor.execute(added)


def main(job: str, platform: str) -> None:
    # Flows as fair as can be: no factors of TCP, no window, no traffic of acknowledgements.
    settings = ("network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0", "network/weight-S:0")
    engine = Engine([sys.argv[0], *(f"--cfg={one}" for one in settings), "--log=root.thres:error"])
    engine.load_platform(platform)
    for number, ticks in enumerate(json.loads(Path(job).read_text())):
        Actor.create(f"rank {number}", Host.by_name(f"r{number}"), rank, ticks)
    engine.run()
    print(engine.clock)


if __name__ == "__main__":
    main(*sys.argv[1:])
