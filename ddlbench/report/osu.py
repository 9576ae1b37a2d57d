"""Results as `osu_allreduce -c` prints them.

The first column is `%-10d`, the others are 18 wide. There is a column `Validation` where a result was checked. Unlike
OSU's, the latency is a median, and the title of its column says so.
"""

from collections.abc import Mapping, Sequence

from ddlbench.records import Point, Run
from ddlbench.records.point import Kind
from ddlbench.report.blocks import Block, blocks, time_us

DATATYPES = {
    "uint8": "MPI_CHAR",
    "int32": "MPI_INT",
    "int64": "MPI_INT64_T",
    "float32": "MPI_FLOAT",
    "float64": "MPI_DOUBLE",
}
"""MPI has no name for the types of 16 bits: ours stands there."""

TITLES: Mapping[Kind, str] = {"measured": "Median", "imported": "Avg", "predicted": "Model"}
"""What the latencies of a table are called, by the kind of its points."""


def osu_lines(run: Run, points: Sequence[Point]) -> list[str]:
    """Return the lines of one table for each algorithm and setting."""
    lines: list[str] = []
    for block in blocks(points, both_places=False):
        lines += [*([""] if lines else []), *_table(run, block)]
    return lines


def _table(run: Run, block: Block) -> list[str]:
    checked = any(map(_checked, block.timed))
    latency = f"{TITLES[block.timed[0].kind if block.timed else 'measured']} Latency(us)"
    return [
        *block.head(run, block.setting.label, "OSU MPI Allreduce Latency Test"),
        f"# Datatype: {DATATYPES.get(block.setting.dtype, block.setting.dtype)}.",
        f"{'# Size':<10}{latency:>18}{'Validation' if checked else '':>18}".rstrip(),
        *(
            f"{point.nbytes:<10}{time_us(point):18.2f}{_verdict(point) if checked else '':>18}".rstrip()
            for point in block.timed
        ),
        *block.remarks(),
    ]


def _checked(point: Point) -> bool:
    return point.wrong is not None or point.status == "wrong"


def _verdict(point: Point) -> str:
    if not _checked(point):
        return "N/A"
    return "Pass" if point.status == "ok" else "Fail"
