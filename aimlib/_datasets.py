"""Data sets in memory and larger than memory, and the one way to draw them from a model.

A data set is read in blocks of sequences (:meth:`SequenceData.blocks`), which is all that message
passing asks of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._memory import available_memory
from aimlib._validation import FloatArray

Seed = int | np.random.SeedSequence | np.random.Generator
Sequences = tuple[FloatArray, ...]  # tokens (n, T, d); or queries (n, T, d) and keys (n, T', d')
Shapes = tuple[tuple[int, int], ...]  # tokens and dimension of each of them

_BLOCK_BYTES = 1 << 19  # tokens of one block: small enough for the cache, large enough for BLAS
_LEAST_BLOCK = 64


# ---------------------------------------------------------------------------------------------
# What all data sets have in common
# ---------------------------------------------------------------------------------------------


class SequenceData:
    """Base of all data sets: sequences, their outputs and, where it is known, the teacher.

    Attributes
    ----------
    weights : {"symmetric", "rectangular", "layered"}
        The matrices that made the outputs.
    outputs : array, shape (n, ...)
    teacher : array or None
        Of shape (d, d), (d, d') or (L, d, d); None when it is not known.
    dimension : int
        Embedding dimension d; of cross-attention that of the queries.
    """

    weights: str
    outputs: FloatArray
    teacher: FloatArray | None
    dimension: int

    @property
    def shapes(self) -> Shapes:
        """Tokens and dimension, (T, d); of queries and keys, (T, d) and (T', d')."""
        raise NotImplementedError

    @property
    def sample_complexity(self) -> float:
        """Sample complexity alpha = n/d^2."""
        return float(self.outputs.shape[0] / self.dimension**2)

    def blocks(self) -> Iterator[tuple[slice, Sequences]]:
        """Yield the rows of each block of sequences, and its tokens.

        What a pass over the data computes is a sum over these blocks, in any order.
        """
        raise NotImplementedError

    def _store(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check(self, count: int | None = None) -> None:
        """Check outputs and teacher against ``shapes`` and the number of sequences."""
        outputs, shapes = check.reals("outputs", self.outputs), self.shapes
        shown = (shapes[0][0], shapes[-1][0])
        fits = outputs.shape[1:] == shown or (self.weights == "layered" and outputs.ndim > 0)
        if not fits or 0 in outputs.shape or count not in (None, outputs.shape[0]):
            rest = "..." if self.weights == "layered" else f"{shown[0]}, {shown[1]}"
            wanted = f"({'n' if count is None else count}, {rest})"
            raise ValueError(f"outputs must have shape {wanted}, got shape {outputs.shape}")
        self._store(outputs=outputs)
        if self.teacher is not None:
            matrix = (shapes[0][1], shapes[-1][1])
            self._store(teacher=_teacher(self.teacher, self.weights, matrix))


class HeldData(SequenceData):
    """Base of the data sets in memory: those that have all their ``sequences``."""

    @property
    def sequences(self) -> Sequences:
        """The arrays of tokens, (n, T, d); of cross-attention the queries and the keys."""
        raise NotImplementedError

    @property
    def shapes(self) -> Shapes:
        """Tokens and dimension, (T, d); of queries and keys, (T, d) and (T', d')."""
        return tuple((int(x.shape[1]), int(x.shape[2])) for x in self.sequences)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """Embedding dimension d; of cross-attention that of the queries."""
        return self.shapes[0][1]

    def blocks(self) -> Iterator[tuple[slice, Sequences]]:
        """Yield the rows of each block of sequences, and its tokens."""
        n = self.outputs.shape[0]
        size = max(_BLOCK_BYTES // (8 * sum(t * d for t, d in self.shapes)), _LEAST_BLOCK)
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            yield rows, tuple(x[rows] for x in self.sequences)


def _teacher(value: Any, weights: str, shape: tuple[int, int]) -> FloatArray:
    if weights == "symmetric":
        teacher = check.symmetric_matrix("teacher", value)
    else:
        teacher = check.reals("teacher", value)
    if weights == "layered":
        if teacher.ndim != 3 or teacher.shape[1:] != shape or teacher.shape[0] == 0:
            raise ValueError(f"teacher must have shape (L, *{shape}), got shape {teacher.shape}")
        for layer in teacher:
            check.symmetric_matrix("teacher", layer)
    elif teacher.shape != shape:
        raise ValueError(f"teacher must have shape {shape}, got shape {teacher.shape}")
    return teacher


def sequences(name: str, value: Any) -> FloatArray:
    """Return tokens as a float64 array of shape (n, T, d), or raise ``ValueError``."""
    tokens = check.reals(name, value)
    if tokens.ndim != 3 or 0 in tokens.shape:
        raise ValueError(f"{name} must have shape (n, T, d), got shape {tokens.shape}")
    return tokens


@dataclass(frozen=True)
class Dataset(HeldData):
    """Sequences, their outputs and, where it is known, the teacher that made them.

    Attributes
    ----------
    tokens : array, shape (n, T, d)
        Independent entries of mean 0 and variance 1.
    outputs : array, shape (n, T, T)
        What the channel shows of the attention indices.
    teacher : array, shape (d, d), or None
        The symmetric matrix S; None when it is not known.

    Raises
    ------
    ValueError
        If the shapes do not agree, or an entry is not finite.

    Examples
    --------
    >>> data = Dataset(np.ones((8, 2, 4)), np.full((8, 2, 2), 0.5))
    >>> data.dimension, data.sample_complexity, data.teacher is None
    (4, 0.5, True)
    """

    weights: ClassVar[str] = "symmetric"  # type: ignore[misc]

    tokens: FloatArray
    outputs: FloatArray
    teacher: FloatArray | None = None

    def __post_init__(self) -> None:
        self._store(tokens=sequences("tokens", self.tokens))
        self._check(len(self.tokens))

    @property
    def sequences(self) -> Sequences:
        """The tokens alone."""
        return (self.tokens,)


# ---------------------------------------------------------------------------------------------
# Data sets larger than memory
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamedDataset(SequenceData):
    r"""Sequences whose tokens are never held in memory: a block of them is made when needed.

    What is held is the outputs, of order :math:`nT^2` numbers with :math:`n=\alpha d^2`, and the
    teacher.  It takes the place of the data set of one layer, of several and of cross-attention.

    Parameters
    ----------
    source : callable
        ``source(k)`` returns the tokens of block k, shape (block, T, d), or for cross-attention
        the pair of queries (block, T, d) and keys (block, T', d'); the last block may be shorter.
    block : int
        Sequences in a block.
    outputs : array, shape (n, ..., T, T')
    dimension : int or pair of int
        Embedding dimension d, or for cross-attention (d, d').
    teacher : array, shape (d, d), (d, d') or (L, d, d), optional
    weights : {"symmetric", "rectangular", "layered"}
        The matrices that made the outputs.

    Examples
    --------
    >>> from aimlib import AttentionIndexedModel, SoftmaxChannel, WishartPrior
    >>> model = AttentionIndexedModel(20, WishartPrior(0.5), SoftmaxChannel(tokens=2))
    >>> data = StreamedDataset.regenerate(model, 0.5, seed=1, block=64)
    >>> [(rows.stop, tokens.shape) for rows, (tokens,) in data.blocks()][-1]
    (200, (8, 2, 20))
    """

    source: Callable[[int], Any]
    block: int
    outputs: FloatArray
    dimension: Any
    teacher: FloatArray | None = None
    weights: str = "symmetric"

    def __post_init__(self) -> None:
        check.integer("block", self.block, low=1)
        if self.weights not in ("symmetric", "rectangular", "layered"):
            raise ValueError(
                f"weights must be 'symmetric', 'rectangular' or 'layered', got {self.weights!r}"
            )
        outputs = check.reals("outputs", self.outputs)
        if outputs.ndim < 3 or 0 in outputs.shape:
            raise ValueError(f"outputs must have shape (n, T, T), got shape {outputs.shape}")
        given = self.dimension if self.weights == "rectangular" else (self.dimension,)
        if not isinstance(given, tuple) or len(given) != 1 + (self.weights == "rectangular"):
            raise ValueError(f"dimension must be (d, d') for cross-attention, got {given!r}")
        sizes = [check.integer("dimension", size, low=1) for size in given]
        tokens = outputs.shape[-2:][-len(sizes) :]
        self._store(dimension=sizes[0], _shapes=tuple(zip(tokens, sizes, strict=True)))
        self._check()

    @property
    def shapes(self) -> Shapes:
        """Tokens and dimension, (T, d), of what ``source`` returns."""
        return self._shapes  # type: ignore[attr-defined, no-any-return]

    def blocks(self) -> Iterator[tuple[slice, Sequences]]:
        """Yield the rows of each block of sequences, and its tokens.

        Raises
        ------
        ValueError
            If ``source`` returns tokens of a wrong shape.
        """
        n = self.outputs.shape[0]
        for k in range(-(-n // self.block)):
            rows = slice(k * self.block, min((k + 1) * self.block, n))
            found = self.source(k)
            found = found if isinstance(found, tuple) else (found,)
            tokens = tuple(np.ascontiguousarray(x, dtype=np.float64) for x in found)
            wanted = tuple((rows.stop - rows.start, t, d) for t, d in self.shapes)
            if tuple(x.shape for x in tokens) != wanted:
                raise ValueError(
                    f"source must return tokens of shape {_unpacked(wanted)} for block {k}, "
                    f"got shape {_unpacked(tuple(x.shape for x in tokens))}"
                )
            yield rows, tokens

    @classmethod
    def regenerate(
        cls, model: SequenceModel, sample_complexity: float, seed: Seed, block: int = 1024
    ) -> StreamedDataset:
        """Draw every block again from its own seed in each pass: no disk, no memory.

        The teacher is that of ``model.sample(sample_complexity, seed)``; the tokens are others.

        Parameters
        ----------
        model : AttentionIndexedModel, cross_attention.Model or layers.Model
        sample_complexity : float
            alpha > 0, large enough for at least one sequence.
        seed : int, SeedSequence or Generator
            The only source of randomness; tokens and noise of every block have their own streams.
        block : int
            Sequences in a block.

        Raises
        ------
        ValueError
            If an argument is out of range, or the outputs do not fit in memory.
        """
        n = model.count(sample_complexity)
        size = check.integer("block", block, low=1)
        shown = model.shapes[0][0] * model.shapes[-1][0]
        check_memory(model, sample_complexity, n, 24 * shown, "")
        teacher_rng, *token_rngs, noise_rng = model.streams(seed)
        teacher = model.draw_teacher(teacher_rng)
        source = Regenerated(model, tuple(_seed_of(rng) for rng in token_rngs), n, size)
        noise, outputs = _seed_of(noise_rng), []
        for k in range(-(-n // size)):
            indices = model.indices(source.draw(k), teacher)
            outputs.append(model.channel.output(indices, _stream(noise, k)))
        dimensions = tuple(d for _, d in model.shapes)
        return cls(
            source, size, np.concatenate(outputs), _unpacked(dimensions), teacher, model.weights
        )

    @classmethod
    def mapped(
        cls,
        tokens: Any,
        outputs: ArrayLike,
        teacher: ArrayLike | None = None,
        block: int = 1024,
        weights: str = "symmetric",
    ) -> StreamedDataset:
        """Read blocks of arrays that may be mapped from a file (``numpy.load(mmap_mode="r")``).

        Parameters
        ----------
        tokens : array, shape (n, T, d), or pair of arrays for cross-attention
            Not copied; each block is converted to float64 when it is read.
        outputs : array, shape (n, ..., T, T')
        teacher : array, shape (d, d), (d, d') or (L, d, d), optional
        block : int
            Sequences in a block.
        weights : {"symmetric", "rectangular", "layered"}
            The matrices that made the outputs.

        Raises
        ------
        ValueError
            If the shapes do not agree.
        """
        arrays = tokens if isinstance(tokens, tuple) else (tokens,)
        shown = check.reals("outputs", outputs)
        counts = {len(x) for x in arrays} | {len(shown)}
        seen = shown.shape[-2:][-len(arrays) :]
        fits = all(x.ndim == 3 for x in arrays) and tuple(x.shape[1] for x in arrays) == seen
        if not fits or len(counts) != 1:
            raise ValueError(
                f"tokens must have shape (n, T, d) with n and T of outputs, {shown.shape}, "
                f"got shape {_unpacked(tuple(x.shape for x in arrays))}"
            )
        size = check.integer("block", block, low=1)
        dimensions = tuple(int(x.shape[2]) for x in arrays)
        known: Any = teacher
        return cls(Mapped(arrays, size), size, shown, _unpacked(dimensions), known, weights)


def _unpacked(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True)
class Mapped:
    """Block k of arrays that may live in a file."""

    arrays: tuple[Any, ...]
    size: int

    def __call__(self, k: int) -> Any:
        rows = slice(k * self.size, (k + 1) * self.size)
        return _unpacked(tuple(check.reals("tokens", x[rows]) for x in self.arrays))


@dataclass(frozen=True)
class Regenerated:
    """Block k of the tokens of a model, drawn again at every call, on any machine."""

    model: SequenceModel
    seeds: tuple[np.random.SeedSequence, ...]
    count: int
    size: int

    def __call__(self, k: int) -> Any:
        return _unpacked(self.draw(k))

    def draw(self, k: int) -> Sequences:
        """Return all sequences of block k as a tuple."""
        rngs = [_stream(seed, k) for seed in self.seeds]
        return self.model.draw_sequences(rngs, min(self.size, self.count - k * self.size))


def _seed_of(rng: np.random.Generator) -> np.random.SeedSequence:
    seed: Any = rng.bit_generator.seed_seq
    return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)


def _stream(seed: np.random.SeedSequence, k: int) -> np.random.Generator:
    key = (*seed.spawn_key, k)
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=key))


# ---------------------------------------------------------------------------------------------
# Drawing a data set
# ---------------------------------------------------------------------------------------------


class SequenceModel:
    """Base of all models: draws teachers, sequences and outputs.

    A subclass has a ``dimension`` d, a ``channel`` and ``weights``, and says what the teacher, the
    shapes of the sequences and the indices are.
    """

    weights: ClassVar[str]
    dimension: int
    channel: Any

    @property
    def shapes(self) -> Shapes:
        """Tokens and dimension, (T, d), of each kind of sequence."""
        return ((self.channel.tokens, self.dimension),)

    def draw_teacher(self, rng: np.random.Generator) -> FloatArray:
        """Draw the weights."""
        raise NotImplementedError

    def draw_sequences(self, rngs: list[np.random.Generator], count: int) -> Sequences:
        """Draw the tokens of ``count`` sequences, each kind from its own stream."""
        return tuple(
            rng.standard_normal((count, *shape))
            for rng, shape in zip(rngs, self.shapes, strict=True)
        )

    def indices(self, sequences: Sequences, teacher: FloatArray) -> FloatArray:
        """Return the attention indices of the sequences."""
        raise NotImplementedError

    def streams(self, seed: Seed) -> list[np.random.Generator]:
        """Return the independent streams of teacher, of each kind of sequence, and of the noise."""
        return check.generator("seed", seed).spawn(2 + len(self.shapes))

    def count(self, sample_complexity: float) -> int:
        """Return n = round(sample_complexity * d^2), at least one, or raise ``ValueError``."""
        alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
        n = round(alpha * self.dimension**2)
        if n < 1:
            least = 0.5 / self.dimension**2
            raise ValueError(
                f"sample_complexity must be at least 0.5/dimension^2 = {least:g}, got {alpha!r}"
            )
        return n

    def sample(self, sample_complexity: float, seed: Seed) -> Any:
        """Draw a teacher and a data set of n = round(sample_complexity * d^2) sequences.

        Parameters
        ----------
        sample_complexity : float
            alpha > 0, large enough for at least one sequence.
        seed : int, SeedSequence or Generator
            The only source of randomness.  Teacher, each kind of sequence and channel noise have
            independent streams, so that the teacher does not depend on ``sample_complexity``.

        Raises
        ------
        ValueError
            If an argument is out of range, or the sequences do not fit in memory.
        """
        raise NotImplementedError

    def draw(self, sample_complexity: float, seed: Seed) -> tuple[Any, ...]:
        """Draw what a data set in memory holds: sequences, outputs and teacher."""
        n = self.count(sample_complexity)
        # twice the tokens: their product with the teacher is as large
        numbers = sum(2 * t * d for t, d in self.shapes) + 4 * self.shapes[0][0] ** 2
        check_memory(self, sample_complexity, n, 8 * numbers, _STREAM)
        teacher_rng, *token_rngs, noise_rng = self.streams(seed)
        teacher = self.draw_teacher(teacher_rng)
        sequences = self.draw_sequences(token_rngs, n)
        outputs = self.channel.output(self.indices(sequences, teacher), noise_rng)
        return (*sequences, outputs, teacher)


_STREAM = "; StreamedDataset.regenerate(model, sample_complexity, seed) never holds the tokens"


def check_memory(
    model: SequenceModel, sample_complexity: float, count: int, bytes_each: int, advice: str
) -> None:
    """Raise ``ValueError`` if so many sequences do not fit in the memory that is free."""
    free = available_memory()
    needed = count * bytes_each
    if needed <= free:
        return
    d = model.dimension
    alpha = free / bytes_each / d**2
    # tokens grow like d^3, outputs like d^2: the cubic law is on the safe side below d
    largest = int(d * (free / needed) ** (1.0 / 2.0 if not advice else 1.0 / 3.0))
    raise ValueError(
        f"sample_complexity {sample_complexity!r} at dimension {d} needs {_size(needed)} of memory "
        f"for {count} sequences, and {_size(free)} are free: at most sample_complexity {alpha:.2g} "
        f"at this dimension, or dimension {largest} at this sample_complexity{advice}"
    )


def _size(count: float) -> str:
    power = min(int(math.log(max(count, 1.0), 1024.0)), 5)
    return f"{count / 1024.0**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"
