"""Operators are declared once, and every name of one that code looks for is declared."""

import ast
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from places import PACKAGE
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import walk
from rewardspec.ops import forms, ranges
from rewardspec.ops.operator import Elementwise, Undefined, declare, of_one, withdraw
from rewardspec.ops.operators import (
    ACROSS_ROLLOUTS,
    COMPARISONS,
    ELEMENTWISE,
    FUNCTIONS,
    GROUP_SPREADS,
    LOGIC,
    OPERATORS,
    REDUCTIONS,
    SCANS,
    SPREADS,
)
from rewardspec.ops.real import Real, real
from rewardspec.prove.explain import explain
from rewardspec.prove.simulate import simulate
from rewardspec.prove.verify import verify


def test_sets_of_operators():
    assert {"<", "<=", ">", ">=", "==", "!="} == COMPARISONS
    assert {"and", "or", "not"} == LOGIC
    assert {"std", "var", "std_others"} == SPREADS
    assert {"std", "var"} == GROUP_SPREADS
    assert {*REDUCTIONS, "copies"} == ACROSS_ROLLOUTS
    assert {name for name, op in OPERATORS.items() if op.sums} == {"+", "-", "neg", "sum_components"}
    assert {name for name, op in OPERATORS.items() if op.chooses} == {"if", "minimum", "maximum", "coalesce"}
    for name in COMPARISONS:
        assert ELEMENTWISE[ELEMENTWISE[name].opposite].opposite == name


def files_with(text):
    """The package's files that have this text; most have not, and need not be parsed."""
    found = [path for path in sorted(PACKAGE.rglob("*.py")) if text in path.read_text(encoding="utf-8")]
    return pytest.mark.parametrize("path", found, ids=lambda p: str(p.relative_to(PACKAGE)))


@files_with('<="')
def test_no_file_lists_the_comparisons_again(path):
    if path.relative_to(PACKAGE).parts[0] in ("syntax", "ops"):  # the language's own text, and the declarations
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        listed = {item.value for item in getattr(node, "elts", []) if isinstance(item, ast.Constant)}
        assert not listed >= COMPARISONS, (
            f"{path.relative_to(PACKAGE)}:{node.lineno}: use COMPARISONS of ops/operators.py"
        )


# Every name that code asks a node for -----------------------------------------------------------


def texts(node):
    """The strings in an expression or a pattern."""
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def is_op(node):
    return isinstance(node, ast.Attribute) and node.attr == "op"


def compared_with_op(tree):
    """Strings that something's `.op` is compared with: `==`, `in (...)`, the cases of a `match`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(is_op(s) for s in sides) or any(
                isinstance(s, ast.Tuple) and any(is_op(e) for e in s.elts) for s in sides
            ):
                for side in sides:
                    one_by_one = side is not node.left and isinstance(node.ops[0], ast.In)  # `in "*/"`
                    one_by_one = one_by_one and isinstance(side, ast.Constant)
                    found = set(side.value) if one_by_one else texts(side)
                    yield from ((text, node.lineno) for text in found)
        if isinstance(node, ast.Match):
            subject = node.subject
            if is_op(subject):
                patterns = [case.pattern for case in node.cases]
            elif isinstance(subject, ast.Tuple) and subject.elts and is_op(subject.elts[0]):
                patterns = [
                    case.pattern.patterns[0] for case in node.cases if isinstance(case.pattern, ast.MatchSequence)
                ]
            else:
                continue
            for pattern in patterns:
                yield from ((text, node.lineno) for text in texts(pattern))


@files_with(".op")
def test_every_operator_that_code_looks_for_is_declared(path):
    for text, line in compared_with_op(ast.parse(path.read_text(encoding="utf-8"))):
        assert text in OPERATORS, f"{path.relative_to(PACKAGE)}:{line} looks for `{text}`, which nobody declares"


def test_the_reader_of_names_sees_all_ways_to_ask():
    asked = """
