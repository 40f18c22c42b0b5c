"""The model: indices against their definition, their Gaussian limit, and the public border."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aimlib import (
    AttentionIndexedModel,
    BilinearPrior,
    Dataset,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    StreamedDataset,
    WignerPrior,
    WishartPrior,
    _datasets,
    attention_indices,
    cross_attention,
    estimation_error,
    layers,
)
from aimlib.model import TOKEN_LAWS


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 4), st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_indices_are_the_definition(tokens, dimension, seed) -> None:
    """model:indices, entry by entry."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, tokens, dimension))
    s = WignerPrior().sample(dimension, rng)
    h = attention_indices(x, s)
    for k in range(3):
        for a in range(tokens):
            for b in range(tokens):
                direct = (x[k, a] @ s @ x[k, b] - (a == b) * np.trace(s)) / np.sqrt(dimension)
                assert h[k, a, b] == pytest.approx(direct, abs=1e-12)


def test_several_layers_stack() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 3, 8))
    layers = np.stack([WignerPrior().sample(8, rng) for _ in range(2)])
    both = attention_indices(x, layers)
    assert both.shape == (5, 2, 3, 3)
    assert np.array_equal(both[:, 1], attention_indices(x, layers[1]))


def test_the_indices_become_independent_gaussians() -> None:
    """model:covariance, variance (1 + delta_ab) Q, no correlation, and a kurtosis that vanishes."""
    d, n = 200, 20000
    rng = np.random.default_rng(1)
    s = WishartPrior(0.5).sample(d, rng)
    q = np.sum(s * s) / d
    h = attention_indices(rng.standard_normal((n, 2, d)), s)
    flat = np.stack([h[:, 0, 0], h[:, 1, 1], h[:, 0, 1]])
    covariance = np.cov(flat) / q
    assert covariance == pytest.approx(np.diag([2.0, 2.0, 1.0]), abs=0.06)
    # the excess kurtosis of h_11 is 12 Tr S^4/(Tr S^2)^2, of order 1/d
    standard = flat[0] / flat[0].std()
    predicted = 12 * np.sum(np.linalg.eigvalsh(s) ** 4) / np.sum(s * s) ** 2
    assert np.mean(standard**4) - 3 == pytest.approx(predicted, abs=0.25)


def test_samples_are_reproducible_and_streams_independent() -> None:
    model = AttentionIndexedModel(20, WishartPrior(0.5), SoftmaxChannel(tokens=2))
    first, again, other = model.sample(0.2, 3), model.sample(0.2, 3), model.sample(0.2, 4)
    assert np.array_equal(first.tokens, again.tokens)
    assert np.array_equal(first.outputs, again.outputs)
    assert not np.array_equal(first.teacher, other.teacher)
    assert np.array_equal(first.teacher, model.sample(0.4, 3).teacher)
    assert first.tokens.shape == (80, 2, 20)
    assert first.sample_complexity == 0.2
    assert first.dimension == 20


@pytest.mark.parametrize("law", sorted(TOKEN_LAWS))
def test_token_laws_are_standardised(law) -> None:
    x = TOKEN_LAWS[law](np.random.default_rng(0), (200_000,))
    assert x.mean() == pytest.approx(0.0, abs=0.01)
    assert x.var() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    "channel", [SoftmaxChannel(3), HardmaxChannel(2), LinearChannel(1), LinearChannel(2, 0.5)]
)
def test_outputs_are_those_of_the_channel(channel) -> None:
    data = AttentionIndexedModel(16, WishartPrior(1.0), channel).sample(0.1, 0)
    if getattr(channel, "noise", 0.0) == 0.0:
        assert np.array_equal(
            data.outputs, channel.output(attention_indices(data.tokens, data.teacher))
        )
    assert data.outputs.shape == (26, channel.tokens, channel.tokens)


def test_estimation_error_of_the_constant_estimate() -> None:
    s = WishartPrior(0.5).sample(400, np.random.default_rng(5))
    assert estimation_error(np.sqrt(0.5) * np.eye(400), s) == pytest.approx(1.0, rel=0.02)
    assert estimation_error(s, s) == 0.0


