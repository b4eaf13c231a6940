"""verl: `algorithm.adv_estimator=rewardspec` in stock `python -m verl.trainer.main_ppo`, V1 and V0.

    VERL_USE_EXTERNAL_MODULES=rewardspec.adapters.verl python -m verl.trainer.main_ppo \\
        algorithm.adv_estimator=rewardspec +algorithm.rewardspec.spec=spec.yaml \\
        reward.custom_reward_function.path=reward.py ...

The spec's columns are found by name: first in the dict that `compute_score` returns; then `tokens`, `truncated` and
`score`, which the adapter fills in; then in the data set. `step` is verl's `global_steps`, which is 1 in the first
step. More keys of `algorithm.rewardspec`: `dialect`, `constants`, `seed`, and `resume_changed`, to resume from a
checkpoint of another spec.

The reward function is loaded before models are, where training is started and on every machine. With
`algorithm.filter_groups` (V1) groups that are dead under the spec are filtered, whatever their `score`.

V0 passes on only `data_source` from the data set. A rollout that rollout correction rejects still counts in its group's
statistics; in V0 it then has fewer tokens. The outputs of one session are one rollout, with the values of the last
output and the tokens of all. With `refill` advantages are weighted, and rows stay.

Turns. Columns of a list (`level: turn`) come from lists that `compute_score` returns, or from the agent loop
(`tool_rewards`, your own `extra_fields`; `turn_scores` is empty in verl's own). A turn is a stretch of tokens that the
model wrote: a run of 1 in `response_mask`. `tokens` with `level: turn` is the number of tokens of each, and a list that
the spec reads no column of, as in `correct / position`, has an item for each turn. Where items have advantages, each
goes onto the tokens of its turn, with 0 elsewhere; a rollout with more or fewer items than turns is an error. verl's
own tool agent has a reward for each call: `tool_rewards` is missing in turns without a call (`missing: ignore`), and
two calls in one turn are an error. A spec that reduces the list (`sum(tool_rewards, over=rollout)`) reads it as it is.

Importing this module only registers patches for when verl imports its own modules: verl imports plugins before them,
and its V1 trainer cannot be imported without TransferQueue. A failure here does not stop runs of other estimators. If
verl does not know the estimator `rewardspec`, `python -c "import rewardspec.adapters.verl"` shows why; verl itself does
not show errors of plugins.
"""

from rewardspec.adapters.verl.hook import estimator, install

__all__ = ["estimator", "install"]

install()
