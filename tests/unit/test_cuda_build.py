"""How ddlbench._cuda is built: where nvcc is looked for, which devices it compiles for, and what is refused."""

import importlib.util
import os
import runpy
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]
CUDA_12 = [50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121]
CUDA_13 = [75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121]
FAKE_NVCC = """#!/bin/sh
echo "$*" >>{log}
case "$*" in
*--list-gpu-arch*) echo compute_75; echo compute_80; echo compute_90; echo compute_90a;;
*) while [ "$1" != -o ] && [ $# -gt 0 ]; do shift; done
   {then}
esac
"""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take CUDA away: from the environment, from PATH and from the usual place. Returns an empty folder on PATH."""
    for name in ("CUDA_HOME", "CUDA_PATH", "DDLBENCH_CUDA", "DDLBENCH_CUDA_ARCHS"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    monkeypatch.setenv("PATH", str(folder))
    real = shutil.which
    usual = "/usr/local/cuda/bin"
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if path == usual else real(name, path=path))
    return folder


def fake_nvcc(folder: Path, then: str = ': >"$2"') -> Path:
    """Put an nvcc into `folder` that notes its arguments in nvcc.log and makes an empty file for what it compiles."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvcc"
    program.write_text(FAKE_NVCC.format(log=folder / "nvcc.log", then=then))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def setup(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run setup.py without building anything, and return what it defines."""
    pytest.importorskip("Cython", reason="setup.py needs Cython")
    monkeypatch.chdir(TOP)
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.setattr("Cython.Build.cythonize", lambda extensions, **_: extensions)
    return runpy.run_path(str(TOP / "setup.py"))


def names(found: dict[str, Any]) -> list[str]:
    return [extension.name for extension in found["extensions"]]


# ---- Whether it is built ---------------------------------------------------------------------------------------------


def test_without_nvcc_everything_else_is_built(bare, monkeypatch):
    found = setup(monkeypatch)
    assert "ddlbench._cuda" not in names(found)
    assert "ddlbench._engine" in names(found)


def test_with_nvcc_it_is_built_and_its_failure_is_a_warning(bare, monkeypatch):
    nvcc = fake_nvcc(bare)
    found = setup(monkeypatch)
    assert (found["NVCC"][0], found["extensions"][-1].name) == (str(nvcc), "ddlbench._cuda")
    assert found["extensions"][-1].optional
    monkeypatch.setenv("DDLBENCH_CUDA", "1")
    assert not setup(monkeypatch)["extensions"][-1].optional


def test_zero_leaves_it_out_whatever_there_is(bare, monkeypatch):
    fake_nvcc(bare)
    monkeypatch.setenv("DDLBENCH_CUDA", "0")
    assert "ddlbench._cuda" not in names(setup(monkeypatch))
    assert not (bare / "nvcc.log").exists()


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_a_named_toolkit_comes_before_path(bare, tmp_path, monkeypatch, variable):
    fake_nvcc(bare)
    named = fake_nvcc(tmp_path / "toolkit" / "bin")
    monkeypatch.setenv(variable, str(tmp_path / "toolkit"))
    assert setup(monkeypatch)["NVCC"][0] == str(named)


def test_one_without_nvcc_is_refused_with_the_way_out(bare, monkeypatch):
    monkeypatch.setenv("DDLBENCH_CUDA", "1")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    with pytest.raises(SystemExit, match=r"no nvcc. Looked at \$CUDA_HOME \(/nowhere\), \$CUDA_PATH \(not set\)") as no:
        setup(monkeypatch)
    assert "name its folder with CUDA_HOME=/path/to/cuda, or build without CUDA (DDLBENCH_CUDA=auto or 0)" in str(
        no.value
    )


def test_another_choice_is_refused(bare, monkeypatch):
    monkeypatch.setenv("DDLBENCH_CUDA", "yes")
    with pytest.raises(SystemExit, match=r"DDLBENCH_CUDA=yes: expected auto .*, 1 \(always\) or 0 \(never\)"):
        setup(monkeypatch)


def test_an_nvcc_that_names_no_device_is_no_nvcc(bare, monkeypatch):
    (bare / "nvcc").write_text("#!/bin/sh\nexit 1\n")
    (bare / "nvcc").chmod(0o755)
    assert "ddlbench._cuda" not in names(setup(monkeypatch))
    monkeypatch.setenv("DDLBENCH_CUDA", "1")
    with pytest.raises(SystemExit, match="--list-gpu-arch names no device"):
        setup(monkeypatch)


# ---- For which devices -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "asked", "archs"),
    [
        (CUDA_13, "", [75, 80, 90, 100, 120]),
        (CUDA_12, "", [60, 70, 80, 90, 100, 120]),
        (CUDA_12, "70", [70]),
        (CUDA_12, " sm_90, 80;60 80", [60, 80, 90]),
    ],
)
def test_devices_are_the_first_of_each_generation_or_those_asked_for(bare, monkeypatch, known, asked, archs):
    assert setup(monkeypatch)["chosen_archs"](known, asked) == archs


@pytest.mark.parametrize("asked", ["60", "80 sm_61", "9.0", "native"])
def test_a_device_that_nvcc_does_not_know_is_refused(bare, monkeypatch, asked):
    fake_nvcc(bare)
    monkeypatch.setenv("DDLBENCH_CUDA_ARCHS", asked)
    with pytest.raises(SystemExit, match=rf"does not know '{asked.split()[-1]}'; expected some of: 75 80 90$"):
        setup(monkeypatch)


@pytest.mark.parametrize(
    ("archs", "options"),
    [
        ([75, 80, 90], ["arch=compute_75,code=[sm_75]", "arch=compute_80,code=[sm_80,sm_90,compute_80]"]),
        ([60, 70], ["arch=compute_60,code=[sm_60,sm_70,compute_60]"]),
        ([90], ["arch=compute_90,code=[sm_90,compute_90]"]),
    ],
)
def test_every_device_has_its_code_and_newer_ones_have_ptx(bare, monkeypatch, archs, options):
    assert setup(monkeypatch)["gencode"](archs) == [f"-gencode={option}" for option in options]


# ---- Compiling -------------------------------------------------------------------------------------------------------


def building(found: dict[str, Any], folder: Path) -> Any:
    """Return a command that builds ddlbench._cuda, and only that, in `folder`."""
    from setuptools import Distribution

    extension = found["extensions"][-1]
    command = found["BuildExt"](Distribution({"name": "ddlbench", "ext_modules": [extension]}))
    command.ensure_finalized()
    command.build_temp, command.build_lib, command.parallel = str(folder), str(folder / "lib"), None
    command.cython_sources = lambda sources, _: sources
    return command


def test_only_what_changed_is_compiled_again(bare, tmp_path, monkeypatch):
    fake_nvcc(bare)
    found = setup(monkeypatch)

    def compiled() -> int:
        (bare / "nvcc.log").write_text("")
        building(found, tmp_path / "build").cuda_objects(found["extensions"][-1])
        return len((bare / "nvcc.log").read_text().splitlines())

    assert compiled() == len(found["CUDA_SOURCES"])
    assert compiled() == 0
    found["NVCC"].append("-DOTHER")
    assert compiled() == len(found["CUDA_SOURCES"])


@pytest.mark.parametrize("choice", ["auto", "1"])
def test_an_nvcc_that_fails_ends_only_a_build_that_asked_for_it(bare, tmp_path, monkeypatch, choice):
    from setuptools.errors import BaseError

    fake_nvcc(bare, then="exit 1")
    monkeypatch.setenv("DDLBENCH_CUDA", choice)
    command = building(setup(monkeypatch), tmp_path / "build")
    if choice == "auto":
        command.run()
    else:
        with pytest.raises(BaseError, match="nvcc"):
            command.run()


# ---- The extension as it was built -----------------------------------------------------------------------------------


def built() -> Path:
    """Return the extension of this tree; skips where it was left out."""
    spec = importlib.util.find_spec("ddlbench._cuda")
    if spec is None or spec.origin is None:
        pytest.skip("ddlbench._cuda is not built: there was no nvcc")
    return Path(spec.origin)


def test_no_library_of_cuda_is_needed_to_import_it():
    if shutil.which("readelf") is None:
        pytest.skip("there is no readelf")
    done = subprocess.run(["readelf", "-d", str(built())], capture_output=True, text=True, check=True)
    needed = [line for line in done.stdout.splitlines() if "NEEDED" in line]
    assert needed
    assert [line for line in needed if "cuda" in line.lower()] == []


def test_without_a_gpu_it_says_so_in_one_line():
    built()
    program = "import ddlbench._cuda as c\ntry: print(len(c.devices()))\nexcept c.NoDeviceError as e: print(e)"
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    (line,) = done.stdout.splitlines()
    assert line.startswith("no GPU to work with: cudaGetDeviceCount: ")
    assert "CUDA_VISIBLE_DEVICES is ''. See that nvidia-smi lists a GPU" in line


def test_its_types_name_what_it_has():
    built()
    module = importlib.import_module("ddlbench._cuda")
    stub = (TOP / "ddlbench" / "_cuda.pyi").read_text()
    public = {name for name, value in vars(module).items() if callable(value) and value.__module__ == module.__name__}
    assert {name for name in public if f"def {name}(" not in stub and f"class {name}(" not in stub} == set()
    assert {word.split("(")[0][4:] for word in stub.splitlines() if word.startswith("def ")} <= public
