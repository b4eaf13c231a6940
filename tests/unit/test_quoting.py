"""Whatever a spec says, the files made of it do what those of a plain spec do, and say what it says."""

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml as pyyaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ
from ruamel.yaml import YAML

import rewardspec
from rewardspec.adapters.embedding import TARGETS, embedded, write
from rewardspec.text.quoting import comment, hydra, python_file, yaml

ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029"]  # what `str.splitlines` cuts at
CODE = "import os; os.system('touch CANARY')"
TEXTS = [
    # a line for each language: whichever takes an end for one reads a line of its own, or ends in an error
    *(f"x{end}{CODE}{end}touch CANARY{end}env: {{HOME: /}}{end}reward_funcs: [os.system]{end}#" for end in ENDS),
    f'"""\n{CODE}\n"""',
    f"'''\n{CODE}\n'''",
    f"\\\n{CODE}",
    f"coding: utf-7 +AAo-{CODE}",  # a comment of this in the first two lines changes how Python reads the file
    f"-*- coding: rot13 -*- {CODE}",
    "vim: set fileencoding=utf-7 : +AAo-raise SystemExit",
    "$(touch CANARY)",
    "`touch CANARY`",
    "'; touch CANARY; '",
    '"; touch CANARY; "',
    "${IFS}${HOME:=x}$((1))",
    "${oc.env:HOME}",
    "{{ 7 * 7 }} %(name)s {0} %s",
    "--help",
    "-",
    "? : - # & * ! | > % @ { } [ ] , ~ =",
    "a: b #c",
    "\ufeff",
    "\u202etxt.exe",
    "\x00\x07\x1b[31m\x7f",
    " leading and trailing ",
    "\t",
    "é漢😀",
    "yes",
    "1e3",
    "...\n---\n",
]


def hostile(text):
    """A spec with a text in every place where the language lets any text stand."""
    quoted = json.dumps(text, ensure_ascii=not text.isprintable())  # YAML reads JSON's escapes
    template, reason = (
        json.dumps(more, ensure_ascii=not text.isprintable()) for more in (text + "{completion}", "because " + text)
    )
    return f"""rewardspec: 1
name: {quoted}
about: {quoted}
source: {quoted}
signals:
  kind: {{values: [x, y], about: {quoted}}}  # {comment(text)}
components:
  correct: {{values: [0, 1], weight: half, about: {quoted}}}
  format: {{use: toolrl.format, allow: {{length-without-success: {reason}}}}}
  judged: {{use: judge.rubric, with: {{template: {template}, model: {quoted}, scores: [0, 1], cache: {quoted}}}}}
  known: kind == x
define: {{half: 0.5}}
advantage: gdpo
guarantees: {{{quoted}: max(advantage) < 9}}
"""


def specs(target, canary):
    """Specs with each of the texts, and those texts."""
    found = []
    for text in TEXTS:
        source = hostile(text.replace("CANARY", str(canary)))
        if target == "openrlhf":
            source = source.replace("  known: kind == x\n", "")  # it carries no names
        found.append(rewardspec.loads(source))
    return found


@cache
def structure(source: bytes):
    """What Python reads, and so would run, docstrings aside: they are ours."""
    return ast.dump(ast.parse(source))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_files_of_any_spec_do_what_those_of_a_plain_one_do(target, tmp_path):
    canary = tmp_path / "canary"
    hostile_ones = specs(target, canary)
    plain = embedded(rewardspec.loads(hostile_ones[0].source.text.replace("\\n", " ")), target)
    columns = {"kind": ["x", "y", "x", "x"], "correct": [1, 0, 1, 0], "format": [1, 0, 0, 1], "judged": [0, 1, 0, 1]}
    for spec in hostile_ones:
        files = embedded(spec, target)
        assert files.keys() == plain.keys()
        assert files["spec.yaml"] == spec.source.text
        for name, content in files.items():
            if name.endswith(".py"):
                assert structure(content.encode()) == structure(plain[name].encode())
            if name.endswith(".sh"):
                assert code_lines(content) == code_lines(plain[name])
            if name == "trl.yaml":
                for load in (pyyaml.safe_load, YAML(typ="safe", pure=True).load):
                    assert load(content) == {
                        "env": {"REWARDSPEC": spec.source.text},
                        "reward_funcs": pyyaml.safe_load(plain[name])["reward_funcs"],
                    }
    module: dict = {}
    exec(compile(files["advantage.py"].encode(), "<advantage>", "exec"), module)
    assert module["advantages"](columns, 2).advantages.shape == (4,)
    assert not canary.exists()


def code_lines(script):
    """The lines of a shell script that are no comments, cut where the shell cuts: at line feeds."""
    return [line for line in script.split("\n") if not line.startswith("#")]


