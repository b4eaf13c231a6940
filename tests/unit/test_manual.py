"""The manual: every name has a page, made from its declaration, and what is on it is so."""

import json
import re
from functools import cache

import numpy as np
import pytest
from commands_in_process import run
from reference import formulas
from ruamel.yaml import YAML

from rewardspec.language.catalogue import schemes
from rewardspec.language.declarations import GIVEN
from rewardspec.language.keys import COMPONENT, SPEC
from rewardspec.language.prelude import prelude
from rewardspec.language.published import published_names
from rewardspec.lint import codes
from rewardspec.manual import KINDS, all_pages, names, pages_named
from rewardspec.ops.functions import FUNCTIONS
from rewardspec.rewards.catalogue import all_rewards


@cache
def pages():
    return {(page.kind, page.name): page for page in all_pages()}


@pytest.mark.slow
def test_every_name_has_a_page():
    expected = [*prelude().values, *prelude().functions, *FUNCTIONS, *GIVEN, *SPEC.keys, *COMPONENT.keys]
    expected += [*(found.name for found in all_rewards()), *published_names(), *codes(), "trl", "over"]
    assert set(expected) <= {*names()}
    assert {name for _, name in pages()} == {*names()}
    assert [page.kind for page in pages_named("missing")] == ["name", "key"] and pages_named("nothing") == []


@pytest.mark.slow
def test_pages_lie_at_their_own_paths_and_lead_to_each_other():
    paths = [page.path for page in pages().values()]
    assert len({path.lower() for path in paths}) == len(paths) == sum(len(kind.names()) for kind in KINDS)
    for page in pages().values():
        assert page.body and page.title and {*page.related} <= pages().keys(), page.path
        for link in re.findall(r"\]\(([./\w-]+\.md)\)", page.markdown):
            up, rest = re.fullmatch(r"((?:\.\./)+)(.*)", link).groups()
            assert up.count("../") == page.path.count("/") and rest in paths, (page.path, link)


@pytest.mark.slow
def test_text_of_pages_is_markdown_whose_blocks_and_tables_are_whole():
    for page in pages().values():
        assert page.body.count("```") % 2 == 0, page.path
        assert not re.search(r"(?m)^[^|\n].*\n\||\n{3}| object at 0x|FieldInfo|Annotated", page.body), page.path
        for block in re.findall(r"```yaml\n(.*?)```", page.body, re.S):
            if "define:" in block or "components:" in block:
                YAML(typ="safe", pure=True).load(re.sub(r"\.\.\.", "x", block))


@pytest.mark.parametrize("name", [scheme.name for scheme in schemes()])
def test_numbers_of_schemes_are_those_of_the_papers_formulas(name):
    rows = re.findall(r"^\| \d \| (\S+) \| (\S+) \| (\S+) \|", pages_named(name)[0].body, re.M)
    correct, short, found = np.array(rows, dtype=float).T
    rewards, weights, groups = {"correct": correct, "short": short}, {"correct": 1, "short": 0.5}, [0] * 4
    scheme = getattr(formulas, name)
    wanted = scheme(rewards, weights, groups) if name == "total" else scheme(rewards, weights, groups, eps=0)
    assert len(rows) == 4 and found == pytest.approx(wanted, abs=6e-5)


@pytest.mark.parametrize(
    ("name", "formula"),
    [(name, lambda x, name=name: getattr(formulas, name)(x, [0] * 4)) for name in ("center", "loo", "minmax")]
    + [(name, lambda x: formulas.zscore(x, [0] * 4, eps=0)) for name in ("zscore", "whiten")]
    + [
        ("ramp", lambda x: np.clip((x - 2) / (6 - 2), 0, 1)),
        ("overlong", lambda x: -np.clip((x - (6 - 4)) / 4, 0, 1)),  # DAPO Eq. 13
        ("rescale", lambda x: -1 + x / 10 * 2),
    ],
)
def test_numbers_of_definitions(name, formula):
    rows = re.findall(r"^\| \d \| (\S+) \| (\S+) \|", pages_named(name)[0].body, re.M)
    x, found = np.array(rows, dtype=float).T
    assert len(rows) == 4 and found == pytest.approx(formula(x), abs=6e-5)


