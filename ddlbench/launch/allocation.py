"""The hosts that a job may use: those that were named, those of a scheduler's job, or this machine.

-H node0:2,node1:2     as given
--hostfile FILE        as given
SLURM                  SLURM_JOB_NODELIST, with SLURM_TASKS_PER_NODE
LSF                    LSB_DJOB_RANKFILE, LSB_DJOB_HOSTFILE or LSB_MCPU_HOSTS
PBS                    PBS_NODEFILE
ddlbench lab           its host file
nothing of these       this machine, with as many slots as it has cores
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Literal

from ddlbench.errors import UsageError
from ddlbench.launch import hostfile
from ddlbench.launch.hosts import Host, checked, counted, merged, read_list, slurm_names, this_host
from ddlbench.launch.started import launcher

Scheduler = Literal["", "slurm", "lsf", "pbs"]
HERE = "this machine"
LAB = "DDLBENCH_LAB_HOSTFILE"
"""Names the host file of a virtual cluster to programs in it."""
NODES = re.compile(r"[0-9]{1,9}")
CORES = Path("/sys/devices/system/cpu")
TASKS = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,18})\))?")
"""Tasks on each of so many nodes; as many digits as can be meant, so that no number is too long to be read."""


@dataclass(frozen=True)
class Allocation:
    """Hosts in their order, where they were found, in words, and whose job this is in any case.

    `promised` says whether somebody stated the slots: a scheduler, a host file. The slots of this machine are only its
    cores.
    """

    hosts: tuple[Host, ...]
    source: str
    scheduler: Scheduler = ""
    promised: bool = True

    @property
    def named(self) -> bool:
        """Whether the hosts come from a list, be it a scheduler's; else this is just this machine."""
        return self.source != HERE

    @property
    def slots(self) -> int:
        """Ranks that all hosts have room for; a host that nobody counted has room for one."""
        return sum(host.slots or 1 for host in self.hosts)


def find(hosts: str | None, file: Path | None, environ: Mapping[str, str] = os.environ) -> Allocation:
    """Return the allocation: `hosts` as -H has them, the host file `file`, or what `environ` says; else this machine.

    Raises `UsageError` for a list that cannot be read, a name that is none, hosts that are named in two ways, and when
    this process is itself a rank of another launch.
    """
    if hosts is not None and file is not None:
        raise UsageError(f"-H {hosts} and --hostfile {file} both name the hosts: give one of them")
    _check_not_launched(environ)
    scheduler = _scheduler(environ)
    if hosts is not None:
        return _named(read_list(hosts, "-H"), "-H", scheduler)
    if file is not None:
        return _named(hostfile.read(file), f"host file {file}", scheduler)
    if scheduler:
        return SCHEDULERS[scheduler](environ)
    if environ.get(LAB):
        return _named(hostfile.read(Path(environ[LAB])), "the lab", scheduler)
    return Allocation((Host(this_host(), cores()),), HERE, promised=False)


def _named(hosts: tuple[Host, ...], source: str, scheduler: Scheduler) -> Allocation:
    return Allocation(hosts, source, scheduler, promised=all(host.slots is not None for host in hosts))


def _scheduler(environ: Mapping[str, str]) -> Scheduler:
    if "SLURM_JOB_ID" in environ and _nodelist(environ):
        return "slurm"
    if "LSB_JOBID" in environ and any(name in environ for name in (*LSF_FILES, "LSB_MCPU_HOSTS")):
        return "lsf"
    return "pbs" if "PBS_NODEFILE" in environ else ""


def _check_not_launched(environ: Mapping[str, str]) -> None:
    """Refuse to start a job from each of several processes, and from a part of a SLURM job."""
    found = launcher(environ)
    if found.size > 1:
        raise UsageError(
            f"ddlbench launch was itself started {found.size} times by a launcher ({found.variable}={found.size}):"
            " call it once, without mpirun or srun before it"
        )
    here, all_ = environ.get("SLURM_STEP_NUM_NODES", ""), environ.get("SLURM_JOB_NUM_NODES", "")
    if NODES.fullmatch(here) and NODES.fullmatch(all_) and int(here) < int(all_):
        raise UsageError(
            f"this is a step of SLURM on {here} of the {all_} nodes of its job: the rest cannot be reached from it;"
            " call ddlbench launch from the job script itself, without srun before it"
        )


