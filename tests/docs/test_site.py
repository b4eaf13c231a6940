"""`make docs` builds the site without a warning, and what is in it asks nothing of a network."""

import json
import re
from html import unescape

import pytest
from places import ROOT

from rewardspec.manual import KINDS

mkdocs = pytest.importorskip("mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def text(page):
    return unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_every_page_is_there(site):
    for kind in KINDS:
        missing = [name for name in kind.names() if not (site / f"reference/{kind.name}s/{name}.html").exists()]
        assert not missing and all(name in text(site / f"reference/{kind.name}s/index.html") for name in kind.names())
    own = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in ROOT.glob("docs/**/*.md")]
    assert own and all((site / path).exists() for path in own)
    assert "The rewardspec language, version 1" in text(site / "language/reference.html")


def test_files_are_included_and_not_copied(site):
    pages = [*site.glob("cookbook/*.html"), site / "tutorial/index.html"]
    assert not any("# include " in text(page) for page in pages)
    assert "trl.GRPOTrainer" in text(site / "tutorial/index.html") or "GRPOTrainer(" in text(
        site / "tutorial/index.html"
    )
    assert sum(len(re.findall(r"^## ", page.read_text(), re.M)) for page in ROOT.glob("docs/cookbook/[!i]*.md")) >= 40
    assert "em: {use: qa.exact_match}" in text(site / "cookbook/right_or_wrong.html")
    assert (site / "examples/trl/run.yaml").exists() and not [*site.rglob("hooks.*")]


def test_nothing_is_asked_of_a_network(site):
    for page in site.rglob("*.html"):
        asked = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?:[^\" >]+)", page.read_text())
        assert not asked, (page, asked)
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?https?:", style.read_text(encoding="utf-8")), style


def test_search_finds_words_of_the_manual(site):
    found = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    assert any(doc["location"] == "reference/findings/phantom-gradient.html" for doc in found)
    assert any("Search-R1" in doc["title"] for doc in found)


def test_no_list_or_table_is_part_of_a_paragraph(site):
    """Markdown needs an empty line before them, which a code host does not."""
    for page in sorted(site.rglob("*.html")):
        for paragraph in re.findall(r"<p>(.*?)</p>", page.read_text(encoding="utf-8"), re.S):
            assert not re.search(r"^\s*([-*] |\|)", paragraph, re.M), (page, paragraph[:200])


def test_a_page_that_includes_files_says_so_on_a_code_host_alone(site):
    for page in sorted((ROOT / "docs").rglob("*.md")):
        source = page.read_text(encoding="utf-8")
        assert ("\n> On a code host" in source) == bool(re.search(r"^ *# include \S+$", source, re.M)), page
        built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert "On a code host" not in built.read_text(encoding="utf-8"), built
