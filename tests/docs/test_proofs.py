"""docs/proofs.json, the verdicts on the published specs, is of the specs as they are."""

import json

import pytest
from places import ROOT

import rewardspec
from rewardspec.language.published import published_names

FOUND = json.loads((ROOT / "docs" / "proofs.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_verdicts_are_of_the_specs_as_they_are():
    specs = {name: rewardspec.load(name) for name in published_names()}
    changed = {name for name, spec in specs.items() if FOUND.get(name, {}).get("fingerprint") != spec.fingerprint}
    assert not changed and FOUND.keys() == specs.keys(), f"python docs/proofs.py proves them: {changed}"
    for name, spec in specs.items():
        assert [*FOUND[name]["verdicts"]] == [*spec.declarations.guarantees], name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gdpo/math", "maxrl/maxrl", "papo/mult", "open_r1/open_r1", "dvao/dvao", "gpg/gpg"])
def test_verdicts_are_found_again(name):
    for verdict in rewardspec.verify(name, [2, 3]):
        status, *size = FOUND[name]["verdicts"][verdict.name]
        assert (verdict.status, [verdict.counterexample.size] if verdict.counterexample else []) == (status, size)


def test_verdicts_are_those_of_the_papers_claims():
    papo = FOUND["papo/papo"]["verdicts"]
    assert papo["right answers above wrong ones"] == ["refuted", 9] and papo["no wrong answer is rewarded"] == [
        "proved"
    ]
    assert FOUND["dvao/dvao"]["verdicts"]["never larger than under GRPO"] == ["proved"]  # its Proposition 2
