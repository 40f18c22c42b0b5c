"""Cross-attention: the rectangular denoiser, its channels, state evolution and message passing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from aimlib import (
    bayes_optimal,
    state_evolution,
    strong_recovery_threshold,
)
from aimlib._quadrature import MASS, rectangular_average
from aimlib._shrinkage import denoise_rectangular
from aimlib.cross_attention import BilinearPrior, Dataset, Model, amp, indices
from aimlib.cross_attention import HardmaxChannel as CrossHardmaxChannel
from aimlib.cross_attention import LinearChannel as CrossLinearChannel
from aimlib.cross_attention import SoftmaxChannel as CrossSoftmaxChannel
from aimlib.cross_attention import weak_recovery_threshold as cross_weak_recovery_threshold

SHAPES = [(0.5, 1.0), (2.0, 1.0), (0.5, 2.0), (0.3, 0.5)]


def observe(prior, dimension, noise, seed):
    rng = np.random.default_rng(seed)
    s = prior.sample(dimension, rng)
    return s, s + math.sqrt(noise / dimension) * rng.standard_normal(s.shape)


def curve(rho, psi, noise, lam):
    """cross_attention:curve at one singular value, by the companion matrix: P, N and a + b."""
    pole = psi * rho
    first = np.poly1d([-noise, noise * pole - 1 + rho, pole])
    second = np.poly1d([-noise, noise * pole - psi + rho, psi * pole])
    quartic = first * second - np.poly1d([float(lam) ** 2, 0.0]) * np.poly1d([1.0, -pole]) ** 2
    p = min(quartic.roots, key=lambda root: root.imag)
    n = rho * p / (pole - p) + noise * p
    return p, n, (1 + psi + 2 * n) / lam


# --- the spectrum and the denoiser -------------------------------------------------------------


@pytest.mark.parametrize(("rho", "psi"), SHAPES)
def test_moments_of_the_clean_matrix(rho, psi) -> None:
    """cross_attention:clean, expanded to 1/w^2: E s^2 = 1 and E s^4 = 1 + 1/rho + 1/psi."""
    prior, d = BilinearPrior(rho, psi), 400
    s = prior.sample(d, 1)
    gram = s @ s.T
    assert np.trace(gram) / d == pytest.approx(prior.second_moment, rel=0.02)
    assert np.sum(gram * gram) / d == pytest.approx(1 + 1 / rho + 1 / psi, rel=0.05)
    w = 60.0 * (1 + 1 / rho + 1 / psi)
    m = np.sum(gram * np.linalg.inv(w * np.eye(d) - gram)) / d
    assert w * m == pytest.approx((1 + m) * (1 + m / rho) * (1 + m / psi), rel=0.02)


@pytest.mark.parametrize("noise", [0.05, 1.0])
@pytest.mark.parametrize(("rho", "psi"), SHAPES)
def test_resolvents_of_a_large_matrix(rho, psi, noise) -> None:
    """cross_attention:resolvents and cross_attention:curve away from the axis, d = 600."""
    prior, d = BilinearPrior(rho, psi), 600
    _, r = observe(prior, d, noise, 2)
    z = 1.5 + 0.7j
    lam2 = np.linalg.svd(r, compute_uv=False) ** 2
    n = np.sum(lam2 / (z * z - lam2)) / d
    a, b = (1 + n) / z, (psi + n) / z
    p = a * b
    assert abs(n - (rho * p / (psi * rho - p) + noise * p)) < 0.02
    assert abs(z * z * p - (1 + n) * (psi + n)) < 1e-10


@pytest.mark.parametrize(("rho", "psi"), SHAPES)
def test_subordination_of_a_large_matrix(rho, psi) -> None:
    """cross_attention:block, cross_attention:moments and cross_attention:subordination, d = 250."""
    prior, d, noise, z = BilinearPrior(rho, psi), 250, 0.4, 1.2 + 0.8j
    s, r = observe(prior, d, noise, 11)
    keys = s.shape[1]
    block = np.block([[np.zeros((d, d)), r], [r.T, np.zeros((keys, keys))]])
    g = np.linalg.inv(z * np.eye(d + keys) - block)
    a, b = np.trace(g[:d, :d]) / d, np.trace(g[d:, d:]) / d
    lam2 = np.linalg.svd(r, compute_uv=False) ** 2
    n = np.sum(lam2 / (z * z - lam2)) / d
    assert abs(z * a - 1 - n) < 1e-10
    assert abs(z * b - psi - n) < 1e-10
    first, second = z - noise * b, z - noise * a
    left, clean, right = np.linalg.svd(s, full_matrices=False)
    m = np.sum(clean**2 / (first * second - clean**2)) / d
    assert abs(first * a - 1 - m) < 0.02
    assert abs(second * b - psi - m) < 0.02
    mixed = np.einsum("ik,ij,kj->k", left, g[:d, d:], right)
    expected = clean / (first * second - clean**2)
    assert abs(np.mean(mixed - expected)) < 0.01
    assert abs(np.sum(clean * mixed) / d - m) < 0.02


@pytest.mark.parametrize(("rho", "psi"), SHAPES)
def test_columns_of_the_product(rho, psi) -> None:
    """cross_attention:column, with the eigenvalues of one K at d = 800."""
    d, rng = 800, np.random.default_rng(12)
    width, keys = round(rho * d), round(psi * d)
    k = rng.standard_normal((keys, width))
    beta = np.linalg.eigvalsh(k.T @ k / keys)
    q = rng.standard_normal((d, width))
    squares = np.linalg.svd(q @ k.T / math.sqrt(width * keys), compute_uv=False) ** 2
    w = 1.5 * squares.max()
    g = (np.sum(1 / (w - squares)) + (d - squares.size) / w) / d
    assert 1 / g + np.mean(beta / (1 - beta * g / rho)) == pytest.approx(w, rel=0.01)
    moment = np.mean(beta / (rho / g - beta))
    assert rho * moment == pytest.approx(w * g - 1, rel=0.02)


@pytest.mark.parametrize("noise", [0.02, 0.7])
@pytest.mark.parametrize(("rho", "psi"), SHAPES)
def test_products_of_the_roots(rho, psi, noise) -> None:
    """cross_attention:vieta and the lemma: the complex pair from the two real roots."""
    pole = psi * rho
    for low, high in BilinearPrior(rho, psi).support(noise):
        lam = low + 0.3 * (high - low)
        p, n, _ = curve(rho, psi, noise, lam)
        first = np.poly1d([-noise, noise * pole - 1 + rho, pole])
        second = np.poly1d([-noise, noise * pole - psi + rho, psi * pole])
        square = np.poly1d([float(lam) ** 2, 0.0]) * np.poly1d([1.0, -pole]) ** 2
        roots = (first * second - square).roots
        real = roots[np.abs(roots.imag) < 1e-9 * np.abs(roots)].real - pole
        assert real.size == 2
        assert (real > 0).all()
        k = noise**2 * real.prod() / (psi * rho**2)
        assert k == pytest.approx(psi * rho**2 / abs(pole - p) ** 2, rel=1e-7)
        size = psi**3 * rho**2 / (noise**2 * (pole + real).prod())
        assert abs(p) ** 2 == pytest.approx(size, rel=1e-7)
        assert abs(1 + n) * abs(psi + n) == pytest.approx(lam**2 * abs(p), rel=1e-7)
        assert 2 * n.real == pytest.approx(lam**2 / (k + noise) - 1 - psi, abs=1e-7)


@pytest.mark.parametrize("noise", [0.02, 0.7, 30.0])
@pytest.mark.parametrize(("rho", "psi"), [*SHAPES, (1.0, 1.0), (0.02, 1.0)])
def test_density_and_denoiser_by_the_roots_of_the_quartic(rho, psi, noise) -> None:
    """cross_attention:density, cross_attention:denoiser and cross_attention:ratio."""
    prior = BilinearPrior(rho, psi)
    for low, high in prior.support(noise):
        for share in (0.1, 0.4, 0.9):
            lam = low + share * (high - low)
            p, n, speed = curve(rho, psi, noise, lam)
            expected = 2 / math.pi * abs(n.imag) / lam / min(1, psi)
            assert prior.density(lam, noise) == pytest.approx(expected, rel=1e-7)
            k = psi * rho**2 / abs(psi * rho - p) ** 2
            denoised = float(prior.shrink(lam, noise))
            assert denoised == pytest.approx(lam - noise * speed.real, abs=1e-8 * lam)
            assert denoised == pytest.approx(lam * k / (k + noise), rel=1e-7)
            assert k == pytest.approx(((n - noise * p).imag / p.imag), rel=1e-7)


@pytest.mark.parametrize(("rho", "psi"), [*SHAPES, (1.0, 1.0), (1e-3, 1.0), (100.0, 0.2)])
def test_density_integrates_to_one_at_any_noise(rho, psi) -> None:
    for noise in (1e-8, 1e-4, 0.1, 1.0, 1e3, 1e6):
        mass = rectangular_average(rho, psi, noise, MASS)
        assert mass == pytest.approx(min(1.0, psi), rel=1e-10)
        assert (np.diff(BilinearPrior(rho, psi).support(noise).ravel()) > 0).all()


def test_density_integrates_to_one_through_the_merging_of_two_parts() -> None:
    merging = 0.7087280002976835  # of rho = 0.2, psi = 1, bisected on the number of parts
    counts = set()
    for shift in (-1e-3, -1e-6, -1e-10, 0.0, 1e-10, 1e-6, 1e-3):
        noise = merging * (1 + shift)
        counts.add(len(BilinearPrior(0.2).support(noise)))
        mass = rectangular_average(0.2, 1.0, noise, MASS)
        assert mass == pytest.approx(1.0, rel=1e-11)
    assert counts == {1, 2}


@pytest.mark.parametrize("noise", [0.05, 1.0])
@pytest.mark.parametrize(("rho", "psi"), SHAPES)
def test_denoiser_against_oracle_overlaps(rho, psi, noise) -> None:
    """cross_attention:overlap: u_i^T S v_i of a matrix with d = 500, averaged over its tenths."""
    prior = BilinearPrior(rho, psi)
    s, r = observe(prior, 500, noise, 3)
    left, lam, right = np.linalg.svd(r, full_matrices=False)
    oracle = np.einsum("ik,ij,kj->k", left, s, right)
    ours = prior.shrink(lam, noise, "edge")
    for part in np.array_split(np.arange(lam.size), 10):
        assert abs(oracle[part].mean() - ours[part].mean()) < 0.025 * lam[0]


@pytest.mark.parametrize("noise", [0.1, 1.0])
@pytest.mark.parametrize(("rho", "psi"), SHAPES)
def test_mmse_by_monte_carlo(rho, psi, noise) -> None:
    """cross_attention:mmse at d = 1000, relative to the norm of the teacher that was drawn."""
    prior, d = BilinearPrior(rho, psi), 1000
    s, r = observe(prior, d, noise, 4)
    error = np.sum((s - prior.denoise(r, noise)) ** 2) / np.sum(s * s)
    assert error == pytest.approx(prior.mmse(noise), abs=3e-3)


@pytest.mark.parametrize("noise", [0.03, 0.4, 5.0])
@pytest.mark.parametrize(("rho", "psi"), [*SHAPES, (1.0, 1.0)])
def test_information_and_error(rho, psi, noise) -> None:
    """cross_attention:i-mmse, and cross_attention:information at large noise."""
    prior = BilinearPrior(rho, psi)
    step = 1e-4 / noise
    above = prior.information(1 / (1 / noise + step))
    below = prior.information(1 / (1 / noise - step))
    assert 2 * (above - below) / (2 * step) == pytest.approx(prior.mmse(noise), rel=2e-7)
    assert 2e4 * prior.information(1e4) == pytest.approx(1.0, abs=2e-4)


@pytest.mark.parametrize(
    ("rho", "psi", "noise"), [(0.5, 2.0, 0.7), (0.3, 0.5, 0.5), (2.0, 0.4, 0.05), (1.5, 3.0, 30.0)]
)
def test_information_is_the_energy_of_the_singular_values(rho, psi, noise) -> None:
    """cross_attention:information from the density, log|x - y| by its Chebyshev series."""
    prior = BilinearPrior(rho, psi)
    ((low, high),) = prior.support(noise)
    count = 3000
    t = (np.arange(count) + 0.5) * np.pi / count
    centre, half = (low + high) / 2, (high - low) / 2
    lam = centre + half * np.cos(t)
    mass = min(1, psi) * prior.density(lam, noise) * half * np.sin(t) * np.pi / count
    orders = np.arange(1, 400)
    series = np.cos(np.outer(orders, t)) @ mass
    energy = mass.sum() ** 2 * math.log(half / 2) - 2 * np.sum(series**2 / orders)
    energy += mass @ np.log(lam[:, None] + lam) @ mass
    energy = 0.5 * energy + abs(1 - psi) * mass @ np.log(lam)
    pure = psi**2 * math.log(psi) / 4 - (1 - psi) ** 2 * math.log(abs(1 - psi)) / 4 - psi / 4
    expected = energy - psi / 2 * math.log(noise) - pure
    assert prior.information(noise) == pytest.approx(expected, abs=1e-9)


def test_information_keeps_its_digits_at_large_noise() -> None:
    """I = 1/(2 Delta) - 1/(4 psi Delta^2) + ..., where the energy cancels against pure noise."""
    for rho, psi in ((100.0, 100.0), (1e-3, 1e6), (1.0, 1.0), (0.5, 2.0)):
        for noise in (1e6, 1e9):
            scaled = 2.0 * noise * BilinearPrior(rho, psi).information(noise)
            next_order = (1.0 + psi + rho) / (2.0 * rho * psi * noise) + 1.0 / (2.0 * psi * noise)
            assert scaled == pytest.approx(1.0 - 0.5 / (psi * noise), abs=next_order**2 + 1e-13)


def test_information_grows_by_the_degrees_of_freedom() -> None:
    """At small noise dI/dlog(1/Delta) tends to kappa/2, and the difference is the integral."""
    for rho, psi in ((0.5, 1.0), (0.3, 3.0), (1e-3, 1e6)):
        prior = BilinearPrior(rho, psi)
        nodes, weights = np.polynomial.legendre.leggauss(12)
        snr = 0.5 * 1e8 * (1.5 + 0.5 * nodes)
        integral = 0.5 * 0.25e8 * np.sum(weights * prior.mmse(1 / snr))
        difference = prior.information(1e-8) - prior.information(2e-8)
        assert difference == pytest.approx(integral, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("noise", [1e-8, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize(
    ("rho", "psi"), [(1e-3, 1e6), (0.01, 1e-3), (1.0, 1e6), (0.1, 0.999), (100.0, 100.0)]
)
def test_extreme_shapes_may_be_exchanged(rho, psi, noise) -> None:
    """cross_attention:transpose with full accuracy where one dimension dwarfs the other."""
    exchanged = BilinearPrior(rho / psi, 1 / psi).mmse(psi**2 * noise)
    assert exchanged == pytest.approx(BilinearPrior(rho, psi).mmse(noise), rel=3e-11)


@pytest.mark.parametrize(("rho", "psi"), SHAPES)
def test_error_is_that_of_second_moments(rho, psi) -> None:
    """cross_attention:two-forms: mmse = 1 - E D^2 and = psi Delta - Delta^2 E s^2."""
    prior, noise = BilinearPrior(rho, psi), 0.3

    def average(function):
        return min(1, psi) * sum(
            integrate.quad(
                lambda t, c=(lo + hi) / 2, h=(hi - lo) / 2: (
                    function(c + h * math.cos(t))
                    * prior.density(c + h * math.cos(t), noise)
                    * h
                    * math.sin(t)
                ),
                0,
                math.pi,
                epsabs=1e-10,
            )[0]
            for lo, hi in prior.support(noise)
        )

    square = average(lambda lam: float(prior.shrink(lam, noise)) ** 2)
    speed = average(lambda lam: ((lam - float(prior.shrink(lam, noise))) / noise) ** 2)
    assert 1 - square == pytest.approx(prior.mmse(noise), abs=1e-7)
    assert psi * noise - noise**2 * speed == pytest.approx(prior.mmse(noise), abs=1e-7)


@pytest.mark.parametrize(("rho", "psi"), [*SHAPES, (0.01, 1.0), (0.2, 3.0)])
def test_small_noise_counts_degrees_of_freedom(rho, psi) -> None:
    """cross_attention:degrees, against the count of parameters of a matrix of rank r."""
    prior, d = BilinearPrior(rho, psi), 10_000
    rank, keys = min(round(rho * d), d, round(psi * d)), round(psi * d)
    count = rank * (d + keys - rank) / d**2
    assert prior.degrees_of_freedom == pytest.approx(count, rel=1e-3)
    assert prior.mmse(1e-9) / 1e-9 == pytest.approx(count, rel=1e-3)


@pytest.mark.parametrize("psi", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("rho", [0.05, 0.3, 0.8, 1.0, 2.0, 10.0])
def test_error_over_noise_decreases(rho, psi) -> None:
    """What makes the solution of cross_attention:saddle unique where c does not grow with q."""
    noises = np.geomspace(1e-6, 1e4, 40)
    error = np.array([BilinearPrior(rho, psi).mmse(noise) for noise in noises])
    assert np.all(np.diff(error / noises) < 0)


@pytest.mark.parametrize("psi", [0.5, 1.0, 3.0])
def test_large_width_is_gaussian(psi) -> None:
    """cross_attention:gaussian: shrinkage by 1/(1 + psi Delta)."""
    prior, noise = BilinearPrior(1e7, psi), 0.6
    assert prior.mmse(noise) == pytest.approx(psi * noise / (1 + psi * noise), rel=1e-6)
    lam = prior.support(noise).mean()
    assert float(prior.shrink(lam, noise)) == pytest.approx(lam / (1 + psi * noise), rel=1e-6)
    expected = 0.5 * psi * math.log1p(1 / (psi * noise))
    assert prior.information(noise) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("noise", [1e-3, 0.5, 20.0])
@pytest.mark.parametrize(("rho", "psi"), [(0.5, 2.0), (0.1, 1.3), (4.0, 5.0)])
def test_queries_and_keys_may_be_exchanged(rho, psi, noise) -> None:
    """cross_attention:transpose."""
    exchanged = BilinearPrior(rho / psi, 1 / psi)
    assert exchanged.mmse(psi**2 * noise) == pytest.approx(
        BilinearPrior(rho, psi).mmse(noise), rel=1e-10
    )


def test_denoiser_outside_the_support_is_continuous() -> None:
    prior, noise = BilinearPrior(0.1, 1.5), 0.05
    edges = prior.support(noise).ravel()
    assert edges.size == 4
    for edge in edges:
        inside_out = edge + 1e-7 * np.array([-1.0, 1.0])
        for outside in ("resolvent", "edge"):
            below, above = prior.shrink(inside_out, noise, outside)
            assert abs(above - below) < 2e-3
    far = 50.0  # D = lambda (1 - Delta s/lambda) with s -> (1 + psi)/lambda
    assert float(prior.shrink(far, noise)) == pytest.approx(far - noise * 2.5 / far, rel=1e-6)


@pytest.mark.parametrize(("rho", "psi", "noise"), [(0.5, 1, 1.0), (0.5, 2, 0.3), (0.1, 0.5, 0.01)])
def test_denoiser_exactly_at_the_edges(rho, psi, noise) -> None:
    prior = BilinearPrior(rho, psi)
    edges = prior.support(noise).ravel()
    held = prior.shrink(edges, noise, "edge")
    np.testing.assert_allclose(prior.shrink(edges, noise), held, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("psi", [0.5, 2.0])
def test_denoiser_is_bounded_far_below_the_support(psi) -> None:
    """Where d and d' differ the resolvents diverge at zero; D does not."""
    prior = BilinearPrior(0.5, psi)
    low = prior.support(1.0)[0, 0]
    values = prior.shrink(low * np.array([0.0, 1e-300, 1e-9, 0.1, 0.9, 0.999]), 1.0)
    assert np.all(values >= 0.0)
    assert np.all(values <= low)
    rank_one = np.ones(prior.shape(6))
    assert np.abs(prior.denoise(rank_one, 1.0)).max() < 1.0


