"""What pages do when they are used: menus, links, previews, search, by finger and by key."""

from __future__ import annotations

import pytest
from test_book import contents
from test_browser import problems

HERE = "location.pathname"


def at(browser, page: str) -> str:
    return f"{HERE}.endsWith('/{page}.html')"


@pytest.mark.parametrize("width", [390, 800])
def test_a_finger_opens_the_menu_and_follows_a_chapter(browser, address, width) -> None:
    browser.resize(width, 844, phone=True)
    browser.prefer_dark(False)
    browser.open(f"{address}/book/softmax.html")
    link = "dialog[open] a[href$='priors.html']"
    assert browser.evaluate(f"document.querySelector({link!r})") is None
    browser.tap(".primary-toggle")
    browser.wait_for(f"!!document.querySelector({link!r})")
    browser.tap(link)
    browser.wait_for(at(browser, "book/priors"))


@pytest.mark.parametrize("width", [390, 800])
def test_a_finger_opens_the_contents_and_goes_to_a_section(browser, address, width) -> None:
    browser.resize(width, 844, phone=True)
    browser.open(f"{address}/book/softmax.html")
    browser.tap(".secondary-toggle")
    link = "dialog[open] a[href='#check-yourself']"
    browser.wait_for(f"!!document.querySelector({link!r})")
    browser.tap(link)
    browser.wait_for("location.hash === '#check-yourself'")
    browser.wait_for("!document.querySelector('dialog[open]')")
    browser.wait_for(
        "Math.abs(document.getElementById('check-yourself').getBoundingClientRect().top) < 200"
    )


@pytest.mark.parametrize("width", [1100, 1440])
def test_the_menu_button_hides_and_shows_the_sidebar(browser, address, width) -> None:
    browser.resize(width, 900)
    browser.open(f"{address}/book/softmax.html")
    seen = "document.querySelector('.bd-sidebar-primary a.current')?.checkVisibility() && "
    seen += "document.querySelector('.bd-sidebar-primary').getBoundingClientRect().right > 50"
    assert browser.evaluate(seen)
    browser.click(".primary-toggle")
    browser.wait_for(f"!({seen}) && !document.getAnimations().length")  # it has come to rest
    browser.click(".primary-toggle")
    browser.wait_for(seen)


def test_the_sidebar_numbers_chapters_and_nests_notebooks(browser, address) -> None:
    browser.resize(1440, 900)
    browser.open(f"{address}/notebooks/amp.html")
    entries = browser.evaluate(
        "[...document.querySelectorAll('.bd-sidebar-primary li.toctree-l1')].map(e => ["
        "e.querySelector(':scope > a, :scope > details > a, :scope > a')?.textContent,"
        "[...e.querySelectorAll('li.toctree-l2 > a')].map(a => a.getAttribute('href'))])"
    )
    chapters = [page for page in contents() if page.startswith("book/")]
    numbered = [title for title, _ in entries if title and title.split(".")[0].isdigit()]
    assert [int(title.split(".")[0]) for title in numbered] == list(range(1, len(numbered) + 1))
    assert len(numbered) >= 12
    assert len(entries) <= len(chapters) + 2
    nested = [link for _, links in entries for link in links]
    notebooks = [page for page in contents() if page.startswith("notebooks/")]
    assert len(nested) == len(notebooks) - 1  # the ledger has no chapter


@pytest.mark.parametrize("page", [p for p in contents() if p.startswith("notebooks/")])
def test_a_notebook_leads_back_to_its_chapter(site, page) -> None:
    text = (site / f"{page}.html").read_text(encoding="utf-8")
    article = text[text.index("<article") : text.index("</article>")]
    target = "../book/" if page == "notebooks/claims" else f"../{page.replace('notebooks', 'book')}"
    assert article.count(f'href="{target}') >= (5 if page == "notebooks/claims" else 2)


