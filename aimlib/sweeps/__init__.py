"""Grids of experiments: many parameters, many seeds, many processes, resumable.

A sweep calls ``function(**parameters, seed=SeedSequence)`` once for each cell, a point of the grid
with one seed, and keeps what it returns, a flat mapping of names to numbers or texts.

- Each finished cell is one small file, written under another name and renamed, so that a sweep
  killed at any moment resumes with nothing lost, nothing repeated and nothing half-written.
- The random stream of a cell depends on its parameters and its seed only: not on the order, the
  number of processes, or whether the grid grows later.
- A folder that belongs to another sweep is refused.
- The table at the end has one row a cell, in the order of the grid, with its provenance beside it.
"""

from aimlib.sweeps.cells import SweepError
from aimlib.sweeps.described import read_sweep_file
from aimlib.sweeps.grid import Sweep, describe_failures, sweep

__all__ = ["Sweep", "SweepError", "describe_failures", "read_sweep_file", "sweep"]
