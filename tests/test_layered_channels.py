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
    """Exactly in the second layer, which the quadrature conditions in closed form; in the first as
    far as 80 nodes reach for this narrow posterior."""
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
