"""Results as pages: one for a run, one for a grid of runs."""

from __future__ import annotations

import html
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aimlib.files import printable, read_mapping, read_text

__all__ = ["grid_page", "run_page"]

_STYLE = """
body { font: 17px/1.6 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 1rem;
  color: #1b1b1b; background: #fff; }
pre { overflow-x: auto; background: #f6f6f6; padding: .6rem; } img { max-width: 100%; }
.jp-InputPrompt, .jp-OutputPrompt, .anchor-link { display: none; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem;
  border-bottom: 1px solid #ccc; }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>{head}
<style>{style}</style></head><body>
{body}
</body></html>
"""

_MATHJAX = """
<script>
MathJax = {{
  tex: {{inlineMath: [["$", "$"]], macros: {macros}}},
  options: {{enableMenu: false}},
}};
</script>
<script src="{source}" async></script>"""


def run_page(executed: Path, target: Path, root: Path) -> str:
    """Render a result as one page that uses the MathJax and the macros of the book."""
    import nbconvert
    import nbformat

    notebook = nbformat.reads(read_text(executed), as_version=4)
    with warnings.catch_warnings():  # glued values have no picture, and need none
        warnings.filterwarnings("ignore", message=".*mimetype.*not able to be represented")
        body, _ = nbconvert.HTMLExporter(template_name="basic").from_notebook_node(notebook)
    config = read_mapping(root / "_config.yml")
    macros = config["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]
    source = _address(root / "book/_static/mathjax/tex-chtml.js", target)
    head = _MATHJAX.format(macros=json.dumps(macros), source=source)
    title = html.escape(printable(target.name))
    return _PAGE.format(title=title, head=head, style=_STYLE, body=body)


def _address(path: Path, start: Path) -> str:
    """Relative address of a file, or its full one where there is none (another drive)."""
    try:
        relative = os.path.relpath(path, start)
    except ValueError:
        return path.as_uri()
    return quote(os.fsencode(Path(relative).as_posix()))


def grid_page(
    title: str, varied: Sequence[str], runs: Sequence[Mapping[str, Any]], total: int
) -> str:
    """Render the index of a grid: one row a run, with what varies and what was found.

    Parameters
    ----------
    title : str
    varied : sequence of str
        Names of the parameters that differ between the runs.
    runs : sequence of mapping
        Each has "parameters", and "folder", "seconds", "results", or "error" if it failed.
    total : int
        Number of runs that there will be.
    """
    found = list(dict.fromkeys(name for run in runs for name in run.get("results", {})))
    head = ["run", *varied, *found, "seconds"]
    rows = [
        "<tr>"
        + _head_cell(number, run)
        + "".join(f"<td>{_shown(run['parameters'][name])}</td>" for name in varied)
        + _outcome(run, found)
        + "</tr>"
        for number, run in enumerate(runs, start=1)
    ]
    names = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    table = f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    failed = sum("error" in run for run in runs)
    note = f"{len(runs)} of {total} runs" + (f", {failed} of them failed" if failed else "")
    body = (
        f'<h1>{html.escape(title)}</h1><p>{note}. The table is also in <a href="index.csv">'
        f'index.csv</a>, all parameters and versions in <a href="parameters.json">'
        f'parameters.json</a>.</p><div class="wide">{table}</div>'
    )
    return _PAGE.format(title=html.escape(title), head="", style=_STYLE, body=body)


def _head_cell(number: int, run: Mapping[str, Any]) -> str:
    if "error" in run:
        return f'<th scope="row">{number}</th>'
    address = f"{run['folder']}/notebook.html"
    return f'<th scope="row"><a href="{address}">run {number}</a></th>'


def _outcome(run: Mapping[str, Any], found: Sequence[str]) -> str:
    if "error" in run:
        return f'<td colspan="{len(found) + 1}"><pre>{html.escape(run["error"])}</pre></td>'
    cells = [*(run["results"].get(name, "") for name in found), run["seconds"]]
    return "".join(f"<td>{_shown(value)}</td>" for value in cells)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return html.escape(str(value))
