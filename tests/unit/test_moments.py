"""Batches computed in parts: whatever the parts, the advantages are those of one call."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rewardspec
from rewardspec.scoring.moments import InParts, Moment, NotInParts, merge

SPEC = """
rewardspec: 1
lists: {turn: {}}
signals:
  tokens: {range: [0, 100]}
  tool: {range: [0, 1], level: turn}
components:
  a: {values: [0, 1]}
  b: {range: [-1, 1], missing: ignore}
keep: KEEP
advantage: ADVANTAGE
"""
ADVANTAGES = {
    "whiten(grpo)": 1,
    "zscore(total, over=batch)": 1,
    "zscore(b, where=a > 0, over=batch) if present(b) else 0": 1,
    "minmax(tokens, over=batch) + a / batch_size": 1,
    "(a - mean(a, over=batch)) / (1 + max(tokens, over=batch) - min(tokens, over=batch))": 1,
    "zscore(whiten(total) * tokens, over=batch)": 2,
    "total * (1 if any(a > 0, over=batch) and not all(a > 0, over=batch) else 2) + count(b, over=batch)": 1,
    "a - mean(max(a), over=batch) + sum(var(tokens), over=batch)": 1,
    "a + mean(tool, over=batch)": 1,
    "center(a)": 0,
}


def rollouts(seed, groups=12):
    draw = np.random.default_rng(seed)
    of = np.repeat(np.arange(groups), draw.integers(1, 6, groups))
    n = len(of)
    b = np.where(draw.random(n) < 0.2, np.nan, np.round(draw.uniform(-1, 1, n), 2))
    tool = [list(np.round(draw.random(draw.integers(0, 4)), 2)) for _ in range(n)]
    columns = {"a": draw.integers(0, 2, n).astype(float), "b": b, "tokens": draw.integers(0, 90, n).astype(float)}
    return {**columns, "tool": tool}, of


def rows(columns, places):
    return {
        name: [values[i] for i in places] if isinstance(values, list) else values[places]
        for name, values in columns.items()
    }


@pytest.mark.parametrize("keep", ["1", "var(a) > 0 or mean(tokens) > mean(tokens, over=batch)"])
@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_parts_give_what_the_whole_gives(advantage, keep):
    spec = rewardspec.loads(SPEC.replace("ADVANTAGE", advantage).replace("KEEP", keep))
    fn, parts = rewardspec.compile(spec), InParts(spec)
    assert parts.stages >= ADVANTAGES[advantage]
    for seed in range(3):
        columns, of = rollouts(seed)
        whole = fn(columns, of).advantages.numpy()
        part_of = np.random.default_rng(seed).integers(0, 4, of.max() + 1)[of]  # whole groups, in any of four parts
        chosen = [np.flatnonzero(part_of == k) for k in range(4) if (part_of == k).any()]
        known = {}
        for stage in range(parts.stages):
            merged = merge(parts.moments(stage, rows(columns, own), of[own], known) for own in chosen[::-1])
            known |= parts.values(stage, merged)
        for own in chosen:
            found = parts.advantages(rows(columns, own), of[own], known).advantages.numpy()
            assert found == pytest.approx(whole[own], abs=1e-9)


@pytest.mark.parametrize(
    ("advantage", "says"),
    [
        ("total - quantile(total, 0.5, over=batch)", "`quantile` of the batch"),
        ("rank(total, over=batch)", "`rank` of the batch"),
        ("total - mean(total, over=batch, by=a)", "`mean` of the batch"),
    ],
)
def test_what_needs_the_batch_in_one_place_is_refused(advantage, says):
    with pytest.raises(NotInParts, match=says):
        InParts(rewardspec.loads(SPEC.replace("ADVANTAGE", advantage).replace("KEEP", "1")))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=5), max_size=5))
def test_moments_of_parts_are_those_of_all(parts):
    """Against NumPy over all numbers."""
    found = merge({"x": Moment.of(np.array(part))} for part in parts).get("x", Moment())
    values = np.array([value for part in parts for value in part])
    assert found.count == len(values)
    if len(values):
        assert found.total == pytest.approx(values.sum(), abs=1e-6)
        assert found.squares == pytest.approx(values.var() * len(values), rel=1e-9, abs=1e-3)
        assert (found.low, found.high) == (values.min(), values.max())


def test_equal_numbers_in_many_parts_have_no_spread():
    found = merge({"x": Moment.of(np.full(3, 0.1 + 0.2 * (k % 2) * 1e-17))} for k in range(9))["x"]
    assert found.value("std", 1) == 0 and found.value("var", 0) == 0
