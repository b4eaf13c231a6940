"""Exact values of lists inside rollouts, against the compiled function and by hand."""

import math
import random
from collections import Counter
from fractions import Fraction as F

import numpy as np
import pytest
from reference.batches import batch
from reference.checks import compiled
from reference.expressions import ROLLOUT
from reference.wide import Wide

import rewardspec
from rewardspec.ir.exact import GroupEvaluator, items_of
from rewardspec.ir.graph import walk
from rewardspec.lint.facts import Facts
from rewardspec.ops.domain import Level
from rewardspec.ops.exact import Inexact
from rewardspec.ops.real import UNKNOWN


def exact(graph, node, columns, lengths, group, given, floats=False):
    """The values of a node in one group. columns: by name, a value or a list for each rollout. lengths: by list."""
    order = walk([node])
    start = [n for n in order if n.op == "column" and n.level >= Level.ROLLOUT]
    places = [graph.position(level) for level in {n.level for n in order if n.level.listed}]
    columns = {n: [tuple(v) if isinstance(v, list) else v for v in columns[n.attributes[0]]] for n in start}
    columns |= {n: [tuple(F(k + 1) for k in range(long)) for long in lengths[n.level.name]] for n in places}
    rows = list(zip(*(columns[n] for n in [*start, *places]), strict=True)) or [()] * len(next(iter(lengths.values())))
    return GroupEvaluator(node, [*start, *places], given, floats)(rows, group)


def number(value):
    return math.nan if value is None else float(value)


def close(got, values, what):
    np.testing.assert_allclose(got, [number(v) for value in values for v in items_of(value)], 1e-6, 1e-6, err_msg=what)


def compare(draft, fn, rng):
    """Exact values of one random group beside those of the compiled function."""
    data, listed = batch(draft, rng), {level: name for level, name in draft.lists.items()}
    size = len(data.groups)
    lengths = {}
    for column in draft.columns:
        values = data.columns[column.name]
        if column.level < ROLLOUT:
            values = [values[0]] * size
        values = [[within(column, v) for v in one] if isinstance(one, list) else within(column, one) for one in values]
        if column.level in listed:
            lengths[listed[column.level]] = [len(items) for items in values]
        data.columns[column.name] = values
    handed = {
        c.name: data.columns[c.name]
        if c.symbols
        else [np.array([number(v) for v in items]) for items in data.columns[c.name]]
        if c.level in listed
        else np.array([number(v) for v in data.columns[c.name]])
        for c in draft.columns
    }
    spec = fn.spec
    program = spec.varied(given={**spec.declarations.given, "eps": spec.declarations.eps}).program
    roots = {"advantage": program.advantage} | {c.name: c.shaped for c in program.components}
    read = {n.level.name for n in walk(program.roots) if n.level.listed}
    try:
        more = {"lengths": {name: np.array(lengths[name]) for name in read}} if read else {}
        out = fn(handed, [0] * size, step=data.step, total_steps=data.total_steps, **more)
    except ValueError:
        return "raises"
    for column in draft.columns:
        if column.symbols:
            names = spec.program.columns[column.name].domain.symbols
            index = {None: None} | {name: F(i) for i, name in enumerate(names)}
            data.columns[column.name] = [
                [index[v] for v in one] if isinstance(one, list) else index[one] for one in data.columns[column.name]
            ]
    group = {c.name: data.columns[c.name][0] for c in draft.columns if c.level < ROLLOUT}
    given = {"step": F(data.step), "total_steps": F(data.total_steps), "progress": F(data.step, data.total_steps)}
    for name, node in roots.items():
        got = (out.advantages if name == "advantage" else out.rewards[name]).double().numpy()
        try:
            values = exact(program.graph, node, data.columns, lengths, group, given)
        except Inexact:
            return "inexact"
        if any(v is UNKNOWN for value in values for v in items_of(value)):
            return "unknown"
        close(got, values, f"{draft.text}\n{name}")
        close(
            got,
            exact(program.graph, node, data.columns, lengths, group, given, floats=True),
            f"{draft.text}\n{name} in floats",
        )
    return "equal"


