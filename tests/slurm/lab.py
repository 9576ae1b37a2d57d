"""A `ddlbench lab` of four nodes that belongs to root itself: `python lab.py COMMAND…` runs COMMAND on node0.

SLURM's daemons give up supplementary groups, which root of a user namespace may not; so there is none here.
"""

import sys

from ddlbench.lab import start
from ddlbench.lab.spec import Lab

if __name__ == "__main__":
    sys.exit(start.start(Lab(nodes=4, ranks_per_node=2), sys.argv[1:], own_users=False).status)
