r"""Deep attention, and the index matrices of the first layer that are all it depends on.

A network of L tied attention layers with skip connections acts on a sequence
:math:`X_0\in\mathbb{R}^{T\times d}` as (``deep:layers``)

.. math:: X_\ell = \bigl[cI+\sigma_\beta(X_{\ell-1}S_\ell X_{\ell-1}^\top/\sqrt d)\bigr]X_{\ell-1},
          \qquad y = \sigma_\beta(X_{L-1}S_LX_{L-1}^\top/\sqrt d).

Every layer is a mixture of the original tokens, :math:`X_\ell = B_\ell X_0`, with T x T mixing
matrices that depend on the tokens through :math:`H_\ell = X_0S_\ell X_0^\top/\sqrt d` only
(``deep:reduction``).  The output is an exact function of L small matrices, at any d.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _softmax
from aimlib import _validation as check
from aimlib._validation import FloatArray

__all__ = ["deep_attention", "deep_attention_from_indices", "mixing_matrices", "row_softmax"]


def row_softmax(scores: ArrayLike, inverse_temperature: float) -> FloatArray:
    r"""Return the softmax of every row at inverse temperature :math:`\beta`; hardmax if infinite.

    Parameters
    ----------
    scores : array, shape (..., T, T)
    inverse_temperature : float
        :math:`\beta\ge0`; ``math.inf`` gives the one-hot of the largest entry of each row.

    Examples
    --------
    >>> row_softmax([[0.0, 1.0], [2.0, 1.0]], math.inf)
    array([[0., 1.],
           [1., 0.]])
    """
    array = check.reals("scores", scores)
    if math.isinf(_temperature(inverse_temperature)):
        return np.asarray(np.arange(array.shape[-1]) == array.argmax(-1)[..., None], dtype=float)
    return np.asarray(_softmax.row_softmax(array, inverse_temperature))


def deep_attention(
    tokens: ArrayLike, weights: ArrayLike, skip: float, inverse_temperature: float
) -> FloatArray:
    r"""Return the output of L attention layers on the tokens (``deep:layers``).

    Parameters
    ----------
    tokens : array, shape (n, T, d)
    weights : array, shape (L, d, d)
        One matrix for each layer.  Tied attention has symmetric ones; any are allowed.
    skip : float
        Strength c of the skip connection.
    inverse_temperature : float
        :math:`\beta\ge0`, infinite for hardmax.

    Returns
    -------
    array, shape (n, T, T)
        Attention of the last layer.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((5, 3, 8))
    >>> s = rng.standard_normal((2, 8, 8))
    >>> direct = deep_attention(x, s, skip=1.0, inverse_temperature=0.5)
    >>> scores = x[:, None] @ s @ np.swapaxes(x, 1, 2)[:, None] / math.sqrt(8)
    >>> reduced = deep_attention_from_indices(scores, skip=1.0, inverse_temperature=0.5)
    >>> bool(np.allclose(direct, reduced, rtol=0, atol=1e-12))
    True
    """
    x = check.reals("tokens", tokens)
    if x.ndim != 3 or 0 in x.shape:
        raise ValueError(f"tokens must have shape (n, T, d), got shape {x.shape}")
    d = x.shape[2]
    layers = check.reals("weights", weights)
    if layers.ndim != 3 or layers.shape[0] == 0 or layers.shape[1:] != (d, d):
        raise ValueError(f"weights must have shape (L, {d}, {d}), got shape {layers.shape}")
    c, beta = check.real("skip", skip), _temperature(inverse_temperature)
    for number, layer in enumerate(layers, start=1):
        attention = row_softmax(x @ layer @ np.swapaxes(x, 1, 2) / math.sqrt(d), beta)
        if number < len(layers):
            x = c * x + attention @ x
    return attention


def deep_attention_from_indices(
    indices: ArrayLike,
    skip: float,
    inverse_temperature: float,
    traces: ArrayLike | None = None,
    dimension: int | None = None,
) -> FloatArray:
    r"""Return the same output from the index matrices of the first layer (``deep:reduction``).

    Parameters
    ----------
    indices : array, shape (n, L, T, T)
        :math:`H_\ell = X_0S_\ell X_0^\top/\sqrt d`, or the centred attention indices
        :math:`h^{(\ell)} = H_\ell - (\mathrm{Tr}\,S_\ell/\sqrt d)\,I` if ``traces`` are given.
    skip : float
        Strength c of the skip connection.
    inverse_temperature : float
        :math:`\beta\ge0`, infinite for hardmax.
    traces : array, shape (L,), optional
        :math:`\mathrm{Tr}\,S_\ell` of each layer, to undo the centring; needs ``dimension``.
    dimension : int, optional
        Embedding dimension d, needed with ``traces``.

    Returns
    -------
    array, shape (n, T, T)

    Examples
    --------
    >>> deep_attention_from_indices(np.zeros((1, 2, 2, 2)), skip=1.0, inverse_temperature=1.0)[0]
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    beta = _temperature(inverse_temperature)
    scores = _scores(indices, traces, dimension)
    mixing = mixing_matrices(scores, skip, beta)[:, -1]
    return row_softmax(mixing @ scores[:, -1] @ np.swapaxes(mixing, 1, 2), beta)


def mixing_matrices(scores: ArrayLike, skip: float, inverse_temperature: float) -> FloatArray:
    r"""Return :math:`B_0,\dots,B_{L-1}`, shape (n, L, T, T), with :math:`X_\ell = B_\ell X_0`.

    .. math:: B_0 = I,\qquad B_\ell = \bigl[cI+\sigma_\beta(B_{\ell-1}H_\ell B_{\ell-1}^\top)\bigr]
              B_{\ell-1}.

    Parameters
    ----------
    scores : array, shape (n, L, T, T)
        :math:`H_1,\dots,H_L`; the last one is not needed.
    skip, inverse_temperature
        As in :func:`deep_attention`.

    Examples
    --------
    Equal scores attend equally to both tokens:

    >>> mixing_matrices(np.zeros((1, 2, 2, 2)), skip=1.0, inverse_temperature=1.0)[0, 1]
    array([[1.5, 0.5],
           [0.5, 1.5]])
    """
    h = _scores(scores, None, None)
    c, beta = check.real("skip", skip), _temperature(inverse_temperature)
    n, layers, t, _ = h.shape
    mixing = np.empty((n, layers, t, t))
    mixing[:, 0] = np.eye(t)
    for layer in range(1, layers):
        before = mixing[:, layer - 1]
        attention = row_softmax(before @ h[:, layer - 1] @ np.swapaxes(before, 1, 2), beta)
        mixing[:, layer] = c * before + attention @ before
    return mixing


def _temperature(value: Any) -> float:
    if isinstance(value, int | float | np.floating) and float(value) == math.inf:
        return math.inf
    return check.real("inverse_temperature", value, low=0.0)


def _scores(indices: ArrayLike, traces: ArrayLike | None, dimension: int | None) -> FloatArray:
    h = check.reals("indices", indices)
    if h.ndim != 4 or 0 in h.shape or h.shape[2] != h.shape[3]:
        raise ValueError(f"indices must have shape (n, L, T, T), got shape {h.shape}")
    if traces is None:
        return h
    if dimension is None:
        raise ValueError("dimension must be given with traces, got None")
    d = check.integer("dimension", dimension, low=1)
    shift = check.reals("traces", traces)
    if shift.shape != (h.shape[1],):
        raise ValueError(f"traces must have shape ({h.shape[1]},), got shape {shift.shape}")
    return np.asarray(h + shift[:, None, None] / math.sqrt(d) * np.eye(h.shape[2]))
