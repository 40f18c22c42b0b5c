"""The iteration of message passing: its options, its bounds and its verdicts.

The reference is written with closed forms only: for Gaussian weights seen through noisy indices the
denoiser, its divergence, its error and the output function are ratios of variances.
"""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest

from aimlib import (
    AttentionIndexedModel,
    Dataset,
    LinearChannel,
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    amp,
    layers,
)
from aimlib._iteration import Denoised, Observation, inverse_response, iterate
from aimlib._shrinkage import denoise_rectangular, denoise_symmetric, shrink
from aimlib.cross_attention import BilinearPrior
from aimlib.layers.denoising import feature_moments, noise_components

D, T, TAU = 10, 2, 0.4
PRIOR, CHANNEL = WignerPrior(), LinearChannel(T, TAU)
DATA = AttentionIndexedModel(D, PRIOR, CHANNEL).sample(0.7, seed=3)
FACTORS = 1 + np.eye(T)  # 1 + delta_ab
PAIRS = [(a, b) for a in range(T) for b in range(a, T)]


def scaled(factor):
    """The same tokens with outputs that are too large or too small by a factor."""
    return Dataset(DATA.tokens, factor * DATA.outputs, DATA.teacher)


def sensing_matrices(tokens):
    """Z_ab of amp:sensing, shape (n, T, T, d, d)."""
    _, t, d = tokens.shape
    outer = np.einsum("nai,nbj->nabij", tokens, tokens)
    z = (outer + np.swapaxes(outer, -1, -2)) / (2 * math.sqrt(d))
    return z - np.eye(t)[:, :, None, None] * np.eye(d) / math.sqrt(d)


def reference(data, iterations, keep, onsager, noise, response):
    """Estimate and history of amp:iteration with S_ij Gaussian of variance (1 + delta_ij)/d."""
    z = sensing_matrices(data.tokens)
    n = len(z)
    estimate, variance, reaction = np.zeros((D, D)), 1.0, 0.0
    g, history = np.zeros((n, T, T)), []
    for _ in range(iterations):
        omega = np.einsum("nabij,ij->nab", z, estimate) - FACTORS * reaction * g
        g = (data.outputs - omega) / (FACTORS * variance + TAU)
        # minus the derivative of g, times E Tr(M Z_ab)^2 = (1 + delta_ab) Tr M^2/d
        expected = n / D * (2 * 2 / (2 * variance + TAU) + 1 / (variance + TAU))
        squares = sum(FACTORS[a, b] * np.sum(g[:, a, b] ** 2) for a, b in PAIRS)
        slope = expected if response == "channel" else squares / D
        total = sum(np.einsum("n,nij->ij", g[:, a, b], z[:, a, b]) for a, b in PAIRS)
        from_response = D / (2 * slope)
        measured = max(squares / (2 * slope**2), from_response / 4)
        delta = measured if noise == "residual" else from_response
        shrinkage = 1 / (1 + delta)
        denoised = shrinkage * (estimate + total / slope)
        predicted = delta / (1 + delta)  # of 1/(1 + 1/delta) in every coordinate
        divergence = shrinkage * D * (D + 1) / 2
        reaction = divergence / (D * slope) if onsager == "divergence" else predicted
        history.append(
            {
                "noise": delta,
                "onsager": reaction,
                "predicted_error": predicted,
                "overlap": np.sum(denoised**2) / D,
                "residual": np.sum((denoised - estimate) ** 2) / D,
                "consistency": squares / (D * expected),
                "estimation_error": np.sum((denoised - data.teacher) ** 2) / D,
            }
        )
        estimate = keep * estimate + (1 - keep) * denoised
        variance = keep * variance + (1 - keep) * predicted
    return estimate, {name: [h[name] for h in history] for name in history[0]}


CHOICES = list(
    itertools.product(("divergence", "limit"), ("residual", "response"), ("channel", "squares"))
)


