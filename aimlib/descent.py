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

import hashlib
import math
import os
import stat
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from aimlib import _validation as check
from aimlib._compile import njit
from aimlib._validation import FloatArray
from aimlib.channels import Channel, LinearChannel, SoftmaxChannel
from aimlib.model import Dataset

__all__ = ["DescentResult", "averaged_gradient_descent", "gradient_descent", "loss_and_gradient"]

Loss = Literal["squared", "cross-entropy"]
Method = Literal["adam", "momentum"]
Pointwise = Callable[[Any], tuple[Any, Any]]  # indices of each W to losses and their derivatives


@dataclass(frozen=True)
class DescentResult:
    """The outcome of training one start or several.

    Attributes
    ----------
    estimate : array, shape (d, d)
        The estimate of S, averaged over the starts.
    estimation_error : float
        ||S - S_hat||_F^2/d of the estimate; NaN when the teacher is not known.
    loss : array, shape (starts,)
        Final training loss of each start.
    history : dict of str to array
        "step", shape (m,), and at these steps "loss" and "error", shape (m, starts): the training
        loss and the estimation error of each start.
    prefix_errors : array, shape (starts,)
        Error of the average over the first 1, ..., K starts.
    estimates : array, shape (starts, d, d)
        The estimates of the single starts.
    weights : array, shape (starts, d, r)
        Final weights, from which training can go on (``initial_weights``).
    steps : int
        Steps taken.
    converged : bool
        Whether every start met a stopping rule before the last step.
    status : str
        "converged", "stopped" (at the last step) or "diverged" (a loss is not finite).
    """

    estimate: FloatArray
    estimation_error: float
    loss: FloatArray
    history: dict[str, FloatArray]
    prefix_errors: FloatArray
    estimates: FloatArray
    weights: FloatArray
    steps: int
    converged: bool
    status: str

    def extrapolate(self) -> tuple[float, float]:
        """Fit the prefix errors by a + b/K; a is the error of infinitely many starts.

        The prefixes share starts, so that the fit has no meaningful standard error; fit over
        independent data sets for one.
        """
        k = np.arange(1, self.prefix_errors.size + 1)
        slope, intercept = np.polyfit(1.0 / k, self.prefix_errors, 1, w=np.sqrt(k))
        return float(intercept), float(slope)


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
    channel : SoftmaxChannel or LinearChannel, optional
        Softmax at inverse temperature 1 by default.
    loss : {"squared", "cross-entropy"}
        Squared distance, or the cross-entropy between rows (softmax only).
    weight_decay : float
        The factor lambda.

    Returns
    -------
    (array of shape (K,), array of shape (K, d, r))
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


@njit
def _row_products(projected: Any) -> Any:
    """Products P_a . P_b of the projected tokens, (n, T, r, K) to (n, T, T, K)."""
    n, t, r, starts = projected.shape
    products = np.zeros((n, t, t, starts), dtype=projected.dtype)
    for m in range(n):
        for a in range(t):
            for b in range(a, t):
                total, left, right = products[m, a, b], projected[m, a], projected[m, b]
                # the starts are the inner loop: it vectorises without reordering the sum over r
                for j in range(r):
                    for k in range(starts):
                        total[k] += left[j, k] * right[j, k]
                for k in range(starts):
                    products[m, b, a, k] = total[k]
    return products


@njit
def _mix_rows(slopes: Any, projected: Any) -> Any:
    """Replace the rows P_a by sum_b G_ab P_b, in place."""
    n, t, r, starts = projected.shape
    rows = np.empty((t, starts), dtype=projected.dtype)
    for m in range(n):
        for j in range(r):
            for a in range(t):
                for k in range(starts):
                    rows[a, k] = slopes[m, a, 0, k] * projected[m, 0, j, k]
                for b in range(1, t):
                    for k in range(starts):
                        rows[a, k] += slopes[m, a, b, k] * projected[m, b, j, k]
            for a in range(t):
                for k in range(starts):
                    projected[m, a, j, k] = rows[a, k]
    return projected


