"""Several layers: gradients, exact errors of denoisers, message passing against its theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

import aimlib
from aimlib import (
    AttentionIndexedModel,
    BilinearPrior,
    Dataset,
    LinearChannel,
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    amp,
    attention_indices,
    bayes_optimal,
    deep_attention,
    state_evolution,
)
from aimlib._shrinkage import denoise_symmetric
from aimlib.descent import loss_and_gradient as single_loss_and_gradient
from aimlib.layers import Dataset as LayeredDataset
from aimlib.layers import (
    DeepSoftmaxChannel,
    MixedLinearChannel,
    Model,
    averaged_gradient_descent,
    denoising_error,
    error_through_the_sum,
    error_with_the_others_known,
    loss_and_gradient,
    second_moments,
)
from aimlib.layers import amp as layered_amp
from aimlib.layers import state_evolution as layered_state_evolution
from aimlib.layers.denoising import feature_moments, noise_components

HALF = [WishartPrior(0.5), WishartPrior(0.5)]
NOISE = np.array([[0.8, 0.5], [0.5, 0.6]])
MIXED = MixedLinearChannel([[1.0, 0.8], [0.8, 1.0]], noise=0.25)


def correlated_noise(noise: np.ndarray, d: int, rng: np.random.Generator) -> np.ndarray:
    """GOE matrices with covariance ``noise`` between layers (layers:observation)."""
    matrices = np.stack([WignerPrior().sample(d, rng) for _ in noise])
    return np.einsum("lm,mij->lij", np.linalg.cholesky(noise), matrices)


def gaussian_indices(covariance, n: int, tokens: int, rng: np.random.Generator) -> np.ndarray:
    """Symmetric fields with covariance (1 + delta_ab) times the given one between layers."""
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    z = np.triu(rng.standard_normal((n, len(root), tokens, tokens))) * np.sqrt(1 + np.eye(tokens))
    return np.einsum("lm,nmab->nlab", root, z + np.swapaxes(np.triu(z, 1), -1, -2))


# --- the network and its gradient --------------------------------------------------------------


def test_recursion_in_centred_indices_is_deep_attention_of_matrices_without_trace() -> None:
    """layers:recursion: with Tr S = 0 centred and plain indices are the same thing."""
    rng, d = np.random.default_rng(0), 9
    for layers, tokens in ((1, 2), (2, 2), (2, 4), (3, 3)):
        s = rng.standard_normal((layers, d, d))
        s = s + s.transpose(0, 2, 1)
        s -= np.trace(s, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
        x = rng.standard_normal((5, tokens, d))
        channel = DeepSoftmaxChannel(layers, tokens, skip=0.6, inverse_temperature=0.4)
        ours = channel.output(attention_indices(x, s))
        np.testing.assert_allclose(ours, deep_attention(x, s, 0.6, 0.4), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("layers", "tokens", "width"), [(1, 2, 3), (2, 2, 3), (2, 3, 9), (3, 3, 4)]
)
def test_gradient_against_finite_differences(layers, tokens, width) -> None:
    """layers:backward, every entry, for two starts; students wider than d take another path."""
    channel = DeepSoftmaxChannel(layers, tokens, skip=0.7, inverse_temperature=1.3)
    data = Model(6, [WishartPrior(0.5)] * layers, channel).sample(0.6, seed=1)
    w = np.random.default_rng(0).standard_normal((2, layers, 6, width))
    _, gradient = loss_and_gradient(w, data, channel)
    assert np.abs(gradient).min(axis=(2, 3)).max() > 0.0
    step = 1e-6
    for place in np.ndindex(*w.shape):
        up, down = w.copy(), w.copy()
        up[place] += step
        down[place] -= step
        plus, _ = loss_and_gradient(up, data, channel)
        minus, _ = loss_and_gradient(down, data, channel)
        difference = (plus - minus) / (2 * step)
        assert gradient[place] == pytest.approx(difference[place[0]], rel=1e-5, abs=1e-8)
        assert difference[1 - place[0]] == 0.0


def test_one_layer_is_the_gradient_of_the_descent_chapter() -> None:
    data = AttentionIndexedModel(8, WishartPrior(0.5), SoftmaxChannel(3)).sample(0.5, seed=2)
    layered = LayeredDataset(data.tokens, data.outputs, data.teacher[None])
    w = np.random.default_rng(1).standard_normal((2, 8, 4))
    value, gradient = single_loss_and_gradient(w, data)
    ours, ours_gradient = loss_and_gradient(w[:, None], layered, DeepSoftmaxChannel(1, 3))
    np.testing.assert_allclose(ours, value, rtol=1e-13)
    np.testing.assert_allclose(ours_gradient[:, 0], gradient, rtol=1e-11, atol=1e-15)


def test_single_precision_is_kept_through_all_layers() -> None:
    """The loss of two layers in 24 bits is that in 53 but for their rounding."""
    data = Model(6, HALF, DeepSoftmaxChannel()).sample(0.5, 1)
    runs = [
        averaged_gradient_descent(
            data, 3, DeepSoftmaxChannel(), starts=2, seed=2, iterations=5, single_precision=single
        )
        for single in (False, True)
    ]
    double, single = (run.history["loss"] for run in runs)
    assert np.array_equal(single, single.astype(np.float32))
    assert not np.array_equal(double, double.astype(np.float32))
    np.testing.assert_allclose(single, double, rtol=1e-5)


def test_both_layers_are_recovered_with_enough_data() -> None:
    channel = DeepSoftmaxChannel()
    data_seed, start_seed = np.random.SeedSequence(3).spawn(2)
    data = Model(12, HALF, channel).sample(1.6, data_seed)
    result = averaged_gradient_descent(
        data, 6, channel, starts=2, seed=start_seed, iterations=1500, final_learning_rate=0.0
    )
    errors = result.history["estimation_error"]
    assert errors[-1].max() < 1e-3 < 0.5 < errors[0].min()
    gap = result.start_estimates - data.teacher
    np.testing.assert_allclose(errors[-1], np.sum(gap**2, axis=(2, 3)) / 12)
    expected = np.sum(gap.mean(axis=0) ** 2, axis=(1, 2)) / 12
    np.testing.assert_allclose(result.prefix_errors[-1], expected)
    np.testing.assert_allclose(result.estimation_error, expected)
    np.testing.assert_allclose(result.estimate, result.start_estimates.mean(axis=0))


def test_descent_of_layers_ends_at_the_final_rate_and_resumes(tmp_path) -> None:
    """A rate that falls to zero leaves the last steps still; a checkpoint goes on to the bit."""
    channel = DeepSoftmaxChannel()
    data = Model(6, HALF, channel).sample(0.5, 1)
    options = {"starts": 2, "seed": 2, "iterations": 40, "record_every": 10}
    options |= {"final_learning_rate": 0.0}
    whole = averaged_gradient_descent(data, 3, channel, **options)
    path = tmp_path / "state.npz"

    def stop(step, loss) -> None:
        if step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        averaged_gradient_descent(data, 3, channel, checkpoint=path, callback=stop, **options)
    with np.load(path) as stored:
        at_thirty = stored["weights"]
    resumed = averaged_gradient_descent(data, 3, channel, checkpoint=path, **options)
    assert np.array_equal(resumed.weights, whole.weights)
    other = LayeredDataset(data.tokens, data.outputs[::-1])
    with pytest.raises(ValueError, match="checkpoint must belong to the same data set"):
        averaged_gradient_descent(other, 3, channel, checkpoint=path, **options)
    rest = sum(0.05 * (1 + math.cos(math.pi * (step - 1) / 40)) / 2 for step in range(31, 41))
    assert 0.1 * rest < np.abs(whole.weights - at_thirty).max() < 2.0 * rest  # the law of Adam
    constant = averaged_gradient_descent(
        data, 3, channel, **(options | {"final_learning_rate": None})
    )
    assert np.abs(constant.weights - whole.weights).max() > 2.0 * rest


@pytest.mark.parametrize("count", [8, 21, 22, 23, 30])
def test_dimension_of_the_perfect_fits_of_two_layers(count) -> None:
    """layers:counting at finite d: unknowns of both layers minus two equations a sequence."""
    d, r = 6, 3
    rng = np.random.default_rng(3)
    w, tokens = rng.standard_normal((2, d, r)), rng.standard_normal((count, 2, d))
    channel = DeepSoftmaxChannel()

    def visible(weights):
        s = weights @ weights.transpose(0, 2, 1) / math.sqrt(r * d)
        y = channel.output(attention_indices(tokens, s))
        return np.log(y[:, [0, 1], [0, 1]] / y[:, [0, 1], [1, 0]]).ravel()

    columns = []
    for place in np.ndindex(2, d, r):
        move = np.zeros_like(w)
        move[place] = 1e-5
        columns.append((visible(w + move) - visible(w - move)) / 2e-5)
    jacobian = np.array(columns)
    rank = np.linalg.matrix_rank(jacobian, tol=1e-6 * np.linalg.norm(jacobian, 2))
    unknowns = 2 * (d * r - r * (r - 1) // 2)
    assert unknowns - rank == max(0, unknowns - 2 * count)


# --- denoising under correlated noise ----------------------------------------------------------


@pytest.mark.parametrize(
    "priors",
    [HALF, [WishartPrior(0.3), WishartPrior(2.0)], [WignerPrior(), SpectralPrior([-1.0, 1.0])]],
)
def test_joint_errors_of_denoisers_against_large_matrices(priors) -> None:
    """layers:cross, layers:components and layers:combined at d = 500."""
    d, rng = 500, np.random.default_rng(0)
    means = [p.mean_eigenvalue * np.eye(d) for p in priors]
    s = np.stack([p.sample(d, rng) - m for p, m in zip(priors, means, strict=True)])
    noisy = s + correlated_noise(NOISE, d, rng)
    denoised = np.stack(
        [
            p.denoise(r + m, x) - m
            for p, r, m, x in zip(priors, noisy, means, np.diag(NOISE), strict=True)
        ]
    )
    gap = (s - denoised).reshape(2, -1)
    theory = denoising_error(NOISE, priors, "separate")
    np.testing.assert_allclose(gap @ gap.T / d, theory, atol=0.01)
    assert abs(theory[0, 1]) > 0.1  # seen against the tolerance
    coefficients, error = feature_moments(NOISE, priors).combined()
    features = np.concatenate([noisy, denoised]).reshape(4, -1)
    gap = s.reshape(2, -1) - coefficients.T @ features
    np.testing.assert_allclose(gap @ gap.T / d, error, atol=0.01)
    assert np.all(np.diag(error) < np.diag(theory) - 0.02)


@pytest.mark.parametrize("prior", [WishartPrior(0.1), WishartPrior(3.0), SpectralPrior([0.0, 2.0])])
@pytest.mark.parametrize("noise", [0.01, 0.3, 5.0])
def test_first_component_is_the_slope_and_all_are_bounded(prior, noise) -> None:
    """layers:components: F_1 = mmse/sqrt(Delta), and the sum of squares is at most E D^2."""
    components = noise_components(prior, noise)
    assert components[0] == pytest.approx(prior.mmse(noise) / math.sqrt(noise), rel=1e-6)
    assert np.sum(components**2) <= prior.variance - prior.mmse(noise) + 1e-9


def test_equal_noises_give_the_denoised_square() -> None:
    """layers:cross where two layers are one: only the part of D that is a function of N counts.

    With nearly no signal R is N, and the components must then add up to all of E D^2.
    """
    prior = SpectralPrior([-1e-3, 1e-3])
    noise = 1.0
    total = np.sum(noise_components(prior, noise) ** 2)
    assert total == pytest.approx(prior.variance - prior.mmse(noise), rel=1e-4)


def test_wigner_layers_are_solved_for_every_covariance() -> None:
    """layers:wigner: entry by entry, with the matrices of a small dimension as the reference."""
    rng = np.random.default_rng(5)
    for layers in (2, 3):
        root = rng.standard_normal((layers, layers))
        noise = root @ root.T + 0.1 * np.eye(layers)
        exact = np.linalg.inv(np.eye(layers) + np.linalg.inv(noise))
        priors = [WignerPrior()] * layers
        np.testing.assert_allclose(denoising_error(noise, priors), exact, atol=1e-9)
        turn = np.linalg.eigh(noise)[1]  # the rotated layers decouple
        single = WignerPrior().mmse(np.linalg.eigvalsh(noise))
        np.testing.assert_allclose(turn.T @ exact @ turn, np.diag(single), atol=1e-12)
    # one off-diagonal entry, as a Gaussian vector: conditioning by sampling
    d, n = 40, 400_000
    s = rng.standard_normal((n, 2)) / math.sqrt(d)
    r = s + rng.multivariate_normal([0, 0], NOISE / d, n)
    fit = np.linalg.lstsq(r, s, rcond=None)[0]
    gap = s - r @ fit
    exact = np.linalg.inv(np.eye(2) + np.linalg.inv(NOISE))
    np.testing.assert_allclose(d * gap.T @ gap / n, exact, atol=5e-3)


def test_rotated_wishart_layers_are_not_independent() -> None:
    """layers:mixed-cumulant: the third mixed cumulant of sum and difference, and its limit."""
    rho, d, angle = 0.5, 1500, 0.6
    rng = np.random.default_rng(1)
    s1, s2 = (WishartPrior(rho).sample(d, rng) - math.sqrt(rho) * np.eye(d) for _ in range(2))
    c, s = math.cos(angle), math.sin(angle)
    u, v = c * s1 + s * s2, -s * s1 + c * s2
    third = rho**-0.5  # free cumulant of rate rho and jump rho^(-1/2)
    measured = np.trace(u @ u @ v) / d
    expected = third * (-(c**2) * s + s**2 * c)
    assert measured == pytest.approx(expected, abs=0.02)
    assert abs(expected) > 0.1


def test_errors_lie_between_the_bounds() -> None:
    """layers:bracket: what is achievable lies above the error with the other layer known."""
    for priors in (HALF, [WishartPrior(0.1), WishartPrior(1.0)]):
        for correlation in (-0.9, 0.0, 0.5, 0.97):
            noise = np.array([[1.0, correlation], [correlation, 1.0]])
            conjugate = np.linalg.inv(noise)
            combined = np.diag(denoising_error(noise, priors))
            lower = [p.mmse(1 / conjugate[k, k]) for k, p in enumerate(priors)]
            upper = np.diag(denoising_error(noise, priors, "separate"))
            linear = np.diag(np.linalg.inv(np.eye(2) + conjugate))
            np.testing.assert_allclose(upper, [p.mmse(1.0) for p in priors], rtol=1e-9)
            assert np.all(lower <= combined + 1e-9)
            assert np.all(combined <= np.minimum(upper, linear) + 1e-9)
            if correlation == 0.0:
                np.testing.assert_allclose(combined, lower, rtol=1e-9)


# --- free entropy ------------------------------------------------------------------------------


def wigner_free_entropy(q, conjugate, alpha, channel) -> float:
    """layers:free-entropy with layers:prior-term for Wigner layers and a linear channel, T = 1."""
    v = np.eye(len(q)) - q
    information = 0.25 * np.linalg.slogdet(np.eye(len(q)) + conjugate)[1]
    spread = 2 * channel.mixing @ v @ channel.mixing.T + channel.noise * np.eye(len(q))
    entropy = 0.5 * np.linalg.slogdet(2 * math.pi * math.e * spread)[1]
    return float(np.trace(conjugate) / 4 - information - np.trace(q @ conjugate) / 4
                 - alpha * entropy)  # fmt: skip


def test_state_evolution_ends_at_a_stationary_point_of_the_free_entropy() -> None:
    """layers:saddle and layers:conjugate, by differences of layers:free-entropy."""
    alpha, priors = 0.7, [WignerPrior()] * 2
    v = layered_state_evolution(alpha, priors, MIXED, 400)[-1]
    q = np.eye(2) - v
    conjugate = 2 * alpha * MIXED.information(v, second_moments(priors))
    assert abs(q[0, 1]) > 0.05
    assert abs(conjugate[0, 1]) > 0.1
    step = 1e-5
    for a, b in ((0, 0), (0, 1), (1, 1)):
        move = np.zeros((2, 2))
        move[a, b] = move[b, a] = step
        for dq, dh in ((move, 0 * move), (0 * move, move)):
            up = wigner_free_entropy(q + dq, conjugate + dh, alpha, MIXED)
            down = wigner_free_entropy(q - dq, conjugate - dh, alpha, MIXED)
            assert (up - down) / (2 * step) == pytest.approx(0.0, abs=1e-7)
    away = wigner_free_entropy(q + 10 * move, conjugate, alpha, MIXED)
    assert abs(away - wigner_free_entropy(q, conjugate, alpha, MIXED)) > 1e-12


def test_information_and_error_matrix_by_thermodynamic_integration() -> None:
    """layers:matrix-mmse: d iota/d q_hat = M/4 along a path, for Wigner layers."""
    direction = np.array([[1.0, 0.4], [0.4, 0.7]])
    priors = [WignerPrior()] * 2

    def slope(t):
        return float(np.sum(direction * denoising_error(np.linalg.inv(t * direction), priors)) / 4)

    total = integrate.quad(slope, 1e-9, 1.5, epsabs=1e-8)[0]
    exact = 0.25 * np.linalg.slogdet(np.eye(2) + 1.5 * direction)[1]
    assert total == pytest.approx(exact, abs=1e-7)


def test_one_layer_is_the_single_layer_theory() -> None:
    prior, alpha = WishartPrior(0.5), 0.4
    single = state_evolution(alpha, prior, LinearChannel(2, 0.3), 20)
    channel = MixedLinearChannel([[1.0]], 0.3, tokens=2)
    for scheme in ("combined", "separate"):
        ours = layered_state_evolution(alpha, [prior], channel, 20, scheme)[:, 0, 0]
        np.testing.assert_allclose(ours, single, rtol=1e-7)


def test_one_step_of_state_evolution_for_wigner_layers() -> None:
    """layers:state-evolution once, as Gaussian conditioning of matrices of unit variance."""
    path = layered_state_evolution(0.7, [WignerPrior()] * 2, MIXED, 1)
    m = MIXED.mixing
    gamma = 2 * m.T @ np.linalg.inv(2 * m @ m.T + MIXED.noise * np.eye(2)) @ m
    np.testing.assert_allclose(path[1], np.linalg.inv(np.eye(2) + 1.4 * gamma), rtol=1e-9)
    assert path.shape == (2, 2, 2)


# --- channels ----------------------------------------------------------------------------------


def test_linear_output_function_by_gaussian_conditioning() -> None:
    """layers:linear, one sequence: condition the joint Gaussian of indices and outputs."""
    rng = np.random.default_rng(0)
    channel = MixedLinearChannel([[1.0, -0.5, 0.2], [0.3, 0.8, -1.0]], 0.4, tokens=2)
    v = np.array([[0.7, 0.1, 0.0], [0.1, 0.5, -0.2], [0.0, -0.2, 0.9]])
    omega = gaussian_indices(np.eye(3), 4, 2, rng)
    y = channel.output(omega + gaussian_indices(v, 4, 2, rng), rng)
    g, response = channel.output_function(y, omega, v)
    total = np.zeros((3, 3))
    for a in range(2):
        for b in range(2):
            weight = 1.0 + (a == b)
            spread = weight * channel.mixing @ v @ channel.mixing.T + 0.4 * np.eye(2)
            gain = weight * v @ channel.mixing.T @ np.linalg.inv(spread)
            gap = y[:, :, a, b] - omega[:, :, a, b] @ channel.mixing.T
            expected = gap @ gain.T @ np.linalg.inv(v) / weight
            np.testing.assert_allclose(g[:, :, a, b], expected, atol=1e-12)
            if a <= b:
                total += 4 * np.linalg.inv(v) @ gain @ channel.mixing
    np.testing.assert_allclose(response, total, atol=1e-12)
    np.testing.assert_allclose(response / 4, channel.information(v, np.eye(3)), atol=1e-12)


def test_quadrature_of_two_layers_by_importance_sampling() -> None:
    """layers:quadrature: the mean of the indices among draws whose output is close to y."""
    rng = np.random.default_rng(4)
    channel, v = DeepSoftmaxChannel(), np.array([[0.5, -0.1], [-0.1, 0.3]])
    omega = gaussian_indices(np.eye(2), 1, 2, rng)
    y = channel.output(omega + gaussian_indices(v, 1, 2, rng))
    g, _ = channel.output_function(y, omega, v)
    n, width = 1_000_000, 0.08

    def revealed(outputs):
        return np.log(outputs[:, [0, 1], [0, 1]] / outputs[:, [0, 1], [1, 0]])

    draws = gaussian_indices(v, n, 2, rng)
    gap = revealed(channel.output(omega + draws)) - revealed(y)
    weights = np.exp(-0.5 * np.sum(gap * gap, axis=1) / width**2)
    mean = np.einsum("n,nlab->lab", weights, draws) / weights.sum()
    effective = weights.sum() ** 2 / np.sum(weights**2)
    expected = np.einsum("lm,mab->lab", np.linalg.inv(v), mean) / (1 + np.eye(2))
    assert effective > 1500
    np.testing.assert_allclose(g[0], expected, atol=0.1)
    assert np.abs(g[0]).max() > 0.5


def test_response_equals_squares_for_matched_outputs() -> None:
    """The Nishimori identity E[-dg] = E[g g^T] of the two-layer softmax, and its small-V limit."""
    rng, n = np.random.default_rng(0), 20_000
    channel, total = DeepSoftmaxChannel(), second_moments(HALF)
    v = np.array([[0.6, -0.1], [-0.1, 0.3]])
    omega = gaussian_indices(total - v, n, 2, rng)
    y = channel.output(omega + gaussian_indices(v, n, 2, rng))
    g, response = channel.output_function(y, omega, v)
    each = np.einsum("nlab,nmab,ab->nlm", g, g, np.array([[2.0, 0.5], [0.5, 2.0]]))
    error = each.std(axis=0) / math.sqrt(n)
    assert np.all(np.abs(response / n - each.mean(axis=0)) < 4 * error + 0.01 * response[1, 1] / n)
    # 4096 quasi-random outputs on the one side, the response of 20000 random ones on the other
    gamma = channel.information(v, total)
    parts = [channel.output_function(y[k::10], omega[k::10], v)[1] / (n // 10) for k in range(10)]
    spread = np.std(parts, axis=0, ddof=1) / math.sqrt(10)
    assert np.all(np.abs(gamma - response / n) < 5 * spread)
    assert spread[1, 1] < 0.004 * gamma[1, 1]  # seen against what is allowed
    # two revealed numbers: the whitened information tends to two
    small = 1e-4 * np.array([[1.0, 0.2], [0.2, 0.5]])
    assert np.trace(channel.information(small, total) @ small) == pytest.approx(2.0, abs=0.02)


# --- message passing ---------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["separate", "combined"])
def test_linear_message_passing_follows_state_evolution(scheme) -> None:
    """layers:iteration against layers:state-evolution at d = 120."""
    alpha, d = 0.5, 120
    runs = [
        layered_amp(Model(d, HALF, MIXED).sample(alpha, seed), HALF, MIXED, scheme=scheme)
        for seed in range(3)
    ]
    theory = layered_state_evolution(alpha, HALF, MIXED, 200, scheme)[-1]
    assert all(run.status == "converged" for run in runs)
    measured = np.mean([run.estimation_error for run in runs])
    assert measured == pytest.approx(theory[0, 0], rel=0.06)
    claimed = np.mean([run.predicted_error for run in runs], axis=0)
    np.testing.assert_allclose(claimed, theory, atol=0.05 * theory[0, 0])


def test_combining_helps_and_wigner_layers_reach_the_optimum() -> None:
    separate = layered_state_evolution(0.5, HALF, MIXED, 200, "separate")[-1, 0, 0]
    combined = layered_state_evolution(0.5, HALF, MIXED, 200, "combined")[-1, 0, 0]
    bound = error_with_the_others_known(0.5, HALF, MIXED)[0]
    assert bound < combined < 0.75 * separate
    priors = [WignerPrior()] * 2
    run = layered_amp(Model(150, priors, MIXED).sample(0.5, 1), priors, MIXED)
    v = np.eye(2)
    for _ in range(200):
        v = np.linalg.inv(np.eye(2) + MIXED.information(v, np.eye(2)))  # 2 alpha = 1
    assert run.status == "converged"
    assert run.estimation_error == pytest.approx(np.diag(v), rel=0.06)


def test_the_other_layers_known_is_the_single_layer_problem() -> None:
    """layers:genie: whitening the outputs leaves one linear channel of smaller noise."""
    size = float(np.sum(MIXED.mixing[:, 0] ** 2))
    exact = bayes_optimal(0.5, WishartPrior(0.5), LinearChannel(1, MIXED.noise / size))
    ours = error_with_the_others_known(0.5, HALF, MIXED)
    assert ours == pytest.approx([exact.estimation_error] * 2, rel=1e-6)


def test_two_layer_softmax_follows_state_evolution() -> None:
    """Both layers of two networks at alpha = 0.2, d = 100; smaller ones lie higher."""
    channel, alpha = DeepSoftmaxChannel(), 0.2
    runs = [
        layered_amp(Model(100, HALF, channel).sample(alpha, seed), HALF, channel, tolerance=2e-4)
        for seed in range(2)
    ]
    theory = layered_state_evolution(alpha, HALF, channel, 14)[-1]
    assert all(run.status == "converged" for run in runs)
    measured = np.mean([run.estimation_error for run in runs], axis=0)
    claimed = np.mean([np.diag(run.predicted_error) for run in runs], axis=0)
    assert measured == pytest.approx(np.diag(theory), rel=0.1)
    assert claimed == pytest.approx(np.diag(theory), rel=0.1)


# --- what decouples ----------------------------------------------------------------------------


def test_separate_outputs_keep_the_layers_apart() -> None:
    """layers-separate: a diagonal mixing has diagonal matrices all along, and two single layers."""
    channel = MixedLinearChannel([[1.0, 0.0], [0.0, 2.0]], 0.25)
    path = layered_state_evolution(0.4, HALF, channel, 80)
    assert np.abs(path[:, 0, 1]).max() < 1e-12
    for k, scale in ((0, 1.0), (1, 2.0)):
        single = bayes_optimal(0.4, HALF[k], LinearChannel(1, 0.25 / scale**2)).estimation_error
        assert path[-1, k, k] == pytest.approx(single, rel=1e-6)


def test_gated_indices_are_not_correlated_after_the_fact() -> None:
    """layers-flip: y = (h1, h1 h2) with noise, by quadrature over the grid of one token."""
    x = np.linspace(-6, 6, 241)
    h1, h2 = np.meshgrid(x, x, indexing="ij")
    prior = stats.norm.pdf(h1) * stats.norm.pdf(h2)
    cross, own = 0.0, 0.0
    points = np.linspace(-5, 5, 41)
    for y1 in points:
        for y2 in points:
            joint = prior * np.exp(-((y1 - h1) ** 2 + (y2 - h1 * h2) ** 2) / 0.5)
            mass = joint.sum()
            m1, m2 = (joint * h1).sum() / mass, (joint * h2).sum() / mass
            cross, own = cross + mass * m1 * m2, own + mass * m2 * m2
    assert own > 0.0
    assert abs(cross) < 1e-10 * own


@pytest.mark.parametrize("layers", [2, 3])
def test_a_layer_of_a_sum_of_wishart_layers(layers) -> None:
    """layers:sum: message passing on the sum, its estimate shared among the layers."""
    rho, d, alpha = 0.5, 100, 0.1
    channel = SoftmaxChannel(2)
    errors = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        s = np.stack([WishartPrior(rho).sample(d, rng) for _ in range(layers)])
        total = s.sum(axis=0) / math.sqrt(layers)
        tokens = rng.standard_normal((round(alpha * d * d), 2, d))
        data = Dataset(tokens, channel.output(attention_indices(tokens, total)), total)
        estimate = amp(data, WishartPrior(layers * rho), channel).estimate / math.sqrt(layers)
        errors += [np.sum((layer - estimate) ** 2) / d for layer in s]
    theory = error_through_the_sum(alpha, rho, layers, channel)
    assert np.mean(errors) == pytest.approx(theory, rel=0.04)
    assert theory > 1 - 1 / layers + 0.05
    assert error_through_the_sum(5.0, rho, layers, channel) == 1 - 1 / layers


def weighted_resolvent(x: float, weights, rho: float, noise: float) -> complex:
    """Resolvent of sum_l t_l S_l + noise at x + 0i, by Newton's method from far above the axis."""
    g = 0j
    for height in np.concatenate([np.geomspace(30.0, 1e-6, 120), [1e-9]]):
        z = x + 1j * height
        g = 1.0 / z if g == 0j else g
        for _ in range(60):
            r, slope = noise * g, noise
            for t in weights:
                r += t * math.sqrt(rho) / (1 - t * g / math.sqrt(rho))
                slope += t * t / (1 - t * g / math.sqrt(rho)) ** 2
            step = (1 / g + r - z) / (slope - 1 / g**2)
            g -= step
            if abs(step) < 1e-13 * abs(g):
                break
    return g


