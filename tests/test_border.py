"""The public border: every numerical argument is refused by its own name, at the exact limit.

One table for all functions.  A value just allowed passes, the one beside it raises ``ValueError``
whose message begins with the name of the argument.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import aimlib
from aimlib import (
    AttentionIndexedModel,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    WignerPrior,
    WishartPrior,
    cross_attention,
    layers,
    sampled_tokens,
)

PRIOR, SOFT = WishartPrior(0.5), SoftmaxChannel(2)
DATA = AttentionIndexedModel(6, PRIOR, SOFT).sample(0.5, seed=0)
PAIR = cross_attention.BilinearPrior(0.5), cross_attention.SoftmaxChannel(2, 2)
PAIRED = cross_attention.Model(6, *PAIR).sample(0.5, seed=0)
HALF = [PRIOR, PRIOR]
MIXED = layers.MixedLinearChannel(np.eye(2), noise=0.5)
MANY = layers.Model(6, HALF, MIXED).sample(0.5, seed=0)
DRAWN = aimlib.SampledSoftmaxChannel(2)
DEEP = layers.DeepSoftmaxChannel()
DEEP_DATA = layers.Model(6, HALF, DEEP).sample(0.5, seed=0)
TINY = 5e-324  # the smallest positive float
NOT_NUMBERS = ("1", None, math.nan, math.inf, -math.inf, True)


def below(value):
    return math.nextafter(value, -math.inf)


def above(value):
    return math.nextafter(value, math.inf)


def call(function, **fixed):
    return lambda **changed: function(**(fixed | changed))


REPLICA = {"prior": PRIOR, "channel": SOFT}
PASSING = {"dataset": DATA, "prior": PRIOR, "channel": SOFT, "iterations": 1}
TRAINING = {"dataset": DATA, "width": 2, "seed": 0, "iterations": 1}
# function, argument, values that are just allowed, values that are just not
REALS = [
    (call(aimlib.bayes_optimal, **REPLICA), "sample_complexity", [0.0, TINY], [-TINY]),
    (call(aimlib.state_evolution, **REPLICA), "sample_complexity", [1e-3], [0.0, -1.0]),
    (call(aimlib.fixed_points, **REPLICA, resolution=10), "sample_complexity", [1e-3], [0.0, -1.0]),
    (
        call(aimlib.free_entropy, **REPLICA, conjugate=1.0, sample_complexity=0.1),
        "overlap", [0.0, below(1.5)], [-TINY, 1.5, 2.0],
    ),
    (
        call(aimlib.free_entropy, **REPLICA, overlap=0.7, sample_complexity=0.1),
        "conjugate", [0.0, TINY], [-TINY],
    ),
    (
        call(aimlib.free_entropy, **REPLICA, overlap=0.7, conjugate=1.0),
        "sample_complexity", [0.0, TINY], [-TINY],
    ),
    (call(aimlib.small_width_overlap, channel=SOFT), "rescaled_complexity", [0.0], [-TINY]),
    (call(aimlib.hardmax_asymptotic_error, prior=PRIOR), "sample_complexity", [1e-3], [0.0, -1.0]),
    (
        call(AttentionIndexedModel(6, PRIOR, SOFT).sample, seed=0),
        "sample_complexity", [0.5 / 36 + 1e-9], [0.0, -1.0, 0.5 / 36 - 1e-9],
    ),
    (
        call(cross_attention.Model(6, *PAIR).sample, seed=0),
        "sample_complexity", [0.5 / 36 + 1e-9], [0.0, -1.0, 0.5 / 36 - 1e-9],
    ),
    (
        call(layers.Model(6, HALF, MIXED).sample, seed=0),
        "sample_complexity", [0.5 / 36 + 1e-9], [0.0, -1.0, 0.5 / 36 - 1e-9],
    ),
    (call(aimlib.amp, **PASSING), "damping", [0.0, below(1.0)], [-TINY, 1.0]),
    (call(aimlib.amp, **PASSING), "tolerance", [TINY], [0.0, -1.0]),
    (
        call(cross_attention.amp, dataset=PAIRED, prior=PAIR[0], channel=PAIR[1], iterations=1),
        "damping", [0.0, below(1.0)], [-TINY, 1.0],
    ),
    (
        call(layers.amp, dataset=MANY, priors=HALF, channel=MIXED, iterations=1),
        "damping", [0.0, below(1.0)], [-TINY, 1.0],
    ),
    (
        call(layers.state_evolution, priors=HALF, channel=MIXED, iterations=1),
        "sample_complexity", [1e-3], [0.0, -1.0],
    ),
    (
        call(layers.error_with_the_others_known, priors=HALF, channel=MIXED),
        "sample_complexity", [1e-3], [0.0, -1.0],
    ),
    (
        call(layers.error_through_the_sum, sample_complexity=0.1, layers=2, channel=SOFT),
        "width_ratio", [1e-3], [0.0, -1.0],
    ),
    (
        call(cross_attention.weak_recovery_threshold, channel=PAIR[1]),
        "aspect_ratio", [1e-3], [0.0, -1.0],
    ),
    (call(aimlib.gradient_descent, **TRAINING), "learning_rate", [TINY], [0.0, -1.0]),
    (call(aimlib.gradient_descent, **TRAINING), "momentum", [0.0, below(1.0)], [-TINY, 1.0]),
    (call(aimlib.gradient_descent, **TRAINING), "weight_decay", [0.0], [-TINY]),
    (call(aimlib.gradient_descent, **TRAINING), "initial_scale", [1e-3], [0.0, -1.0]),
    (call(aimlib.gradient_descent, **TRAINING), "loss_tolerance", [0.0], [-TINY]),
    (call(aimlib.gradient_descent, **TRAINING), "gradient_tolerance", [0.0], [-TINY]),
    (call(aimlib.gradient_descent, **TRAINING), "final_learning_rate", [0.0], [-TINY]),
    (WishartPrior, "width_ratio", [1e-3], [0.0, -1.0]),
    (WignerPrior, "mean", [-1.0, 0.0], []),
    (call(cross_attention.BilinearPrior, width_ratio=0.5), "aspect_ratio", [1e-3], [0.0, -1.0]),
    (call(SoftmaxChannel, tokens=2), "inverse_temperature", [TINY], [0.0, -1.0]),
    (call(LinearChannel, tokens=2), "noise", [0.0], [-TINY]),
    (call(cross_attention.LinearChannel, queries=1, keys=1), "noise", [0.0], [-TINY]),
    (call(cross_attention.SoftmaxChannel, queries=2), "inverse_temperature", [TINY], [0.0]),
    (call(layers.MixedLinearChannel, mixing=np.eye(2)), "noise", [TINY], [0.0, -1.0]),
    (call(layers.DeepSoftmaxChannel, layers=2), "inverse_temperature", [TINY], [0.0, -1.0]),
    (call(layers.DeepSoftmaxChannel, layers=2), "skip", [-1.0, 0.0], []),
    (
        call(aimlib.SampledSoftmaxChannel, tokens=2),
        "inverse_temperature", [1e-3, 1e3], [0.0, -1.0, below(1e-3), above(1e3)],
    ),
    (
        call(aimlib.NoisySoftmaxChannel, noise=0.1),
        "inverse_temperature", [1e-3, 1e3], [0.0, -1.0, below(1e-3), above(1e3)],
    ),
    (aimlib.NoisySoftmaxChannel, "noise", [1e-6, 100.0], [0.0, below(1e-6), above(100.0)]),
    (call(sampled_tokens.fisher_information, channel=DRAWN), "second_moment", [1e-3], [0.0, -1.0]),
    (
        call(sampled_tokens.asymptotic_error, prior=PRIOR, channel=DRAWN),
        "sample_complexity", [1e-3], [0.0, -1.0],
    ),
    (
        call(sampled_tokens.tokens_per_soft_label, second_moment=1.5, channel=DRAWN),
        "variance", [1e-3, 1.5], [0.0, -TINY, above(1.5)],
    ),
    (call(SOFT.information_at, second_moment=1.5), "variance", [0.0, 1.5], [-TINY, above(1.5)]),
    (call(SOFT.information, second_moment=1.5), "overlap", [0.0, 1.5], [-TINY, above(1.5)]),
    (call(SOFT.information, overlap=0.0), "second_moment", [1e-3], [0.0, -1.0]),
    (call(PRIOR.mmse), "noise", [1e-8], [0.0, -1.0]),
    (call(PRIOR.support), "noise", [1e-8], [0.0, -1.0]),
]  # fmt: skip
# function, argument, least allowed, largest allowed
INTEGERS = [
    (call(aimlib.state_evolution, **REPLICA, sample_complexity=0.1), "iterations", 1, None),
    (call(aimlib.fixed_points, **REPLICA, sample_complexity=0.1), "resolution", 10, None),
    (call(aimlib.amp, **PASSING), "iterations", 1, None),
    (
        call(cross_attention.amp, dataset=PAIRED, prior=PAIR[0], channel=PAIR[1]),
        "iterations", 1, None,
    ),
    (call(layers.amp, dataset=MANY, priors=HALF, channel=MIXED), "iterations", 1, None),
    (
        call(layers.state_evolution, priors=HALF, channel=MIXED, sample_complexity=0.1),
        "iterations", 1, None,
    ),
    (
        call(layers.error_through_the_sum, sample_complexity=0.1, width_ratio=0.5, channel=SOFT),
        "layers", 1, None,
    ),
    (call(aimlib.gradient_descent, **TRAINING), "width", 1, None),
    (call(aimlib.gradient_descent, **TRAINING), "iterations", 1, None),
    (call(aimlib.gradient_descent, **TRAINING), "record_every", 1, None),
    (call(aimlib.averaged_gradient_descent, **TRAINING), "starts", 1, None),
    (
        call(layers.averaged_gradient_descent, dataset=DEEP_DATA, width=2, channel=DEEP, seed=0,
             iterations=1),
        "starts", 1, None,
    ),
    (call(AttentionIndexedModel, prior=PRIOR, channel=SOFT), "dimension", 2, None),
    (call(cross_attention.Model, prior=PAIR[0], channel=PAIR[1]), "dimension", 2, None),
    (call(layers.Model, priors=HALF, channel=MIXED), "dimension", 2, None),
    (SoftmaxChannel, "tokens", 2, None),
    (HardmaxChannel, "tokens", 2, None),
    (LinearChannel, "tokens", 1, None),
    (aimlib.SampledSoftmaxChannel, "tokens", 2, None),
    (call(aimlib.SampledSoftmaxChannel, tokens=2), "draws", 1, 256),
    (call(HardmaxChannel, tokens=3), "sweeps", 20, None),
    (call(cross_attention.SoftmaxChannel, keys=2), "queries", 1, None),
    (call(cross_attention.SoftmaxChannel, queries=2), "keys", 2, None),
    (call(layers.DeepSoftmaxChannel, tokens=2), "layers", 1, None),
    (call(layers.DeepSoftmaxChannel, layers=2), "tokens", 2, None),
    (call(layers.DeepSoftmaxChannel, layers=2), "nodes", 8, 100),
]  # fmt: skip


def names(cases):
    return [f"{number}-{case[1]}" for number, case in enumerate(cases)]


@pytest.mark.parametrize("case", REALS, ids=names(REALS))
def test_real_arguments(case) -> None:
    function, name, allowed, refused = case
    for value in allowed:
        function(**{name: value})
    for value in [*refused, *NOT_NUMBERS]:
        if value is None and name in ("damping", "final_learning_rate"):
            continue  # stands for the default there
        with pytest.raises(ValueError, match=rf"^{name} must"):
            function(**{name: value})


@pytest.mark.parametrize("case", INTEGERS, ids=names(INTEGERS))
def test_integer_arguments(case) -> None:
    function, name, least, most = case
    function(**{name: least})
    refused = [least - 1, -1, least + 0.5, float(least), str(least), None, True, math.nan]
    if most is not None:
        function(**{name: most})
        refused.append(most + 1)
    for value in refused:
        with pytest.raises(ValueError, match=rf"^{name} must"):
            function(**{name: value})


CHOICES = [
    (call(aimlib.amp, **PASSING), "denoiser"),
    (call(aimlib.amp, **PASSING), "onsager"),
    (call(aimlib.amp, **PASSING), "noise"),
    (call(aimlib.amp, **PASSING), "response"),
    (call(aimlib.state_evolution, **REPLICA, sample_complexity=0.1), "start"),
    (call(aimlib.gradient_descent, **TRAINING), "method"),
    (call(aimlib.gradient_descent, **TRAINING), "loss"),
    (call(layers.amp, dataset=MANY, priors=HALF, channel=MIXED), "scheme"),
    (call(layers.denoising_error, noise=np.eye(2), priors=HALF), "scheme"),
    (call(AttentionIndexedModel, dimension=6, prior=PRIOR, channel=SOFT), "token_law"),
    (call(PRIOR.shrink, values=[0.1], noise=1.0), "outside"),
]


@pytest.mark.parametrize("case", CHOICES, ids=names(CHOICES))
def test_choices(case) -> None:
    function, name = case
    for value in ("something else", "", None, 1):
        with pytest.raises(ValueError, match=rf"^{name} must be .*got {value!r}"):
            function(**{name: value})


@pytest.mark.parametrize(
    "sample",
    [
        AttentionIndexedModel(6, PRIOR, SOFT).sample,
        cross_attention.Model(6, *PAIR).sample,
        layers.Model(6, HALF, MIXED).sample,
    ],
)
def test_seeds(sample) -> None:
    for value in (-1, 1.0, "1", None, True, np.array([1])):
        with pytest.raises(ValueError, match=r"^seed must"):
            sample(0.5, seed=value)
    one = sample(0.5, seed=3)
    for same in (np.random.SeedSequence(3), np.random.default_rng(3)):
        assert np.array_equal(sample(0.5, seed=same).outputs, one.outputs)
