"""Answers of the computational exercises, chapters model to cross_attention.

Each test runs the code that the solution shows, taken from the page, and compares what it computes
with the answer that the text gives or with another route to it.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from aimlib import (
    BilinearPrior,
    HardmaxChannel,
    SoftmaxChannel,
    WishartPrior,
    attention_indices,
    bayes_optimal,
    cross_attention,
    small_width_overlap,
    strong_recovery_threshold,
    weak_recovery_threshold,
)

BOOK = Path(__file__).resolve().parent.parent / "book"
CHAPTERS = (
    *("model", "priors", "channels", "replica", "softmax", "hardmax", "small_width"),
    "cross_attention",
)
SOLUTION = re.compile(r"^```\{solution\} (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXERCISE = re.compile(r"^```\{exercise\}([^\n]*)\n:label: (\S+)$", re.MULTILINE)


def run(chapter: str, label: str) -> dict[str, Any]:
    """Run the code of a solution as it is printed; return its variables and what it printed."""
    text = (BOOK / f"{chapter}.md").read_text()
    code = re.search(r"~~~python\n(.*?)~~~", dict(SOLUTION.findall(text))[label], re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code.group(1), names)
    return names | {"printed": printed.getvalue()}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_exercises_are_graded_and_solved(chapter) -> None:
    """Three or more, with stars, each with a hidden solution, one of them computational."""
    text = (BOOK / f"{chapter}.md").read_text()
    exercises = EXERCISE.findall(text)
    solutions = dict(SOLUTION.findall(text))
    assert len(exercises) >= 3
    assert all(re.match(r" ★{1,3} \w", title) for title, _ in exercises)
    assert [label for _, label in exercises] == list(solutions)
    assert all(body.startswith(":class: dropdown\n") for body in solutions.values())
    assert {title.count("★") for title, _ in exercises} >= {1, 2, 3}
    assert any("(computational)" in title for title, _ in exercises)
    this = Path(__file__).read_text()
    for title, label in exercises:
        if "(computational)" in title:
            assert "~~~python" in solutions[label]
            name = re.search(r"`(test_\w+)`", solutions[label])
            assert name is not None
            assert f"def {name.group(1)}(" in this


def test_the_trace_is_seen_through_the_norm_of_a_token() -> None:
    names = run("model", "model-exercise-slope")
    assert names["slope"] == pytest.approx(np.trace(names["teacher"]) / 100, abs=0.05)
    assert names["share"] == pytest.approx(1 / 3, abs=0.04)


def test_overlap_of_the_estimate_without_data() -> None:
    """model-exercise-variance and model-exercise-size, on a teacher that is drawn."""
    d, rng = 400, np.random.default_rng(1)
    teacher = WishartPrior(2.0).sample(d, rng)
    blind = math.sqrt(2) * np.eye(d)
    assert np.sum(teacher * blind) / d == pytest.approx(2, abs=0.02)
    assert np.sum((teacher - blind) ** 2) / d == pytest.approx(1, abs=0.05)
    h = attention_indices(rng.standard_normal((4000, 2, d)), teacher)
    assert h[:, 0, 0].std() == pytest.approx(math.sqrt(6), rel=0.05)
    assert h[:, 0, 1].std() == pytest.approx(math.sqrt(3), rel=0.05)


def test_gain_over_entrywise_regression() -> None:
    names = run("priors", "priors-exercise-gain")
    gain = names["gain"]
    assert gain[0] == pytest.approx(4 / 3, abs=1e-4)
    assert gain[-1] == pytest.approx(1, abs=1e-3)
    assert gain.max() == pytest.approx(1.374, abs=5e-4)
    assert names["noise"][gain.argmax()] == pytest.approx(0.185, abs=2e-3)


def test_inversion_by_hand() -> None:
    """channels-exercise-invert."""
    y = np.array([[[0.8, 0.2], [0.5, 0.5]]])
    mean = SoftmaxChannel(2).posterior_mean(y, np.zeros((1, 2, 2)), 1.0)[0]
    assert mean == pytest.approx(np.array([[1.040, -0.347], [-0.347, -0.347]]), abs=5e-4)


def test_diagonal_of_a_softmax() -> None:
    names = run("channels", "channels-exercise-diagonal")
    c = names["c"] - 6 * names["bins"] ** 2 / names["n"]
    assert c == pytest.approx(1.94, abs=5e-3)
    rows = np.array(
        [[1, 0, 0, -1, 0, 0], [1, 0, 0, 0, -1, 0], [0, 1, 0, -1, 0, 0], [0, 1, 0, 0, 0, -1]]
    )
    assert np.linalg.matrix_rank(rows) == 4, "the bound: differences of 11, 22, 33, 12, 13, 23"


def test_three_fixed_points_of_signs() -> None:
    names = run("replica", "replica-exercise-signs")
    high, low = names["k"][names["turns"]]
    assert names["turns"].size == 2

    def fixed_points(k: float) -> int:
        excess = names["k"] - k
        return int(np.sum(excess[1:] * excess[:-1] < 0))

    assert (low, high) == pytest.approx((0.431, 0.563), abs=5e-4)
    assert [fixed_points(k) for k in (low - 0.01, low + 0.01, high - 0.01, high + 0.01)] == [
        *(1, 3, 3, 1)
    ]


def test_half_of_the_variance_is_explained() -> None:
    names = run("softmax", "softmax-exercise-half")
    prior, channel = WishartPrior(0.5), SoftmaxChannel(2)
    assert bayes_optimal(names["alpha"], prior, channel).estimation_error == pytest.approx(
        0.5, rel=1e-9
    )
    assert names["alpha"] == pytest.approx(0.0832, abs=5e-5)
    assert names["threshold"] == strong_recovery_threshold(prior, channel)
    slope, steepest = names["slope"], names["curve"][names["slope"].argmax()]
    assert (slope[-1], slope.max(), slope[0]) == pytest.approx((4.0, 6.8, 4.0), abs=0.05)
    assert steepest / names["threshold"] == pytest.approx(0.35, abs=0.01)
    step = 0.005  # the slope there, by the route that iterates
    errors = [bayes_optimal(steepest + s, prior, channel).estimation_error for s in (-step, step)]
    assert (errors[0] - errors[1]) / (2 * step) == pytest.approx(6.8, abs=0.05)


@pytest.mark.parametrize(("rho", "share"), [(0.1, 0.73), (0.5, 0.444), (1.0, 0.40), (2.0, 0.44)])
def test_half_of_the_variance_at_other_widths(rho, share) -> None:
    """softmax-exercise-half: just below and above the stated share of the threshold."""
    prior, channel = WishartPrior(rho), SoftmaxChannel(2)
    threshold = strong_recovery_threshold(prior, channel)
    before, after = (
        bayes_optimal((share + s) * threshold, prior, channel).estimation_error
        for s in (-0.005, 0.005)
    )
    assert before > 0.5 > after


def test_recovery_of_other_heads() -> None:
    """softmax-exercise-heads."""
    for rho, exact in ((0.25, 7 / 288), (3.0, 1 / 18)):
        threshold = strong_recovery_threshold(WishartPrior(rho), SoftmaxChannel(4))
        assert threshold == pytest.approx(exact, rel=1e-12)


def test_large_noise_to_first_order() -> None:
    """softmax-exercise-small: mmse = v - v^2/Delta for any width."""
    for rho in (0.2, 1.0, 5.0):
        first = (1 - WishartPrior(rho).mmse(1e4)) * 1e4
        assert first == pytest.approx(1, abs=2e-3)


def test_four_outputs_without_knowledge() -> None:
    """hardmax-exercise-start: each output's share of c(0)."""
    rng, n = np.random.default_rng(2), 400_000
    e = rng.standard_normal((3, n))  # whitened 11, 22, 12
    u = np.sqrt(2) * e[:2] - e[2]
    for signs, length in (((1, 1), 1.1475), ((1, -1), 1.3822)):
        chosen = e[:, (signs[0] * u[0] > 0) & (signs[1] * u[1] > 0)]
        assert np.sum(chosen.mean(axis=1) ** 2) == pytest.approx(length, abs=0.02)


