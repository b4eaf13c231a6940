"""The prelude's advantages in plain float64 NumPy: the second opinion that compiled specs are tested against.

Written from the papers' formulas and the language's laws, one loop over groups at a time, and sharing no code with
`rewardspec`. Rewards are arrays [N]; `groups` holds N hashable ids, ragged and interleaved as they come. NaN is a
missing (ignored) value: no part in any statistic, and 0 out of every normaliser.

mean_g, std_g run over a rollout's group, mean_b, std_b over the batch; std has divisor n - ddof; R is `total`.
"""

from itertools import combinations_with_replacement

import numpy as np

EPS = 1e-6
DDOF = 1
ULP = float(np.finfo(np.float64).eps)
FEW = 8  # law 1's "few units in the last place"


def cells(groups, over="group", by=None):
    """The sets of rollouts that statistics run over, as index arrays: groups or the batch, subdivided by label."""
    assert over in ("group", "batch"), over
    members = {}
    for i, group in enumerate(groups):
        key = (group if over == "group" else None, None if by is None else by[i])
        members.setdefault(key, []).append(i)
    return [np.array(indices) for indices in members.values()]


def counted_cells(x, groups, where=None, over="group", by=None):
    """Pairs (cell, used): all rollouts of a cell, and those of them whose value is there and selected by `where`."""
    counted = ~np.isnan(x)
    if where is not None:
        counted &= np.asarray(where, dtype=bool)
    return [(cell, cell[counted[cell]]) for cell in cells(groups, over, by)]


def has_spread(values, summed_from, ulp=ULP):
    """Whether the values differ by more than rounding (law 1) and are two at least (law 2).

    summed_from: for each value, the largest magnitude among what it was summed from.
    """
    if len(values) < 2:
        return False
    return bool(values.max() - values.min() > FEW * ulp * np.max(summed_from))


def deviation(values, ddof=DDOF):
    """sqrt(sum (v - mean v)^2 / (n - ddof)) of at least two values."""
    return np.sqrt(np.sum((values - values.mean()) ** 2) / (len(values) - ddof))


# Statistics: one value for each cell, spread over its rollouts.


def mean(x, groups, where=None, over="group", by=None):
    """[N]: sum of the values / their number, NaN where there are none."""
    x = np.asarray(x, dtype=np.float64)
    out = np.full(len(x), np.nan)
    for cell, used in counted_cells(x, groups, where, over, by):
        if len(used):
            out[cell] = x[used].mean()
    return out


def std(x, groups, where=None, over="group", by=None, summed_from=None, ddof=DDOF, ulp=ULP):
    """[N]: sqrt(sum (x - mean)^2 / (n - ddof)), exactly 0 without spread. summed_from as in `normalise`."""
    x = np.asarray(x, dtype=np.float64)
    magnitude = np.abs(x if summed_from is None else summed_from)
    out = np.zeros(len(x))
    for cell, used in counted_cells(x, groups, where, over, by):
        if has_spread(x[used], magnitude[used], ulp):
            out[cell] = deviation(x[used], ddof)
    return out


# Normalisers: one value for each rollout; 0 where missing, outside `where`, or in a cell without spread.


def normalise(formula, x, groups, where=None, over="group", by=None, summed_from=None, ulp=ULP):
    """[N]: `formula` of the values of each cell that has spread, 0 elsewhere.

    where: boolean [N]; the formula sees these rollouts only.
    over, by: "group" or "batch", subdivided by the labels [N].
    summed_from: [N], the largest magnitude among each value's summands; the value itself if not said.
    """
    x = np.asarray(x, dtype=np.float64)
    magnitude = np.abs(x if summed_from is None else summed_from)
    out = np.zeros(len(x))
    for _, used in counted_cells(x, groups, where, over, by):
        if has_spread(x[used], magnitude[used], ulp):
            out[used] = formula(x[used])
    return out


def center(x, groups, **options):
    """x - mean. Options as in `normalise`."""
    return normalise(lambda v: v - v.mean(), x, groups, **options)


def zscore(x, groups, eps=EPS, ddof=DDOF, **options):
    """(x - mean) / (std + eps). Options as in `normalise`."""
    return normalise(lambda v: (v - v.mean()) / (deviation(v, ddof) + eps), x, groups, **options)


