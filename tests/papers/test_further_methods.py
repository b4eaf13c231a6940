"""Methods of further papers against their formulas, written out in plain Python, one group at a time.

The formulas are those that `source:` of each spec names. Groups are ragged and interleaved; some are alike throughout,
some are of one rollout. No spread is no advantage, in the formulas too.
"""

import math
import random
from functools import cache

import numpy as np
import pytest
from places import SPECS

import rewardspec

EPS = 1e-6


@cache
def compiled(name):
    return rewardspec.compile(SPECS / f"{name}.yaml")


def average(values):
    return sum(values) / len(values)


def deviation(values, ddof):
    if len(values) < 2 or max(values) - min(values) < 1e-12:
        return 0.0
    return math.sqrt(sum((v - average(values)) ** 2 for v in values) / (len(values) - ddof))


def normal(values, ddof=1, eps=EPS):
    """(v - mean) / (std + eps) of one group; 0 without spread."""
    std = deviation(values, ddof)
    return [(v - average(values)) / (std + eps) if std else 0.0 for v in values]


def centered(values):
    return [v - average(values) for v in values]


def in_groups(formula, groups, *columns):
    """`formula` of each group's columns, put back where its rollouts are."""
    out = [0.0] * len(groups)
    for group in dict.fromkeys(groups):
        rows = [i for i, g in enumerate(groups) if g == group]
        for i, value in zip(rows, formula(*([c[i] for i in rows] for c in columns)), strict=True):
            out[i] = value
    return out


# The formulas: columns and groups to advantages


def dvao(x, groups):
    """Sec. 3: weights w_k sigma_k / sum_l w_l sigma_l on the normalised rewards; both w are 1."""

    def group(correct, length):
        sigma = [deviation(correct, 0), deviation(length, 0)]
        if not sum(sigma):
            return [0.0] * len(correct)
        parts = [normal(correct, 0, 0), normal(length, 0, 0)]
        return [sum(s / sum(sigma) * a for s, a in zip(sigma, each, strict=True)) for each in zip(*parts, strict=True)]

    return in_groups(group, groups, x["correct"], [float(t <= 4000) for t in x["tokens"]])


def saw_weights(x, delta=1e-8):
    """Alg. 1: shares of the coefficients of variation, each of the reward shifted to begin at delta."""
    cvs = []
    for name, least in (("format", 0), ("correctness", -3)):
        shifted = [v - least + delta for v in x[name]]
        cvs.append(deviation(shifted, 1) / (average(shifted) + delta))
    return [cv / sum(cvs) for cv in cvs] if sum(cvs) >= delta else None


def saw_grpo(x, groups):
    w = saw_weights(x) or [1, 1]
    total = [w[0] * f + w[1] * c for f, c in zip(x["format"], x["correctness"], strict=True)]
    return in_groups(normal, groups, total)


def saw_gdpo(x, groups):
    w = [2 * share for share in saw_weights(x) or [0.5, 0.5]]
    parts = [in_groups(normal, groups, x[name]) for name in ("format", "correctness")]
    return normal([w[0] * f + w[1] * c for f, c in zip(*parts, strict=True)])


def gd2po(names, tau):
    """Rollouts with advantages of both signs are left out (if their ratio is below tau); the rest is whitened."""

    def advantages(x, groups):
        parts = list(zip(*(in_groups(normal, groups, x[name]) for name in names), strict=True))
        mixed = [any(a > 1e-8 for a in p) and any(a < -1e-8 for a in p) for p in parts]
        ratio = [abs(sum(p)) / (sum(abs(a) for a in p) + 1e-8) for p in parts]
        kept = [not (m and (tau is None or r < tau)) for m, r in zip(mixed, ratio, strict=True)]
        share = in_groups(lambda each: [average(each)] * len(each), groups, [float(k) for k in kept])
        rows = [i for i, k in enumerate(kept) if k]
        out = [0.0] * len(groups)
        for i, value in zip(rows, normal([sum(parts[i]) * share[i] for i in rows]) if rows else [], strict=True):
            out[i] = value
        return out

    return advantages


