"""Kernels: [groups, size] to [groups, 1] or [groups, size]. They compute in float64."""

import math

import torch

from rewardspec.emit.runtime.once import _is_zero


def deviations(x, mask):
    """x - mean (0 outside the mask), the first value, mean - first, and the count.

    The first value is subtracted before the mean is computed: equal values then deviate by exactly 0, and a large
    offset costs no digits.
    """
    if mask is None:
        first = x[..., :1].double()
        deviation = x.double() - first
        shift = deviation.mean(-1, keepdim=True) if x.shape[-1] else deviation.sum(-1, keepdim=True)
        return deviation.sub_(shift), first, shift, x.shape[-1]
    chosen = x.gather(-1, mask.int().argmax(-1, keepdim=True)) if x.shape[-1] else x.sum(-1, keepdim=True)
    first = torch.where(mask.any(-1, keepdim=True), chosen, 0.0).double()
    deviation = torch.where(mask, x.double() - first, 0.0)
    count = mask.sum(-1, keepdim=True).double()
    shift = deviation.sum(-1, keepdim=True) / count.clamp(min=1.0)
    return torch.where(mask, deviation - shift, 0.0), first, shift, count


def spread_out(deviation, norm, count, rounding, size, bound=None, unread=None):
    """[..., 1], which groups have spread: max - min > rounding * size.

    norm: sqrt of the sum of the squared deviations. size: function to [..., 1], the largest magnitude among the
    summands of a group's values. bound: an upper bound of it, where that takes long.

    norm <= sqrt(count) / 2 * (max - min), so a large norm proves spread. Only the other groups need their extent.
    """
    most = size() if bound is None else bound
    sure = ~(norm <= rounding * (count**0.5 / 2) * most)  # NaN counts as spread, so that it is reported
    unsure = (norm > 0) & ~sure
    if bound is not None:
        if unread is not None:
            unread.append((unsure.any(), _is_zero))
            return sure
        if not bool(unsure.any()):
            return sure
        most = size()
    low, high = torch.aminmax(deviation, dim=-1, keepdim=True) if deviation.shape[-1] else (norm, norm)
    return sure | unsure & (high - low > rounding * most)


def spread_of(x, mask, ddof, summands=None, bound=None, centered=False, rounding=None, unread=None):
    """Deviations from the mean, the standard deviation, and which groups have spread.

    summands: function to the largest magnitude that each value was summed from. Without it the values were not
    summed: rounding is a few units in the last place of the first value of the group.
    """
    if centered and mask is None:  # the mean is 0 by construction
        deviation, first, count = x, x[..., :1], x.shape[-1]
    else:
        deviation, first, _, count = deviations(x, mask)
        if centered:
            deviation = torch.where(mask, x.double(), 0.0)
    norm = torch.linalg.vector_norm(deviation, dim=-1, keepdim=True, dtype=torch.float64)
    if summands is None:
        size, rounding = first.double().abs, 4 * torch.finfo(x.dtype).eps
    else:
        size = lambda: within(mask, summands().double()).amax(-1, keepdim=True)  # noqa: E731
    bound = None if bound is None else bound * count**0.5
    alive = spread_out(deviation, norm, count, rounding, size, bound, unread)
    divisor = (count - ddof).clamp(min=1.0) if mask is not None else max(count - ddof, 1)
    return deviation, norm / divisor**0.5, alive


def within(mask, x):
    """`x` inside the mask, 0 outside."""
    return x if mask is None else torch.where(mask, x, 0.0)


def settle(deviation, kind):
    """Deviations, [..., G], with those within rounding of the group's largest set to exactly 0.

    In floats the mean of 0.1, 0.2 and 0.3 is not exactly 0.2. kind: the float type of the values.
    """
    size = deviation.abs()
    return deviation.masked_fill(size <= size.amax(-1, keepdim=True) * (4 * torch.finfo(kind).eps), 0.0)


def settled(batch, x, statistics, others=()):
    """`x`, a sum, with exact 0 where its terms cancel to within rounding of the largest.

    statistics: terms computed from a whole group, such as z-scores; their rounding is relative to the largest in
    the group. others: terms computed rollout by rollout.
    """
    largest_one = largest(*(batch.full(term) for term in statistics))
    size = batch.groups.map(lambda s, _: s.amax(-1, keepdim=True).expand(s.shape), largest_one)
    if others:
        size = largest(size, *others)
    return torch.where(x.abs() < 4 * torch.finfo(x.dtype).eps * size, 0.0, x)


