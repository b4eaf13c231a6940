"""Guarantees: proved ones hold in every group, refuted ones are broken by the group that is shown."""

import json
import math
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from commands_in_process import run
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ, SPECS
from reference import formulas as ref

import rewardspec
from rewardspec.prove import search
from rewardspec.prove.solve import solve_weight, with_weight
from rewardspec.prove.verify import OF_NOTHING, verify

PAPO = """rewardspec: 1
components:
  outcome: {values: [0, 1]}
  process: {values: [0, 0.5, 1], when: outcome >= 1, otherwise: ignore}
advantage: decoupled
guarantees:
  right above wrong: right_above_wrong(outcome)
"""


def verdicts(text, sizes):
    spec = rewardspec.loads(text) if "\n" in str(text) else rewardspec.load(text)
    return {v.name: v for v in verify(spec, sizes)}


def only(text, sizes):
    (verdict,) = verdicts(text, sizes).values()
    return verdict


# The numbers of the design


def test_papo_keeps_right_above_wrong_up_to_groups_of_eight():
    verdict = only(PAPO, range(2, 9))
    assert (verdict.status, verdict.sizes) == ("proved", tuple(range(2, 9)))
    assert verdict.groups == sum(math.comb(g + 3, 3) for g in range(2, 9))  # four states of a rollout


@pytest.mark.slow
def test_papo_fails_from_groups_of_nine():
    for size in (9, 10, 16):
        verdict = only(PAPO, [size])
        assert verdict.status == "refuted"
        found = verdict.counterexample
        right = [o == 1 for o in found.columns["outcome"]]
        process = np.array([np.nan if p is None else p for p in found.shaped["process"]])
        expected = ref.papo("papo", found.columns["outcome"], process, ["p"] * size)
        np.testing.assert_allclose(found.advantages, expected, atol=1e-5)
        worst = min(a for a, r in zip(found.advantages, right, strict=True) if r)
        assert worst <= max(a for a, r in zip(found.advantages, right, strict=True) if not r)
        assert {i for i, a in enumerate(found.advantages) if a == worst and right[i]} <= set(found.breaking)


def test_papo_group_of_sixteen():
    """12 right, one of them with 0.5 among ones: it falls 0.939 below the wrong ones."""
    fn = rewardspec.compile(rewardspec.loads(PAPO))
    columns = {"outcome": [1] * 12 + [0] * 4, "process": [0.5] + [1] * 11 + [None] * 4}
    advantages = fn(columns, 16).advantages
    assert float(advantages[12] - advantages[0]) == pytest.approx(0.939, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "weight"), [(4, math.sqrt(3)), (8, 1.0583005), (16, 0.6928203)])
def test_largest_safe_weight_of_the_process_score(size, weight):
    ((first, last),) = solve_weight(rewardspec.loads(PAPO), "process", [size]).intervals
    assert (first.weight, first.safe, first.broken) == (0, True, [])
    assert last.weight == pytest.approx(weight, abs=4e-6)  # by hand with eps 0; the spec has 1e-6
    assert last.broken == ["right above wrong"]
    spec = rewardspec.loads(PAPO)
    assert verify(with_weight(spec, "process", Fraction(weight - 1e-5)), [size])[0].status == "proved"
    assert verify(with_weight(spec, "process", Fraction(weight + 1e-5)), [size])[0].status == "refuted"


@pytest.mark.slow
def test_weights_that_are_always_or_never_safe():
    text = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1]}}\nadvantage: grpo\n"
    text += "guarantees: {g: GUARANTEE}\n"
    always = solve_weight(rewardspec.loads(text.replace("GUARANTEE", "max(advantage) >= 0")), "b", [2, 3])
    assert always.intervals[0][1].broken == []
    never = solve_weight(rewardspec.loads(text.replace("GUARANTEE", "max(advantage) > 0")), "b", [2, 3])
    assert never.is_none
    assert never.at_zero == ["g"]
    rational = solve_weight(rewardspec.loads(text.replace("GUARANTEE", "'right_above_wrong(a)'")), "b", [2, 3])
    assert (rational.intervals[0][1].weight, rational.intervals[0][1].safe) == (1, False)
    attained = solve_weight(
        rewardspec.loads(text.replace("GUARANTEE", "'min(advantage, where=a) >= max(advantage, where=not a)'")),
        "b",
        [2, 3],
    )
    assert (attained.intervals[0][1].weight, attained.intervals[0][1].safe) == (1, True)
    with pytest.raises(ValueError, match="no component `c`"):
        solve_weight(rewardspec.loads(PAPO), "c", [2])


