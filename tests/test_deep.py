"""Deep attention on tokens equals the same network on the indices of its first layer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aimlib import (
    SoftmaxChannel,
    WishartPrior,
    attention_indices,
    deep_attention,
    deep_attention_from_indices,
)
from aimlib.deep import mixing_matrices, row_softmax


def network(rng, layers: int, tokens: int, dimension: int, tied: bool):
    """Tokens and weights whose scores are of order one, so that no softmax is saturated."""
    x = rng.standard_normal((4, tokens, dimension))
    if tied:
        s = np.stack([WishartPrior(0.5).sample(dimension, rng) for _ in range(layers)])
        s -= np.trace(s, axis1=1, axis2=2)[:, None, None] / dimension * np.eye(dimension)
    else:
        s = rng.standard_normal((layers, dimension, dimension)) / np.sqrt(dimension)
    scores = x[:, None] @ s @ x.transpose(0, 2, 1)[:, None] / math.sqrt(dimension)
    return x, s, scores


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 5),
    st.integers(1, 6),
    st.floats(-1.0, 1.0),
    st.floats(0.0, 2.0),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_the_reduction_is_exact(layers, tokens, skip, beta, tied, seed) -> None:
    """deep:reduction to 1e-12, for L = 1..5, T = 1..6, any skip, tied and untied."""
    x, s, scores = network(np.random.default_rng(seed), layers, tokens, 16, tied)
    direct = deep_attention(x, s, skip, beta)
    reduced = deep_attention_from_indices(scores, skip, beta)
    # scores grow with the layers, and so does what rounding of their product may change
    largest = np.abs(mixing_matrices(scores, skip, beta)).max() ** 2 * np.abs(scores).max()
    assert reduced == pytest.approx(direct, abs=1e-12 * max(1.0, 0.02 * beta * largest))


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("tokens", [1, 2, 4, 6])
@pytest.mark.parametrize("tied", [True, False])
def test_the_reduction_with_hardmax(layers, tokens, tied) -> None:
    x, s, scores = network(np.random.default_rng(layers), layers, tokens, 20, tied)
    direct = deep_attention(x, s, 0.7, math.inf)
    assert np.array_equal(deep_attention_from_indices(scores, 0.7, math.inf), direct)


def test_the_reduction_in_terms_of_centred_indices() -> None:
    """deep:centring: h and the traces carry the same information as H."""
    rng, d = np.random.default_rng(3), 24
    x = rng.standard_normal((6, 3, d))
    s = np.stack([WishartPrior(0.5).sample(d, rng) for _ in range(3)])
    h = attention_indices(x, s)
    traces = np.trace(s, axis1=1, axis2=2)
    reduced = deep_attention_from_indices(h, 1.0, 0.3, traces=traces, dimension=d)
    assert reduced == pytest.approx(deep_attention(x, s, 1.0, 0.3), abs=1e-12)


def test_tokens_of_every_layer_are_mixtures_of_the_first() -> None:
    """deep:mixing, X_l = B_l X_0, layer by layer."""
    x, s, scores = network(np.random.default_rng(4), 4, 3, 12, True)
    mixing = mixing_matrices(scores, 0.5, 1.0)
    current = x
    for layer in range(3):
        assert mixing[:, layer] @ x == pytest.approx(current, abs=1e-11)
        scores_now = current @ s[layer] @ current.transpose(0, 2, 1) / math.sqrt(12)
        current = 0.5 * current + row_softmax(scores_now, 1.0) @ current


def test_one_layer_is_the_softmax_channel() -> None:
    rng = np.random.default_rng(5)
    x, s = rng.standard_normal((7, 2, 10)), WishartPrior(1.0).sample(10, rng)
    h = attention_indices(x, s)
    centred = deep_attention_from_indices(h[:, None], 1.0, 1.3)
    assert centred == pytest.approx(SoftmaxChannel(2, 1.3).output(h), abs=1e-14)


def test_row_softmax_limits() -> None:
    scores = np.array([[0.0, 3.0, 1.0]] * 3)
    assert row_softmax(scores, 0.0) == pytest.approx(np.full((3, 3), 1 / 3))
    assert row_softmax(scores, 1e3) == pytest.approx(row_softmax(scores, math.inf), abs=1e-12)


def test_bad_arguments_are_refused_by_name() -> None:
    x, s = np.zeros((2, 3, 4)), np.zeros((1, 4, 4))
    with pytest.raises(ValueError, match="tokens must have shape"):
        deep_attention(np.zeros((3, 4)), s, 1.0, 1.0)
    with pytest.raises(ValueError, match="weights must have shape"):
        deep_attention(x, np.zeros((4, 4)), 1.0, 1.0)
    with pytest.raises(ValueError, match="skip"):
        deep_attention(x, s, np.nan, 1.0)
    for bad in (-1.0, np.nan, "hot"):
        with pytest.raises(ValueError, match="inverse_temperature"):
            deep_attention(x, s, 1.0, bad)
    with pytest.raises(ValueError, match="indices must have shape"):
        deep_attention_from_indices(np.zeros((2, 3, 3)), 1.0, 1.0)
    with pytest.raises(ValueError, match="dimension must be given"):
        deep_attention_from_indices(np.zeros((2, 1, 3, 3)), 1.0, 1.0, traces=[1.0])
    with pytest.raises(ValueError, match="traces must have shape"):
        deep_attention_from_indices(np.zeros((2, 1, 3, 3)), 1.0, 1.0, traces=[1, 2], dimension=3)
