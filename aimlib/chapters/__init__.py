"""Chapters that can be run with other parameters: their cards, and one safe way to run them.

A chapter is a notebook with exactly one cell of plain literals tagged ``parameters``, and a card in
``notebooks/parameters.toml`` that says what each parameter means and where it may go.  The cell
holds the defaults; the card holds nothing that the cell holds.

======================  ============================================================
``parameters``          one parameter, and values for it from a shell or a file
``notebooks``           the notebook: its cell of parameters, a run of all its cells
``cards``               the chapters and their presets
``memory``              whether a run fits
``places``              where the book is and results go
``running``, ``grids``  one run, and many with an index page
``editions``            the whole book with other parameters
``pages``               results as pages
======================  ============================================================
"""

from aimlib.chapters.cards import Chapter, Preset, load_chapter, load_chapters, validate_values
from aimlib.chapters.editions import build_edition, read_choices
from aimlib.chapters.grids import expand_grid, run_grid
from aimlib.chapters.memory import available_memory, estimated_memory
from aimlib.chapters.notebooks import check_kernel, execute_notebook, tagged_defaults
from aimlib.chapters.parameters import (
    ChapterError,
    Parameter,
    check_alternatives,
    parse_alternatives,
    parse_value,
)
from aimlib.chapters.places import find_root, recorded_runs
from aimlib.chapters.running import run_chapter

__all__ = [
    "Chapter",
    "ChapterError",
    "Parameter",
    "Preset",
    "available_memory",
    "build_edition",
    "check_alternatives",
    "check_kernel",
    "estimated_memory",
    "execute_notebook",
    "expand_grid",
    "find_root",
    "load_chapter",
    "load_chapters",
    "parse_alternatives",
    "parse_value",
    "read_choices",
    "recorded_runs",
    "run_chapter",
    "run_grid",
    "tagged_defaults",
    "validate_values",
]
