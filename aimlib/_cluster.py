r"""Sums over the blocks of a data set, in this process or on the workers of a Dask cluster.

A pass over the data is a function that a computer with some of the blocks can evaluate: it changes
its own g and returns sums.  On a cluster the blocks are divided into parts.  What makes the tokens
of a part lives on a worker; a pass sends the estimate to the workers, each of them sums over its
parts, and pairs of sums are added in a tree until one is left.  The parts, and the order in which
sums are added, follow from the data alone, so that the result is that of any other cluster.

Every task is a pure function of what the scheduler knows, so that what a lost worker held or was
doing is made again by another one.  That is why g, :math:`nT^2` numbers, travels with the tasks: if
it stayed with the workers, a loss would have to repeat all iterations.

``distributed`` is imported by whoever makes the client, never here before.
"""

from __future__ import annotations

import itertools
import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from aimlib._datasets import SequenceData
from aimlib._validation import FloatArray

Sums = tuple[FloatArray, ...]
Pass = Callable[..., Sums]  # of data, g, and any arrays
Total = Callable[..., Sums]  # of a pass, g, and any arrays

_LEAST_PARTS = 64  # enough to balance a few workers, few enough to schedule in milliseconds
_PART = 1 << 14  # sequences in a part beyond that: its products take far longer than its sums move
_LARGE = "Sending large graph"  # what Dask warns of; the estimate has to get to the workers


def over(dataset: SequenceData, client: Any = None) -> Total:
    """Return the function that evaluates a pass on all the blocks of a data set.

    Raises
    ------
    ValueError
        If ``client`` is no client of Dask that waits for its results.
    """
    if client is None:
        return lambda step, g, *state: step(dataset, g, *state)
    return _Parts(dataset, checked(client)).total


def checked(client: Any) -> Any:
    """Return a client of Dask, or raise ``ValueError``."""
    try:
        from distributed import Client
    except ImportError:
        raise ValueError(
            f"client must be a distributed.Client (pip install 'aimlib[dask]'), got {client!r}"
        ) from None
    if not isinstance(client, Client) or client.asynchronous:
        raise ValueError(f"client must be a distributed.Client in a script, got {client!r}")
    if client.status != "running":
        raise ValueError(f"client must be connected to its scheduler, got {client!r}")
    return client


@dataclass(frozen=True)
class _Parts:
    """The parts of a data set, which live on the workers."""

    dataset: SequenceData
    client: Any

    def __post_init__(self) -> None:
        n = len(self.dataset.outputs)
        blocks = self.dataset.block_count
        count = min(blocks, max(_LEAST_PARTS, n // _PART))
        edges = [round(k * blocks / count) for k in range(count + 1)]
        parts = [self.dataset.part(a, b) for a, b in itertools.pairwise(edges)]
        stops = np.cumsum([len(part.outputs) for part in parts])
        rows = [slice(b - len(p.outputs), b) for p, b in zip(parts, stops, strict=True)]
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "held", [keep(self.client, part) for part in parts])

    def total(self, step: Pass, g: FloatArray, *state: FloatArray) -> Sums:
        """Evaluate a pass on every part, replace g by what they make of it, and add their sums."""
        rows: list[slice] = self.rows  # type: ignore[attr-defined]
        held: list[Any] = self.held  # type: ignore[attr-defined]

        def submit() -> list[Any]:
            # every worker asks for the state, and gets it from another worker that has it
            sent = keep(self.client, state)
            done = [
                self.client.submit(_evaluate, step, part, g[r], sent, key=_key("pass"))
                for part, r in zip(held, rows, strict=True)
            ]
            new = [self.client.submit(_second, pair, key=_key("g")) for pair in done]
            sums = [self.client.submit(_first, pair, key=_key("sum")) for pair in done]
            while len(sums) > 1:
                sums = [
                    self.client.submit(_add, *sums[k : k + 2], key=_key("add"))
                    for k in range(0, len(sums), 2)
                ]
            return [sums[0], *new]

        total, *found = gathered(self.client, submit)
        for r, block in zip(rows, found, strict=True):
            g[r] = block
        return cast(Sums, total)


def _evaluate(step: Pass, part: SequenceData, g: FloatArray, state: Sums) -> tuple[Sums, Any]:
    new = np.array(g)  # what came with the task may be read-only, and is read again if it is redone
    return step(part, new, *state), new


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _second(pair: tuple[Any, Any]) -> Any:
    return pair[1]


def _add(left: Sums, right: Sums | None = None) -> Sums:
    return left if right is None else tuple(a + b for a, b in zip(left, right, strict=True))


# ---------------------------------------------------------------------------------------------
# Values on the workers
# ---------------------------------------------------------------------------------------------


def keep(client: Any, value: Any) -> Any:
    """Let a worker hold a value; the scheduler can make another hold it should this one be lost."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _LARGE)
        return client.submit(_same, value, key=_key("keep"))


def _same(value: Any) -> Any:
    return value


def _key(kind: str) -> str:
    return f"aimlib-{kind}-{uuid.uuid4().hex}"


def gathered(client: Any, submit: Callable[[], Sequence[Any]]) -> list[Any]:
    """Return the results of the tasks that a function submits.

    Raises
    ------
    RuntimeError
        If a task was lost with worker after worker, as happens when it needs more memory than they
        have.
    """
    from distributed import KilledWorker

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _LARGE)
        futures = list(submit())
    try:
        return list(client.gather(futures))
    except KilledWorker as error:
        raise RuntimeError(
            f"workers of the client were lost one after the other: {error}; give them more memory, "
            "or the data set smaller blocks; a checkpoint keeps what was done"
        ) from error