def within(column, value):
    """A value that the column takes as it is."""
    if value is None:
        return None if column.missing == "ignore" else column.values[0]
    return value if value in column.values else column.values[-1]


@pytest.mark.slow
def test_random_specs_have_the_values_of_the_compiled_function():
    said = Counter()
    for seed in range(60):
        draft = Wide(seed, kinds=("lists",)).spec()
        fn, _ = compiled(draft)
        if fn is not None:
            said[compare(draft, fn, random.Random(seed))] += 1
    assert said["equal"] > 40, said


# By hand: p1 has the items 1 3, p2 has 2, p3 has none.
HEAD = """rewardspec: 1
lists: {turn: {ordered: true}}
signals:
  x: {range: [-100, 100], level: turn, missing: ignore}
components:
  a: {values: [0, 1]}
  tool: "%s"
advantage: a
"""
X = [[F(1), F(3)], [F(2)], []]


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("sum(x, over=rollout)", [4, 2, 0]),
        ("mean(x, over=rollout)", [2, 2, None]),
        ("count(position, over=rollout)", [2, 1, 0]),
        ("all(x > 1, over=rollout)", [0, 1, 1]),
        ("mean(x)", [2, 2, 2]),
        ("mean(count(x, over=rollout))", [1, 1, 1]),
        ("mean(x, where=x > 5)", [None] * 3),
        ("sum(x, over=batch, where=x > 5)", [0] * 3),
        ("rank(x)", [(1, 3), (2,), ()]),
        ("std_others(x, over=rollout)", [(0, 0), (0,), ()]),
        ("mean(x, by=position)", [(F(3, 2), 3), (F(3, 2),), ()]),
        ("sum(x, over=rollout, by=position > 1)", [(1, 3), (2,), ()]),
        ("x - a", [(1, 3), (1,), ()]),
        ("before(x)", [(None, 1), (None,), ()]),
        ("after(x)", [(3, None), (None,), ()]),
        ("returns(x, 0.5)", [(F(5, 2), 3), (2,), ()]),
    ],
)
def test_by_hand(expression, values):
    program = rewardspec.loads(HEAD % expression).program
    node = program.components[1].shaped
    given = {"x": X, "a": [F(0), F(1), F(0)]}
    assert exact(program.graph, node, given, {"turn": [2, 1, 0]}, {}, {}) == values


@pytest.mark.parametrize(
    ("expression", "values"),
    [("so_far(x)", [UNKNOWN] * 3), ("before(x)", [None, F(1), UNKNOWN]), ("after(x)", [UNKNOWN, F(2), None])],
)
def test_an_item_too_close_to_call_is_moved_and_not_summed(expression, values):
    """A sum with it is unknown."""
    node = rewardspec.loads(HEAD % expression).program.components[1].shaped
    (column,) = (n for n in walk([node]) if n.op == "column")
    (found,) = GroupEvaluator(node, [column], {})([((F(1), UNKNOWN, F(2)),)], {})
    assert all(a is b or (b is not UNKNOWN and a == b) for a, b in zip(found, values, strict=True))


@pytest.mark.parametrize(
    ("value", "is_needed"), [("called - 1", True), ("called - min(called)", False), ("sum(cost, over=rollout)", True)]
)
def test_what_is_below_0_behind_a_gate_of_items_is_seen(value, is_needed):
    text = f"""rewardspec: 1
lists: {{turn: {{ordered: true}}}}
signals: {{called: {{values: [0, 1], level: turn}}, cost: {{range: [-2, 2], level: turn}}}}
components:
  correct: {{values: [0, 1], level: turn}}
  tool: {{expr: '{value}', when: correct >= 1}}
advantage: decoupled
"""
    if not is_needed:
        rewardspec.loads(text)
        return
    with pytest.raises(rewardspec.SpecError, match="otherwise-needed"):
        rewardspec.loads(text)


def test_a_component_of_items_is_not_taken_for_the_outcome():
    text = """rewardspec: 1
lists: {turn: {ordered: true}}
components:
  correct: {values: [0, 1], level: turn}
  brief: {values: [0, 1], when: 'any(correct >= 1, over=rollout)'}
advantage: decoupled
"""
    assert Facts(rewardspec.loads(text)).outcome is None
