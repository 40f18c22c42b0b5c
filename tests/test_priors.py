"""Priors against closed forms, a 50-digit reference, large random matrices and identities."""

from __future__ import annotations

import functools

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aimlib import SpectralPrior, WignerPrior, WishartPrior
from aimlib.priors import SymmetricPrior, gram, haar_basis

# ---------------------------------------------------------------------------------------------
# The slow reference: Cardano at 50 digits and the textbook Delta - (4 pi^2/3) Delta^2 int mu^3
# (priors:mmse-cubed), a route that shares nothing with the double-precision code.
# ---------------------------------------------------------------------------------------------


def reference_edges(rho: mp.mpf, delta: mp.mpf) -> list[mp.mpf]:
    """Real critical points of z(g), as edges: (sqrt(rho)-s)^2 (1-Delta s^2) = rho s^2."""
    r = mp.sqrt(rho)
    coefficients = [rho, -2 * r, 1 - rho - delta * rho, 2 * r * delta, -delta]
    roots = mp.polyroots(coefficients, maxsteps=2000, extraprec=400, asc=True)
    real = [mp.re(s) for s in roots if abs(mp.im(s)) < mp.mpf(10) ** -20 * (1 + abs(s))]
    return sorted(1 / s + delta * s + rho / (r - s) for s in real)


def reference_density(z: mp.mpf, rho: mp.mpf, delta: mp.mpf) -> mp.mpf:
    """Largest imaginary part among the roots of the cubic, over pi."""
    r = mp.sqrt(rho)
    a = -(r + z / delta)
    b = (z * r + 1 - rho) / delta
    c = -r / delta
    p, q = b - a * a / 3, 2 * a**3 / 27 - a * b / 3 + c
    discriminant = (q / 2) ** 2 + (p / 3) ** 3
    if discriminant <= 0:
        return mp.mpf(0)
    root = mp.sqrt(discriminant)
    real_cube = -q / 2 - root if q > 0 else -q / 2 + root
    u = mp.sign(real_cube) * abs(real_cube) ** (mp.mpf(1) / 3)
    return mp.sqrt(3) / 2 * abs(u + p / (3 * u)) / mp.pi


@functools.cache
def reference_mmse_over_noise(rho: float, delta: float) -> float:
    with mp.workdps(60):
        rho_, delta_ = mp.mpf(rho), mp.mpf(delta)
        edges = reference_edges(rho_, delta_)
        narrow = mp.sqrt(rho_) * (1 + delta_ ** (-mp.mpf(1) / 3))
        neck = 1 / narrow + delta_ * narrow + rho_ / (mp.sqrt(rho_) - narrow)
        total = mp.mpf(0)
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            points = [left, neck, right] if left < neck < right else [left, right]
            total += mp.quad(lambda z: reference_density(z, rho_, delta_) ** 3, points, maxdegree=6)
        return float(1 - 4 * mp.pi**2 / 3 * delta_ * total)


