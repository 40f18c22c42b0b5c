"""Message passing: against a dense implementation, state evolution, and its own promises."""

import dataclasses
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from aimlib import (
    AttentionIndexedModel,
    Dataset,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    StreamedDataset,
    WignerPrior,
    WishartPrior,
    _products,
    amp,
    bayes_optimal,
    state_evolution,
)
from aimlib._shrinkage import denoise_symmetric
from aimlib.amp import SymmetricProblem
from aimlib.channels import output_function

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SOFTMAX, HARDMAX = SoftmaxChannel(tokens=2), HardmaxChannel(tokens=2)


def sensing_matrices(tokens):
    """Z_ab of amp:sensing, shape (n, T, T, d, d): what the library never builds."""
    _, t, d = tokens.shape
    outer = np.einsum("nai,nbj->nabij", tokens, tokens)
    z = (outer + np.swapaxes(outer, -1, -2)) / (2 * math.sqrt(d))
    z -= np.eye(t)[:, :, None, None] * np.eye(d) / math.sqrt(d)
    return z


def dense_amp(data, prior, channel, iterations, keep):
    """amp:iteration written with the tensor of sensing matrices and sums over a <= b."""
    z = sensing_matrices(data.tokens)
    n, t, d = data.tokens.shape
    pairs = [(a, b) for a in range(t) for b in range(a, t)]
    weights = 1 + np.eye(t)
    estimate, variance, reaction = prior.mean_eigenvalue * np.eye(d), prior.variance, 0.0
    g = np.zeros((n, t, t))
    for _ in range(iterations):
        omega = np.einsum("nabij,ij->nab", z, estimate) - weights * reaction * g
        g = output_function(channel, data.outputs, omega, variance)
        slope = n / d * channel.information_at(variance, prior.second_moment) / variance
        total = sum(np.einsum("n,nij->ij", g[:, a, b], z[:, a, b]) for a, b in pairs)
        squares = sum(weights[a, b] * np.sum(g[:, a, b] ** 2) for a, b in pairs)
        delta = squares / (2 * slope**2)
        denoised, divergence = denoise_symmetric(estimate + total / slope, delta, prior, "tangent")
        reaction = divergence / (d * slope)
        estimate = keep * estimate + (1 - keep) * denoised
        variance = keep * variance + (1 - keep) * prior.mmse(delta)
    return estimate


@pytest.mark.parametrize("channel", [LinearChannel(), SOFTMAX, SoftmaxChannel(tokens=3), HARDMAX])
def test_matrix_free_iteration_equals_the_dense_one(channel):
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(12, prior, channel).sample(0.6, seed=3)
    ours = amp(data, prior, channel, iterations=4, damping=0.25, tolerance=1e-300)
    dense = dense_amp(data, prior, channel, 4, 0.25)
    np.testing.assert_allclose(ours.estimate, dense, rtol=0, atol=1e-11)


@pytest.mark.parametrize("denoiser", ["tangent", "clip", "edge", "resolvent"])
@pytest.mark.parametrize("prior", [WishartPrior(0.4), WignerPrior()])
def test_divergence_is_the_derivative_of_the_denoiser(prior, denoiser):
    """amp:divergence, by central differences over the entries i <= j."""
    d, delta, step = 7, 0.3, 1e-5
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((d, d))
    observed = prior.sample(d, rng) + math.sqrt(delta / (2 * d)) * (noise + noise.T)
    _, divergence = denoise_symmetric(observed, delta, prior, denoiser)
    expected = 0.0
    for i in range(d):
        for j in range(i + 1):
            bump = np.zeros((d, d))
            bump[i, j] = bump[j, i] = step
            above = denoise_symmetric(observed + bump, delta, prior, denoiser)[0][i, j]
            below = denoise_symmetric(observed - bump, delta, prior, denoiser)[0][i, j]
            expected += (above - below) / (2 * step)
    assert divergence == pytest.approx(expected, rel=2e-5)


