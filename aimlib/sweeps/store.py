"""The folder of a sweep: one small file a cell, a marker of whose it is, and the table."""

from __future__ import annotations

import csv
import hashlib
import inspect
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aimlib.files import FileError, prepare_folder, write_whole
from aimlib.sweeps.cells import Cell, Function, SweepError

__all__ = ["cell_file", "claim", "read_json", "signature", "write_json", "write_table"]


def cell_file(folder: Path, cell: Cell) -> Path:
    """Return where the result of a cell is kept."""
    return folder / "cells" / f"{cell.key[:40]}.json"


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write a file that is there completely or not at all."""
    write_whole(path, json.dumps(content, indent=1))


def signature(function: Function, cells: Sequence[Cell]) -> dict[str, Any]:
    """What makes a sweep this one: its function, the text of it, and its parameters."""
    try:
        source = hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
    except (OSError, TypeError):
        source = ""
    return {
        "function": f"{function.__module__}:{function.__qualname__}",
        "source": source,
        "parameters": sorted(cells[0].parameters),
    }


def claim(folder: Path, function: Function, cells: Sequence[Cell]) -> None:
    """Mark a new folder as this sweep's, or refuse one that is another's or cannot be made."""
    mine, marker = signature(function, cells), folder / "sweep.json"
    try:
        marked = marker.exists()
        strange = not marked and folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except (OSError, ValueError) as error:
        raise SweepError(f"store cannot be written in {folder}: {error}") from None
    if marked:
        theirs = _read_marker(marker)
        for field in ("function", "parameters", "source"):
            if theirs.get(field) != mine[field]:
                raise SweepError(
                    f"store {folder} belongs to another sweep: its {field} is "
                    f"{theirs.get(field)!r}, not {mine[field]!r}. Use another folder"
                )
    elif strange:
        raise SweepError(f"store must be new, empty or an earlier sweep, got {folder}")
    try:
        prepare_folder("store", folder / "cells")
    except FileError as error:
        raise SweepError(str(error)) from None
    for stray in (folder / "cells").glob(".unfinished-*"):
        stray.unlink(missing_ok=True)
    if not marked:
        write_json(marker, mine)


def _read_marker(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise SweepError(f"store belongs to no sweep: cannot read {path}: {error}") from None
    if not isinstance(content, dict):
        raise SweepError(f"store belongs to no sweep: {path} must hold a mapping, got {content!r}")
    return content


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write one row a cell."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue())
