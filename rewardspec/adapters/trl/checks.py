"""Checks before training that a TRL trainer's settings and columns do not contradict the spec."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch

from rewardspec.adapters.common.binding import BindingError, as_name, check_rewards
from rewardspec.adapters.common.lists import lists_of_turns
from rewardspec.adapters.common.rewards import AUTOMATIC
from rewardspec.spec import Spec

OWN = ("prompt", "completion", "completion_ids", "image", "images")  # keys of a row that TRL reads

# Settings of the built-in schemes: (name, defaults, fix).
STOCK: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("reward_weights", (None,), "give components a `weight:`"),
    ("multi_objective_aggregation", ("sum_then_normalize",), "write `advantage: gdpo`, or another scheme"),
    ("scale_rewards", ("group", True), "write `advantage: dr_grpo` or `batch_grpo`, or another scheme"),
    ("normalize_advantages", (False,), "write `advantage: whiten(rloo)`"),
    ("reward_clip_range", (None,), "write `clip(...)` in the spec"),
)


def no_reward(completions: list, **_) -> list[float]:
    """A placeholder if a spec needs no reward function, because TRL requires one; nothing reads it."""
    return [0.0] * len(completions)


HOOKS = {"_calculate_rewards": 4, "_generate_and_score_completions": 1}  # method: arguments after self

# Why a spec cannot be used in other trainers of TRL that users may try.
OTHERS = {
    "A2POTrainer": "it compares one completion with its prompt's optimal value, which it estimates beforehand",
    "AsyncGRPOTrainer": "its advantages are computed in a rollout worker, one group at a time; use "
    "`rewardspec.adapters.trl_async.RewardSpecAsyncGRPOTrainer`",
    "DistillationTrainer": "it learns from a teacher's probabilities, and has no rewards",
    "KTOTrainer": "it learns from labelled completions, and has no advantages",
    "DPOTrainer": "it learns from pairs of completions, and has no advantages",
    "OnlineDPOTrainer": "it learns from pairs of completions, and has no advantages",
}


def check_trainer(made: type, mixin: type, supported: tuple[type, ...], tested: str) -> None:
    """Raise BindingError, when a class is defined, unless the trainer after the mixin can use a spec.

    made: the class; a mixin of mixins without a trainer is ignored. tested: a remark on the version of TRL.
    """
    below = [base for base in made.__mro__ if not issubclass(base, mixin)]
    trainer = next((base for base in below if base.__name__.endswith("Trainer") and hasattr(base, "train")), None)
    if trainer is not None and not issubclass(made, supported):
        known = next((OTHERS[base.__name__] for base in below if base.__name__ in OTHERS), None)
        absent = [hook for hook in HOOKS if not any(hook in vars(base) for base in below)]
        if known or absent:
            reason = known or "it has no " + " and no ".join(f"`{hook}`" for hook in absent)
            names = " and ".join(f"`{base.__name__}`" for base in supported)
            raise BindingError(
                f"{made.__name__}: {names} and their subclasses can use a spec, but not "
                f"`{trainer.__name__}`: {reason}{tested}"
            )
    if not any(hook in vars(base) for base in below for hook in HOOKS):
        return  # a mixin still
    for hook, count in HOOKS.items():
        method = getattr(super(mixin, made), hook, None)
        if method is None and any(hook in vars(base) for base in below):
            raise BindingError(f"{made.__name__}: {mixin.__name__} must come before the trainer that it changes")
        if method is None:
            raise BindingError(f"{made.__name__} has no `{hook}` to hook into{tested}")
        try:
            inspect.signature(method).bind(None, *range(count))
        except TypeError:
            raise BindingError(
                f"`{hook}` of {made.__name__} takes {inspect.signature(method)}, and TRL's takes {count} arguments"
                f"{tested}"
            ) from None


def reward_names(trainer, known: Iterable[str]) -> list[str]:
    """The name of each reward function in a spec with these names; in names of models `_` replaces other characters."""
    return [name if name in known else as_name(name) for name in trainer.reward_func_names]


def all_weights(spec: Spec, weights: list[float], passed: int, functions: int) -> list[float]:
    """`reward_weights` of the `passed` functions, extended to all functions; `check_settings` checks the values.

    Raises BindingError for another number of weights.
    """
    if len(weights) == passed:
        return [*weights, *[1.0] * (functions - passed)]
    added = f", and {functions - passed} of {spec.name} after them" if functions > passed else ""
    raise BindingError(
        f"`reward_weights` has {len(weights)} values for {passed} reward functions{added}: remove it and give "
        "components a `weight:`"
    )


def check_settings(trainer, spec: Spec, move_rows: bool) -> None:
    """Raise BindingError, with a line for each setting that would be ignored or contradicts the spec."""
    args, problems = trainer.args, []
    for name, defaults, instead in STOCK:
        value = getattr(args, name, defaults[0])
        if name == "reward_weights" and value is not None and all(weight == 1 for weight in value):
            continue  # as without it
        if value not in defaults:
            problems.append(
                f"`{name}={value!r}` has no effect on the advantages of {spec.name}: remove it and {instead}"
            )
    if trainer._name == "RLOO" and trainer.beta != 0 and spec.program.copies is not None:
        problems.append(
            f"`beta={trainer.beta}`: RLOO has its KL penalty in the reward, and {spec.name} draws groups again, for "
            "which TRL has no such penalty; set `beta=0.0`, or train with GRPO, which has it in the loss"
        )
    if spec.condition is not None and getattr(trainer, "use_vllm", False) and trainer.vllm_mode == "server":
        problems.append(
            "`vllm_mode='server'` generates every completion of a group from one prompt, but the reward tokens of "
            f"{spec.name} differ within a group; use `vllm_mode='colocate'`"
        )
    if move_rows and spec.program.copies is None:
        problems.append(f"`move_rows=True`: {spec.name} has no `refill`, so no row would move")
    level = spec.program.advantage.level
    if level.listed and trainer._name == "RLOO":
        problems.append(
            f"the advantage of {spec.name} is of the list `{level.name}`, but RLOO has one probability ratio and one "
            "advantage for each rollout: train with GRPO, or reduce the list in the spec: `sum(x, over=rollout)`"
        )
    measured = "tokens" in spec.needs and "tokens" not in reward_names(trainer, spec.columns)
    tools = getattr(trainer, "tools", None) or getattr(trainer, "rollout_func", None)
    if measured and tools and args.mask_truncated_completions:
        problems.append(
            "`mask_truncated_completions=True` hides which tokens of a completion are a tool's, so `tokens` cannot "
            "be counted; pass a reward function called `tokens`, or remove that setting"
        )
    turns = lists_of_turns(spec)
    if turns and tools and args.mask_truncated_completions:
        problems.append(
            "`mask_truncated_completions=True` hides which tokens of a completion are a tool's, so the items of "
            f"`{turns[0]}` cannot be counted; read a column of that list, or remove that setting"
        )
    if problems:
        raise BindingError("\n".join(problems))


def check_columns(trainer, spec: Spec) -> None:
    """Raise BindingError unless every column of the spec has one source, in training and in evaluation."""
    rewards = [name for name in reward_names(trainer, spec.columns) if name != no_reward.__name__]
    sets = _data_sets(trainer)
    removes = bool(trainer.args.remove_unused_columns)
    found = {label: columns_of(data, removes) for label, data in sets.items()}
    in_training = found["train_dataset"]
    open_ended = in_training is None or getattr(trainer, "rollout_func", None) is not None  # known in the first batch
    names = set() if in_training is None else in_training
    check_ambiguous(spec, rewards, names)
    try:
        check_rewards(spec, rewards, {*names, *AUTOMATIC, *(spec.columns if open_ended else ())}, "reward function")
    except BindingError as error:
        raise BindingError(str(error) + _removed(trainer, spec, rewards)) from None
    problems = []
    functions = dict(zip(reward_names(trainer, spec.columns), trainer.reward_funcs, strict=True))
    for name in spec.columns:
        column = spec.program.columns[name]
        listed = column.level.listed
        wanted = "id" if column.domain.ids else "name" if column.domain.nominal else "number"
        if name in rewards:
            if listed and isinstance(functions[name], torch.nn.Module):
                problems.append(
                    f"reward model `{name}` returns one number for each rollout, but {spec.name} declares it of the "
                    f"list `{column.level.name}`"
                )
            elif wanted != "number" and not listed:  # TRL makes a tensor of them, except of lists
                problems.append(f"reward function `{name}` returns numbers, but {spec.name} declares {wanted}s")
            continue
        if listed and name == "truncated" and name not in names and not open_ended:
            problems.append(f"`truncated` is one value a rollout: declare it without `level: {column.level.name}`")
        for label, columns in found.items():
            if columns is not None and name not in columns and name not in AUTOMATIC and not open_ended:
                problems.append(f"`{label}` has no column `{name}`, which {spec.name} reads")
            elif columns is not None and name in columns and not _plain(sets[label], name, wanted, listed):
                form = f"a list of {wanted}s" if listed else f"one {wanted}"
                problems.append(f"column `{name}` of `{label}` holds {sets[label].features[name]}, not {form} a row")
    for name, field in _fields(trainer, spec):
        for label, columns in found.items():
            if columns is not None and field not in columns and not open_ended:
                gone = field in (sets[label].column_names or ())
                fix = "set `remove_unused_columns=False`" if gone else f"name its column: `with: {{{field}: COLUMN}}`"
                problems.append(f"`{label}` has no column `{field}`, which the reward function `{name}` reads; {fix}")
    if problems:
        raise BindingError("\n".join(problems))


def _fields(trainer, spec: Spec) -> list[tuple[str, str]]:
    """(column of the spec, column of the data set) pairs that the spec's reward functions require."""
    functions = [function for function in trainer.reward_funcs if getattr(function, "needs", None)]
    return [(f.__name__, field) for f in functions for field in f.needs if f.__name__ in spec.uses and field not in OWN]


