"""Answers of the computational exercises of amp, descent, layers and limits.

Those of deep, freeness and other_priors are in the test files of these chapters' equations.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special
from test_exercises import run

from aimlib import (
    HardmaxChannel,
    SoftmaxChannel,
    WignerPrior,
    WishartPrior,
)
from aimlib.layers import denoising_error

# --- amp --------------------------------------------------------------------------------------


def test_what_one_round_costs() -> None:
    """amp-exercise-cost."""
    d, tokens, n = 1000, 2, round(0.1 * 1000**2)
    assert 4 * n * tokens * d**2 == 8e11
    assert tokens * (tokens + 1) // 2 * n * d**2 * 8 == 2.4e12
    assert n * tokens * d * 8 == 1.6e9


def test_state_evolution_by_hand() -> None:
    """amp-exercise-evolution: 11 rounds at alpha = 0.2, 99 at the threshold."""
    prior, c = WignerPrior(), SoftmaxChannel(2).information(0.0, 1.0)

    def rounds(alpha: float, reached) -> int:
        v, count = 1.0, 0
        while not reached(v):
            v = float(prior.mmse(v / (2 * alpha * c)))
            count += 1
        return count

    fixed = 1 - 0.8
    assert float(prior.mmse(fixed / 0.8)) == pytest.approx(fixed, abs=1e-12)
    start = abs(1 / 1.0 - 1 / fixed)
    assert rounds(0.2, lambda v: abs(1 / v - 1 / fixed) <= start / 10) == 11
    assert rounds(0.25, lambda v: v <= 0.01 * (1 + 1e-9)) == 99


def test_the_measured_noise_forgets_the_belief() -> None:
    """amp-exercise-default and amp-exercise-runaway: slopes below one, and doubling."""
    prior, step = WishartPrior(0.5), 1e-4
    for noise in (1e-3, 0.1, 1.0, 10.0):
        up, down = prior.mmse(noise * (1 + step)), prior.mmse(noise * (1 - step))
        slope = math.log(up / down) / math.log((1 + step) / (1 - step))
        assert 0 < slope < 1
    assert prior.mmse(1e-5) / 1e-5 == pytest.approx(prior.degrees_of_freedom, rel=0.01)


# --- descent ----------------------------------------------------------------------------------


def test_the_identity_at_work() -> None:
    """descent-exercise-identity: K = 4 and the mean over all pairs."""
    d, starts = 20, 4
    names = run("descent", "descent-exercise-identity")
    s, found = names["teacher"], names["result"].start_estimates
    assert found.shape == (starts, d, d)
    gram = np.einsum("kij,lij->kl", found, found) / d
    norm, own = np.sum(s**2) / d, np.trace(gram) / starts
    mutual = (gram.sum() - np.trace(gram)) / (starts * (starts - 1))
    overlap = np.einsum("kij,ij->k", found, s).mean() / d
    a, b = norm - 2 * overlap + mutual, own - mutual
    assert (names["a"], names["b"]) == pytest.approx((a, b), rel=1e-12)
    assert (a, b) == pytest.approx((0.556, 0.513), abs=2e-3)
    assert (names["four"], names["two"]) == pytest.approx((0.684, 0.812), abs=2e-3)
    whole = np.sum((found.mean(0) - s) ** 2) / d
    assert whole == pytest.approx(a + b / 4, rel=1e-10)
    assert names["four"] == pytest.approx(whole, rel=1e-12)
    assert names["result"].estimation_error == pytest.approx(whole, rel=1e-10)
    pairs = [
        np.sum((found[[i, j]].mean(0) - s) ** 2) / d
        for i, j in itertools.combinations(range(starts), 2)
    ]
    assert np.mean(pairs) == pytest.approx(a + b / 2, rel=1e-10)
    assert names["two"] == pytest.approx(a + b / 2, rel=1e-10)


def test_how_many_starts() -> None:
    """descent-exercise-starts."""
    assert 1 + 1 / 20 == pytest.approx(1.05)
    assert 2 / (1 + 1 / 32) == pytest.approx(1.94, abs=0.005)


# --- layers -----------------------------------------------------------------------------------


def test_how_wide_is_the_bracket() -> None:
    """layers-exercise-bracket."""
    prior = WishartPrior(0.5)
    noise = np.array([[1.0, 0.8], [0.8, 1.0]])
    conjugate = np.linalg.inv(noise)
    low, separate = prior.mmse(1 / conjugate[0, 0]), prior.mmse(1.0)
    linear = np.linalg.inv(np.eye(2) + conjugate)[0, 0]
    combined = denoising_error(noise, [prior, prior], "combined")[0, 0]
    assert conjugate[0, 0] == pytest.approx(1 / 0.36)
    found = (low, separate, linear, combined)
    assert found == pytest.approx((0.195, 0.397, 0.405, 0.325), abs=5e-4)
    assert (separate - combined) / (separate - low) == pytest.approx(0.36, abs=0.005)


def test_subtracting_what_a_layer_that_is_unknown_shows() -> None:
    """layers-exercise-plugin: the extra part for a Wishart layer about which nothing is known."""
    rng, d = np.random.default_rng(2), 400
    noise = np.array([[1.0, 0.8], [0.8, 1.0]])
    n = np.einsum(
        "lm,mij->lij", np.linalg.cholesky(noise), [WignerPrior().sample(d, rng) for _ in range(2)]
    )
    s2 = WishartPrior(0.5).sample(d, rng)
    ratio = noise[0, 1] / noise[1, 1]
    left = n[0] - ratio * (s2 + n[1] - math.sqrt(0.5) * np.eye(d))
    own = noise[0, 0] - noise[0, 1] ** 2 / noise[1, 1]
    assert np.sum(left**2) / d == pytest.approx(own + ratio**2, rel=0.03)
    assert np.sum((n[0] - ratio * n[1]) ** 2) / d == pytest.approx(own, rel=0.03)


def test_separate_denoisers_need_more_data_if_noises_are_correlated() -> None:
    """layers-exercise-count: the trace at small noise, by the joint error of the library."""
    prior, r = WishartPrior(0.5), 0.6
    noise = 1e-4 * np.array([[1.0, r], [r, 1.0]])
    kappa = prior.degrees_of_freedom
    error = denoising_error(noise, [prior, prior], "separate")
    trace = np.trace(np.linalg.inv(noise) @ error)
    expected = 2 * kappa + 2 * kappa * (1 - kappa) * r**2 / (1 - r**2)
    assert trace == pytest.approx(expected, rel=0.02)
    assert trace > 2 * kappa * 1.05


# --- limits -----------------------------------------------------------------------------------


def test_the_count_of_untied_indices() -> None:
    """limits-exercise-rank: 12 sequences for the symmetric part, 28 for all, at d = 8."""
    rng, d = np.random.default_rng(3), 8
    x = rng.standard_normal((40, 2, d))

    def rank(count: int, part: str) -> int:
        rows = []
        for a, b in itertools.product(range(2), repeat=2):
            outer = np.einsum("ni,nj->nij", x[:count, a], x[:count, b])
            outer = outer - (a == b) * np.eye(d)
            if part == "symmetric":
                outer = outer + outer.transpose(0, 2, 1)
            rows.append(outer.reshape(count, -1))
        return int(np.linalg.matrix_rank(np.concatenate(rows)))

    assert rank(11, "symmetric") == 33
    assert rank(12, "symmetric") == 36 == d * (d + 1) // 2
    assert rank(27, "all") == 63
    assert rank(28, "all") == 64
    assert 64 / 6 == pytest.approx(10.7, abs=0.05)
    assert 12 > 64 / 6
    assert 28 < 64 / 2


def test_a_channel_with_a_hard_phase() -> None:
    """limits-exercise-hard: the sign of a product teaches (8/pi^2) q/Q at first, by quadrature."""

    def information(q: float) -> float:
        scale = math.sqrt(q / (1 - q))  # of the known parts, in units of the unknown ones
        step = min(0.25, scale / 4)
        w = step * np.arange(-round(9 * scale / step), round(9 * scale / step) + 1)
        weights = np.exp(-(w**2) / (2 * scale**2))
        weights /= weights.sum()
        density, plus, minus = np.exp(-(w**2) / 2) / math.sqrt(2 * math.pi), *special.ndtr([w, -w])
        squares = np.outer(density**2, (plus - minus) ** 2)
        squares = squares + squares.T
        same = np.outer(plus, plus) + np.outer(minus, minus)
        different = np.outer(plus, minus) + np.outer(minus, plus)
        total = squares / np.maximum(same, 1e-200) + squares / np.maximum(different, 1e-200)
        return float(weights @ total @ weights)

    assert information(1e-4) / 1e-4 == pytest.approx(8 / math.pi**2, rel=2e-3)
    values = np.array([information(q) for q in (0.01, 0.1, 0.5, 0.8, 0.9, 0.99)])
    assert np.all(np.diff(values)[:3] > 0), "it grows"
    assert np.all(np.diff(values)[3:] < 0), "and falls"
    # near complete knowledge c/x tends to the number of hardmax with two tokens
    j, _ = integrate.quad(
        lambda t: math.exp(-(t**2)) / (2 * math.pi * special.ndtr(t) * special.ndtr(-t)), -12, 12
    )
    limit = 2 * j / math.sqrt(2 * math.pi)
    near, nearer = (information(1 - x**2) / x for x in (0.06, 0.03))
    assert 2 * nearer - near == pytest.approx(limit, rel=2e-3)
    hardmax = HardmaxChannel(2)
    assert hardmax.information(1 - 1e-8, 1.0) / 1e-4 == pytest.approx(limit, rel=1e-3)
    # the point without knowledge is stable for a GOE prior while 2 alpha c'(0) < 1
    assert math.pi**2 / 16 == pytest.approx(0.617, abs=5e-4)
