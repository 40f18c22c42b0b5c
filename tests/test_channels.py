"""Channels: posterior means by brute force, information against independent evaluations."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from aimlib import (
    AttentionIndexedModel,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    WignerPrior,
    _hardmax,
    _hardmax_sampler,
    _normal,
    attention_indices,
    bayes_optimal,
)
from aimlib import _hardmax_information as many
from aimlib._hardmax_pair import pair_series
from aimlib._softmax import row_softmax, scaled_gaps
from aimlib.channels import RectangularChannel, SymmetricChannel, output_function
from aimlib.deep import row_softmax as public_row_softmax


def symmetric_normal(rng: np.random.Generator, n: int, t: int, variance: float) -> np.ndarray:
    """Indices with variance (1 + delta_ab) * variance."""
    z = rng.standard_normal((n, t, t)) * np.sqrt(variance)
    return (z + z.transpose(0, 2, 1)) / np.sqrt(2.0)


# ---------------------------------------------------------------------------------------------
# Softmax
# ---------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 6), st.floats(0.05, 20.0), st.integers(0, 2**32 - 1))
def test_softmax_fixes_the_indices_up_to_a_constant(tokens, beta, seed) -> None:
    """channels:softmax-inversion: E[h | y] - h is one constant, that of least squares."""
    rng = np.random.default_rng(seed)
    channel = SoftmaxChannel(tokens, beta)
    omega, v = symmetric_normal(rng, 5, tokens, 0.5), 0.3
    h = omega + symmetric_normal(rng, 5, tokens, v)
    mean = channel.posterior_mean(channel.output(h), omega, v)
    gap = mean - h
    assert gap == pytest.approx(
        np.broadcast_to(gap[:, :1, :1], gap.shape), abs=1e-9 * max(1, 1 / beta)
    )
    # channels:softmax-mean, with the weights 1/(1 + delta_ab) over a <= b written out
    rows, columns = np.triu_indices(tokens)
    weights = 1 / (1 + (rows == columns))
    constant = ((omega - h)[:, rows, columns] * weights).sum(1) / weights.sum()
    assert gap[:, 0, 0] == pytest.approx(constant, abs=1e-9 * max(1, 1 / beta))


@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_softmax_information_is_what_the_output_function_carries(tokens) -> None:
    """channels:information, c = V sum (1 + delta) E g^2, by simulation; channels:softmax-c."""
    rng = np.random.default_rng(tokens)
    channel, v, q = SoftmaxChannel(tokens), 0.4, 1.1
    omega = symmetric_normal(rng, 40_000, tokens, q)
    h = omega + symmetric_normal(rng, 40_000, tokens, v)
    g = output_function(channel, channel.output(h), omega, v)
    rows, columns = np.triu_indices(tokens)
    delta = rows == columns
    measured = v * np.mean(np.sum((1 + delta) * g[:, rows, columns] ** 2, axis=1))
    assert channel.information(q, q + v) == tokens * (tokens + 1) / 2 - 1
    assert measured == pytest.approx(channel.information(q, q + v), rel=0.02)


def test_softmax_mean_of_one_sequence_and_of_none() -> None:
    """A single matrix gives back its h up to the mean of omega; no sequences give no means."""
    channel, omega = SoftmaxChannel(3, 2), np.full((3, 3), 0.7)
    h = np.array([[1.0, -0.5, 0.3], [-0.5, 0.2, 0.0], [0.3, 0.0, -2.0]])
    mean = channel.posterior_mean(channel.output(h), omega, 0.3)
    assert mean == pytest.approx(h - h.mean() + 0.7, abs=1e-14)
    none = np.empty((0, 3, 3))
    assert channel.posterior_mean(none, none, 0.3).shape == (0, 3, 3)
    assert repr(channel) == repr(SoftmaxChannel(3, 2.0))  # what a checkpoint is known by


def test_softmax_output_rows_sum_to_one_even_for_large_indices() -> None:
    h = np.array([[800.0, -3.0], [-3.0, 900.0]])
    y = SoftmaxChannel().output(h)
    assert np.isfinite(y).all()
    assert y.sum(axis=1) == pytest.approx([1.0, 1.0])
    with pytest.raises(ValueError, match="underflowed"):
        SoftmaxChannel().posterior_mean(y, np.zeros((2, 2)), 1.0)


@pytest.mark.parametrize("beta", [0.3, 1.0, 6.0])
@pytest.mark.parametrize("v", [1e-8, 0.2, 1.5])
def test_softmax_generalisation_error_against_direct_simulation(beta, v) -> None:
    """softmax:generalization at two tokens: E|y - E[y]|^2 by nested trapezoidal sums."""
    total, channel = 1.5, SoftmaxChannel(2, beta)
    nodes = np.linspace(-9, 9, 1501)
    weights = np.exp(-0.5 * nodes**2)
    weights /= weights.sum()
    u = np.sqrt(3 * (total - v)) * nodes[:, None] + np.sqrt(3 * v) * nodes
    sigma = 1 / (1 + np.exp(-beta * u))
    centre = sigma @ weights
    variance = ((sigma - centre[:, None]) ** 2 @ weights) @ weights
    assert channel.generalization_error(v, total) == pytest.approx(
        4 * variance, rel=1e-7, abs=1e-15
    )


@pytest.mark.parametrize("tokens", [2, 3])
def test_softmax_generalisation_error_by_monte_carlo(tokens) -> None:
    rng, v, total = np.random.default_rng(2), 0.4, 1.5
    channel = SoftmaxChannel(tokens, 1.0)
    omega = symmetric_normal(rng, 200, tokens, total - v)
    inner = symmetric_normal(rng, 200 * 400, tokens, v).reshape(200, 400, tokens, tokens)
    y = channel.output(omega[:, None] + inner)
    spread = np.sum((y - y.mean(axis=1, keepdims=True)) ** 2, axis=(2, 3)).mean(1)
    error = spread.mean() * 400 / 399
    margin = 4 * spread.std() / np.sqrt(200)
    assert channel.generalization_error(v, total) == pytest.approx(error, abs=margin)


# ---------------------------------------------------------------------------------------------
# Linear
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("noise", [0.0, 0.25])
def test_linear_posterior_and_information(tokens, noise) -> None:
    rng, v, q = np.random.default_rng(9), 0.4, 1.1
    channel = LinearChannel(tokens, noise)
    omega = symmetric_normal(rng, 50_000, tokens, q)
    h = omega + symmetric_normal(rng, 50_000, tokens, v)
    y = channel.output(h, rng)
    assert y == pytest.approx(y.transpose(0, 2, 1), abs=0)
    rows, columns = np.triu_indices(tokens)
    delta = rows == columns
    g = output_function(channel, y, omega, v)
    measured = v * np.mean(np.sum((1 + delta) * g[:, rows, columns] ** 2, axis=1))
    assert measured == pytest.approx(channel.information(q, q + v), rel=0.02)
    # the posterior mean is the least-squares regression of h on y: the residual is orthogonal to y
    residual = (h - channel.posterior_mean(y, omega, v))[:, rows, columns]
    assert np.mean(residual * (y - omega)[:, rows, columns], axis=0) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("tokens", [1, 2, 4])
def test_linear_generalisation_error_by_simulation(tokens) -> None:
    """E|h - E h|^2 = T(T+1) V over the full matrix, whatever the noise."""
    h = symmetric_normal(np.random.default_rng(31), 100_000, tokens, 0.4)
    exact = np.mean(np.sum(h * h, axis=(1, 2)))
    for noise in (0.0, 0.7):
        error = LinearChannel(tokens, noise).generalization_error(0.4, 1.5)
        assert error == pytest.approx(exact, rel=0.015)


def test_linear_information_at_both_ends() -> None:
    """Noise hides an index that is nearly known; without noise all T(T+1)/2 are seen."""
    assert LinearChannel(3, 0.25).information_at(0.0, 1.5) == 0.0
    assert LinearChannel(3, 0.25).information(0.0, 1.5) == pytest.approx(
        3 * 3.0 / 3.25 + 3 * 1.5 / 1.75
    )
    assert LinearChannel(3).information_at([0.0, 1.5], 1.5) == pytest.approx([6.0, 6.0], abs=0)


@pytest.mark.parametrize("noise", [0.0, 0.25])
def test_linear_entropy_is_that_of_the_gaussian_output(noise) -> None:
    """log det of the covariance of y over a <= b."""
    t, v = 3, 0.4
    a, b = np.triu_indices(t)
    law = stats.multivariate_normal(cov=np.diag((1 + (a == b)) * v + noise))
    assert LinearChannel(t, noise).output_entropy(v, 1.0) == pytest.approx(law.entropy())


def test_linear_noise_is_independent_of_indices_and_symmetric() -> None:
    rng = np.random.default_rng(32)
    h = symmetric_normal(rng, 100_000, 2, 1.0)
    z = (LinearChannel(2, 0.49).output(h, rng) - h)[:, [0, 0, 1], [0, 1, 1]]
    assert np.cov(z.T) == pytest.approx(0.49 * np.eye(3), abs=0.01)
    assert z.T @ h[:, [0, 0, 1], [0, 1, 1]] / len(h) == pytest.approx(np.zeros((3, 3)), abs=0.015)


def test_channel_noise_is_not_drawn_from_the_tokens() -> None:
    """A stream that is used twice shows: noise and tokens would share numbers."""
    model = AttentionIndexedModel(20, WignerPrior(), LinearChannel(1, 1.0))
    data = model.sample(1.0, seed=3)
    noise = data.outputs - attention_indices(data.tokens, data.teacher)
    shared = np.intersect1d(noise.round(9), data.tokens.round(9))
    assert noise.std() == pytest.approx(1.0, abs=0.2)
    assert shared.size == 0


def test_linear_noise_needs_a_generator() -> None:
    with pytest.raises(ValueError, match="rng"):
        LinearChannel(1, 0.25).output(np.zeros((1, 1, 1)))


# ---------------------------------------------------------------------------------------------
# Hardmax, two tokens
# ---------------------------------------------------------------------------------------------


def test_hardmax_information_meets_the_checked_numbers() -> None:
    channel, total = HardmaxChannel(), 1.5
    assert channel.information(0.0, total) == pytest.approx(1.2394318940, abs=6e-11)
    for v, value in ((1, 1.0584841598), (0.5, 0.7835982373), (0.1, 0.3653857946)):
        assert channel.information(total - v, total) == pytest.approx(value, abs=6e-11)
    assert channel.information(total - 1e-3, total) == pytest.approx(0.0371699102, abs=6e-11)


def test_hardmax_information_without_knowledge_in_closed_form() -> None:
    """hardmax:start, c(0) = [(1+r)/P++ + (1-r)/P+-]/(2 pi) with r = 1/3."""
    r = 1 / 3
    same = 0.25 + np.arcsin(r) / (2 * np.pi)
    closed = ((1 + r) / same + (1 - r) / (0.5 - same)) / (2 * np.pi)
    assert HardmaxChannel().information(0.0, 2.0) == pytest.approx(closed, rel=1e-13)


@pytest.mark.parametrize("ratio", [0.9, 0.5, 0.25])
def test_hardmax_information_against_an_independent_quadrature(ratio) -> None:
    """hardmax:information by Gauss-Hermite over the means, with SciPy's bivariate normal."""
    r, k2 = 1 / 3, (1 - ratio) / ratio
    lower = np.linalg.cholesky(np.array([[1, r], [r, 1]]))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    total = 0.0
    for z1, p1 in zip(nodes, weights, strict=True):
        for z2, p2 in zip(nodes, weights, strict=True):
            if p1 * p2 > 1e-12:
                w = np.sqrt(k2) * lower @ np.array([z1, z2])
                total += p1 * p2 * quadrant_sum(w[0], w[1], r)
    assert HardmaxChannel().information_at(ratio, 1.0) == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("ratio", [1e-4, 1e-6, 1e-8, 1e-10])
