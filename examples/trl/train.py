"""Trains the model of tool_calls.py once with GRPO and once with GDPO, and logs every rollout.

    python examples/trl/train.py OUT --seeds 0 1 2 3 4
    python examples/trl/train.py OUT --seeds 0 1 2 3 4 --schemes decoupled gdpo_shares grpo_sizes

writes OUT/SCHEME-SEED.parquet. The runs of a seed start from the same weights and see the same prompts in the
same order; their specs differ in one line. On a CPU, without network.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import torch
from datasets import Dataset
from transformers import PrinterCallback
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from rewardspec.adapters.trl import RewardSpecGRPOTrainer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from from_scratch import options_of, random_model, settings
from tool_calls import correctness, format, tasks, tokenizer, warm_up

HERE = Path(__file__).resolve().parent
SCHEMES = ("grpo", "gdpo")
ARMS = (*SCHEMES, "decoupled", "gdpo_shares", "grpo_sizes")  # the rest ask what of GDPO makes the difference
SCHEMA = pyarrow.schema(
    {
        "scheme": pyarrow.string(),
        "seed": pyarrow.int32(),
        "step": pyarrow.int32(),
        "prompt_id": pyarrow.int32(),
        "prompt": pyarrow.string(),
        "completion": pyarrow.string(),
        "format": pyarrow.float32(),
        "correctness": pyarrow.float32(),
        "advantage": pyarrow.float32(),
    }
)


class LoggingTrainer(RewardSpecGRPOTrainer):
    """Stores each rollout in `rollouts`, with its rewards and the advantage used in training."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.rollouts: list[dict] = []

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        named = [dict(zip(self.reward_func_names, row, strict=True)) for row in rewards.tolist()]
        self.scored = [
            {
                "step": self.state.global_step,
                "completion": text,
                **{k: row[k] for k in ("prompt_id", "prompt")},
                **found,
            }
            for row, text, found in zip(inputs, completions, named, strict=True)
        ]
        return rewards

    def _generate_and_score_completions(self, inputs):
        out = super()._generate_and_score_completions(inputs)
        for row, advantage in zip(self.scored, out["advantages"].tolist(), strict=True):
            self.rollouts.append({**row, "advantage": advantage})
        return out


def train(scheme: str, seed: int, options: argparse.Namespace) -> list[dict]:
    """The rollouts of one run."""
    words = tokenizer()
    model = random_model(words, seed)
    warm_up(model, words, seed, options.warm_up_examples, options.warm_up_steps)
    trainer = LoggingTrainer(
        model,
        reward_funcs=[format, correctness],
        spec=HERE / f"tools_{scheme}.yaml",
        args=settings(options, seed, max_completion_length=20),
        train_dataset=Dataset.from_list(tasks()),
        processing_class=words,
    )
    trainer.remove_callback(PrinterCallback)  # it prints TRL's summary as one long line
    trainer.train()
    return [{"scheme": scheme, "seed": seed, **row} for row in trainer.rollouts]


def main() -> None:
    sizes = {"steps": 250, "group": 4, "prompts": 64, "learning_rate": 1e-3, "warm_up_steps": 40}
    parser = options_of(__doc__.splitlines()[0], **sizes)
    parser.add_argument("--schemes", nargs="+", choices=ARMS, default=SCHEMES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    set_verbosity_error()
    disable_progress_bar()
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for scheme in options.schemes:
            started = time.perf_counter()
            rollouts = train(scheme, seed, options)
            table = pyarrow.Table.from_pylist(rollouts, schema=SCHEMA)
            pyarrow.parquet.write_table(table, options.out / f"{scheme}-{seed}.parquet", compression="zstd")
            print(
                f"{scheme}, seed {seed}: {len(rollouts)} rollouts in {time.perf_counter() - started:.0f} s", flush=True
            )


if __name__ == "__main__":
    main()
