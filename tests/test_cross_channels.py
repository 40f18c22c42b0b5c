"""Channels of cross-attention: simulations, and references that share no code with the library."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

import aimlib
from aimlib import BilinearPrior, bayes_optimal
from aimlib.cross_attention import channels, hardmax
from aimlib.cross_attention.channels import HardmaxChannel, LinearChannel, SoftmaxChannel

E_MAX = {2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi), 4: 1.0293753730039641}
E_MAX[5] = 1.1629644736405196  # means of the largest of K standard normals (Teichroew 1956)


def probability(winner: int, z: np.ndarray) -> float:
    """P(winner) of a row with means z, by adaptive quadrature over the largest index."""

    def integrand(t: float) -> float:
        others = np.delete(z, winner)
        return float(stats.norm.pdf(t - z[winner]) * np.prod(stats.norm.cdf(t - others)))

    points = sorted(z)
    return integrate.quad(
        integrand, min(points) - 9, max(points) + 9, points=points, epsabs=0, epsrel=1e-11
    )[0]


# --- hardmax: the posterior of a row -----------------------------------------------------------


@pytest.mark.parametrize("keys", [2, 3, 5])
@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0])
def test_row_posterior_is_the_gradient_of_the_log_probability(keys, scale) -> None:
    """cross_attention:winner: E[h_b | w] - z_b = d log P(w)/d z_b, and P sums to one."""
    z = scale * np.random.default_rng(keys).standard_normal(keys)
    shift, total = np.empty(keys), 0.0
    for winner in range(keys):
        p = hardmax.row_shifts(winner, z, shift)
        assert p == pytest.approx(probability(winner, z), rel=1e-9)
        total += p
        for b in range(keys):
            step = 1e-4 * np.eye(keys)[b]
            above, below = (math.log(probability(winner, z + s)) for s in (step, -step))
            assert shift[b] == pytest.approx((above - below) / 2e-4, abs=2e-6)
    assert total == pytest.approx(1.0, abs=1e-13)


def test_channel_puts_the_row_posterior_in_units_and_rows() -> None:
    rng, v = np.random.default_rng(1), 0.3
    channel = HardmaxChannel(2, 3)
    omega = rng.standard_normal((40, 2, 3))
    y = channel.output(rng.standard_normal((40, 2, 3)))
    mean = channel.posterior_mean(y, omega, v)
    shift = np.empty(3)
    for k in range(40):
        for a in range(2):
            hardmax.row_shifts(int(y[k, a].argmax()), omega[k, a] / math.sqrt(v), shift)
            assert mean[k, a] == pytest.approx(omega[k, a] + math.sqrt(v) * shift, abs=1e-13)


def test_posterior_by_rejection() -> None:
    rng, v = np.random.default_rng(2), 0.7
    omega, channel = np.array([[0.5, -0.2, 0.1, 0.9]]), HardmaxChannel(1, 4)
    draws = omega + math.sqrt(v) * rng.standard_normal((400_000, 4))
    for winner in range(4):
        kept = draws[draws.argmax(axis=1) == winner]
        y = np.eye(4)[[winner]]
        margin = 5 * math.sqrt(v / len(kept))
        assert channel.posterior_mean(y, omega, v)[0] == pytest.approx(kept.mean(0), abs=margin)


@pytest.mark.parametrize("size", [5.0, 40.0, 1e3, 1e6, 1e100])
@pytest.mark.parametrize("keys", [2, 3, 6])
def test_posterior_is_finite_and_obeys_the_output_in_any_tail(keys, size) -> None:
    rng = np.random.default_rng(3)
    omega = size * rng.standard_normal((50, 1, keys))
    y = HardmaxChannel(1, keys).output(rng.standard_normal((50, 1, keys)))
    mean = HardmaxChannel(1, keys).posterior_mean(y, omega, 1.0)
    assert np.isfinite(mean).all()
    winner = np.sum(mean * y, axis=2, keepdims=True)
    # the density has a logarithm of order size^2, whose rounding moves the mean
    assert np.all(mean - winner <= 1e-16 * size**2 + 1e-13 * size)
    assert mean.sum(axis=2) == pytest.approx(omega.sum(axis=2), rel=1e-9, abs=1e-9 * size)


def test_a_key_that_never_wins_drops_out() -> None:
    three, two, shift = np.empty(3), np.empty(2), 0.0
    for gap in (0.4, -2.0, -12.0):
        p = hardmax.row_shifts(0, np.array([gap, 0.0, -60.0]), three)
        shift = hardmax.row_shifts(0, np.array([gap, 0.0]), two)
        assert p == pytest.approx(shift, rel=1e-12)
        assert three == pytest.approx([*two, 0.0], abs=1e-11)


# --- hardmax: information ----------------------------------------------------------------------


def both(a: np.ndarray, b: np.ndarray, r: float) -> np.ndarray:
    """P(x < a, y < b) of standard normals of correlation r, by Owen's function."""
    scale = math.sqrt(1 - r * r)
    tails = special.owens_t(a, (b / a - r) / scale) + special.owens_t(b, (a / b - r) / scale)
    return 0.5 * (special.ndtr(a) + special.ndtr(b) - (a * b < 0)) - tails