def test_hardmax_information_when_almost_everything_is_known(ratio) -> None:
    """hardmax:information-small, c = x (2J/sqrt(2 pi) + O(x)) at x = sqrt(V/Q), J by mpmath."""
    j = mp.quad(lambda t: mp.npdf(t) ** 2 / (mp.ncdf(t) * mp.ncdf(-t)), [-mp.inf, -3, 0, 3, mp.inf])
    slope, x = float(2 * j / mp.sqrt(2 * mp.pi)), np.sqrt(ratio)
    channel = HardmaxChannel()
    assert channel.information_at(1e-24, 1.0) / 1e-12 == pytest.approx(slope, rel=1e-11)
    # the next order is that of the corner, whose coefficient two values of x determine
    first = (channel.information_at(1e-12, 1.0) / 1e-6 - slope) / 1e-6
    assert channel.information_at(ratio, 1.0) / x - slope == pytest.approx(
        first * x, rel=5 * x, abs=1e-11
    )


def quadrant_sum(w1: float, w2: float, r: float) -> float:
    """Sum over signs of P d' C^-1 d with P from SciPy and d from numerical derivatives of log P."""
    total = 0.0
    for s in (-1, 1):
        for t in (-1, 1):
            rho = s * t * r
            law = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]])
            p = law.cdf([s * w1, t * w2])
            if p < 1e-13:
                continue
            scale = np.sqrt(1 - rho**2)
            f = stats.norm.pdf(w1) * stats.norm.cdf((t * w2 - rho * s * w1) / scale)
            g = stats.norm.pdf(w2) * stats.norm.cdf((s * w1 - rho * t * w2) / scale)
            total += (f * f + g * g + 2 * rho * f * g) / p
    return total


