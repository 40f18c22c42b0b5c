"""Bayes-optimal learning of attention-indexed models."""

from aimlib.amp import AMPResult, StreamedDataset, amp
from aimlib.channels import HardmaxChannel, LinearChannel, SoftmaxChannel
from aimlib.cross_attention import (
    BilinearPrior,
    CrossAttentionModel,
    CrossDataset,
    CrossHardmaxChannel,
    CrossLinearChannel,
    CrossSoftmaxChannel,
    cross_attention_amp,
    cross_attention_indices,
    cross_weak_recovery_threshold,
)
from aimlib.deep import deep_attention, deep_attention_from_indices
from aimlib.descent import DescentResult, averaged_gradient_descent, gradient_descent
from aimlib.layers import (
    DeepSoftmaxChannel,
    LayeredAMPResult,
    LayeredDataset,
    MixedLinearChannel,
    layered_amp,
    layered_state_evolution,
    sample_layers,
)
from aimlib.model import AttentionIndexedModel, Dataset, attention_indices, estimation_error
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
from aimlib.sweeps import sweep
from aimlib.tokens import CorrelatedSoftmaxChannel, FourthMomentHardmaxChannel, whiten

__version__ = "0.1.0"

__all__ = [
    "AMPResult",
    "AttentionIndexedModel",
    "BayesOptimal",
    "BilinearPrior",
    "CorrelatedSoftmaxChannel",
    "CrossAttentionModel",
    "CrossDataset",
    "CrossHardmaxChannel",
    "CrossLinearChannel",
    "CrossSoftmaxChannel",
    "Dataset",
    "DeepSoftmaxChannel",
    "DescentResult",
    "FourthMomentHardmaxChannel",
    "HardmaxChannel",
    "LayeredAMPResult",
    "LayeredDataset",
    "LinearChannel",
    "MixedLinearChannel",
    "SoftmaxChannel",
    "SpectralPrior",
    "StreamedDataset",
    "WignerPrior",
    "WishartPrior",
    "amp",
    "attention_indices",
    "averaged_gradient_descent",
    "bayes_optimal",
    "cross_attention_amp",
    "cross_attention_indices",
    "cross_weak_recovery_threshold",
    "deep_attention",
    "deep_attention_from_indices",
    "estimation_error",
    "fixed_points",
    "free_entropy",
    "gradient_descent",
    "hardmax_asymptotic_error",
    "layered_amp",
    "layered_state_evolution",
    "sample_layers",
    "small_width_overlap",
    "state_evolution",
    "strong_recovery_threshold",
    "sweep",
    "weak_recovery_threshold",
    "whiten",
]