def test_one_layer_from_a_weighted_sum() -> None:
    """layers:subordination at d = 800: the eigenvalue map from R to each layer."""
    rho, noise, weights, d = 0.5, 0.3, (1.0, 0.4), 800
    rng = np.random.default_rng(2)
    s = [WishartPrior(rho).sample(d, rng) for _ in weights]
    observed = sum(t * m for t, m in zip(weights, s, strict=True))
    observed = observed + math.sqrt(noise) * WignerPrior().sample(d, rng)
    values, vectors = np.linalg.eigh(observed)
    inner = slice(40, d - 40, 20)
    g = np.array([weighted_resolvent(x, weights, rho, noise) for x in values[inner]])
    for k, t in enumerate(weights):
        exact = np.imag(g * math.sqrt(rho) / (1 - t * g / math.sqrt(rho))) / g.imag
        diagonal = np.einsum("ij,ij->j", vectors, s[k] @ vectors)
        smooth = np.convolve(diagonal, np.ones(41) / 41, "same")[inner]
        assert np.abs(smooth - exact).max() < 0.25
        assert np.mean(smooth - exact) == pytest.approx(0.0, abs=0.03)
        assert np.ptp(exact) > 0.5


# --- the border --------------------------------------------------------------------------------


def test_bad_arguments_are_named() -> None:
    data = Model(6, HALF, MIXED).sample(0.5, seed=0)
    deep = DeepSoftmaxChannel()
    with pytest.raises(ValueError, match="priors"):
        Model(6, HALF[:1], MIXED)
    with pytest.raises(ValueError, match="scheme"):
        denoising_error(NOISE, HALF, "best")
    with pytest.raises(ValueError, match="noise must be a positive definite"):
        denoising_error([[1.0, 2.0], [2.0, 1.0]], HALF)
    with pytest.raises(ValueError, match="noise"):
        MixedLinearChannel([[1.0]], 0.0)
    with pytest.raises(ValueError, match="scheme must be 'combined'"):
        layered_state_evolution(0.2, HALF, deep, 3, "separate")
    with pytest.raises(ValueError, match="two layers and two tokens"):
        layered_state_evolution(0.2, HALF, DeepSoftmaxChannel(2, 3), 3)
    with pytest.raises(ValueError, match="skip of at least 1"):
        layered_state_evolution(0.2, HALF, DeepSoftmaxChannel(skip=0.5), 3)
    with pytest.raises(ValueError, match="channel must have"):
        layered_amp(data, HALF, MixedLinearChannel(np.eye(2), 0.1, tokens=2))
    with pytest.raises(ValueError, match="damping"):
        layered_amp(data, HALF, MIXED, damping=1.0)
    with pytest.raises(ValueError, match="channel must have 1 tokens"):
        averaged_gradient_descent(data, 3, deep, seed=0)
    with pytest.raises(ValueError, match="teacher"):
        LayeredDataset(data.tokens, data.outputs, data.teacher[0])


