"""Bayes-optimal learning of attention-indexed models."""

from aimlib.priors import SpectralPrior, WignerPrior, WishartPrior

__version__ = "0.1.0"

__all__ = ["SpectralPrior", "WignerPrior", "WishartPrior"]
