"""Names that have moved: for one release they lead to their new place, with a warning."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

_PLACES = {
    "CrossAttentionModel": "aimlib.cross_attention.Model",
    "CrossDataset": "aimlib.cross_attention.Dataset",
    "CrossHardmaxChannel": "aimlib.cross_attention.HardmaxChannel",
    "CrossLinearChannel": "aimlib.cross_attention.LinearChannel",
    "CrossSoftmaxChannel": "aimlib.cross_attention.SoftmaxChannel",
    "DeepSoftmaxChannel": "aimlib.layers.DeepSoftmaxChannel",
    "LayeredAMPResult": "aimlib.AMPResult",
    "LayeredDataset": "aimlib.layers.Dataset",
    "LayeredDescentResult": "aimlib.DescentResult",
    "MixedLinearChannel": "aimlib.layers.MixedLinearChannel",
    "cross_attention_amp": "aimlib.cross_attention.amp",
    "cross_attention_indices": "aimlib.cross_attention.indices",
    "cross_weak_recovery_threshold": "aimlib.cross_attention.weak_recovery_threshold",
    "layered_amp": "aimlib.layers.amp",
    "layered_descent": "aimlib.layers.averaged_gradient_descent",
    "layered_loss_and_gradient": "aimlib.layers.loss_and_gradient",
    "layered_state_evolution": "aimlib.layers.state_evolution",
    "sample_layers": "aimlib.layers.model.sample_layers",
}


def moved_names(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package from which the names have moved."""

    def moved(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        path = _PLACES[name]
        warnings.warn(f"{package}.{name} is now {path}", DeprecationWarning, stacklevel=2)
        module, _, attribute = path.rpartition(".")
        return getattr(importlib.import_module(module), attribute)

    return moved
