"""What is counted and proved of rollouts with lists, against all groups tried by the compiled function."""

import json
import math
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.ops import effort

HEAD = """rewardspec: 1
name: turns
lists: {turn: {ordered: true}}
signals:
  called: {values: [0, 1], level: turn}
components:
  outcome: {values: [0, 1]}
  tool: {expr: "%s", weight: 0.5}
numerics: {eps: 0}
advantage: "%s"
"""
ITEMS = 2


def rollouts(rates, items=ITEMS):
    """(outcome, called) of every rollout, with its probability; all lengths are equally likely."""
    chance = lambda name, value: rates.get(name, 0.5) if value else 1 - rates.get(name, 0.5)  # noqa: E731
    for outcome in (0.0, 1.0):
        for n in range(items + 1):
            for called in product((0.0, 1.0), repeat=n):
                odds = math.prod(chance("called", v) for v in called) / (items + 1)
                yield (outcome, called), chance("outcome", outcome) * odds


def run(fn, members):
    columns = {"outcome": np.array([m[0] for m in members]), "called": [np.array(m[1]) for m in members]}
    used = {n: columns[n] for n in fn.spec.columns}
    more = {} if "called" in used else {"lengths": {"turn": np.array([len(m[1]) for m in members])}}
    return fn(used, len(members), **(more if "lists" in fn.spec.needs else {}))


def groups(size, rates=None, items=ITEMS):
    """(rollouts, probability) of every group, up to order."""
    for some in combinations_with_replacement(list(rollouts(rates or {}, items)), size):
        orders = math.factorial(size)
        for one in set(some):
            orders //= math.factorial(some.count(one))
        yield [m for m, _ in some], orders * math.prod(p for _, p in some)


def rounded(value):
    return tuple(round(v, 6) + 0.0 for v in value) if isinstance(value, list) else round(value, 6) + 0.0


CASES = [
    ("called", "decoupled"),
    ("called", "tool - mean(tool) + 0.1 * position"),
    ("returns(called)", "decoupled"),
    ("so_far(called) * outcome", "zscore(tool, by=position)"),
    ("called", "zscore(outcome) + rank(called, over=rollout)"),
    ("sum(called, over=rollout)", "grpo"),
    ("count(position, over=rollout)", "dr_grpo"),
    ("called", "0 * called"),
    ("called", "outcome * mean(0 * called + 1)  if any(called) else outcome"),
    ("outcome", "outcome - mean(outcome) + 0 * position"),
    ("coalesce(before(called), 0)", "tool + outcome - mean(mean(tool, over=rollout), where=outcome) if outcome else 0"),
]


@pytest.mark.slow
@pytest.mark.parametrize("rates", [{}, {"called": 0.3, "outcome": 0.25}], ids=["evenly", "at rates"])
@pytest.mark.parametrize(("tool", "advantage"), CASES, ids=[advantage for _, advantage in CASES])
def test_counts_and_signal_are_those_of_all_groups(tool, advantage, rates):
    spec = rewardspec.loads(HEAD % (tool, advantage))
    fn = rewardspec.compile(spec)
    seen, rewards = set(), set()
    dead = zero = spread = 0.0
    for members, mass in groups(2, rates):
        out = run(fn, members)
        values = [rounded(v) for v in (out.nested() if hasattr(out, "nested") else out.advantages.tolist())]
        seen.add(tuple(sorted(values, key=str)))
        tools = out.rewards["tool"].tolist()
        long = [len(m[1]) for m in members]
        tools = [tools[: long[0]], tools[long[0] :]] if spec.program.components[1].shaped.level.listed else tools
        rewards.add(tuple(sorted(((m[0], rounded(t)) for m, t in zip(members, tools, strict=True)), key=str)))
        items = [v for value in values for v in (value if isinstance(value, tuple) else [value])]
        dead += mass * (len(set(items)) <= 1)
        zero += mass * sum(not any(v if isinstance(v, tuple) else [v]) for v in values) / 2
        spread += mass * (max(items) - min(items) if items else 0)
    read = {name: rate for name, rate in rates.items() if name in spec.columns}
    (found,) = rewardspec.simulate(spec, 2, rates=read)
    assert (found.exact, found.items) == (True, ITEMS if "lists" in spec.needs else None)
    assert (found.advantage_groups, found.reward_groups) == (len(seen), len(rewards))
    signal = found.signal
    assert signal.groups_without_signal == pytest.approx(dead)
    assert signal.rollouts_without_signal == pytest.approx(zero)
    assert signal.spread == pytest.approx(spread, abs=1e-5)
    if signal.shares is not None:
        assert sum(signal.shares.values()) == pytest.approx(1)


