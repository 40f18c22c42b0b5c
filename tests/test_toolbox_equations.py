"""The displayed equations of the chapters "model" and "priors", each evaluated by another route.

Every test names the labels that it proves.  Where the library implements an equation, it is set
against the definition, a finite difference or an exact cumulant, never against itself.
"""

from __future__ import annotations

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest

from aimlib import (
    HardmaxChannel,
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    attention_indices,
)

CASES = [(0.1, 10.0), (0.5, 0.003), (0.5, 0.1), (1.0, 0.1), (0.3, 1.0), (3.0, 2.0)]


def interior(prior: WishartPrior | SpectralPrior, noise: float, points: int = 25) -> np.ndarray:
    nodes = 0.5 - 0.48 * np.cos(np.linspace(0.0, math.pi, points))
    return np.concatenate([a + (b - a) * nodes for a, b in prior.support(noise)])


def integrate(prior: WishartPrior | SpectralPrior, noise: float, function) -> float:
    """Integrate over the support with the cosine substitution that removes square-root ends."""
    t = (np.arange(3000) + 0.5) * math.pi / 3000
    total = 0.0
    for a, b in prior.support(noise):
        x = 0.5 * (a + b) - 0.5 * (b - a) * np.cos(t)
        total += float(np.sum(function(x) * np.sin(t)) * 0.5 * (b - a) * math.pi / 3000)
    return total


# --- chapter "model" ---------------------------------------------------------------------------


def test_teacher_moments() -> None:
    """model:tied, model:moments with the exact 1/d term: E Tr S^2/d = 1 + rho + 1/d."""
    d, rho = 60, 0.5
    draws = [WishartPrior(rho).sample(d, np.random.default_rng([7, k])) for k in range(4000)]
    traces = np.array([np.trace(s) / d for s in draws])
    squares = np.array([np.sum(s**2) / d for s in draws])
    for values, exact in ((traces, math.sqrt(rho)), (squares, 1 + rho + 1 / d)):
        error = values.std(ddof=1) / math.sqrt(len(values))
        assert abs(values.mean() - exact) < 5 * error
        assert error < 0.003


def test_cumulants_of_the_indices_are_traces() -> None:
    """model:covariance, model:skewness: all joint cumulants of order 2 and 3, triangles included.

    The generating function log E exp(l) = -1/2 log det(I - 2M/sqrt d) - Tr M/sqrt d with
    M = B x S holds at finite d; its derivatives in B are the joint cumulants.
    """
    d, count = 200, 3
    s = WishartPrior(0.5).sample(d, np.random.default_rng(3))
    q, cubic = np.sum(s**2) / d, np.trace(s @ s @ s) / d**1.5
    x = np.random.default_rng(4).standard_normal((60_000, count, d))
    h = attention_indices(x, s)
    pairs = [(a, b) for a in range(count) for b in range(a, count)]
    unit = {p: np.zeros((count, count)) for p in pairs}
    for (a, b), matrix in unit.items():
        matrix[a, b] += 0.5
        matrix[b, a] += 0.5
    for p, r in combinations_with_replacement(pairs, 2):
        product = h[:, p[0], p[1]] * h[:, r[0], r[1]]
        exact = (1 + (p[0] == p[1])) * q if p == r else 0.0
        assert abs(product.mean() - exact) < 6 * product.std() / math.sqrt(len(h))
    for p, r, t in combinations_with_replacement(pairs, 3):
        product = h[:, p[0], p[1]] * h[:, r[0], r[1]] * h[:, t[0], t[1]]
        exact = 8 * cubic * np.trace(unit[p] @ unit[r] @ unit[t] + unit[p] @ unit[t] @ unit[r]) / 2
        assert abs(product.mean() - exact) < 6 * product.std() / math.sqrt(len(h)), (p, r, t)
    # the off-diagonal triangle does not vanish: it is of the same order as the diagonal skewness
    triangle = h[:, 0, 1] * h[:, 1, 2] * h[:, 0, 2]
    error = triangle.std() / math.sqrt(len(h))
    assert abs(triangle.mean() - cubic) < 5 * error
    assert cubic > 10 * error


