"""One Adam step for many starts: the package, its bare matrix products, and PyTorch.

    python benchmarks/descent_speed.py                      # step over bare products
    python benchmarks/descent_speed.py --torch PYTHON       # also the loop in another environment

PyTorch is not a dependency of the package: ``--torch`` names the interpreter of an environment
that has it, which runs this file with ``--inside-torch``.  Both sides use the same number of
threads, the same shapes, the full batch, the squared loss and Adam; they alternate, and each gives
the best of several timings.  The loop in PyTorch is timed in two forms: with the matrices S, as a
first implementation would write it, and with the product XW, which is how the package trains
students narrower than d.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

ARRANGEMENTS = ("S", "XW")


def best_of(repeats: int, function: Callable[[], object]) -> float:
    return min(timeit.repeat(function, number=1, repeat=repeats))


def torch_step(
    arrangement: str, dtype: str, starts: int, dimension: int, count: int
) -> Callable[[], object]:
    """One full-batch Adam step of a softmax student on T = 2 tokens."""
    import torch

    real = getattr(torch, dtype)
    width = dimension // 2
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 2, dimension, generator=generator, dtype=real)
    y = torch.softmax(torch.randn(count, 2, 2, generator=generator, dtype=real), -1)
    w = torch.randn(starts, dimension, width, generator=generator, dtype=real).requires_grad_()
    optimiser = torch.optim.Adam([w], lr=0.05)
    flat, eye = x.reshape(-1, dimension), torch.eye(2, dtype=real)

    def step() -> None:
        optimiser.zero_grad()
        if arrangement == "S":
            s = w @ w.transpose(1, 2) / math.sqrt(width * dimension)
            projected = (flat @ s).reshape(starts, count, 2, dimension)
            h = projected @ x.transpose(1, 2) / math.sqrt(dimension)
        else:
            projected = flat @ w.permute(1, 0, 2).reshape(dimension, starts * width)
            p = projected.reshape(count, 2, starts, width).permute(2, 0, 1, 3)
            h = p @ p.transpose(2, 3) / (dimension * math.sqrt(width))
        trace = w.square().sum((1, 2)) / (dimension * math.sqrt(width))
        gap = torch.softmax(h - trace[:, None, None, None] * eye, -1) - y
        # the starts do not interact, so that one backward pass gives all gradients
        gap.square().sum((2, 3)).mean(1).sum().backward()
        optimiser.step()

    return step


def package_step(dtype: str, starts: int, dimension: int, count: int) -> dict[str, float]:
    import numpy as np

    from aimlib import AttentionIndexedModel, SoftmaxChannel, WishartPrior
    from aimlib import averaged_gradient_descent as train

    width = dimension // 2
    model = AttentionIndexedModel(dimension, WishartPrior(0.5), SoftmaxChannel(2))
    data = model.sample(count / dimension**2, seed=0)
    single = dtype == "float32"

    def steps(number: int) -> float:
        start = time.perf_counter()
        train(data, width, starts=starts, seed=1, iterations=number, single_precision=single,
              record_every=10**6)  # fmt: skip
        return time.perf_counter() - start

    steps(1)
    # the difference of two runs leaves out the preparation of both
    step = min((steps(9) - steps(1)) / 8 for _ in range(4))
    x = data.tokens.reshape(-1, dimension).astype(dtype)
    w = np.random.default_rng(0).standard_normal((dimension, starts * width)).astype(dtype)
    products = best_of(8, lambda: x.T @ (x @ w))
    return {"step": step, "products": products}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--inside-torch", metavar="JSON", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--starts", type=int, default=32)
    parser.add_argument("--dimension", type=int, default=100)
    options = parser.parse_args()
    if options.inside_torch:
        import torch

        torch.set_num_threads(options.threads)
        arrangement, *rest = json.loads(options.inside_torch)
        step = torch_step(arrangement, *rest)
        step()
        print(best_of(8, step))
        return
    os.environ |= {
        name: str(options.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    }
    count = round(0.15 * options.dimension**2)
    for dtype in ("float64", "float32"):
        case = (dtype, options.starts, options.dimension, count)
        rounds: list[dict[str, float]] = []
        for _ in range(2):
            times = package_step(*case)
            for arrangement in ARRANGEMENTS if options.torch else ():
                command = [options.torch, __file__, "--threads", str(options.threads),
                           "--inside-torch", json.dumps([arrangement, *case])]  # fmt: skip
                output = subprocess.run(command, capture_output=True, text=True, check=True)
                times[arrangement] = float(output.stdout)
            rounds.append(times)
        best = {name: min(times[name] for times in rounds) for name in rounds[0]}
        report(dtype, options, best)


def report(dtype: str, options: Any, best: dict[str, float]) -> None:
    step, products = best["step"], best["products"]
    print(f"{dtype}, K = {options.starts}, d = {options.dimension}, {options.threads} thread(s): "
          f"{step * 1e3:.1f} ms a step, {step / products:.2f} x its bare products")  # fmt: skip
    for arrangement in ARRANGEMENTS:
        if arrangement in best:
            ratio = best[arrangement] / step
            print(f"  PyTorch with {arrangement:<2}: {best[arrangement] * 1e3:.1f} ms, "
                  f"{ratio:.2f} x the package")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
