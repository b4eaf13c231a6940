"""Claims of `verify` rest on exact arithmetic, and are what the compiled function does: each case was once false."""

import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import rewardspec
from rewardspec.groups.question import Question
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ops.real import UNKNOWN
from rewardspec.prove import enclosures
from rewardspec.prove.simulate import count_groups
from rewardspec.prove.solve import solve_weight
from rewardspec.prove.verify import ALL_END, EPS_ALONE, SOME_END, TOO_CLOSE, verify


def verdicts(text, sizes=(2, 3)):
    return {v.name: v for v in verify(rewardspec.loads("rewardspec: 1\nname: t\n" + text), sizes)}


def only(text, sizes=(2, 3)):
    (verdict,) = verdicts(text, sizes).values()
    return verdict


def runs(text, columns, size):
    """The compiled function's advantages of one group, in float64."""
    fn = rewardspec.compile(rewardspec.loads("rewardspec: 1\nname: t\n" + text))
    arrays = {n: v if isinstance(v[0], str) else np.array(v, dtype=float) for n, v in columns.items()}
    return fn(arrays, groups=size).advantages.tolist()


TIED = """components:
  correct: {values: [0, 1], weight: 0}
  style: {values: [0, 1], weight: 0}
  s: sigmoid(correct + style)
advantage: zscore(s)
guarantees:
  order: right_above_wrong(correct)
  live: live_when_unequal(correct)
"""


def test_a_tie_of_inexact_values_breaks_a_strict_guarantee():
    assert runs(TIED, {"correct": [1, 0], "style": [0, 1]}, 2) == [0, 0]
    found = verdicts(TIED)
    assert {v.status for v in found.values()} == {"refuted"}
    assert found["order"].counterexample.advantages == [0, 0]


def test_a_tie_on_one_side_of_or_does_not_hide_a_failure_on_the_other():
    text = """signals: {b: {values: [0, 1]}}
components: {a: {values: [0, 1]}, s: sigmoid(a + b)}
advantage: s - mean(s)
guarantees:
  either: all(advantage >= 0 or b < 1)
  the same: min(advantage, where=b >= 1) >= 0
  tied and failing: cos(2) < 2 * cos(1) ** 2 - 1 or max(advantage) < 0
  tied and kept: cos(2) < 2 * cos(1) ** 2 - 1 or max(advantage) >= 0
"""
    found = verdicts(text)
    assert found["either"].status == found["the same"].status == "refuted"
    assert found["tied and kept"].status == "proved"
    tied = found["tied and failing"]
    assert (tied.status, tied.reason) == ("not refuted", TOO_CLOSE)


def test_a_guarantee_of_which_one_side_is_missing_and_the_other_false_is_missing_and_holds():
    text = """components:
  a: {values: [-3, 0, 3], weight: 0}
  s: sigmoid(a)
advantage: grpo
guarantees:
  g: max(advantage, where=a == 3) < 9 or mean(s) > 0.9
"""
    assert only(text).status == "proved"


def test_columns_of_the_batch_and_guarantees_that_fold_to_constants_end_in_verdicts():
    batch = """signals: {hard: {values: [0, 1], level: batch}}
components: {a: {values: [0, 1], weight: 1 + hard}}
advantage: grpo
guarantees: {g: right_above_wrong(a)}
"""
    assert only(batch).status == "proved"
    folded = "components: {a: {values: [0, 1]}}\nKEEPadvantage: grpo\nguarantees: {g: GUARANTEE}\n"
    assert only(folded.replace("KEEP", "").replace("GUARANTEE", "all(a >= 0)")).status == "proved"
    assert only(folded.replace("KEEP", "").replace("GUARANTEE", "all(a > 1)")).status == "refuted"
    assert only(folded.replace("KEEP", "keep: mean(a) > 2\n").replace("GUARANTEE", "within(0)")).status == "proved"
    absent = """signals: {z: {values: [0, 1], missing: ignore, level: group}}
components: {b: {values: [0, 1]}, e: sigmoid(b)}
advantage: minmax(e + b)
guarantees: {g: max(advantage) <= 1 or z == 1}
"""
    assert only(absent).status == "proved"


def test_eps_is_what_the_spec_says():
    text = """components: {a: {values: [0, 1]}}
numerics: {eps: 1}
advantage: grpo
guarantees: {g: max(abs(advantage)) > 0.6 or std(a) == 0}
"""
    assert max(runs(text, {"a": [0, 1]}, 2)) == pytest.approx(0.5 / (0.5**0.5 + 1))
    verdict = only(text)
    assert (verdict.status, verdict.reason) == ("refuted", EPS_ALONE)
    assert max(verdict.counterexample.advantages) == pytest.approx(0.5 / (0.5**0.5 + 1))
    assert only(text.replace("eps: 1", "eps: 0")).status == "proved"


def test_a_tie_that_eps_breaks_is_none_to_a_step_over_the_batch():
    text = """components: {a: {values: [0, 1]}, b: {values: [0, 1], scale: [0, 2], weight: -1}}
advantage: gdpo
guarantees: {g: max(advantage) <= 0 or any(b != 2 * a)}
"""
    assert only(text, (2,)).status == "refuted"
    assert only(text + "numerics: {eps: 0}\n", (2,)).status == "proved"


def test_groups_on_which_the_run_ends_break_nothing():
    text = "components: {a: {values: [0, 1]}, e: 1 / a}\nadvantage: grpo\nguarantees: {g: within(0)}\n"
    verdict = only(text)
    assert (verdict.status, verdict.reason) == ("proved", SOME_END)
    ends = only(
        "components: {a: {values: [0, 1]}, e: 1 / (mean(a) - sum(a) / group_size)}\n"
        "advantage: grpo\nguarantees: {g: within(-1)}\n"
    )
    assert (ends.status, ends.reason) == ("proved", ALL_END)


