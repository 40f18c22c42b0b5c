"""Draw the picture on the front page and in the README: ``make headline``."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from aimlib import HardmaxChannel, SoftmaxChannel, WishartPrior, bayes_optimal, plotting

TARGET = Path(__file__).resolve().parent.parent / "book" / "_static" / "headline.png"
WIDTHS = (0.1, 0.5, 1.0, 2.0)


def main() -> None:
    plotting.use_style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8))
    labels = ("sample complexity α = n/d²", "estimation error")
    for axes, channel, alpha, scales, title in (
        (left, SoftmaxChannel(2), np.linspace(0, 0.28, 240), ("linear", "linear"), "softmax"),
        (right, HardmaxChannel(2), np.logspace(-2, 2, 160), ("log", "log"), "hardmax"),
    ):
        families = {
            f"ρ = {rho:g}": bayes_optimal(alpha, WishartPrior(rho), channel).estimation_error
            for rho in WIDTHS
        }
        plotting.curves(alpha, families, labels=labels, scales=scales, axes=axes)
        axes.set_title(f"{title} outputs", fontsize=11)
    figure.savefig(TARGET, metadata={"Software": None}, dpi=160)


if __name__ == "__main__":
    main()
