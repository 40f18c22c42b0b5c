"""What a loss of the attention indices says of the weights W, for many starts at once.

Two products with the tokens carry the work.  Up to width d it is done on the projected tokens
P = XW, d/r times smaller than XS: the indices are products of rows of P, and X^T G X W = X^T (G P).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aimlib._compile import njit

Pointwise = Callable[[Any], tuple[Any, Any]]  # indices of each W to losses and their derivatives


def through_indices(w: Any, tokens: Any, pointwise: Pointwise) -> tuple[Any, Any]:
    """Return what ``pointwise`` says of the indices of all W, and n sqrt(d) Gamma W for each.

    Gamma is that of ``descent:gradient``; ``w`` has shape (K, d, r), ``tokens`` (n, T, d).
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
