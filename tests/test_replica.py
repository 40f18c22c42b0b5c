"""The saddle point: checked numbers, published tables, exact limits and stationarity."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aimlib import (
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    attention_indices,
    bayes_optimal,
    fixed_points,
    free_entropy,
    hardmax_asymptotic_error,
    small_width_overlap,
    state_evolution,
    strong_recovery_threshold,
    weak_recovery_threshold,
)

HALF = WishartPrior(0.5)
priors = st.one_of(
    st.floats(0.01, 20.0).map(WishartPrior),
    st.just(WignerPrior()),
    st.lists(st.integers(-20, 20).map(lambda s: s / 10), min_size=2, max_size=4, unique=True).map(
        SpectralPrior
    ),
)
channels = st.sampled_from(
    [
        SoftmaxChannel(2),
        SoftmaxChannel(4),
        HardmaxChannel(2),
        HardmaxChannel(3),
        LinearChannel(1),
        LinearChannel(2, 0.3),
    ]
)


def test_checked_softmax_errors() -> None:
    result = bayes_optimal(np.array([0.05, 0.10, 0.15]), HALF, SoftmaxChannel(2))
    assert result.estimation_error == pytest.approx([0.7236774, 0.3921960, 0.1281309], abs=6e-8)
    assert result.converged.all()


def test_checked_hardmax_errors() -> None:
    result = bayes_optimal(np.array([0.1, 0.4, 1.6, 6.4]), HALF, HardmaxChannel(2))
    assert result.estimation_error == pytest.approx(
        [0.7451104, 0.2777699, 0.0356979, 0.0024721], abs=6e-8
    )


def published(folder, name: str) -> tuple[np.ndarray, np.ndarray]:
    with open(folder / name, newline="") as file:
        rows = list(csv.DictReader(file))
    return (
        np.array([float(row["alpha"]) for row in rows]),
        np.array([float(row["gen_error"]) for row in rows]),
    )


@pytest.mark.parametrize(
    ("name", "rho", "noise"), [("0.5", 0.5, 0.0), ("1.0", 1.0, 0.0), ("0.5-noise-0.25", 0.5, 0.25)]
)
def test_published_tables_of_the_quadratic_network(peer_data, name, rho, noise) -> None:
    """Maillard et al. (2024); the channel with one token.

    Below alpha = 0.01 their tables have an error proportional to 1/alpha, which the exact
    expansion at small alpha (next test) shows to be theirs.
    """
    alpha, error = published(peer_data, f"quadratic-theory-kappa-{name}.csv")
    ours = bayes_optimal(alpha, WishartPrior(rho), LinearChannel(1, noise)).estimation_error
    keep = alpha >= 0.01
    assert keep.sum() > 100
    assert ours[keep] == pytest.approx(error[keep], abs=5e-6)
    assert ours == pytest.approx(error, abs=5e-5)


@settings(deadline=None, max_examples=30)
@given(priors, channels)
def test_first_order_in_alpha(prior, channel) -> None:
    """replica:saddle at alpha -> 0: V = Var (1 - 2 alpha c Var/Var) + O(alpha^2)."""
    start = prior.second_moment - prior.variance
    c = channel.information(start, prior.second_moment)
    alpha = 1e-6
    drop = prior.variance - bayes_optimal(alpha, prior, channel).estimation_error
    assert drop == pytest.approx(2 * alpha * c * prior.variance, rel=1e-2)


def test_softmax_is_the_quadratic_network_at_another_complexity() -> None:
    """softmax:collapse: only alpha (T^2 + T - 2) matters, and beta does not."""
    alpha = np.linspace(0.001, 0.24, 25)
    reference = bayes_optimal(2 * alpha, HALF, LinearChannel(1)).estimation_error
    for tokens in (2, 3, 7):
        for beta in (0.1, 3.0):
            scaled = 4 * alpha / (tokens**2 + tokens - 2)
            ours = bayes_optimal(scaled, HALF, SoftmaxChannel(tokens, beta)).estimation_error
            assert ours == pytest.approx(reference, rel=1e-11, abs=1e-14)


@settings(deadline=None, max_examples=40)
@given(priors, channels, st.floats(0.01, 0.98))
def test_the_saddle_point_equations_hold(prior, channel, fraction) -> None:
    """replica:saddle, both equations, at the solution."""
    threshold = strong_recovery_threshold(prior, channel)
    alpha = fraction * (threshold if np.isfinite(threshold) else 2.0)
    r = bayes_optimal(alpha, prior, channel)
    v = r.estimation_error
    assert r.converged
    assert v == pytest.approx(prior.mmse(1 / r.conjugate), rel=1e-11)
    c = channel.information_at(v, prior.second_moment)
    assert r.conjugate == pytest.approx(2 * alpha * c / v, rel=1e-9)
    assert r.overlap + v == pytest.approx(prior.second_moment)


def test_strong_recovery_is_clean() -> None:
    """softmax:threshold: V falls linearly to 0 at the threshold and stays there."""
    channel = SoftmaxChannel(2)
    assert strong_recovery_threshold(HALF, channel) == 0.1875
    gaps = np.array([1e-4, 1e-6, 1e-8, 1e-10])
    below = bayes_optimal(0.1875 - gaps, HALF, channel)
    assert np.all(below.estimation_error > 0)
    ratio = below.estimation_error / gaps
    # what is left of the difference to the threshold after rounding sets the tolerance
    assert ratio == pytest.approx(np.full(4, 4.0), rel=3e-3)
    assert ratio[1:3] == pytest.approx([4.0, 4.0], rel=3e-5)
    above = bayes_optimal(np.array([0.1875, 0.2, 7.0]), HALF, channel)
    assert np.array_equal(above.estimation_error, [0.0, 0.0, 0.0])
    assert np.array_equal(above.overlap, [1.5, 1.5, 1.5])
    assert above.converged.all()
    assert np.array_equal(above.generalization_error, [0.0, 0.0, 0.0])


def test_no_data_no_knowledge() -> None:
    for prior in (HALF, WignerPrior(), SpectralPrior([0.0, 2.0])):
        for channel in (SoftmaxChannel(2), HardmaxChannel(2), LinearChannel(1, 0.2)):
            r = bayes_optimal(0.0, prior, channel)
            assert r.estimation_error == prior.variance
            assert r.conjugate == 0.0
            assert r.converged


def test_wigner_prior_in_closed_form() -> None:
    """The exercise of the replica chapter: V = 1 - 2 alpha c up to 1/(2c)."""
    alpha = np.array([0.1, 0.2, 0.24, 0.26])
    error = bayes_optimal(alpha, WignerPrior(), SoftmaxChannel(2)).estimation_error
    assert error == pytest.approx(np.maximum(1 - 4 * alpha, 0), abs=1e-12)


@settings(deadline=None, max_examples=30)
@given(priors, channels, st.floats(0.05, 0.95))
def test_the_free_entropy_is_stationary_at_the_saddle_point(prior, channel, fraction) -> None:
    """The gradient of replica:free-entropy vanishes there."""
    threshold = strong_recovery_threshold(prior, channel)
    alpha = fraction * (threshold if np.isfinite(threshold) else 2.0)
    r = bayes_optimal(alpha, prior, channel)
    q, h = r.overlap, r.conjugate
    step_q, step_h = 1e-4 * min(r.estimation_error, q or 1.0), 1e-4 * h

    def phi(overlap, conjugate):
        return free_entropy(overlap, conjugate, alpha, prior, channel)

    slope_q = (phi(q + step_q, h) - phi(q - step_q, h)) / (2 * step_q)
    slope_h = (phi(q, h + step_h) - phi(q, h - step_h)) / (2 * step_h)
    assert slope_q == pytest.approx(0.0, abs=1e-5 * h)
    assert slope_h == pytest.approx(0.0, abs=1e-5 * prior.second_moment)
    assert r.free_entropy == pytest.approx(phi(q, h), abs=1e-9 * max(1, h))


def test_the_gradient_away_from_the_saddle_point() -> None:
    """replica:output-derivative and I_prior' = (Q - mmse)/4, by central differences."""
    q, h, alpha, channel = 0.9, 2.5, 0.3, HardmaxChannel(2)
    step = 1e-5
    slope_q = (
        free_entropy(q + step, h, alpha, HALF, channel)
        - free_entropy(q - step, h, alpha, HALF, channel)
    ) / (2 * step)
    slope_h = (
        free_entropy(q, h + step, alpha, HALF, channel)
        - free_entropy(q, h - step, alpha, HALF, channel)
    ) / (2 * step)
    c = channel.information(q, 1.5)
    assert slope_q == pytest.approx(-h / 4 + alpha * c / (2 * (1.5 - q)), abs=1e-9)
    assert slope_h == pytest.approx((1.5 - HALF.mmse(1 / h) - q) / 4, abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(priors, st.floats(-3, 2).map(lambda e: 10.0**e), st.floats(1.05, 3))
def test_mmse_over_noise_decreases(prior, noise, factor) -> None:
    """replica-monotone."""
    assert prior.mmse(noise * factor) / factor <= prior.mmse(noise) * (1 + 1e-10)


@settings(deadline=None, max_examples=20)
@given(priors, channels, st.floats(0.01, 3.0))
def test_there_is_at_most_one_fixed_point(prior, channel, alpha) -> None:
    """replica-unique, and it is the one that bayes_optimal returns."""
    points = fixed_points(alpha, prior, channel, resolution=200)
    assert points.size <= 1
    if points.size:
        assert points[0] == pytest.approx(
            bayes_optimal(alpha, prior, channel).estimation_error, rel=1e-7
        )


def test_the_saddle_point_of_gaussian_weights_in_closed_form() -> None:
    """V = D/(1 + D) and D = V/(4 alpha), as c = 2 for softmax of two tokens: V = 1 - 4 alpha."""
    channel, prior = SoftmaxChannel(2), WignerPrior()
    for alpha in (0.24, 0.1, 1e-3, 1e-6, 1e-9):
        assert fixed_points(alpha, prior, channel) == pytest.approx([1 - 4 * alpha], rel=1e-9)
        found = bayes_optimal(alpha, prior, channel)
        assert found.estimation_error == pytest.approx(1 - 4 * alpha, rel=1e-9)
        assert found.conjugate == pytest.approx(4 * alpha / (1 - 4 * alpha), rel=1e-6)
    assert fixed_points(0.26, prior, channel).size == 0


@pytest.mark.parametrize("start", ["uninformed", "informed"])
def test_state_evolution_ends_at_the_saddle_point(start) -> None:
    for alpha, channel in ((0.1, SoftmaxChannel(2)), (0.4, HardmaxChannel(2))):
        path = state_evolution(alpha, HALF, channel, iterations=400, start=start)
        assert path[-1] == pytest.approx(
            bayes_optimal(alpha, HALF, channel).estimation_error, rel=1e-6
        )
        assert np.all(np.diff(path) <= 1e-12) or start == "informed"


def test_state_evolution_in_closed_form() -> None:
    """Of Gaussian weights: V <- D/(1 + D) with D = V/(4 alpha), as c = 2 for softmax of two tokens.

    At huge alpha, D falls below every number after two steps, and V is zero from then on.
    """
    for start, v in (("uninformed", 1.0), ("informed", 1e-6)):
        expected = [v]
        for _ in range(6):
            expected.append(expected[-1] / (4 * 0.3 + expected[-1]))
        path = state_evolution(0.3, WignerPrior(), SoftmaxChannel(2), iterations=6, start=start)
        np.testing.assert_allclose(path, expected, rtol=1e-9)
    path = state_evolution(1e200, WignerPrior(), SoftmaxChannel(2), iterations=5)
    np.testing.assert_allclose(path, [1.0, 2.5e-201, 0.0, 0.0, 0.0, 0.0], rtol=1e-9)


# ---------------------------------------------------------------------------------------------
# Limits
# ---------------------------------------------------------------------------------------------


def test_hardmax_power_law() -> None:
    """hardmax:power-law, and the local exponent at alpha = 25.6."""
    channel = HardmaxChannel(2)
    for rho in (0.1, 0.5, 1.0, 2.0):
        prior = WishartPrior(rho)
        error = bayes_optimal(1e4, prior, channel).estimation_error
        assert error == pytest.approx(hardmax_asymptotic_error(1e4, prior), rel=3e-3)
        assert strong_recovery_threshold(prior, channel) == np.inf
    alpha = 25.6 * np.array([0.99, 1.01])
    error = bayes_optimal(alpha, HALF, channel).estimation_error
    slope = np.diff(np.log(error))[0] / np.diff(np.log(alpha))[0]
    assert slope == pytest.approx(-1.9996, abs=2e-3)
    j = hardmax_asymptotic_error(1.0, HALF)
    assert j == pytest.approx((0.75 * np.sqrt(3 * np.pi) / (4 * 1.8063945711)) ** 2, rel=1e-9)


@pytest.mark.parametrize("tokens", [3, 4])
def test_hardmax_power_law_with_more_tokens(tokens) -> None:
    """hardmax:power-law with the slope hardmax:boundary of the information."""
    channel = HardmaxChannel(tokens)
    error = bayes_optimal(1e4, HALF, channel).estimation_error
    assert error == pytest.approx(hardmax_asymptotic_error(1e4, HALF, channel), rel=3e-3)
    assert error < hardmax_asymptotic_error(1e4, HALF)
    with pytest.raises(ValueError, match="channel"):
        hardmax_asymptotic_error(1.0, HALF, SoftmaxChannel(tokens))


def test_weak_recovery_thresholds() -> None:
    """small_width:threshold."""
    assert weak_recovery_threshold(HardmaxChannel(2)) == pytest.approx(0.4034106, abs=5e-8)
    for tokens in (2, 3, 4):
        assert weak_recovery_threshold(SoftmaxChannel(tokens)) == pytest.approx(
            1 / (tokens**2 + tokens - 2)
        )


def test_small_width_limit_of_the_full_theory() -> None:
    """small_width:overlap against width ratio 1e-3 and 1e-4, whose distance shrinks."""
    alpha_bar = np.array([0.2, 0.5, 0.6, 0.8])
    channel = HardmaxChannel(2)
    limit = 1 - small_width_overlap(alpha_bar, channel)
    assert limit[0] == 1.0
    gaps = [
        np.abs(
            bayes_optimal(rho * alpha_bar, WishartPrior(rho), channel).estimation_error - limit
        ).max()
        for rho in (1e-2, 1e-3, 1e-4)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 2e-3


def test_small_width_softmax_in_closed_form() -> None:
    """q = (1 - x)^2 with alpha_bar = (2 - x)/(2c), until recovery at 1/c."""
    c, x = 2.0, 0.3
    q = small_width_overlap((2 - x) / (2 * c), SoftmaxChannel(2))
    assert q == pytest.approx((1 - x) ** 2, rel=1e-12)
    assert small_width_overlap(0.5001, SoftmaxChannel(2)) == 1.0


# ---------------------------------------------------------------------------------------------
# The public border
# ---------------------------------------------------------------------------------------------


def test_float_in_float_out() -> None:
    one = bayes_optimal(0.1, HALF, SoftmaxChannel(2))
    many = bayes_optimal([[0.1, 0.2]], HALF, SoftmaxChannel(2))
    for name in (
        "overlap",
        "conjugate",
        "estimation_error",
        "generalization_error",
        "free_entropy",
    ):
        assert isinstance(getattr(one, name), float)
        assert getattr(many, name).shape == (1, 2)
    assert isinstance(one.converged, bool)
    assert many.estimation_error[0, 0] == one.estimation_error


def test_bad_arguments_are_refused_by_name() -> None:
    channel = SoftmaxChannel(2)
    for bad in (-0.1, np.nan, np.inf, "x", [0.1, -0.1]):
        with pytest.raises(ValueError, match="sample_complexity"):
            bayes_optimal(bad, HALF, channel)
    with pytest.raises(ValueError, match="overlap"):
        free_entropy(1.5, 1.0, 0.1, HALF, channel)
    with pytest.raises(ValueError, match="conjugate"):
        free_entropy(1.0, -1.0, 0.1, HALF, channel)
    with pytest.raises(ValueError, match="iterations"):
        state_evolution(0.1, HALF, channel, iterations=0)
    with pytest.raises(ValueError, match="start"):
        state_evolution(0.1, HALF, channel, start="somewhere")
    with pytest.raises(ValueError, match="rescaled_complexity"):
        small_width_overlap(-1.0, channel)


# ---------------------------------------------------------------------------------------------
# Steps of the derivation that can be evaluated
# ---------------------------------------------------------------------------------------------


def test_replicated_indices_have_the_covariance_of_the_overlaps() -> None:
    """replica:covariance, for two matrices that share a part."""
    rng, d, n = np.random.default_rng(11), 60, 40_000
    first = HALF.sample(d, rng)
    second = 0.6 * first + 0.5 * WignerPrior().sample(d, rng)
    h = attention_indices(rng.standard_normal((n, 2, d)), np.stack([first, second]))
    overlap = np.sum(first * second) / d
    for a, b, factor in ((0, 0, 2.0), (0, 1, 1.0)):
        product = h[:, 0, a, b] * h[:, 1, a, b]
        assert product.mean() == pytest.approx(factor * overlap, abs=5 * product.std() / np.sqrt(n))
    cross = h[:, 0, 0, 0] * h[:, 1, 0, 1]
    assert cross.mean() == pytest.approx(0.0, abs=5 * cross.std() / np.sqrt(n))


def test_the_gaussian_average_that_uncouples_replicas() -> None:
    """replica:goe-average: Tr GA is Gaussian with variance 2 Tr A^2/d."""
    rng, d = np.random.default_rng(12), 12
    a = WignerPrior().sample(d, rng) + np.eye(d)
    draws = np.array([np.sum(WignerPrior().sample(d, rng) * a) for _ in range(20_000)])
    variance = 2 * np.sum(a * a) / d
    assert draws.var() == pytest.approx(variance, rel=0.05)
    scale = 0.8 / np.sqrt(variance)
    assert np.mean(np.exp(scale * draws)) == pytest.approx(np.exp(0.5 * 0.8**2), rel=0.03)
