"""Work is counted: what large specs ask for is cut where the allowance ends, and what is left out is said."""

from fractions import Fraction
from math import comb

import pytest

import rewardspec
from rewardspec.lint import Run, findings
from rewardspec.ops import effort
from rewardspec.prove import diff, simulate, verify

SOME = 60_000  # units, in place of the millions that a command has


@pytest.fixture(autouse=True)
def less_effort(monkeypatch):
    monkeypatch.setattr(effort, "MOST_EFFORT", SOME)
    monkeypatch.setattr(simulate, "MOST_EFFORT", SOME)
    monkeypatch.setattr(diff, "MOST_EFFORT", SOME)


def power(scale=1):
    a, b = (", ".join(f"{k / scale:.17g}" for k in range(n)) for n in (256, 250))
    return rewardspec.loads(
        f"rewardspec: 1\ncomponents: {{a: {{values: [{a}]}}, b: {{values: [{b}]}}}}\n"
        "advantage: zscore((a + b) ** 100)\nguarantees: {order: right_above_wrong(a >= 1)}\n"
    )


def curves(first=1):
    names = [("exp", "sigmoid", "tanh")[i % 3] for i in range(40)]
    signals = "".join(f"  x{i}: {{range: [0, 1]}}\n" for i in range(40))
    components = "".join(f"  c{i}: {{expr: {f}(x{i}), weight: {first + i}}}\n" for i, f in enumerate(names))
    return rewardspec.loads(f"rewardspec: 1\nsignals:\n{signals}components:\n{components}advantage: grpo\n")


def many(weights):
    components = "".join(f"  c{i}: {{values: [0, 1], weight: {w}}}\n" for i, w in enumerate(weights))
    return rewardspec.loads(f"rewardspec: 1\ncomponents:\n{components}advantage: grpo\n")


@pytest.mark.slow
def test_verify_draws_rollouts_whose_values_take_long():
    before = effort.spent()
    (verdict,) = verify.verify(power(255), [2])
    assert verdict.status in ("refuted", "not refuted")
    assert verdict.status == "refuted" or "too many groups of 2" in verdict.reason
    assert effort.spent() - before < 50 * SOME


@pytest.mark.slow
@pytest.mark.parametrize("spec", [power(255), curves()], ids=["power", "curves"])
def test_simulate_counts_no_further_than_its_allowance(spec):
    before = effort.spent()
    count = simulate.count_groups(spec.program, "", 2)
    assert not count.exact
    assert effort.spent() - before < 50 * SOME


def test_diff_says_how_many_groups_it_looked_at():
    before = effort.spent()
    found = diff.difference(curves(), curves(2), [2])
    drawn = next(reason for reason in found.left_out if "were drawn" in reason)
    assert int(drawn.split()[0]) < diff.MOST_DRAWN_VALUES // 1000
    assert effort.spent() - before < 50 * SOME


@pytest.mark.slow
def test_check_says_that_it_left_dead_groups_out():
    weights = [f"0.{(7919 * (i + 1)) ** 3 % 999_983:06d}" for i in range(64)]
    before = effort.spent()
    notes = findings(many(weights), Run({"c0": Fraction(1, 10)}, [8])).notes
    assert any("dead-groups" in note.message and "too many kinds of rollouts" in note.message for note in notes)
    assert effort.spent() - before < 40 * SOME


@pytest.mark.slow
def test_sums_of_fractions_are_counted_whole(monkeypatch):
    """Six weights 1, 1/2, 1/4, ...: every subset has another sum."""
    monkeypatch.setattr(effort, "MOST_EFFORT", 2_000_000)
    count = simulate.count_groups(many([str(1 / 2**i) for i in range(6)]).program, "", 2)
    assert (count.exact, count.reward_groups) == (True, comb(64 + 1, 2))
    assert count.advantage_groups == 2  # (0, 0) and (-1, 1) up to scale
