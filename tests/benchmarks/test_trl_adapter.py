"""What the TRL adapter adds to a step, beside the block of TRL that it replaces, in one run: `make bench`.

All that it does is counted: bringing columns together, the compiled function, metrics and logs. TRL's block is counted
from rewards to advantages, without its metrics and logs, which TRL goes on writing.
"""

import pytest
import torch
from peers import trl_advantages
from test_speed import one_thread  # noqa: F401
from tiny_model import tiny_model, tiny_tokenizer
from trl import GRPOTrainer
from trl_runs import data_set, settings

from rewardspec.adapters.trl import RewardSpecMixin

ROLLOUTS, GROUP = 512, 4
SPECS = {
    "gdpo": "components:\n  digit: {values: [0, 1]}\n  letters: {range: [0, 1]}\nadvantage: gdpo\n",
    "gdpo and length": "signals: {tokens: {range: [0, .inf]}}\n"
    "components:\n  digit: {values: [0, 1]}\n  letters: {range: [0, 1]}\n"
    "  brief: {expr: tokens <= 6, when: digit >= 1}\n"
    "advantage: gdpo\n",
}


def digit(completions, **_):
    raise AssertionError("the rewards are given")


def letters(completions, **_):
    raise AssertionError("the rewards are given")


class Given:
    """In the trainer's place: what it hands to the adapter, and no more."""

    def _calculate_rewards(self, *_):
        return self.given

    def _generate_and_score_completions(self, inputs):
        self._calculate_rewards(inputs, [], [], self.completion_ids)
        for name in ("reward", "reward_std"):
            self._metrics["train"][name].append(0.0)
        self._logs["advantages"].extend(self.zeros)
        return {"advantages": torch.zeros(ROLLOUTS)}


class Adapter(RewardSpecMixin, Given, GRPOTrainer):
    pass


def rewards():
    generator = torch.Generator().manual_seed(0)
    binary = torch.randint(0, 2, (ROLLOUTS,), generator=generator).float()
    return torch.stack([binary, torch.rand(ROLLOUTS, generator=generator)], 1)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("who", ["adapter", "block"])
def test_step(benchmark, tmp_path, who, spec):
    benchmark.group = f"TRL, {ROLLOUTS} rollouts: {spec}"
    given = rewards()
    rounds = {"rounds": 500, "warmup_rounds": 5}
    if who == "block":
        given = torch.cat([given, given[:, :1]], 1)[:, : 3 if "length" in spec else 2]
        weights = torch.ones(given.shape[1])
        benchmark.pedantic(lambda: trl_advantages(given, weights, GROUP, "normalize_then_sum"), **rounds)
        return
    run = Adapter(
        model=tiny_model(),
        reward_funcs=[digit, letters],
        args=settings(tmp_path, per_device_train_batch_size=ROLLOUTS, num_generations=GROUP),
        train_dataset=data_set(),
        processing_class=tiny_tokenizer(),
        spec=f"rewardspec: 1\n{SPECS[spec]}numerics: {{eps: 1e-4}}\n",
    )
    run.given, run.zeros, run.completion_ids = given, [0.0] * ROLLOUTS, [[1] * (i % 12) for i in range(ROLLOUTS)]
    run.state.max_steps = 4
    run.model.train()
    rows = [{"prompt": "0 is what"}] * ROLLOUTS
    out = benchmark.pedantic(lambda: run._generate_and_score_completions(rows), **rounds)
    if spec == "gdpo":
        expected = trl_advantages(given, torch.ones(2), GROUP, "normalize_then_sum")
        torch.testing.assert_close(out["advantages"], expected, atol=1e-4, rtol=1e-4)
