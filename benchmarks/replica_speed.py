"""Bayes-optimal curves: time per point, and against the solver published with arXiv:2408.03733.

The curve is that of the quadratic network at width ratio 1/2, without noise, on the grid of the
published table; softmax attention is the same curve at another sample complexity.  Times are the
best of several runs in one process, after compilation.  With ``--peer`` the published solver runs
on some points of the same grid, in memory, and both errors are compared with the exact equations
in 30 digits.
"""

from __future__ import annotations

import argparse
import ast
import time
import timeit
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
from scipy.integrate import quad
from scipy.optimize import root

from aimlib import HardmaxChannel, LinearChannel, SoftmaxChannel, WishartPrior, bayes_optimal

WIDTH_RATIO = 0.5


def best_of(repeats: int, function: Callable[[], object]) -> float:
    return min(timeit.repeat(function, number=1, repeat=repeats))


def own_times(repeats: int) -> None:
    prior = WishartPrior(WIDTH_RATIO)
    print(f"{'channel':<22}{'one point (ms)':>16}{'128 points (ms)':>18}")
    for name, channel in (
        ("softmax, 2 tokens", SoftmaxChannel(tokens=2)),
        ("hardmax, 2 tokens", HardmaxChannel(tokens=2)),
        ("hardmax, 3 tokens", HardmaxChannel(tokens=3)),
        ("linear, noise 0.25", LinearChannel(tokens=1, noise=0.25)),
    ):
        curve = np.linspace(0.001, 0.18, 128)
        bayes_optimal(0.1, prior, channel)  # compile, and build the information of hardmax
        one = best_of(repeats, lambda c=channel: bayes_optimal(0.1, prior, c))
        many = best_of(repeats, lambda c=channel, a=curve: bayes_optimal(a, prior, c))
        print(f"{name:<22}{1e3 * one:16.2f}{1e3 * many:18.1f}")


def reference_error(alpha: float, guess: float) -> float:
    """Error of the noiseless quadratic network in 30 digits: V = mmse(V/(2 alpha))."""
    mp.mp.dps = 30
    rho = mp.mpf(WIDTH_RATIO)

    def resolvent_density(x: Any, noise: Any) -> Any:
        # z g (1 - g/sqrt(rho)) = (1 + noise g^2)(1 - g/sqrt(rho)) + sqrt(rho) g
        s = mp.sqrt(rho)
        roots = mp.polyroots([-noise / s, noise + x / s, s - x - 1 / s, 1], maxsteps=200)
        return max(abs(mp.im(r)) for r in roots) / mp.pi

    def error(noise: Any) -> Any:
        total = mp.mpf(0)
        for low, high in WishartPrior(WIDTH_RATIO).support(float(noise)):
            centre, half = mp.mpf((low + high) / 2), mp.mpf((high - low) / 2)
            n = 300  # the trapezoidal sum of a periodic function converges geometrically
            for k in range(n):
                t = mp.pi * (2 * k + 1) / (2 * n)
                density = resolvent_density(centre + half * mp.cos(t), noise)
                total += density**3 * half * mp.sin(t) * mp.pi / n
        return noise - 4 * mp.pi**2 / 3 * noise**2 * total

    a = mp.mpf(alpha)
    v = mp.findroot(lambda v: error(v / (2 * a)) - v, (guess, guess * 1.0001), tol=1e-20)
    return float(v)


def peer(file: str, points: int, repeats: int) -> None:
    """Run the functions of the published script on ``points`` points of its grid."""
    tree = ast.parse(open(file, encoding="utf-8").read())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    space: dict[str, Any] = {"np": np, "quad": quad, "root": root}
    exec(compile(ast.Module(functions, []), file, "exec"), space)
    top = WIDTH_RATIO - WIDTH_RATIO**2 / 2 - 1e-5
    alphas = np.linspace(1e-3, top, 129)[:: 129 // points]
    prior, channel = WishartPrior(WIDTH_RATIO), LinearChannel(tokens=1)
    theirs = []
    start = time.perf_counter()
    for alpha in alphas:
        theirs.append(space["theory"](alpha, WIDTH_RATIO))
    their_time = (time.perf_counter() - start) / len(alphas)
    our_time = best_of(repeats, lambda: bayes_optimal(alphas, prior, channel)) / len(alphas)
    ours = bayes_optimal(alphas, prior, channel).estimation_error
    middle = alphas[1:-1]
    exact = np.array([reference_error(a, v) for a, v in zip(middle, ours[1:-1], strict=True)])
    print(f"\nquadratic network, {len(alphas)} points: ours {1e3 * our_time:.2f} ms a point, ")
    print(f"published solver {1e3 * their_time:.0f} ms a point: {their_time / our_time:.0f} times")
    print(f"largest error, ours      {np.max(np.abs(ours[1:-1] - exact)):.1e}")
    scale = WIDTH_RATIO  # the published error is for another normalisation of the weights
    distance = np.abs(scale * np.array(theirs[1:-1]) - exact)
    print(f"largest error, published {np.max(distance):.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--points", type=int, default=16, help="points for the published solver")
    parser.add_argument(
        "--peer", help="a copy of Theory_no_noise.py of SPOC-group/ExtensiveWidthQuadraticSamples"
    )
    arguments = parser.parse_args()
    own_times(arguments.repeats)
    if arguments.peer:
        peer(arguments.peer, arguments.points, arguments.repeats)


if __name__ == "__main__":
    main()
