"""Every work can be found, and the label that cites it is the label that lists it."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import pytest
from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from author_year import AuthorYearLabels, author_year  # noqa: E402

ENTRIES = parse_file(ROOT / "book" / "references.bib").entries
DOI = re.compile(r"10\.\d{4,9}/[^\s{}]+")
ARXIV = re.compile(r"\d{4}\.\d{4,5}|[a-z-]+/\d{7}")
TAG = re.compile(r"<[^>]+>")


@pytest.mark.parametrize("key", list(ENTRIES))
def test_every_work_has_a_link_of_the_right_form(key) -> None:
    fields = ENTRIES[key].fields
    assert "doi" in fields or "eprint" in fields
    assert DOI.fullmatch(fields.get("doi", "10.1000/none"))
    if "eprint" in fields:
        assert ARXIV.fullmatch(fields["eprint"])
        assert fields["archiveprefix"] == "arXiv"
    assert "arxiv" not in fields.get("note", "").lower(), "belongs into eprint"


def test_labels_tell_all_works_apart() -> None:
    works = sorted(ENTRIES.values(), key=lambda entry: author_year(entry))
    labels = list(AuthorYearLabels().format_labels(works))
    assert len(set(labels)) == len(labels)
    assert author_year(ENTRIES["stein1981estimation"]) == "Stein, 1981"
    assert author_year(ENTRIES["zdeborova2016statistical"]) == "Zdeborová and Krzakala, 2016"
    assert author_year(ENTRIES["baik2005phase"]) == "Baik et al., 2005"
    letters = [label for label in labels if label.startswith("Erba et al., 2025")]
    assert letters == ["Erba et al., 2025a", "Erba et al., 2025b"]


def test_every_work_is_cited_and_every_citation_listed() -> None:
    text = "\n".join(p.read_text() for p in (ROOT / "book").glob("*.md"))
    text += "\n".join(p.read_text() for p in (ROOT / "notebooks").glob("*.ipynb"))
    cited = {key for group in re.findall(r"\{cite\}`([^`]+)`", text) for key in group.split(",")}
    assert cited == set(ENTRIES)


def test_the_built_citations_match_the_built_list(site) -> None:
    page = (site / "book" / "bibliography.html").read_text(encoding="utf-8")
    listed = set()
    for block in re.findall(r'<div class="citation"[^>]*>(.*?)</div>', page, re.DOTALL):
        label = re.search(r'<span class="label">(.*?)</span>\s*<', block, re.DOTALL)
        listed.add(html.unescape(TAG.sub("", label.group(1))).strip("[] \n"))
        assert re.search(r'href="https://(doi\.org/10|arxiv\.org/abs/)', block), block
    assert len(listed) == len(ENTRIES)
    for path in [*(site / "book").glob("*.html"), *(site / "notebooks").glob("*.html")]:
        text = path.read_text(encoding="utf-8")
        for anchor in re.findall(r'<a class="reference internal" href="[^"]*#id\d+"', text):
            assert "bibliography" in anchor or path.name == "bibliography.html"
        links = re.findall(
            r'href="(?:bibliography|../book/bibliography)\.html#id\d+"[^>]*>(.*?)</a>', text
        )
        for link in links:
            assert html.unescape(TAG.sub("", link)) in listed
