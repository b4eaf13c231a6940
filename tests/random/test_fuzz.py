"""Any text at all: a Spec or a SpecError whose diagnostics can be shown, in bounded time; and what compiles runs.

The inputs are the same on every run. `make fuzz` tries 20 times as many new ones (FUZZ=100 for 100 times as many). What
broke something once is a file in `seeds/`: put the spec that hypothesis prints there.
"""

import ast
import json
import os
import pickle
import random
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st
from places import ROOT

import rewardspec
from rewardspec import SpecError
from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.embedding import TARGETS, embedded
from rewardspec.syntax.formatter import formatted
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source

FUZZ = int(os.environ.get("FUZZ", "0"))
SPECS = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "specs/gdpo").glob("*.yaml"))]
LONGEST = 5  # seconds of processor time for one hostile spec


def fuzz(examples):
    """Settings for `examples` inputs, the same on every run."""
    return settings(
        max_examples=examples * max(FUZZ, 1),
        deadline=None,
        derandomize=not FUZZ,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink][: 3 if FUZZ < 2 else 2],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def outcome(text):
    """The Spec of a text, or the SpecError, its diagnostics looked at."""
    try:
        spec = rewardspec.loads(text)
        diagnostics = spec.diagnostics
    except SpecError as error:
        spec, diagnostics = error, error.diagnostics
        assert diagnostics
        assert str(error).strip()
    for d in diagnostics:
        assert d.message.strip(), d
        for span in (d.span, *(label.span for label in d.labels)):
            assert span.source.text == text, f"{d.code} points into {span.source.name}"
            assert 0 <= span.start <= span.end <= len(text), (d.code, span.start, span.end)
        assert d.message in d.render()
        assert d.render().encode()  # a terminal can show it
        assert json.loads(json.dumps(d.to_json()))["line"] >= 1
    return spec


# Texts -------------------------------------------------------------------------------------------

KEYS = """rewardspec name about source signals components define numerics keep refill advantage guarantees condition
values range level missing outside scale when otherwise weight stages squash expr add use eps ddof a b tokens f(x) <<""".split()
SCALARS = """1 0 -1 0.5 .inf -.inf 1e-4 1e400 no yes true null ~ group batch rollout ignore error zero clip sigmoid a b
tokens gdpo grpo total rewards weights advantage missing a>=1 a+b sum(rewards) 'a' "b" * & ! | > % @ ` ? - : , { ] #
center(a) zscore(a,over=batch) clip(a,0,1) f(a) f(1,2) 1/3 1/0 a/0 max(a,where=a>2) not and if a if=1 (a a) ==""".split()
TOKENS = [
    *SCALARS,
    *"+ - * / ** < <= > >= == != ( ) , = and or not if else over where by mean std rank raw count".split(),
]


def flow(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {flow(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(map(flow, value)) + "]" if isinstance(value, list) else value


def block(value, indent=""):
    if isinstance(value, dict) and value:
        return "".join(f"\n{indent}{k}: {block(v, indent + '  ')}" for k, v in value.items())
    if isinstance(value, list) and value:
        return "".join(f"\n{indent}- {block(v, indent + '  ')}" for v in value)
    return flow(value)


scalars = st.sampled_from(SCALARS)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=5), st.lists(inner, max_size=3), inner.map(flow)
    ),
    max_leaves=25,
)
measured = st.dictionaries(
    st.sampled_from(KEYS[12:]), st.one_of(scalars, st.lists(scalars, max_size=3), trees), max_size=4
)
documents = st.fixed_dictionaries(
    {"rewardspec": st.just("1"), "components": st.dictionaries(st.sampled_from(["a", "b"]), measured)},
    optional={
        "signals": st.dictionaries(st.sampled_from(["tokens", "b"]), measured),
        "define": st.dictionaries(st.sampled_from(["f(x)", "g(x, y=a)", "c", "a"]), scalars),
        **{key: trees for key in ("numerics", "keep", "guarantees", "refill", "name", "about", "condition")},
        "advantage": scalars,
    },
)


