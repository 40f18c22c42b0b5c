"""One number for one picture.

A picture that a chapter shows and its notebook draws has the number that it has in the chapter.
The pictures that only the notebook shows continue the count of the chapter.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

SUFFIX = "-chapter"


def share_numbers(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Renumber the figures of ``notebooks/NAME`` after those of ``book/NAME``."""
    for notebook in sorted(name for name in env.found_docs if name.startswith("notebooks/")):
        chapter = notebook.replace("notebooks/", "book/", 1)
        own = env.toc_fignumbers.get(notebook, {}).get("figure", {})
        shown = env.toc_fignumbers.get(chapter, {}).get("figure", {})
        first = env.toc_secnumbers.get(chapter, {}).get("") or ()
        known = {name.removesuffix(SUFFIX): number for name, number in shown.items()}
        count = len(shown)
        for name in own:
            if name in known:
                own[name] = known[name]
            else:
                count += 1
                own[name] = (*first[:1], count)
    return []


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("env-updated", share_numbers)
    return {"version": "1", "parallel_read_safe": True}