@pytest.mark.parametrize("u", [(0.3, -0.4), (2.0, 1.5), (-2.5, -3.0), (-4.0, 3.0), (5.0, -6.0)])
@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_hardmax_posterior_against_brute_force(u, signs) -> None:
    """hardmax:posterior, by two-dimensional quadrature over the truncated normal of u."""
    v = 0.7
    covariance = v * np.array([[3.0, 1.0], [1.0, 3.0]])
    precision = np.linalg.inv(covariance)
    omega = np.array([[[u[0], 0.0], [0.0, u[1]]]])
    y = np.zeros((1, 2, 2))
    y[0, 0, 0 if signs[0] > 0 else 1] = 1
    y[0, 1, 1 if signs[1] > 0 else 0] = 1
    # E[u | signs] on a product Gauss-Legendre grid over the quadrant, relative to the peak
    nodes, weights = np.polynomial.legendre.leggauss(600)
    edge = 24.0
    a = 0.5 * edge * (nodes + 1)
    g1, g2 = np.meshgrid(signs[0] * a, signs[1] * a, indexing="ij")
    z = np.stack([g1 - u[0], g2 - u[1]])
    log_density = -0.5 * np.einsum("iab,ij,jab->ab", z, precision, z)
    p = np.exp(log_density - log_density.max()) * np.outer(weights, weights)
    delta = np.array([(p * g1).sum(), (p * g2).sum()]) / p.sum() - np.array(u)
    expected = omega[0] + np.array(
        [
            [(3 * delta[0] - delta[1]) / 4, -(delta[0] + delta[1]) / 4],
            [-(delta[0] + delta[1]) / 4, (3 * delta[1] - delta[0]) / 4],
        ]
    )
    assert HardmaxChannel().posterior_mean(y, omega, v)[0] == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=200)
@given(
    st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.booleans(), st.booleans()
)
def test_hardmax_posterior_is_finite_and_obeys_the_output(a, b, c, first, second) -> None:
    """Deep in the wrong tail too, up to |omega|/sqrt(V) = 1e4."""
    omega = np.array([[[a, c], [c, b]]])
    y = np.array([[[first, not first], [not second, second]]], dtype=float)
    mean = HardmaxChannel().posterior_mean(y, omega, 1.0)[0]
    assert np.isfinite(mean).all()
    # the mean of a truncated law lies inside the truncation
    assert (mean[0, 0] - mean[0, 1]) * (1 if first else -1) > -1e-9
    assert (mean[1, 1] - mean[0, 1]) * (1 if second else -1) > -1e-9


def test_hardmax_misclassification_by_simulation() -> None:
    """hardmax:misclassification."""
    rng, v, total = np.random.default_rng(0), 0.3, 1.5
    omega = symmetric_normal(rng, 200_000, 2, total - v)
    h = omega + symmetric_normal(rng, 200_000, 2, v)
    channel = HardmaxChannel()
    wrong = np.mean(channel.output(h)[:, 0, 0] != channel.output(omega)[:, 0, 0])
    assert channel.generalization_error(v, total) == pytest.approx(wrong, abs=0.004)


def test_hardmax_output_entropy() -> None:
    """Its value without knowledge is that of the four outputs; its slope is c/(2V)."""
    channel = HardmaxChannel()
    same = 0.25 + np.arcsin(1 / 3) / (2 * np.pi)
    closed = -2 * (same * np.log(same) + (0.5 - same) * np.log(0.5 - same))
    assert channel.output_entropy(1.5, 1.5) == pytest.approx(closed, rel=1e-13)
    numeric, _ = integrate.quad(lambda x: channel.information_at(x * x, 1.0) / x, 0, 0.7)
    assert channel.output_entropy(0.49, 1.0) == pytest.approx(numeric, rel=1e-9)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_information_never_grows_with_knowledge(p, q) -> None:
    """The assumption of replica-unique, for every channel."""
    low, high = sorted((p, q))
    for channel in (SoftmaxChannel(), HardmaxChannel(), LinearChannel(2, 0.3)):
        assert channel.information(high, 1.0) <= channel.information(low, 1.0) + 1e-12


