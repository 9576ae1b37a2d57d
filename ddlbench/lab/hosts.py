"""What makes the nodes of a lab hosts to programs: names, folders, and two programs that run something on a node.

All of it is files below `TOP`, in a file system that only the lab sees.
"""

from collections.abc import Sequence
from pathlib import Path

from ddlbench.lab.spec import Lab

TOP = Path("/run/ddlbench-lab")
"""In /run, which is the lab's own. Short, because sockets below it may have names of 107 characters."""
PROGRAMS, CONTROL, NAMES = TOP / "bin", TOP / "control", TOP / "names"
HOSTFILE, MACHINEFILE = TOP / "hostfile", TOP / "machinefile"
ENTER, SSH = PROGRAMS / "enter", PROGRAMS / "ssh"

ENTER_TEXT = f"""\
#!/bin/sh
# enter NODE COMMAND…: run the command on the node, word by word as it is. Shared memory and temporary files are the
# node's own there, so that no rank can meet one of another node in them, not even by mistake.
host=$1
shift
export TMPDIR="{TOP}/tmp/$host"
exec nsenter --net="/run/netns/$host" --uts="{TOP}/uts/$host" -- \\
  unshare --mount -- sh -c 'mount --bind "$0" /dev/shm && exec "$@"' "{TOP}/shm/$host" "$@"
"""

SSH_TEXT = f"""\
#!/bin/sh
# ssh [OPTIONS] NODE COMMAND…, for the launchers of MPI and for you. As with ssh the words of the command are joined and
# are for the shell of the node: whoever calls ssh has quoted them for that. Unlike ssh it keeps folder and environment.
while :; do
  case $1 in
    -[BbcDEeFIiJLlmOoPpQRSWw]) shift 2 || exit 255 ;;
    --) shift; break ;;
    -*) shift ;;
    *) break ;;
  esac
done
asked=${{1##*@}}
known=$(while read -r address names; do
  for name in $address $names; do
    [ "$name" = "$asked" ] && echo "${{names%% *}}" && exit
  done
done <{NAMES})
if [ -z "$known" ]; then
  printf 'ssh: this lab has no node %s\\n' "$asked" >&2
  exit 255
fi
shift
[ "$#" -gt 0 ] || set -- 'exec "${{SHELL:-/bin/sh}}"'
exec {ENTER} "${{known%-eth*}}" /bin/sh -c "$*"
"""


def write(lab: Lab) -> None:
    """Make the files of `lab`'s hosts below `TOP`."""
    for folder in ("bin", "uts", "shm", "tmp"):
        (TOP / folder).mkdir(parents=True)
    for host in lab.hosts:
        _write_folders(host)
    for program, text in ((ENTER, ENTER_TEXT), (SSH, SSH_TEXT)):
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    NAMES.write_text(names(lab), encoding="utf-8")
    HOSTFILE.write_text("".join(f"{host} slots={lab.ranks_per_node}\n" for host in lab.hosts), encoding="utf-8")
    MACHINEFILE.write_text("".join(f"{host}:{lab.ranks_per_node}\n" for host in lab.hosts), encoding="utf-8")


def _write_folders(host: str) -> None:
    """Make what the node `host` has for itself: shared memory, temporary files, and a file to hold its name."""
    uts_of(host).touch()
    for folder in ("shm", "tmp"):
        (TOP / folder / host).mkdir()
        (TOP / folder / host).chmod(0o1777)


def names(lab: Lab) -> str:
    """Return the lines of a hosts file, one for each network card: node2 is the first of node2, node2-eth1 another."""
    return "".join(
        f"{lab.address(node, nic)} {'' if nic else f'{host} '}{host}-eth{nic}\n"
        for nic in range(lab.nics)
        for node, host in enumerate(lab.hosts)
    )


def uts_of(host: str) -> Path:
    """Return the file that holds the namespace in which `host` is the host's name."""
    return TOP / "uts" / host


def entered(host: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` on `host`, word by word as it is."""
    return [str(ENTER), host, *command]
