"""``make live``: a page whose cells run, in a headless Chromium, on this machine only."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest
from test_run_box import enter, note

ROOT = Path(__file__).resolve().parent.parent


def until_it_answers(address: str) -> None:
    port = int(address.rsplit(":", 1)[1])
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nothing listens at {address}"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def live(site):
    """Start the server on a free port; yield its address and token."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "book" / "_live" / "serve.py"), str(site), "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=site,
    )
    found = re.search(r"(http://127\.0\.0\.1:\d+)/\S*token=(\w+)", process.stdout.readline())
    until_it_answers(found.group(1))  # the address is printed just before the server listens
    yield found.group(1), found.group(2)
    process.terminate()
    process.wait(timeout=60)


def wait_for_run(browser) -> str:
    deadline = time.monotonic() + 300
    script = "(document.querySelector('.run-box').dataset.live || '')"
    while not (state := browser.evaluate(script)):
        assert time.monotonic() < deadline, note(browser)
        time.sleep(0.2)
    browser.evaluate("delete document.querySelector('.run-box').dataset.live")
    return state


def printed(browser) -> str:
    script = (
        "[...document.querySelectorAll('[data-live-output]')].map(e => e.innerText).join('\\n')"
    )
    return browser.evaluate(script)


def test_a_changed_parameter_gives_its_number_in_the_page(browser, live) -> None:
    """The information of the softmax channel is (T-1)(T+2)/2: 2 for two tokens, 9 for four."""
    address, token = live
    browser.resize(1300, 900)
    events = browser.open(f"{address}/book/notebooks/channels.html?token={token}")
    assert "softmax: 4.996 measured, 5.000 predicted" in browser.evaluate("document.body.innerText")
    for tokens, information in (("2", "2.000"), ("4", "9.000")):
        enter(browser, "tokens", tokens)
        enter(browser, "sequences", "2000")
        browser.evaluate("document.querySelector('.run-box-live').click()")
        assert wait_for_run(browser) == "done", printed(browser)
        assert note(browser).startswith("All cells ran")
        assert re.search(rf"softmax: \d\.\d+ measured, {information} predicted", printed(browser))
    pictures = "document.querySelectorAll('[data-live-output] img').length"
    notebook = nbformat.read(ROOT / "notebooks" / "channels.ipynb", as_version=4)
    assert browser.evaluate(pictures) == sum("plt.show()" in cell.source for cell in notebook.cells)
    assert "Take-away" in browser.evaluate("document.querySelector('figcaption').innerText")
    outside = {
        event["params"]["request"]["url"]
        for event in events + browser.events()
        if event.get("method") == "Network.requestWillBeSent"
        and not event["params"]["request"]["url"].startswith((address, "data:", "blob:"))
    }
    assert outside == set()


def test_a_cell_that_is_edited_runs_alone(browser, live) -> None:
    address, token = live
    browser.open(f"{address}/book/notebooks/priors.html?token={token}")
    enter(browser, "dimension", "100")
    browser.evaluate("document.querySelector('.run-box-live').click()")
    assert wait_for_run(browser) == "done", printed(browser)
    browser.evaluate(
        "document.querySelectorAll('.thebe-input .CodeMirror')[2].CodeMirror"
        ".setValue('print(6 * 7 * dimension)')"
    )
    browser.evaluate("document.querySelectorAll('.thebe-run-button')[2].click()")
    deadline = time.monotonic() + 60
    while "4200" not in printed(browser):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_values_that_are_not_allowed_do_not_run(browser, live) -> None:
    address, token = live
    browser.open(f"{address}/book/notebooks/priors.html?token={token}")
    for text in ("50", "100,200"):
        enter(browser, "dimension", text)
        browser.evaluate("document.querySelector('.run-box-live').click()")
        assert note(browser).startswith("One allowed value of each parameter runs in the page")


def test_a_chapter_points_to_the_page_of_its_notebook(browser, live) -> None:
    address, token = live
    browser.open(f"{address}/book/book/priors.html?token={token}")
    script = "document.querySelector('.run-box-needs a').getAttribute('href')"
    assert browser.evaluate(script) == "/book/notebooks/priors.html#run-this"


@pytest.mark.parametrize(
    "path",
    [
        "/book/index.html",
        "/book/notebooks/amp.html",
        "/live/live.js",
        "/api/kernels",
        "/book/x.png",
    ],
)
@pytest.mark.parametrize("token", ["", "?token=", "?token=wrong"])
def test_without_the_token_there_is_nothing(live, path, token) -> None:
    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *arguments):
            return None

    address, secret = live
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.build_opener(Stay).open(address + path + token, timeout=30)
    assert caught.value.code in (302, 403)
    assert secret not in caught.value.read().decode()


@pytest.mark.parametrize("path", ["../serve.py", "..%2f..%2fpyproject.toml", "%2e%2e/_toc.yml"])
def test_no_file_outside_of_the_book_is_served(live, path) -> None:
    address, token = live
    for folder in ("book", "live"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{address}/{folder}/{path}?token={token}", timeout=30)
        assert caught.value.code in (403, 404)


def test_the_built_book_carries_none_of_it(site) -> None:
    """Its weight stays that of the pages."""
    names = {path.name for path in site.rglob("*") if path.is_file()}
    assert not names & {"live.js", "live.css", "thebe.css", "serve.py"}
    for page in site.glob("notebooks/*.html"):
        assert "thebe" not in page.read_text(encoding="utf-8").lower()
