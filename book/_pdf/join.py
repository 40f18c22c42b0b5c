"""One HTML document from the pages of the built book, in the order of its contents.

Every id gets the name of its page in front, every link between pages becomes a link within the
document, and what needs a screen gives way to a line that says where it is.  A link to something
that is not in the document stops the work: a PDF must not have dead links.
"""

from __future__ import annotations

import html
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from bs4 import BeautifulSoup, NavigableString, Tag

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# What only a screen needs.
ONLY_ON_SCREEN = ".headerlink, .toctree-wrapper, script, source, summary, button, .visually-hidden"
# Attributes that hold one id or several.
NAMING = ("id", "for", "aria-labelledby", "aria-describedby")
# Pages that the paper does not have: links to them keep their text only.
WITHOUT_PAPER = re.compile(r"(genindex|prf-prf|search|py-modindex)\.html$|^_(images|sources)/")


@dataclass(frozen=True)
class Page:
    """A page of the book: its name, as `book/model`, and its place in the contents."""

    name: str
    part: str | None = None  # the caption of a part that begins with this page
    below: bool = False  # a notebook, which stands below its chapter

    @property
    def slug(self) -> str:
        return self.name.replace("/", "-")


def pages_of(contents: dict[str, Any]) -> list[Page]:
    """The pages in reading order, from the parsed `_toc.yml`."""
    pages = [Page(contents["root"])]
    for part in contents["parts"]:
        caption = part["caption"]
        for chapter in part["chapters"]:
            pages.append(Page(chapter["file"], part=caption))
            caption = None
            pages += [Page(each["file"], below=True) for each in chapter.get("sections", [])]
    return pages


def text_of(tag: Tag) -> str:
    """Its words in one line, with formulas in plain text."""
    text = re.sub(r"\\\((.*?)\\\)", lambda found: plain(found.group(1)), tag.get_text())
    return " ".join(text.split())


def plain(formula: str) -> str:
    """A short formula of a heading, as it can be said in a bookmark."""
    for name, sign in (("sim", "∼"), ("alpha", "α"), ("rho", "ρ"), ("beta", "β"), ("to", "→")):
        formula = re.sub(rf"\\{name}(?![a-zA-Z])\s*", sign, formula)
    return formula.replace("^2", "²").replace("^3", "³").replace("$", "")


class Joiner:
    """Rewrites the pages of one built site."""

    def __init__(self, site: Path, pages: list[Page]) -> None:
        self.site = site
        self.pages = pages
        self.slugs = {page.name + ".html": page.slug for page in pages}

    def article(self, page: Page) -> Tag:
        """The rewritten text of a page."""
        path = self.site / (page.name + ".html")
        if not path.is_file():
            raise SystemExit(f"there is no {path}: run 'make book'")
        soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        article = soup.select_one("article.bd-article")
        if article is None:
            raise SystemExit(f"{path} has no article")
        self.replace_interactive(soup, article)
        for tag in article.select(ONLY_ON_SCREEN):
            tag.decompose()
        for details in article.find_all("details"):
            details.name = "div"
        keep_punctuation(soup, article)
        self.rename_ids(page, article)
        self.rewrite_links(page, article)
        for level in (5, 4, 3, 2, 1):
            for heading in article.find_all(f"h{level}"):
                heading.name = f"h{level + (page.name != self.pages[0].name)}"
        article.name = "section"
        article.attrs = {"class": ["page", "below" if page.below else "chapter"], "id": page.slug}
        return article

    def replace_interactive(self, soup: BeautifulSoup, article: Tag) -> None:
        for explorer in article.select(".aim-explorer-node"):
            title = explorer.select_one(".aim-title")
            named = f"“{title.get_text().strip()}”" if title else "controls"
            explorer.replace_with(
                note(soup, f"On the web page, {named} is here: figures with sliders, to play with.")
            )
        for box in article.select(".run-box"):
            box.replace_with(self.short_run_box(soup, box))

    @staticmethod
    def short_run_box(soup: BeautifulSoup, box: Tag) -> Tag:
        """The command of a run box and the parameters that it takes."""
        command = box.select_one(".run-box-code")
        assert command is not None
        line = note(soup, "Run this with your numbers: ")
        line.append(code(soup, command.get_text().strip()))
        names = [str(label.get_text()) for label in box.select(".run-box-row label")]
        line.append("; its parameters are " if len(names) > 1 else "; its parameter is ")
        for number, name in enumerate(names):
            line.append(", " if number else "")
            line.append(code(soup, name))
        line.append(".")
        return line

    @staticmethod
    def rename_ids(page: Page, article: Tag) -> None:
        seen: set[str] = set()
        for tag in article.find_all(True):
            for name in NAMING:
                if name in tag.attrs:
                    tag[name] = " ".join(f"{page.slug}--{each}" for each in tag[name].split())
            if "id" in tag.attrs:
                if tag["id"] in seen:  # the boxes of sphinx-proof repeat theirs
                    del tag["id"]
                else:
                    seen.add(tag["id"])
            for name, value in tag.attrs.items():  # arrow heads and such in drawings
                if isinstance(value, str) and value.startswith("url(#"):
                    tag[name] = value.replace("url(#", f"url(#{page.slug}--")

    def rewrite_links(self, page: Page, article: Tag) -> None:
        folder = posixpath.dirname(page.name)
        for image in article.find_all("img"):
            source = self.site / posixpath.normpath(posixpath.join(folder, image["src"]))
            image["src"] = source.resolve().as_uri()
        for link in article.find_all("a"):
            address = link.get("href")
            if address is None or re.match(r"[a-z]+:", address):
                continue
            path, _, fragment = address.partition("#")
            path = posixpath.normpath(posixpath.join(folder, path)) if path else page.name + ".html"
            if path in self.slugs:
                slug = self.slugs[path]
                link["href"] = f"#{slug}--{fragment}" if fragment else f"#{slug}"
            elif WITHOUT_PAPER.search(path):
                link.unwrap()
            else:
                raise SystemExit(f"{page.name} links to {address}, which is not in the PDF")


