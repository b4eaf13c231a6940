"""Every example on the pages of docs/ is run, and prints what stands under it."""

import re
import sys
from pathlib import Path

import pytest
from places import ROOT

sys.path.insert(0, str(Path(__file__).parent))
from examples import PAGES, agrees, commands, examples, run_page


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what trainers say is not about us
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_examples_of_a_page(page, tmp_path, monkeypatch, request):
    monkeypatch.setenv("COLUMNS", "80")
    if page.parent.name == "tutorial":
        pytest.importorskip("trl")
    regenerate = request.config.option.regenerate
    run_page(page, tmp_path, regenerate, edit=str if regenerate else shorter)


def shorter(text):
    """A file of a page whose training is two steps."""
    return re.sub(r"max_steps=\d+", "max_steps=2", text)


def test_what_is_not_run_says_why():
    left = [(page, one) for page in PAGES for one in examples(page) if "not run" in one.said]
    assert all(len(one.said["not run"].split()) >= 2 for _, one in left)


def test_commands_and_their_output_are_told_apart():
    assert commands("$ a \\\n  b\nx\ny\n$ c\n") == [("a \\\n  b", "x\ny\n"), ("c", "")]
    assert agrees("a\n...\nd\n", "a\nb\nc\nd") and not agrees("a\n...\nd", "a\nb\nc") and not agrees("a", "ab")