# ---------------------------------------------------------------------------------------------
# A softmax that is never NaN
# ---------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.floats(-1.7e308, 1.7e308), min_size=2, max_size=5),
    st.floats(0.0, 1.7e308),
    st.sampled_from([np.float64, np.float32]),
)
def test_softmax_of_any_finite_row(row, beta, kind) -> None:
    """Rows sum to one, larger scores have no smaller shares, and the type is kept."""
    scores = np.clip(np.array(row), np.finfo(kind).min, np.finfo(kind).max).astype(kind)
    y = row_softmax(scores[None], beta)[0]
    assert y.dtype == kind
    assert np.isfinite(scaled_gaps(scores[None], beta)).all()
    assert y.sum() == pytest.approx(1.0, abs=1e-6)
    assert np.all(np.diff(y[np.argsort(scores, kind="stable")]) >= 0)


def test_softmax_by_another_library() -> None:
    h = symmetric_normal(np.random.default_rng(37), 50, 3, 1.0)
    for beta in (0.0, 0.1, 1.0, 50.0):
        assert row_softmax(h, beta) == pytest.approx(special.softmax(beta * h, axis=-1), rel=1e-12)


@pytest.mark.parametrize("beta", [1e-308, 1.0, 1e308])
def test_softmax_channels_at_any_temperature(beta) -> None:
    h = np.array([[[3.0, -3.0], [-3.0, 1e300]], [[0.0, 0.0], [0.0, 0.0]]])
    for y in (SoftmaxChannel(2, beta).output(h), public_row_softmax(h, beta)):
        assert np.isfinite(y).all()
        assert y[1].tolist() == [[0.5, 0.5], [0.5, 0.5]]
        if beta >= 1.0:
            assert y[0] == pytest.approx(
                np.array([[1.0, np.exp(-6.0 * beta)], [0.0, 1.0]]), abs=3e-3
            )


# ---------------------------------------------------------------------------------------------
# A channel of one's own, and what the base derives
# ---------------------------------------------------------------------------------------------


class Bare(SymmetricChannel):
    """The three methods that a channel must state, taken from another one."""

    def __init__(self, channel) -> None:
        self.channel, self.tokens = channel, channel.tokens

    def output(self, indices, rng=None):
        return self.channel.output(indices, rng)

    def posterior_mean(self, y, omega, variance):
        return self.channel.posterior_mean(y, omega, variance)

    def information_at(self, variance, second_moment):
        return self.channel.information_at(variance, second_moment)


class BareRow(RectangularChannel):
    """One sign of the difference of two keys, stated by its information alone."""

    queries, keys = 1, 2

    def output(self, indices, rng=None):
        return 1.0 * (np.diff(self.check_indices("indices", indices), axis=-1) > 0)

    def posterior_mean(self, y, omega, variance):
        raise NotImplementedError

    def information_at(self, variance, second_moment):
        x = np.sqrt(np.asarray(variance, dtype=float) / second_moment)[..., None]
        k = np.sqrt(1 - x**2) / x + 1e-12  # w = (difference of the means)/sqrt(2 V) is N(0, k^2)
        w = np.linspace(-9, 9, 1001) * np.minimum(k, 1.0)
        law = np.exp(-0.5 * (w / k) ** 2) / (np.sqrt(2 * np.pi) * k)
        share = stats.norm.pdf(w) ** 2 / (special.ndtr(w) * special.ndtr(-w))
        return np.sum(share * law, axis=-1) * 0.018 * np.minimum(k, 1.0)[..., 0]


@pytest.mark.parametrize(
    "channel", [SoftmaxChannel(3), HardmaxChannel(2), HardmaxChannel(3), LinearChannel(2, 0.3)]
)
def test_the_base_derives_information_and_entropy(channel) -> None:
    """The entropy up to its value where nothing is known, H(Q) = 0, which moves no estimate."""
    bare, v = Bare(channel), np.array([1.5, 1.2, 0.3, 1e-3, 1e-9])
    assert bare.information(0.4, 1.5) == channel.information(0.4, 1.5)
    exact = channel.output_entropy(v, 1.5) - channel.output_entropy(1.5, 1.5)
    assert bare.output_entropy(v, 1.5) == pytest.approx(exact, rel=1e-9, abs=1e-9)
    assert bare.output_entropy(0.3, 1.5) == pytest.approx(exact[2], rel=1e-9)
    nothing = channel.output_entropy(0.0, 1.5) - channel.output_entropy(1.5, 1.5)
    assert bare.output_entropy(0.0, 1.5) == pytest.approx(nothing, rel=1e-9)
    bare.validate(np.full((1, 2, 2), 7.0))  # says nothing about its outputs
    assert bare.weights == "symmetric"


@pytest.mark.parametrize("v", [0.05, 0.7])
def test_the_base_samples_the_generalisation_error(v) -> None:
    soft = SoftmaxChannel(2, 1.3)
    assert Bare(soft).generalization_error(v, 1.5) == pytest.approx(
        soft.generalization_error(v, 1.5), rel=5e-3
    )
    noisy = LinearChannel(2, 0.3)  # noise included: T^2 tau more
    assert Bare(noisy).generalization_error([v, v], 1.5) == pytest.approx(
        [6 * v + 4 * 0.3] * 2, rel=0.02
    )
    # a sign is 0 or 1: the error is E p(1 - p), half the probability that two samples differ
    rng = np.random.default_rng(33)
    common = np.sqrt(1.5 - v) * rng.standard_normal((200_000, 1, 2))
    one, two = (common + np.sqrt(v) * rng.standard_normal(common.shape) for _ in range(2))
    differ = 0.5 * np.mean(
        np.sign(one[:, 0, 0] - one[:, 0, 1]) != np.sign(two[:, 0, 0] - two[:, 0, 1])
    )
    assert BareRow().generalization_error(v, 1.5) == pytest.approx(differ, abs=4e-3)


