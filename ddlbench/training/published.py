"""What others reported of training at scale: one figure a row, each with its source. Nothing is added to it."""

import csv
from dataclasses import dataclass, fields
from pathlib import Path

from ddlbench.errors import UsageError

SHIPPED = Path(__file__).parents[2] / "configs" / "published" / "headlines.csv"
"""Where the table of a source tree lies; a wheel does not carry it."""
MODELS = {
    "resnet50": "ResNet-50",
    "resnet101": "ResNet-101",
    "resnet101-22k": "ResNet-101",
    "vgg16": "VGG-16",
    "alexnet": "AlexNet",
    "inception_v3": "Inception-v3",
}
"""How the workloads are called in the table."""
EFFICIENCY = "scaling efficiency"


@dataclass(frozen=True)
class Published:
    """A figure as its source states it; texts, "" where the source does not say."""

    system: str
    year: str
    model: str
    dataset: str
    gpus: str
    nodes: str
    gpu: str
    network: str
    framework: str
    metric: str
    value: str
    unit: str
    source: str

    @property
    def is_efficiency(self) -> bool:
        """Whether it is a scaling efficiency, which a prediction can stand beside."""
        return self.metric.startswith(EFFICIENCY)


def read(path: Path = SHIPPED) -> list[Published]:
    """Return the table; raises `UsageError` when it cannot be read."""
    names = [field.name for field in fields(Published)]
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [Published(**{name: line[name] for name in names}) for line in csv.DictReader(file)]
    except (OSError, KeyError) as error:
        raise UsageError(f"table of published results {str(path)!r} cannot be read: {error}") from None


def of_model(rows: list[Published], workload: str) -> list[Published]:
    """Return the rows of the model that `workload` names; none where it has no name there."""
    name = MODELS.get(workload)
    return [row for row in rows if name is not None and row.model == name]
