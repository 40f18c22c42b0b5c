"""Steps of the chapter "deep": the three models of the diagonal, and what plain scores show.

The reference is a matrix of finite size or a direct evaluation, never the function under test.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_exercises import run

from aimlib import (
    HardmaxChannel,
    SoftmaxChannel,
    WishartPrior,
    attention_indices,
    deep_attention,
    deep_attention_from_indices,
)
from aimlib.deep import row_softmax


def drawn(d: int, n: int, rho: float, layers: int = 2, tokens: int = 2, seed: int = 0):
    rng = np.random.default_rng(seed)
    weights = np.stack([WishartPrior(rho).sample(d, rng) for _ in range(layers)])
    return rng.standard_normal((n, tokens, d)), weights


def plain_scores(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return x[:, None] @ weights @ x.transpose(0, 2, 1)[:, None] / math.sqrt(x.shape[-1])


def without_trace(weights: np.ndarray) -> np.ndarray:
    d = weights.shape[-1]
    return weights - np.trace(weights, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)


def test_centred_indices_and_traceless_weights_are_different_numbers() -> None:
    """deep:traceless: they differ by the inner products of the tokens that are seen."""
    x, s = drawn(40, 30, 0.5, tokens=3)
    means = np.trace(s, axis1=1, axis2=2) / 40
    inner = (x @ x.transpose(0, 2, 1) - 40 * np.eye(3)) / math.sqrt(40)
    difference = attention_indices(x, s) - plain_scores(x, without_trace(s))
    assert difference == pytest.approx(means[:, None, None] * inner[:, None], abs=1e-11)
    assert difference.std() > 0.5


@pytest.mark.parametrize("rho", [0.5, 2.0])
def test_second_moments_of_the_two_models(rho) -> None:
    """deep:second-moments by sampling tokens, and their limits at d = 400."""
    d, n = 400, 6000
    x, s = drawn(d, n, rho)
    for h, variance, covariance in (
        (attention_indices(x, s), 1 + rho, rho),
        (plain_scores(x, without_trace(s)), 1.0, 0.0),
    ):
        off = h[:, :, 0, 1]
        measured = off.T @ off / n
        limit = np.full((2, 2), covariance) + (variance - covariance) * np.eye(2)
        assert measured == pytest.approx(limit, abs=5 * math.sqrt(2 / n) * variance + 8 / d)
    diagonal = attention_indices(x, s)[:, :, 0, 0]
    exact = 2 * np.einsum("iab,jab->ij", s, s) / d  # deep:aim at a = b
    assert diagonal.T @ diagonal / n == pytest.approx(exact, abs=10 * (1 + rho) / math.sqrt(n))
    traces = np.trace(s, axis1=1, axis2=2) / d
    product = np.einsum("ij,ij->", s[0], s[1]) / d
    assert product == pytest.approx(rho, abs=0.05 * (1 + rho))
    assert product - traces[0] * traces[1] == pytest.approx(0.0, abs=8 / d * (1 + rho))


def test_a_network_that_subtracts_the_mean_of_its_scores_has_centred_indices() -> None:
    """deep:centred, against a network on tokens that carries its mixing along."""
    d, skip, beta = 30, 0.7, 0.8
    x, s = drawn(d, 20, 0.5, layers=3, tokens=3)
    current, mixing = x, np.broadcast_to(np.eye(3), (20, 3, 3))
    for layer in s:
        mean = np.trace(layer) / math.sqrt(d) * mixing @ mixing.transpose(0, 2, 1)
        score = current @ layer @ current.transpose(0, 2, 1) / math.sqrt(d) - mean
        attention = row_softmax(score, beta)
        current, mixing = skip * current + attention @ current, skip * mixing + attention @ mixing
    reduced = deep_attention_from_indices(attention_indices(x, s), skip, beta)
    assert reduced == pytest.approx(attention, abs=1e-10)
    # and the other two models answer differently on the same tokens
    assert np.abs(reduced - deep_attention(x, s, skip, beta)).max() > 0.1
    assert np.abs(reduced - deep_attention(x, without_trace(s), skip, beta)).max() > 0.1


@pytest.mark.parametrize("skip", [0.0, 1.0])
@pytest.mark.parametrize("d", [200, 400])
def test_the_first_layer_in_the_logits_of_the_second(d, skip) -> None:
    """deep:plain, deep:correction and deep:leak: the last layer alone, and what is left over."""
    x, s = drawn(d, 400, 0.5)
    h = plain_scores(x, s)
    y = deep_attention(x, s, skip, 1.0)
    logits = np.log(y[:, 0, 1] / y[:, 0, 0])
    alone = (skip + 1) ** 2 * (h[:, 1, 0, 1] - h[:, 1, 0, 0])
    leak = math.exp(-math.sqrt(0.5 * d))
    attention = row_softmax(h[:, 0], 1.0)
    p, r = attention[:, 0, 1], attention[:, 1, 0]
    assert np.exp(np.mean(np.log(p))) == pytest.approx(leak, rel=0.5)
    first, other = h[:, 1, 0, 0] - h[:, 1, 0, 1], h[:, 1, 1, 1] - h[:, 1, 0, 1]
    correction = (skip + 1) * ((2 * p + r) * first + p * other)
    left = logits - alone
    assert np.median(np.abs(left - correction) / correction) < 20 * leak
    assert np.median(left) > 2 * leak * math.sqrt(0.5 * d)
    assert np.corrcoef(np.log(left), np.log(3 * p + r))[0, 1] > 0.99, "it knows the first layer"


def test_one_layer_of_plain_scores_shows_all_differences() -> None:
    """deep:layers and deep:plain at L = 1, in doubles, with attention to others below 2e-3."""
    x, s = drawn(100, 200, 0.5, layers=1, tokens=3)
    y, h = deep_attention(x, s, 1.0, 1.0), plain_scores(x, s)[:, 0]
    off = y[:, ~np.eye(3, dtype=bool)]
    assert np.median(off) < 2e-3
    logits = np.log(y / np.diagonal(y, axis1=1, axis2=2)[:, :, None])
    differences = h - np.diagonal(h, axis1=1, axis2=2)[:, :, None]
    assert logits == pytest.approx(differences, abs=1e-12)
    assert np.all(deep_attention(x, s, 1.0, math.inf) == np.eye(3)), "hardmax shows nothing"


# --- exercises --------------------------------------------------------------------------------


def test_exercise_where_the_first_layer_leaves_a_double() -> None:
    """deep-exercise-double: d about 2700; at d = 100 the median is almost twice 2 epsilon."""
    d = (53 * math.log(2)) ** 2 / 0.5
    assert d == pytest.approx(2700, rel=0.005)
    assert ((54 * math.log(2)) ** 2 / 0.5) / d == pytest.approx(1.04, abs=0.005)
    names = run("deep", "deep-exercise-double")
    estimate = 2 * math.exp(-math.sqrt(50))
    assert estimate == pytest.approx(1.7e-3, rel=0.02)
    assert names["change"] == pytest.approx(3.2e-3, abs=5e-5)
    # the exponents in the limit: their shared index and two diagonal ones
    shared, first, second = np.sqrt(1.5) * np.random.default_rng(1).standard_normal((3, 400_000))
    one, other = shared - math.sqrt(2) * first, shared - math.sqrt(2) * second
    assert np.var(one) == pytest.approx(4.5, rel=0.01)
    assert np.median(3 * np.exp(one) + np.exp(other)) / 4 == pytest.approx(1.54, abs=0.03)


def test_exercise_the_median_of_a_leak_at_finite_size() -> None:
    """deep-exercise-double: the median of p is about 1.2 epsilon at d = 100, over teachers."""
    leaks = []
    for seed in range(16):
        x, s = drawn(100, 2000, 0.5, layers=1, seed=seed)
        h = plain_scores(x, s)[:, 0]
        leaks.append(np.median(row_softmax(h, 1.0)[:, 0, 1]) / math.exp(-math.sqrt(50)))
    assert np.mean(leaks) == pytest.approx(1.2, abs=0.1)


def test_exercise_hardmax_knows_the_difference() -> None:
    """deep-exercise-hardmax: c = 0.938 with centred indices, 1.239 with traceless weights."""
    channel = HardmaxChannel(2)
    assert channel.information(1.0, 2.0) == pytest.approx(0.938, abs=5e-4)
    assert channel.information(0.0, 1.0) == pytest.approx(1.239, abs=5e-4)
    assert SoftmaxChannel(2).information(1.0, 2.0) == SoftmaxChannel(2).information(0.0, 1.0) == 2


def test_exercise_a_temperature_that_keeps_all_layers() -> None:
    """deep-exercise-temperature: the linearised attention of one layer of plain scores."""
    d, b, rho, tokens = 3000, 1.2, 0.5, 3
    rng = np.random.default_rng(1)
    h = np.triu(rng.standard_normal((tokens, tokens))) * np.sqrt((1 + rho) * (1 + np.eye(tokens)))
    h = h + np.triu(h, 1).T
    y = row_softmax(h + math.sqrt(rho * d) * np.eye(tokens), b / math.sqrt(d))
    star = np.full((tokens, tokens), 1.0) + (math.exp(b * math.sqrt(rho)) - 1) * np.eye(tokens)
    star /= star.sum(axis=1, keepdims=True)
    linear = b / math.sqrt(d) * star * (h - (star * h).sum(axis=1, keepdims=True))
    assert y - star == pytest.approx(linear, abs=4 * b**2 / d)
    assert np.abs(linear).max() > 10 * b**2 / d / 2