@pytest.mark.parametrize(("onsager", "noise", "response"), CHOICES)
def test_every_option_against_closed_forms(onsager, noise, response) -> None:
    options = {"onsager": onsager, "noise": noise, "response": response}
    ours = amp(DATA, PRIOR, CHANNEL, iterations=3, damping=0.25, tolerance=1e-300, **options)
    estimate, history = reference(DATA, 3, 0.25, **options)
    np.testing.assert_allclose(ours.estimate, estimate, rtol=0, atol=1e-8)
    for name, values in history.items():
        np.testing.assert_allclose(ours.history[name], values, rtol=1e-7, err_msg=name)


def test_limit_of_the_reaction_is_that_of_the_divergence() -> None:
    """amp:stein: div D/(d A) tends to mmse(Delta), whatever the prior."""
    prior, channel = WishartPrior(0.5), SoftmaxChannel(2)
    data = AttentionIndexedModel(300, prior, channel).sample(0.1, seed=0)
    measured, limit = (
        amp(data, prior, channel, iterations=1, noise="response", onsager=name).history["onsager"]
        for name in ("divergence", "limit")
    )
    assert measured[0] == pytest.approx(limit[0], rel=0.02)


def test_empirical_denoiser() -> None:
    """The optimal shrinkage with the resolvent of R itself, a little off the real axis."""
    d, delta, rng = 60, 0.3, np.random.default_rng(2)
    prior = WishartPrior(0.5)
    noise = rng.standard_normal((d, d))
    observed = prior.sample(d, rng) + math.sqrt(delta / (2 * d)) * (noise + noise.T)
    ours, _ = denoise_symmetric(observed, delta, prior, "empirical")
    off_axis = math.sqrt(2 * delta) * d ** (-1 / 3)
    values, vectors = np.linalg.eigh(observed)
    shrunk = [
        x - 2 * delta * np.trace(np.linalg.inv((x + 1j * off_axis) * np.eye(d) - observed)).real / d
        for x in values
    ]
    np.testing.assert_allclose(ours, vectors @ np.diag(shrunk) @ vectors.T, atol=1e-10)


def test_empirical_denoiser_tends_to_the_optimal_one() -> None:
    """Without the prior, its error and its divergence are nearly those of the limit."""
    d, delta, rng = 500, 0.3, np.random.default_rng(2)
    prior = WishartPrior(0.5)
    noise = rng.standard_normal((d, d))
    teacher = prior.sample(d, rng)
    observed = teacher + math.sqrt(delta / (2 * d)) * (noise + noise.T)
    estimate, divergence = denoise_symmetric(observed, delta, prior, "empirical")
    mmse = prior.mmse(delta)
    assert np.sum((estimate - teacher) ** 2) / d == pytest.approx(mmse, rel=0.03)
    # the slope of the smoothed spectrum converges slowly, like d^(-1/3), from above
    assert 1.0 < 2 * delta * divergence / d**2 / mmse < 1.15


def test_outside_the_support_the_denoiser_goes_on_along_its_tangent() -> None:
    """The slope at an edge is that of the last thousandths of the bulk, where D is smooth."""
    delta = 0.1
    for prior in (WishartPrior(0.5), BilinearPrior(0.5, 1.5)):
        low, top = prior.support(delta).ravel()[-2:]
        width = top - low
        last = shrink(top - width * np.array([1e-3, 2e-3]), delta, prior, "clip")
        rise = (last[0] - last[1]) / 1e-3
        expected = last[0] + rise * (0.3 + 1e-3)
        beyond = np.array([top + 0.3 * width])
        assert shrink(beyond, delta, prior, "tangent") == pytest.approx(expected, rel=1e-3)
        assert shrink(beyond, delta, prior, "clip") < 0.95 * expected
    estimate, _ = denoise_rectangular(np.diag([beyond[0], 1.0, 0.9]), delta, prior)
    assert estimate[0, 0] == pytest.approx(expected, rel=1e-3)


# ---------------------------------------------------------------------------------------------
# Bounds and verdicts
# ---------------------------------------------------------------------------------------------