def test_gaussian_kurtosis_of_both_kinds_of_index() -> None:
    """model:skewness, fourth cumulant at small d: 12 and 6 times Tr S^4/(Tr S^2)^2."""
    d = 12
    s = WishartPrior(0.5).sample(d, np.random.default_rng(5))
    ratio = np.sum(np.linalg.eigvalsh(s) ** 4) / np.sum(s**2) ** 2
    rng = np.random.default_rng(6)
    h = attention_indices(rng.standard_normal((400_000, 2, d)), s)
    for values, exact in ((h[:, 0, 0], 12 * ratio), (h[:, 0, 1], 6 * ratio)):
        blocks = [np.mean(b**4) / np.mean(b**2) ** 2 - 3 for b in np.split(values, 20)]
        error = np.std(blocks, ddof=1) / math.sqrt(20)
        # a ratio of block means is biased by O(1/block): allow for it beside the sampling error
        assert abs(np.mean(blocks) - exact) < 5 * error + 0.01 * exact
        assert error < 0.1 * exact


def test_excess_kurtosis_of_the_tokens_shifts_the_diagonal_variance() -> None:
    """Var h_aa = 2 Tr S^2/d + (E x^4 - 3) sum_i S_ii^2/d: Rademacher tokens show it."""
    d = 150
    s = WishartPrior(0.5).sample(d, np.random.default_rng(8))
    signs = 2.0 * np.random.default_rng(9).integers(0, 2, size=(40_000, 1, d)) - 1.0
    squares = attention_indices(signs, s)[:, 0, 0] ** 2
    exact = 2 * np.sum(s**2) / d - 2 * np.sum(np.diag(s) ** 2) / d
    assert abs(squares.mean() - exact) < 5 * squares.std() / math.sqrt(len(squares))
    assert exact < 0.8 * 2 * np.sum(s**2) / d


def test_scores_softmax_and_sensing_matrices() -> None:
    """model:scores, model:softmax, model:sensing, model:indices: from weights to an output."""
    rng, d, r, t = np.random.default_rng(12), 7, 4, 3
    w, x = rng.standard_normal((d, r)), rng.standard_normal((t, d))
    s = w @ w.T / math.sqrt(r * d)
    scores = np.array([[(w.T @ a) @ (w.T @ b) for b in x] for a in x])
    h = attention_indices(x[None], s)[0]
    centred = (scores / math.sqrt(r * d) - np.eye(t) * np.trace(s)) / math.sqrt(d)
    assert np.allclose(h, centred)
    for a in range(t):
        for b in range(t):
            sensing = (np.outer(x[a], x[b]) + np.outer(x[b], x[a])) / (2 * math.sqrt(d))
            sensing -= (a == b) * np.eye(d) / math.sqrt(d)
            assert h[a, b] == pytest.approx(np.trace(s @ sensing))
    y = SoftmaxChannel(t, 1.7).output(h[None])[0]
    assert np.allclose(y, np.exp(1.7 * h) / np.exp(1.7 * h).sum(axis=1, keepdims=True))


