"""`make bench BASE=...` times two checkouts."""

import sys

import pytest
from places import ROOT

sys.path.append(str(ROOT / "tests" / "benchmarks"))

import beside


@pytest.mark.slow
def test_a_checkout_beside_itself(capsys):
    beside.main(str(ROOT), rounds=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["here", "here", "/", "base"]
    assert {line[:20].strip() for line in lines[1:]} >= {"text to function", "rewardspec check", "gdpo 512x4x2"}
    assert all(" ms   " in line and " to " in line for line in lines[1:])
