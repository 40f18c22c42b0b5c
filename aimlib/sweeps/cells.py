"""The cells of a sweep: points of the grid with one seed each, and their random streams."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aimlib import _validation as check

__all__ = ["Cell", "Function", "SweepError", "evaluate", "make_cells"]

Parameters = dict[str, Any]
Function = Callable[..., Mapping[str, Any]]


class SweepError(ValueError):
    """The sweep cannot be run as asked, or the folder belongs to another one."""


@dataclass(frozen=True)
class Cell:
    """One point of the grid with one seed; ``key`` is the hash of both."""

    parameters: Parameters
    seed: int
    key: str

    @property
    def stream(self) -> np.random.SeedSequence:
        """A stream of its own, from the seed and the 256 bits of the key."""
        words = [int(self.key[i : i + 8], 16) for i in range(0, 64, 8)]
        return np.random.SeedSequence([self.seed, *words])


def make_cells(grid: Any, seeds: Any) -> list[Cell]:
    """Return the cells of a grid, all seeds of a point together, or raise :class:`SweepError`."""
    points = _points(grid)
    numbers = _seeds(seeds)
    if not points or not numbers:
        raise SweepError(f"grid and seeds must give at least one cell, got {grid!r} and {seeds!r}")
    cells = []
    for point in points:
        plain = {name: _plain(name, value) for name, value in point.items()}
        if "seed" in plain:
            raise SweepError("grid must not have a parameter 'seed': seeds are given apart")
        text = json.dumps(plain, sort_keys=True)
        cells += [
            Cell(plain, s, hashlib.sha256(f"{text} {s}".encode()).hexdigest()) for s in numbers
        ]
    if len({cell.key for cell in cells}) < len(cells):
        raise SweepError("grid and seeds must not repeat a cell")
    names = {tuple(sorted(cell.parameters)) for cell in cells}
    if len(names) > 1:
        raise SweepError(f"all points of the grid must have the same parameters, got {names}")
    return cells


def _points(grid: Any) -> list[Parameters]:
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
                raise SweepError(f"grid[{name!r}] must be a sequence of values, got {values!r}")
        names = list(grid)
        return [dict(zip(names, p, strict=True)) for p in itertools.product(*grid.values())]
    if isinstance(grid, str) or not isinstance(grid, Sequence):
        raise SweepError(f"grid must be a mapping or a sequence of mappings, got {grid!r}")
    for point in grid:
        if not isinstance(point, Mapping):
            raise SweepError(f"grid must hold mappings of parameter to value, got {point!r}")
    return [dict(point) for point in grid]


def _seeds(seeds: Any) -> list[int]:
    try:
        if isinstance(seeds, Sequence | np.ndarray | range) and not isinstance(seeds, str):
            return [check.integer("seeds", number, low=0) for number in seeds]
        return list(range(check.integer("seeds", seeds, low=1)))
    except ValueError as error:
        raise SweepError(f"{error}; seeds is a number of seeds or a list of them") from None


def _plain(name: str, value: Any) -> Any:
    """Numbers and texts as JSON has them; a text that is a number was meant as one."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return value
        raise SweepError(
            f"{name} must be a number or a text, got the text {value!r} that looks like a number "
            "(write it without quotes)"
        )
    if isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise SweepError(f"{name} must be a finite number, a text or None, got {value!r}")


def evaluate(function: Function, cell: Cell) -> dict[str, Any]:
    """Call the function on a cell and return the content of its file."""
    started = time.perf_counter()
    results = function(**cell.parameters, seed=cell.stream)
    if not isinstance(results, Mapping):
        raise SweepError(
            f"the function must return a mapping of names to numbers or texts, got {results!r}"
        )
    plain = {}
    for name, value in results.items():
        item = value.item() if isinstance(value, np.generic) else value
        if not (isinstance(item, bool | int | float | str) or item is None):
            raise SweepError(f"result {name!r} must be a number, a text or None, got {value!r}")
        plain[str(name)] = item
    return {
        "parameters": cell.parameters,
        "seed": cell.seed,
        "results": plain,
        "seconds": round(time.perf_counter() - started, 4),
    }