# --- channels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (3, 4)])
def test_softmax_mean_by_gaussian_conditioning(shape) -> None:
    """cross_attention:softmax: condition on the differences inside each row."""
    rng, (t, s), v = np.random.default_rng(5), shape, 0.6
    channel = CrossSoftmaxChannel(t, s, 1.7)
    omega, h = rng.standard_normal((2, t, s))
    mean = channel.posterior_mean(channel.output(h), omega, v)
    differences = np.diff(np.eye(s), axis=0)
    gain = v * differences.T @ np.linalg.inv(v * differences @ differences.T)
    expected = omega + (h - omega) @ (gain @ differences).T
    np.testing.assert_allclose(mean, expected, atol=1e-11)
    assert channel.information(0.3, 1.0) == t * np.linalg.matrix_rank(gain @ differences)


def test_hardmax_mean_by_quadrature() -> None:
    """cross_attention:hardmax."""
    channel, v, omega = CrossHardmaxChannel(1), 0.8, np.array([[0.3, -0.9]])
    for y in (np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])):
        sign = y[0, 0] - y[0, 1]
        centre = omega[0, 0] - omega[0, 1]
        law = stats.norm(centre, math.sqrt(2 * v))
        limits = {"lb": 0} if sign > 0 else {"ub": 0}
        shift = (law.expect(conditional=True, **limits) - centre) / 2
        expected = omega + np.array([[shift, -shift]])
        np.testing.assert_allclose(channel.posterior_mean(y, omega, v), expected, atol=1e-9)
    far = channel.posterior_mean(np.array([[0.0, 1.0]]), np.array([[60.0, 0.0]]), v)
    assert np.isfinite(far).all()
    assert 0 < far[0, 1] - far[0, 0] < 0.1


