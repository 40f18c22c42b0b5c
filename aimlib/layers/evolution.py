"""State evolution of message passing for several layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aimlib import _pairs as pairs
from aimlib import _validation as check
from aimlib._iteration import inverse_response
from aimlib._validation import FloatArray
from aimlib.layers.channels import LayeredChannel
from aimlib.layers.denoising import Scheme, check_scheme, denoising_error
from aimlib.priors import Prior

__all__ = ["second_moments", "state_evolution"]


def state_evolution(
    sample_complexity: float,
    priors: Sequence[Prior],
    channel: LayeredChannel,
    iterations: int = 50,
    scheme: Scheme = "combined",
) -> FloatArray:
    r"""Return the error matrices :math:`V_t` of message passing (``layers:state-evolution``).

    .. math:: \Delta_t = \frac{\Gamma(V_t)^{-1}}{2\alpha},\qquad V_{t+1} = \mathcal V(\Delta_t).

    Parameters
    ----------
    sample_complexity : float
        alpha > 0.
    priors : sequence of Prior
    channel : MixedLinearChannel or DeepSoftmaxChannel
    iterations : int
        Number of steps, at least 1.
    scheme : {"combined", "separate"}
        See :func:`denoising_error`; "separate" needs a linear channel, for which the errors alone
        decide.

    Returns
    -------
    array, shape (iterations + 1, L, L)
        Constant from where an eigenvalue falls below 1e-10, or a step below 1e-14.

    Raises
    ------
    ValueError
        If an argument is out of range, or priors and channel do not belong together.

    Examples
    --------
    >>> from aimlib import WignerPrior, layers
    >>> channel = layers.MixedLinearChannel([[1.0, 0.5], [0.5, 1.0]], noise=0.1)
    >>> path = state_evolution(0.5, [WignerPrior()] * 2, channel, iterations=3)
    >>> path.shape, bool(path[-1, 0, 0] < path[1, 0, 0] < 1.0)
    ((4, 2, 2), True)
    """
    alpha = check.positive("sample_complexity", sample_complexity)
    steps = check.integer("iterations", iterations, low=1)
    laws = pairs.match_layers(priors, channel)
    check_scheme(scheme, channel)
    moments = second_moments(laws)
    v = np.empty((steps + 1, len(laws), len(laws)))
    v[0] = np.diag([law.variance for law in laws])
    for t in range(steps):
        settled = t > 0 and np.abs(v[t] - v[t - 1]).max() < 1e-14
        if settled or np.linalg.eigvalsh(v[t])[0] < 1e-10:
            v[t + 1 :] = v[t]
            break
        conjugate = 2.0 * alpha * channel.information(v[t], moments)
        v[t + 1] = denoising_error(inverse_response(conjugate), laws, scheme)
    return v


def second_moments(priors: Sequence[Prior]) -> FloatArray:
    r"""Return :math:`Q_{\ell\ell'}=\lim\mathrm{Tr}\,S_\ell S_{\ell'}/d` of independent layers.

    Parameters
    ----------
    priors : sequence of Prior
        Law of each layer.

    Returns
    -------
    array, shape (L, L)

    Examples
    --------
    >>> from aimlib import WishartPrior
    >>> second_moments([WishartPrior(0.25), WishartPrior(1.0)])
    array([[1.25, 0.5 ],
           [0.5 , 2.  ]])
    """
    priors = pairs.symmetric_priors(priors)
    means = np.array([law.mean_eigenvalue for law in priors])
    return np.asarray(np.outer(means, means) + np.diag([law.variance for law in priors]))
