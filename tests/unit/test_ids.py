"""Ids: the compiled function against a loop over rollouts, what a batch refuses, and what is proved about groups."""

import math
import uuid
from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rewardspec
from rewardspec.groups.renaming import Renaming

SPEC = """\
rewardspec: 1
name: ids
signals:
  episode: {{id: true, missing: ignore}}
  other: {{id: true}}
  anchor: {{id: true, level: group}}
components:
  x: {{range: [-100, 100]}}
advantage: {advantage}
"""
ADVANTAGE = """\
x - mean(x, by=episode) + 1000 * count(other, by=other, over=batch)
  + (200 if other == anchor else 0) + (400 if episode != other else 0) + 100000 * count(episode)"""
VALUES = st.sampled_from(
    [0, 1, 2**24, 2**24 + 1, 2**53, 2**53 + 1, 2**70, -1, "a", "b", "", b"a", ("a", 1), ("a", 2), uuid.UUID(int=1)]
)


def compiled(advantage=ADVANTAGE):
    return rewardspec.compile(rewardspec.loads(SPEC.format(advantage=advantage)))


def by_loop(columns, groups):
    """The advantage of `ADVANTAGE`, one rollout at a time, with Python's own `==`."""
    rows = list(zip(columns["x"], columns["episode"], columns["other"], columns["anchor"], groups, strict=True))
    found = []
    for x, episode, other, anchor, group in rows:
        with_it = [r[0] for r in rows if r[4] == group and r[1] == episode]
        equal = sum(r[2] == other for r in rows)
        there = sum(r[1] is not None for r in rows if r[4] == group)
        found.append(
            x
            - sum(with_it) / len(with_it)
            + 1000 * equal
            + 200 * (other == anchor)
            + 400 * (episode is not None and episode != other)
            + 100000 * there
        )
    return found


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_ids_are_what_python_says_is_equal(data):
    """In groups of any size, interleaved, with missing ids."""
    groups = data.draw(st.lists(st.sampled_from("pqr"), min_size=1, max_size=8))
    some = lambda values: data.draw(st.lists(values, min_size=len(groups), max_size=len(groups)))  # noqa: E731
    anchors = {group: data.draw(VALUES) for group in "pqr"}
    columns = {
        "x": some(st.integers(-5, 5)),
        "episode": some(st.none() | VALUES),
        "other": some(VALUES),
        "anchor": [anchors[group] for group in groups],
    }
    found = compiled()(columns, groups).advantages.tolist()
    assert found == pytest.approx(by_loop(columns, groups), abs=0.02)


@pytest.mark.parametrize(
    "ids",
    [
        torch.tensor([2**60, 2**60 + 1, 2**60, 2**60 + 1]),
        np.array([2**60, 2**60 + 1, 2**60, 2**60 + 1]),
        np.array([2**64 - 1, 1, 2**64 - 1, 1], dtype=np.uint64),
        np.array([2**53, 2**53 - 1, 2**53, 2**53 - 1], dtype=np.float64),
        np.array(["a", "b", "a", "b"]),
        np.array([b"a", b"b", b"a", b"b"]),
        np.array(["a", 1, "a", 1], dtype=object),
        np.array(["2026-01-01", "2026-01-02"] * 2, dtype="datetime64[D]"),
        torch.tensor([True, False, True, False]),
        torch.tensor([1.0, 2.0, 1.0, 2.0], dtype=torch.bfloat16),
        list(torch.tensor([1, 2, 1, 2])),
        list(np.array([1, 2, 1, 2])),
        [True, False, 1.0, -0.0],
        [2**53 + 1, 2**53, 2**53 + 1, 2**53],
    ],
    ids=lambda x: f"{type(x).__name__} {x[0]!r}",
)
def test_ids_of_any_kind(ids):
    out = rewardspec.compile(
        rewardspec.loads(SPEC.format(advantage="x - mean(x, by=other)").replace("ignore", "error"))
    )({"x": [1, 2, 3, 5], "other": ids}, 4)
    assert out.advantages.tolist() == [-1, -1.5, 1, 1.5]


@pytest.mark.parametrize(("first", "second"), [([1, 2], torch.tensor([1, 3])), (["a", "b"], np.array(["a", "c"]))])
def test_ids_that_are_compared_have_one_coding(first, second):
    fn = compiled("x * (other == episode)")
    assert fn({"x": [1, 1], "episode": first, "other": second}, 2).advantages.tolist() == [1, 0]


