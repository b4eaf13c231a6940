"""Runs that were really trained, with a fault planted in the reward: the audit of the log that each wrote names it."""

import numpy as np
import pytest

pytest.importorskip("trl", reason="the runs are trained with TRL")
pytest.importorskip("pyarrow", reason="the rollout log is Parquet")

from datasets import Dataset
from tiny_model import tiny_model, tiny_tokenizer
from trl_runs import settings

import rewardspec
from rewardspec.adapters.trl import RewardSpecGRPOTrainer
from rewardspec.logs.open import open_run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what trainers say is not about us

STEPS, PROMPTS, SIZE, LONGEST = 16, 8, 8, 24
SOUND = f"""\
rewardspec: 1
name: sound
signals: {{tokens: {{range: [0, {LONGEST}]}}}}
components:
  correct: {{values: [0, 1]}}
  brief: {{expr: 1 - tokens / {LONGEST}, when: correct >= 1, weight: 0.25}}
outcome: correct >= 1
advantage: grpo
"""
# Length is rewarded, also that of wrong answers
HACK = SOUND.replace("sound", "hack").replace(
    f"brief: {{expr: 1 - tokens / {LONGEST}, when: correct >= 1, weight: 0.25}}",
    f"long: {{expr: tokens / {LONGEST}, weight: 3}}",
)
DEAD = SOUND.replace("sound", "dead").replace("outcome", "  polite: {values: [0, 1], weight: 0.25}\noutcome")


def correct(completions, **_):
    """Whether the answer begins with one of nine letters: so do 18% of those of an untrained model."""
    return [float(text[:1] in set("abcdefghi")) for text in completions]


def polite(completions, **_):
    """Never: the model cannot write a capital letter."""
    return [float("Please" in text) for text in completions]


def trained(folder, text):
    """The replay of the log of a run that was trained under a spec."""
    spec = rewardspec.loads(text)
    run = RewardSpecGRPOTrainer(
        tiny_model(),
        reward_funcs=[one for one in (correct, polite) if one.__name__ in spec.columns],
        spec=spec,
        args=settings(
            folder,
            max_steps=STEPS,
            num_generations=SIZE,
            per_device_train_batch_size=PROMPTS * SIZE,
            max_completion_length=LONGEST,
            learning_rate=2e-2,
            logging_steps=STEPS,
        ),
        train_dataset=Dataset.from_dict({"prompt": [f"{i} is what" for i in range(PROMPTS)]}),
        processing_class=tiny_tokenizer(),
        rollout_log=folder / "log",
    )
    run.train()
    found = rewardspec.replay(folder / "log").specs[0]
    assert found.fingerprint == spec.fingerprint and len(found.steps) == STEPS
    assert found.logged.rollouts == STEPS * PROMPTS * SIZE and found.logged.largest < 1e-6
    return found


def rise(values):
    """By how much they are higher in the last quarter of the run than in the first."""
    return np.mean(values[-STEPS // 4 :]) - np.mean(values[: STEPS // 4])


def test_a_sound_run_learns_and_nothing_is_said_of_it(tmp_path):
    found = trained(tmp_path, SOUND)
    assert rise([step.right for step in found.steps]) > 0.1
    assert found.audit == ()


def test_length_that_was_paid_for_wrong_answers_was_learned_and_is_found(tmp_path):
    found = trained(tmp_path, HACK)
    wrong = [
        np.mean([n for n, right in zip(step.columns["tokens"], step.columns["correct"], strict=True) if not right])
        for step in open_run([tmp_path / "log"]).steps()
    ]
    assert rise(wrong) > 1, "wrong answers became longer by tokens"
    audit = {remark.code: remark for remark in found.audit}
    assert {"length-pays-wrong", "wrong-rewarded"} <= audit.keys() and "component-dead" not in audit
    assert "longer ones have more advantage" in audit["length-pays-wrong"].message
    shown = audit["wrong-rewarded"].rollouts
    assert any(not row["right"] and row["advantage"] > 0 for row in shown)
    assert {"step", "group", "file", "row", "length", "rewards"} <= shown[0].keys()


def test_a_component_that_measured_nothing_is_found(tmp_path):
    found = trained(tmp_path, DEAD)
    (remark,) = found.audit
    assert remark.code == "component-dead" and "`polite` is the same for all rollouts" in remark.message