def test_noise_is_at_least_a_quarter_of_that_of_the_response() -> None:
    """amp:floor: small squares do not make the belief collapse; four times the data, no more."""
    response = len(DATA.tokens) / D * (4 / (2 + TAU) + 1 / (1 + TAU))
    for factor, share in ((0.1, 0.25), (1.5, None)):
        noise = amp(scaled(factor), PRIOR, CHANNEL, iterations=1).history["noise"][0]
        if share is None:
            assert noise > 0.5 * D / (2 * response)
        else:
            assert noise == pytest.approx(share * D / (2 * response), rel=1e-12)


def test_floor_of_several_layers_holds_in_every_direction() -> None:
    """A quarter of d/2 A^{-1} where both layers fit too well, more where one does not."""
    channel = layers.MixedLinearChannel(np.eye(2), noise=0.5)
    priors = [WignerPrior(), WignerPrior()]
    data = layers.Model(12, priors, channel).sample(0.8, seed=1)
    # one token: the index has variance 2V, its gain is 2/(2V + tau)
    limit = 12 / 2 / (len(data.tokens) / 12 * 2 / (2 + 0.5))
    both = layers.Dataset(data.tokens, 0.05 * data.outputs, data.teacher)
    noise = layers.amp(both, priors, channel, iterations=1).history["noise"][0]
    np.testing.assert_allclose(noise, 0.25 * limit * np.eye(2), rtol=1e-9, atol=1e-9 * limit)
    scales = np.array([0.05, 1.0])[:, None, None]
    one = layers.Dataset(data.tokens, scales * data.outputs, data.teacher)
    noise = layers.amp(one, priors, channel, iterations=1).history["noise"][0]
    assert noise[0, 0] == pytest.approx(0.25 * limit, rel=0.05)
    assert noise[1, 1] == pytest.approx(limit, rel=0.3)


@pytest.mark.parametrize(("overlap", "diverged"), [(3e3, False), (3e4, True)])
def test_an_iterate_ten_thousand_times_too_large_has_diverged(overlap, diverged) -> None:
    """The first estimate is proportional to the outputs where the noise is that of the response."""
    options = {"iterations": 1, "noise": "response"}
    unit = amp(DATA, PRIOR, CHANNEL, **options).history["overlap"][0]
    result = amp(scaled(math.sqrt(overlap / unit)), PRIOR, CHANNEL, **options)
    assert (result.status == "diverged") == diverged
    assert result.iterations == (0 if diverged else 1)
    if diverged:  # what is returned is the start and what was known of it
        np.testing.assert_array_equal(result.estimate, np.zeros((D, D)))
        assert result.predicted_error == 1.0
        assert result.estimation_error == pytest.approx(np.sum(DATA.teacher**2) / D)


@pytest.mark.parametrize(
    ("factor", "bounds", "status"),
    [
        (1.0, (0.5, 2.0), "converged"),
        (2.0, (3.0, 8.0), "converged"),
        (6.0, (20.0, 80.0), "diverged"),
        (1 / 2, (1 / 8, 1 / 3), "converged"),
        (1 / 6, (1 / 80, 1 / 20), "diverged"),
    ],
)
def test_a_fixed_point_off_tenfold_contradicts_itself(factor, bounds, status) -> None:
    """The squares of g are proportional to those of the outputs where nothing else is.

    So few indices do not tell a factor of two in the outputs from chance.
    """
    result = amp(scaled(factor), PRIOR, CHANNEL, noise="response", damping=0.3)
    assert result.iterations < 200
    assert bounds[0] < result.history["consistency"][-1] < bounds[1]
    assert result.status == status
    assert result.converged is (status == "converged")


def test_what_has_not_converged_says_so() -> None:
    stalled = amp(DATA, PRIOR, CHANNEL, iterations=1)
    assert (stalled.status, stalled.converged) == ("stalled", False)
    data = AttentionIndexedModel(40, PRIOR, CHANNEL).sample(0.7, seed=3)
    inconsistent = amp(Dataset(data.tokens, 2.0 * data.outputs), PRIOR, CHANNEL)
    assert (inconsistent.status, inconsistent.converged) == ("inconsistent", False)


