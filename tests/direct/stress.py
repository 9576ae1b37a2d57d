"""What `make stress` runs: millions of small allreduces over the direct transport, with changing values and delays.

Each rank is a process. Every element of every result is checked; the exit status is 1 when one was wrong.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ddlbench.algorithms import resolve
from ddlbench.local.ways import Layout
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import lower

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))
from direct_image import build, programs_of, write_image  # noqa: E402 - found through the line above

CASES = [
    (ranks, text, Layout(count, 4, segments, registered=registered, in_place=in_place))
    for ranks in (2, 3, 5)
    for text, count, segments, registered, in_place in (
        ("recursive-doubling", 2, 1, False, False),
        ("direct", 16, 1, True, True),
        ("ring", 20, 4, False, False),
        ("double-binary-tree", 9, 1, True, False),
    )
]


def main() -> int:
    """Run every case and print a line for each."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--executions", type=int, default=10_000_000, help="allreduces for each number of ranks")
    asked.add_argument("--seed", type=int, default=int(time.time()), help="of the delays")
    options = asked.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        program = build(REPOSITORY, Path(folder, "stress"), "-O3")
        for ranks, text, layout in CASES:
            image = write_image(
                Path(folder, "image"), programs_of(lower(resolve(text, Grid((ranks,)))), layout), layout
            )
            each = options.executions * 3 // len(CASES)
            start = time.perf_counter()
            done = subprocess.run(
                [program, image, str(each), "processes", str(options.seed)], capture_output=True, text=True, check=False
            )
            wrong += done.returncode != 0
            told = done.stdout.strip() or done.stderr.strip()
            buffers = "registered" if layout.registered else "slots"
            seconds = f"{time.perf_counter() - start:.1f} s, seed {options.seed}"
            sys.stdout.write(f"{ranks} ranks, {text}, {layout.count} elements, {buffers}: {told} ({seconds})\n")
            sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
