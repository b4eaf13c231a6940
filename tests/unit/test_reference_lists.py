"""The second reading of lists, ids and state: hand calculations, which the package has no part in."""

from fractions import Fraction as F

import pytest
from reference.interpreter import Batch, RolloutError, initial_state, interpret
from reference.measured import Id
from reference.nodes import SpecError
from reference.reader import Reader

# p1: 1 3; p2: 2; p3: nothing | q1: 0 4 8
X = [[1, 3], [2], [], [0, 4, 8]]
GROUPS = ["p", "p", "p", "q"]
HEAD = """rewardspec: 1
lists: {turn: {ordered: true}}
signals:
  x: {range: [-100, 100], level: turn, missing: ignore}
components:
  a: {values: [0, 1]}
  tool: %s
numerics: {eps: 0}
advantage: %s
"""


def exact(given):
    """With Fractions for numbers."""
    if isinstance(given, dict):
        return {name: exact(v) for name, v in given.items()}
    if isinstance(given, list):
        return [exact(v) for v in given]
    return F(str(given)) if isinstance(given, int | float) else given


def call(text, columns, groups=GROUPS, **more):
    return interpret(Reader(text), Batch(exact(columns), groups, **more))


def floats(values):
    return [None if v is None else float(v.value) for v in values]


def tool(expression, x=X):
    """The component `tool` on the four rollouts."""
    columns, long = {"x": x, "a": [1, 0, 0, 1]}, {"turn": [len(items) for items in x]}
    return floats(call(HEAD % (f"'{expression}'", "a"), columns, lengths=long).rewards["tool"])


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        # one value for each rollout, of its items: of none, what a reduction of nothing is
        ("sum(x, over=rollout)", [4, 2, 0, 12]),
        ("mean(x, over=rollout)", [2, 2, None, 4]),
        ("count(x, over=rollout)", [2, 1, 0, 3]),
        ("max(x, over=rollout, where=x < 4)", [3, 2, None, 0]),
        ("all(x > 0, over=rollout)", [1, 1, 1, 0]),
        ("any(x > 3, over=rollout)", [0, 0, 0, 1]),
        ("quantile(x, 0.5, over=rollout)", [2, 2, None, 4]),
        ("kth(x, 2, over=rollout)", [1, None, None, 4]),
        ("var(x, over=rollout, ddof=0)", [1, 0, 0, F(32, 3)]),
        # over the group all of its items are pooled: a long rollout counts more, unless it is reduced first
        ("mean(x)", [2, 2, 2, 4]),
        ("mean(mean(x, over=rollout))", [2, 2, 2, 4]),
        ("sum(x, over=batch)", [18] * 4),
        ("mean(x, over=batch)", [3] * 4),
        ("count(x)", [3, 3, 3, 3]),
        # one for each item
        ("x - mean(x)", [-1, 1, 0, -4, 0, 4]),
        ("x - mean(x, over=rollout)", [-1, 1, 0, -4, 0, 4]),
        ("rank(x)", [1, 3, 2, 1, 2, 3]),
        ("rank(x, over=batch)", [2, 4, 3, 1, 5, 6]),
        ("rank(x, over=rollout)", [1, 2, 1, 1, 2, 3]),
        ("std_others(x, over=rollout, ddof=0)", [0, 0, 0, 2, 4, 2]),
        ("position", [1, 2, 1, 1, 2, 3]),
        ("position(turn) * 10", [10, 20, 10, 10, 20, 30]),
        ("mean(x, by=position)", [1.5, 3, 1.5, 0, 4, 8]),
        ("mean(x, over=batch, by=position)", [1, 3.5, 1, 1, 3.5, 8]),
        ("sum(x, over=rollout, by=position > 1)", [1, 3, 2, 0, 12, 12]),
        ("x + a", [2, 4, 2, 1, 5, 9]),
        ("x * max(position, over=rollout)", [2, 6, 2, 0, 12, 24]),
        # along an ordered list
        ("before(x)", [None, 1, None, None, 0, 4]),
        ("after(x)", [3, None, None, 4, 8, None]),
        ("so_far(x)", [1, 4, 2, 0, 4, 12]),
        ("returns(x)", [4, 3, 2, 12, 12, 8]),
        ("returns(x, gamma=0.5)", [2.5, 3, 2, 4, 8, 8]),
        ("returns(x, gamma=0)", [1, 3, 2, 0, 4, 8]),
        ("coalesce(before(x), -1) < x", [1, 1, 1, 1, 1, 1]),
        ("returns(a)", None),
        ("before(mean(x, over=rollout))", None),
        ("mean(a, over=rollout)", None),
        ("mean(a, where=x > 1)", None),
        ("mean(a, by=position)", None),
        ("sum(sum(x, over=rollout), over=rollout)", None),
        ("returns(x, gamma=2)", None),
        ("returns(x, gamma=a)", None),
        ("so_far(x, over=group)", None),
        ("before(x, 2)", None),
        ("position(a)", None),
    ],
)
def test_of_items(expression, values):
    if values is None:
        with pytest.raises(SpecError):
            tool(expression)
    else:
        assert tool(expression) == pytest.approx(values)


