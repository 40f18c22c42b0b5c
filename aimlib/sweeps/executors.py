"""Who calls the function on the cells: this process, processes of this machine, a Dask cluster.

Each executor yields, for every cell as it ends, its key and its error, if any.  Workers have one
BLAS thread each, so that they do not fight for the cores.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aimlib.sweeps.cells import Cell, Function, evaluate
from aimlib.sweeps.store import cell_file, write_json

__all__ = ["EXECUTORS", "watched"]

Outcome = tuple[str, str | None]


def _run_cell(function: Function, cell: Cell, folder: Path) -> Outcome:
    """Evaluate a cell and store it where it was evaluated; return its error, if any."""
    try:
        write_json(cell_file(folder, cell), evaluate(function, cell))
    except Exception:
        return cell.key, traceback.format_exc(limit=-4)
    return cell.key, None


def _serial(
    function: Function, cells: Sequence[Cell], folder: Path, jobs: Any, scheduler: Any
) -> Iterator[Outcome]:
    for cell in cells:
        yield _run_cell(function, cell, folder)


def _local(
    function: Function, cells: Sequence[Cell], folder: Path, jobs: int | None, scheduler: Any
) -> Iterator[Outcome]:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=jobs or -1, return_as="generator_unordered", batch_size=1)
        yield from pool(delayed(_run_cell)(function, cell, folder) for cell in cells)


def _dask(
    function: Function,
    cells: Sequence[Cell],
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
                write_json(cell_file(folder, by_key[key]), content)
            yield key, error


def _evaluate_quietly(function: Function, cell: Cell) -> tuple[str, Any, str | None]:
    from threadpoolctl import threadpool_limits

    try:
        with threadpool_limits(limits=1):
            return cell.key, evaluate(function, cell), None
    except Exception:
        return cell.key, None, traceback.format_exc(limit=-4)


EXECUTORS = {"serial": _serial, "local": _local, "dask": _dask}


def watched(outcomes: Iterator[Outcome], total: int, show: bool) -> Iterator[Outcome]:
    """The same outcomes, with a progress bar on standard error if ``show``."""
    if not show:
        yield from outcomes
        return
    from tqdm import tqdm

    yield from tqdm(outcomes, total=total, unit="cell", file=sys.stderr, dynamic_ncols=True)
