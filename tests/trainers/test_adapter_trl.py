"""Specs inside TRL's own trainers, which really train a tiny model for some steps."""

import importlib
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from places import ROOT

pytest.importorskip("trl")

import pandas
from datasets import Dataset, IterableDataset
from logged_again import logged_files, named_alike
from tiny_model import VOCABULARY, tiny_model, tiny_tokenizer
from trl import GRPOTrainer, RLOOConfig, RLOOTrainer, SFTTrainer
from trl.experimental.async_grpo import AsyncGRPOTrainer
from trl.experimental.online_dpo import OnlineDPOTrainer
from trl_runs import CARRIED, LINEAR, MOVED_TURNS, TOKENS, VSPO, called, data_set, digit, letters, settings, trainer
from turns_by_hand import assert_on_tokens, turns_by_hand

import rewardspec
from rewardspec.adapters.trl import (
    BindingError,
    RewardSpecGRPOTrainer,
    RewardSpecMixin,
    RewardSpecRLOOTrainer,
    install,
    rollout_log,
)
from rewardspec.logs.rollout_log import RolloutLog

pytestmark = pytest.mark.filterwarnings("ignore")  # what trainers say is not about us

KINDS = pytest.mark.parametrize("kind", ["grpo", "rloo"])
ENDS = VOCABULARY["<eos>"], VOCABULARY["<pad>"]
GRPO = "rewardspec: 1\nname: two\ncomponents:\n  digit: {values: [0, 1]}\n  letters: {range: [0, 1]}\nadvantage: grpo\n"


def by_hand(generation, total_steps, eos=VOCABULARY["<eos>"]):
    """The advantages of `LINEAR`, of this process's rollouts."""
    found = []
    for row, completion, ids in zip(*(generation[k] for k in ("rows", "completions", "ids")), strict=True):
        cut = ids[-1] not in (eos, VOCABULARY["<pad>"])
        progress = generation["step"] / total_steps
        value = digit([completion])[0] + 10 * (1 + progress) * letters([completion])[0]
        value += 100 * (len(ids) + 0.5 * cut) + 1000 * (row["bonus"] if row["level"] == "hard" else 0)
        found.append(value)
    return found


def assert_by_hand(generations, total_steps):
    assert generations
    for generation in generations:
        advantages = generation["out"]["advantages"]
        assert advantages.dtype == torch.float32
        assert advantages.tolist() == pytest.approx(by_hand(generation, total_steps), rel=1e-6)


def names_of(steps):
    """The files of a rollout log; the second batch of a step has a number."""
    again = [steps[:i].count(step) for i, step in enumerate(steps)]
    return {f"step_{step:08d}{f'_{n}' if n else ''}.parquet" for step, n in zip(steps, again, strict=True)}


def of(generations, mode):
    return [g for g in generations if g["mode"] == mode]


# In one process


@KINDS
@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, [0, 1, 2, 3]),
        ({"gradient_accumulation_steps": 2}, [0, 1, 2, 3]),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 1}, [0, 0, 1, 1, 2, 2, 3, 3]),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 4}, [0, 2]),
        ({"num_iterations": 2}, [0, 2]),
        ({"num_iterations": 2, "steps_per_generation": 2}, [0]),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_training_uses_the_specs_advantages_at_the_trainers_step(tmp_path, kind, changes, steps):
    run = trainer(
        tmp_path, LINEAR, kind, changes=changes, rollout_log=RolloutLog(tmp_path / "log", columns=["bonus", "level"])
    )
    run.train()
    assert [g["step"] for g in run.generations] == steps
    log = logged_files(tmp_path / "log")
    assert [about["step"] for _, about in log.values()] == steps and {*log} == names_of(steps)
    for g, (columns, about) in zip(run.generations, log.values(), strict=True):
        assert columns["rewardspec/advantage"] == g["out"]["advantages"].tolist()
        assert columns["completion"] == g["completions"] and columns["prompt"] == [row["prompt"] for row in g["rows"]]
        assert columns["level"] == [row["level"] for row in g["rows"]] and about["total_steps"] == 4
        assert columns["bonus"] == [row["bonus"] for row in g["rows"]] and about["kept"] == ["bonus", "level"]
    if not changes:  # else the trainer logs the mean of several batches
        logs = {name: value for name, value in run.state.log_history[-2].items() if name.startswith("rewardspec/")}
        assert {"all_right", "all_wrong", "tied", "right", "live_size"} <= named_alike(logs, tmp_path / "log")
    assert_by_hand(run.generations, total_steps=4)
    assert {row["level"] for g in run.generations for row in g["rows"]} <= {"easy", "hard"}


def test_reward_functions_are_matched_by_name(tmp_path):
    for funcs in ([letters, digit], [digit, letters]):
        run = trainer(tmp_path, LINEAR, reward_funcs=funcs)
        run.train()
        assert_by_hand(run.generations, total_steps=4)


@KINDS
@pytest.mark.parametrize("size", [1, 2])
def test_evaluation_has_its_own_group_size(tmp_path, kind, size):
    changes = {"num_generations_eval": size, "eval_strategy": "steps", "eval_steps": 2}
    data = data_set(6)
    text = GRPO.replace("advantage: grpo", "advantage: letters - mean(letters)")
    run = trainer(tmp_path, text, kind, changes=changes, evaluated=data)
    run.train()
    assert [g["step"] for g in of(run.generations, "train")] == [0, 1, 2, 3]
    evaluations = of(run.generations, "eval")
    assert {g["step"] for g in evaluations} == {2, 4}
    for g in run.generations:
        scores = torch.tensor(letters(g["completions"])).view(-1, 4 if g["mode"] == "train" else size)
        expected = (scores - scores.mean(1, keepdim=True)).view(-1)
        torch.testing.assert_close(g["out"]["advantages"], expected)
    assert any("eval_rewardspec/advantage_spread" in logs for logs in run.state.log_history)


def test_evaluation_sees_the_step_of_training(tmp_path):
    changes = {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True}
    run = trainer(tmp_path, LINEAR, changes=changes, evaluated=data_set(4))
    run.train()
    assert {g["step"] for g in of(run.generations, "eval")} == {0, 2, 4}
    assert_by_hand(run.generations, total_steps=4)
    run.evaluate()
    assert_by_hand(run.generations, total_steps=4)


def test_schedule_goes_on_after_resuming(tmp_path):
    changes = {"save_strategy": "steps", "save_steps": 2}
    log = tmp_path / "log"
    trainer(tmp_path, LINEAR, changes=changes, rollout_log=log).train()
    before = [about["run"] for _, about in logged_files(log).values()]
    again = trainer(tmp_path, LINEAR, changes=changes, rollout_log=log)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    runs = [(about["run"], about["first_step"]) for _, about in logged_files(log).values()]
    assert runs[:2] == [(run, 0) for run in before[:2]] and {step for _, step in runs[2:]} == {2}
    assert len({*runs}) == 2 and len(runs) == 4
    assert [g["step"] for g in again.generations] == [2, 3]
    assert_by_hand(again.generations, total_steps=4)
    weights = [logs["rewardspec/weight/letters"] for logs in again.state.log_history if "loss" in logs]
    assert weights == pytest.approx([10, 12.5, 15, 17.5])


