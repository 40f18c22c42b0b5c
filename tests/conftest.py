"""Shared by all tests: published numbers, the built book, and a browser to read it with."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser, find_chromium
from filelock import FileLock
from warm_kernels import Nursery

ROOT = Path(__file__).resolve().parent.parent
LONG = ("wheel", "publishing", "chapters", "command_line", "notebooks", "compile", "other_priors")


@pytest.hookimpl(trylast=True)  # when -k and -m have taken their choice
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With two workers, what takes long begins each half; the short fills what is left.

    A worker starts with its half of the list, and when it is done takes from the end of the other.
    One half opens with the pages, so that one worker builds the book while the other has work that
    needs none; the other half opens with kernels and installs.  Files stay together: they share
    fixtures.
    """
    if getattr(config, "workerinput", {}).get("workercount") != 2:
        return
    pages, long, short = [], [], []
    for item in items:
        module = item.path.stem.removeprefix("test_")
        if "site" in getattr(item, "fixturenames", ()):
            pages.append(item)
        else:
            (long if module in LONG else short).append(item)
    pages.sort(key=lambda item: "browser" not in getattr(item, "fixturenames", ()))
    long.sort(key=lambda item: LONG.index(item.path.stem.removeprefix("test_")))
    cut = max(len(items) // 2 - len(pages), 0)
    items[:] = pages + short[:cut] + long + short[cut:]


@pytest.fixture(scope="session")
def peer_data() -> Path:
    """Folder of published tables; a test that needs it is skipped, with a message, where absent."""
    folder = Path(os.environ.get("AIMLIB_PEER_DATA", ROOT.parent / "shared" / "peer-data"))
    if not folder.is_dir():
        pytest.skip(f"no published tables in {folder} (set AIMLIB_PEER_DATA to their folder)")
    return folder


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all workers of this run."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the book from clean with warnings as errors, once for all tests of a run.

    While working on pages, AIMLIB_SITE names a folder that holds a built book to read instead.
    """
    if built := os.environ.get("AIMLIB_SITE"):
        assert (Path(built) / "index.html").is_file(), f"AIMLIB_SITE: no built book in {built}"
        return Path(built).resolve()
    shared = shared_folder(tmp_path_factory)
    target = shared / "site"
    with FileLock(shared / "site.lock"):
        if not (target / "html" / "index.html").exists():
            result = subprocess.run(
                [
                    *(
                        sys.executable,
                        "-c",
                        "from jupyter_book.cli.main import main; main()",
                        "build",
                        str(ROOT),
                    ),
                    *("--path-output", str(target), "-n", "-W", "--keep-going", "-q"),
                ],
                capture_output=True,
                text=True,
                timeout=900,
            )
            if result.returncode:
                pytest.fail(f"the book does not build:\n{result.stdout}\n{result.stderr[-6000:]}")
            (target / "_build" / "html").rename(target / "html")
    return target / "html"


@pytest.fixture(scope="session")
def warm_kernels() -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """A context in which kernels need no time for their imports, where forking is safe."""
    if not sys.platform.startswith("linux"):
        yield contextlib.nullcontext
        return
    nursery = Nursery()
    yield nursery.raises_all_kernels
    nursery.close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the browser reports failed requests itself."""


@pytest.fixture(scope="session")
def address(site) -> Iterator[str]:
    """Serve the built book on a free port of this machine."""
    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a run."""
    executable = find_chromium()
    if executable is None:
        assert not os.environ.get("CI"), "CI must have Chromium: .ci/run installs it"
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    tab = Browser(executable)
    yield tab
    tab.close()