def test_a_channel_without_a_squared_distance_says_so() -> None:
    class Loud(Bare):
        def output(self, indices, rng=None):
            return np.full(np.shape(indices), np.inf)

    with pytest.raises(ValueError, match="generalization_error of its own"):
        Loud(SoftmaxChannel(2)).generalization_error(0.3, 1.0)


def test_a_channel_of_ones_own_in_the_theory() -> None:
    alpha, prior = np.array([0.05, 0.08]), WignerPrior()
    ours = bayes_optimal(alpha, prior, Bare(SoftmaxChannel(3)))
    built_in = bayes_optimal(alpha, prior, SoftmaxChannel(3))
    assert ours.estimation_error == pytest.approx(built_in.estimation_error, abs=1e-12)
    assert ours.generalization_error == pytest.approx(built_in.generalization_error, rel=1e-6)
    # free entropies of two sample complexities differ by what alpha times the constant makes
    gap = ours.free_entropy - built_in.free_entropy
    assert gap / alpha == pytest.approx(np.full(2, gap[0] / alpha[0]), rel=1e-6)


def test_entropy_of_a_sign_by_the_base() -> None:
    """It falls by log 2 from nothing known to everything known."""
    assert BareRow().output_entropy(0.0, 2.0) == pytest.approx(-np.log(2.0), rel=1e-5)


# ---------------------------------------------------------------------------------------------
# Outputs that no model made
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [2, 3, 5])
@pytest.mark.parametrize("beta", [1e-3, 1.0, 30.0])
def test_outputs_of_the_softmax_are_accepted(tokens, beta) -> None:
    """Also where they were kept in single precision."""
    h = symmetric_normal(np.random.default_rng(34), 500, tokens, 1.0)
    y = SoftmaxChannel(tokens, beta).output(h)
    SoftmaxChannel(tokens, beta).validate(y)
    if beta < 10:
        SoftmaxChannel(tokens, beta).validate(y.astype(np.float32))


def test_outputs_that_no_softmax_made_are_refused() -> None:
    channel = SoftmaxChannel(4)
    y = channel.output(symmetric_normal(np.random.default_rng(35), 20, 4, 1.0))
    for change, message in (
        (lambda y: y.__setitem__((7, 2, 1), y[7, 2, 1] + 0.8), r"1\.8.* in row 7, 2"),
        (lambda y: y.__setitem__((7, 2, 1), -0.1), "positive"),
        (lambda y: y.__setitem__((7, 2, 1), 0.0), "underflowed"),
        (lambda y: y.__setitem__((7, 2, 1), np.nan), "finite"),
        # a permutation inside a row keeps its sum and breaks the symmetry of the indices
        (
            lambda y: y.__setitem__((7, 2), y[7, 2, [1, 0, 3, 2]]),
            r"in sequence 7, tokens 0, [123] and [123]",
        ),
    ):
        bad = y.copy()
        change(bad)
        with pytest.raises(ValueError, match=message):
            channel.validate(bad)
    with pytest.raises(ValueError, match="shape"):
        channel.validate(y[:, :3, :3])


@pytest.mark.parametrize("shift", [3e-5, 1e-3])
@pytest.mark.parametrize("entry", [(0, 1), (1, 2), (3, 2), (2, 0)])
def test_small_departures_from_symmetry_are_seen(entry, shift) -> None:
    """The cyclic condition, anywhere in the matrix, down to its stated tolerance."""
    channel = SoftmaxChannel(4)
    y = channel.output(symmetric_normal(np.random.default_rng(36), 1, 4, 1.0))
    y[0][entry] *= 1 + shift
    y /= y.sum(axis=2, keepdims=True)
    with pytest.raises(ValueError, match="symmetric indices"):
        channel.validate(y)


def test_the_cyclic_condition_begins_with_three_tokens() -> None:
    """Any positive rows of two tokens are those of symmetric indices, of three they are not."""
    h = np.random.default_rng(1).standard_normal((20, 3, 3))
    SoftmaxChannel(2).validate(row_softmax(h[:, :2, :2], 1.0))
    SoftmaxChannel(3).validate(row_softmax(h + h.transpose(0, 2, 1), 1.0))
    for asymmetric in h:
        with pytest.raises(ValueError, match="symmetric indices"):
            SoftmaxChannel(3).validate(row_softmax(asymmetric[None], 1.0))


def test_outputs_of_the_other_channels_are_checked() -> None:
    with pytest.raises(ValueError, match="symmetric"):
        LinearChannel(2).validate([[[0.0, 1.0], [2.0, 0.0]]])
    LinearChannel(2).validate([[[0.0, 1.0], [1.0, 0.0]]])
    with pytest.raises(ValueError, match="one-hot"):
        HardmaxChannel(2).validate([[[0.5, 0.5], [1.0, 0.0]]])
    with pytest.raises(ValueError, match="no symmetric matrix"):
        HardmaxChannel(3).validate([np.roll(np.eye(3), 1, axis=1)])
    HardmaxChannel(3).validate([np.eye(3)])


# ---------------------------------------------------------------------------------------------
# The public border
# ---------------------------------------------------------------------------------------------


