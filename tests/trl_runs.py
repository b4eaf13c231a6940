"""Short runs of TRL's real trainers on a tiny model, watched. As a script, several of them in one of some processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import torch
from datasets import Dataset
from tiny_model import tiny_model, tiny_tokenizer
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from rewardspec.adapters.trl import RewardSpecMixin
from rewardspec.logs.rollout_log import RolloutLog

# The advantage is what a reader can add up by hand from the completions.
LINEAR = """
rewardspec: 1
name: linear
signals:
  tokens: {range: [0, .inf]}
  truncated: {values: [0, 1]}
  level: {values: [easy, hard]}
  bonus: {range: [0, 100]}
components:
  digit: {values: [0, 1]}
  letters: {range: [0, 1], weight: 10 * (1 + progress)}
  long: {expr: tokens + 0.5 * truncated, weight: 100}
  task: {expr: bonus if level == hard else 0, weight: 1000}
outcome: digit >= 1
advantage: total
"""
TOKENS = """
rewardspec: 1
name: tokens
components: {digit: {values: [0, 1]}}
condition:
  tokens: {high: <|high_reward|>, low: <|low_reward|>}
  prior: {high: 0.5}
  template: "[Goal: {token}]"
advantage: dr_grpo
"""
VSPO = """
rewardspec: 1
name: vspo
components: {letters: {range: [0, 1]}, digit: {values: [0, 1]}}
keep: max(digit) > 0
refill: mean(letters)
advantage: (letters - mean(letters)) * (2 - 1 / copies)
"""
CARRIED = """
rewardspec: 1
name: carried
signals: {tokens: {range: [0, .inf]}, bonus: {id: true, level: group}}
components: {digit: {values: [0, 1]}, letters: {range: [0, 1]}, length: {expr: tokens / 8, weight: -price}}
state:
  price: {init: 0.5, range: [0, 2], update: "price + 0.25 * (mean(tokens, over=batch) / 8 - 0.75)"}
  level_of: {init: 0.5, range: [0, 1], by: bonus, update: 0.5 * level_of + 0.5 * mean(letters)}
advantage: total - level_of
"""
TURNS = """
rewardspec: 1
name: turns
lists: {turn: {ordered: true}}
signals:
  called: {values: [0, 1], level: turn}
  cost: {range: [0, 10], level: turn}
components:
  digit: {values: [0, 1]}
  tool: {expr: called, weight: 0.5}
  cheap: {expr: "returns(cost, 0.5)", weight: -0.25}
