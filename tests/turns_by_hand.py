"""Advantages of turns and of their tokens, by loops in NumPy; the stretches of tokens come from TRL's own masks."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from trl_runs import called, digit


def runs_of(out):
    """The places of each stretch that the model wrote, for every rollout, from TRL's own masks."""
    mask = out["completion_mask"] * out.get("tool_mask", torch.ones_like(out["completion_mask"]))
    return [
        [list(run) for written, run in itertools.groupby(range(len(row)), key=row.__getitem__) if written]
        for row in mask.tolist()
    ]


def on_tokens(items, out):
    """[B, T] from a list of advantages for each rollout."""
    found = np.zeros(tuple(out["completion_ids"].shape))
    for row, (values, runs) in enumerate(zip(items, runs_of(out), strict=True)):
        assert len(values) == len(runs)
        for value, run in zip(values, runs, strict=True):
            found[row, run] = value
    return found


def assert_on_tokens(out, items):
    advantages = out["advantages"]
    assert advantages.dtype == torch.float32
    np.testing.assert_allclose(advantages.numpy(), on_tokens(items, out), rtol=0, atol=1e-6)


def zscores(values, size):
    """z-scores of lists of values, pooled over groups of `size` lists."""
    found = []
    for start in range(0, len(values), size):
        group = values[start : start + size]
        pool = np.array([v for row in group for v in row], dtype=np.float64)
        std = pool.std(ddof=1) if len(pool) > 1 else 0.0
        found += [[(v - pool.mean()) / (std + 1e-6) if std > 1e-9 else 0.0 for v in row] for row in group]
    return found


def returns(values, gamma):
    return [sum(gamma**d * v for d, v in enumerate(values[k:])) for k in range(len(values))]


def turns_by_hand(rows, completions, size=4):
    """The advantages of `trl_runs.TURNS`: a list for each rollout."""
    outcome = zscores([[v] for v in digit(completions)], size)
    tool = zscores(called([row["turns"] for row in rows]), size)
    cheap = zscores([returns(row["cost"], 0.5) for row in rows], size)
    return [
        [o + 0.5 * t - 0.25 * c for t, c in zip(*both, strict=True)]
        for (o,), *both in zip(outcome, tool, cheap, strict=True)
    ]
