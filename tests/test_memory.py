"""The guard before a run: what it estimates, against measured runs, and what it says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from aimlib.chapters import (
    ChapterError,
    available_memory,
    estimated_memory,
    load_chapter,
    load_chapters,
    run_chapter,
    run_grid,
    validate_values,
)
from aimlib.chapters.memory import require_memory

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = load_chapters(ROOT)
FACTOR = 2.0  # stated in aimlib.chapters.memory

# Where a formula matters: the same chapter once more, where its variable part is the larger one.
LARGE = {
    "priors": {"dimension": 3000},
    "channels": {"tokens": 8, "sequences": 60000},
    "model": {"tokens": 6, "sequences": 200000, "dimension": 40},
    "deep": {"layers": 8, "dimension": 512, "tokens": 8},
    "amp": {"dimension": 200, "sample_complexity": 1.0},
    "descent": {"dimension": 100, "sample_complexities": [0.2], "starts": 200, "steps": 50},
    "layers": {"dimension": 120, "sample_complexity": 2.0},
    "cross_attention": {"dimension": 150, "sample_complexity": 1.0},
}
CASES = [(c.name, {p.name: p.test_value for p in c.parameters}) for c in CHAPTERS]
CASES += list(LARGE.items())


def measured(name: str, values: dict) -> float:
    """Peak memory in bytes of a kernel that runs a notebook."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", ()):
            cell.source += "".join(f"\n{key} = {value!r}" for key, value in values.items())
    usage = "import resource\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    notebook.cells.append(nbformat.v4.new_code_cell(usage))
    resources = {"metadata": {"path": str(ROOT / "notebooks")}}
    nbclient.NotebookClient(notebook, timeout=900, resources=resources).execute()
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * float(notebook.cells[-1].outputs[0].text)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no resource module")
@pytest.mark.parametrize(("name", "values"), CASES, ids=[f"{n}-{len(v)}" for n, v in CASES])
def test_the_estimate_is_right_within_a_factor_of_two(name, values) -> None:
    chapter = load_chapter(name, ROOT)
    estimate = estimated_memory(chapter, validate_values(chapter, values))
    assert 1 / FACTOR < estimate / measured(name, values) < FACTOR


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)
def test_every_card_has_a_formula_that_grows_with_the_parameters(chapter) -> None:
    """At the upper end of every range it gives at least what it gives at the lower one."""
    defaults = validate_values(chapter, {})
    assert estimated_memory(chapter, defaults) > 1e8
    for p in chapter.parameters:
        if p.type in ("int", "float"):
            ends = [estimated_memory(chapter, {**defaults, p.name: v}) for v in (p.low, p.high)]
            assert ends[0] <= ends[1]


def test_a_run_that_does_not_fit_is_refused_with_what_would(monkeypatch) -> None:
    """The values that are named fit, and a little more does not."""
    monkeypatch.setenv("AIMLIB_MEMORY", "4")
    chapter = load_chapter("amp", ROOT)
    values = validate_values(chapter, {"dimension": 1000, "sample_complexity": 2.0})
    with pytest.raises(ChapterError) as caught:
        require_memory(chapter, values)
    message = str(caught.value)
    assert "'amp' needs about 120 GB of memory and 4 GB are free" in message
    assert "dimension up to 312" in message  # 345 + 120e-6 d^3 = 4000
    assert "sample_complexity up to 0.0609" in message  # 345 + 60000 alpha = 4000
    assert "tokens up to" not in message  # one token fits no better than two
    for name, fits, too_much in (("dimension", 312, 313), ("sample_complexity", 0.0609, 0.062)):
        require_memory(chapter, {**values, name: fits})
        with pytest.raises(ChapterError):
            require_memory(chapter, {**values, name: too_much})


def test_it_is_told_before_anything_is_started_or_written(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AIMLIB_MEMORY", "4")
    monkeypatch.setattr("aimlib.chapters.running.execute_notebook", None)
    chapter = load_chapter("amp", ROOT)
    with pytest.raises(ChapterError, match="needs about"):
        run_chapter(chapter, {"dimension": 1000}, output=tmp_path / "out")
    with pytest.raises(ChapterError, match="needs about"):
        run_grid(chapter, {"dimension": [20, 1000]}, output=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_limit_set_by_hand_goes_before_what_is_found(monkeypatch) -> None:
    monkeypatch.setenv("AIMLIB_MEMORY", "0.5")
    assert available_memory() == 500_000_000
    for wrong in ("much", "0", "-1", "nan", "inf"):
        monkeypatch.setenv("AIMLIB_MEMORY", wrong)
        with pytest.raises(ChapterError, match="AIMLIB_MEMORY must be a number of gigabytes"):
            available_memory()
    monkeypatch.delenv("AIMLIB_MEMORY")
    assert 10**7 < available_memory() < 10**14
