"""The figure style of the book and its recurring figures.

:func:`use_style` sets one style for all pages: colours of Okabe and Ito, told apart also by dash
and marker, on a white ground that the pages turn dark in the dark theme.  The figures here return
``(figure, axes)`` so that a notebook can add to them; what they plot is passed in, never computed.

======================== =====================================================================
:func:`curves`           a family of curves over one parameter
:func:`theory_and_runs`  predicted curves with measured points and error bars
:func:`spectrum`         a density with the histogram of eigenvalues behind it
:func:`field`            a quantity over a plane of two parameters
======================== =====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

__all__ = ["COLOURS", "curves", "field", "spectrum", "theory_and_runs", "use_style"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)), "-")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")

Reference = tuple[float, str]


def use_style() -> None:
    """Set the style of the book for all figures that follow.

    Examples
    --------
    >>> use_style()
    >>> mpl.rcParams["savefig.dpi"]
    200.0
    """
    mpl.rcParams.update(
        {
            "figure.figsize": (6.4, 3.9),
            "figure.dpi": 100,
            "savefig.dpi": 200,
            "figure.facecolor": "white",
            "savefig.bbox": "tight",
            "figure.constrained_layout.use": True,
            "font.family": "DejaVu Sans",
            "mathtext.fontset": "dejavusans",
            "font.size": 11,
            "axes.labelsize": 12,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#d9d9d9",
            "grid.linewidth": 0.6,
            "lines.linewidth": 2.0,
            "lines.markersize": 5.5,
            "legend.frameon": False,
            "legend.fontsize": 10,
            "axes.prop_cycle": cycler(color=COLOURS) + cycler(linestyle=_DASHES),
        }
    )
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


def _finish(
    axes: Axes, labels: tuple[str, str], scales: tuple[str, str], verticals: Sequence[Reference]
) -> None:
    axes.set(xlabel=labels[0], ylabel=labels[1], xscale=scales[0], yscale=scales[1])
    for position, name in verticals:
        axes.axvline(position, color="#808080", linestyle=":", linewidth=1.2)
        axes.annotate(
            name,
            (position, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            color="#606060",
            va="top",
            fontsize=10,
        )
    if axes.get_legend_handles_labels()[0]:
        axes.legend()


def curves(
    x: ArrayLike,
    families: Mapping[str, ArrayLike],
    *,
    labels: tuple[str, str],
    scales: tuple[str, str] = ("linear", "linear"),
    verticals: Sequence[Reference] = (),
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
    axes : Axes, optional
        Draw here instead of in a new figure.

    Returns
    -------
    (Figure, Axes)
    """
    figure, axes = _axes(axes)
    for name, values in families.items():
        array = np.asarray(values, dtype=float)
        abscissa, ordinate = array if array.ndim == 2 else (np.asarray(x, dtype=float), array)
        axes.plot(abscissa, ordinate, label=name)
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
    for k, (name, (x, y)) in enumerate(theory.items()):
        axes.plot(x, y, label=name, color=COLOURS[k % 7], linestyle=_DASHES[k % 7])
    for k, (name, (x, mean, error)) in enumerate(runs.items()):
        axes.errorbar(
            np.asarray(x),
            np.asarray(mean),
            np.asarray(error),
            label=name,
            color=COLOURS[k % 7],
            marker=_MARKERS[k % 7],
            linestyle="none",
            capsize=2.5,
            markerfacecolor="white",
        )
    _finish(axes, labels, scales, verticals)
    return figure, axes


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
        axes.plot(line_x, line_y, color="white", linestyle="--", label=name)
    _finish(axes, labels[:2], scales, ())
    legend = axes.get_legend()
    if legend is not None:
        legend.set_frame_on(True)
        legend.get_frame().set_facecolor("#404040")
        plt.setp(legend.get_texts(), color="white")
    axes.grid(False)
    return figure, axes
