"""What others wrote is printed as text: no escape sequence, no line of its own, no command to a CI system."""

import json
import pickle
import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ
from typer.testing import CliRunner

import rewardspec
from rewardspec.adapters.common.binding import BindingError, check_rewards, listed
from rewardspec.cli import app
from rewardspec.text.shown import inert, inert_json, printed, shown

HOSTILE = (
    "\x1b]0;title\x07\x1b[31m\n::error file=x::owned\r\n  ::add-mask::x\u2028::stop-commands::x\x85##[error]x ##vso"
    "[task.x]\u202eevil\u2066\x9b31m\x00\u200b [bold]x[/bold] [link=http://x]y[/link]"
)
QUOTED = json.dumps(HOSTILE)  # as YAML in double quotes has it
SPEC = f"""
rewardspec: 1
name: {QUOTED}
about: {QUOTED}
source: {QUOTED}
signals:
  task: {{values: [math, code], about: {QUOTED}}}
components:
  correct: {{values: [0, 1], about: {QUOTED}}}
  brief: {{range: [0, 1], when: task == code, otherwise: 0}}
advantage: grpo
guarantees:
  {QUOTED}: advantage <= 1000
  {json.dumps(HOSTILE + "2")}: advantage < 0
"""
RC = rewardspec.resources.resource("specs/rc_grpo/rc_grpo.yaml").read_text()


