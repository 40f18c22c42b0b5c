"""Every page as a reader meets it: one load, four widths, two themes.

What the pages do when they are used is in ``test_navigation.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_book import contents

ROOT = Path(__file__).resolve().parent
CHECKS = (ROOT / "page_checks.js").read_text(encoding="utf-8")
AXE = (ROOT / "axe" / "axe.min.js").read_text(encoding="utf-8")
WIDTHS = (1440, 1280, 800, 390)
GENERATED = ["search", "genindex", "prf-prf"]
HEAVIEST = 1_500_000
LAYOUT_RULES = ["scrollable-region-focusable", "target-size", "label-content-name-mismatch"]


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
  const article = document.querySelector('article') || document.body;
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


def own_weight(events: list[dict], address: str) -> int:
    """Bytes of the page and its pictures: all but what every page shares and the browser keeps."""
    urls, sizes = {}, {}
    for event in events:
        params = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            urls[params["requestId"]] = params["request"]["url"]
        elif event.get("method") == "Network.loadingFinished":
            sizes[params["requestId"]] = params["encodedDataLength"]
    shared = (f"{address}/_static/", f"{address}/searchindex.js")
    return sum(
        size
        for key, size in sizes.items()
        if not urls.get(key, "").startswith(shared) or urls[key].endswith((".png", ".svg"))
    )


def settle(browser) -> None:
    browser.evaluate(
        "new Promise(done => requestAnimationFrame(() => setTimeout(done, 60)))", wait=True
    )


def complaints_of(browser, call: str) -> list[str]:
    return browser.evaluate(f"pageChecks.{call}", wait=True)


@pytest.mark.parametrize("page", [*contents(), *GENERATED])
def test_page(browser, address, page) -> None:
    """Errors, weight, formulas, pictures, layout at every width, accessibility in both themes."""
    browser.resize(WIDTHS[0], 900)
    browser.prefer_dark(False)
    found = {}
    events = browser.open(f"{address}/{page}.html")
    found["errors"] = problems(events, address)
    weight = own_weight(events, address)
    found["weight"] = [f"{weight} bytes"] if weight > HEAVIEST else []
    assert browser.evaluate(RAW_MATH) == {"raw": [], "errors": [], "waiting": 0}
    browser.evaluate(CHECKS)
    browser.evaluate(AXE)
    for call in ("pictures()", "statuses()", "statements()"):
        found[call] = complaints_of(browser, call)
    if page not in GENERATED:
        found["sidebar"] = complaints_of(browser, "currentInView()")
    for width in WIDTHS:
        browser.resize(width, 900, phone=width < 700)
        settle(browser)
        found[f"layout at {width}"] = complaints_of(browser, "layout()")
    browser.evaluate("pageChecks.simplifyFormulas()")
    found["axe on a phone"] = complaints_of(browser, f"axeComplaints({{runOnly: {LAYOUT_RULES}}})")
    browser.resize(WIDTHS[0], 900)
    settle(browser)
    found["axe"] = complaints_of(browser, "axeComplaints({})")
    browser.evaluate("pageChecks.setTheme('dark')")
    browser.wait_for("!document.getAnimations().length")  # colours are still changing
    found["dark"] = complaints_of(browser, "darkness()")
    found["axe in the dark"] = complaints_of(
        browser, "axeComplaints({runOnly: ['color-contrast']})"
    )
    assert {key: value for key, value in found.items() if value} == {}


def test_formulas_themselves_are_accessible(browser, address) -> None:
    """One page with every element that MathJax makes."""
    browser.resize(1300, 900)
    browser.prefer_dark(False)
    browser.open(f"{address}/book/softmax.html")
    browser.evaluate(CHECKS)
    browser.evaluate(AXE)
    assert complaints_of(browser, "axeComplaints({})") == []


def test_the_system_decides_between_light_and_dark(browser, address) -> None:
    browser.prefer_dark(True)
    browser.open(f"{address}/book/softmax.html")
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"
    browser.prefer_dark(False)


def test_a_page_opened_from_disk_shows_its_mathematics(browser, site: Path) -> None:
    """Without any server: double-click on the file."""
    events = browser.open((site / "book" / "priors.html").as_uri())
    assert problems(events, "file:") == []
    assert browser.evaluate(RAW_MATH) == {"raw": [], "errors": [], "waiting": 0}


# ---------------------------------------------------------------------------------------------
# Print
# ---------------------------------------------------------------------------------------------

PRINTED = """
(() => {
  const found = [];
  const limit = document.querySelector('article').getBoundingClientRect().right + 2;
  for (const box of document.querySelectorAll('article mjx-math'))
    if (box.getBoundingClientRect().right > limit && !box.closest('.preview'))
      found.push('cut: ' + box.textContent.slice(0, 40));
  for (const box of document.querySelectorAll('article pre')) {
    if (!box.checkVisibility()) continue;
    if (!box.textContent.trim()) found.push('empty box');
    if (getComputedStyle(box).whiteSpace !== 'pre-wrap') found.push('code that does not wrap');
  }
  for (const frame of document.querySelectorAll('article div.cell_input, article div.highlight'))
    if (frame.checkVisibility() && frame.clientHeight > 0 && !frame.textContent.trim())
      found.push('empty frame');
  for (const bar of document.querySelectorAll('.bd-sidebar-primary, .bd-header-article'))
    if (bar.checkVisibility()) found.push('printed: ' + bar.className);
  return found;
})()
"""


@pytest.mark.parametrize(
    "page", ["book/layers", "book/cross_attention", "book/descent", "notebooks/claims"]
)
def test_print(browser, address, page) -> None:
    """At the width of the text on A4: no formula cut, no empty box, no bars."""
    browser.resize(718, 1000)
    browser.prefer_dark(False)
    browser.open(f"{address}/{page}.html")
    browser.emulate_print(True)
    settle(browser)
    found = browser.evaluate(PRINTED)
    printed = browser.pdf()
    browser.emulate_print(False)
    assert found == []
    assert printed.startswith(b"%PDF")
    assert len(printed) > 30_000