# State


def assert_carried(batches, size):
    """The advantages and states of `CARRIED` by hand. batches: for each the generations of its processes."""
    price, level_of = 0.5, {}
    for parts in batches:
        rows, completions, ids = ([x for part in parts for x in part[k]] for k in ("rows", "completions", "ids"))
        scores, tokens = letters(completions), [len(own) for own in ids]
        levels = [level_of.get(row["bonus"], 0.5) for row in rows]
        totals = [a + b - price * n / 8 for a, b, n in zip(digit(completions), scores, tokens, strict=True)]
        expected = [total - level for total, level in zip(totals, levels, strict=True)]
        found = [a for part in parts for a in part["out"]["advantages"].tolist()]
        assert found == pytest.approx(expected, abs=1e-6)
        if parts[0]["mode"] == "train":
            price += 0.25 * (sum(tokens) / len(tokens) / 8 - 0.75)
            for i in range(0, len(rows), size):  # no two groups of a batch are of one prompt
                level_of.pop(rows[i]["bonus"], None)
                level_of[rows[i]["bonus"]] = 0.5 * levels[i] + 0.5 * sum(scores[i : i + size]) / size
        for part in parts:
            assert part["state"]["price"] == pytest.approx(price)
            assert [key for key, _ in part["state"]["level_of"]] == [*level_of]
            assert [value for _, value in part["state"]["level_of"]] == pytest.approx([*level_of.values()])
            assert part["state"] == parts[0]["state"], "bit for bit on every process"


@KINDS
def test_state_goes_from_batch_to_batch_and_evaluation_changes_none(tmp_path, kind):
    changes = {"eval_strategy": "steps", "eval_steps": 2}
    log = RolloutLog(tmp_path / "log", keep=3, text="hash", columns=["level"])
    run = trainer(tmp_path, CARRIED, kind, changes=changes, evaluated=data_set(4), rollout_log=log)
    run.train()
    trained, kept = of(run.generations, "train"), logged_files(tmp_path / "log")
    assert [about["step"] for _, about in kept.values()] == [1, 2, 3], "and none of evaluation"
    for before, g, (columns, about) in zip(trained, trained[1:], kept.values(), strict=False):
        assert columns["rewardspec/advantage"] == g["out"]["advantages"].tolist()
        assert about["state"]["price"] == before["state"]["price"]
        assert about["state_after"] == {**g["state"], "level_of": [g["state"]["level_of"][-1]]}
        assert columns["level"] == [row["level"] for row in g["rows"]], "which the spec does not read"
        assert columns["tokens"] == [len(ids) for ids in g["ids"]] and len({*columns["prompt_hash"]}) == 1
        assert columns["truncated"] == [int(ids[-1] not in ENDS) for ids in g["ids"]] and "prompt" not in columns
    by = rewardspec.replay(tmp_path / "log", by="level").specs[0].by
    assert {row.value: row.groups for row in by} == Counter(
        row["level"] for g in trained[1:] for row in g["rows"][:: run.num_generations]
    )
    assert len(of(run.generations, "eval")) >= 2
    assert_carried([[g] for g in run.generations], 4)
    assert len(run.spec_state["level_of"]) == 4 and run.spec_state["price"] != 0.5
    prices = [logs["rewardspec/state/price"] for logs in run.state.log_history if "loss" in logs]
    assert prices == [g["state"]["price"] for g in of(run.generations, "train")]


def test_columns_that_the_rollout_log_is_to_keep_and_that_are_not_there_are_named(tmp_path):
    log = RolloutLog(tmp_path / "log", columns=["levl", "bonus", "extra.source"])
    said = "to keep `levl`, `extra.source`, which nothing has: the data set has `bonus`, `level`; did you mean `level`"
    with pytest.raises(BindingError, match=said):
        trainer(tmp_path, TOKENS, reward_funcs=[digit], rollout_log=log)
    streamed = IterableDataset.from_generator(lambda: iter(data_set()))  # its columns are known when it is read
    run = trainer(tmp_path, TOKENS, reward_funcs=[digit], rollout_log=log, data=streamed)
    with pytest.raises(BindingError, match=r"`levl`, `extra.source`, which nothing has: the first rows have"):
        run.train()


def test_a_run_that_resumes_under_another_spec_says_so(tmp_path, caplog):
    changes = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    trainer(tmp_path, TOKENS, reward_funcs=[digit], changes=changes).train()
    for text, said in ((TOKENS, 0), (TOKENS.replace("dr_grpo", "grpo"), 1)):
        again = trainer(tmp_path / "again", text, reward_funcs=[digit], changes=changes)
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
        assert caplog.text.count("checkpoint-1 was trained under 'tokens', fingerprint") == said, caplog.text


def test_state_is_saved_and_a_resumed_run_equals_one_that_was_not_cut(tmp_path):
    changes = {"save_strategy": "steps", "save_steps": 2}
    run = trainer(tmp_path, CARRIED, changes=changes)
    run.train()
    again = trainer(tmp_path, CARRIED, changes=changes)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert len(again.generations) == 2
    for whole, resumed in zip(run.generations[2:], again.generations, strict=True):
        assert torch.equal(whole["out"]["advantages"], resumed["out"]["advantages"])
        assert whole["state"] == resumed["state"]
    file = tmp_path / "checkpoint-2" / "rewardspec.json"
    saved = json.loads(file.read_text())
    assert saved["state"] == run.generations[1]["state"] and saved["fingerprint"] == run.spec.fingerprint
    for record, said in (
        ({**saved, "state": {"price": 3, "level_of": []}}, "does not fit carried: state `price` is 3"),
        ({"fingerprint": run.spec.fingerprint}, "checkpoint-2 has no state, and carried carries `price`, `level_of`"),
        (None, "has no state"),
    ):
        file.unlink() if record is None else file.write_text(json.dumps(record))
        with pytest.raises(BindingError, match=said):
            again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_installed_spec_carries_state(tmp_path, monkeypatch):
    for kind in (GRPOTrainer, RLOOTrainer):
        monkeypatch.setattr(kind, "__init__", kind.__init__)
    monkeypatch.setattr("rewardspec.adapters.trl.installation._installed", {})
    install(CARRIED)
    changes = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    run = GRPOTrainer(
        model=tiny_model(),
        reward_funcs=[letters, digit],
        args=settings(tmp_path, **changes),
        train_dataset=data_set(),
        processing_class=tiny_tokenizer(),
    )
    run.train()
    assert json.loads((tmp_path / "checkpoint-1" / "rewardspec.json").read_text())["state"] == run.spec_state
    assert len(run.spec_state["level_of"]) == 1


