"""A grid of runs of one chapter, with an index page."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aimlib.chapters.cards import Chapter, validate_values
from aimlib.chapters.memory import require_memory
from aimlib.chapters.notebooks import check_kernel
from aimlib.chapters.pages import grid_page
from aimlib.chapters.parameters import ChapterError, check_value
from aimlib.chapters.places import check_target, resolved, results_folder
from aimlib.chapters.running import digest, run_chapter, source_digest
from aimlib.files import write_json, write_whole
from aimlib.provenance import provenance

__all__ = ["LARGEST_GRID", "expand_grid", "run_grid"]

LARGEST_GRID = 1000


def expand_grid(
    chapter: Chapter, alternatives: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """Return all combinations of the values of some parameters, the last one running fastest.

    Raises
    ------
    ChapterError
        If a name is unknown, a value is not allowed, or there are more than 1000 combinations.
    """
    checked, count = {}, 1
    for name, values in alternatives.items():
        parameter = chapter.parameter(name)
        checked[name] = [check_value(parameter, value) for value in values]
        count *= len(checked[name])
    if not 0 < count <= LARGEST_GRID:
        raise ChapterError(f"a grid may have 1 to {LARGEST_GRID} runs, this one has {count}")
    points = itertools.product(*checked.values())
    return [dict(zip(checked, point, strict=True)) for point in points]


def run_grid(
    chapter: Chapter,
    alternatives: Mapping[str, Sequence[Any]],
    *,
    preset: str | None = None,
    output: Path | None = None,
    progress: bool = False,
) -> Path:
    """Run a chapter at all combinations of some parameters; return the folder of the results.

    Parameters
    ----------
    chapter : Chapter
    alternatives : mapping of str to sequence
        The values of each parameter that changes.
    preset, output, progress
        As in :func:`run_chapter`; by default the results go to ``runs/CHAPTER-grid-HASH``.

    Returns
    -------
    Path
        Holds ``index.html``, ``index.csv``, ``parameters.json`` and a folder for each run; all
        three are renewed after every run.  A run that fails is listed with its error, and the
        others go on.  Started again, runs that were finished by the same code are kept.

    Raises
    ------
    ChapterError
        Before anything runs, for the reasons of :func:`run_chapter`, at any point of the grid.
    """
    points = expand_grid(chapter, alternatives)
    complete = [validate_values(chapter, point, preset) for point in points]
    root = chapter.notebook.parent.parent
    default = results_folder(root) / f"{chapter.name}-grid-{digest(complete)}"
    target = resolved(output or default)
    for parameters in complete:
        require_memory(chapter, parameters)
    check_kernel()
    check_target(target, root)
    grid = {name: list(values) for name, values in alternatives.items()}
    header = {"chapter": chapter.name, "grid": grid, **provenance(root)}
    _start(target, header)
    runs: list[dict[str, Any]] = []
    for parameters in complete:
        runs.append(_run_point(chapter, parameters, target, progress))
        _write_index(target, chapter, header, runs, len(complete))
    return target


def _start(target: Path, header: Mapping[str, Any]) -> None:
    """Empty the folder, unless it holds the same grid, and mark it as a result."""
    earlier = _read(target / "parameters.json")
    if target.exists() and (earlier or {}).get("grid") != header["grid"]:
        shutil.rmtree(target)
    target.mkdir(exist_ok=True)
    write_json(target / "parameters.json", {**header, "runs": []})


def _run_point(
    chapter: Chapter, parameters: dict[str, Any], target: Path, progress: bool
) -> dict[str, Any]:
    folder = target / f"run-{digest(parameters)}"
    record = _read(folder / "parameters.json")
    if record is None or record.get("sources") != source_digest(chapter.notebook):
        try:
            run_chapter(chapter, parameters, output=folder, progress=progress)
        except ChapterError as error:
            return {"parameters": parameters, "error": str(error)}
        record = _read(folder / "parameters.json")
    assert record is not None
    kept = {name: record[name] for name in ("parameters", "results", "seconds")}
    return {**kept, "folder": folder.name}


# ---------------------------------------------------------------------------------------------
# The index
# ---------------------------------------------------------------------------------------------


def _write_index(
    target: Path,
    chapter: Chapter,
    header: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    total: int,
) -> None:
    varied = [name for name, values in header["grid"].items() if len(values) > 1]
    page = grid_page(f"{chapter.title}: a grid of runs", varied, runs, total)
    write_whole(target / "index.html", page)
    write_whole(target / "index.csv", _table(varied, runs))
    write_json(target / "parameters.json", {**header, "runs": runs})


def _table(varied: Sequence[str], runs: Sequence[Mapping[str, Any]]) -> str:
    found = list(dict.fromkeys(name for run in runs for name in run.get("results", {})))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", *varied, *found, "seconds", "error"])
    for number, run in enumerate(runs, start=1):
        values = [_flat(run["parameters"][name]) for name in varied]
        results = [run.get("results", {}).get(name, "") for name in found]
        writer.writerow([number, *values, *results, run.get("seconds", ""), run.get("error", "")])
    return text.getvalue()


def _flat(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
