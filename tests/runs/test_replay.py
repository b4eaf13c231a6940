"""A run replayed: every number against one computed here in NumPy, and the audit of runs with a planted fault."""

import json
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import rewardspec
from rewardspec.logs.rows import BadLog
from rewardspec.logs.run import Run, Step
from rewardspec.runs import guarantees
from rewardspec.runs.conditions import condition_of
from rewardspec.runs.moments import Moments
from rewardspec.runs.replay import replay
from rewardspec.runs.suggest import suggest

SIZE = 8
SPEC = """\
rewardspec: 1
name: sums
components:
  correct: {values: [0, 1]}
  brief: {range: [0, 1], weight: 0.5}
outcome: correct >= 1
numerics: {eps: 0}
advantage: decoupled
"""
GATED = SPEC.replace("weight: 0.5", "weight: 0.5, when: correct >= 1")
PROMISE = "guarantees: {right above wrong: right_above_wrong()}\n"


def run_of(rows, steps=10, prompts=8, columns=None):
    """A run of groups of eight. rows: function of a generator, a step and the number of rollouts to columns."""

    def read():
        rng = np.random.default_rng(0)
        for k in range(steps):
            n = prompts * SIZE
            found = {name: [*values] for name, values in rows(rng, k, n).items()}
            order = rng.permutation(n)  # groups do not stand together
            found = {name: [_plain(values[i]) for i in order] for name, values in found.items()}
            places = [(Path(f"step_{k}.jsonl"), i + 1) for i in range(n)]
            advantages = found.pop("advantage", None)
            yield Step(k + 1, [f"p{i // SIZE}" for i in order], found, advantages, places)

    return Run((), "test", (), read)


def _plain(value):
    return value.item() if hasattr(value, "item") else value


