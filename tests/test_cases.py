"""Golden cases: `cases/*.md` hold specs and what the checker must say of them, to the letter.

Each case is a heading, a yaml block and a text block. `REGENERATE=1 pytest tests/test_cases.py` writes
the text blocks anew; read the diff.
"""

import os
import re
from pathlib import Path

import pytest

from rewardspec.compiler import check
from rewardspec.source import Source

FILES = sorted((Path(__file__).parent / "cases").glob("*.md"))
CASE = re.compile(r"^## (?P<title>.+?)\n\n```yaml\n(?P<spec>.*?)```\n\n```text\n(?P<said>.*?)```\n", re.M | re.S)


def said(spec: str) -> str:
    found, report = check(Source("spec.yaml", spec))
    rendered = [diagnostic.render() for diagnostic in report.sorted()]
    return "\n\n".join(rendered or ["clean"]) + "\n" if (found is None) == report.failed else "inconsistent"


CASES = [(path, match) for path in FILES for match in CASE.finditer(path.read_text())]


@pytest.mark.parametrize(("path", "match"), CASES, ids=[f"{p.stem}: {m['title']}" for p, m in CASES])
def test_case(path, match):
    now = said(match["spec"])
    if os.environ.get("REGENERATE"):
        text = path.read_text()
        old = match.group(0)
        path.write_text(text.replace(old, old.replace(f"```text\n{match['said']}```", f"```text\n{now}```")))
        return
    assert now == match["said"]


def test_cases_are_found():
    assert len(CASES) > 20
    assert all(path.read_text().count("\n## ") == len(CASE.findall(path.read_text())) for path in FILES)
