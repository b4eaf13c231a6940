"""Reward tokens: drawn, put into prompts, and given to trajectories (`rewardspec label`)."""

import json
from pathlib import Path

import pytest
from commands_in_process import run
from hypothesis import given
from hypothesis import strategies as st

import rewardspec
from rewardspec.resources import resource
from rewardspec.reward_tokens import RewardTokens
from rewardspec.scoring.label import label

RC_GRPO = resource("specs/rc_grpo/rc_grpo.yaml")
CONDITION = rewardspec.load(RC_GRPO).condition
HIGH = "[Reward Goal: <|high_reward|>]"


def spec_with(condition, components="{correct: {values: [0, 1]}, style: {values: [0, 0.5, 1]}}"):
    return rewardspec.loads(f"rewardspec: 1\ncomponents: {components}\ncondition:\n{condition}advantage: grpo\n")


# Drawing


@given(st.lists(st.sampled_from("pqrs"), max_size=40), st.integers(), st.integers(min_value=0))
def test_draw_is_a_pure_function_of_group_and_place_in_it(ids, seed, step):
    found = CONDITION.draw(ids, seed, step)
    assert found == CONDITION.draw(iter(ids), seed, step)
    first = {group: i for i, group in reversed(list(enumerate(ids)))}
    together = sorted(range(len(ids)), key=lambda i: first[ids[i]])  # the same rollouts, group by group
    assert [found[i] for i in together] == CONDITION.draw([ids[i] for i in together], seed, step)
    assert CONDITION.draw([("id", group) for group in ids], seed, step) == found


def test_draw_differs_between_steps_seeds_and_groups():
    groups = [i // 16 for i in range(64)]
    runs = [tuple(CONDITION.draw(groups, seed, step)) for seed in (0, 1) for step in (0, 1)]
    assert len(set(runs)) == 4
    assert len({run[i : i + 16] for run in runs for i in range(0, 64, 16)}) == 16


def test_three_tokens():
    condition = spec_with("  tokens: {a: A, b: B, c: C}\n  prior: {a: 0.2, b: 0.3}\n  template: '{token}'\n").condition
    drawn = condition.draw(range(5000), 0, 0)
    assert [drawn.count(name) / 5000 for name in "abc"] == pytest.approx([0.2, 0.3, 0.5], abs=0.02)
    assert condition.prior == {"a": 0.2, "b": 0.3, "c": 0.5}


# Rendering


def test_render_of_text_and_chat_leaves_the_prompt_as_it_was():
    assert CONDITION.render("Do it {now}.", "high") == f"Do it {{now}}.\n{HIGH}"
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    rendered = CONDITION.render(messages, "high")
    assert [m["content"] for m in rendered] == ["s", f"a\n{HIGH}", "b"]
    assert [m["content"] for m in messages] == ["s", "a", "b"]


def test_render_of_parts():
    parts = [{"type": "text", "text": "look"}, {"type": "image", "image": "x"}]
    (rendered,) = CONDITION.render([{"role": "user", "content": parts}], "high")
    assert rendered["content"] == [{"type": "text", "text": f"look\n{HIGH}"}, {"type": "image", "image": "x"}]
    (rendered,) = CONDITION.render([{"role": "user", "content": parts[1:]}], "high")
    assert rendered["content"][1]["text"].endswith(HIGH)
    assert parts[0]["text"] == "look"


def test_template_around_the_prompt():
    condition = spec_with(
        "  tokens: {a: '{prompt}', b: B}\n  prior: {a: 1}\n  template: '{token}: {prompt}!'\n"
    ).condition
    assert condition.render("{token}", "a") == "{prompt}: {token}!"


@pytest.mark.parametrize(
    ("prompt", "token", "message"),
    [
        ("x", "best", "unknown reward token 'best'; the spec has high, low"),
        ([{"role": "system", "content": "x"}], "high", "no user message"),
        ([], "high", "no user message"),
        ([{"role": "user", "content": 3}], "high", "neither a text nor a list"),
    ],
)
def test_what_cannot_be_rendered_is_an_error(prompt, token, message):
    with pytest.raises(ValueError, match=message):
        CONDITION.render(prompt, token)


# Labelling


def labelled(spec, *rows):
    lines, tally = label(spec, [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows])
    return [json.loads(line) for line in lines], tally


def chat(**rest):
    return {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], **rest}


