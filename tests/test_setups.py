"""setups/*.yaml: how people reward, sound and not, and what `check` has to say of each.

`setups/expected.yml` says it for each, from the method itself: `must` be found, `may` be found (true, and of use to
some), `must_not` (what would be false, or of no use). Whatever stands nowhere must not be found either. `options` are
those of `check`. What is still wrong stands under `waiting`, with the reason, and has to leave once it is mended.
"""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from rewardspec.compiler import check
from rewardspec.lint.finding import Run, codes, find
from rewardspec.source import Source

FOLDER = Path(__file__).parent / "setups"
EXPECTED = YAML(typ="safe", pure=True).load((FOLDER / "expected.yml").read_text(encoding="utf-8"))


def test_every_setup_has_its_expectations():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == EXPECTED.keys()
    assert len(EXPECTED) >= 50


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_found_is_what_there_is_to_find(name):
    path, want = FOLDER / f"{name}.yaml", EXPECTED[name]
    spec, report = check(Source(path.name, path.read_text(encoding="utf-8")))
    said = [*report.sorted(), *(find(spec, Run(**want.get("options", {}))) if spec is not None else [])]
    must, may, must_not, waiting = (want.get(key, {}) for key in ("must", "may", "must_not", "waiting"))
    assert not must_not.keys() & (must.keys() | may.keys())
    assert all(reason for reasons in (must, may, must_not, waiting) for reason in reasons.values())
    found = {d.code: d.render() for d in said}
    wrong = {code: f"not found: {reason}" for code, reason in must.items() if code not in found}
    wrong |= {code: text for code, text in found.items() if code not in must and code not in may}
    assert wrong.keys() <= waiting.keys(), "\n\n".join(wrong[code] for code in wrong.keys() - waiting.keys())


def test_expectations_are_of_findings_that_there_are():
    waiting = {code for want in EXPECTED.values() for code in want.get("waiting", {})}
    named = {code for want in EXPECTED.values() for key in ("must", "may", "must_not") for code in want.get(key, {})}
    assert named <= {*codes()} | waiting
