"""The book builds from clean without a warning, with exactly the pages of the table of contents."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
LABEL = re.compile(r"^:label: (\S+)$", re.MULTILINE)


def contents() -> list[str]:
    """Documents of the table of contents, in reading order."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    found = [toc["root"]]
    for part in toc["parts"]:
        for entry in part["chapters"]:
            found += [entry["file"], *(section["file"] for section in entry.get("sections", []))]
    return found


def chapters() -> list[Path]:
    return sorted((ROOT / "book").glob("*.md"))


def test_there_were_no_warnings_and_the_pages_are_those_of_the_contents(site) -> None:
    """The session fixture builds with -n -W; stray notebooks and folders must not get in."""
    built = {
        page.relative_to(site).with_suffix("").as_posix()
        for folder in ("book", "notebooks", "runs", ".venv", "tests", "aimlib", "benchmarks")
        for page in (site / folder).rglob("*.html")
    }
    assert built == set(contents())
    others = {page.name for page in site.glob("*.html")}
    assert others <= {"index.html", "genindex.html", "search.html", "prf-prf.html"}


def test_a_stray_notebook_or_environment_is_not_built(tmp_path) -> None:
    """A checkout with leftovers of every kind: only_build_toc_files alone lets some of them in."""
    stage = tmp_path / "checkout"
    stage.mkdir()
    for part in ("book", "notebooks"):
        shutil.copytree(ROOT / part, stage / part)
    for part in ("_config.yml", "CITATION.cff"):
        shutil.copy(ROOT / part, stage / part)
    (stage / "_toc.yml").write_text("format: jb-book\nroot: book/bibliography\n")
    bad = (
        '{"cells": [{"cell_type": "code", "source": "raise SystemError", "outputs": [],'
        ' "execution_count": null, "metadata": {}, "id": "a"}], "metadata": {"kernelspec":'
        ' {"name": "python3", "display_name": "x"}}, "nbformat": 4, "nbformat_minor": 5}'
    )
    for place in (".venv/lib/x.ipynb", ".pytest_cache/README.md", "runs/a/n.ipynb", "stray.ipynb"):
        target = stage / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(bad if place.endswith("ipynb") else "# stray\n")
    subprocess.run(
        [
            sys.executable,
            "-c",
            "from jupyter_book.cli.main import main; main()",
            "build",
            str(stage),
            "-q",
        ],
        check=True,
        capture_output=True,
        timeout=300,
    )
    html = stage / "_build" / "html"
    pages = {p.name for p in html.rglob("*.html") if "_static" not in p.relative_to(html).parts}
    assert "bibliography.html" in pages
    assert pages <= {
        "index.html",
        "bibliography.html",
        "genindex.html",
        "search.html",
        "prf-prf.html",
    }


def test_a_notebook_is_never_executed_by_the_build() -> None:
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    assert config["execute"]["execute_notebooks"] == "off"


def test_every_chapter_and_notebook_is_in_the_contents() -> None:
    listed = set(contents())
    for path in [*chapters(), *sorted((ROOT / "notebooks").glob("*.ipynb"))]:
        assert path.relative_to(ROOT).with_suffix("").as_posix() in listed


@pytest.mark.parametrize("page", chapters(), ids=lambda p: p.stem)
def test_labels_carry_the_name_of_their_chapter(page) -> None:
    prefix = page.stem
    for label in LABEL.findall(page.read_text()):
        if label in proof_labels(page):
            assert label.startswith((f"{prefix}-", f"{prefix.replace('_', '-')}-")), label
        else:
            assert label.startswith(f"{prefix}:"), label


def proof_labels(page: Path) -> set[str]:
    """Labels of theorem-like and exercise boxes, which may not contain a colon."""
    pattern = re.compile(r"^`{3,}\{(?:prf:\w+|exercise)\}[^\n]*\n:label: (\S+)$", re.MULTILINE)
    return set(pattern.findall(page.read_text()))


