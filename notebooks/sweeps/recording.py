"""Run one named experiment of a chapter and store its table beside the notebooks."""

from __future__ import annotations

import json
import resource
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aimlib import sweep
from aimlib.sweeps.store import write_json, write_table

DATA = Path(__file__).resolve().parent.parent / "data"
_BETWEEN = "; "  # of the values of several rows


def record(
    chapter: str,
    name: str,
    function: Callable[..., Any],
    grid: Any = None,
    seeds: Any = None,
    *,
    parts: Sequence[tuple[Any, Any]] = (),
) -> None:
    """Run what is missing of an experiment; write data/CHAPTER/NAME.csv and its provenance.

    An experiment is one grid with its seeds, or several ``parts`` of them that make one table.
    """
    store, rows, provenance = (
        Path(tempfile.gettempdir()) / f"aimlib-{chapter}" / name,
        [],
        [],
    )
    plan = parts or [(grid, seeds)]
    for k, (cells, numbers) in enumerate(plan):
        folder = store / str(k) if parts else store
        outcome = sweep(function, cells, numbers, folder, executor="serial")
        if outcome.failed:
            raise RuntimeError(f"{name}: {outcome.failed[0]['error']}")
        rows += [row for cell in outcome.rows for row in _unrolled(cell)]
        provenance.append(
            json.loads(outcome.table.with_name("provenance.json").read_text())
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    said = provenance[0] if len(plan) == 1 else {"parts": provenance}
    folder = DATA / chapter
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / f"{name}.csv", rows)
    write_json(
        folder / f"{name}.json", said | {"peak_memory_megabytes": round(peak)}
    )


def number(seed: np.random.SeedSequence) -> int:
    """Return the number of a cell's seed: the same data set at every point of the grid."""
    entropy: Any = seed.entropy
    return int(entropy[0])


def spread(values: Iterable[Any]) -> str:
    """Return one result that :func:`record` spreads over as many rows as there are values."""
    return "".join(f"{float(value):.7g}{_BETWEEN}" for value in values)


def _unrolled(row: dict[str, Any]) -> list[dict[str, Any]]:
    lists = {
        k: v.split(_BETWEEN)[:-1]
        for k, v in row.items()
        if isinstance(v, str) and v.endswith(_BETWEEN)
    }
    if not lists:
        return [row]
    steps = zip(*lists.values(), strict=True)
    return [row | dict(zip(lists, step, strict=True)) for step in steps]
