"""Figures with panels side by side stack their panels on a narrow screen.

The picture is cut, at build time, in the white gutters between its panels, and the pieces are put
below each other.  The page offers both pictures and the browser loads the one that fits.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

NARROW = "(max-width: 600px)"
PANEL = 0.2  # an axis shorter than this share of the picture belongs to a colour bar
GAP = 24  # rows of white between stacked panels


def axes_of(dark: np.ndarray) -> list[tuple[int, int]]:
    """First and last column of every horizontal axis line, from left to right, merged by column."""
    found: list[tuple[int, int]] = []
    for row in dark[np.count_nonzero(dark, axis=1) > PANEL * dark.shape[1]]:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(np.int8), [0]])))
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            if stop - start > PANEL * dark.shape[1]:
                found.append((int(start), int(stop)))
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def widest_gap(white: np.ndarray, start: int, stop: int) -> int | None:
    """Middle of the longest run of white columns in ``[start, stop)``."""
    padded = np.concatenate([[0], white[start:stop].astype(np.int8), [0]])
    edges = np.flatnonzero(np.diff(padded))
    runs = sorted(zip(edges[1::2] - edges[::2], edges[::2], strict=True))
    if not runs or runs[-1][0] < 6:
        return None
    length, first = runs[-1]
    return int(start + first + length // 2)


def gutters(picture: Image.Image) -> list[int]:
    """Columns at which a picture of several panels can be cut; none for one panel."""
    grey = np.asarray(picture.convert("L"))
    axes = axes_of(grey < 100)
    white = np.all(grey > 250, axis=0)
    cuts = [widest_gap(white, left[1], right[0]) for left, right in pairwise(axes)]
    return [cut for cut in cuts if cut is not None] if all(cuts) else []


def stack(picture: Image.Image, cuts: list[int]) -> Image.Image:
    borders = [0, *cuts, picture.width]
    pieces = [picture.crop((a, 0, b, picture.height)) for a, b in pairwise(borders)]
    height = sum(piece.height for piece in pieces) + GAP * (len(pieces) - 1)
    result = Image.new("RGB", (max(piece.width for piece in pieces), height), "white")
    top = 0
    for piece in pieces:
        result.paste(piece, (0, top))
        top += piece.height + GAP
    return result


def stacked_name(name: str) -> str:
    return f"{Path(name).stem}-stacked.png"


def visit_image(self: HTML5Translator, node: nodes.image) -> None:
    name = self.builder.images.get(node["uri"], "")
    folder = Path(self.builder.outdir) / self.builder.imagedir
    source = Path(self.builder.srcdir) / node["uri"]
    if not name.endswith(".png") or not source.is_file():
        HTML5Translator.visit_image(self, node)
        return
    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    cuts = gutters(picture)
    before = len(self.body)
    HTML5Translator.visit_image(self, node)
    if cuts:
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / stacked_name(name)
        stack(picture, cuts).save(target, optimize=True)
        address = f"{self.builder.imgpath}/{target.name}"
        tag = "".join(self.body[before:])
        del self.body[before:]
        image = f'<picture><source media="{NARROW}" srcset="{address}"/><img '
        self.body.append(tag.replace("<img ", image, 1).replace("/>", "/></picture>", 1))


def depart_image(self: HTML5Translator, node: nodes.image) -> None:
    HTML5Translator.depart_image(self, node)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(nodes.image, override=True, html=(visit_image, depart_image))
    return {"version": "1", "parallel_read_safe": True}
