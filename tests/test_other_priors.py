"""Other priors, other tokens: counts, exact linear algebra, and simulations of the covariances."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from aimlib import (
    AttentionIndexedModel,
    CorrelatedSoftmaxChannel,
    Dataset,
    FourthMomentHardmaxChannel,
    HardmaxChannel,
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    amp,
    attention_indices,
    bayes_optimal,
    strong_recovery_threshold,
    whiten,
)
from aimlib.channels import output_function
from aimlib.model import TOKEN_LAWS

SOFTMAX, HARDMAX = SoftmaxChannel(2), HardmaxChannel(2)
POSITIONS = np.array([[1.0, 0.6, 0.1], [0.6, 2.0, -0.3], [0.1, -0.3, 0.5]])


def symmetric(rng: np.random.Generator, count: int, tokens: int) -> np.ndarray:
    """White indices: independent, variance 1 + delta_ab."""
    z = np.triu(rng.standard_normal((count, tokens, tokens))) * np.sqrt(1 + np.eye(tokens))
    return z + np.swapaxes(np.triu(z, 1), 1, 2)


def square_root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T


# --- priors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(3, 9), (6, 6), (2, 4, 6), (1, 1, 10)])
def test_the_dimension_of_an_orbit_by_its_tangent_space(sizes) -> None:
    """other_priors:orbit, other_priors:grassmannian (two eigenvalues)."""
    d = sum(sizes)
    prior = SpectralPrior(np.arange(len(sizes), dtype=float), np.array(sizes, dtype=float))
    s = prior.sample(d, np.random.default_rng(1))
    tangents = []
    for i, j in zip(*np.triu_indices(d, 1), strict=True):
        a = np.zeros((d, d))
        a[i, j], a[j, i] = 1.0, -1.0
        tangents.append((a @ s - s @ a).ravel())
    rank = np.linalg.matrix_rank(np.array(tangents), tol=1e-8)
    assert rank == round(prior.degrees_of_freedom * d * d / 2)
    if len(sizes) == 2:
        p = sizes[0] / d
        assert prior.degrees_of_freedom == pytest.approx(2 * p * (1 - p), abs=1e-14)
        assert rank == sizes[0] * sizes[1]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_equal_atoms(count) -> None:
    """other_priors:atoms, as kappa and as the limit of mmse/Delta."""
    prior = SpectralPrior(np.arange(float(count)))
    assert prior.degrees_of_freedom == pytest.approx(1 - 1 / count, abs=1e-14)
    if count > 1:
        assert prior.mmse(1e-8) / 1e-8 == pytest.approx(1 - 1 / count, abs=1e-6)


@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_the_straight_line_of_the_wigner_prior(tokens) -> None:
    """other_priors:wigner-softmax; the mean of the prior does not matter."""
    alpha = np.linspace(0.0, 1.2, 25) / (tokens**2 + tokens - 2)
    exact = np.maximum(1 - alpha * (tokens**2 + tokens - 2), 0)
    for prior in (WignerPrior(), WignerPrior(0.8)):
        error = bayes_optimal(alpha, prior, SoftmaxChannel(tokens)).estimation_error
        assert error == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("law", sorted(TOKEN_LAWS))
@pytest.mark.parametrize("share", [0.5, 1.3])
def test_the_projection_on_the_equations_of_softmax_data(law, share) -> None:
    """other_priors:projection: from outputs alone, by least squares, at d = 12 and T = 3."""
    d, tokens, rng = 12, 3, np.random.default_rng(3)
    unknowns, known = d * (d + 1) // 2, 5
    n = round(share * unknowns / known)
    channel = SoftmaxChannel(tokens, 0.3)
    i, j = np.triu_indices(d)
    scale = np.where(i == j, 1.0, math.sqrt(2.0))
    a, b = np.triu_indices(tokens)
    errors, ranks = [], []
    for _ in range(60):
        s = WignerPrior().sample(d, rng)
        x = TOKEN_LAWS[law](rng, (n, tokens, d))
        y = channel.output(attention_indices(x, s))
        shown = channel.posterior_mean(y, np.zeros_like(y), 1.0)[:, a, b]  # up to a constant
        rows = 0.5 * (x[:, a][..., i] * x[:, b][..., j] + x[:, b][..., i] * x[:, a][..., j])
        rows = (rows - (a == b)[:, None] * (i == j)) / math.sqrt(d) * scale
        matrix = np.diff(rows, axis=1).reshape(-1, unknowns)
        ranks.append(int(np.linalg.matrix_rank(matrix)))
        estimate = np.linalg.lstsq(matrix, np.diff(shown, axis=1).ravel(), rcond=1e-9)[0]
        errors.append(np.sum((estimate - s[i, j] * scale) ** 2) / d)
    exact = max(1 + 1 / d - n / d**2 * (tokens**2 + tokens - 2), 0.0)
    if law == "rademacher":  # at this size signs coincide now and then, and an equation is lost
        exact = float(np.mean(2 / d**2 * (unknowns - np.array(ranks))))
    else:
        assert set(ranks) == {min(known * n, unknowns)}
    spread = np.std(errors, ddof=1) / math.sqrt(len(errors))
    assert np.mean(errors) == pytest.approx(exact, abs=4 * spread + 1e-9)
    assert spread < 0.03


def test_a_wigner_prior_with_a_mean() -> None:
    """Moments, spectrum and estimate are those of the centred prior, shifted."""
    rng, d, m = np.random.default_rng(4), 300, -0.7
    plain, shifted = WignerPrior(), WignerPrior(m)
    assert (shifted.mean_eigenvalue, shifted.second_moment) == (m, 1 + m * m)
    assert shifted.support(0.5) == pytest.approx(plain.support(0.5) + m)
    x = np.linspace(-4, 4, 31)
    assert shifted.resolvent(x + m, 0.5) == pytest.approx(plain.resolvent(x, 0.5), abs=1e-12)
    s = shifted.sample(d, rng)
    assert np.trace(s) / d == pytest.approx(m, abs=0.02)
    r = s + math.sqrt(0.5) * plain.sample(d, rng)
    estimate = shifted.denoise(r, 0.5)
    values = shifted.shrink(np.linalg.eigvalsh(r), 0.5)
    assert np.linalg.eigvalsh(estimate) == pytest.approx(values, abs=1e-10)
    assert np.sum((estimate - s) ** 2) / d == pytest.approx(shifted.mmse(0.5), abs=0.02)
    with pytest.raises(ValueError, match="mean must be a finite real number"):
        WignerPrior(math.nan)


# --- a wrong prior -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "teacher", [WishartPrior(0.3), WishartPrior(2.0), SpectralPrior([-2.0, 0.5], [1.0, 4.0])]
)
@pytest.mark.parametrize("noise", [0.1, 1.0, 5.0])
def test_linear_denoising_of_any_teacher_of_variance_one(teacher, noise) -> None:
    """other_priors:linear-denoiser, other_priors:linear-error; the error is orthogonal."""
    assert teacher.variance == pytest.approx(1.0)
    rng, d = np.random.default_rng(5), 400
    m = teacher.mean_eigenvalue
    s = teacher.sample(d, rng)
    observed = s + math.sqrt(noise) * WignerPrior().sample(d, rng)
    estimate = WignerPrior(m).denoise(observed, noise)
    assert estimate == pytest.approx(m * np.eye(d) + (observed - m * np.eye(d)) / (1 + noise))
    error = np.sum((estimate - s) ** 2) / d
    assert error == pytest.approx(noise / (1 + noise), abs=0.05)
    product = np.sum((s - estimate) * (estimate - m * np.eye(d))) / d
    assert product == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize(("channel", "alpha"), [(SOFTMAX, 0.12), (HARDMAX, 0.4)])
def test_message_passing_with_a_linear_student(channel, alpha) -> None:
    """other_priors:mismatch-softmax, and its counterpart for hardmax, at d = 100."""
    rho = 0.3
    student = WignerPrior(math.sqrt(rho))
    predicted = bayes_optimal(alpha, student, channel).estimation_error
    if channel is SOFTMAX:
        assert predicted == pytest.approx(1 - 4 * alpha, abs=1e-9)
    model = AttentionIndexedModel(100, WishartPrior(rho), channel)
    runs = [amp(model.sample(alpha, seed), student, channel) for seed in range(4)]
    assert all(run.converged for run in runs)
    error = np.mean([run.estimation_error for run in runs])
    assert error == pytest.approx(predicted, abs=0.05)
    informed = bayes_optimal(alpha, WishartPrior(rho), channel).estimation_error
    assert error > informed + 0.02  # the wrong prior costs something that the test can see


def test_a_wrong_mean_gives_the_solution_of_smallest_norm() -> None:
    """other_priors:minimum-norm: message passing finds the least-squares solution itself."""
    d, alpha, rho = 40, 0.12, 0.5
    data = AttentionIndexedModel(d, WishartPrior(rho), SOFTMAX).sample(alpha, seed=1)
    result = amp(data, WignerPrior(), SOFTMAX, noise="response", tolerance=1e-12, iterations=2000)
    i, j = np.triu_indices(d)
    scale = np.where(i == j, 1.0, math.sqrt(2.0)) / math.sqrt(d)
    one, two = data.tokens[:, 0], data.tokens[:, 1]
    cross = 0.5 * (one[:, i] * two[:, j] + two[:, i] * one[:, j])
    rows = np.concatenate([x[:, i] * x[:, j] - (i == j) - cross for x in (one, two)]) * scale
    flat = data.teacher[i, j] * scale * d
    solution = np.linalg.lstsq(rows, rows @ flat, rcond=1e-10)[0]
    exact = np.sum((solution - flat) ** 2) / d**2
    assert exact == pytest.approx((1 - 4 * alpha) * (1 + rho), abs=0.15)
    assert result.estimation_error == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("channel", [SOFTMAX, HARDMAX, SoftmaxChannel(4)])
@pytest.mark.parametrize("rho", [0.2, 1.0, 3.0])
def test_the_price_does_not_depend_on_the_channel(rho, channel) -> None:
    """other_priors:price, by inverting both learning curves at the same error."""
    prior = WishartPrior(rho)
    student = WignerPrior(prior.mean_eigenvalue)
    for noise in (0.3, 3.0):
        v = prior.mmse(noise)
        c = channel.information_at(v, prior.second_moment)
        informed, linear = v / (2 * noise * c), (1 - v) / (2 * c)
        assert bayes_optimal(informed, prior, channel).estimation_error == pytest.approx(v)
        assert bayes_optimal(linear, student, channel).estimation_error == pytest.approx(v)
        assert linear / informed == pytest.approx((1 - v) * noise / v)
        assert linear / informed >= 1.0


# --- tokens of another law ---------------------------------------------------------------------


@pytest.mark.parametrize(("law", "m4"), [("rademacher", 1.0), ("uniform", 1.8), ("student", 4.0)])
def test_the_covariance_of_indices_of_two_matrices(law, m4) -> None:
    """other_priors:index-covariance, all pairs of three tokens."""
    rng, d, count = np.random.default_rng(6), 12, 400_000
    a = WignerPrior(0.9).sample(d, rng)
    b = 0.5 * a + WignerPrior(0.4).sample(d, rng)
    pairs = list(zip(*np.triu_indices(3), strict=True))
    total, squares = np.zeros((6, 6)), np.zeros((6, 6))
    for _ in range(10):
        x = TOKEN_LAWS[law](rng, (count // 10, 3, d))
        ha, hb = (attention_indices(x, s)[:, *np.triu_indices(3)] for s in (a, b))
        total += ha.T @ hb / count
        squares += (ha * ha).T @ (hb * hb) / count
    error = 5 * np.sqrt((squares - total**2) / count)
    assert error.max() < 0.2
    for k, (i, j) in enumerate(pairs):
        for m in range(6):
            exact = 0.0
            if k == m:
                exact = (1 + (i == j)) * np.sum(a * b) / d
                exact += (i == j) * (m4 - 3) * np.sum(np.diag(a) * np.diag(b)) / d
            assert total[k, m] == pytest.approx(exact, abs=error[k, m])


@pytest.mark.parametrize("m4", [1.0, 1.8, 4.0])
@pytest.mark.parametrize("v", [1.0, 0.3, 0.02])
def test_the_information_by_simulation(m4, v) -> None:
    """other_priors:omega-variance, other_priors:fourth-moment: draw omega, h and the output."""
    m, q_total = 1.0, 2.0
    channel = FourthMomentHardmaxChannel(m, m4)
    rng, q = np.random.default_rng(7), q_total - v
    scale = math.sqrt(q) * symmetric(rng, 200_000, 2)
    diagonal = np.sqrt(max(2 * q + (m4 - 3) * m * m, 0.0) / (2 * q))
    omega = scale * np.where(np.eye(2) == 1, diagonal, 1.0)
    h = omega + math.sqrt(v) * symmetric(rng, 200_000, 2)
    g = output_function(channel, channel.output(h), omega, v)
    squares = 0.5 * np.sum(g * g, axis=(1, 2)) + 1.5 * np.sum(np.einsum("naa->na", g) ** 2, axis=1)
    error = 4 * v * squares.std() / math.sqrt(squares.size)
    assert v * squares.mean() == pytest.approx(channel.information_at(v, q_total), abs=error)
    assert channel.information(q, q_total) == pytest.approx(channel.information_at(v, q_total))
    wrong = np.mean(h.argmax(axis=2) != omega.argmax(axis=2))
    assert wrong == pytest.approx(channel.generalization_error(v, q_total), abs=0.004)


def test_the_gaussian_fourth_moment_is_the_hardmax_channel() -> None:
    channel = FourthMomentHardmaxChannel(0.8, 3.0)
    v = np.array([1.0, 0.3, 1e-2, 1e-5, 0.0])
    assert channel.information_at(v, 1.64) == pytest.approx(
        HARDMAX.information_at(v, 1.64), rel=1e-9
    )
    assert channel.output_entropy(v, 1.64) == pytest.approx(HARDMAX.output_entropy(v, 1.64))
    assert channel.generalization_error(v, 1.64) == pytest.approx(
        HARDMAX.generalization_error(v, 1.64)
    )


@pytest.mark.parametrize("m4", [1.0, 2.0, 6.0])
def test_the_information_near_full_knowledge(m4) -> None:
    """other_priors:boundary."""
    m, total, v = 0.9, 1.81, 1e-8
    j = integrate.quad(
        lambda t: stats.norm.pdf(t) ** 2 / (stats.norm.cdf(t) * stats.norm.sf(t)), -12, 12
    )[0]
    exact = 2 * j * math.sqrt(3 * v / (2 * math.pi * (3 * total + (m4 - 3) * m * m)))
    assert FourthMomentHardmaxChannel(m, m4).information_at(v, total) == pytest.approx(
        exact, rel=1e-3
    )


def test_message_passing_on_signs_is_where_the_fourth_moment_says() -> None:
    prior = WishartPrior(1.0)
    channel = FourthMomentHardmaxChannel(1.0, 1.0)
    model = AttentionIndexedModel(100, prior, HARDMAX, token_law="rademacher")
    runs = [amp(model.sample(0.2, seed), prior, channel) for seed in range(3)]
    predicted = bayes_optimal(0.2, prior, channel).estimation_error
    gaussian = bayes_optimal(0.2, prior, HARDMAX).estimation_error
    error = np.mean([run.estimation_error for run in runs])
    assert error == pytest.approx(predicted, abs=0.03)
    assert gaussian - predicted > 0.05


@pytest.mark.parametrize("m4", [1.0, 3.0, 9.0])
def test_the_entropy_of_signs_is_the_integral_of_the_information(m4) -> None:
    """Also above Q - m^2, where the information over x is held."""
    channel, total = FourthMomentHardmaxChannel(math.sqrt(1.9), m4), 2.0
    x = np.linspace(0.0, 1.0, 2001)[1:]
    c = channel.information_at(total * x**2, total)
    integral = np.concatenate([[0.0], np.cumsum(0.5 * (c[1:] / x[1:] + c[:-1] / x[:-1]) * 5e-4)])
    entropy = channel.output_entropy(total * x**2, total)
    np.testing.assert_allclose(entropy - entropy[0], integral, rtol=1e-5, atol=1e-8)


def test_the_information_of_signs_is_finite_up_to_little_noise() -> None:
    """A mean eigenvalue that carries nearly all of the second moment; 3 is known exactly."""
    channel = FourthMomentHardmaxChannel(math.sqrt(1.995), 3.0)
    v = np.array([1e-3, 5e-3])
    np.testing.assert_allclose(
        channel.information_at(v, 2.0), HARDMAX.information_at(v, 2.0), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FourthMomentHardmaxChannel(1.5, 3.0).information(0.5, 2.0), "second_moment"),
        (lambda: FourthMomentHardmaxChannel(1.5, 3.0).output_entropy(0.5, 2.0), "second_moment"),
        (lambda: FourthMomentHardmaxChannel(1.5, 3.0).generalization_error(0.5, 2.0), "second_mo"),
        (lambda: FourthMomentHardmaxChannel(1.0, 1e6), "fourth_moment"),
        (lambda: CorrelatedSoftmaxChannel([[1.0]]), "covariance"),
        (lambda: CorrelatedSoftmaxChannel(1e-310 * np.eye(2)), "covariance must have eigenvalues"),
        (lambda: CorrelatedSoftmaxChannel(np.eye(2)).output(np.ones((3, 3))), "indices"),
        (lambda: CorrelatedSoftmaxChannel(np.eye(2)).output(1.0), "indices"),
        (
            lambda: CorrelatedSoftmaxChannel(np.eye(2)).posterior_mean(
                np.full((2, 2), 0.5), np.zeros((3, 3)), 1.0
            ),
            "omega",
        ),
    ],
)
def test_bad_input_to_the_channels_of_other_tokens_is_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_data_set_of_another_kind_is_not_whitened() -> None:
    with pytest.raises(ValueError, match="dataset must be a Dataset"):
        whiten(np.ones((1, 2, 2)), np.eye(2))


def test_correlated_channels_compare_and_do_not_change() -> None:
    covariance = np.array([[1.0, 0.5], [0.5, 1.0]])
    channel = CorrelatedSoftmaxChannel(covariance)
    covariance[0, 0] = 9.0
    assert channel == CorrelatedSoftmaxChannel([[1.0, 0.5], [0.5, 1.0]])
    assert channel != CorrelatedSoftmaxChannel(np.eye(2))
    assert len({channel, CorrelatedSoftmaxChannel([[1, 0.5], [0.5, 1]])}) == 1


# --- correlated directions ---------------------------------------------------------------------


def test_whitening_is_exact_and_its_moments() -> None:
    """other_priors:whitening, other_priors:coloured-moments."""
    rng, d, rho = np.random.default_rng(8), 400, 0.5
    sigma = np.diag(rng.uniform(0.2, 3.0, d))
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    sigma = turn @ sigma @ turn.T
    s = WishartPrior(rho).sample(d, rng)
    x = rng.standard_normal((4, 2, d)) @ square_root(sigma)
    h = (x @ s @ np.swapaxes(x, 1, 2) - np.eye(2) * np.sum(s * sigma)) / math.sqrt(d)
    h = 0.5 * (h + np.swapaxes(h, 1, 2))
    white = whiten(Dataset(x, SOFTMAX.output(h), s), sigma)
    assert attention_indices(white.tokens, white.teacher) == pytest.approx(h, abs=1e-8)
    t1, t2 = np.trace(sigma) / d, np.sum(sigma**2) / d
    assert np.trace(white.teacher) / d == pytest.approx(math.sqrt(rho) * t1, rel=0.02)
    assert np.sum(white.teacher**2) / d == pytest.approx(t1**2 + rho * t2, rel=0.03)
    assert whiten(Dataset(x, SOFTMAX.output(h)), sigma).teacher is None
    for wrong in (np.eye(d - 1), sigma - 5 * np.eye(d)):
        with pytest.raises(ValueError, match="covariance must"):
            whiten(white, wrong)


# --- correlated positions ----------------------------------------------------------------------


def test_the_covariance_of_indices_of_correlated_tokens() -> None:
    """other_priors:position-covariance on tokens, other_priors:mixing sequence by sequence."""
    rng, d, count = np.random.default_rng(9), 60, 100_000
    s = WignerPrior(0.6).sample(d, rng)
    root = square_root(POSITIONS)
    total = np.zeros((3, 3, 3, 3))
    for _ in range(5):
        white = rng.standard_normal((count // 5, 3, d))
        x = root @ white
        h = (x @ s @ np.swapaxes(x, 1, 2) - POSITIONS * np.trace(s)) / math.sqrt(d)
        assert h == pytest.approx(root @ attention_indices(white, s) @ root, abs=1e-10)
        total += np.einsum("nab,ncd->abcd", h, h, optimize=True) / count
    c, q = POSITIONS, np.sum(s**2) / d
    exact = q * (np.einsum("ac,bd->abcd", c, c) + np.einsum("ad,bc->abcd", c, c))
    assert np.abs(total - exact).max() < 0.03 * exact.max()


def test_the_mean_of_mixed_indices_by_gaussian_conditioning() -> None:
    """other_priors:mixed-mean, and c = T(T+1)/2 - 1 as the mean of squares."""
    rng, v = np.random.default_rng(10), 0.4
    channel = CorrelatedSoftmaxChannel(POSITIONS, 0.7)
    root = square_root(POSITIONS)
    a, b = np.triu_indices(3)
    basis = np.zeros((6, 3, 3))
    basis[range(6), a, b] = basis[range(6), b, a] = 1.0
    mixed = (root @ basis @ root)[:, a, b].T  # from upper triangles of h_0 to those of h
    seen = np.diff(mixed, axis=0)  # differences of indices, which the output determines
    prior = np.diag(v * (1.0 + (a == b)))
    gain = prior @ seen.T @ np.linalg.inv(seen @ prior @ seen.T)
    omega = symmetric(rng, 1, 3)[0]
    h0 = omega + math.sqrt(v) * symmetric(rng, 1, 3)[0]
    exact = omega[a, b] + gain @ seen @ (h0 - omega)[a, b]
    mean = channel.posterior_mean(channel.output(h0), omega, v)
    assert mean[a, b] == pytest.approx(exact, abs=1e-10)
    assert np.trace(seen @ gain) == pytest.approx(channel.information(0.3, 1.5)) == 5.0


def test_a_channel_of_independent_positions_is_the_softmax_channel() -> None:
    rng = np.random.default_rng(11)
    channel, plain = CorrelatedSoftmaxChannel(np.eye(3), 0.7), SoftmaxChannel(3, 0.7)
    h, omega = symmetric(rng, 5, 3), symmetric(rng, 5, 3)
    assert channel.output(h) == pytest.approx(plain.output(h))
    mean = channel.posterior_mean(plain.output(h), omega, 0.4)
    assert mean == pytest.approx(plain.posterior_mean(plain.output(h), omega, 0.4), abs=1e-12)
    for name in ("output_entropy", "generalization_error"):
        ours, theirs = (getattr(x, name)(0.5, 1.5) for x in (channel, plain))
        assert ours == pytest.approx(theirs, rel=1e-6)
    with pytest.raises(ValueError, match="positive definite"):
        CorrelatedSoftmaxChannel([[1.0, 2.0], [2.0, 1.0]])


def test_correlated_positions_leave_the_learning_curve_alone() -> None:
    prior, channel = WishartPrior(0.5), CorrelatedSoftmaxChannel([[1.0, 0.7], [0.7, 1.0]])
    assert strong_recovery_threshold(prior, channel) == strong_recovery_threshold(prior, SOFTMAX)
    data = AttentionIndexedModel(80, prior, channel).sample(0.08, seed=2)
    result = amp(data, prior, channel)
    predicted = bayes_optimal(0.08, prior, SOFTMAX).estimation_error
    assert result.estimation_error == pytest.approx(predicted, abs=0.06)
    ignored = amp(data, prior, SOFTMAX)  # the wrong output function does not do
    assert ignored.status == "diverged" or ignored.estimation_error > predicted + 0.1


@pytest.mark.parametrize("r", [-0.6, 0.0, 1 / 3, 0.8])
def test_the_correlation_of_two_decisions(r) -> None:
    """other_priors:sign-correlation, other_priors:start-information by conditional means."""
    rng = np.random.default_rng(12)
    root = square_root(np.array([[1.0, r], [r, 1.0]]))
    h0 = symmetric(rng, 400_000, 2)
    h = root @ h0 @ root
    u = np.stack([h[:, 0, 0] - h[:, 0, 1], h[:, 1, 1] - h[:, 0, 1]])
    ru = (1 - 3 * r) / (3 - r)
    assert np.corrcoef(u)[0, 1] == pytest.approx(ru, abs=0.01)
    assert np.var(u[0]) == pytest.approx((1 - r) * (3 - r), rel=0.02)
    plus, minus = 0.25 + math.asin(ru) / (2 * math.pi), 0.25 - math.asin(ru) / (2 * math.pi)
    exact = ((1 + ru) / plus + (1 - ru) / minus) / (2 * math.pi)
    kinds = 2 * (u[0] > 0) + (u[1] > 0)
    total = sum(
        np.mean(kinds == k) * 0.5 * np.sum(h0[kinds == k].mean(axis=0) ** 2) for k in range(4)
    )
    assert total == pytest.approx(exact, abs=0.02)
    assert exact <= 4 / math.pi + 1e-12
