"""Steps of the chapter "other_priors" that no module evaluates, and its exercises."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aimlib import (
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    strong_recovery_threshold,
)


def identity_weight(tokens: int, m4: float) -> float:
    return 1 + (m4 - 3) * (tokens + 1) / (tokens * (tokens + 2))


@pytest.mark.parametrize("tokens", [2, 3, 5])
@pytest.mark.parametrize("m4", [1.0, 1.8, 3.0])
def test_the_weight_of_the_identity_in_softmax_data(tokens, m4) -> None:
    """other_priors:identity-weight, by projecting the covariance of the indices of I."""
    rows, columns = np.triu_indices(tokens)
    variances = np.where(rows == columns, (m4 - 1) / 2, 1.0)
    hidden = np.where(rows == columns, 1 / tokens, math.sqrt(2) / tokens)
    assert hidden @ hidden == pytest.approx(1.0)
    # the hidden direction is a constant added to every index, in whitened coordinates
    assert hidden * np.sqrt(1.0 + (rows == columns)) == pytest.approx(math.sqrt(2) / tokens)
    c = tokens * (tokens + 1) / 2 - 1
    seen = (variances.sum() - hidden**2 @ variances) / c
    assert seen == pytest.approx(identity_weight(tokens, m4))
    bracket = (m4 - 1) / 2 * (tokens - 1 / tokens) + tokens * (tokens - 1) / 2
    assert (bracket - (tokens - 1) / tokens) / c == pytest.approx(seen)


def share_left(d: int, alpha: float, law: str, seed: int) -> float:
    """Share of the squared norm of the identity outside of the span of two-token equations."""
    rng = np.random.default_rng(seed)
    n = round(alpha * d * d)
    x = rng.choice([-1.0, 1.0], (n, 2, d)) if law == "signs" else rng.standard_normal((n, 2, d))
    i, j = np.triu_indices(d)
    weight = np.where(i == j, 1.0, math.sqrt(2))

    def sensing(a: int, b: int) -> np.ndarray:
        z = (x[:, a, i] * x[:, b, j] + x[:, b, i] * x[:, a, j]) / 2 - (a == b) * (i == j)
        return z * weight / math.sqrt(d)

    equations = np.concatenate([sensing(0, 0) - sensing(0, 1), sensing(1, 1) - sensing(0, 1)])
    unit = (i == j) / math.sqrt(d)
    solution = np.linalg.lstsq(equations.T, unit, rcond=None)[0]
    return float(1 - unit @ (equations.T @ solution))


@pytest.mark.parametrize(("law", "m4", "at_forty"), [("signs", 1.0, 0.78), ("gaussian", 3.0, 0.47)])
def test_what_the_smallest_norm_leaves_of_the_mean(law, m4, at_forty) -> None:
    """other_priors:minimum-norm-law and other-priors-exercise-signs; the gap falls as 1/d."""
    a = 0.48
    limit = (1 - a) / (1 - a + a * identity_weight(2, m4))
    assert limit == pytest.approx({"signs": 0.81, "gaussian": 0.52}[law], abs=0.005)
    small = np.mean([share_left(20, 0.12, law, seed) for seed in range(40)])
    large = np.mean([share_left(40, 0.12, law, seed) for seed in range(16)])
    assert large == pytest.approx(at_forty, abs=0.02)
    assert abs(large - limit) < 0.75 * abs(small - limit)
    assert 2 * large - small == pytest.approx(limit, abs=0.035)


def test_exercise_three_thresholds() -> None:
    """other-priors-exercise-thresholds."""
    softmax = SoftmaxChannel(3)
    ten = SpectralPrior(np.linspace(-1, 1, 10), np.full(10, 0.1))
    projector = SpectralPrior([0.0, 1.0], [0.7, 0.3])
    for prior, alpha, factor in (
        (projector, 0.042, 2.38),
        (ten, 0.09, 1.11),
        (WishartPrior(0.3), 0.051, 1.96),
    ):
        threshold = strong_recovery_threshold(prior, softmax)
        assert threshold == pytest.approx(alpha, rel=1e-6)
        linear = strong_recovery_threshold(WignerPrior(), softmax)
        assert linear == pytest.approx(0.1)
        assert linear / threshold == pytest.approx(factor, abs=0.006)
    assert identity_weight(3, 1.0) == pytest.approx(7 / 15)


def test_exercise_a_transition_made_by_a_wrong_prior() -> None:
    """other-priors-exercise-residual: roots of the quadratic, by iterating the student."""

    def end(a: float, q: float, start: float) -> float:
        delta = start
        for _ in range(20000):
            delta = (delta**2 * q + delta) / (1 + delta) ** 2 / a
        return delta

    assert end(1.0, 1.5, 3.0) < 1e-3
    assert end(1.0, 3.0, 3.0) == pytest.approx(1.0, rel=1e-3)
    edge = 9 / 8
    assert end(edge * 0.999, 3.0, 3.0) > 0.2
    assert end(edge * 1.001, 3.0, 3.0) < 1e-6


def test_exercise_axes_that_are_known() -> None:
    """other-priors-exercise-axes: entry by entry, and better than with forgotten axes."""
    rng, d, noise = np.random.default_rng(0), 200, 0.7
    sigma = np.where(np.arange(d) < d // 2, 0.4, 1.6)
    s = WignerPrior().sample(d, rng) * np.sqrt(np.outer(sigma, sigma))
    r = s + math.sqrt(noise) * WignerPrior().sample(d, rng)
    gain = np.outer(sigma, sigma) / (np.outer(sigma, sigma) + noise)
    error = np.sum((gain * r - s) ** 2) / d
    assert error == pytest.approx(np.mean(noise * gain), rel=0.05)
    forgotten = SpectralPrior(np.linalg.eigvalsh(s), np.full(d, 1 / d))
    blind = np.sum((forgotten.denoise(r, noise) - s) ** 2) / d
    assert blind > error * 1.02
