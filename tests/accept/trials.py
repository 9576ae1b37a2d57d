"""Does `ddlbench accept` name the right node, and nobody when nothing is wrong? Trials in the lab, counted.

    healthy   nothing is wrong
    slow      a node's link has a third of the rate
    cpu       a node's processor is slow: its ranks are stopped half of the time, or share a processor with two spinners
    drop      a node's link is cut for a second every five

Which node it is, and when a link is cut, follows from the seed. A trial is right when exactly the planted node is
named, and a healthy one when it passes. Writes trials.csv, confusion.txt and the files of trials that were not right,
and returns 1 when a fault was named in fewer than 19 of 20 trials, or a healthy one did not pass.
"""

import argparse
import csv
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

CASES = ("healthy", "slow", "cpu", "drop")
CPU = ("stopped", "busy")
ANSWERS = ("right", "missed", "wrong", "no answer")
PLANTED = Path(__file__).with_name("planted.py")
NODES, RATE, THIRD = 4, "1gbit", "333mbit"
ENOUGH = 0.95
TRIAL_SECONDS = 150


@dataclass(frozen=True)
class Trial:
    """One trial: the host that was bad, how, the hosts that were named, and whether that is right."""

    case: str
    number: int
    fault: str
    host: str
    named: str
    answer: str
    seconds: float
    status: int


def plan(case: str, seed: int, number: int, cpu: list[str]) -> tuple[str, str]:
    """Return the fault and the host of a trial; "" where there is none. `cpu` are the faults of processors, in turn."""
    drawn = random.Random(f"{seed} {case} {number}")
    host = f"node{drawn.randrange(NODES)}"
    kinds = {"healthy": "", "slow": "slow", "cpu": cpu[number % len(cpu)], "drop": "drop"}
    return kinds[case], host if kinds[case] else ""


def words(fault: str, host: str, seed: int, out: Path) -> list[str]:
    """Return the command of a trial."""
    ddlbench = [sys.executable, "-m", "ddlbench"]
    rates = ["--node-rate", f"{host.removeprefix('node')}={THIRD}"] if fault == "slow" else []
    planted = [sys.executable, str(PLANTED), fault, host, str(seed), "--"] if fault not in ("", "slow") else []
    lab = [*ddlbench, "lab", "run", "--nodes", str(NODES), "--rate", RATE, *rates, "--"]
    return [*lab, *planted, *ddlbench, "accept", "--out", str(out), "--overwrite"]


def run(case: str, seed: int, number: int, cpu: list[str], folder: Path) -> Trial:
    """Run a trial and return what came of it; its files stay when it was not right."""
    fault, host = plan(case, seed, number, cpu)
    out = folder / f"{case}-{number}"
    shutil.rmtree(out, ignore_errors=True)
    begun = time.monotonic()
    command = words(fault, host, seed * 1000 + number, out)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TRIAL_SECONDS)
        status, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        status, said = -1, f"did not end in {TRIAL_SECONDS} s\n"
    seconds = time.monotonic() - begun
    named = named_in(out)
    answer = judged(host, named)
    if answer == "right":
        shutil.rmtree(out)
    else:
        out.mkdir(parents=True, exist_ok=True)
        (out / "screen.txt").write_text(said)
    return Trial(case, number, fault, host, "?" if named is None else " ".join(sorted(named)), answer, seconds, status)


def named_in(out: Path) -> set[str] | None:
    """Return the hosts that an acceptance named, `something` where it failed and named none; None without a record."""
    try:
        data = json.loads((out / "accept.json").read_text())
    except (OSError, ValueError):
        return None
    named = {one["host"] for one in data["bad"]} | {*data["spoilers"]}
    return named or (set() if data["passed"] else {"something"})


def judged(host: str, named: set[str] | None) -> str:
    """Return what kind of answer it is to name `named` where `host` is bad ("": none is)."""
    if named is None:
        return "no answer"
    if named == ({host} if host else set()):
        return "right"
    return "missed" if not named else "wrong"


def confusion(trials: list[Trial]) -> str:
    """Return the table of cases by answers."""
    rows = [("case", "trials", *ANSWERS, "median s")]
    for case in dict.fromkeys(trial.case for trial in trials):
        own = [trial for trial in trials if trial.case == case]
        counts = Counter(trial.answer for trial in own)
        middle = sorted(trial.seconds for trial in own)[len(own) // 2]
        rows.append((case, str(len(own)), *(str(counts[answer]) for answer in ANSWERS), f"{middle:.0f}"))
    return "".join("  ".join(cell.rjust(9) for cell in row) + "\n" for row in rows)


def goals(trials: list[Trial]) -> Iterator[str]:
    """Yield what falls short of the goal."""
    for case in dict.fromkeys(trial.case for trial in trials):
        own = [trial.answer == "right" for trial in trials if trial.case == case]
        if sum(own) < len(own) * (1 if case == "healthy" else ENOUGH):
            yield f"{case}: {sum(own)} of {len(own)} right"


def write(folder: Path, trials: list[Trial]) -> None:
    with (folder / "trials.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(asdict(trials[0])), lineterminator="\n")
        table.writeheader()
        table.writerows(asdict(trial) | {"seconds": f"{trial.seconds:.1f}"} for trial in trials)
    (folder / "confusion.txt").write_text(confusion(trials))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="of each case (20)")
    parser.add_argument("--cases", default=",".join(CASES), help="which (%(default)s)")
    parser.add_argument("--cpu", default=",".join(CPU), help="which faults of a processor, in turn (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("reports/accept"))
    asked = parser.parse_args()
    cases, cpu = asked.cases.split(","), asked.cpu.split(",")
    if asked.trials < 1 or not {*cases} <= {*CASES} or not {*cpu} <= {*CPU}:
        parser.error(f"expected --trials from 1 on, --cases among {', '.join(CASES)}, --cpu among {', '.join(CPU)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    trials: list[Trial] = []
    for number in range(asked.trials):
        for case in cases:
            trials.append(run(case, asked.seed, number, cpu, asked.out))
            one = trials[-1]
            planted = f"{one.fault} {one.host}" if one.host else "nothing"
            print(
                f"{case} {number}: {one.answer}: {planted}, named {one.named or 'nobody'}; {one.seconds:.0f} s",
                flush=True,
            )
            write(asked.out, trials)
    print(confusion(trials), end="")
    short = [*goals(trials)]
    print("\n".join(short) if short else "all goals are met")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
