"""Run the cells that are missing, and collect all of them in a table."""

from __future__ import annotations

import inspect
import math
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aimlib import _validation as check
from aimlib.provenance import provenance
from aimlib.sweeps.cells import Cell, Function, SweepError, make_cells
from aimlib.sweeps.executors import EXECUTORS, watched
from aimlib.sweeps.store import cell_file, claim, read_json, signature, write_json, write_table

__all__ = ["Sweep", "describe_failures", "sweep"]

Executor = Literal["serial", "local", "dask"]


@dataclass(frozen=True)
class Sweep:
    """The outcome of a sweep.

    Attributes
    ----------
    rows : list of dict
        Parameters, "seed", results and "seconds" of every finished cell, in the order of the grid.
    failed : list of dict
        Parameters, "seed" and "error" of every cell that raised; they are tried again next time.
    table : Path
        ``table.csv`` in the store; ``provenance.json`` is beside it.
    """

    rows: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    table: Path


def sweep(
    function: Function,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    seeds: int | Sequence[int],
    store: str | os.PathLike[str],
    executor: Executor = "local",
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: bool | None = None,
) -> Sweep:
    """Call a function on every cell of a grid and keep the results.

    Parameters
    ----------
    function : callable
        Called as ``function(**parameters, seed=seed)`` where ``seed`` is a
        ``numpy.random.SeedSequence``, not a number: ``numpy.random.default_rng(seed)`` makes
        a generator of it.  Returns a mapping of names to numbers, texts, booleans or None, with the
        same names for every cell.  It must be importable by the workers.
    grid : mapping of str to sequence, or sequence of mappings
        Values of each parameter, of which all combinations are taken; or the points themselves.
    seeds : int or sequence of int
        Number of seeds 0, 1, ..., or the seeds.
    store : path
        Folder of the results; created, or resumed if it holds the same sweep.
    executor : {"local", "serial", "dask"}
        Processes on this machine (joblib, one BLAS thread each), this very process, or a Dask
        cluster.  The results are the same to the bit.
    jobs : int, optional
        Number of processes; all cores by default.
    scheduler : str, optional
        Address of a Dask scheduler; by default a cluster on this machine.
    progress : bool, optional
        Progress bar with the expected end on standard error; by default if that is a terminal.

    Returns
    -------
    Sweep

    Warns
    -----
    UserWarning
        If cells have results that are NaN or infinite, with their number.

    Raises
    ------
    SweepError
        Before anything runs: if an argument is wrong, or the store cannot be written or belongs to
        another sweep.  As soon as it is seen: if a cell returns other names than the others.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> def sample_mean(size, scale, seed):
    ...     rng = np.random.default_rng(seed)
    ...     return {"mean": rng.normal(0, scale, size).mean()}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep(sample_mean, {"size": [10, 20], "scale": [0.0]}, 1, folder, "serial")
    >>> [(row["size"], row["mean"]) for row in result.rows]
    [(10, 0.0), (20, 0.0)]
    """
    cells = make_cells(grid, seeds)
    if not isinstance(executor, str) or executor not in EXECUTORS:
        raise SweepError(f"executor must be 'serial', 'local' or 'dask', got {executor!r}")
    try:
        workers = None if jobs is None else check.integer("jobs", jobs, low=1)
    except ValueError as error:
        raise SweepError(str(error)) from None
    _check_call(function, cells[0])
    folder = Path(store)
    claim(folder, function, cells)
    by_key = {cell.key: cell for cell in cells}
    missing = [cell for cell in cells if not cell_file(folder, cell).exists()]
    names = _Names(folder)
    for cell in cells:
        names.see(cell)
    show = sys.stderr.isatty() if progress is None else progress
    started = time.time()
    outcomes = EXECUTORS[executor](function, missing, folder, workers, scheduler)
    failed: dict[str, str] = {}
    for key, failure in watched(outcomes, len(missing), show):
        if failure is not None:
            failed[key] = failure
        else:
            names.see(by_key[key])
    return _collect(folder, cells, failed, function, time.time() - started)


def _check_call(function: Function, cell: Cell) -> None:
    """Refuse a grid whose parameters the function does not take."""
    try:
        called = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return
    try:
        called.bind(**cell.parameters, seed=cell.stream)
    except TypeError as error:
        raise SweepError(
            f"grid must give the parameters of the function, {sorted(called.parameters)}, got "
            f"{sorted(cell.parameters)} and 'seed' ({error})"
        ) from None


class _Names:
    """The names that the cells return, which must be the same for all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._first: tuple[set[str], Cell] | None = None

    def see(self, cell: Cell) -> None:
        path = cell_file(self._folder, cell)
        if not path.exists():
            return
        found = set(read_json(path)["results"])
        names, first = self._first = self._first or (found, cell)
        if found != names:
            raise SweepError(
                f"all cells must return the same names: {_point(cell.parameters, cell.seed)} "
                f"returns {sorted(found)}, {_point(first.parameters, first.seed)} returns "
                f"{sorted(names)}"
            )


# ---------------------------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------------------------


def _collect(
    folder: Path, cells: Sequence[Cell], errors: Mapping[str, str], function: Function, wall: float
) -> Sweep:
    rows, failed, strange = [], [], Counter[str]()
    for cell in cells:
        path = cell_file(folder, cell)
        if path.exists():
            content = read_json(path)
            results = content["results"]
            strange.update(name for name, value in results.items() if _is_strange(value))
            row = {**content["parameters"], "seed": content["seed"], **results}
            rows.append({**row, "seconds": content["seconds"]})
        else:
            error = errors.get(cell.key, "not run")
            failed.append({**cell.parameters, "seed": cell.seed, "error": error})
    table = folder / "table.csv"
    write_table(table, rows)
    record = {
        **signature(function, cells),
        "cells": len(cells),
        "finished": len(rows),
        "failed": failed,
        "not_finite": dict(strange),
        "seeds": sorted({cell.seed for cell in cells}),
        "seconds_of_all_cells": round(sum(row["seconds"] for row in rows), 2),
        "seconds_of_this_run": round(wall, 2),
        **provenance(Path(__file__).resolve().parent.parent.parent),
    }
    write_json(folder / "provenance.json", record)
    if strange:
        counts = ", ".join(f"{name} in {count}" for name, count in strange.items())
        warnings.warn(f"NaN or infinite results in {len(rows)} cells: {counts}", stacklevel=3)
    return Sweep(rows, failed, table)


def _is_strange(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def describe_failures(failed: Sequence[Mapping[str, Any]]) -> str:
    """Return the failed cells of a sweep as a list to read: cell, error, last lines.

    Parameters
    ----------
    failed : sequence of mapping
        ``Sweep.failed``.

    Examples
    --------
    >>> print(describe_failures([{"width": 2, "seed": 0, "error": "ValueError: too wide"}]))
    1 cells failed; they are tried again next time.
    - width = 2, seed 0: ValueError: too wide
    """
    parts = [f"{len(failed)} cells failed; they are tried again next time."]
    for failure in failed:
        parameters = {k: v for k, v in failure.items() if k not in ("seed", "error")}
        *before, error = str(failure["error"]).strip().splitlines() or [""]
        lines = [f"    {line}" for line in before if not line.startswith("Traceback")]
        parts.append("\n".join([f"- {_point(parameters, failure['seed'])}: {error}", *lines[-4:]]))
    return "\n".join(parts)


def _point(parameters: Mapping[str, Any], seed: int) -> str:
    values = [f"{name} = {value!r}" for name, value in parameters.items()]
    return ", ".join([*values, f"seed {seed}"])