def test_ids_do_not_choose_the_type_of_the_computation():
    """A float64 column of ids leaves float32 what is float32."""
    ids = np.array([1.0, 1.0, 2.0, 2.0])
    out = compiled("x - mean(x, by=other)")({"x": torch.tensor([1.0, 2.0, 3.0, 4.0]), "other": ids}, 4)
    assert out.advantages.dtype is torch.float32


def test_equal_ids_of_two_groups_stay_apart_over_the_group():
    out = compiled("x - mean(x, by=other)")({"x": [1, 3, 10, 30], "other": ["a"] * 4}, 2)
    assert out.advantages.tolist() == [-1, 1, -10, 10]
    out = compiled("x - mean(x, by=other, over=batch)")({"x": [1, 3, 10, 30], "other": ["a", "b"] * 2}, 2)
    assert out.advantages.tolist() == [-4.5, -13.5, 4.5, 13.5]


@pytest.mark.parametrize("missing", [None, math.nan, np.float64("nan"), np.datetime64("NaT"), torch.tensor(math.nan)])
def test_missing_ids_are_missing(missing):
    fn = compiled("x * (1 if present(episode) else 0) + (100 if episode == other else 0)")
    columns = {"x": [1, 2, 3], "episode": ["a", missing, "b"], "other": ["a", "a", "c"]}
    assert fn(columns, 3).advantages.tolist() == [101, 0, 3]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", [1], "b", {}], "column `other` is [1] at rollout 1 of group 'p': an id is a text, a whole number"),
        ([1, 2.5, 3, 4], "column `other` is 2.5 at rollout 1 of group 'p': an id is"),
        ([1, 2, 3, math.inf], "column `other` is inf at rollout 3 of group 'q': an id is"),
        (torch.tensor([1, 2, 2**25, 4.0]), "column `other` is 33554432 at rollout 2 of group 'q': its float type"),
        ([1, 2, 2.0**60, 4], "column `other` is 1152921504606846976 at rollout 2 of group 'q': its float type"),
        ([1, 2, None, 4], "column `other` is missing at rollout 2 of group 'q': it should be an id"),
        (np.ones((4, 2)), "column `other` is [1.0, 1.0] at rollout 0 of group 'p'"),
        ([1, 2, 3], "column `other` has 3 values for 4 group ids"),
    ],
)
def test_what_is_no_id_is_named(ids, words):
    with pytest.raises(ValueError) as error:
        compiled("x - mean(x, by=other)")({"x": [1, 2, 3, 500], "other": ids}, ["p", "p", "q", "q"])
    assert words in str(error.value)
    assert len(ids) == 3 or "column `x` is 500 at rollout 3" in str(error.value), "all that is wrong, at once"


def test_an_id_of_a_group_is_one():
    with pytest.raises(ValueError, match="column `anchor` differs at rollout 1 of group 0: it should be equal"):
        compiled("x * (other == anchor)")({"x": [1, 2], "other": [1, 2], "anchor": ["a", "b"]}, 2)


def test_numbers_that_merge_are_refused_with_a_way_out():
    """Before, `by=` of 2 ** 24 and 2 ** 24 + 1 divided nothing."""
    text = SPEC.format(advantage="x - mean(x, by=other)").replace("other: {id: true}", "other: {range: [0, .inf]}")
    fn = rewardspec.compile(rewardspec.loads(text))
    for ids in ([2**24, 2**24 + 1], torch.tensor([2**24, 2**24 + 1])):
        with pytest.raises(ValueError, match=r"other` is 16777217 at rollout 1 .* declare an id with `id: true`"):
            fn({"x": [1, 2], "other": ids}, 2)
    with pytest.raises(ValueError, match=r"other` is 9007199254740993 at rollout 1: .* declare an id with `id: true`"):
        fn({"x": [1, 2], "other": [2**53, 2**53 + 1]}, 2)


def test_ids_of_items_of_a_list():
    text = SPEC.format(advantage="called - mean(called, by=tool)").replace("signals:", "lists: {turn: {}}\nsignals:")
    text = text.replace("signals:", "signals:\n  tool: {id: true, level: turn}\n  called: {range: [0, 9], level: turn}")
    fn = rewardspec.compile(rewardspec.loads(text))
    columns = {"x": [1, 1], "called": [[1, 2], [5, 8]], "tool": [["a", "b"], ["b", "a"]]}
    assert fn(columns, 2).nested() == [[-3.5, -1.5], [1.5, 3.5]]
    with pytest.raises(ValueError, match=r"column `tool` is \[\] at turn 1 of rollout 1 of group 0: an id is"):
        fn({**columns, "tool": [["a", "b"], ["b", []]]}, 2)


