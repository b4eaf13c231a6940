"""State: what `update` leaves to the next batch, against a loop over groups in plain Python; and what is refused."""

import json
import math
import pickle
import random

import pytest
import torch

import rewardspec
from rewardspec.prove.diff_on_log import advantages_on
from rewardspec.prove.replay import read_log
from rewardspec.text.diagnostics import SpecError

TEXT = """\
rewardspec: 1
name: carried
signals:
  tokens: {range: [0, .inf]}
  score: {range: [0, 1], missing: ignore}
  prompt: {id: true, level: group}
components:
  correct: {values: [0, 1]}
  length: {expr: tokens / 4000, weight: -price}
state:
  price:
    init: 0.1
    range: [0, 0.5]
    update: price + 0.05 * (mean(tokens, over=batch) / 4000 - 1)
  level_of:
    init: 0.5
    range: [0.25, 1]
    by: prompt
    update: 0.75 * level_of + 0.25 * mean(score)
    most: 5
keep: mean(correct) < 1
advantage: total - level_of
"""


@pytest.fixture(scope="module")
def fn():
    return rewardspec.loads(TEXT, "carried.yaml") and rewardspec.compile(rewardspec.loads(TEXT, "carried.yaml"))


def batch(draw, groups=4, size=3):
    """Columns of float64 and group ids: groups of unlike size in any order, prompts that repeat, missing scores."""
    ids = [g for g in range(groups) for _ in range(draw.randint(1, size))]
    draw.shuffle(ids)
    prompts = [draw.randint(0, 7) for _ in range(groups)]
    n = len(ids)
    return {
        "correct": torch.tensor([draw.randint(0, 1) for _ in range(n)], dtype=torch.float64),
        "tokens": [draw.randint(0, 9000) for _ in range(n)],
        "score": [None if draw.random() < 0.3 else draw.randint(0, 8) / 8 for _ in range(n)],
        "prompt": [prompts[g] for g in ids],
    }, ids


def by_hand(columns, ids, state):
    """(advantages, state after) as the text of the spec says, one rollout and one group after another."""
    price, level_of = state["price"], {key: value for key, value in state["level_of"]}
    members = {}
    for i, g in enumerate(ids):
        members.setdefault(g, []).append(i)
    advantages = [0.0] * len(ids)
    for rows in members.values():
        level = level_of.get(columns["prompt"][rows[0]], 0.5)
        kept = sum(float(columns["correct"][i]) for i in rows) < len(rows)
        for i in rows:
            total = float(columns["correct"][i]) - price * columns["tokens"][i] / 4000
            advantages[i] = total - level if kept else 0.0
    new = price + 0.05 * (sum(columns["tokens"]) / len(ids) / 4000 - 1)
    updates = {}
    for rows in members.values():
        key = columns["prompt"][rows[0]]
        scores = [columns["score"][i] for i in rows if columns["score"][i] is not None]
        found = updates.setdefault(key, [])
        if scores:
            found.append(0.75 * level_of.get(key, 0.5) + 0.25 * sum(scores) / len(scores))
    for key, found in updates.items():
        before = level_of.pop(key, 0.5)
        level_of[key] = min(max(sum(found) / len(found), 0.25), 1.0) if found else before
    kept = list(level_of.items())[-5:]
    return advantages, {"price": min(max(new, 0.0), 0.5), "level_of": [[key, value] for key, value in kept]}


def test_state_is_what_a_loop_over_groups_gives(fn):
    draw = random.Random(0)
    state = expected = fn.initial_state()
    assert state == {"price": 0.1, "level_of": []}
    for _ in range(60):
        columns, ids = batch(draw)
        out = fn(columns, ids, state=state)
        advantages, expected = by_hand(columns, ids, expected)
        assert out.advantages.tolist() == pytest.approx(advantages, abs=1e-12)
        assert out.state["price"] == pytest.approx(expected["price"], abs=1e-12)
        assert [key for key, _ in out.state["level_of"]] == [key for key, _ in expected["level_of"]]
        assert [value for _, value in out.state["level_of"]] == pytest.approx(
            [value for _, value in expected["level_of"]], abs=1e-12
        )
        state = out.state
    assert state["price"] > 0.1 and len(state["level_of"]) == 5, "the price moved, and keys were dropped"


