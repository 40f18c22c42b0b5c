"""Gradients against finite differences and dual numbers, training against what it must reach."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

from aimlib import (
    AttentionIndexedModel,
    Dataset,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    WishartPrior,
    attention_indices,
    averaged_gradient_descent,
    bayes_optimal,
    estimation_error,
    gradient_descent,
)
from aimlib.descent import loss_and_gradient


def problem(channel, d: int = 8, alpha: float = 0.5, seed: int = 0) -> Dataset:
    return AttentionIndexedModel(d, WishartPrior(0.5), channel).sample(alpha, seed)


CASES = [
    (SoftmaxChannel(2), "squared"),
    (SoftmaxChannel(3, 2.0), "squared"),
    (SoftmaxChannel(4, 0.7), "cross-entropy"),
    (LinearChannel(1), "squared"),
    (LinearChannel(2), "squared"),
]


@pytest.mark.parametrize(("channel", "loss"), CASES)
def test_gradient_against_finite_differences(channel, loss) -> None:
    """descent:gradient, entry by entry, for two starts and with weight decay."""
    data, rng = problem(channel), np.random.default_rng(1)
    w = rng.standard_normal((2, 8, 3))
    _, gradient = loss_and_gradient(w, data, channel, loss, 0.3)
    step = 1e-6
    for k, i, j in ((0, 0, 0), (0, 7, 2), (1, 3, 1), (1, 5, 0)):
        up, down = w.copy(), w.copy()
        up[k, i, j] += step
        down[k, i, j] -= step
        plus, _ = loss_and_gradient(up, data, channel, loss, 0.3)
        minus, _ = loss_and_gradient(down, data, channel, loss, 0.3)
        assert gradient[k, i, j] == pytest.approx(
            (plus - minus)[k] / (2 * step), rel=2e-6, abs=1e-9
        )
        assert (plus - minus)[1 - k] == 0.0  # the starts do not interact


@pytest.mark.parametrize("width", [1, 4, 6, 9])
@pytest.mark.parametrize(("channel", "loss"), CASES)
def test_gradient_against_complex_step_differentiation(channel, loss, width) -> None:
    """An independent reference: the loss for complex weights, derivative to rounding.

    Students wider than d take another path than narrow ones.
    """
    data, rng = problem(channel, d=6), np.random.default_rng(2)
    w = rng.standard_normal((6, width))

    def reference(weights):
        total = 0.0
        s = weights @ weights.T / np.sqrt(weights.shape[0] * weights.shape[1])
        for x, y in zip(data.tokens, data.outputs, strict=True):
            h = (x @ s @ x.T - np.eye(len(x)) * np.trace(s)) / np.sqrt(6)
            if isinstance(channel, LinearChannel):
                total += np.sum((h - y) ** 2)
                continue
            p = np.exp(channel.inverse_temperature * h)
            p = p / p.sum(axis=1, keepdims=True)
            total += np.sum((p - y) ** 2) if loss == "squared" else -np.sum(y * np.log(p))
        return total / len(data.tokens)

    value, gradient = loss_and_gradient(w[None], data, channel, loss)
    assert value[0] == pytest.approx(reference(w), rel=1e-12)
    for i, j in ((0, 0), (3, width // 2), (5, width - 1)):
        moved = w.astype(complex)
        moved[i, j] += 1e-30j
        assert gradient[0, i, j] == pytest.approx(reference(moved).imag / 1e-30, rel=1e-10)


def test_the_teacher_is_a_global_minimum() -> None:
    data = problem(SoftmaxChannel(2), d=10)
    values, vectors = np.linalg.eigh(data.teacher)
    w = (vectors * np.sqrt(np.maximum(values, 0)))[:, -5:] * (5 * 10) ** 0.25
    loss, gradient = loss_and_gradient(w[None], data)
    assert loss[0] == pytest.approx(0.0, abs=1e-24)
    assert np.abs(gradient).max() < 1e-12


@pytest.mark.parametrize("count", [5, 12, 13, 20])
def test_dimension_of_the_perfect_fits(count) -> None:
    """descent:dimension at finite d: unknowns r d - r(r-1)/2 minus two equations a sequence."""
    d, r = 8, 4
    rng = np.random.default_rng(3)
    w, tokens = rng.standard_normal((d, r)), rng.standard_normal((count, 2, d))

    def visible(weights):
        h = attention_indices(tokens, weights @ weights.T / np.sqrt(r * d))
        return np.concatenate([h[:, 0, 0] - h[:, 0, 1], h[:, 1, 1] - h[:, 0, 1]])

    step = 1e-5
    columns = []
    for i, j in np.ndindex(d, r):
        move = np.zeros((d, r))
        move[i, j] = step
        columns.append((visible(w + move) - visible(w - move)) / (2 * step))
    rank = np.linalg.matrix_rank(np.array(columns), tol=1e-7)
    rotations = r * (r - 1) // 2
    assert d * r - rotations - rank == max(0, d * r - rotations - 2 * count)


@pytest.mark.parametrize("method", ["adam", "momentum"])
def test_training_recovers_the_teacher_with_enough_data(method) -> None:
    """Well above the threshold both methods reach the teacher."""
    data = problem(SoftmaxChannel(2), d=20, alpha=0.6, seed=3)
    rate = 0.05 if method == "adam" else 0.02
    result = gradient_descent(data, 10, seed=4, iterations=4000, method=method, learning_rate=rate)
    assert result.estimation_error < 1e-3
    assert result.loss[0] < 1e-5
    assert result.estimation_error == pytest.approx(
        estimation_error(result.estimate, data.teacher), rel=1e-12
    )


def test_averaging_helps_below_the_threshold() -> None:
    """GD is about twice, AGD about (1 + 1/K) times the Bayes-optimal error or more."""
    data = problem(SoftmaxChannel(2), d=30, alpha=0.08, seed=5)
    result = averaged_gradient_descent(data, 15, starts=8, seed=6, iterations=1500)
    single = np.mean(np.sum((result.start_estimates - data.teacher) ** 2, axis=(1, 2))) / 30
    bayes = bayes_optimal(0.08, WishartPrior(0.5), SoftmaxChannel(2)).estimation_error
    assert result.estimation_error < 0.75 * single
    assert single > 1.2 * bayes
    assert result.prefix_errors[0] == pytest.approx(result.history["estimation_error"][-1, 0])
    limit, slope = result.extrapolate()
    assert limit < result.estimation_error
    assert slope > 0


def test_error_of_an_average_from_overlaps() -> None:
    """descent:identity, for every number of starts by averaging over all subsets."""
    data = problem(SoftmaxChannel(2), d=10, alpha=0.1)
    result = averaged_gradient_descent(data, 5, starts=5, seed=3, iterations=100)
    flat = result.start_estimates.reshape(5, -1)
    gram = flat @ flat.T / 10
    mutual = gram[~np.eye(5, dtype=bool)].mean()
    limit = np.sum(data.teacher**2) / 10 - 2 * (flat @ data.teacher.ravel()).mean() / 10 + mutual
    slope = np.trace(gram) / 5 - mutual
    for size in range(1, 6):
        subsets = [list(chosen) for chosen in itertools.combinations(range(5), size)]
        errors = [
            estimation_error(result.start_estimates[s].mean(axis=0), data.teacher) for s in subsets
        ]
        assert np.mean(errors) == pytest.approx(limit + slope / size, rel=1e-10)


def test_starts_are_independent_of_their_number() -> None:
    data = problem(SoftmaxChannel(2), d=8)
    few = averaged_gradient_descent(data, 4, starts=2, seed=7, iterations=20)
    many = averaged_gradient_descent(data, 4, starts=5, seed=7, iterations=20)
    assert many.start_estimates[:2] == pytest.approx(few.start_estimates, rel=1e-10)
    alone = gradient_descent(data, 4, seed=7, iterations=20)
    assert alone.estimate == pytest.approx(few.start_estimates[0], rel=1e-10)


def test_training_can_go_on_from_its_weights() -> None:
    """With plain gradient descent two halves are the whole."""
    data = problem(SoftmaxChannel(2), d=8)
    options = {"method": "momentum", "momentum": 0.0, "learning_rate": 0.1}
    whole = gradient_descent(data, 4, seed=8, iterations=40, **options)
    half = gradient_descent(data, 4, seed=8, iterations=20, **options)
    rest = gradient_descent(data, 4, iterations=20, initial_weights=half.weights, seed=0, **options)
    assert rest.estimate == pytest.approx(whole.estimate, rel=1e-9)


def reference_training(data, w, method, rate, final, count, momentum=0.9, **objective):
    """Adam (Kingma and Ba 2015, algorithm 1) or heavy ball, entry by entry, one start."""
    first, second = np.zeros_like(w), np.zeros_like(w)
    for t in range(1, count + 1):
        step = final + (rate - final) * (1 + np.cos(np.pi * (t - 1) / count)) / 2
        gradient = loss_and_gradient(w[None], data, **objective)[1][0]
        if method == "adam":
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            mean, square = first / (1 - 0.9**t), second / (1 - 0.999**t)
            w = w - step * mean / (np.sqrt(square) + 1e-8)
        else:  # the rate is in units of d^2
            first = momentum * first - step * data.dimension**2 * gradient
            w = w + first
    return w


@pytest.mark.parametrize(("method", "rate"), [("adam", 0.05), ("momentum", 0.02)])
@pytest.mark.parametrize("final", [None, 0.004])
def test_steps_of_the_optimisers(method, rate, final) -> None:
    """Bias correction, both memories, the units of the rate and the cosine of the schedule."""
    data = problem(SoftmaxChannel(2))
    start = 0.7 * np.random.default_rng(4).spawn(1)[0].standard_normal((8, 4))
    result = gradient_descent(
        data, 4, seed=4, method=method, learning_rate=rate, final_learning_rate=final,
        momentum=0.8, iterations=12, initial_scale=0.7, record_every=5,
    )  # fmt: skip
    expected = reference_training(
        data, start, method, rate, rate if final is None else final, 12, 0.8
    )
    np.testing.assert_allclose(result.weights[0], expected, rtol=1e-9, atol=1e-11)
    assert list(result.history["iteration"]) == [0, 5, 10, 12]
    np.testing.assert_allclose(
        result.history["loss"][0], loss_and_gradient(start[None], data)[0], rtol=1e-12
    )


@pytest.mark.parametrize(
    "objective",
    [{"loss": "cross-entropy"}, {"weight_decay": 0.3}, {"channel": SoftmaxChannel(2, 2.0)}],
    ids=str,
)
def test_the_training_descends_what_it_is_asked_to(objective) -> None:
    data = problem(SoftmaxChannel(2))
    start = 0.5 * np.random.default_rng(2).standard_normal((8, 4))
    options = {"method": "momentum", "learning_rate": 0.02, "initial_weights": start[None]}
    result = gradient_descent(data, 4, iterations=5, **options, **objective)
    expected = reference_training(data, start, "momentum", 0.02, 0.02, 5, **objective)
    np.testing.assert_allclose(result.weights[0], expected, rtol=1e-9, atol=1e-11)
    plain = reference_training(data, start, "momentum", 0.02, 0.02, 5)
    assert np.abs(result.weights[0] - plain).max() > 1e-3
    for k, w in ((0, start), (-1, expected)):
        loss, _ = loss_and_gradient(w[None], data, **objective)
        np.testing.assert_allclose(result.history["loss"][k], loss, rtol=1e-9)


def test_a_small_gradient_stops_the_training() -> None:
    """The rule looks at the norm of the gradient of every start, whatever the loss."""
    data = problem(LinearChannel(1, noise=0.5), d=8, alpha=1.0)  # the noise keeps the loss up
    options = {"channel": LinearChannel(1), "starts": 2, "seed": 1, "method": "momentum"}
    options |= {"learning_rate": 0.002, "iterations": 20000}
    result = averaged_gradient_descent(data, 4, gradient_tolerance=1e-6, **options)
    assert result.status == "converged"
    norms = [
        np.linalg.norm(loss_and_gradient(w[None], data, LinearChannel(1))[1])
        for w in result.weights
    ]
    assert max(norms) <= 1e-6
    assert result.loss.min() > 1e-3
    before = averaged_gradient_descent(data, 4, **(options | {"iterations": result.iterations - 1}))
    last = [
        np.linalg.norm(loss_and_gradient(w[None], data, LinearChannel(1))[1])
        for w in before.weights
    ]
    assert max(last) > 1e-6


def test_extrapolation_weighs_a_prefix_by_its_number_of_starts() -> None:
    """The fit minimises sum_K K (e_K - a - b/K)^2, by the normal equations."""
    data = problem(SoftmaxChannel(2), d=10, alpha=0.1)
    result = averaged_gradient_descent(data, 5, starts=6, seed=3, iterations=60)
    k = np.arange(1.0, 7.0)
    design = np.stack([np.ones(6), 1 / k], axis=1)
    a, b = np.linalg.solve(design.T @ (k[:, None] * design), design.T @ (k * result.prefix_errors))
    np.testing.assert_allclose(result.extrapolate(), (a, b), rtol=1e-9)


def test_names_of_the_last_release_still_work_with_a_warning() -> None:
    data = problem(SoftmaxChannel(2))
    with pytest.warns(DeprecationWarning, match="steps is now iterations"):
        old = averaged_gradient_descent(data, 4, starts=2, seed=7, steps=3)
    with pytest.warns(DeprecationWarning, match="give starts= by name"):
        positional = averaged_gradient_descent(data, 4, 2, seed=7, iterations=3)
    assert np.array_equal(old.weights, positional.weights)
    with pytest.warns(DeprecationWarning, match="estimates is now start_estimates"):
        assert old.estimates is old.start_estimates
    with pytest.warns(DeprecationWarning, match="steps is now iterations"):
        assert old.steps == 3
    with pytest.warns(DeprecationWarning, match="give seed= by name"):
        alone = gradient_descent(data, 4, 7, iterations=3)
    np.testing.assert_allclose(alone.weights[0], old.weights[0], rtol=1e-10)


@pytest.mark.parametrize("method", ["adam", "momentum"])
@pytest.mark.parametrize("single", [False, True])
def test_an_interrupted_training_resumes_to_the_bit(tmp_path, method, single) -> None:
    data, path = problem(SoftmaxChannel(2)), tmp_path / "state.npz"
    options = {"seed": 3, "iterations": 40, "record_every": 10, "method": method}
    options |= {"final_learning_rate": 0.0, "single_precision": single}
    whole = averaged_gradient_descent(data, 4, starts=2, **options)

    def stop(step, loss) -> None:
        if step == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        averaged_gradient_descent(data, 4, starts=2, checkpoint=path, callback=stop, **options)
    seen: list[int] = []
    resumed = averaged_gradient_descent(
        data, 4, starts=2, checkpoint=path, callback=lambda step, loss: seen.append(step), **options
    )
    assert seen == [20, 30, 40]  # the first twenty steps are not repeated
    assert np.array_equal(resumed.weights, whole.weights)
    for name in ("iteration", "loss", "estimation_error"):
        assert np.array_equal(resumed.history[name], whole.history[name])
    assert [file.name for file in tmp_path.iterdir()] == ["state.npz"]


def test_a_constant_rate_can_be_prolonged_from_a_checkpoint(tmp_path) -> None:
    data, path = problem(SoftmaxChannel(2)), tmp_path / "state.npz"
    gradient_descent(data, 4, seed=1, iterations=20, record_every=5, checkpoint=path)
    longer = gradient_descent(data, 4, seed=1, iterations=50, record_every=5, checkpoint=path)
    whole = gradient_descent(data, 4, seed=1, iterations=50, record_every=5)
    assert np.array_equal(longer.weights, whole.weights)
    assert np.array_equal(longer.history["loss"], whole.history["loss"])


def test_a_checkpoint_of_another_training_is_refused(tmp_path) -> None:
    data, path = problem(SoftmaxChannel(2)), tmp_path / "state.npz"
    options = {"iterations": 4, "record_every": 2, "final_learning_rate": 0.0, "checkpoint": path}
    gradient_descent(data, 4, seed=1, **options)
    before = path.read_bytes()
    others = [
        lambda: gradient_descent(data, 4, seed=2, **options),
        lambda: gradient_descent(data, 4, seed=1, **(options | {"iterations": 8})),
        lambda: gradient_descent(data, 4, seed=1, weight_decay=0.1, **options),
        lambda: gradient_descent(data, 4, seed=1, loss="cross-entropy", **options),
        lambda: gradient_descent(data, 4, seed=1, channel=SoftmaxChannel(2, 2.0), **options),
        lambda: gradient_descent(problem(SoftmaxChannel(2), seed=5), 4, seed=1, **options),
    ]
    for other in others:
        with pytest.raises(ValueError, match="checkpoint must belong"):
            other()
    assert path.read_bytes() == before
    path.write_text("something else")
    with pytest.raises(ValueError, match="checkpoint must be a file written"):
        gradient_descent(data, 4, seed=1, **options)
    with pytest.raises(ValueError, match="checkpoint must be in a folder"):
        gradient_descent(data, 4, seed=1, **(options | {"checkpoint": tmp_path / "no" / "x"}))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"final_learning_rate": -0.1}, "final_learning_rate"),
        ({"loss_tolerance": -1.0}, "loss_tolerance"),
        ({"gradient_tolerance": -1.0}, "gradient_tolerance"),
        ({"loss": "cross-entropy", "channel": LinearChannel(2)}, "loss"),
    ],
)
def test_options_of_a_training_that_make_no_sense(options, name) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        gradient_descent(problem(SoftmaxChannel(2)), 4, seed=1, iterations=2, **options)


def test_the_history_has_every_fiftieth_iteration_and_the_last() -> None:
    short = gradient_descent(problem(SoftmaxChannel(2)), 4, seed=1, iterations=120)
    assert list(short.history["iteration"]) == [0, 50, 100, 120]


def test_a_checkpoint_ahead_of_the_steps_asked_for_is_refused(tmp_path) -> None:
    data, path = problem(SoftmaxChannel(2)), tmp_path / "state.npz"
    gradient_descent(data, 4, seed=1, iterations=20, record_every=5, checkpoint=path)
    with pytest.raises(ValueError, match="iterations must be at least 20"):
        gradient_descent(data, 4, seed=1, iterations=10, record_every=5, checkpoint=path)


def test_a_checkpoint_of_other_shapes_is_refused(tmp_path) -> None:
    """The same numbers as two starts of width 4 and as four of width 2."""
    data, path = problem(SoftmaxChannel(2)), tmp_path / "state.npz"
    d = data.dimension
    numbers = np.random.default_rng(0).standard_normal(8 * d)
    options = {"iterations": 2, "seed": 0, "checkpoint": path}
    averaged_gradient_descent(
        data, 4, starts=2, initial_weights=numbers.reshape(2, d, 4), **options
    )
    with pytest.raises(ValueError, match="checkpoint must belong"):
        averaged_gradient_descent(
            data, 2, starts=4, initial_weights=numbers.reshape(4, d, 2), **options
        )


def test_a_checkpoint_that_is_no_file_is_refused(tmp_path) -> None:
    data = problem(SoftmaxChannel(2))
    empty, array, pipe = (tmp_path / name for name in ("empty", "array.npy", "pipe"))
    empty.touch()
    np.save(array, np.zeros(3))
    os.mkfifo(pipe)  # opening it would wait for ever; as a device it would be replaced
    for path in (tmp_path, "", empty, array, pipe, "a\0b", tmp_path / ("x" * 250)):
        with pytest.raises(ValueError, match="checkpoint must be"):
            gradient_descent(data, 4, seed=1, iterations=2, checkpoint=path)
    for other in (5, True, b"state"):
        with pytest.raises(ValueError, match="checkpoint must be a path"):
            gradient_descent(data, 4, seed=1, iterations=2, checkpoint=other)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["array.npy", "empty", "pipe"]


def test_a_failed_write_leaves_the_checkpoint_as_it_was(tmp_path, monkeypatch) -> None:
    data, path = problem(SoftmaxChannel(2)), tmp_path / "state.npz"
    gradient_descent(data, 4, seed=1, iterations=4, record_every=2, checkpoint=path)
    before = path.read_bytes()

    def full(handle, **content) -> None:
        handle.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space"):
        gradient_descent(data, 4, seed=1, iterations=8, record_every=2, checkpoint=path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["state.npz"]


def test_single_precision_follows_double_precision() -> None:
    data = problem(SoftmaxChannel(2), d=10)
    double = gradient_descent(data, 5, seed=9, iterations=60)
    single = gradient_descent(data, 5, seed=9, iterations=60, single_precision=True)
    assert single.estimate == pytest.approx(double.estimate, abs=2e-3)


def test_stopping_rules_and_history() -> None:
    data = problem(LinearChannel(1), d=8, alpha=1.0)
    seen = []
    result = gradient_descent(
        data, 4, seed=1, channel=LinearChannel(1), iterations=6000, loss_tolerance=1e-10,
        final_learning_rate=1e-3, record_every=100, callback=lambda step, loss: seen.append(step),
    )  # fmt: skip
    assert result.status == "converged"
    assert result.converged
    assert result.loss[0] <= 1e-10
    assert result.iterations < 6000
    assert list(result.history["iteration"]) == seen
    assert result.history["loss"].shape == (len(seen), 1)
    early = gradient_descent(data, 4, seed=1, channel=LinearChannel(1), iterations=3)
    assert (early.status, early.converged, early.iterations) == ("stalled", False, 3)


def test_divergence_is_a_status() -> None:
    data = problem(LinearChannel(1), d=8)
    with np.errstate(all="ignore"):
        result = gradient_descent(
            data, 4, seed=1, channel=LinearChannel(1), method="momentum", learning_rate=1e6
        )
    assert result.status == "diverged"
    assert not result.converged


def test_unknown_teacher() -> None:
    data = problem(SoftmaxChannel(2))
    result = gradient_descent(Dataset(data.tokens, data.outputs), 4, seed=0, iterations=5)
    assert result.estimation_error is None
    assert result.prefix_errors is None
    assert set(result.history) == {"iteration", "loss"}
    with pytest.raises(ValueError, match="extrapolate needs a known teacher"):
        result.extrapolate()
    fitted = SoftmaxChannel(2).output(attention_indices(data.tokens, result.estimate))
    assert np.mean(np.sum((fitted - data.outputs) ** 2, axis=(1, 2))) == pytest.approx(
        result.loss[0], rel=1e-9
    )


def test_bad_arguments_are_refused_by_name() -> None:
    data = problem(SoftmaxChannel(2))
    for name, bad in (
        ("width", 0), ("starts", 0), ("iterations", 0), ("learning_rate", 0.0), ("momentum", 1.0),
        ("weight_decay", -1.0), ("initial_scale", 0.0), ("record_every", 0), ("loss", "absolute"),
        ("method", "newton"), ("channel", HardmaxChannel(2)), ("channel", SoftmaxChannel(3)),
        ("seed", -1), ("initial_weights", np.zeros((1, 2, 3))),
    ):  # fmt: skip
        arguments = {"width": 4, "starts": 1, "seed": 0, "iterations": 2, name: bad}
        with pytest.raises(ValueError, match=name):
            averaged_gradient_descent(data, **arguments)
