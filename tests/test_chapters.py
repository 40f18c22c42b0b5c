"""Running chapters with other parameters: what is refused, what is left behind, what changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from conftest import shared_folder
from filelock import FileLock

from aimlib import chapters
from aimlib.chapters import (
    ChapterError,
    Parameter,
    check_alternatives,
    execute_notebook,
    expand_grid,
    find_root,
    load_chapter,
    load_chapters,
    parse_alternatives,
    parse_value,
    recorded_runs,
    run_chapter,
    run_grid,
    tagged_defaults,
    validate_values,
)

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = load_chapters(ROOT)

# ---------------------------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------------------------


def parameter(kind: str, **options) -> Parameter:
    return Parameter("x", None, kind, "a test", **options)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "1000", 1000),
        ("int", "1e3", 1000),
        ("int", "-4", -4),
        ("int", "12345678901234567891", 12345678901234567891),
        ("float", "1e-6", 1e-6),
        ("float", "3", 3.0),
        ("bool", "false", False),
        ("bool", "True", True),
        ("str", "softmax", "softmax"),
        ("floats", "0.1,2", [0.1, 2.0]),
        ("ints", "[1, 2]", [1, 2]),
        ("strs", "a, b", ["a", "b"]),
    ],
)
def test_text_becomes_a_value_of_the_declared_type(kind, text, value) -> None:
    parsed = parse_value(parameter(kind), text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "1.5"),
        ("int", "007"),
        ("int", "two"),
        ("int", "true"),
        ("float", "nan"),
        ("float", "inf"),
        ("float", "1,5"),
        ("float", ""),
        ("bool", "1"),
        ("floats", ""),
        ("floats", "0.1,,2"),
        ("ints", "1,x"),
        ("int", "1_000"),
        ("int", "[1"),
        ("floats", "1]"),
    ],
)
def test_text_of_another_type_is_refused(kind, text) -> None:
    with pytest.raises(ChapterError, match="x must be"):
        parse_value(parameter(kind), text)


def test_ranges_and_choices_are_named_in_the_refusal() -> None:
    with pytest.raises(ChapterError, match=r"float from 0 to 1, got 2\.0"):
        parse_value(parameter("float", low=0, high=1), "2")
    with pytest.raises(ChapterError, match="one of a, b, got 'c'"):
        parse_value(parameter("str", choices=("a", "b")), "c")
    with pytest.raises(ChapterError, match="got '1e-6'"):
        validate_values(load_chapter("priors", ROOT), {"noise": "1e-6"})  # as YAML reads it


def test_unknown_names_are_refused_with_a_hint() -> None:
    with pytest.raises(ChapterError, match=r"no parameter 'nois'. Did you mean 'noise'\?"):
        validate_values(load_chapter("priors", ROOT), {"nois": 1.0})
    with pytest.raises(ChapterError, match=r"no chapter 'softmx'. Did you mean 'softmax'\?"):
        load_chapter("softmx", ROOT)
    with pytest.raises(ChapterError, match="no preset 'slow'; it has: quick"):
        validate_values(load_chapter("priors", ROOT), {}, "slow")


def test_a_value_given_goes_before_the_preset_and_that_before_the_default() -> None:
    chapter = load_chapter("priors", ROOT)
    assert chapter.parameter("dimension").default == 800
    assert validate_values(chapter, {}, "quick")["dimension"] == 200
    given = validate_values(chapter, {"dimension": 300}, "quick")
    assert given == {"width_ratio": 0.5, "noise": 0.003, "dimension": 300, "seed": 3}


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        ("int", "3", [3]),
        ("int", "1,2, 1e3", [1, 2, 1000]),
        ("int", "[1, 2]", [1, 2]),
        ("bool", "true,false", [True, False]),
        ("str", "softmax, hardmax", ["softmax", "hardmax"]),
        ("floats", "0.1,2", [[0.1, 2.0]]),
        ("floats", "[0.1,2]", [[0.1, 2.0]]),
        ("floats", "0.1,2;3", [[0.1, 2.0], [3.0]]),
        ("floats", "[0.1,2],[3]", [[0.1, 2.0], [3.0]]),
        ("ints", "[[1, 2], [3]]", [[1, 2], [3]]),
    ],
)
def test_text_becomes_the_values_of_a_grid(kind, text, values) -> None:
    assert parse_alternatives(parameter(kind), text) == values


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("int", "1,,2", "x must be"),
        ("int", "", "x must be"),
        ("int", "[1,2", "x must be"),
        ("int", "1;2", "x must be"),
        ("int", "[[1],[2]]", "x must be"),
        ("int", "1,1", "value 1 twice"),
        ("floats", "1;", "x must be"),
        ("floats", "1,2;1,2", r"value \[1.0, 2.0\] twice"),
    ],
)
def test_a_doubtful_grid_is_refused(kind, text, message) -> None:
    with pytest.raises(ChapterError, match=message):
        parse_alternatives(parameter(kind), text)


def test_values_of_a_file_make_a_grid() -> None:
    assert check_alternatives(parameter("int"), 3) == [3]
    assert check_alternatives(parameter("int"), [1, 2]) == [1, 2]
    assert check_alternatives(parameter("floats"), [1, 2]) == [[1.0, 2.0]]
    assert check_alternatives(parameter("floats"), [[1], [2, 3]]) == [[1.0], [2.0, 3.0]]
    for kind, value in (("int", []), ("int", [1, True]), ("floats", [[1], 2]), ("int", None)):
        with pytest.raises(ChapterError, match="x must be"):
            check_alternatives(parameter(kind), value)


def test_a_grid_has_all_combinations_and_an_end() -> None:
    chapter = load_chapter("channels", ROOT)
    points = expand_grid(chapter, {"tokens": [2, 3], "noise": [0, 1.0, 2.0]})
    assert points[:2] == [{"tokens": 2, "noise": 0.0}, {"tokens": 2, "noise": 1.0}]
    assert len(points) == 6
    with pytest.raises(ChapterError, match="1 to 1000 runs, this one has 1001"):
        expand_grid(chapter, {"seed": list(range(1001))})


# ---------------------------------------------------------------------------------------------
# The card
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "One"\n', "", r"\[one\] in parameters.toml must have .*missing: \['title'\]"),
        ("seconds = 1\n", "", r"missing: \['seconds'\]"),
        ("seconds = 1\n", 'seconds = "1"\n', "seconds of .* has the wrong type: '1'"),
        ("seconds = 1\n", "seconds = true\n", "seconds of .* has the wrong type: True"),
        ("seconds = 1\n", "seconds = 1\nminutes = 2\n", r"unknown: \['minutes'\]"),
        ('type = "int", ', "", r"\[one.parameters.x\] .* missing: \['type'\]"),
        ('type = "int", ', 'type = "integer", ', "must be one of int, float, .*got 'integer'"),
        ("low = 0, ", "lowest = 0, ", r"unknown: \['lowest'\]"),
        ("low = 0, ", "low = 2, ", "x must be int from 2 to 9, got 1"),
        ("x = {", "y = {", r"describes \['y'\] but the parameters cell .* sets \['x'\]"),
        ("x = {", "x = 3 #", "must be a table, got 3"),
        ("[one.parameters]", "[one.presets.p]\nvalues = {x = 2}\n[one.parameters]", "'seconds'"),
        ("[one.parameters]", "[one.presets]\np = 1\n[one.parameters]", "must be a table, got 1"),
        (
            "[one.parameters]",
            "[one.presets.p]\nseconds = 1\nvalues = {x = 20}\n[one.parameters]",
            "int from 0 to 9, got 20",
        ),
        ("seconds = 1\n", "seconds = \n", "cannot read .*parameters.toml"),
        ("seconds = 1\n", 'seconds = 1\nmemory = "5 * d"\n', "a formula in its parameters"),
        ("seconds = 1\n", 'seconds = 1\nmemory = "open(x)"\n', "not allowed"),
    ],
)
def test_a_wrong_card_is_named(book, old, new, message) -> None:
    path = book / "notebooks" / "parameters.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ChapterError, match=message):
        chapters.estimated_memory(load_chapter("one", book), {"x": 1})


# ---------------------------------------------------------------------------------------------
# The tagged cell
# ---------------------------------------------------------------------------------------------


def write(path: Path, *cells: tuple[str, bool]) -> Path:
    notebook = nbformat.v4.new_notebook()
    for source, tagged in cells:
        metadata = {"tags": ["parameters"]} if tagged else {}
        notebook.cells.append(nbformat.v4.new_code_cell(source, metadata=metadata))
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, path)
    return path


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([("x = 1", False)], "exactly one code cell tagged"),
        ([("x = 1", True), ("y = 2", True)], "exactly one code cell tagged"),
        ([("n = 2\nm = 2 * n", True)], "m is computed"),
        ([("import numpy", True)], "assignments of literals only"),
        ([("x, y = 1, 2", True)], "assignments of literals only"),
        ([("np = 3", True), ("import numpy as np", False)], r"again elsewhere: \['np'\]"),
        ([("x = 1", True), ("x = 2", False)], r"again elsewhere: \['x'\]"),
        ([("x = 1", True), ("for x in range(3):\n    pass", False)], "again elsewhere"),
    ],
)
def test_a_doubtful_parameters_cell_is_refused(tmp_path, cells, message) -> None:
    with pytest.raises(ChapterError, match=message):
        tagged_defaults(write(tmp_path / "one.ipynb", *cells))


# ---------------------------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path) -> Path:
    """A small book with one chapter."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "_toc.yml").write_text("root: x\n")
    (tmp_path / "_config.yml").write_text((ROOT / "_config.yml").read_text())
    (tmp_path / "notebooks" / "parameters.toml").write_text(
        '[one]\ntitle = "One"\nsummary = "A test."\nseconds = 1\n[one.parameters]\n'
        'x = { type = "int", low = 0, high = 9, description = "a number" }\n'
    )
    write(tmp_path / "notebooks" / "one.ipynb", ("x = 1", True), ("print(x + 1)", False))
    return tmp_path