def only(alive, x):
    """`x` where a group has spread (None: all), 0 elsewhere."""
    return x if alive is None else torch.where(alive, x, 0.0)


def group_mean(x, mask):
    _, first, shift, count = deviations(x, mask)
    mean = first + shift
    return (mean if mask is None else torch.where(count > 0, mean, float("nan"))).to(x.dtype)


def group_sum(x, mask):
    wide = x.double() if mask is None else torch.where(mask, x.double(), 0.0)
    return wide.sum(-1, keepdim=True).to(x.dtype)


def group_std(x, mask, ddof=1, **sums):
    """Standard deviation; 0 for fewer than two values, with any ddof."""
    _, std, alive = spread_of(x, mask, ddof, **sums)
    return only(alive, std).to(x.dtype)


def group_var(x, mask, ddof=1, **sums):
    _, std, alive = spread_of(x, mask, ddof, **sums)
    return only(alive, std.square()).to(x.dtype)


def group_std_others(x, mask, ddof=1, **sums):
    """For each value the standard deviation of the other values; 0 where they are equal, NaN outside the mask.

    The sum of squares of the others is the group's sum minus the value's own part. For the value furthest out that
    difference could lose all digits, so its others are summed directly.
    """
    deviation, std, alive = spread_of(x, mask, 0, **sums)
    inside = torch.ones_like(x, dtype=torch.bool) if mask is None else mask
    count = inside.sum(-1, keepdim=True).double()
    others = count - 1
    squares = std.square() * count - deviation.square() * count / others.clamp(min=1.0)
    result = only(alive, (squares.clamp(min=0.0) / (others - ddof).clamp(min=1.0)).sqrt())
    furthest = deviation.abs().argmax(-1, keepdim=True)
    rest = inside.scatter(-1, furthest, False)
    _, std, alive = spread_of(x, rest, ddof, **sums)
    alike = x == x.gather(-1, furthest)  # all of them have the same others
    result = torch.where(others > 1, torch.where(alike, only(alive, std), result), 0.0)
    return torch.where(inside, result, float("nan")).to(x.dtype)


def group_zscore(x, mask, eps=0.0, ddof=1, centered=False, **sums):
    """(x - mean) / (std + eps); exactly 0 without spread and outside the mask.

    centered: the mean is 0 by construction and is not subtracted, so zeros stay exactly 0.
    """
    deviation, std, alive = spread_of(x, mask, ddof, centered=centered, **sums)
    factor = only(alive, (std + eps).clamp_(min=1e-300).reciprocal_())
    return ((deviation if centered else settle(deviation, x.dtype)) * factor).to(x.dtype)


def whitened(batch, x, bound, eps=0.0, ddof=1, summands=None):
    """`group_zscore` over the batch, of values whose mean is 0 by construction.

    Summands in a group of G are at most `bound` * sqrt(G), so a large norm proves spread.
    """
    norm = torch.linalg.vector_norm(x.double())
    proof, root = batch.groups.rounding / 2 * bound * batch.n, max(batch.n - ddof, 1) ** 0.5
    if batch.unread is not None:
        batch.unread.append((norm, lambda found: (found > proof) & (found < math.inf) | (found == 0)))
        batch.finite = x / (norm / root).add_(eps or torch.finfo(x.dtype).tiny)  # at most `root`
        return batch.finite
    norm = norm.item()
    if norm > proof:
        return x / (norm / root + eps)
    return batch.rollouts.map(group_zscore, x, eps=eps, ddof=ddof, centered=True, bound=bound, summands=summands)


def group_center(x, mask, **sums):
    """x - mean; exactly 0 without spread and outside the mask."""
    deviation, _, alive = spread_of(x, mask, 0, **sums)
    return only(alive, settle(deviation, x.dtype)).to(x.dtype)


def group_min(x, mask):
    if mask is None:
        return x.amin(-1, keepdim=True)
    least = torch.where(mask, x, float("inf")).amin(-1, keepdim=True)
    return torch.where(mask.any(-1, keepdim=True), least, float("nan"))


