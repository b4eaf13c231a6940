"""Every rule of `ir/rules.py` keeps every value: on groups of rollouts, missing values and values that fail included.

What a node is worth is found here by a reading of its own (`worth`), lazily and without any simplification.
"""

import math
from fractions import Fraction as F
from functools import cache
from itertools import product
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ

from rewardspec.ir import graph as graphs
from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node
from rewardspec.ir.rules import RULES, simplified, tried
from rewardspec.ops.domain import CONDITION, Domain, Level, finite, interval
from rewardspec.ops.operators import COMPARISONS, ELEMENTWISE, REDUCTIONS

ONE_OPERAND = {"neg", "abs", "sigmoid", "tanh", "exp", "log", "sqrt", "cos", "floor", "round", "sign"}
WHITENED = "the batch's mean of what sums to zero"


# A reading of its own ---------------------------------------------------------------------------


class Failed(Exception):
    """A value that is asked for, and is not there."""


def whole(x):
    if x != int(x):
        raise ValueError(x)
    return int(x)


PLAIN = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "neg": lambda a: -a,
    "**": lambda a, b: a**b,
    "comb": lambda n, k: math.comb(whole(n), whole(k)),
    "abs": lambda a: a if a > 0 else -a,
    "minimum": lambda a, b: a if a < b else b,
    "maximum": lambda a, b: a if a > b else b,
    "floor": lambda a: math.floor(a),
    "round": lambda a: round(a),
    "sign": lambda a: (a > 0) - (a < 0),
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    **{name: getattr(math, name) for name in ("tanh", "exp", "log", "sqrt", "cos")},
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def worth(node, rows, i):
    """The value of a node at rollout `i`; None is missing. rows: for each rollout its group and its columns."""
    ask = lambda n, at=i: worth(n, rows, at)  # noqa: E731
    match node.op, node.args:
        case "const", _:
            return node.attributes[0]
        case "missing", _:
            return None
        case "column", _:
            return rows[i][1][node.attributes[0]]
        case "spread", (x,):
            return ask(x)
        case "required", (x,):
            if ask(x) is None:
                raise Failed
            return ask(x)
        case "present", (x,):
            return ask(x) is not None
        case "coalesce", (x, otherwise):
            return ask(otherwise) if ask(x) is None else ask(x)
        case "if", (condition, then, otherwise):
            return ask(then) if ask(condition) == 1 else ask(otherwise)
        case "and", (a, b):
            return ask(a) == 1 and ask(b) == 1
        case "or", (a, b):
            return ask(a) == 1 or ask(b) == 1
        case "not", (a,):
            return ask(a) != 1
        case "sum_components", terms:
            there = [v for v in map(ask, terms) if v is not None]
            return sum(there) if there else None
    if node.op in REDUCTIONS:
        return reduced(node, rows, i)
    values = [ask(a) for a in node.args]
    if None in values:
        return False if node.op in COMPARISONS else None
    try:
        return PLAIN[node.op](*values)
    except (ZeroDivisionError, ValueError) as wrong:
        raise Failed from wrong


def reduced(node, rows, i):
    x, where, *by = node.args
    over, parameter = node.attributes
    members = [j for j in range(len(rows)) if over is Level.BATCH or rows[j][0] == rows[i][0]]
    if over is Level.BATCH and x.level is Level.GROUP:  # one value for each group
        members = [min(j for j in members if rows[j][0] == name) for name in {rows[j][0] for j in members}]
    if by:
        members = [j for j in members if worth(by[0], rows, j) == worth(by[0], rows, i)]
    members = [j for j in members if worth(where, rows, j) == 1]
    pairs = [(j, worth(x, rows, j)) for j in members]
    values = [v for _, v in pairs if v is not None]
    own = next((v for j, v in pairs if j == i), None)
    match node.op:
        case "mean":
            return F(sum(values), len(values)) if values else None
        case "sum":
            return sum(values)
        case "count":
            return len(values)
        case "min":
            return min(values, default=None)
        case "max":
            return max(values, default=None)
        case "any":
            return any(v == 1 for v in values)
        case "all":
            return all(v == 1 for v in values)
        case "var" | "std":
            return spread(values, parameter, node.op)
        case "std_others":
            others = [v for j, v in pairs if v is not None and j != i]
            return None if own is None else spread(others, parameter, "std")
        case "rank":
            return None if own is None else 1 + sum(v < own for v in values)
        case "kth":
            return sorted(values)[-int(parameter)] if parameter <= len(values) else None
        case "quantile":
            values.sort()
            at = parameter * (len(values) - 1)
            low = math.floor(at)
            return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low) if values else None