def _evaluate(
    w: Any, data: tuple[Any, Any], channel: Channel, loss: Loss, decay: float
) -> tuple[Any, Any]:
    """Loss and gradient of all starts."""
    tokens, outputs = data
    n, _, d = tokens.shape
    values, direction = _through_indices(w, tokens, lambda h: _pointwise(h, outputs, channel, loss))
    gradient = 2.0 / (n * d * math.sqrt(w.shape[2])) * direction + 2.0 * decay / d**2 * w
    penalty = decay / d**2 * np.sum(w * w, axis=(1, 2))
    return values.mean(axis=1) + penalty, gradient


def _through_indices(w: Any, tokens: Any, pointwise: Pointwise) -> tuple[Any, Any]:
    """Return what ``pointwise`` says of the indices of all W, and n sqrt(d) Gamma W for each.

    Two products with the tokens carry the work.  Up to width d it is done on the projected tokens
    XW, d/r times smaller than XS.
    """
    evaluate = _in_width if w.shape[2] <= tokens.shape[2] else _in_dimension
    return evaluate(w, tokens, pointwise)


def _in_width(w: Any, tokens: Any, pointwise: Pointwise) -> tuple[Any, Any]:
    """From P = XW, for all starts."""
    n, t, d = tokens.shape
    starts, _, r = w.shape
    flat = tokens.reshape(n * t, d)
    stacked = np.ascontiguousarray(w.transpose(1, 2, 0)).reshape(d, r * starts)
    projected = (flat @ stacked).reshape(n, t, r, starts)
    h = (_row_products(projected) / (d * math.sqrt(r))).transpose(3, 0, 1, 2)
    _subtract_trace(h, np.sum(w * w, axis=(1, 2)) / (d * math.sqrt(r)))
    values, slopes = pointwise(h)
    slopes = 0.5 * (slopes + slopes.swapaxes(-1, -2))
    traces = np.trace(slopes, axis1=2, axis2=3).sum(axis=1)
    mixed = _mix_rows(np.ascontiguousarray(slopes.transpose(1, 2, 3, 0)), projected)
    product = flat.T @ mixed.reshape(n * t, r * starts)
    direction = product.reshape(d, r, starts).transpose(2, 0, 1)
    return values, direction - traces[:, None, None] * w


def _in_dimension(w: Any, tokens: Any, pointwise: Pointwise) -> tuple[Any, Any]:
    """The same from S, for students wider than d."""
    n, t, d = tokens.shape
    starts, _, r = w.shape
    flat = tokens.reshape(n * t, d)
    s = w @ w.transpose(0, 2, 1) / math.sqrt(r * d)
    projected = (flat @ s.transpose(1, 0, 2).reshape(d, starts * d)).reshape(n, t, starts, d)
    h = np.matmul(projected.transpose(2, 0, 1, 3), tokens.transpose(0, 2, 1)) / math.sqrt(d)
    _subtract_trace(h, np.trace(s, axis1=1, axis2=2) / math.sqrt(d))
    values, slopes = pointwise(h)
    slopes = 0.5 * (slopes + slopes.swapaxes(-1, -2))
    traces = np.trace(slopes, axis1=2, axis2=3).sum(axis=1)
    mixed = np.matmul(slopes, tokens).reshape(starts, n * t, d)
    gamma = np.matmul(mixed.transpose(0, 2, 1), flat)
    gamma[:, np.arange(d), np.arange(d)] -= traces[:, None]
    return values, gamma @ w


def _subtract_trace(h: Any, traces: Any) -> None:
    diagonal = np.arange(h.shape[-1])
    h[..., diagonal, diagonal] -= traces[:, None, None]


def _pointwise(h: Any, y: Any, channel: Channel, loss: Loss) -> tuple[Any, Any]:
    """Loss of every sequence and its derivative in the full matrix h, entries independent."""
    if isinstance(channel, LinearChannel):
        gap = h - y
        return np.sum(gap * gap, axis=(2, 3)), 2.0 * gap
    assert isinstance(channel, SoftmaxChannel)
    beta = channel.inverse_temperature
    scaled = beta * h
    scaled = scaled - scaled.max(axis=-1, keepdims=True)
    exponentials = np.exp(scaled)
    total = exponentials.sum(axis=-1, keepdims=True)
    p = exponentials / total
    if loss == "cross-entropy":
        value = -np.sum(y * (scaled - np.log(total)), axis=(2, 3))
        return value, beta * (p - y)
    gap = p - y
    inner = np.sum(gap * p, axis=-1, keepdims=True)
    return np.sum(gap * gap, axis=(2, 3)), 2.0 * beta * p * (gap - inner)