if node.op == "a" or "b" == node.op or node.op in ("c", *D) or "e" in (x.op, y.op): pass
match node.op:
    case "f" | "g" if node.args[0].op != "h": pass
match node.op, node.args:
    case "i", (x,): pass
    case (("j" | "k"), (x, y)): pass
    case op, _ if op in D: pass
"""
    assert {text for text, _ in compared_with_op(ast.parse(asked))} == set("abcefghijk")


# Examples of functions -----------------------------------------------------------------------------

EXAMPLE = re.compile(r"(\w+)\(\[([^]]*)\](.*)\) = \[([^]]*)\]")


OF_LISTS = ("position", *SCANS)


@pytest.mark.parametrize("name", OF_LISTS)
def test_every_function_of_a_list_has_an_example_that_holds(name):
    """In torch and exactly; `|` stands between rollouts."""
    called, given, rest, result = EXAMPLE.fullmatch(FUNCTIONS[name].example).groups()
    assert called == name
    lists = [[None if v == "missing" else float(v) for v in g.split(", ")] for g in given.split(" | ")]
    argument = "turn" if name == "position" else "x"
    spec = rewardspec.loads(
        "rewardspec: 1\nlists: {turn: {ordered: true}}\n"
        "signals: {x: {range: [0, 9], level: turn, missing: ignore}}\n"
        f"components: {{y: '{name}({argument}{rest}) + 0 * coalesce(x, 0)'}}\nadvantage: coalesce(y, 0)\n"
    )
    lengths = {"turn": [len(items) for items in lists]}
    found = rewardspec.compile(spec)({"x": lists}, len(lists), lengths=lengths).rewards["y"]
    wanted = [float("nan") if v == "missing" else float(v) for v in result.split(", ")]
    np.testing.assert_allclose(found, wanted, atol=5e-5)
    node = spec.program.components[0].shaped
    start = [n for n in walk([node]) if n.op in ("column", "position")]
    rows = [
        tuple(tuple(Fraction(i + 1) if n.op == "position" else v for i, v in enumerate(items)) for n in start)
        for items in [[None if v is None else Fraction(v) for v in items] for items in lists]
    ]
    exact = [v for items in GroupEvaluator(node, start, {})(rows, {}) for v in items]
    np.testing.assert_allclose([float("nan") if v is None else float(v) for v in exact], wanted, atol=5e-5)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in OF_LISTS])
def test_every_function_has_an_example_that_holds(name):
    """In torch and exactly. The numbers are by hand, those of transcendental functions by NumPy."""
    called, given, rest, result = EXAMPLE.fullmatch(FUNCTIONS[name].example).groups()
    assert called == name
    groups = [[None if v == "missing" else Fraction(v) for v in g.split(", ")] for g in given.split(" | ")]
    x = [v for group in groups for v in group]
    ids = [i for i, group in enumerate(groups) for _ in group]
    wanted = [float(v) for v in result.split(", ")]
    if len(wanted) < len(x):  # one for each group
        wanted = [wanted[i] for i in ids]
    column = f"values: {[float(v) for v in sorted({v for v in x if v is not None})]}, missing: ignore"
    body = f"signals: {{x: {{{column}}}}}\ncomponents: {{y: '{name}(x{rest})'}}\nadvantage: coalesce(y, 0)\n"
    spec = rewardspec.loads(f"rewardspec: 1\n{body}")
    out = rewardspec.compile(spec)({"x": x}, ids)
    np.testing.assert_allclose(out.rewards["y"], wanted, atol=5e-5)
    node = spec.program.components[0].shaped
    columns = [n for n in walk([node]) if n.op == "column"]
    exact = [v for group in groups for v in GroupEvaluator(node, columns, {})([(v,) for v in group], {})]
    np.testing.assert_allclose([float(v) for v in exact], wanted, atol=5e-5)


# A new operator is one declaration ----------------------------------------------------------------


@pytest.fixture
def softplus():
    declare(
        Elementwise(
            name="softplus",
            function=of_one("log(1 + exp(x)), a ramp without a corner"),
            exact=lambda x: math.log1p(math.exp(x)) if isinstance(x, float) else real("softplus", x),
            domain=ranges.image(lambda x: math.log1p(math.exp(x)), Fraction(0), math.inf),
            enclosure=lambda x: (1 + x.exp()).log(),
            normal_form=lambda x: forms.logarithm(forms.plus(forms.rational(1), forms.exponential(x))),
            real=True,
            torch="torch.nn.functional.softplus({})",
        )
    )
    yield
    withdraw("softplus")


SPEC = """rewardspec: 1
components:
  a: {values: [0, 1, 2]}
  e: softplus(a)
