"""Layout, schema, new specs and differences: what editors and habits need."""

import json
import random
import re
from itertools import combinations

import jsonschema
import pytest
from commands_in_process import run
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from places import CASES, FUZZ, SPECS
from ruamel.yaml import YAML
from test_cases import CASE

import rewardspec
from rewardspec.language.editor import is_name, json_schema, spec_like
from rewardspec.lint import findings, registered
from rewardspec.lint.pages import PAGES
from rewardspec.prove.diff import difference
from rewardspec.prove.diff_on_log import difference_on_log
from rewardspec.prove.replay import BadLog
from rewardspec.spec import check
from rewardspec.syntax.expression import read
from rewardspec.syntax.formatter import formatted
from rewardspec.syntax.tree import meaning
from rewardspec.syntax.yaml import Mapping, Scalar, read_yaml
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source

FILES = sorted(path for path in SPECS.glob("*/*.yaml") if path.parent.name != "dialects")


def layout(text):
    report = Report()
    found = formatted(Source("spec.yaml", text), report)
    assert not report.diagnostics
    return found


MESSY = """

rewardspec: 1
name:   messy
# about signals
signals:
    tokens: { range: [0,.inf] }   # how long


    # comment on task
    task: {values: [ math,code ]}
components:
        correct:   {values: [0,1]}
        length:
             # inside
             expr: tokens<=4000
             when: (correct>=1) and ((task==math))
             weight: 0.50
        staged:
          stages:
          - correct
          - {add: 1e-4*correct,when: correct>=1}
          -   add: >
                tokens *
                2
              when: tokens>3
define: {"half(x)": "0.5*x"}
advantage:   zscore( (total) )+0
"""
TIDY = """rewardspec: 1
name: messy
# about signals
signals:
  tokens: {range: [0, .inf]}   # how long

  # comment on task
  task: {values: [math, code]}
components:
  correct: {values: [0, 1]}
  length:
    # inside
    expr: tokens <= 4000
    when: correct >= 1 and task == math
    weight: 0.50
  staged:
    stages:
      - correct
      - {add: 1e-4 * correct, when: correct >= 1}
      - add: >
            tokens *
            2
        when: tokens > 3
define: {"half(x)": "0.5*x"}
advantage: zscore(total) + 0
"""


