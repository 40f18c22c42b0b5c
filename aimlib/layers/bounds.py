"""What is known exactly about several layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _pairs as pairs
from aimlib import _validation as check
from aimlib._validation import FloatArray
from aimlib.channels import Channel
from aimlib.layers.channels import MixedLinearChannel
from aimlib.layers.evolution import state_evolution
from aimlib.priors import Prior, WishartPrior
from aimlib.replica import bayes_optimal

__all__ = [
    "error_through_the_sum",
    "error_with_the_others_known",
]


def error_through_the_sum(
    sample_complexity: ArrayLike, width_ratio: float, layers: int, channel: Channel
) -> Any:
    r"""Return the Bayes-optimal error of each of L Wishart layers seen through their sum only.

    The outputs are those of one layer with the indices :math:`\sum_\ell h^{(\ell)}/\sqrt L`, which
    are those of a Wishart matrix of width ratio :math:`L\rho` (``layers:sum``):

    .. math:: \mathcal E_\ell = 1-\frac1L+\frac1L\,\mathcal E_{\rm Bayes}(\alpha; L\rho).

    Parameters
    ----------
    sample_complexity : float or array
        alpha.
    width_ratio : float
        rho of every layer.
    layers : int
        L, at least 1.
    channel : Channel
        Of one layer.

    Returns
    -------
    float or array

    Raises
    ------
    ValueError
        If an argument is out of range, or the channel is not one of symmetric indices.

    Examples
    --------
    >>> from aimlib import SoftmaxChannel
    >>> error_through_the_sum(9.0, 0.5, 2, SoftmaxChannel(tokens=2))
    0.5
    """
    count = check.integer("layers", layers, low=1)
    rho = check.positive("width_ratio", width_ratio)
    whole = bayes_optimal(sample_complexity, WishartPrior(count * rho), channel)
    return 1.0 - 1.0 / count + whole.estimation_error / count


def error_with_the_others_known(
    sample_complexity: float, priors: Sequence[Prior], channel: MixedLinearChannel
) -> FloatArray:
    """Return the Bayes-optimal error of each layer when all other layers are revealed.

    No method can do better without them: a lower bound for every estimate (``layers:genie``).

    Parameters
    ----------
    sample_complexity : float
        alpha > 0.
    priors : sequence of Prior
    channel : MixedLinearChannel

    Returns
    -------
    array, shape (L,)

    Raises
    ------
    ValueError
        If ``sample_complexity`` is not positive, or priors and channel do not belong together.

    Examples
    --------
    >>> from aimlib import WignerPrior
    >>> channel = MixedLinearChannel([[1.0, 0.5], [0.5, 1.0]], noise=0.5)
    >>> error_with_the_others_known(0.5, [WignerPrior()] * 2, channel).round(4)
    array([0.3583, 0.3583])
    """
    laws = pairs.match_layers(priors, channel)
    if not isinstance(channel, MixedLinearChannel):
        raise ValueError(f"channel must be a MixedLinearChannel, got {channel!r}")
    check.positive("sample_complexity", sample_complexity)
    errors = np.array([law.variance for law in laws])
    for k, law in enumerate(laws):
        if not channel.mixing[:, k].any():  # not seen at all
            continue
        alone = MixedLinearChannel(channel.mixing[:, k : k + 1], channel.noise, channel.tokens)
        errors[k] = state_evolution(sample_complexity, [law], alone, 500)[-1, 0, 0]
    return errors
