"""Bayes-optimal learning of attention-indexed models.

One layer of tied attention is here; :mod:`aimlib.cross_attention` and :mod:`aimlib.layers` hold the
same short names for untied weights and for several layers, :mod:`aimlib.weight_decay` what
regularised training reaches.
"""

from aimlib import cross_attention, layers, weight_decay
from aimlib._moved import moved_names
from aimlib.amp import AMPResult, amp
from aimlib.channels import HardmaxChannel, LinearChannel, SoftmaxChannel
from aimlib.cross_attention import BilinearPrior
from aimlib.deep import deep_attention, deep_attention_from_indices
from aimlib.descent import DescentResult, averaged_gradient_descent, gradient_descent
from aimlib.model import (
    AttentionIndexedModel,
    Dataset,
    StreamedDataset,
    attention_indices,
    estimation_error,
)
from aimlib.priors import SpectralPrior, WignerPrior, WishartPrior
from aimlib.replica import (
    BayesOptimal,
    bayes_optimal,
    fixed_points,
    free_entropy,
    hardmax_asymptotic_error,
    small_width_overlap,
    state_evolution,
    strong_recovery_threshold,
    weak_recovery_threshold,
)
from aimlib.sampled_tokens import NoisySoftmaxChannel, SampledSoftmaxChannel
from aimlib.sweeps import sweep
from aimlib.tokens import CorrelatedSoftmaxChannel, FourthMomentHardmaxChannel, whiten
from aimlib.weight_decay import minimum_trace_threshold

__version__ = "0.1.0"

__all__ = [
    "AMPResult",
    "AttentionIndexedModel",
    "BayesOptimal",
    "BilinearPrior",
    "CorrelatedSoftmaxChannel",
    "Dataset",
    "DescentResult",
    "FourthMomentHardmaxChannel",
    "HardmaxChannel",
    "LinearChannel",
    "NoisySoftmaxChannel",
    "SampledSoftmaxChannel",
    "SoftmaxChannel",
    "SpectralPrior",
    "StreamedDataset",
    "WignerPrior",
    "WishartPrior",
    "amp",
    "attention_indices",
    "averaged_gradient_descent",
    "bayes_optimal",
    "cross_attention",
    "deep_attention",
    "deep_attention_from_indices",
    "estimation_error",
    "fixed_points",
    "free_entropy",
    "gradient_descent",
    "hardmax_asymptotic_error",
    "layers",
    "minimum_trace_threshold",
    "small_width_overlap",
    "state_evolution",
    "strong_recovery_threshold",
    "sweep",
    "weak_recovery_threshold",
    "weight_decay",
    "whiten",
]

__getattr__ = moved_names(__name__)