STUB = """#!{python}
import json, os, sys
if sys.argv[1:3] == ["-m", "rewardspec.text.quoting"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
json.dump({{"arguments": sys.argv[1:], "plugin": os.environ.get("VERL_USE_EXTERNAL_MODULES")}}, open({out!r}, "w"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("target", ["verl", "openrlhf"])
def test_scripts_run_what_they_say_from_any_folder(target, tmp_path):
    canary, out = tmp_path / "canary", tmp_path / "arguments.json"
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin/python"
    stub.write_text(STUB.format(python=sys.executable, out=str(out)))
    stub.chmod(0o755)
    folder = tmp_path / f"a b'c\"$(touch {canary.name})`touch {canary.name}`#=,(x)\\"
    spec = rewardspec.loads(hostile(f"x\ntouch {canary}\n$(touch {canary})").replace("  known: kind == x\n", ""))
    write(embedded(spec, target), folder)
    environment = os.environ | {"PATH": f"{stub.parent}:{os.environ['PATH']}"}
    reward = str(folder / "reward.py")
    script = folder / f"run_{target}.sh"
    done = subprocess.run(
        ["bash", script, reward, "trainer.n=3"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ran = json.loads(out.read_text())["arguments"]
    if target == "verl":
        values = {o.key_or_group: o.value() for o in OverridesParser.create().parse_overrides(ran[2:])}
        assert values["algorithm.rewardspec.spec"] == str(folder / "spec.yaml")
        assert values["reward.custom_reward_function.path"] == reward
        assert values["trainer.n"] == 3
    else:
        at = ran.index("--spec")
        assert ran[at + 1] == str(folder / "spec.yaml")
        assert ran[ran.index("--") + 1 :] == [reward, "trainer.n=3"]
    assert not canary.exists()


@pytest.mark.slow
def test_module_with_a_hostile_name_runs_as_a_file(tmp_path):
    """In a file, unlike in process, a comment can change the encoding that Python reads the rest in."""
    canary = tmp_path / "canary"
    for i, name in enumerate((f"coding: utf-7 +AAo-open({str(canary)!r},'w')#", "coding: no-such-encoding")):
        spec = rewardspec.loads(hostile(name))
        path = tmp_path / f"module{i}.py"
        path.write_text(spec.python, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", f"import runpy; runpy.run_path({str(path)!r})"], capture_output=True
        )
        assert done.returncode == 0, done.stderr
        assert not canary.exists()
        (tmp_path / f"reward{i}.py").write_text(python_file([f"Reward functions of {name}"], "x = 1\n"))
        assert ast.dump(ast.parse((tmp_path / f"reward{i}.py").read_bytes())) == ast.dump(ast.parse("x = 1\n"))


anything = st.one_of(
    st.text(max_size=30),
    st.text(
        st.sampled_from("ab \n\t#:'\"$(){}\\`|>-%@&*!,[]?~=\u2028\u2029\x85\x0b\x0c\ufeff\xa0\u202e\r\x07😀"),
        max_size=12,
    ),
)


@pytest.mark.slow
@settings(max_examples=300 * FUZZ)
@given(anything)
def test_quoted_texts_come_back(text):
    if not any(0xD800 <= ord(c) < 0xE000 for c in text):  # no YAML can hold half a character
        held = {"env": {"X": text, "Y": f"a: 1\n{text}\n"}, "items": [text]}
        for load in (pyyaml.safe_load, YAML(typ="safe", pure=True).load):
            assert load(yaml(held)) == held
    if "${" in text or text == "???":
        with pytest.raises(ValueError, match="Hydra"):
            hydra(text)
    else:
        (override,) = OverridesParser.create().parse_overrides([f"+a.b={hydra(text)}"])
        assert override.value() == text
    assert len(comment(text).splitlines()) <= 1
    assert comment(text).isprintable()
    assert ast.dump(ast.parse(python_file([text, text], "x = 1\n").encode())) == ast.dump(ast.parse("x = 1\n"))
    assert pyyaml.safe_load(f"# {comment(text)}\nx: 1\n") == {"x": 1}


def test_comment_is_no_command_to_a_ci_system():
    name = "x\n::error::y\x1b[31m ##[error]z ##vso[task]"
    written = rewardspec.compile(rewardspec.loads(PLAIN_NAMED.format(json.dumps(name)))).source
    for text in (written, comment(name)):
        assert "#\\#[error]z #\\#vso[task]" in text and "##[" not in text and "##vso[" not in text


PLAIN_NAMED = "rewardspec: 1\nname: {}\ncomponents: {{a: {{values: [0, 1]}}}}\nadvantage: grpo\n"


def test_emitted_module_says_what_a_file_of_any_name_is(tmp_path):
    path = Path(tmp_path / "x\nimport os\n#.yaml")
    path.write_text("rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\n")
    spec = rewardspec.load(path)
    nodes = {type(node) for node in ast.parse(spec.python).body}
    assert nodes <= {ast.Import, ast.ClassDef, ast.FunctionDef, ast.Assign}
