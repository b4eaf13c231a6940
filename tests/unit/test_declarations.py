"""What the reader gives: declarations that know where they stand and what was written; and variations of a spec."""

import pickle
from fractions import Fraction

import pytest

import rewardspec
from rewardspec.language.declarations import Declarations
from rewardspec.language.reader import read_declarations
from rewardspec.syntax.expression import parse_expression
from rewardspec.syntax.tree import Number, format_expr
from rewardspec.text.diagnostics import Report, SpecError
from rewardspec.text.source import Source

TEXT = """\
rewardspec: 1
name: short
source: a paper, Sec. 1
signals:
  tokens: {range: [0, .inf]}
components:
  correct: {values: [0, 1]}
  length:
    expr: 1 - tokens / 100
    scale: [0, 1]
    range: [-9, 1]
    weight: "0.5"
    allow: {zero-weight: it is meant}
  staged:
    stages: [{add: correct}, {add: 2 * correct, when: tokens > 3}]
define: {half(x): 0.5 * x, limit: 9}
keep: any(correct)
advantage: grpo
allow: {dead-groups: few of them}
"""


def read(text: str) -> Declarations:
    report = Report()
    declared = read_declarations(Source("spec.yaml", text), report)
    assert declared is not None
    return declared


def test_declarations_know_where_their_keys_and_values_stand():
    declared = read(TEXT)
    length = declared.components["length"]
    assert length.place.of("weight").text == '"0.5"'
    assert length.place["weight"].name.text == "weight"
    assert length.place.of("when").text == "length", "the name, where a key was not written"
    assert declared.place.of("keep").text == "any(correct)"
    assert declared.place.at("components", "length", "scale").value.text == "[0, 1]"
    assert declared.place.at("numerics", "eps") is None
    assert [*declared.place["define"]] == ["half(x)", "limit"]


def test_component_tells_what_was_written():
    correct, length, staged = read(TEXT).components.values()
    assert length.says("weight") and not correct.says("weight")
    assert format_expr(length.weight) == "0.5" and format_expr(correct.weight) == "1"
    assert [format_expr(stage.add) for stage in staged.stages] == ["correct", "2 * correct"]
    assert staged.stages[0].when is None and format_expr(staged.stages[1].when) == "tokens > 3"
    assert length.allow["zero-weight"].text == "zero-weight"


def test_declarations_hold_texts_and_allowances():
    declared = read(TEXT)
    assert (declared.title, declared.about, declared.origin) == ("short", None, "a paper, Sec. 1")
    assert [*declared.allow] == ["dead-groups"]


def test_key_that_is_written_wrong_is_written_all_the_same():
    report = Report()
    declared = read_declarations(Source("spec.yaml", TEXT.replace('"0.5"', "[1]")), report)
    assert declared.components["length"].says("weight")
    assert declared.damaged == {"length"}
    assert [d.code for d in report.diagnostics] == ["wrong-type"]


@pytest.mark.parametrize("part", ["tokens: 5", "template: [a]", "prior: 1"])
def test_needed_key_of_the_wrong_kind_is_reported_once(part):
    right = {"tokens": "{a: A, b: B}", "prior": "{a: 0.5}", "template": "'{token}'"}
    key, value = part.split(": ")
    section = "".join(f"  {k}: {v}\n" for k, v in {**right, key: value}.items())
    report = Report()
    read_declarations(Source("spec.yaml", f"{TEXT}condition:\n{section}"), report)
    assert [d.code for d in report.diagnostics] == ["wrong-type"]


def test_varied_spec_is_lowered_anew():
    spec = rewardspec.loads("rewardspec: 1\ncomponents: {a: {values: [0, 1], weight: step}}\nadvantage: grpo\n")
    assert spec.program.components[0].weight.constant is None
    assert spec.varied(given={"step": Fraction(7)}).program.components[0].weight.constant == 7
    one = spec.declarations.components["a"]
    text = Source("advantage", "2 * a")
    other = spec.varied(advantage=parse_expression(text.text, text.span, Report()))
    assert other.columns == ("a",) and other.fingerprint != spec.fingerprint
    assert spec.varied().fingerprint == spec.fingerprint
    assert one is other.declarations.components["a"], "what is not changed stays as it is"


def test_varied_spec_that_comes_to_nothing_is_an_error():
    spec = rewardspec.loads("rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\n")
    with pytest.raises(SpecError, match="infinity"):
        spec.varied(advantage=Number(spec.declarations.place.of("advantage"), float("inf")))


def test_variation_has_no_text_of_its_own():
    spec = rewardspec.loads("rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\n")
    assert pickle.loads(pickle.dumps(spec.at(step=3))).fingerprint == spec.at(step=3).fingerprint
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(spec.varied(keep=None))
