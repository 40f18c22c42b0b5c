"""Markup that everybody can use, where Sphinx or the theme writes other markup.

* The toggles of the sidebar say what they unfold.
* Icons come from the theme's web font instead of a script of 1.5 MB.
* Tables print powers of ten as powers of ten.
* A bibliography is a list of list items; the role that docutils gives them is withdrawn.
* A status in a table carries its name as a class.
* A table without column heads has no head, and an empty corner of a head says what it heads.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from page_data import plain
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.writers.html5 import HTML5Translator

STATUSES = {"confirmed", "qualified", "contradicted", "open"}
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.\"=])(\d+(?:\.\d+)?)e([+-]?)(\d+)(?![\w.\"])")
ICON_SCRIPT = re.compile(r"<script [^>]*fontawesome\.js[^>]*></script>")


def without_icon_script(text: str) -> str:
    return ICON_SCRIPT.sub("", str(text))


def named_toggles(text: str) -> str:
    return str(text).replace("<summary>", '<summary aria-label="Notebook of this chapter">')


def add_filters(app: Sphinx) -> None:
    templates = getattr(app.builder, "templates", None)
    if templates is not None:
        templates.environment.filters["without_icon_script"] = without_icon_script
        templates.environment.filters["named_toggles"] = named_toggles


def visit_citation(self: HTML5Translator, node: nodes.citation) -> None:
    HTML5Translator.visit_citation(self, node)
    self.body[-1] = self.body[-1].replace("doc-biblioentry", "listitem")


def depart_citation(self: HTML5Translator, node: nodes.citation) -> None:
    HTML5Translator.depart_citation(self, node)


def readable_number(match: re.Match[str]) -> str:
    mantissa, sign, exponent = match.groups()
    power = f"10<sup>{'−' if sign == '-' else ''}{int(exponent)}</sup>"
    return power if mantissa == "1" else f"{mantissa}\u202f·\u202f{power}"


def repair_body(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """The visible words of a folded cell are its name; tables print 7·10⁻⁶, not 7e-06."""
    if "body" in context:
        body = context["body"].replace(' aria-label="Toggle hidden content"', "")
        context["body"] = CELL.sub(lambda cell: NUMBER.sub(readable_number, cell[0]), body)


def hidden(text: str) -> nodes.inline:
    return nodes.inline("", text, classes=["visually-hidden"])


def in_formula(text: nodes.Text) -> bool:
    return isinstance(text.parent, nodes.math)


def name_formula(entry: nodes.Element, name: str) -> None:
    """A head that is a formula is read out as plain characters."""
    entry.insert(0, nodes.raw("", '<div aria-hidden="true">', format="html"))
    entry.append(nodes.raw("", "</div>", format="html"))
    entry.append(hidden(name))


def colour_statuses(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Mark the status words in tables, which the style sheet colours."""
    for entry in doctree.findall(nodes.entry):
        for strong in entry.findall(nodes.strong):
            if strong.astext() in STATUSES:
                strong["classes"] += ["status", f"status-{strong.astext()}"]


class TableHeads(SphinxPostTransform):
    """Remove empty heads; name the empty corner cell of the others for screen readers."""

    default_priority = 900  # after glue has put in its tables

    def run(self, **kwargs: Any) -> None:
        for head in list(self.document.findall(nodes.thead)):
            entries = list(head.findall(nodes.entry))
            if not any(entry.astext().strip() for entry in entries):
                head.parent.remove(head)
                continue
            for entry in entries:
                formulas = list(entry.findall(nodes.math))
                if not entry.astext().strip():
                    entry.children = [nodes.paragraph("", "", hidden("row"))]
                elif formulas and not any(
                    text.strip() for text in entry.findall(nodes.Text) if not in_formula(text)
                ):
                    name_formula(entry, " ".join(plain(each.astext()) for each in formulas))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", add_filters)
    app.connect("doctree-resolved", colour_statuses)
    app.connect("html-page-context", repair_body)
    app.add_node(nodes.citation, override=True, html=(visit_citation, depart_citation))
    app.add_post_transform(TableHeads)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