def drawn(rng, k, n):
    correct = (rng.random(n) < rng.choice([0.0, 0.3, 1.0], n // SIZE).repeat(SIZE)).astype(float)
    tokens = rng.integers(1, 1000, n).astype(float)
    brief = np.where(rng.random(n) < 0.2, 0.0, 1 - tokens / 1000)
    return {
        "correct": correct,
        "brief": brief,
        "tokens": tokens,
        "source": np.array(["a", "b"]).repeat(n // 2).tolist(),
    }


def zscores(x, groups):
    found = np.zeros(len(x))
    for g in set(groups):
        rows = [i for i, h in enumerate(groups) if h == g]
        if np.ptp(x[rows]):
            found[rows] = (x[rows] - x[rows].mean()) / x[rows].std(ddof=1)
    return found


def columns_of(step):
    return tuple(np.array(step.columns[name]) for name in ("correct", "brief", "tokens"))


def advantages_of(step, sums_first=False):
    """The shares of the two components, [2, N], and the advantage, [N]."""
    correct, brief, _ = columns_of(step)
    if sums_first:
        return None, zscores(correct + 0.5 * brief, step.groups)
    shares = np.stack([zscores(correct, step.groups), 0.5 * zscores(brief, step.groups)])
    return shares, shares.sum(0)


def dead_of(advantage, groups):
    return {g: np.ptp(advantage[[h == g for h in groups]]) < 1e-6 for g in dict.fromkeys(groups)}


def test_steps_are_those_of_numpy():
    run = run_of(drawn)
    found = replay(run, [rewardspec.loads(SPEC)]).specs[0]
    assert len(found.steps) == 10
    for step, row in zip(run.steps(), found.steps, strict=True):
        correct, brief, _ = columns_of(step)
        _, a = advantages_of(step)
        dead = dead_of(a, step.groups)
        rate = {g: correct[[h == g for h in step.groups]].mean() for g in dead}
        assert (row.step, row.rollouts, row.groups) == (step.number, 64, 8)
        assert row.groups_without_signal == np.mean([*dead.values()])
        assert row.all_right == np.mean([dead[g] and rate[g] == 1 for g in dead])
        assert row.all_wrong == np.mean([dead[g] and rate[g] == 0 for g in dead])
        assert row.tied == np.mean([dead[g] and 0 < rate[g] < 1 for g in dead])
        assert row.effective == pytest.approx(np.abs(a).sum() ** 2 / (64 * (a**2).sum()), rel=1e-9)
        assert row.advantage_spread == pytest.approx(
            np.mean([np.ptp(a[[h == g for h in step.groups]]) for g in dead]), rel=1e-9
        )
        live = np.array([not dead[g] for g in step.groups])
        assert row.live_size == pytest.approx(np.abs(a[live]).mean(), rel=1e-9)
        assert row.total == pytest.approx((correct + 0.5 * brief).mean(), rel=1e-9)
        assert row.right == correct.mean()
        assert row.rollouts_without_signal == np.mean(a == 0)
        totals = correct + 0.5 * brief
        stds = [totals[[h == g for h in step.groups]].std(ddof=1) for g in dead]
        assert row.total_std == pytest.approx(np.mean(stds), rel=1e-9)
        assert row.batch_factor is None


def test_dead_groups_are_split_by_their_outcome():
    found = replay(run_of(drawn), [rewardspec.loads(GATED)]).specs[0].steps
    assert all(row.groups_without_signal == row.all_right + row.all_wrong + row.tied for row in found)
    assert sum(row.all_wrong for row in found) > 0 == sum(row.tied for row in found)


def test_components_are_those_of_numpy():
    run = run_of(drawn)
    found = {c.name: c for c in replay(run, [rewardspec.loads(SPEC)]).specs[0].components}
    steps = [*run.steps()]
    correct, brief, tokens = (np.concatenate(c) for c in zip(*map(columns_of, steps), strict=True))
    sizes = sum(np.abs(advantages_of(step)[0]).sum(1) for step in steps)
    for i, (name, x) in enumerate([("correct", correct), ("brief", brief)]):
        row = found[name]
        assert (row.mean, row.std) == pytest.approx((x.mean(), x.std()), rel=1e-9)
        assert (row.at_low, row.at_high) == ((x == 0).mean(), (x == 1).mean())
        assert row.share == pytest.approx(sizes[i] / sizes.sum(), rel=1e-9)
        assert row.with_outcome == pytest.approx(np.corrcoef(x, correct)[0, 1], rel=1e-9)
        assert row.with_length == pytest.approx(np.corrcoef(x, tokens)[0, 1], rel=1e-9)
        assert (row.missing, row.weight) == (0, pytest.approx([1, 0.5][i]))


def test_two_specs_are_compared_as_in_numpy():
    run = run_of(drawn)
    specs = [rewardspec.loads(SPEC), rewardspec.loads(SPEC.replace("decoupled", "grpo").replace("sums", "other"))]
    found = replay(run, specs).difference
    flips = pairs = alike = revived = killed = 0
    for step in run.steps():
        a, b = advantages_of(step)[1], advantages_of(step, sums_first=True)[1]
        flips += int((a * b < -1e-9).sum())
        dead = [dead_of(x, step.groups) for x in (a, b)]
        revived += sum(dead[0][g] and not dead[1][g] for g in dead[0])
        killed += sum(dead[1][g] and not dead[0][g] for g in dead[0])
        for g in dead[0]:
            rows = [i for i, h in enumerate(step.groups) if h == g]
            for i, j in combinations(rows, 2):
                pairs += 1
                order = [0 if abs(x[i] - x[j]) < 1e-6 else np.sign(x[i] - x[j]) for x in (a, b)]
                alike += order[0] == order[1]
    assert found.sign_flips == pytest.approx(flips / 640)
    assert found.same_order == pytest.approx(alike / pairs)
    assert (found.revived, found.killed) == (revived, killed)
    assert 0 < len(found.rollouts) <= 3 * SIZE
    assert all(row["advantage"] != row["advantage_b"] or row["rewards"] for row in found.rollouts)


def test_the_batch_step_is_told_by_its_factor():
    spec = rewardspec.loads(SPEC.replace("decoupled", "whiten(decoupled)"))
    run = run_of(drawn)
    for step, row in zip(run.steps(), replay(run, [spec]).specs[0].steps, strict=True):
        before = advantages_of(step)[1]
        assert row.batch_factor == pytest.approx(1 / before.std(ddof=1), rel=1e-3)


def test_a_batch_step_that_amplifies_is_remarked():
    def dying(rng, k, n):
        live = rng.random(n // SIZE) < 1 - k / 12
        correct = np.where(live.repeat(SIZE), rng.integers(0, 2, n), 1).astype(float)
        return {"correct": correct, "brief": correct}

    text = SPEC.replace("range: [0, 1]", "values: [0, 1]")
    for advantage, code in (("whiten(decoupled)", ["batch-step-amplifies"]), ("decoupled", [])):
        spec = rewardspec.loads(text.replace("decoupled", advantage))
        found = replay(run_of(dying, steps=12, prompts=24), [spec]).specs[0]
        assert [remark.code for remark in found.audit] == code
        assert found.steps[-1].groups_without_signal > 0.7


# The audit


def codes(spec, rows, **sizes):
    found = replay(run_of(rows, **sizes), [rewardspec.loads(spec)]).specs[0]
    json.dumps([remark.rollouts for remark in found.audit], allow_nan=False)
    return {remark.code: remark for remark in found.audit}


def test_nothing_is_said_of_a_sound_run():
    def sound(rng, k, n):
        found = drawn(rng, k, n)
        return found | {"correct": (rng.random(n) < 0.3 + 0.05 * k).astype(float)}

    assert codes(GATED, sound) == {}
    assert codes(GATED + PROMISE, sound) == {}


def test_length_that_is_paid_for_wrong_answers_is_found():
    def hack(rng, k, n):
        tokens = rng.integers(1, 900, n) + 10.0 * k
        return {"correct": (rng.random(n) < 0.2).astype(float), "brief": tokens / 1000, "tokens": tokens}

    found = codes(SPEC.replace("0.5", "2") + PROMISE, hack)
    assert {"length-pays-wrong", "wrong-rewarded", "wrong-above-right", "guarantee-broken"} <= found.keys()
    assert "longer ones" in found["length-pays-wrong"].message
    worst = found["wrong-rewarded"].rollouts
    assert worst and {"step", "group", "file", "row", "advantage", "right", "length", "rewards"} <= worst[0].keys()
    assert any(not row["right"] and row["advantage"] > 0 for row in worst)


def test_reward_that_rises_without_the_outcome_is_found():
    def hack(rng, k, n):
        return {"correct": (rng.random(n) < 0.3).astype(float), "brief": np.clip(rng.random(n) * 0.2 + 0.08 * k, 0, 1)}

    assert "reward-without-outcome" in codes(SPEC, hack, steps=12, prompts=16)


@pytest.mark.parametrize("value", [0.0, 0.5, None])
def test_a_component_that_never_decides_is_found(value):
    def dead(rng, k, n):
        return drawn(rng, k, n) | {"brief": [value] * n}

    text = GATED if value is not None else GATED.replace("weight", "missing: ignore, weight")
    found = codes(text.replace(", when: correct >= 1", ""), dead)
    assert "`brief`" in found["component-dead"].message


def test_a_component_that_decides_beyond_its_weight_is_found():
    def rare(rng, k, n):
        correct = np.zeros(n)
        correct[:SIZE] = rng.integers(0, 2, SIZE)
        return {"correct": correct, "brief": rng.random(n)}

    assert "`brief` has 33% of the weight" in codes(SPEC, rare)["component-decides"].message


def test_broken_guarantees_are_those_of_brute_force():
    text = SPEC.replace("0.5", "1.5") + PROMISE
    run = run_of(drawn)
    broken = 0
    for step in run.steps():
        correct, brief, _ = columns_of(step)
        a = zscores(correct, step.groups) + 1.5 * zscores(brief, step.groups)
        for g in dict.fromkeys(step.groups):
            rows = np.array([h == g for h in step.groups])
            right, wrong = a[rows & (correct == 1)], a[rows & (correct == 0)]
            broken += bool(len(right) and len(wrong) and not right.min() > wrong.max())
    found = replay(run, [rewardspec.loads(text)]).specs[0].audit
    assert broken > 3
    assert f"{broken} of 80 groups break the guarantee 'right above wrong'" in [r.message for r in found]


def test_rounding_breaks_no_guarantee():
    text = SPEC + "guarantees: {sums to nothing: mean(center(correct + brief)) == 0}\n"

    def thirds(rng, k, n):
        return {"correct": rng.integers(0, 2, n), "brief": rng.integers(0, 4, n) / 10}

    spec = rewardspec.loads(text)
    assert not [r for r in replay(run_of(thirds), [spec]).specs[0].audit if r.code == "guarantee-broken"]


# What a log can lack


def test_everything_that_a_log_lacks_is_said_at_once():
    def odd(rng, k, n):
        return {"corect": [0.0] * n, "tokens": [1.0] * n}

    with pytest.raises(BadLog, match=r"no column `correct` \(did you mean `corect`\?\), `brief`, which sums reads"):
        replay(run_of(odd), [rewardspec.loads(SPEC)])


def test_rows_that_cannot_be_read_are_named_with_their_files():
    def odd(rng, k, n):
        return drawn(rng, k, n) | {"brief": ["no"] + [0.5] * (n - 1)}

    with pytest.raises(BadLog, match=r"step_0\.jsonl:\d+: `brief` is 'no': it must be a number"):
        replay(run_of(odd), [rewardspec.loads(SPEC)])
    with pytest.raises(BadLog, match="sums, step 1"):  # outside of the domain
        replay(run_of(lambda *a: drawn(*a) | {"brief": [3.0] * a[2]}), [rewardspec.loads(SPEC)])


def test_a_run_without_an_outcome_has_no_split():
    text = SPEC.replace("outcome: correct >= 1\n", "").replace("correct", "tidy")
    run = run_of(lambda *a: {"tidy" if n == "correct" else n: v for n, v in drawn(*a).items()})
    found = replay(run, [rewardspec.loads(text)]).specs[0]
    assert found.outcome is None
    assert {(s.all_right, s.all_wrong, s.tied, s.right) for s in found.steps} == {(None,) * 4}
    assert {c.with_outcome for c in found.components} == {None}


def test_an_outcome_that_was_not_logged_is_said():
    text = SPEC.replace("outcome: correct", "signals: {solved: {values: [0, 1]}}\noutcome: solved")
    found = replay(run_of(drawn), [rewardspec.loads(text + PROMISE)]).specs[0]
    assert {step.all_right for step in found.steps} == {None} and not found.audit
    assert found.notes == (
        "the guarantee 'right above wrong' was not looked at: the log has no column `solved`",
        "the log has no column `solved`, which the outcome reads: nothing is known of right and wrong",
    )


def test_what_was_seen_of_a_guarantee_stays_when_its_column_ends():
    spec = rewardspec.loads(
        SPEC + "signals: {extra: {values: [0, 1]}}\nguarantees: {never: extra == 1 or advantage <= 0}\n"
    )

    def ends(rng, k, n):
        return drawn(rng, k, n) | ({"extra": [0.0] * n} if k < 3 else {})

    found = replay(run_of(ends), [spec]).specs[0]
    assert [r.code for r in found.audit][:1] == ["guarantee-broken"]
    assert "the guarantee 'never' was not looked at: the log has no column `extra` from step 4 on" in found.notes


def test_groups_that_exact_arithmetic_does_not_decide_are_counted(monkeypatch):
    monkeypatch.setattr(guarantees, "MOST_DECIDED", 3)
    found = replay(run_of(drawn), [rewardspec.loads(SPEC + "guarantees: {never: advantage <= 0}\n")]).specs[0]
    (note,) = found.notes
    (left,) = re.findall(r"may be broken in (\d+) groups more", note)
    assert "at least 3 of" in found.audit[0].message and int(left) > 3
    monkeypatch.setattr(guarantees.Broken, "_breaks", lambda *_: None)
    found = replay(run_of(drawn), [rewardspec.loads(SPEC + "guarantees: {never: advantage <= 0}\n")]).specs[0]
    (note,) = found.notes
    assert re.findall(r"in (\d+) groups more", note) == [str(int(left) + 3)]
    assert "guarantee-broken" not in [r.code for r in found.audit]


def test_groups_by_the_value_of_a_column():
    run = run_of(drawn)
    rows = replay(run, [rewardspec.loads(GATED)], by="source").specs[0].by
    assert {row.value for row in rows} == {"a", "b"} and sum(row.groups for row in rows) == 80
    every = replay(run, [rewardspec.loads(GATED)]).specs[0].steps
    assert sum(row.groups * row.groups_without_signal for row in rows) == pytest.approx(
        sum(step.groups * step.groups_without_signal for step in every)
    )
    with pytest.raises(BadLog, match="no column `level`"):
        replay(run, [rewardspec.loads(GATED)], by="level")


def test_logged_advantages_are_compared():
    def logged(rng, k, n):
        found = drawn(rng, k, n)
        groups = [i // SIZE for i in range(n)]
        a = zscores(found["correct"], groups) + 0.5 * zscores(found["brief"], groups)
        return found | {"advantage": a + 0.25 * (k == 3)}

    found = replay(run_of(logged), [rewardspec.loads(SPEC)]).specs[0].logged
    assert (found.rollouts, found.largest) == (640, pytest.approx(0.25, abs=1e-6))


def test_state_goes_from_step_to_step_and_turns_are_pooled():
    text = """\
rewardspec: 1
name: turns
lists: {turn: {}}
signals: {useful: {values: [0, 1], level: turn}}
components: {correct: {values: [0, 1]}}
outcome: correct >= 1
state: {scale: {init: 1, range: [0, 1000], update: scale * 2}}
advantage: center(useful) * scale
"""
    turns = [[1], [], [0, 1], [0]]

    def read():
        for k in range(2):
            yield Step(k, [0, 0, 1, 1], {"useful": turns, "correct": [1, 0, 1, 1]})

    found = replay(Run((), "test", (), read), [rewardspec.loads(text)]).specs[0]
    # group 0 has one turn, so no spread; group 1 has 0, 1 and 0
    assert [step.groups_without_signal for step in found.steps] == [0.5, 0.5]
    assert [step.advantage_spread for step in found.steps] == pytest.approx([0.5, 1])
    assert found.notes == ("its state begins at its first value, and steps that were not logged did not change it",)


# Suggestions


@pytest.mark.slow
def test_suggestions_leave_fewer_dead_groups_and_are_what_they_say():
    """Two weights that cancel: right and long is worth as much as wrong and brief."""

    def rows(rng, k, n):
        correct = (rng.random(n) < rng.choice([0.0, 0.5, 1.0], n // SIZE).repeat(SIZE)).astype(float)
        return {"correct": correct, "brief": 1 - correct}

    text = SPEC.replace("weight: 0.5", "weight: 1").replace("range", "values").replace("decoupled", "grpo")
    run, spec = run_of(rows), rewardspec.loads(text)
    now = replay(run, [spec]).specs[0]
    assert {step.groups_without_signal for step in now.steps} == {1.0}
    found = suggest(run, spec, now)
    assert "correct: {weight: 2}" in [one.change for one in found]
    for one in found:
        name, _, weight = one.change.partition(": {weight: ")
        old = "correct: {values: [0, 1]" if name == "correct" else "brief: {values: [0, 1], weight: 1"
        changed = text.replace(old, old.replace(", weight: 1", "") + f", weight: {weight[:-1]}")
        steps = replay(run, [rewardspec.loads(changed)]).specs[0].steps
        dead = sum(step.groups * step.groups_without_signal for step in steps) / 80
        assert (one.groups_without_signal, one.was) == (pytest.approx(dead), 1.0) and dead < 1


@pytest.mark.slow
def test_no_suggestion_breaks_a_guarantee_that_is_kept():
    run = run_of(lambda *a: drawn(*a) | {"brief": a[0].integers(0, 2, a[2])}, steps=3)
    spec = rewardspec.loads(GATED.replace("range", "values").replace("decoupled", "grpo") + PROMISE)
    found = suggest(run, spec, replay(run, [spec]).specs[0])
    assert all(one.kept == ("right above wrong",) for one in found)


# Conditions, and sums


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("groups_without_signal > 0.1", "groups_without_signal is"), ("groups_without_signal > 0.99", None),
        ("all_right>=0", "all_right is"), ("warning", "component-dead"), ("error", None),
        ("component-dead", "component-dead"), ("wrong-above-right", None), ("killed > 0", None),
    ],
)  # fmt: skip
def test_conditions_of_a_replay(text, said):
    found = replay(run_of(lambda *a: drawn(*a) | {"brief": [0.0] * a[2]}), [rewardspec.loads(GATED)])
    holds = condition_of(text).holds(found)
    assert (holds is None) if said is None else holds.startswith(said)


@pytest.mark.parametrize("text", ["", "dead > 1", "groups_without_signal", "groups_without_signal > 1.2.3", "> 3"])
def test_a_condition_that_cannot_be_read_says_what_can(text):
    with pytest.raises(ValueError, match=r"component-dead.*groups_without_signal"):
        condition_of(text)


def test_moments_of_parts_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    x, y = 1e6 + rng.random(500), rng.random(500)
    y[7] = np.nan
    found = Moments()
    for part in np.array_split(np.arange(500), 7):
        found.add(x[part], y[part])
    there = ~np.isnan(y)
    assert found.count == 499
    assert found.std == pytest.approx(x[there].std(), rel=1e-7)
    assert found.correlation == pytest.approx(np.corrcoef(x[there], y[there])[0, 1], rel=1e-6)
    flat = Moments()
    flat.add(np.full(9, 0.1), rng.random(9))
    assert flat.correlation is None