def test_directions_that_are_not_seen_get_a_large_noise() -> None:
    """The inverse of a response whose eigenvalues are kept above 1e-9 of the largest."""
    turned, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
    for seen in (np.eye(3), turned):
        found = inverse_response(seen @ np.diag([0.0, 4.0, -1e-20]) @ seen.T)
        expected = seen @ np.diag([1 / 4e-9, 1 / 4, 1 / 4e-9]) @ seen.T
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 / 4e-9)
        assert seen[:, 1] @ found @ seen[:, 1] == pytest.approx(1 / 4, abs=1e-6)
    with pytest.raises(ValueError, match="the response must have a positive eigenvalue"):
        inverse_response(np.diag([-1.0, 0.0]))


class Scripted:
    """A problem that sees nothing and takes the steps that it is told to take."""

    start, teacher = np.zeros((2, 2)), None
    variances, second_moment, coordinate_variance, parameters = np.ones(1), 1.0, 2.0, 4.0

    def __init__(self, steps, squares=2.0, response=1.0):
        self.steps = iter(steps)
        self.seen = Observation(np.zeros((1, 2, 2)), np.array([[squares]]), np.array([[response]]))

    def observe(self, estimate, reaction, error):
        return self.seen

    def denoise(self, observed, noise):
        return Denoised(observed + next(self.steps), np.array([[1.0]]), np.array([[1.0]]))

    def can_recover(self):
        return True


@pytest.mark.parametrize("annealing", [1.0, 0.5])
def test_damping_follows_the_turns_of_the_steps(annealing) -> None:
    """It starts at 0.3; a step that turns and does not shrink takes a quarter of the undamped part.

    One that agrees gives back two percent, of which annealing keeps its share at every turn; one
    that shrinks by a tenth, or stands upright on the last, changes nothing.
    """
    along, across = np.diag([1.0, 0.0]), np.diag([0.0, 1.0])
    steps = [along, -along, 0.99 * along, -0.9 * along, across, 0.8 * across, 0.7 * across]
    fall = 0.02 * annealing**2
    part = [0.7, 0.7 * 0.75]
    part += [part[-1] * 0.75] * 3
    part += [part[-1] * (1 + fall), part[-1] * (1 + fall) ** 2]
    options = {"tolerance": 1e-300, "damping": None}
    if annealing != 1.0:  # which is the default
        options["annealing"] = annealing
    found = iterate(Scripted(steps), iterations=len(steps), **options)
    np.testing.assert_allclose(1 - found.history["damping"], part, rtol=1e-12)
    expected = sum(share * step for share, step in zip(part, steps, strict=True))
    np.testing.assert_allclose(found.estimate, expected, atol=1e-14)
    turns = [(-1) ** k * along for k in range(20)]
    assert iterate(Scripted(turns), iterations=20, **options).history["damping"][-1] == 0.95
    agreeing = iterate(Scripted([along] * 20), iterations=20, **options)
    np.testing.assert_array_equal(agreeing.history["damping"], np.full(20, 0.3))


@pytest.mark.parametrize(("response", "parameters"), [(100.0, 4e4), (0.25, 1e12), (1e6, 200.0)])
def test_the_first_pass_is_believed_within_five_standard_deviations(response, parameters) -> None:
    """Of the logarithm of a chi-square over its mean, and of the norm of a random teacher.

    The former has 2 response = d A V degrees of freedom, and so a variance of 2/(d A V).  The
    squared norm of p Gaussian numbers has a variance of 2/p; its deviation counts twice.
    """
    deviation = math.sqrt(2 / (2 * response) + 8 / parameters)
    for share, status in ((4.99, "stalled"), (5.01, "inconsistent")):
        for sign in (1, -1):
            squares = 2 * response * math.exp(sign * share * deviation)
            problem = Scripted([np.eye(2)], squares, response)
            problem.parameters = parameters
            assert iterate(problem, iterations=1, tolerance=1e-9, damping=0.3).status == status


