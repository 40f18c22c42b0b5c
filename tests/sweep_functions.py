"""Functions that the workers of the sweep tests can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np


def draw(scale, kind, seed):
    """A random number, a BLAS product and the size of the grid's parameters."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((40, 40))
    return {
        "value": scale * float(rng.standard_normal()),
        "trace": float(np.trace(a @ a)),
        "k": kind,
    }


def counted(folder, index, seed):
    """Leave a mark for every call, and take a moment."""
    with open(Path(folder) / "calls.txt", "a") as file:
        file.write(f"{index}\n")
    time.sleep(0.05)
    return {"square": index * index}


def fragile(index, broken, seed):
    if index == broken:
        raise ArithmeticError(f"index {index} is unlucky")
    return {"index": index + 0.5}


def deadly(flag, index, seed):
    """The first worker that meets index 3 is killed; its successor finds the flag."""
    marker = Path(flag)
    if index == 3 and not marker.exists():
        marker.write_text("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": float(np.random.default_rng(seed).standard_normal())}


def threads(index, seed):
    """The largest number of threads of any numerical library of the worker."""
    from threadpoolctl import threadpool_info

    np.ones((4, 4)) @ np.ones((4, 4))
    return {"threads": max(pool["num_threads"] for pool in threadpool_info())}


def adds_its_seed(index, seed):
    """What a newcomer writes who takes the seed for a number."""
    return {"value": index + seed}


def strange(index, seed):
    """Values that are no results of a computation that went well."""
    values = {0: float("nan"), 1: float("inf"), 2: 1.0}
    return {"value": values[index % 3], "other": 0.0}


def other_names(index, seed):
    """Names that differ between the cells."""
    return {"even" if index % 2 == 0 else "odd": index}


def no_mapping(index, seed):
    return index


class DeadlySource:
    """Tokens of a source; the first worker that is asked for block 3 is killed."""

    def __init__(self, source, flag):
        self.source, self.flag = source, str(flag)

    def __call__(self, k):
        marker = Path(self.flag)
        if k == 3 and not marker.exists():
            marker.write_text("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return self.source(k)
