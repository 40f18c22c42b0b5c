"""The box "Run this with your numbers" on the pages of a chapter that can be run and its notebook.

It is made from the chapter's card, the same that ``aimlib run`` reads, so that page and command
line never disagree, and is put into the page by itself: pages do not mention it.  The directive
``run-box`` puts it somewhere else on a page than at the usual place:

    ```{run-box} softmax
    ```

Without JavaScript the box is a table of the parameters with the command for the defaults;
``run_box.js`` lets the reader change the values and writes the command for them.
"""

from __future__ import annotations

import html
import json
import math
import posixpath
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from aimlib.chapters import (
    Chapter,
    Parameter,
    estimated_memory,
    load_chapters,
    validate_values,
)

FOLDERS = ("book", "notebooks")
SECONDS = "about {:g} s"


class RunBox(nodes.General, nodes.Element):
    """The place of the box of a chapter in a page."""


class RunBoxDirective(SphinxDirective):
    """Put the box of a chapter here instead of at the usual place."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        (name,) = self.arguments
        if name not in self.env.run_boxes:
            raise self.error(f"no chapter {name!r} can be run: {', '.join(self.env.run_boxes)}")
        return [RunBox(chapter=name)]


def load_cards(app: Sphinx) -> None:
    """Read the cards of all chapters once a build."""
    cards = load_chapters(Path(app.srcdir))
    app.env.run_boxes = {chapter.name: chapter for chapter in cards}


def insert_box(app: Sphinx, doctree: nodes.document) -> None:
    """Put the box into a page that has none: after the parameters, or at the end of a chapter."""
    folder, _, name = app.env.docname.partition("/")
    if folder not in FOLDERS or name not in app.env.run_boxes or list(doctree.findall(RunBox)):
        return
    card = Path(app.srcdir) / "notebooks" / "parameters.toml"
    app.env.note_dependency(str(card))
    app.env.note_dependency(str(card.with_name(f"{name}.ipynb")))
    sections = list(doctree.findall(nodes.section))
    if not sections:
        return
    top, inner = sections[0], sections[1:]
    box = RunBox(chapter=name)
    if folder == "notebooks":
        later = [s for s in inner if s.parent is top]
        top.insert(top.index(later[0]) if later else len(top), box)
    else:
        top.append(box)


def visit_box(translator: Any, node: RunBox) -> None:
    builder = translator.builder
    chapter = builder.env.run_boxes[node["chapter"]]
    page = builder.get_target_uri(builder.current_docname)
    source = f"_sources/notebooks/{chapter.name}.ipynb"
    address = posixpath.relpath(source, PurePosixPath(page).parent.as_posix())
    translator.body.append(render(chapter, address))
    raise nodes.SkipNode


def leave_out(translator: Any, node: RunBox) -> None:
    """Formats without a screen have no use for it."""
    raise nodes.SkipNode


# ---------------------------------------------------------------------------------------------
# HTML
# ---------------------------------------------------------------------------------------------


def render(chapter: Chapter, notebook_address: str) -> str:
    """Return the box of a chapter as HTML."""
    rows = "\n".join(_row(parameter) for parameter in chapter.parameters)
    card = html.escape(json.dumps(_card(chapter)), quote=True)
    return f"""
