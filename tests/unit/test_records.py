"""What a run directory holds, whatever befalls the run: full disks, kills, broken lines, other versions."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import synthetic
from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.records import Point, Run, Store, TrustFlag, add_fault, load
from ddlbench.records import store as store_module

TESTS = Path(__file__).resolve().parents[1]


def lines(directory: Path) -> list[str]:
    return (directory / "points.jsonl").read_text().splitlines()


# Points and runs as JSON


def test_a_point_read_back_is_the_point():
    point = synthetic.point(wrong=None, bound_us=1.5, model_us=None, multiplicity=3, reason="näher")
    assert Point.from_json(json.loads(json.dumps(point.to_json()))) == point


def test_a_run_read_back_is_the_run():
    run = synthetic.run(trust=synthetic.flags(), links=None)
    assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run


def test_a_line_has_the_fields_of_the_format_and_no_others():
    assert sorted(synthetic.point().to_json()) == [
        *("algorithm", "bound_us", "cache", "count", "device", "device_ns", "dtype", "first_us", "in_place"),
        *("kind", "late", "limit", "model_us"),
        *("multiplicity", "nbytes", "nodes", "op", "passes", "per_rank_ns", "ranks", "ranks_per_node", "reason"),
        *("samples_ns", "stated", "status", "stopped", "sync", "transport", "version", "wrong"),
    ]
    assert sorted(synthetic.run().to_json()) == [
        *("clock", "command", "config", "created", "ddlbench", "environment", "fault", "finished", "format"),
        *("huge_pages", "links", "mpi", "proofs", "topology", "trust", "version"),
    ]


@pytest.mark.parametrize("field", [*synthetic.point().to_json()])
def test_a_missing_field_of_a_point_is_refused_by_name(field):
    data = synthetic.point().to_json()
    del data[field]
    with pytest.raises(UsageError, match=f"points.jsonl line 7: the field '{field}' is missing"):
        Point.from_json(data, "points.jsonl line 7")


@pytest.mark.parametrize("field", [name for name in synthetic.run().to_json() if name != "format"])
def test_a_missing_field_of_a_run_is_refused_by_name(field):
    data = synthetic.run().to_json()
    del data[field]
    with pytest.raises(UsageError, match=f"run.json: the field '{field}' is missing"):
        Run.from_json(data)


def test_an_unknown_field_is_refused_with_the_nearest_spelling():
    with pytest.raises(UsageError, match="unknown field 'sample_ns': did you mean 'samples_ns'"):
        Point.from_json({**synthetic.point().to_json(), "sample_ns": []})
    with pytest.raises(UsageError, match=r"run.json: unknown field 'hosts'"):
        Run.from_json({**synthetic.run().to_json(), "hosts": []})


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("nbytes", -8, "a whole number"),
        ("nbytes", True, "a whole number"),
        ("nbytes", 8.0, "a whole number"),
        ("nbytes", 2**63, "a whole number"),
        ("algorithm", 5, "a text"),
        ("in_place", 1, "true or false"),
        ("samples_ns", "12", "a list of whole numbers"),
        ("samples_ns", [1, True], "a list of whole numbers"),
        ("samples_ns", [1, -1], "a list of whole numbers"),
        ("bound_us", "1", "a number"),
        ("bound_us", float("inf"), "a number"),
        ("bound_us", float("nan"), "a number"),
        ("wrong", 1.5, "a whole number"),
        ("status", "okay", "did you mean 'ok'"),
        ("kind", "guessed", "unknown kind 'guessed'"),
        ("version", "1", "a whole number"),
        ("version", 0, "expected 1 to 6"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_field_and_expectation(field, value, expected):
    with pytest.raises(UsageError) as refused:
        Point.from_json({**synthetic.point().to_json(), field: value}, "line 3")
    assert "line 3" in str(refused.value)
    assert field in str(refused.value)
    assert expected in str(refused.value)


def test_a_newer_version_is_refused_by_name_before_its_fields_are_looked_at():
    with pytest.raises(UsageError, match=r"points.jsonl line 2: format version 7 is newer .* update ddlbench"):
        Point.from_json({"version": 7, "colour": "red"}, "points.jsonl line 2")
    with pytest.raises(UsageError, match=r"run.json: format version 9 is newer"):
        Run.from_json({"format": "ddlbench-run", "version": 9})


def test_the_bound_of_messages_is_not_read_for_older_points_over_memory():
    line = synthetic.point(transport="direct-slots", bound_us=4.0, model_us=5.0).to_json()
    assert Point.from_json(line).bound_us == 4.0
    older = Point.from_json({**line, "version": 4})
    assert (older.bound_us, older.model_us) == (None, None)
    assert Point.from_json({**line, "version": 4, "transport": "mixed"}).bound_us == 4.0


def test_a_trust_flag_is_checked_like_any_record():
    data = synthetic.run().to_json()
    with pytest.raises(UsageError, match=r"run.json: trust: unknown field 'why'"):
        Run.from_json({**data, "trust": [{"flag": "unpinned", "why": ""}]})
    with pytest.raises(UsageError, match="trust is"):
        Run.from_json({**data, "trust": "unpinned"})


# Writing


def test_each_point_is_one_line_that_is_on_disk_before_the_next(tmp_path, monkeypatch):
    synced = []
    with Store.create(tmp_path / "run", synthetic.run(finished=False)) as store:
        monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
        for number in range(3):
            store.append(synthetic.point(nbytes=8 << number))
            assert [json.loads(line)["nbytes"] for line in lines(tmp_path / "run")] == [8, 16, 32][: number + 1]
    assert len(synced) == 3
    assert synced[-1] == (tmp_path / "run" / "points.jsonl").stat().st_size


def test_a_run_is_marked_finished_only_by_finish(tmp_path):
    synthetic.store(tmp_path / "killed", synthetic.points(["ring"], [8]), finished=False)
    synthetic.store(tmp_path / "whole", synthetic.points(["ring"], [8]))
    assert not load(tmp_path / "killed").run.finished
    assert load(tmp_path / "whole").run.finished


def test_what_is_learnt_during_the_run_can_be_added(tmp_path):
    with Store.create(tmp_path, synthetic.run(finished=False)) as store:
        store.update(synthetic.run(trust=(TrustFlag("steal", "3 %"),), finished=False))
        store.finish()
    assert load(tmp_path).run == synthetic.run(trust=(TrustFlag("steal", "3 %"),))


def test_a_fault_is_added_by_another_process_to_the_run_it_knows_and_to_no_other(tmp_path):
    run = synthetic.run(finished=False)
    with Store.create(tmp_path / "run", run) as store:
        store.append(synthetic.point())
        add_fault(tmp_path / "run", run.created, {"what": "stalled"})
        assert load(tmp_path / "run").run == replace(run, fault={"what": "stalled"})
        add_fault(tmp_path / "run", run.created, {"what": "another"})
        assert load(tmp_path / "run").run.fault == {"what": "stalled"}
        with pytest.raises(UsageError, match="is another one"):
            add_fault(tmp_path / "run", "2001-01-01T00:00:00+00:00", {"what": "stalled"})
        store.finish(run)
    with pytest.raises(UsageError, match="is another one"):
        add_fault(tmp_path / "run", run.created, {"what": "stalled"})
    with pytest.raises(UsageError, match="holds no run"):
        add_fault(tmp_path / "nowhere", run.created, {"what": "stalled"})


def test_numbers_of_numpy_are_stored_as_numbers(tmp_path):
    samples = tuple(np.array([3, 4], dtype=np.int64))
    synthetic.store(tmp_path, [synthetic.point(samples_ns=samples, wrong=np.int64(2), bound_us=np.float64(1.5))])
    (point,) = load(tmp_path).points
    assert (point.samples_ns, point.wrong, point.bound_us) == ((3, 4), 2, 1.5)


def test_text_that_is_no_unicode_is_stored_and_read_back_as_escapes(tmp_path):
    synthetic.store(tmp_path, [synthetic.point(reason="\ud800!")], command=("ddlbench", os.fsdecode(b"\xff.toml")))
    loaded = load(tmp_path)
    assert loaded.points[0].reason == "\\ud800!"
    assert loaded.run.command == ("ddlbench", "\\udcff.toml")


def test_a_directory_with_a_run_is_refused_with_the_way_out(tmp_path):
    synthetic.store(tmp_path, synthetic.points(["ring"], [8]))
    with pytest.raises(UsageError, match="already holds a run; give another directory, or --overwrite"):
        Store.create(tmp_path, synthetic.run())
    assert len(load(tmp_path).points) == 1


def test_overwriting_replaces_only_what_ddlbench_wrote(tmp_path):
    synthetic.store(tmp_path, synthetic.points(["ring"], [8]))
    for name in ("results.csv", "report.html", "notes.txt"):
        (tmp_path / name).write_text(name)
    Store.create(tmp_path, synthetic.run(), overwrite=True).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "points.jsonl", "run.json"]
    assert load(tmp_path).points == ()


@pytest.mark.parametrize("name", ["results.csv", "report.html", "run.json", "points.jsonl"])
def test_files_of_these_names_that_are_not_ours_are_never_replaced(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=f"holds {name} of no run of ddlbench"):
        Store.create(tmp_path, synthetic.run(), overwrite=True)
    assert (tmp_path / name).read_text() == "mine"


def test_a_start_that_was_killed_before_its_first_line_can_be_overwritten(tmp_path):
    (tmp_path / "points.jsonl").touch()
    with pytest.raises(UsageError, match="--overwrite"):
        Store.create(tmp_path, synthetic.run())
    Store.create(tmp_path, synthetic.run(), overwrite=True).close()


def test_of_two_runs_that_start_at_once_one_is_refused(tmp_path, monkeypatch):
    first = Store.create(tmp_path, synthetic.run())
    monkeypatch.setattr(store_module, "_held", lambda *_: [])
    with pytest.raises(UsageError, match="already holds a run"):
        Store.create(tmp_path, synthetic.run())
    first.append(synthetic.point())
    assert len(load(tmp_path).points) == 1


def test_while_a_run_is_written_to_no_other_replaces_it_or_goes_on_with_it(tmp_path):
    with Store.create(tmp_path, synthetic.run()) as first:
        first.append(synthetic.point())
        with pytest.raises(UsageError, match="another sweep is writing to"):
            Store.create(tmp_path, synthetic.run(), overwrite=True)
        with pytest.raises(UsageError, match="another sweep is writing to"):
            Store.resume(tmp_path)
        first.append(synthetic.point())
        first.finish()
        with pytest.raises(UsageError, match="another sweep is writing to"):
            Store.resume(tmp_path)
    assert len(load(tmp_path).points) == 2
    Store.resume(tmp_path)[0].close()
    Store.create(tmp_path, synthetic.run(), overwrite=True).close()


def test_a_file_of_points_that_was_replaced_while_it_was_opened_is_no_ones(tmp_path, monkeypatch):
    synthetic.store(tmp_path, synthetic.points(["ring"], [8]))
    opened = os.open

    def replaced(path, *rest):
        descriptor = opened(path, *rest)
        if Path(path).name == "points.jsonl":
            Path(path).unlink()
            os.close(opened(path, os.O_CREAT))
        return descriptor

    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(UsageError, match="another sweep is writing to"):
        Store.resume(tmp_path)


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(store_module.fcntl, "flock", unsupported)
    with Store.create(tmp_path, synthetic.run()) as store:
        store.append(synthetic.point())
    assert len(load(tmp_path).points) == 1


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "out").touch()
    with pytest.raises(UsageError, match="is a file; give a directory"):
        Store.create(tmp_path / "out", synthetic.run())


def test_a_directory_that_cannot_be_made_is_named_with_the_errno(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DdlbenchError, match=r"cannot create .*file/run: .*ENOTDIR"):
        Store.create(tmp_path / "file" / "run", synthetic.run())


def test_a_create_that_fails_leaves_no_run(tmp_path, monkeypatch):
    def fail(path, text):
        raise DdlbenchError("disk full")

    monkeypatch.setattr(store_module, "write_atomically", fail)
    with pytest.raises(DdlbenchError, match="disk full"):
        Store.create(tmp_path, synthetic.run())
    assert list(tmp_path.iterdir()) == []


def fill_disk_after(nbytes: int, monkeypatch) -> None:
    """Let the next write take `nbytes` and then find the disk full."""
    real, left = os.write, [nbytes]

    def write(descriptor, data):
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part, left[0] = data[: left[0]], 0
        return real(descriptor, part)

    monkeypatch.setattr(os, "write", write)


def test_a_full_disk_is_named_and_the_finished_points_stay_whole(tmp_path, monkeypatch):
    with Store.create(tmp_path, synthetic.run(finished=False)) as store:
        store.append(synthetic.point(nbytes=8))
        with monkeypatch.context() as patched:
            fill_disk_after(40, patched)
            with pytest.raises(DdlbenchError, match=r"cannot write .*points\.jsonl: .*errno 28, ENOSPC"):
                store.append(synthetic.point(nbytes=16))
        assert len(lines(tmp_path)) == 1
        store.append(synthetic.point(nbytes=32))
    loaded = load(tmp_path)
    assert [point.nbytes for point in loaded.points] == [8, 32]
    assert loaded.problems == []


def in_subprocess(program: str, directory: Path, **more) -> subprocess.Popen:
    code = "import sys; sys.path.insert(0, sys.argv[2])\n" + textwrap.dedent(program)
    root = TESTS.parent
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", code, str(directory), str(TESTS)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **more)


def test_a_limit_that_the_system_sets_on_a_file_ends_the_same_way(tmp_path):
    program = """
        import resource, synthetic
        from ddlbench.errors import DdlbenchError
        from ddlbench.records import Store
        with Store.create(sys.argv[1], synthetic.run(finished=False)) as store:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
            try:
                while True:
                    store.append(synthetic.point())
            except DdlbenchError as error:
                print(error)
    """
    with in_subprocess(program, tmp_path) as writer:
        said = writer.stdout.read()
    assert "EFBIG" in said
    assert "points.jsonl" in said
    loaded = load(tmp_path)
    assert loaded.problems == []
    assert len(loaded.points) >= 5


def test_a_kill_at_any_moment_loses_no_finished_point(tmp_path):
    program = """
        import synthetic
        from ddlbench.records import Store
        with Store.create(sys.argv[1], synthetic.run(finished=False)) as store:
            for number in range(100000):
                store.append(synthetic.point(nbytes=8 * number))
                print(number, flush=True)
    """
    moments = random.Random(5)
    for attempt in range(4):
        with in_subprocess(program, tmp_path / str(attempt)) as writer:
            writer.stdout.readline()
            time.sleep(moments.uniform(0, 0.1))
            writer.send_signal(signal.SIGKILL)
            finished = 1 + len(writer.stdout.readlines())
        loaded = load(tmp_path / str(attempt))
        assert [point.nbytes for point in loaded.points[:finished]] == [8 * number for number in range(finished)]
        assert len(loaded.points) - finished in (0, 1)
        assert all("cut off" in problem for problem in loaded.problems)


# Reading


def test_broken_lines_are_named_and_the_rest_is_used(tmp_path):
    synthetic.store(tmp_path, synthetic.points(["ring"], [8, 16]))
    good = lines(tmp_path)
    newer = json.dumps({**json.loads(good[0]), "version": 7})
    broken = [good[0], "[node0] warning: eager limit", "", "\xff", newer, "[" * 100_000, '{"version": NaN}', "[1]"]
    text = "\n".join([*broken, good[1], good[0][:50]])
    (tmp_path / "points.jsonl").write_bytes(text.encode("latin-1"))
    loaded = load(tmp_path)
    assert [point.nbytes for point in loaded.points] == [8, 16]
    assert [problem.split(":")[0] for problem in loaded.problems] == [
        f"points.jsonl line {number}" for number in (2, 3, 4, 5, 6, 7, 8, 10)
    ]
    assert "version 7 is newer" in loaded.problems[3]
    assert "cut off" in loaded.problems[-1]


def test_a_field_that_stands_twice_is_named_and_its_line_not_used(tmp_path):
    synthetic.store(tmp_path, synthetic.points(["ring"], [8, 16]))
    one, other = lines(tmp_path)
    (tmp_path / "points.jsonl").write_text(f'{{"ranks": 2, {one[1:]}\n{other}\n')
    loaded = load(tmp_path)
    assert [point.nbytes for point in loaded.points] == [16]
    assert loaded.problems == ["points.jsonl line 1: broken: the field 'ranks' stands twice"]
    run = (tmp_path / "run.json").read_text()
    (tmp_path / "run.json").write_text('{"finished": false, ' + run[1:])
    with pytest.raises(UsageError, match="broken JSON: the field 'finished' stands twice"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"samples_ns": [], "passes": []}, "status is 'ok', but samples_ns is empty"),
        ({"samples_ns": [1, 2], "passes": [1, 2]}, "passes have 3 samples together, samples_ns has 2"),
        ({"samples_ns": [1, 2], "per_rank_ns": [[1, 2]] * 3}, "per_rank_ns is not 2 samples for each of 4 ranks"),
        ({"samples_ns": [1, 2], "per_rank_ns": [[1, 2]] * 3 + [[1]]}, "per_rank_ns is not 2 samples for each of 4"),
    ],
    ids=["none", "passes", "ranks", "samples"],
)
def test_a_point_whose_samples_do_not_fit_together_is_refused(changes, said):
    data = synthetic.point(ranks=4).to_json() | {"passes": [], "per_rank_ns": None}
    Point.from_json(data | {"samples_ns": [1, 2], "passes": [1, 1], "per_rank_ns": [[1, 2]] * 4})
    with pytest.raises(UsageError, match=said):
        Point.from_json(data | changes)


def test_no_damage_to_the_lines_gives_anything_but_named_problems(tmp_path):
    synthetic.store(tmp_path, synthetic.points(["ring", "mpi"], [8, 1024], count=6))
    whole = (tmp_path / "points.jsonl").read_bytes()
    damage = random.Random(3)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(damage.randint(1, 4)):
            start = damage.randrange(len(data))
            data[start : start + damage.choice([0, 1, 9])] = damage.randbytes(damage.choice([0, 1, 2]))
        (tmp_path / "points.jsonl").write_bytes(data)
        loaded = load(tmp_path)
        assert len(loaded.points) + len(loaded.problems) >= bytes(data).count(b"\n")


@pytest.mark.parametrize("name", ["a" * 300, "loop"])
def test_a_path_that_the_system_refuses_is_one_line_that_names_it(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DdlbenchError, match=r"cannot read .*run\.json: .*\(errno"):
        load(tmp_path / name)
    with pytest.raises(DdlbenchError, match=r"cannot create .*\(errno"):
        Store.create(tmp_path / name, synthetic.run())


def test_a_run_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def refused(self):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(DdlbenchError, match=r"cannot read .*run\.json: Permission denied"):
        load(tmp_path)


def test_a_link_that_leads_nowhere_is_no_file_of_ours(tmp_path):
    (tmp_path / "points.jsonl").symlink_to("nowhere")
    with pytest.raises(UsageError, match=r"holds points\.jsonl of no run of ddlbench"):
        Store.create(tmp_path, synthetic.run(), overwrite=True)
    assert (tmp_path / "points.jsonl").is_symlink()


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"holds no run: there is no run\.json"):
        load(tmp_path)
    with pytest.raises(UsageError, match="holds no run"):
        load(tmp_path / "missing")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "broken JSON"),
        ("[]", "expected an object"),
        ("{}", "not a run of ddlbench"),
        ('{"format": "ddlbench-run", "version": 5}', "format version 5 is newer"),
    ],
)
def test_a_run_file_that_cannot_be_used_is_refused_by_name(tmp_path, text, said):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        load(tmp_path)
    assert "run.json" in str(refused.value)


def test_a_run_without_its_file_of_points_is_read_and_says_so(tmp_path):
    synthetic.store(tmp_path)
    (tmp_path / "points.jsonl").unlink()
    loaded = load(tmp_path)
    assert loaded.points == ()
    assert loaded.problems == ["points.jsonl is missing"]


def test_a_line_that_a_kill_cut_off_is_no_damage_and_a_broken_one_is(tmp_path):
    synthetic.store(tmp_path / "killed", synthetic.points(["ring"], [8, 16]), finished=False)
    synthetic.store(tmp_path / "whole", synthetic.points(["ring"], [8, 16]))
    for name in ("killed", "whole"):
        path = tmp_path / name / "points.jsonl"
        path.write_bytes(path.read_bytes()[:-20])
        assert len(load(tmp_path / name).problems) == 1
    assert not load(tmp_path / "killed").damaged
    assert load(tmp_path / "whole").damaged, "a finished run had all its lines"
    path = tmp_path / "killed" / "points.jsonl"
    path.write_bytes(path.read_bytes() + b"\n")
    assert load(tmp_path / "killed").damaged


# Going on


def test_a_point_that_failed_gives_way_to_a_later_line_of_it_and_no_other_does(tmp_path):
    failed = {"status": "failed", "reason": "out of memory", "samples_ns": (), "wrong": None}
    lasting = synthetic.point("swing", 8, **failed)
    wrong = synthetic.point("direct", 8, status="wrong", wrong=3)
    stored = [
        synthetic.point("ring", 8, **failed),
        lasting,
        wrong,
        synthetic.point("ring", 16),
        synthetic.point("ring", 8),
    ]
    synthetic.store(tmp_path, stored, config={})
    assert load(tmp_path).points == tuple(stored[1:])


def test_imported_points_never_give_way(tmp_path):
    failed = {"kind": "imported", "status": "failed", "samples_ns": (), "wrong": None, "sync": ""}
    synthetic.store(tmp_path, [synthetic.point(**failed), synthetic.point(**failed)])
    assert len(load(tmp_path).points) == 2


@pytest.mark.parametrize("cut", range(1, 40, 6))
def test_a_resumed_store_goes_on_after_the_last_whole_line(tmp_path, cut):
    synthetic.store(tmp_path, synthetic.points(["ring"], [8, 16]), finished=False)
    whole = (tmp_path / "points.jsonl").read_bytes()
    (tmp_path / "points.jsonl").write_bytes(whole[:-cut])
    store, loaded = Store.resume(tmp_path)
    with store:
        kept = [8, 16] if cut == 1 else [8]
        assert [point.nbytes for point in loaded.points] == kept
        assert len(loaded.problems) == (cut != 1)
        store.append(synthetic.point(nbytes=32))
    again = load(tmp_path)
    assert [point.nbytes for point in again.points] == [*kept, 32]
    assert again.problems == []


def test_a_full_disk_after_a_resume_keeps_what_was_there(tmp_path, monkeypatch):
    synthetic.store(tmp_path, synthetic.points(["ring"], [8]), finished=False)
    whole = (tmp_path / "points.jsonl").read_bytes()
    store, _ = Store.resume(tmp_path)
    with store, monkeypatch.context() as patched:
        fill_disk_after(40, patched)
        with pytest.raises(DdlbenchError, match="ENOSPC"):
            store.append(synthetic.point(nbytes=16))
    assert (tmp_path / "points.jsonl").read_bytes() == whole


def test_a_run_without_points_is_gone_on_with(tmp_path):
    synthetic.store(tmp_path, finished=False)
    (tmp_path / "points.jsonl").unlink()
    store, loaded = Store.resume(tmp_path)
    with store:
        assert loaded.points == ()
        store.append(synthetic.point())
    assert len(load(tmp_path).points) == 1


def test_lines_of_a_newer_version_are_not_gone_on_with(tmp_path):
    synthetic.store(tmp_path, synthetic.points(["ring"], [8]))
    path = tmp_path / "points.jsonl"
    path.write_text(path.read_text() + json.dumps({"version": 9}) + "\n")
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"points.jsonl line 2: format version 9 is newer"):
        Store.resume(tmp_path)
    assert path.read_bytes() == before
    assert len(load(tmp_path).points) == 1


def test_what_a_kill_left_of_a_file_is_removed_by_the_next_sweep(tmp_path):
    synthetic.store(tmp_path, synthetic.points(["ring"], [8]))
    for name in (".run.json.17.tmp", ".report.html.4711.tmp", ".notes.17.tmp"):
        (tmp_path / name).touch()
    Store.resume(tmp_path)[0].close()
    assert [path.name for path in tmp_path.glob(".*")] == [".notes.17.tmp"]