def test_a_missing_item_takes_no_part():
    x = [[1, None], [2], [], [None, 4, 8]]
    assert tool("sum(x, over=rollout)", x) == [1, 2, 0, 12]
    assert tool("count(x, over=rollout)", x) == [1, 1, 0, 2]
    assert tool("position", x) == [1, 2, 1, 1, 2, 3]
    assert tool("before(x)", x) == [None, 1, None, None, None, 4]
    assert tool("after(x)", x) == [None, None, None, 4, 8, None]
    assert tool("so_far(x)", x) == [1, 1, 2, 0, 4, 12]
    assert tool("returns(x, gamma=0.5)", x) == [1, 0, 2, 4, 8, 8]
    assert tool("rank(x)", x) == [1, None, 2, None, 1, 2]
    assert tool("mean(x)", x) == [1.5, 1.5, 1.5, 6]


def test_each_z_score_at_its_own_level_then_spread_and_summed():
    # a: 1 0 1 | 0 0, z in p (1, -2, 1) / sqrt(3); tool in p: 0 1 | 1 (of p3; p2 has none), weight 1/2
    text = """rewardspec: 1
lists: {turn: {ordered: true}}
components:
  a: {values: [0, 1]}
  tool: {values: [0, 1], level: turn, weight: 0.5}
advantage: decoupled
numerics: {eps: 0}
"""
    columns = {"a": [1, 0, 1, 0, 0], "tool": [[0, 1], [], [1], [0], [0, 0]]}
    got = floats(call(text, columns, list("pppqq")).advantages)
    low, high = -2 / 3**0.5, 1 / 3**0.5  # of 0 1 1: mean 2/3, std sqrt(1/3)
    z = 1 / 3**0.5
    assert got == pytest.approx([z + 0.5 * low, z + 0.5 * high, z + 0.5 * high, 0, 0, 0])
    for scheme in (
        "total",
        "grpo",
        "dr_grpo",
        "rloo",
        "batch_grpo",
        "reinforce_baseline",
        "sum(rewards, over=components)",
    ):
        with pytest.raises(SpecError):
            Reader(text.replace("advantage: decoupled", f"advantage: {scheme}"))
    got = floats(call(text.replace("advantage: decoupled", "advantage: gdpo"), columns, list("pppqq")).advantages)
    whole = [z + 0.5 * low, z + 0.5 * high, z + 0.5 * high, 0, 0, 0]
    mean = sum(whole) / 6
    std = (sum((v - mean) ** 2 for v in whole) / 5) ** 0.5
    assert got == pytest.approx([(v - mean) / std for v in whole])


def test_components_of_one_list_are_summed_item_by_item():
    text = """rewardspec: 1
lists: {turn: {}}
components:
  a: {values: [0, 1], level: turn}
  b: {range: [0, 1], level: turn, weight: 2}
advantage: dr_grpo
"""
    # totals 0 3 | 2 in p, mean 5/3
    got = floats(call(text, {"a": [[0, 1], [0]], "b": [[0, 1], [1]]}, list("pp")).advantages)
    assert got == pytest.approx([-5 / 3, 4 / 3, 1 / 3])


def test_a_gate_of_items_makes_a_component_of_items():
    text = HEAD % ("{expr: a, when: 'x > 2', otherwise: ignore}", "decoupled")
    columns = {"x": X, "a": [1, 0, 0, 1]}
    assert floats(call(text, columns).rewards["tool"]) == [None, 1, None, None, 1, 1]
    assert len(call(text, columns).advantages) == 6


def test_nothing_measured_in_an_item_is_no_advantage():
    text = """rewardspec: 1
lists: {turn: {}}
components:
  tool: {range: [0, 9], level: turn, missing: ignore}
advantage: coalesce(tool, 7) + 1
"""
    assert floats(call(text, {"tool": [[1, None], []]}, list("pq")).advantages) == [2, 0]
    pooled = text.replace("coalesce(tool, 7) + 1", "sum(tool, over=rollout) + 1")
    # a list without items is not missing: the sum of none is 0
    assert floats(call(pooled, {"tool": [[1, None], [], [None]]}, list("pqq")).advantages) == [2, 1, 0]