def test_indices_of_several_matrices() -> None:
    """model:joint-covariance for two dependent matrices, and the fourth cumulant of a mixture.

    The combination weighs the matrices differently in each pair, so that it is not an index of
    one combined matrix; its cumulants are traces of powers of sum_i B^i x S^i all the same.
    """
    d, n, rng = 60, 120_000, np.random.default_rng(13)
    one, two = (WishartPrior(0.5).sample(d, rng) for _ in range(2))
    matrices = (one, one + two)
    x = np.random.default_rng(14).standard_normal((n, 2, d))
    h = [attention_indices(x, s) for s in matrices]
    for i, j in ((0, 0), (0, 1), (1, 1)):
        overlap = np.sum(matrices[i] * matrices[j]) / d
        for a, b, factor in ((0, 0, 2), (0, 1, 1)):
            product = h[i][:, a, b] * h[j][:, a, b]
            assert abs(product.mean() - factor * overlap) < 5 * product.std() / math.sqrt(n)
        mixed = h[i][:, 0, 0] * h[j][:, 0, 1]
        assert abs(mixed.mean()) < 5 * mixed.std() / math.sqrt(n)
    b = (np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 0.5], [0.5, -1.0]]))
    m = sum(np.kron(bi, si) for bi, si in zip(b, matrices, strict=True))
    combined = h[0][:, 0, 0] + h[1][:, 0, 1] - h[1][:, 1, 1]
    powers = [np.trace(np.linalg.matrix_power(m, k)) / d ** (k / 2) for k in (2, 3)]
    for k, exact in ((2, 2 * powers[0]), (3, 8 * powers[1])):
        values = combined**k
        assert abs(values.mean() - exact) < 5 * values.std() / math.sqrt(n)


def test_teacher_is_a_draw_from_the_posterior() -> None:
    """model:nishimori-overlap, model:error: brute force over sixteen matrices, hardmax outputs.

    The outputs are signs, so the posterior is uniform on the matrices that reproduce all of them.
    """
    rng, d, count, trials = np.random.default_rng(15), 5, 16, 4000
    prior = np.stack([WishartPrior(0.6).sample(d, rng) for _ in range(count)])
    channel = HardmaxChannel(2)
    with_teacher, squared, error, sample = (np.zeros(trials) for _ in range(4))
    for k in range(trials):
        x = rng.standard_normal((2, 2, d))
        y = np.stack([channel.output(attention_indices(x, s)) for s in prior])
        truth = rng.integers(count)
        fits = np.all(y == y[truth], axis=(1, 2, 3))
        mean, draw = prior[fits].mean(axis=0), prior[rng.choice(np.flatnonzero(fits))]
        with_teacher[k] = np.sum(prior[truth] * mean) / d
        squared[k] = np.sum(mean**2) / d
        error[k] = np.sum((prior[truth] - mean) ** 2) / d
        sample[k] = np.sum((prior[truth] - draw) ** 2) / d
    q, second = squared.mean(), np.mean(np.sum(prior**2, axis=(1, 2))) / d

    def agree(values: np.ndarray, exact: float) -> bool:
        return bool(abs(values.mean() - exact) < 5 * values.std() / math.sqrt(trials))

    assert agree(with_teacher - squared, 0.0)
    assert agree(error, second - q)
    assert agree(sample - 2 * error, 0.0)
    assert np.mean(error) < 0.8 * np.mean(sample)


# --- chapter "priors" --------------------------------------------------------------------------


@pytest.mark.parametrize(("rho", "noise"), CASES)
def test_resolvent_solves_the_cubic_and_inverts_to_the_density(rho: float, noise: float) -> None:
    """priors:cubic, priors:inversion, priors:moments, priors:curve, priors:rie."""
    prior, root = WishartPrior(rho), math.sqrt(rho)
    x = interior(prior, noise)
    g = prior.resolvent(x, noise)
    assert np.allclose(1 / g + noise * g + root / (1 - g / root), x, rtol=1e-9, atol=1e-9)
    assert np.allclose(-g.imag / math.pi, prior.density(x, noise), rtol=1e-12)
    jump = abs(1 - g / root) ** 2
    assert np.allclose(1 / abs(g) ** 2, noise + 1 / jump, rtol=1e-8)
    assert np.allclose(prior.shrink(x, noise), root / jump, rtol=1e-8, atol=1e-12)
    assert np.allclose(x - 2 * noise * g.real, root / jump, rtol=1e-7, atol=1e-8)
    moments = [
        integrate(prior, noise, lambda y, k=k: y**k * prior.density(y, noise)) for k in range(3)
    ]
    assert np.allclose(moments, [1, root, 1 + rho + noise], rtol=1e-6)


