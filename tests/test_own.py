"""The page "Write your own prior or channel": every line of it runs, and what it claims is true."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest

from aimlib import HardmaxChannel, bayes_optimal
from aimlib.channels import output_function

PAGE = Path(__file__).resolve().parent.parent / "book" / "own.md"


@pytest.fixture(scope="module")
def page() -> dict[str, object]:
    """Run the page as a reader would, and keep what it defined."""
    text = PAGE.read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 20
    defined: dict[str, object] = {}
    test.globs = defined
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append, clear_globs=False)
    assert runner.failures == 0, "".join(report)
    return defined


def test_the_spectrum(page) -> None:
    """own:spectrum: moments and degrees of freedom, and of a drawn matrix."""
    prior = page["ComparingPrior"](0.1)
    assert prior.second_moment == pytest.approx(1.0, rel=1e-14)
    assert prior.mean_eigenvalue == pytest.approx(0.0, abs=1e-15)
    assert prior.degrees_of_freedom == pytest.approx(1 - 0.9**2 - 2 * 0.05**2)
    eigenvalues = np.linalg.eigvalsh(prior.sample(40, 0))
    expected = np.sort([*[-(10**0.5)] * 2, *[0.0] * 36, *[10**0.5] * 2])
    np.testing.assert_allclose(eigenvalues, expected, atol=1e-12)


def test_the_posterior_mean_is_orthogonal_to_its_error(page) -> None:
    """own:posterior and own:noisy-max: E[(h - E[h|y]) f(y)] = 0, for f the mean and for f = 1."""
    channel, variance, count = page["NoisyMaxChannel"](2, 0.7), 0.4, 200_000
    rng = np.random.default_rng(5)

    def field(scale):
        z = rng.standard_normal((count, 2, 2))
        return np.sqrt(scale / 2) * (z + np.swapaxes(z, 1, 2))

    omega = field(0.6)
    h = omega + field(variance)
    mean = channel.posterior_mean(channel.output(h, rng), omega, variance)
    for weight in (1.0, mean - omega, omega):
        product = (h - mean) * weight
        spread = product.std(axis=0) / np.sqrt(count)
        assert np.all(np.abs(product.mean(axis=0)) < 4.5 * spread)
    explained = np.mean((mean - omega) ** 2, axis=0)
    assert explained.min() > 0.01 * variance  # the outputs do say something


def test_the_information_and_its_limits(page) -> None:
    """own:information against sampling, at no noise, and where the indices are known."""
    channel, rng = page["NoisyMaxChannel"](3, 0.5), np.random.default_rng(6)
    z = rng.standard_normal((2, 20_000, 3, 3))
    fields = (z + np.swapaxes(z, -1, -2)) / np.sqrt(2)
    variance, overlap = 0.8, 0.7
    omega = np.sqrt(overlap) * fields[0]
    y = channel.output(omega + np.sqrt(variance) * fields[1], rng)
    g = output_function(channel, y, omega, variance)
    values = variance * np.sum(np.triu(1 + np.eye(3)) * g**2, axis=(1, 2))
    spread = values.std() / np.sqrt(len(values))
    exact = channel.information_at(variance, 1.5)
    assert abs(values.mean() - exact) < 4.0 * spread + 2e-3 * exact  # three tokens: 0.15 percent
    nearly = page["NoisyMaxChannel"](2, 1e-12)
    assert nearly.information_at(0.3, 1.0) == pytest.approx(
        HardmaxChannel(2).information_at(0.3, 1.0), rel=1e-9
    )


def test_the_error_falls_as_one_over_the_data(page) -> None:
    """own:tail: V alpha tends to kappa/(2 s)."""
    prior, channel = page["ComparingPrior"](0.2), page["NoisyMaxChannel"](2, 0.5)
    s = HardmaxChannel(2).information_at(0.5, 1.5) / 0.5
    alpha = 1e5
    error = bayes_optimal(alpha, prior, channel).estimation_error
    limit = prior.degrees_of_freedom / (2 * s)
    assert error * alpha == pytest.approx(limit, rel=1e-3)


def test_message_passing_agrees_with_theory(page) -> None:
    """The run that the page shows, against the saddle point, to its finite size."""
    run, prior, channel = page["run"], page["prior"], page["channel"]
    theory = bayes_optimal(2.0, prior, channel).estimation_error
    assert run.status == "converged"
    assert run.estimation_error == pytest.approx(theory, rel=0.25)
    assert run.predicted_error == pytest.approx(theory, rel=0.15)


def test_a_marked_failure_is_worth_more_than_a_hidden_one(page) -> None:
    """The exercise: (1-p) c of hardmax bounds the information when failures are not marked."""
    p, variance, overlap, count = 0.4, 0.5, 0.5, 60_000
    rng = np.random.default_rng(7)

    def field(scale):
        z = rng.standard_normal((count, 2, 2))
        return np.sqrt(scale / 2) * (z + np.swapaxes(z, 1, 2))

    hard = HardmaxChannel(2)
    omega = field(overlap)
    failed = rng.random(count) < p
    truth = omega + field(variance)
    shown = np.where(failed[:, None, None], field(1.0), truth)
    y = hard.output(shown)
    # the posterior mixes "it failed" and "it did not" by how likely the output is under each
    law = np.zeros(count)
    for _ in range(400):
        law += np.all(hard.output(omega + field(variance)) == y, axis=(1, 2))
    fine = law / 400
    output_law = {}
    for a in (0, 1):
        for b in (0, 1):
            draws = hard.output(field(1.0))
            output_law[a, b] = np.mean((draws[:, 0, 0] == a) & (draws[:, 1, 1] == b))
    base = np.array([output_law[int(o[0, 0]), int(o[1, 1])] for o in y])
    works = (1 - p) * fine / ((1 - p) * fine + p * base)
    shift = works[:, None, None] * (hard.posterior_mean(y, omega, variance) - omega)
    g = shift / ((1 + np.eye(2)) * variance)
    hidden = variance * np.mean(np.sum(np.triu(1 + np.eye(2)) * g**2, axis=(1, 2)))
    marked = (1 - p) * hard.information_at(variance, 1.0)
    assert hidden < 0.97 * marked
