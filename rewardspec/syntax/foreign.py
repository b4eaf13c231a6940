"""Names that people bring from torch, numpy and the trainers, and what is written here instead.

Everything that stands in backticks in an answer is a piece of a spec that compiles: an expression of `x` and `y`,
columns, and `correct`, a component of two values; or a piece of YAML. A test compiles every one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rewardspec.text.diagnostics import did_you_mean

_ANSWERS = [  # (names, answer), of what stands in expressions, called or not
    # Elementwise
    ("clamp clamp_ bound bounded truncate_range", "write `clip(x, 0, 1)`"),
    ("clamp_min relu fmax maximum hinge positive_part", "write `max(x, 0)`: of several values, elementwise"),
    ("clamp_max fmin minimum", "write `min(x, 1)`: of several values, elementwise"),
    ("where cond iff ifelse if_else select choose switch case", "write `x if y > 0 else 0`"),
    ("pow power", "write `x ** 2`"),
    ("square squared", "write `x ** 2`"),
    ("ceil ceiling", "write `-floor(-x)`"),
    ("int trunc truncate fix", "write `floor(x)`"),
    ("mod fmod remainder modulo", "the remainder by 5 is `x - 5 * floor(x / 5)`"),
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
    ("inf infinity infty", "infinity is no value; an open end is declared so: `range: [0, .inf]`"),
    ("float double bool boolean indicator heaviside", "a comparison is 1 or 0 already: `x > 0`"),
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
    ("percentile nanpercentile nanquantile quantiles kthvalue", "write `quantile(x, 0.9)`: from 0 to 1"),
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
    ("argmax best is_best", "the best of the group is where `x == max(x)`"),
    ("argmin worst is_worst", "the least of the group is where `x == min(x)`"),
    ("sort sorted argsort rankdata ranks order", "write `rank(x)`: 1 is least"),
    ("topk top_k nlargest", "the two best of the group are where `rank(-x) <= 2`"),
    ("count_nonzero bincount", "write `sum(x != 0)`"),
    ("mode majority majority_vote most_common", "how many of the group agree is `count(x, by=x)`"),
    ("groupby group_by scatter_mean segment_mean", "write `mean(x, by=y)`"),
    # Normalisers
    (
        "normalize normalise normalized normalised standardize standardise group_norm norm "
        "layer_norm normalize_rewards",
        "over the group `zscore(x)`; to [0, 1] `minmax(x)`; over the batch `whiten(x)`",
    ),
    ("z_score z_scores zscores z_normalize", "write `zscore(x)`: over the group"),
    ("batch_norm batchnorm whitening batch_normalize", "write `whiten(x)`"),
    ("min_max minmax_scale min_max_scale min_max_norm normalize01", "write `minmax(x)`"),
    ("demean center_rewards subtract_mean", "write `center(x)`"),
    ("leave_one_out", "write `loo(x)`"),
    ("softmax", "over the group `exp(x - max(x)) / sum(exp(x - max(x)))`"),
    ("log_softmax", "over the group `x - max(x) - log(sum(exp(x - max(x))))`"),
    ("logsumexp", "over the group `max(x) + log(sum(exp(x - max(x))))`"),
    # What is summed, and of what
    (
        "reward total_reward sum_reward sum_rewards sum_of_rewards reward_sum rewards_sum final_reward weighted_sum",
        "the weighted sum of all components is `total`",
    ),
    (
        "reward_weights reward_weight component_weights",
        "the weighted sum is `total`; one weight stands at its component: `weight: 0.5`",
    ),
    ("baseline", "the mean of the group is `mean(total)`, that of the others `total - loo(total)`"),
    ("num_generations group_len n_samples rollout_n num_rollouts num_samples", "write `group_size`"),
    (
        "len length size shape numel",
        "the rollouts of a group are `group_size`; the length of an answer is a column that trainers fill in: "
        "`signals: {tokens: {range: [0, .inf]}}`",
    ),
    (
        "tokens num_tokens n_tokens token_count response_length response_len response_tokens completion_length "
        "completion_len completion_tokens seq_len seqlen",
        "the length of an answer is a column that trainers fill in: `signals: {tokens: {range: [0, .inf]}}`",
    ),
    (
        "truncated is_truncated overlong_filter clipped mask_truncated_completions",
        "it is a column that trainers fill in: `signals: {truncated: {values: [0, 1]}}`",
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
        "from 1 down to 0 over the run: `0.5 * (1 + cos(pi * progress))`",
    ),
    (
        "ema ewma ewm moving_average running_mean running_std rolling_mean running_average momentum history previous",
        "nothing is remembered from one batch to the next; a column can carry it: "
        "`signals: {running: {range: [0, 1], level: batch}}`",
    ),
    (
        "rand random randn uniform bernoulli dropout",
        "nothing is drawn in an expression; a column can bring it: `signals: {coin: {values: [0, 1]}}`",
    ),
    # What is measured outside
    (
        "kl kl_div kl_divergence kl_penalty kld kl_coef kl_coeff logprob logprobs log_prob log_probs old_log_probs "
        "ref_logprob ratio entropy perplexity",
        "no probabilities of the policy are read here; what the trainer measures of them is a column: "
        "`signals: {kl: {range: [-.inf, .inf]}}`",
    ),
    (
        "regex re match search findall contains startswith endswith str lower strip split levenshtein edit_distance "
        "bleu rouge f1_score json_loads eval exec parse",
        "no text is read in an expression; a reward function gives a column: "
        '`style: {python: "my_rewards:style", range: [0, 1]}`',
    ),
    ("value values critic gae td td_lambda returns vapo ppo", "there is no critic; against the other rollouts: `rloo`"),
    # Schemes
    (
        "dapo dynamic_sampling filter_groups",
        "DAPO is `advantage: grpo`, with `keep: any(correct) and not all(correct)` "
        "and, for length, a component `overlong(x, 20480, 4096)`",
    ),
    (
        "gspo cispo sapo gmpo aspo dppo",
        "its difference is in the loss, which is the trainer's; the advantage is `grpo`",
    ),
    ("dpo kto simpo orpo ipo", "it learns from pairs, not from groups that are scored; here: `grpo`"),
    ("drgrpo doctor_grpo grpo_no_std grpo_without_std mean_only", "write `dr_grpo`"),
    (
        "reinforce reinforce_plus_plus reinforce_pp reinforcepp reinforceplusplus rpp",
        "over the batch alone it is `whiten(total)`; with the mean of the group as baseline `reinforce_baseline`",
    ),
    ("reinforce_plus_plus_baseline reinforce_pp_baseline", "write `reinforce_baseline`"),
    (
        "remax",
        "the reward of a greedy answer is a column, `signals: {greedy: {range: [0, 1], level: group}}`, "
        "and the advantage `total - greedy`",
    ),
    ("opo", "its baseline weighs by length: `total - sum(x * total) / sum(x)`, where `x` is the column of lengths"),
    ("gpg", "write `dr_grpo`, without the groups that have no gradient: `keep: std(total) > 0`"),
    ("maxrl max_rl", "write `center(total) / mean(total) if mean(total) > 0 else 0`"),
    ("mo_grpo mogrpo normalize_then_sum", "normalised, then summed: `decoupled`, or with a step over the batch `gdpo`"),
    ("sum_then_normalize", "write `grpo`"),
    ("vanilla raw_reward identity", "write `total`, or with a baseline `rloo`"),
]

_KEYS = [  # of the spec
    ("reward_weights weights reward_weight", "each component has its own: `correct: {values: [0, 1], weight: 0.5}`"),
    (
        "rewards reward_funcs reward_functions reward_fn reward_model reward_models reward graders criteria rubric",
        "what is rewarded stands under `components: {correct: {values: [0, 1]}}`",
    ),
    (
        "scale_rewards normalize normalization norm normalize_advantage norm_adv_by_std_in_grpo whiten whiten_rewards",
        "by the group's deviation it is `advantage: grpo`, by the batch's `advantage: batch_grpo`, "
        "by none `advantage: dr_grpo`",
    ),
    (
        "multi_objective_aggregation aggregation normalize_then_sum",
        "normalised, then summed, it is `advantage: gdpo`; summed first `advantage: grpo`",
    ),
    (
        "adv_estimator advantage_estimator estimator algorithm algo scheme method advantages loss_type loss objective",
        "how rewards become advantages is said by `advantage: grpo`; the loss is the trainer's",
    ),
    (
        "beta kl kl_coef kl_beta init_kl_coef kl_loss_coef epsilon epsilon_high clip_ratio clip_ratio_high "
        "learning_rate lr temperature num_iterations",
        "it belongs to the trainer; of numbers the spec has `numerics: {eps: 1e-4}`",
    ),
    (
        "num_generations group_size rollout_n n_samples max_completion_length max_response_length batch_size",
        "it belongs to the trainer; in expressions it is `group_size`",
    ),
    (
        "filter_groups dynamic_sampling filter filters",
        "groups that stay in the batch are said by `keep: any(correct) and not all(correct)`",
    ),
    (
        "overlong_buffer overlong soft_overlong_punishment",
        'it is a component: `components: {overlong: {expr: "overlong(x, 20480, 4096)"}, correct: {values: [0, 1]}}`',
    ),
    (
        "constants params parameters variables vars const let definitions defs functions",
        "they stand under `define: {half: 0.5}`",
    ),
    (
        "metrics columns inputs features fields observations measures",
        "they stand under `signals: {y: {range: [0, 1]}}`",
    ),
    ("description doc docs comment notes", "write `about: what it is for`"),
    ("version spec_version", "write `rewardspec: 1`"),
    ("paper reference url citation", "write `source: the paper, section, equation`"),
    ("eps ddof", "write `numerics: {eps: 1e-4, ddof: 0}`"),
    ("ignore suppress disable noqa", "write `allow: {phantom-gradient: the format is to be learnt first}`"),
    ("assert asserts checks tests invariants properties", "write `guarantees: {bounded: within(4)}`"),
    ("success correct", "it is a component: `components: {correct: {values: [0, 1]}}`"),
]

_PART_KEYS = [  # of a signal or a component
    ("coef coefficient coeff weights reward_weight lambda alpha multiplier factor importance", "write `weight: 0.5`"),
    ("gate if condition conditions where mask only_if requires depends_on cond unless", "write `when: correct >= 1`"),
    ("else default fallback otherwise_value", "write `otherwise: 0`, beside `when: correct >= 1`"),
    ("min max low high lower upper bounds domain limits interval", "write `range: [0, 1]`"),
    (
        "type dtype kind binary bool choices enum categories levels",
        "say what it can be: `values: [0, 1]`, or `range: [0, 1]`",
    ),
    ("clip clamp", "write `outside: clip`, beside `range: [0, 1]`"),
    ("formula value reward equation compute expression score calc", "write `expr: x <= 4000`"),
    (
        "function func fn callable import path module reward_func grader",
        "write `use: toolrl.format`, or, beside `range: [0, 1]`, `python: my_rewards:style`",
    ),
    ("args kwargs params options config", "options of a reward function stand under `with: {limit: 2000}`"),
    ("required optional nullable na nan", "write `missing: ignore`"),
    ("normalize normalization norm zscore", "normalisation is said in `advantage: decoupled`"),
    ("schedule anneal warmup decay curriculum", "write `weight: 1 - progress`"),
    ("penalty", "write `weight: -1`"),
    ("description doc comment", "write `about: what it is`"),
    ("per scope granularity axis", "write `level: group`"),
    ("threshold cutoff", "write `expr: x >= 0.5`"),
]

_WORDS = [  # where one of a few words has to stand
    ("sample sequence completion response trajectory answer output", "write `level: rollout`"),
    ("prompt question query problem task", "write `level: group`"),
    ("global run", "write `level: batch`"),
    ("token turn", "there is one value for each rollout here: `level: rollout`"),
    ("skip drop none null nan mask exclude omit ignored", "write `missing: ignore`"),
    ("0 zeros fill", "write `missing: zero`"),
    ("clamp clipped saturate truncate", "write `outside: clip`"),
    ("raise fail strict", "leave it out, or write `missing: error`"),
]

_ARGUMENTS = [
    ("dim axis axes dims", "the axis stands after over, and is the group where nothing is said: `mean(x, over=batch)`"),
    ("keepdim keepdims", "leave it out: `x - mean(x)` spreads by itself"),
    ("unbiased correction bias", "write `std(x, ddof=1)`"),
    ("mask cond condition filter subset", "write `mean(x, where=y > 0)`"),
    ("group groupby group_by per key index groups", "write `mean(x, by=y)`"),
    ("min max lo hi minimum maximum a_min a_max", "write `clip(x, 0, 1)`: by position"),
    ("eps epsilon", "it is said once for the spec: `numerics: {eps: 1e-4}`"),
    ("descending reverse ascending", "write `rank(-x)`: 1 is then the greatest"),
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

# What is called the same here as in torch, numpy and Python's own `math`.
SAME = {
    **{
        name: f"{name}(x)" for name in ("abs", "sign", "sqrt", "exp", "log", "sigmoid", "tanh", "cos", "floor", "round")
    },
    **{name: f"{name}(x)" for name in ("mean", "sum", "std", "var", "min", "max", "count")},
    **{name: f"{name}(x > 0)" for name in ("any", "all")},
    "clip": "clip(x, 0, 1)",
    "quantile": "quantile(x, 0.9)",
    "pi": "pi",
}

_DOTTED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*|\))\.([A-Za-z_][A-Za-z_0-9.]*)")
_MODULES = frozenset({"torch", "np", "numpy", "jnp", "jax", "math", "F", "tf", "scipy", "statistics", "nn"})
_SPELT = [  # what is not even a name here
    (re.compile(r"reinforce\w*\s*\+\+", re.IGNORECASE), NAMES["reinforce"]),
    (re.compile(r"\bdr\.\s*grpo", re.IGNORECASE), NAMES["drgrpo"]),
    (re.compile(r"\bmo-grpo", re.IGNORECASE), NAMES["mo_grpo"]),
    (re.compile(r"//"), "write `floor(x / 2)`"),
    (re.compile(r"%"), "a share is a number, `0.5`; the remainder by 5 is `x - 5 * floor(x / 5)`"),
]


def way_out(name: str, known: Iterable[str], table: dict[str, str], otherwise: str | None = None) -> str | None:
    """A help line for a name that is not known: what is written here for it, else the nearest known name.

    A known name in another case comes first: `KL` of the spec's own is what `kl` means in it.
    """
    known = list(known)
    if any(k.lower() == name.lower() for k in known):
        return did_you_mean(name, known)
    return table.get(name.lower()) or did_you_mean(name, known, otherwise)


def way_out_at(text: str, at: int) -> str | None:
    """A help line for an expression that does not read at character `at`, if elsewhere it would."""
    for pattern, spelling in _SPELT:
        if _match_over(pattern, text, at):
            return spelling
    found = _match_over(_DOTTED, text, at)
    if found is None:
        return None
    name = found[2].rpartition(".")[2]
    answer = f"write `{SAME[name]}`" if name in SAME else NAMES.get(name.lower())
    if found[1] in _MODULES:
        return answer or "no module stands before a function here"
    return answer or "values have no attributes here; what is measured is a column with a name of its own"


def _match_over(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str] | None:
    return next((found for found in pattern.finditer(text) if found.start() <= at <= found.end()), None)