# ---------------------------------------------------------------------------------------------
# Training
# ---------------------------------------------------------------------------------------------


def gradient_descent(
    dataset: Dataset,
    width: int,
    seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    **options: Any,
) -> DescentResult:
    """Train one student from a random start.

    Parameters and errors are those of :func:`averaged_gradient_descent` with one start.

    Examples
    --------
    >>> from aimlib import AttentionIndexedModel, SoftmaxChannel, WishartPrior
    >>> model = AttentionIndexedModel(12, WishartPrior(0.5), SoftmaxChannel(2))
    >>> data = model.sample(0.6, seed=1)
    >>> result = gradient_descent(data, width=6, seed=2, steps=2000, learning_rate=0.05)
    >>> result.estimation_error < 0.01
    True
    """
    return averaged_gradient_descent(dataset, width, starts=1, seed=seed, **options)


def averaged_gradient_descent(
    dataset: Dataset,
    width: int,
    starts: int = 32,
    seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    *,
    channel: Channel | None = None,
    loss: Loss = "squared",
    method: Method = "adam",
    learning_rate: float = 0.05,
    final_learning_rate: float | None = None,
    momentum: float = 0.9,
    steps: int = 2000,
    weight_decay: float = 0.0,
    initial_scale: float = 1.0,
    initial_weights: FloatArray | None = None,
    loss_tolerance: float = 1e-14,
    gradient_tolerance: float = 0.0,
    record_every: int = 50,
    single_precision: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[int, FloatArray], None] | None = None,
) -> DescentResult:
    r"""Train students from independent starts by full-batch gradient descent and average them.

    Parameters
    ----------
    dataset : Dataset
        Tokens and outputs; the teacher, if known, is used for the reported errors only.
    width : int
        Width r of the student, which may differ from that of the teacher.
    starts : int
        Number K of independent starts.
    seed : int, SeedSequence or Generator
        Source of the initial weights.  Start k does not depend on the number of starts.
    channel : SoftmaxChannel or LinearChannel, optional
        Output of the student; softmax at inverse temperature 1 by default.
    loss : {"squared", "cross-entropy"}
        Loss of one sequence, summed over the entries of its output.
    method : {"adam", "momentum"}
        Adam with its usual constants, or gradient descent with momentum (0 for plain).
    learning_rate, final_learning_rate : float
        The rate, and its value at the last step of a cosine schedule; constant by default.  For
        "momentum" the rate is in units of d^2, which keeps it of order one.
    momentum : float
        For "momentum", in [0, 1).
    steps : int
        Largest number of steps.
    weight_decay : float
        The factor :math:`\lambda` of the loss.
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
        constant learning rate it can also be prolonged, with a larger ``steps``, not shortened.
    callback : callable, optional
        Called with the step and the losses at every recorded step; an exception it raises stops
        the training.

    Returns
    -------
    DescentResult

    Raises
    ------
    ValueError
        If an argument is out of range, or ``checkpoint`` cannot be written or belongs to another
        training; before training starts.
    """
    student = _student_channel(channel, dataset, loss)
    d = dataset.dimension
    r = check.integer("width", width, low=1)
    count = check.integer("starts", starts, low=1)
    last = check.integer("steps", steps, low=1)
    every = check.integer("record_every", record_every, low=1)
    rate = check.real("learning_rate", learning_rate, low=0.0, open_low=True)
    final = check.real("final_learning_rate", rate if final_learning_rate is None
                       else final_learning_rate, low=0.0)  # fmt: skip
    inertia = check.real("momentum", momentum, low=0.0, high=1.0, open_high=True)
    decay = check.real("weight_decay", weight_decay, low=0.0)
    loss_floor = check.real("loss_tolerance", loss_tolerance, low=0.0)
    gradient_floor = check.real("gradient_tolerance", gradient_tolerance, low=0.0)
    if method not in ("adam", "momentum"):
        raise ValueError(f"method must be 'adam' or 'momentum', got {method!r}")
    w = _initial(initial_weights, seed, count, d, r, initial_scale)
    dtype = np.float32 if single_precision else np.float64
    w, data = w.astype(dtype), _prepare(dataset, dtype)

    schedule = _Schedule(method, rate, final, inertia, last, every, loss_floor, gradient_floor)
    keeper = None
    if checkpoint is not None:
        key = _fingerprint(w, *data, schedule.identity(), repr(student), loss, decay)
        keeper = _Checkpoint(checkpoint, key, last)
    w, record, step, status = _descend(
        w,
        lambda weights: _evaluate(weights, data, student, loss, decay),
        lambda weights: _errors(weights, dataset),
        schedule,
        keeper,
        callback,
    )
    return _result(w.astype(np.float64), dataset, record, step, status)


