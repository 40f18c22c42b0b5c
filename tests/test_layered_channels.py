"""Channels of several layers: extreme indices, limits of one layer, equality, bad outputs."""

from __future__ import annotations

import numpy as np
import pytest

from aimlib import SoftmaxChannel
from aimlib.channels import output_function
from aimlib.layers.channels import DeepSoftmaxChannel, MixedLinearChannel

V = np.array([[0.5, -0.1], [-0.1, 0.3]])


def symmetric(rng: np.random.Generator, n: int, size: float) -> np.ndarray:
    z = size * rng.standard_normal((n, 2, 2, 2))
    return z + z.swapaxes(2, 3)


@pytest.mark.parametrize("size", [30.0, 1e3, 1e6, 1e30, 1e150])
@pytest.mark.parametrize("beta", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("skip", [1.0, 2.5])
def test_output_function_is_finite_at_any_index(size, beta, skip) -> None:
    rng = np.random.default_rng(0)
    channel = DeepSoftmaxChannel(skip=skip, inverse_temperature=beta)
    y = channel.output(symmetric(rng, 40, 0.1))
    g, response = channel.output_function(y, symmetric(rng, 40, size), V)
    assert np.isfinite(g).all()
    assert np.isfinite(response).all()


def test_nothing_is_learned_where_the_mixed_tokens_coincide() -> None:
    """Both first-layer rows copy the other token at skip 1: the last scores vanish."""
    channel = DeepSoftmaxChannel()
    omega = np.zeros((3, 2, 2, 2))
    omega[:, 0, 0, 1] = omega[:, 0, 1, 0] = [100.0, 300.0, 2000.0]  # h_12 above h_11 and h_22
    y = channel.output(omega)
    g, response = channel.output_function(y, omega, V)
    assert g == pytest.approx(np.zeros_like(g), abs=1e-9)
    assert response == pytest.approx(np.zeros((2, 2)), abs=1e-9)


def test_a_first_layer_that_is_certain_leaves_a_sharper_softmax() -> None:
    """Both rows keep their own token: B = (c + 1) I, and y is a softmax of inverse temperature
    beta (c + 1)^2 of the second layer; the first is known through the covariance only."""
    rng, beta, skip = np.random.default_rng(1), 0.7, 1.2
    channel = DeepSoftmaxChannel(skip=skip, inverse_temperature=beta)
    single = SoftmaxChannel(2, beta * (skip + 1) ** 2)
    omega = symmetric(rng, 20, 0.3)
    omega[:, 0] = 1000.0 * np.eye(2)
    h = omega + symmetric(rng, 20, 0.2)
    y = channel.output(h)
    assert y == pytest.approx(single.output(h[:, 1]), abs=1e-13)
    v = np.diag([0.5, 0.3])
    g, response = channel.output_function(y, omega, v)
    assert g[:, 0] == pytest.approx(np.zeros((20, 2, 2)), abs=1e-9)
    assert g[:, 1] == pytest.approx(output_function(single, y, omega[:, 1], 0.3), abs=1e-9)
    assert response == pytest.approx(np.diag([0.0, 20 * 2.0 / 0.3]), abs=1e-7)


def test_response_is_the_derivative_of_the_output_function() -> None:
    """In both layers, as far as 80 nodes reach for this posterior."""
    rng, channel = np.random.default_rng(2), DeepSoftmaxChannel(nodes=80)
    omega = symmetric(rng, 1, 0.4)
    y = channel.output(omega + symmetric(rng, 1, 0.3))
    response = channel.output_function(y, omega, V)[1]
    measured = np.zeros((2, 2))
    for m in range(2):
        for a, b in ((0, 0), (0, 1), (1, 1)):
            step = np.zeros_like(omega)
            step[0, m, a, b] = step[0, m, b, a] = 1e-5
            above, below = (channel.output_function(y, omega + s, V)[0] for s in (step, -step))
            slope = (above - below)[0, :, a, b] / 2e-5
            measured[:, m] -= (1 + (a == b)) * slope
    assert response[:, 1] == pytest.approx(measured[:, 1], rel=1e-6)
    assert response[:, 0] == pytest.approx(measured[:, 0], rel=0.03)


def first_layer_by_points(
    xi: np.ndarray, mass: np.ndarray, omega: np.ndarray, y: np.ndarray, v: np.ndarray
) -> np.ndarray:
    """g of h1 in the coordinates (11, 12, 22), as a sum over points of u, by layers:quadrature.

    For skip = beta = 1 and a diagonal v; xi are standard normal coordinates of u, shape (m, 2).
    """
    difference = np.array([[1.0, -1.0, 0.0], [0.0, -1.0, 1.0]])
    spread = v[0, 0] * difference @ np.diag([2.0, 1.0, 2.0]) @ difference.T
    first, second = omega[:, [0, 0, 1], [0, 1, 1]]
    away = xi @ np.linalg.cholesky(spread).T
    p, q = (1 / (1 + np.exp(-(difference @ first + away)))).T
    a1, a2 = (np.log(y[a, a] / y[a, 1 - a]) for a in range(2))
    e = p + q
    ones = np.ones_like(p)
    lines = np.stack([np.array([1 + p, -2 * p, p - 1]), np.array([ones, -2 * ones, ones])])
    gap = np.array([a1 / e, (a1 + a2) / e**2]) - np.einsum("kin,i->kn", lines, second)
    weights = v[1, 1] * np.array([2.0, 1.0, 2.0])
    cov = np.einsum("kin,i,lin->nkl", lines, weights, lines)
    chi = np.einsum("kn,nkl,ln->n", gap, np.linalg.inv(cov), gap)
    log = np.log(mass) - 3 * np.log(e) - 0.5 * (chi + np.log(np.linalg.det(cov)))
    weight = np.exp(log - log.max())
    return difference.T @ np.linalg.solve(spread, weight @ away / weight.sum())


def test_the_grid_finds_narrow_posteriors() -> None:
    """layers:quadrature at the claimed errors of alpha = 0.3, against 400 x 400 equal steps.

    As many points in the frame of the prior have more than ten times the error of the fitted ones.
    """
    rng, n = np.random.default_rng(5), 40
    v, channel = np.diag([0.25, 0.05]), DeepSoftmaxChannel(nodes=24)
    scale = np.sqrt([0.5, 0.5])[:, None, None]  # symmetric() has off-diagonal variance 2
    known = scale * np.sqrt(1 - np.diag(v))[:, None, None]
    omega = known * symmetric(rng, n, 1.0)
    y = channel.output(omega + scale * np.sqrt(np.diag(v))[:, None, None] * symmetric(rng, n, 1.0))
    g = channel.output_function(y, omega, v)[0][:, 0][:, [0, 0, 1], [0, 1, 1]]
    steps = np.linspace(-8, 8, 400)
    nodes, law = np.polynomial.hermite_e.hermegauss(24)

    def plane(points: np.ndarray) -> np.ndarray:
        return np.stack(np.meshgrid(points, points), axis=-1).reshape(-1, 2)

    normal = np.exp(-0.5 * np.sum(plane(steps) ** 2, axis=1))
    exact, fixed = (
        np.array([first_layer_by_points(xi, mass, omega[k], y[k], v) for k in range(n)])
        for xi, mass in (
            (plane(steps), np.maximum(normal, 1e-300)),
            (plane(nodes), np.outer(law, law).ravel()),
        )
    )
    size = np.linalg.norm(exact)
    assert np.linalg.norm(g - exact) < 0.005 * size
    assert np.linalg.norm(fixed - exact) > 10 * np.linalg.norm(g - exact)


def test_mixed_channels_compare_and_hash_by_value() -> None:
    one, same = MixedLinearChannel([[1, 2]], 0.5), MixedLinearChannel(np.array([[1.0, 2.0]]), 0.5)
    assert one == same
    assert hash(one) == hash(same)
    others = (
        MixedLinearChannel([[1.0, 2.1]], 0.5),
        MixedLinearChannel([[1.0], [2.0]], 0.5),
        MixedLinearChannel([[1.0, 2.0]], 0.6),
        MixedLinearChannel([[1.0, 2.0]], 0.5, tokens=2),
    )
    assert len({one, same, *others}) == 5
    assert MixedLinearChannel([[0.0, 1.0]], 0.5) == MixedLinearChannel([[-0.0, 1.0]], 0.5)


def test_every_channel_says_what_it_is_for() -> None:
    assert {DeepSoftmaxChannel.weights, MixedLinearChannel.weights} == {"layered"}


def test_outputs_that_no_model_made_are_refused() -> None:
    rng = np.random.default_rng(3)
    deep, mixed = DeepSoftmaxChannel(), MixedLinearChannel(np.eye(2), 0.1, tokens=2)
    y = deep.output(symmetric(rng, 5, 0.4))
    deep.validate(y)
    y[2, 1] *= 1.8
    with pytest.raises(ValueError, match=r"1\.8.*row 2, 1"):
        deep.validate(y)
    y[2, 1] = (0.0, 1.0)
    with pytest.raises(ValueError, match="positive"):
        deep.validate(y)
    y = mixed.output(symmetric(rng, 5, 0.4), rng)
    mixed.validate(y)
    with pytest.raises(ValueError, match="shape"):
        mixed.validate(y[:, :1])
    y[1, 0, 0, 1] += 1e-6
    with pytest.raises(ValueError, match="symmetric"):
        mixed.validate(y)
    mixed.validate(np.empty((0, 2, 2, 2)))  # no sequence departs from symmetry
