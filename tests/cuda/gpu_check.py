"""`make gpu-check`: what a machine with GPUs shows of the GPU path, in less than six minutes, into reports/gpu.

Device tests, every algorithm at 2, 4 and 8 ranks with every element checked, the kernels against a copy on the device,
and NCCL beside us. Ranks share GPUs where there are fewer. Where there is no GPU it says so in a line, writes nothing
and ends with status 2; with 1 when something was wrong.
"""

import argparse
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlbench.algorithms.naming import BUILT_IN
from ddlbench.device import owner as owners
from ddlbench.device.nccl import SAME_DEVICE, load
from ddlbench.device.places import spelt
from ddlbench.errors import DeviceError, NoDeviceError

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests"))

from launch import environment  # noqa: E402

RANKS = (2, 4, 8)
BUDGET_S = 340
"""All steps together take no longer; what is not begun by then is named as left out."""
ALGORITHMS = ",".join([*(algorithm.name for algorithm in BUILT_IN), "mpi"])
SIZES = "1000,1M,16M"
PROGRAM = (sys.executable, "-m", "ddlbench")


@dataclass(frozen=True)
class Step:
    """A program of the check, in words and as a command, with more variables for it."""

    name: str
    argv: tuple[str, ...]
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a step ended: "ok", or why not."""

    name: str
    told: str
    seconds: float


def steps(out: Path, devices: int, launcher: Sequence[str], nccl: str) -> Iterator[Step]:
    """Yield the steps for so many devices; `nccl` is "" where NCCL can run, else why not."""
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "timeout=120")
    yield Step("unit tests on the device", (*pytest, "tests/cuda", "tests/unit/test_cuda_kernels.py"))
    plans = (*pytest, "tests/mpi/test_device.py", "-k", "2-ranks or 3-ranks")
    yield Step("plans on the device", plans, (("DDLBENCH_TEST_GPU", "1"),))
    speed = (sys.executable, "tests/cuda/kernel_speed.py", "--csv", str(out / "kernels.csv"))
    yield Step("kernels against a copy on the device", speed)
    for ranks in RANKS:
        yield sweep(out / f"ranks-{ranks}", ranks, devices, launcher, ALGORITHMS)
    yield sweep(out / "staged", 2, devices, launcher, ALGORITHMS, "--transport", "staged")
    if not nccl:
        yield sweep(out / "nccl", devices, devices, launcher, "ring,halving-doubling,nccl")


def sweep(out: Path, ranks: int, devices: int, launcher: Sequence[str], algorithms: str, *more: str) -> Step:
    """Return the step that measures and checks `algorithms` at `ranks` ranks."""
    shared = () if ranks <= devices else ("--share-device",)
    flags = ("--device", "cuda", *shared, "-a", algorithms, "--sizes", SIZES, "-n", "20", "--passes", "1", *more)
    argv = (*launcher, "-n", str(ranks), *PROGRAM, "sweep", *flags)
    return Step(f"every algorithm: {out.name}", (*argv, "--timeout", "60", "--out", str(out), "--overwrite"))


def why_no_nccl(devices: int) -> str:
    """Return "" where NCCL can run beside us, else why not."""
    if devices < 2:
        return f"{SAME_DEVICE}; there is one here"
    try:
        load()
    except NoDeviceError as error:
        return str(error)
    return ""


def run(step: Step, out: Path, left_s: float) -> Outcome:
    """Run a step, its output into a file, for at most `left_s` seconds."""
    if left_s < 1:
        return Outcome(step.name, "left out: the time was up", 0.0)
    begun = time.monotonic()
    print(f"{step.name} …", flush=True)
    log = out / f"{step.name.replace(' ', '-').replace(':', '')}.log"
    with log.open("w") as file:
        told_to = environment(dict(step.more))  # more ranks than cores are fine, as in the tests
        process = subprocess.Popen(step.argv, stdout=file, stderr=subprocess.STDOUT, env=told_to, cwd=TOP)
        try:
            status = process.wait(left_s)
            told = "ok" if status == 0 else f"status {status}, see {log.name}"
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            told = "not through in time"
    return Outcome(step.name, told, time.monotonic() - begun)


def text(names: Sequence[str], versions: tuple[int, int], outcomes: Sequence[Outcome], nccl: str) -> str:
    """Return the summary of the check."""
    driver, runtime = map(spelt, versions)
    lines = [f"GPU check on {time.strftime('%Y-%m-%d')}, {platform.system()} {platform.machine()}"]
    lines += [f"GPU {number}: {name}" for number, name in enumerate(names)]
    lines += [f"CUDA of the driver {driver}, of the build {runtime}", ""]
    lines += [f"{one.told:<12} {one.seconds:6.1f} s  {one.name}" for one in outcomes]
    return "\n".join([*lines, *([f"NCCL beside us: {nccl}"] if nccl else [])]) + "\n"


def main() -> int:
    """Check the GPUs of this machine; return the exit status."""
    parser = argparse.ArgumentParser(description="What a machine with GPUs shows of the GPU path.")
    parser.add_argument("--out", type=Path, default=TOP / "reports" / "gpu")
    parser.add_argument("--launcher", default="mpirun", help="starts ranks")
    options = parser.parse_args()
    try:
        owner = owners.open_device(0)
        found, versions = owner.cuda.devices(), owner.cuda.versions()
    except DeviceError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    begun, nccl = time.monotonic(), why_no_nccl(len(found))
    planned = steps(options.out, len(found), shlex.split(options.launcher), nccl)
    outcomes = [run(step, options.out, begun + BUDGET_S - time.monotonic()) for step in planned]
    summary = text([device.name for device in found], versions, outcomes, nccl)
    (options.out / "check.txt").write_text(summary)
    print(summary, end="")
    return int(any(one.told != "ok" for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
