"""The steps that lead to one fixed point: priors, channels, replica and cross_attention.

Every test names the labels that it proves.  The reference is a posterior computed by brute force,
a matrix of finite size, a difference quotient or a quadrature, never the function under test.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from aimlib import (
    BilinearPrior,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    bayes_optimal,
    cross_attention,
    fixed_points,
    free_entropy,
    state_evolution,
)
from aimlib.channels import output_function

PRIORS = [WishartPrior(0.3), WishartPrior(1.0), SpectralPrior([-1.0, 0.2, 2.0], [0.5, 0.2, 0.3])]
prior_cases = pytest.mark.parametrize("prior", PRIORS, ids=["thin", "square", "atoms"])


def cosine_rule(prior, noise: float, points: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights over the support; square-root edges become smooth."""
    t = (np.arange(points) + 0.5) * math.pi / points
    nodes, weights = [], []
    for a, b in prior.support(noise):
        nodes.append(0.5 * (a + b) - 0.5 * (b - a) * np.cos(t))
        weights.append(0.5 * (b - a) * np.sin(t) * math.pi / points)
    return np.concatenate(nodes), np.concatenate(weights)


def slopes(prior, noise: float, x: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Slope of the denoiser by differences that stay inside the support."""
    step = 1e-4 * width
    return (prior.shrink(x + step, noise) - prior.shrink(x - step, noise)) / (2 * step)


def distance_to_edges(prior, noise: float, x: np.ndarray) -> np.ndarray:
    return np.abs(x[:, None] - prior.support(noise).ravel()).min(axis=1)


# --- chapter "priors" --------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.05, 0.6, 5.0])
def test_slope_of_the_denoiser_from_the_clean_spectrum(noise) -> None:
    """priors:slope in both forms, priors:midpoint."""
    atoms, weights = np.array([-1.0, 0.2, 2.0]), np.array([0.5, 0.2, 0.3])
    prior = SpectralPrior(atoms, weights)
    lam = np.concatenate([a + (b - a) * np.linspace(0.1, 0.9, 9) for a, b in prior.support(noise)])
    u = lam - noise * prior.resolvent(lam, noise)
    assert np.allclose(lam + prior.shrink(lam, noise), 2 * u.real, atol=1e-9)
    q = abs(u[:, None] - atoms) ** 2
    a0, a1, a2 = (((u.real[:, None] - atoms) ** k / q**2) @ weights for k in range(3))
    rate = 2 * noise * (u.imag**2 * a0 + a1**2 / a0)
    assert np.allclose(rate, 2 - 2 * noise * (a2 - a1**2 / a0), atol=1e-9)
    assert np.all((rate > 0) & (rate < 2))
    measured = slopes(prior, noise, lam, distance_to_edges(prior, noise, lam))
    assert np.allclose(measured, (2 - rate) / rate, rtol=1e-5)


def test_jacobian_of_a_posterior_mean_is_a_covariance() -> None:
    """priors:jacobian, priors:order: brute force over the rotations of a 2 x 2 spectrum."""
    noise, d, rng = 0.7, 2, np.random.default_rng(0)
    angles = (np.arange(4000) + 0.5) * math.pi / 4000
    axes = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    candidates = -0.4 * np.eye(2) + 1.7 * axes[:, :, None] * axes[:, None, :]  # -0.4 and 1.3

    def posterior(matrix: np.ndarray) -> np.ndarray:
        energy = np.sum((matrix - candidates) ** 2, axis=(1, 2)) * d / (4 * noise)
        weight = np.exp(energy.min() - energy)
        return weight / weight.sum()

    for _ in range(5):
        seen = candidates[rng.integers(4000)] + math.sqrt(noise) * WignerPrior().sample(d, rng)
        b = rng.standard_normal((2, 2))
        b, step = b + b.T, 1e-5
        mean = [np.einsum("k,kij", posterior(seen + s * step * b), candidates) for s in (1, -1)]
        left = np.trace(b @ (mean[0] - mean[1])) / (2 * step)
        values = np.einsum("kij,ij->k", candidates, b)
        w = posterior(seen)
        variance = w @ values**2 - (w @ values) ** 2
        assert left == pytest.approx(d / (2 * noise) * variance, rel=1e-6)
        # the estimate has the eigenvectors of R, and its eigenvalues are in the same order
        lam, vectors = np.linalg.eigh(seen)
        estimate = vectors.T @ np.einsum("k,kij", w, candidates) @ vectors
        assert abs(estimate[0, 1]) < 1e-9
        assert estimate[1, 1] > estimate[0, 0]
        assert lam[1] > lam[0]


# --- chapter "channels" ------------------------------------------------------------------------


def whitened_covariances(channel, q, v, samples, rng) -> np.ndarray:
    """K = d E[eta]/d omega in coordinates of equal variance, by differences of the mean."""
    t = channel.tokens
    rows, columns = np.triu_indices(t)
    scale = np.sqrt(1.0 + (rows == columns))

    def symmetric(values: np.ndarray) -> np.ndarray:
        h = np.zeros((len(values), t, t))
        h[:, rows, columns] = h[:, columns, rows] = values * scale
        return h

    omega = math.sqrt(q) * rng.standard_normal((samples, rows.size))
    h = omega + math.sqrt(v) * rng.standard_normal(omega.shape)
    y = channel.output(symmetric(h), rng)
    step = 1e-4

    def mean(shift: np.ndarray) -> np.ndarray:
        return channel.posterior_mean(y, symmetric(omega + shift), v)[:, rows, columns] / scale

    units = step * np.eye(rows.size)
    return np.stack([(mean(e) - mean(-e)) / (2 * step) for e in units], axis=2)


@pytest.mark.parametrize(
    ("channel", "samples"),
    [(HardmaxChannel(2), 30_000), (LinearChannel(2, 0.4), 200), (SoftmaxChannel(3), 200)],
)
def test_information_diminishes(channel, samples) -> None:
    """channels:diminishing, channels:score, with c = E Tr(I - K)."""
    q, v, total = 0.9, 0.6, 1.5
    k = whitened_covariances(channel, q, v, samples, np.random.default_rng(3))
    eigenvalues = np.linalg.eigvalsh(0.5 * (k + k.transpose(0, 2, 1)))
    assert eigenvalues.min() > -1e-5
    assert eigenvalues.max() < 1 + 1e-5
    step = 1e-4
    c = channel.information(q, total)
    high, low = (channel.information(q + s * step, total) for s in (1, -1))
    derivative = (high - low) / (2 * step)
    of_ratio = (high / (v - step) - low / (v + step)) / (2 * step)
    for values, exact in (
        (np.sum(1 - eigenvalues, axis=1), c),
        (-np.sum(eigenvalues * (1 - eigenvalues), axis=1) / v, derivative),
        (np.sum((1 - eigenvalues) ** 2, axis=1) / v**2, of_ratio),
    ):
        error = values.std() / math.sqrt(samples)
        assert abs(values.mean() - exact) < 5 * error + 1e-6
        assert error < 0.02


def test_information_may_grow_without_log_concavity() -> None:
    """channels:diminishing needs its assumption: an output |h| of one index violates it.

    Given omega, |h| reveals the square of the index; with nothing known the sign is lost and
    E[h | |h|] = 0, so that c(0) = 0, and with much known c tends to one.
    """

    def information(q: float) -> float:
        v = 1 - q
        nodes, weights = np.polynomial.hermite_e.hermegauss(120)
        omega = math.sqrt(q) * nodes
        size = np.abs(omega[:, None] + math.sqrt(v) * nodes)
        mean = size * np.tanh(size * omega[:, None] / v)  # two points with Gaussian odds
        squares = (mean - omega[:, None]) ** 2 / v
        return float(weights @ squares @ weights / weights.sum() ** 2)

    assert information(0.0) == pytest.approx(0.0, abs=1e-12)
    assert information(0.3) < information(0.6) < information(0.95)


def test_guess_of_the_wrong_size_is_not_independent() -> None:
    """channels:variance: the residual of a posterior mean is uncorrelated, that of S/2 is not."""
    d, noise, rng = 300, 0.5, np.random.default_rng(5)
    prior = WishartPrior(0.5)
    teacher = prior.sample(d, rng)
    seen = teacher + math.sqrt(noise) * WignerPrior().sample(d, rng)
    estimate = prior.denoise(seen, noise)
    for guess, covariance in ((estimate, 0.0), (teacher / 2, np.sum(teacher**2) / (4 * d))):
        measured = np.sum((teacher - guess) * guess) / d
        assert measured == pytest.approx(covariance, abs=0.03)
    q = np.sum(estimate**2) / d
    assert np.sum((teacher - estimate) ** 2) / d == pytest.approx(
        np.sum(teacher**2) / d - q, abs=0.03
    )


# --- chapter "replica" -------------------------------------------------------------------------


def quantiles(prior, noise: float, shares: np.ndarray) -> np.ndarray:
    """X_t(p) for t = noise^{-1/2}, from the density on a fine grid."""
    x, w = cosine_rule(prior, noise, 20_000)
    cumulative = np.cumsum(prior.density(x, noise) * w)
    cumulative -= 0.5 * prior.density(x, noise) * w
    return np.interp(shares * cumulative[-1], cumulative, x) / math.sqrt(noise)


@prior_cases
def test_relative_error_from_density_and_from_quantiles(prior) -> None:
    """replica:ratio, both forms."""
    noise = 0.8
    x, w = cosine_rule(prior, noise)
    density = prior.density(x, noise)
    ratio = prior.mmse(noise) / noise
    cubed = noise * np.sum(density**3 * w)
    assert 1 - 4 * math.pi**2 / 3 * cubed == pytest.approx(ratio, rel=1e-5)
    shares = np.linspace(0, 1, 40_001)
    gaps = np.diff(quantiles(prior, noise, shares)) * 40_000
    assert 1 - 4 * math.pi**2 / 3 * np.mean(gaps**-2.0) == pytest.approx(ratio, abs=2e-3)


@prior_cases
def test_resolvent_moves_with_the_denoiser(prior) -> None:
    """replica:transport at a complex point: exact for finite matrices, and its limit."""
    rng, d, t, z = np.random.default_rng(1), 400, 1.3, 0.4 + 0.9j
    s, noise = prior.sample(d, rng), WignerPrior().sample(d, rng)
    step = 1e-4

    def trace(t: float, z: complex, weight: np.ndarray) -> complex:
        return np.trace(weight @ np.linalg.inv(z * np.eye(d) - t * s - noise)) / d

    one = np.eye(d)
    in_t = (trace(t + step, z, one) - trace(t - step, z, one)) / (2 * step)
    in_z = (trace(t, z + step, s) - trace(t, z - step, s)) / (2 * step)
    assert abs(in_t + in_z) < 1e-6
    g = trace(t, z, one)
    assert abs(((z - g) * g - 1) / t - trace(t, z, s)) < 0.03


@prior_cases
def test_density_obeys_the_equation_of_continuity(prior) -> None:
    """replica:continuity: the share below a point changes by the current through it."""
    t, step = 1.1, 1e-3

    def noise_of(t: float) -> float:
        return t**-2

    low, high = prior.support(noise_of(t))[0] * t
    for x in low + (high - low) * np.array([0.3, 0.6]):

        def below(t: float, x: float = x) -> float:
            nodes, w = cosine_rule(prior, noise_of(t), 20_000)
            mass = prior.density(nodes, noise_of(t)) * w
            return float(np.interp(x, nodes * t, np.cumsum(mass) - 0.5 * mass))

        lam = x / t
        current = prior.density(lam, noise_of(t)) / t * prior.shrink(lam, noise_of(t))
        in_time = (below(t + step) - below(t - step)) / (2 * step)
        assert in_time == pytest.approx(-float(current), abs=1e-3)


@prior_cases
def test_quantiles_follow_the_denoiser_and_separate(prior) -> None:
    """replica:quantiles."""
    t, step = 1.2, 1e-3
    shares = np.array([0.08, 0.3, 0.62, 0.9])
    high, here, low = (quantiles(prior, s**-2.0, shares) for s in (t + step, t, t - step))
    speed = (high - low) / (2 * step)
    assert speed == pytest.approx(prior.shrink(here / t, t**-2.0), abs=2e-3)
    assert np.all(np.diff(high) > np.diff(low))


@prior_cases
@pytest.mark.parametrize("noise", [0.3, 2.0])
def test_slope_of_the_relative_error(prior, noise) -> None:
    """replica:ratio-slope."""
    x, w = cosine_rule(prior, noise)
    rise = slopes(prior, noise, x, distance_to_edges(prior, noise, x))
    spectral = -4 * math.pi**2 / 3 * np.sum(prior.density(x, noise) ** 3 * rise * w)
    step = 1e-4 * noise
    direct = prior.mmse(noise + step) / (noise + step) - prior.mmse(noise - step) / (noise - step)
    assert direct / (2 * step) == pytest.approx(spectral, rel=1e-3)
    assert spectral < 0


@pytest.mark.parametrize("channel", [SoftmaxChannel(2), HardmaxChannel(2), LinearChannel(1, 0.2)])
@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.9])
def test_iteration_is_monotone_and_potential_has_one_maximum(channel, alpha) -> None:
    """replica:map, replica:existence, replica:output-derivative: parts 1 to 4 of replica-unique."""
    prior = WishartPrior(0.5)
    total, start = prior.second_moment, prior.variance
    v = start * np.linspace(0.01, 1, 60)
    c = channel.information(total - v, total)
    assert np.all(np.diff(v / c) >= -1e-12)
    image = prior.mmse(v / (2 * alpha * c))
    assert np.all(np.diff(image) >= -1e-10)
    full = channel.information_at(1e-14, total)
    exists = 2 * alpha * full < prior.degrees_of_freedom
    assert fixed_points(alpha, prior, channel, resolution=100).size == int(exists)
    fixed = bayes_optimal(alpha, prior, channel).estimation_error
    assert (fixed > 0) == exists
    assert np.all((image < v) == (v > fixed))
    path = state_evolution(alpha, prior, channel, iterations=60)
    assert np.all(np.diff(path) <= 1e-12)
    assert np.all(path >= fixed - 1e-9)
    noises = np.logspace(-7, 7, 4000)
    conjugate = np.exp(-np.interp(v, prior.mmse(noises), np.log(noises)))
    phi = np.array(
        [
            free_entropy(total - vi, h, alpha, prior, channel)
            for vi, h in zip(v, conjugate, strict=True)
        ]
    )
    rising = np.diff(phi) < 0  # towards larger error, that is smaller overlap
    middle = 0.5 * (v[1:] + v[:-1])
    away = np.abs(middle - fixed) > 0.02
    assert np.array_equal(rising[away], (middle > fixed)[away])


def test_potential_at_perfect_recovery() -> None:
    """replica:boundary: its coefficient of log V, below and above the threshold."""
    prior, channel = WishartPrior(0.5), SoftmaxChannel(2)
    v = np.array([1e-5, 1e-6])
    noises = np.logspace(-8, -3, 4000)
    conjugate = np.exp(-np.interp(np.log(v), np.log(prior.mmse(noises)), np.log(noises)))
    for alpha in (0.1, 0.3):
        high, low = (
            free_entropy(prior.second_moment - a, h, alpha, prior, channel)
            for a, h in zip(v, conjugate, strict=True)
        )
        coefficient = prior.degrees_of_freedom / 4 - alpha * 2 / 2
        assert (high - low) / math.log(10) == pytest.approx(coefficient, abs=1e-3)


# --- chapter "cross_attention" -----------------------------------------------------------------

SHAPES = [(0.5, 1.0), (0.5, 0.6), (1.2, 2.0), (0.2, 3.0)]
shapes = pytest.mark.parametrize(("rho", "psi"), SHAPES)


@shapes
@pytest.mark.parametrize("noise", [0.1, 0.7])
def test_two_terms_of_the_relative_error(rho, psi, noise) -> None:
    """cross_attention:ratio-quantiles, in its form with densities."""
    prior = BilinearPrior(rho, psi)
    x, w = cosine_rule(prior, noise)
    density = prior.density(x, noise) * min(1.0, psi)
    cubed = noise * np.sum(density**3 * w)
    inverse = noise * np.sum(density / x**2 * w) if psi != 1 else 0.0
    value = psi - math.pi**2 / 3 * cubed - (1 - psi) ** 2 * inverse
    assert prior.mmse(noise) / noise == pytest.approx(value, rel=1e-4)


@shapes
def test_slope_of_the_relative_error_for_rectangles(rho, psi) -> None:
    """cross_attention:ratio-slope."""
    prior, t = BilinearPrior(rho, psi), 1.4
    noise = t**-2
    x, w = cosine_rule(prior, noise)
    rise = slopes(prior, noise, x, distance_to_edges(prior, noise, x))
    density, best = prior.density(x, noise) * min(1.0, psi), prior.shrink(x, noise)
    assert np.all(rise > -1e-6)
    assert np.all(best >= 0)
    # nu_t(tx) t = mu(x), D_t'(tx) = D'(x)/t
    first = math.pi**2 / 3 * np.sum(density**3 * rise * w) / t**3
    second = (1 - psi) ** 2 * np.sum(density * best / x**3 * w) / t**3 if psi != 1 else 0.0
    step = 1e-4
    ratio = [prior.mmse(s**-2.0) * s**2 for s in (t + step, t - step)]
    assert (ratio[0] - ratio[1]) / (2 * step) == pytest.approx(2 * (first + second), rel=2e-3)


def test_singular_values_move_with_the_denoiser() -> None:
    """cross_attention:transport: exact at finite size, and its limit on the axis."""
    rng, d, keys, t, z = np.random.default_rng(2), 150, 240, 1.3, 0.6 + 0.8j
    prior = BilinearPrior(0.4, keys / d)
    s = prior.sample(d, rng)
    noise = rng.standard_normal((d, keys)) / math.sqrt(d)

    def larger(matrix: np.ndarray) -> np.ndarray:
        return np.block([[np.zeros((d, d)), matrix], [matrix.T, np.zeros((keys, keys))]])

    def resolvent(t: float, z: complex) -> np.ndarray:
        return np.linalg.inv(z * np.eye(d + keys) - larger(t * s + noise))

    step = 1e-4
    in_t = np.trace(resolvent(t + step, z) - resolvent(t - step, z)) / (2 * step * d)
    mixed = [np.sum(s * resolvent(t, z + e)[:d, d:]) / d for e in (step, -step)]
    assert abs(in_t + 2 * (mixed[0] - mixed[1]) / (2 * step)) < 1e-6
    # M by the singular values of t S + Z and the denoiser, against the trace
    lam = np.linalg.svd(t * s + noise, compute_uv=False)
    limit = np.sum(lam * prior.shrink(lam / t, t**-2.0, "edge") / (z**2 - lam**2)) / d
    assert abs(limit - np.sum(s * resolvent(t, z)[:d, d:]) / d) < 0.02


def test_posterior_mean_of_a_rectangle_keeps_the_order() -> None:
    """cross_attention:order: brute force over two rotations of 2 x 2 singular values."""
    noise, rng = 0.4, np.random.default_rng(4)
    angles = (np.arange(240) + 0.5) * 2 * math.pi / 240
    turn = np.stack([np.cos(angles), -np.sin(angles), np.sin(angles), np.cos(angles)], 1)
    turn = turn.reshape(-1, 2, 2)
    spectrum = np.diag([1.5, 0.3])
    flipped = np.diag([1.5, -0.3])  # reflections, the other half of the orthogonal group
    candidates = np.concatenate(
        [
            np.einsum("aij,jk,blk->abil", turn, m, turn).reshape(-1, 2, 2)
            for m in (spectrum, flipped)
        ]
    )
    for _ in range(4):
        seen = candidates[rng.integers(len(candidates))] + math.sqrt(
            noise / 2
        ) * rng.standard_normal((2, 2))
        energy = np.sum((seen - candidates) ** 2, axis=(1, 2)) / noise
        weight = np.exp(energy.min() - energy)
        mean = np.einsum("k,kij", weight / weight.sum(), candidates)
        left, lam, right = np.linalg.svd(seen)
        best = left.T @ mean @ right.T
        assert abs(best[0, 1]) + abs(best[1, 0]) < 1e-8
        assert best[0, 0] >= best[1, 1]
        assert best[0, 0] + best[1, 1] >= 0
        assert lam[0] >= lam[1]


def test_outlying_singular_value_and_its_vectors() -> None:
    """cross_attention:outlier."""
    d, psi, strength, rng = 600, 2.0, 2.2, np.random.default_rng(6)
    keys, positions, overlaps = int(psi * d), [], []
    for _ in range(6):
        matrix = rng.standard_normal((d, keys)) / math.sqrt(d)
        matrix[0, 0] += strength
        left, lam, right = np.linalg.svd(matrix, full_matrices=False)
        positions.append(lam[0])
        overlaps.append(left[0, 0] * right[0, 0])
    place = math.sqrt((strength**2 + psi) * (strength**2 + 1)) / strength
    overlap = (strength**4 - psi) / (strength**3 * place)
    for values, exact in ((positions, place), (overlaps, overlap)):
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert np.mean(values) == pytest.approx(exact, abs=5 * error + 0.005)
        assert error < 0.02


@shapes
def test_potential_of_all_singular_values(rho, psi) -> None:
    """cross_attention:potential, outside the support, against the integral of the density."""
    prior, noise = BilinearPrior(rho, psi), 0.5
    x, w = cosine_rule(prior, noise)
    z = float(prior.support(noise)[-1, 1]) * 1.3
    density = prior.density(x, noise) * min(1.0, psi)
    direct = np.sum(density * np.log(z**2 - x**2) * w) + abs(1 - psi) * math.log(z)
    n = float(np.sum(density * x**2 / (z**2 - x**2) * w))
    p = (1 + n) * (psi + n) / z**2
    closed = 2 * n - noise * p + rho * math.log(1 - p / (psi * rho)) + psi * math.log(psi)
    closed += (1 - psi) / 2 * math.log((psi + n) / (1 + n)) - (1 + psi) / 2 * math.log(p)
    assert closed == pytest.approx(direct, abs=1e-4)


@pytest.mark.parametrize(
    "channel", [cross_attention.SoftmaxChannel(2, 3), cross_attention.HardmaxChannel(2)]
)
@pytest.mark.parametrize("psi", [0.6, 1.0])
def test_one_fixed_point_for_cross_attention(channel, psi) -> None:
    """cross-attention-unique: monotone iteration, and its end is the solution."""
    prior = BilinearPrior(0.4, psi)
    v = np.linspace(0.02, 1, 40)
    c = channel.information(1 - v, 1.0)
    assert np.all(np.diff(c) >= -1e-10)
    assert np.all(np.diff(v / c) >= -1e-12)
    for alpha in (0.05, 0.2):
        image = prior.mmse(v / (alpha * c))
        fixed = bayes_optimal(alpha, prior, channel).estimation_error
        assert np.all((image < v) == (v > fixed))


def test_single_sign_by_the_formula_for_any_channel() -> None:
    """channels:diminishing once more, for one sign, by quadrature: c = E phi^2/(Phi Phi(-))."""

    def average(function, q: float) -> float:
        v = 1 - q
        return integrate.quad(
            lambda w: function(w) * stats.norm.pdf(w, scale=math.sqrt(q / v)), -30, 30, limit=400
        )[0]

    def information(w: float) -> float:
        return float(stats.norm.pdf(w) ** 2 / (stats.norm.cdf(w) * stats.norm.sf(w)))

    def spread(w: float) -> float:  # E K(1 - K) over the two signs, K the truncated variance
        total = 0.0
        for s in (w, -w):
            hazard = math.exp(stats.norm.logpdf(s) - stats.norm.logcdf(s))
            k = 1 - hazard * (hazard + s)
            total += float(stats.norm.cdf(s)) * k * (1 - k)
        return total

    q, step = 0.4, 1e-4
    slope = (average(information, q + step) - average(information, q - step)) / (2 * step)
    assert slope == pytest.approx(-average(spread, q) / (1 - q), rel=1e-4)


def test_output_function_matches_the_mean_used_here() -> None:
    """The Jacobian K of whitened_covariances and channels:gout describe one posterior."""
    channel, rng = HardmaxChannel(2), np.random.default_rng(8)
    omega = np.array([[[0.3, -0.2], [-0.2, 0.5]]])
    y = channel.output(rng.standard_normal((1, 1, 1)) * np.ones((1, 2, 2)) + omega)
    g = output_function(channel, y, omega, 0.6)
    mean = channel.posterior_mean(y, omega, 0.6)
    assert g[0, 0, 1] == pytest.approx((mean - omega)[0, 0, 1] / 0.6)
