"""Intel MPI Benchmarks: the tables of `Allreduce`, one for each number of processes.

    # Benchmarking Allreduce
    # #processes = 64
           #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
                0         1000         0.28         0.31         0.29

Minimum and maximum are over the ranks' means. A checking build adds `defects`. In the place of times a row may say why
there are none: ` int-overflow.; …`, ` out-of-mem.; …`, ` time-out.; …`.
"""

import re
from dataclasses import replace

from ddlbench.foreign.elements import element_type
from ddlbench.foreign.section import Format, Row, Section, UnreadError, decimal, plain, shown, whole
from ddlbench.records import Stated

TITLE = re.compile(r"#\s+Intel ?\(R\) MPI Benchmarks\s*([\w.]{0,16})")
BENCHMARK = re.compile(r"# Benchmarking (\S+)")
PROCESSES = re.compile(r"# #processes = ([0-9]{1,9})\b")
DATATYPE = re.compile(r"# MPI_Datatype for reductions\s*:\s*(\w+)")
OPERATION = re.compile(r"# MPI_Op\s*:\s*MPI_([A-Z]{1,16})")
FAILURE = re.compile(r"([0-9]{1,18})\s+((?:int-overflow|out-of-mem|time-out)\.?;.*)")
COLUMNS = ["#bytes", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]"]
OPS = {"SUM": "sum", "PROD": "prod", "MIN": "min", "MAX": "max"}
TOLERATED = 1e-2
"""Defects up to this pass in the program itself."""


class ImbSection(Section):
    """One run of the Intel MPI Benchmarks."""

    program = "imb"
    usual_dtype = "float32"

    def __init__(self, version: str = "") -> None:
        super().__init__(version)
        self._dtype: str | None = None
        self._op = "sum"
        self._benchmark = ""
        self._ranks: int | None = None
        self._columns: list[str] = []

    def continues(self, title: str) -> bool:
        """Return whether the title is that of one more table of this run."""
        return BENCHMARK.match(title) is not None

    def read(self, number: int, line: str) -> None:
        """Take in a line of the head, or the title, the columns or a row of a table."""
        if line.startswith("# "):
            self._read_comment(line)
        elif line.startswith("#bytes"):
            self._columns = line.split()
        elif not line.startswith("#") and self._benchmark in ("", "Allreduce"):
            self._read_row(number, line)

    def _read_comment(self, line: str) -> None:
        if found := BENCHMARK.match(line):
            self._begin(found[1])
        elif found := PROCESSES.match(line):
            self._ranks = int(found[1]) or None
        elif found := DATATYPE.match(line):
            with self.telling("the datatype"):
                self._dtype = element_type(found[1])
        elif found := OPERATION.match(line):
            self._op = OPS.get(found[1], found[1].lower())

    def _begin(self, benchmark: str) -> None:
        self._benchmark, self._ranks, self._columns = benchmark, None, []
        left_out = f"IMB {shown(benchmark, 24)}: only allreduce is read"
        if benchmark != "Allreduce" and left_out not in self.left_out:
            self.left_out.append(left_out)

    def _read_row(self, line: int, text: str) -> None:
        self.check_told()
        if found := FAILURE.fullmatch(text):
            self.rows.append(replace(self._row(line, found[1]), status="failed", reason=plain(found[2], 240)))
            return
        words = text.split()
        if self._columns[:5] != COLUMNS or len(words) != len(self._columns):
            raise UnreadError
        stated = Stated(
            mean_us=decimal(words[4]),
            repetitions=whole(words[1]),
            fastest_rank_us=decimal(words[2]),
            slowest_rank_us=decimal(words[3]),
        )
        row = replace(self._row(line, words[0]), stated=stated)
        self.rows.append(_checked(row, words[5]) if self._columns[5:] == ["defects"] else row)

    def _row(self, line: int, nbytes: str) -> Row:
        return Row(line=line, nbytes=whole(nbytes), op=self._op, dtype=self._dtype, ranks=self._ranks, device="cpu")


def _checked(row: Row, defects: str) -> Row:
    """Return the row with what its column of defects says of the result."""
    if decimal(defects) <= TOLERATED:
        return replace(row, wrong=0)
    reason = f"the program found defects of {defects}; its log does not say in how many elements"
    return replace(row, status="wrong", reason=reason)


def _opened(line: str) -> Section | None:
    if found := TITLE.match(line):
        return ImbSection(found[1])
    if BENCHMARK.match(line):
        section = ImbSection()
        section.read(0, line)
        return section
    return None


IMB = Format("Intel MPI Benchmarks", "# Benchmarking Allreduce", _opened)
