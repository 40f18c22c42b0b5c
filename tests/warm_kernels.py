"""Kernels that are forked from a process which has made the imports of the notebooks.

A notebook of the book starts its kernel and imports for longer than it computes.  Where one runs
many times, this module takes the place of ``launch_kernel`` of jupyter_client: one process a worker
imports, and every kernel is a fork of it, with its own environment, folder and connection.  All
that a run does after its imports and first calls is done anew.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

INLINE = "module://matplotlib_inline.backend_inline"
IMPORTS = (
    "ipykernel.kernelapp",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "myst_nb",
    "numba",
    "scipy.optimize",
    "scipy.special",
    "aimlib.plotting",
)


# ---------------------------------------------------------------------------------------------
# In the tests
# ---------------------------------------------------------------------------------------------


class Nursery:
    """The process that imports once, and the only one that can wait for its forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=os.environ | {"MPLBACKEND": INLINE},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def launch_kernel(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: str = ".", **_: Any
    ) -> Kernel:
        """Start a kernel; the signature is that of jupyter_client."""
        module = command.index("ipykernel_launcher")
        assert command[0] == sys.executable
        arguments = list(command[module + 1 :])
        folder = os.path.abspath(cwd)
        return Kernel(self, self.ask(arguments=arguments, environment=dict(env), folder=folder))

    @contextlib.contextmanager
    def raises_all_kernels(self) -> Iterator[None]:
        """Whatever starts a kernel meanwhile gets a fork."""
        place = "jupyter_client.provisioning.local_provisioner.launch_kernel"
        with mock.patch(place, self.launch_kernel):
            yield

    def close(self) -> None:
        """Kernels that are left see that their parent is gone, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


class Kernel:
    """What jupyter_client asks of ``subprocess.Popen``."""

    stdin = stdout = stderr = None

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.nursery, self.pid = nursery, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.nursery.ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# ---------------------------------------------------------------------------------------------
# In the process that imports
# ---------------------------------------------------------------------------------------------


def serve() -> None:
    """Fork a kernel, or say how one ended, for each line of standard input."""
    sys.path.pop(0)  # the folder of this file, which a kernel does not have
    for name in IMPORTS:
        importlib.import_module(name)
    rehearse()
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = fork(request)
        print(json.dumps(answer), flush=True)


def rehearse() -> None:
    """Load what the first use loads: compiled kernels, and the letters of figures."""
    import matplotlib.pyplot as plt

    from aimlib import HardmaxChannel, SoftmaxChannel, WishartPrior, bayes_optimal

    for channel in (SoftmaxChannel(2), HardmaxChannel(2)):
        bayes_optimal([0.1], WishartPrior(0.5), channel)
    figure, axes = plt.subplots()
    axes.set_title(r"$\alpha$")
    figure.savefig(io.BytesIO(), format="png")
    plt.close(figure)


def fork(request: dict[str, Any]) -> int:
    """Return the process of a new kernel, when it leads a group of its own."""
    parent = os.getpid()
    ready, done = os.pipe()
    pid = os.fork()
    if pid:
        os.close(done)
        os.read(ready, 1)
        os.close(ready)
        return pid
    os.setsid()
    os.close(done)
    os.close(ready)
    try:
        become_kernel(request, parent)
    finally:
        os._exit(1)


def become_kernel(request: dict[str, Any], parent: int) -> None:
    """Run the kernel to its end."""
    from ipykernel.kernelapp import launch_new_instance

    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.environ.clear()
    os.environ.update(request["environment"], JPY_PARENT_PID=str(parent))
    os.chdir(request["folder"])
    launch_new_instance(request["arguments"])
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    serve()
