"""MPI's launchers in a lab: the environment in which each finds the nodes by itself, and the command for all ranks.

Open MPI, since 5 with PRRTE's parameters, and MPICH and Intel MPI, whose launcher is Hydra. All of them reach a node by
the `ssh` that is first on the lab's PATH.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ddlbench.errors import UsageError
from ddlbench.lab.hosts import CONTROL, HOSTFILE, MACHINEFILE, PROGRAMS, SSH
from ddlbench.lab.spec import Lab

Kind = Literal["openmpi", "hydra"]
TOLD: Mapping[str, Kind] = {"Open MPI": "openmpi", "HYDRA": "hydra", "Intel(R) MPI": "hydra"}
"""What is in the first lines of a launcher's --version, and which kind it is."""
VERSION_SECONDS = 30

FORGOTTEN = (
    *("SLURM_", "PBS_", "LSB_", "LSF_", "JSM_", "PALS_"),  # an allocation outside the lab
    *("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "HYDI_", "MPI_LOCAL"),  # a launcher that started this process
    *("PRTE_MCA_rmaps_", "OMPI_MCA_rmaps_"),  # Open MPI's order of ranks, which would put all of them on one node
    "XDG_RUNTIME_DIR",  # it is in /run
)
"""How the names of variables begin that lead programs in the lab astray."""
ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")
"""In the lab a user is root, of nothing but the lab."""


def environment(lab: Lab, outside: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs in the lab: that of `outside`, in which launchers find the nodes."""
    kept = {name: value for name, value in outside.items() if not name.startswith(FORGOTTEN)}
    folders = [str(PROGRAMS), *_own_programs(), kept.get("PATH", os.defpath)]
    cards = [f"eth{nic}" for nic in range(lab.nics)]
    return {
        **_keepalive(),
        **kept,
        "PATH": os.pathsep.join(folders),
        "DDLBENCH_LAB": lab.describe(),
        "DDLBENCH_LAB_CONTROL": str(CONTROL),
        "DDLBENCH_LAB_HOSTFILE": str(HOSTFILE),
        **{name + suffix: "1" for name in ROOT for suffix in ("", "_CONFIRM")},
        **_open_mpi(cards),
        **_hydra(cards),
    }


def _own_programs() -> Iterator[str]:
    """Yield the folder of mpirun and ddlbench where this Python is of a virtual environment, activated or not."""
    if sys.prefix != sys.base_prefix:
        yield str(Path(sys.prefix, "bin"))


KEEPALIVE = {"time": "10", "intvl": "5", "probes": "3"}
"""Open MPI's launcher notices a cut link after 10 + 3 · 5 seconds; with its own values it takes eight minutes. What
the environment says already is left."""


def _keepalive() -> dict[str, str]:
    return {
        f"{family}_MCA_oob_tcp_keepalive_{name}": value
        for family in ("PRTE", "OMPI")
        for name, value in KEEPALIVE.items()
    }


def _open_mpi(cards: Sequence[str]) -> dict[str, str]:
    daemons = {
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": str(SSH),
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_default_hostfile": str(HOSTFILE),
        "PRTE_MCA_prte_if_include": cards[0],
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    daemons_of_4 = {
        "OMPI_MCA_plm_rsh_agent": str(SSH),
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_default_hostfile": str(HOSTFILE),
        "OMPI_MCA_oob_tcp_if_include": cards[0],
        "OMPI_MCA_hwloc_base_binding_policy": "none",
    }
    ranks = {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "tcp,self,sm",
        "OMPI_MCA_btl_tcp_if_include": ",".join(cards),
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    return daemons | daemons_of_4 | ranks


def _hydra(cards: Sequence[str]) -> dict[str, str]:
    return {
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(SSH),
        "HYDRA_HOST_FILE": str(MACHINEFILE),
        "HYDRA_IFACE": cards[0],
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": str(SSH),
        "I_MPI_HYDRA_HOST_FILE": str(MACHINEFILE),
        "I_MPI_HYDRA_IFACE": cards[0],
        "I_MPI_PIN": "0",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": cards[0],
    }


def on_all_ranks(lab: Lab, program: str, kind: Kind, command: Sequence[str]) -> list[str]:
    """Return the command by which the launcher `program` runs `command` on all ranks of the lab."""
    ranks = ["-n", str(lab.ranks)]
    if kind == "hydra":
        return [program, *ranks, *command]
    # Said again although the environment says it: they show in what is running, and files of parameters cannot win.
    place = ["--map-by", f"ppr:{lab.ranks_per_node}:node:oversubscribe", "--bind-to", "none"]
    return [program, *ranks, *place, "--mca", "mpi_yield_when_idle", "1", *command]


def find(search: str) -> tuple[str, Kind]:
    """Return the launcher that is beside this Python or in the folders of `search`, and its kind.

    Raises `UsageError` when there is none, or none that is known.
    """
    program = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun", path=search)
    if program is None:
        raise UsageError(f"there is no mpirun beside {sys.executable} or on PATH: install or load an MPI")
    done = subprocess.run(
        [program, "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=VERSION_SECONDS,
        env={**os.environ, "PATH": f"{Path(program).parent}:{search}"},  # Intel MPI's is a script that calls another
    )
    for told, kind in TOLD.items():
        if told in done.stdout + done.stderr:
            return program, kind
    said = (done.stdout + done.stderr).strip().partition("\n")[0]
    raise UsageError(
        f"{program} is neither Open MPI's, MPICH's nor Intel MPI's ({said!r}): start ranks yourself with"
        " ddlbench lab shell, where ssh reaches all nodes"
    )
