"""Sweeps: the same results whoever runs them, and nothing lost however they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import sweep_functions

from aimlib import sweep
from aimlib.sweeps import SweepError, describe_failures, read_sweep_file

HERE = Path(__file__).resolve().parent
GRID = {"scale": [1.0, 2.5], "kind": ["a", "b"]}


@pytest.fixture(autouse=True)
def importable(monkeypatch) -> None:
    """Workers are fresh interpreters: let them find the functions and the package."""
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{HERE.parent}")


def values(result) -> list[dict]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in result.rows]


def test_serial_and_processes_agree_to_the_bit(tmp_path) -> None:
    serial = sweep(sweep_functions.draw, GRID, 2, tmp_path / "a", "serial")
    local = sweep(sweep_functions.draw, GRID, 2, tmp_path / "b", "local", jobs=2)
    assert values(serial) == values(local)
    assert len(serial.rows) == 8
    assert len({row["value"] / row["scale"] for row in serial.rows}) == 8  # independent streams


def test_dask_agrees_to_the_bit_and_survives_a_killed_worker(tmp_path) -> None:
    grid = {"flag": [str(tmp_path / "flag")], "index": list(range(6))}
    (tmp_path / "flag").write_text("x")
    serial = sweep(sweep_functions.deadly, grid, 1, tmp_path / "a", "serial")
    (tmp_path / "flag").unlink()
    dask = sweep(sweep_functions.deadly, grid, 1, tmp_path / "b", "dask", jobs=2)
    assert dask.failed == []
    assert (tmp_path / "flag").exists()  # a worker was killed on the way
    assert values(serial) == values(dask)


def test_a_larger_grid_keeps_the_old_cells(tmp_path) -> None:
    first = sweep(sweep_functions.draw, {"scale": [2.5], "kind": ["b"]}, [1], tmp_path, "serial")
    second = sweep(sweep_functions.draw, GRID, [0, 1, 7], tmp_path, "serial")
    assert values(first)[0] in values(second)
    assert len(second.rows) == 12


def test_killed_at_any_moment_it_resumes_without_loss_or_repetition(tmp_path) -> None:
    script = (
        "import sweep_functions as f; from aimlib import sweep; "
        f"sweep(f.counted, {{'folder': [{str(tmp_path)!r}], 'index': list(range(40))}}, 1, "
        f"{str(tmp_path / 'store')!r}, 'serial')"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    cells = tmp_path / "store" / "cells"
    deadline = time.monotonic() + 120
    while not cells.exists() or len(list(cells.glob("*.json"))) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(list(cells.glob("[!.]*.json")))
    assert 5 <= done < 40
    for path in cells.glob("[!.]*.json"):
        json.loads(path.read_text())  # nothing half-written
    grid = {"folder": [str(tmp_path)], "index": list(range(40))}
    result = sweep(sweep_functions.counted, grid, 1, tmp_path / "store", "serial")
    assert [row["square"] for row in result.rows] == [i * i for i in range(40)]
    calls = Counter((tmp_path / "calls.txt").read_text().split())
    assert sum(calls.values()) <= 41  # only the cell that was running may have started twice
    assert not list(cells.glob(".unfinished-*"))


def test_a_failing_cell_is_reported_and_tried_again(tmp_path) -> None:
    result = sweep(
        sweep_functions.fragile, {"index": [1, 2, 3], "broken": [2]}, 1, tmp_path, "local", jobs=2
    )
    assert [row["index"] for row in result.rows] == [1.5, 3.5]
    (failure,) = result.failed
    assert failure["index"] == 2
    assert "ArithmeticError: index 2 is unlucky" in failure["error"]
    again = sweep(sweep_functions.fragile, {"index": [1, 2], "broken": [2]}, 1, tmp_path, "serial")
    assert len(again.failed) == 1
    record = json.loads((tmp_path / "provenance.json").read_text())
    assert record["finished"] == 1
    assert record["versions"]["numpy"]
    assert record["failed"][0]["index"] == 2


def test_the_table_is_tidy(tmp_path) -> None:
    result = sweep(sweep_functions.draw, GRID, 1, tmp_path, "serial")
    lines = result.table.read_text().splitlines()
    assert lines[0] == "scale,kind,seed,value,trace,k,seconds"
    assert len(lines) == 5


def test_the_store_of_another_sweep_is_refused(tmp_path) -> None:
    sweep(sweep_functions.draw, GRID, 1, tmp_path / "a", "serial")
    with pytest.raises(SweepError, match="belongs to another sweep: its function"):
        sweep(sweep_functions.fragile, {"index": [1], "broken": [0]}, 1, tmp_path / "a", "serial")
    marker = tmp_path / "a" / "sweep.json"
    content = json.loads(marker.read_text())
    marker.write_text(json.dumps({**content, "source": "older"}))
    with pytest.raises(SweepError, match="its source is 'older'"):
        sweep(sweep_functions.draw, GRID, 1, tmp_path / "a", "serial")
    marker.write_text(json.dumps({**content, "parameters": ["x"]}))
    with pytest.raises(SweepError, match="its parameters"):
        sweep(sweep_functions.draw, GRID, 1, tmp_path / "a", "serial")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(SweepError, match="store must be new, empty"):
        sweep(sweep_functions.draw, GRID, 1, tmp_path / "mine", "serial")


@pytest.mark.parametrize(
    ("grid", "seeds", "executor", "message"),
    [
        ({"scale": 3.0}, 1, "serial", r"grid\['scale'\] must be a sequence"),
        ({"scale": "abc"}, 1, "serial", r"grid\['scale'\] must be a sequence"),
        ({"scale": ["1e-6"]}, 1, "serial", "looks like a number"),
        ({"scale": [float("nan")]}, 1, "serial", "finite number"),
        ({"scale": [[1, 2]]}, 1, "serial", "finite number"),
        ({"scale": []}, 1, "serial", "at least one cell"),
        ({"scale": [1, 1]}, 1, "serial", "must not repeat"),
        ({"seed": [1]}, 1, "serial", "seeds are given apart"),
        ([{"a": 1}, {"b": 2}], 1, "serial", "same parameters"),
        ({"scale": [1]}, 0, "serial", "seeds"),
        ({"scale": [1]}, [-1], "serial", "seeds"),
        ({"scale": [1]}, 1, "threads", "executor must be"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(
    tmp_path, grid, seeds, executor, message
) -> None:
    with pytest.raises(ValueError, match=message):
        sweep(sweep_functions.draw, grid, seeds, tmp_path / "store", executor)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("executor", ["local", "dask"])
def test_workers_have_one_thread_each(tmp_path, monkeypatch, executor) -> None:
    """They would fight for the cores; also where the environment asks for more."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    result = sweep(sweep_functions.threads, {"index": [1, 2]}, 1, tmp_path, executor, jobs=1)
    assert result.failed == []
    assert [row["threads"] for row in result.rows] == [1, 1]


