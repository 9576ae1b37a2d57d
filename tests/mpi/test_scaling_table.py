"""A sweep of several shapes ends with its scaling table: on the screen as comments, and as a file."""

import csv
import sys

DDLBENCH = (sys.executable, "-m", "ddlbench")
FAST = ("--sizes", "8,1K", "-a", "ring,mpi", "-n", "6", "-w", "1", "--passes", "1")


def test_a_sweep_of_several_shapes_ends_with_its_scaling_table(mpirun, tmp_path):
    out = tmp_path / "out"
    done = mpirun(2, *DDLBENCH, "sweep", *FAST, "--ranks-per-node", "1,2", "--out", str(out))
    assert done.status == 0, done.stderr
    lines = done.stdout.splitlines()
    said = "the fewest ranks above one; ddlbench report DIR --baseline takes another."
    assert f"# N₀ is 1x2 (1 node of 2 ranks): {said}" in lines
    assert len([line for line in lines if line and not line.startswith("#")]) == 8, "points, and nothing else"
    assert lines[-1] == f"# results: {out}/results.csv   scaling: {out}/scaling.csv   report: {out}/report.html"
    with (out / "scaling.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["nodes"], row["ranks"], row["baseline"]) for row in rows} == {("1", "1", "1x2"), ("1", "2", "1x2")}
    assert {row["efficiency"] for row in rows} == {"", "1"}
    assert len(rows) == 8


def test_a_sweep_of_one_shape_has_none(mpirun, tmp_path):
    done = mpirun(2, *DDLBENCH, "sweep", *FAST, "--out", str(tmp_path / "out"))
    assert done.status == 0, done.stderr
    assert "N₀" not in done.stdout
    assert not (tmp_path / "out" / "scaling.csv").exists()