@pytest.mark.parametrize("rho", [0.05, 0.3, 0.7])
def test_two_bulks_merge_where_the_closed_form_says(rho: float) -> None:
    """priors:edges, priors:merging: rho (1 + noise^(1/3))^3 = 1."""
    merging = (rho ** (-1 / 3) - 1) ** 3
    prior = WishartPrior(rho)
    assert len(prior.support(merging * 0.999)) == 2
    assert len(prior.support(merging * 1.001)) == 1
    for noise in (merging / 3, merging * 3):
        for edge in prior.support(noise).ravel():
            inside_outside = [prior.density(edge + sign * 1e-4, noise) for sign in (-1, 1)]
            assert min(inside_outside) == 0 < max(inside_outside)


def test_noise_moves_the_resolvent_by_burgers_equation() -> None:
    """priors:burgers, priors:subordination, for a spectrum with two atoms and a Wishart one."""
    for prior, x, noise in ((WishartPrior(0.5), 1.3, 0.4), (SpectralPrior([-1.0, 2.0]), 1.1, 0.9)):
        step = 1e-4
        in_time = prior.resolvent(x, noise + step) - prior.resolvent(x, noise - step)
        in_space = prior.resolvent(x + step, noise) - prior.resolvent(x - step, noise)
        g = complex(prior.resolvent(x, noise))
        assert abs(in_time / (2 * step) + g * in_space / (2 * step)) < 1e-6
    u = x - noise * g
    assert abs(g - 0.5 / (u + 1) - 0.5 / (u - 2)) < 1e-9


def test_weights_give_normalisation_denoiser_and_error() -> None:
    """priors:weights, priors:rie, priors:mmse in both forms, priors:mmse-cubed."""
    atoms, weights = np.array([-1.0, 0.2, 2.0]), np.array([0.5, 0.2, 0.3])
    for noise in (0.05, 0.6, 5.0):
        prior = SpectralPrior(atoms, weights)

        def overlap(x, prior=prior, noise=noise):
            u = x - noise * prior.resolvent(x, noise)
            return weights[:, None] * noise / abs(u - atoms[:, None]) ** 2

        def spread(x, prior=prior, noise=noise, overlap=overlap):
            w = overlap(x)
            mean = (w * atoms[:, None]).sum(0)
            return (w * (atoms[:, None] - mean) ** 2).sum(0) * prior.density(x, noise)

        def second(x, prior=prior, noise=noise):
            return abs(prior.resolvent(x, noise)) ** 2 * prior.density(x, noise)

        x = interior(prior, noise)
        assert np.allclose(overlap(x).sum(0), 1, rtol=1e-8)
        assert np.allclose((overlap(x) * atoms[:, None]).sum(0), prior.shrink(x, noise), atol=1e-8)
        mmse = prior.mmse(noise)
        assert integrate(prior, noise, spread) == pytest.approx(mmse, rel=1e-5)
        assert noise - noise**2 * integrate(prior, noise, second) == pytest.approx(mmse, rel=1e-5)
        cubed = integrate(prior, noise, lambda y, p=prior, n=noise: p.density(y, n) ** 3)
        assert noise - 4 * math.pi**2 / 3 * noise**2 * cubed == pytest.approx(mmse, rel=1e-5)


