"""Stored notebooks: their form here, their outputs by nbval (``make test`` runs both)."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from nbval_numbers import texts_agree

from aimlib.chapters import load_chapters, tagged_defaults

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@every_notebook
def test_form(path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert path.stat().st_size < 1_500_000
    assert tagged_defaults(path)
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags", "mystnb"}, "metadata that varies between machines"
        statements = re.sub(r"^(from|import) .*?(\(.*?\))?$", "", cell.source, flags=re.M | re.S)
        assert cell.cell_type != "code" or len(statements.splitlines()) <= 25, cell.source


@every_notebook
def test_outputs_are_stable(path) -> None:
    """No stream but standard output, no warning, address, progress bar, time or error."""
    unstable = re.compile(r"0x[0-9a-f]{6,}|Warning|\d+(?:\.\d+)?\s?(?:s|ms|sec|it/s)\b|%\|")
    for cell in code_cells(path):
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name", "stdout") == "stdout"
            text = output.get("text", "") or output.get("data", {}).get("text/plain", "")
            if not text.startswith("<Figure size"):
                assert not unstable.search(text), text


@every_notebook
def test_outputs_are_there(path) -> None:
    """A cell that prints has printed, a cell that shows a figure has stored it."""
    for cell in code_cells(path):
        calls = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, ast.Call)
        }
        kinds = {key for output in cell.outputs for key in output.get("data", {})}
        if "print" in calls:
            assert any(output.output_type == "stream" for output in cell.outputs), cell.source
        if "plt.show" in calls:
            assert "image/png" in kinds, cell.source
        drawn = [call for call in calls if call.startswith("plotting.") and "style" not in call]
        if drawn:
            assert cell.source.rstrip().endswith("plt.show()"), cell.source


@every_notebook
def test_figures_have_caption_take_away_and_alternative_text(path) -> None:
    stem = path.stem.replace("_", "-")
    for cell in code_cells(path):
        if "plt.show()" in cell.source:
            figure = cell.metadata["mystnb"]["figure"]
            assert "Take-away:" in figure["caption"]
            assert figure["name"].startswith(f"fig:{stem}-")
            assert len(cell.metadata["mystnb"]["image"]["alt"]) > 40


@every_notebook
def test_assertions_guard_what_is_claimed(path) -> None:
    assert sum(cell.source.count("assert ") for cell in code_cells(path)) >= 2


# ---------------------------------------------------------------------------------------------
# A notebook taken alone
# ---------------------------------------------------------------------------------------------


@every_notebook
def test_without_aimlib_the_first_thing_said_is_what_to_install(path, tmp_path) -> None:
    """In a Python without any package: the cells up to the imports, as a kernel would run them."""
    assert "install `aimlib` first" in nbformat.read(path, as_version=4).cells[0].source
    code = "\n".join(cell.source for cell in code_cells(path)[:2])
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: This notebook needs aimlib: run 'pip install .'")
    assert result.returncode == 1


@every_notebook
def test_recorded_runs_are_asked_from_the_package(path) -> None:
    """A path below the folder of the notebook is not there when the notebook is taken alone."""
    for cell in code_cells(path):
        texts = {n.value for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Constant)}
        assert not {t for t in texts if isinstance(t, str) and re.match(r"(\./)?(data|sweeps)/", t)}


@pytest.mark.parametrize("name", ["claims", "cross_attention"])
def test_a_notebook_taken_alone_runs_to_its_end(tmp_path, name) -> None:
    """The two that use most: tables of several chapters, and the code of recorded runs."""
    shutil.copy(ROOT / "notebooks" / f"{name}.ipynb", tmp_path)
    notebook = nbformat.read(tmp_path / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.ipynb"]


def test_every_notebook_has_a_card_and_every_card_a_notebook() -> None:
    assert {chapter.name for chapter in load_chapters(ROOT)} == {path.stem for path in NOTEBOOKS}


# ---------------------------------------------------------------------------------------------
# The comparison that nbval is given
# ---------------------------------------------------------------------------------------------


def test_numbers_are_compared_as_numbers() -> None:
    assert texts_agree("error 0.392196", "error 0.392196000001")
    assert texts_agree("[0.1281309  2.0]", "[0.1281309 2.0]")
    assert texts_agree("0.0499", "0.0500")  # rounding on either side of the last digit
    assert not texts_agree("0.392196", "0.393196")
    assert not texts_agree("3 points", "4 points")
    assert not texts_agree("converged 0.5", "diverged 0.5")
    assert not texts_agree("0.5 0.6", "0.5")
    assert not texts_agree("1.0e-3", "1.0e-4")


def nbval(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--nbval", "-p", "nbval_numbers", "-q"),
            *("-p", "no:cacheprovider", "--nbval-kernel-name", "python3"),
            *("--rootdir", str(folder), "--override-ini", "addopts=", str(folder)),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    )


@pytest.mark.parametrize(
    ("stored", "passes"),
    [("0.30000000000", True), ("0.30000000009", True), ("0.301", False), ("0.3 or so", False)],
)
def test_nbval_accepts_rounding_and_nothing_else(tmp_path, stored, passes) -> None:
    cell = nbformat.v4.new_code_cell("print('%.11f' % 0.3)", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=stored + "\n")]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, tmp_path / "one.ipynb")
    result = nbval(tmp_path)
    assert (result.returncode == 0) == passes, result.stdout


def test_cleared_outputs_do_not_pass(tmp_path) -> None:
    """nbval alone would accept a notebook without outputs and counts."""
    path = tmp_path / NOTEBOOKS[0].name
    shutil.copy(NOTEBOOKS[0], path)
    content = json.loads(path.read_text())
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    path.write_text(json.dumps(content))
    with pytest.raises(AssertionError):
        test_form(path)
    with pytest.raises(AssertionError):
        test_outputs_are_there(path)