def test_bad_arguments_are_refused_by_name() -> None:
    model = AttentionIndexedModel(10, WishartPrior(0.5), SoftmaxChannel())
    for bad in (0.0, -1.0, np.nan, "x", 1e-9):
        with pytest.raises(ValueError, match="sample_complexity"):
            model.sample(bad, 0)
    with pytest.raises(ValueError, match="seed"):
        model.sample(0.5, None)
    with pytest.raises(ValueError, match="dimension"):
        AttentionIndexedModel(1, WishartPrior(0.5), SoftmaxChannel())
    with pytest.raises(ValueError, match="token_law"):
        AttentionIndexedModel(10, WishartPrior(0.5), SoftmaxChannel(), token_law="cauchy")
    with pytest.raises(ValueError, match="tokens must have shape"):
        attention_indices(np.zeros((2, 3)), np.eye(3))
    with pytest.raises(ValueError, match="weights must be symmetric"):
        attention_indices(np.zeros((1, 2, 2)), np.array([[0, 1], [0, 0]]))
    with pytest.raises(ValueError, match="weights must have shape"):
        attention_indices(np.zeros((1, 2, 3)), np.eye(2))
    with pytest.raises(ValueError, match="outputs must have shape"):
        Dataset(np.zeros((4, 2, 3)), np.zeros((4, 3, 3)))
    with pytest.raises(ValueError, match="teacher must have shape"):
        Dataset(np.zeros((4, 2, 3)), np.zeros((4, 2, 2)), np.eye(2))
    with pytest.raises(ValueError, match="estimate must have the shape"):
        estimation_error(np.eye(2), np.eye(3))


NOISY = [
    AttentionIndexedModel(40, WishartPrior(0.5), LinearChannel(1, 0.5)),
    cross_attention.Model(40, BilinearPrior(0.5, 1.5), cross_attention.LinearChannel(1, 1, 0.5)),
    layers.Model(40, [WishartPrior(0.5)], layers.MixedLinearChannel([[1.0]], 0.5)),
]


@pytest.mark.parametrize("model", NOISY, ids=lambda model: model.weights)
def test_noise_is_independent_of_tokens_and_the_stream_has_the_teacher_of_the_sample(model) -> None:
    """y - h is the noise: of its variance, uncorrelated with every stream of tokens, n = 1600."""
    held = model.sample(1.0, seed=4)
    streamed = StreamedDataset.regenerate(model, 1.0, seed=4, block=700)
    assert np.array_equal(held.teacher, streamed.teacher)
    assert held.sample_complexity == streamed.sample_complexity == 1.0
    for data in (held, streamed):
        blocks = [sequences for _, sequences in data.blocks()]
        sequences = tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))
        indices = model.indices(sequences, data.teacher)
        noise = (data.outputs - indices).ravel() / np.sqrt(0.5)
        assert noise.var() == pytest.approx(1.0, abs=0.15)
        for tokens in sequences:
            flat = tokens.ravel()
            for lag in range(3):  # entries drawn from the same stream would be the same numbers
                same = flat[lag : lag + noise.size]
                assert abs(np.mean(same * noise)) < 0.15
                assert abs(np.mean(tokens.reshape(noise.size, -1)[:, lag] * noise)) < 0.15


@pytest.mark.parametrize("model", NOISY, ids=lambda model: model.weights)
def test_what_does_not_fit_in_memory_is_refused_at_once(model, monkeypatch) -> None:
    monkeypatch.setattr(_datasets, "available_memory", lambda: 200_000)
    with pytest.raises(ValueError, match=r"needs .*iB of memory.*StreamedDataset") as error:
        model.sample(1.0, 0)
    words = str(error.value).split()
    fits = float(words[words.index("most") + 2])
    assert 0.0 < fits < 1.0
    assert model.sample(0.95 * fits, 0).sample_complexity < 1.0