def spread(values, ddof, op):
    if len(values) < 2 or len(values) <= ddof:
        return 0
    mean = F(sum(values), len(values))
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - ddof)
    return variance if op == "var" else math.sqrt(variance)


def outcome(node, rows, i):
    try:
        return worth(node, rows, i)
    except Failed:
        return Failed


def same(a, b):
    if a is None or b is None or a is Failed or b is Failed:
        return a is b
    return abs(float(a) - float(b)) < 1e-12


# Operands ---------------------------------------------------------------------------------------

GRAPH = Graph()
COLUMNS = {
    "a": (Level.ROLLOUT, finite([F(0), F(1), F(2)])),
    "b": (Level.ROLLOUT, finite([F(-1), F(0), F(1)], missing=True)),
    "c": (Level.ROLLOUT, finite([F(2), F(3)])),
    "one": (Level.ROLLOUT, finite([F(1)], missing=True)),
    "open": (Level.ROLLOUT, interval(F(0), F(1))),
    "g": (Level.GROUP, finite([F(0), F(1)])),
}
A, B, C, ONE_OR_NONE, OPEN, G = (GRAPH.column(name, level, domain) for name, (level, domain) in COLUMNS.items())
ZERO, ONE, TWO, ALL = GRAPH.const(0), GRAPH.const(1), GRAPH.const(2), GRAPH.const(1)
FAILS = GRAPH.apply("/", ONE, A)
NEEDED = GRAPH.node("required", (B,), (), Level.ROLLOUT, B.domain.present())
LOW, GATE = GRAPH.compare("<", A, ONE), GRAPH.compare("==", G, ONE)
UNSURE = GRAPH.compare(">", NEEDED, ZERO)
NUMBERS = [A, B, C, OPEN, G, ZERO, ONE, TWO, GRAPH.const(4), GRAPH.missing(), FAILS, NEEDED, GRAPH.apply("neg", A)]
NUMBERS += [GRAPH.const(F(1, 2), Level.ROLLOUT), GRAPH.if_(LOW, B, GRAPH.missing()), GRAPH.if_(LOW, A, C)]
CONDITIONS = [LOW, GATE, GRAPH.present(B), GRAPH.negation(LOW), UNSURE, ZERO, ONE, GRAPH.spread(GATE)]


def wheres():
    return [ONE, LOW, GATE, UNSURE, GRAPH.present(B)]


def deviation(x):
    return GRAPH.apply("-", x, GRAPH.reduce("mean", x, ONE, None, Level.GROUP))


REDUCED = [A, B, C, FAILS, NEEDED, ONE_OR_NONE, GRAPH.const(2, Level.ROLLOUT), GRAPH.spread(GRAPH.missing())]
REDUCED += [deviation(A), deviation(C), GRAPH.apply("*", G, deviation(A))]