def rvpo(x, groups):
    """-1/k ln(1/M sum_j exp(-k Z_j)), k = 0.5 + 1.5 * 3 / 10 at step 3 of 10, then over the batch."""
    k = 0.95
    parts = [in_groups(normal, groups, x[name]) for name in ("accuracy", "completeness", "communication")]
    return normal([-math.log(average([math.exp(-k * z) for z in each])) / k for each in zip(*parts, strict=True)])


def mo_grpo(x, groups):
    """Eq. 5."""
    parts = [in_groups(lambda v: normal(v, 0, 0), groups, x[name]) for name in ("bleurt", "readability")]
    return [a + b for a, b in zip(*parts, strict=True)]


def maxrl(x, groups):
    """Alg. 1, step 8."""
    return in_groups(lambda r: [(v - average(r)) / average(r) if any(r) else 0.0 for v in r], groups, x["correct"])


def gpg(x, groups):
    """Eq. 6-8: alpha = B / (B - M), M the rollouts of groups that are all right or all wrong."""
    live = in_groups(lambda r: [float(max(r) > min(r))] * len(r), groups, x["correct"])
    alpha = len(groups) / sum(live) if any(live) else 0.0
    return [alpha * a for a in in_groups(centered, groups, x["correct"])]


def opo(x, groups):
    def group(r, tokens):
        baseline = sum(length * v for length, v in zip(tokens, r, strict=True)) / sum(tokens)
        return [v - baseline for v in r]

    return in_groups(group, groups, x["correct"], x["tokens"])


def alp(x, groups):
    """r = [right] - beta / N * max(p, 1 / K) * tokens."""

    def group(r, tokens):
        p = max(average(r), 1 / len(r))
        return normal([v - 1 / 16384 * p * length for v, length in zip(r, tokens, strict=True)])

    return in_groups(group, groups, x["correct"], x["tokens"])


def grpo_lead(x, groups):
    """exp(-0.05 z) where right, else -1; then Eq. 9, with A 0.4, B 1.5, rho_0 0.75, k 10."""

    def weigh(share):
        return 0.4 + 1.1 / (1 + math.exp(10 * (share - 0.75)))

    def group(r, tokens):
        z = iter(normal([length for v, length in zip(r, tokens, strict=True) if v]) if any(r) else [])
        rho = average(r)
        base = normal([math.exp(-0.05 * next(z)) if v else -1.0 for v in r])
        return [a * weigh(rho if a > 0 else 1 - rho) for a in base]

    return in_groups(group, groups, x["correct"], x["tokens"])


def dler(x, groups):
    """Eq. 3, over the groups that are neither all right in time nor all wrong or late."""
    reward = [float(r and t <= 4000) for r, t in zip(x["correct"], x["tokens"], strict=True)]
    live = in_groups(lambda r: [max(r) > min(r)] * len(r), groups, reward)
    centers = in_groups(centered, groups, reward)
    rows = [i for i, alive in enumerate(live) if alive]
    out = [0.0] * len(groups)
    for i, value in zip(rows, normal([centers[i] for i in rows], eps=0) if rows else [], strict=True):
        out[i] = value
    return out


def dr_grpo(x, groups):
    return in_groups(centered, groups, x["correct"])


def l1_exact(x, groups):
    """Eq. 1."""
    rows = zip(x["correct"], x["tokens"], x["wanted"], strict=True)
    return in_groups(normal, groups, [r - 0.0003 * abs(wanted - tokens) for r, tokens, wanted in rows])


def l1_max(x, groups):
    """Eq. 2."""
    rows = zip(x["correct"], x["tokens"], x["budget"], strict=True)
    return in_groups(normal, groups, [r * min(max(0.0003 * (b - t) + 0.5, 0.0), 1.0) for r, t, b in rows])


