"""What stands in for GPUs in runs of verl's own `main_ppo`: the language model's server and the actor, no more.

Loaded in every process through VERL_USE_EXTERNAL_MODULES, after the adapter. Everything else is verl's: Hydra, Ray,
TransferQueue, data set, agent loops, reward loop, replay buffer, padding, advantages, metrics. The actor writes what
it would train on to $VERL_FAKES_OUT, one JSON line a row.
"""

import hashlib
import json
import os
from functools import wraps
from types import SimpleNamespace

from rewardspec.adapters.verl import hook as adapter

OUT = "VERL_FAKES_OUT"
FIELDS = ["uid", "responses", "response_mask", "advantages", "extra_fields", "prompts"]


def write(**row):
    with open(os.environ[OUT], "a", encoding="utf-8") as file:
        file.write(json.dumps(row, default=lambda x: x.item()) + "\n")


class FakeServer:
    """Answers a prompt with digits made from it and from how often it was asked: the same in every run."""

    def __init__(self, config, eos):
        self.longest, self.eos, self.asked = config.actor_rollout_ref.rollout.response_length, eos, {}

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        from verl.workers.rollout.replica import TokenOutput

        key = tuple(prompt_ids)
        self.asked[key] = self.asked.get(key, 0) + 1
        digest = hashlib.sha256(f"{key} {self.asked[key]}".encode()).digest()
        length = 2 + digest[0] % self.longest  # up to one more than there is room for
        response = [4 + byte % 10 for byte in digest[1:length]] + [self.eos]
        response = response[: self.longest]
        steps = {"global_steps": 0, "min_global_steps": 0, "max_global_steps": 0}
        return TokenOutput(token_ids=response, log_probs=[-1.0] * len(response), extra_fields=steps)


class Anything:
    """A manager of devices that are not there."""

    def __init__(self, **known):
        self.__dict__.update(known)

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def in_v1(module):
    from tensordict import TensorDict

    class Actor(Anything):
        def __init__(self, trainer):
            super().__init__(trainer=trainer, _dispatch_info={"actor": [0, 1]})

        def compute_log_prob(self, batch):
            import torch
            import transfer_queue as tq

            data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["input_ids"])
            zeros = torch.nested.as_nested_tensor(
                [torch.zeros(len(row)) for row in data["input_ids"]], layout=torch.jagged
            )
            fields = TensorDict({"log_probs": zeros, "entropy": zeros}, batch_size=len(batch))
            return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

        def update_actor(self, batch):
            import transfer_queue as tq

            data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id)
            for i, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True)):
                row = {name: getattr(data[name][i], "data", data[name][i]) for name in FIELDS if name != "extra_fields"}
                row = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}
                extra = getattr(data["extra_fields"][i], "data", data["extra_fields"][i])
                token = data["reward_token"][i] if "reward_token" in data.keys() else None  # noqa: SIM118
                write(
                    step=self.trainer.global_steps,
                    key=key,
                    padding=tag.get("is_padding", False),
                    info=extra["reward_extra_info"],
                    text=self.trainer.tokenizer.decode(row["prompts"]),
                    reward_token=getattr(token, "data", token),
                    **row,
                )
            return {"metrics": {"mfu": [0.0], "loss": [0.0]}}

    def setup(self):
        from verl.experimental.reward_loop import RewardLoopManager

        self._init_tokenizer()
        self._init_dataloader()
        self._init_dump_executor()
        self.teacher_model_manager = self.distillation_config = None
        self.actor_rollout_wg = Actor(self)
        self.reward_loop_manager = RewardLoopManager(config=self.config)
        server = FakeServer(self.config, self.tokenizer.eos_token_id)
        self.llm_server_manager = Anything(get_client=lambda: server)
        self.checkpoint_manager = Anything()
        self.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
        self._load_checkpoint()

    module.PPOTrainerSync._setup = setup
    logged(module.PPOTrainerSync)


def in_v0(module):
    from verl import DataProto
    from verl.experimental.agent_loop import AgentLoopManager

    def init_workers(self):
        from verl.experimental.reward_loop import RewardLoopManager

        self.actor_rollout_wg, self.checkpoint_manager = Anything(), Anything()
        self.llm_server_manager, self.ref_in_actor = Anything(), False
        self.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
        self.reward_loop_manager = RewardLoopManager(config=self.config)
        self.async_rollout_manager = AgentLoopManager.create(
            config=self.config,
            llm_client=FakeServer(self.config, self.tokenizer.eos_token_id),
            reward_loop_worker_handles=self.reward_loop_manager.reward_loop_worker_handles,
        )

    def old_log_prob(self, batch):
        import torch

        zeros = torch.zeros_like(batch.batch["responses"], dtype=torch.float32)
        return DataProto.from_dict({"old_log_probs": zeros, "entropys": zeros}), 0.0

    def update_actor(self, batch):
        data, others = batch.batch, batch.non_tensor_batch
        for i in range(len(batch)):
            write(
                step=self.global_steps,
                uid=others["uid"][i],
                responses=data["responses"][i].tolist(),
                response_mask=data["response_mask"][i].tolist(),
                advantages=data["advantages"][i].tolist(),
                info=others["reward_extra_info"][i],
                text=self.tokenizer.decode(data["prompts"][i]),
                reward_token=others["reward_token"][i] if "reward_token" in others else None,
                padding=False,
            )
        return DataProto(meta_info={"metrics": {"actor/loss": [0.0]}})

    trainer = module.RayPPOTrainer
    trainer.init_workers, trainer._compute_old_log_prob, trainer._update_actor = (
        init_workers,
        old_log_prob,
        update_actor,
    )
    trainer._balance_batch = lambda self, batch, metrics: None
    logged(trainer)


def logged(trainer):
    """Keep what the trainer logs."""
    fit = trainer.fit

    @wraps(fit)
    def wrapper(self, *args, **kwargs):
        from verl.utils.tracking import Tracking

        Tracking.log = lambda _, data, step: write(step=step, metrics=numbers(data))
        return fit(self, *args, **kwargs)

    trainer.fit = wrapper


def numbers(metrics):
    return {name: float(value) for name, value in metrics.items() if name.startswith("rewardspec/")}


adapter.PATCHES["verl.trainer.ppo.v1.trainer_sync"] = in_v1


def both(first, second):
    def patch(module):
        first(module)
        second(module)

    return patch


adapter.PATCHES["verl.trainer.ppo.ray_trainer"] = both(adapter.PATCHES["verl.trainer.ppo.ray_trainer"], in_v0)
