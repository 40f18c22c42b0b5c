"""Grids of experiments: many parameters, many seeds, many processes, resumable.

A sweep calls ``function(**parameters, seed=SeedSequence)`` once for each cell, a point of the grid
with one seed, and keeps what it returns, a flat mapping of names to numbers or texts.

- Each finished cell is one small file, written under another name and renamed, so that a sweep
  killed at any moment resumes with nothing lost, nothing repeated and nothing half-written.
- The random stream of a cell depends on its parameters and its seed only: not on the order, the
  number of processes, or whether the grid grows later.
- A folder that belongs to another sweep is refused.
- The table at the end has one row a cell, in the order of the grid, with its provenance beside it.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib
import inspect
import itertools
import json
import math
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from aimlib import _validation as check

__all__ = ["Sweep", "SweepError", "read_sweep_file", "sweep"]

Parameters = dict[str, Any]
Function = Callable[..., Mapping[str, Any]]
Executor = Literal["serial", "local", "dask"]


class SweepError(ValueError):
    """The sweep cannot be run as asked, or the folder belongs to another one."""


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


@dataclass(frozen=True)
class _Cell:
    parameters: Parameters
    seed: int
    key: str

    @property
    def stream(self) -> np.random.SeedSequence:
        """A stream of its own, from the seed and the 256 bits of the key."""
        words = [int(self.key[i : i + 8], 16) for i in range(0, 64, 8)]
        return np.random.SeedSequence([self.seed, *words])


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
        Called as ``function(**parameters, seed=SeedSequence)``; returns a mapping of names to
        numbers, texts, booleans or None.  It must be importable by the workers.
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

    Raises
    ------
    SweepError
        Before anything runs: if an argument is wrong, or the store belongs to another sweep.

    Examples
    --------
    >>> def area(width, height, seed):
    ...     return {"area": width * height}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep(area, {"width": [1, 2], "height": [3.0]}, 1, folder, "serial")
    >>> [row["area"] for row in result.rows]
    [3.0, 6.0]
    """
    cells = _cells(grid, seeds)
    if executor not in ("serial", "local", "dask"):
        raise SweepError(f"executor must be 'serial', 'local' or 'dask', got {executor!r}")
    workers = None if jobs is None else check.integer("jobs", jobs, low=1)
    folder = Path(store)
    _claim(folder, function, cells)
    missing = [cell for cell in cells if not _path(folder, cell).exists()]
    show = sys.stderr.isatty() if progress is None else progress
    started = time.time()
    run = {"serial": _serial, "local": _local, "dask": _dask}[executor]
    failed: dict[str, str] = {}
    for key, error in _watched(run(function, missing, folder, workers, scheduler), missing, show):
        if error is not None:
            failed[key] = error
    return _collect(folder, cells, failed, function, time.time() - started)


# ---------------------------------------------------------------------------------------------
# Cells and their files
# ---------------------------------------------------------------------------------------------


def _cells(grid: Any, seeds: Any) -> list[_Cell]:
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
                raise SweepError(f"grid[{name!r}] must be a sequence of values, got {values!r}")
        names = list(grid)
        points = [dict(zip(names, p, strict=True)) for p in itertools.product(*grid.values())]
    else:
        points = [dict(point) for point in grid]
    numbers = range(check.integer("seeds", seeds, low=1)) if isinstance(seeds, int) else list(seeds)
    for number in numbers:
        check.integer("seeds", number, low=0)
    if not points or not len(numbers):
        raise SweepError(f"grid and seeds must give at least one cell, got {grid!r} and {seeds!r}")
    cells = []
    for point in points:
        plain = {name: _plain(name, value) for name, value in point.items()}
        if "seed" in plain:
            raise SweepError("grid must not have a parameter 'seed': seeds are given apart")
        text = json.dumps(plain, sort_keys=True)
        cells += [
            _Cell(plain, int(s), hashlib.sha256(f"{text} {s}".encode()).hexdigest())
            for s in numbers
        ]
    if len({cell.key for cell in cells}) < len(cells):
        raise SweepError("grid and seeds must not repeat a cell")
    return cells


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
            "(YAML reads 1e-6 as a text: write 1.0e-6)"
        )
    if isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise SweepError(f"{name} must be a finite number, a text or None, got {value!r}")


def _path(folder: Path, cell: _Cell) -> Path:
    return folder / "cells" / f"{cell.key[:40]}.json"


