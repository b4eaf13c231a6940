"""What `rewardspec` exports, as a program uses it."""

import json
import pickle
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import rewardspec
from rewardspec.resources import resource

MATH = resource("specs/gdpo/math.yaml")
GOOD = "rewardspec: 1\nname: two\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1], weight: .5}}\nadvantage: grpo\n"
BAD = GOOD.replace("grpo", "grop")


def test_every_exported_name_is_there_and_listed():
    assert set(rewardspec.__all__) == set(dir(rewardspec))
    for name in rewardspec.__all__:
        assert getattr(rewardspec, name) is not None
        if callable(getattr(rewardspec, name)):
            assert getattr(rewardspec, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        rewardspec.lod  # noqa: B018


@pytest.mark.parametrize("text", [GOOD, "rewardspec: 1", "a\nb"])
@pytest.mark.parametrize(
    "use",
    [
        rewardspec.load,
        rewardspec.compile,
        rewardspec.verify,
        rewardspec.simulate,
        lambda text: rewardspec.diff(text, MATH),
        lambda text: rewardspec.score(text, "rows.jsonl", "out.jsonl"),
    ],
)
def test_text_in_place_of_a_path_says_to_use_loads(text, use):
    with pytest.raises(ValueError, match=r"rewardspec\.loads\(text\)"):
        use(text)


def test_missing_file_says_so(tmp_path):
    for use in (rewardspec.load, rewardspec.compile, rewardspec.check, rewardspec.simulate):
        with pytest.raises(FileNotFoundError, match=r"none\.yaml"):
            use(tmp_path / "none.yaml")


@pytest.mark.slow
def test_check_says_what_the_command_says(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(BAD)
    for path in (MATH, bad, resource("specs/gdpo/tool_calling.yaml")):
        command = [sys.executable, "-m", "rewardspec", "check", str(path), "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = rewardspec.check(str(path))
        assert [d.to_json() for d in found] == json.loads(done.stdout)
        assert all(isinstance(d, rewardspec.Diagnostic) for d in found)


def test_check_takes_texts_and_specs_and_never_raises_for_a_bad_one():
    (error,) = rewardspec.check(BAD)
    assert (error.code, error.severity, error.span.place()) == ("unknown-name", "error", "<spec>:4:12")
    assert {d.code for d in rewardspec.check(rewardspec.load(MATH))} == {d.code for d in rewardspec.check(MATH)}
    assert {d.severity for d in rewardspec.check(MATH, strict=True)} == {"error"}
    raised = [d.code for d in rewardspec.check(MATH, errors=["phantom-gradient"]) if d.severity == "error"]
    assert raised == ["phantom-gradient"]
    dead = rewardspec.check(GOOD, rates={"a": 0.001, "b": 0.001}, group_sizes=4)
    assert "dead-groups" in {d.code for d in dead}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"errors": ["phantom-gradent"]}, "did you mean `phantom-gradient`"),
        ({"rates": {"correct": 0.5}}, "rates need group_sizes"),
        ({"rates": {"correct": 2}, "group_sizes": 4}, "from 0 to 1"),
        ({"rates": {"corect": 0.5}, "group_sizes": 4}, "did you mean `correct`"),
        ({"group_sizes": 0}, "from 1 to 64"),
        ({"group_sizes": [2.5]}, "must be integers"),
        ({"group_sizes": True}, "must be integers"),
        ({"group_sizes": None}, "must be integers"),
        ({"group_sizes": 4, "rates": 5}, "rates must map names to numbers"),
        ({"group_sizes": 4, "rates": {"correct": "0.5"}}, "rates must be numbers"),
    ],
)
def test_wrong_options_are_value_errors_with_a_way_out(options, said):
    with pytest.raises(ValueError, match=said):
        rewardspec.check(MATH, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": "a"}, "seed must be an integer from 0"),
        ({"step": -1}, "step must be an integer from 0"),
        ({"total_steps": 0}, "total_steps must be an integer from 1"),
    ],
)
def test_a_moment_is_whole(options, said):
    with pytest.raises(ValueError, match=said):
        rewardspec.simulate(MATH, 2, **options)


def test_a_number_is_no_path():
    with pytest.raises(TypeError, match="PathLike"):
        rewardspec.load(0)


@pytest.mark.parametrize("text", [None, b"rewardspec: 1\n", 5])
def test_a_text_is_a_str(text):
    with pytest.raises(TypeError, match="text must be a str"):
        rewardspec.loads(text)


@pytest.mark.parametrize("name", ["check", "compile", "diff", "load", "loads", "score", "simulate", "verify"])
def test_type_hints_can_be_asked_for(name):
    hints = typing.get_type_hints(getattr(rewardspec, name))
    assert "return" in hints


def test_constants_go_with_what_is_read():
    with pytest.raises(ValueError, match="when the spec is loaded"):
        rewardspec.check(rewardspec.load(MATH), constants={"limit": 3})
    assert rewardspec.check(MATH, constants={"nolimit": 3})[0].severity == "error"