@pytest.mark.parametrize("noise", [1e-8, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("rho", [1e-3, 0.1, 0.5, 1.0, 2.0, 1e2])
def test_wishart_mmse_meets_the_50_digit_reference(rho: float, noise: float) -> None:
    ours = WishartPrior(rho).mmse(noise) / noise
    assert ours == pytest.approx(reference_mmse_over_noise(rho, noise), rel=1e-10)


@pytest.mark.parametrize("offset", [-1e-1, -1e-4, -1e-9, 0.0, 1e-9, 1e-4, 1e-1])
@pytest.mark.parametrize("rho", [0.01, 0.5])
def test_wishart_mmse_through_the_merging_of_the_bulks(rho: float, offset: float) -> None:
    """priors:merging, rho (1 + Delta^{1/3})^3 = 1."""
    noise = (rho ** (-1 / 3) - 1) ** 3 * (1 + offset)
    ours = WishartPrior(rho).mmse(noise) / noise
    assert ours == pytest.approx(reference_mmse_over_noise(rho, noise), rel=1e-10)
    if offset != 0.0:
        assert len(WishartPrior(rho).support(noise)) == (2 if offset < 0 else 1)


def test_checked_values_of_the_wishart_mmse() -> None:
    assert WishartPrior(0.5).mmse(np.array([0.1, 1.0, 10.0])) == pytest.approx(
        [0.0665414932, 0.3969486360, 0.8939276897], abs=6e-11
    )
    assert WishartPrior(1.0).mmse(1.0) == pytest.approx(0.4438687356, abs=6e-11)


@pytest.mark.parametrize("noise", [1e-8, 1e-3, 0.2, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("rho", [1e-3, 0.3, 1.0, 5.0, 1e2])
def test_support_agrees_with_the_quartic(rho: float, noise: float) -> None:
    with mp.workdps(60):
        reference = np.array([float(e) for e in reference_edges(mp.mpf(rho), mp.mpf(noise))])
    edges = WishartPrior(rho).support(noise).ravel()
    assert edges == pytest.approx(reference, rel=1e-12, abs=1e-13 * np.abs(reference).max())


# ---------------------------------------------------------------------------------------------
# Identities, for any prior
# ---------------------------------------------------------------------------------------------

ratios = st.floats(1e-3, 1e2)
noises = st.floats(-8, 6).map(lambda exponent: 10.0**exponent)
spectra = st.lists(st.integers(-3000, 3000).map(lambda s: s / 1000), min_size=1, max_size=6).map(
    SpectralPrior
)
priors = st.one_of(ratios.map(WishartPrior), st.just(WignerPrior()), spectra)


def substituted_nodes(
    left: float, right: float, count: int = 4000
) -> tuple[np.ndarray, np.ndarray]:
    """Midpoint rule in t with x = centre - half cos t, for square-root ends."""
    t = (np.arange(count) + 0.5) * np.pi / count
    centre, half = 0.5 * (left + right), 0.5 * (right - left)
    return centre - half * np.cos(t), half * np.sin(t) * np.pi / count


@settings(deadline=None, max_examples=50)
@given(priors, noises)
def test_the_density_has_mass_one_and_the_right_moments(prior, noise) -> None:
    """Mass 1, mean that of S, second moment Q + Delta (priors:moments)."""
    mass, mean, second = 0.0, 0.0, 0.0
    for left, right in prior.support(noise):
        x, weight = substituted_nodes(left, right)
        density = prior.density(x, noise) * weight
        mass += density.sum()
        mean += (density * x).sum()
        second += (density * x * x).sum()
    scale = np.sqrt(prior.second_moment + noise)
    assert mass == pytest.approx(1.0, abs=1e-5)  # cusps of the density limit this simple rule
    assert mean == pytest.approx(prior.mean_eigenvalue, abs=1e-5 * scale)
    assert second == pytest.approx(prior.second_moment + noise, rel=1e-5)


@settings(deadline=None, max_examples=100)
@given(priors, noises, st.floats(1.001, 10.0))
def test_mmse_is_bounded_and_monotone(prior, noise, factor) -> None:
    value = prior.mmse(noise)
    assert -1e-15 <= value <= min(prior.variance, noise) * (1 + 1e-9) + 1e-15
    assert prior.mmse(noise * factor) >= value * (1 - 1e-9) - 1e-15


@settings(deadline=None, max_examples=50)
@given(priors, st.floats(-4, 3).map(lambda exponent: 10.0**exponent))
def test_information_and_mmse(prior, noise) -> None:
    """priors:i-mmse, d information/d(1/Delta) = mmse/4, by Gauss-Legendre over a finite step."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    low, high = 1 / noise, 1.2 / noise
    snr = 0.5 * (high + low) + 0.5 * (high - low) * nodes
    integral = 0.5 * (high - low) * np.sum(weights * prior.mmse(1 / snr)) / 4
    difference = prior.information(1 / high) - prior.information(1 / low)
    assert difference == pytest.approx(integral, rel=1e-7, abs=2e-12)


@settings(deadline=None, max_examples=100)
@given(ratios, noises)
def test_exact_duality(rho, noise) -> None:
    """priors:duality, mmse_rho(Delta)/Delta = mmse_{rho Delta}(1/Delta)."""
    assume(1e-3 <= rho * noise <= 1e2 and 1e-6 <= noise)
    dual = WishartPrior(rho * noise).mmse(1 / noise)
    assert WishartPrior(rho).mmse(noise) / noise == pytest.approx(dual, rel=1e-10)


@settings(deadline=None, max_examples=50)
@given(priors, noises)
def test_the_positive_form_equals_the_textbook_form(prior, noise) -> None:
    """priors:mmse equals priors:mmse-cubed, to the digits that the subtraction leaves."""
    cubed = 0.0
    for left, right in prior.support(noise):
        x, weight = substituted_nodes(left, right)
        cubed += np.sum(prior.density(x, noise) ** 3 * weight)
    textbook = noise - 4 * np.pi**2 / 3 * noise**2 * cubed
    assert prior.mmse(noise) == pytest.approx(textbook, abs=2e-6 * noise)


@pytest.mark.parametrize("rho", [0.01, 0.3, 0.5, 1.0, 3.0])
def test_small_noise_counts_the_degrees_of_freedom(rho: float) -> None:
    """priors:kappa."""
    prior = WishartPrior(rho)
    assert prior.mmse(1e-8) / 1e-8 == pytest.approx(prior.degrees_of_freedom, rel=2e-3)
    assert prior.degrees_of_freedom == (2 * rho - rho**2 if rho < 1 else 1.0)


def test_wigner_as_a_sampled_spectrum() -> None:
    """The semicircle given as 2000 quantiles reproduces the closed forms of the GOE."""
    levels = (np.arange(2000) + 0.5) / 2000
    grid = np.linspace(-2, 2, 200001)
    cdf = 0.5 + grid * np.sqrt(4 - grid**2) / (4 * np.pi) + np.arcsin(grid / 2) / np.pi
    sampled, exact = SpectralPrior(np.interp(levels, cdf, grid)), WignerPrior()
    for noise in (0.1, 1.0, 10.0):
        assert sampled.mmse(noise) == pytest.approx(exact.mmse(noise), rel=1e-3)
        assert sampled.information(noise) == pytest.approx(exact.information(noise), rel=1e-3)


def test_wishart_as_a_sampled_spectrum() -> None:
    """Two independent codes, the cubic and the sum over atoms, agree on Marchenko-Pastur."""
    rho, count = 2.0, 1000
    root = np.sqrt(rho)
    low, high = root * (1 - 1 / root) ** 2, root * (1 + 1 / root) ** 2
    theta = np.linspace(0, np.pi, 400001)
    x = 0.5 * (low + high) - 0.5 * (high - low) * np.cos(theta)
    density = root * (0.5 * (high - low) * np.sin(theta)) ** 2 / (2 * np.pi * x)
    cdf = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(theta))])
    assert cdf[-1] == pytest.approx(1.0, abs=1e-8)
    sampled = SpectralPrior(np.interp((np.arange(count) + 0.5) / count, cdf / cdf[-1], x))
    exact = WishartPrior(rho)
    assert sampled.second_moment == pytest.approx(exact.second_moment, rel=1e-4)
    for noise in (0.3, 3.0):
        assert sampled.mmse(noise) == pytest.approx(exact.mmse(noise), rel=1e-3)
        points = np.linspace(*exact.support(noise)[0], 9)[1:-1]
        assert sampled.density(points, noise) == pytest.approx(
            exact.density(points, noise), rel=5e-3
        )


def test_two_point_spectrum_through_its_merging() -> None:
    """S = +-1 with equal weights: the bulks merge at Delta = 1, and mmse is smooth through it."""
    prior = SpectralPrior([-1.0, 1.0])
    assert len(prior.support(0.999)) == 2
    assert len(prior.support(1.001)) == 1
    values = prior.mmse(1 + 1e-4 * np.arange(-3, 4))
    assert np.abs(np.diff(values, 2)).max() < 1e-7
    assert prior.mmse(1e-9) / 1e-9 == pytest.approx(prior.degrees_of_freedom, rel=1e-6)
    assert prior.mmse(1e7) == pytest.approx(prior.variance, rel=1e-6)


def test_a_single_atom_has_nothing_to_learn() -> None:
    prior = SpectralPrior([0.7])
    assert prior.mmse(0.3) == pytest.approx(0.0, abs=1e-15)
    assert prior.information(0.3) == pytest.approx(0.0, abs=1e-12)
    assert prior.shrink(np.array([0.1, 0.9]), 0.3) == pytest.approx([0.7, 0.7])


# ---------------------------------------------------------------------------------------------
# The denoiser
# ---------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(priors, noises)
def test_the_denoiser_is_increasing_and_continuous_at_the_edges(prior, noise) -> None:
    edges = prior.support(noise)
    width = edges[-1, 1] - edges[0, 0]
    x = np.linspace(edges[0, 0] - 0.1 * width, edges[-1, 1] + 0.1 * width, 801)
    values = prior.shrink(x, noise)
    assert np.diff(values).min() >= -1e-9 * max(width, 1.0)
    assert np.isfinite(prior.shrink(x, noise, "edge")).all()
    at = edges.ravel()
    assert prior.shrink(at, noise, "edge") == pytest.approx(
        prior.shrink(at, noise), abs=1e-6 * width
    )


@pytest.mark.parametrize(("rho", "noise"), [(0.1, 1e-3), (0.5, 0.1), (2.0, 1.0), (0.5, 1e-2)])
def test_monte_carlo_at_dimension_1000(rho: float, noise: float) -> None:
    """Density against the counts of eigenvalues, MMSE against the error of the denoiser."""
    prior, d = WishartPrior(rho), 1000
    rng = np.random.default_rng(np.random.SeedSequence([int(1000 * rho), int(1e6 * noise)]))
    teacher = prior.sample(d, rng)
    observed = teacher + np.sqrt(noise) * WignerPrior().sample(d, rng)
    for outside in ("resolvent", "edge"):
        error = np.sum((prior.denoise(observed, noise, outside) - teacher) ** 2) / d
        assert error == pytest.approx(prior.mmse(noise), rel=0.02)
    eigenvalues = np.linalg.eigvalsh(observed)
    below = 0.0
    for left, right in prior.support(noise):
        x, weight = substituted_nodes(left, right)
        mass = np.cumsum(prior.density(x, noise) * weight)
        for cut in (500, 1500, 2500, 3500):
            assert np.mean(eigenvalues < x[cut]) == pytest.approx(below + mass[cut], abs=0.006)
        below += mass[-1]


def test_eigenvalues_outside_the_bulk_take_the_physical_root() -> None:
    """Left of the bulks, in the gap and right of them: on the curve z(g) with z'(g) < 0."""
    prior, noise = WishartPrior(0.5), 0.01
    (first, gap_left), (gap_right, last) = prior.support(noise)
    lam = np.array([-5.0, first - 1e-6, gap_left + 1e-6, gap_right - 1e-6, last + 1e-6, 60.0])
    g = prior.resolvent(lam, noise)
    assert np.all(g.imag == 0.0)
    s, root = g.real, np.sqrt(0.5)
    assert 1 / s + noise * s + 0.5 / (root - s) == pytest.approx(lam)
    assert np.all(-1 / s**2 + noise + 0.5 / (root - s) ** 2 < 0)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.05, 5.0), st.floats(0.01, 10.0), st.integers(0, 2**32 - 1))
def test_the_denoiser_is_rotation_equivariant(rho, noise, seed) -> None:
    prior, d = WishartPrior(rho), 12
    rng = np.random.default_rng(seed)
    matrix = WignerPrior().sample(d, rng) + prior.mean_eigenvalue * np.eye(d)
    q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    rotated = q @ matrix @ q.T
    turned = prior.denoise(0.5 * (rotated + rotated.T), noise)
    # the slope of the denoiser is unbounded next to an edge: rounding enters by its square root
    assert turned == pytest.approx(q @ prior.denoise(matrix, noise) @ q.T, abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-2, 2), min_size=2, max_size=5), st.floats(-3, 3), st.floats(0.01, 10))
