"""A spec's results in TRL's metrics and in its table of completions."""

from __future__ import annotations

from rewardspec.adapters.common.rollout_log import PREFIX
from rewardspec.adapters.trl.checks import no_reward


def log_result(trainer, mode: str, logged: int, found: dict, result, advantages, penalty, tokens) -> None:
    """Replace TRL's metrics of a batch by those of the spec.

    logged: how many values the metric `reward` had before the batch. found: the spec's metrics. advantages: of all
    processes, [N]; where items of a list have them the mean of each rollout's. penalty: TRL's KL penalty in them, [N],
    or None. tokens: the name of each rollout's reward token, or None.
    """
    metrics = trainer._metrics[mode]
    metrics.pop("frac_reward_zero_std", None)  # of TRL's scheme, not of the spec's: see groups_without_signal
    for own, name in (("reward", "total"), ("reward_std", "total_std")):  # those that users log follow TRL's own
        metrics[own][logged] = found.get(PREFIX + name, float("nan"))
    for name, value in found.items():
        metrics[name].append(value)
    for name in ("mean", "std"):  # the placeholder for reward functions measures nothing
        metrics.pop(f"rewards/{no_reward.__name__}/{name}", None)
    trainer._logs["rewards"].pop(no_reward.__name__, None)

    held, values = trainer._logs["advantages"], advantages.tolist()
    if len(values) >= len(held):
        held.clear()
    for _ in range(min(len(values), len(held))):
        held.pop()  # the trainer's own, of this batch
    held.extend(values)
    if trainer.log_completions:
        for name, column in _table(trainer.spec, result, len(values), penalty, tokens).items():
            trainer._logs["extra"][name].extend(column)


def _table(spec, result, n: int, penalty, tokens) -> dict[str, list]:
    """The columns of the table of completions, of n rollouts, in order; what a list's items have is a list for each."""
    program = spec.program
    found, levels = {}, {component.name: component.shaped.level for component in program.components}
    if program.advantage.level.listed:
        found["advantage"], levels["advantage"] = result.advantages, program.advantage.level
    if result.total is not None and "total" not in result.rewards:
        found["total"], levels["total"] = result.total, program.total.level
    found |= result.rewards
    for name, values in (result.shares or {}).items():
        found[f"share/{name}"], levels[f"share/{name}"] = values, program.advantage.level
    if penalty is not None:
        found["share/KL penalty"] = penalty
    if program.copies is not None:
        found["copies"] = result.copies.repeat_interleave(n // len(result.copies))
    lists = {name: values.tolist() for name, values in found.items()}
    for name, level in levels.items():
        if level.listed:
            lists[name] = [part.tolist() for part in found[name].split(result.lengths[level.name].tolist())]
    if tokens is not None:
        lists["token"] = tokens
    return {f"rewardspec/{name}": values for name, values in lists.items()}