@fuzz(150)
@given(st.one_of(st.text(max_size=200), st.text("{}[]:,-#&*!|>'\"%@` \n\tab1\0\x85\u2028", max_size=60)))
def test_random_text(text):
    outcome(text)


@fuzz(60)
@given(st.binary(max_size=200))
def test_random_bytes(data):
    outcome(data.decode("latin-1"))


@fuzz(120)
@given(st.one_of(st.dictionaries(st.sampled_from(KEYS), trees, max_size=8), documents), st.sampled_from([flow, block]))
def test_random_documents(document, dump):
    outcome(dump(document).lstrip("\n"))


@fuzz(120)
@given(st.data(), st.sampled_from(SPECS))
def test_mutated_specs(data, text):
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        piece = data.draw(st.one_of(st.just(""), st.just(text[start:end] * 2), st.sampled_from([*TOKENS, "\n", " "])))
        text = text[:start] + piece + text[end:]
    outcome(text)


@fuzz(120)
@given(st.one_of(st.lists(st.sampled_from(TOKENS), max_size=25).map(" ".join), st.text(max_size=30)))
@example("a if")
@example("(" * 3)
def test_random_expressions(text):
    quoted = json.dumps(text)  # so that it reaches the parser whole
    outcome("rewardspec: 1\ncomponents: {a: {range: [0, 1]}, b: {values: [0, 1]}}\nadvantage: " + quoted + "\n")


SEEDS = sorted((Path(__file__).parent / "seeds").glob("*.yaml"))
NUMBERS = [0.0, 1.0, 0.0, 1.0]


def followed_through(text):
    """A text as a spec, its files for every trainer, its layout, its pickle and a call; nothing but errors of ours."""
    spec = outcome(text)
    formatted(Source("spec", text), Report())
    if isinstance(spec, SpecError):
        assert str(pickle.loads(pickle.dumps(spec))) == str(spec)
        return
    for target in TARGETS:
        try:
            files = embedded(spec, target)
        except BindingError:
            continue
        for name, content in files.items():
            if name.endswith(".py"):
                nodes = {type(node) for node in ast.parse(content.encode()).body}
                assert nodes <= {ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign}
            if name.endswith(".yaml") and name != "spec.yaml":
                assert yaml.safe_load(content)["env"]["REWARDSPEC"].rstrip("\n") == text.rstrip("\n")
    fn = pickle.loads(pickle.dumps(rewardspec.compile(spec)))
    assert fn.spec.fingerprint == spec.fingerprint
    symbols = {name: column.domain.symbols for name, column in spec.program.columns.items()}
    columns = {name: [symbols[name][0]] * 4 if symbols[name] else NUMBERS for name in spec.columns}
    advantages(fn, columns, 2)


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_what_broke_something_once(path):
    followed_through(path.read_bytes().decode())


@fuzz(15)
@given(st.data(), st.sampled_from([*SPECS, *(path.read_bytes().decode() for path in SEEDS)]))
def test_specs_with_hostile_texts_are_followed_through(data, text):
    pieces = ["\\n", "\\u2028", "$(", "`", "'", '\\"', "#", ": ", "coding: utf-7 ", "+AAo-", "1e39", "1e300", "${", "é"]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(pieces)) + text[at:]
    words = data.draw(st.one_of(st.text(max_size=20), st.lists(st.sampled_from(pieces), max_size=6).map("".join)))
    if text.startswith("rewardspec: 1\n") and "\nabout:" not in text:
        text = text.replace("\n", f"\nabout: {json.dumps(words)}\n", 1)
    followed_through(text)


# Hostile texts -----------------------------------------------------------------------------------

ONE = "rewardspec: 1\ncomponents: {a: {range: [0, 3]}, b: {range: [0, 1]}}\n"


