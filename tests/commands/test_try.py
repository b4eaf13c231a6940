"""`rewardspec try`: one group, written by hand."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from rewardspec.cli import app

SPEC = """\
rewardspec: 1
name: short
signals:
  tokens: {range: [0, .inf]}
  source: {values: [math, code]}
components:
  correct: {values: [0, 1]}
  brief: {expr: "clip(1 - tokens / 8000, 0, 1)", when: correct >= 1, weight: 0.5}
  coded: {range: [0, 1], when: source == code, missing: ignore}
advantage: decoupled
keep: any(correct)
numerics: {eps: 0}
"""
TURNS = """\
rewardspec: 1
lists: {turn: {}}
signals: {useful: {values: [0, 1], level: turn}}
components: {correct: {values: [0, 1]}}
advantage: center(useful) + center(correct)
"""


@pytest.fixture
def tried(tmp_path):
    def run(*arguments, spec=SPEC, status=0):
        (tmp_path / "spec.yaml").write_text(spec)
        done = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["try", str(tmp_path / "spec.yaml"), *arguments])
        assert done.exit_code == status, done.output
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return json.loads(done.stdout) if "json" in arguments else done.output

    return run


GROUP = "correct=1,1,0,0", "tokens=900,5200,700,6100", "source=math", "coded=-"


def test_a_group_is_what_numpy_says(tried):
    (found,) = tried(*GROUP, "--format", "json")
    brief = np.array([1 - 900 / 8000, 1 - 5200 / 8000, 0, 0])
    shares = {
        "correct": np.array([0.5, 0.5, -0.5, -0.5]) / np.std([1, 1, 0, 0], ddof=1),
        "brief": 0.5 * (brief - brief.mean()) / brief.std(ddof=1),
        "coded": np.zeros(4),
    }
    assert found["rewards"]["brief"] == pytest.approx(brief.tolist(), abs=1e-6)
    assert found["gates"] == {"brief": [True, True, False, False], "coded": [False] * 4}
    for name, share in shares.items():
        assert found["shares"][name] == pytest.approx(share.tolist(), abs=1e-6)
    whole = sum(shares.values())
    assert found["advantages"] == pytest.approx(whole.tolist(), abs=1e-6)
    assert found["kept"] and found["weights"]["brief"] == 0.5
    assert found["columns"]["coded"] == [None] * 4


def test_schemes_stand_side_by_side(tried):
    found = tried(*GROUP, "--advantage", "grpo,zscore(total, over=group)", "--format", "json")
    assert [one["advantage"] for one in found] == ["grpo", "zscore(total, over=group)"]
    assert found[0]["advantages"] == found[1]["advantages"]
    shown = tried(*GROUP, "--advantage", "grpo,gdpo")
    assert "Advantages" in shown and "Under gdpo" in shown and "when brief" in shown


def test_groups_without_signal_and_groups_that_are_not_kept_say_so(tried):
    assert "no signal" in tried("correct=1,1", "tokens=9", "source=math", "coded=-")
    assert "is not kept" in tried("correct=0,0", "tokens=9", "source=math", "coded=-")


def test_items_are_lists(tried):
    (found,) = tried("correct=1,0", "useful=[[1, 0], []]", "--format", "json", spec=TURNS)
    assert found["advantages"] == [pytest.approx([1.0, 0.0]), []]
    assert found["columns"]["useful"] == [[1, 0], []]
    assert "[1, 0]" in tried("correct=1,0", "useful=[[1, 0], []]", spec=TURNS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("corect=1,0",), ["`corect` (did you mean `correct`?)", "also reads `tokens`, `source`, `correct`, `coded`"]),
        (("correct=1,x", "tokens=1,2,3"), ["`correct` has 'x': it must be a number", "also reads"]),
        (("correct=1,1,0", "tokens=1,2", "source=math", "coded=-"), ["`tokens` has 2 values, and others have 3"]),
        (("correct=1,2", "tokens=1", "source=math", "coded=-"), ["`correct` is 2", "one of 0, 1"]),
        (("correct=1,0", "tokens=1", "source=latin", "coded=-"), ["`source` is 'latin'", "math, code"]),
        (("correct",), ["write NAME=VALUE"]),
        (("correct=1", "correct=0"), ["given twice"]),
        (("correct=1/0", "tokens=1e999"), ["`correct` has '1/0'", "`tokens` has '1e999'"]),
        (("correct=nan", "tokens=1e9999999999,inf"), ["`correct` has 'nan'", "`tokens` has '1e9999999999'"]),
    ],
)
def test_what_is_wrong_is_said_at_once(tried, given, said):
    shown = " ".join(tried(*given, status=2).split())
    assert not [part for part in said if part not in shown], shown


def test_items_that_are_no_lists_are_shown_the_way(tried):
    for text in ("useful=1,0", "useful=[[1, 2], [1]]", "useful=[1, 0]", "useful=[["):
        assert "useful" in tried("correct=1,0", text, spec=TURNS, status=2)
    assert "write the items of each rollout as lists" in tried("correct=1,0", "useful=1,0", spec=TURNS, status=2)


def test_gates_of_items_and_gates_that_read_the_state(tried):
    spec = """rewardspec: 1
lists: {turn: {ordered: true}}
signals:
  called: {values: [0, 1], level: turn}
  correct: {values: [0, 1]}
state:
  rate: {init: 0.25, range: [0, 1], update: "mean(correct, over=batch)"}
components:
  right: {expr: correct, when: rate < 0.5}
  late: {expr: correct, when: rate > 0.5}
  tool: {expr: called, when: called or correct}
advantage: decoupled
allow: {gate-never-opens: for the test}
"""
    given = "called=[[1, 0], [0], []]", "correct=1,0,1"
    (found,) = tried(*given, "--format", "json", spec=spec)
    assert found["gates"] == {"right": [True] * 3, "late": [False] * 3, "tool": [[True, True], [False], []]}
    shown = tried(*given, spec=spec)
    assert "[yes, yes]" in shown


def test_gates_that_read_the_group_and_the_step(tried):
    spec = """rewardspec: 1
signals: {correct: {values: [0, 1]}}
components:
  late: {expr: correct, when: step >= 100}
  some: {expr: correct, when: mean(correct) >= 0.25}
advantage: decoupled
"""
    (found,) = tried("correct=1,0,0", "--step", "5", "--format", "json", spec=spec)
    assert found["gates"] == {"late": [False] * 3, "some": [True] * 3}
    for given, option in (([], "--step N"), (["--step", "5"], "--total-steps N")):
        needs = spec.replace("step >= 100", "progress >= 0.5")
        assert f"pass `{option}`" in tried("correct=1,0,0", *given, spec=needs, status=2)


def test_a_list_without_a_column_cannot_be_tried(tried):
    spec = """rewardspec: 1
lists: {turn: {ordered: true}}
components: {correct: {values: [0, 1]}}
advantage: center(correct / position)
"""
    assert "`try` cannot be told how many items a rollout has" in tried("correct=1,0", spec=spec, status=2)
