"""Record the information of hardmax with three tokens, and fit what aimlib keeps of it.

    python notebooks/sweeps/hardmax.py          # minutes; writes data/hardmax/three.csv
    python notebooks/sweeps/hardmax.py fit      # print the coefficients

What is known of the indices before an output is six Gaussian means, of which their common shift
says nothing.  The average over the other five is a sum over a lattice: of a Gaussian times an
analytic function it converges like exp(-2 pi^2 x^2/spacing^2).  At each x = sqrt(V/Q) three
averages are taken: of the probabilities of all outputs, which is one and measures the error; of the
information c (``hardmax:information``); and of the entropy of the output, the integral of c/x from
0 to x, which is another way to the same function.
"""

from __future__ import annotations

import csv
import itertools
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, chebyshev
from recording import DATA
from scipy.stats import chi2

from aimlib import _hardmax_information as many
from aimlib._hardmax import posterior_means
from aimlib.sweeps.store import write_table

TABLE = DATA / "hardmax" / "three.csv"
PLAN = (
    (0.5, 0.6, 5.6, 1),
    (0.65, 0.78, 5.6, 1),
    (0.8, 0.92, 6.2, 0),
    (0.92, 0.92, 6.2, 0),
)
ROWS, COLUMNS = np.triu_indices(3)
SPREAD = np.sqrt(1.0 + (ROWS == COLUMNS))


def lattice(spacing: float, radius: float, seed: int) -> Iterator[Any]:
    """Yield the points of a shifted cubic lattice in a ball of five dimensions, in parts."""
    shift = np.random.default_rng(seed).random(5) * spacing
    axis = (
        np.arange(-int(radius / spacing) - 1, int(radius / spacing) + 2) * spacing
    )
    rest = np.array(list(itertools.product(axis, repeat=3)))
    for first in itertools.product(axis, repeat=2):
        points = np.column_stack([np.tile(first, (len(rest), 1)), rest]) + shift
        kept = points[(points**2).sum(axis=1) < radius**2]
        if len(kept):
            yield kept


def shell(radius: float, seed: int, count: int = 4096) -> Any:
    """Draw points of a Gaussian in five dimensions outside the ball: equal weights, small sum."""
    rng = np.random.default_rng([seed, 1])
    direction = rng.standard_normal((count, 5))
    direction /= np.linalg.norm(direction, axis=1)[:, None]
    share = (rng.permutation(count) + 0.5) / count
    outside = chi2.sf(radius**2, 5)
    return np.sqrt(chi2.isf(share * outside, 5))[:, None] * direction


def sums(x: float, points: Any, weight: Any) -> Any:
    """Return the weighted sums of probability, information and entropy over points."""
    winners, count = many.every_output(3)
    common = (1.0 / SPREAD) / np.linalg.norm(
        1.0 / SPREAD
    )  # a shift of all indices alike
    basis = np.linalg.qr(np.column_stack([common, np.eye(6)]))[0][:, 1:6]
    scale, total = math.sqrt(1.0 - x * x) / x, np.zeros(3)
    z = np.empty((len(points), 3, 3))
    z[:, ROWS, COLUMNS] = z[:, COLUMNS, ROWS] = (
        scale * (points @ basis.T) * SPREAD
    )
    means, error = np.empty_like(z), np.empty(len(z))
    log_probability = np.empty(len(z))
    for winner, multiple in zip(winners, count, strict=True):
        same = np.repeat(winner[None], len(z), axis=0)
        posterior_means(
            same, z, np.full((20, 15), 0.5), means, error, log_probability
        )
        seen = (
            log_probability > -60.0
        )  # not so deep in the tail that it is sampled
        p = multiple * weight[seen] * np.exp(log_probability[seen])
        gain = 0.5 * ((means - z)[seen] ** 2).sum(axis=(1, 2))
        total += p.sum(), p @ gain, -p @ log_probability[seen]
    return total


def averages(
    x: float, spacing: float, radius: float, seed: int
) -> dict[str, float]:
    """Return the averages of probability, information and entropy at one x."""
    far = shell(radius, seed)
    outside = np.full(len(far), chi2.sf(radius**2, 5) / len(far))
    total, number = sums(x, far, outside), 0
    for points in lattice(spacing, radius, seed):
        weight = np.exp(-0.5 * (points**2).sum(axis=1))
        weight *= (spacing / math.sqrt(2.0 * math.pi)) ** 5
        total += sums(x, points, weight)
        number += len(points)
    names = ("probability", "information", "entropy")
    return {"points": number} | dict(zip(names, total.tolist(), strict=True))


def fit(rows: list[dict[str, Any]], degree: int = 7) -> Any:
    """Return c/x as a Chebyshev series on [0, 1]: four exact conditions, and the recorded values.

    The exact ones are those of the cubic; the others are met in the sense of least squares.
    """
    cubic, _ = many.summed_series(3)
    exact = np.polynomial.Polynomial(cubic)
    unit = [Chebyshev(row, domain=[0.0, 1.0]) for row in np.eye(degree + 1)]
    conditions = [[s(0.0) for s in unit], [s(1.0) for s in unit]]
    conditions += [
        [s.deriv()(1.0) for s in unit],
        [s.integ(lbnd=0.0)(1.0) for s in unit],
    ]
    values = [exact(0.0), exact(1.0), exact.deriv()(1.0), exact.integ()(1.0)]
    for row in rows:
        x, mass = (
            row["x"],
            row["probability"],
        )  # one, but for the error of the sum
        conditions += [[s(x) for s in unit], [s.integ(lbnd=0.0)(x) for s in unit]]
        values += [row["information"] / mass / x, row["entropy"] / mass]
    weight = np.where(np.arange(len(values)) < 4, 1e4, 1.0)
    solution = np.linalg.lstsq(
        weight[:, None] * np.array(conditions),
        weight * np.array(values),
        rcond=None,
    )
    return solution[0]


def recorded() -> list[dict[str, Any]]:
    with TABLE.open(encoding="utf-8") as file:
        return [
            {k: float(v) for k, v in row.items()} for row in csv.DictReader(file)
        ]


def main() -> None:
    if sys.argv[1:] != ["fit"]:
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        names = ("x", "spacing", "radius", "seed")
        rows = [
            dict(zip(names, case, strict=True)) | averages(*case) for case in PLAN
        ]
        write_table(TABLE, rows)
    rows = recorded()
    kept, other = fit(rows), fit(rows, degree=6)
    grid = np.linspace(-1.0, 1.0, 201)
    change = (
        chebyshev.chebval(grid, np.append(other, 0.0))
        / chebyshev.chebval(grid, kept)
        - 1.0
    )
    print(np.array2string(kept, separator=", ", precision=12))
    print(f"largest change of c by the last degree: {np.abs(change).max():.1e}")


if __name__ == "__main__":
    main()
