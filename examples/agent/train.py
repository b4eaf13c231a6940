"""Trains the agent of market.py once with each advantage of market.yaml, and logs every rollout.

    python examples/agent/train.py OUT --seeds 0 1 2 3 4

writes OUT/ARM-SEED.parquet. The runs of a seed start from the same weights and see the same prompts in the same
order; their advantages have different names in one spec. On a CPU, without network.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import torch
from datasets import Dataset
from transformers import PrinterCallback
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

sys.path.append(str(Path(__file__).resolve().parents[1]))

from from_scratch import options_of, random_model, settings
from market import rollouts, tasks, tokenizer, warm_up

import rewardspec
from rewardspec.adapters.trl import RewardSpecGRPOTrainer

HERE = Path(__file__).resolve().parent
ARMS = ("outcome_only", "summed", "everywhere", "on_its_turn")
SCHEMA = pyarrow.schema(
    {
        "arm": pyarrow.string(),
        "seed": pyarrow.int32(),
        "step": pyarrow.int32(),
        "prompt_id": pyarrow.int32(),
        "prompt": pyarrow.string(),
        "turns": pyarrow.list_(pyarrow.string()),
        "outcome": pyarrow.float32(),
        "call": pyarrow.list_(pyarrow.float32()),
        "advantages": pyarrow.list_(pyarrow.float32()),  # one for each turn: that of its first token
    }
)


class LoggingTrainer(RewardSpecGRPOTrainer):
    """Stores each rollout in `rollouts`, with its rewards and the advantages used in training."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.rollouts: list[dict] = []

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        self.made = [dict(row) for row in inputs]
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def _generate_and_score_completions(self, inputs):
        out = super()._generate_and_score_completions(inputs)
        for row, advantages in zip(self.made, out["advantages"], strict=True):
            on_turns = [float(advantages[start] if advantages.ndim else advantages) for start in row["starts"]]
            kept = {name: row[name] for name in SCHEMA.names if name in row}
            self.rollouts.append({**kept, "step": self.state.global_step, "advantages": on_turns})
        return out


def outcome(outcome, **_):
    """Whether the answer is right, which the rollouts carry."""
    return outcome


def call(call, **_):
    """A list for each rollout: how right the call of each turn is."""
    return call


def trainer(arm: str, seed: int, options: argparse.Namespace, kind: type = LoggingTrainer) -> RewardSpecGRPOTrainer:
    """A trainer that is ready, after its supervised start."""
    words = tokenizer()
    model = random_model(words, seed)
    warm_up(model, words, seed, options.warm_up_examples, options.warm_up_steps)
    made = kind(
        model,
        reward_funcs=[outcome, call],
        spec=rewardspec.load(HERE / "market.yaml", advantage=arm),
        args=settings(options, seed, max_completion_length=6),  # of a turn
        train_dataset=Dataset.from_list(tasks()),
        processing_class=words,
        rollout_func=rollouts,
    )
    made.remove_callback(PrinterCallback)  # it prints TRL's summary as one long line
    return made


def main() -> None:
    sizes = {"steps": 200, "group": 8, "prompts": 24, "learning_rate": 5e-4, "warm_up_steps": 60}
    parser = options_of(__doc__.splitlines()[0], **sizes)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    options = parser.parse_args()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # `rollout_func` is experimental in TRL 1.16
    torch.set_num_threads(1)
    set_verbosity_error()
    disable_progress_bar()
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for arm in options.arms:
            started, worked = time.perf_counter(), time.process_time()
            run = trainer(arm, seed, options)
            run.train()
            rows = [{"arm": arm, "seed": seed, **row} for row in run.rollouts]
            table = pyarrow.Table.from_pylist(rows, schema=SCHEMA)
            pyarrow.parquet.write_table(table, options.out / f"{arm}-{seed}.parquet", compression="zstd")
            took, of_it = time.perf_counter() - started, time.process_time() - worked
            print(f"{arm}, seed {seed}: {len(rows)} rollouts in {took:.0f} s, {of_it:.0f} s of a core", flush=True)


if __name__ == "__main__":
    main()
