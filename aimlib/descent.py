r"""Gradient descent on the weights of tied attention, alone and averaged over starts.

A student :math:`W\in\mathbb{R}^{d\times r}` with :math:`S = WW^\top/\sqrt{rd}` is trained to
reproduce the outputs of the teacher.  With :math:`h` its attention indices and f the output of the
channel without noise, the loss is (``descent:loss``)

.. math:: \mathcal L(W) = \frac1n\sum_\mu\ell\bigl(f(h_\mu(W)), y_\mu\bigr)
          + \lambda\,\frac{\|W\|_F^2}{d^2}.

Its gradient never leaves the cheap order: with the symmetric matrix :math:`G_\mu` of derivatives
:math:`\partial\ell/\partial h_{ab}`, off-diagonal ones shared between (a, b) and (b, a),
(``descent:gradient``)

.. math:: \frac{\partial\mathcal L}{\partial W} = \frac{2}{\sqrt{rd}}\,\Gamma W,\qquad
          \Gamma = \frac{1}{n\sqrt d}\sum_\mu\bigl(X_\mu^\top G_\mu X_\mu - (\mathrm{Tr}\,G_\mu)I
          \bigr).

Several starts are trained at once: their products with the tokens are stacked into one.  Up to
width d they are products with W and not with S: given :math:`P_\mu = X_\mu W`, the indices are
products of rows of P, and :math:`X_\mu^\top G_\mu X_\mu W = X_\mu^\top(G_\mu P_\mu)`.  Averaged
gradient descent (AGD) averages the estimates :math:`\hat S`, not the weights W, which are defined
up to a rotation only.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np

from aimlib import _validation as check
from aimlib._channel_base import check_rows_sum_to_one
from aimlib._checkpoint import Checkpoint, fingerprint
from aimlib._projections import through_indices
from aimlib._softmax import scaled_gaps
from aimlib._starts import steps_of
from aimlib._training import DescentResult, Method, Schedule, train
from aimlib._validation import FloatArray
from aimlib.channels import Channel, LinearChannel, SoftmaxChannel
from aimlib.model import Dataset
from aimlib.sampled_tokens import SampledSoftmaxChannel

__all__ = ["DescentResult", "averaged_gradient_descent", "gradient_descent", "loss_and_gradient"]

Loss = Literal["squared", "cross-entropy"]
Seed = int | np.random.SeedSequence | np.random.Generator


# ---------------------------------------------------------------------------------------------
# Loss and gradient
# ---------------------------------------------------------------------------------------------


def loss_and_gradient(
    weights: FloatArray,
    dataset: Dataset,
    channel: Channel | None = None,
    loss: Loss = "squared",
    weight_decay: float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Return the loss of each start and its gradient (``descent:loss``, ``descent:gradient``).

    Parameters
    ----------
    weights : array, shape (K, d, r)
    dataset : Dataset
    channel : SoftmaxChannel, SampledSoftmaxChannel or LinearChannel, optional
        Softmax at inverse temperature 1 by default.
    loss : {"squared", "cross-entropy"}
        Squared distance, or the cross-entropy between rows (softmax only), which for counts is the
        negative log-likelihood.  For others, rows of outputs must sum to one there: noisy ones do
        not.
    weight_decay : float
        The factor lambda.

    Returns
    -------
    (array of shape (K,), array of shape (K, d, r))

    Raises
    ------
    ValueError
        If a shape or the outputs do not fit, or the channel has no useful gradient.

    Examples
    --------
    >>> from aimlib import AttentionIndexedModel, WishartPrior
    >>> data = AttentionIndexedModel(6, WishartPrior(0.5), SoftmaxChannel(2)).sample(0.5, seed=1)
    >>> value, gradient = loss_and_gradient(np.ones((3, 6, 2)), data)
    >>> value.shape, gradient.shape
    ((3,), (3, 6, 2))
    """
    student = _student_channel(channel, dataset, loss)
    w = check.reals("weights", weights)
    d = dataset.dimension
    if w.ndim != 3 or w.shape[1] != d or 0 in w.shape:
        raise ValueError(f"weights must have shape (K, {d}, r), got shape {w.shape}")
    decay = check.real("weight_decay", weight_decay, low=0.0)
    return _evaluate(w, _prepare(dataset, np.float64), student, loss, decay)


def _prepare(dataset: Dataset, dtype: Any) -> tuple[Any, Any]:
    return dataset.tokens.astype(dtype), dataset.outputs.astype(dtype)


def _evaluate(
    w: Any, data: tuple[Any, Any], channel: Channel, loss: Loss, decay: float
) -> tuple[Any, Any]:
    """Loss and gradient of all starts."""
    tokens, outputs = data
    n, _, d = tokens.shape
    values, direction = through_indices(w, tokens, lambda h: _pointwise(h, outputs, channel, loss))
    gradient = 2.0 / (n * d * math.sqrt(w.shape[2])) * direction + 2.0 * decay / d**2 * w
    penalty = decay / d**2 * np.sum(w * w, axis=(1, 2))
    return values.mean(axis=1) + penalty, gradient


