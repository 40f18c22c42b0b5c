"""The cross-attention model: teacher, queries, keys, indices and outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._validation import FloatArray
from aimlib.channels import Informative
from aimlib.cross_attention.channels import CrossChannel
from aimlib.cross_attention.prior import BilinearPrior

__all__ = [
    "CrossAttentionModel",
    "CrossDataset",
    "cross_attention_indices",
    "cross_weak_recovery_threshold",
]


@dataclass(frozen=True)
class CrossDataset:
    """Pairs of sequences, their outputs and, where it is known, the teacher.

    Attributes
    ----------
    queries : array, shape (n, T, d)
    keys : array, shape (n, T', d')
    outputs : array, shape (n, T, T')
    teacher : array, shape (d, d'), or None

    Raises
    ------
    ValueError
        If the shapes do not agree, or an entry is not finite.
    """

    queries: FloatArray
    keys: FloatArray
    outputs: FloatArray
    teacher: FloatArray | None = None

    def __post_init__(self) -> None:
        queries, keys = _sequences("queries", self.queries), _sequences("keys", self.keys)
        outputs = check.reals("outputs", self.outputs)
        if keys.shape[0] != queries.shape[0]:
            raise ValueError(f"keys must have {queries.shape[0]} sequences, got {keys.shape[0]}")
        shape = (queries.shape[0], queries.shape[1], keys.shape[1])
        if outputs.shape != shape:
            raise ValueError(f"outputs must have shape {shape}, got shape {outputs.shape}")
        for name, value in (("queries", queries), ("keys", keys), ("outputs", outputs)):
            object.__setattr__(self, name, value)
        if self.teacher is not None:
            teacher = check.reals("teacher", self.teacher)
            if teacher.shape != (queries.shape[2], keys.shape[2]):
                raise ValueError(
                    f"teacher must have shape {(queries.shape[2], keys.shape[2])}, "
                    f"got shape {teacher.shape}"
                )
            object.__setattr__(self, "teacher", teacher)

    @property
    def dimension(self) -> int:
        """Dimension d of the queries."""
        return int(self.queries.shape[2])

    @property
    def sample_complexity(self) -> float:
        """alpha = n/d^2."""
        return float(self.queries.shape[0] / self.queries.shape[2] ** 2)


def _sequences(name: str, value: Any) -> FloatArray:
    tokens = check.reals(name, value)
    if tokens.ndim != 3 or 0 in tokens.shape:
        raise ValueError(f"{name} must have shape (n, tokens, dimension), got {tokens.shape}")
    return tokens


@dataclass(frozen=True)
class CrossAttentionModel:
    """One layer of cross-attention with a random teacher, seen through an output channel.

    Parameters
    ----------
    dimension : int
        Dimension d of the queries; that of the keys is aspect_ratio * d.
    prior : BilinearPrior
    channel : cross-attention channel

    Examples
    --------
    >>> model = CrossAttentionModel(20, BilinearPrior(0.5, 2.0), CrossSoftmaxChannel(2, 3))
    >>> data = model.sample(0.1, seed=1)
    >>> data.queries.shape, data.keys.shape, data.outputs.shape, data.teacher.shape
    ((40, 2, 20), (40, 3, 40), (40, 2, 3), (20, 40))
    """

    dimension: int
    prior: BilinearPrior
    channel: CrossChannel

    def __post_init__(self) -> None:
        check.integer("dimension", self.dimension, low=2)
        _check_model(self.prior, self.channel)

    def sample(
        self, sample_complexity: float, seed: int | np.random.SeedSequence | np.random.Generator
    ) -> CrossDataset:
        """Draw a teacher and n = round(sample_complexity * d^2) pairs of sequences.

        Parameters
        ----------
        sample_complexity : float
            alpha > 0, large enough for at least one pair.
        seed : int, SeedSequence or Generator
            The only source of randomness.
        """
        alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
        d, keys = self.prior.shape(self.dimension)
        n = round(alpha * d * d)
        if n < 1:
            raise ValueError(
                f"sample_complexity must be at least 0.5/dimension^2 = {0.5 / d**2:g}, "
                f"got {alpha!r}"
            )
        teacher_rng, query_rng, key_rng, noise_rng = check.generator("seed", seed).spawn(4)
        teacher = self.prior.sample(d, teacher_rng)
        x = query_rng.standard_normal((n, self.channel.queries, d))
        z = key_rng.standard_normal((n, self.channel.keys, keys))
        outputs = self.channel.output(cross_attention_indices(x, z, teacher), noise_rng)
        return CrossDataset(x, z, outputs, teacher)


def _check_model(prior: Any, channel: Any) -> None:
    if not isinstance(prior, BilinearPrior):
        raise TypeError(f"prior must be a BilinearPrior, got {prior!r}")
    if not (hasattr(channel, "queries") and hasattr(channel, "keys")):
        raise TypeError(f"channel must be one of cross-attention, got {channel!r}")


def cross_attention_indices(queries: ArrayLike, keys: ArrayLike, weights: ArrayLike) -> FloatArray:
    r"""Return :math:`h_{ab}=x_a^\top Sz_b/\sqrt d` (``cross_attention:indices``).

    Parameters
    ----------
    queries : array, shape (n, T, d)
    keys : array, shape (n, T', d')
    weights : array, shape (d, d')

    Returns
    -------
    array, shape (n, T, T')
    """
    x, z = _sequences("queries", queries), _sequences("keys", keys)
    s = check.reals("weights", weights)
    if s.shape != (x.shape[2], z.shape[2]):
        raise ValueError(f"weights must have shape {(x.shape[2], z.shape[2])}, got {s.shape}")
    if z.shape[0] != x.shape[0]:
        raise ValueError(f"keys must have {x.shape[0]} sequences, got {z.shape[0]}")
    n, t, d = x.shape
    projected = (x.reshape(n * t, d) @ s).reshape(n, t, s.shape[1])
    return np.asarray(projected @ z.transpose(0, 2, 1) / math.sqrt(d))


def cross_weak_recovery_threshold(channel: Informative, aspect_ratio: float = 1.0) -> float:
    r"""Return the threshold of :math:`\alpha/\rho` as :math:`\rho\to0`, :math:`\sqrt\psi/c(0)`.

    Below it the error stays at its value without data (``cross_attention:weak``).

    Examples
    --------
    >>> cross_weak_recovery_threshold(CrossSoftmaxChannel(2, 2))
    0.5
    """
    psi = check.real("aspect_ratio", aspect_ratio, low=0.0, open_low=True)
    if not hasattr(channel, "information_at"):
        raise TypeError(f"channel must be one of cross-attention, got {channel!r}")
    return float(math.sqrt(psi) / channel.information_at(1.0, 1.0))