@dataclass(frozen=True)
class _Schedule:
    """How to descend and when to stop; see :func:`averaged_gradient_descent`."""

    method: Method
    rate: float
    final: float
    inertia: float
    last: int
    every: int
    loss_floor: float
    gradient_floor: float

    def identity(self) -> _Schedule:
        """What two trainings share if one continues the other: not the end of a constant rate."""
        return replace(self, last=0) if self.rate == self.final else self

    def rate_at(self, step: int) -> float:
        fall = 0.5 * (1.0 + math.cos(math.pi * (step - 1) / self.last))
        return self.final + (self.rate - self.final) * fall


@dataclass
class _State:
    """What the next step depends on, and the history so far."""

    weights: Any
    first: Any
    second: Any
    step: int
    record: dict[str, list[Any]]


def _descend(
    w: Any,
    evaluate: Callable[[Any], tuple[Any, Any]],
    errors: Callable[[Any], FloatArray],
    schedule: _Schedule,
    checkpoint: _Checkpoint | None = None,
    callback: Callable[[int, FloatArray], None] | None = None,
) -> tuple[Any, dict[str, list[Any]], int, str]:
    """Train weights of shape (K, ..., d, r); return them, the history, the steps and a status."""
    state = _State(w, np.zeros_like(w), np.zeros_like(w), 0, {"step": [], "loss": [], "error": []})
    if checkpoint is not None:
        state = checkpoint.load() or state
    record, status = state.record, "stopped"
    while True:
        w, step = state.weights, state.step
        if checkpoint is not None and step % schedule.every == 0:
            checkpoint.save(state)
        values, gradient = evaluate(w)
        norms = np.sqrt(np.sum(gradient.astype(np.float64).reshape(len(w), -1) ** 2, axis=1))
        if not np.isfinite(values).all():
            status = "diverged"
        elif np.all((values <= schedule.loss_floor) | (norms <= schedule.gradient_floor)):
            status = "converged"
        ended = status != "stopped" or step >= schedule.last
        if step % schedule.every == 0 or ended:
            record["step"].append(step)
            record["loss"].append(values.astype(np.float64))
            record["error"].append(errors(w))
            if callback is not None:
                callback(step, record["loss"][-1])
        if ended:
            return w, record, step, status
        _advance(state, gradient, schedule)


def _advance(state: _State, gradient: Any, schedule: _Schedule) -> None:
    """One step of Adam, or of momentum with the rate in units of d^2."""
    state.step += 1
    w, step, rate = state.weights, state.step, schedule.rate_at(state.step)
    if schedule.method == "adam":
        state.first = 0.9 * state.first + 0.1 * gradient
        state.second = 0.999 * state.second + 0.001 * gradient * gradient
        memory = math.sqrt(1.0 - 0.999**step)
        scale = rate * (memory / (1.0 - 0.9**step))
        move = scale * state.first / (np.sqrt(state.second) + 1e-8 * memory)
        state.weights = (w - move).astype(w.dtype)
    else:
        state.first = schedule.inertia * state.first - rate * w.shape[-2] ** 2 * gradient
        state.weights = (w + state.first).astype(w.dtype)