@pytest.mark.parametrize(
    "columns",
    [
        {"x": X, "y": [[0, 0], [0], [], [0, 0]]},
        {"x": X, "y": [[0, 0], [0], [], None]},
        {"x": X, "y": [[0, 0], [0], [], [0, None, 0]]},
        {"x": X, "y": [0, 0, 0, 0]},
        {"x": X},
    ],
)
def test_lists_that_do_not_fit(columns):
    text = """rewardspec: 1
lists: {turn: {}}
signals:
  x: {range: [0, 9], level: turn}
  y: {range: [0, 9], level: turn}
components: {t: x + y}
advantage: decoupled
"""
    call(text, {"x": X, "y": [[0, 0], [0], [], [0, 0, 0]]})
    with pytest.raises(RolloutError):
        call(text, columns)


TWO = """rewardspec: 1
lists: {turn: {ordered: true}, criterion: {}}
signals:
  x: {range: [0, 9], level: turn}
  met: {values: [0, 1], level: criterion}
  points: {range: [-10, 10], level: criterion}
components:
  a: {values: [0, 1]}
  r: %s
advantage: %s
"""


@pytest.mark.parametrize(
    "expression",
    [
        "x + met",
        "sum(x, over=rollout, where=met)",
        "mean(x, by=met)",
        "position",
        "so_far(met)",
        "coalesce(x, met)",
        "position(turn) == position(criterion)",
    ],
)
def test_two_lists_do_not_meet(expression):
    with pytest.raises(SpecError):
        Reader(TWO % (f"'{expression}'", "a"))


def test_two_lists_meet_reduced():
    text = TWO % ("'sum(met * points, over=rollout) + max(position(turn), over=rollout)'", "a")
    columns = {"x": [[1, 2], [3]], "met": [[1, 0, 1], [1]], "points": [[5, 1, -2], [4]], "a": [0, 1]}
    assert floats(call(text, columns, list("pp"), lengths={"turn": [2, 1]}).rewards["r"]) == [5, 5]
    with pytest.raises(RolloutError):  # no column of turns is read
        call(text, columns, list("pp"))
    with pytest.raises(SpecError):
        Reader(TWO % ("{expr: x}\n  s: {expr: met}", "decoupled"))


def test_a_rubric_whose_criteria_differ_by_prompt():
    text = """rewardspec: 1
lists: {criterion: {}}
outcome: all(met, over=rollout, where=must)
signals:
  met: {values: [0, 1], level: criterion, missing: ignore}
  points: {range: [-10, 10], level: criterion}
  must: {values: [0, 1], level: criterion}
components:
  rubric:
    expr: clip(sum(met * points, over=rollout) / sum(max(points, 0), over=rollout), 0, 1)
    when: all(met, over=rollout, where=must)
advantage: dr_grpo
"""
    columns = {
        "points": [[5, 3, -4], [5, 3, -4], [2], [2]],
        "met": [[1, 0, 1], [1, 1, 0], [0], [1]],
        "must": [[1, 0, 0], [1, 0, 0], [1], [1]],
    }
    out = call(text, columns, list("ppqq"))
    assert floats(out.rewards["rubric"]) == [1 / 8, 1, 0, 1]
    assert floats(out.advantages) == [-7 / 16, 7 / 16, -0.5, 0.5]


# Ids ---------------------------------------------------------------------------------------------

IDS = """rewardspec: 1
lists: {turn: {}}
signals:
  prompt: {id: true, level: group}
  episode: {id: true, missing: ignore}
  other: {id: true}
  here: {id: true, level: turn}
  task: {values: [ask, do]}
components:
  a: {range: [0, 9]}
  r: %s
advantage: a
"""


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("mean(a, by=episode)", [2, 2, 2, 4]),  # 1 3 of episode 7, 2 of none, 4
        ("sum(a, over=batch, by=prompt)", [6, 6, 6, 4]),
        ("episode == other", [1, 0, None, 0]),
        ("1 if episode != other else 0", [0, 1, 0, 1]),
        ("count(episode)", [2, 2, 2, 1]),
        ("present(episode)", [1, 1, 0, 1]),
        ("mean(position, by=here)", [1, 2, 1, 1, 2.5, 2.5]),
        ("episode == prompt", [1, 1, None, 1]),
    ],
)
def test_ids(expression, values):
    text = IDS % f"'{expression}'"
    columns = {
        "prompt": [7, 7, 7, ("x", 1)],
        "episode": [7, 7.0, None, ("x", 1)],
        "other": [7, "7", 0, 7],
        "here": [["s", "t"], ["s"], [], ["s", "t", "t"]],
        "task": ["do"] * 4,
        "a": [F(1), F(3), F(2), F(4)],
    }
    out = interpret(Reader(text), Batch(columns, GROUPS, lengths={"turn": [2, 1, 0, 3]}))
    assert floats(out.rewards["r"]) == values


