"""Draw the picture of the front page and the README, and the card for links: ``make headline``."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from aimlib import HardmaxChannel, SoftmaxChannel, WishartPrior, bayes_optimal, plotting

FOLDER = Path(__file__).resolve().parent.parent / "book" / "_static"
WIDTHS = (0.1, 0.5, 1.0, 2.0)


def draw(size: tuple[float, float]) -> plt.Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=size)
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
        # inside, where the curves have fallen: the legend stands above the axes
        axes.text(0.97, 0.95, f"{title} outputs", transform=axes.transAxes, ha="right", va="top")
    return figure


def main() -> None:
    plotting.use_style()
    draw((9.5, 3.8)).savefig(FOLDER / "headline.png", metadata={"Software": None}, dpi=160)
    card = draw((8.0, 4.2))  # 1200 x 630 pixels, the shape that sites show beside a link
    card.suptitle("What can attention learn?  An executable book", fontsize=15, weight="bold")
    with plt.rc_context({"savefig.bbox": None}):
        card.savefig(FOLDER / "social.png", metadata={"Software": None}, dpi=150)


if __name__ == "__main__":
    main()
