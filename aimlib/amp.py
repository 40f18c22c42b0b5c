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
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from aimlib import _pairs as pairs
from aimlib._datasets import SequenceData
from aimlib._iteration import AMPResult, Callback, Denoised, Observation, Problem, iterate
from aimlib._products import add_squares, fill_forms, upper_half
from aimlib._shrinkage import CONTINUATIONS, Continuation, denoise_symmetric
from aimlib._validation import FloatArray
from aimlib.channels import Channel, output_function
from aimlib.priors import Prior

__all__ = ["AMPResult", "Problem", "amp", "iterate"]


def amp(
    dataset: SequenceData,
    prior: Prior,
    channel: Channel,
    *,
    iterations: int = 200,
    tolerance: float = 1e-6,
    damping: float | None = None,
    denoiser: Continuation = "tangent",
    onsager: Literal["divergence", "limit"] = "divergence",
    noise: Literal["residual", "response"] = "residual",
    response: Literal["channel", "squares"] = "channel",
    single_precision: bool = False,
    callback: Callback | None = None,
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
    single_precision : bool
        Multiply the tokens in single precision and sum over blocks in double.  It moves the
        estimate by less than 1e-6 of its norm, far less than the error of any finite size.
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
    pairs.match(prior, channel, ("dataset", dataset), weights="symmetric")
    pairs.match_tokens(channel, dataset, (channel.tokens,))
    for name, value, allowed in (
        ("denoiser", denoiser, CONTINUATIONS),
        ("onsager", onsager, ("divergence", "limit")),
        ("noise", noise, ("residual", "response")),
        ("response", response, ("channel", "squares")),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
    return iterate(
        SymmetricProblem(dataset, prior, channel, denoiser, single_precision),
        iterations=iterations,
        tolerance=tolerance,
        damping=damping,
        onsager=onsager,
        noise=noise,
        response=response,
        callback=callback,
        progress=progress,
    )


class SymmetricProblem:
    """One symmetric matrix behind a channel of its indices."""

    def __init__(
        self,
        dataset: SequenceData,
        prior: Prior,
        channel: Channel,
        denoiser: Continuation,
        single_precision: bool = False,
    ) -> None:
        self.dataset, self.prior, self.channel, self.denoiser = dataset, prior, channel, denoiser
        self.dtype = np.float32 if single_precision else np.float64
        self.start = prior.mean_eigenvalue * np.eye(dataset.dimension)
        self.teacher = dataset.teacher
        self.variances = np.array([prior.variance])
        self.second_moment = prior.second_moment
        self.coordinate_variance = pairs.coordinate_variance(prior)
        freedom = prior.degrees_of_freedom * dataset.dimension**2
        self.parameters = freedom / self.coordinate_variance
        self.g = np.zeros((len(dataset.outputs), 1, channel.tokens, channel.tokens))

    def observe(self, estimate: FloatArray, reaction: FloatArray, error: FloatArray) -> Observation:
        """One pass over the tokens, with the response of the channel information."""
        variance = float(error[0, 0])

        def output(rows: slice, omega: FloatArray) -> FloatArray:
            y = self.dataset.outputs[rows]
            return output_function(self.channel, y, omega[:, 0], variance)[:, None]

        fields, squares = symmetric_pass(
            self.dataset, estimate, reaction, self.g, output, self.dtype
        )
        n, d, total = len(self.g), estimate.shape[1], self.second_moment
        c = float(self.channel.information_at(min(variance, total), total))
        return Observation(fields, squares, np.array([[n / d * c / variance]]))

    def denoise(self, observed: FloatArray, noise: FloatArray) -> Denoised:
        """The optimal denoiser, continued outside the limiting support."""
        delta = float(noise[0, 0])
        estimate, divergence = denoise_symmetric(observed[0], delta, self.prior, self.denoiser)
        predicted = np.array([[self.prior.mmse(delta)]])
        return Denoised(estimate[None], np.array([[divergence]]), predicted)

    def can_recover(self) -> bool:
        """Whether an output still says something when its indices are nearly known."""
        return float(self.channel.information_at(0.0, self.second_moment)) > 0.0


# ---------------------------------------------------------------------------------------------
# The output side: one pass over the tokens
# ---------------------------------------------------------------------------------------------


def symmetric_pass(
    dataset: SequenceData,
    estimates: FloatArray,
    reaction: FloatArray,
    g: FloatArray,
    output: Callable[[slice, FloatArray], FloatArray],
    dtype: Any = np.float64,
) -> tuple[FloatArray, FloatArray]:
    """Update g, shape (n, L, T, T), in place; return sums of g Z, (L, d, d), and of g g^T, (L, L).

    Every block is read once for all matrix products, while it is in the cache.  ``output`` returns
    the new g of a block from its rows and its omega.  Squares count pairs a <= b with 1 + delta_ab.
    The products are done in ``dtype``, the sums over blocks in double precision.
    """
    count, d = estimates.shape[:2]
    t = g.shape[-1]
    weights = 1.0 + np.eye(t)
    fields, squares = np.zeros((count, d, d)), np.zeros((count, count))
    diagonal = np.zeros(count)
    halves = np.sqrt(0.5 + 1.5 * np.eye(t))
    upper = [upper_half(estimate, dtype) for estimate in estimates]
    for rows, (tokens,) in dataset.blocks():
        tokens = tokens.astype(dtype, copy=False)
        scratch = np.empty_like(tokens)
        omega = np.empty((len(tokens), count, t, t))
        for k, estimate in enumerate(estimates):
            fill_forms(tokens, upper[k], scratch, omega[:, k])
            omega[:, k] -= np.trace(estimate) * np.eye(t)
        omega /= math.sqrt(d)
        omega -= weights * _mixed(reaction, g[rows])
        block = output(rows, omega)
        g[rows] = block
        squares += _weighted_squares(block, halves)
        for k in range(count):
            diagonal[k] += float(np.trace(block[:, k], axis1=1, axis2=2).sum())
            add_squares(tokens, 0.5 * weights * block[:, k], scratch, fields[k])
    fields = np.tril(fields) + np.tril(fields, -1).transpose(0, 2, 1)
    fields[:, np.arange(d), np.arange(d)] -= diagonal[:, None]
    return fields / math.sqrt(d), squares


def _mixed(reaction: FloatArray, g: FloatArray) -> FloatArray:
    return reaction * g if reaction.size == 1 else np.einsum("lm,nmab->nlab", reaction, g)


def _weighted_squares(g: FloatArray, halves: FloatArray) -> FloatArray:
    """Sums over a <= b of (1 + delta_ab) g_ab g_ab^T between the matrices."""
    if g.shape[1] == 1:
        diagonal = np.diagonal(g[:, 0], axis1=1, axis2=2)
        return np.array([[0.5 * np.sum(g * g) + 1.5 * np.sum(diagonal * diagonal)]])
    flat = (g * halves).transpose(1, 0, 2, 3).reshape(g.shape[1], -1)
    return np.asarray(flat @ flat.T)
