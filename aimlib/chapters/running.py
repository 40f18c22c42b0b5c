"""One safe way to run a chapter with other parameters.

:func:`run_chapter` refuses whatever would run something else than was asked for, before a kernel
starts, and leaves either a complete result or nothing.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aimlib.chapters.cards import Chapter, validate_values
from aimlib.chapters.memory import require_memory
from aimlib.chapters.notebooks import check_kernel, execute_notebook, glued_values
from aimlib.chapters.pages import run_page
from aimlib.chapters.places import check_target, replace, resolved, results_folder, scratch
from aimlib.files import write_json
from aimlib.provenance import provenance

__all__ = ["digest", "run_chapter", "source_digest"]

_PACKAGE = Path(__file__).resolve().parent.parent


def run_chapter(
    chapter: Chapter,
    values: Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    output: Path | None = None,
    progress: bool = False,
) -> Path:
    """Run a chapter with other parameters; return the folder of the result.

    Parameters
    ----------
    chapter : Chapter
    values : mapping of str to object
        Parameters to change.
    preset : str, optional
        Named set of parameters from the card, applied before ``values``.
    output : Path, optional
        Folder of the result; by default ``runs/CHAPTER-HASH`` with a hash of the parameters.  An
        earlier result there is replaced, anything else is left alone and an error.
    progress : bool
        Show a progress bar on standard error.

    Returns
    -------
    Path
        Holds ``notebook.ipynb``, ``notebook.html`` and ``parameters.json``: all parameters, the
        numbers that the notebook glues, and what it was run with.

    Raises
    ------
    ChapterError
        Before anything runs, if a name, a value, the kernel or the output folder is wrong, or the
        run would not fit into memory; afterwards, if a cell failed or did not run.  Nothing is left
        behind in either case.
    """
    parameters = validate_values(chapter, values or {}, preset)
    root = chapter.notebook.parent.parent
    default = results_folder(root) / f"{chapter.name}-{digest(parameters)}"
    target = resolved(output or default)
    require_memory(chapter, parameters)
    check_kernel()
    check_target(target, root)
    with scratch(target.parent) as folder:
        started = time.time()
        executed = folder / "notebook.ipynb"
        execute_notebook(chapter.notebook, executed, parameters, progress=progress)
        page = run_page(executed, target, root)
        (folder / "notebook.html").write_text(page, encoding="utf-8")
        record = {
            "chapter": chapter.name,
            "parameters": parameters,
            "results": glued_values(executed),
            "seconds": round(time.time() - started, 3),
            "sources": source_digest(chapter.notebook),
            **provenance(root),
        }
        write_json(folder / "parameters.json", record)
        replace(folder, target)
    return target


def digest(parameters: Any) -> str:
    """A short name for a set of parameters, the same on every machine."""
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:10]


@functools.cache
def source_digest(notebook: Path) -> str:
    """A fingerprint of all code that a run depends on: the notebook's and the package's."""
    found = hashlib.sha256(notebook.read_bytes())
    for path in sorted(_PACKAGE.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]