def test_shifting_the_spectrum_shifts_the_denoiser(atoms, shift, noise) -> None:
    plain, shifted = SpectralPrior(atoms), SpectralPrior(np.array(atoms) + shift)
    x = np.linspace(-4, 4, 41)
    assert shifted.shrink(x + shift, noise) == pytest.approx(
        plain.shrink(x, noise) + shift, abs=1e-6
    )
    assert shifted.mmse(noise) == pytest.approx(plain.mmse(noise), rel=1e-7, abs=1e-13)


# ---------------------------------------------------------------------------------------------
# Samples and the public border
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prior", [WishartPrior(0.5), WishartPrior(2.0), WignerPrior(), SpectralPrior([0, 1], [3, 1])]
)
def test_samples_have_the_declared_moments(prior) -> None:
    s = prior.sample(600, np.random.default_rng(7))
    assert s == pytest.approx(s.T, abs=1e-12)
    assert np.trace(s) / 600 == pytest.approx(prior.mean_eigenvalue, abs=0.01)
    assert np.sum(s * s) / 600 == pytest.approx(prior.second_moment, rel=0.02)
    assert np.array_equal(prior.sample(20, 3), prior.sample(20, 3))


def test_the_basis_of_a_sampled_spectrum_is_haar() -> None:
    """Moments of the entry s_12 = (Q^T diag(1, 0) Q)_12 = sin(2 t)/2 and of s_11, with t uniform.

    QR without the sign of the diagonal gives a basis whose first column points one way, which the
    eigenvectors alone do not show: so the projector on the first one of d = 2 is also averaged.
    """
    prior, rng = SpectralPrior([0.0, 1.0]), np.random.default_rng(5)
    s = np.array([prior.sample(2, rng) for _ in range(20_000)])
    assert s[:, 0, 0].mean() == pytest.approx(0.5, abs=0.01)
    assert s[:, 0, 1].mean() == pytest.approx(0.0, abs=0.01)
    assert s[:, 0, 1].var() == pytest.approx(1 / 8, abs=0.004)
    basis = np.array([haar_basis(3, rng) for _ in range(20_000)])
    assert basis.mean(axis=0) == pytest.approx(np.zeros((3, 3)), abs=0.02)
    assert (basis**4).mean(axis=0) == pytest.approx(np.full((3, 3), 1 / 5), abs=0.01)
    assert np.linalg.det(basis).mean() == pytest.approx(0.0, abs=0.03)