def harmless(output, github=False):
    """Whether what was printed has no character that acts, and no line that a CI system obeys."""
    acting = {c for c in output if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not acting, (acting, output)
    for line in output.split("\n"):
        assert github or not line.strip().startswith("::"), line
        assert not re.search(r"##\w*\[", line), line
    return True


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "a\x1b[31m\n::error::x\u202e##[error].yaml"
    (tmp_path / name).write_text(SPEC)
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "other.yaml").write_text(SPEC.replace("grpo", "dr_grpo").replace("range: [0, 1]", "range: [0, 2]"))
    (tmp_path / "broken.yaml").write_text(
        f"rewardspec: 1\nname: {QUOTED}\n{QUOTED}: 1\nsignals: {{task: {{values: [{QUOTED}]}}}}\n"
        f"components:\n  a: {{values: [0, 1], {QUOTED}: 3}}\n  b: {{use: {QUOTED}}}\n  c: {{python: {QUOTED}}}\n"
        f"  {QUOTED}: {{values: [0, 1]}}\n  d: {QUOTED}\n"
        f"  e: {{use: toolrl.format, with: {{{QUOTED}: 3, answer: {QUOTED}}}}}\nadvantage: {QUOTED}\n"
        f"allow: {{{QUOTED}: {QUOTED}}}\n"
    )
    (tmp_path / "scored.yaml").write_text(
        f"rewardspec: 1\nname: {QUOTED}\ncomponents:\n  a: {{use: toolrl.format}}\n"
        f"  e: {{use: qa.exact_match, with: {{answer: {QUOTED}}}}}\nadvantage: grpo\n"
    )
    (tmp_path / "rc.yaml").write_text(RC.replace("name: rc-grpo", f"name: {QUOTED}"))
    rows = [
        {
            "group": HOSTILE,
            "completion": HOSTILE,
            "answer": HOSTILE,
            HOSTILE: HOSTILE,
            "task": HOSTILE,
            "step": HOSTILE,
        },
        {"group": 1, "completion": [HOSTILE], "answer": "y", "correct": HOSTILE, "brief": HOSTILE, "task": "math"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{" + HOSTILE + "\n")
    (tmp_path / "rows\x1b[1m\n::error::.jsonl").write_text(HOSTILE)
    return tmp_path, name


COMMANDS = {
    "check": ["check", "SPEC"],
    "check broken": ["check", "broken.yaml"],
    "check json": ["check", "broken.yaml", "SPEC", "--format", "json"],
    "check sarif": ["check", "broken.yaml", "SPEC", "--format", "sarif"],
    "check github": ["check", "broken.yaml", "SPEC", "--format", "github"],
    "no file": ["check", "\x1b[31m\n::error::x\u202e.yaml"],
    "explain": ["explain", "SPEC", "--at", "0,100%", "--total-steps", "10"],
    "explain broken": ["explain", "broken.yaml"],
    "simulate": ["simulate", "SPEC", "-g", "2", "--sweep"],
    "simulate json": ["simulate", "SPEC", "-g", "2", "--format", "json"],
    "simulate log": ["simulate", "SPEC", "--rollouts", "rows.jsonl"],
    "simulate other log": ["simulate", "SPEC", "--rollouts", "rows\x1b[1m\n::error::.jsonl"],
    "verify": ["verify", "SPEC", "-g", "2"],
    "verify json": ["verify", "SPEC", "-g", "2", "--format", "json"],
    "diff": ["diff", "SPEC", "other.yaml", "-g", "2"],
    "diff json": ["diff", "SPEC", "other.yaml", "-g", "2", "--format", "json"],
    "diff log": ["diff", "SPEC", "other.yaml", "--rollouts", "rows.jsonl"],
    "score": ["score", "scored.yaml", "rows.jsonl", "-o", "out.jsonl"],
    "score log": ["score", "spec.yaml", "rows.jsonl", "-o", "out.jsonl", "--group-by", HOSTILE],
    "score misread": ["score", "spec.yaml", "rows\x1b[1m\n::error::.jsonl", "-o", "out.jsonl"],
    "score over": ["score", "SPEC", "rows.jsonl", "-o", "SPEC"],
    "label": ["label", "rows.jsonl", "rc.yaml", "-o", "out.jsonl"],
    "fmt": ["fmt", "broken.yaml", "SPEC", "--check"],
    "compile": ["compile", "broken.yaml"],
    "compile into": ["compile", "SPEC", "-o", "\x1b[31m\n::error::x.py"],
    "embed": ["compile", "SPEC", "--target", "verl", "-o", "SPEC"],
    "new": ["new", HOSTILE],
    "list": ["list", HOSTILE],
    "option": ["simulate", "SPEC", "-g", HOSTILE],
    "set": ["simulate", "SPEC", "--set", HOSTILE],
    "set a name": ["simulate", "SPEC", "--set", f"{HOSTILE}=1"],
    "page": ["explain", "no\x1bpage"],
}


@pytest.mark.slow
@pytest.mark.parametrize("what", COMMANDS)
def test_no_command_prints_what_acts(folder, what):
    result = CliRunner().invoke(app, [folder[1] if word == "SPEC" else word for word in COMMANDS[what]])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert harmless(result.output, github=what == "check github") and result.output
    if what == "check github":
        assert all(
            line.startswith(("::error file=", "::warning file=", "::notice ")) for line in result.output.splitlines()
        )
    if "json" in what or "sarif" in what:
        json.loads(result.output)
    if what in ("simulate json", "verify json"):
        assert shown(HOSTILE) in json.dumps(json.loads(result.output), ensure_ascii=False).replace("\\\\", "\\")


def test_errors_and_names_are_harmless_in_python_as_well(folder):
    assert rewardspec.load("spec.yaml").name == shown(HOSTILE)
    with pytest.raises(rewardspec.SpecError) as error:
        rewardspec.load("broken.yaml")
    assert harmless(inert(str(error.value)))


@pytest.mark.slow
@settings(max_examples=200 * FUZZ)
@given(st.text(st.characters(), max_size=60), st.sampled_from(["", "::", " ::error::", "##[", "##vso[", "\x1b[1m::x"]))
def test_whatever_is_printed_is_harmless(text, start):
    assert harmless(printed(start + text)) and harmless(inert(shown(start + text)))
    assert json.loads(inert_json(json.dumps([start + text]))) == [start + text]
    assert harmless(inert_json(json.dumps([start + text], indent=2)))


def test_text_that_does_nothing_stays_as_it_is():
    for text in ("plain", "日本語\u3000テキスト", "std::vector", "# a ## b [c]", "a: b", "naïve 🙂"):
        assert shown(text) == printed(text) == text


def test_messages_of_the_adapters_are_harmless():
    spec = rewardspec.loads(SPEC)
    with pytest.raises(BindingError) as error:
        check_rewards(spec, [HOSTILE, HOSTILE], [], "reward function")
    assert harmless(str(error.value)) and str(error.value).count("\n") == 4  # two names, three columns
    assert harmless(listed([HOSTILE])) and "\n" not in listed([HOSTILE])
    with pytest.raises(BindingError) as error:
        raise BindingError(f"{spec.name} cannot be carried\n{spec.name} has no place")
    assert harmless(str(error.value)) and str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
