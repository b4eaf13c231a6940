"""Answers for names from torch, numpy and the trainers: `clamp` is answered with "write `clip(x, 0, 1)`".

Every text in backticks in an answer is part of a spec that compiles: YAML, or an expression of the columns `x` and `y`
and of `correct`, a component with the values 0 and 1. A test compiles each one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rewardspec.text.diagnostics import did_you_mean

_ANSWERS = [  # (names, answer): names in expressions, called or not
    # Elementwise
    ("clamp clamp_ bound bounded truncate_range", "write `clip(x, 0, 1)`"),
    ("clamp_min relu fmax maximum hinge positive_part", "write `max(x, 0)`: elementwise with several arguments"),
    ("clamp_max fmin minimum", "write `min(x, 1)`: elementwise with several arguments"),
    ("where cond iff ifelse if_else select switch case", "write `x if y > 0 else 0`"),
    ("pow power", "write `x ** 2`"),
    ("square squared", "write `x ** 2`"),
    ("ceil ceiling", "write `-floor(-x)`"),
    ("int trunc truncate fix", "write `floor(x)`"),
    ("mod fmod remainder modulo", "write `x - 5 * floor(x / 5)`: the remainder by 5"),
    (
        "binom binomial binomial_coefficient choose ncr n_choose_k combinations nck",
        "write `comb(group_size, 2)`: the number of ways to choose 2",
    ),
    ("pass_at_k passk pass_k", "write `1 - comb(group_size - sum(correct), 2) / comb(group_size, 2)`: pass@2"),
    ("ln", "write `log(x)`"),
    ("log2 log10", "write `log(x) / log(2)`"),
    ("log1p", "write `log(1 + x)`"),
    ("expm1", "write `exp(x) - 1`"),
    ("exp2", "write `2 ** x`"),
    ("sin", "write `cos(x - pi / 2)`"),
    ("logit", "write `log(x / (1 - x))`"),
    ("softplus", "write `log(1 + exp(x))`"),
    ("logistic expit", "write `sigmoid(x)`"),
    ("e euler", "write `exp(1)`"),
    ("inf infinity infty", "declare an open end: `range: [0, .inf]`; infinity is not a value"),
    ("float double bool boolean indicator heaviside", "write `x > 0`: a comparison is 1 or 0"),
    ("logical_and bitwise_and", "write `x > 0 and y > 0`"),
    ("logical_or bitwise_or", "write `x > 0 or y > 0`"),
    ("logical_not invert", "write `not x > 0`"),
    ("xor logical_xor", "write `(x > 0) != (y > 0)`"),
    ("eq equal equals", "write `x == y`"),
    ("isclose allclose", "write `abs(x - y) < 0.01`"),
    ("isnan is_nan isnull is_null is_missing isna isfinite notna notnull is_none", "write `present(x)`"),
    ("nan_to_num fillna ifnull nvl default_to", "write `coalesce(x, 0)`"),
    ("lerp interp interpolate mix", "write `x + (y - x) * progress`, or `ramp(x, start=0, end=100)`"),
    # Reductions
    ("median nanmedian", "write `quantile(x, 0.5)`"),
    ("percentile nanpercentile nanquantile quantiles", "write `quantile(x, 0.9)`: from 0 to 1"),
    ("average avg nanmean reduce_mean group_mean mean_reward mu", "write `mean(x)`: over the group"),
    (
        "stddev stdev std_dev standard_deviation nanstd group_std std_reward sigma pstdev",
        "write `std(x)`: over the group",
    ),
    ("variance nanvar group_var pvariance", "write `var(x)`: over the group"),
    ("batch_mean global_mean", "write `mean(x, over=batch)`"),
    ("batch_std global_std", "write `std(x, over=batch)`"),
    ("masked_mean", "write `mean(x, where=y > 0)`"),
    ("masked_sum", "write `sum(x, where=y > 0)`"),
    ("masked_std masked_var", "write `std(x, where=y > 0)`"),
    ("masked_whiten", "write `zscore(x, over=batch, where=y > 0)`"),
    ("nansum reduce_sum fsum", "write `sum(x)`: over the group"),
    ("amax nanmax reduce_max", "write `max(x)`: over the group"),
    ("amin nanmin reduce_min", "write `min(x)`: over the group"),
    ("prod product cumprod", "write `x * y`"),
    ("argmax best is_best", "write `x == max(x)`: 1 for the best of the group"),
    ("argmin worst is_worst", "write `x == min(x)`: 1 for the lowest of the group"),
    ("sort sorted argsort rankdata ranks order", "write `rank(x)`: 1 is the lowest"),
    (
        "topk top_k nlargest",
        "write `rank(-x) <= 2`: 1 for the two best of the group; the second largest value is `kth(x, 2)`",
    ),
    (
        "nth nth_largest kth_largest kthlargest kth_value second_largest second_best",
        "write `kth(x, 2)`: the second largest of the group",
    ),
    (
        "kthvalue nsmallest kth_smallest nth_smallest partition",
        "write `-kth(-x, 2)`, the second smallest of the group, or `kth(x, 2)`, the second largest",
    ),
    ("count_nonzero bincount", "write `sum(x != 0)`"),
    ("mode majority majority_vote most_common", "write `count(x, by=x)`: how many of the group have the same value"),
    ("groupby group_by scatter_mean segment_mean", "write `mean(x, by=y)`"),
    # Normalisers
    (
        "normalize normalise normalized normalised standardize standardise group_norm norm "
        "layer_norm normalize_rewards",
        "write `zscore(x)` over the group, `whiten(x)` over the batch, or `minmax(x)` for [0, 1]",
    ),
    ("z_score z_scores zscores z_normalize", "write `zscore(x)`: over the group"),
    ("batch_norm batchnorm whitening batch_normalize", "write `whiten(x)`"),
    ("min_max minmax_scale min_max_scale min_max_norm normalize01", "write `minmax(x)`"),
    ("demean center_rewards subtract_mean", "write `center(x)`"),
    ("leave_one_out", "write `loo(x)`"),
    ("softmax", "write `exp(x - max(x)) / sum(exp(x - max(x)))`: over the group"),
    ("log_softmax", "write `x - max(x) - log(sum(exp(x - max(x))))`: over the group"),
    ("logsumexp", "write `max(x) + log(sum(exp(x - max(x))))`: over the group"),
    # Sums, baselines and sizes
    (
        "reward total_reward sum_reward sum_rewards sum_of_rewards reward_sum rewards_sum final_reward weighted_sum",
        "write `total`: the weighted sum of all components",
    ),
    (
        "reward_weights reward_weight component_weights",
        "write `total`, the weighted sum; a component sets its own weight: `weight: 0.5`",
    ),
    ("baseline", "write `mean(total)`, the group's mean, or `total - loo(total)`, the mean of the other rollouts"),
    ("num_generations group_len n_samples rollout_n num_rollouts num_samples", "write `group_size`"),
    (
        "len length size shape numel",
        "for the rollouts of a group write `group_size`; for the length of a completion, which trainers fill in, "
        "declare `signals: {tokens: {range: [0, .inf]}}`",
    ),
    (
        "tokens num_tokens n_tokens token_count response_length response_len response_tokens completion_length "
        "completion_len completion_tokens seq_len seqlen",
        "declare `signals: {tokens: {range: [0, .inf]}}`: the length of the completion, which trainers fill in",
    ),
    (
        "truncated is_truncated overlong_filter clipped mask_truncated_completions",
        "declare `signals: {truncated: {values: [0, 1]}}`: a column that trainers fill in",
    ),
    # Time and memory
    ("epoch iteration global_step iter current_step training_step global_steps train_step", "write `step`"),
    ("max_steps num_steps total_training_steps max_iterations num_training_steps", "write `total_steps`"),
    ("frac fraction train_progress training_progress percent_done", "write `progress`: from 0 to 1"),
    (
        "anneal annealing linear_schedule warmup linear_decay linspace schedule curriculum",
        "write `ramp(step, start=0, end=100)`, or `1 - progress`",
    ),
    (
        "cosine cosine_schedule cosine_decay cosine_annealing cosine_similarity",
        "write `0.5 * (1 + cos(pi * progress))`: from 1 to 0 over the run",
    ),
    (
        "ema ewma ewm moving_average running_mean running_std rolling_mean running_average momentum history previous",
        "a spec keeps no state between batches; pass it in as a column: "
        "`signals: {running: {range: [0, 1], level: batch}}`",
    ),
    (
        "rand random randn uniform bernoulli dropout",
        "expressions have no random numbers; pass them in as a column: `signals: {coin: {values: [0, 1]}}`",
    ),
    # Measured outside the spec
    (
        "kl kl_div kl_divergence kl_penalty kld kl_coef kl_coeff logprob logprobs log_prob log_probs old_log_probs "
        "ref_logprob ratio entropy perplexity",
        "expressions cannot read the policy's probabilities; pass in what the trainer measures as a column: "
        "`signals: {kl: {range: [-.inf, .inf]}}`",
    ),
    (
        "regex re match search findall contains startswith endswith str lower strip split levenshtein edit_distance "
        "bleu rouge f1_score json_loads eval exec parse",
        'expressions cannot read text; add a reward function: `style: {python: "my_rewards:style", range: [0, 1]}`',
    ),
    (
        "value values critic gae td td_lambda vapo ppo",
        "write `rloo`: a baseline from the other rollouts, since there is no critic",
    ),
    # Schemes
    (
        "dapo dynamic_sampling filter_groups",
        "for DAPO write `advantage: grpo` and `keep: any(correct) and not all(correct)`; "
        "add a component `overlong(x, 20480, 4096)` for length",
    ),
    (
        "gspo cispo sapo gmpo aspo dppo",
        "write `grpo`: the method changes the loss, which is part of the trainer",
    ),
    ("dpo kto simpo orpo ipo", "write `grpo`: a spec scores groups, not pairs"),
    ("drgrpo doctor_grpo grpo_no_std grpo_without_std mean_only", "write `dr_grpo`"),
    (
        "reinforce reinforce_plus_plus reinforce_pp reinforcepp reinforceplusplus rpp",
        "write `whiten(total)`, or with the group's mean as baseline `reinforce_baseline`",
    ),
    ("reinforce_plus_plus_baseline reinforce_pp_baseline", "write `reinforce_baseline`"),
    (
        "remax",
        "write `total - greedy` and declare the reward of the greedy completion: "
        "`signals: {greedy: {range: [0, 1], level: group}}`",
    ),
    ("opo", "write `total - sum(x * total) / sum(x)`, where `x` is the column of lengths"),
    ("gpg", "write `dr_grpo`, and drop dead groups with `keep: std(total) > 0`"),
    ("maxrl max_rl", "write `center(total) / mean(total) if mean(total) > 0 else 0`"),
    ("mo_grpo mogrpo normalize_then_sum", "write `decoupled`, or `gdpo` to normalise over the batch as well"),
    ("sum_then_normalize", "write `grpo`"),
    ("vanilla raw_reward identity", "write `total`, or `rloo` with a baseline"),
]

_KEYS = [  # keys of the spec
    (
        "reward_weights weights reward_weight",
        "set the weight of each component: `correct: {values: [0, 1], weight: 0.5}`",
    ),
    (
        "rewards reward_funcs reward_functions reward_fn reward_model reward_models reward graders criteria rubric",
        "declare rewards as components: `components: {correct: {values: [0, 1]}}`",
    ),
    (
        "scale_rewards normalize normalization norm normalize_advantage norm_adv_by_std_in_grpo whiten whiten_rewards",
        "to divide by the group's deviation write `advantage: grpo`, by the batch's `advantage: batch_grpo`, "
        "by none `advantage: dr_grpo`",
    ),
    (
        "multi_objective_aggregation aggregation normalize_then_sum",
        "to normalise each reward first write `advantage: gdpo`, to sum first `advantage: grpo`",
    ),
    (
        "adv_estimator advantage_estimator estimator algorithm algo scheme method advantages loss_type loss objective",
        "write `advantage: grpo`; the loss is part of the trainer",
    ),
    (
        "beta kl kl_coef kl_beta init_kl_coef kl_loss_coef epsilon epsilon_high clip_ratio clip_ratio_high "
        "learning_rate lr temperature num_iterations",
        "set it in the trainer; the numerical settings of a spec are `numerics: {eps: 1e-4}`",
    ),
    (
        "num_generations group_size rollout_n n_samples max_completion_length max_response_length batch_size",
        "set it in the trainer; expressions can read `group_size`",
    ),
    (
        "filter_groups dynamic_sampling filter filters",
        "write `keep: any(correct) and not all(correct)`",
    ),
    (
        "overlong_buffer overlong soft_overlong_punishment",
        'declare a component: `components: {overlong: {expr: "overlong(x, 20480, 4096)"}, correct: {values: [0, 1]}}`',
    ),
    (
        "constants params parameters variables vars const let definitions defs functions",
        "declare them under `define: {half: 0.5}`",
    ),
    (
        "metrics columns inputs features fields observations measures",
        "declare them under `signals: {y: {range: [0, 1]}}`",
    ),
    ("description doc docs comment notes", "write `about: the purpose of the spec`"),
    ("version spec_version", "write `rewardspec: 1`"),
    ("paper reference url citation", "write `source: the paper, section, equation`"),
    ("eps ddof", "write `numerics: {eps: 1e-4, ddof: 0}`"),
    ("ignore suppress disable noqa", "write `allow: {phantom-gradient: the format is learnt first}`"),
    ("assert asserts checks tests invariants properties", "write `guarantees: {bounded: within(4)}`"),
    ("success correct", "declare a component: `components: {correct: {values: [0, 1]}}`"),
]

_PART_KEYS = [  # keys of a signal or a component
    ("coef coefficient coeff weights reward_weight lambda alpha multiplier factor importance", "write `weight: 0.5`"),
    ("gate if condition conditions where mask only_if requires depends_on cond unless", "write `when: correct >= 1`"),
    ("else default fallback otherwise_value", "write `otherwise: 0`, together with `when: correct >= 1`"),
    ("min max low high lower upper bounds domain limits interval", "write `range: [0, 1]`"),
    (
        "type dtype kind binary bool choices enum categories levels",
        "write `values: [0, 1]`, or `range: [0, 1]`",
    ),
    ("clip clamp", "write `outside: clip`, together with `range: [0, 1]`"),
    ("formula value reward equation compute expression score calc", "write `expr: x <= 4000`"),
    (
        "function func fn callable import path module reward_func grader",
        "write `use: toolrl.format`; for your own, `python: my_rewards:style` and `range: [0, 1]`",
    ),
    ("args kwargs params options config", "write the options of a reward function under `with: {limit: 2000}`"),
    ("required optional nullable na nan", "write `missing: ignore`"),
    ("normalize normalization norm zscore", "choose the normalisation with `advantage: decoupled`"),
    ("schedule anneal warmup decay curriculum", "write `weight: 1 - progress`"),
    ("penalty", "write `weight: -1`"),
    ("description doc comment", "write `about: a description`"),
    ("per scope granularity axis", "write `level: group`"),
    ("threshold cutoff", "write `expr: x >= 0.5`"),
    ("id ids identifier uuid uid", "an id is declared as a signal: `signals: {episode: {id: true}}`"),
]

_WORDS = [  # words for a key that takes one of a few
    ("sample sequence completion response trajectory answer output", "write `level: rollout`"),
    ("prompt question query problem task", "write `level: group`"),
    ("global run", "write `level: batch`"),
    ("token", "write `level: rollout`: columns have no values per token"),
    ("turn action tool_call criterion", "declare it: `lists: {turn: {ordered: true}}`"),
    ("skip drop none null nan mask exclude omit ignored", "write `missing: ignore`"),
    ("0 zeros fill", "write `missing: zero`"),
    ("clamp clipped saturate truncate", "write `outside: clip`"),
    ("raise fail strict", "remove it, or write `missing: error`"),
    ("false", "remove it, or write `id: true`"),
]

_ARGUMENTS = [
    ("dim axis axes dims", "write the axis after over: `mean(x, over=batch)`; the default is the group"),
    ("keepdim keepdims", "remove it: `x - mean(x)` broadcasts"),
    ("unbiased correction bias", "write `std(x, ddof=1)`"),
    ("mask cond condition filter subset", "write `mean(x, where=y > 0)`"),
    ("group groupby group_by per key index groups", "write `mean(x, by=y)`"),
    ("min max lo hi minimum maximum a_min a_max", "write `clip(x, 0, 1)`: the bounds are positional"),
    ("eps epsilon", "set it for the whole spec: `numerics: {eps: 1e-4}`"),
    ("descending reverse ascending", "write `rank(-x)`: 1 is the highest"),
    ("default fill_value", "write `coalesce(mean(x), 0)`"),
]


def _table(rows: list[tuple[str, str]]) -> dict[str, str]:
    table: dict[str, str] = {}
    for names, answer in rows:
        for name in names.split():
            assert name not in table, f"`{name}` has two answers"
            table[name] = answer
    return table


NAMES, KEYS, PART_KEYS, WORDS, ARGUMENTS = map(_table, (_ANSWERS, _KEYS, _PART_KEYS, _WORDS, _ARGUMENTS))

# Names that are the same in torch, numpy or Python's `math`.
SAME = {
    **{
        name: f"{name}(x)" for name in ("abs", "sign", "sqrt", "exp", "log", "sigmoid", "tanh", "cos", "floor", "round")
    },
    **{name: f"{name}(x)" for name in ("mean", "sum", "std", "var", "min", "max", "count")},
    **{name: f"{name}(x > 0)" for name in ("any", "all")},
    "clip": "clip(x, 0, 1)",
    "quantile": "quantile(x, 0.9)",
    "pi": "pi",
    "comb": "comb(group_size, 2)",
}

_DOTTED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*|\))\.([A-Za-z_][A-Za-z_0-9.]*)")
_MODULES = frozenset({"torch", "np", "numpy", "jnp", "jax", "math", "F", "tf", "scipy", "statistics", "nn"})
_SPELT = [  # texts that are not names
    (re.compile(r"reinforce\w*\s*\+\+", re.IGNORECASE), NAMES["reinforce"]),
    (re.compile(r"\bdr\.\s*grpo", re.IGNORECASE), NAMES["drgrpo"]),
    (re.compile(r"\bmo-grpo", re.IGNORECASE), NAMES["mo_grpo"]),
    (re.compile(r"//"), "write `floor(x / 2)`"),
    (re.compile(r"%"), "write a share as `0.5`, and the remainder by 5 as `x - 5 * floor(x / 5)`"),
]


def help_for(name: str, known: Iterable[str], table: dict[str, str], otherwise: str | None = None) -> str | None:
    """The help for an unknown name: the answer in the table, else the nearest known name.

    A known name in another case comes first: if the spec has `KL`, that is what `kl` means.
    """
    known = list(known)
    if any(k.lower() == name.lower() for k in known):
        return did_you_mean(name, known)
    return table.get(name.lower()) or did_you_mean(name, known, otherwise)


def help_at(text: str, at: int) -> str | None:
    """The help for an expression that fails at character `at`, if other programs accept what is there."""
    for pattern, spelling in _SPELT:
        if _match_over(pattern, text, at):
            return spelling
    found = _match_over(_DOTTED, text, at)
    if found is None:
        return None
    name = found[2].rpartition(".")[2]
    answer = f"write `{SAME[name]}`" if name in SAME else NAMES.get(name.lower())
    if found[1] in _MODULES:
        return answer or "write functions without a module"
    return answer or "values have no attributes: declare each measured value as a separate column"


def _match_over(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str] | None:
    return next((found for found in pattern.finditer(text) if found.start() <= at <= found.end()), None)
