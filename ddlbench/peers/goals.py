"""How far ddlbench is ahead: ratios by size against others measured in the same passes, their mean and their least."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ddlbench.peers.figures import Figure


@dataclass(frozen=True)
class Race:
    """One comparison: ddlbench's figures by bytes, and the times in microseconds that they are held against.

    A ratio is the other's time over ours: above 1 we are ahead. `mean` and `least` are the goals for the geometric mean
    over all sizes and for the least of them. `names` says who the other is where that differs from size to size.
    """

    title: str
    ours: Mapping[int, Figure]
    theirs_us: Mapping[int, float]
    mean: float
    least: float
    names: Mapping[int, str] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[int, float]:
        """The ratio at each size that both have, ascending."""
        both = sorted(self.ours.keys() & self.theirs_us.keys())
        return {nbytes: self.theirs_us[nbytes] / self.ours[nbytes].median_us for nbytes in both}

    @property
    def reached_mean(self) -> float:
        """The geometric mean over all sizes; NaN without any."""
        ratios = list(self.ratios.values())
        return float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan")

    @property
    def behind(self) -> list[int]:
        """The sizes at which the other is faster."""
        return [nbytes for nbytes, ratio in self.ratios.items() if ratio < 1]

    @property
    def reached(self) -> bool:
        """Whether both goals are reached."""
        return bool(self.ratios) and self.reached_mean >= self.mean and min(self.ratios.values()) >= self.least
