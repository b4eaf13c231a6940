"""The prompts and responses of a verl batch as texts, for the rollout log."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch

from rewardspec.logs.rollout_table import Texts

TOKENIZER = "_rewardspec_tokenizer"  # the attribute of a trainer


def texts_of(trainer, tokens: Mapping[str, Sequence[torch.Tensor]]) -> Mapping[str, Texts]:
    """Functions to the texts of token ids, without special tokens. tokens: by name, of each rollout.

    They are called by the thread that writes, with a copy of the trainer's tokenizer: two threads cannot use one.
    """
    if not hasattr(trainer, TOKENIZER):
        setattr(trainer, TOKENIZER, copy.deepcopy(trainer.tokenizer))
    tokenizer = getattr(trainer, TOKENIZER)

    def decoded(rows: Sequence[torch.Tensor]) -> Callable[[], list[str]]:
        return lambda: tokenizer.batch_decode([row.tolist() for row in rows], skip_special_tokens=True)

    return {name: decoded(rows) for name, rows in tokens.items()}