def leftovers(book: Path) -> list[str]:
    runs = book / "runs"
    return sorted(p.name for p in runs.iterdir()) if runs.exists() else []


def test_a_run_is_complete_and_recorded(book) -> None:
    before = (book / "notebooks" / "one.ipynb").read_bytes()
    target = run_chapter(load_chapter("one", book), {"x": 4})
    assert sorted(p.name for p in target.iterdir()) == [
        "notebook.html",
        "notebook.ipynb",
        "parameters.json",
    ]
    record = json.loads((target / "parameters.json").read_text())
    assert record["parameters"] == {"x": 4}
    assert record["versions"]["numpy"]
    executed = nbformat.read(target / "notebook.ipynb", as_version=4)
    assert executed.cells[-1].outputs[0].text == "5\n"
    assert "<pre>5" in (target / "notebook.html").read_text()
    assert (book / "notebooks" / "one.ipynb").read_bytes() == before
    assert run_chapter(load_chapter("one", book), {"x": 4}) == target  # replaced, not doubled
    assert leftovers(book) == [target.name]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('lost')", "RuntimeError: lost"),
        ("import sys; sys.exit(0)", "did not run|SystemExit"),
        ("import os; os._exit(0)", "did not run|died|Dead"),
    ],
)
def test_a_failure_is_told_and_leaves_nothing(book, source, message) -> None:
    write(book / "notebooks" / "one.ipynb", ("x = 1", True), (source, False), ("print(x)", False))
    with pytest.raises(ChapterError, match=message):
        run_chapter(load_chapter("one", book), {})
    assert leftovers(book) == []