@pytest.mark.parametrize(
    "expression",
    [
        "episode + 1",
        "max(episode)",
        "rank(other)",
        "episode < other",
        "episode == 1",
        "episode == task",
        "sum(a, where=episode)",
        "1 if episode else 0",
        "coalesce(episode, other)",
        "before(here)",
        "episode",
        "-episode",
        "zscore(episode)",
    ],
)
def test_what_ids_are_not_for(expression):
    with pytest.raises(SpecError):
        Reader(IDS % f"'{expression}'")


# State -------------------------------------------------------------------------------------------

STATE = """rewardspec: 1
signals:
  prompt: {id: true, level: group, missing: ignore}
  tokens: {range: [0, .inf]}
state:
  price: {init: 0.1, range: [0, 2], update: "price + mean(tokens, over=batch) / 4 - 1"}
  level_of: {init: 0.5, range: [0, 1], by: prompt, update: 0.5 * level_of + 0.5 * mean(correct), most: 3}
components:
  correct: {values: [0, 1], missing: ignore}
keep: mean(correct) < 1
advantage: correct - level_of - price * tokens
"""


def stateful(columns, groups, state, text=STATE):
    out = interpret(Reader(text), Batch(exact(columns), groups, state=state))
    after = {
        name: [[key, float(v.value)] for key, v in held] if isinstance(held, list) else float(held.value)
        for name, held in out.state.items()
    }
    return floats(out.advantages), after


def test_state_is_what_it_was_before_the_batch():
    before = initial_state(Reader(STATE))
    assert before == {"price": F(1, 10), "level_of": []}
    columns = {"prompt": ["p", "p", "q", "q"], "tokens": [0, 4, 8, 8], "correct": [0, 1, 1, 1]}
    got, after = stateful(columns, list("ppqq"), before)
    assert got == pytest.approx([-0.5, 0.1, 0, 0])  # q is not kept
    # every group counts: mean tokens 5; p: 1/4 + 1/4, q: 1/4 + 1/2
    assert after == {"price": pytest.approx(0.35), "level_of": [["p", 0.5], ["q", 0.75]]}
    columns = {"prompt": ["q", "p", "r"], "tokens": [100] * 3, "correct": [0, 0, None]}
    got, after = stateful(columns, [0, 1, 2], after)
    assert got == pytest.approx([-0.75 - 35, -0.5 - 35, 0])
    # clipped; seen in this order; r is seen and has nothing to learn from
    assert after == {"price": 2, "level_of": [["q", 0.375], ["p", 0.25], ["r", 0.5]]}
    columns = {"prompt": ["s", "p", None], "tokens": [4] * 3, "correct": [0, None, 0]}
    got, after = stateful(columns, [0, 1, 2], after)
    assert got == pytest.approx([-0.5 - 8, 0, -0.5 - 8])  # nothing was measured in p; no key is as a new one
    assert after["level_of"] == [["r", 0.5], ["s", 0.25], ["p", 0.25]]  # q was not seen for longest


def test_two_groups_of_one_key_give_the_mean_of_their_updates():
    columns = {"prompt": ["p", "p", "q", "p"], "tokens": [4] * 4, "correct": [0, 1, 1, None]}
    _, after = stateful(columns, [0, 1, 2, 3], {"price": F(1, 10), "level_of": [["p", F(1, 2)]]})
    assert after["level_of"] == [["p", 0.5], ["q", 0.75]]


@pytest.mark.parametrize(
    "state",
    [None, {}, {"price": 0.1}, {"price": 3, "level_of": []}, {"price": 0.1, "level_of": [], "more": 1}],
)
def test_state_that_does_not_fit(state):
    with pytest.raises(RolloutError):
        stateful({"prompt": ["p"], "tokens": [4], "correct": [0]}, [0], state)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("init: 0.1", "init: 3"),
        ("by: prompt, ", "by: tokens, "),
        ("by: prompt, ", ""),
        ("mean(tokens, over=batch) / 4", "tokens"),
        ("mean(tokens, over=batch) / 4", "mean(tokens)"),
        ("+ 0.5 * mean(correct)", "+ correct"),
    ],
)
def test_state_that_is_not_well_formed(old, new):
    assert old in STATE
    with pytest.raises(SpecError):
        Reader(STATE.replace(old, new))


def test_keys_of_state_are_ids():
    assert Id(1) == Id(1.0) != Id("1")
