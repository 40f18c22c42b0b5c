"""Markup that everybody can use, where Sphinx or the theme writes other markup.

* Icons come from the theme's web font instead of a script of 1.5 MB.
* A bibliography is a list of list items; the role that docutils gives them is withdrawn.
* A table without column heads has no head, and an empty corner of a head says what it heads.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.writers.html5 import HTML5Translator

ICON_SCRIPT = re.compile(r"<script [^>]*fontawesome\.js[^>]*></script>")


def without_icon_script(text: str) -> str:
    return ICON_SCRIPT.sub("", str(text))


def add_filter(app: Sphinx) -> None:
    templates = getattr(app.builder, "templates", None)
    if templates is not None:
        templates.environment.filters["without_icon_script"] = without_icon_script


def visit_citation(self: HTML5Translator, node: nodes.citation) -> None:
    HTML5Translator.visit_citation(self, node)
    self.body[-1] = self.body[-1].replace("doc-biblioentry", "listitem")


def depart_citation(self: HTML5Translator, node: nodes.citation) -> None:
    HTML5Translator.depart_citation(self, node)


class TableHeads(SphinxTransform):
    """Remove empty heads; name the empty corner cell of the others for screen readers."""

    default_priority = 700

    def apply(self, **kwargs: Any) -> None:
        for head in list(self.document.findall(nodes.thead)):
            entries = list(head.findall(nodes.entry))
            if not any(entry.astext().strip() for entry in entries):
                head.parent.remove(head)
                continue
            for entry in entries:
                if not entry.astext().strip():
                    hidden = nodes.inline("", "row", classes=["visually-hidden"])
                    entry.children = []
                    entry += nodes.paragraph("", "", hidden)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", add_filter)
    app.add_node(nodes.citation, override=True, html=(visit_citation, depart_citation))
    app.add_transform(TableHeads)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