def test_a_sample_turns_the_quantiles_by_that_basis() -> None:
    prior, d = SpectralPrior([0.0, 1.0], [3.0, 1.0]), 8
    basis = haar_basis(d, np.random.default_rng(4))
    expected = (basis * np.repeat([0.0, 1.0], [6, 2])) @ basis.T
    assert prior.sample(d, 4) == pytest.approx(expected, abs=1e-14)


def test_spectra_are_equal_and_hash_by_value() -> None:
    prior = SpectralPrior([0, 1])
    assert prior == SpectralPrior([1.0, 0.0, 1.0, 0.0])
    assert len({prior, SpectralPrior([-0.0, 1.0], [2.0, 2.0]), SpectralPrior([0, 2])}) == 2
    assert prior != SpectralPrior([0, 1], [1, 2])
    assert prior != SpectralPrior([0])
    assert prior != WignerPrior()
    assert prior.weights == WishartPrior(1.0).weights == "symmetric"


def test_products_in_blocks_of_columns(monkeypatch) -> None:
    """The threaded product of numpy's BLAS has crashed at d = 20000; small ones stay the same."""
    w = np.random.default_rng(3).standard_normal((50, 30))
    whole = w @ w.T
    assert np.array_equal(gram(w), whole)
    monkeypatch.setattr("aimlib.priors._COLUMNS", 7)
    assert gram(w) == pytest.approx(whole, rel=1e-13, abs=1e-13)
    assert np.array_equal(gram(w), gram(w).T)


