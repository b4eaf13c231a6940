"""Lists inside a rollout in TRL's own trainers: multi-turn rollouts, and advantages of turns on their tokens."""

import random

import numpy as np
import pandas
import pytest
import torch

pytest.importorskip("trl")

from datasets import Dataset
from logged_again import logged_files
from places import ROOT
from tiny_model import tiny_model, tiny_tokenizer
from transformers import Qwen2ForSequenceClassification
from trl import GRPOTrainer, RLOOTrainer
from trl_runs import MOVED_TURNS, TURNS, Watched, called, data_set, digit, in_turns, settings, trainer
from turns_by_hand import assert_on_tokens, runs_of, turns_by_hand, zscores

import rewardspec
from rewardspec.adapters.common.stretches import onto_tokens, stretches
from rewardspec.adapters.trl import BindingError, RewardSpecGRPOTrainer, RewardSpecMixin, install

pytestmark = pytest.mark.filterwarnings("ignore")  # what trainers say is not about us


def multi_turn(folder, spec=TURNS, *, reward_funcs=(digit, called), **options):
    return trainer(folder, spec, reward_funcs=reward_funcs, **{"rollout_func": in_turns, **options})


def mean(values):
    return sum(values) / len(values) if values else 0.0


def flat(lists):
    return [value for row in lists for value in row]