def test_eigenvector_overlaps_of_drawn_matrices() -> None:
    """priors:overlap-resolvent, priors:weights: squared overlaps, averaged over draws."""
    d, noise, draws = 300, 0.3, 30
    clean = np.repeat([0.0, 1.0], d // 2)
    prior, rng = SpectralPrior([0.0, 1.0]), np.random.default_rng(11)
    measured, predicted = [], []
    for _ in range(draws):
        noisy = np.diag(clean) + math.sqrt(noise) * WignerPrior().sample(d, rng)
        lam, vectors = np.linalg.eigh(noisy)
        bulk = slice(d // 10, -d // 10)
        measured.append((vectors[d // 2 :] ** 2).sum(0)[bulk])
        u = lam[bulk] - noise * prior.resolvent(lam[bulk], noise)
        predicted.append(0.5 * noise / abs(u - 1) ** 2)
    for ours, theory in zip(
        np.split(np.mean(measured, 0), 8), np.split(np.mean(predicted, 0), 8), strict=True
    ):
        assert abs(ours.mean() - theory.mean()) < 0.01


@pytest.mark.parametrize(("rho", "noise"), CASES)
def test_error_as_a_positive_integral(rho: float, noise: float) -> None:
    """priors:mmse-wishart."""
    prior = WishartPrior(rho)

    def positive(x):
        g = prior.resolvent(x, noise)
        return prior.density(x, noise) * abs(g) ** 2 / abs(1 - g / math.sqrt(rho)) ** 2

    assert noise * integrate(prior, noise, positive) == pytest.approx(prior.mmse(noise), rel=1e-6)


def test_limits_of_the_error() -> None:
    """priors:kappa (1 - sum w^2 for atoms), priors:wigner, prior variance at large noise."""
    for rho in (0.02, 0.5, 1.7):
        kappa = 2 * rho - rho**2 if rho < 1 else 1.0
        assert WishartPrior(rho).mmse(1e-9) / 1e-9 == pytest.approx(kappa, rel=1e-4)
        assert WishartPrior(rho).mmse(1e6) == pytest.approx(1.0, rel=1e-4)
    atoms = SpectralPrior([0.0, 1.0, 3.0], [0.5, 0.3, 0.2])
    assert atoms.mmse(1e-8) / 1e-8 == pytest.approx(1 - 0.25 - 0.09 - 0.04, rel=1e-5)
    noise = np.logspace(-6, 5, 12)
    assert np.allclose(WignerPrior().mmse(noise), noise / (1 + noise), rtol=1e-12)


@pytest.mark.parametrize(("rho", "noise"), CASES)
def test_information_of_the_log_gas(rho: float, noise: float) -> None:
    """priors:potential, priors:information, priors:i-mmse."""
    prior, root = WishartPrior(rho), math.sqrt(rho)

    def potential(x):
        g = prior.resolvent(x, noise)
        ratio = g / root
        return np.real(
            -np.log(g) + noise * g**2 / 2 + rho * (np.log(1 - ratio) + ratio / (1 - ratio))
        )

    # the potential against its definition, at a point outside of the support
    z = prior.support(noise)[-1, 1] + 1.0
    direct = integrate(prior, noise, lambda y: np.log(z - y) * prior.density(y, noise))
    assert float(potential(np.array([z]))[0]) == pytest.approx(direct, abs=1e-6)
    energy = integrate(prior, noise, lambda y: potential(y) * prior.density(y, noise))
    information = energy / 2 - math.log(noise) / 4 + 1 / 8
    assert prior.information(noise) == pytest.approx(information, abs=1e-6)
    step = 1e-4 / noise
    slope = prior.information(1 / (1 / noise + step)) - prior.information(1 / (1 / noise - step))
    assert slope / (2 * step) == pytest.approx(prior.mmse(noise) / 4, rel=1e-6)


@pytest.mark.parametrize(("rho", "noise"), CASES)
def test_duality_of_curve_spectrum_and_error(rho: float, noise: float) -> None:
    """priors:duality, with each step of its proof."""
    prior, dual = WishartPrior(rho), WishartPrior(rho * noise)
    assert prior.mmse(noise) / noise == pytest.approx(dual.mmse(1 / noise), rel=1e-9)
    x = interior(prior, noise)
    g = prior.resolvent(x, noise)
    y = g / (1 - g / math.sqrt(rho))
    assert np.allclose(noise * abs(g) ** 2 + abs(y) ** 2, 1, rtol=1e-8)
    shift = math.sqrt(rho) + 1 / math.sqrt(rho)
    mirrored = math.sqrt(rho * noise) - (x - shift) / math.sqrt(noise)
    # the mirror sends the upper half plane to the lower one, hence the conjugate
    assert np.allclose(
        dual.resolvent(mirrored, 1 / noise), np.conj(-y * math.sqrt(noise)), rtol=1e-6
    )