def deep(before, after="", times=10_000, most=64_000):
    times = min(times, (most - 200) // len(before + after))
    return f"{ONE}advantage: center({before * times}a{after * times})\n"


def definitions(line, first, last, count=24):
    """`first` comes down to `line` of `line` of ... `last`."""
    return (
        f"{ONE}define:\n" + "".join(f"  {line(i)}\n" for i in range(count)) + f"  {last}\nadvantage: center({first})\n"
    )


HOSTILE = {
    "aliases": "rewardspec: 1\n" + "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]\n" for i in range(1, 9)),
    **{f"yaml {c}": c * 10_000 for c in ("[", "{", "{a: ", "- ", "? ", "&", "*", "!", "|", "'", '"', "a:\n ", "\t")},
    **{f"value {c}": f"{ONE}advantage: {c * 10_000}" for c in ("[", "{", "{a: ", "'", '"', "(", "-")},
    "parentheses": deep("(", ")"),
    **{f"ten thousand {c}": deep(c) for c in ("-", "+", "not ", "- ", "a+", "a - ", "a**", "a<", "a and ", "abs(")},
    **{f"four hundred {c}": deep(c, times=400) for c in ("-", "not ", "a + ", "a - ", "a * ", "a and ", "a < ", "a ** ")},
    **{f"95 {c}": deep(c, ")" * c.count("("), 95) for c in ("-", "a - ", "abs(", "zscore(", "a ** ", "a if a > 0 else ", "1 / (1 + ")},
    **{f"term {e}": f"{ONE}advantage: center(a + {e})\n" for e in (
        "1e400", "1e300 * 1e300", "9**9**9**9", "0 * 9**9**9**9", "10**-400", "9" * 10**5, "9" * 5 * 10**4, "1e" + "9" * 30,
        "sqrt(1e300) * sqrt(3e299)", "exp(1e300)", "floor(1e300)", "(-1) ** (1 / 3)", "a ** 1e300", "(a * 1e300) ** 9",
        "exp(a * 1e300 * 1e10)", "log(a * 1e300 * 1e10 + 1)", "zscore(a * 1e300 * 1e10)", "sigmoid((a - 1) * 1e300 * 1e10)",
    )},
    "number in values": f"rewardspec: 1\ncomponents: {{a: {{values: [0, {'9' * 50_000}]}}}}\nadvantage: grpo\n",
    "end of range": "rewardspec: 1\ncomponents: {a: {range: [0, 1e300/1e-300]}}\nadvantage: grpo\n",
    "large values": "rewardspec: 1\ncomponents: {a: {values: [0, 1e300/1e-300]}}\nadvantage: grpo\n",
    "small values": "rewardspec: 1\ncomponents: {a: {values: [0, 1e-300/1e300]}}\nadvantage: grpo\n",
    "version": f"rewardspec: {'9' * 50_000}\n",
    "one key": "rewardspec: 1\n" + "k" * 65_500 + ": 1\n",
    "only a key": "k" * 65_536,
    "too long": "k" * 65_537,
    "only breaks": "\n" * 65_536,
    "sums doubled": definitions(lambda i: f"v{i}: v{i + 1} + v{i + 1}", "v0", "v24: b"),
    "products doubled": definitions(lambda i: f"v{i}: v{i + 1} * v{i + 1}", "v0", "v24: a + 1/3"),
    "constants doubled": definitions(lambda i: f"v{i}: v{i + 1} * v{i + 1}", "a * v0", "v24: 1/3"),
    "gates doubled": definitions(lambda i: f"v{i}: (v{i + 1} if v{i + 1} > b else missing) + (v{i + 1} if v{i + 1} < b / {i + 2} else missing)", "v0", "v24: a"),
    "divisions doubled": definitions(lambda i: f"v{i}: 1 / v{i + 1} + log(v{i + 1} if v{i + 1} > b else 1)", "v0", "v24: a"),
    "choices doubled": definitions(lambda i: f"v{i}: v{i + 1} if v{i + 1} > 0 else -v{i + 1}", "v0", "v24: center(a)"),
    "scores doubled": definitions(lambda i: f"v{i}: zscore(v{i + 1}) + zscore(v{i + 1} * 2)", "v0", "v24: a"),
    "functions doubled": definitions(lambda i: f"f{i}(x): f{i + 1}(x) + f{i + 1}(x)", "f0(a)", "f24(x): x"),
    "functions branching": definitions(lambda i: f"f{i}(x): f{i + 1}(x + 1) + f{i + 1}(x * 2)", "f0(a)", "f24(x): x"),
    "bundles doubled": definitions(lambda i: f"v{i}: v{i + 1} + v{i + 1} * rewards", "sum(v0, over=components)", "v24: rewards"),
    "circle of functions": definitions(lambda i: f"f{i}(x): f{i + 1}(x + 1) + f{i + 1}(x)", "f0(a)", "f24(x): f0(x + 1)"),
    "circle of values": definitions(lambda i: f"v{i}: v{i + 1} + 1", "v0", "v24: v0"),
    "chain of 1000": definitions(lambda i: f"v{i}: v{i + 1} + 1", "v0", "v1000: a", 1000),
    "chain of 1000, backwards": f"{ONE}define:\n  v0: a\n" + "".join(f"  v{i}: v{i - 1} + 1\n" for i in range(1, 1001)) + "advantage: center(v1000)\n",
    "chain of 1000 functions": definitions(lambda i: f"f{i}(x): f{i + 1}(x) + 1", "f0(a)", "f1000(x): x", 1000),
    **{f"{n} components": "rewardspec: 1\ncomponents:\n" + "".join(f"  c{i}: {{range: [0, 1]}}\n" for i in range(n)) + "advantage: gdpo\n" for n in (64, 65)},
    "many values": "rewardspec: 1\ncomponents:\n" + "".join(f"  c{i}: {{values: [{', '.join(map(str, range(256)))}]}}\n" for i in range(9)) + "advantage: gdpo\n",
    "equal values": "rewardspec: 1\ncomponents: {a: {values: [" + "1, " * 4000 + "]}}\nadvantage: gdpo\n",
    "unknown keys": "rewardspec: 1\n" + "".join(f"k{i}: 1\n" for i in range(4000)),
    "unknown names": f"{ONE}advantage: " + " + ".join(f"z{i}" for i in range(480)),
    "guarantees": f"{ONE}advantage: grpo\nguarantees:\n" + "".join(f"  g{i}: min(advantage) > -{i}\n" for i in range(1000)),
    "branches": f"{ONE}advantage: center(" + " + ".join(f"(1 / (a - {i}) if a > {i} else log(a - {i}))" for i in range(40)) + ")\n",
}  # fmt: skip


