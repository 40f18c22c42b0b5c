"""``make pdf``: the whole book as one PDF, printed once and read back.

It takes minutes, so it runs where it is asked for: ``make test-slow``, and before publishing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from browser import find_chromium
from bs4 import BeautifulSoup
from pypdf import PdfReader
from pypdf.generic import Destination

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "book" / "_pdf" / "typeset.py"


def print_book(site: Path, target: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(site), str(target)],
        capture_output=True, text=True, timeout=1500, env=environment or None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def output(site, tmp_path_factory) -> tuple[PdfReader, str]:
    """The printed book and what was said while it was printed."""
    if find_chromium() is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    target = tmp_path_factory.mktemp("pdf") / "book.pdf"
    result = print_book(site, target)
    assert result.returncode == 0, result.stdout + result.stderr
    return PdfReader(target), result.stdout


@pytest.fixture(scope="module")
def pdf(output) -> PdfReader:
    return output[0]


@pytest.fixture(scope="module")
def texts(pdf) -> list[str]:
    return [page.extract_text() for page in pdf.pages]


def squeezed(text: str) -> str:
    """Letters and digits only: spaces and signs are not what is looked for."""
    return re.sub(r"[\W_]+", "", text)


def titles(site: Path) -> list[str]:
    """The title of every page in the contents, from the built site; none of them has formulas."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    names = [contents["root"]]
    for part in contents["parts"]:
        for chapter in part["chapters"]:
            names += [chapter["file"], *(each["file"] for each in chapter.get("sections", []))]
    found = []
    for name in names:
        soup = BeautifulSoup((site / (name + ".html")).read_text(encoding="utf-8"), "html.parser")
        heading = soup.select_one("article h1")
        heading.select_one(".headerlink").decompose()
        found.append(squeezed(heading.get_text()))
    return found


def bookmarks(outline: list) -> Iterator[Destination]:
    for each in outline:
        if isinstance(each, list):
            yield from bookmarks(each)
        else:
            yield each


def test_every_chapter_has_a_bookmark_to_the_page_with_its_title(site, pdf, texts) -> None:
    where = {
        squeezed(mark.title): pdf.get_destination_page_number(mark)
        for mark in reversed(list(bookmarks(pdf.outline)))
    }
    for title in titles(site):
        assert title in where
        assert title in squeezed(texts[where[title]])


def test_every_link_within_the_book_leads_to_a_page_of_it(pdf) -> None:
    named = pdf.named_destinations
    internal, external = 0, 0
    for page in pdf.pages:
        for note in page.get("/Annots") or ():
            note = note.get_object()
            action = note.get("/A", {})
            if "/URI" in action:
                assert re.match(r"(https?|mailto):", action["/URI"])
                external += 1
                continue
            target = note.get("/Dest", action.get("/D"))
            target = (
                named[str(target)]
                if str(target) in named
                else named[f"/{target}".replace("//", "/")]
            )
            assert pdf.get_destination_page_number(target) in range(len(pdf.pages))
            internal += 1
    assert internal > 1000
    assert external > 50


def test_no_page_is_empty(texts) -> None:
    heads = 80  # the title of the chapter and the number of the page
    assert [
        number for number, text in enumerate(texts, 1) if len(text) < heads and number > 1
    ] == []


def test_contents_give_the_pages_of_the_chapters(site, pdf, texts) -> None:
    listed = "".join(squeezed(text) for text in texts[1:6])
    where = {
        squeezed(mark.title): pdf.get_destination_page_number(mark)
        for mark in reversed(list(bookmarks(pdf.outline)))
    }
    for title in titles(site):
        assert f"{title}{where[title] + 1}" in listed


def test_nothing_is_cut_or_too_small(output) -> None:
    _, said = output
    assert re.fullmatch(r"The book is printed: .* \d+ pages\n", said), said


def test_pages_are_a4_and_the_file_says_what_it_is(pdf) -> None:
    assert pdf.metadata.title == "Bayes-optimal learning of attention"
    assert pdf.metadata.author == "The aimlib maintainers"
    for page in pdf.pages:
        assert float(page.mediabox.width) == pytest.approx(595.3, abs=1)
        assert float(page.mediabox.height) == pytest.approx(841.9, abs=1)


def test_without_chromium_it_says_what_is_missing(site, tmp_path) -> None:
    result = print_book(site, tmp_path / "book.pdf", PATH=str(tmp_path))
    assert result.returncode == 1
    assert "typeset by Chromium" in result.stderr
    assert not (tmp_path / "book.pdf").exists()