def test_every_box_of_the_map_is_a_link(browser, address) -> None:
    browser.resize(1300, 900)
    browser.open(f"{address}/index.html")
    browser.open(f"{address}/book/preface.html")
    targets = browser.evaluate(
        "[...document.querySelectorAll('.drawing a')].map(a => a.getAttribute('href'))"
    )
    assert len(targets) >= 11
    browser.click(".drawing a[href$='replica.html'] text")
    browser.wait_for(at(browser, "book/replica"))


# ---------------------------------------------------------------------------------------------
# Previews
# ---------------------------------------------------------------------------------------------

PREVIEW = "document.querySelector('#preview:not([hidden])')"


@pytest.mark.parametrize("place", ["server", "disk"])
def test_hovering_a_link_previews_its_equation(browser, address, site, place) -> None:
    root = address if place == "server" else site.as_uri()
    browser.resize(1300, 900)
    browser.open(f"{root}/book/softmax.html")
    link = "article a.reference.internal[href*='replica.html#equation-']"
    browser.hover(link)
    browser.wait_for(f"!!{PREVIEW}?.querySelector('mjx-container')")
    browser.press("Escape")
    browser.wait_for(f"!{PREVIEW}")


@pytest.mark.parametrize(
    ("page", "link", "shows"),
    [
        ("book/softmax", "a.reference.internal[href*='#equation-softmax-']", "mjx-container"),
        ("book/other_priors", "a[href='#other-priors-projection']", ".proof mjx-container"),
        ("book/replica", "a.reference.internal[href*='#fig-']", "img"),
    ],
)
def test_focus_previews_equations_boxes_and_figures(browser, address, page, link, shows) -> None:
    browser.resize(1300, 900)
    browser.open(f"{address}/{page}.html")
    target = f"article p {link}"
    browser.evaluate(f"document.querySelector({target!r}).focus({{focusVisible: true}})")
    browser.wait_for(f"!!{PREVIEW}?.querySelector({shows!r})")
    assert browser.evaluate("document.activeElement.getAttribute('aria-describedby')") == "preview"
    inside = f"(() => {{ const b = {PREVIEW}.getBoundingClientRect(); "
    inside += "return b.left >= 0 && b.right <= innerWidth && b.top >= 0; })()"
    browser.wait_for(inside)
    browser.press("Escape")
    browser.wait_for(f"!{PREVIEW}")


def test_every_equation_box_and_figure_has_a_preview(site) -> None:
    text = (site / "_static" / "previews.js").read_text(encoding="utf-8")
    for page in contents():
        html = (site / f"{page}.html").read_text(encoding="utf-8")
        for part in html.split('<div class="math notranslate nohighlight" id="')[1:]:
            assert f'"{page}.html#{part.split(chr(34))[0]}"' in text


# ---------------------------------------------------------------------------------------------
# Search and indices
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["server", "disk"])
def test_search_shows_excerpts_without_raw_tex(browser, address, site, place) -> None:
    root = address if place == "server" else site.as_uri()
    browser.resize(1300, 900)
    events = browser.open(f"{root}/search.html?q=resolvent")
    browser.wait_for("document.querySelectorAll('#search-results li p.context').length >= 3")
    assert problems(events, root) == []
    results = browser.evaluate("document.querySelector('#search-results').innerText")
    assert "resolvent" in results.lower()
    assert "\\" not in results
    assert "$" not in results


def test_titles_with_formulas_are_readable_in_search(browser, address) -> None:
    browser.open(f"{address}/search.html?q=sim")
    browser.wait_for("document.querySelectorAll('#search-results li').length >= 1")
    browser.wait_for("/finished/.test(document.querySelector('.search-summary').innerText)")
    assert "\\" not in browser.evaluate("document.querySelector('#search-results').innerText")


def test_the_index_lists_terms_and_the_boxes_by_name(site) -> None:
    index = (site / "genindex.html").read_text(encoding="utf-8")
    for term in ("width ratio", "sample complexity", "resolvent"):
        assert term in index
    boxes = (site / "prf-prf.html").read_text(encoding="utf-8")
    assert "Definition 1.1" in boxes
    assert "model-indices</" not in boxes
