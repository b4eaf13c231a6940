"""The rows of a TRL generation batch, moved as a spec's `refill` requires."""

from __future__ import annotations

import torch

from rewardspec.adapters.common.binding import BindingError

# Tensors with a row for each rollout: the padding value (None: the padding token), and whether padding comes first.
PADDING = {
    "prompt_ids": (None, True),
    "prompt_mask": (0, True),
    "completion_ids": (None, False),
    "completion_mask": (0, False),
    "old_per_token_logps": (0.0, False),
    "ref_per_token_logps": (0.0, False),
    "sampling_per_token_logps": (0.0, False),
    "importance_sampling_ratio": (1.0, False),
    "tool_mask": (1, False),
    "old_logps": (0.0, False),
}


def moved(out: dict, rows: torch.Tensor, accelerator, padding_token: int) -> dict:
    """The batch of this process, except its advantages, with row `rows[i]` of all processes at place i.

    rows: of all processes, [N], equal on each of them. Rows are padded to the longest of any process, and tokens are
    counted again.
    """
    n, index = len(out["advantages"]), accelerator.process_index
    assert len(rows) == n * accelerator.num_processes, "groups of one size are refilled to as many rows"
    device = out["advantages"].device
    rows, found = rows.to(device), dict(out)
    if torch.equal(rows, torch.arange(len(rows), device=device)):
        return found
    rows = rows[index * n : (index + 1) * n]
    for name, value in out.items():
        if name in PADDING:
            fill, first = PADDING[name]
            fill = padding_token if fill is None else fill
            if value.dim() > 1:
                value = accelerator.pad_across_processes(value, dim=1, pad_index=fill, pad_first=first)
            found[name] = accelerator.gather(value.contiguous())[rows]
        elif name not in ("advantages", "num_items_in_batch"):
            raise BindingError(
                f"`move_rows=True` cannot move `{name}`: remove the option to weight the same groups instead"
            )
    if "num_items_in_batch" in out:
        mask = found["completion_mask"] * found.get("tool_mask", 1)
        found["num_items_in_batch"] = accelerator.gather(mask.sum()).sum()
    return found
