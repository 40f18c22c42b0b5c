"""Full-batch training of several starts: optimisers, schedules, stopping rules, checkpoints."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from aimlib import _validation as check
from aimlib._checkpoint import Checkpoint
from aimlib._validation import FloatArray

Method = Literal["adam", "momentum"]
Status = Literal["converged", "stalled", "diverged"]
Evaluate = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class DescentResult:
    """The outcome of training one start or several, of one layer or of L.

    Attributes
    ----------
    estimate : array, shape (d, d) or (L, d, d)
        The estimate of S, averaged over the starts.
    estimation_error : float, array of shape (L,), or None
        ||S - S_hat||_F^2/d of the estimate; None when the teacher is not known.
    loss : array, shape (starts,)
        Final training loss of each start.
    history : dict of str to array
        "iteration", shape (m,), and at these iterations "loss", shape (m, starts), and with a
        teacher "estimation_error" of each start, shape (m, starts) or (m, starts, L).
    prefix_errors : array, shape (starts,) or (starts, L), or None
        Error of the average over the first 1, ..., K starts.
    start_estimates : array, shape (starts, d, d) or (starts, L, d, d)
        The estimates of the single starts.
    weights : array, shape (starts, d, r) or (starts, L, d, r)
        Final weights, from which training can go on (``initial_weights``).
    iterations : int
        Steps taken.
    converged : bool
        Whether status is "converged".
    status : {"converged", "stalled", "diverged"}
        "converged" when every start met a stopping rule, "stalled" when some did not within the
        iterations allowed, "diverged" when a loss is not finite.
    """

    estimate: FloatArray
    estimation_error: Any
    loss: FloatArray
    history: dict[str, FloatArray]
    prefix_errors: FloatArray | None
    start_estimates: FloatArray
    weights: FloatArray
    iterations: int
    converged: bool
    status: Status

    @property
    def estimates(self) -> FloatArray:
        """Deprecated name of ``start_estimates``."""
        warnings.warn("estimates is now start_estimates", DeprecationWarning, stacklevel=2)
        return self.start_estimates

    @property
    def steps(self) -> int:
        """Deprecated name of ``iterations``."""
        warnings.warn("steps is now iterations", DeprecationWarning, stacklevel=2)
        return self.iterations

    def extrapolate(self) -> tuple[float, float]:
        """Fit the prefix errors of one layer by a + b/K; return a, the limit of many starts, and b.

        The prefixes share starts, so that the fit has no meaningful standard error; fit over
        independent data sets for one.

        Raises
        ------
        ValueError
            If the teacher is not known, there are fewer than two starts, or several layers.
        """
        if self.prefix_errors is None or self.prefix_errors.ndim != 1 or len(self.loss) < 2:
            raise ValueError(
                "extrapolate needs a known teacher, two starts or more and one layer, got "
                f"{len(self.loss)} starts and prefix_errors = {self.prefix_errors!r}"
            )
        k = np.arange(1, self.prefix_errors.size + 1)
        # an average over K starts fluctuates like 1/sqrt(K): polyfit squares these weights
        slope, intercept = np.polyfit(1.0 / k, self.prefix_errors, 1, w=np.sqrt(k))
        return float(intercept), float(slope)


@dataclass(frozen=True)
class Schedule:
    """How to descend and when to stop; see :func:`aimlib.averaged_gradient_descent`."""

    method: Method
    learning_rate: float
    final_learning_rate: float | None
    momentum: float
    iterations: int
    record_every: int
    loss_tolerance: float
    gradient_tolerance: float

    def __post_init__(self) -> None:
        if self.method not in ("adam", "momentum"):
            raise ValueError(f"method must be 'adam' or 'momentum', got {self.method!r}")
        rate = check.real("learning_rate", self.learning_rate, low=0.0, open_low=True)
        final = rate if self.final_learning_rate is None else self.final_learning_rate
        values = {
            "learning_rate": rate,
            "final_learning_rate": check.real("final_learning_rate", final, low=0.0),
            "momentum": check.real("momentum", self.momentum, low=0.0, high=1.0, open_high=True),
            "iterations": check.integer("iterations", self.iterations, low=1),
            "record_every": check.integer("record_every", self.record_every, low=1),
            "loss_tolerance": check.real("loss_tolerance", self.loss_tolerance, low=0.0),
            "gradient_tolerance": check.real(
                "gradient_tolerance", self.gradient_tolerance, low=0.0
            ),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def identity(self) -> Schedule:
        """What two trainings share if one continues the other: not the end of a constant rate."""
        constant = self.learning_rate == self.final_learning_rate
        return replace(self, iterations=1) if constant else self

    def rate_at(self, step: int) -> float:
        """Return the learning rate of step 1, 2, ...: half a period of a cosine."""
        final = self.final_learning_rate
        assert final is not None
        fall = 0.5 * (1.0 + math.cos(math.pi * (step - 1) / self.iterations))
        return final + (self.learning_rate - final) * fall


@dataclass
class State:
    """What the next step depends on, and the history so far."""

    weights: Any
    first: Any
    second: Any
    step: int
    record: dict[str, list[Any]]

    def arrays(self) -> dict[str, Any]:
        history = {f"history_{name}": np.array(value) for name, value in self.record.items()}
        return {"weights": self.weights, "first": self.first, "second": self.second} | history


def _begun(weights: Any, checkpoint: Checkpoint | None) -> State:
    """The state before the first step, or that of the checkpoint if there is one."""
    found = None if checkpoint is None else checkpoint.load()
    if found is None:
        return State(weights, np.zeros_like(weights), np.zeros_like(weights), 0, {})
    step, stored = found
    weights, first, second = (stored.pop(name) for name in ("weights", "first", "second"))
    record = {name.removeprefix("history_"): list(values) for name, values in stored.items()}
    return State(weights, first, second, step, record)


class Steps:
    """The steps of all starts, in this process.

    ``evaluate`` maps weights and data to the loss of each start and its gradient.
    """

    def __init__(self, evaluate: Evaluate, data: Any, schedule: Schedule) -> None:
        self.evaluate, self.data, self.schedule = evaluate, data, schedule
        self._gradient: Any = None

    def look(self, state: State) -> tuple[Any, Any]:
        """Return the loss of each start, and whether it meets a stopping rule."""
        schedule = self.schedule
        values, self._gradient = self.evaluate(state.weights, self.data)
        flat = self._gradient.astype(np.float64).reshape(len(values), -1)
        norms = np.sqrt(np.sum(flat**2, axis=1))
        rest = (values <= schedule.loss_tolerance) | (norms <= schedule.gradient_tolerance)
        return values, rest

    def go(self, state: State) -> None:
        """Advance the state that was looked at by one step."""
        _advance(state, self._gradient, self.schedule)

    def settle(self, state: State) -> None:
        """Make the weights those of the step of the state."""


def train(
    weights: Any,
    steps: Steps,
    teacher: FloatArray | None,
    checkpoint: Checkpoint | None = None,
    callback: Callable[[int, FloatArray], object] | None = None,
) -> DescentResult:
    """Train weights (K, ..., d, r) and say how close the starts and their averages come."""
    state = _begun(weights, checkpoint)
    status = _descend(state, steps, teacher, checkpoint, callback)
    record = state.record
    estimates = estimates_of(state.weights)
    counts = np.arange(1, len(estimates) + 1).reshape(-1, *[1] * (estimates.ndim - 1))
    averages = np.cumsum(estimates, axis=0) / counts
    errors = None if teacher is None else errors_of(averages, teacher)
    return DescentResult(
        estimate=averages[-1],
        estimation_error=None if errors is None else _plain(errors[-1]),
        loss=np.asarray(record["loss"][-1]),
        history={name: np.array(values) for name, values in record.items()},
        prefix_errors=errors,
        start_estimates=estimates,
        weights=np.asarray(state.weights, dtype=np.float64),
        iterations=state.step,
        converged=status == "converged",
        status=status,
    )


def _descend(
    state: State,
    steps: Steps,
    teacher: FloatArray | None,
    checkpoint: Checkpoint | None,
    callback: Callable[[int, FloatArray], object] | None,
) -> Status:
    """Advance the state until a stopping rule holds; the status says which."""
    status: Status = "stalled"
    schedule = steps.schedule
    while True:
        recording = state.step % schedule.record_every == 0
        if checkpoint is not None and recording:
            checkpoint.save(state.step, **state.arrays())
        values, rest = steps.look(state)
        if not np.isfinite(values).all():
            status = "diverged"
        elif rest.all():
            status = "converged"
        ended = status != "stalled" or state.step >= schedule.iterations
        if recording or ended:
            steps.settle(state)
            _record(state, values, teacher)
            if callback is not None:
                callback(state.step, state.record["loss"][-1])
        if ended:
            return status
        steps.go(state)


def _record(state: State, values: Any, teacher: FloatArray | None) -> None:
    entry = {"iteration": state.step, "loss": values.astype(np.float64)}
    if teacher is not None:
        entry["estimation_error"] = errors_of(estimates_of(state.weights), teacher)
    for name, value in entry.items():
        state.record.setdefault(name, []).append(value)


def _advance(state: State, gradient: Any, schedule: Schedule) -> None:
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
        state.first = schedule.momentum * state.first - rate * w.shape[-2] ** 2 * gradient
        state.weights = (w + state.first).astype(w.dtype)


def estimates_of(weights: Any) -> FloatArray:
    r"""Return :math:`WW^\top/\sqrt{rd}`, shape (..., d, d), of weights of shape (..., d, r)."""
    w = np.asarray(weights, dtype=np.float64)
    return np.asarray(w @ w.swapaxes(-1, -2) / math.sqrt(w.shape[-2] * w.shape[-1]))


def errors_of(estimates: FloatArray, teacher: FloatArray) -> FloatArray:
    """Return ||S - S_hat||_F^2/d over the last two axes; leading ones broadcast."""
    gap = estimates - teacher
    return np.asarray(np.sum(gap * gap, axis=(-1, -2)) / teacher.shape[-1])


def _plain(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else value