GATED = """components:
  a: {values: [0, 1]}
  b: {values: [0, 1], when: raw(b) >= 0, otherwise: -1}
advantage: decoupled
guarantees: {g: wrong_gets_nothing(raw(b))}
"""


def test_what_a_closed_gate_lets_be_missing_is_tried():
    fn = rewardspec.compile(rewardspec.loads("rewardspec: 1\n" + GATED))
    assert fn({"a": [0, 0], "b": [0, None]}, groups=2).advantages[0] > 0  # a wrong one has something
    assert only(GATED).status == "refuted"
    count = count_groups(rewardspec.loads("rewardspec: 1\n" + GATED).program, "", 2)
    assert not count.exact


def test_the_group_that_is_shown_breaks_the_guarantee():
    text = """components:
  a: {values: [0, 0.5, 1], when: raw(a) <= 0.25, otherwise: ignore, weight: 0.1}
advantage: raw(a) - raw(a) + a
guarantees: {g: live_when_unequal(raw(a))}
"""
    assert None not in only(text).counterexample.columns["a"]


def test_reward_groups_of_components_that_look_at_their_group():
    """By hand, groups of 2: (0, 0), (0, 1), (1, 1), each with one max."""
    text = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}, e: max(a)}\nadvantage: grpo\n"
    count = count_groups(rewardspec.loads(text).program, "", 2)
    assert (count.reward_groups, count.exact) == (3, True)


def test_safe_weights_have_two_ends():
    """PAPO in groups of 4: at 0 right answers are all alike, above sqrt 3 process outweighs the outcome."""
    spec = rewardspec.load("specs/papo/papo.yaml")
    ((first, last),) = solve_weight(spec, "process", [4], digits=6).intervals
    assert (first.weight, first.safe) == (0, False)
    assert first.broken == ["right answers with unlike reasoning are live"]
    assert last.weight == pytest.approx(3**0.5, abs=1e-5)
    assert last.broken == ["right answers above wrong ones"]


# Enclosures and the exact evaluator against the compiled function, on random expressions -------------


def expression(draw, depth):
    if not depth or draw.random() < 0.2:
        return draw.choice(["a", "b", "c", "0.3", "1", "group_size", "2"])
    kind = draw.randrange(12)
    x, y = expression(draw, depth - 1), expression(draw, depth - 1)
    if kind < 3:
        return f"({x} {'+-*'[kind]} {y})"
    if kind < 6:
        return f"{draw.choice(['sigmoid', 'tanh', 'abs', 'sign', 'cos', 'floor'])}({x})"
    if kind < 8:
        return f"{draw.choice(['min', 'max'])}({x}, {y})"
    if kind < 9:
        return f"({x} if {y} > {expression(draw, 0)} else {expression(draw, 0)})"
    name = draw.choice(["mean", "std", "max", "min", "sum", "count", "var", "zscore", "center", "minmax", "rank"])
    where = draw.choice(["", "", f", where={draw.choice('ab')} >= 1"])
    x = f"({x} + 0 * c)" if not any(n in x for n in "abc") else x
    return f"{name}({draw.choice('abc')} + 0.5 * b{where})" if draw.random() < 0.5 else f"{name}(a * b + c{where})"


def test_enclosures_hold_the_exact_values_and_these_are_what_runs():
    checked = 0
    for seed in range(60):
        draw = random.Random(seed)
        text = "rewardspec: 1\nname: t\ncomponents:\n  a: {values: [0, 1]}\n  b: {values: [0, 0.3, 1]}\n"
        text += f"  c: {{values: [-1, 2]}}\nadvantage: {expression(draw, 3)} + 0 * a\n"
        try:
            spec = rewardspec.loads(text)
            fn = rewardspec.compile(spec)
        except rewardspec.SpecError:
            continue
        question = Question.of(spec, eps=spec.declarations.eps)
        columns = list(question.fine)
        names = [n.attributes[0] for n in columns]
        rows = list(product(*question.fine.values()))
        groups = [tuple(draw.choice(rows) for _ in range(3)) for _ in range(12)]
        evaluator = GroupEvaluator(question.root, columns, {})
        exact = [evaluator.values(g, {}) for g in groups]
        start = {}
        for at, node in enumerate(columns):
            b = enclosures.box([row[at] for g in groups for row in g], same=True)
            start[node] = enclosures.Box(*(x.reshape(12, 3) for x in (b.lo, b.hi, b.gone, b.there, b.same)))
        given = {"group_size": Fraction(3), "batch_size": Fraction(3), "pi": None}
        boxes = enclosures.evaluate([question.root], start, {}, lambda n, given=given: given[n], 3)[question.root]
        lo, hi, gone, there = (np.broadcast_to(x, (12, 3)) for x in (boxes.lo, boxes.hi, boxes.gone, boxes.there))
        for i, g in enumerate(groups):
            for k, value in enumerate(exact[i]):
                if value is None:
                    assert gone[i, k], text
                elif value is not UNKNOWN:
                    assert there[i, k], text
                    for end, below in ((lo[i, k], True), (hi[i, k], False)):
                        if np.isfinite(end):
                            assert (Fraction(end) <= value) if below else (Fraction(end) >= value), text
            data = {n: np.array([float(row[at]) for row in g]) for at, n in enumerate(names)}
            try:
                out = fn(data, groups=3).advantages.tolist() if names else None
            except ValueError:
                continue
            if out is not None and not any(v is None or v is UNKNOWN for v in exact[i]):
                assert out == pytest.approx([float(v) for v in exact[i]], rel=1e-9, abs=1e-9), (text, g)
                checked += 1
    assert checked > 300
