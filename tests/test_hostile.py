"""Whatever a file holds: a spec, or diagnostics that stand in it. Never another exception, never long."""

import json
import string
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rewardspec
from rewardspec.compiler import check, read_file
from rewardspec.diagnostics import MOST_DIAGNOSTICS
from rewardspec.resources import resource
from rewardspec.source import Source

SPECS = [path.read_text() for path in sorted(resource("specs/gdpo").glob("*.yaml"))]
BASE = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: center(EXPR)\n"
KEYS = [
    "rewardspec", "name", "signals", "components", "define", "numerics", "keep", "advantage", "guarantees", "values",
    "range", "scale", "when", "otherwise", "weight", "stages", "add", "missing", "outside", "expr", "level", "squash",
    "use", "a", "b", "f(x, y=1)", "condition", "refill", "eps", "ddof",
]  # fmt: skip
WORDS = [
    "1", "0", "[0, 1]", "[0, .inf]", "-1e-4", "a", "a + b", "a >= 1", "gdpo", "ignore", "zscore(a, over=batch)",
    "{a: 1}",
    "", "clip(a, 0, 1)", "1 +", "f(a)", "sigmoid", "rewards", "progress", "[]", "{}", "no", "'", '"x', "[a", "*a",
    "&a 1",
    "group", "error", "- 1", "9**9**9", "mean(mean(a))", "a if b else", "~", "!x y", "| \n   text", "1/3", "task == math",
]  # fmt: skip


def examine(text):
    """The spec of a text, if it is one, once its diagnostics have been looked at."""
    spec, report = check(Source("<fuzz>", text))
    assert len(report.diagnostics) <= MOST_DIAGNOSTICS
    for diagnostic in report.sorted():
        assert 0 <= diagnostic.span.start <= diagnostic.span.end <= max(len(diagnostic.span.source.text), 1)
        assert diagnostic.message
        assert diagnostic.code
        assert diagnostic.render()
        json.dumps(diagnostic.to_json())
    assert (spec is None) == report.failed
    return spec


def examine_and_compile(text):
    spec = examine(text)
    if spec is not None:
        compile(spec.python, "<fuzz>", "exec")


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=200))
def test_random_text(text):
    examine(text)


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=120))
def test_random_bytes(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(data)
    source, report = read_file(path)
    if source is None:
        assert report.failed
        report.diagnostics[0].render()
    else:
        examine(source.text)


@st.composite
def documents(draw, depth=0):
    lines = []
    for _ in range(draw(st.integers(1, 5))):
        key = draw(st.sampled_from(KEYS))
        if depth < 3 and draw(st.booleans()):
            inner = draw(documents(depth=depth + 1))
            lines.append(f"{'  ' * depth}{key}:\n{inner}")
        else:
            lines.append(f"{'  ' * depth}{key}: {draw(st.sampled_from(WORDS))}")
    return "\n".join(lines)


@settings(deadline=None, max_examples=300)
@given(documents())
def test_random_documents(text):
    examine_and_compile("rewardspec: 1\n" + text)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(SPECS), st.data())
def test_mutated_specs(text, data):
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        patch = data.draw(st.sampled_from(["", text[start:end] * 2, *WORDS, *KEYS, "\t", "#", ":", ",", "\u2028", "é"]))
        text = text[:start] + patch + text[end:]
    examine_and_compile(text)


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet=string.ascii_letters + string.digits + " ()+-*/<>=!,._~#'\"[]{}:&|", max_size=60))
def test_random_expressions(text):
    quoted = text.replace("\\", "").replace("'", "''")
    examine_and_compile(BASE.replace("EXPR", "a").replace("center(a)", f"'{quoted}'"))


def doubling(levels, line, last):
    return "define:\n" + "".join(f"  {line(i)}\n" for i in range(levels)) + f"  {last}\n"


