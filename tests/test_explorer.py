"""The explorer: what a reader sees after moving a slider is what aimlib computes."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from browser import Browser
from numpy.polynomial import chebyshev
from test_browser import problems

from aimlib import (
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    WishartPrior,
    bayes_optimal,
    hardmax_asymptotic_error,
    small_width_overlap,
    state_evolution,
    strong_recovery_threshold,
    weak_recovery_threshold,
)

ROOT = Path(__file__).resolve().parent.parent
VIEWS = ("softmax", "hardmax", "priors", "small_width", "amp")
RANDOM = np.random.SeedSequence(12).spawn(3)


# ---------------------------------------------------------------------------------------------
# Fixtures
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def page(browser, address):
    """The explorer page, desktop-sized, light."""
    browser.resize(1300, 900)
    browser.prefer_dark(False)
    assert problems(browser.open(f"{address}/book/explorer.html"), address) == []
    return browser


def settle(browser: Browser) -> None:
    """Wait until the screen, its words and its Python have followed the last change."""
    ready = "document.querySelector('.aim-explorer').dataset.ready"
    for _ in range(600):
        if browser.evaluate(ready) == "true":
            return
        time.sleep(0.02)
    pytest.fail("the explorer did not settle")


def go(browser: Browser, **state: Any) -> None:
    browser.evaluate(f"aim.explorers[0].set({json.dumps(state)})")
    settle(browser)


def read(browser: Browser, script: str) -> Any:
    """Evaluate with e, the explorer of the page; infinities come back as floats."""
    infinite = "(_, value) => value === Infinity ? 'inf' : value"
    return json.loads(
        browser.evaluate(f"(e => JSON.stringify({script}, {infinite}))(aim.explorers[0])"),
        object_hook=lambda pairs: {k: math.inf if v == "inf" else v for k, v in pairs.items()},
    )


def panels(browser: Browser) -> dict[str, Any]:
    return {entry["name"]: entry["panel"] for entry in read(browser, "e.panels")}


def line(panel: dict[str, Any], role: str = "now", rank: int = 0) -> tuple[Any, Any]:
    """Abscissa and ordinate of a curve; gaps are NaN."""
    series = [s for s in panel["series"] if s["role"] == role][rank]
    return np.array(series["x"], dtype=float), np.array(series["y"], dtype=float)


def numbers(browser: Browser) -> dict[str, float]:
    rows = "[...e.table.querySelectorAll('td')].map(c => [c.dataset.name, c.dataset.value])"
    return {
        name: math.inf if value == "Infinity" else float(value)
        for name, value in read(browser, rows)
    }


def make_channel(state: dict[str, Any]) -> Any:
    if state["channel"] == "softmax":
        return SoftmaxChannel(state["tokens"], state["beta"])
    if state["channel"] == "hardmax":
        return HardmaxChannel(state["tokens"])
    return LinearChannel(state["tokens"], state["tau"])


def random_state(rng: np.random.Generator, index: int) -> dict[str, Any]:
    """Any setting that the controls allow, alpha on both sides of the threshold."""
    channel = ("softmax", "hardmax", "linear")[index % 3]
    state = {
        "channel": channel,
        "rho": float(f"{10 ** rng.uniform(-3, 1):.4g}"),
        "tokens": int(rng.integers(1 if channel == "linear" else 2, 7)),
        "beta": float(f"{10 ** rng.uniform(-1, 1):.4g}"),
        "tau": float(rng.choice([0.0, 0.05, 0.25, 3.0])),
        "log": bool(index % 5 == 4),
    }
    t = state["tokens"]
    unit = WishartPrior(state["rho"]).degrees_of_freedom / (t * (t + 1) - 2 * (t > 1))
    return state | {"alpha": float(f"{unit * rng.uniform(0.02, 1.5):.4g}")}


# ---------------------------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------------------------


def close(found: Any, expected: Any, share: float) -> None:
    """Agreement to a share of the range of what is plotted."""
    found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
    span = np.nanmax(np.abs(expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=share * span + 1e-12)


@pytest.mark.parametrize("index", range(9))
def test_every_panel_agrees_with_aimlib_at_random_settings(page, index) -> None:
    state = random_state(np.random.default_rng(RANDOM[0].spawn(9)[index]), index)
    go(page, **state)
    shown, table = panels(page), numbers(page)
    prior, channel = WishartPrior(state["rho"]), make_channel(state)
    here = bayes_optimal(state["alpha"], prior, channel)

    x, y = line(shown["error"])
    some = np.unique(np.r_[0:201:10, 199, 200])
    curve = bayes_optimal(x[some], prior, channel)
    close(y[some], curve.estimation_error, 1e-6)
    x, y = line(shown["generalization"])
    # the tables of softmax with three tokens or more smooth a sampled integral
    close(y[some], curve.generalization_error, 1e-3)

    close(table["error"], here.estimation_error, 1e-6)
    close(table["overlap"], here.overlap, 1e-6)
    if here.estimation_error > 0:
        assert table["conjugate"] == pytest.approx(here.conjugate, rel=1e-6)
    assert table["strong"] == pytest.approx(strong_recovery_threshold(prior, channel))
    assert table["weak"] == pytest.approx(weak_recovery_threshold(channel), rel=1e-6)
    assert table["kappa"] == pytest.approx(prior.degrees_of_freedom)

    noise = max(1.0 / here.conjugate, 1e-12)
    edges = np.array([table[f"edge{k}"] for k in range(2 * len(prior.support(noise)))])
    close(edges, prior.support(noise).ravel(), 1e-6)
    x, density = line(shown["spectrum"])
    inside = np.isfinite(density)
    limit = prior.density(x[inside], noise)
    close(density[inside], limit, 1e-4)
    x, denoised = line(shown["denoiser"])
    inside = np.isfinite(denoised)
    difference = denoised[inside] - np.diag(prior.denoise(np.diag(x[inside]), noise))
    span = np.abs(denoised[inside]).max()
    assert np.abs(difference).max() < 1e-3 * span
    # at an edge D grows like a square root: a rounding of lambda shows with half its digits
    assert np.abs(difference[~np.isin(x[inside], edges)]).max() < 1e-6 * span

    _, path = line(shown["iterations"])
    close(path, state_evolution(state["alpha"], prior, channel, iterations=20), 1e-6)
    x, limit = line(shown["rescaled"], "limit")
    close(limit, 1.0 - small_width_overlap(x, channel), 1e-6)
    if state["log"] and state["channel"] == "hardmax":
        x, law = line(shown["error"], "limit")
        np.testing.assert_allclose(law, hardmax_asymptotic_error(x, prior, channel), rtol=1e-6)


@pytest.mark.parametrize("noise", [1e-3, 0.05, 0.3534, 1.0, 37.0])
def test_noise_chosen_by_hand(browser, address, noise) -> None:
    """The view of the chapter on priors; 0.3534 is where two bulks at rho = 0.2 almost touch."""
    browser.open(f"{address}/book/priors.html?rho=0.2&delta={noise}")
    prior = WishartPrior(0.2)
    table, shown = numbers(browser), panels(browser)
    assert table["mmse"] == pytest.approx(prior.mmse(noise), rel=1e-6)
    edges = [table[f"edge{k}"] for k in range(2 * len(prior.support(noise)))]
    close(edges, prior.support(noise).ravel(), 1e-6)
    x, y = line(shown["mmse"])
    np.testing.assert_allclose(y, prior.mmse(x), rtol=1e-6)


def test_tables_are_those_of_aimlib() -> None:
    """hardmax:information, hardmax:misclassification, softmax:generalization from the series.

    If this fails, aimlib has changed: python book/_ext/explorer_tables.py writes them anew.
    """
    text = (ROOT / "book" / "_static" / "explorer" / "tables.js").read_text()
    tables = json.loads(text[text.index("aim.tables = ") + len("aim.tables = ") : text.rindex(";")])
    rng = np.random.default_rng(RANDOM[1])
    for tokens in tables["tokens"]:
        series = tables["hardmax"][str(tokens)]
        channel = HardmaxChannel(tokens)
        x = rng.uniform(0.001, 1.0, 5)
        found = x * chebyshev.chebval(2 * x - 1, series["information"])
        np.testing.assert_allclose(found, channel.information_at(x * x, 1.0), rtol=1e-6)
        theta = np.arcsin(x)
        found = theta * chebyshev.chebval(4 * theta / np.pi - 1, series["misclassified"])
        np.testing.assert_allclose(found, channel.generalization_error(x * x, 1.0), rtol=1e-6)
        low, high = math.log(tables["lowest"]), math.log(tables["highest"])
        for log_b in rng.uniform(low, high, 3):
            b, s = math.exp(log_b), 2 * (log_b - low) / (high - low) - 1
            rows = chebyshev.chebval(
                4 * theta / np.pi - 1, np.array(tables["softmax"][str(tokens)]).T
            )
            found = chebyshev.chebval(s, rows) * (b * x) ** 2 / ((1 + b * x) * (1 + b))
            expected = SoftmaxChannel(tokens, b).generalization_error(x * x, 1.0)
            most = SoftmaxChannel(tokens, b).generalization_error(1.0, 1.0)
            # what the sampled integral of aimlib is good to, and what the page promises
            assert np.abs(found - expected).max() < 1e-3 * most


def test_recorded_points_are_the_means_of_the_tables(page) -> None:
    go(page, channel="softmax", rho=0.5, tokens=2, alpha=0.1)
    runs = {s["label"]: s for s in panels(page)["error"]["series"] if s["role"] == "runs"}
    sources = {
        "message passing, d = 100": ("amp/figure", "estimation_error"),
        "gradient descent, d = 100": ("descent/figure-100", "single"),
        "average of 32 descents, d = 100": ("descent/figure-100", "average"),
    }
    assert set(runs) == set(sources)
    for label, (table, column) in sources.items():
        rows = list(csv.DictReader((ROOT / "notebooks" / "data" / f"{table}.csv").open()))
        if table.startswith("amp"):
            wanted = {"channel": "softmax", "tokens": "2", "width_ratio": "0.5"}
            rows = [r for r in rows if all(r[k] == v for k, v in wanted.items())]
        assert runs[label]["x"]
        for x, y, error in zip(
            runs[label]["x"], runs[label]["y"], runs[label]["error"], strict=True
        ):
            values = [float(r[column]) for r in rows if float(r["sample_complexity"]) == x]
            assert y == pytest.approx(np.mean(values), abs=1e-6)
            assert error == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5, abs=1e-6)


def test_runs_are_shown_only_at_their_own_parameters(page) -> None:
    def measures() -> set[str]:
        series = panels(page)["error"]["series"]
        return {s["label"].split(",")[0] for s in series if s["role"] == "runs"}

    go(page, channel="softmax", rho=0.5, tokens=2, beta=1)
    assert measures() == {"message passing", "gradient descent", "average of 32 descents"}
    go(page, channel="softmax", rho=0.5, tokens=2, beta=2)  # training depends on beta
    assert measures() == {"message passing"}
    go(page, channel="softmax", rho=0.51, tokens=2)
    assert measures() == set()


# ---------------------------------------------------------------------------------------------
# The Python of a screen
# ---------------------------------------------------------------------------------------------

KEPT = [
    {"channel": "softmax", "rho": 0.1, "tokens": 3, "beta": 2, "tau": 0.25},
    {"channel": "hardmax", "rho": 1, "tokens": 2, "beta": 1, "tau": 0.25},
]
SCREENS = [
    ("explorer", {}),
    ("explorer", {"alpha": 0}),
    ("explorer", {"alpha": 0.25, "keep": KEPT}),  # exact recovery
    ("explorer", {"channel": "hardmax", "alpha": 6.4, "log": True, "keep": KEPT[1:]}),
    ("explorer", {"channel": "linear", "tokens": 1, "tau": 0.25, "alpha": 0.2}),
    ("explorer", {"channel": "softmax", "tokens": 4, "rho": 0.0123, "alpha": 0.001, "beta": 7}),
    ("softmax", {"tokens": 3, "alpha": 0.04}),
    ("hardmax", {"rho": 2, "log": True}),
    ("priors", {"rho": 0.1, "delta": 0.05}),
    ("small_width", {"keep": KEPT}),
    ("amp", {"channel": "hardmax", "alpha": 0.4}),
]


@pytest.mark.parametrize(("name", "state"), SCREENS)
def test_the_python_of_a_screen_draws_the_same_screen(
    browser, address, monkeypatch, name, state
) -> None:
    browser.open(f"{address}/book/{name}.html")
    go(browser, **state)
    monkeypatch.setattr(matplotlib, "use", lambda *args, **kwargs: None)
    plt.switch_backend("agg")
    plt.close("all")
    exec(compile(read(browser, "e.code.textContent"), name, "exec"), {})
    axes = {ax.get_title(): ax for ax in plt.gcf().axes}
    shown = [panel for panel in panels(browser).values() if "empty" not in panel]
    assert len([ax for ax in axes if ax]) == len(shown)
    for panel in shown:
        ax = axes[panel["title"]]
        for coordinate, limits in (("x", ax.get_xlim()), ("y", ax.get_ylim())):
            np.testing.assert_allclose(limits, panel[coordinate]["range"], rtol=1e-5)
        blue = [drawn.get_xydata() for drawn in ax.lines if drawn.get_color() == "C0"]
        compare(panel, "now", np.concatenate(blue))
        others = [drawn.get_xydata() for drawn in ax.lines if drawn.get_linestyle() == "--"]
        for rank in range(sum(s["role"] == "kept" for s in panel["series"])):
            compare(panel, "kept", others[rank], rank)
        bars = [bar.lines[0].get_xydata() for bar in ax.containers]
        runs = [s for s in panel["series"] if s["role"] == "runs"]
        assert len(bars) == len(runs)
        for drawn, series in zip(bars, runs, strict=True):
            np.testing.assert_allclose(drawn[:, 0], series["x"], rtol=1e-5)
            np.testing.assert_allclose(drawn[:, 1], series["y"], rtol=1e-5)
    plt.close("all")


def compare(panel: dict[str, Any], role: str, drawn: Any, rank: int = 0) -> None:
    """Every drawn point is on the curve of the screen, and the ends are the same."""
    x, y = line(panel, role, rank)
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    at = np.abs(drawn[:, :1] - x).argmin(axis=1)
    assert (at[0], at[-1], len(at)) in (
        (0, x.size - 1, x.size),
        (0, x.size - 1, (x.size + 9) // 10),
    )
    np.testing.assert_allclose(drawn[:, 0], x[at], rtol=1e-5, atol=1e-5)
    close(y[at], drawn[:, 1], 1e-3)


# ---------------------------------------------------------------------------------------------
# Use
# ---------------------------------------------------------------------------------------------


def press(browser: Browser, key: str, code: int, **options: Any) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key=key,
            code=key,
            windowsVirtualKeyCode=code,
            **options,
        )


def test_by_keyboard_alone(page) -> None:
    """Tab reaches every control with a visible focus; arrows move a slider; a number is typed."""
    page.evaluate("document.querySelector('.aim-buttons button').focus()")
    seen = []
    for _ in range(40):
        press(page, "Tab", 9)
        focused = page.evaluate(
            "(() => { const f = document.activeElement, s = getComputedStyle(f);"
            " return [f.closest('.aim-explorer') !== null, f.id || f.ariaLabel || f.textContent,"
            " s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]; })()"
        )
        if not focused[0]:
            break
        seen.append(focused[1])
        assert focused[2], f"no visible focus on {focused[1]}"
    controls = ("aim-channel", "aim-rho", "aim-tokens", "aim-alpha", "aim-beta", "aim-log")
    for name in controls:
        assert any(text.startswith(name) for text in seen), name
    assert "Copy link to this screen" in seen

    page.evaluate("document.querySelector('input[id^=aim-rho]').focus()")
    before = read(page, "[e.state.rho, e.status.textContent]")
    press(page, "ArrowRight", 39)
    settle(page)
    rho, words = read(page, "[e.state.rho, e.status.textContent]")
    assert rho > before[0]
    assert words != before[1]
    assert f"ρ = {rho}" in words

    page.evaluate("document.querySelector('input[aria-label^=\"Sample complexity\"]').select()")
    page.evaluate("document.querySelector('input[aria-label^=\"Sample complexity\"]').focus()")
    page.call("Input.insertText", text="0.077")
    press(page, "Enter", 13, text="\r")
    settle(page)
    assert read(page, "e.state.alpha") == 0.077


def test_a_value_out_of_range_is_explained(page) -> None:
    field = "document.querySelector('input[aria-label^=\"Width ratio\"]')"
    page.evaluate(f"{field}.value = '-3'; {field}.dispatchEvent(new Event('change'))")
    settle(page)
    state, words = read(page, "[e.state.rho, e.status.textContent]")
    assert state == 0.001
    assert "Width ratio ρ must be a number from 0.001 to 10" in words


def test_the_address_brings_the_screen_back(page, address) -> None:
    state = {"channel": "hardmax", "rho": 0.3, "tokens": 3, "alpha": 0.7, "log": True}
    go(page, **state, keep=KEPT)
    shared = page.evaluate("location.href")
    wanted = read(page, "[e.state, e.panels]")
    page.open("about:blank#")
    page.open(shared)
    assert read(page, "[e.state, e.panels]") == wanted
    assert read(page, "e.state")["keep"] == KEPT


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("rho=abc&alpha=&tokens=x", {"rho": 0.5, "alpha": 0.1, "tokens": 2}),
        ("rho=-1&tokens=99&beta=1e9", {"rho": 0.001, "tokens": 6, "beta": 10}),
        ("tokens=2.4&alpha=Infinity", {"tokens": 2, "alpha": 0.1}),
        ("channel=nonsense", {"channel": "softmax"}),
        ("channel=linear&tokens=1", {"channel": "linear", "tokens": 1}),
        ("channel=softmax&tokens=1", {"tokens": 2}),
        ("keep=a~b_c~hardmax_1_2_1_0.25", {"keep": [KEPT[1]]}),
    ],
)
def test_a_wrong_address_is_read_as_far_as_it_makes_sense(
    browser, address, query, expected
) -> None:
    assert problems(browser.open(f"{address}/book/explorer.html?{query}"), address) == []
    state = read(browser, "e.state")
    assert {name: state[name] for name in expected} == expected


def test_dragging_in_the_figure_moves_alpha(page) -> None:
    page.evaluate("document.querySelector('[data-panel=error]').scrollIntoView({block: 'center'})")
    box = page.evaluate(
        "(() => { const r = document.querySelector('[data-panel=error] .u-over')"
        ".getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()"
    )
    high = read(page, "e.range.high")
    middle = box[1] + box[3] / 2
    events = [("mousePressed", 0.2), ("mouseMoved", 0.5), ("mouseReleased", 0.5)]
    for kind, share in events:
        page.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=box[0] + share * box[2],
            y=middle,
            button="left",
            buttons=int(kind != "mouseReleased"),
            clickCount=1,
        )
    settle(page)
    assert read(page, "e.state.alpha") == pytest.approx(0.5 * high, abs=0.02 * high)


@pytest.mark.parametrize("name", ["explorer", *VIEWS])
def test_fits_any_screen(browser, address, name) -> None:
    """No sideways scrolling with everything unfolded; targets large enough for a finger."""
    browser.resize(1440, 844)
    assert problems(browser.open(f"{address}/book/{name}.html"), address) == []
    browser.evaluate(
        "document.querySelectorAll('.aim-explorer details').forEach(d => d.open = true)"
    )
    wide = (
        "[...document.querySelectorAll('.aim-explorer *')].filter(x =>"
        " !x.closest('pre, .u-wrap') && x.getBoundingClientRect().right >"
        " x.closest('.aim-explorer').getBoundingClientRect().right + 1)"
        ".map(x => x.className || x.tagName)"
    )
    small = (
        "[...document.querySelectorAll('.aim-explorer :is(button, input, select, summary)')]"
        ".filter(x => x.offsetParent && x.getBoundingClientRect().height < 20)"
        ".map(x => x.outerHTML)"
    )
    for width in (1440, 800, 390):
        browser.resize(width, 844, phone=width == 390)
        browser.evaluate("new Promise(done => setTimeout(done, 300))", wait=True)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(wide) == [], width
        assert browser.evaluate(small) == [], width
    browser.resize(1300, 900)


def test_figures_follow_the_theme(page) -> None:
    """The curve is drawn in the colour of the theme, and nothing of the other colour is left."""
    count = (
        "(colour => { const c = document.querySelector('[data-panel=spectrum] canvas');"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " const [r, g, b] = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));"
        " let n = 0; for (let i = 0; i < d.length; i += 4)"
        " n += d[i] === r && d[i + 1] === g && d[i + 2] === b && d[i + 3] === 255;"
        " return n; })"
    )
    colour = (
        "getComputedStyle(document.querySelector('.aim-explorer')).getPropertyValue('--aim-now')"
        ".trim()"
    )
    colours = []
    for theme in ("light", "dark"):
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        page.evaluate("new Promise(done => setTimeout(done, 300))", wait=True)
        colours.append(page.evaluate(colour))
        assert page.evaluate(f"{count}('{colours[-1]}')") > 20
        key = "getComputedStyle(document.querySelector('.aim-key.aim-now')).color"
        red = int(colours[-1][1:3], 16)
        assert page.evaluate(key).startswith(f"rgb({red},")
    assert colours[0] != colours[1]
    assert page.evaluate(f"{count}('{colours[0]}')") == 0


def test_every_input_and_figure_has_a_name(page) -> None:
    nameless = (
        "[...document.querySelectorAll('.aim-explorer :is(input, select)')]"
        ".filter(x => !x.labels.length && !x.ariaLabel).map(x => x.outerHTML)"
    )
    assert page.evaluate(nameless) == []
    labels = page.evaluate(
        "[...document.querySelectorAll('.aim-plot')]"
        ".map(x => [x.getAttribute('role'), x.ariaLabel])"
    )
    assert len(labels) == 6
    assert all(role == "img" and len(words) > 30 for role, words in labels)
    assert "0.3922" in labels[0][1]


def test_a_screen_is_instant(page) -> None:
    """A screen takes less than a tenth of a second even on a slow phone: here, a few milliseconds.

    Counted in evaluations of the integrand, not in time.
    """
    calls = page.evaluate(
        "(() => { let n = 0; const sqrt = Math.sqrt; Math.sqrt = x => { n++; return sqrt(x); };"
        " aim.explorers[0].render(); Math.sqrt = sqrt; return n; })()"
    )
    assert 1000 < calls < 3_000_000


# ---------------------------------------------------------------------------------------------
# The page and the directive
# ---------------------------------------------------------------------------------------------


def test_works_from_disk(browser, site: Path) -> None:
    events = browser.open((site / "book" / "explorer.html").as_uri() + "?rho=0.1&alpha=0.02")
    assert problems(events, "file:") == []
    assert read(browser, "e.state.rho") == 0.1
    assert browser.evaluate("document.querySelectorAll('.aim-plot canvas').length") == 6
    go(browser, rho=0.2)
    assert "rho=0.2" in browser.evaluate("location.href")


def test_a_chapter_leads_to_the_same_screen_in_the_explorer(browser, address) -> None:
    browser.open(f"{address}/book/hardmax.html?rho=0.3&tokens=3&alpha=0.7")
    wanted = panels(browser)["error"]["series"]
    link = browser.evaluate("document.querySelector('.aim-explorer a').href")
    browser.open(link)
    assert panels(browser)["error"]["series"] == wanted


def test_scripts_are_loaded_only_where_they_are_used(site: Path) -> None:
    with_explorer = {
        page.stem
        for page in (site / "book").glob("*.html")
        if "explorer/explorer.js" in page.read_text(encoding="utf-8")
    }
    assert with_explorer == {"explorer", *VIEWS}
    assets = [p for p in (site / "_static" / "explorer").rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in assets) < 200_000
    assert (site / "_static" / "explorer" / "vendor" / "uPlot-LICENSE").exists()


def test_an_unknown_view_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'book' / '_ext')!r})\n"
        "extensions = ['explorer']\n"
    )
    (tmp_path / "index.rst").write_text("Title\n=====\n\n.. explorer:: nonsense\n")
    result = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", str(tmp_path), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode != 0
    assert "explorer must be one of all, softmax" in result.stderr
    assert "'nonsense'" in result.stderr