def test_a_run_that_goes_on_from_json_equals_one_that_was_not_cut(fn):
    draw = random.Random(1)
    batches = [batch(draw) for _ in range(8)]

    def run(state, some, again=lambda state: state):
        found = []
        for columns, ids in some:
            out = fn(columns, ids, state=again(state))
            state = out.state
            found.append(out.advantages.tolist())
        return found, state

    whole = run(fn.initial_state(), batches)
    assert run(fn.initial_state(), batches, lambda state: json.loads(json.dumps(state))) == whole
    first, state = run(fn.initial_state(), batches[:3])
    second, last = run(pickle.loads(pickle.dumps(state)), batches[3:])
    assert (first + second, last) == whole, "bit for bit"


def test_a_call_changes_nothing_that_it_was_given(fn):
    columns, ids = batch(random.Random(2))
    state = {"price": 0.25, "level_of": [[3, 0.5], [4, 0.75]]}
    text = json.dumps(state)
    outs = [fn(columns, ids, state=state) for _ in range(2)]
    assert json.dumps(state) == text and outs[0].state == outs[1].state
    assert pickle.loads(pickle.dumps(outs[0])).state == outs[0].state
    assert pickle.loads(pickle.dumps(fn))(columns, ids, state=state).state == outs[0].state


def test_the_order_of_rows_and_the_layout_of_groups_change_no_state(fn):
    columns = {
        "correct": [1, 0, 1, 1, 0, 0],
        "tokens": [1000, 2000, 3000, 4000, 5000, 6000],
        "score": [1, 0, 1, 1, 0.5, None],
        "prompt": [3, 3, 5, 5, 3, 3],
    }
    state = fn.initial_state()
    dense = fn(columns, 2, state=state)
    order = [4, 0, 2, 5, 3, 1]
    mixed = fn({k: [v[i] for i in order] for k, v in columns.items()}, [i // 2 for i in order], state=state)
    assert dict(map(tuple, dense.state["level_of"])) == pytest.approx(dict(map(tuple, mixed.state["level_of"])))
    assert dense.state["level_of"] == [[3, 0.5], [5, 0.625]], "two groups of one prompt: the mean of their updates"
    half = fn({k: [v[i] for i in (4, 5)] for k, v in columns.items()}, 2, state=dense.state)
    assert [key for key, _ in half.state["level_of"]] == [5, 3], "what was seen goes to the end"


def test_keys_are_texts_or_whole_numbers_and_names():
    text = TEXT.replace("prompt: {id: true, level: group}", "prompt: {values: [easy, hard], level: group}")
    fn = rewardspec.compile(rewardspec.loads(text))
    columns = {"correct": [1, 0], "tokens": [4000, 4000], "score": [1, 1], "prompt": ["hard", "hard"]}
    assert fn(columns, 2, state=fn.initial_state()).state["level_of"] == [["hard", 0.625]]
    numbered = rewardspec.compile(rewardspec.loads(TEXT))
    for prompts in ([3, 3], [3.0, 3.0], torch.tensor([3, 3]), torch.tensor([3.0, 3.0])):
        out = numbered({**columns, "prompt": prompts}, 2, state=numbered.initial_state())
        assert out.state["level_of"] == [[3, 0.625]] and type(out.state["level_of"][0][0]) is int
    with pytest.raises(numbered.RolloutError, match=r"column `prompt` is 2\.5 at rollout 0 of group 0"):
        numbered({**columns, "prompt": [2.5, 2.5]}, 2, state=numbered.initial_state())


def test_a_batch_of_no_rollouts_leaves_the_state_as_it_was(fn):
    state = {"price": 0.25, "level_of": [["a", 0.5]]}
    nothing = {name: [] for name in ("correct", "tokens", "score", "prompt")}
    assert fn(nothing, [], state=state).state == state


def test_a_missing_update_leaves_the_value_bit_for_bit(fn):
    state = {"price": 0.1, "level_of": [[1, 0.3]]}
    columns = {"correct": [1, 0], "tokens": [4000, 4000], "score": [None, None], "prompt": [1, 1]}
    assert fn(columns, 2, state=state).state["level_of"] == [[1, 0.3]], "not float32's 0.3"


def test_an_update_that_is_not_finite_is_an_error():
    text = "rewardspec: 1\nsignals: {x: {range: [0, .inf]}}\ncomponents: {a: {values: [0, 1]}}\n"
    text += 'state:\n  most: {init: 0, range: [0, .inf], update: "max(exp(x), over=batch)"}\nadvantage: grpo * most\n'
    fn = rewardspec.compile(rewardspec.loads(text))
    with pytest.raises(fn.RolloutError, match="the update of state `most` is inf: it should be a finite number"):
        fn({"a": [0, 1], "x": [1e5, 0]}, 2, state=fn.initial_state())


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, ["pass `state=`, at first `initial_state()`"]),
        (5, ["it should map names to values"]),
        ({}, ["state `price` is missing", "state `level_of` is missing"]),
        ({"price": 0.1, "level_of": [], "prize": 1}, ["state `prize` is not one of price, level_of"]),
        (
            {"price": 0.6, "level_of": 3},
            ["`price` is 0.6: it should be from 0 to 0.5", "`level_of` is 3: it should be"],
        ),
        ({"price": math.nan, "level_of": [[1, math.inf]]}, ["`price` is nan", "`level_of` of 1 is inf"]),
        ({"price": True, "level_of": [[True, 0.5]]}, ["`price` is True", "a key of state `level_of` is True"]),
        ({"price": "0.1", "level_of": [[1, 0.5], [1, 0.5]]}, ["`price` is '0.1'", "the key 1 is twice"]),
        (
            {"price": 10**400, "level_of": [[1.5, 0.5], [1]]},
            ["finite number", "is 1.5: it should be a text", "entry 1"],
        ),
        ({"price": 0.1, "level_of": [[i, 0.5] for i in range(6)]}, ["has 6 keys: it should have at most 5"]),
        ({"price": 0.1, "level_of": [["a", 0.1]]}, ["`level_of` of 'a' is 0.1: it should be from 0.25 to 1"]),
    ],
)
def test_wrong_state_is_refused_with_all_that_is_wrong(fn, state, said):
    columns, ids = batch(random.Random(3))
    with pytest.raises(fn.RolloutError) as error:
        fn(columns, ids, state=state)
    for words in said:
        assert words in str(error.value)
    assert isinstance(error.value, ValueError)


