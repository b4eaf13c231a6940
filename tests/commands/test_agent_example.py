"""The two-turn agent of examples/agent: its task, and where the advantages of its training go."""

import importlib.util
import sys
from argparse import Namespace

import numpy as np
import pandas
import pytest
from places import EXAMPLES

pytest.importorskip("trl", reason="the example trains with TRL")

import rewardspec

sys.path.append(str(EXAMPLES))


def script(name, called=None):
    """A script of examples/agent, which is not on the path: those of examples/trl have the same names."""
    spec = importlib.util.spec_from_file_location(called or f"agent_{name}", EXAMPLES / "agent" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


market = script("market", "market")  # as train.py imports it
PROMPT = "what colour are the apples in lima"


def test_tool_answers_calls_alone_and_draws_anew_for_every_key():
    here, later = market.Market(PROMPT, 0), market.Market(PROMPT, 1)
    call, answer = here.right
    assert call == "<call> apples lima" == later.right[0]
    price, colour, owner = here.result(call).removeprefix("<result> ").split()
    assert answer == f"<answer> {colour}"
    assert [price in market.FIELDS["price"], owner in market.FIELDS["owner"]] == [True, True]
    assert len({market.Market(PROMPT, key).result(call) for key in range(9)}) > 1
    assert market.Market(PROMPT, 0).result(call) == here.result(call)
    texts = ["<call> apples", "<call> lima apples", "<call> apples lima lima", "", "<answer> red", "apples <call>"]
    assert [here.result(text) for text in texts] == [market.UNKNOWN] * 3 + [None] * 3


@pytest.mark.parametrize(
    ("call", "reward"), [("<call> apples lima", 1.0), ("<call> figs lima", 0.5), ("<call> apples", 0.0)]
)
def test_rewards_of_both_turns(call, reward):
    here = market.Market(PROMPT, 0)
    right = here.right[1]
    wrong = next(f"<answer> {colour}" for colour in market.FIELDS["colour"] if f"<answer> {colour}" != right)
    assert [here.calls([call, text]) for text in (right, wrong)] == [[reward, 0.0]] * 2
    assert [here.outcome([call, text]) for text in (right, wrong, right + " red")] == [1.0, 0.0, 0.0]
    assert (here.calls([right]), here.outcome([right])) == ([0.0], 1.0)  # guessed, without the tool


def test_every_prompt_has_an_answer_in_the_vocabulary():
    words = market.tokenizer()
    assert len(market.TASKS) == 384
    for prompt in market.TASKS:
        here = market.Market(prompt, 0)
        texts = [prompt, *here.right, here.result(here.right[0])]
        assert words.batch_decode(words(texts).input_ids) == texts
        assert (here.outcome(list(here.right)), here.calls(list(here.right))) == (1.0, [1.0, 0.0])


def by_hand(arm, rows, size):
    """The advantages of each rollout's turns."""
    from turns_by_hand import zscores

    def each(values):
        return [z for (z,) in zscores([[v] for v in values], size)]

    outcome, called = [row["outcome"] for row in rows], [row["call"][0] for row in rows]
    both = [o + c for o, c in zip(outcome, called, strict=True)]
    scores = {
        "outcome_only": (each(outcome), [0.0] * len(rows), 0),
        "summed": (each(both), [0.0] * len(rows), 0),
        "everywhere": (each(outcome), each(called), 1),
        "on_its_turn": (each(outcome), each(called), 0),
    }
    first, second, on_later = scores[arm]
    return [
        [a + (b if k == 0 else on_later * b) for k in range(len(row["turns"]))]
        for row, a, b in zip(rows, first, second, strict=True)
    ]


def turns_of(row, ids, words):
    """The turn of each token: the first ends with <eos> or after six, then come the words of the tool."""
    first = ids.index(1) + 1 if 1 in ids[:6] else 6
    result = market.Market(row["prompt"], (0, row["step"])).result(words.decode(ids[:first], skip_special_tokens=True))
    found = [] if result is None else words(result).input_ids
    assert ids[first : first + len(found)] == found
    return [0] * first + [None] * len(found) + [1] * (len(ids) - first - len(found))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what trainers say is not about us
@pytest.mark.parametrize("arm", ["outcome_only", "summed", "everywhere", "on_its_turn"])
def test_advantages_are_on_the_tokens_of_their_turns(tmp_path, arm):
    train = script("train")

    class Watched(train.LoggingTrainer):
        def _generate_and_score_completions(self, inputs):
            out = super()._generate_and_score_completions(inputs)
            self.seen = [*getattr(self, "seen", []), dict(out)]
            return out

    sizes = {"steps": 2, "group": 4, "prompts": 6, "learning_rate": 5e-4, "warm_up_examples": 16, "warm_up_steps": 40}
    run = train.trainer(arm, 0, Namespace(out=tmp_path, **sizes), Watched)
    run.train()
    words = market.tokenizer()
    lengths = set()
    for step, out in enumerate(run.seen):
        rows = [row for row in run.rollouts if row["step"] == step]
        expected = by_hand(arm, rows, 4)
        shown = out["completion_mask"] * out["tool_mask"]
        advantages = out["advantages"] if out["advantages"].ndim == 2 else out["advantages"].unsqueeze(1) * shown
        by_token = np.zeros(tuple(shown.shape))
        for k, (row, items) in enumerate(zip(rows, expected, strict=True)):
            ids = out["completion_ids"][k, : int(out["completion_mask"][k].sum())].tolist()
            turns = turns_of(row, ids, words)
            assert shown[k, : len(ids)].tolist() == [int(turn is not None) for turn in turns]
            by_token[k, : len(ids)] = [0.0 if turn is None else items[turn] for turn in turns]
            assert row["advantages"] == pytest.approx(items, abs=1e-6)
            lengths.add(len(items))
        np.testing.assert_allclose(advantages.numpy(), by_token, rtol=0, atol=1e-6)
    assert any(any(row["advantages"]) for row in run.rollouts)
    assert lengths == {1, 2}
    assert out["advantages"].ndim == (2 if arm == "on_its_turn" else 1)


def test_arms_are_names_of_one_spec():
    train = script("train")
    path = EXAMPLES / "agent" / "market.yaml"
    columns = {"outcome": [1, 0, 0, 0], "call": [[1, 0], [1, 0], [0.5, 0], [0]]}
    found = {arm: rewardspec.compile(rewardspec.load(path, advantage=arm))(columns, 4) for arm in train.ARMS}
    rows = [{"outcome": o, "call": c, "turns": c} for o, c in zip(*columns.values(), strict=True)]
    for arm, out in found.items():
        items = by_hand(arm, rows, 4)
        each = (
            out.nested()
            if arm == "on_its_turn"
            else [[a] * len(c) for a, c in zip(out.advantages, columns["call"], strict=True)]
        )
        assert [list(map(float, row)) for row in each] == [pytest.approx(row, abs=1e-5) for row in items]


def run_of(outcomes, calls):
    """A run of one rollout a step; its advantages are 1 on the first turn and -2 on the second."""
    columns = {"outcome": outcomes, "call": [np.array([c, 0.0]) for c in calls]}
    advantages = [np.array([1.0, -2.0])] * len(outcomes)
    return pandas.DataFrame({"step": range(len(outcomes)), **columns, "advantages": advantages})


def test_tables_are_of_the_last_steps_and_paired_by_seed():
    compare = script("compare")
    end, before = compare.LAST, 75

    def run(right):
        return run_of([0.0] * (before + end - right) + [1.0] * right, [0.5] * before + [1.0] * end)

    rights = {"outcome_only": (5, 15), "summed": (10, 15), "everywhere": (0, 0), "on_its_turn": (10, 20)}
    runs = {arm: {seed: run(n) for seed, n in enumerate(both)} for arm, both in rights.items()}
    values = compare.measured(compare.with_parts(runs))
    lines = {line.split("|")[1].strip(): line for line in compare.table(values).splitlines()}
    # 5/25 and 15/25: mean 0.4, deviation 0.4 / sqrt(2); 10/25 and 15/25; 0; 10/25 and 20/25
    cells = "0.400 ± 0.283 | 0.500 ± 0.141 | 0.000 ± 0.000 | 0.600 ± 0.283"
    assert lines["right answers, end"] == f"| right answers, end | {cells} |"
    assert lines["right answers after right calls, end"].endswith(f"{cells} |")
    assert lines["right calls, whole run"].startswith("| right calls, whole run | 0.250 ± 0.000 |")
    assert lines["magnitude on second turns, whole run"].endswith("| 2.000 ± 0.000 |")
    # Differences of 0.2 and 0.2; of 0 and 0.2, whose mean 0.1 is one standard error; of 0.4 and 0.8
    cells = ["+0.200 ± 0.000, 2 of 2", "+0.100 ± 0.141, 1 of 2, t = 1.0", "+0.600 ± 0.283, 2 of 2, t = 3.0"]
    (line,) = (line for line in compare.differences(values).splitlines() if line.startswith("| right answers, end"))
    assert [cell.strip() for cell in line.split("|")[2:-1]] == cells