# What is proved


def up_to_renaming(rows, free):
    """A group of (what it is, id) without order and without the names of its free ids."""
    blocks = {}
    for what, name in rows:
        blocks.setdefault(name if name not in free else ("free", name), []).append(what)
    named = sorted((str(name), sorted(whats)) for name, whats in blocks.items() if not isinstance(name, tuple))
    return str(named), str(sorted(sorted(whats) for name, whats in blocks.items() if isinstance(name, tuple)))


@pytest.mark.parametrize(("kinds", "pinned", "size"), [(1, 0, 3), (2, 0, 4), (2, 1, 3), (1, 2, 4), (2, 2, 3)])
def test_groups_up_to_renaming_are_all_groups(kinds, pinned, size):
    """Against all groups with all names."""
    free = tuple(Fraction(i) for i in range(pinned, pinned + size))
    states = list(product(range(kinds), [*map(Fraction, range(pinned)), *free]))
    renaming = Renaming.of(states, 1, free)
    found = list(renaming.groups(size))
    of_all = Counter(up_to_renaming(rows, set(free)) for rows in combinations_with_replacement(states, size))
    of_found = {up_to_renaming([states[i] for i in places], set(free)): ways for places, ways in found}
    assert len(found) == renaming.count(size) == len(of_found)
    assert of_found == of_all


def verdicts(advantage, guarantees, sizes=(2, 3)):
    text = (
        SPEC.format(advantage=advantage)
        .replace("range: [-100, 100]", "values: [0, 1]")
        .replace(", missing: ignore", "")
    )
    text += "guarantees:\n" + "".join(f"  {name}: {said}\n" for name, said in guarantees.items())
    return {v.name: v for v in rewardspec.verify(rewardspec.loads(text), sizes)}


def test_guarantees_about_ids_are_proved():
    found = verdicts(
        "x - mean(x, by=episode)",
        {
            "within": "within(2/3)",
            "tight": "within(0.5)",
            "alone": "all(advantage == 0, where=count(x, by=episode) == 1)",
        },
    )
    assert found["within"].proved and found["alone"].proved
    assert found["tight"].refuted and found["tight"].counterexample.size == 3
    assert len(set(found["tight"].counterexample.columns["episode"])) == 1


def test_a_group_can_have_as_many_ids_as_rollouts_and_no_more():
    found = verdicts(
        "x * 0 + center(x)",
        {
            "not all apart": "max(count(x, by=episode)) >= 2",
            "no more": "sum(1 / count(x, by=episode)) <= 3",
            "one is the anchor's": "any(other == anchor)",
            "only one is": "sum(other == anchor) <= 1",
            "all equal or none": "all(other == anchor) or not any(other == anchor)",
        },
    )
    assert {name for name, verdict in found.items() if verdict.proved} == {"no more"}
    assert all(found[name].refuted for name in found if name != "no more")


def test_ids_in_groups_of_sixteen_are_still_proved():
    found = verdicts("x - mean(x, by=episode)", {"within": "within(1)"}, (8, 12))
    assert found["within"].proved


def test_simulate_draws_ids_evenly():
    """Two rollouts: alike in half of the groups, and then the answers differ in half."""
    text = SPEC.format(advantage="x - mean(x, by=other)").replace("range: [-100, 100]", "values: [0, 1]")
    (found,) = rewardspec.simulate(rewardspec.loads(text), [2])
    assert found.advantage_groups == 2 and found.exact
    assert found.signal.groups_without_signal == 0.75


def test_an_id_has_no_rate():
    text = SPEC.format(advantage="x - mean(x, by=other)")
    with pytest.raises(ValueError, match="depends on the id `other`"):
        rewardspec.simulate(rewardspec.loads(text), [2], rates={"other": 0.5})


def test_diff_sees_a_difference_between_ids():
    before, after = (
        rewardspec.loads(SPEC.format(advantage=a).replace("range: [-100, 100]", "values: [0, 1]"))
        for a in ("x * (0 if count(x, by=other) == 3 else 1)", "x")
    )
    found = rewardspec.diff(before, after)
    assert {s.size: s.changed for s in found.sizes}[3] > 0 and {s.size: s.changed for s in found.sizes}[2] == 0
