"""Citations and bibliography under one label, the authors and the year: ``[Xu et al., 2025]``.

Works of the same authors and year get a letter, in the text and in the list alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import sphinxcontrib.bibtex.plugin
from pybtex.plugin import register_plugin
from pybtex.style.formatting.plain import Style as PlainStyle
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.label import LabelReferenceStyle


def author_year(entry: Any) -> str:
    """Return ``Stein, 1981``, ``Bayati and Montanari, 2011`` or ``Xu et al., 2025``."""
    names = [
        " ".join(str(part) for part in [*person.rich_prelast_names, *person.rich_last_names])
        for person in entry.persons["author"]
    ]
    if len(names) > 2:
        names = [f"{names[0]} et al."]
    return f"{' and '.join(names)}, {entry.fields['year']}"


class AuthorYearLabels(BaseLabelStyle):
    """Labels of the list; letters tell works of the same authors and year apart."""

    def format_labels(self, sorted_entries: list[Any]) -> Iterator[str]:
        labels = [author_year(entry) for entry in sorted_entries]
        total, seen = Counter(labels), Counter[str]()
        for label in labels:
            seen[label] += 1
            yield label + ("" if total[label] == 1 else chr(ord("a") + seen[label] - 1))


class AuthorYearStyle(PlainStyle):
    """The plain style, sorted by author and year, with these labels."""

    default_label_style = AuthorYearLabels


@dataclass
class LabelWithSemicolons(LabelReferenceStyle):
    """Several works in one bracket are separated by semicolons: labels contain commas."""

    bracket_parenthetical: BracketStyle = field(
        default_factory=lambda: BracketStyle(sep="; ", sep2="; ", last_sep="; ")
    )


register_plugin("pybtex.style.labels", "author_year", AuthorYearLabels)
register_plugin("pybtex.style.formatting", "author_year", AuthorYearStyle)
sphinxcontrib.bibtex.plugin.register_plugin(
    "sphinxcontrib.bibtex.style.referencing", "label_semicolons", LabelWithSemicolons
)


def setup(app: Sphinx) -> dict[str, Any]:
    return {"version": "1", "parallel_read_safe": True}
