"""Specs inside TRL's asynchronous GRPO: its own rollout loop scores groups, as it does in the worker's process.

What needs vLLM, generating and handing weights over, is TRL's alone and is not run.
"""

import asyncio
import copy
import math
import pickle
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("trl")

from accelerate import PartialState
from datasets import Dataset
from tiny_model import save_tiny_model, tiny_tokenizer
from trl.experimental.async_grpo import AsyncGRPOConfig
from trl.experimental.async_grpo.async_rollout_worker import (
    AsyncRolloutWorker,
    RolloutGroup,
    TrainingSequence,
    _AsyncRolloutLoop,
)

import rewardspec
from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.trl_async import RewardSpecAsyncGRPOTrainer, SpecLoop

pytestmark = pytest.mark.filterwarnings("ignore")

OWN = """
rewardspec: 1
name: async
components:
  length: {range: [0, 100], weight: 2}
  sure: {range: [0, 1], missing: ignore}
advantage: grpo
numerics: {eps: 1e-8, ddof: 0}
"""
TEXTS = ["a", "abc", "abcdef", "ab"]
ROWS = [1, 2, 0, 1]  # training rows of a conversation: one that was forked has two


@pytest.fixture(autouse=True)
def loops_end(monkeypatch):
    """TRL's loop has an event loop that lives as long as the worker's process."""
    PartialState(cpu=True)  # TRL's logger asks for it
    made, new = [], asyncio.new_event_loop
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: made.append(new()) or made[-1])
    yield
    for each in made:
        each.run_until_complete(each.shutdown_default_executor())
        each.close()


def length(completions, **_):
    return [float(len(text)) for text in completions]


async def sure(completions, **_):
    return [None if len(text) == 3 else len(text) / 10 for text in completions]


def loop(kind, functions, data=None, **more):
    data = data or Dataset.from_dict({"prompt": ["p"], "bonus": [1]})
    shared = ("rollout_buffer", "model_version_value", "heartbeat_value", "failed_event", "metrics_queue")
    given = dict.fromkeys((*shared, "exception_info_queue"), SimpleNamespace(value=0))
    tokenizer = tiny_tokenizer()
    tokenizer.response_template = {}  # TRL asks for a way to read tool calls; there are none
    return kind(
        model_name="m", dataset=data, reward_funcs=functions, processing_class=tokenizer, eos_token_ids=[1],
        **given, **more,
    )  # fmt: skip


def group(bonus=(1, 2, 3, 4)):
    sequences = [
        [
            TrainingSequence(input_ids=[3, 4], completion_mask=[0, 1], old_log_probs=[0.0, -1.0], rollout_id=0)
            for _ in range(n)
        ]
        for n in ROWS
    ]
    return RolloutGroup(
        prompts=["p"] * 4, reward_kwargs={"bonus": list(bonus)}, completions=TEXTS,
        completions_ids=[[5] * len(t) + [1] * (len(t) > 2) for t in TEXTS], completions_sequences=sequences,
        tool_call_counts=[0] * 4, tool_failure_counts=[0] * 4, model_version=3, group_id=7,
        env_rewards=[None] * 4, rollout_rewards=[None] * 4,
    )  # fmt: skip


def score(made, given=None):
    return made._loop.run_until_complete(made._score_group(given or group()))


def test_the_same_scheme_gives_trls_own_advantages():
    text = OWN.replace("weight: 2", "weight: 1").replace("missing: ignore", "missing: zero")
    expected = score(loop(_AsyncRolloutLoop, [length, sure]))
    found = score(loop(SpecLoop, [length, sure], spec=rewardspec.loads(text)))
    assert [s.advantage for s in found] == pytest.approx([s.advantage for s in expected], abs=1e-6)
    assert [s.metrics["reward"] for s in found] == pytest.approx([s.metrics["reward"] for s in expected])
    assert found[0].metrics["rewards/length"] == 1 and math.isnan(found[1].metrics["rewards/sure"])
    assert max(abs(s.advantage) for s in found) > 0.1


def test_advantages_and_logs_are_the_specs():
    found = score(loop(SpecLoop, [sure, length], spec=rewardspec.loads(OWN)))
    sures = torch.tensor([0.1, (0.1 + 0.6 + 0.2) / 3, 0.6, 0.2])  # what is missing stands at the group's mean
    totals = 2 * torch.tensor([1.0, 3, 6, 2]) + sures
    advantages = (totals - totals.mean()) / totals.std(correction=0)
    rows = [i for i, n in enumerate(ROWS) for _ in range(n)]
    assert [s.advantage for s in found] == pytest.approx(advantages[rows].tolist(), abs=1e-5)
    assert [s.metrics["reward"] for s in found] == pytest.approx(totals[rows].tolist())
    assert [s.metrics["reward_std"] for s in found] == pytest.approx([totals.std().item()] * 4)
    assert found[0].metrics["rewardspec/weight/length"] == 2


def test_columns_that_no_function_measures():
    text = "rewardspec: 1\nsignals: {bonus: {range: [0, 9]}, tokens: {range: [0, .inf]}, truncated: {values: [0, 1]}}\n"
    text += "components: {all: {expr: bonus + 10 * tokens + 100 * truncated}}\nadvantage: total\n"
    found = score(loop(SpecLoop, [], spec=rewardspec.loads(text)))
    by_hand = [1 + 10 + 100, 2 + 40, 3 + 70, 4 + 20 + 100]  # those over two characters end by themselves
    assert [s.advantage for s in found] == [by_hand[0], by_hand[1], by_hand[1], by_hand[3]]
    assert not any("no_reward" in name for s in found for name in s.metrics)


