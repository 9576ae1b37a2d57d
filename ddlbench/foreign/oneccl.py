"""The CSV of oneCCL's benchmark (`--csv_filepath`).

    #ranks,collective,reduction,dtype,dtype_size,#elements/buffer,message_size,#buffers,#repetitions,t_min[usec],…

`message_size` is that of one buffer, while times are of all buffers at once: with several there is no time of one
allreduce. Minimum and maximum are over the ranks' means.
"""

from collections import Counter

from ddlbench.foreign.elements import element_count, element_type
from ddlbench.foreign.section import Format, Row, Section, UnreadError, decimal, shown, whole
from ddlbench.records import Stated

TITLE = "#ranks,collective,reduction,dtype,"
COLUMNS = (
    *("#ranks", "collective", "reduction", "dtype", "#elements/buffer", "message_size", "#buffers", "#repetitions"),
    *("t_min[usec]", "t_max[usec]", "t_avg[usec]"),
)
"""The columns that are used, by name: a version may have more."""


class OneCclSection(Section):
    """One file of oneCCL's benchmark."""

    program = "oneccl"

    def __init__(self, title: str) -> None:
        super().__init__()
        self._columns = title.split(",")
        self._others: Counter[str] = Counter()

    def read(self, number: int, line: str) -> None:
        """Take in a row."""
        if line.startswith("#"):
            return
        cells = line.split(",")
        if len(cells) != len(self._columns):
            raise UnreadError
        self._read_cells(number, dict(zip(self._columns, cells, strict=True)))

    def _read_cells(self, line: int, cells: dict[str, str]) -> None:
        if cells["collective"] != "allreduce":
            self._others[cells["collective"][:24]] += 1
            return
        if cells["#buffers"] != "1":
            raise UnreadError(f"{shown(cells['#buffers'], 24)} buffers at once: there is no time of one allreduce")
        nbytes, count, dtype = (
            whole(cells["message_size"]),
            whole(cells["#elements/buffer"]),
            element_type(cells["dtype"]),
        )
        if element_count(nbytes, dtype) != count:
            raise UnreadError("the size is not that of the elements")
        self.rows.append(
            Row(
                line=line,
                nbytes=nbytes,
                count=count,
                dtype=dtype,
                op=_reduction(cells["reduction"]),
                ranks=whole(cells["#ranks"]) or None,
                stated=_stated(cells),
            )
        )

    def close(self) -> None:
        """Say which other collectives the file holds."""
        self.left_out += [f"oneCCL {shown(name, 24)}: only allreduce is read" for name in self._others]


def _reduction(text: str) -> str:
    if text not in ("sum", "prod", "min", "max"):
        raise UnreadError(f"{shown(text, 24)} is no reduction")
    return text


def _stated(cells: dict[str, str]) -> Stated:
    return Stated(
        mean_us=decimal(cells["t_avg[usec]"]),
        repetitions=whole(cells["#repetitions"]),
        fastest_rank_us=decimal(cells["t_min[usec]"]),
        slowest_rank_us=decimal(cells["t_max[usec]"]),
    )


def _opened(line: str) -> Section | None:
    return OneCclSection(line) if line.startswith(TITLE) and set(COLUMNS) <= set(line.split(",")) else None


ONECCL = Format("oneCCL's benchmark", f"{TITLE}…", _opened)