@pytest.mark.slow
def test_several_processes_label_as_one_does():
    rows = [chat(state=i % 2, action=i % 3 > 0, id=i) for i in range(600)]
    rows[300], rows[599] = {"messages": []}, chat(state=9, action=1)
    lines = ["\ufeff" + json.dumps(rows[0]), "", *map(json.dumps, rows[1:])]
    found = []
    for processes in (1, 2):
        made, tally = label(rewardspec.load(RC_GRPO), [line.encode() for line in lines], processes=processes)
        found.append((list(made), tally))
    assert found[0] == found[1]
    assert [number for number, _ in found[0][1].bad] == [302, 601] and found[0][1].labelled == 598


def test_label_gives_tokens_by_the_conditions():
    spec = rewardspec.load(RC_GRPO)
    found, tally = labelled(
        spec,
        chat(state=1, action=1, id="one"),
        chat(state=1, action=0),
        {"prompt": "q", "completion": "a", "rewards": {"state": True, "action": 1.0}},
        {
            "prompt": [{"role": "user", "content": "q"}],
            "completion": [{"role": "tool", "content": "a"}],
            "state": 0,
            "action": 0,
        },
    )
    assert [row["reward_token"] for row in found] == ["high", "low", "high", "low"]
    assert found[0]["messages"][0]["content"] == f"q\n{HIGH}"
    assert found[0]["messages"][1] == {"role": "assistant", "content": "a"}
    assert found[0]["id"] == "one"
    assert found[2]["messages"] == found[0]["messages"]
    assert tally.counts == {"high": 2, "low": 2}
    assert tally.prior() == {"high": 0.5, "low": 0.5}
    assert not tally.bad


def test_first_label_that_holds_counts():
    section = """  tokens: {best: A, good: B, rest: C}
  prior: {best: 0.1, good: 0.1}
  label: {best: correct >= 1 and style > 0.9, good: correct >= 1}
  template: '{token}'
"""
    found, _ = labelled(spec_with(section), *(chat(correct=c, style=s) for c, s in ((1, 1), (1, 0.5), (0, 1))))
    assert [row["reward_token"] for row in found] == ["best", "good", "rest"]


def test_missing_values_follow_their_policies():
    section = "  tokens: {a: A, b: B}\n  prior: {a: 0.5}\n  label: {a: LABEL}\n  template: '{token}'\n"
    components = """
  zero: {range: [0, 1], missing: zero}
  ignored: {range: [0, 1], missing: ignore}
  gated: {range: [0, 1], when: zero > 0}
"""
    rows = [chat(), chat(zero=1), chat(zero=1, gated=1, ignored=None)]
    for condition, expected, bad in (
        ("zero >= 0", ["a", "a", "a"], []),
        ("ignored < 2", ["b", "b", "b"], []),
        ("gated > 0", ["b", "a"], [2]),
    ):
        found, tally = labelled(spec_with(section.replace("LABEL", condition), components), *rows)
        assert [row["reward_token"] for row in found] == expected
        assert [number for number, _ in tally.bad] == bad
    assert tally.bad[0][1] == "`gated` is missing"


def test_values_near_a_declared_one_are_that_one():
    section = "  tokens: {a: A, b: B}\n  prior: {a: 0.5}\n  label: {a: x >= 0.1}\n  template: '{token}'\n"
    found, tally = labelled(
        spec_with(section, "{x: {values: [0, 0.1, 1]}}"),
        chat(x=0.10000000149011612),
        chat(x=0.1),
        chat(x=0.2),
        chat(x=float("nan")),
    )
    assert [row["reward_token"] for row in found] == ["a", "a"]
    assert [reason for _, reason in tally.bad] == ["`x` is 0.2: it must be in {0, 0.1, 1}", "`x` is missing"]