def check_ambiguous(spec: Spec, rewards: list[str], names: set[str]) -> None:
    """Raise BindingError if a column of the spec has two sources."""
    problems = []
    for name in spec.columns:
        if name in names and name in rewards and name not in spec.uses:  # the spec's own function has precedence
            problems.append(f"`{name}` is a reward function and a column of the data set: rename one of them")
        elif name in names and name in AUTOMATIC:
            problems.append(f"`{name}` is a column of the data set, and the trainer measures it too: rename the column")
    if problems:
        raise BindingError("\n".join(problems))


def _data_sets(trainer) -> dict[str, Any]:
    evaluation = trainer.eval_dataset
    if evaluation is None:
        return {"train_dataset": trainer.train_dataset}
    if not isinstance(evaluation, dict):
        return {"train_dataset": trainer.train_dataset, "eval_dataset": evaluation}
    return {"train_dataset": trainer.train_dataset, **{f"eval_dataset[{k!r}]": v for k, v in evaluation.items()}}


def columns_of(data, removes: bool) -> set[str] | None:
    """The columns that reach the trainer; None if unknown before the first row."""
    if data.column_names is None:
        return None
    return set() if removes else {name for name in data.column_names if name not in OWN}


def _plain(data, name: str, wanted: str, listed: bool = False) -> bool:
    """Whether each row of a column has one number (or truth value), name or id; or a list of them."""
    features = getattr(data, "features", None) or {}
    if name not in features:
        return True
    names, numbers = ("string", "large_string"), ("int", "uint", "float", "bool", "decimal")
    kinds = {"name": names, "number": numbers, "id": names + numbers}[wanted]
    feature = features[name]
    if listed:  # `Sequence` of older versions, and a list with one feature, are lists too
        inner = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", None)
        if inner is None:
            return str(getattr(feature, "dtype", "")) == "null"
        feature = inner
    return str(getattr(feature, "dtype", "")).startswith((*kinds, "null"))


def _removed(trainer, spec: Spec, rewards: list[str]) -> str:
    """A line about the columns that `remove_unused_columns` removes."""
    names = trainer.train_dataset.column_names or ()
    gone = [name for name in spec.columns if name in names and name not in rewards]
    if not trainer.args.remove_unused_columns or not gone:
        return ""
    return f"\nthe data set has {', '.join(f'`{n}`' for n in gone)}: set `remove_unused_columns=False`"