def test_divergence_tends_to_the_mmse():
    """amp:stein."""
    prior, delta, d = WishartPrior(0.5), 0.4, 700
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((d, d))
    observed = prior.sample(d, rng) + math.sqrt(delta / (2 * d)) * (noise + noise.T)
    _, divergence = denoise_symmetric(observed, delta, prior, "tangent")
    assert 2 * delta * divergence / d**2 == pytest.approx(prior.mmse(delta), rel=0.01)


def test_tangent_and_clip_agree_with_the_limit_inside_the_support():
    prior, delta = WishartPrior(0.1), 0.05
    (low, a), (b, high) = prior.support(delta)
    inside = np.array([low + 0.1 * (a - low), 0.5 * (b + high)])
    for denoiser in ("tangent", "clip"):
        estimate, _ = denoise_symmetric(np.diag(inside), delta, prior, denoiser)
        np.testing.assert_allclose(np.diag(estimate), prior.shrink(inside, delta), rtol=1e-12)
    outside = np.array([low - 1.0, 0.5 * (a + b), high + 1.0])
    clipped = np.diag(denoise_symmetric(np.diag(outside), delta, prior, "clip")[0])
    np.testing.assert_allclose(clipped[[0, 2]], prior.shrink(np.array([low, high]), delta, "edge"))
    tangent = np.diag(denoise_symmetric(np.diag(outside), delta, prior, "tangent")[0])
    assert (np.diff(tangent) > 0).all()
    slope = prior.shrink(high, delta) - prior.shrink(high - 1e-4, delta)
    assert tangent[2] - clipped[2] == pytest.approx(float(slope) / 1e-4, rel=1e-2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 8])
def test_half_products_equal_the_plain_ones(tokens, dtype):
    rng = np.random.default_rng(tokens)
    x = rng.standard_normal((7, tokens, 9)).astype(dtype)
    s, m = rng.standard_normal((9, 9)), rng.standard_normal((7, tokens, tokens))
    s, m = s + s.T, m + np.swapaxes(m, 1, 2)
    m[0], m[1] = 0.0, np.eye(tokens)  # nothing to turn
    scratch, forms, total = np.empty_like(x), np.empty(m.shape), np.ones((9, 9))
    _products.fill_forms(x, _products.upper_half(s, dtype), scratch, forms)
    _products.add_squares(x, m, scratch, total)
    exact = x.astype(float)
    rounding = 30 * np.finfo(dtype).eps
    plain = np.einsum("nai,ij,nbj->nab", exact, s, exact)
    np.testing.assert_allclose(forms, plain, rtol=0, atol=rounding * np.abs(plain).max())
    assert np.array_equal(forms, np.swapaxes(forms, 1, 2))
    plain = 1.0 + np.einsum("nai,nab,nbj->ij", exact, m, exact)
    lower = np.tril_indices(9)
    np.testing.assert_allclose(total[lower], plain[lower], rtol=0, atol=rounding * plain.max())


def test_single_precision_moves_the_estimate_by_its_rounding():
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(40, prior, SOFTMAX).sample(0.1, seed=5)
    double = amp(data, prior, SOFTMAX, iterations=40)
    single = amp(data, prior, SOFTMAX, iterations=40, single_precision=True)
    moved = np.linalg.norm(single.estimate - double.estimate) / np.linalg.norm(double.estimate)
    assert 1e-9 < moved < 1e-6
    assert single.estimation_error == pytest.approx(double.estimation_error, rel=1e-6)


def test_second_moment_of_the_sensing_matrices():
    """amp:second-moment, by Monte Carlo over Gaussian tokens."""
    d, rng = 6, np.random.default_rng(0)
    z = sensing_matrices(rng.standard_normal((40_000, 2, d)))
    a, b = (m + m.T for m in rng.standard_normal((2, d, d)))
    left, right = (np.einsum("nabij,ij->nab", z, m) for m in (a, b))
    scale = np.trace(a @ a) / d
    expected = (1 + np.eye(2)) * np.trace(a @ b) / d
    np.testing.assert_allclose(np.mean(left * right, axis=0), expected, atol=0.05 * scale)
    crossed = [np.mean(left[:, 0, 0] * right[:, k, 1]) for k in (0, 1)]
    np.testing.assert_allclose(crossed, 0.0, atol=0.05 * scale)