def cores(processors: Iterable[int] | None = None) -> int:
    """Return the cores that this process may use; hardware threads of one core are one. None: as the system says."""
    numbers = os.sched_getaffinity(0) if processors is None else processors
    threads = [CORES / f"cpu{number}" / "topology" / "thread_siblings_list" for number in numbers]
    return len({path.read_text() if path.exists() else str(path) for path in threads})


# ---- Schedulers ----------------------------------------------------------------------------------------------------


def _nodelist(environ: Mapping[str, str]) -> str:
    return environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or ""


def slurm(environ: Mapping[str, str]) -> Allocation:
    """Return the allocation of a SLURM job; raises `UsageError` when its variables do not fit together."""
    names = slurm_names(_nodelist(environ), "SLURM_JOB_NODELIST")
    variable = "SLURM_TASKS_PER_NODE" if environ.get("SLURM_TASKS_PER_NODE") else "SLURM_JOB_CPUS_PER_NODE"
    tasks = _per_node(environ.get(variable) or f"1(x{len(names)})", variable)
    nodes = sum(times for _, times in tasks)
    if nodes != len(names):  # before they are written out: a slip of a digit stands for more than memory holds
        raise UsageError(
            f"{variable}={environ[variable]} counts {nodes} nodes, but SLURM_JOB_NODELIST={_nodelist(environ)}"
            f" has {len(names)}: call ddlbench launch from the job script itself, or name the hosts with -H"
        )
    hosts = merged(map(Host, names, chain.from_iterable(repeat(*task) for task in tasks)))
    return Allocation(hosts, f"SLURM job {environ['SLURM_JOB_ID']}", "slurm")


def _per_node(text: str, variable: str) -> list[tuple[int, int]]:
    """Return `2(x3),1`, SLURM's way to write 2, 2, 2, 1, as numbers and on how many nodes each holds."""
    found = [TASKS.fullmatch(part) for part in text.split(",")]
    if not all(found):
        raise UsageError(f"{variable}={text} cannot be read, expected such as 2(x3),1")
    return [(int(match[1]), int(match[2] or 1)) for match in found if match]


LSF_FILES = ("LSB_DJOB_RANKFILE", "LSB_DJOB_HOSTFILE")


def lsf(environ: Mapping[str, str]) -> Allocation:
    """Return the allocation of an LSF job, without the host that only runs the job script; raises `UsageError`."""
    hosts = merged(_lsf_hosts(environ))
    source = f"LSF job {environ['LSB_JOBID']}"
    small = [host for host in hosts if host.slots == 1]
    if len(small) != 1 or len(hosts) == 1:
        return Allocation(hosts, source, "lsf")
    rest = tuple(host for host in hosts if host not in small)
    return Allocation(rest, f"{source} without {small[0].name}, which has one slot for the job script", "lsf")


def _lsf_hosts(environ: Mapping[str, str]) -> list[Host]:
    for variable in LSF_FILES:
        if environ.get(variable):
            return _lines_of(environ[variable], variable)
    words = environ["LSB_MCPU_HOSTS"].split()
    if len(words) % 2:
        raise UsageError(
            f"LSB_MCPU_HOSTS={environ['LSB_MCPU_HOSTS']!r} cannot be read, expected such as 'node0 4 node1 4'"
        )
    return [
        Host(checked(name, "LSB_MCPU_HOSTS"), counted(slots, f"the number after {name}", "LSB_MCPU_HOSTS"))
        for name, slots in zip(words[::2], words[1::2], strict=True)
    ]


def pbs(environ: Mapping[str, str]) -> Allocation:
    """Return the allocation of a PBS job: its file has a line for each rank; raises `UsageError`."""
    hosts = merged(_lines_of(environ["PBS_NODEFILE"], "PBS_NODEFILE"))
    return Allocation(hosts, f"PBS job {environ.get('PBS_JOBID', '')}".rstrip(), "pbs")


def _lines_of(path: str, variable: str) -> list[Host]:
    """Return a host for each line of a scheduler's file."""
    names = hostfile.read_text(Path(path), f"the file of {variable},").split()
    if not names:
        raise UsageError(f"{variable}: {path} names no host")
    return [Host(checked(name, f"{variable}, {path}"), 1) for name in names]


SCHEDULERS: Mapping[Scheduler, Callable[[Mapping[str, str]], Allocation]] = {"slurm": slurm, "lsf": lsf, "pbs": pbs}
