"""The search for faults runs, in small, and sees a fault where there is one."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aimlib import SoftmaxChannel, WishartPrior
from aimlib.sweeps import SweepError, read_sweep_file, sweep

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import fault_inputs  # noqa: E402  the scripts are no package
import fault_points  # noqa: E402
import fault_record  # noqa: E402
import faults  # noqa: E402

TINY = dataclasses.replace(faults.TINY, points=24, inputs=40, apart=1)


@pytest.mark.parametrize("part", ["sweeps", "amp", "points", "inputs"])
def test_no_fault_in_small(part, tmp_path) -> None:
    row = faults.PARTS[part](tmp_path, TINY, np.random.default_rng(3))
    assert row["faults"] == 0, row["detail"]
    assert row["tried"] == {"sweeps": 2, "amp": 2, "points": 24, "inputs": 40}[part]


def test_the_record_is_whole_and_shown() -> None:
    record = json.loads(fault_record.RECORD.read_text(encoding="utf-8"))
    tried = {row["part"]: row["tried"] for row in record["rows"]}
    assert tried["sweeps"] == tried["amp"] == 20
    assert tried["points"] == 10_000
    assert tried["inputs"] >= 500
    assert not any(row["faults"] for row in record["rows"])
    page = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    assert page.endswith(fault_record.section())


class Wrong(WishartPrior):
    """A prior whose error is a little too large for its information."""

    def mmse(self, noise):
        return 1.001 * np.asarray(super().mmse(noise))


def test_a_wrong_prior_is_seen() -> None:
    rng = np.random.default_rng(0)
    assert list(fault_points.check_prior(WishartPrior(0.5), 0.3, rng)) == []
    assert "I-MMSE" in list(fault_points.check_prior(Wrong(0.5), 0.3, rng))


class Greedy(SoftmaxChannel):
    """A channel that claims more than there is, the more so the less is known."""

    def information_at(self, variance, second_moment):
        return 9.0 * (np.asarray(variance) / second_moment) ** 2


def test_a_wrong_channel_is_seen() -> None:
    seen = set(fault_points.check_channel(Greedy(2), 1.0, np.random.default_rng(6)))
    assert "conjugate grows with the overlap" in seen


def test_a_wrong_refusal_is_seen(tmp_path) -> None:
    fault_inputs.make_book(tmp_path)
    before = fault_inputs.snapshot(tmp_path)
    assert fault_inputs.judge(1, "aimlib: no", before, before) == ""
    assert fault_inputs.judge(0, "aimlib: no", before, before) == "accepted"
    assert fault_inputs.judge(1, " ", before, before) == "no message"
    assert "Traceback" in fault_inputs.judge(1, "Traceback: x", before, before)
    (tmp_path / "full" / "letter.txt").write_text("lost")
    changed = fault_inputs.judge(1, "no", before, fault_inputs.snapshot(tmp_path))
    assert "letter.txt" in changed


# ---------------------------------------------------------------------------------------------
# What it has found
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["raise SystemExit(0)", "1 / 0", "def f(:"])
def test_a_module_that_cannot_be_imported_is_refused(text, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unlucky.py").write_text(text)
    (tmp_path / "sweep.toml").write_text(
        'function = "unlucky:f"\ngrid = { x = [1] }\nseeds = 1\nstore = "s"'
    )
    with pytest.raises(SweepError, match="can be imported, got 'unlucky:f'"):
        read_sweep_file(tmp_path / "sweep.toml")


@pytest.mark.parametrize("marker", ["{", "[]", "\0"])
def test_a_spoilt_marker_is_refused(marker, tmp_path) -> None:
    (tmp_path / "sweep.json").write_text(marker)
    with pytest.raises(SweepError, match="store belongs to no sweep"):
        sweep(dict, {"x": [1]}, 1, tmp_path, "serial")
    assert [p.name for p in tmp_path.iterdir()] == ["sweep.json"]


@pytest.mark.parametrize("executor", [[], {}, None, 3])
def test_an_executor_that_is_no_text_is_refused(executor, tmp_path) -> None:
    with pytest.raises(SweepError, match="executor must be"):
        sweep(dict, {"x": [1]}, 1, tmp_path / "s", executor)


def test_a_grid_of_other_names_is_refused(tmp_path) -> None:
    with pytest.raises(SweepError, match=r"the function, \['seed', 'x'\], got \['y'\]"):
        sweep(lambda x, seed: {"x": x}, {"y": [1]}, 1, tmp_path / "s", "serial")
    assert not (tmp_path / "s").exists()


def test_full_and_locked_disks(tmp_path) -> None:
    """Refused before a kernel starts, and no folder is left behind."""
    row = fault_inputs.try_disks(tmp_path)
    if not row["tried"]:
        pytest.skip("no disk can be mounted here")
    assert row["faults"] == 0, row["detail"]


@pytest.mark.parametrize("width_ratio", [1e-3, 0.3, 2.0, 90.0])
def test_information_keeps_its_digits_under_large_noise(width_ratio) -> None:
    """Its series: mmse = 1 - s (1 + ...) with s = 1/noise, so I = s/4 - s^2/8 + ..."""
    prior = WishartPrior(width_ratio)
    for noise in (1e8, 1e10, 1e12):
        s = 1.0 / noise
        assert prior.information(noise) == pytest.approx(s / 4 - s**2 / 8, rel=2e-9, abs=0.0)
    switch = 1e4 * (1.0 + 1.0 / width_ratio)
    low, high = prior.information(switch * (1 - 1e-9)), prior.information(switch * (1 + 1e-9))
    assert low == pytest.approx(high, rel=1e-8, abs=3e-13)


def test_the_script_refuses_an_unknown_part() -> None:
    command = [sys.executable, "benchmarks/faults.py", "--only", "nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid choice" in done.stderr