def test_onsager_term_is_the_mean_reaction_of_a_token():
    """amp:onsager: Tr(Z J[Z]) averages to (1 + delta) div D/d over tokens that R has not seen."""
    prior, delta, d, step = WishartPrior(0.5), 0.4, 40, 1e-4
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((d, d))
    observed = prior.sample(d, rng) + math.sqrt(delta / (2 * d)) * (noise + noise.T)
    _, divergence = denoise_symmetric(observed, delta, prior, "tangent")
    z = sensing_matrices(rng.standard_normal((400, 2, d)))
    for a, b in ((0, 0), (0, 1)):
        reactions = []
        for direction in z[:, a, b]:
            above, _ = denoise_symmetric(observed + step * direction, delta, prior, "tangent")
            below, _ = denoise_symmetric(observed - step * direction, delta, prior, "tangent")
            reactions.append(np.sum(direction * (above - below)) / (2 * step))
        expected = (1 + (a == b)) * divergence / d
        spread = np.std(reactions) / math.sqrt(len(reactions))
        assert abs(np.mean(reactions) - expected) < 4 * spread
        assert spread < 0.03 * expected


def test_measured_noise_does_not_depend_on_the_belief():
    """amp:runaway: the squares of g give Delta ~ V^2, the measured noise forgets V."""
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(40, prior, SOFTMAX).sample(0.3, seed=0)
    start = prior.mean_eigenvalue * np.eye(40)
    noises = []
    for belief in (0.5, 0.25):
        problem = SymmetricProblem(data, prior, SOFTMAX, "tangent")
        seen = problem.observe(start[None], np.zeros((1, 1)), np.array([[belief]]))
        squares = float(seen.squares[0, 0])
        response = 0.3 * 40 * SOFTMAX.information_at(belief, prior.second_moment) / belief
        noises.append((squares / (2 * response**2), 40**2 / (2 * squares)))
    (measured, from_squares), (measured_again, from_squares_again) = noises
    assert measured_again == pytest.approx(measured, rel=1e-12)
    assert from_squares_again == pytest.approx(from_squares / 4, rel=1e-12)
    assert measured == pytest.approx(prior.variance / (2 * 0.3 * 2), rel=0.1)


CASES = [(SOFTMAX, 0.5, 0.10), (SOFTMAX, 2.0, 0.15), (HARDMAX, 0.5, 0.4), (HARDMAX, 1.0, 0.8)]


@pytest.mark.parametrize(("channel", "rho", "alpha"), CASES)
def test_error_is_near_the_bayes_optimal_one(channel, rho, alpha):
    prior = WishartPrior(rho)
    model = AttentionIndexedModel(120, prior, channel)
    results = [amp(model.sample(alpha, seed), prior, channel) for seed in range(3)]
    assert all(result.converged for result in results)
    theory = bayes_optimal(alpha, prior, channel).estimation_error
    errors = [result.estimation_error for result in results]
    # about three standard errors of three instances at this dimension
    assert np.mean(errors) == pytest.approx(theory, rel=0.07)
    assert np.mean([r.predicted_error for r in results]) == pytest.approx(theory, rel=0.07)


def test_perfect_recovery_beyond_the_threshold():
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(60, prior, SOFTMAX).sample(0.35, seed=0)
    result = amp(data, prior, SOFTMAX)
    assert result.converged
    assert result.estimation_error < 1e-8
    assert result.predicted_error < 1e-8