def test_turns_get_their_advantages_on_their_tokens(tmp_path):
    changes = {"eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 2, "log_completions": True}
    changes |= {"gradient_accumulation_steps": 2, "num_iterations": 2}
    run = multi_turn(tmp_path, changes=changes, evaluated=data_set(4), rollout_log=tmp_path / "log")
    run.train()
    trained = [g for g in run.generations if g["mode"] == "train"]
    for g, (columns, _) in zip(trained, logged_files(tmp_path / "log").values(), strict=True):
        assert_on_tokens(g["out"], columns["rewardspec/advantage"])
        assert columns["called"] == called([row["turns"] for row in g["rows"]])
        assert columns["cost"] == [row["cost"] for row in g["rows"]] and columns["completion"] == g["completions"]
    for g in run.generations:
        items = turns_by_hand(g["rows"], g["completions"], 4 if g["mode"] == "train" else 2)
        assert_on_tokens(g["out"], items)
        n = len(items)
        assert g["logged"][-n:] == pytest.approx([mean(row) for row in items], abs=1e-6)
        assert [len(row) for row in g["extra"]["rewardspec/advantage"][-n:]] == [len(row) for row in items]
    assert {g["mode"] for g in run.generations} == {"train", "eval"}
    assert max(len(runs) for g in run.generations for runs in runs_of(g["out"])) > 2


def test_logs_have_a_number_for_each_rollout_and_the_table_has_the_lists(tmp_path):
    run = multi_turn(tmp_path, changes={"log_completions": True, "max_steps": 1})
    run.train()
    (g,) = run.generations
    lists = called([row["turns"] for row in g["rows"]])
    logs = run.state.log_history[0]
    assert logs["rewards/called/mean"] == pytest.approx(mean([mean(row) for row in lists]))
    assert logs["rewardspec/raw/called"] == logs["rewardspec/reward/tool"] == pytest.approx(mean(flat(lists)))
    assert logs["rewardspec/raw/cost"] == pytest.approx(mean(flat([row["cost"] for row in g["rows"]])))
    assert logs["rewardspec/rollouts_without_signal"] == 0
    table = pandas.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    items = turns_by_hand(g["rows"], g["completions"])
    assert table["advantage"].tolist() == pytest.approx([mean(row) for row in items], abs=1e-6)
    assert table["called"].tolist() == pytest.approx([mean(row) for row in lists])
    assert [list(row) for row in table["rewardspec/tool"]] == lists
    assert table["rewardspec/digit"].tolist() == digit(g["completions"])
    shares = [table[f"rewardspec/share/{name}"] for name in ("digit", "tool", "cheap")]
    assert flat(sum(rows) for rows in zip(*shares, strict=True)) == pytest.approx(flat(items), abs=1e-5)


@pytest.fixture
def uninstalled(monkeypatch):
    monkeypatch.setattr(GRPOTrainer, "__init__", GRPOTrainer.__init__)
    monkeypatch.setattr(RLOOTrainer, "__init__", RLOOTrainer.__init__)
    monkeypatch.setattr("rewardspec.adapters.trl.installation._installed", {})


def test_an_installed_spec_has_turns_too(tmp_path, uninstalled, monkeypatch):
    install(TURNS)
    monkeypatch.setattr(RewardSpecGRPOTrainer, "_prepare_inputs", seen := Seen(RewardSpecGRPOTrainer._prepare_inputs))
    functions = [digit, called]
    run = GRPOTrainer(
        tiny_model(), functions, settings(tmp_path, max_steps=1), data_set(), processing_class=tiny_tokenizer(),
        rollout_func=in_turns,
    )  # fmt: skip
    run.train()
    other = multi_turn(tmp_path, changes={"max_steps": 1})
    other.train()
    assert type(run) is RewardSpecGRPOTrainer and functions == [digit, called]
    both = seen.first["advantages"], other.generations[0]["out"]["advantages"]
    assert sorted(both[0].tolist()) == sorted(both[1].tolist())


class Seen:
    """A method, with what it returned first."""

    def __init__(self, method):
        self.method, self.first = method, None

    def __get__(self, owner, _):
        def call(inputs):
            found = self.method(owner, inputs)
            self.first = self.first or found
            return found

        return call


LOSSES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo", "luspo"]


def test_every_loss_of_trls_takes_advantages_of_tokens(tmp_path):
    run = multi_turn(tmp_path, changes={"max_steps": 1, "learning_rate": 0.0})
    run.train()
    out = run.generations[0]["out"]
    mask = out["completion_mask"] * out["tool_mask"]
    run.current_gradient_accumulation_steps = 1
    for loss in LOSSES:
        for level in ("token", "sequence"):
            run.loss_type, run.importance_sampling_level = loss, level
            one = torch.tensor([1.0, -0.5, 0.25, 2.0])
            whole = run._compute_loss(run.model, {**out, "advantages": one})
            tokens = run._compute_loss(run.model, {**out, "advantages": one.unsqueeze(1) * mask})
            torch.testing.assert_close(tokens, whole, msg=f"{loss} {level}")


# Where turns come from


class Notebook:
    """An environment with a tool. It keeps what was looked up."""

    def reset(self, **_):
        self.looked_up = []

    def look(self) -> str:
        """Look the next page up."""
        self.looked_up.append(len(self.looked_up))
        return "x" * (1 + len(self.looked_up))


class Scripted(GRPOTrainer):
    """TRL's own loop of tools, around texts that stand for the model's: `[` calls a tool."""

    def _generate_single_turn(self, prompt_ids, *_, **__):
        texts = ["".join(random.choices("ab01[", k=random.randint(1, 5))) for _ in prompt_ids]
        return [self._tokenizer(text)["input_ids"] for text in texts], None


def parsed(tokenizer, ids, **_):
    text = tokenizer.decode(ids)
    calls = [{"type": "function", "function": {"name": "look", "arguments": {}}}] if "[" in text else None
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def calls_of(completions):
    """For every message of the model whether it calls a tool."""
    return [[float("tool_calls" in m) for m in messages if m["role"] == "assistant"] for messages in completions]


def used(completions, environments, **_):
    """`calls_of`; answers are those of the rollout's own environment."""
    answers = [sum(m["role"] == "tool" for m in messages) for messages in completions]
    assert all(len(e.looked_up) >= n for e, n in zip(environments, answers, strict=True))
    return calls_of(completions)


def test_tools_and_environments_have_turns(tmp_path, monkeypatch):
    for name in ("is_jmespath_available", "supports_tool_calling", "is_chat_template_prefix_preserving"):
        monkeypatch.setattr(f"trl.trainer.grpo_trainer.{name}", lambda *_: True)
    monkeypatch.setattr("trl.trainer.grpo_trainer.parse_response", parsed)
    random.seed(3)
    kind = type("Tools", (Watched, RewardSpecMixin, OfTools, Scripted), {})
    tokenizer = tiny_tokenizer()
    tokenizer.response_template = {}  # TRL then reads tool calls through `parse_response`
    spec = """rewardspec: 1
name: tools
lists: {turn: {}}
signals: {used: {values: [0, 1], level: turn}, tokens: {range: [0, .inf], level: turn}}
components: {tool: {expr: used}, brief: {expr: tokens, weight: -0.5}}
advantage: decoupled
"""
    run = kind(
        model=tiny_model(), reward_funcs=[used], processing_class=tokenizer, environment_factory=Notebook, spec=spec,
        args=settings(tmp_path, max_completion_length=40, per_device_train_batch_size=16),
        train_dataset=data_set(conversational=True),
    )  # fmt: skip
    run.train()
    counts = set()
    for g in run.generations:
        turns = calls_of(g["completions"])
        sizes = [[len(places) for places in runs] for runs in runs_of(g["out"])]
        pairs = zip(zscores(turns, 4), zscores(sizes, 4), strict=True)
        items = [[u - 0.5 * n for u, n in zip(*row, strict=True)] for row in pairs]
        assert_on_tokens(g["out"], items)
        counts |= {len(row) for row in items}
    assert len(counts) > 2


class OfTools:
    """Below the mixin: what TRL gave to the reward functions."""

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self.now = {"completions": [list(messages) for messages in completions]}
        return rewards


RUBRIC = """rewardspec: 1
name: rubric
lists: {criterion: {}}
signals:
  met: {values: [0, 1], level: criterion}
  points: {range: [-10, 10], level: criterion}
components:
  rubric: {expr: "sum(met * points, over=rollout) / 10"}
advantage: dr_grpo
"""


def met(completions, points, **_):
    both = zip(completions, points, strict=True)
    return [[float(len(text) % (k + 2) == 0) for k in range(len(own))] for text, own in both]


async def met_later(completions, points, **_):
    return met(completions, points)


met_later.__name__ = "met"


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
@pytest.mark.parametrize("function", [met, met_later])
def test_a_list_that_the_spec_reduces_needs_no_tokens(tmp_path, kind, function):
    data = Dataset.from_dict({"prompt": ["a", "b"] * 4, "points": [[1, 2, 3], [5]] * 4})
    run = trainer(tmp_path, RUBRIC, kind, reward_funcs=[function], data=data)
    run.train()
    for g in run.generations:
        points = [row["points"] for row in g["rows"]]
        lists = met(g["completions"], points)
        scores = [float(np.dot(m, p)) / 10 for m, p in zip(lists, points, strict=True)]
        expected = np.array(scores) - np.mean(scores)
        np.testing.assert_allclose(g["out"]["advantages"].numpy(), expected, rtol=0, atol=1e-6)
        assert g["rewards"][:, 0].tolist() == pytest.approx([mean(row) for row in lists])


def test_a_function_that_the_spec_names_returns_lists(tmp_path, monkeypatch):
    (tmp_path / "own_turns.py").write_text(
        "def called(completion, turns):\n    return [float(any(c.isdigit() for c in text)) for text in turns]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = TURNS.replace("called: {values", 'called: {python: "own_turns:called", values')
    run = multi_turn(tmp_path / "out", text, reward_funcs=[digit], allow_python=["own_turns"])
    run.train()
    for g in run.generations:
        assert_on_tokens(g["out"], turns_by_hand(g["rows"], g["completions"]))


def test_a_list_that_only_places_are_read_of_has_the_lengths_of_the_stretches(tmp_path):
    text = "rewardspec: 1\nlists: {turn: {}}\ncomponents: {digit: {values: [0, 1]}}\nadvantage: digit / position\n"
    run = multi_turn(tmp_path, text, reward_funcs=[digit])
    run.train()
    for g in run.generations:
        both = zip(digit(g["completions"]), g["rows"], strict=True)
        assert_on_tokens(g["out"], [[d / (k + 1) for k in range(len(row["turns"]))] for d, row in both])


@pytest.mark.parametrize("tools", [True, False])
def test_the_number_of_turns_needs_no_column(tmp_path, tools):
    """Without tools it is one, also of a rollout that TRL hides."""
    text = "rewardspec: 1\nlists: {turn: {}}\ncomponents: {digit: {values: [0, 1]}}\nadvantage: digit - "
    options = {} if tools else {"rollout_func": None, "changes": {"mask_truncated_completions": True}}
    run = multi_turn(tmp_path, text + "max(position, over=rollout)\n", reward_funcs=[digit], **options)
    run.train()
    for g in run.generations:
        turns = [len(row["turns"]) if tools else 1 for row in g["rows"]]
        assert g["out"]["advantages"].tolist() == [d - n for d, n in zip(digit(g["completions"]), turns, strict=True)]
    with pytest.raises(BindingError, match="so the items of `turn` cannot be counted; read a column of that list"):
        multi_turn(tmp_path, run.spec, reward_funcs=[digit], changes={"mask_truncated_completions": True})


def test_example_of_the_page():
    text = (ROOT / "docs" / "trl.md").read_text(encoding="utf-8")
    spec = rewardspec.loads(text.partition("```yaml\n")[2].partition("```")[0])
    assert {found.severity for found in rewardspec.check(spec)} <= {"note"}
    result = rewardspec.compile(spec)({"correct": [1, 0], "found": [[1, 0], [1]]}, 2)
    written = [line.split("|")[2].split() for line in text.splitlines() if line.startswith("| rollout ")]
    shown = [line.split("|")[3].split() for line in text.splitlines() if line.startswith("| rollout ")]
    masks = torch.tensor([[int(w) for w in row] + [0] * (5 - len(row)) for row in written])
    found = onto_tokens(result.advantages, result.lengths["turn"], stretches(masks))
    assert found.tolist() == [pytest.approx([float(v) for v in row], abs=0.005) for row in shown]
    correct, both = (0.5**0.5, -(0.5**0.5)), np.array([1, -2, 1]) / 3 / np.std([1, 0, 1], ddof=1)
    by_hand = [correct[0] + both[0] / 2, correct[0] + both[1] / 2, correct[1] + both[2] / 2]
    assert result.advantages.tolist() == pytest.approx(by_hand, abs=1e-5)


# What does not match


def test_items_that_are_no_stretches_of_tokens_are_an_error_with_both_counts(tmp_path):
    text = RUBRIC.replace("sum(met * points, over=rollout) / 10", "met * points").replace("dr_grpo", "decoupled")
    data = Dataset.from_dict({"prompt": ["a", "b"], "points": [[1, 2, 3]] * 2})
    run = trainer(tmp_path, text, reward_funcs=[met], data=data)
    with pytest.raises(BindingError) as caught:
        run.train()
    lines = str(caught.value).splitlines()
    assert lines[0] == "rollout 0 has 3 items of the list `criterion`, and the model wrote 1 stretch of tokens"
    assert "so it is with 1 further rollout of 4" in lines and "sum(x, over=rollout)" in lines[-1]


def test_a_turn_too_many_is_an_error_that_names_the_rollout(tmp_path):
    def called(turns, **_):
        return [[1.0] * (len(texts) + (i == 2)) for i, texts in enumerate(turns)]

    text = "rewardspec: 1\nlists: {turn: {}}\nsignals: {called: {values: [0, 1], level: turn}}\n"
    run = multi_turn(tmp_path, text + "components: {tool: {expr: called}}\nadvantage: total\n", reward_funcs=[called])
    with pytest.raises(BindingError, match=r"^rollout 2 has (\d) items of the list `turn`, and the model wrote \d "):
        run.train()
    run = multi_turn(tmp_path, reward_funcs=[digit, called])  # another column of the list has other lengths
    with pytest.raises(ValueError, match="columns of the list `turn` have equal lengths"):
        run.train()


def test_rollouts_that_trl_hides_from_the_loss_are_not_compared(tmp_path):
    run = multi_turn(tmp_path, changes={"mask_truncated_completions": True})
    run.train()
    counts = set()
    for g in run.generations:
        shown = g["out"]["completion_mask"].any(1).tolist()
        items = turns_by_hand(g["rows"], g["completions"])
        assert_on_tokens(g["out"], [row if there else [] for row, there in zip(items, shown, strict=True)])
        counts.add(sum(shown))
    assert counts & {1, 2, 3}


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("bonus", "rloo", "the advantage of turns is of the list `turn`, but RLOO has one probability ratio and one"),
        ("bonus", "grpo", "column `bonus` of `train_dataset` holds Value('int64'), not a list of numbers a row"),
        ("truncated", "grpo", "`truncated` is one value a rollout: declare it without `level: turn`"),
    ],
)
def test_what_cannot_have_turns_is_refused_before_training(tmp_path, name, kind, message):
    with pytest.raises(BindingError) as caught:
        trainer(tmp_path, TURNS.replace("cost", name), kind, reward_funcs=[digit, called])
    assert message in str(caught.value), str(caught.value)


def test_a_reward_model_returns_no_lists(tmp_path):
    config = tiny_model().config
    config.num_labels, config._name_or_path = 1, "called"
    options = {"reward_funcs": [Qwen2ForSequenceClassification(config), digit], "rollout_func": in_turns}
    with pytest.raises(BindingError, match="reward model `called` returns one number for each rollout, but turns"):
        trainer(tmp_path, TURNS, reward_processing_classes=[tiny_tokenizer(), None], **options)


SOME = TURNS.replace("called: {values: [0, 1]", "called: {values: [0, 1], missing: ignore")


@pytest.mark.parametrize("text", [SOME, SOME.replace('"returns(cost, 0.5)"', "0 * called")])
def test_none_in_place_of_a_list_is_as_many_missing_items(tmp_path, text):
    """As many as another column of the list has, or as the model wrote turns."""

    def some(turns, **_):
        return [None if i % 3 == 1 else [1.0] * len(texts) for i, texts in enumerate(turns)]

    some.__name__ = "called"
    run = multi_turn(tmp_path, text, reward_funcs=[digit, some], changes={"max_steps": 1, "log_completions": True})
    run.train()
    (g,) = run.generations
    wanted = [[np.nan if i % 3 == 1 else 1.0] * len(row["turns"]) for i, row in enumerate(g["rows"])]
    for found, row in zip(g["extra"]["rewardspec/tool"], wanted, strict=True):
        np.testing.assert_array_equal(found, row)
    with pytest.raises(ValueError, match="`called` is missing at turn 0 of rollout 1 "):
        multi_turn(tmp_path, text.replace(", missing: ignore", ""), reward_funcs=[digit, some]).train()


def test_a_function_that_returns_numbers_where_lists_are_declared(tmp_path):
    def called(completions, **_):
        return [1.0] * len(completions)

    run = multi_turn(tmp_path, reward_funcs=[digit, called])
    with pytest.raises(ValueError, match=r"column `called` is 1.0 at rollout 0: it should be a list"):
        run.train()


# Groups that move


def test_groups_that_are_drawn_again_share_the_advantages_of_their_turns(tmp_path):
    changes = {"per_device_train_batch_size": 16, "num_generations": 2, "max_steps": 2, "learning_rate": 0.0}
    sums, moved = [], False
    for move_rows in (False, True):
        run = multi_turn(tmp_path, MOVED_TURNS, changes=changes, move_rows=move_rows)
        run.train()
        found = {}
        for g in run.generations:
            out = g["out"]
            mask = out["completion_mask"] * out["tool_mask"]
            assert not out["advantages"][mask == 0].any()
            moved = moved or not torch.equal(out["completion_ids"], g["stock"]["completion_ids"])
            rows = [out[name] for name in ("completion_ids", "completion_mask", "advantages")]
            for ids, there, advantages in zip(*rows, strict=True):
                key = g["step"], *ids[there.bool()].tolist()
                found[key] = found.get(key, 0.0) + advantages[there.bool()].double()
        sums.append({key: value for key, value in found.items() if value.any()})
    assert moved and sums[0].keys() == sums[1].keys()
    for key, value in sums[0].items():
        torch.testing.assert_close(sums[1][key], value, rtol=0, atol=1e-6)
