"""An index that a reader can use: boxes by number and title, and the terms that chapters define.

A term is what a chapter sets in bold inside a sentence.  Bold run-in heads, which end with a full
stop, are not terms.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains import Index, IndexEntry
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx_proof.domain import ProofDomain

MOST_WORDS = 4


def is_term(node: nodes.strong) -> bool:
    text = node.astext()
    return (
        isinstance(node.parent, nodes.paragraph)
        and not text.endswith((".", ":", "?"))
        and 2 < len(text)
        and len(text.split()) <= MOST_WORDS
        and any(letter.isalpha() for letter in text)
        and not any(node.findall(nodes.math))
    )


class IndexTerms(SphinxTransform):
    """Give every term of a chapter an entry of the index."""

    default_priority = 750

    def apply(self, **kwargs: Any) -> None:
        if not self.env.docname.startswith("book/"):
            return
        for count, term in enumerate(filter(is_term, list(self.document.findall(nodes.strong)))):
            target = f"term-{count}"
            entry = [("single", term.astext(), target, "", None)]
            term.insert(0, addnodes.index(entries=entry))
            term["ids"].append(target)


class BoxIndex(Index):
    """Definitions, propositions and theorems by number, with their titles."""

    name = "prf"
    localname = "Definitions and propositions"
    shortname = "boxes"

    def generate(self, docnames: Any = None) -> tuple[list[tuple[str, list[IndexEntry]]], bool]:
        env = self.domain.env
        groups: dict[str, list[tuple[tuple[int, ...], IndexEntry]]] = {}
        for label, box in getattr(env, "proof_list", {}).items():
            if box["realtype"] == "proof":
                continue
            numbers = env.toc_fignumbers.get(box["docname"], {}).get(box["countertype"], {})
            number = numbers.get(label, ())
            spelled = ".".join(map(str, number))
            kind = box["realtype"].title()
            name = f"{kind} {spelled} {title_of(env, box['docname'], label)}".rstrip()
            place = env.titles[box["docname"]].astext()
            entry = IndexEntry(name, 0, box["docname"], label, place, "", "")
            groups.setdefault(f"{kind}s", []).append((tuple(number), entry))
        content = [
            (kind, [entry for _, entry in sorted(entries, key=lambda pair: pair[0])])
            for kind, entries in sorted(groups.items())
        ]
        return content, False


def title_of(env: BuildEnvironment, page: str, label: str) -> str:
    for node in env.get_doctree(page).findall(nodes.Element):
        if node.get("label") == label and "realtype" in node:
            return node.get("title", "")
    return ""


def setup(app: Sphinx) -> dict[str, Any]:
    app.setup_extension("sphinx_proof")
    ProofDomain.indices = [BoxIndex]
    app.add_transform(IndexTerms)
    return {"version": "1", "parallel_read_safe": True}
