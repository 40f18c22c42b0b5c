"""The border: every prior meets every channel in every public function."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import aimlib
from aimlib import cross_attention, layers
from aimlib._pairs import coordinate_variance, match

PRIORS = {
    "symmetric": [
        aimlib.WishartPrior(0.5),
        aimlib.WignerPrior(),
        aimlib.SpectralPrior([-1.0, 1.0]),
    ],
    "rectangular": [aimlib.BilinearPrior(0.5)],
    "layered": [[aimlib.WishartPrior(0.5)] * 2],
}
CHANNELS = {
    "symmetric": [
        aimlib.SoftmaxChannel(2),
        aimlib.HardmaxChannel(2),
        aimlib.LinearChannel(2, 0.1),
        aimlib.CorrelatedSoftmaxChannel(np.eye(2)),
        aimlib.FourthMomentHardmaxChannel(0.5, 3.0),
        aimlib.SampledSoftmaxChannel(2, draws=2),
        aimlib.NoisySoftmaxChannel(0.5),
    ],
    "rectangular": [
        cross_attention.SoftmaxChannel(2, 2),
        cross_attention.HardmaxChannel(2),
        cross_attention.LinearChannel(2, 2, 0.1),
    ],
    "layered": [
        layers.MixedLinearChannel([[1.0, 0.5], [0.5, 1.0]], 0.1),
        layers.DeepSoftmaxChannel(nodes=8),
    ],
}
MODELS = {
    "symmetric": aimlib.AttentionIndexedModel(4, PRIORS["symmetric"][0], CHANNELS["symmetric"][0]),
    "rectangular": cross_attention.Model(4, PRIORS["rectangular"][0], CHANNELS["rectangular"][0]),
    "layered": layers.Model(4, PRIORS["layered"][0], CHANNELS["layered"][1]),
}
DATA = {kind: model.sample(0.5, seed=1) for kind, model in MODELS.items()}
DATA |= {
    f"streamed {kind}": aimlib.StreamedDataset.regenerate(model, 0.5, seed=1)
    for kind, model in MODELS.items()
}

# what takes a prior and a channel, and the kinds of weights that it is for
BOTH = ("symmetric", "rectangular")
PAIRED = {
    "bayes_optimal": (lambda p, c: aimlib.bayes_optimal(0.1, p, c), BOTH),
    "state_evolution": (lambda p, c: aimlib.state_evolution(0.1, p, c, 1), BOTH),
    "fixed_points": (lambda p, c: aimlib.fixed_points(0.1, p, c, 10), BOTH),
    "free_entropy": (lambda p, c: aimlib.free_entropy(0.3, 1.0, 0.1, p, c), BOTH),
    "strong_recovery_threshold": (aimlib.strong_recovery_threshold, BOTH),
    "AttentionIndexedModel": (
        lambda p, c: aimlib.AttentionIndexedModel(4, p, c),
        ("symmetric",),
    ),
    "cross_attention.Model": (lambda p, c: cross_attention.Model(4, p, c), ("rectangular",)),
    "layers.Model": (lambda p, c: layers.Model(4, p, c), ("layered",)),
    "layers.state_evolution": (lambda p, c: layers.state_evolution(0.1, p, c, 1), ("layered",)),
}
# solving the theory once more for channels whose integrals are slow says nothing about the border
SOLVED = ("bayes_optimal", "state_evolution", "free_entropy", "fixed_points")
SLOW = (
    aimlib.HardmaxChannel,
    aimlib.CorrelatedSoftmaxChannel,
    aimlib.FourthMomentHardmaxChannel,
    cross_attention.HardmaxChannel,
    layers.DeepSoftmaxChannel,
)
CASES = [
    (name, prior_kind, channel_kind)
    for name in PAIRED
    for prior_kind, channel_kind in itertools.product(PRIORS, CHANNELS)
]


@pytest.mark.parametrize(("name", "prior_kind", "channel_kind"), CASES)
def test_pairs_work_or_are_refused_by_name(name, prior_kind, channel_kind) -> None:
    function, kinds = PAIRED[name]
    for prior, channel in itertools.product(PRIORS[prior_kind], CHANNELS[channel_kind]):
        if prior_kind == channel_kind and prior_kind in kinds:
            if name.removeprefix("layers.") in SOLVED and isinstance(channel, SLOW):
                continue
            if isinstance(channel, aimlib.FourthMomentHardmaxChannel) and prior.variance == 1.0:
                channel = aimlib.FourthMomentHardmaxChannel(prior.mean_eigenvalue, 3.0)
            function(prior, channel)
            continue
        with pytest.raises(ValueError, match="prior") as error:
            function(prior, channel)
        if prior_kind != "layered" and not name.startswith("layers"):
            assert repr(prior) in str(error.value)
            assert "channel" in str(error.value)


AMP = {"symmetric": aimlib.amp, "rectangular": cross_attention.amp, "layered": layers.amp}
TRIPLES = list(itertools.product(AMP, DATA, PRIORS, CHANNELS))


@pytest.mark.parametrize(("algorithm", "data", "prior", "channel"), TRIPLES)
def test_message_passing_takes_what_belongs_together(algorithm, data, prior, channel) -> None:
    chosen = MODELS[channel].channel
    arguments = DATA[data], PRIORS[prior][0], chosen
    if algorithm == data.removeprefix("streamed ") == prior == channel:
        assert AMP[algorithm](*arguments, iterations=1).iterations == 1
        return
    with pytest.raises(ValueError, match=r"must (belong together|be a sequence|be a prior)"):
        AMP[algorithm](*arguments, iterations=1)


@pytest.mark.parametrize("kind", ["symmetric", "rectangular", "layered"])
def test_message_passing_on_drawn_and_noisy_outputs(kind) -> None:
    """Refused beside other weights; beside its own kind of weights, with its own outputs only."""
    prior = PRIORS["symmetric"][0]
    channels = CHANNELS["symmetric"][-2:]
    for channel in channels:
        with pytest.raises(ValueError, match=r"must (belong together|be a sequence)|outputs must"):
            AMP[kind](DATA[kind], PRIORS[kind][0], channels[0], iterations=1)
        data = aimlib.AttentionIndexedModel(4, prior, channel).sample(0.5, seed=1)
        if kind != "symmetric":
            with pytest.raises(ValueError, match=r"must (belong together|be a sequence)"):
                AMP[kind](data, PRIORS[kind][0], MODELS[kind].channel, iterations=1)
            continue
        assert aimlib.amp(data, prior, channel, iterations=1).iterations == 1
        for other in (aimlib.SoftmaxChannel(2), aimlib.HardmaxChannel(2), channels[0]):
            if other is not channel:
                with pytest.raises(ValueError, match="outputs must"):
                    aimlib.amp(data, prior, other, iterations=1)


ONE_CHANNEL = {
    "weak_recovery_threshold": (aimlib.weak_recovery_threshold, "symmetric"),
    "small_width_overlap": (lambda c: aimlib.small_width_overlap(0.5, c), "symmetric"),
    "cross_attention.weak_recovery_threshold": (
        cross_attention.weak_recovery_threshold,
        "rectangular",
    ),
}


@pytest.mark.parametrize("name", ONE_CHANNEL)
def test_functions_of_a_channel_alone(name) -> None:
    function, kind = ONE_CHANNEL[name]
    for channel_kind, channels in CHANNELS.items():
        for channel in channels:
            if isinstance(channel, aimlib.FourthMomentHardmaxChannel):
                continue  # is for one second moment
            if channel_kind == kind:
                assert np.isfinite(function(channel))
                continue
            with pytest.raises(ValueError, match=f"channel must be for {kind} weights") as error:
                function(channel)
            assert type(channel).__name__ in str(error.value)
    with pytest.raises(ValueError, match="channel must be a channel"):
        function(2.0)


def test_the_small_width_threshold_of_rectangular_indices_is_not_that_of_symmetric_ones() -> None:
    assert cross_attention.weak_recovery_threshold(CHANNELS["rectangular"][0]) == 0.5
    with pytest.raises(ValueError, match=r"use aimlib\.cross_attention\.weak_recovery_threshold"):
        aimlib.weak_recovery_threshold(CHANNELS["rectangular"][0])


def test_only_hardmax_has_the_power_law() -> None:
    wishart, bilinear = PRIORS["symmetric"][0], PRIORS["rectangular"][0]
    assert aimlib.hardmax_asymptotic_error(10.0, wishart, aimlib.HardmaxChannel(2)) > 0.0
    for prior, channel in (
        (bilinear, None),
        (bilinear, cross_attention.HardmaxChannel(2)),
        (wishart, cross_attention.HardmaxChannel(2)),
        (wishart, aimlib.SoftmaxChannel(2)),
    ):
        with pytest.raises(ValueError, match="channel"):
            aimlib.hardmax_asymptotic_error(10.0, prior, channel)


@pytest.mark.parametrize("wrong", [None, 3, "softmax", aimlib.SoftmaxChannel, np.ones(2)])
def test_what_is_neither_prior_nor_channel(wrong) -> None:
    prior, channel = PRIORS["symmetric"][0], CHANNELS["symmetric"][0]
    with pytest.raises(ValueError, match="channel must be a channel"):
        aimlib.bayes_optimal(0.1, prior, wrong)
    with pytest.raises(ValueError, match="prior must be a prior"):
        aimlib.bayes_optimal(0.1, wrong, channel)
    with pytest.raises(ValueError, match="dataset must be"):
        aimlib.amp(wrong, prior, channel)


def test_a_channel_is_no_prior() -> None:
    channel = CHANNELS["symmetric"][0]
    with pytest.raises(ValueError, match="prior must be a prior"):
        match(channel, channel)


def test_noise_in_one_orthonormal_coordinate() -> None:
    """replica:saddle: entries of variance Delta/d, in an orthonormal basis, times d."""
    d, rng = 10, np.random.default_rng(0)
    for kind, direction in (
        ("symmetric", np.ones((d, d))),
        ("rectangular", np.ones((d, d))),
    ):
        z = rng.standard_normal((2000, d, d)) / np.sqrt(d)
        noise = (z + z.transpose(0, 2, 1)) / np.sqrt(2.0) if kind == "symmetric" else z
        unit = direction / np.linalg.norm(direction)
        measured = d * np.var(np.einsum("nij,ij->n", noise, unit))
        assert coordinate_variance(PRIORS[kind][0]) == pytest.approx(measured, rel=0.1)
