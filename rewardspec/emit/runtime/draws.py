"""Drawing groups again."""

import torch

from rewardspec.emit.runtime.columns import RolloutError
from rewardspec.emit.runtime.philox import uniforms


def draw_copies(batch, kept, score):
    """How often each group is in the batch: 2 for a kept group that is drawn once, 0 for one that is not kept.

    kept, score: of each group. The draws fill the places of dropped groups: from the kept groups, with replacement,
    with probability softmax(score). They run on the CPU in order of first appearance, with scores rounded to 2^-16,
    so rounding on different devices seldom changes them.
    """
    if batch.step is None:
        raise RolloutError("the spec draws groups (`refill`): pass `step=`")
    batch.look_at(kept)
    batch.refuse(torch.isnan(score) & kept, "`refill` is missing")
    batch.refuse(torch.isinf(score) & kept, "`refill` is infinite")
    standing = batch.in_order(kept).cpu()
    left, rows = int((~standing).sum()), standing.nonzero().reshape(-1)
    copies = standing.double()
    if left and len(rows):
        scores = batch.in_order(score).double().cpu()[rows].nan_to_num()
        upto = torch.softmax((scores * 2**16).round() / 2**16, 0).cumsum(0)
        u = torch.tensor(uniforms(left, batch.seed, batch.step, 0), dtype=torch.float64, device="cpu")
        drawn = torch.searchsorted(upto, u * upto[-1], right=True).clamp_(max=len(rows) - 1)
        copies += torch.bincount(rows[drawn], minlength=len(copies))
    return batch.from_order(copies.to(batch.device, batch.dtype))
