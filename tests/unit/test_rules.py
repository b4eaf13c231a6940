"""A finding is one file: dropped into `rewardspec/lint/rules/`, it is found, listed, explained, run and allowed."""

import ast
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.lint import codes, findings, page, registered, registry, rules

FILES = sorted(path for path in Path(rules.__path__[0]).glob("*.py") if path.name != "__init__.py")
NEW = '''"""A component that is called after nothing.

A name such as `x` does not say what is rewarded. It is a rule of this test.

```yaml
components: {x: {values: [0, 1]}}
advantage: grpo
```

Call it after what it measures, `correct: {values: [0, 1]}`.
"""

from rewardspec.lint.registry import finding


@finding("called-x", __doc__)
def called_x(facts):
    if "x" in facts.declared.components:
        yield facts.warn("called-x", "`x` says nothing", facts.component_place("x"), help="call it after what it is")
'''
SPEC = "rewardspec: 1\ncomponents: {x: {values: [0, 1]}}\nadvantage: grpo\n"


@pytest.fixture
def dropped(tmp_path, monkeypatch):
    """A rule in a file of its own, for as long as a test runs."""
    (tmp_path / "called_x.py").write_text(NEW)
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(tmp_path)])
    registry.registered.cache_clear()
    yield "called-x"
    sys.modules.pop("rewardspec.lint.rules.called_x", None)
    monkeypatch.undo()
    registry.registered.cache_clear()


def test_a_file_that_is_dropped_in_is_found_listed_and_explained(dropped):
    assert registered()[dropped].title == "A component that is called after nothing."
    assert page(dropped) == NEW.split('"""')[1].strip()
    run = CliRunner()
    assert dropped in run.invoke(app, ["list", "findings"]).output
    assert "A name such as `x` does not say" in run.invoke(app, ["explain", dropped]).output
    assert f'"{dropped}"' in run.invoke(app, ["schema"]).output


def test_a_file_that_is_dropped_in_is_run_and_allowed(dropped, tmp_path):
    (found,) = findings(rewardspec.loads(SPEC)).warnings
    assert (found.code, found.severity, found.span.text) == (dropped, "warning", "x")
    allow = f"allow: {{{dropped}: why not}}"
    for allowed in (SPEC + allow, SPEC.replace("1]}", f"1], {allow}}}")):
        assert findings(rewardspec.loads(allowed)).warnings == []
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    assert CliRunner().invoke(app, ["check", str(spec), "--error", dropped]).exit_code == 1


def test_what_is_gone_is_found_no_more():
    assert "called-x" not in registered()
    (found,) = findings(rewardspec.loads(SPEC + "allow: {called-x: why not}\n")).warnings
    assert found.code == "unknown-finding"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_one_finding_and_called_after_it(path):
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    declared = [
        decorator
        for part in tree.body
        if isinstance(part, ast.FunctionDef)
        for decorator in part.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "finding"
    ]
    assert [ast.literal_eval(one.args[0]) for one in declared] == [path.stem.replace("_", "-")]
    assert registered()[path.stem.replace("_", "-")].page == ast.get_docstring(tree)
    assert text.count("\n") <= 400


def test_the_registry_knows_no_finding_by_name():
    for path in Path(rules.__path__[0]).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name in ("registry.py", "check.py", "facts.py", "__init__.py"):
            assert not [code for code in registered() if re.search(rf'["\']{code}["\']', text)], path.name
        assert "rewardspec.lint.rules." not in text, path.name


@pytest.mark.parametrize("code", codes())
def test_a_page_has_a_title_a_reason_an_example_and_a_way_out(code):
    """What it is, in a line; why it is bad; one example in a fence; what to write instead."""
    title, *rest = page(code).split("\n\n")
    text = "\n\n".join(rest)
    before, fence, after = re.fullmatch(r"(.+?)\n\n```yaml\n(.+?)\n```\n\n(.+)", text, re.S).groups()
    assert "\n" not in title
    assert title.endswith(".")
    assert "```" not in before + fence + after
    assert re.search(r"^components:", fence, re.M)
    assert re.search("`[^`]+`", after), "names what to write"
