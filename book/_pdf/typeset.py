"""Typeset the built book as one PDF: ``make pdf``.

The pages are joined (`join`), a headless Chromium sets them on A4, and what it cannot know is added
to its file: the numbers of the pages in the table of contents, by printing twice, and the author.

Usage: python book/_pdf/typeset.py FOLDER_OF_THE_BUILT_BOOK PDF
"""

from __future__ import annotations

import base64
import io
import json
import sys
import tempfile
from pathlib import Path

from join import ROOT, join
from pypdf import PdfReader, PdfWriter

sys.path.append(str(ROOT / "tests"))
from browser import Browser, find_chromium

# Width of the text on the paper, A4 without its margins, in the pixels of style sheets.
TEXT_WIDTH = round((210 - 2 * 21) / 25.4 * 96)
# Equations below this part of their size would be hard to read: better broken in their source.
READABLE = 0.6

NO_CHROMIUM = (
    "A PDF is typeset by Chromium, and there is none on this machine "
    "(Debian: apt-get install chromium).  Without it, 'make book' builds the pages to read."
)
PAPER = {
    "preferCSSPageSize": True,
    "printBackground": True,
    "generateTaggedPDF": True,
    "generateDocumentOutline": True,
}
# The first print only tells on which page everything is.
DRAFT = {"generateTaggedPDF": False, "generateDocumentOutline": False}
LOADED = """Promise.all([
  MathJax.startup.promise,
  document.fonts.ready,
  ...[...document.images].map((image) => image.decode()),
]).then(() => document.fonts.ready).then(() => true)"""


def open_document(browser: Browser, path: Path) -> None:
    """Load the document as it will be printed, and fit what is too wide."""
    browser.resize(TEXT_WIDTH, 1000)
    browser.emulate_print(True)
    browser.call("Page.navigate", url=path.as_uri())
    browser.wait_for(
        "document.readyState === 'complete' && window.MathJax && MathJax.startup"
        " && MathJax.startup.promise !== undefined",
        seconds=300,
    )
    browser.evaluate(LOADED, wait=True)
    if errors := browser.evaluate(
        "[...document.querySelectorAll('mjx-merror')].map((each) => each.textContent)"
    ):
        raise SystemExit(f"formulas that cannot be set: {errors}")
    for kind, factor in browser.evaluate("fitToPaper()").items():
        if factor < READABLE:
            print(f"the widest {kind} is printed at {factor:.2f} of its size")
    for box in browser.evaluate("findCut()"):
        print(f"wider than the paper: {box}")


def print_pdf(browser: Browser, **options: bool) -> bytes:
    return base64.b64decode(browser.call("Page.printToPDF", **(PAPER | options))["data"])


def page_numbers(pdf: bytes) -> dict[str, int]:
    """On which page everything is that a link leads to, counted from 1."""
    reader = PdfReader(io.BytesIO(pdf))
    return {
        name.removeprefix("/"): number + 1
        for name, where in reader.named_destinations.items()
        if (number := reader.get_destination_page_number(where)) is not None
    }


def number_contents(browser: Browser, numbers: dict[str, int]) -> None:
    browser.evaluate(
        f"""{{
          const numbers = {json.dumps(numbers)};
          for (const box of document.querySelectorAll(".contents .number"))
            box.textContent = numbers[box.dataset.target];
        }}"""
    )


def typeset(site: Path, target: Path, executable: str) -> None:
    """Write the book that is built in `site` to the file `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aim-pdf-") as folder:
        document = Path(folder) / "book.html"
        document.write_text(join(site), encoding="utf-8")
        browser = Browser(executable, patience=600)
        try:
            open_document(browser, document)
            numbers = page_numbers(print_pdf(browser, **DRAFT))
            number_contents(browser, numbers)
            pdf = print_pdf(browser)
            author = browser.evaluate("document.querySelector('meta[name=author]').content")
        finally:
            browser.close()
    assert page_numbers(pdf) == numbers, "the numbers of the pages moved the pages"
    writer = PdfWriter(io.BytesIO(pdf), incremental=True)
    writer.add_metadata({"/Author": author})
    writer.write(target)


def main(arguments: list[str]) -> None:
    site, target = map(Path, arguments)
    if not (site / "index.html").is_file():
        raise SystemExit(f"there is no built book in {site}: run 'make book'")
    if (executable := find_chromium()) is None:
        raise SystemExit(NO_CHROMIUM)
    typeset(site, target, executable)
    print(f"The book is printed: {target.resolve()}, {len(PdfReader(target).pages)} pages")


if __name__ == "__main__":
    main(sys.argv[1:])