<section class="run-box" id="run-this" aria-labelledby="run-this-title" data-card="{card}">
<h2 id="run-this-title">Run this with your numbers</h2>
{_presets(chapter)}
<div class="run-box-parameters">
{rows}
</div>
<div class="run-box-command">
<p class="run-box-label" id="run-this-command-label">Command</p>
<pre class="run-box-code" tabindex="0" aria-labelledby="run-this-command-label"
><code>aimlib run {chapter.name}</code></pre>
<button type="button" class="run-box-copy" hidden>Copy</button>
<button type="button" class="run-box-reset" hidden>Reset</button>
<p class="run-box-note" role="status" aria-live="polite"></p>
</div>
<p class="run-box-needs">{_needs(chapter)}
<a href="{notebook_address}" download="{chapter.name}.ipynb">Download the notebook</a>.</p>
</section>
"""


def _card(chapter: Chapter) -> dict[str, Any]:
    """What the page needs to check values and write the command."""
    return {
        "chapter": chapter.name,
        "seconds": chapter.seconds,
        "parameters": [
            {
                "name": p.name,
                "type": p.type,
                "default": p.default,
                "low": p.low if math.isfinite(p.low) else None,
                "high": p.high if math.isfinite(p.high) else None,
                "choices": list(p.choices),
                "allowed": p.allowed,
            }
            for p in chapter.parameters
        ],
        "presets": {
            name: {"seconds": preset.seconds, "values": dict(preset.values)}
            for name, preset in chapter.presets.items()
        },
    }


def _presets(chapter: Chapter) -> str:
    options = [("", "defaults", chapter.seconds, {})]
    options += [(name, name, p.seconds, p.values) for name, p in chapter.presets.items()]
    items = []
    for value, name, seconds, values in options:
        checked = "" if value else " checked"
        detail = ", ".join(f"{key} = {shown(item)}" for key, item in values.items())
        items.append(
            f'<label><input type="radio" name="run-this-preset" value="{value}"{checked}> '
            f"<b>{html.escape(name)}</b>, {SECONDS.format(seconds)}"
            f"{': ' + html.escape(detail) if detail else ''}</label>"
        )
    return (
        '<fieldset class="run-box-presets"><legend>Presets</legend>\n'
        + "\n".join(items)
        + "\n</fieldset>"
    )


def _row(parameter: Parameter) -> str:
    name = parameter.name
    key = f"run-this-{name}"
    described = f'aria-describedby="{key}-meaning {key}-error"'
    options = ["true", "false"] if parameter.type == "bool" else list(map(str, parameter.choices))
    if options and not parameter.is_list:
        chosen = shown(parameter.default)
        control = "".join(
            f"<option{' selected' if option == chosen else ''}>{html.escape(option)}</option>"
            for option in options
        )
        control = f'<select id="{key}" name="{name}" {described}>{control}</select>'
    else:
        control = (
            f'<input id="{key}" name="{name}" type="text" value="{shown(parameter.default)}" '
            f'autocomplete="off" autocapitalize="off" spellcheck="false" {described}>'
        )
    meaning = f"{parameter.description}; {parameter.allowed}; default {shown(parameter.default)}"
    return f"""<div class="run-box-row">
<label for="{key}"><code>{name}</code></label>
{control}
<span class="run-box-meaning" id="{key}-meaning">{html.escape(meaning)}</span>
<span class="run-box-error" id="{key}-error"></span>
</div>"""


def shown(value: Any) -> str:
    """A value as it is typed on a command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _needs(chapter: Chapter) -> str:
    megabytes = estimated_memory(chapter, validate_values(chapter, {})) / 1e6
    text = chapter.notebook.read_text(encoding="utf-8")
    recorded = (
        " It also draws recorded runs, which come with <code>aimlib</code>."
        if "recorded_runs(" in text
        else ""
    )
    return (
        "In a clone of the book, <code>make book</code> installs the command as "
        "<code>.venv/bin/aimlib</code>. Several values of one parameter, separated by commas "
        "(lists by semicolons), make a grid of runs with an index page. The notebook needs "
        "Python 3.11 or newer with <code>aimlib</code>, and about "
        f"{megabytes:.0f} MB of memory at its defaults."
        f"{recorded}"
    )


def setup(app: Sphinx) -> dict[str, Any]:
    screen, other = (visit_box, None), (leave_out, None)
    app.add_node(RunBox, html=screen, latex=other, text=other, man=other, texinfo=other)
    app.add_directive("run-box", RunBoxDirective)
    app.add_css_file("run_box.css")
    app.add_js_file("run_box.js", loading_method="defer")
    app.connect("builder-inited", load_cards)
    app.connect("doctree-read", insert_box)
    return {"version": "1", "parallel_read_safe": True}
