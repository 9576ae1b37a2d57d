"""The words that start a job, one function for each way to start one. Nothing here runs anything.

openmpi5   mpirun --hostfile F -n 8 --map-by ppr:2:node --bind-to core:if-supported …   (openmpi4, spectrum: the same)
mpich      mpiexec.hydra -f F -n 8 -bind-to core …
intel      mpiexec.hydra -machinefile F -n 8 …
srun       srun --mpi=pmix --nodelist=… --nodes=4 --ntasks=8 --ntasks-per-node=2 …
jsrun      jsrun --nrs 4 --rs_per_host 1 --tasks_per_rs 2 …
other      PROGRAM -n 8 …   (one that does not say whose it is; it must know the hosts by itself)

Variables for the ranks stand behind `env`, which is the same for every launcher and can be copied to another shell;
those that the launcher itself is to have stand with an `env` before it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ddlbench.errors import UsageError
from ddlbench.launch.layout import Layout
from ddlbench.launch.libraries import TRAITS, Family, Launcher, Library
from ddlbench.launch.started import EXPECT_NODES, EXPECT_RANKS

FORWARDED = ("DDLBENCH_*", "FI_*", "LD_LIBRARY_PATH", "MPI4PY_*", "NCCL_*", "OMP_*", "PYTHONPATH", "UCX_*")
"""What ranks on other hosts need of this environment: an ssh or a daemon of the launcher does not carry it over."""
KEEPALIVE = (("oob_tcp_keepalive_time", "10"), ("oob_tcp_keepalive_intvl", "5"), ("oob_tcp_keepalive_probes", "3"))
"""Open MPI's launcher notices a cut link after 10 + 3 · 5 seconds; with its own values it takes eight minutes."""
KEEPALIVE_VARIABLES = tuple(f"{family}_MCA_{name}" for family in ("PRTE", "OMPI") for name, _ in KEEPALIVE)
"""Those by which users have said it themselves, or a virtual cluster has."""
ROOT_VARIABLES = (
    "OMPI_ALLOW_RUN_AS_ROOT",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
)
BINDING = (
    "PRTE_MCA_hwloc_default_binding_policy",
    "OMPI_MCA_hwloc_base_binding_policy",
    "HYDRA_BINDING",
    "I_MPI_PIN",
    "I_MPI_PIN_DOMAIN",
)
"""Variables by which users have said what may not be said again here: the launcher's option would win."""
OPEN_MPI: tuple[Family, ...] = ("openmpi5", "openmpi4", "spectrum")


@dataclass(frozen=True)
class Job:
    """What is to be started where: `words` on every rank of `layout`, with `variables` set for them.

    `hostfile` is the file that names the hosts, None where the launcher needs none. `bound` says that the environment
    settles already which cores a rank may use, `kept_alive` that it does how soon a lost host is missed. `settings` are
    variables for the launcher itself.
    """

    library: Library
    launcher: Launcher
    layout: Layout
    words: tuple[str, ...]
    variables: Mapping[str, str]
    hostfile: Path | None = None
    bound: bool = False
    kept_alive: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


def needs_hostfile(launcher: Launcher, layout: Layout) -> bool:
    """Say whether hosts are named in a file: srun takes them as words, jsrun has those of its job."""
    return launcher.kind == "mpirun" and layout.named


def with_colon(library: Library) -> bool:
    """Say whether the library's host files have `node0:2` rather than `node0 slots=2`."""
    return library.family not in OPEN_MPI


