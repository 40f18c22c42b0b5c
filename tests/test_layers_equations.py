"""Steps of the chapter "layers" that no module evaluates: rotations of layers, the contour step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aimlib import WignerPrior, WishartPrior
from aimlib.layers import denoising_error


def rotation(size: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def third(matrices: np.ndarray) -> np.ndarray:
    """Free cumulants of order three of centred matrices: the traces of their products."""
    d = matrices.shape[-1]
    pairs = np.einsum("aij,bjk->abik", matrices, matrices)
    return np.einsum("abik,cki->abc", pairs, matrices) / d


def test_cumulants_of_rotated_layers() -> None:
    """layers:mixed-cumulant for three layers, one of them semicircular, by traces."""
    rng, d = np.random.default_rng(0), 500
    layers = np.stack(
        [
            WishartPrior(0.5).sample(d, rng) - math.sqrt(0.5) * np.eye(d),
            WishartPrior(2.0).sample(d, rng) - math.sqrt(2.0) * np.eye(d),
            WignerPrior().sample(d, rng),
        ]
    )
    o = rotation(3, rng)
    kappa = np.array([0.5**-0.5, 2.0**-0.5, 0.0])
    rotated = np.einsum("kl,lij->kij", o, layers)
    expected = np.einsum("l,al,bl,cl->abc", kappa, o, o, o)
    assert third(rotated) == pytest.approx(expected, abs=0.06)
    assert np.abs(expected[0, 0, 1:]).max() > 0.05, "the rotated layers are not free"


@pytest.mark.parametrize("order", [3, 4])
def test_an_orthogonal_decomposition_is_unique(order) -> None:
    """layers:tensor: contraction with a vector finds the layers that are not semicircular."""
    rng = np.random.default_rng(order)
    basis, weights = rotation(4, rng), np.array([1.3, -0.4, 0.9, 0.0])
    tensor = sum(
        w * np.einsum("i,j,k->ijk", e, e, e)
        if order == 3
        else w * np.einsum("i,j,k,l->ijkl", e, e, e, e)
        for w, e in zip(weights, basis, strict=True)
    )
    for _ in range(2):
        w = rng.standard_normal(4)
        matrix = tensor @ w if order == 3 else tensor @ w @ w
        values, vectors = np.linalg.eigh(matrix)
        found = vectors[:, np.abs(values) > 1e-9].T
        assert len(found) == 3
        overlap = np.abs(found @ basis[:3].T)
        assert np.sort(overlap, axis=1)[:, -1] == pytest.approx(1.0, abs=1e-9)
        assert np.sort(overlap, axis=1)[:, :-1] == pytest.approx(0.0, abs=1e-6)


def test_the_components_of_a_denoiser_that_is_not_analytic() -> None:
    """layers:components by drawn matrices for the denoiser |lambda - 1|, which has a corner."""
    prior, noise, d, eta = WishartPrior(0.5), 0.8, 700, 0.7
    rng = np.random.default_rng(1)
    low, high = prior.support(noise)[0][0], prior.support(noise)[-1][1]
    nodes, weights = np.polynomial.legendre.leggauss(4000)
    x = (low + high) / 2 + (high - low) / 2 * np.sin(math.pi / 2 * nodes)
    w = weights * (high - low) / 2 * math.pi / 2 * np.cos(math.pi / 2 * nodes)
    g = prior.resolvent(x, noise)
    g = np.where(g.imag > 0, g.conj(), g)
    parts = [
        -(noise ** (k / 2)) / math.pi * np.sum(w * np.abs(x - 1) * (g ** (k + 1)).imag)
        for k in range(12)
    ]
    n1, other = WignerPrior().sample(d, rng), WignerPrior().sample(d, rng)
    n2 = eta * n1 + math.sqrt(1 - eta**2) * other
    bent = []
    for n in (n1, n2):
        values, vectors = np.linalg.eigh(prior.sample(d, rng) + math.sqrt(noise) * n)
        bent.append((vectors * np.abs(values - 1)) @ vectors.T)
    measured = np.sum(bent[0] * bent[1]) / d
    predicted = sum(eta**k * part**2 for k, part in enumerate(parts))
    assert measured == pytest.approx(predicted, rel=0.02)
    assert predicted - parts[0] ** 2 > 0.02


def test_gaussian_layers_have_a_singular_gram_matrix() -> None:
    """layers:combined with the pseudo-inverse: the optimum of Gaussian layers, layers:wigner."""
    noise = np.array([[0.8, 0.5], [0.5, 0.6]])
    exact = np.linalg.inv(np.eye(2) + np.linalg.inv(noise))
    combined = denoising_error(noise, [WignerPrior(), WignerPrior()], "combined")
    assert combined == pytest.approx(exact, abs=1e-8)
