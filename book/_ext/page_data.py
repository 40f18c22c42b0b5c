"""Two data files that the pages load when they need them, with and without a server.

``_static/previews.js``     what a link to an equation, a box or a figure shows on hover or focus
``_static/search-text.js``  the words of every page, with formulas in plain characters

Both are scripts that fill a variable: a page opened from disk may load a script, but may not fetch.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from docutils import nodes
from sphinx.application import Sphinx

TARGETS = "div.math[id], div.proof[id], div.exercise[id], figure[id]"
NOT_TEXT = "script, style, .headerlink, .eqno, div.math, div.highlight, svg, .toggle-details"
LINKED = ("href", "src", "srcset")

SYMBOLS = {
    r"\alpha": "α", r"\beta": "β", r"\gamma": "γ", r"\delta": "δ", r"\Delta": "Δ",
    r"\epsilon": "ε", r"\varepsilon": "ε", r"\eta": "η", r"\kappa": "κ", r"\lambda": "λ",
    r"\Lambda": "Λ", r"\mu": "μ", r"\nu": "ν", r"\omega": "ω", r"\Omega": "Ω", r"\phi": "φ",
    r"\Phi": "Φ", r"\pi": "π", r"\psi": "ψ", r"\rho": "ρ", r"\sigma": "σ", r"\Sigma": "Σ",
    r"\tau": "τ", r"\theta": "θ", r"\xi": "ξ", r"\zeta": "ζ", r"\infty": "∞", r"\to": "→",
    r"\sim": "∼", r"\approx": "≈", r"\ne": "≠", r"\neq": "≠", r"\le": "≤", r"\leq": "≤",
    r"\ge": "≥", r"\geq": "≥", r"\ll": "≪", r"\gg": "≫", r"\in": "∈", r"\times": "×",
    r"\cdot": "·", r"\pm": "±", r"\sqrt": "√", r"\sum": "∑", r"\partial": "∂", r"\top": "ᵀ",
    r"\dots": "…", r"\ldots": "…", r"\cdots": "…", r"\R": "ℝ", r"\E": "E", r"\Tr": "Tr",
    r"\Var": "Var", r"\GOE": "GOE", r"\mmse": "mmse", r"\erf": "erf", r"\sign": "sign",
    r"\log": "log", r"\exp": "exp", r"\min": "min", r"\max": "max", r"\sigmab": "σ_β",
    r"\{": "{", r"\}": "}", r"\%": "%", r"\langle": "⟨", r"\rangle": "⟩", r"\ell": "ℓ",
}  # fmt: skip
ACCENTS = {r"\hat": "\u0302", r"\widehat": "\u0302", r"\tilde": "\u0303", r"\bar": "\u0304"}
RAISED = str.maketrans("0123456789+-n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ")


def plain(tex: str) -> str:
    """A short formula in plain characters, or an ellipsis for one that needs typesetting."""
    text = tex.strip()
    for name, accent in ACCENTS.items():
        text = re.sub(
            re.escape(name) + r"\s*\{?(\\?[A-Za-z]+?)\}?(?![A-Za-z])", rf"\1{accent}", text
        )
    text = re.sub(r"\\(?:tfrac|frac|dfrac)\s*(\w)\s*(\w)", r"\1/\2", text)
    text = re.sub(r"\\(?:tfrac|frac|dfrac)\{([^{}]+)\}\{([^{}]+)\}", r"(\1)/(\2)", text)
    text = re.sub(r"\\(?:mathcal|mathrm|mathbb|rm|text|operatorname)\s*\{?(\w+)\}?", r"\1", text)
    text = re.sub(r"\\norm\s*\{?(\w)\}?", r"‖\1‖", text)
    text = re.sub(r"\\(?:left|right|[bB]ig+[lr]?|,|;|:|!|quad|qquad| )", " ", text)
    text = re.sub(r"\\[A-Za-z]+|\\[{}%]", lambda m: SYMBOLS.get(m.group(), m.group()), text)
    text = re.sub(r"\^\{?([0-9+-]+|n)\}?", lambda m: m.group(1).translate(RAISED), text)
    text = re.sub(r"[{}~]", "", re.sub(r"\{(\w+)\}", r"\1", text))
    text = re.sub(r"\s+", " ", text).strip()
    return "…" if "\\" in text or len(text) > 60 else text


def rebase(tag: Tag, page: str) -> None:
    """Make addresses relative to the root of the book; the script puts the way there in front."""
    folder = Path(page).parent.as_posix()
    for child in [tag, *tag.find_all(True)]:
        for name in LINKED:
            value = child.get(name)
            if not isinstance(value, str) or re.match(r"[a-z]+:", value):
                continue
            if value.startswith("#"):
                child[name] = f"{{root}}{page}.html{value}"
            elif value.startswith("../"):
                child[name] = "{root}" + value[3:]
            else:
                child[name] = f"{{root}}{folder}/{value}"


def previews_of(body: BeautifulSoup, page: str) -> dict[str, str]:
    found = {}
    for target in body.select(TARGETS):
        copy = BeautifulSoup(str(target), "html.parser")
        for extra in copy.select(".headerlink, script, button"):
            extra.decompose()
        rebase(copy, page)
        for child in copy.find_all(True):
            if child.has_attr("id"):
                del child["id"]
        found[f"{page}.html#{target['id']}"] = str(copy)
    return found


def words_of(body: BeautifulSoup) -> str:
    """Plain text of a page; changes ``body``."""
    for extra in body.select(NOT_TEXT):
        extra.decompose()
    for formula in body.select("span.math"):
        formula.replace_with(plain(formula.get_text().removeprefix(r"\(").removesuffix(r"\)")))
    return re.sub(r"\s+", " ", body.get_text(" ")).replace(" ,", ",").replace(" .", ".").strip()


def collect(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    if doctree is None or app.builder.format != "html":
        return
    body = BeautifulSoup(context["body"], "html.parser")
    app.env.book_previews.update(previews_of(body, page))  # type: ignore[attr-defined]
    app.env.book_words[page] = words_of(body)  # type: ignore[attr-defined]


def start(app: Sphinx) -> None:
    app.env.book_previews, app.env.book_words = {}, {}  # type: ignore[attr-defined]


def titles_with_formulas(app: Sphinx) -> dict[str, str]:
    """Titles as the search index spells them, with formulas in plain characters."""
    result = {}
    for page in app.env.found_docs:
        for title in app.env.get_doctree(page).findall(nodes.title):
            if any(title.findall(nodes.math)):
                parts = (
                    plain(child.astext()) if isinstance(child, nodes.math) else child.astext()
                    for child in title.children
                )
                result[title.astext()] = "".join(parts)
    return result


def write(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "_static"
    for name, content in {
        "previews": {"BOOK_PREVIEWS": app.env.book_previews},  # type: ignore[attr-defined]
        "search-text": {
            "BOOK_WORDS": app.env.book_words,  # type: ignore[attr-defined]
            "BOOK_TITLES": titles_with_formulas(app),
        },
    }.items():
        lines = [f"window.{key} = {json.dumps(data)};\n" for key, data in content.items()]
        (folder / f"{name}.js").write_text("".join(lines), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", start)
    app.connect("html-page-context", collect)
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
