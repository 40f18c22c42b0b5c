"""Data of several layers: teachers, tokens and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aimlib import _validation as check
from aimlib._validation import FloatArray
from aimlib.layers.channels import LayeredChannel
from aimlib.model import _tokens, attention_indices
from aimlib.priors import Prior

__all__ = [
    "LayeredDataset",
    "sample_layers",
]


@dataclass(frozen=True)
class LayeredDataset:
    """Sequences, their outputs and the weights of the L layers that made them.

    Attributes
    ----------
    tokens : array, shape (n, T, d)
        Independent entries of mean 0 and variance 1.
    outputs : array, shape (n, ...)
        What the channel shows of the indices of all layers.
    teachers : array, shape (L, d, d)
        Symmetric matrices.

    Raises
    ------
    ValueError
        If the shapes do not agree, or an entry is not finite.
    """

    tokens: FloatArray
    outputs: FloatArray
    teachers: FloatArray

    def __post_init__(self) -> None:
        tokens = _tokens(self.tokens)
        n, _, d = tokens.shape
        outputs = check.reals("outputs", self.outputs)
        if outputs.ndim == 0 or outputs.shape[0] != n:
            raise ValueError(f"outputs must have shape ({n}, ...), got shape {outputs.shape}")
        teachers = check.reals("teachers", self.teachers)
        if teachers.ndim != 3 or teachers.shape[1:] != (d, d) or teachers.shape[0] == 0:
            raise ValueError(f"teachers must have shape (L, {d}, {d}), got {teachers.shape}")
        for layer in teachers:
            check.symmetric_matrix("teachers", layer)
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "teachers", teachers)

    @property
    def dimension(self) -> int:
        """Embedding dimension d."""
        return int(self.tokens.shape[2])

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return int(self.teachers.shape[0])


def sample_layers(
    dimension: int,
    priors: Sequence[Prior],
    channel: LayeredChannel,
    sample_complexity: float,
    seed: int | np.random.SeedSequence | np.random.Generator,
) -> LayeredDataset:
    """Draw independent layers and n = round(sample_complexity * d^2) sequences with their outputs.

    Parameters
    ----------
    dimension : int
        Embedding dimension d.
    priors : sequence of Prior
        Law of each layer.
    channel : MixedLinearChannel or DeepSoftmaxChannel
    sample_complexity : float
        alpha > 0, large enough for at least one sequence.
    seed : int, SeedSequence or Generator
        The only source of randomness; teachers, tokens and channel noise have their own streams.

    Examples
    --------
    >>> from aimlib import WishartPrior
    >>> channel = MixedLinearChannel([[1.0, 0.5], [0.5, 1.0]], noise=0.1)
    >>> data = sample_layers(10, [WishartPrior(0.5)] * 2, channel, 0.2, seed=0)
    >>> data.tokens.shape, data.outputs.shape, data.teachers.shape
    ((20, 1, 10), (20, 2, 1, 1), (2, 10, 10))
    """
    d = check.integer("dimension", dimension, low=2)
    alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
    _check_channel(channel)
    laws = _priors(priors, channel.layers)
    n = round(alpha * d * d)
    if n < 1:
        raise ValueError(
            f"sample_complexity must be at least 0.5/dimension^2 = {0.5 / d**2:g}, got {alpha!r}"
        )
    teacher_rng, token_rng, noise_rng = check.generator("seed", seed).spawn(3)
    teachers = np.stack([law.sample(d, teacher_rng) for law in laws])
    tokens = token_rng.standard_normal((n, channel.tokens, d))
    indices = attention_indices(tokens, teachers)
    return LayeredDataset(tokens, channel.output(indices, noise_rng), teachers)


def _priors(priors: Sequence[Prior], layers: int) -> list[Prior]:
    laws = _laws(priors)
    if len(laws) != layers:
        raise ValueError(f"priors must hold {layers} priors, one for each layer, got {len(laws)}")
    return laws


def _laws(priors: Any) -> list[Prior]:
    laws = list(priors) if isinstance(priors, Sequence) else []
    if not laws or not all(hasattr(law, "resolvent") for law in laws):
        raise TypeError(
            f"priors must be a sequence of priors of symmetric matrices, got {priors!r}"
        )
    return laws


def _check_channel(channel: Any) -> None:
    if not (hasattr(channel, "layers") and hasattr(channel, "tokens")):
        raise TypeError(f"channel must be one of several layers, got {channel!r}")


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, LayeredDataset):
        raise TypeError(f"dataset must be a LayeredDataset, got {type(dataset)!r}")