# GDPO's math task


def test_without_conditioning_a_short_wrong_answer_is_rewarded():
    verdict = verdicts(SPECS / "gdpo/math.yaml", range(2, 17))["no wrong answer is rewarded"]
    assert (verdict.status, verdict.sizes) == ("refuted", (2,))
    found = verdict.counterexample
    rewarded = [i for i, a in enumerate(found.advantages) if a > 0]
    assert [(found.columns["correct"][i], found.shaped["length"][i]) for i in rewarded] == [(0, 1)]
    assert found.breaking == rewarded


def test_with_conditioning_it_is_proved_that_none_is():
    found = verdicts(SPECS / "gdpo/math_conditioned.yaml", range(2, 17))
    assert {v.status for v in found.values()} == {"proved"}
    assert all(v.sizes == tuple(range(2, 17)) for v in found.values())


# Brute force


@st.composite
def small_specs(draw):
    """A spec with two components, one of them perhaps gated, its reward vectors, weights and scheme."""
    a = draw(st.sampled_from([[0, 1], [0, 0.5, 1], [-1, 1]]))
    b = draw(st.sampled_from([[0, 1], [0, 0.25, 1]]))
    weights = draw(st.tuples(*[st.sampled_from(["1", "0.5", "1/3", "2", "-1"])] * 2))
    gate = draw(st.sampled_from([None, "0", "ignore"]))
    when = "" if gate is None else f", when: a >= 1, otherwise: {gate}"
    scheme = draw(st.sampled_from(["grpo", "dr_grpo", "decoupled", "gdpo", "rloo"]))
    text = f"""rewardspec: 1
components:
  a: {{values: {a}, weight: {weights[0]}}}
  b: {{values: {b}, weight: {weights[1]}{when}}}
advantage: {scheme}
guarantees:
  above: right_above_wrong(a >= 1)
  nothing: wrong_gets_nothing(a >= 1)
  silent: silent_when_all_fail(a >= 1)
  live: live_when_unequal(a)
"""
    closed = {None: None, "0": 0.0, "ignore": np.nan}[gate]
    states = [(x, y if gate is None or x >= 1 else closed) for x, y in product(a, b)]
    numbers = {"1": 1.0, "0.5": 0.5, "1/3": 1 / 3, "2": 2.0, "-1": -1.0}
    return text, states, {"a": numbers[weights[0]], "b": numbers[weights[1]]}, scheme


def kept(advantages, a):
    """The four guarantees on one group, by hand; what is within 1e-9 of a limit counts as on it."""
    advantages = np.where(np.abs(advantages) < 1e-9, 0, advantages)
    right = a >= 1
    above = not right.any() or right.all() or advantages[right].min() > advantages[~right].max() + 1e-9
    nothing = right.all() or advantages[~right].max() <= 0
    silent = right.any() or not advantages.any()
    live = len(set(a)) == 1 or advantages.any()
    return {"above": above, "nothing": nothing, "silent": silent, "live": bool(live)}


