"""Whether the MPI library takes addresses of device memory: it must say so, and a child process must survive a try.

The try sends from a device's memory to another place there, in a process of its own that is all alone: what a library
without that support does with such an address, and one that only says it has it, is most often to crash.
"""

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ddlbench import _engine
from ddlbench.device.owner import Owner
from ddlbench.errors import UnsupportedError

if TYPE_CHECKING:
    from mpi4py import MPI

TRY_S = 60
OF_A_LAUNCH = (
    r"OMPI_(COMM_WORLD|MCA_(ess|orte|pmix|prte))|PMIX|PMI_|PRTE_(?!ALLOW)"
    r"|MPI_LOCAL|MPIEXEC|HYDRA|SLURM_(PROC|STEP|LOCAL)"
)
"""Variables by which a library would take the child for a rank of this launch."""
CHILD = """
import sys
from mpi4py import MPI
from ddlbench.device.aware import try_messages
try_messages(MPI.COMM_SELF, int(sys.argv[1]))
"""


def support() -> str:
    """Return "" where the MPI library says that it takes device memory, else why not."""
    library = ctypes.CDLL(_engine.__file__)  # its symbols are those of the MPI it is linked to
    asked = getattr(library, "MPIX_Query_cuda_support", None)
    if asked is not None:
        return "" if asked() else "the MPI library says that it was built without CUDA"
    asked, found = getattr(library, "MPIX_GPU_query_support", None), ctypes.c_int()
    if asked is not None and asked(0, ctypes.byref(found)) == 0:  # 0: MPIX_GPU_SUPPORT_CUDA
        return "" if found.value else "the MPI library says that it has no support for CUDA switched on"
    return "the MPI library cannot say whether it takes device memory"


def why_not(comm: "MPI.Comm", device: int, first: bool) -> str:
    """Return "" where device memory may be given to MPI, else the reason, alike on all ranks (collective).

    `first` says whether this rank makes the try, which takes a second or two; one rank of each node should.
    """
    said = support()
    if not said and first:
        said = tried([sys.executable, "-c", CHILD, str(device)])
    return next((text for text in comm.allgather(said) if text), "")


def tried(command: list[str], environ: Mapping[str, str] = os.environ) -> str:
    """Run the try in a child that knows of no launch; return "" when it went well, else what happened."""
    alone = {name: value for name, value in environ.items() if not re.match(OF_A_LAUNCH, name)}
    try:
        done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=TRY_S, check=False)
    except subprocess.TimeoutExpired:
        return f"a message of device memory was not through after {TRY_S} s"
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    return f"a process that sent device memory ended with {how}: {last}"


def try_messages(comm: "MPI.Comm", device: int) -> None:
    """Send 4 MiB from device memory to device memory of this rank; raises where they do not arrive."""
    from ddlbench.device.owner import open_device

    try_on(comm, open_device(device))


def try_on(comm: "MPI.Comm", owner: Owner) -> None:
    """Make the try with memory of `owner`; raises `UnsupportedError` where the bytes do not arrive."""
    from mpi4py import MPI

    nbytes = 4 << 20
    source, target = owner.empty(nbytes), owner.empty(nbytes)
    owner.cuda.fill(source.address, 7, nbytes)
    owner.cuda.fill(target.address, 0, nbytes)
    owner.cuda.synchronize()
    buffers = [MPI.buffer.fromaddress(memory.address, nbytes) for memory in (source, target)]
    comm.Sendrecv([buffers[0], MPI.BYTE], comm.rank, recvbuf=[buffers[1], MPI.BYTE], source=comm.rank)
    seen = bytearray(nbytes)
    where = MPI.buffer.frombuffer(seen).address
    owner.cuda.copy(where, target.address, nbytes)
    owner.cuda.synchronize()
    if seen.count(7) != nbytes:
        raise UnsupportedError("what was sent from device memory did not arrive there")