def _pointwise(h: Any, y: Any, channel: Channel, loss: Loss) -> tuple[Any, Any]:
    """Loss of every sequence and its derivative in the full matrix h, entries independent."""
    if isinstance(channel, LinearChannel):
        gap = h - y
        return np.sum(gap * gap, axis=(2, 3)), 2.0 * gap
    assert isinstance(channel, SoftmaxChannel | SampledSoftmaxChannel)
    beta = channel.inverse_temperature
    draws = channel.draws if isinstance(channel, SampledSoftmaxChannel) else 1
    scaled = scaled_gaps(h, beta)
    exponentials = np.exp(scaled)
    total = exponentials.sum(axis=-1, keepdims=True)
    p = exponentials / total
    if loss == "cross-entropy":
        value = -np.sum(y * (scaled - np.log(total)), axis=(2, 3))
        return value, beta * (draws * p - y)
    gap = draws * p - y
    inner = np.sum(gap * p, axis=-1, keepdims=True)
    return np.sum(gap * gap, axis=(2, 3)), 2.0 * draws * beta * p * (gap - inner)


# ---------------------------------------------------------------------------------------------
# Training
# ---------------------------------------------------------------------------------------------


def gradient_descent(
    dataset: Dataset,
    width: int,
    channel: Channel | None = None,
    *,
    seed: Seed | None = None,
    loss: Loss = "squared",
    method: Method = "adam",
    learning_rate: float = 0.05,
    final_learning_rate: float | None = None,
    momentum: float = 0.9,
    iterations: int = 2000,
    weight_decay: float = 0.0,
    initial_scale: float = 1.0,
    initial_weights: FloatArray | None = None,
    loss_tolerance: float = 1e-14,
    gradient_tolerance: float = 0.0,
    record_every: int = 50,
    single_precision: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[int, FloatArray], object] | None = None,
    steps: int | None = None,
) -> DescentResult:
    """Train one student from one start.

    Parameters, result and errors are those of :func:`averaged_gradient_descent` with one start;
    ``initial_weights`` has shape (1, d, r).

    Returns
    -------
    DescentResult

    Examples
    --------
    >>> from aimlib import AttentionIndexedModel, SoftmaxChannel, WishartPrior
    >>> model = AttentionIndexedModel(12, WishartPrior(0.5), SoftmaxChannel(2))
    >>> data = model.sample(0.6, seed=1)
    >>> result = gradient_descent(data, width=6, seed=2, iterations=2000, learning_rate=0.05)
    >>> result.estimation_error < 0.01
    True
    """
    options = dict(locals())  # all arguments, to be passed on as they are
    third = options.pop("channel")
    if isinstance(third, (int, np.random.SeedSequence, np.random.Generator)):
        _moved("seed", "gradient_descent")
        options |= {"seed": third}
        third = None
    return averaged_gradient_descent(channel=third, starts=1, **options)


