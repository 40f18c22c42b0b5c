"""Write the tables of the explorer: what aimlib computes too slowly, or too long, for a page.

    python book/_ext/explorer_tables.py

The random-matrix side of the explorer is computed in the page itself.  Of the channels it needs
three functions of x = sqrt(V/Q), which are stored as Chebyshev series:

* the information of hardmax over x, c/x (``hardmax:information``), on 0 <= x <= 1;
* the share of misclassified rows over theta, x = sin(theta), which is smooth at both ends;
* the prediction error of softmax (``softmax:generalization``), over theta and the logarithm of
  b = beta sqrt(Q), divided by its limits at small and large b and x.

``tests/test_explorer.py`` compares the stored tables with aimlib.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from aimlib import HardmaxChannel, SoftmaxChannel

TARGET = Path(__file__).resolve().parent.parent / "_static" / "explorer" / "tables.js"
TOKENS = (2, 3, 4, 5, 6)
LOWEST, HIGHEST = 0.09, 34.0  # of b = beta sqrt(Q), for the ranges of beta and rho in the page
SAMPLES, DEGREE = 24, 17


def nodes(count: int, low: float, high: float) -> tuple[Any, Any]:
    """Return Chebyshev nodes on [-1, 1] and the same on [low, high]."""
    t = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    return t, 0.5 * (low + high) + 0.5 * (high - low) * t


def rounded(values: Any) -> Any:
    """Nine significant digits of the largest, and no trailing negligible coefficients."""
    array = np.asarray(values)
    digits = 9 - math.ceil(math.log10(np.abs(array).max()))
    return np.round(array, digits).tolist()


def trimmed(coefficients: Any) -> Any:
    kept = np.flatnonzero(np.abs(coefficients) > 1e-10 * np.abs(coefficients).max())
    return rounded(coefficients[: kept[-1] + 1])


def hardmax(tokens: int) -> dict[str, Any]:
    channel = HardmaxChannel(tokens)
    t, x = nodes(40, 0.0, 1.0)
    information = chebyshev.chebfit(t, channel.information_at(x * x, 1.0) / x, 39)
    t, theta = nodes(16, 0.0, 0.5 * math.pi)
    share = channel.generalization_error(np.sin(theta) ** 2, 1.0) / theta
    return {
        "information": trimmed(information),
        "misclassified": trimmed(chebyshev.chebfit(t, share, 15)),
    }


def softmax(tokens: int) -> list[list[float]]:
    """Coefficients, rows over log b and columns over theta, by least squares."""
    s, log_b = nodes(SAMPLES, math.log(LOWEST), math.log(HIGHEST))
    t, theta = nodes(SAMPLES, 0.0, 0.5 * math.pi)
    x, values = np.sin(theta), np.empty((SAMPLES, SAMPLES))
    for i, b in enumerate(np.exp(log_b)):
        error = SoftmaxChannel(tokens, float(b)).generalization_error(x * x, 1.0)
        values[i] = error * (1.0 + b * x) * (1.0 + b) / (b * x) ** 2
    rows = np.linalg.pinv(chebyshev.chebvander(s, DEGREE))
    columns = np.linalg.pinv(chebyshev.chebvander(t, DEGREE))
    return rounded(rows @ values @ columns.T)


def main() -> None:
    tables = {
        "tokens": list(TOKENS),
        "lowest": LOWEST,
        "highest": HIGHEST,
        "hardmax": {t: hardmax(t) for t in TOKENS},
        "softmax": {t: softmax(t) for t in TOKENS},
    }
    text = json.dumps(tables, separators=(",", ":"))
    TARGET.write_text(
        "// Written by book/_ext/explorer_tables.py; do not edit.\n"
        f"window.aim = window.aim || {{}};\nwindow.aim.tables = {text};\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
