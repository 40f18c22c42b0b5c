r"""Approximate message passing for one layer of attention, matrix-free.

With the sensing matrices :math:`Z_{ab} = (x_ax_b^\top+x_bx_a^\top)/(2\sqrt d)-\delta_{ab}I/\sqrt d`
the indices are :math:`h_{ab}=\mathrm{Tr}(SZ_{ab})`, and one iteration is (``amp:iteration``)

.. math::
    \omega_{ab} &= \mathrm{Tr}(\hat S Z_{ab}) - (1+\delta_{ab})\,b\,g_{ab}^{\rm old},\qquad
    g = g_{out}(y,\omega,V),\\
    R &= \hat S + \frac1A\sum g_{ab}Z_{ab},\qquad A = \alpha d\,c/V,\qquad
    \Delta = \frac{1}{2A^2}\sum(1+\delta_{ab})\,g_{ab}^2,\\
    \hat S &= D_\Delta(R),\qquad b = \frac{\mathrm{div}\,D_\Delta(R)}{d\,A},\qquad
    V = \mathrm{mmse}(\Delta).

No sensing matrix is ever formed: one pass over the tokens, in blocks that stay in the processor's
cache, does the two matrix products that carry all the work.  The textbook form of the iteration
takes three of these numbers from the infinite-size theory and diverges at any size that fits a
computer; the chapter "Message passing" explains which three, and why the form above does not.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._compile import njit
from aimlib._validation import FloatArray
from aimlib.channels import Channel, Informative, output_function
from aimlib.model import TOKEN_LAWS, AttentionIndexedModel, Dataset, attention_indices
from aimlib.priors import Denoised, Estimated, Prior

__all__ = ["AMPResult", "StreamedDataset", "amp"]

Denoiser = Literal["tangent", "clip", "edge", "resolvent", "empirical"]
_DENOISERS = ("tangent", "clip", "edge", "resolvent", "empirical")
_BLOCK_BYTES = 1 << 20  # tokens of one block: small enough for the cache, large enough for BLAS
_LEAST_DAMPING, _MOST_DAMPING = 0.3, 0.95
_FALL = 0.02  # share by which the undamped part grows when two steps agree
_NOISE_FLOOR = 0.25  # measured noise over that of the response: four times the data, at most
_ABSOLUTE_BELOW = 1e-4  # share of the prior variance below which the tolerance is absolute
_CONTRADICTION = 10.0  # factor between the squares of g and their expectation, either way
_OUT_OF_RANGE = 1e4  # self-overlap, relative to the second moment, that counts as divergence


# ---------------------------------------------------------------------------------------------
# Data sets larger than memory
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamedDataset:
    r"""Sequences whose tokens are never held in memory: a block of them is made when needed.

    What is held is :math:`O(d^2)`: the outputs, ``n T^2`` numbers with :math:`n=\alpha d^2`, and
    the teacher.

    Parameters
    ----------
    source : callable
        ``source(k)`` returns the tokens of block k, shape (block, T, d); the last may be shorter.
    block : int
        Sequences in a block.
    outputs : array, shape (n, T, T)
    dimension : int
        Embedding dimension d.
    teacher : array, shape (d, d), optional

    Examples
    --------
    >>> from aimlib import AttentionIndexedModel, SoftmaxChannel, WishartPrior
    >>> model = AttentionIndexedModel(20, WishartPrior(0.5), SoftmaxChannel(tokens=2))
    >>> data = StreamedDataset.regenerate(model, 0.5, seed=1, block=64)
    >>> data.outputs.shape, data.source(0).shape, data.source(3).shape
    ((200, 2, 2), (64, 2, 20), (8, 2, 20))
    """

    source: Callable[[int], FloatArray]
    block: int
    outputs: FloatArray
    dimension: int
    teacher: FloatArray | None = None

    def __post_init__(self) -> None:
        check.integer("block", self.block, low=1)
        d = check.integer("dimension", self.dimension, low=1)
        outputs = check.reals("outputs", self.outputs)
        if outputs.ndim != 3 or outputs.shape[1] != outputs.shape[2] or 0 in outputs.shape:
            raise ValueError(f"outputs must have shape (n, T, T), got shape {outputs.shape}")
        object.__setattr__(self, "outputs", outputs)
        if self.teacher is not None:
            teacher = check.symmetric_matrix("teacher", self.teacher)
            if teacher.shape != (d, d):
                raise ValueError(f"teacher must have shape {(d, d)}, got shape {teacher.shape}")
            object.__setattr__(self, "teacher", teacher)

    @classmethod
    def regenerate(
        cls,
        model: AttentionIndexedModel,
        sample_complexity: float,
        seed: int,
        block: int = 1024,
    ) -> StreamedDataset:
        """Draw every block again from its own seed in each pass: no disk, no memory.

        Parameters
        ----------
        model : AttentionIndexedModel
        sample_complexity : float
            alpha > 0, large enough for at least one sequence.
        seed : int
            The only source of randomness; every block has its own stream.
        block : int
            Sequences in a block.
        """
        alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
        root = check.integer("seed", seed, low=0)
        size = check.integer("block", block, low=1)
        d, t = model.dimension, model.channel.tokens
        n = round(alpha * d * d)
        if n < 1:
            raise ValueError(
                f"sample_complexity must be at least 0.5/dimension^2 = {0.5 / d**2:g}, "
                f"got {alpha!r}"
            )
        teacher = model.prior.sample(d, np.random.default_rng([root, 0]))

        def source(k: int) -> FloatArray:
            rng = np.random.default_rng([root, 1, k])
            return TOKEN_LAWS[model.token_law](rng, (min(size, n - k * size), t, d))

        outputs = np.empty((n, t, t))
        for k in range(-(-n // size)):
            noise = np.random.default_rng([root, 2, k])
            indices = attention_indices(source(k), teacher)
            outputs[k * size : (k + 1) * size] = model.channel.output(indices, noise)
        return cls(source, size, outputs, d, teacher)

    @classmethod
    def mapped(
        cls,
        tokens: np.ndarray[Any, Any],
        outputs: ArrayLike,
        teacher: ArrayLike | None = None,
        block: int = 1024,
    ) -> StreamedDataset:
        """Read blocks of an array that may be mapped from a file (``numpy.load(mmap_mode="r")``).

        Parameters
        ----------
        tokens : array, shape (n, T, d)
            Not copied; each block is converted to float64 when it is read.
        outputs : array, shape (n, T, T)
        teacher : array, shape (d, d), optional
        block : int
            Sequences in a block.
        """
        shown = check.reals("outputs", outputs)
        if tokens.ndim != 3 or shown.shape[:1] + shown.shape[-1:] != tokens.shape[:2]:
            raise ValueError(
                f"tokens must have shape (n, T, d) with n and T of outputs, {shown.shape}, "
                f"got shape {tokens.shape}"
            )
        size = check.integer("block", block, low=1)

        def source(k: int) -> FloatArray:
            return check.reals("tokens", tokens[k * size : (k + 1) * size])

        known = None if teacher is None else check.symmetric_matrix("teacher", teacher)
        return cls(source, size, shown, int(tokens.shape[2]), known)


# ---------------------------------------------------------------------------------------------
# Result
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AMPResult:
    """Where message passing ended, and how it got there.

    Attributes
    ----------
    estimate : array, shape (d, d)
        The last finite iterate.
    estimation_error : float or None
        ||S - estimate||_F^2/d; None when the data set has no teacher.
    predicted_error : float
        The error that the algorithm claims, mmse of its measured noise; needs no teacher.
    status : {"converged", "stalled", "diverged"}
        "converged" when the residual fell below the tolerance, "stalled" when it did not within
        the iterations allowed, "diverged" when an iterate left all bounds or when the squares of g
        are off tenfold from what the claimed error asks: a fixed point that contradicts itself.
    converged : bool
        Whether status is "converged".
    iterations : int
        Iterations done.
    history : dict of str to array, shape (iterations,)
        Entry t belongs to iteration t + 1.  "predicted_error"; "noise" Delta; "onsager" b;
        "damping"; "overlap" ||estimate||_F^2/d; "residual" ||D(R) - estimate||_F^2/d, which damping
        does not shrink; "consistency", the squares of g over their expectation at V, which is 1
        where the posterior is right; with a teacher "estimation_error" of the undamped D(R).
    """

    estimate: FloatArray
    estimation_error: float | None
    predicted_error: float
    status: Literal["converged", "stalled", "diverged"]
    converged: bool
    iterations: int
    history: dict[str, FloatArray]


# ---------------------------------------------------------------------------------------------
# The iteration
# ---------------------------------------------------------------------------------------------


def amp(
    dataset: Dataset | StreamedDataset,
    prior: Prior,
    channel: Channel,
    *,
    iterations: int = 200,
    tolerance: float = 1e-6,
    damping: float | None = None,
    denoiser: Denoiser = "tangent",
    onsager: Literal["divergence", "limit"] = "divergence",
    noise: Literal["residual", "response"] = "residual",
    response: Literal["channel", "squares"] = "channel",
    callback: Callable[[int, dict[str, float]], object] | None = None,
    progress: bool = False,
) -> AMPResult:
    r"""Estimate the attention weights by approximate message passing (``amp:iteration``).

    Parameters
    ----------
    dataset : Dataset or StreamedDataset
        The teacher, if there is one, is used for ``estimation_error`` only.
    prior : Prior
        Law of the weights.
    channel : Channel
        From indices to outputs.
    iterations : int
        Most iterations to do.
    tolerance : float
        Converged when :math:`\|D(R)-\hat S\|_F^2/d` is at most this share of the predicted error.
        The left side is the undamped step, so that damping cannot fake convergence.  Below 1e-4 of
        the variance of the prior the share is of that: perfect recovery has no end.
    damping : float, optional
        Share of the old estimate that is kept, in [0, 1).  By default it starts at 0.3 and adapts:
        successive steps that point against each other without shrinking raise it, steps that
        agree lower it.
    denoiser : {"tangent", "clip", "edge", "resolvent", "empirical"}
        What to do with eigenvalues of R outside the limiting support: continue D from the nearest
        edge along its tangent (default); hold D at its value there; hold the resolvent there;
        follow the resolvent.  "empirical" uses the smoothed spectrum of R itself in place of the
        limiting one.
    onsager : {"divergence", "limit"}
        The reaction term from the divergence of the denoiser that was applied, or its limit
        mmse(Delta).
    noise : {"residual", "response"}
        Delta from the squares of g, at least a quarter of d/(2A); or from the response alone,
        d/(2A).
    response : {"channel", "squares"}
        A from the channel information, :math:`\alpha d\,c/V`, or from the squares of g.
    callback : callable, optional
        Called as ``callback(iteration, record)`` after each iteration; ``record`` holds the
        entries of ``history``.
    progress : bool
        Show a progress bar (needs tqdm); none is shown inside a notebook kernel.

    Returns
    -------
    AMPResult

    Raises
    ------
    ValueError
        If an argument is out of range or the channel does not fit the outputs.

    Notes
    -----
    The four choices with defaults are there to study their effect.  The textbook iteration is
    ``denoiser="resolvent", onsager="limit", response="squares", damping=0.0``.

    Memory beyond the data set is O(n T^2 + d^2) plus one block.

    Examples
    --------
    >>> from aimlib import AttentionIndexedModel, SoftmaxChannel, WishartPrior
    >>> prior, channel = WishartPrior(0.5), SoftmaxChannel(tokens=2)
    >>> data = AttentionIndexedModel(40, prior, channel).sample(0.4, seed=1)
    >>> result = amp(data, prior, channel)
    >>> result.status, result.estimation_error < 1e-6
    ('converged', True)
    """
    _check_options(dataset, channel, denoiser, onsager, noise, response)

    def sweep(
        estimate: FloatArray, reaction: float, variance: float, g: FloatArray
    ) -> tuple[FloatArray, float]:
        return _pass(dataset, channel, estimate, reaction, variance, g)

    problem = Problem(
        prior=prior,
        channel=channel,
        start=prior.mean_eigenvalue * np.eye(dataset.dimension),
        outputs_shape=dataset.outputs.shape,
        teacher=dataset.teacher,
        sweep=sweep,
        denoise=lambda observed, delta: _denoise(observed, delta, prior, denoiser),
    )
    return iterate(
        problem,
        iterations=iterations,
        tolerance=tolerance,
        damping=damping,
        onsager=onsager,
        noise=noise,
        response=response,
        callback=callback,
        progress=progress,
    )


@dataclass(frozen=True)
class Problem:
    """What the iteration needs to know of a model, whatever the shape of its weights.

    Attributes
    ----------
    prior, channel
        Their state evolution.
    start : array, shape (d, d') or (d, d)
        The estimate without data.
    outputs_shape : tuple
        Shape of g, with the number of sequences first.
    teacher : array of the shape of ``start``, or None
    sweep : callable
        ``sweep(estimate, reaction, variance, g)`` updates g in place and returns sum of g Z and the
        weighted squares of g.
    denoise : callable
        ``denoise(R, noise)`` returns D(R) and its divergence.
    """

    prior: Estimated
    channel: Informative
    start: FloatArray
    outputs_shape: tuple[int, ...]
    teacher: FloatArray | None
    sweep: Callable[[FloatArray, float, float, FloatArray], tuple[FloatArray, float]]
    denoise: Callable[[FloatArray, float], tuple[FloatArray, float]]


def iterate(
    problem: Problem,
    *,
    iterations: int,
    tolerance: float,
    damping: float | None,
    onsager: str = "divergence",
    noise: str = "residual",
    response: str = "channel",
    settle: float = 1.0,
    callback: Callable[[int, dict[str, float]], object] | None = None,
    progress: bool = False,
) -> AMPResult:
    """Run the iteration on a problem; arguments as in :func:`amp`.

    ``settle`` is the factor by which every rise of the adaptive damping slows its later falls:
    below 1 a damping that has to rise again and again comes to rest.
    """
    most = check.integer("iterations", iterations, low=1)
    tol = check.real("tolerance", tolerance, low=0.0, open_low=True)
    if damping is not None:
        check.real("damping", damping, low=0.0, high=1.0, open_high=True)
    prior, channel, estimate, teacher = (
        problem.prior,
        problem.channel,
        problem.start,
        problem.teacher,
    )
    d, n = estimate.shape[0], problem.outputs_shape[0]
    g = np.zeros(problem.outputs_shape)
    variance, reaction = prior.variance, 0.0
    keep = _LEAST_DAMPING if damping is None else float(damping)
    last_step: FloatArray | None = None
    fall = _FALL
    records: list[dict[str, float]] = []
    status: Literal["converged", "stalled", "diverged"] = "stalled"
    bar = _progress_bar(most, progress)
    for iteration in range(1, most + 1):
        total, squares = problem.sweep(estimate, reaction, variance, g)
        c = channel.information_at(min(variance, prior.second_moment), prior.second_moment)
        expected = n / d * float(c) / variance
        slope = expected if response == "channel" else squares / d
        if slope <= 0.0 or not (math.isfinite(slope) and np.isfinite(total).all()):
            status = "diverged"
            break
        delta = d / (prior.coordinate_noise * slope)
        if noise == "residual":
            # outputs that a small set can fit exactly must not make the belief collapse
            measured = squares / (prior.coordinate_noise * slope * slope)
            delta = max(measured, _NOISE_FLOOR * delta)
        denoised, divergence = problem.denoise(estimate + total / slope, delta)
        step = denoised - estimate
        if damping is None:
            before, keep = keep, _adapt(keep, step, last_step, fall)
            fall *= settle if keep > before else 1.0
        predicted = prior.mmse(float(delta))
        reaction = divergence / (d * slope) if onsager == "divergence" else predicted
        record = {
            "predicted_error": predicted,
            "noise": float(delta),
            "onsager": float(reaction),
            "damping": keep,
            "overlap": float(np.sum(denoised * denoised)) / d,
            "residual": float(np.sum(step * step)) / d,
            "consistency": squares / (d * expected),
        }
        if teacher is not None:
            record["estimation_error"] = float(np.sum((denoised - teacher) ** 2)) / d
        if not record["overlap"] < _OUT_OF_RANGE * prior.second_moment:
            status = "diverged"
            break
        records.append(record)
        _report(iteration, record, callback, bar)
        if record["residual"] <= tol * max(predicted, _ABSOLUTE_BELOW * prior.variance):
            estimate = denoised
            status = "converged" if _is_sound(record, prior, channel) else "diverged"
            break
        estimate = estimate + (1.0 - keep) * step
        variance = max(keep * variance + (1.0 - keep) * predicted, 1e-290)
        last_step = step
    if bar is not None:
        bar.close()
    return _result(problem, estimate, status, records)


def _is_sound(record: dict[str, float], prior: Estimated, channel: Informative) -> bool:
    """Whether the squares of g are what the claimed error asks for, up to a factor.

    Where recovery is perfect the error may fall faster than the damped belief: small squares are
    then no contradiction.
    """
    recovered = (
        record["predicted_error"] < _ABSOLUTE_BELOW * prior.variance
        and float(channel.information_at(0.0, prior.second_moment)) > 0.0
    )
    least = 0.0 if recovered else 1.0 / _CONTRADICTION
    return least <= record["consistency"] <= _CONTRADICTION


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


def _result(
    problem: Problem,
    estimate: FloatArray,
    status: Literal["converged", "stalled", "diverged"],
    records: list[dict[str, float]],
) -> AMPResult:
    history = {name: np.array([r[name] for r in records]) for name in (records or [{}])[0]}
    error = None
    if problem.teacher is not None:
        error = float(np.sum((estimate - problem.teacher) ** 2)) / estimate.shape[0]
    return AMPResult(
        estimate=estimate,
        estimation_error=error,
        predicted_error=records[-1]["predicted_error"] if records else problem.prior.variance,
        status=status,
        converged=status == "converged",
        iterations=len(records),
        history=history,
    )


# ---------------------------------------------------------------------------------------------
# The output side: one pass over the tokens
# ---------------------------------------------------------------------------------------------


def _blocks(dataset: Dataset | StreamedDataset) -> Iterator[tuple[slice, FloatArray]]:
    """Yield the rows of each block and its tokens."""
    n, t = dataset.outputs.shape[:2]
    d = dataset.dimension
    if isinstance(dataset, Dataset):
        size = max(_BLOCK_BYTES // (8 * t * d), 64)
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            yield rows, dataset.tokens[rows]
        return
    for k in range(-(-n // dataset.block)):
        rows = slice(k * dataset.block, min((k + 1) * dataset.block, n))
        tokens = np.ascontiguousarray(dataset.source(k), dtype=np.float64)
        if tokens.shape != (rows.stop - rows.start, t, d):
            raise ValueError(
                f"source must return tokens of shape {(rows.stop - rows.start, t, d)} for block "
                f"{k}, got shape {tokens.shape}"
            )
        yield rows, tokens


def _pass(
    dataset: Dataset | StreamedDataset,
    channel: Channel,
    estimate: FloatArray,
    reaction: float,
    variance: float,
    g: FloatArray,
) -> tuple[FloatArray, float]:
    """Update g in place; return sum of g Z, shape (d, d), and sum of (1 + delta) g^2, a <= b.

    Every block is read once for both matrix products, while it is in the cache.
    """
    d, t = dataset.dimension, channel.tokens
    weights = 1.0 + np.eye(t)
    total = np.zeros((d, d))
    squares, diagonal = 0.0, 0.0
    for rows, tokens in _blocks(dataset):
        m = tokens.shape[0]
        flat = tokens.reshape(m * t, d)
        projected = (flat @ estimate).reshape(m, t, d)
        omega = np.empty((m, t, t))
        _contract(tokens, projected, omega)
        omega -= np.trace(estimate) * np.eye(t)
        omega /= math.sqrt(d)
        omega -= weights * reaction * g[rows]
        block = output_function(channel, dataset.outputs[rows], omega, variance)
        g[rows] = block
        squares += _weighted_squares(block)
        diagonal += float(np.trace(block, axis1=1, axis2=2).sum())
        _combine(tokens, 0.5 * weights * block, projected)  # projected now holds G X
        total += flat.T @ projected.reshape(m * t, d)
    total = 0.5 * (total + total.T)
    total[np.diag_indices(d)] -= diagonal
    return total / math.sqrt(d), squares


def _contract(tokens: FloatArray, projected: FloatArray, out: FloatArray) -> None:
    """Fill x_a^T S x_b, symmetric to the last bit."""
    t = tokens.shape[1]
    for a in range(t):
        for b in range(a + 1):
            out[:, a, b] = out[:, b, a] = np.vecdot(tokens[:, a], projected[:, b])


@njit
def _combine(tokens: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    """Fill G X for each sequence."""
    for k in range(tokens.shape[0]):
        for a in range(tokens.shape[1]):
            for i in range(tokens.shape[2]):
                out[k, a, i] = weights[k, a, 0] * tokens[k, 0, i]
            for b in range(1, tokens.shape[1]):
                weight = weights[k, a, b]
                for i in range(tokens.shape[2]):
                    out[k, a, i] += weight * tokens[k, b, i]


def _weighted_squares(g: FloatArray) -> float:
    """Sum over a <= b of (1 + delta_ab) g_ab^2."""
    diagonal = np.diagonal(g, axis1=1, axis2=2)
    return float(0.5 * np.sum(g * g) + 1.5 * np.sum(diagonal * diagonal))


# ---------------------------------------------------------------------------------------------
# The prior side: the matrix denoiser and its divergence
# ---------------------------------------------------------------------------------------------


def _denoise(
    observed: FloatArray, delta: float, prior: Prior, denoiser: Denoiser
) -> tuple[FloatArray, float]:
    """Return D(R) and div D: the sum of dD_ij/dR_ij over i <= j (amp:divergence)."""
    eigenvalues, vectors = np.linalg.eigh(observed)
    values = shrink(eigenvalues, delta, prior, denoiser)
    if denoiser == "empirical":  # each value depends on all eigenvalues; differences do for slopes
        slopes = np.gradient(values, eigenvalues) if eigenvalues.size > 1 else np.zeros(1)
    else:
        slopes = shrink_slopes(eigenvalues, delta, prior, denoiser)
    estimate = (vectors * values) @ vectors.T
    return 0.5 * (estimate + estimate.T), _spectral_divergence(eigenvalues, values, slopes)


def shrink(lam: FloatArray, delta: float, prior: Denoised, denoiser: Denoiser) -> FloatArray:
    """Return D(lambda) with the chosen continuation outside the support."""
    if denoiser == "empirical":
        smooth = math.sqrt(2.0 * delta) * lam.size ** (-1.0 / 3.0)
        gaps = lam[:, None] - lam
        real = np.sum(gaps / (gaps * gaps + smooth * smooth), axis=1) / lam.size
        return np.asarray(lam - 2.0 * delta * real)
    if denoiser == "edge" or denoiser == "resolvent":
        return prior.shrink(lam, delta, denoiser)
    edges = prior.support(delta).ravel()
    nearest = np.argmin(np.abs(lam[:, None] - edges), axis=1)
    inside = np.searchsorted(edges, lam) % 2 == 1
    values = prior.shrink(np.where(inside, lam, edges[nearest]), delta, "edge")
    if denoiser == "tangent":
        inward = np.repeat(1e-4 * np.diff(edges)[::2], 2) * np.tile([1.0, -1.0], edges.size // 2)
        ends, near = prior.shrink(np.stack([edges, edges + inward]), delta, "edge")
        slopes = ((near - ends) / inward)[nearest]
        values = values + np.where(inside, 0.0, slopes * (lam - edges[nearest]))
    return values


def shrink_slopes(lam: FloatArray, delta: float, prior: Denoised, denoiser: Denoiser) -> FloatArray:
    """Return D'(lambda) of the denoiser that is applied, by central differences."""
    reach = 1e-4 * math.sqrt(delta)
    above = shrink(lam + reach, delta, prior, denoiser)
    below = shrink(lam - reach, delta, prior, denoiser)
    return np.asarray((above - below) / (2.0 * reach))


@njit
def _spectral_divergence(lam: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> float:
    """Sum of D'(lam_i) and, over pairs, of (D_i - D_j)/(lam_i - lam_j)."""
    scale = 1e-13 * (abs(lam[0]) + abs(lam[-1]))
    total = 0.0
    for i in range(lam.size):
        total += slopes[i]
        for j in range(i):
            gap = lam[i] - lam[j]
            if gap > scale:
                total += (values[i] - values[j]) / gap
            else:
                total += 0.5 * (slopes[i] + slopes[j])
    return total


# ---------------------------------------------------------------------------------------------
# The border
# ---------------------------------------------------------------------------------------------


def _check_options(
    dataset: Dataset | StreamedDataset,
    channel: Channel,
    denoiser: str,
    onsager: str,
    noise: str,
    response: str,
) -> None:
    if not isinstance(dataset, (Dataset, StreamedDataset)):
        raise TypeError(f"dataset must be a Dataset or StreamedDataset, got {type(dataset)!r}")
    if dataset.outputs.shape[1] != channel.tokens:
        raise ValueError(
            f"channel must have the {dataset.outputs.shape[1]} tokens of the dataset, "
            f"got tokens = {channel.tokens}"
        )
    for name, value, allowed in (
        ("denoiser", denoiser, _DENOISERS),
        ("onsager", onsager, ("divergence", "limit")),
        ("noise", noise, ("residual", "response")),
        ("response", response, ("channel", "squares")),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, got {value!r}")


def _progress_bar(total: int, wanted: bool) -> Any:
    if not wanted or "ipykernel" in sys.modules:
        return None
    from tqdm import tqdm

    return tqdm(total=total, unit="iteration")


def _report(
    iteration: int,
    record: dict[str, float],
    callback: Callable[[int, dict[str, float]], object] | None,
    bar: Any,
) -> None:
    if callback is not None:
        callback(iteration, dict(record))
    if bar is not None:
        bar.update()
        bar.set_postfix(predicted=f"{record['predicted_error']:.3g}")
