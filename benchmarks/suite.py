"""How fast is it?  One run measures everything: ``make bench``.

Writes notebooks/data/speed/results.json, from which the page "How fast is it" draws, and
benchmarks/RESULTS.md.  What is compared is timed in turn, several rounds, and medians are given.

    python benchmarks/suite.py                  # minutes, without peers
    python benchmarks/suite.py --peers FOLDER   # FOLDER holds a clone of
                                                # SPOC-group/ExtensiveWidthQuadraticSamples
    python benchmarks/suite.py --torch PYTHON   # an interpreter that has PyTorch
    python benchmarks/suite.py --whole          # also build the book and execute all notebooks
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fault_record
import numpy as np
import peers
from timing import CLOCKS, OWN, ROOT, Row, Stopwatch, between_callbacks, environment, in_turn, row

from aimlib import (
    AttentionIndexedModel,
    BilinearPrior,
    Dataset,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    WishartPrior,
    amp,
    averaged_gradient_descent,
    bayes_optimal,
    cross_attention,
)
from aimlib.sweeps.store import read_json, write_json

RESULTS = ROOT / "notebooks" / "data" / "speed" / "results.json"
PAGE = ROOT / "benchmarks" / "RESULTS.md"
WIDTH_RATIO = 0.5
PRIOR = WishartPrior(WIDTH_RATIO)


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int = 7
    points: int = 128  # of a curve
    denoised: int = 1000  # dimension of the matrix to denoise
    dimensions: tuple[int, ...] = (100, 150, 200, 300, 400)
    sample_complexity: float = 0.15  # of the iterations against d
    fixed: int = 200  # d of the iterations against n and T
    complexities: tuple[float, ...] = (0.05, 0.15, 0.45)
    tokens: tuple[int, ...] = (2, 3, 5)
    starts: tuple[int, ...] = (1, 4, 16, 32)
    student: int = 100  # d of gradient descent
    whole_run: int = 100  # d of the run against the published program
    sequences: int = 20000  # of channel evaluations


TINY = Size(1, 4, 20, (10, 14), 0.5, 12, (0.3, 0.6), (2, 3), (1, 2), 10, 12, 50)


# ---------------------------------------------------------------------------------------------
# What is measured
# ---------------------------------------------------------------------------------------------


def points(size: Size, options: Any) -> Iterable[Row]:
    """Bayes-optimal points and curves."""
    rectangular = BilinearPrior(WIDTH_RATIO, 1.0), cross_attention.SoftmaxChannel(2, 2)
    for case, prior, channel in (
        ("softmax, T = 2", PRIOR, SoftmaxChannel(2)),
        ("hardmax, T = 2", PRIOR, HardmaxChannel(2)),
        ("hardmax, T = 3", PRIOR, HardmaxChannel(3)),
        ("linear, T = 1", PRIOR, LinearChannel(1, 0.25)),
        ("cross-attention, T = 2", *rectangular),
    ):
        curve = np.linspace(0.001, 0.18, size.points)
        times = in_turn(
            {
                "point": lambda p=prior, c=channel: bayes_optimal(0.1, p, c),
                "curve": lambda a=curve, p=prior, c=channel: bayes_optimal(a, p, c),
            },
            size.rounds,
            options.watch,
        )
        yield row("point", case, {OWN: times["point"]})
        yield row("curve", case, {OWN: times["curve"]}, points=size.points)


def published_solver(size: Size, options: Any) -> Iterable[Row]:
    """The same points as a published program, and the errors of both."""
    if not options.peers:
        return skip("published solver", "--peers FOLDER")
    theory = peers.functions_of(quadratic_network(options) / "Theory_no_noise.py")["theory"]
    channel = LinearChannel(tokens=1)
    for alpha in (0.1, 0.25):
        found: dict[str, float] = {}

        def published(a: float = alpha, found: dict[str, float] = found) -> None:
            # the published error is for another normalisation of the weights
            found["theirs"] = WIDTH_RATIO * theory(a, WIDTH_RATIO)

        times = in_turn(
            {
                OWN: lambda a=alpha: bayes_optimal(a, PRIOR, channel),
                "published solver": published,
            },
            min(size.rounds, 5),
            options.watch,
        )
        ours = bayes_optimal(alpha, PRIOR, channel).estimation_error
        exact = peers.exact_error(alpha, WIDTH_RATIO, ours)
        errors = {OWN: abs(ours - exact), "published solver": abs(found["theirs"] - exact)}
        yield row("published solver", f"linear, T = 1, alpha = {alpha}", times, error=errors)


def denoising(size: Size, options: Any) -> Iterable[Row]:
    """The denoiser against the eigendecomposition in it."""
    d = size.denoised
    rng = np.random.default_rng(0)
    matrix = PRIOR.sample(d, rng)
    noise = rng.standard_normal((d, d)) / np.sqrt(2.0 * d)
    matrix += noise + noise.T
    functions = {
        OWN: lambda: PRIOR.denoise(matrix, 1.0),
        "eigh alone": lambda: np.linalg.eigh(matrix),
    }
    yield row("denoising", f"d = {d}", in_turn(functions, size.rounds, options.watch), d=d)


def iterations(size: Size, options: Any) -> Iterable[Row]:
    """Message passing: an iteration against its two plain products and eigh, over d, n and T."""
    softmax, hardmax = SoftmaxChannel(2), HardmaxChannel(2)
    grid = [(d, size.sample_complexity, c) for d in size.dimensions for c in (softmax, hardmax)]
    grid += [(size.fixed, alpha, softmax) for alpha in size.complexities]
    grid += [(size.fixed, size.sample_complexity, SoftmaxChannel(t)) for t in size.tokens]
    grid += [(size.fixed, size.sample_complexity, HardmaxChannel(t)) for t in size.tokens[:2]]
    for d, alpha, channel in dict.fromkeys(grid):
        data = AttentionIndexedModel(d, PRIOR, channel).sample(alpha, seed=0)
        flat, weights = data.tokens.reshape(-1, d), np.eye(d)
        out, symmetric = np.empty_like(flat), PRIOR.sample(d, 1)

        def products(x: Any = flat, s: Any = weights, o: Any = out) -> object:
            return x.T @ np.matmul(x, s, out=o)

        for single in (False, True) if d == size.fixed and channel == softmax else (False,):
            times = between_callbacks(
                lambda callback, x=data, c=channel, s=single: amp(
                    x,
                    PRIOR,
                    c,
                    iterations=size.rounds + 1,
                    tolerance=1e-300,
                    single_precision=s,
                    callback=callback,
                ),
                {"two products": products, "eigh": lambda s=symmetric: np.linalg.eigh(s)},
                options.watch,
            )
            kind = "softmax" if isinstance(channel, SoftmaxChannel) else "hardmax"
            yield row("iteration", kind, times, d=d, n=len(data.outputs), T=channel.tokens,
                      dtype="float32" if single else "float64")  # fmt: skip


def whole_runs(size: Size, options: Any) -> Iterable[Row]:
    """Message passing from start to end, and its memory."""
    d, alpha, channel = size.whole_run, 0.25, LinearChannel(tokens=1)
    data = AttentionIndexedModel(d, PRIOR, channel).sample(alpha, seed=0)
    functions: dict[str, Callable[[], object]] = {OWN: lambda: amp(data, PRIOR, channel)}
    amp(data, PRIOR, channel, iterations=1)
    tracemalloc.start()
    amp(data, PRIOR, channel, iterations=2)
    memory = {OWN: tracemalloc.get_traced_memory()[1] / 1e6}
    tracemalloc.stop()
    rounds = size.rounds
    if options.peers:
        space = peers.functions_of(quadratic_network(options) / "AMP.ipynb")
        np.random.seed(0)  # noqa: NPY002 -- the notebook draws from the global generator
        x, y, s = space["data_generation"](d, WIDTH_RATIO, alpha, 0.0)
        functions["published notebook"] = lambda: space["AMP"](x, y, s, WIDTH_RATIO, damping=0.5)
        memory["published notebook"] = 2.0 * x.nbytes / 1e6  # its tensor alone
        rounds = min(rounds, 5)
    else:
        skip("published message passing", "--peers FOLDER")
    yield row(
        "whole run",
        f"linear, T = 1, d = {d}",
        in_turn(functions, rounds, options.watch),
        megabytes=memory,
    )


def descent(size: Size, options: Any) -> Iterable[Row]:
    """A step of Adam for many starts, against its bare products and PyTorch."""
    d, channel, width = size.student, SoftmaxChannel(2), max(size.student // 2, 1)
    known = AttentionIndexedModel(d, PRIOR, channel).sample(0.15, seed=0)
    data = Dataset(known.tokens, known.outputs)  # without a teacher nothing is recorded but losses
    flat = data.tokens.reshape(-1, d)
    if not options.torch:
        skip("PyTorch", "--torch PYTHON")
    for dtype in ("float64", "float32"):
        for starts in size.starts:
            weights = np.random.default_rng(0).standard_normal((d, starts * width)).astype(dtype)
            tokens = flat.astype(dtype)
            others: dict[str, Callable[[], object]] = {
                "two products": lambda x=tokens, w=weights: x.T @ (x @ w)
            }
            loops = {}
            if options.torch and starts == size.starts[-1]:
                threads = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
                for form in ("S", "XW"):
                    loops[f"PyTorch, {form}"] = peers.TorchStep(
                        options.torch, options.clock, threads, form, dtype, starts, d,
                        len(data.outputs),
                    )  # fmt: skip
            times = between_callbacks(
                lambda callback, k=starts, t=dtype: averaged_gradient_descent(
                    data,
                    width,
                    starts=k,
                    seed=1,
                    iterations=size.rounds + 1,
                    record_every=1,
                    single_precision=t == "float32",
                    callback=callback,
                ),
                others | loops,
                options.watch,
            )
            yield row("descent", "Adam", times, d=d, K=starts, dtype=dtype, n=len(data.outputs),
                      torch=next((loop.version for loop in loops.values()), None))  # fmt: skip
            for loop in loops.values():
                loop.close()


def channel_evaluations(size: Size, options: Any) -> Iterable[Row]:
    """Posterior means of hardmax against the same formula in SciPy."""
    rng = np.random.default_rng(0)
    h = rng.standard_normal((size.sequences, 2, 2))
    omega = h + np.swapaxes(h, 1, 2)
    h = rng.standard_normal(omega.shape)
    channel = HardmaxChannel(2)
    y = channel.output(omega + h + np.swapaxes(h, 1, 2))
    scipy = peers.hardmax_means_by_scipy(y[:, 0, 0] == 1.0, y[:, 1, 1] == 1.0, omega, 2.0)
    functions = {OWN: lambda: channel.posterior_mean(y, omega, 2.0), "SciPy": scipy}
    times = in_turn(functions, size.rounds, options.watch)
    yield row("channel", "hardmax, T = 2", times, evaluations=size.sequences)


def starting(size: Size, options: Any) -> Iterable[Row]:
    """Import, and a first result with and without compiled kernels on disk."""

    def run(code: str, folder: str | None = None) -> None:
        extra = {} if folder is None else {"NUMBA_CACHE_DIR": folder}
        subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | extra, cwd=ROOT)

    yield row(
        "start", "import", in_turn({OWN: lambda: run("import aimlib")}, size.rounds, options.watch)
    )
    first = (
        "from aimlib import *; bayes_optimal(0.1, WishartPrior(0.5), SoftmaxChannel(2));"
        "m = AttentionIndexedModel(20, WishartPrior(0.5), SoftmaxChannel(2));"
        "amp(m.sample(0.2, seed=0), m.prior, m.channel)"
    )
    with tempfile.TemporaryDirectory() as folder:
        cold = [options.watch(lambda: run(first, folder))]
        yield row("start", "first result, nothing compiled", {OWN: cold})
        warm = in_turn({OWN: lambda: run(first, folder)}, size.rounds, options.watch)
        yield row("start", "first result, kernels on disk", warm)


def whole_book(size: Size, options: Any) -> Iterable[Row]:
    """Build the book, and execute all of its notebooks."""
    if not options.whole:
        return skip("book build and notebooks", "--whole")
    make = {"build": ["make", "book"], "notebooks": [sys.executable, "tests/store_notebooks.py"]}
    for case, command in make.items():
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "clone"  # executing would rewrite the notebooks
            subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
            (copy / ".venv").symlink_to(ROOT / ".venv")
            inside = os.environ | {"PYTHONPATH": str(copy)}

            def task(command: list[str] = command, copy: Path = copy, env: Any = inside) -> None:
                subprocess.run(command, cwd=copy, env=env, check=True, capture_output=True)

            yield row("book", case, {OWN: [options.watch(task)]})


TOPICS = (points, published_solver, denoising, iterations, whole_runs, descent,
          channel_evaluations, starting, whole_book)  # fmt: skip


# ---------------------------------------------------------------------------------------------
# How it is measured
# ---------------------------------------------------------------------------------------------


def quadratic_network(options: Any) -> Path:
    return Path(options.peers) / "ExtensiveWidthQuadraticSamples"


def skip(what: str, option: str) -> list[Row]:
    print(f"skipped: {what} (give {option})", flush=True)
    return []


def measure(size: Size, options: Any) -> None:
    """Run the topics asked for and write the files after each; keep the rows of the others."""
    kept: list[Row] = []
    if options.only and options.results.exists():
        kept = read_json(options.results)["rows"]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for topic in TOPICS:
        if options.only and topic.__name__ not in options.only:
            continue
        print(f"{topic.__name__} ...", flush=True)
        rows += topic(size, options)
        new = {(r["topic"], r["case"]) for r in rows}
        old = [r for r in kept if (r["topic"], r["case"]) not in new]
        results = {"environment": environment(options.clock), "rows": old + rows}
        write_json(options.results, results)
        options.table.write_text(table(results), encoding="utf-8")


# ---------------------------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------------------------


def table(results: dict[str, Any]) -> str:
    """Write the results as Markdown."""
    machine = results["environment"]
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items())
    lines = [
        "# How fast is it",
        "",
        "Written by `make bench`; medians over rounds in which all that is compared runs in turn. "
        "A ratio is the median over the rounds of the other time over ours.",
        "",
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; "
        f"OMP_NUM_THREADS={machine['threads']['OMP_NUM_THREADS'] or 'not set'}; "
        f"BLAS {machine['blas']}; Python {machine['python']}; {versions}; load at the end "
        f"{machine['load']}; {machine['clock']} time; {machine['time']}.",
        "",
        "| what | case | ours | others | ratio | beside |",
        "|---|---|---|---|---|---|",
    ]
    for r in results["rows"]:
        (_, seconds), *others = r["seconds"].items()
        known = ("topic", "case", "seconds", "ratio", "rounds", "error", "megabytes")
        case = ", ".join([r["case"], *(f"{k} = {v}" for k, v in r.items() if k not in known and v)])
        beside = [f"error {name} {e:.1e}" for name, e in r.get("error", {}).items()]
        beside += [f"memory {name} {m:.3g} MB" for name, m in r.get("megabytes", {}).items()]
        cells = [
            r["topic"],
            case,
            shown(seconds),
            "; ".join(f"{name} {shown(value)}" for name, value in others),
            "; ".join(f"{value:.3g}" for value in r["ratio"].values()),
            "; ".join(beside),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n" + fault_record.section()


def shown(seconds: float) -> str:
    """Return a time in its natural unit, to three digits."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= factor or unit == "µs":
            return f"{seconds / factor:.3g} {unit}"
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [topic.__name__ for topic in TOPICS]
    parser.add_argument("--peers", help="folder of clones of the published programs")
    parser.add_argument("--torch", help="interpreter of an environment with PyTorch")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="processor: on a busy machine"
    )
    parser.add_argument("--whole", action="store_true", help="also build and execute the book")
    parser.add_argument(
        "--only", nargs="+", choices=names, help="measure these anew, keep the rest"
    )
    parser.add_argument("--tiny", action="store_true", help="seconds: to see that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the JSON file to write")
    parser.add_argument("--table", type=Path, default=PAGE, help="the Markdown file to write")
    options = parser.parse_args()
    options.watch = Stopwatch(options.clock)
    measure(TINY if options.tiny else Size(), options)


if __name__ == "__main__":
    main()
