"""Sums of z-scores of zeros and ones, which have a kernel of their own, against z-scores by hand."""

import math
from itertools import product
from statistics import mean, pstdev, stdev

import pytest
import torch

import rewardspec
from rewardspec.emit.runtime import weighted


def gdpo(weights, eps=1e-4, ddof=1):
    lines = "\n".join(f"  r{i}: {{values: [0, 1], weight: {w!r}}}" for i, w in enumerate(weights))
    text = f"rewardspec: 1\ncomponents:\n{lines}\nadvantage: decoupled\nnumerics: {{eps: {eps!r}, ddof: {ddof}}}\n"
    return rewardspec.compile(rewardspec.loads(text))


def every_group(size, components):
    """Columns of all groups of one size, and how many groups there are."""
    groups = list(product(product((0.0, 1.0), repeat=size), repeat=components))
    return {f"r{i}": torch.tensor([x for group in groups for x in group[i]]) for i in range(components)}


def by_hand(columns, size, weights, eps, ddof):
    """The sums, and their largest term in the group."""
    found = []
    for start in range(0, len(columns["r0"]), size):
        terms = []
        for (_, column), weight in zip(columns.items(), weights, strict=True):
            x = column[start : start + size].tolist()
            std = 0.0 if size <= ddof else (stdev if ddof else pstdev)(x)
            terms.append([weight * (v - mean(x)) / (std + eps) if std else 0.0 for v in x])
        found += [(sum(parts), max(map(abs, parts))) for parts in zip(*terms, strict=True)]
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("size", "weights", "eps", "ddof"),
    [
        (1, (1.0, 1.0), 1e-4, 1),
        (2, (1.0, 1.0), 0.0, 1),
        (3, (1.0, 1.0), 0.0, 0),
        (3, (1.0, -1.0), 1e-4, 1),
        (5, (1.0, 1.0), 1e-6, 1),
        (6, (2.0, 0.5), 1.0, 1),
        (3, (1.0, 0.5, 0.25), 1e-4, 1),
        (4, (1.0, 1.0000001), 1e-4, 1),  # what is left of 1 - 1 is rounding of float32, and none of float64
        (4, (1.0, 1.00001), 1e-4, 1),
        (3, (1.0, 1e-7), 1e-4, 1),  # single terms are as small as rounding of others
        (3, (1.0, 0.0), 1e-4, 1),
    ],
)
def test_sums_of_every_group(size, weights, eps, ddof, dtype):
    fn = gdpo(weights, eps, ddof)
    columns = {name: x.to(dtype) for name, x in every_group(size, len(weights)).items()}
    once, again = fn(columns, size).advantages, fn(columns, size).advantages
    ids = torch.arange(len(once)) // size
    apart = fn({name: x[torch.arange(len(x)).flip(0)] for name, x in columns.items()}, ids.flip(0)).advantages.flip(0)
    assert torch.equal(once, again)  # the second call reads its columns by the plan of the first
    torch.testing.assert_close(once, apart, rtol=1e-6, atol=0)
    limit = 4 * torch.finfo(dtype).eps
    for value, (expected, largest) in zip(once.tolist(), by_hand(columns, size, weights, eps, ddof), strict=True):
        if abs(expected) < 0.9 * limit * largest or not largest:
            assert value == 0
        elif abs(expected) > 1.1 * limit * largest:
            assert math.isclose(value, expected, rel_tol=3 * torch.finfo(dtype).eps, abs_tol=1e-14)


KNOWN = [(4, (1.0, 1.0), 1e-4), (3, (1.0, 1.0, 1.0), 0.0), (4, (1.0, -1.0000002), 1e-4), (2, (1.0,), 0.0)]


def test_what_is_known_of_sums_of_one_size():
    """`clear` where no sum is within rounding of float32 without being 0: by all sums, one by one."""
    rounding, found = 4 * torch.finfo(torch.float32).eps, []
    for size, weights, eps in KNOWN:
        table, _, _, clear = weighted._known(weights, size, eps, 1, rounding, torch.device("cpu"))
        factors = table.tolist()
        values = [(n - size * bit) * factors[n] for n in range(1, size) for bit in (0, 1)] + [0.0]
        least, most = weighted._doubtful_sums(weights, size, eps, 1, rounding)
        terms = product(*([weight * value for value in values] for weight in weights))
        assert clear == (not any(least <= abs(sum(parts)) <= most for parts in terms)), (size, weights)
        found.append(clear)
    assert found == [True, True, False, True]


def test_a_batch_between_two_sizes_of_rounding_is_looked_at_again():
    """Weights that almost cancel: whether a sum is 0 depends on its terms, which only the run that looks knows."""
    fn = gdpo((1.0, -1.0000002))
    x = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    columns = {"r0": x, "r1": x}
    assert not fn.ahead(columns, 4)[1]
    assert torch.equal(fn(columns, 4).advantages, fn.module_function.__wrapped__(columns, 4).advantages)


def test_columns_of_other_values_beside_zeros_and_ones():
    """As many of either: the second call, which has a plan, takes the kernel of each."""
    lines = (
        "components: {a: {range: [0, 1]}, b: {range: [0, 1]}}\nsignals: {c: {values: [0, 1]}, d: {values: [0, 1]}}\n"
    )
    fn = rewardspec.compile(rewardspec.loads(f"rewardspec: 1\n{lines}keep: max(c + d) > 0\nadvantage: gdpo\n"))
    generator = torch.Generator().manual_seed(3)
    columns = {name: torch.rand(24, generator=generator) for name in "ab"}
    columns |= {name: torch.randint(0, 2, (24,), generator=generator).float() for name in "cd"}
    careful = fn.module_function.__wrapped__(columns, 4).advantages
    for _ in range(3):
        assert torch.equal(fn(columns, 4).advantages, careful)
