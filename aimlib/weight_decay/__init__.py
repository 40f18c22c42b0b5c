r"""What regularised training reaches: weight decay on W is a trace penalty on S.

With :math:`S = WW^\top/\sqrt{rd}` the penalty :math:`\|W\|_F^2/d^2` is
:math:`\sqrt{r/d}\,\mathrm{Tr}\,S/d`.  A student at least as wide as the solution needs therefore
minimises (``weight_decay:objective``)

.. math:: \mathcal L(S) = \frac1n\sum_\mu\|P(h_\mu(S)-h_\mu)\|_F^2
          + \lambda\,\frac{\mathrm{Tr}\,S}{d},\qquad S\succeq0,

where P keeps the combinations of the indices that the channel shows.  Here are its exact
asymptotics (:func:`regularised`, :func:`best_decay`), the thresholds from which the teacher is the
only solution (:func:`minimum_trace_threshold`, :func:`positivity_threshold`), a solver
(:func:`regularised_fit`), and the posterior sampler it is set beside (:func:`posterior_samples`).
"""

from aimlib.weight_decay.evolution import (
    Regularised,
    best_decay,
    minimum_trace_threshold,
    positivity_threshold,
    regularised,
)
from aimlib.weight_decay.fit import RegularisedFit, regularised_fit
from aimlib.weight_decay.langevin import PosteriorSamples, posterior_samples

__all__ = [
    "PosteriorSamples",
    "Regularised",
    "RegularisedFit",
    "best_decay",
    "minimum_trace_threshold",
    "positivity_threshold",
    "posterior_samples",
    "regularised",
    "regularised_fit",
]