def test_a_spec_without_state_has_none():
    fn = rewardspec.compile(rewardspec.loads("rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\n"))
    assert fn.initial_state() is None and fn({"a": [0, 1]}, 2, state=None).state is None
    assert "state" not in fn.spec.needs and "initial_state" not in fn.source
    with pytest.raises(fn.RolloutError, match="the spec has no state"):
        fn({"a": [0, 1]}, 2, state={})


def test_state_asks_for_the_whole_batch_and_is_part_of_the_fingerprint(fn):
    assert fn.spec.needs == {"group", "batch", "tokens", "state"}
    assert fn.spec.columns == ("tokens", "score", "prompt", "correct"), "also those that only an update reads"
    prints = {fn.spec.fingerprint}
    for before, after in (
        ("init: 0.1", "init: 0.2"),
        ("range: [0, 0.5]", "range: [0, 1]"),
        ("0.05 *", "0.06 *"),
        ("most: 5", "most: 6"),
    ):
        prints.add(rewardspec.loads(TEXT.replace(before, after)).fingerprint)
    assert len(prints) == 5


def test_diff_and_explain_and_fmt_show_state(fn):
    other = rewardspec.loads(TEXT.replace("init: 0.1", "init: 0.2"))
    (change,) = rewardspec.diff(fn.spec, other, [2]).changes
    assert change.what == "state price" and "init: 0.1" in change.before and "init: 0.2" in change.after
    from rewardspec.prove.explain import explain

    rows = explain(fn.spec).to_json()["state"]
    assert [row["name"] for row in rows] == ["price", "level_of"] and rows[1]["of_each"] == "prompt"
    assert "price (state)" in fn.spec._repr_html_() and "level_of (state)" in fn._repr_html_()


def test_the_emitted_module_alone_carries_state(fn):
    names = {}
    exec(fn.source, names)
    columns, ids = batch(random.Random(4))
    out = names["advantages"](columns, ids, state=names["initial_state"]())
    assert out.state == fn(columns, ids, state=fn.initial_state()).state


LOGGED = """\
rewardspec: 1
signals: {prompt: {id: true, level: group}}
components: {correct: {values: [0, 1]}}
state:
  level_of: {init: 0.5, range: [0, 1], by: prompt, update: 0.75 * level_of + 0.25 * mean(correct)}
advantage: correct - level_of
"""


