"""Where the book is, where results go, and how they get there whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aimlib.chapters.parameters import ChapterError
from aimlib.files import FileError, prepare_folder

__all__ = [
    "check_target",
    "find_root",
    "recorded_runs",
    "replace",
    "resolved",
    "results_folder",
    "scratch",
]

_PACKAGE = Path(__file__).resolve().parent.parent
_CARRIED = _PACKAGE / "carried"  # the book inside an installed wheel, see pyproject.toml
_SOURCES = ("book", "notebooks", "aimlib", "tests", "benchmarks", ".git")


def _is_book(folder: Path) -> bool:
    return (folder / "_toc.yml").is_file() and (folder / "notebooks/parameters.toml").is_file()


def find_root(start: Path | None = None) -> Path:
    """Return the folder of the book.

    That is ``$AIMLIB_BOOK`` if it is set; else the checkout that holds this folder; else the one
    that this package was installed from, or the copy that came with the package.

    Raises
    ------
    ChapterError
        If there is no book in any of them.
    """
    chosen = os.environ.get("AIMLIB_BOOK")
    here = (start or Path.cwd()).resolve()
    candidates = [Path(chosen)] if chosen else [here, *here.parents, _PACKAGE.parent, _CARRIED]
    for folder in candidates:
        if _is_book(folder):
            return folder.resolve()
    raise ChapterError(
        f"no book found {'in ' + chosen if chosen else 'here or above'}: run inside a checkout of "
        "the book, or set AIMLIB_BOOK to its folder"
    )


def recorded_runs(chapter: str) -> Path:
    """Return the folder with the recorded runs of a chapter, for a notebook wherever it lies.

    Parameters
    ----------
    chapter : str
        Name of a folder below ``notebooks/data``.

    Returns
    -------
    Path
        ``data/CHAPTER`` beside the notebook, else in the book that :func:`find_root` finds.

    Raises
    ------
    ChapterError
        If the runs are in neither place.
    """
    candidates = [Path("data")]
    with contextlib.suppress(ChapterError):
        candidates.append(find_root() / "notebooks" / "data")
    for folder in candidates:
        if (folder / chapter).is_dir():
            return folder / chapter
    raise ChapterError(
        f"the recorded runs data/{chapter} that this notebook draws are missing: put the folder "
        "data of the book's notebooks beside it, or set AIMLIB_BOOK to a checkout of the book"
    )


def results_folder(root: Path) -> Path:
    """Return the folder that results go to by default: ``runs`` of the checkout, or of here."""
    return (Path.cwd() if root == _CARRIED else root) / "runs"


def resolved(output: Path) -> Path:
    """Return the full path of a folder of results, or say why there is none."""
    try:
        return output.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise ChapterError(f"output cannot be written in {str(output)!r}: {error}") from None


def check_target(target: Path, root: Path) -> None:
    """Refuse a folder of results that holds or is among the sources, is in use, or cannot be made.

    Raises
    ------
    ChapterError
        Before anything was written, apart from the empty parents of the folder.
    """
    for part in _SOURCES:
        if target == root / part or (root / part) in target.parents:
            raise ChapterError(f"output must not be among the sources, got {target}")
    if target == root or target in root.parents or _PACKAGE in (target, *target.parents):
        raise ChapterError(f"output must not hold the sources, got {target}")
    try:
        there = target.exists()
        ours = target.is_dir() and (target / "parameters.json").is_file()
        empty = target.is_dir() and not any(target.iterdir())
    except (OSError, ValueError) as error:
        raise ChapterError(f"output cannot be written in {target}: {error}") from None
    if there and not (ours or empty):
        raise ChapterError(f"output must be new, empty or an earlier result, got {target}")
    try:
        prepare_folder("output", target.parent)
    except FileError as error:
        raise ChapterError(str(error)) from None


@contextlib.contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A temporary folder on the same disk as the result, gone whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replace(folder: Path, target: Path) -> None:
    """Move a finished folder to its place, over an earlier result."""
    finished = folder.with_name(folder.name + "-done")
    folder.rename(finished)
    finished.chmod(0o755)
    if target.exists():
        old = folder.with_name(folder.name + "-old")
        target.rename(old)
        finished.rename(target)
        shutil.rmtree(old)
    else:
        finished.rename(target)