advantage: decoupled
"""
MOVED_TURNS = """
rewardspec: 1
name: turns
lists: {turn: {}}
signals: {called: {values: [0, 1], level: turn}}
components: {digit: {values: [0, 1]}, tool: {expr: called}}
keep: std(sum(called, over=rollout)) > 0
refill: mean(digit)
advantage: called - mean(called) + digit
"""


def in_turns(prompts, trainer):
    """A `rollout_func`: one to four turns of letters or digits, with answers of an environment between them.

    `env_mask` is 0 on those answers; `turns` has the text of each turn and `cost` its number of tokens. Half of the
    rollouts end with <eos>, others are cut off.
    """
    tokenizer = trainer.processing_class
    made = {"prompt_ids": [], "completion_ids": [], "env_mask": [], "turns": [], "cost": []}
    for place, prompt in enumerate(prompts):
        seen = (trainer.state.global_step, trainer.accelerator.process_index, place, prompt)
        random = Random(str(seen))
        texts = ["".join(random.choices("abc0129", k=random.randint(1, 4))) for _ in range(random.randint(1, 4))]
        parts = [tokenizer(text)["input_ids"] for text in texts]
        ids, mask = list(parts[0]), [1] * len(parts[0])
        for part in parts[1:]:
            answer = tokenizer(random.choice(["x", "[x]", "xyz"]))["input_ids"]
            ids, mask = ids + answer + part, mask + [0] * len(answer) + [1] * len(part)
        if random.random() < 0.5:
            ids, mask = [*ids, tokenizer.eos_token_id], [*mask, 1]
        values = (tokenizer(prompt)["input_ids"], ids, mask, texts, [len(part) for part in parts])
        for held, value in zip(made.values(), values, strict=True):
            held.append(value)
    return {**made, "logprobs": None}


def called(turns, **_):
    """For every turn of each rollout whether it has a digit."""
    return [[float(any(c.isdigit() for c in text)) for text in texts] for texts in turns]


def digit(completions, **_):
    return [float(any(c in "01234" for c in text_of(completion))) for completion in completions]


def letters(completions, **_):
    return [min(1.0, sum("a" <= c <= "z" for c in text_of(completion)) / 8) for completion in completions]


def text_of(completion):
    return completion if isinstance(completion, str) else completion[0]["content"]


class Stock:
    """Below the mixin: what the trainer itself computes, of this process."""

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self.now = {
            "rewards": rewards.clone(),
            "rows": [dict(row) for row in inputs],
            "completions": list(completions),
            "ids": [list(ids) for ids in completion_ids_list],
        }
        return rewards

    def _generate_and_score_completions(self, inputs):
        out = super()._generate_and_score_completions(inputs)
        metrics = self._metrics["train" if self.model.training else "eval"]
        self.now |= {"stock": dict(out), **{f"stock {name}": metrics[name][-1] for name in ("reward", "reward_std")}}
        return out


class Watched:
    """Above it: what training gets, in `generations`."""

    def _generate_and_score_completions(self, inputs):
        before = [dict(row) for row in inputs]
        out = super()._generate_and_score_completions(inputs)
        kept = [{name: row[name] for name in old} for row, old in zip(inputs, before, strict=True)]
        assert kept == before, "rows of the data set stay as they are"
        mode = "train" if self.model.training else "eval"
        found = {"mode": mode, "step": self.state.global_step, "out": dict(out), "given": before}
        found["state"] = self.spec_state
        found["logged"] = list(self._logs["advantages"])
        found["extra"] = {name: list(values) for name, values in self._logs["extra"].items()}
        self.generations = [*getattr(self, "generations", []), {**self.now, **found}]
        return out


class WatchedGRPO(Watched, RewardSpecMixin, Stock, GRPOTrainer):
    pass


class WatchedRLOO(Watched, RewardSpecMixin, Stock, RLOOTrainer):
    pass


def data_set(n=16, conversational=False):
    prompts = [f"{i} is what" for i in range(n)]
    if conversational:
        prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
    levels = [("easy", "hard")[i % 2] for i in range(n)]
    return Dataset.from_dict({"prompt": prompts, "level": levels, "bonus": list(range(n))})


def settings(folder, kind="grpo", **changes):
    options = {
        "bf16": False,
        "use_cpu": True,
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 8,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "beta": 0.0,
    }
    return {"grpo": GRPOConfig, "rloo": RLOOConfig}[kind](str(folder), **{**options, **changes})


def trainer(
    folder, spec, kind="grpo", *, reward_funcs=(letters, digit), evaluated=None, data=None, changes=None, **options
):
    """A watched trainer that is ready. changes: of `settings`; options: of the mixin."""
    return {"grpo": WatchedGRPO, "rloo": WatchedRLOO}[kind](
        model=tiny_model(),
        reward_funcs=list(reward_funcs),
        args=settings(folder, kind, **(changes or {})),
        train_dataset=data_set() if data is None else data,
        eval_dataset=evaluated,
        processing_class=tiny_tokenizer(),
        spec=spec,
        **options,
    )


# With two processes of three rows each and groups of two, the middle group has a row on either.
SPLIT = {"per_device_train_batch_size": 3, "num_generations": 2, "max_steps": 3}
TOGETHER = {"per_device_train_batch_size": 4, "num_generations": 2, "max_steps": 3, "learning_rate": 0.0}
DISTRIBUTED = {
    "linear grpo": (LINEAR, "grpo", SPLIT, {}),
    "linear rloo": (LINEAR, "rloo", SPLIT, {}),
    "tokens": (TOKENS, "grpo", SPLIT, {}),
    "state": (CARRIED, "grpo", SPLIT, {}),
    "weights": (VSPO, "grpo", {**TOGETHER, "loss_type": "dr_grpo"}, {}),
    "moved": (VSPO, "grpo", {**TOGETHER, "loss_type": "dr_grpo"}, {"move_rows": True}),
    "turns": (TURNS, "grpo", SPLIT, {"rollout_func": in_turns}),
    "turns moved": (MOVED_TURNS, "grpo", TOGETHER, {"rollout_func": in_turns, "move_rows": True}),
    "moved rloo": (VSPO, "rloo", TOGETHER, {"move_rows": True}),
    "moved dapo": (VSPO, "grpo", {**TOGETHER, "num_iterations": 2, "loss_type": "dapo"}, {"move_rows": True}),
}


def main(folder: Path) -> None:
    for name, (spec, kind, changes, options) in DISTRIBUTED.items():
        functions = {TOKENS: [digit], TURNS: [digit, called], MOVED_TURNS: [digit, called]}.get(spec, [letters, digit])
        options = {**options, "rollout_log": RolloutLog(folder / f"{name} log", columns=["bonus"])}
        run = trainer(folder / "out", spec, kind, reward_funcs=functions, changes=changes, **options)
        run.train()
        rank = run.accelerator.process_index
        torch.save({"generations": run.generations, "history": run.state.log_history}, folder / f"{name} {rank}.pt")
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)  # what is left of gloo's threads can keep a process from ending


if __name__ == "__main__":
    main(Path(sys.argv[1]))
