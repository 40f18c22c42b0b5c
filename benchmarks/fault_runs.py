"""Processes that are killed at random moments: sweeps, and message passing with a checkpoint.

What is asked of them: no finished piece is lost or done again, and the end is that of a run which
nobody disturbed.
"""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aimlib import AttentionIndexedModel, SoftmaxChannel, WishartPrior, amp
from aimlib.sweeps import sweep

HERE = Path(__file__).resolve().parent
STARTED = "started"
Row = dict[str, Any]


# ---------------------------------------------------------------------------------------------
# What runs in the processes
# ---------------------------------------------------------------------------------------------


def cell(scale: float, index: int, seed: Any) -> dict[str, float]:
    """A few hundredths of a second of work, and numbers that depend on all that came in."""
    rng = np.random.default_rng(seed)
    a = scale * rng.standard_normal((60, 60))
    time.sleep(0.02)
    return {"index": index, "trace": float(np.trace(a @ a)), "draw": float(rng.standard_normal())}


def run_sweep(store: str, executor: str, cells: int) -> None:
    """Do or resume the sweep in this folder."""
    print(STARTED, flush=True)
    grid = {"scale": [0.5, 2.0], "index": list(range(cells // 4))}
    sweep(cell, grid, 2, store, executor, jobs=2, progress=False)  # type: ignore[arg-type]


def run_message_passing(seed: int, dimension: int, checkpoint: str, result: str) -> None:
    """Do or resume a run, and keep its end to the last bit."""
    prior, channel = WishartPrior(0.5), SoftmaxChannel(2)
    small = AttentionIndexedModel(8, prior, channel).sample(0.2, seed=0)
    amp(small, prior, channel, iterations=2)  # kernels are there before the clock starts
    data = AttentionIndexedModel(dimension, prior, channel).sample(0.12, seed=seed)
    print(STARTED, flush=True)
    found = amp(
        data, prior, channel, iterations=150, tolerance=1e-14, checkpoint=checkpoint or None
    )
    history = {f"history_{name}": np.asarray(column) for name, column in found.history.items()}
    np.savez(result, estimate=found.estimate, status=np.array(found.status), **history)


# ---------------------------------------------------------------------------------------------
# Killing them
# ---------------------------------------------------------------------------------------------


def _start(call: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent)])
    return subprocess.Popen(
        [sys.executable, "-c", f"import fault_runs; fault_runs.{call}"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # a group of its own, so that its workers die with it
    )


def _kill(call: str, seconds: float) -> bool:
    """Start, wait for the mark and so long beyond, kill; return whether it was still running."""
    process = _start(call)
    assert process.stdout is not None
    if process.stdout.readline().strip() != STARTED:
        raise RuntimeError(f"{call} did not start, exit code {process.wait()}")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    killed = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.stdout.close()
    code = process.wait()
    if not killed and code:
        raise RuntimeError(f"{call} failed by itself with exit code {code}")
    return killed


def _finish(call: str) -> None:
    process = _start(call)
    process.communicate()
    if process.returncode:
        raise RuntimeError(f"{call} failed with exit code {process.returncode}")


def kill_sweeps(
    folder: Path, kills: int, rng: np.random.Generator, cells: int = 400, longest: float = 1.5
) -> Row:
    """Kill sweeps so often, in this process and with workers in turn; compare what is left."""
    _finish(f"run_sweep({str(folder / 'calm')!r}, 'serial', {cells})")
    calm = table(folder / "calm")
    done = stores = kept = lost = repeated = different = 0
    while done < kills:
        store = folder / f"store{stores}"
        stores += 1
        before: dict[str, tuple[int, bytes]] = {}
        running = True
        while running and done < kills:
            executor = ("serial", "local")[done % 2]
            running = _kill(
                f"run_sweep({str(store)!r}, {executor!r}, {cells})", rng.uniform(0.0, longest)
            )
            done += running
            now = _cells(store)
            lost += len(before.keys() - now.keys())
            repeated += sum(now.get(name, value) != value for name, value in before.items())
            before = now
        kept += len(before)
        _finish(f"run_sweep({str(store)!r}, 'local', {cells})")
        after = _cells(store)
        lost += len(before.keys() - after.keys())
        repeated += sum(after.get(name, value) != value for name, value in before.items())
        different += table(store) != calm
    return {
        "what": "sweeps killed",
        "tried": done,
        "faults": lost + repeated + different,
        "detail": f"{stores} sweeps of {cells} cells; {kept} cells kept over kills, {lost} lost, "
        f"{repeated} done again, {different} final tables different",
    }


def _cells(store: Path) -> dict[str, tuple[int, bytes]]:
    """Time of writing and content of every finished cell."""
    return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in store.glob("cells/[!.]*.json")}


def table(store: Path) -> list[Row]:
    """Rows without the time that they took."""
    with open(store / "table.csv", encoding="utf-8", newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def kill_message_passing(
    folder: Path,
    kills: int,
    rng: np.random.Generator,
    dimension: int = 100,
    longest: float = 0.6,
) -> Row:
    """Kill runs with a checkpoint so often; compare their end with that of undisturbed ones."""
    done = runs = back = different = steps = 0
    while done < kills:
        seed = runs
        runs += 1
        state, end, calm = (str(folder / f"{name}{seed}.npz") for name in ("state", "end", "calm"))
        call = f"run_message_passing({seed}, {dimension}, {state!r}, {end!r})"
        running, step = True, 0
        while running and done < kills:
            running = _kill(call, rng.uniform(0.0, longest))
            done += running
            if Path(state).exists():  # a file that cannot be read ends the script
                with np.load(state) as stored:
                    now = int(stored["step"])
                back += now < step
                steps += max(now - step, 0)
                step = now
        _finish(call)
        _finish(f"run_message_passing({seed}, {dimension}, '', {calm!r})")
        different += not _same(end, calm)
    return {
        "what": "message passing killed",
        "tried": done,
        "faults": back + different,
        "detail": f"{runs} runs at d = {dimension}, softmax; {steps} iterations kept over kills, "
        f"{back} steps back, {different} ends that differ in any bit",
    }


def _same(one: str, other: str) -> bool:
    with np.load(one) as a, np.load(other) as b:
        return set(a.files) == set(b.files) and all(
            np.array_equal(a[name], b[name], equal_nan=a[name].dtype.kind == "f")
            for name in a.files
        )


KILLS: Sequence[Callable[..., Row]] = (kill_sweeps, kill_message_passing)