def test_sources_and_strange_folders_are_never_written(book) -> None:
    chapter = load_chapter("one", book)
    for target in ("notebooks", "notebooks/new", "book/x", ".", "..", "aimlib"):
        with pytest.raises(ChapterError, match="output must"):
            run_chapter(chapter, {}, output=book / target)
    other = book / "mine"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    with pytest.raises(ChapterError, match="new, empty or an earlier result"):
        run_chapter(chapter, {}, output=other)
    assert (other / "thesis.tex").read_text() == "years of work"


def test_a_folder_that_cannot_be_is_told_before_anything_runs(book, monkeypatch) -> None:
    def too_late(*arguments, **options) -> None:
        raise AssertionError("a kernel was started")

    monkeypatch.setattr("aimlib.chapters.running.execute_notebook", too_late)
    monkeypatch.setattr("aimlib.chapters.editions.execute_notebook", too_late)
    (book / "file").write_text("")
    chapter = load_chapter("one", book)
    for folder in ("file/x", "file/x/y", "n" * 300, "a/" + "n" * 300 + "/b", "new/a\0b"):
        for act in (
            lambda output: run_chapter(chapter, {}, output=output),
            lambda output: run_grid(chapter, {"x": [1, 2]}, output=output),
            lambda output: chapters.build_edition({"one": {"x": 2}}, output, book),
        ):
            with pytest.raises(ChapterError, match=r"output cannot be written|output must be new"):
                act(book / folder)


