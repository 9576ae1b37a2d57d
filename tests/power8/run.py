"""What `make test-power8` runs: the build and tests on ppc64le, emulated by QEMU, in a Debian system of their own.

    build/power8/root    Debian for ppc64el, made once by mmdebstrap, and anew when PACKAGES change
    /ddlbench in there   a copy of this repository, as git lists it, and what was compiled of it

Mounts are in a mount namespace of this process, what it runs in process namespaces that end with it: nothing is left
of either, however this ends. What belongs to the machine is the kernel's table of emulators (binfmt_misc): where it has
none for ppc64le one is entered, and taken out at the end.

The exit status is 0 when all passed, 1 when not, and 2, with a line that says why, when it cannot run.
"""

import argparse
import ctypes
import fcntl
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = {
    "qemu-ppc64le-static": "qemu-user-static",
    "mmdebstrap": "mmdebstrap",
    "git": "git",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
"""The programs that this needs, and the packages of Debian that have them."""
PACKAGES = (
    *("gcc", "python3-dev", "python3-setuptools", "cython3", "openmpi-bin", "libopenmpi-dev", "python3-mpi4py"),
    *("python3-numpy", "python3-scipy", "python3-pandas", "python3-click", "python3-jinja2", "python3-plotly"),
    *("python3-rich", "python3-pytest", "python3-pytest-timeout"),
)
"""What the Debian system has beyond the least."""
SUITE = "stable"

BINFMT = Path("/proc/sys/fs/binfmt_misc")
EMULATOR = BINFMT / "qemu-ppc64le"
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x15\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\xfc\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\x00"
CLONE_NEWNS = 0x20000

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "CFLAGS": "-mcpu=power8",
    "DDLBENCH_TEST_PATIENCE": "20",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
CONTAINED = shlex.split("setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc --")
# Open MPI maps no rank without /sys.
START = """set -e; cd "$0"
mount -t proc proc proc; mount --rbind /sys sys; mount --rbind /dev dev
mount -t tmpfs tmpfs dev/shm; mount -t tmpfs tmpfs tmp
script=$1; shift
exec chroot . /usr/bin/env -i "$@" /bin/sh -ec "cd /ddlbench; $script"
"""
VERSIONS = """
import Cython, mmap, mpi4py, numpy, pandas, platform, scipy
mpi4py.rc(initialize=False, finalize=False)
import mpi4py.MPI as MPI
modules = [f"{one.__name__} {one.__version__}" for one in (Cython, numpy, mpi4py, pandas, scipy)]
print(platform.machine(), f"pages of {mmap.PAGESIZE} bytes", f"Python {platform.python_version()}", *modules, sep=", ")
print(MPI.Get_library_version().split(",")[0])
"""
BUILD = f"""python3 -c {shlex.quote(VERSIONS)}
gcc --version | head -n 1
python3 setup.py -q build_ext --inplace
"""
# Mapping shared memory a second time (mremap with an old size of 0) fails under QEMU.
NOT_HERE = "tests/unit/test_pages.py::test_shared_memory_is_seen_again_where_it_can_have_huge_pages"
PYTEST = f"python3 -m pytest -q --timeout 1200 -p no:cacheprovider --deselect {NOT_HERE}"
WITHOUT_RANKS = (
    *("power8", "unit/test_reduce.py", "unit/test_reference.py", "unit/test_pages.py", "unit/test_watchdog_ending.py"),
    *("unit/test_topology.py", "unit/test_records.py", "unit/test_environment.py"),
    "unit/test_direct_programs.py::test_no_element_is_ever_wrong_between_processes",
)
OF_RANKS = ("mpi/test_engine.py", "mpi/test_comm.py", "mpi/test_memory.py")
TESTS = (
    f"{PYTEST} {' '.join(f'tests/{one}' for one in WITHOUT_RANKS)}",
    # MPI does not start so; QEMU's own page is 4 KiB.
    f"QEMU_PAGESIZE=65536 {PYTEST} tests/power8 tests/unit/test_pages.py",
    f"{PYTEST} {' '.join(f'tests/{one}' for one in OF_RANKS)} -k '2-ranks or 3-ranks or 5-ranks'",
)
"""What is tested, chosen for what is compiled; the whole suite would take far longer."""


class CannotRunError(Exception):
    """What is missing here, and what to do about it."""


def main() -> int:
    """Make what is missing, build and test; return the exit status."""
    asked = argparse.ArgumentParser(prog="make test-power8", description="Build and test on an emulated Power8.")
    asked.add_argument("--mirror", help="Debian mirror for it; by default apt's here, else mmdebstrap's own")
    asked.add_argument("--folder", type=Path, default=REPOSITORY / "build" / "power8", help="where the system is kept")
    asked.add_argument("tests", nargs="*", help="files for pytest, in place of the choice made here")
    options = asked.parse_args()
    tests = (f"{PYTEST} {shlex.join(options.tests)}",) if options.tests else TESTS
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        refuse_what_lacks()
        enter_namespace()
        with alone(), emulator():
            root = options.folder.resolve() / "root"
            make_root(root, options.mirror or mirror_of_apt())
            copy_tree(root / "ddlbench")
            return build_and_test(root, tests)
    except CannotRunError as error:
        sys.stderr.write(f"test-power8 cannot run here: {error}\n")
        return 2


def say(text: str) -> None:
    """Print a line now."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def refuse_what_lacks() -> None:
    """Raise `CannotRunError` unless this is Linux, every program is there, and the user is root."""
    if platform.system() != "Linux":
        raise CannotRunError(f"QEMU's user emulation is for Linux, this is {platform.system()}")
    missing = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program)})
    if missing:
        raise CannotRunError(f"there is no {', no '.join(missing)}: apt-get install {' '.join(missing)}")
    if os.geteuid():
        raise CannotRunError("it makes a Debian system and namespaces for it: run it as root")


def enter_namespace() -> None:
    """Go on in a mount namespace of this process's own; raises `CannotRunError` where it may have none."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise CannotRunError(f"no mount namespace for this process: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@contextmanager
def alone() -> Iterator[None]:
    """Keep other runs on this machine away: the first to end would take the emulator out that both use."""
    with Path(str(shutil.which("qemu-ppc64le-static"))).open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotRunError("another test-power8 runs on this machine: wait until it has ended") from None
        yield


@contextmanager
def emulator() -> Iterator[None]:
    """Have the kernel run ppc64le programs by QEMU; what this entered for it is taken out at the end."""
    if not (BINFMT / "register").exists():
        mount = ["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRunError(f"the kernel has no binfmt_misc, or none for us: {done.stderr.strip()}")
    entered = not EMULATOR.exists()
    if entered:
        say("entering qemu-ppc64le into the kernel's table of emulators until this ends")
        # F: opened now, so that it is found from inside of the Debian system.
        qemu = shutil.which("qemu-ppc64le-static")
        (BINFMT / "register").write_text(f":{EMULATOR.name}:M::{MAGIC}:{MASK}:{qemu}:F")
    try:
        check_entry(EMULATOR.read_text())
        yield
    finally:
        if entered:
            EMULATOR.write_text("-1")


def check_entry(text: str) -> None:
    """Raise `CannotRunError` unless the kernel's entry for ppc64le is in force, also in a folder of its own."""
    flags = next((line.partition(":")[2] for line in text.splitlines() if line.startswith("flags:")), "")
    if not text.startswith("enabled"):
        raise CannotRunError(f"{EMULATOR} is disabled: update-binfmts --enable {EMULATOR.name}")
    if "F" not in flags:
        raise CannotRunError(f"{EMULATOR} lacks the flag F, so that no chroot finds QEMU: echo -1 >{EMULATOR}")


def mirror_of_apt() -> str | None:
    """Return the Debian mirror that this machine takes its own packages from; None when it is not a Debian."""
    if not shutil.which("apt-get"):
        return None
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    done = subprocess.run(targets, capture_output=True, text=True, check=False)
    return next(iter(done.stdout.split()), None)


def make_root(root: Path, mirror: str | None) -> None:
    """Make the Debian system unless it is there; raises `CannotRunError` with what mmdebstrap said."""
    made_of, wanted = root.with_name("made-of"), f"{SUITE} {' '.join(PACKAGES)}\n"
    if root.is_dir() and made_of.is_file() and made_of.read_text() == wanted:
        return
    root.parent.mkdir(parents=True, exist_ok=True)
    made_of.unlink(missing_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    log = root.with_name("root.log")
    say(f"making a Debian system for ppc64el in {root}: some minutes, once; {log} tells how far it is")
    # Its own check for emulation asks for one more package; modules are compiled to bytecode when they are imported.
    how = ["--arch=ppc64el", "--variant=apt", "--skip=check/qemu", "--dpkgopt=path-exclude=/usr/bin/py3compile"]
    command = ["mmdebstrap", *how, f"--include={','.join(PACKAGES)}", SUITE, str(root), *([mirror] if mirror else [])]
    with log.open("wb") as output:
        status = contained(command, output)
    if status:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise CannotRunError(f"mmdebstrap failed, and {log} has why; it ends with: {''.join(last)}")
    made_of.write_text(wanted)


def copy_tree(into: Path) -> None:
    """Copy the files that git lists; what was compiled of them before stays, to be built again where it is older."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotRunError(f"git does not list the files to copy: {done.stderr.strip()}")
    into.mkdir(exist_ok=True)
    for old in into.iterdir():
        if old.name != "build":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name in filter(None, done.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, into / name)


def build_and_test(root: Path, tests: Sequence[str]) -> int:
    """Run all steps, the later ones also when an earlier test failed; return 0 when all passed."""
    if run_in(root, BUILD):
        say("test-power8: the build failed")
        return 1
    failed = [step for step in tests if run_in(root, step)]
    passed = len(tests) - len(failed)
    say(f"test-power8: {passed} of {len(tests)} runs of pytest passed, emulated and not on a real Power8")
    return 1 if failed else 0


def run_in(root: Path, script: str) -> int:
    """Run a script of the shell inside `root`, say how it ended, and return its exit status."""
    begun = time.monotonic()
    variables = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    status = contained(["sh", "-c", START, str(root), script, *variables])
    say(f"-- {time.monotonic() - begun:.0f} s, exit status {status}: {script.strip().splitlines()[-1]}")
    return status


def contained(command: Sequence[str], output: IO[bytes] | None = None) -> int:
    """Run a command in namespaces that end with it, or with this process, and return its exit status."""
    process = subprocess.Popen([*CONTAINED, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        return process.wait()
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
