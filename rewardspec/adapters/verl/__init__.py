"""verl: `algorithm.adv_estimator=rewardspec` in stock `python -m verl.trainer.main_ppo`, V1 and V0.

    VERL_USE_EXTERNAL_MODULES=rewardspec.adapters.verl python -m verl.trainer.main_ppo \\
        algorithm.adv_estimator=rewardspec +algorithm.rewardspec.spec=spec.yaml \\
        reward.custom_reward_function.path=reward.py ...

The spec's columns are what `compute_score` returns in its dict, by name; else `tokens`, `truncated` and
`score`, which are filled in; else columns of the data set. `step` is verl's `global_steps`, which is 1 in the
first step. Further keys of `algorithm.rewardspec`: `dialect`, `constants`, `seed`, and `resume_changed`, to go on
from a checkpoint that was trained under another spec.

The reward function is loaded where training is started and on every machine, before models are. Under
`algorithm.filter_groups` (V1) groups without signal under the spec are filtered, whatever their `score`.

V0 hands on `data_source` alone of the data set. Rejection by rollout correction leaves a rollout in its group's
statistics; in V0 its tokens are then fewer. Outputs of one session are one rollout: the last one's values, the
tokens of all. Groups that are drawn again (`refill`) are weighted; rows stay where they are.

Importing this module only notes what to do once verl imports its own modules: verl imports plugins before them,
and its V1 trainer cannot be imported without TransferQueue. A run that asks for another estimator goes on whatever
goes wrong here. Where verl does not know the estimator `rewardspec`, `python -c "import rewardspec.adapters.verl"`
shows why: what fails in a plugin is not shown by verl itself.
"""

from rewardspec.adapters.verl.hook import estimator, install

__all__ = ["estimator", "install"]

install()
