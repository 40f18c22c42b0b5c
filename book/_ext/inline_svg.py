"""The directive ``inline-svg``: a drawing in the page itself, so that its parts can be links.

    ```{inline-svg} _static/map.svg
    :name: fig:preface-map
    :label: What the drawing shows, in words

    The caption.
    ```

An ``href="doc:book/model"`` in the drawing leads to that page; a page that does not exist stops
the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

LINK = re.compile(r'href="doc:([^"]+)"')
log = logging.getLogger(__name__)


class drawing(nodes.General, nodes.Element):  # noqa: N801  (docutils names nodes in lower case)
    """An SVG written into the page."""


class InlineSvg(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {
        "name": directives.unchanged,
        "label": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        _, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(path)
        text = Path(path).read_text(encoding="utf-8")
        for page in LINK.findall(text):
            if page not in self.env.found_docs:
                log.warning("%s links to %s, which is not a page", path, page)
        figure = nodes.figure("", drawing(svg=text, label=self.options["label"]), align="center")
        caption, messages = self.state.inline_text(" ".join(self.content), self.lineno)
        figure += nodes.caption("", "", *caption)
        self.set_source_info(figure)
        self.add_name(figure)
        return [figure, *messages]


def visit_html(self: HTML5Translator, node: drawing) -> None:
    def address(match: re.Match[str]) -> str:
        current = self.builder.current_docname
        return f'href="{self.builder.get_relative_uri(current, match.group(1))}"'

    svg = LINK.sub(address, node["svg"])
    label = self.attval(node["label"])
    self.body.append(f'<div class="drawing" role="group" aria-label="{label}">{svg}</div>')
    raise nodes.SkipNode


def visit_other(self: Any, node: drawing) -> None:
    self.body.append(node["label"])
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(
        drawing,
        html=(visit_html, None),
        latex=(visit_other, None),
        text=(visit_other, None),
    )
    app.add_directive("inline-svg", InlineSvg)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