BOX = re.compile(
    r"^(?P<fence>`{3,})\{prf:(?:definition|proposition|theorem|lemma|corollary)\}[^\n]*\n"
    r"(?P<body>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("page", chapters(), ids=lambda p: p.stem)
def test_a_box_holds_its_whole_statement(page) -> None:
    """It never ends in the middle of a sentence, with its equation standing outside."""
    for box in BOX.finditer(page.read_text()):
        body = box["body"].strip()
        last = re.sub(r"\n`{3,}$", "", body).strip()
        last = re.sub(r"(\\end\{\w+\*?\}|\$+|[*_)}\s])+$", "", last)
        assert last.endswith((".", "!", "?")), f"{page.name}: ... {body[-80:]}"


FIGURE = re.compile(
    r"^`{3,}\{notebook-figure\} \S+ (?P<drawn>fig:\S+)$|^:name: (?P<own>fig:\S+)$", re.M
)


@pytest.mark.parametrize("page", chapters(), ids=lambda p: p.stem)
def test_every_figure_is_cited_by_its_number(page) -> None:
    """In the text of its own chapter; numref fails the build where there is no such figure."""
    text = page.read_text()
    named = [f"{m['drawn']}-chapter" if m["drawn"] else m["own"] for m in FIGURE.finditer(text)]
    directives = re.findall(r"^`{3,}\{(?:notebook-figure|figure|inline-svg)\}", text, re.M)
    assert len(named) == len(directives), "a figure without a name"
    assert [name for name in named if f"{{numref}}`{name}`" not in text] == []


def test_labels_are_unique() -> None:
    labels = [label for page in chapters() for label in LABEL.findall(page.read_text())]
    assert len(labels) == len(set(labels))


def evaluated_text() -> str:
    """All tests and the code-adjacent text of all notebooks."""
    texts = [p.read_text() for p in (ROOT / "tests").glob("test_*.py")]
    texts += [p.read_text() for p in (ROOT / "notebooks").glob("*.ipynb")]
    return "\n".join(texts)


# Equations that define an object or state a step, with nothing to evaluate.
NOT_EVALUATED = ROOT / "tests" / "not_evaluated.txt"


def test_every_equation_is_evaluated_somewhere() -> None:
    """A test or a notebook names the label, or the label is listed as a definition or a step."""
    text = evaluated_text()
    listed = {line.strip() for line in NOT_EVALUATED.read_text().splitlines() if line.strip()}
    labels = {
        label
        for page in chapters()
        for label in LABEL.findall(page.read_text())
        if label not in proof_labels(page)
    }
    missing = {label for label in labels if label not in text} - listed
    assert not missing
    assert listed <= labels, f"listed but gone: {listed - labels}"
    assert not {label for label in listed if label in text}, "listed although evaluated"


def test_labels_named_by_code_and_tests_exist() -> None:
    """A docstring that cites an equation of the book must not dangle."""
    stems = "|".join(page.stem for page in chapters())
    pattern = re.compile(rf"``((?:{stems}):[a-z-]+)``")
    known = {label for page in chapters() for label in LABEL.findall(page.read_text())}
    for module in (ROOT / "aimlib").rglob("*.py"):
        for label in pattern.findall(module.read_text()):
            assert label in known, f"{module.name} cites {label}"


def test_functions_named_by_the_book_exist() -> None:
    """An "In code" box that names a function must not dangle, nor name what has moved."""
    import aimlib

    warnings.simplefilter("error", DeprecationWarning)

    pattern = re.compile(r"`aimlib\.([a-zA-Z_.]+)")
    for page in chapters():
        for dotted in pattern.findall(page.read_text()):
            if dotted in ("toml", "cli"):
                continue
            target: object = aimlib
            for part in dotted.rstrip(".").split("."):
                if not hasattr(target, part):
                    __import__(f"aimlib.{part}")
                target = getattr(target, part)


def test_no_page_asks_for_anything_from_outside(site) -> None:
    """Scripts, styles, pictures and fonts of every page are local."""
    pattern = re.compile(
        r"""<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=["'](https?:)?//([^"']+)""", re.I
    )
    for page in site.rglob("*.html"):
        if "_static" in page.parts:
            continue
        for scheme, address in pattern.findall(page.read_text(encoding="utf-8")):
            pytest.fail(f"{page.relative_to(site)} asks for {scheme}//{address}")