@pytest.mark.parametrize("v", [0.9, 0.7, 0.3, 0.02])
@pytest.mark.parametrize(
    "channel", [CrossHardmaxChannel(2), CrossSoftmaxChannel(2, 3), CrossLinearChannel(2, 3, 0.4)]
)
def test_information_by_monte_carlo(channel, v) -> None:
    """cross_attention:information-channel and cross_attention:information-linear."""
    rng, shape = np.random.default_rng(6), (200_000, channel.queries, channel.keys)
    omega = math.sqrt(1 - v) * rng.standard_normal(shape)
    h = omega + math.sqrt(v) * rng.standard_normal(shape)
    y = channel.output(h, rng)
    shift = (channel.posterior_mean(y, omega, v) - omega) / math.sqrt(v)
    squares = np.sum(shift**2, axis=(1, 2))
    error = squares.std() / math.sqrt(squares.size)
    assert abs(squares.mean() - channel.information(1 - v, 1.0)) < 4 * error


@pytest.mark.parametrize("v", [1e-6, 0.01, 0.3, 0.8])
@pytest.mark.parametrize(
    "channel", [CrossHardmaxChannel(3), CrossSoftmaxChannel(2, 4), CrossLinearChannel(2, 2, 0.1)]
)
def test_entropy_and_information(channel, v) -> None:
    """The derivative of the output entropy is c/(2V) (cross_attention:entropy)."""
    step = 1e-4 * v
    above, below = (channel.output_entropy(v + s, 1.0) for s in (step, -step))
    slope = (above - below) / (2 * step)
    assert slope == pytest.approx(channel.information(1 - v, 1.0) / (2 * v), rel=1e-5)