def test_undamped_trajectory_follows_state_evolution():
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(250, prior, HARDMAX).sample(0.4, seed=5)
    result = amp(data, prior, HARDMAX, damping=0.0, iterations=6, tolerance=1e-300)
    theory = state_evolution(0.4, prior, HARDMAX, iterations=6)[1:]
    np.testing.assert_allclose(result.history["estimation_error"], theory, rtol=0.05)
    np.testing.assert_allclose(result.history["predicted_error"], theory, rtol=0.05)


@pytest.mark.parametrize("rho", [0.02, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("channel", [SOFTMAX, SoftmaxChannel(tokens=3), HARDMAX])
def test_no_divergence_where_the_textbook_iteration_blows_up(rho, channel):
    prior = WishartPrior(rho)
    for share in (0.1, 0.6, 1.5):
        data = AttentionIndexedModel(50, prior, channel).sample(share * min(rho, 1.0), seed=7)
        result = amp(data, prior, channel, iterations=60)
        assert result.status in ("converged", "stalled")
        assert result.estimation_error < 3.0


def test_divergence_is_reported_and_the_estimate_stays_finite():
    prior = WishartPrior(0.1)
    data = AttentionIndexedModel(80, prior, SOFTMAX).sample(0.03, seed=0)
    options = {"denoiser": "resolvent", "onsager": "limit", "noise": "response", "damping": 0.0}
    result = amp(data, prior, SOFTMAX, **options)
    assert result.status == "diverged"
    assert not result.converged
    assert np.isfinite(result.estimate).all()
    assert math.isfinite(result.predicted_error)


def test_a_fixed_point_that_contradicts_itself_is_not_called_converged():
    """The textbook response runs away: it claims perfect recovery at the error of no data."""
    prior = WishartPrior(0.1)
    data = AttentionIndexedModel(80, prior, SOFTMAX).sample(0.03, seed=0)
    options = {"denoiser": "resolvent", "onsager": "limit", "response": "squares", "damping": 0.0}
    result = amp(data, prior, SOFTMAX, **options)
    assert result.predicted_error < 1e-10 < 0.5 < result.estimation_error
    assert result.history["consistency"][-1] > 10.0
    assert result.status == "diverged"


def test_claimed_error_is_at_least_that_of_four_times_the_data():
    """amp:floor: 120 sequences that a wrong estimate fits exactly must not look like certainty."""
    prior = WishartPrior(0.1)
    data = AttentionIndexedModel(20, prior, HARDMAX).sample(0.3, seed=1)
    result = amp(data, prior, HARDMAX)
    floor = bayes_optimal(1.2, prior, HARDMAX).estimation_error
    assert result.history["consistency"][-1] < 0.1
    assert result.predicted_error == pytest.approx(floor, rel=1e-6)
    assert not result.converged


def test_fast_recovery_is_called_converged():
    """The error may outrun the damped belief: that is no contradiction."""
    prior = WishartPrior(0.1)
    data = AttentionIndexedModel(20, prior, SOFTMAX).sample(3.0, seed=0)
    result = amp(data, prior, SOFTMAX)
    assert result.history["consistency"][-1] < 0.1
    assert result.estimation_error < 1e-10
    assert result.converged


def test_damping_moves_the_path_and_not_the_fixed_point():
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(80, prior, HARDMAX).sample(0.4, seed=2)
    ends = [amp(data, prior, HARDMAX, damping=k, tolerance=1e-12) for k in (0.2, 0.6, None)]
    assert all(end.converged for end in ends)
    for end in ends[1:]:
        np.testing.assert_allclose(end.estimate, ends[0].estimate, atol=1e-4)


def test_strong_damping_does_not_fake_convergence():
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(60, prior, HARDMAX).sample(0.4, seed=2)
    result = amp(data, prior, HARDMAX, damping=0.9999, iterations=10)
    # the estimate moves by 1e-8 of its variance only, and yet has not converged
    assert result.status == "stalled"
    assert result.history["residual"][-1] > 0.1


def test_estimate_turns_with_the_tokens():
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(30, prior, HARDMAX).sample(0.5, seed=1)
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 30)))
    turned = Dataset(data.tokens @ turn.T, data.outputs)
    plain = amp(data, prior, HARDMAX, iterations=8).estimate
    np.testing.assert_allclose(
        amp(turned, prior, HARDMAX, iterations=8).estimate, turn @ plain @ turn.T, atol=1e-9
    )


