"""The directive ``explorer``: the controls and figures that a reader can play with.

    ```{explorer} softmax
    ```

The argument is one of the views below; ``all`` is the page "Explorer".  Everything is computed in
the page by the scripts in ``_static/explorer``, which only pages with this directive load.  The
directive adds the recorded runs that the view shows, read from ``notebooks/data``.
"""

from __future__ import annotations

import csv
import html
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

VIEWS = {
    "all": "Explorer",
    "softmax": "Softmax at your parameters",
    "hardmax": "Hardmax at your parameters",
    "priors": "The noisy matrix at your parameters",
    "small_width": "Small width at your parameters",
    "amp": "Message passing at your parameters",
}
SCRIPTS = (
    *("vendor/uPlot.iife.min.js", "tables.js", "wishart.js", "channels.js", "replica.js"),
    *("state.js", "snippet.js", "panels.js", "charts.js", "controls.js", "explorer.js"),
)
STYLES = ("vendor/uPlot.min.css", "explorer.css")

Row = dict[str, str]


# ---------------------------------------------------------------------------------------------
# Recorded runs: mean and standard error over instances, for each setting and each alpha
# ---------------------------------------------------------------------------------------------


def message_passing(row: Row) -> dict[str, Any]:
    return {
        "channel": row["channel"],
        "tokens": int(row["tokens"]),
        "tau": float(row["noise"]),
        "rho": float(row["width_ratio"]),
        "dimension": int(row["dimension"]),
    }


def descent(row: Row) -> dict[str, Any]:
    return {
        "channel": "softmax",
        "tokens": int(row["tokens"]),
        "beta": float(row["inverse_temperature"]),
        "rho": 0.5,
        "dimension": int(row["dimension"]),
    }


# table, what it measures, the column, the setting of a row, the abscissa
ALPHA = "sample_complexity"
PASSING, DESCENT, AVERAGE = "message passing", "gradient descent", "average of 32 descents"
TABLES: tuple[tuple[str, str, str, Callable[[Row], dict[str, Any]], str], ...] = (
    ("amp/figure", PASSING, "estimation_error", message_passing, ALPHA),
    ("amp/small_width", PASSING, "estimation_error", message_passing, ALPHA),
    ("amp/quadratic", PASSING, "estimation_error", message_passing, ALPHA),
    ("amp/trajectories", "iterations", "estimation_error", message_passing, "iterations"),
    ("descent/figure-100", DESCENT, "single", descent, ALPHA),
    ("descent/figure-100", AVERAGE, "average", descent, ALPHA),
    ("descent/three-tokens", DESCENT, "single", descent, ALPHA),
    ("descent/three-tokens", AVERAGE, "average", descent, ALPHA),
)


def runs(folder: Path, name: str, measure: str, column: str, setting: Any, x: str) -> Iterator[Any]:
    """Yield one entry for each setting of a table, with its points (x, mean, standard error)."""
    groups: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            key = setting(row)
            if x == "iterations":
                key["alpha"] = float(row["sample_complexity"])
                key["variant"] = row["variant"]
            groups[json.dumps(key)][float(row[x])].append(float(row[column]))
    for key, points in groups.items():
        most = max(len(values) for values in points.values())
        yield {
            "measure": measure,
            "table": name,
            **json.loads(key),
            "instances": most,
            "points": [
                [at, round(statistics.fmean(values), 6), round(standard_error(values), 6)]
                for at, values in sorted(points.items())
            ],
        }


def standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def recorded(folder: Path) -> list[dict[str, Any]]:
    return [
        entry
        for name, measure, column, setting, x in TABLES
        for entry in runs(folder, name, measure, column, setting, x)
    ]


def shown(view: str, entry: dict[str, Any]) -> bool:
    """Whether a view can ever show this entry."""
    if view in ("softmax", "hardmax"):
        return bool(entry["channel"] == view and entry["measure"] != "iterations")
    if view == "small_width":
        return bool(entry["rho"] <= 0.1 and entry["channel"] != "linear")
    if view == "amp":
        return bool(entry["measure"] in ("message passing", "iterations"))
    return view == "all"


# ---------------------------------------------------------------------------------------------
# The directive
# ---------------------------------------------------------------------------------------------


class Explorer(SphinxDirective):
    """Insert one view of the explorer."""

    required_arguments = 1
    option_spec: ClassVar = {}

    def run(self) -> list[nodes.Node]:
        view = self.arguments[0]
        if view not in VIEWS:
            raise self.error(f"explorer must be one of {', '.join(VIEWS)}, got {view!r}")
        folder = Path(self.env.srcdir) / "notebooks" / "data"
        for name, *_ in TABLES:
            self.env.note_dependency(str(folder / f"{name}.csv"))
        try:
            data = [entry for entry in recorded(folder) if shown(view, entry)]
        except (OSError, KeyError, ValueError) as error:
            raise self.error(f"recorded runs cannot be read: {error!r}") from error
        title = html.escape(VIEWS[view])
        text = (
            f'<section class="aim-explorer" data-view="{view}" aria-label="{title}">'
            f'<p class="aim-title">{title}</p>'
            "<p>This figure is computed in the page and needs JavaScript.</p>"
            f'<script type="application/json">{json.dumps(data, separators=(",", ":"))}</script>'
            "</section>"
        )
        node = nodes.raw("", text, format="html", classes=["aim-explorer-node"])
        paper = nodes.raw(
            "", "\\textit{The web edition has interactive figures here.}\n", format="latex"
        )
        return [node, paper]


def add_assets(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Load the scripts where the directive stands, each after those it needs, and nowhere else."""
    if doctree is None or not any(
        "aim-explorer-node" in node["classes"] for node in doctree.findall(nodes.raw)
    ):
        return
    for style in STYLES:
        app.add_css_file(f"explorer/{style}")
    for script in SCRIPTS:
        app.add_js_file(f"explorer/{script}", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("explorer", Explorer)
    app.connect("html-page-context", add_assets)
    return {"version": "1", "parallel_read_safe": True}
