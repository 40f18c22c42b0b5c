"""Gradient descent through all layers at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aimlib import _validation as check
from aimlib._validation import FloatArray
from aimlib.descent import Method, _descend, _Schedule, _through_indices
from aimlib.layers.channels import DeepSoftmaxChannel
from aimlib.layers.data import LayeredDataset, _check_dataset

__all__ = [
    "LayeredDescentResult",
    "layered_descent",
    "layered_loss_and_gradient",
]


@dataclass(frozen=True)
class LayeredDescentResult:
    """The outcome of training one start or several of a network of L layers.

    Attributes
    ----------
    estimates : array, shape (starts, L, d, d)
        The estimates of the single starts; their mean over starts is averaged gradient descent.
    loss : array, shape (starts,)
        Final training loss of each start.
    errors : array, shape (starts, L)
        Estimation error of each layer, for each start.
    prefix_errors : array, shape (starts, L)
        Errors of the average over the first 1, ..., K starts.
    history : dict of str to array
        "step", shape (m,), "loss", shape (m, starts), and "error", shape (m, starts, L).
    weights : array, shape (starts, L, d, r)
    steps : int
    status : str
        "converged", "stopped" (at the last step) or "diverged".
    """

    estimates: FloatArray
    loss: FloatArray
    errors: FloatArray
    prefix_errors: FloatArray
    history: dict[str, FloatArray]
    weights: FloatArray
    steps: int
    status: str


def layered_loss_and_gradient(
    weights: FloatArray, dataset: LayeredDataset, channel: DeepSoftmaxChannel
) -> tuple[FloatArray, FloatArray]:
    """Return the squared loss of each start and its gradient (``layers:backward``).

    Parameters
    ----------
    weights : array, shape (K, L, d, r)
    dataset : LayeredDataset
    channel : DeepSoftmaxChannel
        The student; its outputs have the shape of the data's.

    Returns
    -------
    (array of shape (K,), array of shape (K, L, d, r))
    """
    _check_student(dataset, channel)
    w = check.reals("weights", weights)
    expected = (channel.layers, dataset.dimension)
    if w.ndim != 4 or w.shape[1:3] != expected or 0 in w.shape:
        raise ValueError(f"weights must have shape (K, L, d, r) = (K, *{expected}, r), "
                         f"got shape {w.shape}")  # fmt: skip
    return _layered_evaluate(w, dataset.tokens, dataset.outputs, channel)


def _layered_evaluate(
    w: Any, tokens: Any, outputs: Any, channel: DeepSoftmaxChannel
) -> tuple[Any, Any]:
    starts, layers, d, r = w.shape
    n = tokens.shape[0]

    def pointwise(h: Any) -> tuple[Any, Any]:
        stacked = h.reshape(starts, layers, *h.shape[1:])
        values, slopes = _backpropagate(stacked, outputs, channel)
        return values, slopes.reshape(h.shape)

    values, direction = _through_indices(w.reshape(starts * layers, d, r), tokens, pointwise)
    gradient = 2.0 / (n * d * math.sqrt(r)) * direction
    return values.mean(axis=1), gradient.reshape(w.shape)


def _backpropagate(h: Any, y: Any, channel: DeepSoftmaxChannel) -> tuple[Any, Any]:
    """Loss of every sequence and its derivative in the matrices h, shape (K, L, n, T, T)."""
    layers, t = h.shape[1], h.shape[-1]
    skip = np.asarray(channel.skip * np.eye(t), dtype=h.dtype)
    mixing, attention = [np.broadcast_to(np.eye(t, dtype=h.dtype), h[:, 0].shape)], []
    for layer in range(layers):
        b = mixing[-1]
        scores = channel.inverse_temperature * (b @ h[:, layer] @ b.swapaxes(-1, -2))
        exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p = exponentials / exponentials.sum(axis=-1, keepdims=True)
        attention.append(p)
        mixing.append((skip + p) @ b)
    gap = attention[-1] - y
    values, slopes = np.sum(gap * gap, axis=(-1, -2)), np.empty_like(h)
    towards_p, towards_b = 2.0 * gap, np.zeros_like(gap)
    for layer in reversed(range(layers)):
        p, b = attention[layer], mixing[layer]
        inner = np.sum(towards_p * p, axis=-1, keepdims=True)
        scores = channel.inverse_temperature * p * (towards_p - inner)
        slopes[:, layer] = b.swapaxes(-1, -2) @ scores @ b
        if layer:
            both = scores + scores.swapaxes(-1, -2)
            carried = (skip + p).swapaxes(-1, -2) @ towards_b
            towards_b = carried + both @ b @ h[:, layer]
            towards_p = towards_b @ mixing[layer - 1].swapaxes(-1, -2)
    return values, slopes


def layered_descent(
    dataset: LayeredDataset,
    width: int,
    channel: DeepSoftmaxChannel,
    starts: int = 8,
    seed: int | np.random.SeedSequence | np.random.Generator = 0,
    *,
    method: Method = "adam",
    learning_rate: float = 0.05,
    final_learning_rate: float | None = None,
    momentum: float = 0.9,
    steps: int = 2000,
    loss_tolerance: float = 1e-14,
    record_every: int = 50,
    single_precision: bool = False,
    callback: Callable[[int, FloatArray], None] | None = None,
) -> LayeredDescentResult:
    """Train all layers together from independent starts, by the optimiser of one layer.

    Parameters
    ----------
    dataset : LayeredDataset
        The teachers are used for the reported errors only.
    width : int
        Width r of every layer of the student.
    channel : DeepSoftmaxChannel
        The student's network.
    starts, seed, method, learning_rate, final_learning_rate, momentum, steps, loss_tolerance, \