def test_layout_of_a_messy_spec():
    assert layout(MESSY) == TIDY
    assert rewardspec.loads(MESSY).fingerprint == rewardspec.loads(TIDY).fingerprint


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(SPECS).as_posix())
def test_published_specs_are_laid_out(path):
    text = path.read_text()
    assert layout(text) == text


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(SPECS).as_posix())
def test_layout_is_idempotent_and_keeps_meaning_and_comments(path):
    draw = random.Random(path.name)
    for _ in range(5):
        step = draw.choice([1, 3, 4, 8])
        lines = []
        for line in path.read_text().splitlines():
            own = len(line) - len(line.lstrip())
            lines.append(" " * (own // 2 * step) + line.lstrip() + " " * draw.choice([0, 0, 3]))
            lines += [""] * draw.choice([0, 0, 0, 2]) if not line.startswith(" ") else []
        space = draw.choice([": {", ":   {", ": { "])
        messy = "\n".join(line if "template" in line else line.replace(": {", space) for line in lines)
        tidy = layout(messy)
        assert layout(tidy) == tidy
        assert rewardspec.loads(tidy).fingerprint == rewardspec.loads(path.read_text()).fingerprint
        comments = [line.split("#", 1)[1] for line in path.read_text().splitlines() if "#" in line]
        assert [line.split("#", 1)[1] for line in tidy.splitlines() if "#" in line] == comments


def test_layout_of_what_does_not_read():
    report = Report()
    assert formatted(Source("spec.yaml", "a: b: c\n"), report) is None
    assert report.diagnostics


@pytest.mark.parametrize(
    ("text", "tidy"),
    [
        ("(-(-1)) ** a", "(-(-1)) ** a"),  # 1; without the parentheses it is -1
        ("(- 1)  ** (a)", "(-1) ** a"),
        ("(-(1))  ** a", "(-1) ** a"),
        ("2 ** (-(-(1)))", "2 ** (-(-(1)))"),
        ("+1  * (a)", "+1  * (a)"),
        ("0 <= a<1", "0 <= a<1"),  # not `0 <= a and a < 1`
    ],
)
def test_layout_of_signs_and_chains(text, tidy):
    assert layout(f"advantage: {text}\nname:  x\n") == f"advantage: {tidy}\nname: x\n"


def test_layout_keeps_space_at_the_end_of_a_line_of_text():
    text = "about: |\n    two spaces  \n    end\nname:  x\n"
    assert layout(text) == "about: |\n    two spaces  \n    end\nname: x\n"


def written(inner):
    """Expressions as they could be typed: parentheses, signs and space where they may stand."""
    infix = st.sampled_from([" + ", "-", "*", " / ", "**", " ** ", " < ", "<=", "  and ", " or ", " == "])
    return st.one_of(
        inner.map("({})".format),
        inner.map("( {} )".format),
        st.tuples(st.sampled_from(["-", "- ", "+", "not "]), inner).map("".join),
        st.tuples(inner, infix, inner).map("".join),
        st.builds("{} if {} else {}".format, inner, inner, inner),
        st.builds("f({}, b = {})".format, inner, inner),
    )


texts = st.recursive(st.sampled_from(["a", "b", "0", "1", "2.50", ".5", "1e-4", ".inf"]), written, max_leaves=8)


@pytest.mark.slow
@settings(max_examples=500 * FUZZ)
@given(texts)
@example("(-(-1)) ** a")
def test_layout_of_an_expression_keeps_its_tree(text):
    tree = read(Source("", text), Report())
    whole = f"define:\n    x:   {text}\n"
    assume(tree is not None and read_yaml(Source("", whole), Report()) is not None)
    tidy = layout(whole)
    (value,) = (value for _, value in read_yaml(Source("", tidy), Report()).get("define").items)
    assert meaning(read(Source("", value.text), Report())) == meaning(tree), tidy
    assert layout(tidy) == tidy


# Schema

ABOUT = {code: finding.title for code, finding in registered().items()}
SCHEMA = json_schema(ABOUT, {code for code, finding in registered().items() if finding.of_spec})
OF_ALLOW = [code for code, page in PAGES.items() if not page.is_error]
SAYS = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLES = sorted((SPECS.parent / "examples").rglob("*.yaml"))


def plain(node):
    """A document as text alone, as the checker has it."""
    if isinstance(node, Scalar):
        return node.text if node.text or node.style is not None else None  # nothing at all is null in YAML
    if isinstance(node, Mapping):
        return {key.text: plain(value) for key, value in node.items}
    return [plain(item) for item in node.items]


def typed(text):
    """A document as an editor's YAML reader has it, numbers and all."""
    return YAML(typ="safe", pure=True).load(text)


def accepted(text):
    """Whether a spec has no errors, and allows only what it can."""
    spec, _ = check(Source("spec.yaml", text))
    return spec is not None and not any(d.code in OF_ALLOW for d in findings(spec).warnings)


def written_specs():
    for path in [*FILES, *EXAMPLES]:
        if re.search("^rewardspec: 1$", path.read_text(), re.M):  # else a trainer's configuration
            yield pytest.param(path.read_text(), id=path.relative_to(SPECS.parent).as_posix())
    for path in sorted(CASES.rglob("*.md")):
        for match in CASE.finditer(path.read_text()):
            if "error[" not in match["said"] and not any(f"[{code}]" in match["said"] for code in OF_ALLOW):
                yield pytest.param(match["spec"], id=f"{path.stem}: {match['name']}")


@pytest.mark.slow
@pytest.mark.parametrize("text", list(written_specs()))
def test_schema_takes_what_the_checker_takes(text):
    SAYS.validate(plain(read_yaml(Source("", text), Report())))
    SAYS.validate(typed(text))


FINE = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\n"
WRONG = {
    "a version to come": FINE.replace("rewardspec: 1", "rewardspec: 2"),
    "no version": FINE.replace("rewardspec: 1\n", ""),
    "no components": "rewardspec: 1\nadvantage: grpo\n",
    "empty components": FINE.replace("{a: {values: [0, 1]}}", "{}"),
    "no advantage": FINE.replace("advantage: grpo\n", ""),
    "empty advantage": FINE.replace("grpo", ""),
    "refill alone": FINE + "refill: 1\n",
    "a key that is not there": FINE.replace("components", "component"),
    "eps below 0": FINE + "numerics: {eps: -1e-6}\n",
    "eps above 1": FINE + "numerics: {eps: 2}\n",
    "ddof of 2": FINE + "numerics: {ddof: 2}\n",
    "ddof of a half": FINE + "numerics: {ddof: 0.5}\n",
    "a finding that is not there": FINE + "allow: {phantom-gradiant: known}\n",
    "an error that is allowed": FINE + "allow: {gate-never-opens: known}\n",
    "no reason": FINE + "allow: {phantom-gradient: }\n",
    "a number for a reason": FINE + "allow: {phantom-gradient: 5}\n",
    "an empty reason": FINE + 'allow: {phantom-gradient: ""}\n',
    "one token": FINE + "condition: {tokens: {a: x}, prior: {a: 1}, template: '{token}'}\n",
    "a prior above 1": FINE + "condition: {tokens: {a: x, b: y}, prior: {a: 1.5}, template: '{token}'}\n",
    "no place for the token": FINE + "condition: {tokens: {a: x, b: y}, prior: {a: 0.5}, template: 'x'}\n",
}
WRONG_COMPONENTS = [
    "{}",
    "{valuess: [0, 1]}",
    "{values: []}",
    "{values: [0, 1], range: [0, 1]}",
    "{values: [0, 1], missing: maybe}",
    "{range: [0]}",
    "{range: [0, 1, 2]}",
    "{range: [yes, no, maybe]}",
    "{range: [true, false]}",
    "{values: [0, 1], scale: [0]}",
    "{values: [0, 1], scale: [0, 1, 2]}",
    "{use: toolrl.format, values: [0, 1]}",
    "{use: toolrl.format, range: [0, 1]}",
    "{use: toolrl.format, level: group}",
    "{use: toolrl.format, python: 'm:f'}",
    "{python: 'm:f'}",
    "{python: 'm:f', values: [0, 1], level: group}",
    "{values: [0, 1], with: {tone: x}}",
    "{values: [0, 1], otherwise: 1}",
    "{values: [0, 1], squash: sigmoid}",
    "{expr: step, values: [0, 1]}",
    "{expr: step, missing: ignore}",
    "{expr: step, range: [0, 1]}",
    "{expr: step, use: toolrl.format}",
    "{expr: step, stages: [step]}",
    "{stages: []}",
    "{stages: [{when: step > 1}]}",
    "{values: [0, 1], allow: {phantom-gradient: known}}",
]
WRONG |= {component: FINE.replace("{values: [0, 1]}", component) for component in WRONG_COMPONENTS}
WRONG |= {
    f"called {name}": FINE.replace("a:", f"{name}:") for name in ("advantage", "total-reward", "step", "2nd", "if")
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_schema_refuses_what_the_checker_refuses(text):
    assert SAYS.is_valid(typed(FINE))
    assert not accepted(text)
    assert not SAYS.is_valid(typed(text))


KEYS = {
    "values": [0, 1],
    "range": [0, 1],
    "use": "toolrl.format",
    "python": "m:f",
    "with": {"only_when": "b > 0"},
    "level": "group",
    "missing": "ignore",
    "outside": "clip",
    "expr": "b",
    "stages": ["b"],
    "squash": "sigmoid",
    "scale": [0, 2],
    "when": "b > 0",
    "otherwise": "ignore",
    "weight": 2,
    "about": "x",
}


@pytest.mark.slow
@pytest.mark.parametrize("first", KEYS)
def test_schema_is_never_stricter_than_the_checker_about_keys(first):
    keys = list(KEYS)
    rest = keys[keys.index(first) + 1 :]
    for others in (c for size in range(3 if FUZZ == 1 else 4) for c in combinations(rest, size)):
        part = {key: KEYS[key] for key in (first, *others)}
        for section in ("signals", "components"):
            spec = {"rewardspec": 1, "components": {"b": {"values": [0, 1]}}, "advantage": "center(b)"}
            spec.setdefault(section, {})["a"] = part
            if not SAYS.is_valid(spec):
                assert check(Source("", json.dumps(spec)))[0] is None, spec


STRANGE = [None, "", " ", "x", "1", 0, 1, 2, 0.5, -1, True, [], [0], [0, 1], ["x", "y"], [None, "x"], [0, 1, 2], {}]
STRANGE += [{"x": 1}, {"a": None}, {"a": ""}, {"x": "y"}, "2/2", "a", "step"]


def places(node, path=()):
    yield path
    for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield from places(node[key], (*path, key))


@pytest.mark.slow
def test_schema_is_never_stricter_than_the_checker_about_values():
    whole = typed(
        """
rewardspec: 1
name: whole
about: x
source: y
signals: {s: {range: [0, 1], about: z, missing: zero}, t: {values: [x, y], level: group}}
components:
  a: {values: [0, 1], weight: 2, when: s > 0, otherwise: 1, outside: clip}
  b: {stages: [{add: a, when: s > 0}, a], squash: sigmoid}
  c: {range: [0, 1], scale: [0, 2], with: {only_when: s > 0}, python: "m:f", missing: ignore}
  d: s + 1
define: {one: 1}
numerics: {eps: 0.1, ddof: 1}
keep: any(a)
refill: max(a)
advantage: grpo
guarantees: {g: min(a) >= 0}
condition: {tokens: {h: x, l: y}, prior: {h: 0.5}, template: "{token}"}
allow: {phantom-gradient: known}
"""
    )
    assert accepted(json.dumps(whole)) and SAYS.is_valid(whole)
    third = 3 if FUZZ == 1 else 1  # of the values in each place, others in the next
    for i, path in enumerate(list(places(whole))[1:]):
        for value in STRANGE[i % third :: third]:
            other = json.loads(json.dumps(whole))
            holder = other
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = value
            if not SAYS.is_valid(other):
                text = json.dumps(other)
                for written in {text, text.replace(": null", ": ")}:  # `null` is a word to us, and nothing is not
                    assert not accepted(written), (path, value)


def test_every_key_of_the_schema_is_described():
    SAYS.check_schema(SCHEMA)
    parts = [SCHEMA, *SCHEMA["$defs"].values()]
    for part in parts:
        for choice in [part, *part.get("anyOf", [])]:
            for name, key in choice.get("properties", {}).items():
                assert key.get("description") or "$ref" in key, name


def test_schema_proposes_schemes_and_reward_functions_and_allows_the_rest():
    words = [one["const"] for one in SCHEMA["properties"]["advantage"]["anyOf"] if "const" in one]
    assert {"grpo", "gdpo", "rloo"} <= set(words) and "zscore" not in words
    of_use = SCHEMA["$defs"]["Measured"]["properties"]["use"]["anyOf"]
    assert {"toolrl.correctness", "gdpo.length"} <= {one.get("const") for one in of_use}
    assert SCHEMA["$id"].startswith("urn:")
    for advantage in ("grpo", "2 * grpo", "zscore(total)", "gpro"):  # names are the checker's
        SAYS.validate(typed(FINE.replace("grpo", advantage)))
    use = FINE.replace("values: [0, 1]", "use: gdpo.length(limit=1e3)")
    SAYS.validate(typed(use))


# New specs


@pytest.mark.parametrize("like", ["papo", "papo/papo", "papo/papo.yaml", "rc-grpo", "two_stage"])
def test_new_spec_like_a_published_one(like):
    spec = rewardspec.loads(spec_like("mine", like)[0])
    assert spec.name == "mine"


@pytest.mark.parametrize(("like", "message"), [("nothing", "no spec is named 'nothing': alp/alp,")])
def test_new_spec_like_none(like, message):
    with pytest.raises(ValueError, match=message):
        spec_like("mine", like)


def test_names_that_are_files():
    assert [is_name(n) for n in ("a", "a-b_c.1", "", "../a", "a/b", ".a", "a b", "é")] == [True, True] + [False] * 6


# Differences


def test_difference_of_conditioning():
    found = difference(rewardspec.load(SPECS / "gdpo/math.yaml"), rewardspec.load(SPECS / "gdpo/math_conditioned.yaml"))
    assert [c.what for c in found.changes if not c.what.startswith("guarantee")] == ["component length"]
    # of two rollouts: wrong ones of unlike length, a short wrong one beside a long right one, ...
    assert [(s.size, s.groups) for s in found.sizes] == [(2, 10), (3, 20)]
    assert found.sizes[0].died == 1  # both wrong: only the length differed
    assert found.sizes[0].revived == 1  # right and long, wrong and short: they cancelled
    assert found.exact
    assert not found.is_none


def test_what_means_the_same_differs_in_nothing():
    a = rewardspec.loads("rewardspec: 1\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1]}}\nadvantage: grpo\n")
    b = rewardspec.loads(
        "rewardspec: 1\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1]}}\nadvantage: zscore(total)\n"
    )
    found = difference(a, b)
    assert [c.what for c in found.changes] == ["advantage"]
    assert all(s.changed == 0 for s in found.sizes)
    assert difference(a, a).is_none


WHOLE = """rewardspec: 1
signals: {t: {range: [0, 9]}, judged: {use: judge.rubric, with: {template: papo, model: m}}}
components:
  a: {values: [0, 1]}
  b: {range: [0, 1], when: a >= 1}
  c: {range: [0, 1], weight: 0.5}
condition:
  tokens: {high: <high>, low: <low>}
  prior: {high: 0.5}
  label: {high: a >= 1}
  template: "[{token}]"
advantage: grpo + center(t) + judged
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("c: {range: [0, 1],", "c: {range: [0, 1], outside: clip,", "column c"),
        ("c: {range: [0, 1],", "c: {range: [0, 1], missing: zero,", "column c"),
        ("t: {range: [0, 9]}", "t: {range: [0, 9], outside: clip}", "column t"),
        ("t: {range: [0, 9]}", "t: {range: [0, 9], missing: zero}", "column t"),
        ("model: m", "model: other", "reward function of judged"),
        ("label: {high: a >= 1}", "label: {high: a < 1}", "label high"),
        ("[{token}]", "[[{token}]]", "condition"),
        (
            "  a: {values: [0, 1]}\n  b: {range: [0, 1], when: a >= 1}\n",
            "  b: {range: [0, 1], when: a >= 1}\n  a: {values: [0, 1]}\n",
            "fingerprint",
        ),
    ],
)
def test_what_shows_only_off_the_domain_is_a_difference(old, new, where):
    """In none of these does any group of values that both specs allow have other advantages."""
    assert WHOLE.count(old) == 1
    before, after = rewardspec.loads(WHOLE), rewardspec.loads(WHOLE.replace(old, new))
    assert before.fingerprint != after.fingerprint
    found = difference(before, after, [2])
    assert not found.is_none
    assert any(where in change.what and change.before != change.after for change in found.changes), found.changes


def test_what_is_the_same_off_the_domain_is_no_difference():
    assert difference(rewardspec.loads(WHOLE), rewardspec.loads(WHOLE), [2]).is_none


def test_signs_that_flip():
    text = "rewardspec: 1\ncomponents: {{a: {{values: [0, 1], weight: {}}}}}\nadvantage: dr_grpo\n"
    found = difference(rewardspec.loads(text.format(1)), rewardspec.loads(text.format(-1)))
    assert [(s.changed, s.signs) for s in found.sizes] == [(1, 1), (2, 2)]


def test_weights_that_part_later_in_the_run():
    text = (
        "rewardspec: 1\ncomponents: {{a: {{values: [0, 1]}}, b: {{values: [0, 1], weight: {}}}}}\nadvantage: dr_grpo\n"
    )
    found = difference(rewardspec.loads(text.format(0.5)), rewardspec.loads(text.format("0.5 + progress")))
    # at the start they are alike; b has no part in a group whose rollouts agree on it: of 10 pairs 3 + 3, of 20 threes
    # those with b all 0 (4) or all 1 (4)
    assert [(s.groups, s.changed) for s in found.sizes] == [(10, 10 - 6), (20, 20 - 8)]
    assert found.sizes[0].moment == {"progress": 0.25}
    (a, before, after), (b, *_) = found.sizes[0].example
    assert (a["b"], b["b"]) in ((0, 1), (1, 0))
    assert abs(after - before) == 0.125  # a quarter of the way, half of the difference of b
    assert not found.exact
    assert found.left_out == ["schedules were compared at 5 moments only"]


def test_gates_that_open_at_unlike_steps():
    text = "rewardspec: 1\ncomponents: {{a: {{values: [0, 1], when: step >= {}}}}}\nadvantage: dr_grpo\n"
    found = difference(rewardspec.loads(text.format(100)), rewardspec.loads(text.format(200)), [2])
    (sized,) = found.sizes
    assert (sized.groups, sized.changed, sized.died, sized.moment) == (3, 1, 1, {"step": 100})
    assert found.exact
    still = "rewardspec: 1\ncomponents: {a: {values: [0, 1], when: progress >= 0.9}}\nadvantage: dr_grpo\n"
    (sized,) = difference(rewardspec.loads(text.format(100)), rewardspec.loads(still), [2]).sizes
    assert (sized.changed, sized.moment) == (1, {"step": 100, "progress": 0.1})


# Differences on a log

BEFORE = "rewardspec: 1\ncomponents: {solved: {values: [0, 1]}, short: {values: [0, 1]}}\nadvantage: dr_grpo\n"
AFTER = BEFORE.replace("short: {values: [0, 1]}", "short: {values: [0, 1], weight: 3, when: solved >= 1}")
LOG = [  # (step, prompt, solved, short)
    *((0, "a", 0, short) for short in (0, 1)),  # 0 and 1 before, both 0 after: signal lost
    *((0, "b", *rewards) for rewards in ((1, 0), (0, 1))),  # both 1 before, 1 and 0 after: signal found
    *((1, "a", 1, 0) for _ in range(2)),  # of another step, so another group: nothing before or after
    *((1, "c", *rewards) for rewards in ((1, 0), (1, 1), (0, 1), (0, 1))),  # 1, 2, 1, 1 and 1, 4, 0, 0
]


def write_log(path):
    rows = [{"step": s, "prompt": p, "rewards": {"solved": a, "short": b}} for s, p, a, b in LOG]
    random.Random(0).shuffle(rows)  # a log is in no order
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
def test_difference_of_large_specs_is_of_few_groups_and_says_so():
    """Ten values of each of twelve columns of the batch, and 64 components that sum up under square roots."""
    signals = "".join(f"  s{i}: {{values: [{', '.join(map(str, range(10)))}], level: batch}}\n" for i in range(12))
    total = " + ".join(f"s{i}" for i in range(12))
    wide = "".join(f"  c{i}: {{values: [0, 1], weight: {i + 1}/97}}\n" for i in range(64))
    for text, schemes in (
        (f"rewardspec: 1\nsignals:\n{signals}components: {{a: {{values: [0, 1]}}}}\n", [f"grpo * ({total})", "grpo"]),
        (f"rewardspec: 1\ncomponents:\n{wide}", ["grpo", "decoupled"]),
    ):
        found = difference(*(rewardspec.loads(f"{text}advantage: {scheme}\n") for scheme in schemes), [2])
        assert found.sizes[0].changed and "groups of 2 were drawn" in found.left_out[0]
        assert found.sizes[0].groups <= 2000 and (text[14:21] == "signals" or found.sizes[0].groups < 1000)


def test_difference_too_close_to_call_is_left_out():
    """cos(x) ** 2 + sin(x) ** 2 is 1, by a rule that nobody has told; no digits show it."""
    one = "(cos(a) * cos(a) + cos(pi / 2 - a) * cos(pi / 2 - a))"
    text = "rewardspec: 1\ncomponents: {a: {values: [1, 2]}}\nadvantage: grpo%s\n"
    found = difference(rewardspec.loads(text % ""), rewardspec.loads(text % f" * {one}"), [2])
    assert "some values are too close to call" in found.left_out and not found.exact


def test_difference_on_a_log(tmp_path):
    path = write_log(tmp_path / "log.jsonl")
    found = difference_on_log(rewardspec.loads(BEFORE), rewardspec.loads(AFTER), path)
    logged = found.logged
    assert (logged.rollouts, logged.groups, logged.steps) == (10, 4, 2)
    # a: -1/2, 1/2 and 0, 0; b: 0, 0 and 1/2, -1/2; c: -1/4, 3/4, -1/4, -1/4 and -1/4, 11/4, -5/4, -5/4
    assert (logged.died, logged.revived, logged.groups_changed) == (1, 1, 3)
    assert (logged.changed, logged.signs) == (7, 0)
    assert logged.moved == pytest.approx((4 * 0.5 + 2 + 1 + 1) / 10)
    rows = {(row["solved"], row["short"]): (a, b) for row, a, b in logged.example}
    assert rows == {(1, 0): (-0.25, -0.25), (1, 1): (0.75, 2.75), (0, 1): (-0.25, -1.25)}
    assert not found.is_none
    assert [c.what for c in found.changes] == ["component short", "weight of short"]


def test_signs_that_flip_on_a_log(tmp_path):
    turned = BEFORE.replace("short: {values: [0, 1]}", "short: {values: [0, 1], weight: -1}")
    logged = difference_on_log(
        rewardspec.loads(BEFORE), rewardspec.loads(turned), write_log(tmp_path / "log.jsonl")
    ).logged
    # a: -1/2, 1/2 turns; b: 0, 0 and 1, -1; c: -1/4, 3/4, -1/4, -1/4 and 5/4, 1/4, -3/4, -3/4
    assert (logged.changed, logged.signs) == (8, 3)


def test_a_scheme_in_other_words_differs_in_nothing_on_a_log(tmp_path):
    path = write_log(tmp_path / "log.jsonl")
    plain = rewardspec.loads(BEFORE.replace("dr_grpo", "gdpo"))
    by_hand = rewardspec.loads(BEFORE.replace("dr_grpo", "whiten(zscore(short) + zscore(solved))"))
    logged = difference_on_log(plain, by_hand, path).logged
    assert (logged.changed, logged.died, logged.revived, logged.example) == (0, 0, 0, [])


def test_log_that_a_spec_cannot_be_computed_on_is_said_so(tmp_path):
    path = write_log(tmp_path / "log.jsonl")
    other = rewardspec.loads("rewardspec: 1\ncomponents: {judged: {values: [0, 1]}}\nadvantage: grpo\n")
    with pytest.raises(BadLog, match="no column `judged`"):
        difference_on_log(rewardspec.loads(BEFORE), other, path)
    narrow = rewardspec.loads(BEFORE.replace("solved: {values: [0, 1]}", "solved: {values: [1, 2]}"))
    with pytest.raises(BadLog, match=r"step \d: column `solved` is 0"):
        difference_on_log(rewardspec.loads(BEFORE), narrow, path)


@pytest.mark.slow
def test_diff_command_on_a_log(tmp_path):
    log = write_log(tmp_path / "log.jsonl")
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    before.write_text(BEFORE)
    after.write_text(AFTER)
    done = run("diff", before, after, "--rollouts", log)
    assert done.returncode == 1
    assert "signal lost" in done.stdout
    assert "The group that changes most" in done.stdout
    found = json.loads(run("diff", before, after, "--rollouts", log, "--format", "json").stdout)
    assert found["logged"]["died"] == 1
    assert run("diff", before, before, "--rollouts", log).returncode == 0
    done = run("diff", before, after, "--rollouts", tmp_path / "none.jsonl")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert run("diff", before, after, "--rollouts", log, "--group-by", "nothing").returncode == 2


# The commands


@pytest.mark.slow
def test_fmt_command(tmp_path):
    path = tmp_path / "messy.yaml"
    path.write_text(MESSY)
    done = run("fmt", "--check", path)
    assert (done.returncode, path.read_text()) == (1, MESSY)
    assert run("fmt", path).returncode == 0
    assert path.read_text() == TIDY
    assert run("fmt", "--check", path).returncode == 0
    path.write_text("a: b: c\n")
    assert run("fmt", path).returncode == 1
    assert path.read_text() == "a: b: c\n"


@pytest.mark.slow
def test_new_diff_and_schema_commands(tmp_path):
    assert run("new", "mine", "--like", "papo", cwd=tmp_path).returncode == 0
    assert run("check", "mine.yaml", cwd=tmp_path).returncode == 0
    assert run("new", "mine", cwd=tmp_path).returncode == 2
    assert run("new", "../mine", cwd=tmp_path).returncode == 2
    assert run("new", "other", "--like", "nothing", cwd=tmp_path).returncode == 2
    assert json.loads(run("schema").stdout)["title"] == "rewardspec"
    math, conditioned = SPECS / "gdpo/math.yaml", SPECS / "gdpo/math_conditioned.yaml"
    done = run("diff", math, conditioned)
    assert done.returncode == 1
    assert "component length" in done.stdout
    assert "a sign flips" in done.stdout
    assert run("diff", math, math).returncode == 0
    later = tmp_path / "later.yaml"
    later.write_text(math.read_text().replace("advantage: gdpo", "advantage: gdpo * (1 + progress)"))
    assert later.read_text() != math.read_text()
    done = run("diff", math, later)
    assert "The first group that changes, at progress 0.25" in done.stdout
    assert "not everything was compared: schedules were compared at 5 moments only" in done.stdout
    assert json.loads(run("diff", math, conditioned, "--format", "json").stdout)["sizes"][0]["groups"] == 10