@pytest.mark.parametrize("x", [0.95, 0.7, 0.4, 0.2])
def test_information_of_three_keys_by_the_bivariate_normal(x) -> None:
    """cross_attention:winner-information: K E |grad P|^2/P on a square grid, P by Owen (1956)."""
    k = math.sqrt(1 - x * x) / x
    step = min(0.11, 0.25 * k)
    grid = step * (np.arange(-math.ceil(9 * k / step), math.ceil(9 * k / step)) + 0.4871)
    u, v = grid[:, None], grid[None, :]
    z = [u / math.sqrt(2) + v / math.sqrt(6), -u / math.sqrt(2) + v / math.sqrt(6), -v * 2 / 6**0.5]
    a, b = (z[0] - z[1]) / math.sqrt(2), (z[0] - z[2]) / math.sqrt(2)
    p = both(a, b, 0.5)
    half = math.sqrt(0.75)
    first = stats.norm.pdf(a) * special.ndtr((b - 0.5 * a) / half) / math.sqrt(2)
    second = stats.norm.pdf(b) * special.ndtr((a - 0.5 * b) / half) / math.sqrt(2)
    squares = first**2 + second**2 + (first + second) ** 2
    value = np.where(p > 1e-12, squares / np.maximum(p, 1e-12), 0.0)
    law = np.exp(-0.5 * (u * u + v * v) / k**2) * step**2 / (2 * math.pi * k**2)
    exact = 3 * float(np.sum(law * value))
    assert HardmaxChannel(1, 3).information_at(x * x, 1.0) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("keys", [2, 3, 4, 5])
def test_information_where_nothing_is_known(keys) -> None:
    """cross_attention:winner-ends: K/(K - 1) times E[the largest of K]^2."""
    exact = keys / (keys - 1) * E_MAX[keys] ** 2
    assert HardmaxChannel(3, keys).information(0.0, 2.0) == pytest.approx(3 * exact, rel=1e-10)


@pytest.mark.parametrize("keys", [2, 3, 4, 7])
def test_entropy_where_nothing_is_known(keys) -> None:
    channel = HardmaxChannel(2, keys)
    assert channel.output_entropy(1.5, 1.5) == pytest.approx(2 * math.log(keys), rel=1e-13)
    assert channel.output_entropy(0.0, 1.5) == 0.0


