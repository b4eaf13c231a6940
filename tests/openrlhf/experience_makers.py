"""Real experience makers of OpenRLHF with the adapter's hooks in them, and the Experiences that they work on."""

import copy
from types import SimpleNamespace

import torch
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.utils.config import hierarchize

import rewardspec
from rewardspec.adapters import openrlhf as adapter

SIZE, GROUPS = 4, 3
ARGUMENTS = {
    "algo.advantage.estimator": "group_norm",
    "algo.advantage.gamma": 1.0,
    "algo.advantage.lambd": 1.0,
    "algo.advantage.no_std_norm": False,
    "algo.advantage.is_correction_level": "off",
    "rollout.n_samples_per_prompt": SIZE,
    "rollout.batch_size": GROUPS,
    "rollout.micro_batch_size": 5,
    "rollout.max_tokens_per_gpu": 40,
    "rollout.max_new_tokens": 8,
    "rollout.vllm_generate_batch_size": GROUPS,
    "data.max_len": 16,
    "reward.remote_url": ["reward.py"],
    "reward.clip_range": (-10, 10),
    "reward.overlong_buffer_len": None,
    "reward.overlong_penalty_factor": 1.0,
    "reward.stop_properly_penalty_coef": None,
    "train.dynamic_batch_enable": False,
    "train.agent_func_path": None,
    "train.num_episodes": 2,
    "actor.num_nodes": 1,
    "actor.num_gpus_per_node": 2,
    "ds.ring_attn_size": 1,
    "ds.tensor_parallel_size": 1,
    "algo.kl.use_loss": False,
}


def arguments(**changed):
    """Nested arguments; `__` stands for the dot."""
    return hierarchize(SimpleNamespace(**ARGUMENTS | {k.replace("__", "."): v for k, v in changed.items()}))


def decode(rows, skip_special_tokens):
    assert skip_special_tokens
    return [" ".join(map(str, row)) for row in rows]


def maker(text, kl=0.0, dialect=None, constants={}, seed=0, log=None, **changed):  # noqa: B006
    """A real experience maker with the hooks in it, at step 3 of 10."""
    spec = rewardspec.loads(text, constants=constants)
    adapter.install(adapter.Settings.of(spec, constants, dialect, seed, log=log))
    strategy = SimpleNamespace(args=arguments(**changed))
    made = RemoteExperienceMaker(
        None, None, None, None, FixedKLController(kl), strategy, SimpleNamespace(pad_token_id=0, batch_decode=decode)
    )
    made.rewardspec.step, made.rewardspec.total_steps = 3, 10
    return made


def stock(made, batches, estimator):
    """What OpenRLHF's own method, which the adapter replaces, makes of copies of the batches."""
    own = copy.copy(made)
    own.args = arguments(algo__advantage__estimator=estimator)
    own.strategy, own.advantage_estimator = SimpleNamespace(args=own.args), estimator
    return RemoteExperienceMaker.compute_advantages_and_returns.__wrapped__(own, copy.deepcopy(batches))


def samples(found):
    return [SamplesGenerator._process_response_into_experience(None, r, max_len=16) for r in found]


def experiences(made, found, kl_seed=None, kl_type=torch.float32):
    """Experiences as they come to the method: batched, with a KL for each token."""
    batches = made.split_rollout_samples(samples(found))
    draw = torch.Generator().manual_seed(kl_seed or 0)
    for batch in batches:
        kl = torch.rand(batch.action_mask.shape, generator=draw) * (kl_seed is not None) * batch.action_mask
        batch.kl = kl.to(kl_type)
    return batches


def by_place(batches, value):
    """Values of single rollouts in prompt order."""
    rows = {place: value(batch, i) for batch in batches for i, place in enumerate(batch.index)}
    return [rows[place] for place in sorted(rows)]


def own_tokens(batch, i):
    return batch.advantages[i][batch.action_mask[i].bool()]