class TooSlow(BaseException):
    """Not an Exception, so that no handler takes it for the input's fault."""


@contextmanager
def bounded_time():
    def stop(*_):
        raise TooSlow(f"over {LONGEST} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_spec_ends_in_bounded_time(name):
    outcome(ONE + "advantage: gdpo\n").python  # imports and caches are not the input's time  # noqa: B018
    with bounded_time():
        spec = outcome(HOSTILE[name])
        if not isinstance(spec, SpecError):
            rewardspec.compile(spec)
            assert len(spec.python) < 500_000


@pytest.mark.parametrize(
    "text", ['"""', "'''\n", "\\", '\\"""', "\n\nimport os\n", "\r\nx = 1\n", "\x0cx = 1", "\0", "\x1b[0m", "\x85", "\u2028x = 1", "\ufeff", "\ud800", "# x", "%s {0}", "é" * 999]
)  # fmt: skip
def test_free_text_stays_text(text):
    quoted = json.dumps(text)  # YAML reads JSON's escapes
    keys = f"name: {quoted}\nabout: {quoted}\nsource: {quoted}\nguarantees: {{{quoted}: max(advantage) < 9}}\n"
    spec = outcome(f"{ONE}{keys}advantage: gdpo\n")
    if not isinstance(spec, SpecError):
        nodes = {type(node) for node in ast.parse(spec.python).body}
        assert nodes <= {ast.Import, ast.ClassDef, ast.FunctionDef, ast.Assign}
        assert "import os" not in {
            ast.unparse(n) for n in ast.walk(ast.parse(spec.python)) if isinstance(n, ast.Import)
        }
        rewardspec.compile(spec)


@pytest.mark.parametrize("place", ["", "a ", "advantage: a"])
@pytest.mark.parametrize("char", "\0 \x07 \x0b \x0c \x1b \x85 \u2028 \u2029 \u202e \ufeff \ud800 \U0001f600".split(" "))
def test_strange_characters_raw_and_escaped(char, place):
    outcome(f"{char}{ONE}advantage: gdpo\n")
    outcome(f"{ONE}{place}{char}: 1\n")
    char = json.dumps(char)[1:-1] if len(json.dumps(char)) < 9 else char  # YAML reads JSON's escapes
    outcome(f'{ONE}"{place}{char}": 1\nadvantage: gdpo\n')
    outcome(f'rewardspec: 1\ncomponents: {{"x{char}": {{values: [0, 1]}}}}\nadvantage: gdpo\n')
    outcome(f'rewardspec: 1\nsignals: {{t: {{values: ["x{char}", y]}}}}\n{ONE[14:]}advantage: gdpo\n')
    outcome(f'{ONE}define: {{"f(x{char})": x}}\nadvantage: f(a)\n')


NAMES = """torch math print lambda None True class def import columns groups seed shares advantages Batch Result Layout
RolloutError group_zscore EPS COLUMNS float self value type match _ __class__ __builtins__ __import__ center gdpo""".split()


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_a_column(name):
    def advantage(name):
        text = f"""rewardspec: 1
signals: {{{name}_: {{range: [0, 1]}}}}
components: {{{name}: {{range: [0, 1]}}, b: {{expr: {name} > 0.5, when: {name}_ > 0.1}}}}
define: {{{name}2: {name} + {name}_}}
advantage: grpo + zscore({name}2 * std({name}2))
"""
        columns = {name: [0.0, 0.5, 1.0, 0.25], f"{name}_": [0.0, 1.0, 1.0, 0.5]}
        return rewardspec.compile(rewardspec.loads(text))(columns, 2).advantages

    assert torch.equal(advantage(name), advantage("plain"))


# Expressions with a meaning ----------------------------------------------------------------------

HEAD = """rewardspec: 1
signals:
  task: {values: [x, y], level: group}
  kind: {values: [u, v, w]}
  difficulty: {range: [0, 1], level: group}
  lam: {range: [0, 2], level: batch}
  tokens: {range: [0, .inf]}
components:
  a: {values: [0, 1]}
  b: {range: [-1, 1], weight: 0.5}
  c: {values: [0, 0.5, 1], missing: ignore}
"""
BATCH, GROUP, ROLLOUT = range(3)
LEAVES = [["lam", "0.5", "2", "-1", "1", "step"], ["difficulty", "group_size"], ["a", "b", "c", "raw(b)", "tokens"]]
OVER = [None, ", over=batch", ""]


class Author:
    """Writes expressions of at most a level.

    An exact one has only values that are sums of powers of two here, the same in any order of the
    rollouts; whatever jumps (comparisons, `floor`, a division by zero) is asked of those only.
    """

    def __init__(self, choose):
        self.choose = choose  # one of a tuple

    def pick(self, *options):
        return self.choose(options)

    def leaf(self, level):
        return self.pick(*(leaf for leaves in LEAVES[: level + 1] for leaf in leaves))

    def exact(self, level, depth=2):
        if depth <= 0:
            return self.leaf(level)
        x, y = self.exact(level, depth - 1), self.exact(self.pick(*range(level + 1)), depth - 1)
        kinds = [x, f"({x} {self.pick(*'+-*')} {y})", f"{self.pick('abs', 'floor', 'round', 'sign', '-')}({x})"]
        kinds += [
            f"{self.pick('min', 'max', 'coalesce')}({x}, {y})",
            f"({x} if {self.condition(level, depth - 1)} else {y})",
        ]
        if level < ROLLOUT:
            finer = self.pick(*range(level + 1, 3))
            kinds.append(
                f"{self.pick('min', 'max', 'sum', 'count')}({self.reducible(finer, depth)}{self.rest(finer, level, depth)})"
            )
        return self.pick(*kinds)

    def reducible(self, level, depth, exact=True):
        """An expression of exactly a level."""
        make = self.exact if exact else self.number
        return f"({self.pick(*LEAVES[level])} + {make(level, depth - 1)})"

    def rest(self, level, to, depth):
        """What stands after the first argument of a reduction from `level` to `to`."""
        over = OVER[ROLLOUT] if to == GROUP else ", over=batch"
        return over + self.pick("", "", f", where={self.condition(level, depth - 1)}")

    def condition(self, level, depth=1):
        inner = lambda: self.condition(level, depth - 1)  # noqa: E731
        match self.pick("compare", "compare", "symbol", "known", "both", "not", "chain", "reduce", "constant"):
            case "symbol" if level >= GROUP:
                return f"task {self.pick('==', '!=')} {self.pick('x', 'y')}"
            case "known" if level == ROLLOUT:
                return self.pick("kind == u", "a", "present(c)", "c > 0.5")
            case "both" if depth > 0:
                return f"({inner()} {self.pick('and', 'or')} {inner()})"
            case "not" if depth > 0:
                return f"(not {inner()})"
            case "chain":
                return f"0 < {self.leaf(level)} <= 1"
            case "reduce" if depth > 0 and level < ROLLOUT:
                finer, name = self.pick(*range(level + 1, 3)), self.pick("any", "all")
                return f"{name}({self.exact(finer, 1)} > {self.pick(*LEAVES[finer])}{self.rest(finer, level, 1)})"
            case "constant":
                return self.pick("0", "1")
        return f"{self.exact(level, depth - 1)} {self.pick('<', '<=', '>', '>=', '==', '!=')} {self.leaf(level)}"

    def number(self, level, depth=3):
        """Any expression; it can jump only by what is exact."""
        if depth <= 0:
            return self.pick(self.leaf(level), "pi", "progress")
        x, e = lambda: self.number(level, depth - 1), lambda: self.exact(level, depth - 1)
        y = lambda: self.number(self.pick(*range(level + 1)), depth - 1)  # noqa: E731
        match self.pick(*"arithmetic divide smooth root power pick if reduce score scheme exact".split()):
            case "arithmetic":
                return f"({x()} {self.pick(*'+-*')} {y()})"
            case "divide":
                z = e()
                return self.pick(
                    f"({x()} / {z})", f"({x()} / (1 + abs({y()})))", f"({x()} / {z} if {z} != 0 else {y()})"
                )
            case "smooth":
                return self.pick(
                    f"{self.pick('sigmoid', 'tanh', 'cos', 'abs', '-')}({x()})",
                    f"exp({e()})",
                    f"clip({x()}, -1, {y()})",
                )
            case "root":
                return f"{self.pick('log', 'sqrt')}({self.pick(e(), f'(1 + abs({x()}))')})"
            case "power":
                return f"({e()}) ** {self.pick('2', '3', '0.5', '-1', 'lam')}"
            case "pick":
                return f"{self.pick('min', 'max', 'coalesce')}({x()}, {y()})"
            case "if":
                return f"({x()} if {self.condition(level)} else {y()})"
            case "reduce":
                if level == BATCH or (level == GROUP and depth > 1):
                    finer = self.pick(*range(level + 1, 3))
                    inner, rest = self.reducible(finer, depth, exact=False), self.rest(finer, level, depth)
                    return f"{self.pick('mean', 'sum', 'std', 'var', 'min', 'max')}({inner}{rest})"
                if level == GROUP:
                    return f"quantile({self.reducible(ROLLOUT, 1)}, {self.pick('0', '0.5', '0.9')})"
                over = (
                    self.pick("", ", over=batch")
                    + self.pick("", f", where={self.condition(ROLLOUT)}")
                    + self.pick("", ", by=task", ", by=kind")
                )
                return self.pick(
                    f"mean({self.reducible(ROLLOUT, depth, False)}{over})", f"rank({self.reducible(ROLLOUT, 2)}{over})"
                )
            case "score" if level == ROLLOUT:
                over = (
                    self.pick("", ", over=batch")
                    + self.pick("", f", where={self.condition(ROLLOUT)}")
                    + self.pick("", ", by=task")
                )
                return f"{self.pick('center', 'zscore', 'loo', 'minmax')}({self.reducible(ROLLOUT, 2)}{over})"
            case "scheme" if level == ROLLOUT:
                bundle = self.pick(
                    "rewards", "zscore(rewards)", "center(rewards)", f"(rewards + {e()})", f"rewards * {x()}"
                )
                made = f"{self.pick('sum', 'mean', 'min', 'max', 'std', 'count')}({bundle}, over=components)"
                return self.pick(*"total grpo dr_grpo rloo decoupled gdpo batch_grpo reinforce_baseline".split(), made)
        return e()


@st.composite
def spec_texts(draw):
    if draw(st.booleans()):
        author = Author(lambda options: draw(st.sampled_from(options)))  # hypothesis shrinks these
    else:
        author = Author(random.Random(draw(st.integers(0, 2**60))).choice)  # and these differ more
    if author.pick(True, False):
        text = f"{HEAD}advantage: {author.pick('center', 'zscore', '')}({author.reducible(ROLLOUT, 4, exact=False)})\n"
    else:
        when = author.pick(
            "", f"\n    when: {author.condition(ROLLOUT)}\n    otherwise: {author.pick('ignore', '0', 'a')}"
        )
        weight = author.pick("", f"\n    weight: {author.number(GROUP, 2)}")
        scheme = author.pick("gdpo", "grpo", "rloo", "dr_grpo", "batch_grpo", "reinforce_baseline", "gdpo + center(d)")
        text = f"{HEAD}  d:\n    expr: {author.exact(ROLLOUT)}{when}{weight}\nadvantage: {scheme}\n"
    return text + author.pick("", "", f"keep: {author.condition(GROUP)}\n")


def rollouts(rng, sizes):
    n = sum(sizes)

    def quarters(low, high, count=n):
        return [rng.randint(4 * low, 4 * high) / 4 for _ in range(count)]

    spread = lambda values: [v for v, size in zip(values, sizes, strict=True) for _ in range(size)]  # noqa: E731
    return {
        "task": spread([rng.choice("xy") for _ in sizes]),
        "kind": rng.choices("uvw", k=n),
        "difficulty": torch.tensor(spread(quarters(0, 1, len(sizes)))).double(),
        "lam": rng.choice([0.0, 0.5, 2.0]),
        "tokens": torch.tensor(quarters(0, 100)).double(),
        "a": torch.tensor(rng.choices([0.0, 1.0], k=n)).double(),
        "b": torch.tensor(quarters(-1, 1)).double(),
        "c": torch.tensor(rng.choices([0.0, 0.5, 1.0, float("nan")], k=n)).double(),
    }


def advantages(fn, columns, groups):
    try:
        found = fn(columns, groups, step=3, total_steps=10).advantages
    except fn.RolloutError as error:
        assert str(error).strip()
        return str(error)
    assert torch.isfinite(found).all(), found
    return found


@fuzz(110)
@given(spec_texts(), st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 4))
def test_expressions_are_rejected_or_run(text, seed, count, size):
    spec = outcome(text)
    assume(not isinstance(spec, SpecError))
    ast.parse(spec.python)
    fn, rng = rewardspec.compile(spec), random.Random(seed)
    columns, n = rollouts(rng, [size] * count), size * count
    dense = advantages(fn, columns, size)
    order = rng.sample(range(n), n)
    moved = {
        k: x if k == "lam" else [x[i] for i in order] if isinstance(x, list) else x[order] for k, x in columns.items()
    }
    ragged = advantages(fn, moved, [f"prompt {i // size}" for i in order])
    assert isinstance(dense, str) == isinstance(ragged, str), f"{text}\n{dense}\n{ragged}"
    if not isinstance(dense, str):
        largest = max(1.0, float(dense.abs().max()))
        torch.testing.assert_close(ragged, dense[order], atol=1e-6 * largest, rtol=1e-6, msg=lambda m: f"{text}\n{m}")
    sizes = [rng.randint(1, 4) for _ in range(count)]
    columns = {k: x.tolist() if isinstance(x, torch.Tensor) else x for k, x in rollouts(rng, sizes).items()}
    advantages(fn, columns, [i for i, size in enumerate(sizes) for _ in range(size)])