@pytest.mark.slow
def test_a_page_has_what_its_declaration_says():
    assert "`std([0, 1 | 1, 3]) = [0.7071, 1.4142]`" in pages()["function", "std"].body
    reward = pages()["reward", "toolrl.correctness"].body
    assert "- `granularity`: " in reward and "| `pairing` | `optimal` or `greedy` | `optimal` |" in reward
    assert "Source: ToolRL, arXiv:2504.13958, Sec. 3.3 and 5.3." in reward and "[-3, 3]" in reward
    spec = pages()["spec", "gdpo/math"]
    assert "arXiv:2601.05242" in spec.body and "length: {expr: tokens <= limit" in spec.body
    assert spec.related == (("scheme", "gdpo"), ("reward", "math.correct"))
    assert ("spec", "gdpo/math") in pages()["scheme", "gdpo"].related
    assert "components: NAME: when: ..." in pages()["key", "when"].body
    assert "`error` or `ignore` or `zero`; `error` if it is not given" in pages()["key", "missing"].body
    assert "loo(x" in pages()["definition", "zscore"].body  # NeMo-RL's own
    assert pages()["finding", "zero-weight"].title == "A component with weight 0."


# The command


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("grpo", ["# grpo (scheme)", "zscore(total)", "- specs: `alp/alp`"]),
        ("zscore", ["# zscore (definition)", "-1.1619"]),
        ("toolrl.correctness", ["# toolrl.correctness (reward)", "Source: ToolRL"]),
        ("phantom-gradient", ["# phantom-gradient (finding)"]),
        ("missing", ["# missing (name)", "# missing (key)"]),
        ("--p", ["`--p NAME=P,...`: Success rates", "It is an option of check, "]),
        ("gdpo/math", ["# gdpo/math (spec)", "advantage: gdpo", "fingerprint", "whiten(decoupled)"]),
    ],
)
def test_explain_shows_pages(word, parts, tmp_path):
    done = run("explain", word, cwd=tmp_path)
    assert done.returncode == 0 and all(part in done.stdout for part in parts), done.stderr


@pytest.mark.parametrize(
    ("word", "help"),
    [
        ("clamp", "write `clip(x, 0, 1)`"),
        ("zscor", "did you mean `zscore`?"),
        ("papo", "did you mean `papo/papo`?"),
        ("--group-sizes", "did you mean `--group-size`?"),
        ("qqqq", "`rewardspec list` shows the names"),
    ],
)
def test_unknown_words_are_answered(word, help, tmp_path):
    done = run("explain", word, cwd=tmp_path)
    assert (done.returncode, done.stderr.endswith(f"{help}\n")) == (2, True), done.stderr


def test_options_of_a_spec_are_refused_beside_a_word(tmp_path):
    done = run("explain", "grpo", "--at", "0", cwd=tmp_path)
    assert (done.returncode, "--at needs a spec, and 'grpo' is none: it is a scheme" in done.stderr) == (2, True)
    assert run("explain", "gdpo/math", "--total-steps", "9").returncode == 2


def test_a_file_wins_over_a_page_and_it_is_said(tmp_path):
    (tmp_path / "grpo").write_text("rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: dr_grpo\n")
    done = run("explain", "grpo", cwd=tmp_path)
    assert "center(total)" in done.stdout and done.stderr == "note: `grpo` is the file here, not the page\n"


def test_pages_as_json():
    (found,) = json.loads(run("explain", "grpo", "--format", "json").stdout)
    assert (found["kind"], found["name"]) == ("scheme", "grpo") and ["definition", "zscore"] in found["related"]
    assert json.loads(run("explain", "gdpo/math", "--format", "json").stdout)["name"] == "gdpo-math"
