"""Weighted sums of z-scores, of all components together."""

import math

import torch

from rewardspec.emit.runtime.once import _is_zero
from rewardspec.emit.runtime.statistics import largest, only, spread_out


def weighted_zscores(batch, values, weights, eps=0.0, ddof=1, apart=0.0):
    """The sum of weight * z-score over the components, in one pass over the groups.

    values: of each component, for every rollout. weights: of each component, a number, [] or for every group.
    apart: the least distance between two declared values of a component, if all values are declared and at most
    1024 times that distance; else 0.
    """
    dtype, size = values[0].dtype, batch.groups.blocks[0][2] if batch.groups.dense else 0
    rounding, fixed = 4 * torch.finfo(dtype).eps, all([type(number) is float for number in (*weights, eps)])
    together = batch.binary_together(values) if fixed else None
    if together is not None:
        key = (*weights, eps, ddof)
        if key not in batch.constants:
            batch.constants[key] = _known(weights, size, eps, ddof, rounding, batch.device)
        x = together.to(torch.float64, copy=True) if dtype is torch.float64 else together.double()
        result = _binary_slab(x, weights, eps, ddof, rounding, batch.unread, *batch.constants[key])
        return result if result.dtype is dtype else result.float()  # faster than `to`
    weights = [w.reshape(-1, 1) if isinstance(w, torch.Tensor) and w.dim() else w for w in weights]
    slab = _weighted_slab, apart
    if fixed and batch.are_binary(values) and all([size < 2**24 for _, _, size in batch.groups.blocks]):
        slab = (_binary_slab,)
    blocks, start, parts = batch.groups.blocks, 0, []
    for block, (_, count, size) in zip(zip(*(batch.groups.split(x) for x in values), strict=True), blocks, strict=True):
        own = _of_groups(weights, start, start + count)
        parts.append(_weighted_block(slab, block, own, count, size, eps, ddof, rounding, batch.unread))
        start += count
    if batch.groups.dense:
        return parts[0]
    return torch.cat([part.reshape(-1) for part in parts]).reshape(batch.groups.shape)


def _of_groups(weights, start, stop):
    """The weights of some of the groups."""
    return [w[start:stop] if isinstance(w, torch.Tensor) and w.dim() else w for w in weights]