def averaged_gradient_descent(
    dataset: Dataset,
    width: int,
    channel: Channel | None = None,
    *,
    starts: int = 32,
    seed: Seed | None = None,
    loss: Loss = "squared",
    method: Method = "adam",
    learning_rate: float = 0.05,
    final_learning_rate: float | None = None,
    momentum: float = 0.9,
    iterations: int = 2000,
    weight_decay: float = 0.0,
    initial_scale: float = 1.0,
    initial_weights: FloatArray | None = None,
    loss_tolerance: float = 1e-14,
    gradient_tolerance: float = 0.0,
    record_every: int = 50,
    single_precision: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[int, FloatArray], object] | None = None,
    client: Any = None,
    steps: int | None = None,
) -> DescentResult:
    r"""Train students from independent starts by full-batch gradient descent and average them.

    Parameters
    ----------
    dataset : Dataset
        Tokens (n, T, d) and outputs; the teacher, if known, is used for the reported errors only.
    width : int
        Width r of the student, which may differ from that of the teacher.
    channel : SoftmaxChannel, SampledSoftmaxChannel or LinearChannel, optional
        Output of the student; softmax at inverse temperature 1 by default.
    starts : int
        Number K of independent starts.
    seed : int, SeedSequence or Generator
        Source of the initial weights, needed unless ``initial_weights`` are given.  Start k does
        not depend on the number of starts.
    loss : {"squared", "cross-entropy"}
        Loss of one sequence, summed over the entries of its output; that of
        :func:`loss_and_gradient`.
    method : {"adam", "momentum"}
        Adam with its usual constants, or gradient descent with momentum (0 for plain).
    learning_rate, final_learning_rate : float
        The rate, and its value at the last step of a cosine schedule; constant by default.  For
        "momentum" the rate is in units of d^2, which keeps it of order one.
    momentum : float
        For "momentum", in [0, 1).
    iterations : int
        Largest number of steps.
    weight_decay : float
        The factor :math:`\lambda \ge 0` of the loss.
    initial_scale : float
        Standard deviation of the initial entries of W; 1 starts at the law of the prior.
    initial_weights : array, shape (K, d, r), optional
        Start here instead, for example at the ``weights`` of an earlier result.
    loss_tolerance, gradient_tolerance : float
        Stop when every loss, or the norm of every gradient, is below.
    record_every : int
        Steps between two entries of the history.
    single_precision : bool
        Train in float32: about twice as fast, loss floor near 1e-12;
        losses below it are rounding.
    checkpoint : path, optional
        File that keeps the whole state of the training at every recorded step.  If it exists, the
        training goes on from there and ends as if it had never been interrupted, to the bit.  At a
        constant learning rate it can also be prolonged, with more ``iterations``, not shortened.
    callback : callable, optional
        Called with the step and the losses at every recorded step; an exception it raises stops
        the training.
    client : distributed.Client, optional
        Train on the workers of this Dask cluster, four starts a task: the same result to rounding,
        and to the last bit whatever the number of the workers.  ``callback`` is then called when
        all starts have come to the next recorded step.
    steps : int, optional
        Deprecated name of ``iterations``.

    Returns
    -------
    DescentResult

    Raises
    ------
    ValueError
        If an argument is out of range, the channel does not fit the data, ``client`` is no client
        that waits for its results, or ``checkpoint`` cannot be written or belongs to another
        training; before training starts.
    RuntimeError
        If workers are lost again and again.

    Examples
    --------
    >>> from aimlib import AttentionIndexedModel, SoftmaxChannel, WishartPrior
    >>> model = AttentionIndexedModel(12, WishartPrior(0.5), SoftmaxChannel(2))
    >>> data = model.sample(0.1, seed=1)
    >>> result = averaged_gradient_descent(data, width=6, starts=4, seed=2, iterations=200)
    >>> result.start_estimates.shape, bool(result.estimation_error < result.prefix_errors[0])
    ((4, 12, 12), True)
    """
    if isinstance(channel, int) and not isinstance(channel, bool):
        _moved("starts", "averaged_gradient_descent")
        channel, starts = None, channel
    if steps is not None:
        warnings.warn("steps is now iterations", DeprecationWarning, stacklevel=2)
        iterations = steps
    student = _student_channel(channel, dataset, loss)
    d = dataset.dimension
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
    decay = check.real("weight_decay", weight_decay, low=0.0)
    dtype = np.float32 if single_precision else np.float64
    w = _initial(initial_weights, seed, count, d, r, initial_scale).astype(dtype)
    data = _prepare(dataset, dtype)
    keeper = None
    if checkpoint is not None:
        key = fingerprint(w, *data, schedule.identity(), repr(student), loss, decay)
        keeper = Checkpoint(checkpoint, key, schedule.iterations)
    evaluate = partial(_evaluate, channel=student, loss=loss, decay=decay)
    walk = steps_of(evaluate, data, schedule, client)
    return train(w, walk, dataset.teacher, keeper, callback)


def _moved(name: str, function: str) -> None:
    warnings.warn(
        f"the third argument of {function} is now channel; give {name}= by name",
        DeprecationWarning,
        stacklevel=3,
    )


def _student_channel(channel: Channel | None, dataset: Dataset, loss: str) -> Channel:
    tokens = dataset.tokens.shape[1]
    student = channel if channel is not None else SoftmaxChannel(tokens)
    if not isinstance(student, SoftmaxChannel | SampledSoftmaxChannel | LinearChannel):
        raise ValueError(
            "channel must be a SoftmaxChannel, SampledSoftmaxChannel or LinearChannel, "
            f"got {student!r}: other outputs have no useful gradient"
        )
    if student.tokens != tokens:
        raise ValueError(f"channel must have {tokens} tokens as the dataset, got {student.tokens}")
    if loss not in ("squared", "cross-entropy"):
        raise ValueError(f"loss must be 'squared' or 'cross-entropy', got {loss!r}")
    if loss == "cross-entropy" and isinstance(student, LinearChannel):
        raise ValueError("loss must be 'squared' for a LinearChannel, got 'cross-entropy'")
    if isinstance(student, SampledSoftmaxChannel):
        student.validate(dataset.outputs)
    elif isinstance(student, SoftmaxChannel) and float(dataset.outputs.sum(axis=2).min()) > 1.5:
        raise ValueError(
            f"outputs must be no counts of several draws for {student!r}, got rows that sum to "
            f"{float(dataset.outputs[0, 0].sum()):g}: use a SampledSoftmaxChannel"
        )
    elif loss == "cross-entropy":  # which has beta (p - y) for its gradient at such rows only
        check_rows_sum_to_one("outputs", dataset.outputs)
    return student


def _initial(given: Any, seed: Any, starts: int, d: int, r: int, scale: float) -> FloatArray:
    if given is not None:
        w = check.reals("initial_weights", given)
        if w.shape != (starts, d, r):
            raise ValueError(f"initial_weights must have shape {(starts, d, r)}, got {w.shape}")
        return w
    size = check.real("initial_scale", scale, low=0.0, open_low=True)
    streams = check.generator("seed", seed).spawn(starts)
    return size * np.stack([stream.standard_normal((d, r)) for stream in streams])