def test_teacher_is_used_for_the_error_only():
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(30, prior, SOFTMAX).sample(0.3, seed=1)
    blind = amp(dataclasses.replace(data, teacher=None), prior, SOFTMAX)
    seen = amp(data, prior, SOFTMAX)
    np.testing.assert_array_equal(blind.estimate, seen.estimate)
    assert blind.estimation_error is None
    assert "estimation_error" not in blind.history
    assert "estimation_error" in seen.history


def test_mapped_tokens_give_the_result_of_tokens_in_memory(tmp_path):
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(30, prior, HARDMAX).sample(0.5, seed=1)
    np.save(tmp_path / "tokens.npy", data.tokens)
    mapped = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    stream = StreamedDataset.mapped(mapped, data.outputs, data.teacher, block=37)
    ours, theirs = amp(stream, prior, HARDMAX), amp(data, prior, HARDMAX)
    np.testing.assert_allclose(ours.estimate, theirs.estimate, atol=1e-8)
    assert ours.estimation_error == pytest.approx(theirs.estimation_error, abs=1e-8)


def test_regenerated_tokens_are_the_same_in_every_pass():
    prior = WishartPrior(0.5)
    model = AttentionIndexedModel(40, prior, HARDMAX)
    stream = StreamedDataset.regenerate(model, 0.5, seed=9, block=100)
    np.testing.assert_array_equal(stream.source(2), stream.source(2))
    tokens = np.concatenate([tokens for _, (tokens,) in stream.blocks()])
    data = Dataset(tokens, stream.outputs, stream.teacher)
    np.testing.assert_allclose(
        amp(stream, prior, HARDMAX).estimate, amp(data, prior, HARDMAX).estimate, atol=1e-8
    )


def test_memory_is_a_small_multiple_of_the_tokens():
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(60, prior, SOFTMAX).sample(2.0, seed=1)
    amp(data, prior, SOFTMAX, iterations=1)
    tracemalloc.start()
    amp(data, prior, SOFTMAX, iterations=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.0 * data.tokens.nbytes
    assert peak < 0.01 * data.tokens.shape[0] * 60**2 * 8 * 3  # the tensor of sensing matrices


def test_callback_sees_the_history():
    prior, seen = WishartPrior(0.5), []
    data = AttentionIndexedModel(30, prior, HARDMAX).sample(0.5, seed=1)
    result = amp(data, prior, HARDMAX, callback=lambda k, record: seen.append((k, record)))
    assert [k for k, _ in seen] == list(range(1, result.iterations + 1))
    for name, values in result.history.items():
        np.testing.assert_array_equal(values, [record[name] for _, record in seen])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"iterations": 0}, "iterations"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": math.nan}, "tolerance"),
        ({"damping": 1.0}, "damping"),
        ({"damping": -0.1}, "damping"),
        ({"denoiser": "edges"}, "denoiser"),
        ({"onsager": "none"}, "onsager"),
        ({"noise": "square"}, "noise"),
        ({"response": ""}, "response"),
    ],
)
def test_bad_options_are_named(options, name):
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(10, prior, SOFTMAX).sample(0.5, seed=1)
    with pytest.raises(ValueError, match=name):
        amp(data, prior, SOFTMAX, **options)


