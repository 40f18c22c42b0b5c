"""The page "How fast is it": the suite runs, and every number shown is a recorded one."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "notebooks" / "data" / "speed" / "results.json"
sys.path.insert(0, str(ROOT / "benchmarks"))

import suite  # noqa: E402  the scripts are no package
from timing import Seconds, Stopwatch, between_callbacks, in_turn, row  # noqa: E402


@pytest.fixture(scope="module")
def recorded() -> dict:
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def find(recorded: dict, topic: str, **wanted) -> dict:
    rows = [r for r in recorded["rows"] if r["topic"] == topic]
    (found,) = [r for r in rows if all(r.get(k) == v for k, v in wanted.items())]
    return found


def test_the_suite_runs_without_peers(tmp_path) -> None:
    """In its tiny mode, through the command line: rows of every topic, and what was skipped."""
    files = ["--results", str(tmp_path / "r.json"), "--table", str(tmp_path / "t.md")]
    topics = [t.__name__ for t in suite.TOPICS if t.__name__ != "starting"]  # it compiles anew
    command = [sys.executable, "benchmarks/suite.py", "--tiny", "--only", *topics, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"skipped: (.*) \(give", done.stdout)) == {
        "published solver", "published message passing", "PyTorch", "book build and notebooks",
    }  # fmt: skip
    results = json.loads((tmp_path / "r.json").read_text())
    topics = {"point", "curve", "denoising", "iteration", "whole run", "descent", "channel"}
    assert {r["topic"] for r in results["rows"]} == topics
    assert all(value > 0 for r in results["rows"] for value in r["seconds"].values())
    assert (tmp_path / "t.md").read_text() == suite.table(results)


class Counted(Stopwatch):
    """A clock that only moves when something says how long it takes."""

    def __init__(self) -> None:
        self.reading = 0.0

    def now(self) -> float:
        return self.reading

    def spend(self, seconds: float) -> None:
        self.reading += seconds


def test_what_is_compared_runs_in_turn() -> None:
    calls: list[str] = []
    watch = Counted()

    def a() -> None:
        calls.append("a")
        watch.spend(2.0 + len(calls))

    def b() -> Seconds:  # what measures itself, in another process, is believed
        calls.append("b")
        return Seconds(7.0)

    times = in_turn({"a": a, "b": b}, 3, watch)
    assert calls == ["a", "a", "b", "b", *"ababab"]
    assert times == {"a": [7.0, 9.0, 11.0], "b": [7.0, 7.0, 7.0]}
    made = row("x", "y", {"a": [1.0, 2.0, 4.0], "b": [3.0, 2.0, 2.0]}, d=5)
    assert made["seconds"] == {"a": 2.0, "b": 2.0}
    assert made["ratio"] == {"b": 1.0}
    assert (made["rounds"], made["d"]) == (3, 5)


def test_iterations_are_timed_without_the_preparation() -> None:
    watch = Counted()

    def run(callback) -> None:
        watch.spend(100.0)  # preparation
        for k in range(4):
            watch.spend(1.0 + k)
            callback(k, {})

    times = between_callbacks(run, {"other": lambda: watch.spend(0.5)}, watch)
    assert times == {"aimlib": [2.0, 3.0, 4.0], "other": [0.5] * 3}


def test_the_table_is_that_of_the_recorded_results(recorded) -> None:
    assert (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8") == suite.table(recorded)


def test_the_numbers_of_the_page_are_recorded_ones(recorded) -> None:
    """From the results to the glue of the stored notebook, which the page shows."""
    glued: dict[str, str] = {}
    for cell in nbformat.read(ROOT / "notebooks" / "speed.ipynb", as_version=4).cells:
        for output in cell.get("outputs", []):
            name = output.get("metadata", {}).get("scrapbook", {}).get("name")
            if name:
                glued[name] = next(iter(output["data"].values())).strip("'")
    shown = re.findall(r"speed\.ipynb::([\w-]+)", (ROOT / "book" / "speed.md").read_text())
    assert len(shown) > 30
    assert set(shown) <= set(glued)
    point = find(recorded, "point", case="softmax, T = 2")
    assert float(glued["speed-point-softmax"]) == pytest.approx(1e3 * point["seconds"]["aimlib"])
    step = find(recorded, "descent", dtype="float32", K=32)
    assert float(glued["speed-torch-S-float32"]) == pytest.approx(step["ratio"]["PyTorch, S"])
    whole = find(recorded, "whole run")
    assert float(glued["speed-whole"]) == pytest.approx(whole["ratio"]["published notebook"])
    iteration = find(recorded, "iteration", case="softmax", d=400)["seconds"]
    share = iteration["aimlib"] / iteration["two products"]
    assert float(glued["speed-share-softmax-400"]) == pytest.approx(share)


def test_the_recorded_run_says_how_it_was_made(recorded) -> None:
    machine = recorded["environment"]
    assert {"processor", "cores", "threads", "versions", "blas", "clock", "load"} <= set(machine)
    once = {"first result, nothing compiled", "build", "notebooks"}
    assert all(r["rounds"] >= 5 for r in recorded["rows"] if r["case"] not in once)
