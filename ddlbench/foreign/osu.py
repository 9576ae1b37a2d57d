"""OSU Micro-Benchmarks: `osu_allreduce` of 5 to 7.5, and OMB-Py.

    # OSU MPI Allreduce Latency Test v7.4
    # Datatype: MPI_CHAR.
    # Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations        Validation
    1                       1.51              1.40              1.62        1000              Pass

7.1 prints the line of the columns before that of the datatype; up to 7.0 there is no datatype: it is MPI_FLOAT.
Without `-f` there are the size and the mean, `-c` adds the validation, `-z` percentiles. OMB-Py has another title,
another name of the mean, and says no datatype. Minimum and maximum are over the ranks' means.
"""

import re

from ddlbench.foreign.elements import element_type
from ddlbench.foreign.section import Format, OtherSection, Row, Section, UnreadError, decimal, plain, whole
from ddlbench.records import Stated
from ddlbench.records.point import Status

TITLE = re.compile(
    r"# OSU (?P<library>[A-Z]{1,16})(?:-(?P<device>[A-Z]{1,16}))?(?: MANAGED)? (?P<test>.{1,80}?) Test"
    r"(?: v(?P<version>[0-9.a-z-]{1,16}))?"
)
PYTHON_TITLE = re.compile(r"# OMB(?: Python|-Py) MPI (?P<test>.{1,80}?) Test")
DATATYPE = re.compile(r"# Datatype: (\w+)\.?")
COLUMN = re.compile(
    r"Size(?: \(B\))?|(?:Avg |Min |Max )?Latency ?\(us\)|Iterations|Validation|P\d+ Tail Lat\(us\)|Transmit Size"
)
NAMES = {
    "Size (B)": "size",
    "Size": "size",
    "Avg Latency(us)": "mean",
    "Latency (us)": "mean",
    "Latency(us)": "mean",
    "Min Latency(us)": "fastest",
    "Max Latency(us)": "slowest",
    "Iterations": "repetitions",
    "Validation": "validation",
    "Transmit Size": "transmitted",
}
"""A column's title to what it holds; percentiles are of no use without samples."""
VALIDATION: dict[str | None, tuple[Status, int | None, str]] = {
    None: ("ok", None, ""),
    "Pass": ("ok", 0, ""),
    "Fail": ("wrong", None, "the program's own validation failed; its log does not say in how many elements"),
}


class OsuSection(Section):
    """One run of `osu_allreduce`."""

    program = "osu_allreduce"
    usual_dtype: str | None = "float32"

    def __init__(self, version: str, device: str | None = "cpu") -> None:
        super().__init__(version)
        self._device = device
        self._dtype: str | None = None
        self._columns: list[str] | None = None

    def read(self, number: int, line: str) -> None:
        """Take in the datatype, the columns or a row of them."""
        if line.startswith("#"):
            self._read_comment(line)
        else:
            self._read_row(number, line.split())

    def _read_comment(self, line: str) -> None:
        if found := DATATYPE.match(line):
            with self.telling("the datatype"):
                self._dtype = element_type(found[1])
        elif line.startswith("# Size"):
            with self.telling("the columns"):
                self._columns = _columns(line)

    def _read_row(self, line: int, words: list[str]) -> None:
        self.check_told()
        columns = self._columns or ["size", "mean"]
        if len(words) != len(columns):
            raise UnreadError
        cells = dict(zip(columns, words, strict=True))
        if "transmitted" in cells:
            raise UnreadError("the vectors are of a derived datatype (-D)")
        if cells.get("validation") not in VALIDATION:
            raise UnreadError
        status, wrong, reason = VALIDATION[cells.get("validation")]
        self.rows.append(
            Row(
                line=line,
                nbytes=whole(cells["size"]),
                op="sum",
                dtype=self._dtype,
                device=self._device,
                stated=_stated(cells),
                wrong=wrong,
                status=status,
                reason=reason,
            )
        )


class OmbPySection(OsuSection):
    """One run of OMB-Py's allreduce; its log says neither version nor datatype nor device."""

    program = "omb-py"
    usual_dtype = None

    def __init__(self) -> None:
        super().__init__("", None)


def _columns(line: str) -> list[str]:
    """Return what the columns hold; raises `UnreadError` when the titles are not those of an allreduce."""
    titles = COLUMN.findall(line)
    columns = [NAMES.get(title, title) for title in titles]
    if COLUMN.sub("", line).strip("# ") or columns[:2] != ["size", "mean"]:
        raise UnreadError("these columns are not known")
    return columns


def _stated(cells: dict[str, str]) -> Stated:
    return Stated(
        mean_us=decimal(cells["mean"]),
        repetitions=whole(cells["repetitions"]) if "repetitions" in cells else None,
        fastest_rank_us=decimal(cells["fastest"]) if "fastest" in cells else None,
        slowest_rank_us=decimal(cells["slowest"]) if "slowest" in cells else None,
    )


def _opened(line: str) -> Section | None:
    found = TITLE.match(line)
    if found is None:
        return None
    if (found["library"], found["test"]) != ("MPI", "Allreduce Latency"):
        return OtherSection(f"OSU {found['library']} {plain(found['test'], 80)} Test")
    return OsuSection(found["version"] or "", (found["device"] or "cpu").lower())


def _opened_python(line: str) -> Section | None:
    found = PYTHON_TITLE.match(line)
    if found is None:
        return None
    return OmbPySection() if found["test"] == "Allreduce" else OtherSection(f"OMB-Py {plain(found['test'], 80)} Test")


OSU = Format("OSU Micro-Benchmarks", "# OSU MPI Allreduce Latency Test", _opened)
OMB_PY = Format("OMB-Py", "# OMB Python MPI Allreduce Test", _opened_python)
