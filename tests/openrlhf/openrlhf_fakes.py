"""The stock command line on a CPU: all of OpenRLHF but the policy's model and vLLM, which need GPUs.

Run as a program it is the adapter's launcher; the policy writes the rows that it would train on to a file. Where
OPENRLHF_FAKES_PYTHON is a command, Ray starts the actors with it instead of `python`.
"""

import json
import os
import sys

import ray
from openrlhf.trainer.ray.launcher import BaseDistributedActor


@ray.remote
class Policy(BaseDistributedActor):
    """In place of PolicyModelActor, without a model: the log-probabilities of new and old policy are 0."""

    def init_model_from_pretrained(self, strategy, pretrain, max_steps, vllm_engines):
        self.args = strategy.args

    def execute_batch(self, method_name, all_data, start, end):
        rows = [dict(zip(all_data, values, strict=True)) for values in zip(*all_data.values(), strict=True)]
        return [getattr(self, method_name)(**row) for row in rows[start:end]]

    def forward(self, sequences, action_mask, attention_mask, mm_train_inputs_list=None):
        import torch

        return torch.zeros(action_mask.shape, dtype=torch.float32)

    def append(self, experience):
        for i, prompt in enumerate(experience.prompts):
            mask = experience.action_mask[i].bool()
            info = {name: values[i].item() for name, values in experience.info.items()}
            row = {"prompt": prompt, "info": info, "truncated": experience.truncated[i].item()}
            row["response"] = experience.sequences[i, 1:][mask].tolist()
            row["advantages"] = experience.advantages[i][mask].tolist()
            row["dtype"] = str(experience.advantages.dtype)
            self._write(row)

    def fit(self, kl_ctl):
        self._write({"trained": True})
        return {"policy_loss": 0.0}

    def broadcast_to_vllm(self):
        pass

    def get_checkpoint_states(self):
        return json.loads(os.environ["OPENRLHF_FAKES_RESUME"])

    def save_model(self):
        pass

    def save_checkpoint(self, tag, client_states, metric_value, metric_key):
        self._write({"saved": client_states["global_step"], "rewardspec": client_states["rewardspec"]})

    def reload_states(self):
        pass

    def offload_states(self):
        pass

    def empty_cache(self):
        pass

    def _write(self, line):
        with open(os.environ["OPENRLHF_FAKES_OUT"], "a") as file:
            file.write(json.dumps(line) + "\n")


def main():
    import openrlhf.trainer.ray.ppo_actor as ppo_actor

    from rewardspec.adapters import openrlhf as adapter

    ppo_actor.PolicyModelActor = Policy
    start = ray.init

    def init(runtime_env, **options):
        if python := os.environ.get("OPENRLHF_FAKES_PYTHON"):
            runtime_env["py_executable"] = python
        return start(num_cpus=8, num_gpus=2, include_dashboard=False, runtime_env=runtime_env, **options)

    ray.init = init
    adapter.main(sys.argv[1:])


if __name__ == "__main__":
    # by its name, not as __main__: actors have to find it
    import openrlhf_fakes

    openrlhf_fakes.main()
