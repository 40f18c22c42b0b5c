"""The primer on free probability, against matrices of several hundred dimensions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate

from aimlib import WignerPrior, WishartPrior

D = 600


def trace(*matrices: np.ndarray) -> float:
    product = matrices[0]
    for matrix in matrices[1:]:
        product = product @ matrix
    return float(np.trace(product)) / len(product)


def chebyshev(order: int, x: np.ndarray) -> np.ndarray:
    before, now = np.zeros_like(x), np.eye(len(x))
    for _ in range(order):
        before, now = now, x @ now - before
    return now


def test_the_first_moment_that_tells_free_from_independent() -> None:
    """freeness:mixed-moment for two Wishart matrices of different widths."""
    rng = np.random.default_rng(0)
    a, b = WishartPrior(0.5).sample(D, rng), WishartPrior(2.0).sample(D, rng)
    m = [trace(a), trace(a, a), trace(b), trace(b, b)]
    free = m[1] * m[2] ** 2 + m[0] ** 2 * m[3] - m[0] ** 2 * m[2] ** 2
    assert trace(a, b, a, b) == pytest.approx(free, rel=0.02)
    assert m[1] * m[3] > 1.1 * free


@pytest.mark.parametrize("rho", [0.5, 1.0, 3.0])
def test_free_cumulants_of_wishart_matrices(rho) -> None:
    """freeness:cumulants up to order four (fourteen non-crossing partitions, one block each)."""
    s = WishartPrior(rho).sample(900, np.random.default_rng(1))
    m = [1.0, *(float(np.mean(np.linalg.eigvalsh(s) ** n)) for n in range(1, 5))]
    k1 = m[1]
    k2 = m[2] - k1**2
    k3 = m[3] - 3 * k2 * k1 - k1**3
    k4 = m[4] - 4 * k3 * k1 - 2 * k2**2 - 6 * k2 * k1**2 - k1**4
    for n, value in enumerate((k1, k2, k3, k4), start=1):
        assert value == pytest.approx(rho ** (1 - n / 2), rel=0.05 * n)


@pytest.mark.parametrize("rho", [0.5, 2.0])
def test_the_r_transform_of_a_sum(rho) -> None:
    """freeness:r-transform with both lines of the table, from eigenvalues of a drawn sum."""
    rng, noise = np.random.default_rng(2), 0.7
    s = WishartPrior(rho).sample(900, rng) + math.sqrt(noise) * WignerPrior().sample(900, rng)
    values = np.linalg.eigvalsh(s)
    for z in (values.max() + 0.7, values.min() - 0.7):
        g = np.mean(1 / (z - values))
        rebuilt = 1 / g + noise * g + math.sqrt(rho) / (1 - g / math.sqrt(rho))
        assert rebuilt == pytest.approx(z, abs=0.02)


@pytest.mark.parametrize("eta", [-0.5, 0.6])
def test_chebyshev_polynomials_of_correlated_matrices(eta) -> None:
    """freeness:chebyshev for orders up to three."""
    rng = np.random.default_rng(3)
    x, other = WignerPrior().sample(D, rng), WignerPrior().sample(D, rng)
    y = eta * x + math.sqrt(1 - eta**2) * other
    for j in range(4):
        for k in range(4):
            value = trace(chebyshev(j, x), chebyshev(k, y))
            assert value == pytest.approx(eta**k if j == k else 0.0, abs=0.02)


def test_subordination_of_a_sum() -> None:
    """freeness:subordination, both forms of w, tested against functions of b."""
    rng, noise, z = np.random.default_rng(4), 0.6, 1.0 + 0.8j
    b = np.diag(np.linalg.eigvalsh(WishartPrior(0.5).sample(D, rng)))
    a = math.sqrt(noise) * WignerPrior().sample(D, rng)
    resolvent = np.linalg.inv(z * np.eye(D) - a - b)
    g = np.trace(resolvent) / D
    w = z - noise * g
    root = math.sqrt(0.5)
    assert 1 / g + root / (1 - g / root) == pytest.approx(w, abs=0.01)
    for power in range(4):
        weight = np.diag(b) ** power
        seen, subordinated = weight * np.diag(resolvent), weight / (w - np.diag(b))
        assert np.mean(seen) == pytest.approx(np.mean(subordinated), abs=0.02)


def test_the_conjugate_variable_of_one_variable() -> None:
    """freeness:conjugate and freeness:hilbert for the semicircle plus a Wishart spectrum."""
    prior, noise = WishartPrior(2.0), 0.8
    low, high = prior.support(noise)[0]
    nodes, weights = np.polynomial.legendre.leggauss(4000)
    x = (low + high) / 2 + (high - low) / 2 * np.sin(math.pi / 2 * nodes)
    w = weights * (high - low) / 2 * math.pi / 2 * np.cos(math.pi / 2 * nodes)
    mu = prior.density(x, noise)
    assert np.sum(w * mu) == pytest.approx(1.0, abs=1e-8)
    # E[s | r] = r - Delta xi: take xi from the denoiser of the library
    denoised = np.diag(prior.denoise(np.diag(x[::40]), noise))
    xi = (x[::40] - denoised) / noise
    for place in (20, 50, 80):
        point = x[::40][place]
        hilbert = integrate.quad(
            lambda y: float(prior.density(np.array([y]), noise)[0]),
            low,
            high,
            weight="cauchy",
            wvar=point,
            limit=400,
        )[0]
        assert xi[place] == pytest.approx(-2 * hilbert, abs=1e-5)
    fisher = 4 * math.pi**2 / 3 * np.sum(w * mu**3)
    part = w[::40] * 40
    assert np.sum(part * mu[::40] * xi**2) == pytest.approx(fisher, rel=0.02)
    assert prior.mmse(noise) == pytest.approx(noise - noise**2 * fisher, abs=1e-9)


def test_free_noise_is_estimated_by_conjugate_variables() -> None:
    """freeness-noise: tau(n_l p(r)) by taking words apart, for correlated noises."""
    rng = np.random.default_rng(5)
    cov = np.array([[0.8, 0.5], [0.5, 0.6]])
    noise = np.einsum(
        "lm,mij->lij", np.linalg.cholesky(cov), [WignerPrior().sample(D, rng) for _ in range(2)]
    )
    r = noise + np.stack([WishartPrior(0.5).sample(D, rng) for _ in range(2)])
    for word in ((0, 1), (1, 0, 1), (0, 0, 1, 1), (1, 0, 1, 0)):
        for first in (0, 1):
            apart = 0.0
            for place, letter in enumerate(word):
                left = trace(np.eye(D), *(r[i] for i in word[:place]))
                right = trace(np.eye(D), *(r[i] for i in word[place + 1 :]))
                apart += cov[first, letter] * left * right
            whole = trace(noise[first], *(r[i] for i in word))
            assert whole == pytest.approx(apart, rel=0.03, abs=0.03)


def test_exercises() -> None:
    """freeness-exercise-words and freeness-exercise-chebyshev."""
    rng = np.random.default_rng(6)
    a, x = WishartPrior(1.0).sample(D, rng), WignerPrior().sample(D, rng)
    assert trace(a, a, a) == pytest.approx(5, rel=0.03)
    assert trace(a, x, a, x) == pytest.approx(1, rel=0.03)
    assert trace(a, a, x, x) == pytest.approx(2, rel=0.03)
    first, other = WignerPrior().sample(400, rng), WignerPrior().sample(400, rng)
    second = 0.6 * first + 0.8 * other
    assert trace(chebyshev(2, first), chebyshev(2, second)) == pytest.approx(0.36, abs=0.02)
    assert trace(first, first, second, second) == pytest.approx(1.36, abs=0.03)