class _Checkpoint:
    """The state of one training in one file, replaced as a whole."""

    def __init__(self, path: Any, key: str, last: int) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"checkpoint must be a path, got {path!r}")
        self.path, self.key, self.last = Path(path), key, last
        try:
            known = self.path.stat()
        except FileNotFoundError:
            known = None
        except (OSError, ValueError) as error:
            raise ValueError(
                f"checkpoint must be a path of a file, got {path!r}: {error}"
            ) from None
        if known is None and not self.path.parent.is_dir():
            raise ValueError(f"checkpoint must be in a folder that exists, got {str(path)!r}")
        if known is not None and not stat.S_ISREG(known.st_mode):
            raise ValueError(
                f"checkpoint must be a file written by an earlier training or a new one, "
                f"got {str(path)!r}, which is no regular file"
            )
        try:
            self._temporary().touch()
            self._temporary().unlink()
        except OSError as error:
            raise ValueError(
                f"checkpoint must be a file that can be written, got {str(path)!r}: {error}"
            ) from None

    def _temporary(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{os.getpid()}.part")

    def save(self, state: _State) -> None:
        content: dict[str, Any] = {"key": self.key, "step": state.step}
        content |= {"weights": state.weights, "first": state.first, "second": state.second}
        content |= {f"history_{name}": np.array(value) for name, value in state.record.items()}
        temporary = self._temporary()
        try:
            with temporary.open("wb") as handle:
                np.savez(handle, **content)
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)

    def load(self) -> _State | None:
        if not self.path.exists():
            return None
        try:
            with np.load(self.path) as stored:
                content = dict(stored)
            key = str(content["key"])
        except (OSError, EOFError, TypeError, ValueError, KeyError, zipfile.BadZipFile):
            raise ValueError(
                f"checkpoint must be a file written by an earlier training or a new one, "
                f"got {str(self.path)!r}"
            ) from None
        if key != self.key:
            raise ValueError(
                f"checkpoint must belong to the same data set, seed and options, got "
                f"{str(self.path)!r} of another training; remove it or name another file"
            )
        if int(content["step"]) > self.last:
            raise ValueError(
                f"steps must be at least {int(content['step'])}, which the training in checkpoint "
                f"{str(self.path)!r} has taken, got {self.last}"
            )
        names = ("step", "loss", "error")
        return _State(
            content["weights"],
            content["first"],
            content["second"],
            int(content["step"]),
            {name: list(content[f"history_{name}"]) for name in names},
        )


def _fingerprint(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(repr((part.shape, part.dtype)).encode() + part.tobytes())
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()


def _student_channel(channel: Channel | None, dataset: Dataset, loss: str) -> Channel:
    tokens = dataset.tokens.shape[1]
    student = channel if channel is not None else SoftmaxChannel(tokens)
    if not isinstance(student, SoftmaxChannel | LinearChannel):
        raise ValueError(
            f"channel must be a SoftmaxChannel or a LinearChannel, got {student!r}: "
            "other outputs have no useful gradient"
        )
    if student.tokens != tokens:
        raise ValueError(f"channel must have {tokens} tokens as the dataset, got {student.tokens}")
    if loss not in ("squared", "cross-entropy"):
        raise ValueError(f"loss must be 'squared' or 'cross-entropy', got {loss!r}")
    if loss == "cross-entropy" and not isinstance(student, SoftmaxChannel):
        raise ValueError("loss must be 'squared' for a LinearChannel, got 'cross-entropy'")
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


def _estimates(w: Any) -> FloatArray:
    w = np.asarray(w, dtype=np.float64)
    return np.asarray(w @ w.transpose(0, 2, 1) / math.sqrt(w.shape[1] * w.shape[2]))


def _errors(w: Any, dataset: Dataset) -> FloatArray:
    if dataset.teacher is None:
        return np.full(len(w), math.nan)
    gap = _estimates(w) - dataset.teacher
    return np.asarray(np.sum(gap * gap, axis=(1, 2)) / dataset.dimension)


def _result(
    w: FloatArray, dataset: Dataset, record: dict[str, list[Any]], steps: int, status: str
) -> DescentResult:
    estimates = _estimates(w)
    counts = np.arange(1, len(w) + 1)[:, None, None]
    averages = np.cumsum(estimates, axis=0) / counts
    if dataset.teacher is None:
        prefix = np.full(len(w), math.nan)
    else:
        gap = averages - dataset.teacher
        prefix = np.sum(gap * gap, axis=(1, 2)) / dataset.dimension
    return DescentResult(
        estimate=averages[-1],
        estimation_error=float(prefix[-1]),
        loss=np.asarray(record["loss"][-1]),
        history={name: np.array(values) for name, values in record.items()},
        prefix_errors=np.asarray(prefix),
        estimates=estimates,
        weights=w,
        steps=steps,
        converged=status == "converged",
        status=status,
    )