@pytest.mark.slow
@settings(max_examples=40 * FUZZ)
@given(small_specs(), st.integers(2, 4))
def test_verdicts_are_those_of_brute_force(drawn, size):
    text, states, weights, scheme = drawn
    broken = set()
    for members in combinations_with_replacement(dict.fromkeys(states), size):
        rewards = dict(zip("ab", np.array(members, dtype=float).T, strict=True))
        advantages = ref.WITHOUT_BATCH_STEP[scheme](rewards, weights, ["p"] * size, eps=0.0)
        broken |= {name for name, holds in kept(advantages, rewards["a"]).items() if not holds}
    for name, verdict in verdicts(text + "numerics: {eps: 0}\n", [size]).items():
        assert verdict.status == ("refuted" if name in broken else "proved"), name
        if verdict.counterexample is not None:
            found = verdict.counterexample
            assert not kept(np.array(found.advantages), np.array(found.shaped["a"]))[name]
            rewards = {k: np.array([np.nan if v is None else v for v in x]) for k, x in found.shaped.items()}
            expected = ref.WITHOUT_BATCH_STEP[scheme](rewards, weights, ["p"] * size, eps=0.0)
            np.testing.assert_allclose(found.advantages, expected, atol=1e-9)


def test_ties_are_decided_exactly():
    """3 * 0.1 and 0.3 differ in floats; a margin of 1e-12 is no tie."""
    text = """rewardspec: 1
components: {{a: {{values: [0, 0.1]}}, b: {{values: [0, {}]}}}}
advantage: center(3 * a + b)
guarantees: {{tie: "any(a != 0 and b == 0) and any(a == 0 and b != 0) and count(a) == 2 or all(advantage == advantage)",
  apart: "max(advantage) > min(advantage) or std(a) == 0 or not any(b != 0 and a == 0)"}}
"""
    assert verdicts(text.format("0.3"), [2])["apart"].status == "refuted"
    assert verdicts(text.format("0.300000000001"), [2])["apart"].status == "proved"


# What cannot be proved


@pytest.mark.slow
def test_interval_domains_are_searched():
    text = """rewardspec: 1
components: {a: {range: [0, 1]}, b: {range: [0, 1], weight: 0.5}}
advantage: grpo
guarantees:
  sums to nothing: abs(sum(advantage)) < 1e-3
  order of a: min(advantage, where=a > 0.9) > max(advantage, where=a < 0.3)
  order of a, narrowly: min(advantage, where=a > 0.7) > max(advantage, where=a < 0.3)
"""
    found = verdicts(text, [2, 3])
    assert found["sums to nothing"].status == "not refuted"
    assert "intervals" in found["sums to nothing"].reason
    assert found["order of a"].status == "not refuted"
    assert found["order of a, narrowly"].status == "refuted"
    shown = found["order of a, narrowly"].counterexample
    assert any(a > 0.7 for a in shown.columns["a"])
    assert any(a < 0.3 for a in shown.columns["a"])


def test_breakpoints_are_looked_at():
    """Only near 6144 tokens is the penalty half of what it can be."""
    text = """rewardspec: 1
signals: {tokens: {range: [0, .inf]}}
components:
  a: {values: [0, 1]}
  long: overlong(tokens, 8192, 4096)
advantage: grpo
guarantees: {never half: "not any(abs(long + 0.5) < 1e-3)"}
"""
    assert only(text, [2]).status == "refuted"


def test_rest_of_the_batch_is_unknown():
    text = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1]}}\nadvantage: SCHEME\nguarantees:\n"
    text += "  order: min(advantage, where=a == 1 and b == 1) >= max(advantage, where=a == 0 and b == 0)\n"
    text += (
        "  size: within(3)\n  sign: min(advantage, where=a == 1 and b == 1) >= 0\n  mean: abs(mean(advantage)) <= 0\n"
    )
    for scheme, expected in (
        ("decoupled", ["proved", "proved", "proved", "proved"]),
        ("gdpo", ["proved", "undecided", "proved", "proved"]),
        ("batch_grpo", ["proved", "undecided", "proved", "proved"]),
        ("zscore(total, over=batch)", ["proved", "undecided", "undecided", "undecided"]),
        ("a - mean(b, over=batch) * b", ["undecided"] * 4),
    ):
        found = verdicts(text.replace("SCHEME", scheme), [2, 3])
        assert [v.status for v in found.values()] == expected, scheme


