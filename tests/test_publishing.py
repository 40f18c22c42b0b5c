"""What the book says of itself to search engines, citation managers and links that are shared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup
from sphinx.config import Config
from sphinx.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/Some-Owner/a-book"
BASE = "https://some-owner.github.io/a-book/"


def build(stage: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build two pages of the book and one notebook as a stranger's checkout would."""
    for part in ("book", "notebooks", "aimlib"):
        shutil.copytree(ROOT / part, stage / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("_config.yml", "CITATION.cff", "pyproject.toml"):
        shutil.copy(ROOT / part, stage / part)
    toc = {"format": "jb-book", "root": "book/bibliography"}
    toc["chapters"] = [{"file": "notebooks/model"}]
    (stage / "_toc.yml").write_text(yaml.safe_dump(toc))
    code = "from jupyter_book.cli.main import main; main()"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BOOK_")}
    return subprocess.run(
        [sys.executable, "-c", code, "build", str(stage), "-q"],
        env=clean | environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    stage = tmp_path_factory.mktemp("published")
    result = build(stage, BOOK_REPOSITORY_URL=REPOSITORY + ".git/")
    assert result.returncode == 0, result.stderr[-3000:]
    return stage / "_build" / "html"


def page(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def contents(soup: BeautifulSoup, name: str) -> list[str]:
    found = soup.find_all("meta", attrs={"name": name}) + soup.find_all(
        "meta", attrs={"property": name}
    )
    return [tag["content"] for tag in found]


def test_links_to_the_repository_appear_when_its_address_is_given(published) -> None:
    links = {a["href"] for a in page(published / "notebooks" / "model.html").select("a[href]")}
    edit = f"{REPOSITORY}/edit/main/notebooks/model.ipynb"
    assert {REPOSITORY, edit} <= links
    assert any(link.startswith(f"{REPOSITORY}/issues/new?") for link in links)
    binder = (
        "https://mybinder.org/v2/gh/Some-Owner/a-book/main?urlpath=lab/tree/notebooks/model.ipynb"
    )
    colab = (
        "https://colab.research.google.com/github/Some-Owner/a-book/blob/main/notebooks/model.ipynb"
    )
    assert {binder, colab} <= links


def test_canonical_links_sitemap_and_card_follow_the_repository(published) -> None:
    soup = page(published / "notebooks" / "model.html")
    assert soup.find("link", rel="canonical")["href"] == BASE + "notebooks/model.html"
    assert contents(soup, "og:url") == [BASE + "notebooks/model.html"]
    assert contents(soup, "og:image") == [BASE + "_static/social.png"]
    assert (published / "_static" / "social.png").is_file()
    tree = ElementTree.parse(published / "sitemap.xml")
    places = {element.text for element in tree.iter() if element.tag.endswith("loc")}
    assert places == {
        BASE + name for name in ("index.html", "book/bibliography.html", "notebooks/model.html")
    }
    assert f"Sitemap: {BASE}sitemap.xml" in (published / "robots.txt").read_text()


@pytest.mark.parametrize("bad", ["github.com/some/book", "ftp://host/book", "javascript:alert(1)"])
def test_an_address_that_is_none_stops_the_build(monkeypatch, bad) -> None:
    """Sphinx ends a build whose configuration raises this error with one sentence."""
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    import publishing

    monkeypatch.setenv("BOOK_REPOSITORY_URL", bad)
    with pytest.raises(ConfigError, match="BOOK_REPOSITORY_URL must be an http or https address"):
        publishing.configure(None, Config({"html_theme_options": {}}))


def test_without_an_address_no_page_points_to_one(site) -> None:
    for path in site.rglob("*.html"):
        if "_static" not in path.relative_to(site).parts:
            text = path.read_text(encoding="utf-8")
            assert "mybinder" not in text
            assert 'rel="canonical"' not in text
    assert not (site / "sitemap.xml").exists()


def test_every_page_describes_itself_and_says_how_to_cite_it(site) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    described = []
    pages = sorted((site / "book").glob("*.html")) + sorted((site / "notebooks").glob("*.html"))
    for path in pages:
        soup = page(path)
        text = contents(soup, "description")
        described += text
        assert len(text) <= 1
        assert not re.search(r"\\[a-zA-Z(]|\$", " ".join(text)), path.name
        assert contents(soup, "citation_title") == contents(soup, "DC.title") != [""]
        assert contents(soup, "citation_inbook_title") == [citation["title"]]
        assert contents(soup, "citation_publication_date") == [
            str(citation["date-released"]).replace("-", "/")
        ]
    assert len(described) >= len(pages) - 2  # a bibliography has no running text
    assert len(set(described)) == len(described)


def test_workflows_run_what_contributors_run() -> None:
    """The commands of the workflows exist, on every system and version that the project names."""
    folder = ROOT / ".github" / "workflows"
    tests, pages, weekly = (
        yaml.safe_load((folder / f"{name}.yml").read_text())
        for name in ("tests", "pages", "weekly")
    )
    matrix = tests["jobs"]["matrix"]["strategy"]["matrix"]
    assert matrix["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
    assert matrix["python"] == ["3.11", "3.12", "3.13"]
    assert "push" in tests[True]  # YAML reads the key "on" as a truth value
    assert weekly[True]["schedule"]
    commands = [
        step["run"]
        for job in (*tests["jobs"].values(), *pages["jobs"].values())
        for step in job["steps"]
        if "run" in step
    ]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in commands:
        if command.startswith("make "):
            assert command.split()[1] in targets
    assert any("--nbval" in command for command in commands)
    assert (ROOT / "binder" / "requirements.txt").read_text().splitlines()[-1] == (
        "-r ../requirements.lock"
    )
    assert os.access(ROOT / "binder" / "postBuild", os.X_OK)
