"""The second reading of the language: its parser against the package's, its interpreter against hand calculation."""

import re
from fractions import Fraction as F

import pytest
from places import ROOT
from reference.declared import read_yaml
from reference.interpreter import Batch, RolloutError, interpret
from reference.nodes import SpecError
from reference.parser import NotRead, parse, parse_signature
from reference.reader import Reader

import rewardspec
from rewardspec.syntax.expression import read
from rewardspec.syntax.tree import meaning
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source

SHIPPED = [ROOT / "specs" / "prelude.yaml", *sorted((ROOT / "specs" / "dialects").glob("*.yaml"))]
EXPRESSIONS = """
a < b <= c; -2 ** 2; 2 ** -1 ** 3; not a and b or c and d or e; a if b else c if d else e; f(x, y=1,); 5.; -a ** b
-a * b; - -a; +a; a - b - c; 1e-4 + .5; not not a; not a < b; (a or b) and c; (a < b) < c; a / b / c; f(g(x), 2)
1 if a else 2 if b else 3; (1 if a else 2) if b else 3; a == b != c; a * -b; 2 ** (3 ** 2)
x.inf; a b; f(; 1 +; (a; a <; not; a if b; 1 2; f(x=); f(,)
"""


def plain(tree):
    """A tree with `and` and `or` of any number of operands, and signs taken into numbers, as the package has it."""
    if not isinstance(tree, tuple):
        return tree
    if tree[0] == "call":
        return ("call", tree[1], tuple(map(plain, tree[2])), tuple((n, plain(v)) for n, v in tree[3]))
    inner = [plain(part) for part in tree[1:]]
    if tree[0] == "neg" and isinstance(inner[0], F):
        return -inner[0]
    if tree[0] in ("and", "or"):
        inner = [i for p in inner for i in (p[1:] if isinstance(p, tuple) and p[0] == tree[0] else (p,))]
    return (tree[0], *inner)


@pytest.mark.parametrize("text", re.split(r"; |\n", EXPRESSIONS.strip()))
def test_both_parsers_read_an_expression_alike(text):
    report = Report()
    theirs = read(Source("<expression>", text), report)
    try:
        mine = parse(text)
    except NotRead:
        assert theirs is None
    else:
        assert plain(mine) == plain(meaning(theirs))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_both_parsers_read_what_ships_alike(path):
    for left, right in read_yaml(path.read_text())["define"].items():
        parse_signature(left)
        assert plain(parse(right)) == plain(meaning(read(Source(left, right), Report())))


def advantages(text, columns, groups, **given):
    columns = {
        name: [None if v is None else v if isinstance(v, str) else F(v) for v in values]
        for name, values in columns.items()
    }
    return [float(a.value) for a in interpret(Reader(text), Batch(columns, groups, **given)).advantages]


HEAD = "rewardspec: 1\ncomponents:\n"


def test_the_first_spec_of_the_reference():
    text = re.search(r"```yaml\n(.*?)```", (ROOT / "grammar" / "LANGUAGE.md").read_text(), re.S).group(1)
    columns = {"correct": [1, 1, 0, 0], "tokens": [900, 5200, 700, 6100]}
    assert advantages(text, columns, [0] * 4) == pytest.approx([1.1955, 0.4557, -0.8256, -0.8256], abs=5e-5)


def test_grpo_by_hand():
    # mean 1/2, deviations of 1/2, divisor 3: std sqrt(1/3)
    text = HEAD + "  a: {values: [0, 1]}\nadvantage: grpo\nnumerics: {eps: 0}\n"
    assert advantages(text, {"a": [0, 0, 1, 1]}, [0] * 4) == pytest.approx([-(0.75**0.5)] * 2 + [0.75**0.5] * 2)


def test_a_missing_reward_has_no_part_in_gdpo():
    text = (
        HEAD
        + "  a: {values: [0, 1]}\n  b: {values: [0, 2], missing: ignore}\nadvantage: decoupled\nnumerics: {eps: 0}\n"
    )
    half = 2**-0.5
    got = advantages(text, {"a": [0, 1, 1], "b": [None, 0, 2]}, [0] * 3)
    assert got == pytest.approx([-2 / 3**0.5, 1 / 3**0.5 - half, 1 / 3**0.5 + half])


def test_what_is_not_selected_is_not_asked():
    text = HEAD + "  a: {values: [0, 1]}\n  b: 1 / a if a > 0 else 2\nadvantage: b - mean(b)\n"
    assert advantages(text, {"a": [0, 1]}, [0, 0]) == [0.5, -0.5]
    with pytest.raises(RolloutError):
        advantages(text.replace(" if a > 0 else 2", ""), {"a": [0, 1]}, [0, 0])


def test_groups_that_are_left_out_take_no_part_over_the_batch():
    text = HEAD + "  a: {values: [0, 1, 5]}\nkeep: max(a) < 5\nadvantage: a - mean(a, over=batch)\n"
    assert advantages(text, {"a": [0, 5, 1, 1]}, [0, 0, 1, 1]) == [0, 0, 0, 0]
    assert advantages(text, {"a": [0, 5, 1, 0]}, [0, 0, 1, 1]) == [0, 0, 0.5, -0.5]


@pytest.mark.parametrize(
    "rest",
    [
        "advantage: mean(mean(a))",
        "advantage: rewards",
        "advantage: mean(a)",
        "advantage: nothing",
        "advantage: sum(a, over=components)",
    ],
)
def test_what_is_not_well_formed_is_not_for_both(rest):
    text = HEAD + f"  a: {{values: [0, 1]}}\n{rest}\n"
    with pytest.raises(SpecError):
        Reader(text)
    with pytest.raises(rewardspec.SpecError):
        rewardspec.loads(text)