def test_bad_arguments_are_refused_by_name() -> None:
    for bad in (1, 0, 2.5, True):
        with pytest.raises(ValueError, match="tokens"):
            SoftmaxChannel(tokens=bad)
    with pytest.raises(ValueError, match="tokens"):
        HardmaxChannel(tokens=1)
    with pytest.raises(ValueError, match="tokens"):
        LinearChannel(tokens=0)
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="inverse_temperature"):
            SoftmaxChannel(inverse_temperature=bad)
    with pytest.raises(ValueError, match="noise"):
        LinearChannel(noise=-0.1)
    y, omega = np.array([[[0.5, 0.5], [0.5, 0.5]]]), np.zeros((1, 2, 2))
    for channel in (SoftmaxChannel(), LinearChannel(2), HardmaxChannel()):
        good = np.array([[[1.0, 0.0], [0.0, 1.0]]]) if channel == HardmaxChannel() else y
        for bad in (0.0, -1.0, np.nan, np.inf):
            with pytest.raises(ValueError, match="variance"):
                channel.posterior_mean(good, omega, bad)
        with pytest.raises(ValueError, match="omega must have the shape"):
            channel.posterior_mean(good, np.zeros((2, 2, 2)), 1.0)
        with pytest.raises(ValueError, match="omega must be symmetric"):
            channel.posterior_mean(good, np.array([[[0.0, 1.0], [0.0, 0.0]]]), 1.0)
        with pytest.raises(ValueError, match="y must have shape"):
            channel.posterior_mean(np.zeros((1, 3, 3)), omega, 1.0)
        for bad in (-0.1, 1.6, np.nan):
            with pytest.raises(ValueError, match="overlap"):
                channel.information(bad, 1.5)
        with pytest.raises(ValueError, match="indices"):
            channel.output(np.array([[0.0, 1.0], [2.0, 0.0]]))
    with pytest.raises(ValueError, match="one-hot"):
        HardmaxChannel().posterior_mean(y, omega, 1.0)


# ---------------------------------------------------------------------------------------------
# Hardmax, three tokens and more
# ---------------------------------------------------------------------------------------------


def test_normal_quantile() -> None:
    probability = np.concatenate([np.logspace(-280, -1, 60), np.linspace(0.11, 0.9999, 60)])
    ours = [_normal.normal_quantile(p) for p in probability]
    assert ours == pytest.approx(special.ndtri(probability), rel=1e-13, abs=1e-15)


@settings(deadline=None, max_examples=200)
@given(st.floats(-50, 50), st.floats(1e-3, 30), st.floats(0.001, 0.999))
def test_truncated_normal_draws_and_means(low, width, uniform) -> None:
    high = low + width
    draw, mean = _normal.truncated_normal(low, high, uniform)
    assert low <= draw <= high
    assert low <= mean <= high
    if abs(low) < 6:
        law = stats.truncnorm(low, high)
        assert mean == pytest.approx(law.mean(), rel=1e-5, abs=1e-5)
        assert law.cdf(draw) == pytest.approx(uniform, abs=1e-6) or law.sf(draw) == pytest.approx(
            uniform, abs=1e-6
        )


def every_output(tokens: int) -> np.ndarray:
    rows = itertools.product(range(tokens), repeat=tokens)
    return np.array([w for w in rows if _hardmax.is_possible(np.array(w))])


