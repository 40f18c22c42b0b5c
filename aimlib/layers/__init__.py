r"""Several layers of attention: what can be learned of many matrices at once, and by what.

The outputs are functions of the indices of L matrices, :math:`y = g(h^{(1)},\dots,h^{(L)})`.  The
overlap and its conjugate become L x L matrices, and all data are equivalent to noisy copies of the
layers with *correlated* noises (``layers:observation``)

.. math:: R_\ell = S_\ell + N_\ell,\qquad
          \mathrm{E}\,N_{\ell,ij}N_{\ell',ij} = \frac{\Delta_{\ell\ell'}}d\ (i\ne j),\qquad
          \Delta = \hat q^{-1}.

The optimal denoiser of that problem is not known for L > 1.  This module holds what is: gradient
descent through all layers, the exact error of denoisers that treat each layer by itself and mix
linearly (``layers:cross``, ``layers:combined``), message passing with them and its state evolution.
"""

from aimlib._moved import moved_names
from aimlib.layers.amp import amp
from aimlib.layers.bounds import error_through_the_sum, error_with_the_others_known
from aimlib.layers.channels import DeepSoftmaxChannel, LayeredChannel, MixedLinearChannel
from aimlib.layers.denoising import denoising_error
from aimlib.layers.descent import averaged_gradient_descent, loss_and_gradient
from aimlib.layers.evolution import second_moments, state_evolution
from aimlib.layers.model import Dataset, Model

__all__ = [
    "Dataset",
    "DeepSoftmaxChannel",
    "LayeredChannel",
    "MixedLinearChannel",
    "Model",
    "amp",
    "averaged_gradient_descent",
    "denoising_error",
    "error_through_the_sum",
    "error_with_the_others_known",
    "loss_and_gradient",
    "second_moments",
    "state_evolution",
]

__getattr__ = moved_names(__name__)
