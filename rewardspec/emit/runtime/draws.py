"""Drawing groups again."""

import torch

from rewardspec.emit.runtime.columns import RolloutError
from rewardspec.emit.runtime.philox import uniforms


def draw_copies(batch, kept, score):
    """How often each group stands in the batch: once if it is kept, and once more each time it is drawn.

    As many groups are drawn as were left out, from those kept, with replacement and probability
    softmax(score), in order of the groups' first appearance. All of it is done on the CPU, with scores
    read to 2^-16, so that what differs in the last places between devices draws the same groups.
    """
    if batch.step is None:
        raise RolloutError("the spec draws groups (`refill`): pass `step=`")
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