def test_guarantee_holds_where_it_is_missing():
    text = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\nguarantees:\n  g: GUARANTEE\n"
    assert only(text.replace("GUARANTEE", "min(a, where=a > 0) > 0"), [2, 3]).status == "proved"  # of nothing: missing
    assert only(text.replace("GUARANTEE", "coalesce(min(a, where=a > 0), 0) > 0"), [2, 3]).status == "refuted"


@pytest.mark.parametrize(
    ("guarantee", "of_nothing"),
    [
        ("min(advantage, where=a > 1) > 0", True),
        ("right_above_wrong(a > 1)", True),
        ("not any(advantage < 0, where=a > 1)", True),
        ("all(advantage > 0, where=a > 1) and min(advantage, where=a < 0) > 0", True),
        ("all(advantage > 0, where=a > 1) and within(4)", False),
        ("min(advantage, where=a > 0) >= 0", False),
        ("right_above_wrong(a)", False),
    ],
)
def test_guarantee_of_nothing_is_said_to_be_one(guarantee, of_nothing):
    text = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\nguarantees:\n  g: GUARANTEE\n"
    verdict = only(text.replace("GUARANTEE", guarantee), [2, 3])
    assert (verdict.status, verdict.reason) == ("proved", OF_NOTHING if of_nothing else "")


def test_schedules_are_looked_at_in_moments():
    text = """rewardspec: 1
components: {a: {values: [0, 1]}, b: {values: [0, 1], weight: WEIGHT}}
advantage: grpo
guarantees: {g: right_above_wrong(a)}
"""
    steps = only(text.replace("WEIGHT", "0.5 if step < 30 else 2"), [2])
    assert steps.status == "refuted"
    assert steps.counterexample.group == {"step": 30}
    assert only(text.replace("WEIGHT", "0.5 if step < 30 else 0.9"), [2, 3]).status == "proved"
    moving = only(text.replace("WEIGHT", "0.5 + progress / 4"), [2])
    assert moving.status == "not refuted"
    assert "moments" in moving.reason
    assert only(text.replace("WEIGHT", "0.5 + progress"), [2]).counterexample.group["progress"] >= 0.5


def test_columns_of_groups_and_symbols():
    text = """rewardspec: 1
signals: {task: {values: [math, code]}, hard: {values: [0, 1], level: group}}
components: {a: {values: [0, 1]}, b: {values: [0, 1], when: task == code, weight: 1 + hard}}
advantage: grpo
guarantees: {g: right_above_wrong(a)}
"""
    verdict = only(text, [2])
    assert verdict.status == "refuted"
    assert set(verdict.counterexample.columns["task"]) <= {"math", "code"}
    assert set(verdict.counterexample.group) == {"hard"}


# The ready-made ones, and the command


def test_ready_made_guarantees_are_for_guarantees_only():
    with pytest.raises(rewardspec.SpecError, match="use `advantage` in `guarantees:` only") as error:
        rewardspec.loads("rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: within(3)\n")
    assert error.value.diagnostics[0].span.source.name == "<spec>"


@pytest.mark.slow
def test_verify_command(tmp_path):
    path = tmp_path / "papo.yaml"
    path.write_text(PAPO)
    done = run("verify", path, "-g", "2..8")
    assert done.returncode == 0, done.stderr
    assert "proved" in done.stdout
    assert "2..8" in done.stdout
    done = run("verify", path, "-g", "2..16")
    assert done.returncode == 1
    assert "a group of 9 breaks `right above wrong`" in done.stdout
    assert done.stdout.count("<-") > 1
    done = run("verify", path, "-g", "9", "--format", "json")
    (row,) = json.loads(done.stdout)["rows"]
    assert row["guarantees"][0]["status"] == "refuted"
    assert row["guarantees"][0]["counterexample"]["size"] == 9
    done = run("verify", path, "-g", "4", "--solve", "weight:process")
    assert "safe from 0 up to 1.73205 (`right above wrong` fails beyond it)" in done.stdout
    for arguments, message in (
        (["--solve", "process"], "weight:NAME"),
        (["--solve", "weight:proces"], "no component `proces`"),
        (["--format", "xml"], "table or json"),
        (["-g", "0"], "from 1 to 64"),
    ):
        done = run("verify", path, *arguments)
        assert done.returncode == 2
        assert message in done.stderr
    path.write_text(PAPO[: PAPO.index("guarantees")])
    assert "no spec has `guarantees:`" in run("verify", path).stderr