HOSTILE = {
    "alias bomb": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "brackets": "rewardspec: 1\na: " + "[" * 10_000,
    "braces": "{" * 10_000,
    "sequences": "- " * 10_000,
    "parentheses": BASE.replace("EXPR", "(" * 10_000 + "a" + ")" * 10_000),
    "minus signs": BASE.replace("EXPR", "-" * 10_000 + "a"),
    "nots": BASE.replace("EXPR", "not " * 10_000 + "a"),
    "nested calls": BASE.replace("EXPR", "abs(" * 99 + "a" + ")" * 99),
    "large exponent": BASE.replace("EXPR", "a * 1e400"),
    "tower of powers": BASE.replace("EXPR", "a * 9**9**9**9"),
    "long integer": BASE.replace("EXPR", "a * " + "9" * 60_000),
    "large product": BASE.replace("EXPR", "a * " + " * ".join(["1e300"] * 9)),
    "one long key": "a" * 65_000 + ": 1",
    "too long": "#" * 70_000,
    "many values": "rewardspec: 1\ncomponents: {a: {values: ["
    + ", ".join(map(str, range(4000)))
    + "]}}\nadvantage: grpo\n",
    "many components": "rewardspec: 1\nadvantage: gdpo\ncomponents:\n"
    + "".join(f"  r{i}: {{values: [0, 1]}}\n" for i in range(1000)),
    "doubling values": BASE.replace("EXPR", "d0") + doubling(24, lambda i: f"d{i}: d{i + 1} + d{i + 1}", "d24: a"),
    "doubling calls": BASE.replace("EXPR", "f0(a)")
    + doubling(24, lambda i: f"f{i}(x): f{i + 1}(x + {i}) * f{i + 1}(x * {i})", "f24(x): x"),
    "doubling conditions": BASE.replace("EXPR", "a * 1 if d0 else 0")
    + doubling(
        24, lambda i: f"d{i}: (d{i + 1} and p > 0.{i + 1}) or (d{i + 1} and p < 0.{i + 2})", "d24: p > 0.5"
    ).replace("define:", "signals: {p: {range: [0, 1]}}\ndefine:"),
    "doubling missing values": BASE.replace("EXPR", "d0")
    + doubling(24, lambda i: f"d{i}: d{i + 1} + d{i + 1} * c", "d24: c").replace(
        "define:", "signals: {c: {range: [0, 1], missing: ignore}}\ndefine:"
    ),
    "doubling constants": BASE.replace("EXPR", "a * d0")
    + doubling(24, lambda i: f"d{i}: d{i + 1} + d{i + 1}", "d24: pi"),
    "doubling schemes": BASE.replace("EXPR", "d0")
    + doubling(24, lambda i: f"d{i}: center(d{i + 1}) + d{i + 1}", "d24: a"),
    "chain of definitions": BASE.replace("EXPR", "d0") + doubling(1000, lambda i: f"d{i}: d{i + 1} + 1", "d1000: a"),
    "mutual recursion": BASE.replace("EXPR", "f(a)") + "define:\n  f(x): g(x)\n  g(x): f(x + 1)\n",
    "nul": "rewardspec: 1\0",
    "surrogate": 'rewardspec: 1\nname: "\\ud800"\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\n',
    "line separator": "rewardspec: 1\u2028name: x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_ends_soon(name):
    start = time.perf_counter()
    examine_and_compile(HOSTILE[name])
    assert time.perf_counter() - start < 20  # a bound on runaway growth, not on speed: all take under 3 s


def test_words_of_the_spec_cannot_become_code():
    text = '''rewardspec: 1
name: 'x""" \\\\'
about: |
  """
  raise SystemExit("ran")
source: "\\n\\rraise SystemExit('ran')"
components: {a: {values: [0, 1]}}
advantage: grpo
'''
    assert rewardspec.compile(rewardspec.loads(text))({"a": [0, 1]}, 2).advantages[1] > 0


def test_any_name_can_be_a_component():
    names = [
        "torch",
        "math",
        "columns",
        "groups",
        "print",
        "None",
        "lambda",
        "float",
        "Batch",
        "Result",
        "group_zscore",
        "EPS",
    ]
    names += ["COLUMNS", "shares", "seed", "class", "self", "__import__", "RolloutError", "largest"]
    rows = "\n".join(f"  {name}: {{range: [0, 1]}}" for name in names)
    fn = rewardspec.compile(rewardspec.loads(f"rewardspec: 1\ncomponents:\n{rows}\nadvantage: total - mean(total)\n"))
    out = fn({name: torch.rand(8) for name in names}, 4)
    assert list(out.rewards) == names
    torch.testing.assert_close(sum(out.shares.values()), out.advantages)