def kimi(x, groups):
    """Sec. 2.3.3, added with weight 1, less the group's mean."""

    def group(r, tokens):
        least, most = min(tokens), max(tokens)
        if most == least:
            return centered(r)
        lam = [0.5 - (length - least) / (most - least) for length in tokens]
        return centered([v + (each if v else min(0.0, each)) for v, each in zip(r, lam, strict=True)])

    return in_groups(group, groups, x["correct"], x["tokens"])


def search_r1(x, groups):
    return in_groups(normal, groups, x["em"])


def retool(x, groups):
    rows = zip(x["correct"], x["turns"], strict=True)
    return in_groups(normal, groups, [1.0 if r else min(-0.6, -1 + (turns - 2) / 2 * 0.1) for r, turns in rows])


def open_r1_math(x, groups):
    """What was not measured adds nothing; a group without solution has no accuracy at all."""
    rows = zip(x["accuracy"], x["format"], x["tag_count"], strict=True)
    total = [(0.0 if math.isnan(a) else a) + f + t for a, f, t in rows]
    return in_groups(lambda v: normal(v, eps=1e-4), groups, total)


def open_r1_code(x, groups):
    total = [code + 0.1 * form for code, form in zip(x["code"], x["format"], strict=True)]
    return in_groups(lambda v: normal(v, eps=1e-4), groups, total)


BINARY, LENGTHS, UNBOUNDED = [0, 1], (1, 8192), (-5.0, 5.0)
METHODS = {  # the spec, its columns and what they can be, the formula
    "dvao/dvao": (dvao, {"correct": BINARY, "tokens": [10, 4000, 4001, 9000]}),
    "saw/saw_grpo": (saw_grpo, {"format": BINARY, "correctness": (-3.0, 3.0)}),
    "saw/saw_gdpo": (saw_gdpo, {"format": BINARY, "correctness": (-3.0, 3.0)}),
    "gd2po/gd2po_hard": (gd2po(("helpful", "harmless"), None), {"helpful": UNBOUNDED, "harmless": UNBOUNDED}),
    "gd2po/gd2po_snr": (
        gd2po(("correctness", "format", "length"), 0.8),
        {"correctness": (-3.0, 3.0), "format": BINARY, "length": (0.0, 1.0)},
    ),
    "rvpo/rvpo": (rvpo, {"accuracy": BINARY, "completeness": BINARY, "communication": BINARY}),
    "mo_grpo/mo_grpo": (mo_grpo, {"bleurt": (0.0, 1.0), "readability": (-10.0, 120.0)}),
    "maxrl/maxrl": (maxrl, {"correct": BINARY}),
    "gpg/gpg": (gpg, {"correct": BINARY}),
    "opo/opo": (opo, {"correct": BINARY, "tokens": LENGTHS}),
    "alp/alp": (alp, {"correct": BINARY, "tokens": LENGTHS}),
    "grpo_lead/grpo_lead": (grpo_lead, {"correct": BINARY, "tokens": LENGTHS}),
    "dler/dler": (dler, {"correct": BINARY, "tokens": [10, 4000, 4001, 9000]}),
    "dr_grpo/dr_grpo": (dr_grpo, {"correct": BINARY}),
    "l1/l1_exact": (l1_exact, {"correct": BINARY, "tokens": LENGTHS, "wanted": (100, 4000)}),
    "l1/l1_max": (l1_max, {"correct": BINARY, "tokens": LENGTHS, "budget": (100, 4000)}),
    "kimi/kimi_length": (kimi, {"correct": BINARY, "tokens": LENGTHS}),
    "search_r1/search_r1": (search_r1, {"em": BINARY}),
    "retool/retool": (retool, {"correct": BINARY, "turns": (1, 16)}),
    "open_r1/open_r1": (open_r1_math, {"accuracy": BINARY, "format": BINARY, "tag_count": [0, 0.25, 0.5, 0.75, 1]}),
    "open_r1/open_r1_code": (open_r1_code, {"code": (0.0, 1.0), "format": BINARY}),
}
OF_A_GROUP = {"wanted", "budget"}  # columns with one value for a group


