"""The directive ``notebook-figure``: show in a chapter a figure that its notebook has drawn.

The picture, its caption and its alternative text are read from the stored notebook, so that they
exist once and a book built from re-run notebooks shows what those notebooks drew.

    ```{notebook-figure} softmax fig:softmax-widths
    ```
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def find_figure(notebook: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the mystnb metadata and the PNG output of the cell that draws the figure."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        settings = cell.get("metadata", {}).get("mystnb", {})
        if settings.get("figure", {}).get("name") == name:
            for output in cell["outputs"]:
                if "image/png" in output.get("data", {}):
                    return settings, output
    raise LookupError(f"no cell of {notebook.name} draws a figure named {name!r}")


class NotebookFigure(SphinxDirective):
    """Insert a figure of a notebook with its own caption and alternative text."""

    required_arguments = 2
    option_spec: ClassVar = {"name": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        stem, name = self.arguments
        notebook = Path(self.env.srcdir) / "notebooks" / f"{stem}.ipynb"
        self.env.note_dependency(str(notebook))
        try:
            settings, output = find_figure(notebook, name)
        except (OSError, LookupError) as error:
            raise self.error(str(error)) from error
        folder = Path(self.env.app.outdir).parent / "notebook_figures"
        folder.mkdir(exist_ok=True)
        picture = folder / f"{name.replace(':', '-')}.png"
        picture.write_bytes(base64.b64decode(output["data"]["image/png"]))
        page = Path(self.env.doc2path(self.env.docname)).parent
        image = nodes.image(
            uri=Path(os.path.relpath(picture, page)).as_posix(), alt=settings["image"]["alt"]
        )
        size = output.get("metadata", {}).get("image/png", {})
        if "width" in size:  # stored at twice the resolution
            image["width"] = f"{size['width']}px"
        text, messages = self.state.inline_text(settings["figure"]["caption"], self.lineno)
        figure = nodes.figure("", image, nodes.caption("", "", *text), align="center")
        self.set_source_info(figure)
        self.options.setdefault("name", f"{name}-chapter")
        self.add_name(figure)
        return [figure, *messages]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("notebook-figure", NotebookFigure)
    return {"version": "1", "parallel_read_safe": True}
