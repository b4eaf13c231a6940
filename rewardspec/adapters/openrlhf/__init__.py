"""OpenRLHF: a spec's advantages in the stock `openrlhf.cli.train_ppo_ray`, whose arguments follow `--`.

    python -m rewardspec.adapters.openrlhf --spec spec.yaml -- \\
        --algo.advantage.estimator group_norm --reward.remote_url reward.py ...

The spec's columns are found by name: first under `extra_logs`, which `reward_func` (or an agent's last step) returns;
then `tokens` and `truncated`, which the adapter fills in; then OpenRLHF's own `reward`, `score`, `response_clip_ratio`
and `kl`. `extra_logs` must be numbers; NaN is a missing value. Names that the spec does not read are only logged.
`tokens` counts the model's own tokens, `truncated` comes from the agent executor, and `reward` is the reward after
OpenRLHF's length penalties.

`step` is the number of training steps before this one, also after resuming; `total_steps` is the number of steps that
the prompts last for (with dynamic filtering fewer). A KL penalty in the reward (`--algo.kl.init_coef` without
`--algo.kl.use_loss`) is added for each token, as usual. `--reward.clip_range`, which clips advantages in OpenRLHF, is
refused. With `refill` advantages are weighted, and rows stay. With `--algo.dynamic_filtering_enable` groups that are
dead under the spec are filtered, whatever their `scores`; they are replaced by new prompts in rounds.

Turns. A turn is a step of an agent, with the tokens of its action range. A column of a list (`level: turn`) is what the
steps returned under its name in `extra_logs`, missing for a step without it; or a list of your own, under `extra_logs`
of the last step (`[[1.0]]` if it can have one item) or of `reward_func`. A list that the spec reads no column of, as in
`correct / position`, has an item for each step. `reward` and `tokens` with `level: turn` are those of each step. Where
items have advantages, each goes onto the tokens of its step; a rollout with more or fewer items than steps is an error.
OpenRLHF itself does not log lists.

Checkpoints contain the fingerprint of the spec; `--resume-changed` resumes from one of another spec.

A `worker_process_setup_hook` installs the hooks in every worker of the Ray job, when it imports OpenRLHF's modules.
Importing this module imports neither OpenRLHF, Ray nor torch.
"""

from rewardspec.adapters.openrlhf.hook import install, setup_hook
from rewardspec.adapters.openrlhf.launcher import main
from rewardspec.adapters.openrlhf.settings import Settings

__all__ = ["Settings", "install", "main", "setup_hook"]