def loo(x, groups, **options):
    """x - mean of the others, 0 for a group of one. Options as in `normalise`."""
    return normalise(lambda v: np.array([v[i] - np.delete(v, i).mean() for i in range(len(v))]), x, groups, **options)


def minmax(x, groups, **options):
    """(x - min) / (max - min). Options as in `normalise`."""
    return normalise(lambda v: (v - v.min()) / (v.max() - v.min()), x, groups, **options)


# Schemes. rewards: name -> [N]; weights: name -> number or [N].


def unmeasured(rewards):
    """[N]: whether all of a rollout's components are missing."""
    return np.all([np.isnan(np.asarray(r, dtype=np.float64)) for r in rewards.values()], axis=0)


def summands(rewards, weights, groups):
    """[K, N]: w_k r_k, a missing r_k at mean_g r_k (0 if the group has none); NaN for an unmeasured rollout."""
    rows = []
    for name, r in rewards.items():
        r = np.asarray(r, dtype=np.float64)
        stand_in = np.nan_to_num(mean(r, groups), nan=0.0)
        rows.append(np.asarray(weights[name], dtype=np.float64) * np.where(np.isnan(r), stand_in, r))
    return np.where(unmeasured(rewards), np.nan, rows)


def shares(rewards, weights, groups, eps=EPS, ddof=DDOF, ulp=ULP):
    """[K, N]: w_k (r_k - mean_g r_k) / (std_g r_k + eps), 0 where missing (GDPO Eq. 4)."""
    rows = []
    for name, r in rewards.items():
        rows.append(np.asarray(weights[name], dtype=np.float64) * zscore(r, groups, eps, ddof, ulp=ulp))
    return np.array(rows)


def total(rewards, weights, groups):
    """R = sum_k w_k r_k, a missing r_k at mean_g r_k (0 if the group has none).

    NaN for a rollout without any component: it takes no part in the statistics of R either.
    """
    return summands(rewards, weights, groups).sum(axis=0)


def largest_summand(terms):
    """[N]: max_k |terms_k|, against which law 1 measures the spread of their sum."""
    return np.abs(terms).max(axis=0)


def grpo(rewards, weights, groups, eps=EPS, ddof=DDOF, ulp=ULP):
    """(R - mean_g R) / (std_g R + eps)."""
    terms = summands(rewards, weights, groups)
    return zscore(terms.sum(axis=0), groups, eps, ddof, summed_from=largest_summand(terms), ulp=ulp)


def dr_grpo(rewards, weights, groups, eps=EPS, ddof=DDOF, ulp=ULP):
    """R - mean_g R."""
    terms = summands(rewards, weights, groups)
    return center(terms.sum(axis=0), groups, summed_from=largest_summand(terms), ulp=ulp)


def rloo(rewards, weights, groups, eps=EPS, ddof=DDOF, ulp=ULP):
    """R - mean of the others' R = (R - mean_g R) G / (G - 1), G the measured rollouts; 0 for a group of one."""
    terms = summands(rewards, weights, groups)
    return loo(terms.sum(axis=0), groups, summed_from=largest_summand(terms), ulp=ulp)


def decoupled(rewards, weights, groups, eps=EPS, ddof=DDOF, ulp=ULP):
    """A = sum_k w_k (r_k - mean_g r_k) / (std_g r_k + eps) (GDPO Eq. 7)."""
    return shares(rewards, weights, groups, eps, ddof, ulp).sum(axis=0)


def gdpo(rewards, weights, groups, eps=EPS, ddof=DDOF, ulp=ULP):
    """(A - mean_b A) / (std_b A + eps), A = decoupled (GDPO Eq. 6)."""
    terms = shares(rewards, weights, groups, eps, ddof, ulp)
    measured = ~unmeasured(rewards)
    return zscore(
        terms.sum(axis=0), groups, eps, ddof, where=measured, over="batch", summed_from=largest_summand(terms), ulp=ulp
    )


def batch_grpo(rewards, weights, groups, eps=EPS, ddof=DDOF, ulp=ULP):
    """(R - mean_g R) / (std_b R + eps), 0 where the batch has no spread (TRL's scale_rewards="batch")."""
    terms = summands(rewards, weights, groups)
    spread = std(terms.sum(axis=0), groups, over="batch", summed_from=largest_summand(terms), ddof=ddof, ulp=ulp)
    centered = dr_grpo(rewards, weights, groups, ulp=ulp)
    return centered / (spread + eps) if spread.any() else np.zeros(len(centered))


