"""OpenRLHF: a spec's advantages in the stock `openrlhf.cli.train_ppo_ray`, whose arguments follow `--`.

    python -m rewardspec.adapters.openrlhf --spec spec.yaml -- \\
        --algo.advantage.estimator group_norm --reward.remote_url reward.py ...

The spec's columns are what `reward_func` (or an agent's last step) returns under `extra_logs`, by name; else `tokens`
and `truncated`, which are filled in, and what OpenRLHF has itself: `reward`, `score`, `response_clip_ratio`, `kl`.
`extra_logs` hold numbers; NaN is a missing value, and names that the spec does not read are logged and let be.
`tokens` counts the model's own tokens, `truncated` is what the agent executor says, `reward` the reward after
OpenRLHF's length penalties.

`step` counts the training steps before this one, also after resuming; `total_steps` is as many as the prompts are
enough for (under dynamic filtering there are fewer). A KL penalty in the reward (`--algo.kl.init_coef` without
`--algo.kl.use_loss`) is added for each token, as ever. `--reward.clip_range` clips advantages in OpenRLHF: not here.
Groups that are drawn again (`refill`) are weighted; rows stay where they are. Under `--algo.dynamic_filtering_enable`
groups without signal under the spec are filtered, whatever their `scores`; new prompts take their places in rounds.

Checkpoints hold the fingerprint of the spec; `--resume-changed` goes on from one that was trained under another.

The hooks are put in by a `worker_process_setup_hook` in every worker of the Ray job, when OpenRLHF's modules are
imported there. Importing this module imports neither OpenRLHF, Ray nor torch.
"""

from rewardspec.adapters.openrlhf.hook import install, setup_hook
from rewardspec.adapters.openrlhf.launcher import main
from rewardspec.adapters.openrlhf.settings import Settings

__all__ = ["Settings", "install", "main", "setup_hook"]
