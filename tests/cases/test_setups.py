"""setups/*.yaml: how people reward, sound and not, and what `check` has to say of each.

`setups/expected.yml` says it for each, from the method itself: `must` be found, `may` be found (true, and of use to
some), `must_not` (what would be false, or of no use). Whatever stands nowhere must not be found either. `options` are
those of `check`.
"""

import re
from io import StringIO
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from test_cases import CASE

from rewardspec.lint import Run, codes, findings
from rewardspec.spec import check
from rewardspec.text.source import Source

CASES = Path(__file__).parent / "findings"
FOLDER = Path(__file__).parents[1] / "setups"
EXPECTED = YAML(typ="safe", pure=True).load((FOLDER / "expected.yml").read_text(encoding="utf-8"))


def test_every_setup_has_its_expectations():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == EXPECTED.keys()
    assert len(EXPECTED) >= 50


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_found_is_what_there_is_to_find(name):
    path, want = FOLDER / f"{name}.yaml", EXPECTED[name]
    spec, report = check(Source(path.name, path.read_text(encoding="utf-8")))
    said = [*report.sorted(), *(findings(spec, Run(**want.get("options", {}))).warnings if spec is not None else [])]
    must, may, must_not = (want.get(key, {}) for key in ("must", "may", "must_not"))
    assert not must_not.keys() & (must.keys() | may.keys())
    assert all(reason for reasons in (must, may, must_not) for reason in reasons.values())
    found = {d.code: d.render() for d in said}
    wrong = {code: f"not found: {reason}" for code, reason in must.items() if code not in found}
    wrong |= {code: text for code, text in found.items() if code not in must and code not in may}
    assert not wrong, "\n\n".join(wrong.values())
    assert spec is None or not list(left_by_what_is_proposed(path.read_text(encoding="utf-8"), said))


def test_expectations_are_of_findings_that_there_are():
    named = {code for want in EXPECTED.values() for key in ("must", "may", "must_not") for code in want.get(key, {})}
    assert named <= {*codes()}


# What a help proposes

PROPOSED = re.compile("`(?:(keep|advantage): )?((?<=: )[^`]+|grpo|dr_grpo|rloo|decoupled|gdpo)`")


def warnings(text):
    spec, report = check(Source("spec.yaml", text))
    assert spec is not None, report.sorted()[0].render() + "\n" + text
    return findings(spec).warnings


def written(whole):
    out = StringIO()
    YAML(typ="safe", pure=True).dump(whole, out)
    return out.getvalue()


def left_by_what_is_proposed(text, found):
    """Findings that stay when their help is followed, where it says what `keep` or `advantage` to write."""
    for one in found:
        for key, value in PROPOSED.findall(one.help or ""):
            mended = YAML(typ="safe", pure=True).load(text) | {key or "advantage": value}
            if one.code in {d.code for d in warnings(written(mended))}:
                yield one.render(), value


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CASES.glob("*.md")), ids=lambda p: p.stem)
def test_a_keep_or_scheme_that_a_help_proposes_removes_its_finding(path):
    for match in CASE.finditer(path.read_text(encoding="utf-8")):
        if PROPOSED.search(match["said"]) and "error[" not in match["said"]:
            assert not list(left_by_what_is_proposed(match["spec"], warnings(match["spec"])))