def test_hardmax_information_at_both_ends() -> None:
    """cross_attention:hardmax-ends."""
    channel = CrossHardmaxChannel(2)
    assert channel.information(0.0, 1.0) == pytest.approx(4 / math.pi, rel=1e-12)
    j = integrate.quad(lambda w: stats.norm.pdf(w) ** 2 / stats.norm.cdf([w, -w]).prod(), -9, 9)[0]
    slope = channel.information_at(1e-10, 1.0) / 1e-5
    assert slope == pytest.approx(2 * j / math.sqrt(2 * math.pi), rel=1e-8)


@pytest.mark.parametrize("channel", [CrossSoftmaxChannel(3, 2, 2.0), CrossSoftmaxChannel(2, 3)])
def test_softmax_generalisation_by_monte_carlo(channel) -> None:
    rng, v, shape = np.random.default_rng(7), 0.4, (100_000, channel.queries, channel.keys)
    common = math.sqrt(1 - v) * rng.standard_normal(shape)
    y = [channel.output(common + math.sqrt(v) * rng.standard_normal(shape)) for _ in range(2)]
    expected = 0.5 * np.mean(np.sum((y[0] - y[1]) ** 2, axis=(1, 2)))
    assert channel.generalization_error(v, 1.0) == pytest.approx(expected, rel=0.01)