def _weighted_block(slab, values, weights, count, size, *options):
    """`weighted_zscores` of [P, G] values; on a CPU in slabs that fit the cache. slab: a function and its options."""
    dtype, most = values[0].dtype, max(1, 2**18 // max(1, len(values) * size))
    compute, *more = slab
    if count <= most or values[0].device.type != "cpu":
        return compute(torch.stack(values).double(), weights, *options, *more).to(dtype)
    step = math.ceil(count / math.ceil(count / most))  # slabs of about equal length
    result = torch.empty(count, size, dtype=dtype, device="cpu")
    room = torch.empty(len(values) * step * size, dtype=torch.float64, device="cpu")
    for start in range(0, count, step):
        stop = min(start + step, count)
        x = room[: len(values) * (stop - start) * size].view(-1, stop - start, size)
        torch.stack([value[start:stop] for value in values], out=x)
        result[start:stop] = compute(x, _of_groups(weights, start, stop), *options, *more)
    return result


def _weighted_slab(x, weights, eps, ddof, rounding, unread, apart):
    """`weighted_zscores` of x, [K, P, G] in float64. Overwrites x. Terms that cancel to within rounding give exactly 0.

    std = norm / root, so weight * deviation / (std + eps) = weight * root * deviation / (norm + eps * root).
    """
    root = max(x.shape[-1] - ddof, 1) ** 0.5
    factor = _norms(x, apart, rounding, unread).add_(eps * root or 1e-300).reciprocal_()
    for k, weight in enumerate(weights):
        factor[k].mul_(root * weight)
    x *= factor
    return _settled_sum(x, rounding)


def _settled_sum(terms, rounding):
    result = terms.sum(0)
    least = terms.abs_().amax(0).mul_(rounding)
    return result.mul_(result.abs().ge_(least))  # faster than a mask


def _norms(x, apart, rounding, unread):
    """Subtract the mean of each group of x, [K, P, G]; [K, P, 1] the norms of what is left, where it is no rounding."""
    size, first = x.shape[-1], None
    if not apart:
        first = x[..., :1].clone()
        x -= first  # groups of equal values are now exactly 0
    x -= x.sum(-1, keepdim=True).div_(max(size, 1))  # faster than `mean`
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if apart:  # different values have norm >= apart / sqrt(2); less is rounding of the mean
        return torch.threshold_(norm, apart / 2, math.inf)
    near = first.abs_() * (rounding * size**0.5 / 2)
    doubted = ((norm > near) != (norm > 0)).any()  # whether the spread of some group may be rounding
    if unread is not None:
        unread.append((doubted, _is_zero))
    elif bool(doubted):
        x *= only(spread_out(x, norm, size, rounding, lambda: first), torch.ones_like(norm))
    return norm


def _binary_slab(x, weights, eps, ddof, rounding, unread, table=None, every=None, doubtful=None, clear=False):
    """`_weighted_slab` of zeros and ones, with weights that are Python numbers.

    With n ones in a group, G * deviation = G * x - n and G * norm^2 = n * (G - n): whole numbers, so they are exact.
    table: the factors of all n, [G + 1], if they are known. every: None, or [G, 1] ones: on a CPU a product with these
    is a faster sum. doubtful: the `_doubtful_sums`, if they are known. clear: whether no sum can be between these.
    """
    size = x.shape[-1]
    ones = x.sum(-1, keepdim=True) if every is None else torch.matmul(x, every)
    if table is None:
        factor = _factors(ones, size, eps, ddof)
    else:
        counts = ones.long()
        factor = torch.take(table, counts.clamp_(0, size) if every is None else counts)  # a CPU refuses other numbers
    for k, weight in enumerate(weights):
        if weight != 1:
            factor[k].mul_(weight)
    terms = torch.sub(ones, x, alpha=size, out=x).mul_(factor)
    least, most = doubtful or _doubtful_sums(weights, size, eps, ddof, rounding)
    if not least:
        return _settled_sum(terms, rounding)
    result = terms.sum(0)
    if clear:  # no sum is near `most`, so it can be rounded first
        return torch.hardshrink(result.float() if rounding > 1e-9 else result, most)
    sure = torch.hardshrink(result, most)
    doubted = torch.linalg.vector_norm(torch.hardshrink(result, least).sub_(sure))
    if unread is not None:
        unread.append((doubted, _is_zero))
        return sure
    return sure if doubted.item() == 0 else _settled_sum(terms, rounding)


def _factors(ones, size, eps, ddof):
    """What n - G * x is multiplied with for its z-score, where n is the number of ones in a group of G."""
    root = max(size - ddof, 1) ** 0.5
    norm = torch.add(ones, ones, alpha=size - 1).addcmul_(ones, ones, value=-1).sqrt_()  # times sqrt(G)
    return norm.add_(eps * root * size**0.5 or 1e-300).reciprocal_().mul_(-root / size**0.5)


def _doubtful_sums(weights, size, eps, ddof, rounding):
    """The sizes of sums of z-scores of zeros and ones between which it takes their terms to say whether they are 0.

    A deviation that is not 0 is at least 1 / G, and a norm at most sqrt(G) / 2. So a term that is not 0 is at least
    `term`, and below root * weight. A sum below rounding * term is rounding, whatever its terms; above rounding times
    the largest it is none. (0, 0) where single terms may be in between.
    """
    sizes, root = [abs(weight) for weight in weights if weight] or [0.0], max(size - ddof, 1) ** 0.5
    term = min(sizes) * root / size / (size**0.5 / 2 + eps * root)
    most = rounding * max(sizes) * root
    return (rounding * term, most) if 1e-100 < most < term else (0.0, 0.0)


def _known(weights, size, eps, ddof, rounding, device):
    """What depends on the shape of groups alone: the last arguments of `_binary_slab`.

    Each term has one of 2 * G - 1 values. Sums of all terms are those of the first half of them and of the second.
    """
    ones = torch.arange(size + 1, dtype=torch.float64, device="cpu")
    table = _factors(ones, size, eps, ddof)
    least, most = _doubtful_sums(weights, size, eps, ddof, rounding)
    terms = torch.cat([ones.new_zeros(1), (ones * table)[1:-1], ((ones - size) * table)[1:-1]])
    clear, halves = least > 0 and len(terms) ** -(-len(weights) // 2) <= 2**16, []
    if clear:
        for part in (weights[: len(weights) // 2], weights[len(weights) // 2 :]):
            sums = ones.new_zeros(1)
            for weight in part:
                sums = torch.unique(sums[:, None] + weight * terms)
            halves.append(sums)
        one, other = halves
        for low, high in ((least / 1.01, most * 1.01), (-most * 1.01, -least / 1.01)):
            clear &= torch.equal(torch.searchsorted(one, low - other), torch.searchsorted(one, high - other))
    every = torch.ones(size, 1, dtype=torch.float64, device="cpu") if device.type == "cpu" else None
    return table.to(device, non_blocking=True), every, (least, most), clear


def largest_zscores(batch, values, weights, eps=0.0, ddof=1, apart=0.0):
    """The largest magnitude among the weighted z-scores, elementwise."""
    return largest(*(weighted_zscores(batch, [x], [w], eps, ddof, apart) for x, w in zip(values, weights, strict=True)))
