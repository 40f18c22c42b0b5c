"""Tokens drawn from a softmax: every formula against an independent way to the same number."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special

from aimlib import (
    AttentionIndexedModel,
    Dataset,
    HardmaxChannel,
    NoisySoftmaxChannel,
    SampledSoftmaxChannel,
    SoftmaxChannel,
    WishartPrior,
    amp,
    averaged_gradient_descent,
    bayes_optimal,
    state_evolution,
    strong_recovery_threshold,
    weak_recovery_threshold,
)
from aimlib.channels import output_function
from aimlib.descent import loss_and_gradient
from aimlib.sampled_tokens import asymptotic_error, fisher_information, tokens_per_soft_label

PRIOR = WishartPrior(0.5)


def symmetric(rng: np.random.Generator, count: int, tokens: int) -> np.ndarray:
    z = rng.standard_normal((count, tokens, tokens))
    return (z + np.swapaxes(z, 1, 2)) / math.sqrt(2.0)


def weighted_mean(channel, y, omega, variance, count, seed=0) -> tuple[np.ndarray, float]:
    """sampled_tokens:posterior, by drawing the indices from the prior and weighting them."""
    h = omega + math.sqrt(variance) * symmetric(np.random.default_rng(seed), count, len(omega))
    logs = channel.inverse_temperature * (y * h).sum(axis=(1, 2))
    scaled = channel.inverse_temperature * h
    logs -= channel.draws * special.logsumexp(scaled, axis=2).sum(axis=1)
    weights = np.exp(logs - logs.max())
    size = weights.sum() ** 2 / (weights**2).sum()
    return np.einsum("n,nab->ab", weights, h) / weights.sum(), size


@pytest.mark.parametrize(
    ("tokens", "beta", "draws", "variance"),
    [(2, 1.0, 1, 1.0), (2, 3.0, 4, 0.5), (2, 10.0, 1, 1.0), (3, 1.0, 1, 1.0), (3, 2.0, 8, 0.4),
     (4, 1.5, 2, 0.7)],
)  # fmt: skip
def test_posterior_mean_by_weighted_draws(tokens, beta, draws, variance) -> None:
    """sampled_tokens:posterior and sampled_tokens:race; sampled_tokens:output draws the data."""
    channel = SampledSoftmaxChannel(tokens, beta, draws)
    rng = np.random.default_rng(5)
    omega = symmetric(rng, 3, tokens)
    y = channel.output(omega + math.sqrt(variance) * symmetric(rng, 3, tokens), rng)
    found = channel.posterior_mean(y, omega, variance)
    for k in range(3):
        sampled, size = weighted_mean(channel, y[k], omega[k], variance, 200_000)
        assert found[k] == pytest.approx(sampled, abs=6.0 * math.sqrt(2.0 * variance / size))


def test_two_ways_to_the_posterior_of_two_tokens() -> None:
    """The plane of sampled_tokens:posterior against the two rates of sampled_tokens:race."""
    from aimlib import _sampled_rows

    rng = np.random.default_rng(1)
    for beta, draws, variance in ((1.0, 1, 1.0), (1.0, 1, 0.01), (3.0, 16, 0.3), (1.0, 64, 1.0)):
        omega = 1.2 * symmetric(rng, 60, 2)
        channel = SampledSoftmaxChannel(2, beta, draws)
        y = channel.output(omega + math.sqrt(variance) * symmetric(rng, 60, 2), rng)
        plane = channel.posterior_mean(y, omega, variance)
        rates = _sampled_rows.posterior_means(y, omega, variance, beta, draws)
        assert np.abs(plane - rates).max() < 3e-4 * math.sqrt(variance)


def test_posterior_where_data_contradict_the_prediction() -> None:
    """The mode is far from omega: the sums of sampled_tokens:posterior follow it."""
    channel = SampledSoftmaxChannel(2, 1.0, 4)
    omega = np.array([[[30.0, 0.0], [0.0, -20.0]]])
    y = np.array([[[0.0, 4.0], [4.0, 0.0]]])
    mean = channel.posterior_mean(y, omega, 1.0)[0]
    # far out the likelihood of row 1 is e^(-4 u_1), and that of row 2 is sigma(u_2)^4
    assert mean[0, 0] == pytest.approx(30.0 - 8.0 + 0.0, abs=0.5)
    assert np.isfinite(mean).all()


@pytest.mark.parametrize(
    ("beta", "draws", "variance", "accuracy"),
    [(1.0, 1, 0.6, 1e-11), (1.0, 3, 0.3, 1e-11), (0.4, 2, 1.0, 1e-11), (3.0, 1, 0.6, 2e-6)],
)
def test_information_by_plain_sums(beta, draws, variance, accuracy) -> None:
    """sampled_tokens:pair-information by sums over equal steps of mean and indices.

    Their error is that of steps of 0.3 beside poles at a distance of pi/beta.
    """
    steps = np.arange(-7.5, 7.6, 0.3)
    weights = np.exp(-0.5 * steps**2)
    weights /= weights.sum()
    root = np.linalg.cholesky(np.array([[3.0, 1.0], [1.0, 3.0]]))
    joint = np.outer(weights, weights).ravel()
    kept = joint > 1e-16
    z = np.stack(np.meshgrid(steps, steps, indexing="ij"), -1).reshape(-1, 2)[kept] @ root.T
    joint, total = joint[kept], 0.0
    for start in range(0, len(z), 200):
        w = math.sqrt(1.5 - variance) * z[start : start + 200]
        p = special.expit(beta * (w[:, None, :] + math.sqrt(variance) * z))
        rows = [special.comb(draws, k) * p**k * (1 - p) ** (draws - k) for k in range(draws + 1)]
        for k, l in itertools.product(range(draws + 1), repeat=2):  # noqa: E741
            law = rows[k][..., 0] * rows[l][..., 1]
            score = beta * (np.array([k, l]) - draws * p)  # derivative of the log-likelihood
            d1, d2 = (law * score[..., 0]) @ joint, (law * score[..., 1]) @ joint
            square = (3 * d1**2 + 3 * d2**2 + 2 * d1 * d2) / np.maximum(law @ joint, 1e-300)
            total += float(joint[start : start + 200] @ square)
    channel = SampledSoftmaxChannel(2, beta, draws)
    assert channel.information_at(variance, 1.5) == pytest.approx(variance * total, rel=accuracy)


def test_information_is_its_own_limit_of_finer_sums() -> None:
    """Nine digits: the sums do not change when their steps do."""
    from aimlib import _sampled_pair

    channel = SampledSoftmaxChannel(2, 2.0, 3)
    direct = [_sampled_pair.pair_information(x, 2.0, 3, 0.0) for x in (0.9, 0.3, 1e-3)]
    fine, _sampled_pair._FINE = _sampled_pair._FINE, 0.5
    try:
        finer = [_sampled_pair.pair_information(x, 2.0, 3, 0.0) for x in (0.9, 0.3, 1e-3)]
    finally:
        _sampled_pair._FINE = fine
    assert direct == pytest.approx(finer, rel=1e-11)
    assert channel.information_at([0.9, 0.3, 1e-3], 1.0) == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize("channel", [SampledSoftmaxChannel(3), NoisySoftmaxChannel(0.05, 2.0)])
def test_information_by_sampling(channel) -> None:
    """sampled_tokens:pair-information (noise) and the Monte Carlo of three tokens."""
    rng, variance, total = np.random.default_rng(3), 0.6, 1.5
    t = channel.tokens
    omega = math.sqrt(total - variance) * symmetric(rng, 6000, t)
    y = channel.output(omega + math.sqrt(variance) * symmetric(rng, 6000, t), rng)
    g = output_function(channel, y, omega, variance)
    squares = variance * np.sum(np.triu(1.0 + np.eye(t)) * g**2, axis=(1, 2))
    error = squares.std() / math.sqrt(squares.size)
    stated = 0.03 * squares.mean() if t == 3 else 0.0
    assert channel.information_at(variance, total) == pytest.approx(
        squares.mean(), abs=4.0 * error + stated
    )


def test_stated_error_of_three_tokens() -> None:
    value, error = SampledSoftmaxChannel(3).information_with_error(0.5, 1.5)
    assert 0.0 < error < 0.1 * value
    assert SampledSoftmaxChannel(2).information_with_error(0.5, 1.5)[1] < 1e-8


@pytest.mark.parametrize("beta", [0.1, 1.0, 8.0])
def test_fisher_information_by_quadrature(beta) -> None:
    """sampled_tokens:fisher at two tokens: 6 beta^2 m E[p (1 - p)], and as the slope of c."""
    total = 1.5

    def integrand(z: float) -> float:
        u = beta * math.sqrt(3.0 * total) * z
        return (
            math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) * special.expit(u) * special.expit(-u)
        )

    mean = 2.0 * integrate.quad(integrand, 0.0, 12.0, epsabs=1e-13, limit=300)[0]
    for draws in (1, 3):
        channel = SampledSoftmaxChannel(2, beta, draws)
        s = fisher_information(channel, total)
        assert s == pytest.approx(6.0 * beta**2 * draws * mean, rel=1e-9)
        assert channel.information_at(1e-9, total) / 1e-9 == pytest.approx(s, rel=1e-6)
    if beta == 1.0:
        assert fisher_information(SampledSoftmaxChannel(2), total) == pytest.approx(
            0.876352, abs=5e-7
        )


@pytest.mark.parametrize(("tokens", "beta"), [(3, 1.0), (5, 3.0)])
def test_fisher_information_of_more_tokens_by_sampling(tokens, beta) -> None:
    """sampled_tokens:fisher, from variances of rows of independent indices."""
    rows = np.random.default_rng(0).standard_normal((400_000, tokens))
    rows[:, 0] *= math.sqrt(2.0)
    p = special.softmax(beta * rows, axis=1)
    v = p * (1.0 - p)
    terms = beta**2 * tokens * (2.0 * v[:, 0] + v[:, 1:].sum(axis=1))
    error = terms.std() / math.sqrt(len(terms))
    found = fisher_information(SampledSoftmaxChannel(tokens, beta), 1.0)
    assert found == pytest.approx(terms.mean(), abs=4.0 * error)


def test_the_law_of_many_data() -> None:
    """sampled_tokens:law, and that it never recovers."""
    for channel in (SampledSoftmaxChannel(2), NoisySoftmaxChannel(0.05)):
        assert strong_recovery_threshold(PRIOR, channel) == math.inf
        error = bayes_optimal(4000.0, PRIOR, channel).estimation_error
        assert error == pytest.approx(asymptotic_error(4000.0, PRIOR, channel), rel=1e-3)
    errors = state_evolution(1.0, PRIOR, SampledSoftmaxChannel(2), 30)
    assert np.all(np.diff(errors) < 1e-12)
    assert errors[-1] == pytest.approx(
        bayes_optimal(1.0, PRIOR, SampledSoftmaxChannel(2)).estimation_error, rel=1e-6
    )


def test_many_draws_are_a_soft_label() -> None:
    """sampled_tokens:many-draws: 2 - c times m tends to its limit."""
    total, variance, beta = 1.5, 0.5, 0.6
    limit = 0.75 * (2.0 + 2.0 * math.exp(1.5 * beta**2 * total)) / (beta**2 * variance)
    gaps = [
        m * (2.0 - SampledSoftmaxChannel(2, beta, m).information_at(variance, total))
        for m in (64, 128, 256)
    ]
    assert np.all(np.diff(gaps) > 0.0)
    assert 2.0 * gaps[2] - gaps[1] == pytest.approx(limit, rel=0.03)


def test_large_beta_is_hardmax() -> None:
    """The other end: one draw at large beta is the hardmax, at every fixed V."""
    hardmax = HardmaxChannel(2).information_at([0.3, 1.0, 1.5], 1.5)
    sampled = SampledSoftmaxChannel(2, 200.0).information_at([0.3, 1.0, 1.5], 1.5)
    assert sampled == pytest.approx(hardmax, rel=1e-3)
    assert np.all(sampled < hardmax)


def test_weak_recovery_and_worth() -> None:
    """sampled_tokens:worth; 1/(2 c(0)) lies between softmax and what one draw can say."""
    thresholds = [weak_recovery_threshold(SampledSoftmaxChannel(2, draws=m)) for m in (1, 4, 16)]
    assert np.all(np.diff(thresholds) < 0.0)
    assert thresholds[-1] > 0.25
    channel = SampledSoftmaxChannel(2, draws=4)
    worth = tokens_per_soft_label([0.1, 1.0], 1.5, channel)
    assert worth == pytest.approx(8.0 / channel.information_at([0.1, 1.0], 1.5))
    soft = bayes_optimal(0.1, PRIOR, SoftmaxChannel(2)).estimation_error
    ratio = tokens_per_soft_label(soft, 1.5, channel) / 4.0
    assert bayes_optimal(0.1 * ratio, PRIOR, channel).estimation_error == pytest.approx(soft)


def test_noise_in_probabilities() -> None:
    """sampled_tokens:noisy: a row is (1 + y_11 - y_12)/2, and little noise is softmax."""
    channel = NoisySoftmaxChannel(1e-6)
    h = symmetric(np.random.default_rng(0), 50, 2)
    y = SoftmaxChannel(2).output(h)
    shift = np.array([[[0.3], [-0.2]]])
    mean = channel.posterior_mean(y + shift, np.zeros_like(h), 1.0)
    assert mean == pytest.approx(channel.posterior_mean(y, np.zeros_like(h), 1.0), abs=1e-12)
    exact = SoftmaxChannel(2).posterior_mean(y, np.zeros_like(h), 1.0)
    assert np.median(np.abs(mean - exact)) < 0.01
    assert channel.information_at(1.0, 1.5) == pytest.approx(2.0, abs=0.01)
    with pytest.raises(ValueError, match="rng must be"):
        channel.output(h)


def test_noise_in_logits_is_gaussian() -> None:
    """sampled_tokens:relative: the trace over the eigenvalues 4V and 2V of Cov(u)."""
    v, tau = 0.7, 0.2
    covariance = v * np.array([[3.0, 1.0], [1.0, 3.0]])
    expected = np.trace(covariance @ np.linalg.inv(covariance + tau * np.eye(2)))
    assert 4 * v / (4 * v + tau) + 2 * v / (2 * v + tau) == pytest.approx(expected)


@pytest.mark.parametrize("draws", [1, 4])
def test_message_passing_reaches_the_theory(draws) -> None:
    channel = SampledSoftmaxChannel(2, draws=draws)
    data = AttentionIndexedModel(60, PRIOR, channel).sample(1.0, seed=1)
    run = amp(data, PRIOR, channel)
    theory = bayes_optimal(1.0, PRIOR, channel).estimation_error
    assert run.status == "converged"
    assert run.estimation_error == pytest.approx(theory, rel=0.15)
    assert run.predicted_error == pytest.approx(theory, rel=0.1)


def test_cross_entropy_is_the_negative_log_likelihood() -> None:
    """Value by hand and gradient by differences, for counts of several draws."""
    channel = SampledSoftmaxChannel(2, 1.5, 3)
    data = AttentionIndexedModel(6, PRIOR, channel).sample(0.5, seed=2)
    w = np.random.default_rng(0).standard_normal((1, 6, 3))
    for loss in ("cross-entropy", "squared"):
        value, gradient = loss_and_gradient(w, data, channel, loss)
        direction = np.random.default_rng(1).standard_normal(w.shape)
        step = 1e-6 * direction
        up, down = (loss_and_gradient(w + s, data, channel, loss)[0] for s in (step, -step))
        assert (gradient * direction).sum() == pytest.approx((up - down)[0] / 2e-6, rel=1e-6)
    s = w[0] @ w[0].T / math.sqrt(18.0)
    h = np.einsum("nai,ij,nbj->nab", data.tokens, s, data.tokens) / math.sqrt(6.0)
    h -= np.trace(s) / math.sqrt(6.0) * np.eye(2)
    logs = special.log_softmax(1.5 * h, axis=2)
    value = loss_and_gradient(w, data, channel, "cross-entropy")[0]
    assert value[0] == pytest.approx(-(data.outputs * logs).sum(axis=(1, 2)).mean())


def test_cross_entropy_wants_rows_that_sum_to_one() -> None:
    """Elsewhere p - y is not its gradient; the squared loss is one for any outputs."""
    student, weights = SoftmaxChannel(2), np.random.default_rng(0).standard_normal((1, 6, 3))
    direction = np.random.default_rng(1).standard_normal(weights.shape)
    options = {"seed": 0, "starts": 1, "iterations": 1}
    for noise in (1e-6, 0.05):
        data = AttentionIndexedModel(6, PRIOR, NoisySoftmaxChannel(noise)).sample(0.5, seed=2)
        with pytest.raises(ValueError, match=r"outputs must have rows that sum to 1 .* in row"):
            loss_and_gradient(weights, data, student, "cross-entropy")
        with pytest.raises(ValueError, match=r"outputs must have rows that sum to 1 .* in row"):
            averaged_gradient_descent(data, 3, student, loss="cross-entropy", **options)
        gradient = loss_and_gradient(weights, data, student)[1]
        up, down = (
            loss_and_gradient(weights + s * direction, data, student)[0] for s in (1e-6, -1e-6)
        )
        assert (gradient * direction).sum() == pytest.approx((up - down)[0] / 2e-6, rel=1e-6)
    for channel in (SampledSoftmaxChannel(2), HardmaxChannel(2), student):
        data = AttentionIndexedModel(6, PRIOR, channel).sample(0.5, seed=2)
        single = Dataset(data.tokens, data.outputs.astype(np.float32), data.teacher)
        for given in (data, single):
            assert np.isfinite(loss_and_gradient(weights, given, student, "cross-entropy")[0]).all()


def test_mismatched_questions_are_refused() -> None:
    """Counts are no probabilities, probabilities no counts, and m is part of the question."""
    channel = SampledSoftmaxChannel(2, draws=4)
    counts = AttentionIndexedModel(10, PRIOR, channel).sample(0.5, seed=0)
    soft = AttentionIndexedModel(10, PRIOR, SoftmaxChannel(2)).sample(0.5, seed=0)
    one = AttentionIndexedModel(10, PRIOR, SampledSoftmaxChannel(2)).sample(0.5, seed=0)
    for data, asked in (
        (counts, SoftmaxChannel(2)),
        (one, SoftmaxChannel(2)),
        (counts, HardmaxChannel(2)),
        (counts, SampledSoftmaxChannel(2, draws=3)),
        (counts, SampledSoftmaxChannel(3, draws=4)),
        (soft, channel),
        (soft, SampledSoftmaxChannel(2)),
    ):
        with pytest.raises(ValueError, match=r"outputs|channel must have"):
            amp(data, PRIOR, asked)
    half = Dataset(counts.tokens, counts.outputs + np.array([0.5, -0.5]), counts.teacher)
    with pytest.raises(ValueError, match="sum to draws = 4"):
        amp(half, PRIOR, channel)
    options = {"seed": 0, "starts": 1, "iterations": 1, "loss": "cross-entropy"}
    for data, student in ((counts, SoftmaxChannel(2)), (soft, channel), (counts, None)):
        with pytest.raises(ValueError, match="draws"):
            averaged_gradient_descent(data, 5, student, **options)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"tokens": 1}, "tokens"), ({"tokens": 2, "draws": 0}, "draws"),
     ({"tokens": 2, "draws": 1.5}, "draws"), ({"tokens": 2, "draws": 257}, "draws"),
     ({"tokens": 2, "inverse_temperature": 0.0}, "inverse_temperature"),
     ({"tokens": 2, "inverse_temperature": math.nan}, "inverse_temperature")],
)  # fmt: skip
def test_bad_arguments(arguments, name) -> None:
    with pytest.raises(ValueError, match=name):
        SampledSoftmaxChannel(**arguments)


def test_bad_calls() -> None:
    channel = SampledSoftmaxChannel(2)
    with pytest.raises(ValueError, match="rng must be"):
        channel.output(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="variance must be at most"):
        SampledSoftmaxChannel(2, 1000.0).posterior_mean(np.eye(2), np.zeros((2, 2)), 1.0)
    with pytest.raises(ValueError, match="channel must be"):
        fisher_information(SoftmaxChannel(2), 1.0)
    with pytest.raises(ValueError, match="channel must be"):
        tokens_per_soft_label(1.0, 1.5, SoftmaxChannel(2))
    with pytest.raises(ValueError, match="noise"):
        NoisySoftmaxChannel(0.0)


def test_generalization_error_is_that_of_the_probabilities() -> None:
    soft = SoftmaxChannel(2, 2.0).generalization_error([0.0, 0.5], 1.5)
    assert SampledSoftmaxChannel(2, 2.0, 5).generalization_error([0.0, 0.5], 1.5) == pytest.approx(
        soft
    )


def test_one_sequence_with_many_draws_is_worth_less_than_many_sequences() -> None:
    """Exercise: c_m <= m c_1, with equality of slopes at V = 0."""
    one = SampledSoftmaxChannel(2).information_at([1e-6, 0.1, 1.0], 1.5)
    for draws in (2, 4, 16):
        more = SampledSoftmaxChannel(2, draws=draws).information_at([1e-6, 0.1, 1.0], 1.5)
        shares = more / (draws * one)
        assert np.all(shares < 1.0)
        assert np.all(np.diff(shares) < 0.0)
        assert shares[0] == pytest.approx(1.0, abs=1e-4)
