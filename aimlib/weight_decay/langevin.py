r"""Samples of the posterior of tied weights: Metropolis-adjusted Langevin dynamics.

The entries of W have a Gaussian prior, so that :math:`S=WW^\top/\sqrt{rd}` is Wishart, and every
visible combination of the indices has Gaussian noise of variance :math:`\sigma^2`: the energy is
(``weight_decay:energy``)

.. math:: U(W) = \tfrac12\|W\|_F^2+\frac1{4\sigma^2}\sum_\mu\|P(h_\mu(W)-y_\mu)\|_F^2 .

A proposal draws a momentum, takes a number of leapfrog steps and is accepted by Metropolis' rule,
which makes the posterior exactly invariant.  One step is MALA; more go further before the momentum
is forgotten.  The noise falls from one to :math:`\sigma^2` before anything is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from aimlib import _validation as check
from aimlib._projections import through_indices
from aimlib._training import estimates_of
from aimlib._validation import FloatArray
from aimlib.channels import Channel
from aimlib.model import Dataset
from aimlib.weight_decay.fit import Visible

_GOAL = 0.8  # share of accepted proposals that the step size is tuned to
_GAIN = 0.1  # of the logarithm of the step size, per proposal


@dataclass(frozen=True)
class PosteriorSamples:
    """What several chains saw of the posterior.

    Attributes
    ----------
    samples : array, shape (chains, d, d)
        The last S of each chain.
    means : array, shape (chains, d, d)
        The mean of S over the kept part of each chain.
    norms : array, shape (chains,)
        The mean of Tr S^2/d over the kept part.
    energies : array, shape (proposals,)
        Misfit of the data, sum ||P(h - y)||^2/(4 noise), mean over chains, per degree n c of
        freedom; one half if the noise explained all of it.
    acceptance : array, shape (chains,)
        Share of kept proposals that were accepted.
    step_size : array, shape (chains,)
    weights : array, shape (chains, d, r)
        The last W of each chain.
    noise : float
    """

    samples: FloatArray
    means: FloatArray
    norms: FloatArray
    energies: FloatArray
    acceptance: FloatArray
    step_size: FloatArray
    weights: FloatArray
    noise: float

    @property
    def estimate(self) -> FloatArray:
        """The mean of all chains, the estimate of the posterior mean, shape (d, d)."""
        return np.asarray(self.means.mean(axis=0))


def posterior_samples(
    dataset: Dataset,
    width: int,
    channel: Channel | None = None,
    *,
    noise: float,
    seed: int | np.random.SeedSequence | np.random.Generator,
    chains: int = 4,
    annealing: int = 400,
    proposals: int = 200,
    leapfrog: int = 30,
    initial_weights: FloatArray | None = None,
) -> PosteriorSamples:
    r"""Sample the posterior of S given outputs with noise (``weight_decay:energy``).

    Parameters
    ----------
    dataset : Dataset
    width : int
        r; the prior is that of ``WishartPrior(width / d)``.
    channel : SoftmaxChannel or LinearChannel, optional
        Softmax at inverse temperature 1 by default.
    noise : float
        :math:`\sigma^2 > 0`, in every visible combination of unit norm.  Noise of this variance is
        added to those of a softmax, so that data and model agree; a linear channel's are taken as
        they are, with variance :math:`(1+\delta_{ab})\sigma^2` in the index ab.
    seed : int, SeedSequence or Generator
        Of that noise, the starts and the dynamics.
    chains : int
        Independent chains, each started at a draw of the prior.
    annealing : int
        Proposals before anything is kept; over the first half the noise falls from one.
    proposals : int
        Kept after it.
    leapfrog : int
        Leapfrog steps in a proposal; 1 is MALA.
    initial_weights : array, shape (chains, d, r), optional
        Start here and at the final noise, for example at the teacher.

    Returns
    -------
    PosteriorSamples

    Raises
    ------
    ValueError
        If an argument is out of range, or the channel does not fit the data.

    Examples
    --------
    >>> from aimlib import AttentionIndexedModel, SoftmaxChannel, WishartPrior
    >>> data = AttentionIndexedModel(8, WishartPrior(0.5), SoftmaxChannel(2)).sample(0.1, seed=1)
    >>> found = posterior_samples(data, 4, noise=0.1, seed=2, annealing=20, proposals=10)
    >>> found.samples.shape
    (4, 8, 8)
    """
    visible = Visible(dataset, channel)
    r = check.integer("width", width, low=1)
    sigma2 = check.real("noise", noise, low=0.0, open_low=True)
    count = check.integer("chains", chains, low=1)
    before = check.integer("annealing", annealing, low=0)
    kept = check.integer("proposals", proposals, low=1)
    leaps = check.integer("leapfrog", leapfrog, low=1)
    noise_rng, start_rng, rng = check.generator("seed", seed).spawn(3)
    d = dataset.dimension
    w = start_rng.standard_normal((count, d, r))
    if initial_weights is not None:
        w = check.reals("initial_weights", initial_weights).copy()
        if w.shape != (count, d, r):
            raise ValueError(f"initial_weights must have shape {(count, d, r)}, got {w.shape}")
    if visible.centred:
        visible.data = visible.data + math.sqrt(sigma2) * visible.project(
            _symmetric_noise(visible.data.shape, noise_rng)
        )
    chain = _Chain(visible, w, rng, leaps)
    hot = 0.5 * before if initial_weights is None else 0.0
    for k in range(before):
        chain.set_noise(sigma2 ** min(k / hot, 1.0) if hot else sigma2)
        chain.advance(tune=True)
    chain.set_noise(sigma2)
    sums, norms, energies = np.zeros((count, d, d)), np.zeros(count), []
    chain.accepted[:] = 0.0
    for _ in range(kept):
        chain.advance(tune=False)
        s = estimates_of(chain.w)
        sums += s
        norms += np.sum(s * s, axis=(1, 2)) / d
        energies.append(float(chain.misfit.mean()) / sigma2)
    t = visible.data.shape[1]
    freedom = len(visible.data) * (0.5 * t * (t + 1.0) - float(visible.centred))
    return PosteriorSamples(
        samples=estimates_of(chain.w),
        means=sums / kept,
        norms=norms / kept,
        energies=np.array(energies) / freedom,
        acceptance=chain.accepted / kept,
        step_size=chain.step.copy(),
        weights=chain.w,
        noise=sigma2,
    )


def _symmetric_noise(shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """Symmetric matrices of variance 1 + delta_ab: one in every combination of unit norm."""
    z = rng.standard_normal(shape)
    return np.asarray((z + z.swapaxes(-1, -2)) / math.sqrt(2.0))


class _Chain:
    """The state of all chains: weights, energies, gradients and step sizes."""

    def __init__(
        self, visible: Visible, w: FloatArray, rng: np.random.Generator, leaps: int
    ) -> None:
        self.visible, self.w, self.rng, self.leaps = visible, w, rng, leaps
        self.noise = 1.0
        self.accepted = np.zeros(len(w))
        self.step = np.full(len(w), 0.1)
        self.misfit, self.slope = self._evaluate(w)

    def _evaluate(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum of ||P(h - y)||^2/4 for each chain, and its gradient in W."""
        visible = self.visible

        def pointwise(h: Any) -> tuple[Any, Any]:
            gaps = h - visible.data
            if visible.centred:
                gaps -= gaps.mean(axis=(-2, -1), keepdims=True)
            return 0.25 * np.sum(gaps * gaps, axis=(2, 3)), 0.5 * gaps

        values, direction = through_indices(w, visible.tokens, pointwise)
        scale = 2.0 / (visible.dimension * math.sqrt(w.shape[2]))
        return values.sum(axis=1), scale * direction

    def set_noise(self, noise: float) -> None:
        """The step shrinks with the noise, as the stiffest directions ask."""
        self.step *= math.sqrt(noise / self.noise)
        self.noise = noise

    def advance(self, tune: bool) -> None:
        """One proposal of every chain.  The length varies, so that no period is hit."""
        step = (self.step * self.rng.uniform(0.7, 1.3, size=len(self.w)))[:, None, None]
        p = self.rng.standard_normal(self.w.shape)
        start = self._energy(self.w, self.misfit, p)
        w, misfit, slope = self.w, self.misfit, self.slope
        with np.errstate(over="ignore", invalid="ignore"):  # a step too long is rejected below
            for _ in range(self.leaps):
                p = p - 0.5 * step * (w + slope / self.noise)
                w = w + step * p
                misfit, slope = self._evaluate(w)
                p = p - 0.5 * step * (w + slope / self.noise)
            change = self._energy(w, misfit, p) - start
            chance = np.exp(np.minimum(-np.nan_to_num(change, nan=np.inf, posinf=1e3), 0.0))
        taken = self.rng.random(len(chance)) < chance
        self.w = np.where(taken[:, None, None], w, self.w)
        self.misfit = np.where(taken, misfit, self.misfit)
        self.slope = np.where(taken[:, None, None], slope, self.slope)
        self.accepted += taken
        if tune:
            self.step *= np.exp(_GAIN * (chance - _GOAL))

    def _energy(self, w: FloatArray, misfit: FloatArray, p: FloatArray) -> FloatArray:
        return np.asarray(0.5 * np.sum(w * w + p * p, axis=(1, 2)) + misfit / self.noise)