# The published methods

EXPECTED = {  # sizes 2 to 4; every other guarantee of a shipped spec is proved
    "alp/alp": {"*": "not refuted", "no wrong answer is rewarded": "refuted"},
    "dvao/dvao": {"*": "refuted", "never larger than under GRPO": "proved"},
    "gd2po/gd2po_hard": {"*": "undecided"},
    "gd2po/gd2po_snr": {"*": "undecided"},
    "gpg/gpg": {"*": "undecided"},
    "grpo_lead/grpo_lead": {"*": "not refuted"},
    "kimi/kimi_length": {"*": "not refuted", "no wrong answer is rewarded": "refuted"},
    "l1/l1_exact": {"*": "not refuted", "right answers above wrong ones": "refuted"},
    "l1/l1_max": {"*": "not refuted"},
    "mo_grpo/mo_grpo": {"*": "not refuted"},
    "open_r1/open_r1_code": {"*": "refuted", "a group with right and wrong answers is live": "not refuted"},
    "open_r1/open_r1": {"*": "refuted"},
    "opo/opo": {"*": "not refuted"},
    "retool/retool": {
        "*": "not refuted",
        "no wrong answer is rewarded": "refuted",
        "a group that fails is silent": "refuted",
    },
    "rvpo/rvpo": {"*": "not refuted"},
    "saw/saw_gdpo": {"*": "undecided"},
    "saw/saw_grpo": {"*": "undecided"},
    "gdpo/code": {"*": "refuted"},
    "gdpo/code_filtered": {"*": "refuted"},
    "gdpo/code_two": {  # pass rates below 1 are rewarded
        "*": "not refuted",
        "no wrong answer is rewarded": "refuted",
        "a group that fails is silent": "refuted",
    },
    "gdpo/math_filtered": {"*": "refuted"},
    "gdpo/math": {"*": "refuted"},
    "gdpo/tool_calling": {
        "right throughout is never punished": "not refuted",
        "right calls above wrong ones": "refuted",
    },
    "gdpo/tool_calling_decoupled": {
        "right throughout is never punished": "not refuted",
        "right calls above wrong ones": "refuted",
    },
    "gdpo/tool_calling_dr_grpo": {"*": "not refuted"},
    "gdpo/tool_calling_grpo": {"*": "not refuted"},
    "laconic/laconic": {
        "right answers above wrong ones": "refuted",
        "right answers within the budget above wrong ones": "not refuted",
    },
    "spiral/rae": {"*": "not refuted"},
    "spo/spo": {"*": "not refuted"},
    "papo/mult": {
        "right answers above wrong ones": "refuted",
        "a group with right and wrong answers is live": "refuted",
    },
    "papo/orm_dapo": {"*": "refuted", "a group that fails is silent": "not refuted"},
    "papo/papo_dapo": {"*": "refuted", "a group that fails is silent": "not refuted"},
    "prs/general": {"*": "not refuted"},
    "prs/long": {"*": "not refuted"},
    "prs/short": {"*": "not refuted"},
    "toolrl/equal_max": {"*": "not refuted"},
    "toolrl/fine": {"*": "not refuted"},
    "toolrl/intermediate": {"*": "not refuted"},
    "toolrl/length": {"*": "not refuted"},
    "toolrl/length_dynamic": {"*": "not refuted"},
    "toolrl/original": {"*": "not refuted"},
    "toolrl/smooth": {"right throughout is never punished": "not refuted", "right calls above wrong ones": "refuted"},
    "toolrl/two_stage": {"*": "not refuted"},
    "vspo/no_clip": {"*": "not refuted"},
    "vspo/uniform": {"*": "not refuted"},
    "vspo/uniform_no_clip": {"*": "not refuted"},
    "vspo/vspo": {"*": "not refuted"},
    "vspo/vspo_long": {"*": "not refuted"},
}
EXPECTED["gdpo/code_two_grpo"] = EXPECTED["gdpo/code_two"]
EXPECTED |= {
    f"gdpo/{task}{scheme}": {"*": "refuted"}
    for task in ("code", "math")
    for scheme in ("_grpo", "_dr_grpo", "_decoupled")
}
ONLY_IN_FOURS = {"gdpo/tool_calling", "gdpo/tool_calling_decoupled"}  # what they refute
SEARCHED = {
    "alp",
    "grpo_lead",
    "kimi",
    "l1",
    "laconic",
    "spiral",
    "mo_grpo",
    "open_r1",
    "opo",
    "retool",
    "rvpo",
}  # not for long: intervals
FILES = sorted(path for path in SPECS.glob("*/*.yaml") if path.parent.name != "dialects")


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(SPECS).with_suffix("").as_posix())
def test_guarantees_of_published_specs(path, monkeypatch):
    name = path.relative_to(SPECS).with_suffix("").as_posix()
    expected = EXPECTED.get(name, {})
    quick = path.parent.name in SEARCHED and FUZZ == 1
    if quick:
        monkeypatch.setattr(search, "ROUNDS", 2)
    largest = 4 if name in ONLY_IN_FOURS or FUZZ > 1 else 2 if quick else 3
    found = verify(rewardspec.load(path), range(2, largest + 1))
    assert found or rewardspec.load(path).lists  # the papers about turns claim nothing of every group
    for verdict in found:
        assert verdict.status == expected.get(verdict.name, expected.get("*", "proved")), verdict.name
        assert (verdict.counterexample is not None) == (verdict.status == "refuted")