def posteriors(winners: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n, t = winners.shape
    means, error, log_probability = np.empty((n, t, t)), np.empty(n), np.empty(n)
    uniforms = np.random.default_rng(0).random((100, t * (t + 1) // 2 + t * t))
    _hardmax.posterior_means(winners, z, uniforms, means, error, log_probability)
    return means, error, log_probability


def white(matrices: np.ndarray) -> np.ndarray:
    rows, columns = np.triu_indices(matrices.shape[-1])
    return matrices[..., rows, columns] / np.sqrt(1 + (rows == columns))


def test_possible_outputs_are_those_that_occur() -> None:
    """No cycle of winners longer than two: 25 of 27 outputs at three tokens."""
    h = symmetric_normal(np.random.default_rng(20), 200_000, 4, 1.0)
    for tokens, count in ((2, 4), (3, 25), (4, 218)):
        assert len(every_output(tokens)) == count
        seen = np.unique(h[:, :tokens, :tokens].argmax(axis=2), axis=0)
        assert np.array_equal(seen, every_output(tokens))
        kinds, multiplicity = many.every_output(tokens)
        assert multiplicity.sum() == count
        assert len(kinds) < count


@pytest.mark.parametrize(("tokens", "scale"), [(2, 1.0), (3, 0.0), (3, 2.0), (4, 1.0), (5, 0.5)])
def test_probabilities_and_means_add_up(tokens, scale) -> None:
    """hardmax:recursion: over all outputs P sums to 1, and P E[h | y] to what was known."""
    z = scale * symmetric_normal(np.random.default_rng(tokens), 1, tokens, 1.0)
    winners = every_output(tokens)
    means, error, log_probability = posteriors(winners, np.repeat(z, len(winners), axis=0))
    p = np.exp(log_probability)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.tensordot(p, means, axes=1) == pytest.approx(z[0], abs=1e-11)
    assert np.all(error < 1e-12)


@settings(deadline=None, max_examples=60)
@given(st.integers(3, 5), st.floats(0.0, 3.0), st.integers(0, 10**6))
def test_the_mean_is_the_gradient_of_the_log_probability(tokens, scale, seed) -> None:
    """hardmax:posterior by the derivative of log P(y), for a random output."""
    rng = np.random.default_rng(seed)
    z = scale * symmetric_normal(rng, 1, tokens, 1.0)
    winners = (z + symmetric_normal(rng, 1, tokens, 1.0)).argmax(axis=2)
    means, _, _ = posteriors(winners, z)
    i, j = rng.integers(0, tokens, size=2)
    step = np.zeros_like(z)
    step[0, i, j] = step[0, j, i] = 1e-4
    slope = (posteriors(winners, z + step)[2] - posteriors(winners, z - step)[2]) / 2e-4
    assert means[0, i, j] == pytest.approx(z[0, i, j] + (1 + (i == j)) * slope[0], abs=1e-6)
    inside = np.take_along_axis(means, winners[:, :, None], axis=2)
    assert np.all(means <= inside + 1e-12)


def test_recursion_at_two_tokens_down_to_deep_tails() -> None:
    """hardmax:recursion against the bivariate formulas; below its reach the sampler says so."""
    rng = np.random.default_rng(25)
    omega = symmetric_normal(rng, 400, 2, 150.0)
    y = HardmaxChannel().output(symmetric_normal(rng, 400, 2, 1.0))
    exact = HardmaxChannel().posterior_mean(y, omega, 1.0)
    means, error, log_probability = posteriors(y.argmax(axis=2), omega)
    done = np.isfinite(log_probability)
    assert 0.8 < done.mean() < 1.0
    assert means[done] == pytest.approx(exact[done], abs=1e-10)
    assert np.all(error[done] < 1e-10)
    assert np.all(error[~done] > 0)
    stated = np.sqrt(np.mean(error[~done] ** 2))
    assert np.sqrt(np.mean((means - exact)[~done] ** 2)) < min(2 * stated, 0.1)


def test_sampler_agrees_with_the_recursion() -> None:
    rng = np.random.default_rng(26)
    z = symmetric_normal(rng, 5, 3, 1.0)
    winners = (z + symmetric_normal(rng, 5, 3, 1.0)).argmax(axis=2)
    exact = posteriors(winners, z)[0]
    halves = np.empty((2, 3, 3))
    for k in range(5):
        _hardmax_sampler.gibbs(winners[k], z[k], z[k].copy(), rng.random((60_000, 15)), 0.0, halves)
        assert halves.mean(axis=0) == pytest.approx(exact[k], abs=0.02)


@settings(deadline=None, max_examples=60)
@given(st.integers(3, 4), st.floats(0, 4).map(lambda e: 10.0**e), st.integers(0, 10**6))
def test_hardmax_with_many_tokens_is_finite_and_obeys_the_output(tokens, scale, seed) -> None:
    """Signs deep in the wrong tail included, up to |omega|/sqrt(V) of 1e4 and more."""
    rng = np.random.default_rng(seed)
    omega = scale * symmetric_normal(rng, 3, tokens, 1.0)
    y = HardmaxChannel(tokens).output(symmetric_normal(rng, 3, tokens, 1.0))
    mean, error = HardmaxChannel(tokens).posterior_mean_with_error(y, omega, 1.0)
    assert np.isfinite(mean).all()
    assert np.isfinite(error).all()
    winner = np.sum(mean * y, axis=2, keepdims=True)
    assert np.all(mean - winner <= 1e-3)


def test_posterior_at_three_tokens_against_rejection() -> None:
    rng = np.random.default_rng(22)
    omega = symmetric_normal(rng, 1, 3, 0.5)
    y = HardmaxChannel(3).output(omega + symmetric_normal(rng, 1, 3, 0.7))
    draws = omega + symmetric_normal(rng, 400_000, 3, 0.7)
    kept = draws[(HardmaxChannel(3).output(draws) == y).all(axis=(1, 2))]
    assert len(kept) > 1000
    mean, error = HardmaxChannel(3).posterior_mean_with_error(y, omega, 0.7)
    assert mean[0] == pytest.approx(kept.mean(axis=0), abs=6 * kept.std() / np.sqrt(len(kept)))
    assert error.shape == (1,)


def test_posterior_of_nine_tokens_is_sampled_and_scales() -> None:
    rng = np.random.default_rng(27)
    omega = symmetric_normal(rng, 2, 9, 1.0)
    y = HardmaxChannel(9).output(omega + symmetric_normal(rng, 2, 9, 0.5))
    mean, error = HardmaxChannel(9).posterior_mean_with_error(y, omega, 0.5)
    scaled, _ = HardmaxChannel(9).posterior_mean_with_error(y, 10 * omega, 50.0)
    assert scaled == pytest.approx(10 * mean, rel=1e-9, abs=1e-9)
    assert np.all((error > 0) & (error < 0.1))
    with pytest.raises(ValueError, match="tokens"):
        HardmaxChannel(9).information(0.0, 1.0)


def test_information_at_three_tokens_without_knowledge() -> None:
    """hardmax:start, exactly, and by grouping random draws by their output."""
    h = symmetric_normal(np.random.default_rng(23), 400_000, 3, 1.0)
    code = h.argmax(axis=2) @ [9, 3, 1]
    direct = sum(
        np.mean(code == k) * np.sum(white(h[code == k].mean(axis=0)) ** 2) for k in np.unique(code)
    )
    value, error = HardmaxChannel(3).information_with_error(0.0, 1.5)
    assert error == 0.0
    assert value == pytest.approx(direct, abs=0.006)
    assert value == pytest.approx(2.852, abs=0.003)


@pytest.mark.parametrize("x", [0.85, 0.5])
def test_information_at_three_tokens_with_knowledge(x) -> None:
    """hardmax:information by averaging P |E h~|^2 over what is known and over all outputs."""
    winners = every_output(3)
    rng = np.random.default_rng(28)
    samples = []
    for z in symmetric_normal(rng, 800, 3, 1 / x**2 - 1):
        means, _, log_probability = posteriors(winners, np.repeat(z[None], 25, axis=0))
        shift = np.sum(white(means - z) ** 2, axis=1)
        samples.append(np.exp(log_probability) @ np.where(log_probability < -30, 0, shift))
    value, error = HardmaxChannel(3).information_with_error(1 - x**2, 1.0)
    assert 0 < error < 0.003 * value
    assert value == pytest.approx(np.mean(samples), abs=4 * np.std(samples) / np.sqrt(800))


@pytest.fixture(scope="module")
def lattice():
    """The script that recorded the lattice sums of three tokens."""
    folder = Path(__file__).resolve().parent.parent / "notebooks" / "sweeps"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield importlib.import_module("hardmax")


def test_the_series_at_three_tokens_meets_both_ways_to_it(lattice) -> None:
    """The means of c and of the entropy over a lattice, and the four exact conditions."""
    channel, exact = HardmaxChannel(3), np.polynomial.Polynomial(many.summed_series(3)[0])
    for row in lattice.recorded():
        assert row["probability"] == pytest.approx(1.0, abs=1e-7)
        v = row["x"] ** 2
        assert channel.information_at(v, 1.0) == pytest.approx(row["information"], rel=3e-7)
        assert channel.output_entropy(v, 1.0) == pytest.approx(row["entropy"], rel=3e-7)
    series, error = many.series(3)
    found = np.polynomial.Polynomial(series)
    assert error == 1e-6
    for x in (0.0, 1.0):
        assert found(x) == pytest.approx(exact(x), rel=1e-9)
    assert found.deriv()(1.0) == pytest.approx(exact.deriv()(1.0), rel=1e-8)
    assert found.integ()(1.0) == pytest.approx(exact.integ()(1.0), rel=1e-9)
    kept = np.polynomial.Chebyshev(lattice.fit(lattice.recorded()), domain=[0.0, 1.0])
    x = np.linspace(0.0, 1.0, 21)
    np.testing.assert_allclose(found(x), kept(x), rtol=1e-11)
    # what stood before lies within the error that it stated
    cubic, stated = many.summed_series(3)
    distance = np.abs(np.polynomial.polynomial.polyval(x, cubic) / found(x) - 1.0).max()
    assert 0.1 * stated < distance < stated


def test_the_lattice_sums_are_what_the_script_finds(lattice) -> None:
    """On a coarse lattice, whose error is that of the sum of all probabilities and less."""
    found = lattice.averages(0.92, 1.38, 5.0, 0)
    error = abs(found["probability"] - 1.0)
    assert 1e-6 < error < 3e-4
    (row,) = (row for row in lattice.recorded() if row["x"] == 0.92)
    for name in ("information", "entropy"):
        assert found[name] == pytest.approx(row[name], rel=2.0 * error)


def test_the_cubic_at_two_tokens_against_the_exact_information() -> None:
    """The four exact conditions that are used from three tokens on."""
    cubic, error = many.series(2)
    exact = pair_series()
    x = np.linspace(0, 1, 51)
    distance = np.abs(np.polynomial.polynomial.polyval(x, cubic) / exact(x) - 1)
    assert 0.2 * error < distance.max() < error < 1e-3
    assert cubic @ [0, 1, 2, 3] == pytest.approx(exact.deriv()(1.0), rel=1e-8)
    assert cubic[0] == pytest.approx(exact(0.0), rel=1e-11)


@pytest.mark.parametrize("tokens", [3, 4, 6])
def test_information_at_many_tokens_is_monotone_and_consistent(tokens) -> None:
    channel = HardmaxChannel(tokens)
    v = np.linspace(0, 1, 200)
    assert np.all(np.diff(channel.information_at(v, 1.0)) > 0)
    # the output entropy without knowledge is that of the output, estimated by counting
    if tokens < 6:
        h = symmetric_normal(np.random.default_rng(29), 400_000, tokens, 1.0)
        _, count = np.unique(h.argmax(axis=2), axis=0, return_counts=True)
        share = count / count.sum()
        assert channel.output_entropy(1.0, 1.0) == pytest.approx(
            -np.sum(share * np.log(share)), abs=5e-3
        )


def test_information_of_six_tokens_without_knowledge_states_no_error() -> None:
    """hardmax:start: exact up to six tokens, against V sum (1 + delta) g^2 of random outputs."""
    channel = HardmaxChannel(6)
    value, error = channel.information_with_error(0.0, 1.0)
    assert error == 0.0
    assert channel.information_with_error(0.1, 1.0)[1] > 0.0
    assert HardmaxChannel(7).is_sampled  # and has an error where nothing is known as well
    y = channel.output(symmetric_normal(np.random.default_rng(35), 1000, 6, 1.0))
    g = output_function(channel, y, np.zeros_like(y), 1.0)
    rows, columns = np.triu_indices(6)
    each = (g[:, rows, columns] ** 2) @ (1.0 + (rows == columns))
    spread = np.std(each) / np.sqrt(len(each))
    assert spread < 0.01 * value
    assert value == pytest.approx(np.mean(each), abs=4 * spread)


def test_sampled_outputs_agree_with_all_outputs() -> None:
    """The road from seven tokens on, walked at four."""
    exact = HardmaxChannel(4).information(0.3, 1.0)
    parabola, error = many.sampled_series(4)
    x = np.sqrt(0.7)
    assert x * np.polynomial.polynomial.polyval(x, parabola) == pytest.approx(exact, rel=error)
    assert error < 0.01


def test_an_impossible_output_is_refused() -> None:
    """Winners 2, 3, 1 would need h_12 > h_13 > h_23 > h_12."""
    y = np.zeros((1, 3, 3))
    y[0, 0, 1] = y[0, 1, 2] = y[0, 2, 0] = 1.0
    with pytest.raises(ValueError, match="no symmetric matrix"):
        HardmaxChannel(3).posterior_mean(y, np.zeros((1, 3, 3)), 1.0)


@pytest.mark.parametrize("tokens", [3, 5])
def test_misclassification_at_many_tokens_by_simulation(tokens) -> None:
    rng, v, total = np.random.default_rng(24), 0.3, 1.5
    omega = symmetric_normal(rng, 100_000, tokens, total - v)
    h = omega + symmetric_normal(rng, 100_000, tokens, v)
    wrong = np.mean(h.argmax(2) != omega.argmax(2))
    assert HardmaxChannel(tokens).generalization_error(v, total) == pytest.approx(wrong, abs=0.003)


def test_misclassification_in_its_limits() -> None:
    """Two tokens in closed form; without knowledge by chance; linear in sqrt(V) near V = 0."""
    for x in (1e-7, 1e-4, 0.1, 0.7, 1.0):
        assert many.misclassified(2, x) == pytest.approx(np.arcsin(x) / np.pi, rel=1e-8)
    for tokens in (3, 4):
        h = symmetric_normal(np.random.default_rng(30), 200_000, tokens, 1.0)[:, 0]
        own = np.mean(h.argmax(axis=1) == 0)
        chance = 1 - own**2 - (1 - own) ** 2 / (tokens - 1)
        channel = HardmaxChannel(tokens)
        assert channel.generalization_error(1.0, 1.0) == pytest.approx(chance, abs=3e-3)
        below, above = (
            many.misclassified(tokens, 0.99e-5),
            many.misclassified(tokens, 1.01e-5),
        )
        assert below / 0.99 == pytest.approx(above / 1.01, rel=2e-5)
        assert channel.generalization_error(0.0, 1.0) == 0.0