def reinforce_baseline(rewards, weights, groups, eps=EPS, ddof=DDOF, ulp=ULP):
    """(c - mean_b c) / (std_b c + eps), c = R - mean_g R (REINFORCE++ baseline)."""
    centered = dr_grpo(rewards, weights, groups, ulp=ulp)
    return zscore(centered, groups, eps, ddof, where=~unmeasured(rewards), over="batch", ulp=ulp)


SCHEMES = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "decoupled": decoupled,
    "gdpo": gdpo,
    "batch_grpo": batch_grpo,
    "reinforce_baseline": reinforce_baseline,
}


# Shapes, kept groups and distinct groups.


def ramp(x, lo, hi):
    """(x - lo) / (hi - lo) within [0, 1]; missing stays missing."""
    assert lo < hi, "a ramp rises over an interval"
    return np.clip((np.asarray(x, dtype=np.float64) - lo) / (hi - lo), 0.0, 1.0)


def overlong(tokens, limit, buffer):
    """DAPO Eq. 13: 0 up to limit - buffer, then (limit - buffer - tokens) / buffer, and -1 from limit on."""
    return -ramp(tokens, limit - buffer, limit)


def keep(rewards, groups, kept):
    """The rewards with every group outside missing, so that a scheme gives it 0 and leaves it out of statistics.

    kept: group id -> bool.
    """
    inside = np.array([kept[group] for group in groups], dtype=bool)
    return {name: np.where(inside, np.asarray(r, dtype=np.float64), np.nan) for name, r in rewards.items()}


WITHOUT_BATCH_STEP = {**SCHEMES, "gdpo": decoupled, "batch_grpo": dr_grpo, "reinforce_baseline": dr_grpo}


def distinct_groups(states, weights, group_size, scheme):
    """How many different advantage vectors a group can get, the order of its rollouts ignored (GDPO Sec. 2).

    states: the reward vectors that a rollout can get, each of length K; weights: K numbers; scheme: its name.
    The batch step is left out, since it changes no count, and eps is 0.
    """
    names = range(len(weights))
    seen = set()
    for rollouts in combinations_with_replacement(states, group_size):
        rewards = {k: np.array([rollout[k] for rollout in rollouts], dtype=np.float64) for k in names}
        advantages = WITHOUT_BATCH_STEP[scheme](rewards, dict(enumerate(weights)), [0] * group_size, eps=0.0)
        seen.add(tuple(sorted(np.round(advantages, 9).tolist())))
    return len(seen)


# The published methods, each from its paper's formula. Totals are [N]; advantages follow by `advantage_of`.


def advantage_of(total, groups, parts=(), eps=EPS, ddof=DDOF, ulp=ULP):
    """GRPO on one reward [N]: (R - mean_g R) / (std_g R + eps). parts: what R was summed from, for law 1."""
    magnitude = np.max(np.abs([total, *parts]), axis=0)
    return zscore(total, groups, eps, ddof, summed_from=np.nan_to_num(magnitude), ulp=ulp)


def affine(x, old, new):
    """x from the range `old` to the range `new`."""
    return new[0] + (np.asarray(x, dtype=np.float64) - old[0]) * (new[1] - new[0]) / (old[1] - old[0])


def toolrl_scales(method, step=0, total_steps=1):
    """((format low, high), (correctness low, high)) of ToolRL Sec. 3.3 and 5.2."""
    p = min(max(step / total_steps, 0.0), 1.0)
    return {
        "original": ((0, 1), (-3, 3)),
        "equal_max": ((0, 1), (-1, 1)),
        "two_stage": ((0, 1), (-1, 1)) if step < 30 else ((0, 0.5), (-3, 3)),
        "smooth": ((-2 + p, 2 - p), (-2 - p, 2 + p)),
    }[method]