def _write(path: Path, content: Any) -> None:
    """Write a file that is there completely or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".unfinished-")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=1, allow_nan=True)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _signature(function: Function, cells: Sequence[_Cell]) -> dict[str, Any]:
    try:
        source = hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
    except (OSError, TypeError):
        source = ""
    return {
        "function": f"{function.__module__}:{function.__qualname__}",
        "source": source,
        "parameters": sorted(cells[0].parameters),
    }


def _claim(folder: Path, function: Function, cells: Sequence[_Cell]) -> None:
    """Mark a new folder as this sweep's, or refuse one that is another's."""
    names = {tuple(sorted(cell.parameters)) for cell in cells}
    if len(names) > 1:
        raise SweepError(f"all points of the grid must have the same parameters, got {names}")
    mine, marker = _signature(function, cells), folder / "sweep.json"
    if marker.exists():
        theirs = json.loads(marker.read_text())
        for field in ("function", "parameters", "source"):
            if theirs.get(field) != mine[field]:
                raise SweepError(
                    f"store {folder} belongs to another sweep: its {field} is "
                    f"{theirs.get(field)!r}, not {mine[field]!r}. Use another folder"
                )
    elif folder.exists() and any(folder.iterdir()):
        raise SweepError(f"store must be new, empty or an earlier sweep, got {folder}")
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    for stray in (folder / "cells").glob(".unfinished-*"):
        stray.unlink(missing_ok=True)
    if not marker.exists():
        _write(marker, mine)


# ---------------------------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------------------------

Outcome = tuple[str, str | None]


def _evaluate(function: Function, cell: _Cell) -> dict[str, Any]:
    started = time.perf_counter()
    results = function(**cell.parameters, seed=cell.stream)
    plain = {}
    for name, value in results.items():
        item = value.item() if isinstance(value, np.generic) else value
        if not (isinstance(item, bool | int | float | str) or item is None):
            raise TypeError(f"result {name!r} must be a number, a text or None, got {value!r}")
        plain[name] = item
    return {
        "parameters": cell.parameters,
        "seed": cell.seed,
        "results": plain,
        "seconds": round(time.perf_counter() - started, 4),
    }


def _run_cell(function: Function, cell: _Cell, folder: Path) -> Outcome:
    """Evaluate a cell and store it where it was evaluated; return its error, if any."""
    try:
        _write(_path(folder, cell), _evaluate(function, cell))
    except Exception:
        return cell.key, traceback.format_exc(limit=-4)
    return cell.key, None


def _serial(
    function: Function, cells: Sequence[_Cell], folder: Path, jobs: Any, scheduler: Any
) -> Iterator[Outcome]:
    for cell in cells:
        yield _run_cell(function, cell, folder)


def _local(
    function: Function, cells: Sequence[_Cell], folder: Path, jobs: int | None, scheduler: Any
) -> Iterator[Outcome]:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=jobs or -1, return_as="generator_unordered", batch_size=1)
        yield from pool(delayed(_run_cell)(function, cell, folder) for cell in cells)


def _dask(
    function: Function,
    cells: Sequence[_Cell],
    folder: Path,
    jobs: int | None,
    scheduler: str | None,
) -> Iterator[Outcome]:
    """Workers may share no disk with us: they send the result, and it is stored here."""
    from distributed import Client, LocalCluster, as_completed

    by_key = {cell.key: cell for cell in cells}
    with contextlib.ExitStack() as stack:
        address: Any = scheduler or stack.enter_context(
            LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
        )
        client = stack.enter_context(Client(address))
        futures = [
            client.submit(_evaluate_quietly, function, cell, key=f"cell-{cell.key}", pure=True)
            for cell in cells
        ]
        for future in as_completed(futures):
            try:
                key, content, error = future.result()
            except Exception as failure:  # a worker lost too often, or a result that cannot travel
                yield future.key.removeprefix("cell-"), repr(failure)
                continue
            if error is None:
                _write(_path(folder, by_key[key]), content)
            yield key, error


def _evaluate_quietly(function: Function, cell: _Cell) -> tuple[str, Any, str | None]:
    from threadpoolctl import threadpool_limits

    try:
        with threadpool_limits(limits=1):
            return cell.key, _evaluate(function, cell), None
    except Exception:
        return cell.key, None, traceback.format_exc(limit=-4)


def _watched(outcomes: Iterator[Outcome], cells: Sequence[_Cell], show: bool) -> Iterator[Outcome]:
    if not show:
        yield from outcomes
        return
    from tqdm import tqdm

    yield from tqdm(outcomes, total=len(cells), unit="cell", file=sys.stderr, dynamic_ncols=True)


# ---------------------------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------------------------


def _collect(
    folder: Path, cells: Sequence[_Cell], errors: Mapping[str, str], function: Function, wall: float
) -> Sweep:
    rows, failed = [], []
    for cell in cells:
        path = _path(folder, cell)
        if path.exists():
            content = json.loads(path.read_text())
            rows.append(
                {
                    **content["parameters"],
                    "seed": content["seed"],
                    **content["results"],
                    "seconds": content["seconds"],
                }
            )
        else:
            error = errors.get(cell.key, "not run")
            failed.append({**cell.parameters, "seed": cell.seed, "error": error})
    table = folder / "table.csv"
    columns = list(dict.fromkeys(name for row in rows for name in row))
    temporary = folder / ".unfinished-table.csv"
    with open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, table)
    from aimlib.chapters import provenance

    record = {
        **_signature(function, cells),
        "cells": len(cells),
        "finished": len(rows),
        "failed": failed,
        "seeds": sorted({cell.seed for cell in cells}),
        "seconds_of_all_cells": round(sum(row["seconds"] for row in rows), 2),
        "seconds_of_this_run": round(wall, 2),
        **provenance(Path(__file__).resolve().parent.parent),
    }
    _write(folder / "provenance.json", record)
    return Sweep(rows, failed, table)


# ---------------------------------------------------------------------------------------------
# Sweeps described by a file
# ---------------------------------------------------------------------------------------------


def read_sweep_file(path: Path) -> dict[str, Any]:
    """Return the arguments of :func:`sweep` from a TOML or YAML file.

    It holds ``function`` ("module:name"), ``grid``, ``seeds``, ``store`` (relative to it) and,
    optionally, ``executor``, ``jobs`` and ``scheduler``.
    """
    from aimlib.chapters import ChapterError, read_mapping

    try:
        content = read_mapping(path)
    except ChapterError as error:
        raise SweepError(str(error)) from None
    known = {"function", "grid", "seeds", "store", "executor", "jobs", "scheduler"}
    unknown, absent = set(content) - known, {"function", "grid", "seeds", "store"} - set(content)
    if unknown or absent:
        raise SweepError(
            f"{path} must have function, grid, seeds and store, and may have executor, jobs and "
            f"scheduler; unknown: {sorted(unknown)}, absent: {sorted(absent)}"
        )
    module, _, name = str(content["function"]).partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        raise SweepError(
            f"function must be 'module:name' that can be imported, got {content['function']!r}"
        ) from None
    return {**content, "function": function, "store": path.parent / content["store"]}
