r"""The iteration of message passing, whatever the shape and the number of the matrices.

With L matrices of weights the response A, the noise Delta, the reaction and the claimed error V are
L x L matrices, and numbers when L is one.  One iteration (``amp:iteration``, ``layers:iteration``)
observes all outputs and denoises what they say of the weights:

.. math::
    (g, A) &= \mathrm{observe}(\hat S, b, V),\qquad
    R = \hat S + A^{-1}\sum g Z,\qquad \Delta = \tfrac1\nu A^{-1}\bigl(\sum g g^\top\bigr)A^{-1},\\
    (\hat S, \mathrm{div}, V) &= \mathrm{denoise}(R, \Delta),\qquad b = \mathrm{div}\,A^{-1}/d,

with :math:`\nu = 2` for symmetric and 1 for rectangular matrices.  A :class:`Problem` says what the
two steps are.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from aimlib import _validation as check
from aimlib._checkpoint import Checkpoint, fingerprint
from aimlib._validation import FloatArray, symmetrised

Status = Literal["converged", "stalled", "diverged", "inconsistent"]
Callback = Callable[[int, dict[str, Any]], object]

_LEAST_DAMPING, _MOST_DAMPING = 0.3, 0.95
_FALL = 0.02  # share by which the undamped part grows when two steps agree
_NOISE_FLOOR = 0.25  # measured noise over that of the response: four times the data, at most
_ABSOLUTE_BELOW = 1e-4  # share of the prior variance that counts as perfect recovery
_CONTRADICTION = 10.0  # factor between the squares of g and their expectation, either way
_DISAGREEMENT = 5.0  # standard deviations of the squares of g in the first pass
_OUT_OF_RANGE = 1e4  # self-overlap, relative to the second moment, that counts as divergence


@dataclass(frozen=True)
class AMPResult:
    """Where message passing ended, and how it got there.

    For several layers every quantity has one value a layer, or a matrix of them, in the shapes
    given in brackets.

    Attributes
    ----------
    estimate : array, shape (d, d), (d, d') or [(L, d, d)]
        The last finite iterate.
    estimation_error : float or None [array, shape (L,), or None]
        ||S - estimate||_F^2/d; None when the data set has no teacher.
    predicted_error : float [array, shape (L, L)]
        The error that the algorithm claims, mmse of its measured noise; needs no teacher.
    status : {"converged", "stalled", "diverged", "inconsistent"}
        "converged" when the residual fell below the tolerance, "stalled" when it did not within
        the iterations allowed, "diverged" when an iterate left all bounds or when the squares of g
        are off tenfold from what the claimed error asks: a fixed point that contradicts itself.
        "inconsistent" when the iteration ended, but already the outputs of the first pass, where
        nothing is known of S, are not what prior and channel make: their squares of g are off by
        five standard deviations or more, as with a wrong temperature.
    converged : bool
        Whether status is "converged".
    iterations : int
        Iterations done.
    history : dict of str to array, shape (iterations, ...)
        Entry t belongs to iteration t + 1.  "predicted_error"; "noise" Delta [L, L]; "onsager" b
        [L, L]; "damping"; "overlap" ||estimate||_F^2/d [L]; "residual" ||D(R) - estimate||_F^2/d
        [L], which damping does not shrink; "consistency", the squares of g over their expectation
        at V, which is 1 where the posterior is right; with a teacher "estimation_error" of the
        undamped D(R) [L].
    """

    estimate: FloatArray
    estimation_error: Any
    predicted_error: Any
    status: Status
    converged: bool
    iterations: int
    history: dict[str, FloatArray]

    def __getattr__(self, name: str) -> Any:
        moved = {"estimates": "estimate", "errors": "estimation_error"}
        moved["predicted"] = "predicted_error"
        if name not in moved:
            raise AttributeError(f"AMPResult has no attribute {name!r}")
        warnings.warn(f"{name} is now {moved[name]}", DeprecationWarning, stacklevel=2)
        return getattr(self, moved[name])


class Observation(NamedTuple):
    """What one pass over the data finds."""

    fields: FloatArray  # sum of g Z for each matrix, (L, d, d')
    squares: FloatArray  # sums of g g^T in orthonormal coordinates, (L, L)
    response: FloatArray  # A, (L, L)


class Denoised(NamedTuple):
    """What the prior makes of the observed matrices."""

    estimate: FloatArray  # (L, d, d')
    divergence: FloatArray  # of the estimate of l in the observation of l', (L, L)
    predicted: FloatArray  # the error V that the limit predicts, (L, L)


class Problem(Protocol):
    """What the iteration needs to know of a model and its data."""

    @property
    def start(self) -> FloatArray:
        """The estimate without data; its shape is that of the result."""

    @property
    def teacher(self) -> FloatArray | None:
        """The matrices to be found, for the reported errors only."""

    @property
    def variances(self) -> FloatArray:
        """Error of ``start`` for each matrix, shape (L,)."""

    @property
    def second_moment(self) -> float:
        """The largest Q of the matrices."""

    @property
    def coordinate_variance(self) -> float:
        """2 for symmetric, 1 for rectangular matrices."""

    @property
    def parameters(self) -> float:
        """Number of parameters of all matrices together, as the prior counts them."""

    @property
    def g(self) -> FloatArray:
        """Return what the last pass found, zero before the first, which is all it remembers."""

    @property
    def identity(self) -> tuple[Any, ...]:
        """Arrays and objects that make it this problem, for :func:`fingerprint`."""

    def observe(self, estimate: FloatArray, reaction: FloatArray, error: FloatArray) -> Observation:
        """Pass over the data with estimates (L, d, d'), reaction and claimed error (L, L).

        Replaces the entries of ``g``.
        """
        ...

    def denoise(self, observed: FloatArray, noise: FloatArray) -> Denoised:
        """Denoise the observed matrices (L, d, d') with the covariance (L, L) of their noises."""
        ...

    def can_recover(self) -> bool:
        """Whether the outputs pin down the weights at a finite sample complexity."""
        ...


def iterate(
    problem: Problem,
    *,
    iterations: int,
    tolerance: float,
    damping: float | None,
    onsager: str = "divergence",
    noise: str = "residual",
    response: str = "channel",
    annealing: float = 1.0,
    relative_down_to: float = _ABSOLUTE_BELOW,
    callback: Callback | None = None,
    progress: bool = False,
    checkpoint: Any = None,
) -> AMPResult:
    """Run the iteration on a problem: the engine of every message passing here.

    Parameters
    ----------
    problem : Problem
    iterations, tolerance, damping, onsager, noise, response, callback, progress, checkpoint
        As in :func:`amp`.
    annealing : float
        Factor by which every rise of the adaptive damping slows its later falls; below 1 a damping
        that has to rise again and again comes to rest.
    relative_down_to : float
        The tolerance is relative to the claimed error down to this share of the variance of the
        prior, and absolute below.

    Returns
    -------
    AMPResult

    Raises
    ------
    ValueError
        If an option is out of range, or ``checkpoint`` cannot be written or is of another run.

    Examples
    --------
    >>> from aimlib import AttentionIndexedModel, SoftmaxChannel, WishartPrior
    >>> from aimlib.amp import SymmetricProblem
    >>> prior, channel = WishartPrior(0.5), SoftmaxChannel(tokens=2)
    >>> data = AttentionIndexedModel(20, prior, channel).sample(0.1, seed=1)
    >>> problem = SymmetricProblem(data, prior, channel, "tangent")
    >>> iterate(problem, iterations=3, tolerance=1e-6, damping=0.3).iterations
    3
    """
    most = check.integer("iterations", iterations, low=1)
    tol = check.real("tolerance", tolerance, low=0.0, open_low=True)
    if damping is not None:
        check.real("damping", damping, low=0.0, high=1.0, open_high=True)
    nu, count = problem.coordinate_variance, problem.variances.size
    keeper = None
    if checkpoint is not None:
        key = fingerprint(*problem.identity, damping, onsager, noise, response, annealing)
        keeper = Checkpoint(checkpoint, key, most, "run of message passing")
    state = _begun(problem, _LEAST_DAMPING if damping is None else float(damping), keeper)
    start, d = problem.start, problem.start.shape[-2]
    teacher = None if problem.teacher is None else problem.teacher.reshape(state.estimate.shape)
    status: Status = "stalled"
    bar = _progress_bar(most, progress)
    for iteration in range(1 + len(state.records), most + 1):
        seen = problem.observe(state.estimate, state.reaction, state.error)
        slope = seen.response if response == "channel" else seen.squares / d
        if iteration == 1:
            state.fits = _fits(seen, problem)
        if not _is_usable(slope, seen.fields):
            status = "diverged"
            break
        delta = _noise(seen.squares, slope, d, nu, measured=noise == "residual")
        denoised, divergence, predicted = problem.denoise(
            state.estimate + _solve(slope, seen.fields), delta
        )
        step = denoised - state.estimate
        if damping is None:
            state.adapt(step, annealing)
        state.reaction = _over(divergence, d * slope) if onsager == "divergence" else predicted
        record = {
            "predicted_error": predicted,
            "noise": delta,
            "onsager": state.reaction,
            "damping": state.keep,
            "overlap": _norms(denoised) / d,
            "residual": _norms(step) / d,
            "consistency": float(np.trace(_over(seen.squares, d * seen.response))) / count,
        }
        if teacher is not None:
            record["estimation_error"] = _norms(denoised - teacher) / d
        if not record["overlap"].max() < _OUT_OF_RANGE * problem.second_moment:
            status = "diverged"
            break
        shown = {k: _natural(v, start) for k, v in record.items()}
        state.records.append(shown)
        _report(iteration, shown, callback, bar)
        allowed = tol * np.maximum(np.diag(predicted), relative_down_to * problem.variances)
        if np.all(record["residual"] <= allowed):
            state.estimate = denoised
            status = "converged" if _is_sound(record, problem) else "diverged"
            break
        state.take(step, predicted)
        if keeper is not None:
            keeper.save(iteration, **state.arrays(problem.g))
    if bar is not None:
        bar.close()
    if status != "diverged" and not state.fits:
        status = "inconsistent"
    return _result(problem, state.estimate, status, state.records)


# ---------------------------------------------------------------------------------------------
# What the next iteration depends on
# ---------------------------------------------------------------------------------------------


@dataclass
class _State:
    """All that the iteration remembers beside the problem's g, and the history so far."""

    estimate: FloatArray
    error: FloatArray
    reaction: FloatArray
    keep: float  # the damping
    fall: float = _FALL
    fits: bool = True
    last_step: FloatArray | None = None
    records: list[dict[str, Any]] = field(default_factory=list)

    def adapt(self, step: FloatArray, annealing: float) -> None:
        before, self.keep = self.keep, _adapt(self.keep, step, self.last_step, self.fall)
        self.fall *= annealing if self.keep > before else 1.0

    def take(self, step: FloatArray, predicted: FloatArray) -> None:
        """Go the undamped part of the step."""
        self.estimate = self.estimate + (1.0 - self.keep) * step
        self.error = self.keep * self.error + (1.0 - self.keep) * predicted
        own = np.diag_indices(len(self.error))
        self.error[own] = np.maximum(self.error[own], 1e-290)
        self.last_step = step

    def arrays(self, g: FloatArray) -> dict[str, Any]:
        names = ("estimate", "error", "reaction", "keep", "fall", "fits", "last_step")
        history = {f"history_{k}": np.array([r[k] for r in self.records]) for k in self.records[0]}
        return {"g": g} | {name: np.asarray(getattr(self, name)) for name in names} | history


def _begun(problem: Problem, keep: float, keeper: Checkpoint | None) -> _State:
    """The state before the first iteration, or that of the checkpoint if there is one."""
    found = None if keeper is None else keeper.load()
    count, start = problem.variances.size, problem.start
    if found is None:
        estimate = start.reshape(count, *start.shape[-2:])
        return _State(estimate, np.diag(problem.variances), np.zeros((count, count)), keep)
    step, stored = found
    problem.g[...] = stored.pop("g")
    history = {k.removeprefix("history_"): stored.pop(k) for k in list(stored) if "history_" in k}
    records = [{k: _natural(v[t], start) for k, v in history.items()} for t in range(step)]
    plain = {"keep": float(stored["keep"]), "fall": float(stored["fall"])}
    return _State(**stored | plain | {"fits": bool(stored["fits"])}, records=records)


# ---------------------------------------------------------------------------------------------
# Algebra of L x L matrices; with one matrix the plain numbers, to the last bit
# ---------------------------------------------------------------------------------------------


def _is_usable(response: FloatArray, fields: FloatArray) -> bool:
    finite = np.isfinite(response).all() and np.isfinite(fields).all()
    return bool(finite) and float(np.linalg.eigvalsh(response)[-1]) > 0.0


def inverse_response(response: FloatArray) -> FloatArray:
    """Inverse of a response; directions that are not seen get a large noise."""
    values, vectors = np.linalg.eigh(symmetrised(response))
    if not values[-1] > 0.0:
        raise ValueError(f"the response must have a positive eigenvalue, got {response!r}")
    return np.asarray((vectors / np.maximum(values, 1e-9 * values[-1])) @ vectors.T)


def _solve(response: FloatArray, fields: FloatArray) -> FloatArray:
    if response.size == 1:
        return np.asarray(fields / response)
    return np.asarray(np.einsum("lm,mij->lij", inverse_response(response), fields))


def _over(matrix: FloatArray, response: FloatArray) -> FloatArray:
    return np.asarray(
        matrix / response if response.size == 1 else matrix @ inverse_response(response)
    )


def _noise(
    squares: FloatArray, response: FloatArray, d: int, nu: float, measured: bool
) -> FloatArray:
    """Covariance of the noises, from the squares of g or from the response alone.

    The former is at least a quarter of the latter (``amp:floor``): outputs that a small set can fit
    exactly must not make the belief collapse.
    """
    if response.size == 1:
        limit = d / (nu * response)
        found = squares / (nu * response * response)
        return np.maximum(found, _NOISE_FLOOR * limit) if measured else limit
    gain = inverse_response(response)
    if not measured:
        return d / nu * gain
    root = np.linalg.cholesky(_NOISE_FLOOR * d / nu * gain)
    whitened = np.linalg.solve(root, np.linalg.solve(root, gain @ squares @ gain / nu).T)
    values, vectors = np.linalg.eigh(symmetrised(whitened))
    turned = root @ vectors
    return symmetrised((turned * np.maximum(values, 1.0)) @ turned.T)


def _norms(stack: FloatArray) -> FloatArray:
    """Squared Frobenius norms of each matrix of a stack."""
    return np.array([float(np.sum(matrix * matrix)) for matrix in stack])


# ---------------------------------------------------------------------------------------------
# Damping, verdict and report
# ---------------------------------------------------------------------------------------------


def _adapt(keep: float, step: FloatArray, last: FloatArray | None, fall: float = _FALL) -> float:
    """Damp more when the step turns round without shrinking, less when two steps agree."""
    if last is None:
        return keep
    size, last_size = float(np.sum(step * step)), float(np.sum(last * last))
    cosine = float(np.sum(step * last)) / math.sqrt(size * last_size) if size * last_size else 0.0
    if cosine < 0.0 and size > 0.9 * last_size:
        return min(1.0 - 0.75 * (1.0 - keep), _MOST_DAMPING)
    if cosine > 0.5:
        return max(1.0 - (1.0 + fall) * (1.0 - keep), _LEAST_DAMPING)
    return keep


def _fits(seen: Observation, problem: Problem) -> bool:
    """Whether the squares of g in the first pass are those of outputs of this prior and channel.

    Their ratio to the expectation has two sources of fluctuation: the outputs, as many Gaussian
    directions as the response counts, and the norm of the teacher, a matrix of so many parameters.
    The Nishimori identity holds for the mean of both; a wrong temperature moves it.
    """
    d, count = problem.start.shape[-2], problem.variances.size
    scaled = d * seen.response
    if not (np.isfinite(seen.squares).all() and np.trace(scaled) > 0.0):
        return True  # another verdict is due
    ratio = float(np.trace(_over(seen.squares, scaled))) / count
    directions = float(np.trace(scaled * problem.variances))
    spread = math.sqrt(2.0 / directions + 8.0 / max(problem.parameters, 1e-300))
    return ratio > 0.0 and abs(math.log(ratio)) <= _DISAGREEMENT * spread


def _is_sound(record: dict[str, Any], problem: Problem) -> bool:
    """Whether the squares of g are what the claimed error asks for, up to a factor.

    Where recovery is perfect the error may fall faster than the damped belief: small squares are
    then no contradiction.
    """
    if record["consistency"] > _CONTRADICTION:
        return False
    if record["consistency"] >= 1.0 / _CONTRADICTION:
        return True
    claims = np.diag(record["predicted_error"])
    return bool(np.all(claims < _ABSOLUTE_BELOW * problem.variances)) and problem.can_recover()


def _natural(value: Any, start: FloatArray) -> Any:
    """A number for one matrix, an array for a stack of them."""
    return np.asarray(value).item() if start.ndim == 2 else value


def _result(
    problem: Problem, estimate: FloatArray, status: Status, records: list[dict[str, Any]]
) -> AMPResult:
    start, error = problem.start, None
    if problem.teacher is not None:
        gap = estimate - problem.teacher.reshape(estimate.shape)
        error = _natural(_norms(gap) / estimate.shape[1], start)
    claim = records[-1]["predicted_error"] if records else np.diag(problem.variances)
    return AMPResult(
        estimate=estimate.reshape(start.shape),
        estimation_error=error,
        predicted_error=_natural(claim, start),
        status=status,
        converged=status == "converged",
        iterations=len(records),
        history={name: np.array([r[name] for r in records]) for name in (records or [{}])[0]},
    )


def _progress_bar(total: int, wanted: bool) -> Any:
    if not wanted or "ipykernel" in sys.modules:
        return None
    from tqdm import tqdm

    return tqdm(total=total, unit="iteration")


def _report(iteration: int, record: dict[str, Any], callback: Callback | None, bar: Any) -> None:
    if callback is not None:
        callback(iteration, dict(record))
    if bar is not None:
        bar.update()
        bar.set_postfix(predicted=f"{np.trace(np.atleast_2d(record['predicted_error'])):.3g}")
