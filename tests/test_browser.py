"""Every page in a real browser: no error, no request from outside, mathematics set, phone-sized."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from pathlib import Path

import pytest
from browser import Browser, find_chromium
from test_book import contents


@pytest.fixture(scope="module")
def address(site):
    """Serve the built book on a free port of this machine."""
    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the browser reports failed requests itself."""


@pytest.fixture(scope="module")
def browser():
    executable = find_chromium()
    if executable is None:
        assert not os.environ.get("CI"), "CI must have Chromium: .ci/run installs it"
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    tab = Browser(executable)
    yield tab
    tab.close()


def problems(events: list[dict], address: str) -> list[str]:
    """Console errors, failed requests, and requests that leave the site."""
    found, asked = [], {}
    for event in events:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                found.append(f"exception: {params['exceptionDetails']['text']}")
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                found.append(f"console: {params['args']}")
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                found.append(f"log: {params['entry']['text']} {params['entry'].get('url')}")
            case "Network.requestWillBeSent":
                url = params["request"]["url"]
                asked[params["requestId"]] = url
                if not url.startswith((address, "data:", "blob:", "about:", "file:")):
                    found.append(f"outside: {url}")
            case "Network.loadingFailed" if not params.get("canceled"):
                found.append(f"failed: {asked.get(params['requestId'])} {params['errorText']}")
            case "Network.responseReceived" if params["response"]["status"] >= 400:
                found.append(f"{params['response']['status']}: {params['response']['url']}")
    return found


RAW_MATH = r"""
(() => {
  const article = document.querySelector('article');
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  const raw = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (parent.closest('pre, code, script, style, mjx-container, .highlight')) continue;
    if (/\\\(|\\\[|\$[^$]+\$|\\begin\{/.test(walker.currentNode.textContent))
      raw.push(walker.currentNode.textContent.trim().slice(0, 80));
  }
  const errors = [...document.querySelectorAll('mjx-merror')].map(e => e.textContent);
  const waiting = [...document.querySelectorAll('article .math')].filter(
    e => !e.querySelector('mjx-container')).length;
  return {raw, errors, waiting};
})()
"""


@pytest.mark.parametrize("page", contents())
def test_page(browser, address, page) -> None:
    browser.resize(1300, 900)
    browser.prefer_dark(False)
    assert problems(browser.open(f"{address}/{page}.html"), address) == []
    assert browser.evaluate(RAW_MATH) == {"raw": [], "errors": [], "waiting": 0}
    broken = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
    assert browser.evaluate(broken) == []
    nameless = (
        "[...document.querySelectorAll('article img')]"
        ".filter(i => !i.alt || i.alt.length < 20).map(i => i.src)"
    )
    assert browser.evaluate(nameless) == []


@pytest.mark.parametrize("page", contents())
def test_page_on_a_phone(browser, address, page) -> None:
    """Wide equations, tables and code scroll inside themselves; the page does not."""
    browser.resize(390, 844, phone=True)
    browser.open(f"{address}/{page}.html")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390


def test_dark_theme(browser, address) -> None:
    browser.resize(1300, 900)
    browser.prefer_dark(True)
    browser.open(f"{address}/book/softmax.html")
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(v) for v in background[4:-1].split(",")) < 200
    filters = (
        "[...document.querySelectorAll('article figure img')].map(i => getComputedStyle(i).filter)"
    )
    found = browser.evaluate(filters)
    assert found
    assert all("invert" in value for value in found)


def test_search_finds_a_word(browser, address) -> None:
    browser.resize(1300, 900)
    events = browser.open(f"{address}/search.html?q=Marchenko")
    for _ in range(100):
        if browser.evaluate("document.querySelectorAll('#search-results li').length"):
            break
        browser.evaluate("new Promise(done => setTimeout(done, 50))", wait=True)
    assert browser.evaluate("document.querySelectorAll('#search-results li').length") >= 1
    assert problems(events, address) == []


def test_a_page_opened_from_disk_shows_its_mathematics(browser, site: Path) -> None:
    """Without any server: double-click on the file."""
    events = browser.open((site / "book" / "priors.html").as_uri())
    assert not [p for p in problems(events, "file:") if p.startswith("outside")]
    assert browser.evaluate(RAW_MATH) == {"raw": [], "errors": [], "waiting": 0}
