"""Run one named experiment of a chapter and store its table beside the notebooks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aimlib import sweep

DATA = Path(__file__).resolve().parent.parent / "data"


def record(
    chapter: str, name: str, function: Callable[..., Any], grid: Any, seeds: Any
) -> None:
    """Run what is missing of an experiment; write data/CHAPTER/NAME.csv and its provenance."""
    store = Path(tempfile.gettempdir()) / f"aimlib-{chapter}" / name
    outcome = sweep(function, grid, seeds, store, executor="serial")
    if outcome.failed:
        raise RuntimeError(f"{name}: {outcome.failed[0]['error']}")
    folder = DATA / chapter
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(outcome.table, folder / f"{name}.csv")
    shutil.copyfile(
        outcome.table.with_name("provenance.json"), folder / f"{name}.json"
    )