def batch(domains, seed):
    """Columns of lists and ids of groups: 1 to 8 groups of 1 to 8 rollouts, shuffled where the seed is odd."""
    rng = random.Random(seed)
    draw = {
        list: rng.choice,
        tuple: lambda ends: rng.randint(*ends) if isinstance(ends[0], int) else rng.uniform(*ends),
    }
    rows = []
    for group in range(rng.randint(1, 8)):
        size, alike = rng.randint(1, 8), rng.random() < 0.2
        one = {name: draw[type(domain)](domain) for name, domain in domains.items()}
        for _ in range(size):
            each = {name: draw[type(domain)](domain) for name, domain in domains.items()}
            fixed = domains.keys() if alike else OF_A_GROUP & domains.keys()
            rows.append((group, each | {name: one[name] for name in fixed}))
    if seed % 2:
        rng.shuffle(rows)
    return {name: [float(row[name]) for _, row in rows] for name in domains}, [group for group, _ in rows]


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_advantages_are_those_of_the_formula(name):
    formula, domains = METHODS[name]
    some = False
    for seed in range(20):
        columns, groups = batch(domains, seed)
        found = compiled(name)({key: np.array(x) for key, x in columns.items()}, groups, step=3, total_steps=10)
        np.testing.assert_allclose(found.advantages.numpy(), formula(columns, groups), rtol=0, atol=1e-6)
        some |= bool(found.advantages.any())
    assert some


def test_solutions_that_cannot_be_read_are_left_out():
    """open-r1 gives None to all answers of such a prompt; TRL adds nothing for it."""
    columns = {"accuracy": [math.nan] * 3 + [1.0, 0.0], "format": [1.0, 0, 0, 1, 0], "tag_count": [1.0, 0.25, 0, 1, 0]}
    found = compiled("open_r1/open_r1")({key: np.array(x) for key, x in columns.items()}, [0, 0, 0, 1, 1]).advantages
    np.testing.assert_allclose(found.numpy(), open_r1_math(columns, [0, 0, 0, 1, 1]), rtol=0, atol=1e-6)


# Numbers that the papers print


def test_mo_grpo_example():
    """Sec. 4, example: the deviations 0.33 and 0.04 have the divisor G.

    What it prints for GRPO beside that, [-1.38, 0.43, 0.95], does not follow from its own mean 0.61 and deviation 0.29.
    """
    columns = {"bleurt": [0.1, 0.5, 0.9], "readability": [0.15, 0.13, 0.05]}
    found = compiled("mo_grpo/mo_grpo")(columns, 3)
    printed = [-1.22 + 0.93, 0.0 + 0.46, 1.22 - 1.39]  # each of two numbers with two digits
    np.testing.assert_allclose(found.advantages, printed, rtol=0, atol=0.01)


def test_maxrl_example():
    """One success of four: [3, -1, -1, -1] (PrimeIntellect-ai/prime-rl, pull request 2985)."""
    assert compiled("maxrl/maxrl")({"correct": [1, 0, 0, 0]}, 4).advantages.tolist() == [3, -1, -1, -1]


def test_rvpo_runs_from_the_mean_to_the_minimum():
    """The limits of k that the paper states: the mean as k goes to 0, the least as it goes to infinity."""
    text = (SPECS / "rvpo/rvpo.yaml").read_text(encoding="utf-8").replace("whiten(soft_min)", "soft_min")
    columns = {"accuracy": [1, 1, 0, 0], "completeness": [1, 0, 1, 0], "communication": [1, 1, 1, 0]}
    parts = [normal(x) for x in columns.values()]
    for k, ends in ((1e-4, average), (200, min)):
        fn = rewardspec.compile(rewardspec.loads(text, constants={"k": k}))
        found = fn({key: np.array(x, dtype=float) for key, x in columns.items()}, 4).advantages
        np.testing.assert_allclose(found, [ends(each) for each in zip(*parts, strict=True)], rtol=0, atol=0.01)
