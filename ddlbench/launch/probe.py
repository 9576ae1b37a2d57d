"""What each host is asked before a job, by one rank on each: `python -m ddlbench.launch.probe TOKEN`.

First each rank says on its own what it runs on and with which programs, so that a host that answers is heard even when
MPI does not start. Then they take part in an allreduce, so that hosts which cannot reach each other are found out by a
program that does nothing else. A line is `TOKEN {…json…}`, short enough to be written in one piece.
"""

import hashlib
import json
import os
import platform
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

NVIDIA = Path("/proc/driver/nvidia/gpus")
GIB = 1 << 30


def facts() -> dict[str, Any]:
    """Return what must be alike on all hosts, under the names that messages give it, and the host's own name."""
    import mpi4py

    from ddlbench import __version__
    from ddlbench.bench.environment import environment

    mpi4py.rc(initialize=False, finalize=False)
    from mpi4py import MPI

    name, version = MPI.get_vendor()
    about = environment({})
    return {
        "host": socket.gethostname(),
        "ddlbench": f"{__version__} {package_digest()}",
        "Python": platform.python_version(),
        "mpi4py": mpi4py.__version__,
        "MPI": f"{name} {'.'.join(map(str, version))}",
        "machine": about["machine"],
        "processor": about["processor"],
        "processors": about["processors"],
        "memory (GiB)": None if about["memory_nbytes"] is None else round_to_digits(about["memory_nbytes"] / GIB),
        "GPUs": gpus(),
    }


def round_to_digits(number: float) -> float:
    """Return `number` to two digits: hosts of a kind differ by some megabytes."""
    return float(f"{number:.2g}")


def package_digest() -> str:
    """Return a short digest of ddlbench's files: two hosts may have different files under the same version."""
    package = Path(__file__).resolve().parents[1]
    files = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".so"))
    found = hashlib.sha256()
    for path in files:
        found.update(str(path.relative_to(package)).encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def gpus() -> str:
    """Return the NVIDIA GPUs that the driver knows, such as `4 Tesla V100-SXM2-16GB`."""
    models = [_model(path) for path in sorted(NVIDIA.glob("*/information"))]
    return ", ".join(f"{models.count(model)} {model}" for model in dict.fromkeys(models)) or "none"


def _model(path: Path) -> str:
    lines = (line.partition(":") for line in path.read_text(errors="replace").splitlines())
    return next((value.strip() for key, _, value in lines if key == "Model"), "unknown")


def say(token: str, rank: int, told: dict[str, Any]) -> None:
    """Write one line about this rank, in one piece."""
    os.write(sys.stdout.fileno(), f"{token} {json.dumps({'rank': rank, **told})}\n".encode())


def main(token: str) -> int:
    """Say what this host is, meet the others, and say how many there are."""
    from ddlbench.launch.started import launcher

    speak = partial(say, token, launcher().rank)
    speak(facts())
    from mpi4py import MPI

    MPI.Init()
    speak({"size": MPI.COMM_WORLD.size, "sum": MPI.COMM_WORLD.allreduce(1)})
    MPI.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
