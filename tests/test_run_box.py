"""The box "Run this with your numbers": on which pages, and that it says what the shell accepts."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from browser import Browser, find_chromium

from aimlib import cli
from aimlib.chapters import ChapterError, load_chapters, parse_alternatives

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = load_chapters(ROOT)
PAGES = [f"{folder}/{chapter.name}" for chapter in CHAPTERS for folder in ("book", "notebooks")]
PAGES = [page for page in PAGES if list(ROOT.glob(f"{page}.*"))]  # the ledger is a notebook only


@pytest.fixture(scope="module")
def tab():
    executable = find_chromium()
    if executable is None:
        assert not os.environ.get("CI"), "CI must have Chromium: .ci/run installs it"
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    browser = Browser(executable)
    yield browser
    browser.close()


def open_page(tab: Browser, site: Path, page: str) -> None:
    tab.open((site / f"{page}.html").as_uri())


def enter(tab: Browser, name: str, text: str) -> None:
    """Type a value, or choose it, as a reader does."""
    tab.evaluate(
        f"""(() => {{
          const field = document.getElementById('run-this-{name}');
          field.value = {json.dumps(text)};
          field.dispatchEvent(new Event('input', {{bubbles: true}}));
        }})()"""
    )


def shown_command(tab: Browser) -> str:
    return tab.evaluate("document.querySelector('.run-box-code').textContent")


def note(tab: Browser) -> str:
    return tab.evaluate("document.querySelector('.run-box-note').textContent")


@pytest.mark.parametrize("page", PAGES)
def test_every_page_of_a_chapter_has_one_box_that_names_all(site, page) -> None:
    text = (site / f"{page}.html").read_text(encoding="utf-8")
    assert text.count('class="run-box"') == 1
    chapter = next(c for c in CHAPTERS if c.name == page.partition("/")[2])
    for parameter in chapter.parameters:
        assert f'<label for="run-this-{parameter.name}">' in text
        assert f'id="run-this-{parameter.name}"' in text
    for name in chapter.presets:
        assert f'name="run-this-preset" value="{name}"' in text
    link = f'_sources/notebooks/{chapter.name}.ipynb" download='
    assert link in text
    assert (site / "_sources" / "notebooks" / f"{chapter.name}.ipynb").is_file()


def test_other_pages_have_none(site) -> None:
    for path in (*site.glob("*.html"), *site.glob("book/*.html"), *site.glob("notebooks/*.html")):
        if path.relative_to(site).with_suffix("").as_posix() not in PAGES:
            assert 'class="run-box"' not in path.read_text(encoding="utf-8"), path


TEXTS = [
    *("3", "4", "0", "-1", "+5", "1e1", "1e3", "2.5", "2.0", "007", "0", "00", "0.0", ".5", "5."),
    *("1,2", "[1, 2]", "[1,2", "1,,2", "", " ", ",", "1;2", "[1],[2]", "[[1],[2]]", "[1, 2];3"),
    *("1,1", "0.1,2", "[0.1,2],[3]", "0.1,2;3", "0.1,2;0.1,2", "true", "TRUE", "false,true"),
    *("softmax", "softmax,hardmax", "'softmax'", "Softmax", "gaussian", "nan", "inf", "1e400"),
    *("1_000", "0x10", "1e-6", "--1", "- 1", "1 2", "١", "1e", "e5", "4294967295", "4294967296"),
]


def test_the_page_accepts_what_the_shell_accepts(tab, site) -> None:
    """All parameters of all chapters against the same texts; and the values they become."""
    for chapter in CHAPTERS:
        open_page(tab, site, f"notebooks/{chapter.name}")
        script = f"""(() => {{
          const card = document.querySelector('.run-box').runBox.card;
          const read = (p, t) => runBoxRules.parseAlternatives(p, t) ?? null;
          return card.parameters.map((p) => {json.dumps(TEXTS)}.map((t) => read(p, t)));
        }})()"""
        found = tab.evaluate(script)
        for parameter, row in zip(chapter.parameters, found, strict=True):
            for text, value in zip(TEXTS, row, strict=True):
                try:
                    expected = parse_alternatives(parameter, text)
                except ChapterError:
                    expected = None
                assert value == expected, (chapter.name, parameter.name, text)


@pytest.mark.parametrize("page", ["notebooks/softmax", "book/softmax"])
def test_the_command_follows_the_values(tab, site, page) -> None:
    open_page(tab, site, page)
    assert shown_command(tab) == "aimlib run softmax"
    enter(tab, "tokens", "4")
    enter(tab, "width_ratios", "0.05, 0.5")
    assert shown_command(tab) == "aimlib run softmax -p width_ratios 0.05,0.5 -p tokens 4"
    enter(tab, "tokens", "13")
    assert shown_command(tab) == ""
    error = tab.evaluate("document.getElementById('run-this-tokens-error').textContent")
    assert error == "tokens must be int from 2 to 12"
    assert tab.evaluate("document.getElementById('run-this-tokens').ariaInvalid") == "true"
    assert tab.evaluate("document.querySelector('.run-box-copy').disabled")
    enter(tab, "tokens", "2,3")
    enter(tab, "points", "16,32,64")
    assert note(tab) == "A grid of 6 runs."
    tab.evaluate("document.querySelector('.run-box-reset').click()")
    assert shown_command(tab) == "aimlib run softmax"
    tab.evaluate("document.querySelector('input[value=fine]').click()")
    assert shown_command(tab) == "aimlib run softmax --preset fine"
    assert tab.evaluate("document.getElementById('run-this-points').value") == "400"
    enter(tab, "points", "64")  # the default, which is not that of the preset
    assert shown_command(tab) == "aimlib run softmax --preset fine -p points 64"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)
def test_the_shell_understands_the_command(tab, site, chapter, monkeypatch) -> None:
    """The command for the test values of all parameters gives exactly these values."""
    open_page(tab, site, f"notebooks/{chapter.name}")
    for parameter in chapter.parameters:
        value = parameter.test_value
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        enter(tab, parameter.name, text.lower() if parameter.type == "bool" else text)
    seen = {}

    def noted(chapter, values, **options):
        seen.update(values)
        raise ChapterError("enough")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(cli, "run_chapter", noted)
    program, *words = shlex.split(shown_command(tab))
    assert program == "aimlib"
    assert cli.main(words) == 1
    assert seen == {p.name: p.test_value for p in chapter.parameters}


def test_copying_puts_the_command_on_the_clipboard_or_selects_it(tab, site) -> None:
    open_page(tab, site, "notebooks/priors")
    tab.evaluate(
        "window.copied = null; Object.defineProperty(navigator, 'clipboard', {configurable: true,"
        "value: {writeText: async (text) => { window.copied = text; }}})"
    )
    enter(tab, "noise", "0.5")
    tab.evaluate("document.querySelector('.run-box-copy').click()")
    tab.evaluate("new Promise((done) => setTimeout(done, 50))", wait=True)
    assert tab.evaluate("window.copied") == "aimlib run priors -p noise 0.5"
    assert note(tab) == "Copied."
    tab.evaluate("navigator.clipboard.writeText = async () => { throw new Error('no') }")
    tab.evaluate("document.querySelector('.run-box-copy').click()")
    tab.evaluate("new Promise((done) => setTimeout(done, 50))", wait=True)
    assert tab.evaluate("getSelection().toString()") == "aimlib run priors -p noise 0.5"
    assert "Selected" in note(tab)


def test_it_is_used_by_keyboard_alone(tab, site) -> None:
    """Tab goes from field to field, keys change the value, and the focus is seen."""
    open_page(tab, site, "notebooks/softmax")
    tab.evaluate("document.getElementById('run-this-tokens').select()")
    tab.evaluate("document.getElementById('run-this-tokens').focus()")
    tab.call("Input.insertText", text="5")
    assert shown_command(tab) == "aimlib run softmax -p tokens 5"
    for kind in ("keyDown", "keyUp"):
        tab.call(
            "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
        )
    assert tab.evaluate("document.activeElement.id") == "run-this-inverse_temperature"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 800, 1280, 1440])
def test_it_fits_every_screen(tab, site, width, dark) -> None:
    tab.resize(width, 844, phone=width == 390)
    tab.prefer_dark(dark)
    open_page(tab, site, "notebooks/amp")
    enter(tab, "dimension", "1")  # with an error shown
    wide = tab.evaluate(
        """[...document.querySelectorAll('.run-box, .run-box *')].filter((e) => {
          const box = document.querySelector('.run-box').getBoundingClientRect();
          const own = e.getBoundingClientRect();
          return own.width && (own.right > box.right + 1 || own.left < box.left - 1);
        }).map((e) => e.className || e.tagName)"""
    )
    assert wide == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    small = tab.evaluate(
        """[...document.querySelectorAll('.run-box input[type=text], .run-box select, .run-box '
          + 'button, .run-box-presets label')].filter((e) => e.offsetHeight < 24).length"""
    )
    assert small == 0
    tab.resize(1300, 900)
    tab.prefer_dark(False)


def test_on_paper_it_is_a_table_with_a_command(tab, site) -> None:
    open_page(tab, site, "notebooks/amp")
    tab.call("Emulation.setEmulatedMedia", media="print")
    hidden = "[...document.querySelectorAll('.run-box button')].every((b) => !b.offsetHeight)"
    assert tab.evaluate(hidden)
    assert tab.evaluate("document.querySelector('.run-box-code').offsetHeight") > 0
    tab.call("Emulation.setEmulatedMedia", media="")