def test_schedule_runs_over_epochs_where_max_steps_is_not_set(tmp_path):
    run = trainer(tmp_path, LINEAR, changes={"max_steps": -1, "num_train_epochs": 1.0}, data=data_set(3))
    run.train()
    assert [g["step"] for g in run.generations] == [0, 1, 2]
    assert_by_hand(run.generations, total_steps=3)


def test_schedule_without_an_end_is_an_error_that_says_so(tmp_path):
    run = trainer(tmp_path, LINEAR, changes={"max_steps": -1}, evaluated=data_set(4))
    with pytest.raises(ValueError, match="total_steps"):
        run.evaluate()  # before training, and nothing says how long it will be


def test_logs_and_table_are_the_specs(tmp_path):
    text = GRPO.replace("grpo", "decoupled").replace(
        "letters: {range: [0, 1]}", "letters: {range: [0, 1], weight: 0.5}"
    )
    text = text.replace("weight: 0.5", "weight: 0.5, when: digit >= 1")
    changes = {"log_completions": True, "max_steps": 2, "gradient_accumulation_steps": 2}
    run = trainer(tmp_path, text, changes=changes)
    run.train()
    for number, g in enumerate(run.generations, 1):
        table = pandas.read_parquet(tmp_path / "completions" / f"completions_{number:05d}.parquet")
        ours, stock = g["out"]["advantages"], g["stock"]["advantages"]
        assert not torch.allclose(ours, stock)
        assert table["advantage"].tolist() == pytest.approx(ours.tolist())
        assert table["letters"].tolist() == letters(g["completions"])
        shaped = [a * b for a, b in zip(letters(g["completions"]), digit(g["completions"]), strict=True)]
        assert table["rewardspec/letters"].tolist() == pytest.approx(shaped)
        shares = table["rewardspec/share/letters"] + table["rewardspec/share/digit"]
        assert shares.tolist() == pytest.approx(ours.tolist(), abs=1e-6)

        logs = run.state.log_history[number - 1]
        assert logs["rewardspec/raw/letters"] == pytest.approx(sum(letters(g["completions"])) / 8)
        assert logs["rewardspec/reward/letters"] == pytest.approx(sum(shaped) / 8)
        assert logs["rewardspec/weight/letters"] == 0.5
        assert logs["rewardspec/share/letters"] == pytest.approx(table["rewardspec/share/letters"].abs().mean())
        assert logs["rewardspec/rollouts_without_signal"] == pytest.approx((ours == 0).float().mean().item())
        assert "rewardspec/groups_without_signal" in logs
        assert not any("zero_std" in name for name in logs)


def test_table_keeps_to_one_generation_where_evaluation_is_larger(tmp_path):
    changes = {"log_completions": True, "max_steps": 2, "eval_strategy": "steps", "eval_steps": 1}
    run = trainer(tmp_path, GRPO, changes={**changes, "per_device_eval_batch_size": 8}, evaluated=data_set(4))
    run.train()
    last = run.generations[-1]
    assert last["logged"] == pytest.approx(last["out"]["advantages"].tolist()[-4:])


def test_missing_rewards_and_columns(tmp_path):
    def judged(completions, bonus, **_):
        return [None if b is None or b % 2 else 0.5 for b in bonus]

    text = """
rewardspec: 1
signals: {bonus: {range: [0, 100], missing: zero}}
components:
  judged: {range: [0, 1], missing: ignore}
  extra: bonus
advantage: sum(rewards, over=components)
"""
    bonus = [None if i % 4 == 0 else i for i in range(16)]
    data = Dataset.from_dict({"prompt": data_set()["prompt"], "bonus": bonus})
    run = trainer(tmp_path, text, reward_funcs=[judged], data=data, changes={"max_steps": 12})
    run.train()
    seen = [row["bonus"] for g in run.generations for row in g["rows"]]
    assert None in seen and {b % 2 for b in seen if b is not None} == {0, 1}
    for g in run.generations:
        expected = [(b or 0) + (judged([], [b])[0] or 0) for b in (row["bonus"] for row in g["rows"])]
        assert g["out"]["advantages"].tolist() == expected


# The trainer's own schemes


@pytest.mark.parametrize(
    ("kind", "aggregation", "scheme"),
    [("grpo", "sum_then_normalize", "grpo"), ("grpo", "normalize_then_sum", "gdpo"), ("rloo", None, "rloo")],
)
def test_dialect_trl_gives_the_trainers_own_advantages(tmp_path, kind, aggregation, scheme):
    changes = {"gradient_accumulation_steps": 3, "max_steps": 3}
    run = trainer(
        tmp_path, GRPO.replace("advantage: grpo", f"advantage: {scheme}"), kind, changes=changes, dialect="trl"
    )
    if aggregation is not None:
        run.multi_objective_aggregation = aggregation  # for the trainer's own, which runs first
    run.train()
    for g in run.generations:
        stock, ours = g["stock"]["advantages"], g["out"]["advantages"]
        assert stock.abs().max() > 0.1
        torch.testing.assert_close(ours, stock, rtol=1e-5, atol=1e-6)
    assert run.spec.dialect == "trl"


def test_the_specs_own_numerics_are_the_default(tmp_path):
    run = trainer(tmp_path, GRPO, changes={"max_steps": 1})
    run.train()
    g = run.generations[0]
    assert not torch.equal(g["out"]["advantages"], g["stock"]["advantages"])  # eps 1e-6 against 1e-4
    torch.testing.assert_close(g["out"]["advantages"], g["stock"]["advantages"], rtol=1e-2, atol=1e-3)


# The reward that is logged


def test_reward_is_the_specs_total_and_its_deviation_in_the_group(tmp_path):
    changes = {"per_device_train_batch_size": 8, "eval_strategy": "steps", "eval_steps": 2, "log_completions": True}
    text = LINEAR.replace("advantage: total", "advantage: grpo")
    run = trainer(tmp_path, text, changes=changes, evaluated=data_set(4))
    run.train()
    logs = {mode: [x for x in run.state.log_history if key in x] for mode, key in LOGGED.items()}
    for mode, prefix in (("train", ""), ("eval", "eval_")):
        for g, logged in zip(of(run.generations, mode)[: len(logs[mode])], logs[mode], strict=False):
            totals = torch.tensor(by_hand(g, total_steps=4))
            if mode == "train":
                assert g["extra"]["rewardspec/total"][-8:] == pytest.approx(totals.tolist(), rel=1e-6)
                assert logged["reward"] == pytest.approx(totals.mean().item(), rel=1e-6)
                assert logged["reward_std"] == pytest.approx(totals.view(-1, 4).std(1).mean().item(), rel=1e-5)
                assert logged["rewards/digit/mean"] == pytest.approx(sum(digit(g["completions"])) / 8)
            assert abs(logged[f"{prefix}reward"] - g["stock reward"]) > 1  # TRL's: the plain sum of the functions
    table = pandas.read_parquet(tmp_path / "completions" / "completions_00004.parquet")
    assert table["rewardspec/total"].notna().all()