def test_groups_without_an_advantage_break_nothing():
    """A missing advantage ends the run with an error, whatever a guarantee says of the rest of the group."""
    text = """rewardspec: 1
signals: {m: {values: [0, 1], missing: ignore}}
components: {a: {values: [0, 1]}}
advantage: a * m
guarantees:
  no group of two: group_size > 2
  whole: count(m) == group_size
"""
    found = {v.name: v for v in verify(rewardspec.loads(text), [2])}
    assert found["no group of two"].status == "refuted"
    assert None not in found["no group of two"].counterexample.advantages
    assert found["whole"].status == "proved"


def test_verdicts_say_in_a_line_what_is_known():
    text = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1]}}\nadvantage: grpo\n"
    spec = rewardspec.loads(text + "guarantees: {kept: within(9), order: right_above_wrong(a)}\n")
    kept, order = verify(spec, [2])
    assert kept.proved and not kept.refuted and repr(kept) == "<Verdict 'kept': proved>"
    assert order.refuted and repr(order) == "<Verdict 'order': refuted by a group of 2>"
    assert repr(order.counterexample).startswith("<Counterexample: 2 rollouts, a=[")
    with pytest.raises(AttributeError):
        kept.status = "refuted"


@pytest.mark.slow
def test_more_kinds_of_groups_than_can_be_listed_are_drawn():
    """16 columns of the group with three values each: 43 million kinds."""
    names = [f"s{i}" for i in range(16)]
    text = f"""rewardspec: 1
signals: {{{", ".join(f"{name}: {{values: [0, 1, 2], level: group}}" for name in names)}}}
components: {{a: {{values: [0, 1]}}, b: {{values: [0, 1]}}}}
advantage: center(a + b) * ({" + ".join(names)})
guarantees: {{bounded: within(100), first: right_above_wrong(a)}}
"""
    spec = rewardspec.loads(text)
    bounded, first = rewardspec.verify(spec, [2])
    assert (bounded.status, bounded.reason) == ("not refuted", "too many groups of 2 to try them all")
    assert first.status == "refuted"
    assert "sum-merges-groups" in {d.code for d in rewardspec.check(spec)}