# --- state evolution ---------------------------------------------------------------------------

# Theory tables of Erba, Troiani, Biggio, Maillard, Zdeborova, "Bilinear sequence regression",
# arXiv:2410.18858, repository SPOC-group/bilinear-sequence-regression, folder MiscTheory:
# (rho, beta, noise, alpha, mmse) with alpha = N/(d L), beta = L/d; solved there to about 1e-8.
PUBLISHED = [
    (0.2, 1.0, 0.0, 0.1, 0.8768906570672924),
    (1.0, 1.0, 0.0, 0.3, 0.6836383134012252),
    (0.2, 1.0, 0.0, 0.3, 0.34740439514921106),
    (0.2, 2.0, 0.0, 0.2, 0.5174961520355468),
    (1.0, 2.0, 0.0, 0.5, 0.4212552036149593),
    (1.0, 1.0, 0.0, 0.9, 0.05908362372118825),
    (0.2, 1.0, 0.1, 0.5, 0.1974013245728793),
    (1.0, 2.0, 0.1, 1.0, 0.2139336815579217),
    (0.2, 2.0, 0.1, 2.0, 0.01614172276546777),
    (0.2, 1.0, 0.0, 0.5, 0.0),
]


@pytest.mark.parametrize(("rho", "beta", "noise", "alpha", "published"), PUBLISHED)
def test_bilinear_sequence_regression(rho, beta, noise, alpha, published) -> None:
    """One query and one key is that model, with alpha n/d^2 = beta N/(d L)."""
    ours = bayes_optimal(alpha * beta, BilinearPrior(rho, beta), CrossLinearChannel(1, 1, noise))
    assert ours.estimation_error == pytest.approx(published, abs=2e-7)
    assert ours.converged