class Shifted(SymmetricPrior):
    """A prior of a reader: the Wishart spectrum by its resolvent, shifted by one."""

    mean_eigenvalue = np.sqrt(0.5) + 1.0
    second_moment = 1.5 + 2 * np.sqrt(0.5) + 1.0
    degrees_of_freedom = 0.75
    inner = WishartPrior(0.5)

    def support(self, noise):
        return self.inner.support(noise) + 1.0

    def resolvent(self, x, noise):
        return self.inner.resolvent(np.asarray(x) - 1.0, noise)

    def sample(self, dimension, rng):
        return self.inner.sample(dimension, rng) + np.eye(dimension)


@pytest.mark.parametrize("noise", [1e-3, 0.3, 40.0])
def test_the_base_class_derives_the_rest_from_the_resolvent(noise: float) -> None:
    prior, known = Shifted(), WishartPrior(0.5)
    assert prior.variance == pytest.approx(1.0)
    assert prior.mmse(noise) == pytest.approx(known.mmse(noise), abs=3e-11 * noise)
    assert prior.information(noise) == pytest.approx(known.information(noise), rel=1e-9)
    lam = np.linspace(-3.0, 8.0, 50)
    assert prior.shrink(lam + 1.0, noise) == pytest.approx(known.shrink(lam, noise) + 1, abs=1e-12)
    # next to an edge Re g has a root singularity, and the shift of the edge is rounded
    assert prior.shrink(lam + 1.0, noise, "edge") == pytest.approx(
        known.shrink(lam, noise, "edge") + 1.0, abs=1e-7
    )
    r = known.sample(30, 1)
    assert prior.denoise(r + np.eye(30), noise) == pytest.approx(
        known.denoise(r, noise) + np.eye(30), abs=1e-6
    )