def test_labels_that_floats_decide():
    section = "  tokens: {a: A, b: B}\n  prior: {a: 0.5}\n  label: {a: sigmoid(x) > 0.6}\n  template: '{token}'\n"
    found, _ = labelled(spec_with(section, "{x: {range: [-9, 9]}}"), chat(x=0.40), chat(x=0.41), chat(x=0))
    assert [row["reward_token"] for row in found] == ["b", "a", "b"]  # log(0.6 / 0.4) = 0.4055


def test_labels_of_lists():
    section = """  tokens: {best: A, sure: B, rest: C}
  prior: {best: 0.1, sure: 0.1}
  label: {best: "all(met, over=rollout, where=must)", sure: "mean(sigmoid(x), over=rollout) > 0.6"}
  template: '{token}'
"""
    of_lists = "{met: {values: [0, 1], missing: ignore}, must: {values: [0, 1]}, x: {range: [-9, 9]}}"
    of_lists = of_lists.replace("]}", "], level: turn}").replace("], m", "], level: turn, m")
    spec = spec_with(section, f"{{right: {{values: [0, 1]}}}}\nlists: {{turn: {{}}}}\nsignals: {of_lists}")
    rows = [
        {"met": [1, 0], "must": [1, 0], "x": [0, 0]},
        {"met": [0, None], "must": [1, 0], "x": [0, 1]},  # sigmoid(1) is 0.731, and 0.615 the mean with 0.5
        {"met": [0], "must": [1], "x": [0]},
        {"met": [], "must": [], "x": []},  # all of none
        {"met": [0], "must": [1, 0], "x": [0]},
        {"met": [0], "must": 1, "x": [0]},
        {"met": [0, 1], "must": [1, 2], "x": [0, 0]},
        {"met": [0], "must": [1]},
    ]
    found, tally = labelled(spec, *(chat(**row) for row in rows))
    assert [row["reward_token"] for row in found] == ["best", "sure", "rest", "best"]
    assert tally.bad == [
        (5, "`must` has 2 items of the list `turn`, and `met` has 1"),
        (6, "`must` is 1: it must be a list, of the items of `turn`"),
        (7, "`must` at turn 2 is 2: it must be in {0, 1}"),
        (8, "`x` is missing: it must be a list, of the items of `turn`"),
    ]
    text = "  tokens: {a: A, b: B}\n  prior: {a: 0.5}\n  label: {a: 'max(position, over=rollout) > 2'}\n"
    counted = spec_with(text + "  template: '{token}'\n", "{x: {range: [0, 1]}}\nlists: {turn: {}}")
    with pytest.raises(ValueError, match="reads no column of the list `turn`, so its length is unknown"):
        labelled(counted)


def test_symbols_and_values_of_a_group():
    section = (
        "  tokens: {a: A, b: B}\n  prior: {a: 0.5}\n  label: {a: task == math and level > 1}\n  template: '{token}'\n"
    )
    text = "{correct: {values: [0, 1]}}\nsignals: {task: {values: [math, code]}, level: {range: [0, 3], level: group}}"
    found, tally = labelled(
        spec_with(section, text),
        chat(task="math", level=2),
        chat(task="code", level=2),
        chat(task="art", level=2),
        chat(task="math"),
    )
    assert [row["reward_token"] for row in found] == ["a", "b"]
    assert [reason for _, reason in tally.bad] == [
        "`task` is 'art': it must be one of math, code",
        "`level` is missing",
    ]