LOGGED = {"train": "loss", "eval": "eval_reward"}


def test_best_model_is_the_best_by_the_specs_total(tmp_path):
    changes = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "best", "max_steps": 3}
    changes |= {"metric_for_best_model": "eval_reward", "greater_is_better": True, "save_only_model": True}
    text = "rewardspec: 1\nsignals: {digit: {values: [0, 1]}}\ncomponents:\n  letters: {range: [0, 1], weight: -5}\n"
    text += "  long: {expr: digit, weight: 0.01}\nadvantage: rloo\n"
    run = trainer(tmp_path, text, changes=changes, evaluated=data_set(4))
    run.train()
    rewards = [
        sum(-5 * a + 0.01 * b for a, b in zip(letters(g["completions"]), digit(g["completions"]), strict=True)) / 4
        for g in of(run.generations, "eval")
    ]
    per_step = [sum(rewards[i : i + 4]) / 4 for i in range(0, len(rewards), 4)]
    assert run.state.best_metric == pytest.approx(max(per_step), abs=1e-6) and max(per_step) <= 0.01


def test_reward_of_the_trl_dialect_is_trls_own(tmp_path):
    def judged(completions, **_):
        return [None if len(c) % 2 else float(len(c)) for c in completions]

    text = "rewardspec: 1\ncomponents:\n  judged: {range: [0, 100], missing: ignore}\n"
    text += "  digit: {values: [0, 1], missing: ignore}"
    run = trainer(
        tmp_path, text + "\nadvantage: grpo\n", reward_funcs=[judged, digit], changes={"max_steps": 2}, dialect="trl"
    )
    run.train()
    logs = [x for x in run.state.log_history if "loss" in x]
    assert [x["reward"] for x in logs] == pytest.approx([g["stock reward"] for g in run.generations])
    assert [x["reward_std"] for x in logs] == pytest.approx([g["stock reward_std"] for g in run.generations])  # 1 group


def test_reward_is_what_the_spec_defines_as_its_total(tmp_path):
    text = GRPO.replace("advantage: grpo", "define: {total: 2 * digit * letters}\nadvantage: zscore(total)")
    run = trainer(tmp_path, text, changes={"max_steps": 1})
    run.train()
    (g,) = run.generations
    products = [2 * a * b for a, b in zip(digit(g["completions"]), letters(g["completions"]), strict=True)]
    assert run.state.log_history[0]["reward"] == pytest.approx(sum(products) / 4)


class Counting:
    """An environment that owns its reward, and has no tools."""

    def reset(self, **_):
        return None

    def get_reward(self) -> float:
        return 0.5


@pytest.mark.parametrize("own", [True, False])
def test_nothing_stands_for_reward_functions_where_none_is_needed(tmp_path, own, monkeypatch):
    text = "rewardspec: 1\ncomponents: {NAME}\nadvantage: dr_grpo\n"
    text = text.replace("NAME", "Counting: {range: [0, 1]}" if own else "long: {expr: bonus}")
    text = text if own else text.replace("components", "signals: {bonus: {range: [0, 100]}}\ncomponents")
    more = {"environment_factory": Counting} if own else {}
    for name in ("is_jmespath_available", "supports_tool_calling"):  # asked for, though there are no tools
        monkeypatch.setattr(f"trl.trainer.grpo_trainer.{name}", lambda *_: True)
    changes = {"log_completions": True, "max_steps": 1}
    data = data_set(conversational=True)
    run = trainer(tmp_path, text, reward_funcs=[], data=data, changes=changes, **more)
    run.train()
    assert not any("no_reward" in name for name in run.state.log_history[0])
    table = pandas.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert "no_reward" not in table and len(table) == 4
    if own:
        assert run.reward_func_names == ["Counting"] and run.state.log_history[0]["reward"] == 0.5


# RLOO's penalty


def penalised(folder, kind, monkeypatch, text=None, **options):
    """Advantages of four steps, the parameters after them, and the run."""
    monkeypatch.setattr("trl.trainer.rloo_trainer.create_model_from_path", lambda *_, **__: tiny_model())
    changes = {"beta": 0.5, "learning_rate": 0.05, "per_device_train_batch_size": 8, "log_completions": True}
    found = []

    class Seen:
        def _generate_and_score_completions(self, inputs):
            out = super()._generate_and_score_completions(inputs)
            found.append(out["advantages"].clone())
            assert list(self._logs["advantages"]) == out["advantages"].tolist()
            return out

    spec = {} if text is None else {"spec": text, **options}
    made = type("Made", (Seen, kind), {})(
        model=tiny_model(),
        reward_funcs=[letters, digit],
        args=settings(folder, "rloo", **changes),
        train_dataset=data_set(),
        processing_class=tiny_tokenizer(),
        **spec,
    )
    made.train()
    return found, torch.cat([p.detach().flatten() for p in made.model.parameters()]), made


def test_penalty_is_trls_own(tmp_path, monkeypatch):
    text = GRPO.replace("grpo", "rloo")
    expected, trained, theirs = penalised(tmp_path / "a", RLOOTrainer, monkeypatch)
    found, ours, run = penalised(
        tmp_path / "b", RewardSpecRLOOTrainer, monkeypatch, text, dialect="trl", rollout_log=tmp_path / "log"
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours, trained, rtol=1e-3, atol=1e-5)
    kl = [
        [logs[name] for logs in trained.state.log_history if "kl" in logs]
        for trained in (theirs, run)
        for name in ("kl", "reward")
    ]
    assert kl[0] == pytest.approx(kl[2], rel=1e-3) and kl[1] == pytest.approx(kl[3]) and max(map(abs, kl[0])) > 1e-3
    extra = run._logs["extra"]
    shares = [sum(row) for row in zip(*(v for k, v in extra.items() if k.startswith("rewardspec/share/")), strict=True)]
    assert shares == pytest.approx(list(run._logs["advantages"]), abs=1e-5)
    assert max(map(abs, extra["rewardspec/share/KL penalty"])) > 1e-3
    for advantages, (columns, _) in zip(found, logged_files(tmp_path / "log").values(), strict=True):
        both = zip(columns["rewardspec/advantage"], columns["rewardspec/kl_penalty"], strict=True)
        assert [own + kl for own, kl in both] == pytest.approx(advantages.tolist(), abs=1e-6)