@pytest.mark.parametrize("psi", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("channel", [CrossSoftmaxChannel(2, 3), CrossHardmaxChannel(2)])
def test_saddle_point(channel, psi) -> None:
    """cross_attention:saddle, and the free entropy's derivative cross_attention:free-entropy."""
    prior = BilinearPrior(0.4, psi)
    result = bayes_optimal(0.05, prior, channel)
    v = result.estimation_error
    conjugate = 0.05 * channel.information(1 - v, 1.0) / v
    assert result.conjugate == pytest.approx(conjugate, rel=1e-9)
    assert prior.mmse(1 / conjugate) == pytest.approx(v, rel=1e-9)
    path = state_evolution(0.05, prior, channel, iterations=200)
    assert path[-1] == pytest.approx(v, rel=1e-6)
    above, below = (bayes_optimal(a, prior, channel).free_entropy for a in (0.0505, 0.0495))
    slope = (above - below) / 0.001
    assert slope == pytest.approx(-channel.output_entropy(v, 1.0), rel=1e-3)


def test_thresholds() -> None:
    """cross_attention:threshold and cross_attention:weak."""
    for t, s, psi in ((2, 2, 1.0), (1, 3, 1.0), (3, 2, 2.0)):
        prior, channel = BilinearPrior(0.5, psi), CrossSoftmaxChannel(t, s)
        threshold = strong_recovery_threshold(prior, channel)
        assert threshold == pytest.approx(0.5 * (psi + 0.5) / (t * (s - 1)))
        alphas = [0.999 * threshold, 1.001 * threshold]
        below, above = bayes_optimal(alphas, prior, channel).estimation_error
        assert below > 0
        assert above == 0
    assert math.isinf(strong_recovery_threshold(BilinearPrior(0.5), CrossHardmaxChannel(2)))


@pytest.mark.parametrize("psi", [0.5, 1.0, 2.0])
def test_weak_recovery_at_small_width(psi) -> None:
    """cross_attention:weak and cross_attention:small-width, at rho = 1e-5."""
    rho, channel = 1e-5, CrossHardmaxChannel(2)
    threshold = cross_weak_recovery_threshold(channel, psi)
    prior = BilinearPrior(rho, psi)
    assert bayes_optimal(0.9 * rho * threshold, prior, channel).estimation_error > 0.999
    result = bayes_optimal(1.5 * rho * threshold, prior, channel)
    square = result.conjugate / rho
    expected = (square**2 - psi) ** 2 / (square**2 * (square + psi) * (square + 1))
    assert result.overlap == pytest.approx(expected, rel=1e-2)
    assert result.overlap > 0.1


def test_hardmax_error_at_large_sample_complexity() -> None:
    """cross_attention:hardmax-law: 2 pi (kappa/(T J alpha))^2."""
    prior, channel, alpha = BilinearPrior(0.5), CrossHardmaxChannel(2), 200.0
    expected = 2 * math.pi * (prior.degrees_of_freedom / (2 * 1.8063945711 * alpha)) ** 2
    assert bayes_optimal(alpha, prior, channel).estimation_error == pytest.approx(
        expected, rel=2e-3
    )


# --- the model and message passing -------------------------------------------------------------


def test_indices_are_independent_gaussians() -> None:
    """cross_attention:indices and cross_attention:second-moment."""
    rng, d, n = np.random.default_rng(8), 60, 20_000
    s = BilinearPrior(0.5, 1.5).sample(d, rng)
    h = indices(rng.standard_normal((n, 2, d)), rng.standard_normal((n, 2, 90)), s).reshape(n, 4)
    covariance = np.cov(h.T)
    np.testing.assert_allclose(covariance, np.sum(s * s) / d * np.eye(4), atol=0.05)
    x, z = rng.standard_normal((2, 3, d)), rng.standard_normal((2, 4, 90))
    loop = [[x[1, a] @ s @ z[1, b] / math.sqrt(d) for b in range(4)] for a in range(3)]
    np.testing.assert_allclose(indices(x, z, s)[1], loop, atol=1e-12)


@pytest.mark.parametrize("shape", [(7, 7), (5, 8), (8, 5)])
def test_divergence_is_the_derivative_of_the_denoiser(shape) -> None:
    """cross_attention:divergence, by central differences over all entries."""
    rng, noise, step = np.random.default_rng(9), 0.3, 1e-5
    prior = BilinearPrior(0.4, shape[1] / shape[0])
    observed = rng.standard_normal(shape)
    _, divergence = denoise_rectangular(observed, noise, prior)
    expected = 0.0
    for i, j in np.ndindex(shape):
        bump = np.zeros(shape)
        bump[i, j] = step
        above = denoise_rectangular(observed + bump, noise, prior)[0][i, j]
        below = denoise_rectangular(observed - bump, noise, prior)[0][i, j]
        expected += (above - below) / (2 * step)
    assert divergence == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("psi", [1.0, 1.6])
def test_divergence_tends_to_the_mmse(psi) -> None:
    """cross_attention:stein."""
    prior, noise, d = BilinearPrior(0.5, psi), 0.4, 500
    _, observed = observe(prior, d, noise, 10)
    _, divergence = denoise_rectangular(observed, noise, prior)
    assert noise * divergence / d**2 == pytest.approx(prior.mmse(noise), rel=0.01)


def test_matrix_free_iteration_equals_the_dense_one() -> None:
    """cross_attention:iteration with the tensor of sensing matrices."""
    prior, channel = BilinearPrior(0.5, 1.5), CrossHardmaxChannel(2)
    data = Model(12, prior, channel).sample(1.2, seed=3)
    ours = amp(data, prior, channel, iterations=4, damping=0.25, tolerance=1e-300)
    n, d, keep = len(data.outputs), 12, 0.25
    z = np.einsum("nai,nbj->nabij", data.queries, data.keys) / math.sqrt(d)
    estimate, variance, reaction, g = np.zeros((12, 18)), 1.0, 0.0, np.zeros_like(data.outputs)
    for _ in range(4):
        omega = np.einsum("nabij,ij->nab", z, estimate) - reaction * g
        g = (channel.posterior_mean(data.outputs, omega, variance) - omega) / variance
        slope = n / d * channel.information_at(variance, 1.0) / variance
        noise = np.sum(g * g) / slope**2
        field = estimate + np.einsum("nab,nabij->ij", g, z) / slope
        denoised, divergence = denoise_rectangular(field, noise, prior)
        reaction = divergence / (d * slope)
        estimate = keep * estimate + (1 - keep) * denoised
        variance = keep * variance + (1 - keep) * prior.mmse(noise)
    np.testing.assert_allclose(ours.estimate, estimate, atol=1e-11)


@pytest.mark.parametrize(
    ("channel", "psi", "alpha"),
    [
        (CrossSoftmaxChannel(2, 2), 1.0, 0.2),
        (CrossSoftmaxChannel(1, 3), 2.0, 0.4),
        (CrossHardmaxChannel(2), 1.0, 0.5),
        (CrossLinearChannel(1, 1, 0.1), 1.0, 0.5),
    ],
)
def test_message_passing_follows_state_evolution(channel, psi, alpha) -> None:
    prior = BilinearPrior(0.5, psi)
    model = Model(70, prior, channel)
    results = [amp(model.sample(alpha, k), prior, channel) for k in range(4)]
    assert all(result.converged for result in results)
    errors = [result.estimation_error for result in results]
    expected = bayes_optimal(alpha, prior, channel).estimation_error
    assert np.mean(errors) == pytest.approx(expected, abs=0.03)


def test_message_passing_recovers_beyond_the_threshold() -> None:
    prior, channel = BilinearPrior(0.3, 1.5), CrossSoftmaxChannel(2, 3)
    alpha = 1.3 * strong_recovery_threshold(prior, channel)
    data = Model(60, prior, channel).sample(alpha, seed=1)
    assert amp(data, prior, channel).estimation_error < 1e-4


def test_nothing_diverges_at_small_width() -> None:
    prior = BilinearPrior(0.05)
    for channel, alpha in ((CrossHardmaxChannel(2), 0.05), (CrossSoftmaxChannel(2, 2), 0.03)):
        data = Model(80, prior, channel).sample(alpha, seed=2)
        result = amp(data, prior, channel)
        assert result.status != "diverged"
        assert result.estimation_error < 1.3


def test_few_samples_at_small_width() -> None:
    """An oscillating iteration settles where samples are few, alpha d = 7."""
    prior, channel, alpha = BilinearPrior(0.1), CrossSoftmaxChannel(2, 2), 0.07125
    data = Model(100, prior, channel).sample(alpha, seed=1)
    result = amp(data, prior, channel)
    expected = bayes_optimal(alpha, prior, channel).estimation_error
    assert result.estimation_error == pytest.approx(expected, abs=0.08)
    assert result.history["residual"][-1] < 0.02


# --- untied self-attention -----------------------------------------------------------------------


def test_parts_of_untied_self_attention() -> None:
    """cross_attention:split: which part of S the indices of one sequence see."""
    rng, d = np.random.default_rng(13), 30
    s = BilinearPrior(0.5).sample(d, rng)
    symmetric, antisymmetric = 0.5 * (s + s.T), 0.5 * (s - s.T)
    x = rng.standard_normal((3, d))
    h = (x @ s @ x.T - np.trace(s) * np.eye(3)) / math.sqrt(d)
    seen = (x @ symmetric @ x.T - np.trace(symmetric) * np.eye(3)) / math.sqrt(d)
    np.testing.assert_allclose(0.5 * (h + h.T), seen, atol=1e-12)
    np.testing.assert_allclose(0.5 * (h - h.T), x @ antisymmetric @ x.T / math.sqrt(d), atol=1e-12)


def test_two_noises_couple_left_and_right() -> None:
    """cross_attention:two-likelihoods, as the part that is quadratic in S."""
    rng, d, first, second = np.random.default_rng(14), 12, 0.3, 0.8

    def log_likelihood(r, s):
        parts = [0.5 * ((r - s) + sign * (r - s).T) for sign in (1, -1)]
        return -0.5 * d * (np.sum(parts[0] ** 2) / first + np.sum(parts[1] ** 2) / second)

    r, s = rng.standard_normal((2, d, d))
    values = [log_likelihood(r, sign * s) for sign in (1, -1)]
    quadratic = 0.5 * sum(values) - log_likelihood(r, 0 * s)
    expected = -0.25 * d * (1 / first + 1 / second) * np.sum(s * s)
    expected -= 0.25 * d * (1 / first - 1 / second) * np.trace(s @ s)
    assert quadratic == pytest.approx(expected, rel=1e-10)


# --- the border --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BilinearPrior(0.0), "width_ratio"),
        (lambda: BilinearPrior(1.0, -1.0), "aspect_ratio"),
        (lambda: BilinearPrior(1.0).mmse(0.0), "noise"),
        (lambda: BilinearPrior(1.0).denoise(np.zeros(3), 1.0), "matrix"),
        (lambda: BilinearPrior(0.01).sample(10, 0), "dimension"),
        (lambda: BilinearPrior(10**400), "width_ratio"),
        (lambda: BilinearPrior(b"1"), "width_ratio"),
        (lambda: BilinearPrior(np.array(True)), "width_ratio"),
        (lambda: BilinearPrior(1.0).shrink([-1.0], 1.0), "values"),
        (lambda: BilinearPrior(0.5, 2.0).denoise(np.ones((4, 2)), 1.0), "matrix must have shape"),
        (lambda: CrossHardmaxChannel().information_at(0.0, 0.0), "second_moment"),
        (lambda: CrossSoftmaxChannel().information_at(0.0, None), "second_moment"),
        (
            lambda: indices(np.ones((3, 1, 2)), np.ones((2, 1, 2)), np.eye(2)),
            "keys must have 3 sequences",
        ),
        (lambda: CrossHardmaxChannel(2, 1), "keys"),
        (lambda: CrossSoftmaxChannel(2, 1), "keys"),
        (lambda: CrossLinearChannel(1, 1, 0.5).output(np.zeros((1, 1))), "rng"),
        (lambda: CrossHardmaxChannel(1).posterior_mean([[0.5, 0.5]], [[0.0, 0.0]], 1.0), "one-hot"),
        (lambda: CrossSoftmaxChannel(1, 2).posterior_mean([[1.0, 0.0]], [[0.0, 0.0]], 1.0), "y"),
        (lambda: indices(np.ones((1, 1, 3)), np.ones((1, 1, 4)), np.eye(3)), "wei"),
        (
            lambda: Dataset(np.ones((2, 1, 3)), np.ones((1, 1, 3)), np.ones((2, 1, 1))),
            "keys",
        ),
    ],
)
def test_bad_input_is_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_channel_of_another_shape_is_refused() -> None:
    prior, channel = BilinearPrior(0.5), CrossSoftmaxChannel(2, 2)
    data = Model(10, prior, channel).sample(0.5, seed=0)
    with pytest.raises(ValueError, match="channel"):
        amp(data, prior, CrossSoftmaxChannel(2, 3))
    with pytest.raises(ValueError, match="prior must have the aspect ratio"):
        amp(data, BilinearPrior(0.5, 2.0), channel)


def test_softmax_of_large_scores_is_finite() -> None:
    y = CrossSoftmaxChannel(1, 2, 1e308).output([[[3.0, -3.0]]])
    np.testing.assert_array_equal(y, [[[1.0, 0.0]]])


def test_samples_are_reproducible() -> None:
    model = Model(12, BilinearPrior(0.5, 1.5), CrossLinearChannel(1, 1, 0.2))
    first, second, other = (model.sample(0.5, seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.outputs, second.outputs)
    assert not np.array_equal(first.outputs, other.outputs)
    assert first.sample_complexity == pytest.approx(0.5)
    assert first.teacher.shape == (12, 18)