def test_bad_data_are_named():
    prior = WishartPrior(0.5)
    data = AttentionIndexedModel(10, prior, SOFTMAX).sample(0.5, seed=1)
    with pytest.raises(ValueError, match="channel must have the 2 tokens"):
        amp(data, prior, SoftmaxChannel(tokens=3))
    with pytest.raises(ValueError, match="dataset must be"):
        amp(data.tokens, prior, SOFTMAX)
    with pytest.raises(ValueError, match="outputs"):
        StreamedDataset(lambda k: data.tokens, 4, np.ones((5, 2, 3)), 10)
    with pytest.raises(ValueError, match="tokens must have shape"):
        StreamedDataset.mapped(data.tokens, data.outputs[1:])
    with pytest.raises(ValueError, match="source must return tokens"):
        amp(StreamedDataset(lambda k: data.tokens[:3], 4, data.outputs, 10), prior, SOFTMAX)
    with pytest.raises(ValueError, match="sample_complexity"):
        StreamedDataset.regenerate(AttentionIndexedModel(10, prior, SOFTMAX), 1e-9, seed=0)


def test_published_quadratic_network(peer_data):
    """Maillard et al. (2024), one token, d = 100: at least as close to theory as their runs."""
    theirs = np.genfromtxt(peer_data / "quadratic-AMP_100_0.5_0.0.csv", delimiter=",", names=True)
    prior, channel = WishartPrior(0.5), LinearChannel(tokens=1)
    model = AttentionIndexedModel(100, prior, channel)
    for row in theirs[[1, 3]]:
        theory = bayes_optimal(float(row["alpha"]), prior, channel).estimation_error
        ours = [
            amp(model.sample(float(row["alpha"]), seed), prior, channel).estimation_error
            for seed in range(4)
        ]
        spread = float(row["AMP_std"])
        assert abs(np.mean(ours) - theory) < abs(row["AMP_mean"] - theory) + spread


@pytest.mark.parametrize("noise", ["0.0", "0.25"])
def test_recorded_runs_are_closer_to_theory_than_the_published_ones(peer_data, noise):
    """At every sample complexity, d = 100, rho = 1/2, with and without noise."""
    theirs = np.genfromtxt(
        peer_data / f"quadratic-AMP_100_0.5_{noise}.csv", delimiter=",", names=True
    )
    table = np.genfromtxt(
        NOTEBOOKS / "data" / "amp" / "quadratic.csv",
        delimiter=",",
        names=True,
        dtype=None,
        encoding="utf-8",
    )
    compared = 0
    for row in theirs:
        runs = table[
            (table["noise"] == float(noise))
            & np.isclose(table["sample_complexity"], row["alpha"], atol=1e-6)
        ]
        if runs.size:
            theory = runs["bayes_optimal_error"][0]
            ours = abs(runs["estimation_error"].mean() - theory)
            assert ours < abs(row["AMP_mean"] - theory)
            compared += 1
    assert compared >= 8


def status_of_first_pass(model, believed, seed):
    data = model.sample(0.1, seed)
    return amp(data, model.prior, believed, iterations=1).status


@pytest.mark.parametrize("truth", [0.3, 0.5, 0.65, 1.6, 2.0, 4.0])
def test_a_wrong_temperature_is_reported(truth):
    """Data made at another temperature than the channel's: the squares of g give it away."""
    prior = WishartPrior(0.5)
    model = AttentionIndexedModel(60, prior, SoftmaxChannel(2, truth))
    for seed in range(5):
        assert status_of_first_pass(model, SOFTMAX, seed) == "inconsistent"
    if truth == 2.0:
        result = amp(model.sample(0.1, 0), prior, SOFTMAX)
        assert result.status == "inconsistent"
        assert not result.converged


@pytest.mark.parametrize(
    "channel", [SOFTMAX, SoftmaxChannel(3, 2.0), HARDMAX, LinearChannel(1, 0.25)], ids=repr
)
@pytest.mark.parametrize("rho", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("d", [50, 100])
def test_right_data_are_not_called_inconsistent(channel, rho, d):
    model = AttentionIndexedModel(d, WishartPrior(rho), channel)
    for seed in range(6 if d == 50 else 2):
        assert status_of_first_pass(model, channel, seed) == "stalled"