@pytest.mark.parametrize("v", [0.9, 0.3, 0.01])
@pytest.mark.parametrize("keys", [3, 4, 6])
def test_information_and_entropy_by_simulation(keys, v) -> None:
    """The output function carries c (Nishimori); the entropy is that of the posterior outputs."""
    rng, n = np.random.default_rng(10 * keys), 40_000
    channel = HardmaxChannel(1, keys)
    omega = math.sqrt(1 - v) * rng.standard_normal((n, 1, keys))
    y = channel.output(omega + math.sqrt(v) * rng.standard_normal(omega.shape))
    squares = np.sum((channel.posterior_mean(y, omega, v) - omega) ** 2, axis=(1, 2)) / v
    error = 4 * squares.std() / math.sqrt(n)
    c, stated = channel.information_with_error(1 - v, 1.0)
    assert (stated == 0.0) == (keys == 3)
    assert stated < 3e-3 * c
    assert squares.mean() == pytest.approx(c, abs=error + stated)
    shift = np.empty(keys)
    surprise = [
        -math.log(hardmax.row_shifts(int(y[i, 0].argmax()), omega[i, 0] / math.sqrt(v), shift))
        for i in range(4000)
    ]
    margin = 4 * np.std(surprise) / math.sqrt(4000) + 1e-3
    assert channel.output_entropy(v, 1.0) == pytest.approx(np.mean(surprise), abs=margin)


@pytest.mark.parametrize("keys", [2, 3, 5])
@pytest.mark.parametrize("v", [1e-6, 0.01, 0.3, 0.8])
def test_slope_of_the_entropy(keys, v) -> None:
    """cross_attention:entropy: d H/d log V = c/2."""
    channel, step = HardmaxChannel(2, keys), 1e-4
    above, below = (channel.output_entropy(v * math.exp(s), 1.0) for s in (step, -step))
    slope = (above - below) / (2 * step)
    assert slope == pytest.approx(channel.information_at(v, 1.0) / 2, rel=1e-7)


def test_information_of_three_keys_is_smooth_up_to_full_knowledge() -> None:
    """cross_attention:winner-ends, V -> 0: pairs of keys that tie, with J by quadrature."""
    j = integrate.quad(lambda w: stats.norm.pdf(w) ** 2 / stats.norm.cdf([w, -w]).prod(), -9, 9)[0]
    tie = integrate.quad(lambda m: stats.norm.pdf(m) ** 2 * stats.norm.cdf(m), -9, 9)[0]
    slope = math.sqrt(2) * 3 * tie * j
    for v in (1e-20, 1e-12, 1e-8):
        ratio = HardmaxChannel(1, 3).information_at(v, 1.0) / math.sqrt(v)
        assert ratio == pytest.approx(slope, rel=1e-10 + math.sqrt(v))
    v = np.linspace(0, 1, 300)
    assert np.all(np.diff(HardmaxChannel(1, 3).information_at(v, 1.0)) > 0)


def test_the_cubic_of_more_keys_states_its_error() -> None:
    """Its four conditions, at three keys where the answer is known."""
    exact, _ = hardmax.row_series(3)
    start, slope = hardmax._start(3)
    zero = hardmax.boundary(3) * hardmax.one_sign_integral()
    cubic, error = hardmax.cubic_series((zero, start), math.log(3), slope)
    x = np.linspace(0, 1, 51)
    distance = np.abs(np.polynomial.polynomial.polyval(x, cubic) / exact(x) - 1)
    assert distance.max() < error < 5e-3
    assert slope == pytest.approx(exact.deriv()(1.0), abs=1e-10)
    assert zero == pytest.approx(exact(0.0), rel=1e-11)


@pytest.mark.parametrize("keys", [2, 3, 5])
@pytest.mark.parametrize("v", [0.8, 0.2])
def test_misclassification_by_simulation(keys, v) -> None:
    rng, shape = np.random.default_rng(12), (200_000, 1, keys)
    omega = math.sqrt(1.5 * (1 - v)) * rng.standard_normal(shape)
    h = omega + math.sqrt(1.5 * v) * rng.standard_normal(shape)
    wrong = np.mean(h.argmax(axis=2) != omega.argmax(axis=2))
    for queries in (1, 3):  # a share of rows, however many there are
        error = HardmaxChannel(queries, keys).generalization_error(1.5 * v, 1.5)
        assert error == pytest.approx(wrong, abs=0.005)


