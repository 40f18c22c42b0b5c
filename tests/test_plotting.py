"""Figures are tested by the data that they carry."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")
import matplotlib.pyplot as plt

from aimlib import plotting


@pytest.fixture(autouse=True)
def style():
    with mpl.rc_context():
        plotting.use_style()
        yield
    plt.close("all")


def test_curves_carry_their_data() -> None:
    x = np.linspace(0, 1, 5)
    own = np.stack([x + 1, x**3])
    _, axes = plotting.curves(
        x,
        {"a": x**2, "b": own},
        labels=("x", "y"),
        verticals=[(0.5, "here")],
        scales=("log", "log"),
    )
    first, second, vertical = axes.get_lines()
    assert np.array_equal(first.get_ydata(), x**2)
    assert np.array_equal(second.get_xdata(), x + 1)
    assert list(vertical.get_xdata()) == [0.5, 0.5]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert axes.texts[0].get_text() == "here"


def test_theory_and_runs_share_a_colour() -> None:
    x = np.arange(3.0)
    _, axes = plotting.theory_and_runs(
        {"theory": (x, x)}, {"runs": (x, x + 0.1, 0.2 + 0 * x)}, labels=("x", "y")
    )
    line, (container,) = axes.get_lines()[0], axes.containers
    assert line.get_color() == container.lines[0].get_color()
    assert np.array_equal(container.lines[0].get_ydata(), x + 0.1)
    segments = container.lines[2][0].get_segments()
    assert segments[0][1][1] - segments[0][0][1] == pytest.approx(0.4)


def test_spectrum_histogram_is_normalised() -> None:
    x = np.linspace(-2, 2, 9)
    _, axes = plotting.spectrum(x, {"law": x * 0}, np.linspace(-1, 1, 500), bins=20)
    assert sum(p.get_height() * p.get_width() for p in axes.patches) == pytest.approx(1.0)


def test_field_carries_its_values() -> None:
    values = np.arange(6.0).reshape(2, 3)
    _, axes = plotting.field(
        [1, 2, 3], [0, 1], values, labels=("x", "y", "z"), lines={"edge": ([1, 3], [0, 1])}
    )
    assert np.array_equal(axes.collections[0].get_array().reshape(2, 3), values)


def test_the_palette_survives_colour_blindness_by_dash_and_marker() -> None:
    cycle = mpl.rcParams["axes.prop_cycle"].by_key()
    assert len(set(cycle["color"])) == len(cycle["color"]) == 7
    assert len({str(dash) for dash in cycle["linestyle"][:6]}) == 6