def test_float_in_float_out_and_broadcasting() -> None:
    prior = WishartPrior(0.5)
    assert isinstance(prior.mmse(1.0), float)
    assert isinstance(prior.information(1.0), float)
    assert isinstance(prior.density(0.5, 1.0), float)
    assert prior.mmse([[1.0, 2.0]]).shape == (1, 2)
    assert prior.density(np.zeros((3, 1)), np.ones(2)).shape == (3, 2)
    assert prior.mmse(np.array([1.0]))[0] == prior.mmse(1.0)
    assert prior.mmse(np.array([])).shape == (0,)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, "1", True, None])
def test_bad_width_ratio_is_refused_by_name(bad) -> None:
    with pytest.raises(ValueError, match="width_ratio"):
        WishartPrior(bad)


@pytest.mark.parametrize("prior", [WishartPrior(0.5), WignerPrior(), SpectralPrior([0.0, 1.0])])
def test_bad_arguments_are_refused_by_name(prior) -> None:
    for bad in (0.0, -1.0, np.nan, np.inf, "x"):
        for method in (prior.mmse, prior.information, prior.support):
            with pytest.raises(ValueError, match="noise"):
                method(bad)
        with pytest.raises(ValueError, match="noise"):
            prior.density(0.0, bad)
        with pytest.raises(ValueError, match="noise"):
            prior.denoise(np.eye(3), bad)
    with pytest.raises(ValueError, match="matrix must be symmetric"):
        prior.denoise(np.array([[0.0, 1.0], [0.0, 0.0]]), 1.0)
    with pytest.raises(ValueError, match="matrix must be a square"):
        prior.denoise(np.zeros((2, 3)), 1.0)
    with pytest.raises(ValueError, match="matrix must hold finite"):
        prior.denoise(np.full((2, 2), np.nan), 1.0)
    with pytest.raises(ValueError, match="outside must be"):
        prior.shrink(np.zeros(2), 1.0, "nowhere")
    with pytest.raises(ValueError, match="dimension"):
        prior.sample(0, 1)
    with pytest.raises(ValueError, match="rng"):
        prior.sample(4, -1)


def test_bad_spectra_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="eigenvalues"):
        SpectralPrior([])
    with pytest.raises(ValueError, match="eigenvalues"):
        SpectralPrior([0.0, np.nan])
    with pytest.raises(ValueError, match="weights"):
        SpectralPrior([0.0, 1.0], [1.0])
    with pytest.raises(ValueError, match="weights"):
        SpectralPrior([0.0, 1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="dimension"):
        WishartPrior(0.01).sample(10, 0)
