"""The figure style of the book and its recurring figures.

:func:`use_style` sets one style for all pages: colours of Okabe and Ito, told apart also by dash
and marker, on a white ground that the pages turn dark in the dark theme.  The figures here return
``(figure, axes)`` so that a notebook can add to them; what they plot is passed in, never computed.

======================== =====================================================================
:func:`curves`           a family of curves over one parameter
:func:`theory_and_runs`  predicted curves with measured points and error bars
:func:`spectrum`         a density with the histogram of eigenvalues behind it
:func:`field`            a quantity over a plane of two parameters
:func:`regions`          a count over a plane of two parameters, each region with its name
======================== =====================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

__all__ = ["COLOURS", "WIDTHS", "curves", "field", "regions", "spectrum", "theory_and_runs",
           "use_style"]  # fmt: skip

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)), "-")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# One style for one width ratio: a curve named "ρ = 0.5" looks the same in the whole book.
WIDTHS = (0.5, 0.1, 1.0, 2.0, 0.05, 0.2, 0.02, 0.01, 3.0)
_WIDTH_COLOURS = (*COLOURS, "#7F3C8D", "#80532D")
_WIDTH_NAME = re.compile(r"ρ = (\d+(?:\.\d+)?(?:e-?\d+)?)(?![\d.])")

Reference = tuple[float, str]


def use_style() -> None:
    """Set the style of the book for all figures that follow.

    Examples
    --------
    >>> use_style()
    >>> mpl.rcParams["savefig.dpi"]
    200.0
    """
    plt.style.use(Path(__file__).with_name("book.mplstyle"))
    plt.rc("axes", prop_cycle=cycler(color=COLOURS) + cycler(linestyle=_DASHES))
    _show_retina()


def _show_retina() -> None:
    """In a notebook, store figures at twice the resolution and without a creation date."""
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if get_ipython() is not None:
        set_matplotlib_formats("retina", metadata={"Software": None})


def _axes(axes: Axes | None) -> tuple[Figure, Axes]:
    if axes is None:
        return plt.subplots()
    figure = axes.figure
    assert isinstance(figure, Figure)
    return figure, axes


def _width(name: str) -> float | None:
    """The width ratio that a curve is named after."""
    match = _WIDTH_NAME.match(name)
    return float(match.group(1)) if match else None


def _ordered(names: Iterable[str]) -> list[str]:
    """Curves named after a width by rising width, before all others in the order given."""
    return sorted(names, key=lambda name: (_width(name) is None, _width(name) or 0.0))


def _styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, dash and marker for every name: fixed for a width of the book, else the next free."""
    fixed = {
        name: WIDTHS.index(rho)
        for name in names
        if (rho := _width(name)) is not None and rho in WIDTHS
    }
    free = [k for k in range(len(_WIDTH_COLOURS)) if k not in fixed.values()]
    # A figure without widths has all colours; more curves than colours start again.
    result, position = {}, 0
    for name in names:
        if name in fixed:
            k = fixed[name]
        else:
            k = free[position % len(free)]
            position += 1
        result[name] = {
            "color": _WIDTH_COLOURS[k],
            "linestyle": _DASHES[k % 7],
            "marker": _MARKERS[k % 7],
        }
    return result


def _free_height(axes: Axes, position: float) -> float:
    """Height in axes fraction, near the top if possible, where no curve passes ``position``."""
    to_axes = axes.transData + axes.transAxes.inverted()
    start = to_axes.transform((position, axes.get_ylim()[0]))[0]
    taken = []
    for line in axes.get_lines():
        data = np.asarray(line.get_xydata(), dtype=float)
        points = to_axes.transform(data[np.all(np.isfinite(data), axis=1)])
        if len(points) > 2:  # between its points a curve is where its line is
            at = np.linspace(points[0, 0], points[-1, 0], 400)
            points = np.column_stack([at, np.interp(at, points[:, 0], points[:, 1])])
        near = (points[:, 0] > start - 0.02) & (points[:, 0] < start + 0.2)
        taken.extend(points[near, 1])
    heights = (0.97, 0.1, 0.8, 0.3, 0.65, 0.5)
    clear = [min((abs(y - h) for y in taken), default=1.0) for h in heights]
    return next((h for h, c in zip(heights, clear, strict=True) if c > 0.09), heights[0])


def _mark(axes: Axes, verticals: Sequence[Reference]) -> None:
    """Vertical lines with their names beside them, away from the curves."""
    heights = [_free_height(axes, position) for position, _ in verticals]
    for (position, name), height in zip(verticals, heights, strict=True):
        axes.axvline(position, color="#808080", linestyle=":", linewidth=1.2, zorder=1)
        axes.annotate(
            name,
            (position, height),
            xycoords=("data", "axes fraction"),
            xytext=(3, 0),
            textcoords="offset points",
            color="#505050",
            va="top" if height > 0.9 else "center",
            fontsize=10,
        )


