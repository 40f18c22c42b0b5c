r"""Cross-attention: untied, rectangular weights, with the tokens of two different sequences.

Beyond the source paper.  Queries :math:`x_a\in\mathbb R^d`, :math:`a\le T`, and keys
:math:`z_b\in\mathbb R^{d'}`, :math:`b\le T'`, are independent, so that the indices
(``cross_attention:indices``)

.. math:: h_{ab} = \frac{x_a^\top S z_b}{\sqrt d},\qquad S = \frac{Q K^\top}{\sqrt{r d'}},

with Gaussian :math:`Q\in\mathbb R^{d\times r}` and :math:`K\in\mathbb R^{d'\times r}`, are
:math:`TT'` independent Gaussians of variance :math:`\mathrm{Tr}(SS^\top)/d \to 1`.  The ratios are
:math:`\rho = r/d` and :math:`\psi = d'/d`, and :math:`n=\alpha d^2` sequences are seen.  All data
act as one noisy matrix :math:`R = S+\sqrt\Delta\,Z`, with independent entries of Z of variance 1/d,
and (``cross_attention:saddle``)

.. math:: \hat q = \frac1\Delta = \frac{\alpha c}{V},\qquad V=\mathrm{mmse}(\Delta) .

The noisy singular values are described by one complex number P (``cross_attention:curve``),

.. math:: \lambda^2 = \frac{(1+N)(\psi+N)}{P},\qquad N = \frac{\rho P}{\psi\rho-P}+\Delta P .

Inside the support a real :math:`\lambda` has one pair of complex roots P and two real ones beyond
:math:`\psi\rho`.  The coefficients of the quartic give everything that is needed of the pair as
products of the real ones, without cancellation: the optimal denoiser is
:math:`D = \lambda k/(k+\Delta)` with :math:`k = \psi\rho^2/|\psi\rho-P|^2`.
"""

from aimlib._moved import moved_names
from aimlib.cross_attention.amp import amp
from aimlib.cross_attention.channels import HardmaxChannel, LinearChannel, SoftmaxChannel
from aimlib.cross_attention.model import Dataset, Model, indices, weak_recovery_threshold
from aimlib.cross_attention.prior import BilinearPrior

__all__ = [
    "BilinearPrior",
    "Dataset",
    "HardmaxChannel",
    "LinearChannel",
    "Model",
    "SoftmaxChannel",
    "amp",
    "indices",
    "weak_recovery_threshold",
]

__getattr__ = moved_names(__name__)
