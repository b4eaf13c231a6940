"""*.md: specs, and every word that is said of them. `pytest tests/cases --regenerate` rewrites the words.

A case is a heading, a fenced yaml spec, and a fenced text: the rendered diagnostics, or `nothing to say`.
Read the diff: is it the right place, are they the right words, is there a way out?
"""

import re

import pytest
from places import CASES

from rewardspec.spec import check
from rewardspec.text.source import Source

CASE = re.compile(
    r"^## (?P<name>.+?)\n(?P<about>.*?)```yaml\n(?P<spec>.*?)```\n+```text\n(?P<said>.*?)```\n", re.S | re.M
)


def said(text):
    _, report = check(Source("spec.yaml", text))
    return "\n\n".join(d.render() for d in report.sorted()) or "nothing to say"


def cases():
    for path in sorted(CASES.glob("*.md")):
        found = list(CASE.finditer(path.read_text(encoding="utf-8")))
        assert len(found) == path.read_text(encoding="utf-8").count("\n## "), f"{path.name}: a case does not read"
        for match in found:
            yield pytest.param(path, match["name"], match["spec"], match["said"], id=f"{path.stem}: {match['name']}")


@pytest.mark.parametrize(("path", "name", "spec", "expected"), list(cases()))
def test_case(path, name, spec, expected, agrees):
    agrees(path, spec, expected, said(spec))