def test_groups_that_are_left_out_have_no_penalty(tmp_path, monkeypatch):
    text = GRPO.replace("grpo", "rloo") + "keep: max(digit) > 5\n"
    found, _, run = penalised(tmp_path, RewardSpecRLOOTrainer, monkeypatch, text)
    assert all(not advantages.any() for advantages in found)
    assert any(abs(logs.get("kl", 0)) >= 0 for logs in run.state.log_history)


def test_default_settings_of_rloo_are_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("trl.trainer.rloo_trainer.create_model_from_path", lambda *_, **__: tiny_model())
    args = RLOOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to=[])
    assert args.beta == 0.05
    RewardSpecRLOOTrainer(
        tiny_model(), [letters, digit], args, data_set(), processing_class=tiny_tokenizer(), spec=GRPO
    )


# Reward tokens


def drawn(generation, seed=42):
    condition = rewardspec.loads(TOKENS).condition
    groups = [i // 4 for i in range(len(generation["rows"]))]
    return [condition.tokens[name] for name in condition.draw(groups, seed, generation["step"])]


@KINDS
@pytest.mark.parametrize("conversational", [False, True])
def test_reward_tokens_reach_the_prompts(tmp_path, kind, conversational):
    data = data_set(conversational=conversational)
    changes = {"per_device_train_batch_size": 8, "eval_strategy": "steps", "eval_steps": 3, "log_completions": True}
    run = trainer(tmp_path, TOKENS, kind, reward_funcs=[digit], data=data, evaluated=data_set(4), changes=changes)
    run.train()
    tokenizer = tiny_tokenizer()
    for g in of(run.generations, "train"):
        expected = drawn(g)
        assert [f"<|{name}_reward|>" for name in g["extra"]["rewardspec/token"]] == expected
        assert set(expected) == {"<|high_reward|>", "<|low_reward|>"}
        for row, given, ids, token in zip(g["rows"], g["given"], g["out"]["prompt_ids"], expected, strict=True):
            asked = tokenizer.decode(ids[ids != VOCABULARY["<pad>"]])
            content = given["prompt"][0]["content"] if conversational else given["prompt"]
            assert f"{content}\n[Goal: {token}]" in asked and asked.count("_reward|>") == 1
            assert token in str(row["prompt"])
    for g in of(run.generations, "eval"):
        assert all("<|high_reward|>" in row["prompt"] for row in g["rows"])
        assert g["extra"]["rewardspec/token"][-4:] == ["high"] * 4


def test_generations_of_one_step_draw_their_own_tokens(tmp_path):
    changes = {"gradient_accumulation_steps": 4, "steps_per_generation": 1, "max_steps": 2}
    runs = [trainer(tmp_path, TOKENS, reward_funcs=[digit], changes=changes) for _ in range(2)]
    asked = []
    for run in runs:
        run.train()
        asked.append([["high" in row["prompt"] for row in g["rows"]] for g in run.generations])
    assert asked[0] == asked[1]
    assert len({tuple(rows) for rows in asked[0]}) > 3  # of 8 generations of 4 rollouts
    assert asked[0][0] == ["high" in token for token in drawn(runs[0].generations[0])]


# Groups that are drawn again


def expected_copies(generation, group_size=2):
    """How often each group stands, from the compiled function alone, and its advantages by hand."""
    fn = rewardspec.compile(rewardspec.loads(VSPO))
    columns = {"letters": generation["rewards"][:, 0], "digit": generation["rewards"][:, 1]}
    return fn(columns, group_size, step=generation["step"], seed=42)


MANY = {"per_device_train_batch_size": 16, "num_generations": 2, "max_steps": 3, "learning_rate": 0.0}


@KINDS
def test_refilled_groups_weigh_more_and_nothing_moves(tmp_path, kind):
    run = trainer(tmp_path, VSPO, kind, changes={**MANY, "log_completions": True})
    run.train()
    most = 0
    for g in run.generations:
        copies = expected_copies(g).copies.repeat_interleave(2)
        scores = g["rewards"][:, 0].view(-1, 2)
        plain = (scores - scores.mean(1, keepdim=True)).view(-1)
        expected = torch.where(copies > 0, plain * (2 - 1 / copies.clamp(min=1)), 0.0)
        torch.testing.assert_close(g["out"]["advantages"], expected)
        assert torch.equal(g["out"]["completion_ids"], g["stock"]["completion_ids"])
        assert g["extra"]["rewardspec/copies"] == copies.tolist()
        most = max(most, int(copies.max()))
    assert most > 1
    assert max(logs.get("rewardspec/most_copies", 0) for logs in run.state.log_history) == most


def assert_moved(generations, n, keys):
    """The rows of all processes stand where `refill` puts them. generations: one for each process."""
    stock = [g["stock"] for g in generations]
    result = expected_copies(generations[0])
    rows, advantages = result.refilled
    moved = False
    for index, g in enumerate(generations):
        place = slice(index * n, (index + 1) * n)
        torch.testing.assert_close(g["out"]["advantages"], advantages[place])
        for name in keys:
            for i, row in enumerate(rows[place].tolist()):
                found, source = g["out"][name][i], stock[row // n][name][row % n]
                if source.dim() and name.startswith("prompt"):
                    found, padding = found[len(found) - len(source) :], found[: len(found) - len(source)]
                elif source.dim():
                    found, padding = found[: len(source)], found[len(source) :]
                else:
                    padding = torch.zeros(0)
                assert torch.equal(found, source) and not padding.any()
                moved = moved or row != index * n + i
        if "num_items_in_batch" in g["stock"]:
            total = sum(s["completion_mask"][row % n].sum() for s, row in ((stock[r // n], r) for r in rows.tolist()))
            assert g["out"]["num_items_in_batch"] == total
    return moved


MASKS = ["prompt_ids", "prompt_mask", "completion_ids", "completion_mask"]


@pytest.mark.parametrize(
    ("kind", "changes", "more"),
    [("grpo", {}, []), ("grpo", {"num_iterations": 2}, ["old_per_token_logps"]), ("rloo", {}, ["old_logps"])],
)
def test_rows_move_to_the_places_of_groups_left_out(tmp_path, kind, changes, more):
    run = trainer(tmp_path, VSPO, kind, changes={**MANY, **changes}, move_rows=True)
    run.train()
    assert any([assert_moved([g], 16, [*MASKS, *more]) for g in run.generations])


def test_moved_rows_train_like_weights(tmp_path):
    # dr_grpo divides by a constant, so a group that stands twice with half its advantage is a group with all of it.
    changes = {**MANY, "max_steps": 1, "learning_rate": 1e-2, "loss_type": "dr_grpo", "optim": "sgd"}
    weights, gone = [], False
    for move_rows in (False, True):
        run = trainer(tmp_path, VSPO, changes=changes, move_rows=move_rows)
        run.train()
        gone = gone or not bool(expected_copies(run.generations[0]).kept.all())
        weights.append(torch.cat([p.detach().flatten() for p in run.model.parameters()]))
    start = torch.cat([p.detach().flatten() for p in tiny_model().parameters()])
    assert gone and (weights[0] - start).abs().max() > 1e-5
    torch.testing.assert_close(weights[0] - start, weights[1] - start, rtol=1e-3, atol=1e-7)


def test_evaluation_moves_no_rows(tmp_path):
    run = trainer(tmp_path, VSPO, changes={**MANY, "max_steps": 1}, evaluated=data_set(8), move_rows=True)
    run.train()
    run.evaluate()
    for g in of(run.generations, "eval"):
        assert torch.equal(g["out"]["completion_ids"], g["stock"]["completion_ids"])


# Two processes


@pytest.fixture(scope="module")
def distributed(tmp_path_factory):
    """Every run of `trl_runs.DISTRIBUTED`, by name: what each of two processes saw."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(ROOT / "tests" / "trl_runs.py"), str(folder)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    names = sorted({path.stem[:-2] for path in folder.glob("*.pt")})
    found = {n: [torch.load(folder / f"{n} {rank}.pt", weights_only=False) for rank in (0, 1)] for n in names}
    return {**found, "folder": folder}


def environment(**more):
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **more}


@pytest.mark.parametrize("name", ["linear grpo", "linear rloo"])
def test_two_processes_with_a_group_on_both(distributed, name):
    first, second = (run["generations"] for run in distributed[name])
    assert len(first) == len(second) == 3
    assert_by_hand(first + second, total_steps=3)
    for a, b in zip(first, second, strict=True):
        assert a["given"][2] == b["given"][0], "a row of the middle group on either process"
        both = a["out"]["advantages"].tolist() + b["out"]["advantages"].tolist()
        assert a["logged"][-6:] == pytest.approx(both) and b["logged"] == a["logged"]


def test_two_processes_have_one_state(distributed):
    batches = list(zip(*(run["generations"] for run in distributed["state"]), strict=True))
    assert len(batches) == 3
    assert_carried(batches, 2)


@pytest.mark.parametrize("name", ["state", "turns", "tokens", "weights"])
def test_the_main_process_logs_the_rollouts_of_both(distributed, name):
    pairs = list(zip(*(run["generations"] for run in distributed[name]), strict=True))
    log = logged_files(distributed["folder"] / f"{name} log")
    assert len(log) == len(pairs)
    for (a, b), (columns, about) in zip(pairs, log.values(), strict=True):
        assert columns["completion"] == a["completions"] + b["completions"] and about["groups"] == len(a["ids"])
        lengths = [mask.sum().item() for g in (a, b) for mask in written(g["out"])]
        assert columns["tokens"] == lengths
        assert columns["bonus"] == [row["bonus"] for g in (a, b) for row in g["rows"]]
        if name == "turns":
            tokens = [row for row in columns["rewardspec/advantage"] for _ in row]
            assert len(tokens) == sum(columns["rewardspec/length/turn"])
            assert_on_tokens(a["out"], columns["rewardspec/advantage"][:3])
            assert_on_tokens(b["out"], columns["rewardspec/advantage"][3:])
        else:
            found = a["out"]["advantages"].tolist() + b["out"]["advantages"].tolist()
            assert columns["rewardspec/advantage"] == pytest.approx(found, abs=1e-6)
        if name == "tokens":
            texts = rewardspec.loads(TOKENS).condition.tokens
            named = zip(columns["prompt"], columns["rewardspec/token"], strict=True)
            assert all(texts[token] in prompt for prompt, token in named)


def written(out):
    return out["completion_mask"] * out.get("tool_mask", 1)


def test_two_processes_have_the_turns_of_both(distributed):
    first, second = (run["generations"] for run in distributed["turns"])
    assert len(first) == 3
    for a, b in zip(first, second, strict=True):
        rows = a["rows"] + b["rows"]
        items = turns_by_hand(rows, a["completions"] + b["completions"], 2)
        assert_on_tokens(a["out"], items[:3])
        assert_on_tokens(b["out"], items[3:])
        means = [sum(row) / len(row) for row in items]
        assert a["logged"][-6:] == pytest.approx(means, abs=1e-6) and b["logged"] == a["logged"]


def test_two_processes_move_rows_with_turns_between_them(distributed):
    fn, moved = rewardspec.compile(rewardspec.loads(MOVED_TURNS)), False
    for pair in zip(*(run["generations"] for run in distributed["turns moved"]), strict=True):
        completions = [text for g in pair for text in g["completions"]]
        lists = called([row["turns"] for g in pair for row in g["rows"]])
        result = fn({"digit": digit(completions), "called": lists}, 2, step=pair[0]["step"], seed=42)
        by_row = zip(result.nested(), result.copies.repeat_interleave(2).tolist(), strict=True)
        items = [[value / max(copies, 1) for value in row] for row, copies in by_row]
        rows = result.refilled[0].tolist()
        for index, g in enumerate(pair):
            assert_on_tokens(g["out"], [items[row] for row in rows[index * 4 : index * 4 + 4]])
        moved = moved or rows != sorted(rows)
    assert moved


def test_two_processes_draw_reward_tokens_for_the_global_groups(distributed):
    first, second = (run["generations"] for run in distributed["tokens"])
    condition = rewardspec.loads(TOKENS).condition
    for a, b in zip(first, second, strict=True):
        names = condition.draw([0, 0, 1, 1, 2, 2], 42, a["step"])
        for row, name in zip(a["rows"] + b["rows"], names, strict=True):
            assert condition.tokens[name] in row["prompt"]
        scores = torch.tensor(digit(a["completions"] + b["completions"])).view(-1, 2)
        expected = (scores - scores.mean(1, keepdim=True)).view(-1)
        torch.testing.assert_close(torch.cat([a["out"]["advantages"], b["out"]["advantages"]]), expected)


@pytest.mark.parametrize(
    ("name", "more"), [("moved", []), ("moved rloo", ["old_logps"]), ("moved dapo", ["old_per_token_logps"])]
)
def test_two_processes_move_rows_between_them(distributed, name, more):
    pairs = list(zip(*(run["generations"] for run in distributed[name]), strict=True))
    assert any([assert_moved(pair, 4, [*MASKS, *more]) for pair in pairs])


def test_two_processes_have_the_same_loss_with_weights_and_moved_rows(distributed):
    def losses(name):
        return [logs["loss"] for logs in distributed[name][0]["history"] if "loss" in logs]

    assert losses("weights") == pytest.approx(losses("moved"), abs=1e-6)
    assert any(abs(loss) > 1e-3 for loss in losses("weights"))


def test_processes_that_differ_in_their_log_end_the_run(tmp_path, monkeypatch):
    for log, other, said in [
        (RolloutLog(tmp_path), (False, None), "some processes have a `rollout_log` and others have none"),
        (RolloutLog(tmp_path), (True, "the rollout log: no space"), "the rollout log: no space"),
    ]:
        monkeypatch.setattr(rollout_log, "gather_object", lambda own, other=other: [*own, other])
        accelerator = SimpleNamespace(is_main_process=True, num_processes=2)
        with pytest.raises(BindingError, match=said):
            rollout_log.begin_log(SimpleNamespace(accelerator=accelerator, spec=rewardspec.loads(GRPO)), log)


# What is refused before training


def refused(tmp_path, message, spec=GRPO, kind="grpo", **options):
    with pytest.raises(BindingError) as caught:
        trainer(tmp_path, spec, kind, **options)
    assert message in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward_weights": [1.0, 2.0]}, "`reward_weights=[1.0, 2.0]` has no effect on the advantages of two"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "write `advantage: gdpo`"),
        ({"scale_rewards": "none"}, "`scale_rewards='none'` has no effect"),
        ({"scale_rewards": False}, "`scale_rewards="),
    ],
)
def test_settings_of_the_built_in_scheme_are_refused(tmp_path, changes, message):
    refused(tmp_path, message, changes=changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalize_advantages": True}, "write `advantage: whiten(rloo)`"),
        ({"reward_clip_range": (-1.0, 1.0)}, "`reward_clip_range="),
        ({"reward_weights": [1.0, 2.0]}, "`reward_weights="),
    ],
)
def test_settings_of_rloo_are_refused(tmp_path, changes, message, monkeypatch):
    monkeypatch.setattr("trl.trainer.rloo_trainer.create_model_from_path", lambda *_, **__: tiny_model())
    refused(tmp_path, message, kind="rloo", changes=changes)


def test_weights_that_change_nothing_are_not_refused(tmp_path):
    trainer(tmp_path, GRPO, changes={"reward_weights": [1.0, 1.0]})


def test_penalty_of_groups_drawn_again_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("trl.trainer.rloo_trainer.create_model_from_path", lambda *_, **__: tiny_model())
    refused(tmp_path, "`beta=0.05`: RLOO has its KL penalty in the reward", VSPO, "rloo", changes={"beta": 0.05})


def other(completions, **_):
    return [0.0] * len(completions)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([letters], "nothing measures `digit`, which two reads"),
        ([letters, digit, other], "reward function `other`: two does not read this name"),
        ([letters, digit, digit], "2 reward functions are called `digit`"),
        ([other], "nothing measures `letters`"),
    ],
)
def test_reward_functions_that_do_not_match_are_refused(tmp_path, functions, message):
    refused(tmp_path, message, reward_funcs=functions)


def test_near_names_are_pointed_out(tmp_path):
    def letter(completions, **_):
        return other(completions)

    refused(tmp_path, "did you mean `letters`?", reward_funcs=[letter, digit])


def level(completions, **_):
    return other(completions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": data_set().remove_columns("level")}, "nothing measures `level`, which linear reads"),
        ({"evaluated": data_set().remove_columns("bonus")}, "`eval_dataset` has no column `bonus`, which linear reads"),
        (
            {"evaluated": {"a": data_set(), "b": data_set().remove_columns("bonus")}},
            "`eval_dataset['b']` has no column",
        ),
        ({"changes": {"remove_unused_columns": True}}, "set `remove_unused_columns=False`"),
        (
            {"data": data_set().add_column("tokens", [1] * 16)},
            "`tokens` is a column of the data set, and the trainer measures it",
        ),
        (
            {"data": data_set().add_column("digit", [1] * 16)},
            "`digit` is a reward function and a column of the data set",
        ),
        ({"data": data_set().remove_columns("bonus").add_column("bonus", [[1]] * 16)}, "not one number a row"),
        (
            {"data": data_set().remove_columns("level"), "reward_funcs": [letters, digit, level]},
            "reward function `level` returns numbers, but linear declares names",
        ),
    ],
)
def test_columns_that_do_not_match_are_refused(tmp_path, options, message):
    refused(tmp_path, message, LINEAR, **options)


def test_moving_rows_needs_a_refill(tmp_path):
    refused(tmp_path, "`move_rows=True`: two has no `refill`", move_rows=True)


def test_tokens_of_tools_cannot_be_counted_under_a_mask(tmp_path):
    def rollout(prompts, trainer):
        raise AssertionError("nothing is generated")

    with pytest.raises(BindingError, match="pass a reward function called `tokens`"):
        RewardSpecGRPOTrainer(
            tiny_model(),
            [letters, digit],
            settings(tmp_path, mask_truncated_completions=True),
            data_set(),
            processing_class=tiny_tokenizer(),
            rollout_func=rollout,
            spec=LINEAR,
        )


def test_broken_specs_are_refused_before_the_model_is_loaded(tmp_path):
    options = {"args": settings(tmp_path), "train_dataset": data_set()}
    with pytest.raises(rewardspec.SpecError, match="advantge"):
        RewardSpecGRPOTrainer("no such model", [letters, digit], spec=GRPO.replace("advantage", "advantge"), **options)
    with pytest.raises(ValueError, match="dialect 'trll' is not known"):
        RewardSpecGRPOTrainer("no such model", [letters, digit], spec=GRPO, dialect="trll", **options)
    with pytest.raises(OSError, match=r"none\.yaml"):
        RewardSpecRLOOTrainer("no such model", [letters, digit], spec="none.yaml", **options)


def test_constants_and_files(tmp_path):
    (tmp_path / "spec.yaml").write_text(GRPO.replace("grpo", "k * letters") + "define: {k: 2}\n")
    run = trainer(tmp_path / "out", tmp_path / "spec.yaml", constants={"k": 3})
    run.train()
    for g in run.generations:
        assert g["out"]["advantages"].tolist() == pytest.approx([3 * x for x in letters(g["completions"])])


# Trainers of one's own


def test_a_trainer_of_ones_own_keeps_its_changes(tmp_path):
    class Doubled(GRPOTrainer):
        def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
            return 2 * super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    class Mine(RewardSpecMixin, Doubled):
        pass

    run = Mine(
        tiny_model(),
        [letters],
        settings(tmp_path, max_steps=1),
        data_set(),
        processing_class=tiny_tokenizer(),
        spec="rewardspec: 1\ncomponents: {letters: {range: [0, 2]}}\nadvantage: letters\n",
    )
    run.train()
    assert run._logs["advantages"] == pytest.approx([2 * x for x in letters(run._logs["completion"])])


def test_hooks_that_are_not_there_are_errors():
    with pytest.raises(BindingError, match="must come before the trainer"):
        type("Mine", (GRPOTrainer, RewardSpecMixin), {})

    class Old:
        def _generate_and_score_completions(self, inputs):
            pass

    with pytest.raises(BindingError, match="Mine has no `_calculate_rewards`"):
        type("Mine", (RewardSpecMixin, Old), {})

    class Other(RLOOTrainer):
        def _calculate_rewards(self, rollouts):
            pass

    with pytest.raises(BindingError, match="`_calculate_rewards` of Mine takes"):
        type("Mine", (RewardSpecMixin, Other), {})


@pytest.mark.parametrize(
    ("trainer", "reason"),
    [
        (AsyncGRPOTrainer, "its advantages are computed in a rollout worker"),
        (OnlineDPOTrainer, "it learns from pairs of completions, and has no advantages"),
        (SFTTrainer, "it has no `_calculate_rewards` and no `_generate_and_score_completions`"),
    ],
)
def test_trainers_that_a_spec_does_not_go_into_are_refused_at_definition(trainer, reason):
    with pytest.raises(BindingError) as caught:
        type("Mine", (RewardSpecMixin, trainer), {})
    said = str(caught.value)
    assert said.startswith("Mine: `GRPOTrainer` and `RLOOTrainer` and their subclasses can use a spec")
    assert f"but not `{trainer.__name__}`: {reason}" in said
    assert "tested with" not in said  # this is the version that it was tested with


def test_rewards_that_never_pass_the_hook_are_an_error(tmp_path):
    class Silent(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            self._calculate_rewards = lambda *_: torch.zeros(len(inputs), 2)
            return super()._generate_and_score_completions(inputs)

    class Mine(RewardSpecMixin, Silent):
        pass

    run = Mine(
        tiny_model(), [letters, digit], settings(tmp_path), data_set(), processing_class=tiny_tokenizer(), spec=GRPO
    )
    with pytest.raises(BindingError, match="without calling `_calculate_rewards`"):
        run.train()


def test_rollouts_that_cannot_be_computed_on_are_named(tmp_path):
    def digit(completions, **_):
        return [7.0] * len(completions)

    run = trainer(tmp_path, GRPO, reward_funcs=[letters, digit])
    with pytest.raises(ValueError, match="digit"):
        run.train()


# The command line


def test_environment_variables_of_the_hook(monkeypatch):
    monkeypatch.setenv("REWARDSPEC", "")
    for name in ("rewardspec.adapters.trl_hook", "rewardspec.adapters.trl.hook"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(BindingError, match="reads the spec from REWARDSPEC"):
        importlib.import_module("rewardspec.adapters.trl_hook")
    for kind in (GRPOTrainer, RLOOTrainer):
        monkeypatch.setattr(kind, "__init__", kind.__init__)
    installed, allowed = {}, {}
    monkeypatch.setattr("rewardspec.adapters.trl.installation._installed", installed)
    monkeypatch.setattr("rewardspec.adapters.trl.installation._allowed", allowed)
    monkeypatch.setenv("REWARDSPEC", GRPO)
    monkeypatch.setenv("REWARDSPEC_ALLOW_PYTHON", "mine.rewards, other")
    hook = importlib.import_module("rewardspec.adapters.trl.hook")

    assert installed[GRPOTrainer][0].fingerprint == rewardspec.loads(GRPO).fingerprint
    assert list(allowed[RLOOTrainer]) == ["mine.rewards", "other"]
    variables = {"": "logs", "_EVERY": "10", "_KEEP": " 3", "_TEXT": "none"}
    log = {f"REWARDSPEC_ROLLOUT_LOG{name}": value for name, value in variables.items()}
    assert hook.options({"REWARDSPEC": GRPO, **log})["rollout_log"] == RolloutLog("logs", 10, 3, "none")
    for name, value, said in [
        ("SET", "a", "name=value"), ("MOVE_ROWS", "yes", "write 0 or 1"), ("ALLOW_PYTHON", "a b", "ALLOW_PYTHON"),
        ("ROLLOUT_LOG_KEEP", "3", "REWARDSPEC_ROLLOUT_LOG_KEEP without REWARDSPEC_ROLLOUT_LOG: set the folder"),
    ]:  # fmt: skip
        with pytest.raises(BindingError, match=said):
            hook.options({"REWARDSPEC": GRPO, f"REWARDSPEC_{name}": value})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """What the example's `prepare.py` writes."""
    folder = tmp_path_factory.mktemp("prepared")
    runpy.run_path(str(ROOT / "examples" / "trl" / "prepare.py"))["main"](folder)
    return folder


HOOKED = """\
from rewardspec.adapters.trl import install
from rewards import correct
install("spec.yaml", allow_python=["rewards"])
"""


@pytest.mark.parametrize("hook", ["variable", "call"])
def test_trl_grpo_runs_a_spec_that_the_configuration_holds(tmp_path, prepared, hook):
    example = ROOT / "examples" / "trl"
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    config = (example / "run.yaml").read_text()
    if hook == "call":
        # one function is named in the configuration, the other in the spec
        (tmp_path / "hooked.py").write_text(HOOKED)
        embedded = config[config.index("  REWARDSPEC: |") : config.index("model_name_or_path")]
        text = "".join(f"{line[4:]}\n" for line in embedded.splitlines()[1:])
        (tmp_path / "spec.yaml").write_text(text.replace("brief:\n", 'brief:\n    python: "rewards:brief"\n'))
        config = config.replace(embedded, "  UNUSED: 1\n")
        unwanted = "trl_hook", "rewards.brief"
        config = "".join(line for line in config.splitlines(keepends=True) if not any(u in line for u in unwanted))
        config = config.replace("- rewards.", "- hooked.")
    (tmp_path / "run.yaml").write_text(config)
    (tmp_path / "rewards.py").write_text((example / "rewards.py").read_text())
    # the launcher is the same whatever it launches, so one run has it, and the others are what it launches
    grpo = [str(Path(sys.executable).parent / "trl"), "grpo"]
    grpo = grpo if hook == "variable" else [sys.executable, "-m", "trl.scripts.grpo"]
    command = [*grpo, "--config", "run.yaml", "--max_steps", "2"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    for name in ("rewardspec/share/brief", "rewardspec/raw/correct", "rewardspec/weight/brief"):
        assert f"'{name}'" in done.stdout
    assert "zero_std" not in done.stdout


def test_installing_changes_plain_trainers_only(monkeypatch):
    for kind in (GRPOTrainer, RLOOTrainer):
        monkeypatch.setattr(kind, "__init__", kind.__init__)
    monkeypatch.setattr("rewardspec.adapters.trl.installation._installed", {})
    install(GRPO)
    install(GRPO + "# the same\n")
    with pytest.raises(BindingError, match="a process has one spec"):
        install(GRPO.replace("grpo", "rloo"))


def test_importing_the_package_imports_no_trainer():
    code = (
        "import sys, rewardspec.adapters.trl; from rewardspec.adapters.embedding import embedded; "
        "from rewardspec.rewards import for_trl; sys.exit('trl' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0
