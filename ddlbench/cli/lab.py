"""`ddlbench lab`: a virtual cluster on this machine."""

import sys
from collections.abc import Callable
from typing import Any

import click

SHAPE = (
    click.option("--nodes", default=4, show_default=True, metavar="N", help="Nodes: node0, node1 …"),
    click.option("--ranks-per-node", default=1, show_default=True, metavar="N", help="Ranks that each has room for."),
    click.option("--rate", default="1gbit", show_default=True, metavar="RATE", help="What a network card carries."),
    click.option("--node-rate", "node_rates", multiple=True, metavar="N=RATE", help="What those of node N carry."),
    click.option("--racks", default=1, show_default=True, metavar="N", help="Racks that the nodes stand in."),
    click.option("--rack-rate", metavar="RATE", help="What the way of a rack to the others carries."),
    click.option("--nics", default=1, show_default=True, metavar="N", help="Network cards of each node: eth0, eth1 …"),
)
"""What a lab looks like."""
COMMAND = {"allow_interspersed_args": False, "max_content_width": 110}


def shaped(verb: Callable[..., int]) -> Callable[..., int]:
    """Give `verb` the options of a lab's shape."""
    for option in reversed(SHAPE):
        verb = option(verb)
    return verb


@click.group("lab", no_args_is_help=False, short_help="Run a command on a virtual cluster of this machine.")
def command() -> None:
    """Run a command on a virtual cluster: nodes in network namespaces of this machine, with TCP at a rate of choice.

    \b
    ddlbench lab run --nodes 4 --ranks-per-node 2 --rate 1gbit -- ddlbench sweep -b 1M -e 16M
    ddlbench lab shell --nodes 4 --node-rate 2=100mbit
    ddlbench lab link node2 down

    Nothing of the machine's own network is touched, and nothing is left when it ends.
    """  # noqa: D301 - \b is for click


@command.command("run", context_settings=COMMAND, short_help="Run a command on every rank, by mpirun.")
@shaped
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND…", type=click.UNPROCESSED)
def run(words: tuple[str, ...], **shape: Any) -> int:
    """Run COMMAND on every rank of a virtual cluster, by mpirun.

    Exit status: mpirun's, but 3 for a sweep that is not finished and for ranks that mpirun has left behind.

    Rates are bits per second in each direction: 1gbit, 2.5gbit, 100mbit.
    """
    from ddlbench.cli.labs import run_on_ranks
    from ddlbench.cli.program import own_words

    return run_on_ranks(shape, words, own_words(words, sys.argv[1:], ("lab", "run")))


@command.command("shell", context_settings=COMMAND, short_help="Run a shell, or a command, on node0.")
@shaped
@click.argument("words", nargs=-1, metavar="[-- COMMAND…]", type=click.UNPROCESSED)
def shell(words: tuple[str, ...], **shape: Any) -> int:
    """Run a shell, or COMMAND, on node0 of a virtual cluster.

    There `mpirun -n 8 …` runs on all nodes, `ssh node2` reaches one, and $DDLBENCH_LAB_HOSTFILE names them.
    """
    from ddlbench.cli.labs import run_on_node0

    return run_on_node0(shape, words)


@command.command("link", short_help="Cut a node's link, connect it again, or change its rate.")
@click.argument("node")
@click.argument("state", metavar="down|up|RATE")
@click.option("--nic", "card", metavar="ethN", help="Only this network card of the node.")
@click.option("--lab", "identity", metavar="ID", help="Which lab, when several run.")
def link(node: str, state: str, card: str | None, identity: str | None) -> int:
    """Cut the link of NODE in a lab that runs, connect it again, or change its rate; from any terminal."""
    from ddlbench.cli.labs import set_link

    return set_link(node, card, state, identity)


@command.command("list", short_help="List the labs that run.")
def list_() -> int:
    """List the labs of this user that run: their ID, what they look like, and links that were changed."""
    from ddlbench.cli.labs import list_running

    return list_running()
