r"""What all channels share: the checks at their border, and what follows from c alone.

A channel of one's own states three things, its output, the posterior mean of the indices and the
information c as a function of the uncertainty V.  The rest is derived here: c as a function of
the overlap; the entropy of the output, because :math:`dH/d\log V = c/2`; and the generalisation
error, half the mean squared distance between the outputs of two posterior samples
(``softmax:generalization``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._validation import FloatArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_SMALLEST = 1e-40  # V/Q that stands for zero where c is integrated over log V
_ROUNDING = 1e-6  # of outputs kept in single precision


class Informative(Protocol):
    """What state evolution asks of a channel, whatever the shape of its indices.

    :class:`SymmetricChannel` and :class:`RectangularChannel` derive all of it from
    ``information_at``.
    """

    @property
    def weights(self) -> str:
        """The kind of weights it is for, "symmetric" or "rectangular"."""

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        """Return c(q) (``channels:information``), V = Q - q.

        Parameters
        ----------
        overlap : float or array
            q from 0 to Q: the second moment of the estimate, ``Tr S_hat S_hat'/d``.
        second_moment : float
            Q > 0: that of S.

        Returns
        -------
        float or array
            Of the shape of ``overlap``, from 0 to the number of independent indices.
        """

    @abstractmethod
    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q, which keeps its digits at small V.

        Parameters
        ----------
        variance : float or array
            V from 0 to Q: what is left of the variance of an index (twice that on the diagonal of
            symmetric ones), and the estimation error of S.
        second_moment : float
            Q > 0, the limit of ``Tr S S'/d``: that variance when nothing is known.

        Returns
        -------
        float or array
            Of the shape of ``variance``: from 0 to the number of independent indices.
        """

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`-\Psi_{out}` (``replica:output-term``), the entropy of y in nats.

        .. math:: H(V) = -\tfrac12\int_V^Q c(V')\,\frac{dV'}{V'}

        up to a constant, which changes no estimate.  At V = 0 it is :math:`-\infty` unless c
        vanishes there.  Arguments as in :meth:`information_at`.
        """

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return the error on the output of a new sequence; each channel states its measure.

        Unless it states another, :math:`E\|y-E[y\mid\mathrm{data}]\|^2`, noise included: half the
        mean squared distance between the outputs of two posterior samples, by quasi-Monte Carlo
        with a fixed seed, to about 1e-3 relative.  Arguments as in :meth:`information_at`.

        Raises
        ------
        ValueError
            If outputs are not finite; a channel whose outputs have no squared distance states an
            error of its own.
        """


class Observed(Informative, Protocol):
    """What message passing asks of a channel beside, for indices of shape (..., T, T')."""

    @abstractmethod
    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return the outputs of indices; ``rng`` draws noise if there is any.

        Parameters
        ----------
        indices : array, shape (..., T, T')
            h; symmetric in the last two axes where the weights are symmetric.
        rng : numpy Generator, optional
            Needed by channels with noise, and by no other.

        Returns
        -------
        array, shape (..., T, T')

        Raises
        ------
        ValueError
            If the indices have another shape, are not finite or not symmetric where they must be.
        """

    @abstractmethod
    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        r"""Return :math:`E[h\mid y]` for indices that were Gaussian before (``channels:prior``).

        Parameters
        ----------
        y : array, shape (..., T, T')
            Outputs.
        omega : array, shape (..., T, T')
            :math:`\omega`, the means of the indices given all other data; of order one.
        variance : float
            V > 0: the variance of an index is V, twice that on the diagonal of symmetric ones.

        Returns
        -------
        array, shape (..., T, T')

        Raises
        ------
        ValueError
            If the shapes do not agree, V is not positive, or y is no output of this channel.
        """

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError if ``outputs``, shape (n, T, T'), cannot come from this channel.

        Message passing asks once.  Accepts everything unless a channel says more.
        """


class BaseChannel(Observed, ABC):
    """A channel of which :meth:`output`, :meth:`posterior_mean`, :meth:`information_at` are given.

    Derive from :class:`SymmetricChannel` or :class:`RectangularChannel`, which know the shape of
    the indices and check it (:meth:`check_indices`, :meth:`check_posterior`).
    """

    weights: ClassVar[Literal["symmetric", "rectangular"]]

    @property
    @abstractmethod
    def index_shape(self) -> tuple[int, int]:
        """Shape of the indices of one sequence, (T, T) or (T, T')."""

    @property
    def is_tied(self) -> bool:
        """Whether the indices (a, b) and (b, a) are one."""
        return self.weights == "symmetric"

    @property
    def spreads(self) -> FloatArray:
        """Variance of every index over V, which is 2 on the diagonal of symmetric ones, else 1."""
        return np.ones(self.index_shape) + (np.eye(self.index_shape[0]) if self.is_tied else 0.0)

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        return self.information_at(uncertainty(overlap, second_moment), second_moment)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        v = variances(variance, second_moment)
        values = [self._entropy_at(float(x), float(second_moment)) for x in np.ravel(v)]
        return like(np.array(values).reshape(np.shape(v)))

    def _entropy_at(self, variance: float, total: float) -> float:
        if variance == 0.0 and float(self.information_at(_SMALLEST * total, total)) > 1e-9:
            return -math.inf
        start = math.log(max(variance / total, _SMALLEST))
        panels = max(math.ceil(-start / 2.0), 1)
        half = -0.5 * start / panels
        left = start + 2.0 * half * np.arange(panels)[:, None]
        points = np.exp(np.minimum(left + half * (1.0 + _NODES), 0.0))
        values = np.asarray(self.information_at(total * points, total))
        return float(-0.5 * half * np.sum(values @ _WEIGHTS))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        v = variances(variance, second_moment)
        values = [sampled_error(self, float(x), float(second_moment)) for x in np.ravel(v)]
        return like(np.array(values).reshape(np.shape(v)))

    def validate(self, outputs: ArrayLike) -> None:
        pass

    def check_indices(self, name: str, value: ArrayLike) -> FloatArray:
        """Return finite indices of shape (..., T, T'), symmetric where they must be, or raise."""
        array = check_shape(name, value, self.index_shape)
        if self.is_tied and array.size:
            asymmetry = float(np.abs(array - np.swapaxes(array, -1, -2)).max())
            if asymmetry > 1e-9 * max(1.0, float(np.abs(array).max())):
                raise ValueError(
                    f"{name} must be symmetric in the last two axes, "
                    f"got entries that differ by {asymmetry:.3g}"
                )
        return array

    def check_posterior(
        self, y: ArrayLike, omega: ArrayLike, variance: float
    ) -> tuple[FloatArray, FloatArray, float]:
        """Return the arguments of :meth:`posterior_mean` as arrays of one shape, or raise."""
        outputs = check_shape("y", y, self.index_shape)
        centre = self.check_indices("omega", omega)
        if centre.shape != outputs.shape:
            raise ValueError(f"omega must have the shape of y, {outputs.shape}, got {centre.shape}")
        return outputs, centre, check.positive("variance", variance)


class SymmetricChannel(BaseChannel):
    """Base of channels of T x T symmetric indices; ``tokens`` is T, a field or a property."""

    weights: ClassVar[Literal["symmetric"]] = "symmetric"

    if TYPE_CHECKING:  # at run time it would become the default of a data class's field

        @property
        def tokens(self) -> int: ...

    @property
    def index_shape(self) -> tuple[int, int]:
        """(T, T)."""
        return self.tokens, self.tokens


class RectangularChannel(BaseChannel):
    """Base of channels of T x T' independent indices; ``queries`` is T and ``keys`` T'."""

    weights: ClassVar[Literal["rectangular"]] = "rectangular"

    if TYPE_CHECKING:

        @property
        def queries(self) -> int: ...

        @property
        def keys(self) -> int: ...

    @property
    def index_shape(self) -> tuple[int, int]:
        """(T, T')."""
        return self.queries, self.keys


def sampled_error(
    channel: BaseChannel, variance: float, second_moment: float, log_count: int = 14
) -> float:
    """Half the mean squared distance between the outputs of two posterior samples."""
    from scipy.stats import qmc  # half a second of import that few sessions need

    shape = channel.index_shape
    tied = channel.is_tied
    rows, columns = np.triu_indices(shape[0]) if tied else np.indices(shape).reshape(2, -1)
    scale = np.sqrt(channel.spreads[rows, columns])
    points = qmc.MultivariateNormalQMC(np.zeros(2 * rows.size), rng=np.random.default_rng(0))
    mean, spread = np.split(points.random(2**log_count), 2, axis=1)
    outputs, rng = [], np.random.default_rng(1)
    for sign in (1.0, -1.0):  # the half-sum and half-difference of two samples are independent
        h = np.empty((mean.shape[0], *shape))
        values = scale * (
            math.sqrt(second_moment - 0.5 * variance) * mean
            + sign * math.sqrt(0.5 * variance) * spread
        )
        h[:, rows, columns] = values
        if tied:
            h[:, columns, rows] = values
        outputs.append(channel.output(h, rng).reshape(mean.shape[0], -1))
    with np.errstate(invalid="ignore"):
        error = float(0.5 * np.mean(np.sum((outputs[0] - outputs[1]) ** 2, axis=1)))
    if not math.isfinite(error):
        raise ValueError(
            f"the outputs of {channel!r} must be finite for a generalisation error by sampling: "
            "give the channel a generalization_error of its own"
        )
    return error


# ---------------------------------------------------------------------------------------------
# Checks
# ---------------------------------------------------------------------------------------------


def check_shape(name: str, value: ArrayLike, shape: tuple[int, int]) -> FloatArray:
    """Return a finite array of shape (..., T, T'), or raise ValueError."""
    array = check.reals(name, value)
    if array.ndim < 2 or array.shape[-2:] != shape:
        raise ValueError(
            f"{name} must have shape (..., {shape[0]}, {shape[1]}), got shape {array.shape}"
        )
    return array


def check_one_hot(name: str, outputs: FloatArray) -> None:
    """Raise ValueError unless every row is zeros and a single one."""
    if not (np.isin(outputs, (0.0, 1.0)).all() and (outputs.sum(axis=-1) == 1.0).all()):
        raise ValueError(f"{name} must hold one-hot rows of zeros and a single one")


def check_positive(name: str, outputs: FloatArray, inverse_temperature: float) -> None:
    """Raise ValueError unless all softmax outputs are positive."""
    smallest = float(outputs.min()) if outputs.size else 1.0
    if smallest <= 0.0:
        raise ValueError(
            f"{name} must hold positive softmax outputs, got {smallest!r}: with inverse_temperature"
            f" {inverse_temperature:g} an output has underflowed"
        )


def check_rows_sum_to_one(name: str, outputs: FloatArray) -> None:
    """Raise ValueError, naming the worst row, unless rows sum to one within 1e-6 T'.

    That is the rounding of outputs kept in single precision.
    """
    gap = np.abs(outputs.sum(axis=-1) - 1.0)
    if gap.size and float(gap.max()) > _ROUNDING * outputs.shape[-1]:
        worst = np.unravel_index(int(gap.argmax()), gap.shape)
        raise ValueError(
            f"{name} must have rows that sum to 1 within {_ROUNDING * outputs.shape[-1]:g}, "
            f"got {float(outputs[worst].sum()):.9g} in row {_place(worst)}"
        )


def check_cycles(name: str, outputs: FloatArray, inverse_temperature: float) -> None:
    r"""Raise ValueError, naming the worst cycle, unless the outputs are those of symmetric indices.

    With :math:`h_{ab}=h_{ba}` the shifts of the rows cancel around any three tokens,

    .. math:: y_{ab}\,y_{bc}\,y_{ca} = y_{ac}\,y_{cb}\,y_{ba},

    which is checked for the cycles through the first token, of which all others are made.  The
    logarithms may differ by the rounding of outputs in single precision, 6e-6, plus that of
    :math:`\beta h` and of outputs below the normal range.
    """
    if outputs.shape[-1] < 3 or not outputs.size:
        return
    logs = np.log(outputs)
    ratio = logs - np.swapaxes(logs, -1, -2)
    first = ratio[..., :1, :]  # the cycle 0, b, c: ratios 0b, bc and c0
    cycle = np.abs(np.swapaxes(first, -1, -2) + ratio - first)
    rounding = _ROUNDING + 1e-14 * inverse_temperature + 1e-45 / outputs
    both = rounding + np.swapaxes(rounding, -1, -2)
    allowed = both[..., :1, :] + both + np.swapaxes(both[..., :1, :], -1, -2)
    excess = cycle - allowed
    if float(excess.max()) > 0.0:
        *sequence, b, c = np.unravel_index(int(excess.argmax()), excess.shape)
        at = (*sequence, b, c)
        raise ValueError(
            f"{name} must be the softmax of symmetric indices, so that y_ab y_bc y_ca = "
            f"y_ac y_cb y_ba: in sequence {_place(tuple(sequence))}, tokens 0, {b} and {c}, the "
            f"logarithms differ by {float(cycle[at]):.3g} where {float(allowed[at]):.3g} is allowed"
        )


def _place(index: tuple[Any, ...]) -> str:
    return ", ".join(str(int(i)) for i in index) if index else "0"


def uncertainty(overlap: ArrayLike, second_moment: float) -> FloatArray:
    """Return V = Q - q after checking 0 <= q <= Q."""
    total = check.positive("second_moment", second_moment)
    return total - check.reals("overlap", overlap, low=0.0, high=total)


def variances(variance: ArrayLike, second_moment: float) -> FloatArray:
    """Check 0 <= V <= Q; a plain float inside, as in every root search, passes at once."""
    if type(variance) is float and isinstance(second_moment, float):
        if 0.0 <= variance <= second_moment < math.inf and second_moment > 0.0:
            return np.float64(variance)
    total = check.positive("second_moment", second_moment)
    return check.reals("variance", variance, low=0.0, high=total)


def like(values: FloatArray) -> Any:
    """Return a float where a float was asked, else the array."""
    return float(values) if np.ndim(values) == 0 else values
