"""The pages that people read: every spec in them is loaded, every result shown is computed, and rules of form hold."""

import ast
import math
import re
from fractions import Fraction as F
from pathlib import Path

import pytest
import torch
import yaml
from places import ROOT
from reference.declared import Scope
from reference.interpreter import Batch, Evaluation
from reference.nodes import Bundle
from reference.numbers import Arithmetic
from reference.reader import Reader

import rewardspec
from rewardspec.prove.simulate import simulate

LANGUAGE = ROOT / "grammar" / "LANGUAGE.md"
PAGES = [LANGUAGE, *sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def blocks(page):
    """(first line, kind, text) of every fenced block."""
    text = page.read_text(encoding="utf-8")
    return [(text[: found.start()].count("\n") + 2, *found.groups()) for found in FENCED.finditer(text)]


def specs(page):
    """(line, text) of every spec; of a fragment, with what completes it."""
    for line, kind, text in blocks(page):
        if kind == "yaml" and re.search(r"^components:", text, re.M):
            if not text.startswith("rewardspec"):
                text = f"rewardspec: 1\n{text}"
            yield line, text if re.search("^advantage:", text, re.M) else f"{text}advantage: gdpo\n"


def last_spec(page, line):
    return [text for at, text in specs(page) if at < line][-1]


def each(found):
    return pytest.mark.parametrize(
        ("page", "line", "text"), [pytest.param(p, n, t, id=f"{p.name}:{n}") for p, n, t in found]
    )


@each([(page, line, text) for page in PAGES for line, text in specs(page)])
def test_spec_is_right(page, line, text):
    rewardspec.compile(rewardspec.loads(text))


# Results beside Python


SESSIONS = [(LANGUAGE, line, text) for line, kind, text in blocks(LANGUAGE) if kind == "python"]


def plain(value):
    return value.tolist() if isinstance(value, torch.Tensor) else value


@each(SESSIONS)
def test_results_beside_python_are_so(page, line, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(last_spec(page, line))
    spec = rewardspec.load("spec.yaml")
    names = {"rewardspec": rewardspec, "spec": spec, "fn": rewardspec.compile(spec)}
    shown = 0
    for statement in ast.parse(text).body:
        code, _, comment = text.splitlines()[statement.end_lineno - 1].partition("  # ")
        if isinstance(statement, ast.Expr):
            expected = eval(comment, {"nan": math.nan})
            found = plain(eval(code, names))
            approximate = isinstance(expected, list) and not isinstance(expected[0], bool)
            assert found == (pytest.approx(expected, abs=5e-5, nan_ok=True) if approximate else expected), code
            shown += 1
        else:
            exec(ast.unparse(statement), names)
    assert shown


# Pictures: a value a line, its level, and as many numbers as that level has


PICTURES = [
    (LANGUAGE, line, text)
    for line, kind, text in blocks(LANGUAGE)
    if kind == "text" and re.match("value |bundle ", text)
]
LEVELS = ["batch", "group", "rollout"]
ABSENT = -99


def picture(text):
    """Rollouts of the heading, and (expression, level, component, values) of every line."""
    heading, *lines = text.splitlines()
    rollouts = re.findall(r"\b[pq]\d\b", heading)
    level_at, bundle = heading.index("level"), heading.startswith("bundle")
    rows = []
    for line in lines:
        expression, rest = line[:level_at].strip(), line[level_at:].split()
        level = rest.pop(0) if rest[0] in LEVELS else rows[-1][1]
        component = rest.pop(0) if bundle else "-"
        rows.append((expression or rows[-1][0], level, component, rest))
    return rollouts, rows


def number(word):
    return None if word == "-" else F(word) if re.match(r"-?[\d.]+$", word) else word


def second_reading(spec, columns, groups):
    """A function of an expression and a component: its level, and its value for a rollout, by the reference."""
    reader, arithmetic = Reader(spec), Arithmetic()
    leaves = {name: [arithmetic.leaf(v) if isinstance(v, F) else v for v in x] for name, x in columns.items()}
    evaluation = Evaluation(reader, Batch(leaves, groups), leaves, arithmetic)

    def look(expression, component):
        node = reader.expression(expression, Scope())
        node = node.nodes[list(reader.components).index(component)] if isinstance(node, Bundle) else node
        return LEVELS[node.level], lambda i: evaluation.at(node, i)

    return look


def compiled(spec, expression, component, columns, groups):
    """What the compiled function gives for an expression, for every rollout; ABSENT where it is missing."""
    declared = yaml.safe_load(spec)
    first = next(iter(declared["components"]))
    if component != "-":  # a bundle: one of its values
        weight = declared["components"][component].get("weight", 1)
        spec, expression = (
            re.sub(r"\bweights\b", str(weight), re.sub(r"\brewards\b", component, s)) for s in (spec, expression)
        )
        spec = spec.replace(f"over={component}", "over=components")
    spread = f"coalesce({expression}, {ABSENT}) + ({first} if {first} > 99 else 0)"
    spec = re.sub(r"^advantage: .*", f"advantage: {spread}", spec, flags=re.M)
    given = {name: [v if isinstance(v, str) else float(v) for v in x] for name, x in columns.items()}
    return rewardspec.compile(rewardspec.loads(spec))(given, groups).advantages.tolist()


@pytest.mark.slow
@each(PICTURES)
def test_picture_is_as_both_readings_compute_it(page, line, text):
    spec = last_spec(page, line)
    names = [*yaml.safe_load(spec).get("signals", {}), *yaml.safe_load(spec)["components"]]
    rollouts, rows = picture(text)
    columns = {e if e in names else c: list(map(number, x)) for e, _, c, x in rows if e in [*names, "rewards"]}
    groups = [name[0] for name in rollouts]
    look = second_reading(spec, columns, groups)
    for expression, level, component, words in rows:
        of_each = {
            "rollout": range(len(groups)),
            "group": [groups.index(g) for g in dict.fromkeys(groups)],
            "batch": [0],
        }[level]
        assert len(words) == len(of_each), f"{expression}: one value for each {level}"
        expected = list(map(number, words))
        found_level, at = look(expression, component)
        assert found_level == level, expression
        if any(isinstance(v, str) for v in expected):
            continue
        found = [at(i) for i in of_each]
        assert [None if v is None else float(v.value) for v in found] == [
            v if v is None else pytest.approx(float(v), abs=5e-5) for v in expected
        ], expression
        theirs = compiled(spec, expression, component, columns, groups)
        assert [theirs[i] for i in of_each] == [
            pytest.approx(ABSENT if v is None else float(v), abs=5e-5) for v in expected
        ], expression


# Small examples: `2 ** -1` is 0.5


EXAMPLES = re.findall(r"`([^`\n]+)` is (-?\d+(?:\.\d+)?)(?= \|)", LANGUAGE.read_text(encoding="utf-8"))


def test_there_is_something_to_compute():
    assert len(EXAMPLES) >= 19
    assert len(PICTURES) == 5
    assert len(SESSIONS) >= 9


@pytest.mark.parametrize(("expression", "value"), EXAMPLES)
def test_small_example(expression, value):
    spec = f"rewardspec: 1\ncomponents: {{a: {{values: [0, 1]}}}}\nadvantage: a + ({expression})\n"
    assert rewardspec.compile(rewardspec.loads(spec))({"a": [0, 0]}, 2).advantages.tolist() == [float(value)] * 2


# The README's error, and the table of docs/signal.md


README = ROOT / "README.md"
WRONG = """rewardspec: 1
signals: {tokens: {range: [0, .inf]}}
components:
  correct: {values: [0, 1]}
  length:
    expr: tokens <= 4000
    when: correct >= 2
advantage: gdpo
"""


def test_error_of_the_readme_is_what_check_prints(tmp_path):
    shown = next(text for _, _, text in blocks(README) if text.startswith("error["))
    (tmp_path / "gdpo.yaml").write_text(WRONG)
    with pytest.raises(rewardspec.SpecError) as error:
        rewardspec.load(tmp_path / "gdpo.yaml")
    assert error.value.diagnostics[0].render().replace(f"{tmp_path}/", "") == shown.rstrip()


@pytest.mark.parametrize(("row", "scheme"), [("GRPO", "grpo"), ("GRPO without std", "dr_grpo"), ("GDPO", "gdpo")])
def test_table_of_the_page_is_what_simulate_counts(row, scheme):
    page = (ROOT / "docs" / "signal.md").read_text(encoding="utf-8")
    cells = re.search(rf"^\| {row} \|(.*)\|$", page, re.M).group(1).split("|")
    components = "components: {a: {values: [0, 1]}, b: {values: [0, 1]}}"
    spec = rewardspec.loads(f"rewardspec: 1\n{components}\nadvantage: {scheme}\n")
    assert [simulate(spec, size).advantage_groups for size in range(2, 9)] == list(map(int, cells))


# Form


def test_language_page_has_no_long_line():
    long = [n for n, line in enumerate(LANGUAGE.read_text(encoding="utf-8").splitlines(), 1) if len(line) > 120]
    assert not long


def anchors(page):
    """Targets of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), target
        assert not anchor or anchor in anchors(to), target
