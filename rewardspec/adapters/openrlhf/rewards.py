"""`for_openrlhf`: the reward functions of a spec for OpenRLHF."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rewardspec.adapters.common.rewards import scorer_of, weighed
from rewardspec.rewards.reward import ScoringError
from rewardspec.scoring.permission import Allowed
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import shorten

LEAST = 8  # characters at the end of a prompt that are enough to find its end
_END = re.compile(r"<[|｜][^<>|｜\s]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>|<pad>")


def for_openrlhf(
    spec: Spec,
    ends: Sequence[str] | None = None,
    *,
    allow_python: Allowed = False,
    functions: Mapping[str, Callable] = {},
) -> Callable[..., dict]:
    """`reward_func` for OpenRLHF: tensors [N] of every column under `extra_logs`; of a list's level N lists.

    A query is a prompt and its completion with end tokens, which are removed. ends: the texts of end tokens, as in
    `tokenizer.all_special_tokens`; by default any text that looks like one, such as `<|im_end|>` or `</s>`. The prompt
    in a query may be cut off at its beginning.
    The label is the column `answer`. `rewards` and `scores` are the weighted total as far as one rollout decides it
    (`Spec.weighed`), for OpenRLHF's own logs: no advantage is computed from it. Lists need the adapter: OpenRLHF itself
    logs one number for each rollout. Raises ScoringError.
    """
    scorer = scorer_of(spec, allow_python, functions)
    weigh = weighed(spec, scorer.names)

    def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence, **_) -> dict:
        import torch

        rows = [
            {"prompt": prompt, "completion": _ended(_after(prompt, query), ends), "answer": label, "label": label}
            for query, prompt, label in zip(queries, prompts, labels, strict=True)
        ]
        found = scorer.required(rows)
        totals = torch.tensor(weigh(found))
        logs: dict[str, Any] = {name: [values[name] for values in found] for name in scorer.names}
        for name in scorer.names:
            if scorer.uses[name].of is None:
                logs[name] = torch.tensor([math.nan if value is None else value for value in logs[name]])
        return {"rewards": totals, "scores": totals, "extra_logs": logs}

    reward_func.spec = spec  # type: ignore[attr-defined]  # for the adapter, which compares it with the run's
    return reward_func


def _ended(completion: str, ends: Sequence[str] | None) -> str:
    """A completion without the tokens that end it."""
    stop = len(completion)
    while stop:
        if ends is None:
            start = completion.rfind("<", max(0, stop - 48), stop)
            length = stop - start if start >= 0 and _END.fullmatch(completion, start, stop) else 0
        else:
            length = max((len(end) for end in ends if end and completion.endswith(end, 0, stop)), default=0)
        if not length:
            break
        stop -= length
    return completion[:stop]


def _after(prompt: str, query: str) -> str:
    """The text after the prompt, or after the end of a prompt that was cut off. Raises ScoringError."""
    whole = query.find(prompt, 0, len(prompt) + 64)  # a token may come before it
    if whole >= 0:
        return query[whole + len(prompt) :]
    least = prompt[-LEAST:]
    at = query.rfind(least, 0, len(prompt))
    while at >= 0:
        if prompt.endswith(query[: at + len(least)]):
            return query[at + len(least) :]
        at = query.rfind(least, 0, at + len(least) - 1)
    raise ScoringError(
        f"the query does not begin with its prompt, so its completion cannot be separated: {shorten(query)!r} does "
        f"not begin with {shorten(prompt)!r}"
    )
