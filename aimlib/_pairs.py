r"""Which prior, channel and data set belong together: the one border that decides.

Every prior, channel and data set has an attribute ``weights`` that names the matrices it is about.

================  =======================================  ==============================
weights           matrices                                 indices
================  =======================================  ==============================
``symmetric``     S symmetric, (d, d)                      (T, T), symmetric
``rectangular``   S of cross-attention, (d, d')            (T, T'), all independent
``layered``       L symmetric matrices, a prior for each   (L, T, T), symmetric
================  =======================================  ==============================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_PARTNERS = {
    "symmetric": (
        "a WishartPrior, WignerPrior or SpectralPrior with a channel of symmetric indices, such as "
        "SoftmaxChannel, HardmaxChannel or LinearChannel"
    ),
    "rectangular": "a BilinearPrior with a channel of aimlib.cross_attention",
    "layered": (
        "a sequence of priors of symmetric matrices with a channel of aimlib.layers, in the "
        "functions of that namespace"
    ),
}
_METHODS = {"prior": "mmse", "channel": "output"}


def weights_of(value: Any) -> str | None:
    """Return the kind of weights that an object says it is about, or None."""
    kind = getattr(value, "weights", None)
    return kind if isinstance(kind, str) and kind in _PARTNERS else None


def match(prior: Any, channel: Any, *others: tuple[str, Any], weights: str | None = None) -> None:
    """Raise ``ValueError`` unless prior and channel, and other named objects, belong together.

    Parameters
    ----------
    prior, channel
        Any objects; what is neither is refused.
    others : (name, object)
        For example ``("dataset", dataset)``.
    weights : str, optional
        The kind that is asked for; by default any, but the same for all, and not layered.
    """
    named = [("prior", prior), ("channel", channel), *others]
    for name, value in named:
        known(name, value)
    kinds = {weights_of(value) for _, value in named}
    wanted = weights or ("rectangular" if weights_of(prior) == "rectangular" else "symmetric")
    if kinds != {wanted}:
        fitting = _PARTNERS[weights] if weights else "; or ".join(_PARTNERS.values())
        raise _strangers(named, fitting)


def match_layers(priors: Any, channel: Any, *others: tuple[str, Any]) -> list[Any]:
    """Return the priors of the layers as a list, or raise ``ValueError`` naming what does not fit.

    Parameters
    ----------
    priors : sequence of Prior
        One for each layer of the channel.
    channel
        Of several layers.
    others : (name, object)
        For example ``("dataset", dataset)``.
    """
    laws = symmetric_priors(priors)
    known("channel", channel)
    named = [("channel", channel), *others]
    if any(weights_of(value) != "layered" for _, value in named):
        raise _strangers([("priors", priors), *named], _PARTNERS["layered"])
    if len(laws) != channel.layers:
        raise ValueError(
            f"priors must hold {channel.layers} priors, one for each layer of {channel!r}, "
            f"got {priors!r}"
        )
    return laws


def symmetric_priors(priors: Any) -> list[Any]:
    """Return a sequence of priors of symmetric matrices as a list, or raise ``ValueError``."""
    laws = list(priors) if isinstance(priors, Sequence) else []
    fits = all(weights_of(law) == "symmetric" and hasattr(law, _METHODS["prior"]) for law in laws)
    if not laws or not fits:
        raise ValueError(
            f"priors must be a sequence of priors of symmetric matrices, got {_short(priors)}"
        )
    return laws


def alone(name: str, value: Any, weights: str, instead: str = "") -> None:
    """Raise ``ValueError`` unless a prior or channel is for this kind of weights."""
    known(name, value)
    if weights_of(value) != weights:
        hint = f"; use {instead}" if instead else ""
        raise ValueError(
            f"{name} must be for {weights} weights ({_PARTNERS[weights]}), "
            f"got {_short(value)}, for {weights_of(value)} ones{hint}"
        )


def known(name: str, value: Any) -> None:
    """Raise ``ValueError`` unless the object says which weights it is about."""
    method = _METHODS.get(name, "weights")
    if isinstance(value, type) or weights_of(value) is None or not hasattr(value, method):
        raise ValueError(
            f"{name} must be a {name} with the attribute weights = 'symmetric', 'rectangular' or "
            f"'layered', got {_short(value)}"
        )


def match_tokens(channel: Any, dataset: Any, shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` unless a channel has the tokens of the data set and accepts its outputs.

    ``shape`` is what the channel expects: (T,), or (T, T') for cross-attention.
    """
    found = tuple(count for count, _ in dataset.shapes)
    if shape != found:
        kinds = "tokens" if len(found) == 1 else "queries and keys"
        raise ValueError(
            f"channel must have the {_plain(found)} {kinds} of the dataset, "
            f"got {_short(channel)} with {_plain(shape)}"
        )
    if hasattr(channel, "validate"):
        channel.validate(dataset.outputs)


def coordinate_variance(prior: Any) -> float:
    r"""Return :math:`\nu`, the variance of the noise in one orthonormal coordinate over Delta/d.

    The noise that data leave on S has entries of variance :math:`\Delta/d`.  In the space of
    symmetric matrices an orthonormal coordinate off the diagonal is :math:`\sqrt2\,N_{ij}`: 2.  In
    the space of rectangular ones it is the entry itself: 1.  This is the 2 of
    :math:`\hat q=2\alpha c/V` (``replica:saddle``), which cross-attention does not have
    (``cross_attention:saddle``).
    """
    return 2.0 if weights_of(prior) == "symmetric" else 1.0


def _strangers(named: list[tuple[str, Any]], fitting: str) -> ValueError:
    """The error that names the objects, what fits together, and what each of them is for."""
    *first, last = [name for name, _ in named]
    kinds = {name: weights_of(value) for name, value in named}
    shown = ", ".join(
        f"{name} = {_short(value)}" + (f" ({kinds[name]})" if kinds[name] else "")
        for name, value in named
    )
    return ValueError(f"{', '.join(first)} and {last} must belong together: {fitting}; got {shown}")


def _plain(shape: tuple[int, ...]) -> str:
    return str(shape[0] if len(shape) == 1 else shape)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"an object of class {type(value).__name__}"