@pytest.mark.parametrize(
    ("seeds", "jobs", "message"),
    [
        (0, None, "seeds must be an integer of at least 1"),
        (True, None, "seeds must be"),
        ("2", None, "seeds must be"),
        ([1.5], None, "seeds must be"),
        (None, None, "seeds must be"),
        (1, 0, "jobs must be an integer of at least 1"),
        (1, -1, "jobs must be"),
        (1, 1.5, "jobs must be"),
    ],
)
def test_bounds_of_seeds_and_jobs(tmp_path, seeds, jobs, message) -> None:
    with pytest.raises(SweepError, match=message):
        sweep(sweep_functions.strange, {"index": [2]}, seeds, tmp_path / "s", "serial", jobs=jobs)
    assert not (tmp_path / "s").exists()


def test_the_smallest_seeds_and_jobs_are_allowed(tmp_path) -> None:
    result = sweep(sweep_functions.strange, {"index": [2]}, [0], tmp_path, "serial", jobs=1)
    assert [row["seed"] for row in result.rows] == [0]
    assert len(sweep(sweep_functions.strange, {"index": [2]}, 1, tmp_path, "serial").rows) == 1


def test_failures_are_a_list_to_read(tmp_path) -> None:
    """The function of a newcomer, who adds the seed to a number."""
    result = sweep(sweep_functions.adds_its_seed, {"index": [1, 2]}, 1, tmp_path, "serial")
    lines = describe_failures(result.failed).splitlines()
    assert lines[0] == "2 cells failed; they are tried again next time."
    assert lines[1].startswith("- index = 1, seed 0: TypeError: unsupported operand type(s) for +")
    assert "SeedSequence" in lines[1]
    assert 'return {"value": index + seed}' in "\n".join(lines)
    assert len([line for line in lines if line.startswith("- ")]) == 2
    assert not any("Traceback" in line or "\\n" in line for line in lines)
    assert max(map(len, lines)) < 200


