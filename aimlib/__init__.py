"""Bayes-optimal learning of attention-indexed models."""

__version__ = "0.1.0"
