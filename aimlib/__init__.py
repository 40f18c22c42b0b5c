"""Bayes-optimal learning of attention-indexed models."""

from aimlib.amp import AMPResult, amp
from aimlib.channels import HardmaxChannel, LinearChannel, SoftmaxChannel
from aimlib.cross_attention import (
    BilinearPrior,
)
from aimlib.cross_attention import (
    Dataset as CrossDataset,
)
from aimlib.cross_attention import (
    HardmaxChannel as CrossHardmaxChannel,
)
from aimlib.cross_attention import (
    LinearChannel as CrossLinearChannel,
)
from aimlib.cross_attention import (
    Model as CrossAttentionModel,
)
from aimlib.cross_attention import (
    SoftmaxChannel as CrossSoftmaxChannel,
)
from aimlib.cross_attention import (
    amp as cross_attention_amp,
)
from aimlib.cross_attention import (
    indices as cross_attention_indices,
)
from aimlib.cross_attention import (
    weak_recovery_threshold as cross_weak_recovery_threshold,
)
from aimlib.deep import deep_attention, deep_attention_from_indices
from aimlib.descent import DescentResult, averaged_gradient_descent, gradient_descent
from aimlib.layers import (
    Dataset as LayeredDataset,
)
from aimlib.layers import (
    DeepSoftmaxChannel,
    MixedLinearChannel,
    sample_layers,
)
from aimlib.layers import (
    amp as layered_amp,
)
from aimlib.layers import (
    state_evolution as layered_state_evolution,
)
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