def group_max(x, mask):
    return -group_min(-x, mask)


def group_count(x, mask):
    if mask is None:
        return torch.full_like(x[..., :1], float(x.shape[-1]))
    return mask.sum(-1, keepdim=True).to(x.dtype)


def group_any(x, mask):
    return (x if mask is None else x & mask).any(-1, keepdim=True)


def group_all(x, mask):
    return (x if mask is None else x | ~mask).all(-1, keepdim=True)


def group_quantile(x, mask, q=0.5):
    """Linear interpolation between the two nearest values, as `torch.quantile`; NaN for no value."""
    x = x if mask is None else torch.where(mask, x, float("inf"))
    ordered = x.double().sort(-1).values
    count = torch.full_like(ordered[..., :1], x.shape[-1]) if mask is None else mask.sum(-1, keepdim=True).double()
    at = q * (count - 1).clamp(min=0.0)
    low = at.floor()
    high = torch.minimum(low + 1, (count - 1).clamp(min=0.0))
    below, above = ordered.gather(-1, low.long()), ordered.gather(-1, high.long())
    return torch.where(count > 0, below + (above - below) * (at - low), float("nan")).to(x.dtype)


def group_kth(x, mask, k=2):
    """The k-th largest value; NaN where there are fewer."""
    if x.shape[-1] < k:
        return x.new_full((*x.shape[:-1], 1), float("nan"))
    found = (x if mask is None else torch.where(mask, x, -float("inf"))).topk(k, -1).values[..., -1:]
    return found if mask is None else torch.where(mask.sum(-1, keepdim=True) >= k, found, float("nan"))


def group_rank(x, mask):
    """Rank from 1, the least; ties share the lowest rank. NaN outside the mask."""
    values = x if mask is None else torch.where(mask, x, float("inf"))
    ordered = values.sort(-1).values
    rank = torch.searchsorted(ordered.contiguous(), values.contiguous()).to(x.dtype) + 1
    return rank if mask is None else torch.where(mask, rank, float("nan"))


def binomial(n, k):
    """n! / (k! (n - k)!), elementwise in float64: exact up to 2^40, else to 1e-8 for n up to a million; 0 for k > n.

    Up to 32 factors are multiplied; each product is a whole number. Beyond that it is by logarithms.
    """
    kind = torch.result_type(n, k)
    n, k = (torch.as_tensor(x, dtype=torch.float64, device=(n if torch.is_tensor(n) else k).device) for x in (n, k))
    least = torch.minimum(k, n - k)
    rest, result = n - least, torch.ones_like(least)
    most = 33  # factors, and one more if logarithms are needed
    if least.device.type == "cpu" and not torch.compiler.is_compiling():  # a look at it costs nothing
        most = int(least.nan_to_num(nan=0.0).clamp(0, 33).max()) if least.numel() else 0
    for i in range(1, min(most, 32) + 1):
        result = torch.where(least >= i, result * (rest + i) / i, result)
    if most > 32:
        logs = torch.lgamma(n + 1) - torch.lgamma(least + 1) - torch.lgamma(rest + 1)
        result = torch.where(least > 32, logs.exp(), result)
    result = torch.where(least < 0, 0.0, result)
    return torch.where(torch.isnan(least), float("nan"), result).to(kind)


def largest(*summands):
    """The largest magnitude among the summands, elementwise; what is missing or infinite counts as 0.

    A division by 0 that no condition selects is such a term, and says nothing of the rounding of the others.
    """
    sizes = [torch.nan_to_num(s.abs(), nan=0.0, posinf=0.0) if torch.is_tensor(s) else abs(s) for s in summands]
    result = sizes[0]
    for size in sizes[1:]:
        if torch.is_tensor(result) and torch.is_tensor(size):
            result = torch.maximum(result, size)
        else:
            tensor, number = (result, size) if torch.is_tensor(result) else (size, result)
            result = tensor.clamp(min=number) if torch.is_tensor(tensor) else max(tensor, number)
    return result


def add_present(terms):
    """The sum of the present terms; missing where all are missing."""
    total, gone = 0.0, True
    for term in terms:
        missing = torch.isnan(term)
        total = total + torch.where(missing, 0.0, term)
        gone = missing & gone
    return torch.where(gone, float("nan"), total)