def variables_of(layout: Layout, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the ranks: how many they must be and, away from this machine, what is forwarded."""
    expected = {EXPECT_RANKS: str(layout.ranks), EXPECT_NODES: str(len(layout.hosts))}
    if layout.only_here:
        return expected
    names = (name for name in sorted(environ) if any(fnmatchcase(name, pattern) for pattern in FORWARDED))
    return {name: environ[name] for name in names} | expected


def settings_of(library: Library, environ: Mapping[str, str], *, root: bool) -> dict[str, str]:
    """Return what the launcher itself is to find in its environment, beside what is there in `environ`.

    `root` says whether this is root, which Open MPI asks about.
    """
    wanted = {}
    if root and library.family in OPEN_MPI:
        wanted = dict.fromkeys(ROOT_VARIABLES, "1")
    elif library.family == "intel":  # or a scheduler's placement wins over the one that is asked for
        wanted = {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "0"}
    return {name: value for name, value in wanted.items() if name not in environ}


def command(job: Job) -> list[str]:
    """Return the words that start the `job`, whole: they need nothing but the environment of this process.

    Raises `UsageError` for what the launcher cannot express.
    """
    program, *given = job.launcher.words
    return [*_env(job.settings), program, *given, *_options(job, given), *_env(job.variables), *job.words]


def _env(variables: Mapping[str, str]) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []


def _options(job: Job, given: Sequence[str]) -> list[str]:
    """Return the options, without those that the user's own words `given` settle."""
    if job.launcher.kind == "srun":
        return _srun(job, given)
    if job.launcher.kind == "jsrun":
        return _jsrun(job.layout)
    if job.launcher.kind == "other":
        return ["-n", str(job.layout.ranks)]
    if job.library.family in OPEN_MPI:
        return _open_mpi(job, given)
    return _hydra(job, given)


def _has(given: Sequence[str], *names: str) -> bool:
    return any(word.split("=")[0] in names for word in given)


def _open_mpi(job: Job, given: Sequence[str]) -> list[str]:
    layout, many = job.layout, job.layout.oversubscribed
    hosts = [] if job.hostfile is None else ["--hostfile", str(job.hostfile)]
    by = "slot" if layout.only_here or layout.per_node is None else f"ppr:{layout.per_node}:node"
    placed = _has(given, "--map-by") or (layout.only_here and not many)
    place = [] if placed else ["--map-by", by + _over(many)]
    bind = [] if job.bound or _has(given, "--bind-to") else ["--bind-to", "none" if many else "core:if-supported"]
    yielding = ["--mca", "mpi_yield_when_idle", "1"] if many else []
    return [*hosts, "-n", str(layout.ranks), *place, *bind, *yielding, *_keepalive(job)]


def _over(many: bool) -> str:
    return ":oversubscribe" if many else ""


def _keepalive(job: Job) -> list[str]:
    """Return what makes the launcher notice a lost host; within this machine none can be lost.

    It does not follow a sweep's time limit: the sooner a host is missed, the sooner that is told, and a limit that is
    longer for some point is not known before the start.
    """
    option = "--prtemca" if job.library.family == "openmpi5" else "--mca"
    settled = job.layout.only_here or job.kept_alive
    return [] if settled else [word for pair in KEEPALIVE for word in (option, *pair)]


def _hydra(job: Job, given: Sequence[str]) -> list[str]:
    intel = job.library.family == "intel"
    hosts = [] if job.hostfile is None else ["-machinefile" if intel else "-f", str(job.hostfile)]
    ranks = ["-n", str(job.layout.ranks)]
    if job.bound or _has(given, "-bind-to", "--bind-to", "I_MPI_PIN", "I_MPI_PIN_DOMAIN"):
        return [*hosts, *ranks]
    if intel:
        pin = ("I_MPI_PIN", "0") if job.layout.oversubscribed else ("I_MPI_PIN_DOMAIN", "core")
        return [*hosts, *ranks, "-genv", *pin]
    return [*hosts, *ranks, *([] if job.layout.oversubscribed else ["-bind-to", "core"])]


def _srun(job: Job, given: Sequence[str]) -> list[str]:
    layout = job.layout
    per_node = _same_everywhere(layout, "srun")
    speak = [] if _has(given, "--mpi") else [f"--mpi={TRAITS[job.library.family].pmi}"]
    shape = [f"--nodes={len(layout.hosts)}", f"--ntasks={layout.ranks}", f"--ntasks-per-node={per_node}"]
    names = f"--nodelist={','.join(host.name for host in layout.hosts)}"
    bind = [] if _has(given, "--cpu-bind") else [f"--cpu-bind={'none' if layout.oversubscribed else 'cores'}"]
    over = ["--overcommit"] if layout.oversubscribed else []
    return [*speak, names, *shape, "--distribution=block", "--kill-on-bad-exit=1", *bind, *over]


def _same_everywhere(layout: Layout, launcher: str) -> int:
    """Return the ranks of every node; raises `UsageError` with them when they differ."""
    if layout.per_node is None:
        counts = "/".join(map(str, layout.counts[:16]))
        raise UsageError(
            f"{launcher} is asked for as many ranks on each node, but there are {counts}: --ranks-per-node"
        )
    return layout.per_node


def _jsrun(layout: Layout) -> list[str]:
    per_node = _same_everywhere(layout, "jsrun")
    sets = ["--nrs", str(len(layout.hosts)), "--rs_per_host", "1", "--tasks_per_rs", str(per_node)]
    share = ["--cpu_per_rs", "ALL_CPUS", "--gpu_per_rs", "ALL_GPUS"]
    return [*sets, *share, "--launch_distribution", "packed", "--bind", "none" if layout.oversubscribed else "packed:1"]


def is_root() -> bool:
    """Say whether this process runs as root."""
    return os.geteuid() == 0
