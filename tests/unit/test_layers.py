"""Dependencies point one way (docs/architecture.md): held by reading the imports of every module of the package."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "ddlbench"

# What each part may import of the package. Everything may use FOUNDATION and the package's version.
FOUNDATION = {"dtypes", "errors", "statistics"}
SCHEDULES = {"schedule", "algorithms"}
ALLOWED = {
    "dtypes": set(),
    "errors": set(),
    "statistics": set(),
    "schedule": {"_reduce"},
    "algorithms": {"schedule"},
    "topology": {"schedule"},
    "pages": set(),
    "comm": {*SCHEDULES, "topology", "tuning", "local", "device", "pages", "_engine"},
    "device": {"schedule", "local", "_engine", "_cuda"},
    "local": {"schedule", "pages", "_engine"},
    "cost": {*SCHEDULES, "topology"},
    "cost.probe": {*SCHEDULES, "topology", "comm", "_engine", "_reduce"},
    "cost.streams": {"comm"},
    "links": {"schedule", "topology", "comm", "cost", "bench", "watch", "_engine", "_reduce"},
    "accept": {
        *SCHEDULES,
        "topology",
        "comm",
        "cost",
        "links",
        "bench",
        "watch",
        "records",
        "report",
        "launch",
        "_reduce",
    },
    "records": set(),
    "watch": {"_deadline"},
    "bench": {*SCHEDULES, "topology", "comm", "device", "records", "watch", "_clock"},
    "training": {*SCHEDULES, "cost"},
    "report": {"records"},
    "foreign": {"records"},
    "tuning": {"records"},
    "tuning.priced": {*SCHEDULES, "cost"},
    "tuning.choice": {*SCHEDULES, "topology", "records"},
    "compare": {"records"},
    "lab": set(),
    "launch": {"schedule", "records", "bench"},
    "peers": {*SCHEDULES, "topology", "records", "bench", "report", "foreign", "lab"},
    "timeline": {*SCHEDULES, "cost"},
    "model": {*SCHEDULES, "cost", "records", "bench", "report", "lab", "peers"},
    "peers.lab_rank": {"comm", "bench", "records", "_engine"},
    "peers.memory_rank": {"comm"},
}
# The command line stands on top, and the package's own module loads the public names when they are first used.
UNBOUND = {"cli", "__main__", "__init__"}
MAY_IMPORT_MPI = {"comm", "local", "device", "topology", "bench", "cli"}


def modules() -> list[str]:
    """Return the dotted name inside the package of each of its modules: "cost.probe", "__init__"."""
    names = (".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py"))
    return sorted(name.removesuffix(".__init__") for name in names)


def source(module: str) -> str:
    """Return the text of a module."""
    path = PACKAGE.joinpath(*module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield each imported name with its module, `from a import b` as "a.b"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def part_of(module: str) -> str:
    """Return the part of the package whose rule binds `module`."""
    return module if module in ALLOWED else module.split(".")[0]


def violations(module: str, text: str) -> list[str]:
    """Return the imports of `text`, as the module `module`, that its part may not make."""
    part = part_of(module)
    if part in UNBOUND:
        return []
    own = {part.split(".")[0], "__version__"}
    inside = [name.split(".")[1:] for name in imported(ast.parse(text)) if name.split(".")[0] == "ddlbench"]
    return sorted({".".join(name) for name in inside if name and name[0] not in ALLOWED[part] | FOUNDATION | own})


def executed_on_import(text: str) -> Iterator[str]:
    """Yield what importing a module with this text imports: all but functions and type checking."""
    waiting: list[ast.AST] = list(ast.parse(text).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported(node)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_what_stands_below_it(module):
    part = part_of(module)
    assert part in ALLOWED or part in UNBOUND, f"ddlbench/{part} is new: say in ALLOWED what it may import"
    assert violations(module, source(module)) == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("algorithms.ring", "from ddlbench.bench import sweep"),
        ("schedule.verify", "from ddlbench import algorithms"),
        ("cost.closed", "import ddlbench.comm"),
        ("comm", "def f():\n    from ddlbench.cost.closed import bound_seconds"),
        ("report.html", "from ddlbench.schedule.grid import Grid"),
        ("bench.sweep", "from ddlbench.cost import probe"),
    ],
)
def test_the_rule_refuses_an_import_that_points_up_or_sideways(module, text):
    assert violations(module, text) != []


@pytest.mark.parametrize("module", modules())
def test_no_relative_import_escapes_the_rule(module):
    assert [name for name in imported(ast.parse(source(module))) if name.startswith(".")] == []


@pytest.mark.parametrize("module", [name for name in modules() if name.split(".")[0] not in MAY_IMPORT_MPI])
def test_a_part_that_needs_no_mpi_does_not_import_it(module):
    assert [name for name in executed_on_import(source(module)) if name.split(".")[0] == "mpi4py"] == []


def loaded_by(*names: str) -> set[str]:
    """Return the top-level modules that a fresh Python loads to import `names`."""
    program = (
        "import importlib, json, sys; before = set(sys.modules); "
        f"[importlib.import_module(name) for name in {names!r}]; "
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_importing_ddlbench_loads_nothing_but_itself():
    assert loaded_by("ddlbench") - sys.stdlib_module_names == {"ddlbench"}


def test_schedules_costs_and_reports_work_without_loading_mpi_or_cuda():
    parts = [
        f"ddlbench.{name}" for name in modules() if part_of(name) in ALLOWED and name.split(".")[0] != "cost.probe"
    ]
    free = [name for name in parts if name.split(".")[1] not in MAY_IMPORT_MPI and name != "ddlbench.cost.probe"]
    assert free
    assert loaded_by(*free) & {"mpi4py", "pycuda", "cuda", "cupy", "torch"} == set()
