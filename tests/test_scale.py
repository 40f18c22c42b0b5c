"""Past one machine: the same results on a Dask cluster, whatever is lost; runs that go on."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sweep_functions
from threadpoolctl import threadpool_limits

from aimlib import (
    AttentionIndexedModel,
    SoftmaxChannel,
    StreamedDataset,
    WignerPrior,
    WishartPrior,
    amp,
    averaged_gradient_descent,
    cross_attention,
    gradient_descent,
    layers,
)
from aimlib._cluster import checked, over
from aimlib._sources import Mapped

HERE = Path(__file__).resolve().parent
PRIOR, CHANNEL = WishartPrior(0.5), SoftmaxChannel(tokens=2)


def streamed(d: int = 24, alpha: float = 0.3, seed: int = 1, block: int = 16) -> StreamedDataset:
    model = AttentionIndexedModel(d, PRIOR, CHANNEL)
    return StreamedDataset.regenerate(model, alpha, seed=seed, block=block)


def crossed() -> tuple[StreamedDataset, Any, Any]:
    prior, channel = cross_attention.BilinearPrior(0.5), cross_attention.SoftmaxChannel(2, 2)
    model = cross_attention.Model(20, prior, channel)
    return StreamedDataset.regenerate(model, 0.5, seed=2, block=32), prior, channel


def layered() -> tuple[StreamedDataset, Any, Any]:
    channel = layers.MixedLinearChannel([[1.0, 0.5], [0.5, 1.0]], noise=0.1)
    model = layers.Model(16, [WignerPrior()] * 2, channel)
    return StreamedDataset.regenerate(model, 0.8, seed=1, block=20), [WignerPrior()] * 2, channel


RUNS = {
    "symmetric": lambda **more: amp(streamed(), PRIOR, CHANNEL, iterations=6, **more),
    "rectangular": lambda **more: cross_attention.amp(*crossed(), iterations=6, **more),
    "layered": lambda **more: layers.amp(*layered(), iterations=6, **more),
}


def agree(ours, theirs, tolerance: float = 1e-12) -> None:
    scale = np.abs(theirs.estimate).max()
    np.testing.assert_allclose(ours.estimate, theirs.estimate, rtol=0, atol=tolerance * scale)
    assert (ours.status, ours.iterations) == (theirs.status, theirs.iterations)
    for name, values in theirs.history.items():
        np.testing.assert_allclose(ours.history[name], values, rtol=1e-9, atol=1e-14)


def same(ours, theirs) -> None:
    """To the last bit."""
    assert (ours.status, ours.iterations) == (theirs.status, theirs.iterations)
    assert np.array_equal(ours.estimate, theirs.estimate)
    for name, values in theirs.history.items():
        assert np.array_equal(ours.history[name], values), name


@pytest.fixture(scope="module")
def client():
    """Two processes; fresh interpreters have to find the package and the functions."""
    from distributed import Client, LocalCluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{HERE}{os.pathsep}{HERE.parent}"
    try:
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            yield client
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


# ---------------------------------------------------------------------------------------------
# On a cluster
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RUNS)
def test_message_passing_on_a_cluster_is_that_of_one_process(client, kind) -> None:
    agree(RUNS[kind](client=client), RUNS[kind]())


def test_workers_multiply_in_the_precision_that_was_asked_for(client) -> None:
    """Sums over blocks are of double precision on both sides; a product may round another way."""
    options = {"iterations": 6, "single_precision": True}
    here, there = (amp(streamed(), PRIOR, CHANNEL, client=c, **options) for c in (None, client))
    double = amp(streamed(), PRIOR, CHANNEL, iterations=6).estimate
    scale, rounding = np.abs(double).max(), np.finfo(np.float32).eps
    np.testing.assert_allclose(there.estimate, here.estimate, rtol=0, atol=rounding * scale)
    assert 1e-10 * scale < np.abs(there.estimate - double).max() < 100 * rounding * scale


def test_a_worker_killed_in_mid_run_changes_no_bit(client, tmp_path) -> None:
    """Nor does a cluster of one worker: parts and order of the sums follow from the data."""
    from distributed import Client, LocalCluster

    data, flag = streamed(), tmp_path / "flag"
    whole = amp(data, PRIOR, CHANNEL, iterations=4, client=client)
    pids = set(client.run(os.getpid).values())
    mortal = replace_source(data, sweep_functions.DeadlySource(data.source, flag))
    survived = amp(mortal, PRIOR, CHANNEL, iterations=4, client=client)
    assert flag.exists()
    client.wait_for_workers(2)
    assert set(client.run(os.getpid).values()) != pids  # one of them was replaced
    same(survived, whole)
    small = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with (
        threadpool_limits(1),
        LocalCluster(dashboard_address=None, **small) as cluster,
        Client(cluster, set_as_default=False) as other,
    ):
        same(amp(data, PRIOR, CHANNEL, iterations=4, client=other), whole)


def replace_source(data: StreamedDataset, source: Any) -> StreamedDataset:
    return StreamedDataset(source, data.block, data.outputs, data.dimension, data.teacher)


def test_a_worker_lost_between_two_iterations_is_made_up_for(client) -> None:
    from signal import SIGKILL

    def kill(iteration: int, record: dict[str, Any]) -> None:
        if iteration == 2:
            os.kill(next(iter(client.run(os.getpid).values())), SIGKILL)

    result = amp(streamed(), PRIOR, CHANNEL, iterations=4, client=client, callback=kill)
    agree(result, amp(streamed(), PRIOR, CHANNEL, iterations=4))
    client.wait_for_workers(2)


def test_data_in_memory_and_in_a_file_go_to_the_workers(client, tmp_path) -> None:
    held = AttentionIndexedModel(20, PRIOR, CHANNEL).sample(0.5, seed=3)
    np.save(tmp_path / "tokens.npy", held.tokens)
    tokens = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    mapped = StreamedDataset.mapped(tokens, held.outputs, held.teacher, block=24)
    expected = amp(held, PRIOR, CHANNEL, iterations=4)
    agree(amp(held, PRIOR, CHANNEL, iterations=4, client=client), expected)
    agree(amp(mapped, PRIOR, CHANNEL, iterations=4, client=client), expected)


def test_a_mapped_file_travels_by_name(tmp_path) -> None:
    """Also a part of it, which numpy says to begin where the file does."""
    numbers = np.random.default_rng(0).standard_normal((3000, 2, 40))
    np.save(tmp_path / "tokens.npy", numbers)
    source = Mapped((np.load(tmp_path / "tokens.npy", mmap_mode="r"),), 100)
    part = source.part(7, 9)
    sent = pickle.dumps(part)
    assert len(sent) < 1000
    assert np.array_equal(pickle.loads(sent)(1), numbers[800:900])
    inside = pickle.loads(pickle.dumps(Mapped((numbers,), 100).part(7, 9)))
    assert np.array_equal(inside(0), numbers[700:800])
    turned = Mapped((source.arrays[0].transpose(0, 2, 1),), 100)
    assert np.array_equal(pickle.loads(pickle.dumps(turned))(2), numbers[200:300].swapaxes(1, 2))


@pytest.mark.parametrize("kind", RUNS)
def test_the_parts_make_up_the_data(kind) -> None:
    data = {"symmetric": streamed, "rectangular": crossed, "layered": layered}[kind]()
    data = data if isinstance(data, StreamedDataset) else data[0]
    whole = [tokens for _, tokens in data.blocks()]
    parts = [data.part(0, 2), data.part(2, 3), data.part(3, data.block_count)]
    assert np.array_equal(np.concatenate([part.outputs for part in parts]), data.outputs)
    pieces = [tokens for part in parts for _, tokens in part.blocks()]
    assert len(pieces) == len(whole) == data.block_count
    for piece, block in zip(pieces, whole, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(piece, block, strict=True))


def test_a_task_that_no_worker_survives_is_an_error_with_advice(client, tmp_path) -> None:
    scheduler = client.cluster.scheduler
    data = streamed()
    mortal = replace_source(data, sweep_functions.DeadlySource(data.source, tmp_path / "flag"))
    before, scheduler.allowed_failures = scheduler.allowed_failures, 0
    try:
        with pytest.raises(RuntimeError, match="were lost one after the other"):
            amp(mortal, PRIOR, CHANNEL, iterations=2, client=client)
    finally:
        scheduler.allowed_failures = before
    client.wait_for_workers(2)


def test_what_is_no_client_is_refused(client) -> None:
    from distributed import Client

    for other in ("tcp://127.0.0.1:8786", client.cluster, 3):
        with pytest.raises(ValueError, match=r"client must be a distributed\.Client"):
            amp(streamed(), PRIOR, CHANNEL, client=other)
        with pytest.raises(ValueError, match=r"client must be a distributed\.Client"):
            averaged_gradient_descent(in_memory(), 4, starts=2, seed=1, client=other)
    closed = Client(client.cluster, set_as_default=False)
    closed.close()
    with pytest.raises(ValueError, match="client must be connected"):
        checked(closed)


def test_the_library_does_not_import_dask() -> None:
    import subprocess
    import sys

    script = "import aimlib, sys; assert not {'distributed', 'dask'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=HERE.parent)


# ---------------------------------------------------------------------------------------------
# Many starts of gradient descent
# ---------------------------------------------------------------------------------------------


def in_memory(d: int = 10, alpha: float = 0.8) -> Any:
    return AttentionIndexedModel(d, PRIOR, CHANNEL).sample(alpha, seed=4)


@pytest.mark.parametrize(
    "options",
    [
        {"iterations": 45, "record_every": 20},  # ends between two records
        {"iterations": 40, "record_every": 20, "method": "momentum", "learning_rate": 0.02},
        {"iterations": 4000, "record_every": 300, "loss_tolerance": 1e-3},  # stops on the way
    ],
)
def test_starts_on_a_cluster_end_as_in_one_process(client, options) -> None:
    here, there = (
        averaged_gradient_descent(in_memory(), 5, starts=6, seed=2, client=c, **options)
        for c in (None, client)
    )
    assert here.converged == ("loss_tolerance" in options)
    assert (there.status, there.iterations) == (here.status, here.iterations)
    np.testing.assert_allclose(there.weights, here.weights, rtol=0, atol=1e-9)
    for name, values in here.history.items():
        np.testing.assert_allclose(there.history[name], values, rtol=1e-7, atol=1e-12)


def test_a_training_goes_on_elsewhere(client, tmp_path) -> None:
    """Begun in one process, ended on a cluster; and of several layers."""
    options = {"starts": 5, "seed": 2, "record_every": 10}
    whole = averaged_gradient_descent(in_memory(), 5, iterations=30, **options)
    options |= {"checkpoint": tmp_path / "state.npz"}
    averaged_gradient_descent(in_memory(), 5, iterations=20, **options)
    moved = averaged_gradient_descent(in_memory(), 5, iterations=30, client=client, **options)
    np.testing.assert_allclose(moved.weights, whole.weights, rtol=0, atol=1e-10)
    channel = layers.DeepSoftmaxChannel(layers=2)
    data = layers.Model(8, [PRIOR] * 2, channel).sample(0.5, seed=1)
    one, two = (
        layers.averaged_gradient_descent(
            data, 4, channel, starts=5, seed=2, iterations=30, client=c
        )
        for c in (None, client)
    )
    np.testing.assert_allclose(two.weights, one.weights, rtol=0, atol=1e-10)


# ---------------------------------------------------------------------------------------------
# Checkpoints of message passing; tests/test_faults.py kills the process
# ---------------------------------------------------------------------------------------------


class StopError(Exception):
    pass


def stop_at(last: int):
    def callback(iteration: int, record: dict[str, Any]) -> None:
        if iteration == last:
            raise StopError

    return callback


@pytest.mark.parametrize("kind", RUNS)
def test_an_interrupted_run_goes_on_to_the_bit(tmp_path, kind) -> None:
    run, path = RUNS[kind], tmp_path / "state.npz"
    for moment in (3, 5):
        with pytest.raises(StopError):
            run(checkpoint=path, callback=stop_at(moment))
    seen: list[int] = []
    resumed = run(checkpoint=path, callback=lambda iteration, record: seen.append(iteration))
    assert seen == [5, 6]  # the first four are not repeated
    same(resumed, run())
    same(run(checkpoint=path), resumed)  # at its end there is nothing to do
    assert [file.name for file in tmp_path.iterdir()] == ["state.npz"]


def test_a_run_that_converges_keeps_its_verdict_and_can_be_prolonged(tmp_path) -> None:
    data, path = streamed(alpha=0.1), tmp_path / "state.npz"
    whole = amp(data, PRIOR, CHANNEL, tolerance=1e-5)
    assert whole.converged
    amp(data, PRIOR, CHANNEL, iterations=3, checkpoint=path)
    amp(data, PRIOR, CHANNEL, tolerance=1e-3, checkpoint=path)
    same(amp(data, PRIOR, CHANNEL, tolerance=1e-5, checkpoint=path), whole)
    same(amp(data, PRIOR, CHANNEL, tolerance=1e-5, checkpoint=path), whole)


def test_wrong_outputs_are_still_told_from_the_first_pass(tmp_path) -> None:
    """What the first pass saw is part of the state."""
    data, path = streamed(d=40, alpha=1.0), tmp_path / "state.npz"
    warm = SoftmaxChannel(2, inverse_temperature=2.0)
    expected = amp(data, PRIOR, warm, iterations=3, damping=0.3)
    assert expected.status == "inconsistent"
    amp(data, PRIOR, warm, iterations=2, damping=0.3, checkpoint=path)
    same(amp(data, PRIOR, warm, iterations=3, damping=0.3, checkpoint=path), expected)


def test_the_checkpoint_of_another_run_is_refused(tmp_path) -> None:
    path = tmp_path / "state.npz"
    amp(streamed(), PRIOR, CHANNEL, iterations=3, checkpoint=path)
    before = path.read_bytes()
    options: dict[str, Any] = {"iterations": 5, "checkpoint": path}
    held = AttentionIndexedModel(24, PRIOR, CHANNEL).sample(0.3, seed=1)
    others = [
        lambda: amp(streamed(seed=2), PRIOR, CHANNEL, **options),
        lambda: amp(streamed(block=32), PRIOR, CHANNEL, **options),
        lambda: amp(held, PRIOR, CHANNEL, **options),
        lambda: amp(streamed(), WishartPrior(0.6), CHANNEL, **options),
        lambda: amp(streamed(), PRIOR, SoftmaxChannel(2, inverse_temperature=1.1), **options),
        lambda: amp(streamed(), PRIOR, CHANNEL, damping=0.5, **options),
        lambda: amp(streamed(), PRIOR, CHANNEL, denoiser="clip", **options),
        lambda: amp(streamed(), PRIOR, CHANNEL, single_precision=True, **options),
        lambda: RUNS["layered"](checkpoint=path),
        lambda: RUNS["rectangular"](checkpoint=path),
        lambda: gradient_descent(in_memory(), 4, seed=1, iterations=5, checkpoint=path),
    ]
    for other in others:
        with pytest.raises(ValueError, match="checkpoint must belong to the same"):
            other()
    with pytest.raises(ValueError, match="iterations must be at least 3"):
        amp(streamed(), PRIOR, CHANNEL, iterations=2, checkpoint=path)
    assert path.read_bytes() == before
    for wrong in (5, tmp_path, tmp_path / "no" / "x", "a\0b"):
        with pytest.raises(ValueError, match="checkpoint must be"):
            amp(streamed(), PRIOR, CHANNEL, checkpoint=wrong)
    path.write_bytes(before[: len(before) // 2])
    with pytest.raises(ValueError, match="checkpoint must be a file written"):
        amp(streamed(), PRIOR, CHANNEL, **options)


def test_what_killed_writers_left_is_removed(tmp_path) -> None:
    path = tmp_path / "state.npz"
    left, mine = tmp_path / "state.npz.123.part", tmp_path / "state.npz.notes"
    left.write_text("half")
    mine.write_text("mine")
    amp(streamed(), PRIOR, CHANNEL, iterations=2, checkpoint=path)
    assert not left.exists()
    assert mine.exists()


@dataclass(frozen=True)
class Plain(WishartPrior):
    """A prior of a reader, and one that prints its address."""


class Printless(WishartPrior):
    __repr__ = object.__repr__


@pytest.mark.parametrize("kind", [Plain, Printless])
def test_a_prior_of_ones_own_is_recognised(tmp_path, kind) -> None:
    path = tmp_path / "state.npz"
    amp(streamed(), kind(0.5), CHANNEL, iterations=2, checkpoint=path)
    assert amp(streamed(), kind(0.5), CHANNEL, iterations=3, checkpoint=path).iterations == 3
    with pytest.raises(ValueError, match="checkpoint must belong"):
        amp(streamed(), kind(0.7), CHANNEL, iterations=3, checkpoint=path)


def test_a_pass_here_takes_the_data_as_they_are() -> None:
    data, g = streamed(), np.zeros(3)
    total = over(data)(lambda given, kept, x: (given is data, kept is g, x), g, 7)
    assert total == (True, True, 7)


# ---------------------------------------------------------------------------------------------
# The page
# ---------------------------------------------------------------------------------------------


def test_the_script_of_the_page_runs_and_goes_on(tmp_path) -> None:
    import re
    import subprocess
    import sys

    page = (HERE.parent / "book" / "scale.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "run.py").write_text(script, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "run.py"]
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "check": True, "text": True}
    first, again = (subprocess.run(command, capture_output=True, **options) for _ in range(2))
    status, error = first.stdout.split()
    assert (status, float(error) < 1e-6) == ("converged", True)
    assert again.stdout == first.stdout
    assert (tmp_path / "state.npz").exists()


def test_the_numbers_of_the_page_are_those_of_the_recorded_run() -> None:
    import json
    import re

    import nbformat

    record = json.loads((HERE.parent / "notebooks/data/speed/scale.json").read_text())
    glued = {}
    for cell in nbformat.read(HERE.parent / "notebooks" / "speed.ipynb", as_version=4).cells:
        for output in cell.get("outputs", []):
            name = output.get("metadata", {}).get("scrapbook", {}).get("name")
            if name:
                glued[name] = next(iter(output["data"].values())).strip("'")
    page = (HERE.parent / "book" / "scale.md").read_text(encoding="utf-8")
    shown = re.findall(r"speed\.ipynb::([\w-]+)", page)
    assert len(shown) > 25
    assert set(shown) <= set(glued)
    rows = record["iterations"]
    work = 4 * record["sequences"] * record["tokens"] * record["dimension"] ** 2
    assert record["work_of_an_iteration"] == work
    seconds = np.median([row["worker_cpu_seconds"] for row in rows])
    assert float(glued["speed-scale-rate"]) == pytest.approx(work / seconds / 1e9)
    assert float(glued["speed-scale-error"]) == pytest.approx(rows[-1]["estimation_error"])
    hours = work * 5**4 / (work / seconds) / 3600  # of d = 2000 at d = 10^4
    assert float(glued["speed-plan-core-hours"]) == pytest.approx(hours)
    assert abs(rows[-1]["estimation_error"] - record["bayes_optimal_error"]) < 1e-3