def test_results_that_are_not_finite_are_counted(tmp_path) -> None:
    with pytest.warns(UserWarning, match="NaN or infinite results in 4 cells: value in 3"):
        result = sweep(sweep_functions.strange, {"index": [0, 1, 2, 3]}, 1, tmp_path, "serial")
    assert len(result.rows) == 4
    record = json.loads((tmp_path / "provenance.json").read_text())
    assert record["not_finite"] == {"value": 3}


@pytest.mark.parametrize("executor", ["serial", "local"])
def test_cells_that_return_other_names_are_refused(tmp_path, executor) -> None:
    message = r"index = \d, seed 0 returns \['(odd|even)'\], index = \d, seed 0 returns"
    for _ in range(2):  # again from the store
        with pytest.raises(SweepError, match=message):
            sweep(sweep_functions.other_names, {"index": [0, 1, 2]}, 1, tmp_path, executor, jobs=1)


def test_a_function_that_returns_no_mapping_fails_with_a_sentence(tmp_path) -> None:
    (failure,) = sweep(sweep_functions.no_mapping, {"index": [7]}, 1, tmp_path, "serial").failed
    assert "must return a mapping of names to numbers or texts, got 7" in failure["error"]


def test_a_store_that_cannot_be_is_told_in_one_sentence(tmp_path) -> None:
    (tmp_path / "file").write_text("years of work")
    for name in ("file/x", "file/x/y", "n" * 300, "a\0b"):
        with pytest.raises(SweepError, match="store cannot be written in"):
            sweep(sweep_functions.strange, {"index": [2]}, 1, tmp_path / name, "serial")
    with pytest.raises(SweepError, match="store must be new"):
        sweep(sweep_functions.strange, {"index": [2]}, 1, tmp_path / "file", "serial")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_command_line_tells_failures_and_strange_results(tmp_path) -> None:
    for name, code, message in (
        ("adds_its_seed", 1, "- index = 1, seed 0: TypeError"),
        ("strange", 0, "aimlib: NaN or infinite results in 1 cells: value in 1"),
        ("no_mapping", 1, "must return a mapping"),
    ):
        path = tmp_path / f"{name}.yml"
        path.write_text(
            f"function: sweep_functions:{name}\ngrid: {{index: [1]}}\nseeds: 1\n"
            f"store: {name}\nexecutor: serial\n"
        )
        result = subprocess.run(
            [sys.executable, "-m", "aimlib", "sweep", str(path)], capture_output=True, text=True
        )
        assert result.returncode == code, result.stderr
        assert message in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize("suffix", ["yml", "toml"])
def test_command_line(tmp_path, suffix) -> None:
    text = {
        "yml": "function: sweep_functions:draw\ngrid:\n  scale: [1.0]\n  kind: [a, b]\n"
        "seeds: 2\nstore: out\nexecutor: serial\n",
        "toml": 'function = "sweep_functions:draw"\nseeds = 2\nstore = "out"\n'
        'executor = "serial"\n[grid]\nscale = [1.0]\nkind = ["a", "b"]\n',
    }[suffix]
    path = tmp_path / f"grid.{suffix}"
    path.write_text(text)
    result = subprocess.run(
        [sys.executable, "-m", "aimlib", "sweep", str(path)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert len((tmp_path / "out" / "table.csv").read_text().splitlines()) == 5


def test_a_wrong_file_is_refused(tmp_path) -> None:
    path = tmp_path / "grid.yml"
    for text, message in (
        ("function: a:b\n", "absent"),
        ("function: nowhere:f\ngrid: {}\nseeds: 1\nstore: x\n", "can be imported"),
        ("function: a:b\ngrid: {}\nseeds: 1\nstore: x\nthreads: 2\n", "unknown"),
        ("[1, 2]\n", "mapping"),
        ("", "is empty"),
        ("function: a:b\nfunction: a:c\n", "given twice, in lines 1 and 2"),
        ("function: a:b\ngrid: {x: [010]}\nseeds: 1\nstore: x\n", "octal"),
        ("function: json:decoder\ngrid: {x: [1]}\nseeds: 1\nstore: x\n", "callable"),
        ("function: json:dumps\ngrid: {x: [1]}\nseeds: 1\nstore: 3\n", "name of a folder"),
    ):
        path.write_text(text)
        with pytest.raises(SweepError, match=message):
            read_sweep_file(path)
