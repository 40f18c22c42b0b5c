"""The API reference, generated: what the modules export, their docstrings, and the links to both.

    ```{api} aimlib.priors
    ```

documents every name in ``__all__`` of a module under the path that readers import it from.  Labels
of equations in docstrings, written as ````priors:mmse````, become links to the equations, and names
of the library in the "In code" boxes of the chapters become links to the reference.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

# a label alone in brackets loses them: the link brings its own
LABEL = re.compile(r"\(``([a-z_]+:[a-z0-9-]+)``\)|``([a-z_]+:[a-z0-9-]+)``")
ROLE = re.compile(r":(?:class|func|data):`([A-Za-z_]+)`")
BOX = "In code"


def public_path(module: str, name: str) -> str:
    """Return the shortest path of a public name: the package's own where it has it."""
    package = importlib.import_module("aimlib")
    value = getattr(importlib.import_module(module), name)
    flat = name in package.__all__ and getattr(package, name) is value
    return f"aimlib.{name}" if flat else f"{module}.{name}"


def entries(module: str) -> list[str]:
    """Return the autodoc directives of all that a module exports, as reStructuredText."""
    lines: list[str] = []
    for name in _in_order(module):
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value):
            kind = "exception" if issubclass(value, Exception) else "class"
            options = ["   :members:", "   :inherited-members: Exception"]
        else:
            kind, options = ("function" if callable(value) else "data"), []
            options += ["   :no-value:"] if kind == "data" else []
        lines += [f".. auto{kind}:: {public_path(module, name)}", *options, ""]
    return lines


def _in_order(module: str) -> list[str]:
    """Names in the order of the source, which tells the story; then those from elsewhere."""
    source = importlib.import_module(module)

    def line(name: str) -> int:
        value = getattr(source, name)
        own = getattr(value, "__module__", None) == module
        return inspect.getsourcelines(value)[1] if own and callable(value) else sys.maxsize

    return sorted(source.__all__, key=line)


class Api(SphinxDirective):
    """Document every public name of the module that is its argument."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        text = ["```{eval-rst}", *entries(module), "```"]
        node = nodes.container()
        self.state.nested_parse(StringList(text, source=module), self.content_offset, node)
        return node.children


def link_docstring(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Turn labels of equations and short names of the library into references."""
    for number, line in enumerate(lines):
        line = LABEL.sub(lambda found: f":eq:`{found[1] or found[2]}`", line)
        lines[number] = ROLE.sub(lambda found: _reference(found[1], name), line)


def _reference(short: str, place: str) -> str:
    """Return a reference to a public name, the nearest of several; plain code for a private one."""
    paths = [path for path in _all_paths() if path.rpartition(".")[2] == short]
    near = [path for path in paths if place.startswith(path.rpartition(".")[0] + ".")]
    best = max(near, key=len, default=min(paths, key=len, default=""))
    return f":py:obj:`{short} <{best}>`" if best else f"``{short}``"


def hide_signature_of_protocols(
    app: Sphinx, what: str, name: str, thing: Any, *rest: Any
) -> tuple[str, str] | None:
    """A protocol is implemented, not called."""
    return ("", "") if getattr(thing, "_is_protocol", False) else None


def link_names(app: Sphinx, doctree: nodes.document) -> None:
    """Make names of the library in the boxes of a chapter references to the API page."""
    known = {name.rpartition(".")[2]: name for name in _all_paths()}
    for box in doctree.findall(nodes.admonition):
        title = box.next_node(nodes.title)
        if title is None or title.astext() != BOX:
            continue
        for literal in list(box.findall(nodes.literal)):
            path = _path_of(literal.astext(), known)
            if path is not None and not isinstance(literal.parent, addnodes.pending_xref):
                reference = addnodes.pending_xref(
                    "", refdomain="py", reftype="obj", reftarget=path, refwarn=True
                )
                reference["refdoc"] = app.env.docname
                literal.replace_self(reference)
                reference += literal


def _path_of(text: str, known: dict[str, str]) -> str | None:
    """Return the public path that an inline code like ``aimlib.amp(data, prior)`` names."""
    name = text.partition("(")[0]
    if name in set(known.values()):
        return name
    return known.get(name) if "." not in name else None


@functools.cache
def _all_paths() -> list[str]:
    package = importlib.import_module("aimlib")
    paths = []
    for module in MODULES:
        paths += [public_path(module, name) for name in importlib.import_module(module).__all__]
    return sorted({*paths, *(f"aimlib.{name}" for name in package.__all__)})


MODULES = (
    *("aimlib.priors", "aimlib.channels", "aimlib.model", "aimlib.tokens"),
    *("aimlib.sampled_tokens", "aimlib.deep"),
    *("aimlib.replica", "aimlib.amp", "aimlib.descent", "aimlib.cross_attention"),
    *("aimlib.layers", "aimlib.weight_decay", "aimlib.sweeps"),
)


def setup(app: Sphinx) -> dict[str, Any]:
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")
    app.add_directive("api", Api)
    app.connect("autodoc-process-docstring", link_docstring)
    app.connect("autodoc-process-signature", hide_signature_of_protocols)
    app.connect("doctree-read", link_names)
    return {"version": "1", "parallel_read_safe": True}
