"""The box "Run this with your numbers": on which pages, and that it says what the shell accepts."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from browser import Browser

from aimlib import cli
from aimlib.chapters import ChapterError, load_chapters, parse_alternatives

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = load_chapters(ROOT)
PAGES = [f"{folder}/{chapter.name}" for chapter in CHAPTERS for folder in ("book", "notebooks")]
PAGES = [page for page in PAGES if list(ROOT.glob(f"{page}.*"))]  # the ledger is a notebook only


def open_page(browser: Browser, site: Path, page: str) -> None:
    browser.open((site / f"{page}.html").as_uri())


def enter(browser: Browser, name: str, text: str) -> None:
    """Type a value, or choose it, as a reader does."""
    browser.evaluate(
        f"""(() => {{
          const field = document.getElementById('run-this-{name}');
          field.value = {json.dumps(text)};
          field.dispatchEvent(new Event('input', {{bubbles: true}}));
        }})()"""
    )


def shown_command(browser: Browser) -> str:
    return browser.evaluate("document.querySelector('.run-box-code').textContent")


def note(browser: Browser) -> str:
    return browser.evaluate("document.querySelector('.run-box-note').textContent")


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


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)
def test_page_and_shell_understand_each_other(browser, site, chapter, monkeypatch) -> None:
    """The page accepts what the shell accepts; its command gives exactly the values entered."""
    open_page(browser, site, f"notebooks/{chapter.name}")
    script = f"""(() => {{
      const card = document.querySelector('.run-box').runBox.card;
      const read = (p, t) => runBoxRules.parseAlternatives(p, t) ?? null;
      return card.parameters.map((p) => {json.dumps(TEXTS)}.map((t) => read(p, t)));
    }})()"""
    found = browser.evaluate(script)
    for parameter, row in zip(chapter.parameters, found, strict=True):
        for text, value in zip(TEXTS, row, strict=True):
            try:
                expected = parse_alternatives(parameter, text)
            except ChapterError:
                expected = None
            assert value == expected, (parameter.name, text)

    for parameter in chapter.parameters:
        value = parameter.test_value
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        enter(browser, parameter.name, text.lower() if parameter.type == "bool" else text)
    seen = {}

    def noted(chapter, values, **options):
        seen.update(values)
        raise ChapterError("enough")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(cli, "run_chapter", noted)
    program, *words = shlex.split(shown_command(browser))
    assert program == "aimlib"
    assert cli.main(words) == 1
    assert seen == {p.name: p.test_value for p in chapter.parameters}


@pytest.mark.parametrize("page", ["notebooks/softmax", "book/softmax"])
def test_the_command_follows_the_values(browser, site, page) -> None:
    open_page(browser, site, page)
    assert shown_command(browser) == "aimlib run softmax"
    enter(browser, "tokens", "4")
    enter(browser, "width_ratios", "0.05, 0.5")
    assert shown_command(browser) == "aimlib run softmax -p width_ratios 0.05,0.5 -p tokens 4"
    enter(browser, "tokens", "13")
    assert shown_command(browser) == ""
    error = browser.evaluate("document.getElementById('run-this-tokens-error').textContent")
    assert error == "tokens must be int from 2 to 12"
    assert browser.evaluate("document.getElementById('run-this-tokens').ariaInvalid") == "true"
    assert browser.evaluate("document.querySelector('.run-box-copy').disabled")
    enter(browser, "tokens", "2,3")
    enter(browser, "points", "16,32,64")
    assert note(browser) == "A grid of 6 runs."
    browser.evaluate("document.querySelector('.run-box-reset').click()")
    assert shown_command(browser) == "aimlib run softmax"
    browser.evaluate("document.querySelector('input[value=fine]').click()")
    assert shown_command(browser) == "aimlib run softmax --preset fine"
    assert browser.evaluate("document.getElementById('run-this-points').value") == "400"
    enter(browser, "points", "64")  # the default, which is not that of the preset
    assert shown_command(browser) == "aimlib run softmax --preset fine -p points 64"


def test_copying_puts_the_command_on_the_clipboard_or_selects_it(browser, site) -> None:
    open_page(browser, site, "notebooks/priors")
    browser.evaluate(
        "window.copied = null; Object.defineProperty(navigator, 'clipboard', {configurable: true,"
        "value: {writeText: async (text) => { window.copied = text; }}})"
    )
    enter(browser, "noise", "0.5")
    browser.evaluate("document.querySelector('.run-box-copy').click()")
    browser.evaluate("new Promise((done) => setTimeout(done, 50))", wait=True)
    assert browser.evaluate("window.copied") == "aimlib run priors -p noise 0.5"
    assert note(browser) == "Copied."
    browser.evaluate("navigator.clipboard.writeText = async () => { throw new Error('no') }")
    browser.evaluate("document.querySelector('.run-box-copy').click()")
    browser.evaluate("new Promise((done) => setTimeout(done, 50))", wait=True)
    assert browser.evaluate("getSelection().toString()") == "aimlib run priors -p noise 0.5"
    assert "Selected" in note(browser)


def test_it_is_used_by_keyboard_alone(browser, site) -> None:
    """Tab goes from field to field, keys change the value, and the focus is seen."""
    open_page(browser, site, "notebooks/softmax")
    browser.evaluate("document.getElementById('run-this-tokens').select()")
    browser.evaluate("document.getElementById('run-this-tokens').focus()")
    browser.call("Input.insertText", text="5")
    assert shown_command(browser) == "aimlib run softmax -p tokens 5"
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
        )
    assert browser.evaluate("document.activeElement.id") == "run-this-inverse_temperature"
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_it_fits_every_screen(browser, site) -> None:
    browser.resize(1440, 844)
    open_page(browser, site, "notebooks/amp")
    enter(browser, "dimension", "1")  # with an error shown
    outside = """[...document.querySelectorAll('.run-box, .run-box *')].filter((e) => {
      const box = document.querySelector('.run-box').getBoundingClientRect();
      const own = e.getBoundingClientRect();
      return own.width && (own.right > box.right + 1 || own.left < box.left - 1);
    }).map((e) => e.className || e.tagName)"""
    small = """[...document.querySelectorAll('.run-box input[type=text], .run-box select, .run-box '
      + 'button, .run-box-presets label')].filter((e) => e.offsetHeight < 24).length"""
    for width in (1440, 1280, 800, 390):
        browser.resize(width, 844, phone=width == 390)
        for theme in ("light", "dark"):
            browser.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
            browser.evaluate("new Promise(done => setTimeout(done, 300))", wait=True)
            assert browser.evaluate(outside) == [], (width, theme)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate(small) == 0, (width, theme)
    browser.resize(1300, 900)


def test_on_paper_it_is_a_table_with_a_command(browser, site) -> None:
    open_page(browser, site, "notebooks/amp")
    browser.call("Emulation.setEmulatedMedia", media="print")
    hidden = "[...document.querySelectorAll('.run-box button')].every((b) => !b.offsetHeight)"
    assert browser.evaluate(hidden)
    assert browser.evaluate("document.querySelector('.run-box-code').offsetHeight") > 0
    browser.call("Emulation.setEmulatedMedia", media="")