advantage: grpo
guarantees:
  more: min(raw(a)) < max(raw(a)) or all(advantage == 0)
  least: min(e) >= 0.6
"""


def test_an_operator_is_one_declaration(softplus):
    spec = rewardspec.loads(SPEC)
    shaped = next(c.shaped for c in spec.program.components if c.name == "e")
    assert shaped.op == "softplus" and shaped.domain.lo > 0.69 and shaped.domain.hi < 2.13
    assert "e = torch.nn.functional.softplus(a)" in spec.python
    out = rewardspec.compile(spec)({"a": torch.tensor([0.0, 1.0, 2.0, 2.0])}, groups=2)
    np.testing.assert_allclose(out.rewards["e"], np.log1p(np.exp([0.0, 1.0, 2.0, 2.0])), rtol=1e-6)
    assert {v.status for v in verify(spec, [2])} == {"proved"}
    found = simulate(spec, 2)
    assert (found.exact, found.reward_groups) == (True, 6)  # multisets of two of three values
    assert "softplus" in str(explain(spec).values)


def test_its_numbers_are_exact(softplus):
    one = ELEMENTWISE["softplus"].exact(Fraction(1))
    assert isinstance(one, Real) and one == real("log", real("+", Fraction(1), real("exp", Fraction(1))))
    assert 1.313 < float(one) < 1.314


def test_it_is_listed_and_helped_with(softplus):
    said = CliRunner().invoke(app, ["list"]).output
    assert "softplus(x)" in said and "a ramp without a corner" in said
    with pytest.raises(rewardspec.SpecError) as wrong:
        rewardspec.loads(SPEC.replace("softplus(a)", "softplus(a, 2)"))
    assert "write `softplus(x)`" in wrong.value.diagnostics[0].render()
    with pytest.raises(rewardspec.SpecError) as wrong:
        rewardspec.loads(SPEC.replace("softplus(a)", "softplu(a)"))
    assert "did you mean `softplus`?" in wrong.value.diagnostics[0].render()


def test_without_its_declaration_it_is_unknown():
    with pytest.raises(rewardspec.SpecError):
        rewardspec.loads(SPEC)


def test_where_it_is_undefined_is_looked_at():
    declare(
        Elementwise(
            name="reciprocal",
            function=of_one("1 / x; an error at 0"),
            exact=lambda x: 1 / x,
            domain=lambda a: ranges.quotient(ranges.interval(Fraction(1), Fraction(1)), a),
            undefined=Undefined(
                lambda a: 0 in a, lambda graph, a: graph.compare("==", a, graph.const(0), asked=False), "one over 0"
            ),
            torch="torch.reciprocal({})",
        )
    )
    try:
        text = "rewardspec: 1\ncomponents: {a: {values: [0, 1, 2]}, e: reciprocal(a)}\nadvantage: grpo\n"
        fn = rewardspec.compile(rewardspec.loads(text))
        assert fn({"a": [1.0, 2.0]}, groups=2).rewards["e"].tolist() == [1.0, 0.5]
        with pytest.raises(ValueError, match="`reciprocal\\(a\\)` is one over 0"):
            fn({"a": [0.0, 2.0]}, groups=2)
        guarded = rewardspec.loads(text.replace("reciprocal(a)", "reciprocal(a) if a > 0 else 0"))
        assert "batch.refuse" not in guarded.python
    finally:
        withdraw("reciprocal")
