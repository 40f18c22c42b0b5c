"""Take sphinx-thebe, which Jupyter Book always loads, out of the pages.

It offers to run cells on a remote server, whose address it writes into every page, twice: the
second declaration of the same constant is an error in every browser console.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def remove_configuration(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for node in list(doctree.findall(nodes.raw)):
        if "x-thebe-config" in node.astext():
            node.parent.remove(node)


def _is_thebe(asset: Any) -> bool:
    attributes = getattr(asset, "attributes", {})
    return "thebe" in f"{getattr(asset, 'filename', '')}{attributes.get('body', '')}"


def remove_assets(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    for kind in ("script_files", "css_files"):
        context[kind] = [asset for asset in context.get(kind, []) if not _is_thebe(asset)]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-resolved", remove_configuration, priority=900)
    app.connect("html-page-context", remove_assets, priority=900)
    return {"version": "1", "parallel_read_safe": True}