def drafts_of(op):
    """Ways to make a node of an operator: what is called, and the operands as they were meant."""
    if op in COMPARISONS:
        yield from ((lambda a=a, b=b: GRAPH.compare(op, a, b), (a, b), ()) for a, b in product(NUMBERS, repeat=2))
    elif op in ("and", "or"):
        make = GRAPH.both if op == "and" else GRAPH.either
        yield from ((lambda a=a, b=b: make(a, b), (a, b), ()) for a, b in product(CONDITIONS, repeat=2))
    elif op == "not":
        yield from ((lambda a=a: GRAPH.negation(a), (a,), ()) for a in CONDITIONS)
    elif op == "if":
        for c, a, b in product(CONDITIONS, NUMBERS, NUMBERS):
            yield lambda c=c, a=a, b=b: GRAPH.if_(c, a, b), (c, a, b), ()
    elif op == "present":
        yield from ((lambda a=a: GRAPH.present(a), (a,), ()) for a in [*NUMBERS, GRAPH.apply("+", B, ONE_OR_NONE)])
    elif op == "coalesce":
        yield from ((lambda a=a, b=b: GRAPH.coalesce(a, b), (a, b), ()) for a, b in product(NUMBERS, repeat=2))
    elif op == "sum_components":
        yield from ((lambda a=a: GRAPH.sum_components([a]), (a,), ()) for a in NUMBERS)
    elif op in REDUCTIONS:
        found = [LOW, UNSURE, GRAPH.spread(ONE)] if op in ("any", "all") else REDUCED
        ddof = {"ddof": F(1), "q": F(1, 2), "k": F(2)}.get(REDUCTIONS[op].parameter)
        for x, where, by, over in product(found, wheres(), (None, C), (Level.GROUP, Level.BATCH)):
            args = (x, where) if by is None else (x, where, by)
            yield lambda a=(x, where, by, over): GRAPH.reduce(op, *a, ddof), args, (over, ddof)
    else:
        operands = product(NUMBERS, repeat=1 if op in ONE_OPERAND else 2)
        yield from ((lambda args=args: GRAPH.apply(op, *args), args, ()) for args in operands)


class Caught(Exception):
    pass


def draft_of(make, op):
    """The draft that `make` hands to the rules."""

    def catch(draft):
        if draft.op == op:
            raise Caught(draft)
        return simplified(draft)

    GRAPH._present.clear()
    with mock.patch.object(graphs, "simplified", catch):
        try:
            make()
        except Caught as caught:
            return caught.args[0]
    return None  # found without asking the rules


@cache
def applicable(rule):
    """What the rule is applied to: the node as it was meant, and what the rule makes of it."""
    found = []
    operators = rule.operators or [name for name, op in ELEMENTWISE.items() if not op.boolean]
    for op in operators:
        for make, args, attributes in drafts_of(op):
            draft = draft_of(make, op)
            result = None if draft is None else tried(rule, draft)
            if result is not None:
                found.append((Node(-1, op, args, attributes, draft.level, Domain()), result))
    return found


@st.composite
def batches(draw):
    """Two groups of one to three rollouts."""
    rows = []
    for name in range(2):
        whole = {}
        for _ in range(draw(st.integers(1, 3))):
            row = {}
            for column, (level, domain) in COLUMNS.items():
                values = [F(0), F(1, 3), F(1)] if domain.values is None else list(domain.values)
                value = draw(st.sampled_from([*values, *([None] if domain.missing else [])]))
                row[column] = whole.setdefault(column, value) if level is Level.GROUP else value
            rows.append((name, row))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_keeps_every_value(rule):
    cases = applicable(rule)
    assert cases, "no operands here that the rule applies to"

    @settings(max_examples=30 * FUZZ)
    @given(st.sampled_from(cases), batches())
    def kept(case, rows):
        before, after = case
        for i in range(len(rows)):
            found, expected = outcome(after, rows, i), outcome(before, rows, i)
            if expected is Failed and rule.unasked:
                continue
            if expected is None and rule.name == WHITENED:
                expected = 0  # of no group at all: see the rule
            assert same(found, expected), (before, after, rows[i], found, expected)
            if found is not None and found is not Failed:
                assert after.domain.values is None or any(same(found, v) for v in after.domain.values)

    kept()


def test_rules_have_names_and_reasons():
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.why for rule in RULES)


def test_an_operand_that_may_fail_is_not_left_out():
    assert GRAPH.apply("*", ZERO, FAILS).op == "*"
    assert GRAPH.apply("*", ZERO, C).constant == 0
    assert GRAPH.compare("<", FAILS, GRAPH.const(-1)).op == "<"  # never holds, and 1 / 0 still raises
    assert GRAPH.compare("<", FAILS, GRAPH.const(-1), asked=False).constant == 0
    assert GRAPH.both(UNSURE, ZERO).op == "and"
    assert GRAPH.if_(UNSURE, TWO, TWO).op == "if"
    assert CONDITION.condition
