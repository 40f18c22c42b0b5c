"""Timing of several things in turn, so that the drift of a shared machine touches all alike."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from aimlib.provenance import provenance

ROOT = Path(__file__).resolve().parent.parent
OWN = "aimlib"
_LEAST = 0.005  # seconds of one timing: what is quicker is repeated inside

Row = dict[str, Any]


class Seconds(float):
    """What a function returns that has measured itself, in another process."""


def processor_time() -> float:
    """Seconds of processor of this process and of those that it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


# "processor" is for a machine that others are using, with one thread
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": processor_time}


class Stopwatch:
    """Times calls by one of the clocks."""

    def __init__(self, clock: str) -> None:
        self.name, self.now = clock, CLOCKS[clock]

    def __call__(self, function: Callable[[], object], repeats: int = 1) -> float:
        """Return the seconds of a call, the mean over repeats."""
        start, own = self.now(), 0.0
        for _ in range(repeats):
            found = function()
            if isinstance(found, Seconds):
                own += found
        return (own or self.now() - start) / repeats


def in_turn(
    functions: dict[str, Callable[[], object]], rounds: int, watch: Stopwatch
) -> dict[str, list[float]]:
    """Time each function in each of so many rounds, A B A B ...; seconds a call.

    Every function runs once before, for compilation and to see how often it has to be repeated.
    """
    repeats = {}
    for name, function in functions.items():
        function()
        repeats[name] = max(1, int(_LEAST / max(watch(function), 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(watch(function, repeats[name]))
    return times


def between_callbacks(
    run: Callable[[Callable[..., None]], object],
    references: dict[str, Callable[[], object]],
    watch: Stopwatch,
) -> dict[str, list[float]]:
    """Time each iteration of an algorithm, and after each one the references, once."""
    times: dict[str, list[float]] = {name: [] for name in (OWN, *references)}
    last = 0.0

    def callback(*_: Any) -> None:
        nonlocal last
        now = watch.now()
        found = {name: watch(function) for name, function in references.items()}
        if last:  # the first interval holds the preparation
            times[OWN].append(now - last)
            for name, seconds in found.items():
                times[name].append(seconds)
        last = watch.now()

    run(callback)
    return times


def row(topic: str, case: str, times: dict[str, list[float]], **parameters: Any) -> Row:
    """Medians in seconds, and of every other against the first the median of paired ratios."""
    (first, own), *others = times.items()
    return {
        "topic": topic,
        "case": case,
        **parameters,
        "seconds": {first: median(own)} | {name: median(other) for name, other in others},
        "ratio": {
            name: median(b / a for a, b in zip(own, other, strict=True)) for name, other in others
        },
        "rounds": len(own),
    }


def environment(clock: str) -> Row:
    """The machine, the versions, and what else was running."""
    processor = platform.processor() or platform.machine()
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            processor = line.split(":", 1)[1].strip()
            break
    threads = {n: os.environ.get(n, "") for n in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[call-overload]
    return provenance(ROOT) | {
        "processor": processor,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": threads,
        "blas": f"{blas['name']} {blas['version']}",
        "clock": clock,
        "load": round(os.getloadavg()[0], 2),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
