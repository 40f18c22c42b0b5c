"""Where the tokens of a streamed data set come from, in this process or sent to another one."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aimlib import _validation as check
from aimlib._validation import FloatArray

if TYPE_CHECKING:
    from aimlib._datasets import SequenceModel

Sequences = tuple[FloatArray, ...]  # tokens (n, T, d); or queries (n, T, d) and keys (n, T', d')


def unpacked(values: tuple[Any, ...]) -> Any:
    """Return the only value, or all of them as a tuple."""
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True)
class Shifted:
    """Block k of the blocks of a source from ``first`` on."""

    source: Callable[[int], Any]
    first: int

    def __call__(self, k: int) -> Any:
        return self.source(self.first + k)


@dataclass(frozen=True)
class Mapped:
    """Block k of arrays that may live in a file.

    To another process go not the numbers of a mapped file but its name: it has to see the file.
    """

    arrays: tuple[Any, ...]
    size: int

    def part(self, first: int, stop: int) -> Mapped:
        """Return the blocks from ``first`` up to ``stop``."""
        rows = slice(first * self.size, stop * self.size)
        return Mapped(tuple(x[rows] for x in self.arrays), self.size)

    def __reduce__(self) -> Any:
        return _mapped_again, (tuple(_where(x) for x in self.arrays), self.size)

    def __call__(self, k: int) -> Any:
        rows = slice(k * self.size, (k + 1) * self.size)
        return unpacked(tuple(check.reals("tokens", x[rows]) for x in self.arrays))


def part_of(source: Callable[[int], Any], first: int, stop: int) -> Callable[[int], Any]:
    """Return the source of the blocks from ``first`` up to ``stop``."""
    return source.part(first, stop) if isinstance(source, Mapped) else Shifted(source, first)


def _where(array: Any) -> Any:
    """Where the numbers of an array are in a file; the array itself if they are in memory."""
    buffer = getattr(array, "_mmap", None)
    if buffer is None or array.filename is None or not array.flags.c_contiguous:
        return np.asarray(array)
    # the offset that a view of a map says is that of the whole
    mapped_from = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    inside = array.ctypes.data - np.frombuffer(buffer, np.uint8).ctypes.data
    return str(array.filename), array.dtype, mapped_from + inside, array.shape


def _mapped_again(places: tuple[Any, ...], size: int) -> Mapped:
    arrays = (
        np.memmap(place[0], place[1], "r", *place[2:]) if isinstance(place, tuple) else place
        for place in places
    )
    return Mapped(tuple(arrays), size)


@dataclass(frozen=True)
class Regenerated:
    """Block k of the tokens of a model, drawn again at every call, on any machine."""

    model: SequenceModel
    seeds: tuple[np.random.SeedSequence, ...]
    count: int
    size: int

    def __call__(self, k: int) -> Any:
        return unpacked(self.draw(k))

    def draw(self, k: int) -> Sequences:
        """Return all sequences of block k as a tuple."""
        rngs = [stream(seed, k) for seed in self.seeds]
        return self.model.draw_sequences(rngs, min(self.size, self.count - k * self.size))


def seed_of(rng: np.random.Generator) -> np.random.SeedSequence:
    """Return the seed of a generator, as if nothing had been spawned from it yet."""
    seed: Any = rng.bit_generator.seed_seq
    return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)


def stream(seed: np.random.SeedSequence, k: int) -> np.random.Generator:
    """Return the stream of block k."""
    key = (*seed.spawn_key, k)
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=key))