def _legend(
    axes: Axes, handles: Sequence[Any] | None = None, labels: Sequence[str] | None = None
) -> None:
    """A legend above the axes, where no curve can pass, in as many columns as fit."""
    if handles is None or labels is None:
        handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    width = axes.get_window_extent().width / axes.figure.dpi * 72  # in points
    longest = max(len(label) for label in labels)
    columns = int(np.clip(width // (6.2 * longest + 42), 1, len(labels)))
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.2,
        handlelength=2.2,
    )


def _finish(
    axes: Axes, labels: tuple[str, str], scales: tuple[str, str], verticals: Sequence[Reference]
) -> None:
    axes.set(xlabel=labels[0], ylabel=labels[1], xscale=scales[0], yscale=scales[1])
    _mark(axes, verticals)
    _legend(axes)


def curves(
    x: ArrayLike,
    families: Mapping[str, ArrayLike],
    *,
    labels: tuple[str, str],
    scales: tuple[str, str] = ("linear", "linear"),
    verticals: Sequence[Reference] = (),
    markers: bool = False,
    axes: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw one curve for each entry of ``families``.

    Parameters
    ----------
    x : array, shape (m,)
        Common abscissa; a family of its own shape (2, m) brings its own.
    families : mapping of str to array, shape (m,) or (2, m)
        Legend text to ordinates.
    labels : (str, str)
        Axis labels.
    scales : (str, str)
        "linear" or "log" for each axis.
    verticals : sequence of (float, str)
        Positions to mark, with their names.
    markers : bool
        Mark the points, where they are few.
    axes : Axes, optional
        Draw here instead of in a new figure.

    Returns
    -------
    (Figure, Axes)
    """
    figure, axes = _axes(axes)
    names = _ordered(families)
    styles = _styles(names)
    for name in names:
        array = np.asarray(families[name], dtype=float)
        abscissa, ordinate = array if array.ndim == 2 else (np.asarray(x, dtype=float), array)
        style = styles[name] if markers else {**styles[name], "marker": ""}
        axes.plot(abscissa, ordinate, label=name, markerfacecolor="white", **style)
    _finish(axes, labels, scales, verticals)
    return figure, axes


def theory_and_runs(
    theory: Mapping[str, tuple[ArrayLike, ArrayLike]],
    runs: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]],
    *,
    labels: tuple[str, str],
    scales: tuple[str, str] = ("linear", "linear"),
    verticals: Sequence[Reference] = (),
    axes: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw predictions as lines and measurements as points with error bars.

    Parameters
    ----------
    theory : mapping of str to (x, y)
    runs : mapping of str to (x, mean, standard error)
        Same colour as the theory entry of the same rank.
    labels, scales, verticals, axes
        As in :func:`curves`.

    Returns
    -------
    (Figure, Axes)
    """
    figure, axes = _axes(axes)
    styles, one_run = _styles(_ordered(theory)), False
    drawn: dict[str, Any] = {}
    for name in _ordered(theory):
        look = {**styles[name], "marker": ""}
        (drawn[name],) = axes.plot(*theory[name], label=name, **look)
    for name, partner, style in _partners(list(theory), list(runs)):
        x, mean, error = (np.asarray(values, dtype=float) for values in runs[name])
        spread = np.where(error > 0, error, np.nan)
        one_run |= bool(np.any(error <= 0) and np.any(error > 0))
        look = {**style, "linestyle": "none", "markerfacecolor": "white", "clip_on": False}
        points = axes.errorbar(x, mean, spread, label=name, capsize=2.5, zorder=3, **look)
        if partner is not None:
            drawn[partner] = (drawn[partner], points)
        else:
            drawn[name] = points
    _finish(axes, labels, scales, verticals)
    _legend_of_pairs(axes, drawn, list(theory), list(runs), one_run)
    return figure, axes


def _partner(run: str, theory: Sequence[str]) -> str | None:
    """The curve whose name the name of a run repeats, as "ρ = 1" in "ρ = 1, d = 100"."""
    return next((name for name in theory if run == name or run.startswith(f"{name}, ")), None)


def _partners(theory: list[str], runs: list[str]) -> list[tuple[str, str | None, dict[str, Any]]]:
    """Every run with its curve, if one has its name, and its style: that of its curve or rank."""
    curves_styles = _styles(_ordered(theory))
    own = _styles([f"run {k}" for k in range(len(runs))])
    by_rank = [curves_styles[name] for name in theory]
    result: list[tuple[str, str | None, dict[str, Any]]] = []
    paired: set[str] = set()
    for k, name in enumerate(runs):
        partner = _partner(name, theory)
        if partner is not None and partner not in paired:
            paired.add(partner)
            result.append((name, partner, curves_styles[partner]))
        else:
            look = by_rank[k] if k < len(by_rank) else own[f"run {k}"]
            result.append((name, None, look))
    return result


def _legend_of_pairs(
    axes: Axes, drawn: dict[str, Any], theory: list[str], runs: list[str], one_run: bool
) -> None:
    """One entry for a curve with its points, and what the points are once for all of them."""
    handles, names = list(drawn.values()), list(drawn)
    rests = {
        name.removeprefix(partner).removeprefix(", ")
        for name in runs
        if (partner := _partner(name, theory)) is not None and partner in drawn
    } - {""}
    marks: dict[str, Any] = {"color": "#404040", "linestyle": "none", "marker": "o"}
    if len(rests) == 1:
        handles.append(Line2D([], [], markerfacecolor="white", **marks))
        names.append(f"points: {rests.pop()}")
    if one_run:
        handles.append(Line2D([], [], markerfacecolor="white", **marks))
        names.append("no bar: one run")
    _legend(axes, handles, names)


def spectrum(
    x: ArrayLike,
    densities: Mapping[str, ArrayLike],
    eigenvalues: ArrayLike | None = None,
    *,
    labels: tuple[str, str] = ("eigenvalue", "density"),
    bins: int = 60,
    axes: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw limiting densities, with the histogram of measured eigenvalues behind them.

    Parameters
    ----------
    x : array, shape (m,)
    densities : mapping of str to array, shape (m,)
    eigenvalues : array, optional
        Drawn as a normalised histogram.
    labels, axes
        As in :func:`curves`.
    bins : int
        Number of bins of the histogram.

    Returns
    -------
    (Figure, Axes)
    """
    _, axes = _axes(axes)
    if eigenvalues is not None:
        values = np.asarray(eigenvalues, dtype=float).ravel()
        axes.hist(values, bins=bins, density=True, color="#c7d9e8", label="measured")
    return curves(x, densities, labels=labels, axes=axes)


def regions(
    x: ArrayLike,
    y: ArrayLike,
    counts: ArrayLike,
    names: Mapping[int, str],
    *,
    labels: tuple[str, str],
    scales: tuple[str, str] = ("linear", "linear"),
    lines: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    axes: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw a whole number over the plane of two parameters, with its meaning in every region.

    Parameters
    ----------
    x, y : array, shapes (m,) and (k,)
    counts : array of int, shape (k, m)
    names : mapping of int to str
        What each count means, written into its region; every count needs a name.
    labels, scales, axes
        As in :func:`curves`.
    lines : mapping of str to (x, y), optional

    Returns
    -------
    (Figure, Axes)

    Raises
    ------
    ValueError
        If a count has no name.
    """
    figure, axes = _axes(axes)
    values = np.asarray(counts, dtype=int)
    known = sorted(names)
    if unnamed := sorted(set(values.ravel().tolist()) - set(known)):
        raise ValueError(f"names must name every count, but {unnamed} have none; got {known}")
    shades = ("#ffffff", "#cfe3f1", "#f6cfb4", "#d8ead2")
    colours = mpl.colors.ListedColormap([shades[k % len(shades)] for k in range(len(known))])
    rank = np.searchsorted(known, values)
    axes.pcolormesh(x, y, rank, cmap=colours, shading="nearest", vmin=-0.5, vmax=len(known) - 0.5)
    across, up = np.meshgrid(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    for k, name in enumerate(names[key] for key in known):
        inside = rank == k
        if inside.any():
            axes.text(
                np.median(across[inside]), np.median(up[inside]), name, ha="center", va="center"
            )
    for name, (line_x, line_y) in (lines or {}).items():
        axes.plot(line_x, line_y, color="black", linestyle="--", label=name)
    _finish(axes, labels, scales, ())
    axes.grid(False)
    return figure, axes


def field(
    x: ArrayLike,
    y: ArrayLike,
    values: ArrayLike,
    *,
    labels: tuple[str, str, str],
    scales: tuple[str, str] = ("linear", "linear"),
    lines: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    axes: Axes | None = None,
    **options: Any,
) -> tuple[Figure, Axes]:
    """Draw a quantity over the plane of two parameters, with lines on top.

    Parameters
    ----------
    x, y : array, shapes (m,) and (k,)
    values : array, shape (k, m)
    labels : (str, str, str)
        Of the two axes and of the quantity.
    scales, axes
        As in :func:`curves`.
    lines : mapping of str to (x, y), optional
    options
        Passed to ``pcolormesh``.

    Returns
    -------
    (Figure, Axes)
    """
    figure, axes = _axes(axes)
    mesh = axes.pcolormesh(x, y, values, cmap="cividis", shading="nearest", **options)
    figure.colorbar(mesh, ax=axes, label=labels[2])
    for name, (line_x, line_y) in (lines or {}).items():
        axes.plot(line_x, line_y, color="black", linestyle="--", label=name)
    _finish(axes, labels[:2], scales, ())
    axes.grid(False)
    return figure, axes