def holds(out, members, items):
    """Whether a group keeps the guarantees below, in floats."""
    values = [v if isinstance(v, list) else [v] for v in out.nested()]
    right = [v for value, m in zip(values, members, strict=True) if m[0] for v in value]
    wrong = [v for value, m in zip(values, members, strict=True) if not m[0] for v in value]
    everything = right + wrong
    return {
        "bounded": all(abs(v) <= 2 + 1e-6 for v in everything),
        "tight": all(abs(v) <= 1 + 1e-6 for v in everything),
        "right first": not right or not wrong or min(right) > max(wrong) + 1e-6,
        "each item": all(v < 1.5 - 1e-6 for v in everything),
    }


GUARANTEES = """guarantees:
  bounded: within(2)
  tight: within(1)
  right first: right_above_wrong(outcome)
  each item: advantage < 1.5
"""


@pytest.mark.slow
@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("advantage", ["decoupled", "outcome - mean(outcome) + 1.6 * (tool - mean(tool))"])
def test_verdicts_are_those_of_all_groups(advantage, items):
    spec = rewardspec.loads(HEAD % ("called", advantage) + GUARANTEES)
    fn = rewardspec.compile(spec)
    kept = dict.fromkeys(spec.program.guarantees, True)
    for size in (2, 3):
        for members, _ in groups(size, items=items):
            found = holds(run(fn, members), members, items)
            kept = {name: known and found[name] for name, known in kept.items()}
    verdicts = {v.name: v for v in rewardspec.verify(spec, [2, 3], items=items)}
    assert {name: v.status for name, v in verdicts.items()} == {
        name: "proved" if keeps else "refuted" for name, keeps in kept.items()
    }
    assert {"proved", "refuted"} == {v.status for v in verdicts.values()}
    for name, verdict in verdicts.items():
        assert verdict.items == items
        if verdict.proved:
            assert verdict.reason == f"for lists of up to {items} item{'s' * (items > 1)}"
            assert f'"items": {items}' in str(verdict.to_json()).replace("'", '"')
            continue
        shown = verdict.counterexample
        members = [(o, tuple(c)) for o, c in zip(shown.columns["outcome"], shown.columns["called"], strict=True)]
        out = run(fn, members)
        assert not holds(out, members, items)[name]
        assert [pytest.approx(v, abs=1e-6) for v in out.nested()] == shown.advantages
        assert shown.breaking


def test_a_guarantee_that_reads_no_list_is_proved_for_all_lists():
    text = HEAD % ("called", "decoupled") + "guarantees: {group: std(outcome) <= 1, items: std(called) <= 0.9}\n"
    verdicts = {v.name: v for v in rewardspec.verify(rewardspec.loads(text), [2])}
    assert [(v.status, v.items) for v in verdicts.values()] == [("proved", None), ("proved", 2)]
    assert verdicts["group"].reason == "" and "2 items" in verdicts["items"].reason


def test_a_condition_that_no_group_meets_is_said():
    text = HEAD % ("called", "decoupled") + "guarantees: {never: 'min(called, where=called > 1) > 0'}\n"
    (verdict,) = rewardspec.verify(rewardspec.loads(text), [2])
    assert verdict.proved and "no group meets its condition" in verdict.reason


def test_differences_are_those_of_all_groups():
    before, after = (rewardspec.loads(HEAD % (tool, "decoupled")) for tool in ("called", "called * outcome"))
    one, two = rewardspec.compile(before), rewardspec.compile(after)
    changed = [
        members
        for members, _ in groups(2)
        if not np.allclose(run(one, members).advantages, run(two, members).advantages, atol=1e-6)
    ]
    found = rewardspec.diff(before, after, [2])
    (size,) = found.sizes
    assert (size.groups, size.changed, found.items) == (sum(1 for _ in groups(2)), len(changed), 2)
    assert not found.exact and "lists of more than 2 items" in found.left_out
    columns, was, becomes = size.example[0]
    assert isinstance(columns["called"], list) and len(was) == len(becomes) == len(columns["called"])
    assert rewardspec.diff(before, before, 2).is_none