def test_misclassification_at_both_ends() -> None:
    for keys in (2, 3, 6):
        channel = HardmaxChannel(1, keys)
        assert channel.generalization_error(1.0, 1.0) == pytest.approx(1 - 1 / keys, abs=1e-9)
        below, above = (channel.generalization_error((s * 1e-5) ** 2, 1.0) for s in (0.99, 1.01))
        assert below / 0.99 == pytest.approx(above / 1.01, rel=2e-5)
        assert channel.generalization_error(0.0, 1.0) == 0.0


def test_saddle_point_with_three_keys() -> None:
    """cross_attention:saddle, 1/Delta = alpha c/V, at the solution for the new channel."""
    prior, channel, alpha = BilinearPrior(0.5, 1.5), HardmaxChannel(2, 3), 0.7
    solution = bayes_optimal(alpha, prior, channel)
    v = float(solution.estimation_error)
    c = channel.information_at(v, prior.second_moment)
    assert prior.mmse(v / (alpha * c)) == pytest.approx(v, rel=1e-9)
    fewer = bayes_optimal(alpha, prior, HardmaxChannel(2, 2)).estimation_error
    assert v < float(fewer)


# --- the other channels ------------------------------------------------------------------------


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (2, 3)])
def test_linear_generalisation_error_by_simulation(queries, keys) -> None:
    rng, v = np.random.default_rng(13), 0.3
    channel = LinearChannel(queries, keys, 0.2)
    h = math.sqrt(v) * rng.standard_normal((100_000, queries, keys))
    exact = np.mean(np.sum(h * h, axis=(1, 2)))
    assert channel.generalization_error(v, 1.0) == pytest.approx(exact, rel=0.015)


@pytest.mark.parametrize("beta", [1e-300, 1.0, 1e6, 1e308])
def test_softmax_is_finite_at_any_temperature(beta) -> None:
    scores = np.array([[[3.0, -3.0, 3.0]], [[1e308, -1e308, 0.0]], [[0.0, 0.0, 0.0]]])
    y = SoftmaxChannel(1, 3, beta).output(scores)
    assert np.isfinite(y).all()
    assert y.sum(axis=2) == pytest.approx(1.0)
    assert y[2] == pytest.approx(1 / 3)
    if beta >= 1e6:
        assert y[:2].tolist() == [[[0.5, 0.0, 0.5]], [[1.0, 0.0, 0.0]]]


def test_outputs_that_no_model_made_are_refused() -> None:
    soft, hard = SoftmaxChannel(2, 3), HardmaxChannel(2, 3)
    y = soft.output(np.random.default_rng(14).standard_normal((5, 2, 3)))
    soft.validate(y)
    soft.validate(y.astype(np.float32))
    y[3, 1, 0] += 0.8
    with pytest.raises(ValueError, match=r"1\.8.*row 3, 1"):
        soft.validate(y)
    y[3, 1] = (0.0, 0.5, 0.5)
    with pytest.raises(ValueError, match="positive"):
        soft.validate(y)
    with pytest.raises(ValueError, match="shape"):
        soft.validate(np.ones((5, 3, 2)) / 2)
    hard.validate(hard.output(np.random.default_rng(15).standard_normal((5, 2, 3))))
    with pytest.raises(ValueError, match="one-hot"):
        hard.validate(np.full((1, 2, 3), 1 / 3))
    with pytest.raises(ValueError, match="one-hot"):
        hard.posterior_mean(np.full((1, 2, 3), 1 / 3), np.zeros((1, 2, 3)), 1.0)


@pytest.mark.parametrize("name", ["Hardmax", "Linear", "Softmax"])
@pytest.mark.parametrize("place", [aimlib, aimlib.cross_attention])
def test_old_names_lead_to_the_new_ones(place, name) -> None:
    with pytest.warns(DeprecationWarning, match=f"Cross{name}Channel is now"):
        old = getattr(place, f"Cross{name}Channel")
    assert old is getattr(channels, f"{name}Channel")
    assert old.weights == "rectangular"
    with pytest.raises(AttributeError, match="no attribute"):
        place.CrossOtherChannel  # noqa: B018