def test_one_row_of_hardmax() -> None:
    names = run("hardmax", "hardmax-exercise-row")
    rng, n = np.random.default_rng(3), 1_000_000
    known, hidden = rng.standard_normal((2, n))
    sign = np.sign(known + hidden)
    mean = sign * np.exp(stats.norm.logpdf(known) - stats.norm.logcdf(sign * known))
    assert names["value"] == pytest.approx(np.mean(mean**2), abs=0.003)
    assert names["value"] == pytest.approx(0.4805, abs=5e-5)
    assert names["needed"] == pytest.approx(0.0788, abs=5e-5)
    prior, channel = WishartPrior(0.5), HardmaxChannel(2)
    both = bayes_optimal(0.05, prior, channel)
    alpha = 0.05 * channel.information(both.overlap, prior.second_moment) * math.pi / 2
    conjugate = 2 * alpha * (2 / math.pi) / both.estimation_error
    assert prior.mmse(1 / conjugate) == pytest.approx(both.estimation_error, rel=1e-8)


def test_onset_at_small_width() -> None:
    names = run("small_width", "small-width-exercise-onset")
    channel = HardmaxChannel(2)
    ratio = np.sqrt(names["q"]) / names["above"]
    assert ratio == pytest.approx([0.996, 0.963, 0.845], abs=5e-4)
    weak = weak_recovery_threshold(channel)
    assert small_width_overlap(1.5 * weak_recovery_threshold(SoftmaxChannel(3)), SoftmaxChannel(3))
    # the correction is c'(0)/c(0) times epsilon
    step = 1e-4
    slope = (channel.information(step, 1.0) - channel.information(0.0, 1.0)) / step
    predicted = 1 + slope / channel.information(0.0, 1.0) * 0.01
    close = small_width_overlap(1.01 * weak, channel)
    assert math.sqrt(close) / 0.01 == pytest.approx(predicted, abs=2e-3)


def test_aspect_that_needs_fewest_samples() -> None:
    names = run("cross_attention", "cross-attention-exercise-aspect")
    table = np.array([row.split() for row in names["printed"].splitlines()], dtype=float)
    psi, half, full = table.T
    assert np.all(np.diff(table[:, 2]) > 0)
    assert full[psi == 0.3] == pytest.approx([1 / 1.3 / 6], rel=1e-9)
    narrow = psi < 0.3
    assert full[narrow] == pytest.approx(psi[narrow] / (6 * 0.3 * (1 + psi[narrow])), rel=1e-9)
    stated = [half[psi == x][0] for x in (0.3, 2.5, 3.0, 8.0)]
    assert stated == pytest.approx([0.0530, 0.1005, 0.1005, 0.0935], abs=5e-5)
    top = half.argmax()
    assert np.all(np.diff(half[: top + 1]) > 0)
    assert np.all(np.diff(half[top:]) < 0)
    assert psi[top] in (2.5, 3.0)
    channel = cross_attention.SoftmaxChannel(3, 3)
    for psi, half, _ in table:
        alpha = half * 0.3 * (1 + psi)
        result = bayes_optimal(alpha, BilinearPrior(0.3, psi), channel)
        assert result.estimation_error == pytest.approx(0.5, rel=1e-7)
