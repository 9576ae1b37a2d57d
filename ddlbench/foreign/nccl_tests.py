"""nccl-tests (and rccl-tests): `all_reduce_perf`, since 2019.

    # nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 …
    #  Rank  0 Group  0 Pid  41234 on      node1 device  0 [0x07] NVIDIA H100 80GB HBM3
    #    size    count   type  redop  root   time  algbw  busbw  #wrong   time  algbw  busbw  #wrong
      1048576   262144  float    sum    -1  32.40  32.36  56.64       0  32.23  32.53  56.93       0

The left block is out of place, the right one in place. Older versions have no `root` and, for `#wrong`, an `error`: the
greatest deviation. Without checking there is `N/A`. Newer ones can add columns to a block, and a time stamp to the row.

No collective stands in an older log. The ratio of bus to algorithm bandwidth, 2(p - 1)/p, tells an allreduce.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddlbench.foreign.elements import element_count, element_type
from ddlbench.foreign.section import Format, OtherSection, Row, Section, UnreadError, decimal, shown, whole
from ddlbench.records import Stated

COLLECTIVE = re.compile(r"# Collective test starting: (\S{1,80})")
SETUP = re.compile(
    r"# nThread ([0-9]{1,9}) nGpus ([0-9]{1,9}) .*?(?<!warmup )iters: ([0-9]{1,9})(?: agg iters: ([0-9]{1,9}))?"
)
RANK = re.compile(r"#\s+Rank\s+[0-9]+\s+(?:Group\s+([0-9]+)\s+)?(?:Pid\s+[0-9]+\s+)?on\s+(\S+) device\s+[0-9]+ (.*)")
HEADER = re.compile(r"#\s+size\s+count\s+type\s+redop\s")
CHATTER = re.compile(r"\bNCCL (?:INFO|WARN|TRACE|VERSION)\b|\bNCCL version\b")
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
LIMITS = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}
"""Deviations that a version with `error` lets pass, times the number of ranks but one; none in integers."""
LEAST_GB_PER_S = 0.5
"""Below, two decimals are too few to tell the ratio of the bandwidths."""


@dataclass(frozen=True)
class Measured:
    """A row, with the bandwidths and the deviation that are judged when the number of ranks is known."""

    row: Row
    algbw: float
    busbw: float
    error: float | None = None


class NcclSection(Section):
    """One run of `all_reduce_perf`."""

    program = "nccl-tests"

    def __init__(self) -> None:
        super().__init__()
        self._measured: list[Measured] = []
        self._columns: list[str] = []
        self._group: str | None = None
        self._hosts: list[str] = []
        self._gpus: int | None = None
        self._repetitions: int | None = None
        self._device = "cuda"

    def continues(self, title: str) -> bool:
        """Return whether the title is one of a head that lacks it still."""
        return not self._columns and bool(HEADER.match(title) or (self._gpus is None and SETUP.match(title)))

    def read(self, number: int, line: str) -> None:
        """Take in a line of the head or a row."""
        if line.startswith("#"):
            self._read_comment(line)
        elif not CHATTER.search(line):
            self._measured += self._rows(number, line.split())

    def _read_comment(self, line: str) -> None:
        if found := SETUP.match(line):
            threads, gpus, iterations, aggregated = found.groups(default="1")
            self._gpus = int(threads) * int(gpus)
            self._repetitions = int(iterations) * int(aggregated)
        elif found := RANK.match(line):
            self._read_rank(*found.groups())
        elif HEADER.match(line):
            self._columns = line.removeprefix("#").split()

    def _read_rank(self, group: str | None, host: str, gpu: str) -> None:
        """Take in the place of a rank; of several groups, which run side by side, the first counts."""
        if self._hosts and group != self._group:
            return
        self._group = group
        self._hosts.append(host)
        if "AMD" in gpu:
            self._device = "rocm"

    def _rows(self, line: int, words: list[str]) -> list[Measured]:
        """Return the two results of a row; raises `UnreadError`."""
        stamped = self._columns[-1:] == ["timestamp"]  # of two words
        if len(words) != len(self._columns) + stamped:
            raise UnreadError
        starts = [at for at, title in enumerate(self._columns) if title == "time"]
        if len(starts) != 2:
            raise UnreadError("the time in these columns is not that of the allreduce")
        row = replace(_row(line, words), device=self._device)
        ends = (starts[1], len(self._columns) - stamped)
        blocks = [dict(zip(self._columns[i:j], words[i:j], strict=True)) for i, j in zip(starts, ends, strict=True)]
        places = (False, True)
        return [self._block(replace(row, in_place=at), block) for at, block in zip(places, blocks, strict=True)]

    def _block(self, row: Row, block: dict[str, str]) -> Measured:
        stated = Stated(mean_us=decimal(block["time"]), repetitions=self._repetitions)
        wrong = _wrong(block.get("#wrong", "N/A"))
        if wrong:
            row = replace(row, status="wrong", reason=f"the program found {wrong} wrong elements")
        error = None if block.get("error", "N/A") == "N/A" else decimal(block["error"])
        bandwidths = (decimal(block.get("algbw", "")), decimal(block.get("busbw", "")))
        return Measured(replace(row, stated=stated, wrong=wrong), *bandwidths, error)

    def close(self) -> None:
        """Judge the rows by the number of ranks: whether they are of an allreduce, and whether they were right."""
        ranks = len(self._hosts) or self._gpus
        if ranks is not None and not fits(self._measured, ranks):
            if self._hosts:
                self.left_out.append(f"nccl-tests: bandwidths that are not those of an allreduce over {ranks} ranks")
                return
            ranks = None  # of several processes, which the log then does not count
        hosts = tuple(self._hosts)
        self.rows += [replace(_judged(one, ranks), ranks=ranks, hosts=hosts) for one in self._measured]


def _row(line: int, words: list[str]) -> Row:
    """Return what the left columns hold; raises `UnreadError` when they are not those of an allreduce."""
    nbytes, count, dtype, op = whole(words[0]), whole(words[1]), element_type(words[2]), words[3]
    if op not in REDUCTIONS:
        raise UnreadError(f"{shown(op, 24)} is no reduction of an allreduce")
    if element_count(nbytes, dtype) != count:
        raise UnreadError("size and count are not those of an allreduce")
    return Row(line=line, nbytes=nbytes, count=count, dtype=dtype, op=op)


def _wrong(text: str) -> int | None:
    """Return the wrong elements, which the program prints as a short decimal; None for "N/A"."""
    return None if text == "N/A" else min(int(decimal(text)), 10**18)


def fits(measured: Sequence[Measured], ranks: int) -> bool:
    """Return whether the bandwidths are those of an allreduce over so many ranks, as far as two decimals can tell."""
    best = max(measured, key=lambda one: one.algbw, default=None)
    if best is None or best.algbw < LEAST_GB_PER_S:
        return True
    expected = best.algbw * 2 * (ranks - 1) / ranks
    return abs(best.busbw - expected) <= 0.02 + 0.005 * best.algbw


def _judged(measured: Measured, ranks: int | None) -> Row:
    """Return the row with the verdict that follows from its deviation, where it has one and the ranks are known."""
    row = measured.row
    if measured.error is None or ranks is None or row.dtype is None:
        return row
    if measured.error <= LIMITS.get(row.dtype, 0.0) * max(ranks - 1, 1):
        return replace(row, wrong=0)
    reason = f"the program found a deviation of {measured.error:g}; its log does not say in how many elements"
    return replace(row, status="wrong", reason=reason)


def _opened(line: str) -> Section | None:
    found = COLLECTIVE.match(line)
    if found and not found[1].rpartition("/")[2].startswith("all_reduce_perf"):
        return OtherSection(
            f"nccl-tests {shown(found[1])}", lambda title: bool(SETUP.match(title) or HEADER.match(title))
        )
    if found or SETUP.match(line) or HEADER.match(line):
        section = NcclSection()
        section.read(0, line)
        return section
    return None


NCCL_TESTS = Format("nccl-tests", "#       size         count      type   redop", _opened)
