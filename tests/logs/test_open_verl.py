"""Logs that verl's own code writes, of V0 and of V1, read again."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("verl")

from tiny_model import tiny_tokenizer

from rewardspec.logs.open import open_run
from rewardspec.logs.rows import BadLog

# What importing a trainer says is not about us.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
PROMPTS = ["1 is what", "2 is what"]


def ids_of(texts, width):
    tokenizer = tiny_tokenizer()
    rows = [tokenizer(text)["input_ids"] for text in texts]
    return torch.tensor([[0] * (width - len(row)) + row for row in rows])


def of_v0(step, folder, order, extra):
    """What verl writes of eight rollouts: `order` has the prompt of each."""
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    trainer = SimpleNamespace(
        global_steps=step, tokenizer=tiny_tokenizer(), _write_generations=RayPPOTrainer._write_generations
    )
    trainer._dump_generations = lambda **given: RayPPOTrainer._dump_generations(trainer, **given)
    RayPPOTrainer._init_dump_executor(trainer)
    scores = torch.zeros(len(order), 6)
    scores[:, 3] = torch.arange(len(order)) / 4
    batch = DataProto.from_dict(
        {
            "prompts": ids_of([PROMPTS[i] for i in order], 12),
            "responses": ids_of([f"ab{i}" for i in range(len(order))], 6),
            "token_level_scores": scores,
        },
        {
            "reward_model": np.array([{"ground_truth": str(i)} for i in order], dtype=object),
            "request_id": np.array([f"r{i}" for i in range(len(order))], dtype=object),
        },
    )
    RayPPOTrainer._log_rollout_data(trainer, batch, extra, {}, str(folder))
    RayPPOTrainer._shutdown_dump_executor(trainer)


def of_v1(monkeypatch, step, folder, keys, scores):
    """What verl writes of rows under these keys, `{uid}_{session}_{output}`."""
    from tensordict import TensorDict
    from tensordict.tensorclass import NonTensorStack
    from verl.trainer.ppo.v1 import trainer_base

    class Padded:
        def __init__(self, ids):
            self.ids = ids

        def to_padded_tensor(self, padding):
            return self.ids

    held = {
        "uid": np.array([key.rsplit("_", 2)[0] for key in keys]),
        "prompts": Padded(ids_of(["1 is what"] * len(keys), 12)),
        "responses": Padded(ids_of([f"ab{i}" for i in range(len(keys))], 6)),
        "rm_scores": torch.tensor(scores)[:, None],
        "reward_model": np.array([{"ground_truth": "1"}] * len(keys), dtype=object),
    }
    assert TensorDict and NonTensorStack, "what kv_batch_get returns"
    monkeypatch.setattr(trainer_base.tq, "kv_batch_get", lambda **given: dict(held))
    own = next(one for one in vars(trainer_base).values() if hasattr(one, "_log_rollout_data"))
    trainer = SimpleNamespace(global_steps=step, tokenizer=tiny_tokenizer(), _write_generations=own._write_generations)
    trainer._dump_generations = lambda **given: own._dump_generations(trainer, **given)
    own._init_dump_executor(trainer)
    own._log_rollout_data(trainer, SimpleNamespace(keys=keys, partition_id="train"), {}, str(folder))
    own._shutdown_dump_executor(trainer)


def test_v0_is_read_with_the_groups_that_are_named(tmp_path):
    order = [0, 1, 1, 0, 0, 1, 0, 1]  # balanced, so not together
    right = [bool(i % 2) for i in range(8)]
    for step in (9, 10):
        of_v0(step, tmp_path, order, {"acc": right, "pred": np.array([str(i) for i in range(8)], dtype=object)})
    with pytest.raises(BadLog, match="--group-by prompt"):
        open_run([tmp_path])
    run = open_run([tmp_path], group_by="prompt")
    steps = list(run.steps())
    assert run.format == "verl"
    assert [step.number for step in steps] == [9, 10]
    assert steps[0].groups == [PROMPTS[i] for i in order]
    assert steps[0].columns["completion"] == [f"ab{i}" for i in range(8)]
    assert steps[0].columns["score"] == [i / 4 for i in range(8)]
    assert steps[0].columns["acc"] == right
    assert steps[0].columns["pred"] == [str(i) for i in range(8)]
    assert steps[0].columns["gts"] == [str(i) for i in order]
    assert steps[0].advantages is None
    assert "advantages: verl logs none" in run.lost
    assert any(line.startswith("groups: ") and "drawn twice" in line for line in run.lost)
    assert next(open_run([tmp_path], group_by="input").steps()).groups == steps[0].groups


def test_v1_has_groups_and_the_last_output_of_each_session(tmp_path, monkeypatch):
    keys = ["b_u_0_0", "b_u_0_1", "a_0_0", "a_1_10", "a_1_9", "b_u_1_0"]
    of_v1(monkeypatch, 1, tmp_path, keys, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    run = open_run([tmp_path / "1.jsonl"])
    (step,) = run.steps()
    assert step.groups == ["a", "a", "b_u", "b_u"]
    assert step.columns["uid"] == ["a_0_0", "a_1_10", "b_u_0_1", "b_u_1_0"]
    assert step.columns["score"] == [2.0, 3.0, 1.0, 5.0]
    assert step.columns["prompt"] == ["1 is what"] * 4
    assert any(line.startswith("components: ") for line in run.lost)


def test_validation_of_v1_has_what_the_reward_function_returned(tmp_path):
    from verl.trainer.ppo.v1 import trainer_base

    own = next(one for one in vars(trainer_base).values() if hasattr(one, "_write_generations"))
    extra = {"acc": [np.bool_(True), np.bool_(False)], "reward": [1.0, np.float32(0.5)], "uid": ["a_0_0", "a_1_0"]}
    own._write_generations(["p", "p"], ["c", "d"], ["1", "1"], [1.0, 0.5], extra, str(tmp_path), 20)
    run = open_run([tmp_path])
    (step,) = run.steps()
    assert step.number == 20 and step.groups == ["a", "a"]
    assert step.columns["acc"] == [True, False]
    assert step.columns["reward"] == [1.0, 0.5]
    assert not any(line.startswith("components: ") for line in run.lost)


def test_rollouts_and_validation_are_not_mixed(tmp_path, monkeypatch):
    for folder in ("train", "val"):
        of_v1(monkeypatch, 1, tmp_path / folder, ["a_0_0", "a_1_0"], [0.0, 1.0])
    with pytest.raises(BadLog, match="rollouts and validation are two runs: name one folder"):
        list(open_run([tmp_path]).steps())
    assert len(list(open_run([tmp_path / "val"]).steps())) == 1