def toolrl(method, form, correctness, groups, words=None, step=0, total_steps=1, ulp=ULP):
    """ToolRL, Sec. 3.4: GRPO with divisor G on format + correctness, and on the length of thought (Sec. 5.1).

    length: min(L / 512, 1); length_dynamic: min(L / (512 (1 + p)), 1).
    """
    scales = toolrl_scales("original" if method.startswith("length") else method, step, total_steps)
    parts = [affine(form, (0, 1), scales[0]), affine(correctness, (-3, 3), scales[1])]
    if method.startswith("length"):
        target = 512 * (1 + step / total_steps) if method == "length_dynamic" else 512
        parts.append(np.minimum(np.asarray(words) / target, 1))
    return advantage_of(np.sum(parts, axis=0), groups, parts, ddof=0, ulp=ulp)


def papo_process(outcome, process, groups, ulp=ULP):
    """PAPO Eq. 4: (r - mean) / (std + eps) over the right answers; 0 for wrong ones, or if fewer than 2 are right."""
    return zscore(np.where(np.asarray(outcome) == 1, process, np.nan), groups, ulp=ulp)


def papo(method, outcome, process, groups, ulp=ULP):
    """PAPO Eq. 3-5 and its baselines; `process` may hold NaN where the answer is wrong."""
    outcome = np.asarray(outcome, dtype=np.float64)
    product = np.where(outcome == 1, process, 0.0)
    match method:
        case "orm":
            return zscore(outcome, groups, ulp=ulp)
        case "prm":
            return zscore(process, groups, ulp=ulp)
        case "mult":
            return zscore(product, groups, ulp=ulp)
        case "fullnorm":
            return zscore(outcome, groups, ulp=ulp) + zscore(product, groups, ulp=ulp)
        case "papo":
            return zscore(outcome, groups, ulp=ulp) + papo_process(outcome, process, groups, ulp)
    raise AssertionError(method)


def papo_dapo(outcome, process, tokens, groups, ulp=ULP):
    """PAPO with DAPO's overlong penalty (8192, 4096) in the outcome's reward, and 0 in groups where nothing differs.

    Nothing differs: neither the outcomes, nor the process scores of the right answers.
    """
    outcome = np.asarray(outcome, dtype=np.float64)
    penalty = overlong(tokens, 8192, 4096)
    reward = outcome + penalty
    found = advantage_of(reward, groups, [outcome, penalty], ulp=ulp) + papo_process(outcome, process, groups, ulp)
    differs = std(outcome, groups) + std(np.where(outcome == 1, process, np.nan), groups) > 0
    return np.where(differs, found, 0.0)


def prs_short(process, form, answer):
    """PRS Eq. 13."""
    process, form, answer = (np.asarray(x, dtype=np.float64) for x in (process, form, answer))
    return process + form + np.where(process >= 1, answer, 0.0)


def prs_long(process, form, judge, answer):
    """PRS Eq. 14."""
    process, form, judge, answer = (np.asarray(x, dtype=np.float64) for x in (process, form, judge, answer))
    passed = process >= 1
    return process + form + np.where(passed, judge, 0.0) + np.where(passed & (judge >= 1), answer, 0.0)


def prs_general(stages, thresholds):
    """PRS Eq. 15: R1 + sum_k [R1 >= e1 .. Rk >= ek] sigmoid(R(k+1))."""
    total, passed = np.array(stages[0], dtype=np.float64), np.ones(len(stages[0]), dtype=bool)
    for before, threshold, stage in zip(stages, thresholds, stages[1:], strict=False):
        passed &= np.asarray(before) >= threshold
        total += np.where(passed, 1 / (1 + np.exp(-np.asarray(stage, dtype=np.float64))), 0.0)
    return total


def vspo(total, groups, copies, alpha=2.0, clip=True, parts=(), ulp=ULP):
    """VSPO Eq. 21: GRPO with divisor G times alpha - (alpha - 1) / N; 0 where the variance is below 1e-6.

    copies: group id -> N. Without the clip the factor is N (Eq. 20).
    """
    variance = std(total, groups, ddof=0) ** 2
    n = np.array([copies[group] for group in groups], dtype=np.float64)
    kept = variance >= 1e-6
    factor = (alpha - (alpha - 1) / np.where(kept, n, 1)) if clip else n
    return np.where(kept, factor * advantage_of(total, groups, parts, ddof=0, ulp=ulp), 0.0)


def rc_grpo(state, action, groups, ulp=ULP):
    """RC-GRPO Eq. 5-6: GRPO with divisor G on state * action."""
    return zscore(np.asarray(state, dtype=np.float64) * np.asarray(action, dtype=np.float64), groups, ddof=0, ulp=ulp)