def test_verify_gives_verdicts():
    spec = rewardspec.loads(GOOD + "guarantees: {a_first: right_above_wrong(a >= 1)}\n")
    (verdict,) = rewardspec.verify(spec, 2)
    assert isinstance(verdict, rewardspec.Verdict)
    assert verdict.proved
    (verdict,) = rewardspec.verify(rewardspec.loads(GOOD + "guarantees: {b_first: right_above_wrong(b >= 1)}\n"), [2])
    assert isinstance(verdict.counterexample, rewardspec.Counterexample)
    assert rewardspec.verify(rewardspec.loads(GOOD), 2) == []


def test_simulate_counts_groups_and_replays_logs(tmp_path):
    # GDPO, Fig. 2: two binary rewards, pairs: summed they give 3 advantage groups here, of 10 reward groups
    spec = rewardspec.loads(GOOD)
    (found,) = rewardspec.simulate(spec, 2)
    assert isinstance(found, rewardspec.Simulation)
    assert (found.reward_groups, found.exact) == (10, True)
    assert len(rewardspec.simulate(spec, [2, 3], rates={"a": 0.1})) == 2
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"prompt": "p", "a": a, "b": 0}) + "\n" for a in (0, 1)))
    replayed = rewardspec.simulate(spec, rollouts=log)
    assert isinstance(replayed, rewardspec.Replay)
    assert (replayed.rollouts, replayed.groups) == (2, 1)
    assert isinstance(rewardspec.diff(spec, MATH.with_name("math.yaml")), rewardspec.Difference)
    same = rewardspec.diff(spec, spec, rollouts=log)
    assert isinstance(same, rewardspec.LogDifference)
    assert same.is_none


@pytest.mark.parametrize(
    "use",
    [
        lambda: rewardspec.simulate(MATH, 2, rollouts="log.jsonl"),
        lambda: rewardspec.simulate(MATH, rates={"correct": 0.5}, rollouts="log.jsonl"),
        lambda: rewardspec.simulate(MATH, 2, group_by="prompt"),
        lambda: rewardspec.diff(MATH, MATH, 2, rollouts="log.jsonl"),
        lambda: rewardspec.diff(MATH, MATH, total_steps=5),
    ],
)
def test_options_that_would_say_nothing_are_refused(use):
    with pytest.raises(ValueError, match="give one or the other"):
        use()


def test_score_writes_and_sums_up(tmp_path):
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text('{"prompt": "p", "completion": "<think>a</think><answer>b</answer>"}\n' * 2)
    spec = rewardspec.loads("rewardspec: 1\ncomponents: {form: {use: think.format}}\nadvantage: grpo\n")
    found = rewardspec.score(spec, str(rows), str(out))
    assert isinstance(found, rewardspec.Summary)
    assert (found.scored, found.mean) == (2, {"form": 1.0})
    assert "scored/advantage" in out.read_text()


def test_spec_shows_components_gates_weights_and_scheme():
    spec = rewardspec.load(resource("specs/gdpo/math_conditioned.yaml"))
    assert repr(spec).startswith("<Spec gdpo-math-conditioned: correct, ")
    assert "advantage gdpo" in repr(spec)
    for part in ("correct", "length", "correct &gt;= 1", "advantage gdpo"):
        assert part in spec._repr_html_()


def test_results_are_of_one_class_wherever_they_come_from():
    fn = rewardspec.compile(rewardspec.loads(GOOD))
    assert isinstance(fn, rewardspec.AdvantageFunction)
    out = fn({"a": [1, 0], "b": [0, 0]}, groups=2)
    assert isinstance(out, rewardspec.Result)
    assert repr(out) == "<Result of 2 rollouts in 1 group: 0% of the groups without signal>"
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(out))))
    assert isinstance(again, rewardspec.Result)
    assert repr(again) == repr(out)
    html = out._repr_html_()
    for part in ("2 rollouts in 1 groups", "reward a", "share b", "0.7071", "groups_without_signal 0"):
        assert part in html
    assert "..." in fn({"a": [1, 0] * 8, "b": [0] * 16}, groups=2)._repr_html_()
    assert repr(fn({"a": [], "b": []}, groups=2)) == "<Result of no rollouts>"
    assert "[0, 1]" in fn._repr_html_() or "{0, 1}" in fn._repr_html_()


def test_text_of_others_is_escaped():
    text = GOOD.replace("name: two", 'name: "<script>alert(1)</script>\\u202e"')
    spec = rewardspec.loads(text)
    fn = rewardspec.compile(spec)
    for html in (spec._repr_html_(), fn._repr_html_()):
        assert "<script>" not in html
        assert "\u202e" not in html
        assert "&lt;script&gt;" in html


def test_example_of_the_page_runs(monkeypatch, capsys):
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    blocks = (root / "docs" / "python.md").read_text(encoding="utf-8").split("```python\n")[1:]
    (example,) = (block.partition("```")[0] for block in blocks if "rewardspec.simulate" in block)
    exec(example, {})
    out = capsys.readouterr().out
    assert "warning[phantom-gradient]" in out
    assert "False" in out
    assert "<Verdict" in out
