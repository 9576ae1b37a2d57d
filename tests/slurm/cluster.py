"""A SLURM of one's own on the nodes of a `ddlbench lab`, for as long as somebody has commands for it.

`python cluster.py` runs on node0 of the lab, as root of it. It writes a line when the nodes are idle, and then reads
commands, each a JSON object in a line, runs them, and answers with a line. At the end of its input it ends every daemon
by its number; the lab's end would end them too. Everything is in a temporary folder.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

ENTER = "/run/ddlbench-lab/bin/enter"
START_SECONDS = 60
LOG_LINES = 15

CONF = """
ClusterName=lab
SlurmctldHost=node0
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{nodes}
PartitionName=lab Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """The daemons of a SLURM; a context manager that is left with all of them ended."""

    def __init__(self, folder: Path, nodes: list[str], cpus: int) -> None:
        self.folder, self.nodes = folder, nodes
        self.processes: list[subprocess.Popen[bytes]] = []
        self.write(cpus)

    def write(self, cpus: int) -> None:
        """Write the configuration and the key."""
        lines = [
            f"NodeName={node} NodeAddr=10.9.0.{number} CPUs={cpus} RealMemory=4000"
            for number, node in enumerate(self.nodes, 1)
        ]
        text = CONF.format(folder=self.folder, nodes="\n".join(lines), names=",".join(self.nodes))
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        # Of a folder that each node has for itself: the nodes of the lab share /tmp.
        (self.folder / "mpi.conf").write_text("PMIxCliTmpDirBase=/dev/shm\n")
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)

    def start(self, *argv: str, on: str | None = None) -> None:
        """Start a daemon, in the foreground, on this node or another."""
        words = [*([ENTER, on] if on else []), *argv]
        log = self.folder / f"{Path(argv[0]).name}{f'-{on}' if on else ''}.out"
        with log.open("wb") as output:
            self.processes.append(
                subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
            )

    def __enter__(self) -> Self:
        files = {name: str(self.folder / f"munge.{name}") for name in ("socket", "key", "pid", "log", "seed")}
        places = ["--socket", files["socket"]]
        for option, name in (
            ("--key-file", "key"),
            ("--pid-file", "pid"),
            ("--log-file", "log"),
            ("--seed-file", "seed"),
        ):
            places += [option, files[name]]
        try:
            self.start("/usr/sbin/munged", "--foreground", "--force", *places)
            self.until(lambda: Path(files["socket"]).exists(), "munged has no socket")
            self.start("/usr/sbin/slurmctld", "-D")
            for node in self.nodes:
                self.start("/usr/sbin/slurmd", "-D", "-N", node, on=node)
            self.until(self.idle, "the nodes did not become idle")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def idle(self) -> bool:
        """Say whether all nodes wait for work."""
        done = subprocess.run(["sinfo", "-h", "-o", "%D %t"], capture_output=True, text=True, check=False)
        return done.stdout.split() == [str(len(self.nodes)), "idle"]

    def until(self, there, what: str) -> None:
        """Wait until `there()`; raises `SystemExit` with the ends of the logs."""
        deadline = time.monotonic() + START_SECONDS
        while not there():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                raise SystemExit(f"{what}\n{self.logs()}")
            time.sleep(0.1)

    def logs(self) -> str:
        """Return the last lines of each log."""
        texts = []
        for path in sorted(self.folder.glob("*.log")) + sorted(self.folder.glob("*.out")):
            lines = path.read_text(errors="replace").splitlines()
            texts += [f"== {path.name}", *lines[-LOG_LINES:]]
        return "\n".join(texts)

    def stop(self) -> None:
        """End the daemons, the last first."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 5
        for process in reversed(self.processes):
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def answers(lines) -> None:
    """Run the commands of `lines` and write what came of each."""
    for line in lines:
        asked = json.loads(line)
        env = {**os.environ, **asked["env"]}
        done = subprocess.run(
            asked["argv"],
            env=env,
            cwd=asked["cwd"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        told = {"status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
        print(json.dumps(told), flush=True)


# What a lab tells mpirun of its nodes; in a job of SLURM that is SLURM's part.
LAB_S_OWN = ("PRTE_MCA_plm", "PRTE_MCA_prte_default_hostfile", "PRTE_MCA_rmaps", "DDLBENCH_LAB")


def main() -> int:
    """Serve a cluster of all nodes of this lab."""
    nodes = [line.split()[0] for line in Path(os.environ["DDLBENCH_LAB_HOSTFILE"]).read_text().splitlines()]
    for name in list(os.environ):
        if name.startswith(LAB_S_OWN):
            del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="ddlbench-slurm-") as name:
        folder = Path(name)
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        with Cluster(folder, nodes, cpus=2) as cluster:
            print(json.dumps({"ready": len(cluster.nodes)}), flush=True)
            answers(sys.stdin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