def test_a_grid_has_an_index_a_table_and_a_folder_for_each_run(book) -> None:
    write(
        book / "notebooks" / "one.ipynb",
        ("x = 1", True),
        ("from myst_nb import glue\nassert x != 3\nglue('twice', 2 * x)", False),
    )
    chapter = load_chapter("one", book)
    target = run_grid(chapter, {"x": [2, 3, 4]})
    record = json.loads((target / "parameters.json").read_text())
    assert [run["parameters"]["x"] for run in record["runs"]] == [2, 3, 4]
    assert [run.get("results") for run in record["runs"]] == [{"twice": 4}, None, {"twice": 8}]
    assert "AssertionError" in record["runs"][1]["error"]
    rows = (target / "index.csv").read_text().splitlines()
    assert rows[0] == "run,x,twice,seconds,error"
    assert rows[1].startswith("1,2,4,")
    page = (target / "index.html").read_text()
    for run in (record["runs"][0], record["runs"][2]):
        assert f'href="{run["folder"]}/notebook.html"' in page
        assert (target / run["folder"] / "notebook.html").is_file()
    assert sorted(p.name for p in target.iterdir()) == sorted(
        ["index.html", "index.csv", "parameters.json"]
        + [run["folder"] for run in record["runs"] if "folder" in run]
    )
    assert leftovers(book) == [target.name]
    # again: finished runs are kept, of which one is marked, the failed one is tried again
    marked = target / record["runs"][0]["folder"] / "notebook.html"
    marked.write_text("kept")
    assert run_grid(chapter, {"x": [2, 3, 4]}) == target
    assert marked.read_text() == "kept"
    # another grid in the same folder replaces it
    run_grid(chapter, {"x": [5, 6]}, output=target)
    assert not marked.exists()


def test_a_grid_is_refused_as_a_whole(book) -> None:
    with pytest.raises(ChapterError, match="int from 0 to 9, got 10"):
        run_grid(load_chapter("one", book), {"x": [1, 10]})
    assert leftovers(book) == []


def test_results_hold_no_paths_of_the_machine(book) -> None:
    target = run_chapter(load_chapter("one", book), {"x": 4})
    for path in target.iterdir():
        assert str(book) not in path.read_text()


