"""What the package is measured against: published programs, PyTorch, and equations in 30 digits.

None of it is part of the package.  The published programs are read from clones of
SPOC-group/ExtensiveWidthQuadraticSamples that the reader has made; their functions are run, in
memory, as they are.
"""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
from scipy.integrate import quad
from scipy.optimize import root
from scipy.stats import multivariate_normal, norm
from timing import Seconds

from aimlib import WishartPrior


def functions_of(file: Path) -> dict[str, Any]:
    """Return the functions that a published script or notebook defines; the rest is not run."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    tree = ast.parse(text)
    functions: list[ast.stmt] = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    space: dict[str, Any] = {"noise": 0.0, "np": np, "quad": quad, "root": root}
    exec(compile(ast.Module(functions, []), str(file), "exec"), space)
    return space


def exact_error(alpha: float, width_ratio: float, guess: float, digits: int = 20) -> float:
    """Error of the noiseless quadratic network from its equations: V = mmse(V/(2 alpha))."""
    mp.mp.dps = digits
    rho = mp.mpf(width_ratio)

    def density(x: Any, noise: Any) -> Any:
        # z g (1 - g/sqrt(rho)) = (1 + noise g^2)(1 - g/sqrt(rho)) + sqrt(rho) g
        s = mp.sqrt(rho)
        roots = mp.polyroots([-noise / s, noise + x / s, s - x - 1 / s, 1], maxsteps=200)
        return max(abs(mp.im(r)) for r in roots) / mp.pi

    def error(noise: Any) -> Any:
        total = mp.mpf(0)
        for low, high in WishartPrior(width_ratio).support(float(noise)):
            centre, half = mp.mpf((low + high) / 2), mp.mpf((high - low) / 2)
            n = 150  # the trapezoidal sum of a periodic function converges geometrically
            for k in range(n):
                t = mp.pi * (2 * k + 1) / (2 * n)
                x = centre + half * mp.cos(t)
                total += density(x, noise) ** 3 * half * mp.sin(t) * mp.pi / n
        return noise - 4 * mp.pi**2 / 3 * noise**2 * total

    a = mp.mpf(alpha)
    v = mp.findroot(lambda v: error(v / (2 * a)) - v, (guess, guess * 1.0001), tol=1e-15)
    return float(v)


def hardmax_means_by_scipy(
    first: Any, second: Any, omega: Any, variance: float
) -> Callable[[], object]:
    """E[u | y] of two tokens from SciPy's normal distributions, for all sequences at once."""
    unit = math.sqrt(3.0 * variance)
    s, t = np.where(first, 1.0, -1.0), np.where(second, 1.0, -1.0)
    a = s * (omega[:, 0, 0] - omega[:, 0, 1]) / unit
    b = t * (omega[:, 1, 1] - omega[:, 0, 1]) / unit
    laws = {r: multivariate_normal(cov=[[1.0, r], [r, 1.0]]) for r in (-1 / 3, 1 / 3)}
    wide = math.sqrt(1.0 - 1.0 / 9.0)

    def means() -> Any:
        r = s * t / 3.0
        probability = np.empty(len(a))
        for value, law in laws.items():
            chosen = np.isclose(r, value)
            probability[chosen] = law.cdf(np.column_stack([a, b])[chosen])
        one = norm.pdf(a) * norm.cdf((b - r * a) / wide)
        two = norm.pdf(b) * norm.cdf((a - r * b) / wide)
        return (one + r * two) / probability, (two + r * one) / probability

    return means


# ---------------------------------------------------------------------------------------------
# PyTorch, in another environment
# ---------------------------------------------------------------------------------------------


class TorchStep:
    """A process of another interpreter that takes a step of Adam on demand, and says how long."""

    def __init__(self, python: str, *arguments: Any) -> None:
        self.process = subprocess.Popen(
            [python, str(Path(__file__).with_name("torch_step.py")), json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        self.version = self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __call__(self) -> Seconds:
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        return Seconds(self._answer())

    def close(self) -> None:
        self.process.communicate()