def logged(folder, steps=(1, 0, 2)):
    """A log whose steps are in any order, and the advantages by hand: of step 0, then 1, then 2."""
    rows, expected, level = [], {}, {}
    for step in steps:
        for prompt, answers in ((3, [1, 0]), (4, [step % 2, 1])):
            rows += [
                {"step": step, "group": prompt, "prompt": prompt, "correct": a, "completion": "x"} for a in answers
            ]
    for step in sorted(steps):
        for prompt in (3, 4):
            own = [(i, row["correct"]) for i, row in enumerate(rows) if (row["step"], row["prompt"]) == (step, prompt)]
            before = level.get(prompt, 0.5)
            expected |= {i: a - before for i, a in own}
            level[prompt] = 0.75 * before + 0.25 * sum(a for _, a in own) / len(own)
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, [expected[i] for i in range(len(rows))]


def test_a_log_carries_state_through_its_steps_in_their_order(tmp_path):
    path, expected = logged(tmp_path)
    spec = rewardspec.loads(LOGGED)
    assert advantages_on(spec, read_log(path, spec)).tolist() == pytest.approx(expected)
    assert rewardspec.simulate(spec, rollouts=path).rollouts == 12
    fixed = rewardspec.loads(LOGGED.replace("correct - level_of", "correct - 0.5"))
    found = rewardspec.diff(fixed, spec, rollouts=path).logged
    assert found.changed == sum(a != c - 0.5 for a, c in zip(expected, correct(path), strict=True)) > 0


def correct(path):
    return [json.loads(line)["correct"] for line in path.read_text().splitlines()]


def test_scores_carry_state_and_a_resumed_run_equals_one_that_was_not_cut(tmp_path):
    path, expected = logged(tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    # the answers are measured by a function, so that there is something to resume
    said = ["<answer>none</answer>", "<answer>12</answer>"]
    path.write_text("".join(json.dumps({**r, "completion": said[r.pop("correct")]}) + "\n" for r in rows))
    spec = rewardspec.loads(LOGGED.replace("correct: {values: [0, 1]}", "correct: {use: math.integer}"))
    rewardspec.score(spec, path, tmp_path / "whole.jsonl")
    scored = [json.loads(line)["scored/advantage"] for line in (tmp_path / "whole.jsonl").read_text().splitlines()]
    assert scored == pytest.approx(expected)

    def stop(done, of):
        if done == of:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rewardspec.score(spec, path, tmp_path / "cut.jsonl", progress=stop)
    assert (tmp_path / "cut.jsonl.partial").exists()
    assert rewardspec.score(spec, path, tmp_path / "cut.jsonl").resumed == 12
    assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_names_of_a_module_are_free_for_columns():
    text = "rewardspec: 1\nsignals: {state: {values: [0, 1]}, before: {values: [0, 1]}, result: {values: [0, 1]}}\n"
    text += "components: {a: {values: [0, 1]}, b: {expr: state * before + state * result + before * result}}\n"
    text += (
        "state:\n  initial_state: {init: 0, range: [0, 1], update: initial_state}\nadvantage: total - initial_state\n"
    )
    fn = rewardspec.compile(rewardspec.loads(text))
    columns = {name: [1, 1] for name in ("state", "before", "result", "a")}
    assert fn(columns, 2, state={"initial_state": 0.5}).advantages.tolist() == [3.5, 3.5]


def test_guarantees_hold_for_every_state_within_range():
    text = "rewardspec: 1\ncomponents: {correct: {values: [0, 1]}, short: {values: [0, 1], weight: price}}\n"
    text += "state:\n  price: {init: 0.1, range: [0, {top}], update: price}\nadvantage: total\n"
    text += "guarantees: {right above wrong: right_above_wrong(correct)}\n"
    held, broken = (rewardspec.verify(rewardspec.loads(text.replace("{top}", t)), [2])[0] for t in ("0.5", "2"))
    assert held.status == "not refuted" and broken.status == "refuted"
    assert held.reason == "some domains are intervals: tried at their ends and middles"
    assert broken.counterexample.group["price"] >= 1, "although it begins at 0.1"


def test_state_is_read_neither_by_labels_nor_by_only_when():
    head = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nstate:\n  s: {init: 0, range: [0, 1], update: s}\n"
    tokens = "condition: {tokens: {x: X, y: Y}, prior: {x: 0.5}, label: {x: a > s}, template: '{token}'}\n"
    with pytest.raises(SpecError, match="a label can read only one rollout, not the state `s`"):
        rewardspec.loads(head + tokens + "advantage: grpo\n")
