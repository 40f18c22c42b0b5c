"""What a published book has beside its pages: descriptions, citations, addresses, ways to launch.

Every page describes itself and says how to cite it.  What needs to know where the book lives is
there only when the build is told:

``BOOK_REPOSITORY_URL``  address of the repository: buttons for source, edits, issues and launching
``BOOK_REPOSITORY_BRANCH``  its branch, ``main`` by default
``BOOK_BASE_URL``  address of the published book: canonical links, a sitemap and a social card; by
    default that of the pages of a repository with an owner and a name
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import yaml
from docutils import nodes
from page_data import plain
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

CARD = "_static/social.png"
LONGEST = 200  # characters of a description, about what search engines show


def address(variable: str) -> str:
    """Return an http(s) address from the environment without its last slash, or nothing."""
    value = os.environ.get(variable, "").strip().rstrip("/").removesuffix(".git")
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.netloc):
        raise ConfigError(f"{variable} must be an http or https address, got {value!r}")
    return value


def pages_of(repository: str) -> str:
    """Return where the pages of a repository are published by custom, or nothing."""
    parts = urlsplit(repository)
    path = parts.path.strip("/").split("/")
    if parts.netloc == "github.com" and len(path) == 2:
        return f"https://{path[0].lower()}.github.io/{path[1]}"
    return ""


def configure(app: Sphinx, config: Config) -> None:
    repository = address("BOOK_REPOSITORY_URL")
    base = address("BOOK_BASE_URL") or pages_of(repository)
    if base:
        config.html_baseurl = base + "/"  # type: ignore[attr-defined]
    if not repository:
        return
    config.html_theme_options |= {  # type: ignore[attr-defined]
        "repository_url": repository,
        "repository_branch": os.environ.get("BOOK_REPOSITORY_BRANCH", "main"),
        "path_to_docs": "",
        "use_repository_button": True,
        "use_edit_page_button": True,
        "use_issues_button": True,
        "launch_buttons": {
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
            "notebook_interface": "jupyterlab",
        },
    }


def description_of(doctree: nodes.document) -> str:
    """Return the first paragraph of a page that is running text, with formulas in plain words."""
    for paragraph in doctree.findall(nodes.paragraph):
        if not isinstance(paragraph.parent, nodes.section | nodes.document):
            continue
        words = "".join(
            plain(node.astext()) if isinstance(node.parent, nodes.math) else node.astext()
            for node in paragraph.findall(nodes.Text)
        )
        text = re.sub(r"\s+", " ", words).strip()
        if len(text) > 40:
            return text if len(text) <= LONGEST else text[: LONGEST - 1].rsplit(" ", 1)[0] + "…"
    return ""


def tags_of(app: Sphinx, page: str, title: str, description: str) -> list[tuple[str, str, str]]:
    """Return (attribute, name, content) of every meta tag of a page."""
    citation = yaml.safe_load((Path(app.srcdir) / "CITATION.cff").read_text(encoding="utf-8"))
    book, authors = citation["title"], [person["name"] for person in citation["authors"]]
    date = str(citation["date-released"]).replace("-", "/")
    tags = [("name", "description", description)] if description else []
    tags += [("name", "citation_title", title), ("name", "citation_inbook_title", book)]
    tags += [("name", "citation_author", author) for author in authors]
    tags += [("name", "citation_publication_date", date), ("name", "citation_language", "en")]
    tags += [("name", "DC.title", title), ("name", "DC.date", date.replace("/", "-"))]
    tags += [("name", "DC.creator", author) for author in authors]
    tags += [("name", "DC.rights", "CC BY 4.0"), ("name", "DC.type", "Text")]
    tags += [("property", "og:title", title), ("property", "og:type", "article")]
    tags += [("property", "og:site_name", book), ("name", "twitter:card", "summary_large_image")]
    tags += [("property", "og:description", description)] if description else []
    base = app.config.html_baseurl
    if base:
        here = f"{base}{page}.html"
        tags += [("property", "og:url", here), ("property", "og:image", base + CARD)]
        tags += [("name", "citation_public_url", here), ("name", "DC.identifier", here)]
    return tags


def describe(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    if doctree is None or app.builder.format != "html":
        return
    title = re.sub(r"<[^>]+>", "", html.unescape(context["title"]))
    title = re.sub(r"\\\((.*?)\\\)", lambda formula: plain(formula[1]), title)
    lines = [
        f'<meta {kind}="{html.escape(name)}" content="{html.escape(content)}" />'
        for kind, name, content in tags_of(app, page, title, description_of(doctree))
    ]
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


def write_sitemap(app: Sphinx, error: Exception | None) -> None:
    base = app.config.html_baseurl
    if error or app.builder.format != "html" or not base:
        return
    pages = sorted({*app.env.found_docs, "index"})
    entries = [f"  <url><loc>{escape(f'{base}{page}.html')}</loc></url>" for page in pages]
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    text = f'{head}<urlset xmlns="{space}">\n' + "\n".join(entries) + "\n</urlset>\n"
    (Path(app.outdir) / "sitemap.xml").write_text(text, encoding="utf-8")
    (Path(app.outdir) / "robots.txt").write_text(f"User-agent: *\nSitemap: {base}sitemap.xml\n")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", configure)
    app.connect("html-page-context", describe, priority=800)
    app.connect("build-finished", write_sitemap)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