# --- the border --------------------------------------------------------------------------------


SOFT = DeepSoftmaxChannel(nodes=8)
INDICES = np.zeros((3, 2, 1, 1))
SOFT_INDICES = np.zeros((3, 2, 2, 2))
DATA = LayeredDataset(np.ones((3, 1, 2)), np.ones((3, 2, 1, 1)), np.zeros((2, 2, 2)))
PAIRS = LayeredDataset(np.ones((3, 2, 2)), np.full((3, 2, 2), 0.5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MixedLinearChannel(np.zeros((2, 2)), 0.1), "mixing must"),
        (lambda: MIXED.output(INDICES, 3), "rng must"),
        (lambda: MIXED.output_function(np.ones((1, 2, 1, 1)), INDICES, NOISE), "y must have shape"),
        (lambda: MIXED.output_function(INDICES, INDICES, 1e-300 * np.eye(2)), "covariance must"),
        (lambda: MIXED.output_function(INDICES, INDICES, np.diag([1.0, -1.0])), "covariance must"),
        (lambda: SOFT.output_function(np.full((3, 3, 3), 0.3), SOFT_INDICES, NOISE), "y must have"),
        (lambda: SOFT.information(NOISE, np.eye(3)), "second_moments must have shape"),
        (lambda: SOFT.information(NOISE, 0.1 * np.eye(2)), "second_moments must exceed"),
        (lambda: denoising_error(1e300 * np.eye(2), HALF), "noise must have diagonal"),
        (lambda: MIXED.output(INDICES[:0]), "indices must have shape"),
        (lambda: loss_and_gradient(np.ones((1, 3, 2, 1)), PAIRS, SOFT), "weights must have shape"),
        (lambda: loss_and_gradient(np.ones((1, 2, 2, 0)), PAIRS, SOFT), "weights must have shape"),
        (lambda: layered_amp(DATA, HALF, MIXED, client=3), "client must be"),
        (
            lambda: averaged_gradient_descent(PAIRS, 2, SOFT, starts=2, seed=0, client=3),
            "client must be",
        ),
    ],
)
def test_bad_values_are_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: denoising_error(NOISE, [1, 2]), "priors must be"),
        (lambda: denoising_error(NOISE, [BilinearPrior(0.5)] * 2), "priors must be a sequence"),
        (lambda: layered_state_evolution(0.1, WishartPrior(0.5), MIXED), "priors must be"),
        (lambda: layered_state_evolution(0.1, HALF, SoftmaxChannel(2)), "priors and channel must"),
        (lambda: Model(4, HALF, None).sample(0.5, 0), "channel must be"),
        (lambda: layered_amp(None, HALF, MIXED), "dataset must be"),
        (lambda: layered_amp(DATA, None, MIXED), "priors must be"),
        (lambda: averaged_gradient_descent(None, 2, SOFT, seed=0), "dataset must be"),
        (lambda: averaged_gradient_descent(DATA, 2, MIXED, seed=0), "channel must be"),
        (lambda: loss_and_gradient(np.ones((1, 2, 2, 1)), DATA, MIXED), "channel must be"),
        (lambda: error_with_the_others_known(0.1, HALF, SOFT), "channel must be"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("unseen", [0, 1])
def test_a_layer_that_is_not_seen_keeps_its_variance(unseen) -> None:
    """Wherever it stands; the other one is a single layer behind a linear channel."""
    channel = MixedLinearChannel(np.delete(np.eye(2), unseen, axis=0), noise=0.25)
    errors = error_with_the_others_known(0.3, HALF, channel)
    exact = bayes_optimal(0.3, HALF[0], LinearChannel(1, 0.25)).estimation_error
    assert errors[unseen] == HALF[unseen].variance
    assert errors[1 - unseen] == pytest.approx(exact, rel=1e-6)
    assert exact < 0.9


def dense_layered_amp(data, priors, channel, iterations, keep):
    """layers:iteration with the tensor of sensing matrices; nothing in it is taken as symmetric."""
    x = data.tokens
    n, t, d = x.shape
    outer = np.einsum("nai,nbj->nabij", x, x)
    z = (outer + np.swapaxes(outer, -1, -2)) / (2 * math.sqrt(d))
    z -= np.eye(t)[:, :, None, None] * np.eye(d) / math.sqrt(d)
    weights, count = 1 + np.eye(t), len(priors)
    start = np.stack([p.mean_eigenvalue * np.eye(d) for p in priors])
    estimate, v = start, np.diag([p.variance for p in priors])
    reaction, g = np.zeros((count, count)), np.zeros((n, count, t, t))
    pairs = [(a, b) for a in range(t) for b in range(a, t)]
    for _ in range(iterations):
        omega = np.einsum("nabij,lij->nlab", z, estimate)
        for k in range(count):
            for m in range(count):
                omega[:, k] -= weights * reaction[k, m] * g[:, m]
        g, response = channel.output_function(data.outputs, omega, v)
        gain = np.linalg.inv(response / d)
        total = sum(np.einsum("nl,nij->lij", g[:, :, a, b], z[:, a, b]) for a, b in pairs)
        squares = sum(weights[a, b] * g[:, :, a, b].T @ g[:, :, a, b] for a, b in pairs)
        noise = gain @ squares @ gain / 2
        observed = estimate + np.einsum("lm,mij->lij", gain, total)
        singles = [
            denoise_symmetric(observed[k], noise[k, k], p, "tangent") for k, p in enumerate(priors)
        ]
        shrunk = np.stack([s[0] for s in singles])
        coefficients, predicted = feature_moments(noise, priors).combined()
        features = np.concatenate([observed - start, shrunk - start])
        denoised = start + np.einsum("fl,fij->lij", coefficients, features)
        slopes = np.zeros((count, count))  # of the estimate of k in the observation of m
        for k in range(count):
            for m in range(count):
                slopes[k, m] = coefficients[m, k] * d * (d + 1) / 2
                slopes[k, m] += coefficients[count + m, k] * singles[m][1]
        reaction = slopes @ gain / d
        estimate = keep * estimate + (1 - keep) * denoised
        v = keep * v + (1 - keep) * predicted
    return estimate, reaction


def test_matrix_free_layers_equal_the_dense_ones() -> None:
    """Data of another mixing than believed: the reaction is far from symmetric."""
    priors = [WishartPrior(0.3), WignerPrior(0.5)]
    channel = MixedLinearChannel([[1.0, 0.2], [0.9, -0.6]], noise=0.3, tokens=2)
    other = MixedLinearChannel([[1.0, -0.7], [0.1, 0.8]], noise=0.3, tokens=2)
    data = Model(12, priors, other).sample(1.5, seed=3)
    ours = layered_amp(data, priors, channel, iterations=4, damping=0.25, tolerance=1e-300)
    dense, reaction = dense_layered_amp(data, priors, channel, 4, 0.25)
    assert abs(reaction[0, 1] - reaction[1, 0]) > 0.1 * abs(reaction[0, 1])
    np.testing.assert_allclose(ours.history["onsager"][-1], reaction, rtol=1e-8)
    np.testing.assert_allclose(ours.estimate, dense, rtol=0, atol=1e-9)


def test_callback_sees_the_iterations_of_layers() -> None:
    seen = []
    data = Model(12, HALF, MIXED).sample(0.5, seed=1)
    result = layered_amp(
        data, HALF, MIXED, iterations=3, callback=lambda step, record: seen.append((step, record))
    )
    assert [step for step, _ in seen] == [1, 2, 3]
    for name, values in result.history.items():
        np.testing.assert_array_equal(values, [record[name] for _, record in seen])


def test_the_former_name_of_sampling_draws_the_same_data() -> None:
    with pytest.warns(DeprecationWarning, match="sample_layers is now"):
        sample_layers = aimlib.sample_layers
    former, data = sample_layers(6, HALF, MIXED, 0.5, 3), Model(6, HALF, MIXED).sample(0.5, 3)
    np.testing.assert_array_equal(former.tokens, data.tokens)
    np.testing.assert_array_equal(former.outputs, data.outputs)
    np.testing.assert_array_equal(former.teacher, data.teacher)


def test_the_estimate_of_layers_without_a_teacher_is_the_same() -> None:
    data = Model(20, HALF, MIXED).sample(0.5, seed=1)
    blind = LayeredDataset(data.tokens, data.outputs)
    seen, unseen = (layered_amp(x, HALF, MIXED, iterations=5) for x in (data, blind))
    np.testing.assert_array_equal(seen.estimate, unseen.estimate)
    assert unseen.estimation_error is None
    assert seen.history["estimation_error"].shape == (5, 2)
    assert seen.history["predicted_error"].shape == (5, 2, 2)