BAD = [
    b"nonsense",
    b"[1]",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"state": 1, "action": 1}',
    b'{"messages": "q", "state": 1, "action": 1}',
    b'{"messages": [], "state": 1, "action": 1}',
    b'{"messages": [{"content": "q"}], "state": 1, "action": 1}',
    b'{"messages": [{"role": "user", "content": "q"}], "state": 2, "action": 1}',
    b'{"messages": [{"role": "user", "content": "q"}], "state": "1", "action": 1}',
    b'{"messages": [{"role": "user", "content": "q"}], "state": 1e999, "action": 1}',
    b'{"messages": [{"role": "user", "content": "q"}], "state": [1], "action": 1}',
    b'{"messages": [{"role": "user", "content": "q"}], "action": 1}',
    b'{"messages": [{"role": "user", "content": null}], "state": 1, "action": 1}',
    b'{"messages": [{"role": "user", "content": "q <|low_reward|>"}], "state": 1, "action": 1}',
    b'{"messages": [{"role": "user", "content": "q"}], "reward_token": "low", "state": 1, "action": 1}',
    b'{"messages": [{"role": "user", "content": "q"}], "state": ' + b"9" * 10_000 + b', "action": 1}',
    b'{"prompt": 3, "completion": "a", "state": 1, "action": 1}',
]


def test_bad_lines_are_all_reported_with_their_numbers():
    good = json.dumps(chat(state=1, action=1)).encode()
    rows = [row for bad in BAD for row in (bad, b"  ", good)]
    found, tally = labelled(rewardspec.load(RC_GRPO), *rows)
    assert [number for number, _ in tally.bad] == list(range(1, len(rows), 3))
    assert all(reason and "\n" not in reason and len(reason) < 200 for _, reason in tally.bad)
    assert len(found) == tally.labelled == len(BAD)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["messages", "role", "content", "state", "prompt", "completion", "rewards"]), x
            )
        ),
    )
)
def test_no_line_breaks_it(value):
    found, tally = labelled(rewardspec.load(RC_GRPO), value)
    assert len(found) + len(tally.bad) == 1


@pytest.mark.slow
def test_label_command(tmp_path):
    trajectories, out = tmp_path / "t.jsonl", tmp_path / "out.jsonl"
    rows = [chat(state=1, action=1), chat(state=1, action=1), chat(state=0, action=1)]
    trajectories.write_text("\ufeff" + "\n".join([json.dumps(rows[0]), "oops", *map(json.dumps, rows[1:])]) + "\n")
    done = run("label", trajectories, RC_GRPO, "-o", out)
    assert done.returncode == 0
    assert f"{trajectories}:2: skipped: not JSON" in done.stderr
    assert "wrote 3 trajectories" in done.stdout
    assert "1 line skipped" in done.stdout
    assert "prior: {high: 0.6667}" in done.stdout
    assert [json.loads(line)["reward_token"] for line in out.read_text().splitlines()] == ["high", "high", "low"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "t.jsonl"]


@pytest.mark.slow
def test_label_command_misused(tmp_path):
    trajectories, out = tmp_path / "t.jsonl", tmp_path / "out.jsonl"
    trajectories.write_text("oops\n")
    for arguments, status, message in (
        ((trajectories, RC_GRPO, "-o", out), 1, "skipped"),
        ((tmp_path / "none.jsonl", RC_GRPO, "-o", out), 2, "No such file"),
        ((trajectories, RC_GRPO, "-o", tmp_path / "no/out.jsonl"), 2, "there is no folder"),
        ((trajectories, resource("specs/gdpo/math.yaml"), "-o", out), 2, "no `condition:`"),
        ((trajectories, RC_GRPO, "-o", trajectories), 2, "would be overwritten"),
    ):
        done = run("label", *arguments)
        assert done.returncode == status, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    assert trajectories.read_text() == "oops\n"


def test_fingerprints_remember_reward_tokens_as_they_always_did():
    tokens = RewardTokens({"high": "<h>", "low": "<l>"}, {"high": 0.5, "low": 0.5}, "{prompt} {token}")
    said = "tokens={'high': '<h>', 'low': '<l>'}, prior={'high': 0.5, 'low': 0.5}, template='{prompt} {token}'"
    assert str(tokens) == f"Condition({said})"


def test_condition_is_part_of_the_fingerprint():
    text = Path(RC_GRPO).read_text()
    assert rewardspec.loads(text).fingerprint != rewardspec.loads(text.replace("high: 0.5", "high: 0.4")).fingerprint
