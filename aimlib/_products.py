r"""The two products with the tokens in a pass of message passing, each at half the plain work.

For symmetric S, half of its entries say all: with :math:`S=U+U^\top`, U upper triangular,

.. math:: x_a^\top S\,x_b = (U^\top x_a)^\top x_b + x_a^\top(U^\top x_b),

and XU is a product with a triangle.  The sum over sequences of :math:`X^\top MX` is symmetric: with
the eigenvectors of each small M it is a sum of squares of rows, those of positive eigenvalues less
those of negative ones, of which BLAS computes one triangle only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aimlib._compile import njit


def upper_half(matrix: Any, dtype: Any) -> Any:
    """Return U with U + U^T = matrix, symmetric of shape (d, d)."""
    half = np.triu(matrix)
    half[np.diag_indices_from(half)] *= 0.5
    return half.astype(dtype)


def fill_forms(tokens: Any, half: Any, scratch: Any, out: Any) -> None:
    """Fill x_a^T S x_b of every sequence, (m, T, T), symmetric to the last bit.

    ``half`` is U of S, ``scratch`` has the shape of the tokens, (m, T, d), and is overwritten.
    """
    from scipy.linalg import blas  # not at the top: importing aimlib must stay quick

    m, t, d = tokens.shape
    scratch[...] = tokens
    trmm = blas.dtrmm if half.dtype == np.float64 else blas.strmm
    # BLAS counts columns first: it sees transposes, U^T X^T, and writes where X^T was
    trmm(1.0, half.T, scratch.reshape(m * t, d).T, lower=1, overwrite_b=1)
    for a in range(t):
        for b in range(a + 1):
            form = np.vecdot(tokens[:, a], scratch[:, b])
            form += form if a == b else np.vecdot(tokens[:, b], scratch[:, a])
            out[:, a, b] = out[:, b, a] = form


def add_squares(tokens: Any, mixing: Any, scratch: Any, total: Any) -> None:
    """Add the sum over sequences of X^T M X to the lower triangle of ``total``, (d, d), float64.

    ``mixing`` holds M, symmetric, (m, T, T); ``scratch`` as in :func:`fill_forms`.
    """
    from scipy.linalg import blas

    rows = scratch.reshape(-1, scratch.shape[2])
    positive = _signed_rows(tokens, mixing, rows)
    single = rows.dtype == np.float32
    syrk = blas.ssyrk if single else blas.dsyrk
    result = np.zeros_like(total.T, dtype=rows.dtype) if single else total.T
    for sign, part in ((1.0, rows[:positive]), (-1.0, rows[positive:])):
        if len(part):
            syrk(sign, part.T, beta=1.0, c=result, overwrite_c=1)
    if single:
        total += result.T


@njit
def _signed_rows(tokens: np.ndarray, mixing: np.ndarray, out: np.ndarray) -> int:
    """Fill sqrt|lambda| u^T X for all sequences; return how many are of positive eigenvalues."""
    m, t, d = tokens.shape
    first, last = 0, m * t
    values, vectors = np.empty((t, t)), np.empty((t, t))
    for k in range(m):
        for a in range(t):
            for b in range(t):
                values[a, b] = mixing[k, a, b]
        _diagonalise(values, vectors)
        for j in range(t):
            if values[j, j] >= 0.0:
                row = first
                first += 1
            else:
                last -= 1
                row = last
            scale = math.sqrt(abs(values[j, j]))
            weight = scale * vectors[0, j]
            for i in range(d):
                out[row, i] = weight * tokens[k, 0, i]
            for b in range(1, t):
                weight = scale * vectors[b, j]
                for i in range(d):
                    out[row, i] += weight * tokens[k, b, i]
    return first


@njit
def _diagonalise(a: np.ndarray, vectors: np.ndarray) -> None:
    """Jacobi's rotations: the eigenvalues end on the diagonal of a, their vectors in columns."""
    t = a.shape[0]
    size = 0.0
    for p in range(t):
        for q in range(t):
            vectors[p, q] = 1.0 if p == q else 0.0
            size = max(size, abs(a[p, q]))
    for _ in range(50):
        turned = False
        for p in range(t):
            for q in range(p + 1, t):
                off = a[p, q]
                if abs(off) <= 1e-17 * size:
                    continue
                turned = True
                theta = 0.5 * (a[q, q] - a[p, p]) / off
                tangent = 1.0 / (abs(theta) + math.sqrt(theta * theta + 1.0))
                if theta < 0.0:
                    tangent = -tangent
                cosine = 1.0 / math.sqrt(tangent * tangent + 1.0)
                sine = tangent * cosine
                for k in range(t):
                    x, y = a[k, p], a[k, q]
                    a[k, p], a[k, q] = cosine * x - sine * y, sine * x + cosine * y
                for k in range(t):
                    x, y = a[p, k], a[q, k]
                    a[p, k], a[q, k] = cosine * x - sine * y, sine * x + cosine * y
                a[p, q] = a[q, p] = 0.0
                for k in range(t):
                    x, y = vectors[k, p], vectors[k, q]
                    vectors[k, p], vectors[k, q] = cosine * x - sine * y, sine * x + cosine * y
        if not turned or t == 2:
            break