def test_groups_that_raise_an_error_are_compared_with_those_that_do_not():
    """By hand: of 10 groups of two, `b` is 0 in all rollouts of three; elsewhere the means are of one or two."""
    text = "rewardspec: 1\ncomponents: {{a: {{values: [0, 1]}}, b: {{values: [0, 1]}}}}\nadvantage: {}\n"
    advantages = "a - mean(a, where=b)", "a - coalesce(mean(a, where=b), 5)", "a / b"
    raises, not_so, divides = (rewardspec.loads(text.format(one)) for one in advantages)
    for before, after in ((raises, not_so), (not_so, raises)):
        found = rewardspec.diff(before, after, 2)
        (two,) = found.sizes
        assert (two.groups, two.changed, two.signs, two.died, two.revived) == (10, 3, 0, 0, 0)
        assert {*two.example[0][1:]} == {None, -5.0}
        assert found.left_out == ["signs and signal of groups that raise an error"]
    (two,) = rewardspec.diff(divides, raises, 2).sizes  # the same where both raise, and where all `a` are 0, `b` 1
    assert two.changed == 10 - 3 - 1


def test_advantages_of_two_lists_are_not_compared():
    text = """rewardspec: 1
lists: {{turn: {{}}, tool: {{}}}}
signals: {{x: {{values: [0, 1], level: turn}}, y: {{values: [0, 1], level: tool}}}}
components: {{a: {{values: [0, 1]}}}}
advantage: {}
"""
    turns, tools = (rewardspec.loads(text.format(f"a - mean(a) + center({name})")) for name in "xy")
    found = rewardspec.diff(turns, tools, 2)
    assert found.sizes == [] and not found.exact and [change.what for change in found.changes] == ["advantage"]
    assert "one has an advantage for each turn, the other for each tool, so no group was compared" in found.left_out


@pytest.mark.parametrize(
    ("tool", "name", "words"),
    [
        ("so_far(called)", "tool", "depends on more than one item of a list: give a rate for `called`"),
        ("any(called, over=rollout)", "tool", "depends on more than one item of a list: give a rate for `called`"),
        ("called + outcome", "tool", "does not depend on exactly one rollout column"),
    ],
)
def test_rates_of_more_than_an_item_are_refused(tool, name, words):
    spec = rewardspec.loads(HEAD % (tool, "decoupled"))
    with pytest.raises(ValueError, match=words):
        rewardspec.simulate(spec, 2, rates={name: 0.5})


@pytest.mark.slow
def test_commands_say_how_long_the_lists_were(tmp_path):
    spec = tmp_path / "turns.yaml"
    spec.write_text(HEAD % ("called", "decoupled") + GUARANTEES)
    said = CliRunner().invoke(app, ["verify", str(spec), "-g", "2", "--items", "1"])
    assert said.exit_code == 1 and "for lists of up to 1 item" in said.output
    assert "[1]" in said.output  # the items of a rollout
    said = CliRunner().invoke(app, ["simulate", str(spec), "-g", "2", "--items", "3"])
    assert said.exit_code == 0 and "counted for lists of up to 3 items" in said.output
    said = CliRunner().invoke(app, ["diff", str(spec), str(spec), "-g", "2"])
    assert said.exit_code == 0 and "no difference found for lists of up to 2 items" in said.output
    said = CliRunner().invoke(app, ["verify", str(spec), "-g", "2", "--items", "1", "--solve", "weight:tool"])
    assert "Traceback" not in said.output


@pytest.mark.parametrize("items", [-1, 1.0, 17])
def test_a_wrong_number_of_items_is_refused(items):
    spec = rewardspec.loads(HEAD % ("called", "decoupled"))
    for command in (lambda: rewardspec.verify(spec, 2, items=items), lambda: rewardspec.diff(spec, spec, items=items)):
        with pytest.raises(ValueError, match="items must be an integer from 0 to 16"):
            command()


