"""Training of many starts on the workers of a Dask cluster, a few starts a task.

Training ends when every start is at rest, and no worker knows of the starts of the others.  So each
task walks on to the next recorded step and says of every step what it saw; if all of them were at
rest on the way, they walk once more, to there.  What travels are the weights, and the data to a
worker that has not got them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aimlib._cluster import checked, gathered, keep
from aimlib._training import Evaluate, Schedule, State, Steps

_TOGETHER = 4  # starts of one task: they share their products with the tokens


def steps_of(evaluate: Evaluate, data: Any, schedule: Schedule, client: Any) -> Steps:
    """Return the steps of all starts, in this process if there is no client."""
    if client is None:
        return Steps(evaluate, data, schedule)
    return StepsApart(evaluate, data, schedule, client)


class StepsApart(Steps):
    """The steps of all starts, each group of them on some worker."""

    def __init__(self, evaluate: Evaluate, data: Any, schedule: Schedule, client: Any) -> None:
        super().__init__(evaluate, keep(checked(client), data), schedule)
        self.client = client
        self._begin = self._stop = 0
        self._values, self._rest = np.empty(0), np.empty(0)
        self._ends: list[Any] = []

    def look(self, state: State) -> tuple[Any, Any]:
        """Return the loss of each start, and whether it meets a stopping rule."""
        if not self._begin <= state.step < self._begin + len(self._values):
            every, last = self.schedule.record_every, self.schedule.iterations
            stop = min((state.step // every + 1) * every, last)
            found = self._walk(state, stop)
            self._begin, self._stop = state.step, stop
            self._ends = [arrays for arrays, _, _ in found]
            self._values = np.concatenate([values for _, values, _ in found], axis=1)
            self._rest = np.concatenate([rest for _, _, rest in found], axis=1)
        seen = state.step - self._begin
        return self._values[seen], self._rest[seen]

    def go(self, state: State) -> None:
        """Advance by one step; the weights follow at the end of a walk."""
        state.step += 1
        if state.step == self._stop:
            _take(state, self._ends)

    def settle(self, state: State) -> None:
        """Make the weights those of the step of the state."""
        if self._begin < state.step < self._stop:
            begin = State(state.weights, state.first, state.second, self._begin, {})
            _take(state, [arrays for arrays, _, _ in self._walk(begin, state.step)])

    def _walk(self, state: State, stop: int) -> list[Any]:
        starts = range(0, len(state.weights), _TOGETHER)
        parts = [
            tuple(x[k : k + _TOGETHER] for x in (state.weights, state.first, state.second))
            for k in starts
        ]
        walk = (self.evaluate, self.schedule, state.step, stop)
        return gathered(
            self.client,
            lambda: [self.client.submit(_walk, self.data, p, *walk, pure=False) for p in parts],
        )


def _take(state: State, ends: list[Any]) -> None:
    state.weights, state.first, state.second = (np.concatenate(x) for x in zip(*ends, strict=True))


def _walk(
    data: Any, arrays: Any, evaluate: Evaluate, schedule: Schedule, begin: int, stop: int
) -> tuple[Any, Any, Any]:
    """Walk to a step; return the arrays there, and losses and rest of all steps before it.

    At the last step allowed there is nothing after it, and it is looked at as well.
    """
    weights, first, second = arrays
    state, steps = State(weights, first, second, begin, {}), Steps(evaluate, data, schedule)
    seen = []
    while state.step < stop:
        seen.append(steps.look(state))
        steps.go(state)
    if stop == schedule.iterations:
        seen.append(steps.look(state))
    values, rest = zip(*seen, strict=True)
    return (state.weights, state.first, state.second), np.stack(values), np.stack(rest)
