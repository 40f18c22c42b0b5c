"""Editions: the whole book with some chapters run with other parameters."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aimlib.chapters.cards import Chapter, load_chapter, validate_values
from aimlib.chapters.memory import require_memory
from aimlib.chapters.notebooks import check_kernel, execute_notebook
from aimlib.chapters.parameters import ChapterError
from aimlib.chapters.places import check_target, find_root, replace, resolved, scratch
from aimlib.files import FileError, read_mapping, write_json
from aimlib.provenance import provenance

__all__ = ["build_edition", "read_choices"]

Plan = tuple[Chapter, dict[str, Any]]


def read_choices(path: Path) -> dict[str, dict[str, Any]]:
    """Read the choices of an edition from TOML, YAML or JSON."""
    try:
        content = read_mapping(path)
    except FileError as error:
        raise ChapterError(str(error)) from None
    for name, value in content.items():
        if not isinstance(value, dict):
            raise ChapterError(
                f"{path} must map chapters to mappings of parameter to value, "
                f"got {value!r} for {name!r}"
            )
    return content


def build_edition(
    choices: Mapping[str, Mapping[str, Any]],
    output: Path,
    root: Path | None = None,
    *,
    progress: bool = False,
) -> Path:
    """Build the book with some chapters run with other parameters.

    Parameters
    ----------
    choices : mapping of chapter to mapping of parameter to value
        A value ``preset`` names a preset of the chapter.
    output : Path
        Folder of the built pages; must be new, empty or an earlier edition.
    root : Path, optional
        Folder of the book.
    progress : bool
        Show a progress bar for each chapter on standard error.

    Returns
    -------
    Path
        The page to open.

    Raises
    ------
    ChapterError
        Before anything runs, if nothing is chosen, or a name, a value, the kernel or the folder is
        wrong; afterwards, if a chapter fails or the book does not build.
    """
    folder = root or find_root()
    if not any(choices.values()):
        raise ChapterError("the edition changes nothing: name a chapter and a parameter or preset")
    plans = [_plan(load_chapter(name, folder), values) for name, values in choices.items()]
    if importlib.util.find_spec("jupyter_book") is None:
        raise ChapterError("an edition needs jupyter-book: install the extra 'book' of aimlib")
    target = resolved(output)
    for chapter, parameters in plans:
        require_memory(chapter, parameters)
    check_kernel()
    check_target(target, folder)
    with scratch(target.parent) as space:
        stage = _stage(folder, space / "stage")
        for chapter, parameters in plans:
            executed = stage / "notebooks" / f".{chapter.name}.ipynb"
            execute_notebook(chapter.notebook, executed, parameters, progress=progress)
            executed.replace(stage / "notebooks" / f"{chapter.name}.ipynb")
        pages = _build(stage)
        record = {"edition": {c.name: values for c, values in plans}, **provenance(folder)}
        write_json(pages / "parameters.json", record)
        moved = space.with_name(space.name + "-pages")
        pages.rename(moved)
        replace(moved, target)
    return target / "index.html"


def _plan(chapter: Chapter, values: Mapping[str, Any]) -> Plan:
    chosen = dict(values)
    preset = chosen.pop("preset", None)
    if preset is not None and not isinstance(preset, str):
        raise ChapterError(f"preset of {chapter.name!r} must be a name, got {preset!r}")
    return chapter, validate_values(chapter, chosen, preset)


def _stage(root: Path, stage: Path) -> Path:
    """Copy what the build reads, so that the sources stay as they are."""
    stage.mkdir()
    for part in ("book", "notebooks"):
        shutil.copytree(root / part, stage / part)
    for part in ("_config.yml", "_toc.yml", "CITATION.cff"):
        shutil.copy(root / part, stage / part)
    return stage


def _build(stage: Path) -> Path:
    start = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-X", "utf8", "-c", start, "build", str(stage), "-q"]
    built = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    pages = stage / "_build" / "html"
    if built.returncode or not (pages / "index.html").is_file():
        raise ChapterError(f"the build of the edition failed:\n{built.stderr[-3000:]}")
    return pages