def test_logs_with_nested_lists_are_replayed(tmp_path):
    rows = [m for members, _ in list(groups(2))[::7] for m in members]
    log = tmp_path / "log.jsonl"
    lines = [{"group": i // 2, "outcome": m[0], "called": list(m[1])} for i, m in enumerate(rows)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = rewardspec.loads(HEAD % ("called", "decoupled"))
    out = rewardspec.compile(spec)(
        {"outcome": [m[0] for m in rows], "called": [list(m[1]) for m in rows]}, [i // 2 for i in range(len(rows))]
    )
    found, said = rewardspec.simulate(spec, rollouts=log), out.metrics()
    assert (found.rollouts, found.groups) == (len(rows), len(rows) // 2)
    for name in ("groups_without_signal", "rollouts_without_signal"):
        assert getattr(found.signal, name) == pytest.approx(said[name], abs=1e-6)
    assert found.signal.spread == pytest.approx(said["advantage_spread"], abs=1e-6)
    assert sum(found.signal.shares.values()) == pytest.approx(1, abs=1e-5)
    summed = [rewardspec.loads(HEAD % (tool, "grpo")) for tool in ("sum(called, over=rollout)", "outcome")]
    assert rewardspec.diff(*summed, rollouts=log).logged.changed > 0


def test_advantages_of_items_are_compared_on_a_log(tmp_path):
    """Two groups; in the second nothing is called. By hand: z-scores of two are 0.707 and -0.707."""
    rows = [(0, 1, [1, 0]), (0, 0, [1]), (1, 1, [0]), (1, 0, []), (2, 1, []), (2, 1, [])]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"group": g, "outcome": o, "called": c}) + "\n" for g, o, c in rows))
    specs = [rewardspec.loads(HEAD % ("called", text)) for text in ("outcome", "outcome - called", "called")]
    assert rewardspec.diff(specs[1], specs[1], rollouts=log).is_none
    found = rewardspec.diff(specs[1], specs[2], rollouts=log).logged  # 0, 1 | -1 || 1 and 1, 0 | 1 || 0
    assert (found.rollouts, found.groups, found.changed, found.groups_changed) == (6, 3, 3, 2)
    assert (found.signs, found.died, found.revived, found.moved) == (1, 0, 0, pytest.approx((1 + 1 + 2 + 1) / 4))
    assert found.example[0] == ({"outcome": 1, "called": [1, 0]}, [0, 1], [1, 0]) and found.example[1][1:] == (
        [-1],
        [1],
    )
    found = rewardspec.diff(specs[0], specs[2], rollouts=log).logged  # 1, 1 | 0 || 1 and 1, 0 | 1 || 0
    assert (found.changed, found.moved, found.example[0][1:]) == (3, pytest.approx(3 / 4), (1, [1, 0]))
    two = HEAD.replace("lists: {", "lists: {call: {}, ") % ("called", "position(call) + 0 * outcome")
    with pytest.raises(ValueError, match="one spec has an advantage for each call, the other for each turn"):
        rewardspec.diff(specs[1], rewardspec.loads(two), rollouts=log)


def test_a_finding_shows_a_group_with_lists_and_claims_nothing_of_longer_ones():
    text = HEAD % ("called", "decoupled") + "outcome: outcome >= 1\n"
    phantom = next(d for d in rewardspec.check(text) if d.code == "phantom-gradient")  # z-scores are 0.707, times 0.5
    assert "(outcome 0, tool [0]) gets [-0.354]; (outcome 0, tool [1]) gets [0.354]" in phantom.message
    summed = text.replace('expr: "called"', 'expr: "sum(called, over=rollout)", when: outcome >= 1')
    said = rewardspec.check(summed.replace('"decoupled"', '"grpo"'))
    assert {d.code for d in said if d.severity == "warning"} == {"more-items-rewarded", "sum-merges-groups"}
    assert next(d.message for d in said if d.code == "sum-merges-groups").endswith("for lists of up to 2 items")
    assert any("lists of more than 2 items" in d.message for d in said if d.code == "not-checked")


def test_what_is_too_much_to_decide_is_tried_everywhere_and_counted(monkeypatch):
    """A guarantee leaves others their part; groups of unlike rollouts are tried, not the plainest alone."""
    monkeypatch.setattr(effort, "MOST_EFFORT", 20_000)
    text = """rewardspec: 1
lists: {turn: {}}
signals: {called: {range: [0, 1], level: turn}, page: {id: true, level: turn}}
components: {correct: {values: [0, 1]}, tool: {expr: called}}
advantage: decoupled + zscore(called, by=page)
guarantees:
  bounded: within(100)
  order: right_above_wrong(correct)
"""
    bounded, order = rewardspec.verify(rewardspec.loads(text), [2])
    assert (order.status, len(set(order.counterexample.columns["correct"]))) == ("refuted", 2)
    assert bounded.status == "not refuted"
    assert 100 <= bounded.groups < 1000
