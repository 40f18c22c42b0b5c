"""Steps of the chapters channels, softmax, replica, hardmax and small_width, by another route.

Every test names the labels that it proves.  The reference is Gaussian conditioning, a finite
difference, a matrix of finite size or a direct integral, never the function under test.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from aimlib import (
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    attention_indices,
    bayes_optimal,
    strong_recovery_threshold,
)
from aimlib.channels import output_function
from aimlib.replica import small_width_overlap


def symmetric(rng: np.random.Generator, tokens: int, scale: float = 1.0) -> np.ndarray:
    z = np.triu(rng.standard_normal((tokens, tokens))) * np.sqrt(scale * (1 + np.eye(tokens)))
    return z + np.triu(z, 1).T


# --- chapter "channels" ------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [2, 3, 5])
@pytest.mark.parametrize("beta", [0.3, 2.0])
def test_the_shifts_of_the_rows_are_tied(tokens, beta) -> None:
    """channels:shifts, with the shifts computed from the indices and not from the output."""
    h = symmetric(np.random.default_rng(tokens), tokens)
    y = SoftmaxChannel(tokens, beta).output(h)
    shift = np.log(np.exp(beta * h).sum(axis=1)) / beta
    assert shift[:, None] - shift[None, :] == pytest.approx(np.log(y.T / y) / beta, abs=1e-12)


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_softmax_mean_by_gaussian_conditioning(tokens) -> None:
    """channels:softmax-mean: condition the Gaussian on all differences of its indices."""
    rng, v = np.random.default_rng(tokens), 0.7
    omega, h = symmetric(rng, tokens), symmetric(rng, tokens)
    rows, columns = np.triu_indices(tokens)
    covariance = np.diag(v * (1.0 + (rows == columns)))
    differences = np.diff(np.eye(rows.size), axis=0)
    gain = covariance @ differences.T @ np.linalg.inv(differences @ covariance @ differences.T)
    centre = omega[rows, columns]
    exact = centre + gain @ differences @ (h[rows, columns] - centre)
    channel = SoftmaxChannel(tokens, 1.3)
    mean = channel.posterior_mean(channel.output(h), omega, v)
    assert mean[rows, columns] == pytest.approx(exact, abs=1e-12)


def test_the_output_function_is_the_gradient_of_the_log_evidence() -> None:
    """channels:gout for the linear channel, channels:linear by the density of y."""
    rng, v, noise, tokens, step = np.random.default_rng(1), 0.6, 0.3, 2, 1e-5
    omega, y = symmetric(rng, tokens), symmetric(rng, tokens)
    rows, columns = np.triu_indices(tokens)
    width = np.sqrt((1.0 + (rows == columns)) * v + noise)

    def log_evidence(centre: np.ndarray) -> float:
        return float(np.sum(stats.norm.logpdf(y[rows, columns], centre, width)))

    g = output_function(LinearChannel(tokens, noise), y, omega, v)[rows, columns]
    for k, unit in enumerate(np.eye(rows.size)):
        centre = omega[rows, columns]
        slope = (log_evidence(centre + step * unit) - log_evidence(centre - step * unit)) / step / 2
        assert g[k] == pytest.approx(slope, abs=1e-8)


# --- chapter "softmax" -------------------------------------------------------------------------


def test_many_noisy_linear_outputs_are_one_noisy_matrix() -> None:
    """softmax:linear-likelihood, softmax:linear-noise: its quadratic form on random directions."""
    rng, d, tokens, noise = np.random.default_rng(9), 40, 2, 50.0
    n = 40_000
    alpha = n / d**2
    x = rng.standard_normal((n, tokens, d))
    rows, columns = np.triu_indices(tokens)
    for direction in (WishartPrior(0.5).sample(d, rng), WignerPrior().sample(d, rng)):
        h = attention_indices(x, direction)[:, rows, columns]
        measured = -np.sum(h**2) / (2 * noise)
        size = np.sum(direction**2)
        predicted = -alpha * d / (2 * noise) * tokens * (tokens + 3) / 2 * size
        assert measured == pytest.approx(predicted, rel=0.03)
        inverse = 2 * alpha * tokens * (tokens + 3) / (2 * noise)
        assert predicted == pytest.approx(-d / 4 * inverse * size)
    v = 1.0  # and the channel information of the weak linear channel gives the same noise
    c = LinearChannel(tokens, 1e4).information_at(v, 1.5)
    assert 2 * alpha * c / v == pytest.approx(
        2 * alpha * tokens * (tokens + 3) / (2 * 1e4), rel=1e-3
    )


@pytest.mark.parametrize(("rho", "power"), [(0.3, 1.0), (0.5, 1.0), (2.0, 1.0), (1.0, 1.5)])
def test_the_error_near_the_threshold(rho, power) -> None:
    """softmax:near-threshold: linear, and with power 3/2 at the hard edge rho = 1."""
    prior, channel = WishartPrior(rho), SoftmaxChannel(3)
    alpha = strong_recovery_threshold(prior, channel) * (1 - np.array([1e-4, 1e-5]))
    large, small = bayes_optimal(alpha, prior, channel).estimation_error
    assert math.log10(large / small) == pytest.approx(power, abs=0.01)


@pytest.mark.parametrize("rho", [1.5, 2.0, 3.0, 8.0])
def test_the_slope_at_the_threshold_for_wide_heads(rho) -> None:
    """softmax:near-threshold: the slope is 4 pi^2/3 times the cubed clean density, if bounded."""
    low, high = ((1 + s * math.sqrt(rho)) ** 2 / math.sqrt(rho) for s in (-1, 1))

    def cubed(x: float) -> float:
        return (math.sqrt(rho) * math.sqrt((high - x) * (x - low)) / (2 * math.pi * x)) ** 3

    slope = 4 * math.pi**2 / 3 * integrate.quad(cubed, low, high)[0]
    noise = 1e-5
    assert (1 - WishartPrior(rho).mmse(noise) / noise) / noise == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("rho", [0.2, 1.0, 4.0])
def test_the_width_does_not_matter_at_first_order(rho) -> None:
    """The exercise of the chapter: V = 1 - alpha (T^2+T-2) + O(alpha^2)."""
    alpha, tokens = np.array([1e-4, 2e-4]), 3
    gap = bayes_optimal(alpha, WishartPrior(rho), SoftmaxChannel(tokens)).estimation_error - 1
    first = alpha * (tokens**2 + tokens - 2)
    second = (gap + first) / first**2
    assert second[0] == pytest.approx(second[1], rel=0.05)


# --- chapter "replica" -------------------------------------------------------------------------


def test_the_coupling_of_replicas_and_its_gaussian_form() -> None:
    """replica:uncoupled, with four matrices of finite size."""
    rng, d, h = np.random.default_rng(2), 7, 1.7
    s = [WignerPrior().sample(d, rng) for _ in range(4)]
    pairs = sum(np.trace(s[i] @ s[j]) for j in range(4) for i in range(j))
    rest = sum(s[1:])
    right = (
        h / 2 * sum(np.trace(s[0] @ a) for a in s[1:])
        + h / 4 * np.trace(rest @ rest)
        - h / 4 * sum(np.trace(a @ a) for a in s[1:])
    )
    assert h / 2 * pairs == pytest.approx(right, rel=1e-12)


def test_the_prior_term_of_a_gaussian_prior_entry_by_entry() -> None:
    """replica:denoising-partition, replica:prior-term: for the GOE every entry integrates alone.

    An entry S ~ N(0, w/d), seen as R = S + sqrt(w/(h d)) z, has the mean log partition function
    (h - log(1 + h))/2, whatever w: the sum over d(d+1)/2 entries is half of it per d^2.
    """
    h, d = 1.9, 5
    rng = np.random.default_rng(3)
    for w, weight in ((1.0, 1.0), (2.0, 0.5)):  # off the diagonal, on it: coefficient d h weight/2
        s = math.sqrt(w / d) * rng.standard_normal(400_000)
        r = s + math.sqrt(w / (h * d)) * rng.standard_normal(s.size)
        a, b = d * h * weight * r, d * h * weight / 2
        precision = d / w + 2 * b
        log_z = a**2 / (2 * precision) - 0.5 * math.log(precision * w / d)
        error = 5 * log_z.std() / math.sqrt(s.size)
        assert log_z.mean() == pytest.approx((h - math.log1p(h)) / 2, abs=error)
    prior = WignerPrior()
    term = h * prior.second_moment / 4 - prior.information(1 / h)
    assert term == pytest.approx((h - math.log1p(h)) / 4, abs=1e-10)


def test_the_denoiser_is_increasing_and_the_ratio_strictly_decreasing() -> None:
    """replica-monotone, its strict form: for two atoms and for a Wishart spectrum."""
    noise = np.logspace(-4, 4, 60)
    for prior in (SpectralPrior([-1, 1], [0.5, 0.5]), WishartPrior(0.5), WishartPrior(1.0)):
        ratio = prior.mmse(noise) / noise
        assert np.all(np.diff(ratio) < 0)
        for delta in (0.05, 1.0):
            for low, high in prior.support(delta):
                x = np.linspace(low, high, 60)[1:-1]
                g = prior.resolvent(x, delta)
                assert np.all(np.diff(x - 2 * delta * g.real) > 0)


# --- chapter "hardmax" -------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b", "r"), [(0.3, -0.7, 1 / 3), (-1.0, 0.4, -1 / 3)])
def test_the_truncated_mean_by_direct_integration(a, b, r) -> None:
    """hardmax:truncated."""
    density = stats.multivariate_normal(cov=[[1, r], [r, 1]]).pdf
    weight = integrate.dblquad(lambda y, x: density([x, y]), -a, 9, -b, 9)[0]
    mean = integrate.dblquad(lambda y, x: x * density([x, y]), -a, 9, -b, 9)[0] / weight
    root = math.sqrt(1 - r * r)
    f1 = stats.norm.pdf(a) * stats.norm.cdf((b - r * a) / root)
    f2 = stats.norm.pdf(b) * stats.norm.cdf((a - r * b) / root)
    assert (f1 + r * f2) / weight == pytest.approx(mean, abs=1e-6)


# --- chapter "small_width" ---------------------------------------------------------------------


def test_an_eigenvalue_leaves_the_noise() -> None:
    """small_width:bbp: position and eigenvector of one spike at d = 1500."""
    d, strength, rng = 1500, 2.5, np.random.default_rng(4)
    positions, overlaps = [], []
    for _ in range(6):
        matrix = WignerPrior().sample(d, rng)
        matrix[0, 0] += math.sqrt(strength)  # noise Delta = 1, so that q_tilde = theta^2
        values, vectors = np.linalg.eigh(matrix)
        positions.append(values[-1])
        overlaps.append(vectors[0, -1] ** 2)
    for measured, exact in (
        (positions, math.sqrt(strength) + 1 / math.sqrt(strength)),
        (overlaps, 1 - 1 / strength),
    ):
        error = np.std(measured, ddof=1) / math.sqrt(len(measured))
        assert np.mean(measured) == pytest.approx(exact, abs=5 * error)
        assert error < 0.03


@pytest.mark.parametrize("channel", [SoftmaxChannel(2), SoftmaxChannel(4), HardmaxChannel(2)])
def test_the_small_width_curve_by_iteration(channel) -> None:
    """small_width:conjugate, small_width:curve: iterate the two equations from full knowledge."""
    c = channel.information(0.0, 1.0)
    for ratio in (1.1, 1.4, 1.8):
        alpha, q = ratio / (2 * c), 0.9
        for _ in range(3000):
            conjugate = 2 * alpha * channel.information(q, 1.0) / (1 - q)
            q = max(1 - 1 / conjugate, 0.0) ** 2
        assert small_width_overlap(alpha, channel) == pytest.approx(q, abs=1e-9)
        if isinstance(channel, SoftmaxChannel):
            assert q == pytest.approx((ratio - 1) ** 2, abs=1e-9)