RUBRIC = """rewardspec: 1
name: rubric
lists: {criterion: {}}
signals: {met: {values: [0, 1], level: criterion}, points: {range: [-9, 9], level: criterion}}
components: {rubric: {expr: "sum(met * points, over=rollout)"}}
advantage: total
"""


def met(completions, points, **_):
    return [[float(len(text) > k) for k in range(len(own))] for text, own in zip(completions, points, strict=True)]


def test_lists_that_the_spec_reduces():
    points = [[1, 2], [3], [4, 5, 6], [7, 8, 9]]
    found = group()
    found.reward_kwargs = {"points": points}
    data = Dataset.from_dict({"prompt": ["p"], "points": [[1]]})
    samples = score(loop(SpecLoop, [met], data, spec=rewardspec.loads(RUBRIC)), found)
    assert [s.advantage for s in samples] == [1, 3, 3, 7 + 8]  # of "a", "abc" twice, and "ab"
    assert [s.metrics["rewards/met"] for s in samples] == pytest.approx([1 / 2, 1, 1, 2 / 3])
    sometimes = RUBRIC.replace("{met: {values: [0, 1]", "{met: {values: [0, 1], missing: zero")
    run = loop(SpecLoop, [met], data, spec=rewardspec.loads(sometimes))
    run._measured = [[[1.0, 0.0], None, [1.0, 0.0, 0.0], None]]
    assert run._columns(found)["met"] == [[1, 0], [None], [1, 0, 0], [None] * 3]


def test_a_rollout_log_is_refused_with_the_reason(tmp_path):
    with pytest.raises(BindingError, match="AsyncGRPO has no rollout log: its worker scores one group at a time"):
        RewardSpecAsyncGRPOTrainer("no such model", [met], spec=OWN, rollout_log=tmp_path)


def test_lists_that_the_worker_does_not_have_are_refused():
    text = RUBRIC.replace("sum(met * points, over=rollout)", "met * points")
    with pytest.raises(BindingError, match="the advantage of rubric is of the list `criterion`, and the worker"):
        RewardSpecAsyncGRPOTrainer("no such model", [met], spec=text)
    text = RUBRIC.replace("points", "tokens")
    with pytest.raises(BindingError, match="`tokens` is one value for each rollout here: declare it without `level: c"):
        loop(SpecLoop, [met], spec=rewardspec.loads(text))


def test_functions_that_do_not_match_are_refused():
    with pytest.raises(BindingError, match="nothing measures `sure`"):
        loop(SpecLoop, [length], spec=rewardspec.loads(OWN))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OWN.replace("advantage: grpo", "advantage: gdpo"), "async depends on the whole batch"),
        (OWN.replace("weight: 2", "weight: 1 + step"), "async reads `step`, which the worker does not know"),
        (OWN.replace("weight: 2", "weight: 1 + progress"), "async reads `progress`"),
        (OWN + "keep: std(total) > 0\nrefill: mean(total)\n", "async has `refill`"),
        (OWN + "state:\n  s: {init: 0, range: [0, 1], update: s}\n", "async carries state from batch to batch"),
        (
            OWN + "condition:\n  tokens: {high: h, low: l}\n  prior: {high: 0.5}\n  template: '{token}'\n",
            "reward tokens",
        ),
        (
            OWN.replace("advantage: grpo", "advantage: grpo - max(position, over=rollout)\nlists: {turn: {}}"),
            "async reads no column of the list `turn`, and the worker does not count turns",
        ),
    ],
)
def test_specs_that_look_beyond_a_group_are_refused_before_the_model_is_loaded(text, reason):
    with pytest.raises(BindingError) as caught:
        RewardSpecAsyncGRPOTrainer("no such model", [length, sure], spec=text)
    assert reason in str(caught.value) and "one group at a time" in str(caught.value)


def test_the_trainers_worker_gets_the_spec(tmp_path, monkeypatch):
    """The worker that TRL's trainer makes for itself is started with the spec's loop, and all of it can be pickled."""
    module = "trl.experimental.async_grpo.async_rollout_worker"
    monkeypatch.setattr(f"{module}.is_vllm_available", lambda: True)
    monkeypatch.setattr("trl.experimental.async_grpo.async_grpo_trainer.get_peak_flops_per_device", lambda *_: 1.0)
    model = save_tiny_model(tmp_path / "model")
    run = RewardSpecAsyncGRPOTrainer(
        str(model),
        [length],
        AsyncGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to=[], max_steps=1, num_generations=4),
        Dataset.from_dict({"prompt": ["p"] * 4}),
        weight_transfer=SimpleNamespace(),
        spec=OWN.replace("  sure: {range: [0, 1], missing: ignore}\n", "").replace("weight: 2", "weight: w")
        + "define: {w: 1}\n",
        constants={"w": 3},
    )
    worker = run.rollout_worker
    assert type(worker) is AsyncRolloutWorker and worker._loop_cls is SpecLoop
    given = pickle.loads(pickle.dumps(worker._loop_kwargs))
    kwargs = {k: copy.copy(given[k]) for k in ("spec", "dialect", "allow_python")}
    found = score(loop(SpecLoop, given["reward_funcs"], **kwargs))
    assert [s.metrics["reward"] for s in found] == [3, 9, 9, 6]