def keep_punctuation(soup: BeautifulSoup, article: Tag) -> None:
    """A formula and the comma after it stay in one line."""
    for formula in article.select("span.math"):
        after = formula.next_sibling
        if isinstance(after, NavigableString) and (found := re.match(r"[,.;:!?)]+", after)):
            rest = NavigableString(after[found.end() :])
            after.replace_with(rest)
            formula.wrap(soup.new_tag("span", attrs={"class": "keep"})).append(found.group())


def note(soup: BeautifulSoup, text: str) -> Tag:
    tag = soup.new_tag("p", attrs={"class": "on-screen"})
    tag.string = text
    return tag


def code(soup: BeautifulSoup, text: str) -> Tag:
    tag = soup.new_tag("code")
    tag.string = text
    return tag


def contents_list(pages: list[Page], articles: list[Tag]) -> str:
    """The table of contents; the numbers of the pages are written into it after a first print."""
    lines = []
    for page, article in zip(pages, articles, strict=True):
        if page.part:
            lines.append(f'<p class="contents-part">{html.escape(page.part)}</p>')
        title, *sections = article.find_all(re.compile("^h[23]$"))[: 1 if page.below else None]
        if title.name == "h3" or page is pages[0]:
            title, sections = article.find("h1") or title, article.find_all("h2")
        lines.append(entry(page.slug, title, "contents-below" if page.below else "contents-page"))
        if page.name not in ("book/notation", "book/bibliography"):
            lines += [
                entry(heading.find_parent(id=True)["id"], heading, "contents-section")
                for heading in sections
            ]
    return "\n".join(lines)


def entry(target: str, title: Tag, kind: str) -> str:
    return (
        f'<p class="{kind}"><a href="#{target}"><span>{html.escape(text_of(title))}</span>'
        f'<span class="dots"></span><span class="number" data-target="{target}"></span></a></p>'
    )


def running_heads(pages: list[Page], articles: list[Tag]) -> str:
    """Style rules that print the title of a chapter at the head of its pages."""
    rules = []
    for page, article in zip(pages, articles, strict=True):
        title = text_of(article.find(re.compile("^h[12]$"))).replace("\\", "").replace('"', '\\"')
        rules.append(f"#{page.slug} {{ page: {page.slug}; }}")
        rules.append(f'@page {page.slug} {{ @top-left {{ content: "{title}"; }} }}')
    return "\n".join(rules)


def check_links(document: str) -> None:
    """Raise when a link of the document leads nowhere in it."""
    dead = set(re.findall(r' href="#([^"]*)"', document)) - set(
        re.findall(r' id="([^"]*)"', document)
    )
    if dead:
        raise SystemExit(f"links of the PDF that lead nowhere: {', '.join(sorted(dead))}")


def join(site: Path) -> str:
    """The whole book as one document."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    pages = pages_of(contents)
    joiner = Joiner(site, pages)
    articles = [joiner.article(page) for page in pages]
    heads, listed = running_heads(pages, articles), contents_list(pages, articles)
    for page, article in zip(pages, articles, strict=True):
        if page.part:
            heading = BeautifulSoup("", "html.parser").new_tag("h1", attrs={"class": "part"})
            heading.string = page.part
            article.insert(0, heading)
    paper = citation["references"][0]
    document = (HERE / "frame.html").read_text(encoding="utf-8")
    values = {
        "title": html.escape(config["title"]),
        "author": html.escape(config["author"]),
        "paper": html.escape(paper["title"]),
        "paper_authors": ", ".join(each["family-names"] for each in paper["authors"]),
        "paper_where": f"{paper['collection-title']}, {paper['year']} ({paper['notes']})",
        "version": f"Version {citation['version']}, {citation['date-released']}",
        "heads": heads,
        "contents": listed,
        "mathjax": mathjax_settings(site, pages[0]),
        "folder": HERE.as_uri(),
        "static": (site / "_static").resolve().as_uri(),
        "articles": "\n".join(str(article) for article in articles),
    }
    # The names of the frame are replaced in one pass: the articles are full of braces.
    document = re.sub(r"\{\{(\w+)\}\}", lambda found: values[found.group(1)], document)
    check_links(document)
    return document


def mathjax_settings(site: Path, page: Page) -> str:
    """The line of a page that says how its mathematics is set."""
    text = (site / (page.name + ".html")).read_text(encoding="utf-8")
    for name in re.findall(r"<script>(window\.MathJax = .*?)</script>", text, re.DOTALL):
        return str(name)
    raise SystemExit(f"{page.name} has no settings of MathJax")
