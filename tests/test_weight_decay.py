"""The chapter "What regularised training reaches" against finite matrices and a convex solver."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from test_exercises import run

import aimlib
from aimlib import (
    AttentionIndexedModel,
    CorrelatedSoftmaxChannel,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    attention_indices,
    bayes_optimal,
    cross_attention,
    gradient_descent,
    minimum_trace_threshold,
    strong_recovery_threshold,
)
from aimlib.descent import loss_and_gradient
from aimlib.weight_decay import (
    best_decay,
    positivity_threshold,
    posterior_samples,
    regularised,
    regularised_fit,
)
from aimlib.weight_decay.evolution import ProximalMap, cone_dimension, semicircle_excess
from aimlib.weight_decay.fit import Visible

HALF, SOFT, NOISY = WishartPrior(0.5), SoftmaxChannel(2), LinearChannel(1, 0.5)


def data_of(d, channel, alpha, seed=1, prior=HALF):
    return AttentionIndexedModel(d, prior, channel).sample(alpha, seed)


def flat(d):
    """An orthonormal basis of the symmetric matrices, shape (d(d+1)/2, d, d)."""
    rows, columns = np.triu_indices(d)
    basis = np.zeros((rows.size, d, d))
    weight = np.where(rows == columns, 1.0, math.sqrt(0.5))
    basis[np.arange(rows.size), rows, columns] = weight
    basis[np.arange(rows.size), columns, rows] = weight
    return basis


# --- thresholds --------------------------------------------------------------------------------


@pytest.mark.parametrize("u", [-2.0, -1.3, 0.0, 0.29, 1.0, 1.9, 1.9899, 1.9902, 2.0])
def test_excess_over_a_semicircle(u) -> None:
    """weight_decay:excess, both sides of the switch to quadrature, by direct integration."""
    for power, value in zip((1, 2), semicircle_excess(u), strict=True):
        direct, _ = integrate.quad(
            lambda t, k=power: (2 * np.cos(t) - u) ** k * 2 / math.pi * np.sin(t) ** 2,
            0.0, math.acos(u / 2), epsabs=1e-15, epsrel=1e-13,
        )  # fmt: skip
        assert value == pytest.approx(direct, rel=1e-11, abs=1e-16)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
def test_the_dimension_of_the_cone_from_a_random_matrix(share) -> None:
    """weight_decay:cone, weight_decay:threshold: the distance of one GOE matrix to the polar cone.

    The polar cone at S = diag(I, 0) are the s (I, Z) with Z below the identity, s >= 0: the nearest
    one is found block by block, without a limit.
    """
    d = 1000
    r = round(share * d)
    g = WignerPrior().sample(d, np.random.default_rng(3))
    lower = np.linalg.eigvalsh(g[r:, r:])
    tangent = np.sum(g[:r, r:] ** 2) * 2 + np.sum(g[:r, :r] ** 2)

    def distance(s):
        block = tangent - 2 * s * np.trace(g[:r, :r]) + s * s * r
        return (block + np.sum(np.maximum(lower - s, 0.0) ** 2)) / d

    nearest = min(distance(s) for s in np.linspace(0.0, 2.0, 2001))
    assert cone_dimension(share) == pytest.approx(nearest, abs=6.0 / d)


def test_thresholds() -> None:
    """weight_decay:order, weight_decay:positivity: three thresholds, equal at p = 1."""
    assert minimum_trace_threshold(HALF, SOFT) == pytest.approx(0.2110874911, abs=1e-9)
    assert positivity_threshold(HALF, SOFT) == 0.21875
    assert aimlib.minimum_trace_threshold is minimum_trace_threshold
    for rho in (0.01, 0.1, 0.5, 0.9, 0.999):
        prior = WishartPrior(rho)
        three = [
            f(prior, SOFT)
            for f in (strong_recovery_threshold, minimum_trace_threshold, positivity_threshold)
        ]
        assert three == sorted(three)
        assert three[0] < three[1] < three[2]
    for rho in (1.0, 2.0):
        exact = strong_recovery_threshold(WishartPrior(rho), SOFT)
        assert minimum_trace_threshold(WishartPrior(rho), SOFT) == exact
        assert positivity_threshold(WishartPrior(rho), SOFT) == exact
    # only the number of combinations counts: c = 2, 5, 1, 3
    per_combination = 2 * minimum_trace_threshold(HALF, SOFT)
    for channel, c in (
        (SoftmaxChannel(3, 4.0), 5),
        (LinearChannel(1), 1),
        (LinearChannel(2), 3),
        (CorrelatedSoftmaxChannel([[1.0, 0.4], [0.4, 1.0]], HALF.mean_eigenvalue), 2),
    ):
        assert c * minimum_trace_threshold(HALF, channel) == pytest.approx(per_combination)
    # and only the rank of S
    projector = SpectralPrior([0.0, 1.0])
    assert minimum_trace_threshold(projector, SOFT) == minimum_trace_threshold(HALF, SOFT)


def test_thresholds_over_the_width() -> None:
    """weight-decay-exercise-width: the largest gap is inside, and the least trace needs more."""
    names = run("weight_decay", "weight-decay-exercise-width")
    assert 0.02 < names["farthest"] < 0.4
    assert min(names["gaps"]) > 0.0


def test_narrow_teachers_need_three_times_the_count() -> None:
    """weight_decay:narrow: as p goes to 0 the three thresholds are 2p, 6p and 1/2 over 2c.

    The edge of the semicircle is approached as p^(2/5), hence the rate.
    """
    gaps = [abs(cone_dimension(p) / (6 * p) - 1) for p in (1e-4, 1e-6, 1e-8)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.01


@pytest.mark.parametrize(
    ("prior", "channel", "message"),
    [
        (HALF, HardmaxChannel(2), "channel must show combinations.*HardmaxChannel.*WishartPrior"),
        (HALF, LinearChannel(1, 1e-6), "channel must show combinations.*LinearChannel"),
        (WignerPrior(), SOFT, "prior must be of positive semi-definite.*WignerPrior"),
        (SpectralPrior([-1.0, 1.0]), SOFT, "prior must be of positive semi-definite"),
        (
            cross_attention.BilinearPrior(0.5),
            cross_attention.SoftmaxChannel(2, 2),
            "prior and channel must belong together",
        ),
        (HALF, cross_attention.SoftmaxChannel(2, 2), "prior and channel must belong together"),
    ],
)
def test_pairs_without_a_threshold_are_refused(prior, channel, message) -> None:
    for function in (minimum_trace_threshold, positivity_threshold):
        with pytest.raises(ValueError, match=message):
            function(prior, channel)
    if not isinstance(channel, LinearChannel):
        with pytest.raises(ValueError, match=message):
            regularised(0.1, prior, channel)


# --- the proximal map and its state evolution --------------------------------------------------


@pytest.mark.parametrize("rho", [0.3, 1.0, 2.0])
@pytest.mark.parametrize(("noise", "theta"), [(0.02, 0.1), (0.5, 0.4), (2.0, 1.5)])
def test_averages_of_the_proximal_map(rho, noise, theta) -> None:
    """weight_decay:prox, weight_decay:error, weight_decay:divergence on one matrix of d = 1000."""
    d, rng = 1000, np.random.default_rng(5)
    prior = WishartPrior(rho)
    s = prior.sample(d, rng)
    r = s + math.sqrt(noise) * WignerPrior().sample(d, rng)
    values, vectors = np.linalg.eigh(r)
    f = np.maximum(values - theta, 0.0)
    estimate = (vectors * f) @ vectors.T
    gaps = values[:, None] - values[None, :] + np.eye(d)
    slopes = (f[:, None] - f[None, :]) / gaps + np.diag((values > theta).astype(float))
    proximal = ProximalMap(prior, noise)
    assert proximal.error(theta) == pytest.approx(np.sum((estimate - s) ** 2) / d, rel=0.02)
    assert proximal.divergence(theta) == pytest.approx(np.sum(slopes) / d**2, rel=0.005)
    assert proximal.rank(theta) == pytest.approx(np.mean(values > theta), abs=3 / d)


def test_averages_without_decay_are_those_of_the_identity_at_large_width() -> None:
    """All eigenvalues far from zero: the map at theta = 0 is the identity, V = Delta and D = 1."""
    proximal = ProximalMap(WishartPrior(4.0), 1e-3)
    assert proximal.error(0.0) == pytest.approx(1e-3, rel=1e-9)
    assert proximal.divergence(0.0) == pytest.approx(1.0, rel=1e-9)
    assert proximal.rank(0.0) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("theta", [0.05, 0.4, 1.0])
def test_stein_identity(theta) -> None:
    """weight_decay:stein: V is also Delta (2D - 1) plus the mean square of what is taken."""
    noise = 0.3
    proximal = ProximalMap(HALF, noise)
    taken = proximal._integral(lambda x, _: x**2, -np.inf, theta)
    taken += theta**2 * proximal.rank(theta)
    stein = noise * (2 * proximal.divergence(theta) - 1) + taken
    assert proximal.error(theta) == pytest.approx(stein, rel=1e-9)


def test_small_noise_is_the_cone() -> None:
    """weight_decay:small-noise: V/Delta tends to the bracket whose minimum is the threshold."""
    noise, p = 1e-12, 0.5
    proximal = ProximalMap(HALF, noise)
    for u in (0.0, 0.292, 1.0):
        theta = u * math.sqrt((1 - p) * noise)
        bracket = 2 * p - p * p + p * (1 - p) * u * u + (1 - p) ** 2 * semicircle_excess(u)[1]
        assert proximal.error(theta) / noise == pytest.approx(bracket, rel=1e-5)


@pytest.mark.parametrize(
    ("alpha", "channel", "decay"),
    [(0.1, SOFT, 0.0), (0.2, SOFT, 0.0), (0.1, SOFT, 0.7), (0.3, NOISY, 0.0), (0.6, NOISY, 1.0)],
)
def test_the_saddle_point_holds(alpha, channel, decay) -> None:
    """weight_decay:saddle, weight_decay:noise: both equations, put in again."""
    result = regularised(alpha, HALF, channel, decay)
    c, noise = (2.0, 0.0) if channel is SOFT else (1.0, 0.25)
    proximal = ProximalMap(HALF, result.noise)
    d = proximal.divergence(result.threshold)
    v = proximal.error(result.threshold)
    assert v == pytest.approx(result.estimation_error, rel=1e-10)
    assert 2 * alpha * c * result.noise == pytest.approx(v + noise, rel=1e-9)
    assert 4 * result.threshold * (c - d / (2 * alpha)) == pytest.approx(decay, abs=1e-9)


def test_recovery_sets_in_at_the_threshold_and_not_before() -> None:
    edge = minimum_trace_threshold(HALF, SOFT)
    just = regularised([edge * (1 - 1e-3), edge], HALF, SOFT)
    assert 0.0 < just.estimation_error[0] < 1e-5
    assert just.estimation_error[1] == 0.0
    assert just.rank[1] == 0.5
    # a decay that stays leaves an error that falls as its square
    small = regularised(0.25, HALF, SOFT, [1e-3, 1e-4])
    assert small.estimation_error[0] / small.estimation_error[1] == pytest.approx(100, rel=0.02)


def test_limits_of_the_decay() -> None:
    """Beyond 4c times the largest eigenvalue of R nothing is left; the limit of none is reached."""
    nothing = regularised(0.6, HALF, NOISY, 50.0)
    assert (nothing.rank, nothing.estimation_error) == (0.0, pytest.approx(1.5))
    assert nothing.training_loss == pytest.approx(2 * (1.5 + 0.25))
    near = regularised(0.1, HALF, SOFT, [0.0, 1e-6])
    assert near.estimation_error[1] == pytest.approx(near.estimation_error[0], rel=1e-6)
    assert near.training_loss[0] == 0.0
    assert 0.0 < near.training_loss[1] < 1e-10


def test_best_decay() -> None:
    """weight_decay:best: no decay beside it is better, and Bayes is better still."""
    for alpha in (0.3, 0.6, 1.5):
        best = best_decay(alpha, HALF, NOISY)
        beside = regularised(alpha, HALF, NOISY, best.decay * np.array([0.0, 0.5, 0.97, 1.0, 1.03]))
        assert best.estimation_error == pytest.approx(beside.estimation_error[3], rel=1e-8)
        assert (beside.estimation_error[[0, 1, 2, 4]] > best.estimation_error).all()
        assert best.estimation_error > bayes_optimal(alpha, HALF, NOISY).estimation_error
    # without noise the least trace itself is best
    exact = best_decay(np.array([0.1, 0.2, 0.3]), HALF, SOFT)
    assert exact.decay.tolist() == [0.0, 0.0, 0.0]
    assert exact.estimation_error[2] == 0.0


# --- the solver --------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", [SOFT, SoftmaxChannel(3, 2.0), NOISY, LinearChannel(2, 0.1)])
def test_what_is_visible(channel) -> None:
    """weight_decay:objective: P h of the teacher is the data; the gradient by differences."""
    data = data_of(9, channel, 0.4)
    visible = Visible(data, channel)
    h = attention_indices(data.tokens, data.teacher)
    if isinstance(channel, SoftmaxChannel):
        h -= h.mean(axis=(1, 2), keepdims=True)
        assert visible.data == pytest.approx(h, abs=1e-12)
    assert visible.of(data.teacher) == pytest.approx(h, abs=1e-12)

    def value(s):
        return np.sum((visible.of(s) - visible.data) ** 2) / (4 * 9)

    rng = np.random.default_rng(0)
    s, move = HALF.sample(9, rng), WignerPrior().sample(9, rng)
    slope = np.sum(visible.gradient(visible.of(s) - visible.data) * move)
    step = 1e-4
    assert slope == pytest.approx(
        (value(s + step * move) - value(s - step * move)) / (2 * step), rel=1e-8
    )


def test_weight_decay_is_a_trace() -> None:
    """weight_decay:trace: the loss of W in gradient descent is that of S with lambda sqrt(r/d)."""
    d, r = 10, 7
    data = data_of(d, NOISY, 0.5)
    w = np.random.default_rng(0).standard_normal((1, d, r))
    s = w[0] @ w[0].T / math.sqrt(r * d)
    gaps = Visible(data, NOISY).of(s) - data.outputs
    expected = np.sum(gaps**2) / len(gaps) + 0.3 * math.sqrt(r / d) * np.trace(s) / d
    value, _ = loss_and_gradient(w, data, NOISY, weight_decay=0.3)
    assert value[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("channel", "alpha"), [(SOFT, 0.15), (NOISY, 0.6)])
def test_optimality_of_the_fit(channel, alpha) -> None:
    """weight_decay:optimality: gradient plus decay is positive, and vanishes on the estimate."""
    d, decay = 16, 0.5
    data = data_of(d, channel, alpha)
    found = regularised_fit(data, channel, decay=decay, tolerance=1e-10, iterations=20000)
    assert found.converged
    visible = Visible(data, channel)
    n = len(data.tokens)
    slope = visible.gradient(visible.of(found.estimate) - visible.data)
    dual = slope * 4 * d / n + decay / d * np.eye(d)
    scale = decay / d
    assert np.linalg.eigvalsh(dual)[0] > -1e-6 * scale
    assert np.linalg.norm(dual @ found.estimate) < 1e-5 * scale
    assert np.linalg.eigvalsh(found.estimate)[0] > -1e-12


def solved(data, channel, decay):
    """The same problem by an interior-point method, the measurements written out."""
    cp = pytest.importorskip("cvxpy")
    if "CLARABEL" not in cp.installed_solvers():
        pytest.skip("the solver Clarabel is not installed")
    d = data.dimension
    visible = Visible(data, channel)
    basis = flat(d)
    rows = np.stack([visible.of(b).ravel() for b in basis], axis=1)
    s = cp.Variable((d, d), PSD=True)
    vector = basis.reshape(len(basis), -1) @ cp.vec(s, order="C")
    # the T^2 entries of a sequence hold c combinations: keep independent rows
    q, _ = np.linalg.qr(rows)
    if decay == 0.0:
        rank = np.linalg.matrix_rank(rows)
        u, scale, v = np.linalg.svd(rows, full_matrices=False)
        target = (u.T @ visible.data.ravel())[:rank] / scale[:rank]
        problem = cp.Problem(cp.Minimize(cp.trace(s) / d), [v[:rank] @ vector == target])
    else:
        short, target = q.T @ rows, q.T @ visible.data.ravel()
        loss = cp.sum_squares(short @ vector - target) / len(data.tokens)
        problem = cp.Problem(cp.Minimize(loss + decay * cp.trace(s) / d))
    problem.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_feas=1e-10)
    return s.value


@pytest.mark.parametrize(
    ("channel", "alpha", "decay"),
    [(SOFT, 0.1, 0.0), (SOFT, 0.1, 0.5), (NOISY, 0.4, 0.3), (LinearChannel(2, 0.1), 0.1, 0.2)],
)
def test_against_a_convex_solver(channel, alpha, decay) -> None:
    """weight_decay:step, weight_decay:add-back: d = 16, the estimate itself."""
    data = data_of(16, channel, alpha)
    found = regularised_fit(data, channel, decay=decay, tolerance=1e-9, iterations=20000)
    exact = solved(data, channel, decay)
    assert np.linalg.norm(found.estimate - exact) < 1e-4 * np.linalg.norm(exact)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.15, 0.23])
def test_against_a_convex_solver_at_forty(alpha) -> None:
    data = data_of(40, SOFT, alpha)
    found = regularised_fit(data, SOFT, tolerance=1e-8, iterations=40000)
    exact = solved(data, SOFT, 0.0)
    assert np.linalg.norm(found.estimate - exact) < 1e-3 * np.linalg.norm(exact)


def test_the_fit_follows_state_evolution() -> None:
    """weight_decay:loss: error, rank and training loss at d = 80, over four data sets."""
    theory = regularised(0.6, HALF, NOISY, 0.5)
    found = [regularised_fit(data_of(80, NOISY, 0.6, seed), NOISY, decay=0.5) for seed in range(4)]
    mean = {
        name: np.mean([getattr(f, name) for f in found])
        for name in ("estimation_error", "rank", "training_loss")
    }
    assert mean["estimation_error"] == pytest.approx(theory.estimation_error, rel=0.06)
    assert mean["rank"] == pytest.approx(theory.rank, abs=0.02)
    assert mean["training_loss"] == pytest.approx(theory.training_loss, rel=0.06)


def test_least_trace_recovers_from_its_threshold_on() -> None:
    above = regularised_fit(data_of(40, SOFT, 0.26), SOFT)
    below = regularised_fit(data_of(40, SOFT, 0.16), SOFT)
    assert above.converged
    assert above.estimation_error < 1e-8
    assert below.training_loss < 1e-9
    assert below.estimation_error > 0.02
    teacher = data_of(40, SOFT, 0.16).teacher
    assert np.trace(below.estimate) < np.trace(teacher)


def test_gradient_descent_with_decay_ends_at_the_convex_minimum() -> None:
    """weight-decay-minima: a student wider than the rank of the solution, a convex loss."""
    d, decay = 14, 1.0
    data = data_of(d, NOISY, 0.6)
    convex = regularised_fit(data, NOISY, decay=decay, tolerance=1e-9)
    found = gradient_descent(
        data, d, NOISY, seed=3, weight_decay=decay, iterations=4000, final_learning_rate=0.0
    )
    assert convex.rank < 1.0
    assert np.linalg.norm(found.estimate - convex.estimate) < 1e-3 * np.linalg.norm(convex.estimate)


def test_a_start_and_an_unknown_teacher_change_nothing() -> None:
    data = data_of(12, NOISY, 0.6)
    cold = regularised_fit(data, NOISY, decay=0.5, tolerance=1e-9)
    blind = replace(data, teacher=None)
    warm = regularised_fit(blind, NOISY, decay=0.5, tolerance=1e-9, initial=cold.estimate)
    assert warm.estimation_error is None
    assert warm.estimate == pytest.approx(cold.estimate, abs=1e-6)
    assert warm.iterations <= cold.iterations
    stalled = regularised_fit(data, NOISY, decay=0.5, tolerance=1e-12, iterations=2)
    assert stalled.status == "stalled"
    assert not stalled.converged


def test_bad_arguments_of_the_fit() -> None:
    data = data_of(8, SOFT, 0.3)
    for channel in (SoftmaxChannel(3), HardmaxChannel(2)):
        with pytest.raises(ValueError, match="channel must be a SoftmaxChannel or a LinearChannel"):
            regularised_fit(data, channel)
    with pytest.raises(ValueError, match="initial must have shape"):
        regularised_fit(data, initial=np.eye(7))
    with pytest.raises(ValueError, match="initial_weights must have shape"):
        posterior_samples(data, 4, noise=0.1, seed=0, initial_weights=np.ones((1, 8, 3)))


# --- the sampler -------------------------------------------------------------------------------


@pytest.mark.parametrize("leapfrog", [1, 10])
def test_the_sampler_has_the_posterior(leapfrog) -> None:
    """weight_decay:energy: moments of S for W in R^2, against a sum over a grid of W."""
    noise = 0.3
    data = data_of(2, NOISY, 1.0, seed=4, prior=WishartPrior(0.5))
    axis = np.linspace(-6.0, 6.0, 601)
    w = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    s = w[:, :, None] * w[:, None, :] / math.sqrt(2.0)
    x = data.tokens[:, 0]
    h = np.einsum("ni,kij,nj->kn", x, s, x) - np.trace(s, axis1=1, axis2=2)[:, None]
    misfit = np.sum((h / math.sqrt(2.0) - data.outputs[:, 0, 0]) ** 2, axis=1)
    energy = 0.5 * np.sum(w * w, axis=1) + misfit / (4 * noise)
    weight = np.exp(-(energy - energy.min()))
    mean = np.einsum("k,kij->ij", weight, s) / weight.sum()
    found = posterior_samples(
        data, 1, NOISY, noise=noise, seed=2, chains=200, annealing=100, proposals=400,
        leapfrog=leapfrog,
    )  # fmt: skip
    spread = found.means.std(axis=0) / math.sqrt(200)
    assert (np.abs(found.estimate - mean) < 4 * spread + 1e-3).all()
    square = float(weight @ np.sum(s * s, axis=(1, 2)) / weight.sum() / 2)
    assert found.norms.mean() == pytest.approx(square, abs=4 * found.norms.std() / 14)


def test_samples_and_teacher_can_be_exchanged() -> None:
    """weight_decay:exchange: overlaps and misfit at d = 16, over data sets."""
    d, rows = 16, []
    for seed in range(12):
        data = data_of(d, SOFT, 0.15, seed)
        found = posterior_samples(
            data, 8, noise=0.05, seed=seed + 100, chains=2, annealing=150, proposals=100,
            leapfrog=15,
        )  # fmt: skip
        first, second = found.means
        s = data.teacher
        rows.append(
            [
                np.sum(first * second) / d - np.sum(found.estimate * s) / d,
                found.norms.mean() - np.sum(s * s) / d,
                found.energies.mean() - 0.5,
            ]
        )
        assert (found.acceptance > 0.5).all()
    gaps = np.array(rows)
    z = gaps.mean(axis=0) / (gaps.std(axis=0, ddof=1) / math.sqrt(len(gaps)))
    assert (np.abs(z) < 4.0).all(), z
    assert np.abs(gaps.mean(axis=0)).max() < 0.25


def test_the_sampler_starts_where_it_is_told() -> None:
    data = data_of(6, SOFT, 0.3)
    w = np.random.default_rng(0).standard_normal((2, 6, 3))
    options = {"noise": 0.1, "chains": 2, "annealing": 0, "proposals": 1, "leapfrog": 1}
    first = posterior_samples(data, 3, seed=1, initial_weights=w, **options)
    again = posterior_samples(data, 3, seed=1, initial_weights=w, **options)
    assert np.array_equal(first.samples, again.samples)
    assert np.abs(first.weights - w).max() < 2.0
