"""Gradient descent through all layers at once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from aimlib import _validation as check
from aimlib._checkpoint import Checkpoint, fingerprint
from aimlib._projections import through_indices
from aimlib._softmax import row_softmax
from aimlib._starts import steps_of
from aimlib._training import DescentResult, Method, Schedule, train
from aimlib._validation import FloatArray
from aimlib.layers.channels import DeepSoftmaxChannel
from aimlib.layers.model import Dataset

__all__ = [
    "averaged_gradient_descent",
    "loss_and_gradient",
]


def loss_and_gradient(
    weights: FloatArray, dataset: Dataset, channel: DeepSoftmaxChannel
) -> tuple[FloatArray, FloatArray]:
    """Return the squared loss of each start and its gradient (``layers:backward``).

    Parameters
    ----------
    weights : array, shape (K, L, d, r)
    dataset : Dataset
    channel : DeepSoftmaxChannel
        The student; its outputs have the shape of the data's.

    Returns
    -------
    (array of shape (K,), array of shape (K, L, d, r))

    Examples
    --------
    >>> from aimlib import WishartPrior
    >>> from aimlib.layers import Model
    >>> channel = DeepSoftmaxChannel(layers=2)
    >>> data = Model(6, [WishartPrior(0.5)] * 2, channel).sample(0.5, seed=1)
    >>> value, gradient = loss_and_gradient(np.ones((3, 2, 6, 4)), data, channel)
    >>> value.shape, gradient.shape
    ((3,), (3, 2, 6, 4))
    """
    _check_student(dataset, channel)
    w = check.reals("weights", weights)
    expected = (channel.layers, dataset.dimension)
    if w.ndim != 4 or w.shape[1:3] != expected or 0 in w.shape:
        raise ValueError(f"weights must have shape (K, L, d, r) = (K, *{expected}, r), "
                         f"got shape {w.shape}")  # fmt: skip
    return _evaluate(w, (dataset.tokens, dataset.outputs), channel)


def _evaluate(w: Any, data: tuple[Any, Any], channel: DeepSoftmaxChannel) -> tuple[Any, Any]:
    tokens, outputs = data
    starts, layers, d, r = w.shape
    n = tokens.shape[0]

    def pointwise(h: Any) -> tuple[Any, Any]:
        stacked = h.reshape(starts, layers, *h.shape[1:])
        values, slopes = _backpropagate(stacked, outputs, channel)
        return values, slopes.reshape(h.shape)

    values, direction = through_indices(w.reshape(starts * layers, d, r), tokens, pointwise)
    gradient = 2.0 / (n * d * math.sqrt(r)) * direction
    return values.mean(axis=1), gradient.reshape(w.shape)


def _backpropagate(h: Any, y: Any, channel: DeepSoftmaxChannel) -> tuple[Any, Any]:
    """Loss of every sequence and its derivative in the matrices h, shape (K, L, n, T, T)."""
    layers, t = h.shape[1], h.shape[-1]
    skip = np.asarray(channel.skip * np.eye(t), dtype=h.dtype)
    mixing, attention = [np.broadcast_to(np.eye(t, dtype=h.dtype), h[:, 0].shape)], []
    for layer in range(layers):
        b = mixing[-1]
        p = row_softmax(b @ h[:, layer] @ b.swapaxes(-1, -2), channel.inverse_temperature)
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


def averaged_gradient_descent(
    dataset: Dataset,
    width: int,
    channel: DeepSoftmaxChannel,
    *,
    starts: int = 8,
    seed: int | np.random.SeedSequence | np.random.Generator,
    method: Method = "adam",
    learning_rate: float = 0.05,
    final_learning_rate: float | None = None,
    momentum: float = 0.9,
    iterations: int = 2000,
    loss_tolerance: float = 1e-14,
    gradient_tolerance: float = 0.0,
    record_every: int = 50,
    single_precision: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[int, FloatArray], object] | None = None,
    client: Any = None,
) -> DescentResult:
    """Train all layers together from independent starts, by the optimiser of one layer.

    Parameters
    ----------
    dataset : Dataset
        Of several layers; the teacher, if known, is used for the reported errors only.
    width : int
        Width r of every layer of the student.
    channel : DeepSoftmaxChannel
        The student's network.
    starts, seed, method, learning_rate, final_learning_rate, momentum, iterations, \
loss_tolerance, gradient_tolerance, record_every, single_precision, checkpoint, callback, client
        As in :func:`aimlib.averaged_gradient_descent`.

    Returns
    -------
    DescentResult
        ``estimate`` has shape (L, d, d), and every error one value a layer.

    Raises
    ------
    ValueError
        If an argument is out of range or the channel does not fit the data, before training starts.

    Examples
    --------
    >>> from aimlib import WishartPrior, layers
    >>> channel = DeepSoftmaxChannel(layers=2)
    >>> data = layers.Model(8, [WishartPrior(0.5)] * 2, channel).sample(0.5, seed=1)
    >>> result = averaged_gradient_descent(data, 4, channel, starts=3, seed=2, iterations=20)
    >>> result.estimate.shape, result.estimation_error.shape
    ((2, 8, 8), (2,))
    """
    _check_student(dataset, channel)
    d, layers = dataset.dimension, channel.layers
    r = check.integer("width", width, low=1)
    count = check.integer("starts", starts, low=1)
    schedule = Schedule(
        method,
        learning_rate,
        final_learning_rate,
        momentum,
        iterations,
        record_every,
        loss_tolerance,
        gradient_tolerance,
    )
    dtype = np.float32 if single_precision else np.float64
    streams = check.generator("seed", seed).spawn(count)
    w = np.stack([stream.standard_normal((layers, d, r)) for stream in streams]).astype(dtype)
    data = dataset.tokens.astype(dtype), dataset.outputs.astype(dtype)
    keeper = None
    if checkpoint is not None:
        key = fingerprint(w, *data, schedule.identity(), repr(channel))
        keeper = Checkpoint(checkpoint, key, schedule.iterations)
    steps = steps_of(partial(_evaluate, channel=channel), data, schedule, client)
    return train(w, steps, dataset.teacher, keeper, callback)


def _check_student(dataset: Dataset, channel: DeepSoftmaxChannel) -> None:
    if not isinstance(dataset, Dataset):
        raise ValueError(f"dataset must be a layers.Dataset, got {type(dataset)!r}")
    if not isinstance(channel, DeepSoftmaxChannel):
        raise ValueError(f"channel must be a DeepSoftmaxChannel, got {channel!r}")
    n, t, _ = dataset.tokens.shape
    if channel.tokens != t or dataset.layers not in (None, channel.layers):
        raise ValueError(
            f"channel must have {t} tokens and {dataset.layers} layers as the dataset, "
            f"got {channel.tokens} and {channel.layers}"
        )
    if dataset.outputs.shape != (n, t, t):
        raise ValueError(
            f"dataset must have outputs of shape {(n, t, t)}, got {dataset.outputs.shape}"
        )