def test_recorded_runs_are_found_beside_the_notebook_or_in_the_book(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert recorded_runs("amp") == ROOT / "notebooks" / "data" / "amp"
    (tmp_path / "data" / "amp").mkdir(parents=True)
    assert recorded_runs("amp").resolve() == tmp_path / "data" / "amp"
    monkeypatch.setenv("AIMLIB_BOOK", str(tmp_path / "nowhere"))
    with pytest.raises(ChapterError, match=r"recorded runs data/descent .* are missing"):
        recorded_runs("descent")


def test_a_foreign_kernel_is_refused(book, monkeypatch) -> None:
    """A kernel of the name python3 that belongs to another Python would run other code."""
    kernels = book / "share" / "kernels" / "python3"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text(
        json.dumps({"argv": ["/usr/bin/false"], "display_name": "x", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(book / "share"))
    with pytest.raises(ChapterError, match="runs /usr/bin/false, not"):
        run_chapter(load_chapter("one", book), {})


def test_the_book_is_found_from_below_and_by_name(book, monkeypatch) -> None:
    assert find_root(book / "notebooks") == book.resolve()
    monkeypatch.setenv("AIMLIB_BOOK", str(book))
    assert find_root(Path("/")) == book.resolve()
    monkeypatch.setenv("AIMLIB_BOOK", str(book / "nowhere"))
    with pytest.raises(ChapterError, match="AIMLIB_BOOK"):
        find_root()


# ---------------------------------------------------------------------------------------------
# Every notebook of the book with other parameters
# ---------------------------------------------------------------------------------------------


def results(path: Path) -> str:
    """Everything a reader would see: printed text, glued numbers and pictures."""
    seen = []
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            seen.append(output.get("text", ""))
            seen.append(json.dumps(output.get("data", {}), sort_keys=True))
    return "\n".join(seen)


@pytest.fixture(scope="session")
def baseline(warm_kernels, tmp_path_factory) -> Callable[[str], str]:
    """Results of runs with the defaults on this machine with these libraries, one a chapter."""
    folder = shared_folder(tmp_path_factory) / "defaults"
    folder.mkdir(exist_ok=True)

    def found(name: str) -> str:
        path = folder / f"{name}.ipynb"
        with FileLock(folder / f"{name}.lock"):
            if not path.exists():
                with warm_kernels():
                    execute_notebook(load_chapter(name, ROOT).notebook, path, {})
        seen = results(path)
        assert '"image/png"' in seen or name == "claims"
        return seen

    return found


CASES = [(c, p) for c in CHAPTERS for p in c.parameters]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)
def test_all_parameters_at_once(chapter, tmp_path, baseline) -> None:
    """Every notebook runs, with all its assertions, at the test values of all its parameters."""
    values = {p.name: p.test_value for p in chapter.parameters}
    checked = validate_values(chapter, values)
    execute_notebook(chapter.notebook, tmp_path / "out.ipynb", checked)
    assert results(tmp_path / "out.ipynb") != baseline(chapter.name)


@pytest.mark.parametrize(("chapter", "one"), CASES, ids=[f"{c.name}-{p.name}" for c, p in CASES])
def test_each_parameter_changes_some_result(chapter, one, tmp_path, baseline, warm_kernels) -> None:
    """Against a run with all defaults."""
    assert one.test_value is not None
    assert one.test_value != one.default
    with warm_kernels():
        execute_notebook(chapter.notebook, tmp_path / "out.ipynb", {one.name: one.test_value})
    assert results(tmp_path / "out.ipynb") != baseline(chapter.name)


def test_presets_are_valid() -> None:
    for chapter in CHAPTERS:
        for preset in chapter.presets:
            assert validate_values(chapter, {}, preset)


def test_an_edition_is_the_book_with_other_numbers(tmp_path) -> None:
    """The numbers in the prose of a chapter come from the re-run notebook."""
    choices = {"softmax": {"width_ratios": [2.0], "points": 8}}
    page = chapters.build_edition(choices, tmp_path / "edition", ROOT)
    soup = BeautifulSoup((page.parent / "book" / "softmax.html").read_text(), "html.parser")
    text = soup.article.get_text()  # data of the controls, in a script, hold recorded points
    assert "0.2500" in text  # the threshold at rho = 2
    assert "0.1875" not in text
    record = json.loads((page.parent / "parameters.json").read_text())
    assert record["edition"]["softmax"]["width_ratios"] == [2.0]


def test_import_stays_light() -> None:
    """Importing aimlib must not load notebooks machinery, plotting or slow corners of SciPy."""
    heavy = ("papermill", "nbformat", "matplotlib", "pandas", "scipy.stats")
    code = f"import sys, aimlib; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_a_run_with_the_defaults_repeats_itself(tmp_path, baseline) -> None:
    """Text, numbers and pictures, from a new kernel and from one that has its imports.

    Otherwise the comparisons above would prove nothing.
    """
    execute_notebook(load_chapter("channels", ROOT).notebook, tmp_path / "out.ipynb", {})
    assert results(tmp_path / "out.ipynb") == baseline("channels")


def test_an_executed_copy_has_the_defaults_of_its_chapter(tmp_path) -> None:
    """Papermill assigns the parameters a second time; that is no clash."""
    chapter = load_chapter("channels", ROOT)
    one = next(p for p in chapter.parameters if p.test_value is not None)
    executed = tmp_path / "channels.ipynb"
    execute_notebook(chapter.notebook, executed, {one.name: one.test_value})
    assert tagged_defaults(executed) == tagged_defaults(chapter.notebook)
