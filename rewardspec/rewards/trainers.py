"""The reward functions of a spec, as each trainer wants to be given them.

Each takes a loaded Spec, evaluates every function once a rollout, and gives what the spec's columns are called.
Functions of the user's own (`python:`) need a permission: `allow_python=True` for all that the spec names, or names of
modules, packages or `module:function`; or `functions=`, by column, to be used as they are. Else they raise NotAllowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock

from rewardspec.rewards.permission import Allowed
from rewardspec.rewards.reward import ScoringError
from rewardspec.rewards.scorer import Scorer
from rewardspec.text.diagnostics import shorten

AUTOMATIC = ("tokens", "truncated")  # columns that trainers measure themselves
LEAST = 8  # characters of a prompt's end that tell where it ends
_END = re.compile(r"<[|｜][^<>|｜\s]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>|<pad>")


def for_trl(
    spec,
    *,
    allow_python: Allowed = False,
    functions: Mapping[str, Callable] = {},
    only: Collection[str] | None = None,
) -> list[Callable[..., list[float | None]]]:
    """`reward_funcs` for TRL: a function for each column, in the order of the spec, named as the column is.

    Each takes `prompts`, `completions` and the data set's columns and gives a number or None a completion. The
    first that is called on a batch measures all of it. only: the columns wanted, where others are measured elsewhere.
    Raises ScoringError.
    """
    batch = _Batch(_scorer(spec, allow_python, functions, only))
    return [batch.function(name) for name in batch.scorer.names]


def _scorer(spec, allow_python: Allowed, functions: Mapping[str, Callable], only=None) -> Scorer:
    if not spec.uses and not {*spec.columns} <= {*AUTOMATIC}:
        raise ScoringError(f"{spec.name} names no reward function: add `use: toolrl.format`, say, to a component")
    return Scorer(spec, allow_python, functions, only)


class _Batch:
    """The last batch that was measured: TRL calls each function once, one after the other, on the same lists."""

    def __init__(self, scorer: Scorer):
        self.scorer, self.lock = scorer, Lock()
        self.completions: object = None  # held, so that no other list can be taken for it
        self.rows: list[Mapping[str, float | None]] = []
        self.given: set[str] = set()  # functions that gave their values of it: one that is called again measures again

    def function(self, name: str) -> Callable[..., list[float | None]]:
        def reward_func(prompts: Sequence, completions: Sequence, **columns) -> list[float | None]:
            with self.lock:
                if completions is not self.completions or name in self.given:
                    self.rows = self.scorer.required(_rows(prompts, completions, columns))
                    self.completions, self.given = completions, set()
                self.given.add(name)
                return [row[name] for row in self.rows]

        reward_func.__name__ = reward_func.__qualname__ = name
        reward_func.needs = self.scorer.needs[name]
        return reward_func


def _rows(prompts: Sequence, completions: Sequence, columns: Mapping) -> list[dict]:
    held = {
        name: values
        for name, values in columns.items()
        if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == len(completions)
    }
    return [
        {**{name: values[i] for name, values in held.items()}, "prompt": prompts[i], "completion": completions[i]}
        for i in range(len(completions))
    ]


def for_verl(
    spec, *, allow_python: Allowed = False, functions: Mapping[str, Callable] = {}
) -> Callable[..., dict[str, float | None]]:
    """`compute_score` for verl: a dict with a value for each column, and `score`, which verl wants.

    The ground truth is the column `answer`, whatever `extra_info` holds by that name; `extra_info` holds all others.
    A prompt is among those alone: where it is called otherwise, a spec has `with: {prompt: question}`. A value that
    is missing is None. `score` is the spec's weighted total as far as one rollout tells it (`Spec.weighed`), for
    verl's own tables: no advantage is worked out from it. Raises ScoringError.
    """
    scorer = _scorer(spec, allow_python, functions)
    weigh = _weighed(spec, [*scorer.names, "data_source"])

    def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_) -> dict[str, float | None]:
        known = {"answer": ground_truth, "ground_truth": ground_truth, "data_source": data_source}
        (found,) = scorer.required([{**(extra_info or {}), **known, "completion": solution_str}])
        return {"score": weigh([{**known, **found}])[0], **found}

    compute_score.spec = spec  # for the adapter, which compares it with the run's
    return compute_score


def for_openrlhf(
    spec,
    ends: Sequence[str] | None = None,
    *,
    allow_python: Allowed = False,
    functions: Mapping[str, Callable] = {},
) -> Callable[..., dict]:
    """`reward_func` for OpenRLHF: tensors [N] of every column under `extra_logs`.

    A query is a prompt and its completion with the tokens that end it, which are taken off. ends: their texts, as in
    `tokenizer.all_special_tokens`; where nothing is said, what looks like one, such as `<|im_end|>` or `</s>`. Of a
    prompt that was cut off at its beginning the rest is enough.
    The label is the column `answer`. `rewards` and `scores` are the spec's weighted total as far as one rollout
    tells it (`Spec.weighed`), for OpenRLHF's own tables: no advantage is worked out from it. Raises ScoringError.
    """
    scorer = _scorer(spec, allow_python, functions)
    weigh = _weighed(spec, scorer.names)

    def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence, **_) -> dict:
        import torch

        rows = [
            {"prompt": prompt, "completion": _ended(_after(prompt, query), ends), "answer": label, "label": label}
            for query, prompt, label in zip(queries, prompts, labels, strict=True)
        ]
        found = scorer.required(rows)
        totals = torch.tensor(weigh(found))
        logs = {
            name: torch.tensor([math.nan if values[name] is None else values[name] for values in found])
            for name in scorer.names
        }
        return {"rewards": totals, "scores": totals, "extra_logs": logs}

    reward_func.spec = spec  # for the adapter, which compares it with the run's
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
    """What follows the prompt, or as much of its end as the query begins with. Raises ScoringError."""
    whole = query.find(prompt, 0, len(prompt) + 64)  # a token may stand before it
    if whole >= 0:
        return query[whole + len(prompt) :]
    least = prompt[-LEAST:]
    at = query.rfind(least, 0, len(prompt))
    while at >= 0:
        if prompt.endswith(query[: at + len(least)]):
            return query[at + len(least) :]
        at = query.rfind(least, 0, at + len(least) - 1)
    raise ScoringError(
        f"the query does not begin with its prompt, so its completion cannot be told apart: {shorten(query)!r} does "
        f"not begin with {shorten(prompt)!r}"
    )


def _weighed(spec, columns: Sequence[str]) -> Callable[[Sequence[Mapping]], list[float]]:
    """The weighted total of rows that hold these columns, as far as they tell it; 0 where they tell nothing."""
    columns = [name for name in columns if name in spec.columns]
    totals = spec.weighed(columns)

    def weigh(rows: Sequence[Mapping]) -> list[float]:
        if totals is None or not rows:
            return [0.0] * len(rows)
        return totals({name: [row[name] for row in rows] for name in columns})

    return weigh