@pytest.mark.parametrize("response", [0.0, -1.0, math.nan, math.inf])
def test_a_response_that_cannot_be_divided_by_ends_the_iteration(response) -> None:
    found = iterate(Scripted([], response=response), iterations=5, tolerance=1e-6, damping=0.3)
    assert (found.status, found.converged, found.iterations) == ("diverged", False, 0)
    np.testing.assert_array_equal(found.estimate, np.zeros((2, 2)))


@pytest.mark.parametrize("damping", [-0.1, 1.0])
def test_damping_that_would_not_move_is_refused(damping) -> None:
    with pytest.raises(ValueError, match="damping must be"):
        iterate(Scripted([]), iterations=5, tolerance=1e-6, damping=damping)


def test_a_bar_counts_the_iterations_outside_of_notebooks(capsys, monkeypatch) -> None:
    options = {"iterations": 3, "tolerance": 1e-300, "damping": 0.3, "progress": True}
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    iterate(Scripted([np.eye(2)] * 3), **options)
    assert "3/3" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ipykernel", np)
    iterate(Scripted([np.eye(2)] * 3), **options)
    assert capsys.readouterr().err == ""


def test_former_names_of_a_result_say_what_they_are_now() -> None:
    result = amp(DATA, PRIOR, CHANNEL, iterations=1)
    for old, new in (
        ("estimates", "estimate"),
        ("errors", "estimation_error"),
        ("predicted", "predicted_error"),
    ):
        with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
            assert getattr(result, old) is getattr(result, new)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = result.nothing


# ---------------------------------------------------------------------------------------------
# Components of a denoiser
# ---------------------------------------------------------------------------------------------


def given_the_noise(x, mass, delta):
    """E[D(R) | N] at the eigenvalues ``x`` of N, for S with a few eigenvalues 1 among zeros.

    The law of an eigenvalue of R given one of N has the resolvent of N at z - R_S(g) (free
    convolution); g is a root of a cubic, and D(lambda) = lambda - 2 Delta Re g.
    """
    edge = 2 * math.sqrt(delta)
    angles = (np.arange(2000) + 0.5) * math.pi / 2000
    grid, step = 0.5 + (edge + 0.6) * np.cos(angles), math.pi / 2000
    step = step * (edge + 0.6) * np.sin(angles)
    total, norm = np.zeros_like(x), np.zeros_like(x)
    for point, width in zip(grid, step, strict=True):
        # g (l - Delta g)(l - 1 - Delta g) = (1 - m)(l - 1 - Delta g) + m (l - Delta g)
        line, shifted = np.array([-delta, point]), np.array([-delta, point - 1])
        cubic = np.polymul([1.0, 0.0], np.polymul(line, shifted))
        roots = np.roots(np.polysub(cubic, (1 - mass) * shifted + mass * line))
        g = roots[np.argmin(roots.imag)]
        if g.imag > -1e-9:
            continue
        law = -(1 / (delta * g + 1 / g - math.sqrt(delta) * x)).imag / math.pi
        total += width * law * (point - 2 * delta * g.real - mass)
        norm += width * law
    return total / norm


def test_components_of_a_denoiser_with_few_large_eigenvalues() -> None:
    """layers:components where many count: a small second bulk about to leave the first."""
    mass, delta, ratio = 0.005, 0.75, 0.999
    angles = (np.arange(200) + 0.5) * math.pi / 200
    nodes, semicircle = 2 * np.cos(angles), 2 * np.sin(angles) ** 2 / 200
    smooth = given_the_noise(nodes, mass, delta)
    expected = np.array(
        [
            np.sum(semicircle * smooth * np.sin((k + 1) * angles) / np.sin(angles))
            for k in range(1, 61)
        ]
    )
    prior = SpectralPrior([0.0, 1.0], [1 - mass, mass])
    found = noise_components(prior, delta)
    np.testing.assert_allclose(found, expected[: found.size], atol=3e-3 * expected[0])
    noise = delta * np.array([[1.0, ratio], [ratio, 1.0]])
    gram = feature_moments(noise, [prior, prior]).gram[2, 3]
    shares = ratio ** np.arange(1, 61) * expected**2
    assert shares[8:].sum() > 0.05 * shares.sum()
    assert gram == pytest.approx(shares.sum(), rel=1e-2)