record_every, single_precision, callback
        As in :func:`aimlib.averaged_gradient_descent`.

    Returns
    -------
    LayeredDescentResult

    Raises
    ------
    ValueError
        If an argument is out of range, before training starts.
    """
    _check_student(dataset, channel)
    d, layers = dataset.dimension, channel.layers
    r = check.integer("width", width, low=1)
    count = check.integer("starts", starts, low=1)
    rate = check.real("learning_rate", learning_rate, low=0.0, open_low=True)
    final = rate if final_learning_rate is None else final_learning_rate
    if method not in ("adam", "momentum"):
        raise ValueError(f"method must be 'adam' or 'momentum', got {method!r}")
    schedule = _Schedule(
        method,
        rate,
        check.real("final_learning_rate", final, low=0.0),
        check.real("momentum", momentum, low=0.0, high=1.0, open_high=True),
        check.integer("steps", steps, low=1),
        check.integer("record_every", record_every, low=1),
        check.real("loss_tolerance", loss_tolerance, low=0.0),
        0.0,
    )
    dtype = np.float32 if single_precision else np.float64
    streams = check.generator("seed", seed).spawn(count)
    w = np.stack([stream.standard_normal((layers, d, r)) for stream in streams]).astype(dtype)
    tokens, outputs = dataset.tokens.astype(dtype), dataset.outputs.astype(dtype)
    w, record, step, status = _descend(
        w,
        lambda weights: _layered_evaluate(weights, tokens, outputs, channel),
        lambda weights: _layer_errors(_layer_estimates(weights), dataset.teachers),
        schedule,
        callback=callback,
    )
    estimates = _layer_estimates(w)
    counts = np.arange(1, count + 1)[:, None, None, None]
    return LayeredDescentResult(
        estimates=estimates,
        loss=np.asarray(record["loss"][-1]),
        errors=_layer_errors(estimates, dataset.teachers),
        prefix_errors=_layer_errors(np.cumsum(estimates, axis=0) / counts, dataset.teachers),
        history={name: np.array(values) for name, values in record.items()},
        weights=w.astype(np.float64),
        steps=step,
        status=status,
    )


def _check_student(dataset: LayeredDataset, channel: DeepSoftmaxChannel) -> None:
    _check_dataset(dataset)
    if not isinstance(channel, DeepSoftmaxChannel):
        raise TypeError(f"channel must be a DeepSoftmaxChannel, got {channel!r}")
    n, t, _ = dataset.tokens.shape
    if channel.tokens != t or channel.layers != dataset.layers:
        raise ValueError(
            f"channel must have {t} tokens and {dataset.layers} layers as the dataset, "
            f"got {channel.tokens} and {channel.layers}"
        )
    if dataset.outputs.shape != (n, t, t):
        raise ValueError(
            f"dataset must have outputs of shape {(n, t, t)}, got {dataset.outputs.shape}"
        )


def _layer_estimates(w: Any) -> FloatArray:
    w = np.asarray(w, dtype=np.float64)
    return np.asarray(w @ w.swapaxes(-1, -2) / math.sqrt(w.shape[-1] * w.shape[-2]))


def _layer_errors(estimates: FloatArray, teachers: FloatArray) -> FloatArray:
    gap = estimates - teachers
    return np.asarray(np.sum(gap * gap, axis=(-1, -2)) / teachers.shape[-1])
