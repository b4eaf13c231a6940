"""One spec, one batch, one result: TRL's trainer, verl's advantage path, the written module and the reference.

The same for OpenRLHF is tests/openrlhf/test_parity_in_openrlhf.py, in its own environment. verl counts steps from 1 and
the others from 0, so a schedule is one step ahead there: here all are at the same count.
"""

import numpy as np
import parity_case as case
import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("verl")

from datasets import Dataset
from tiny_model import tiny_model, tiny_tokenizer
from trl import GRPOTrainer
from trl_runs import settings

import rewardspec
from rewardspec.adapters.trl import RewardSpecGRPOTrainer
from rewardspec.adapters.verl import hook as verl_adapter
from rewardspec.adapters.verl.rollouts import Advantages, of_data_proto

pytestmark = pytest.mark.filterwarnings("ignore")  # what importing a trainer says is not about us

EVERY_SCHEME = pytest.mark.parametrize("scheme", case.SCHEMES)
REWARDS = ("correct", "style", "proof")  # `length` is no reward: TRL has it in the data set


def reward_function(name, values):
    def measured(completions, **_):
        assert len(completions) == len(values)
        return values

    measured.__name__ = name
    return measured


# Trainers


def in_trl(folder, found, rewards, trainer=GRPOTrainer, changes=None, **options):
    """Advantages [N] of a batch that TRL's trainer generates and scores; N rollouts with groups together.

    rewards: by the name of their function, one value for each rollout.
    """
    n = len(found.groups)
    changes = {"per_device_train_batch_size": n, "num_generations": n // len({*found.groups}), **(changes or {})}
    lengths = found.columns["length"].tolist()
    rows = [{"prompt": f"{g} is what", "length": x} for g, x in zip(found.groups, lengths, strict=True)]
    made = trainer(
        model=tiny_model(),
        reward_funcs=[reward_function(name, values) for name, values in rewards.items()],
        args=settings(folder, **changes),
        train_dataset=Dataset.from_list(rows),
        processing_class=tiny_tokenizer(),
        **options,
    )
    made.state.global_step, made.state.max_steps = case.STEP, case.TOTAL_STEPS
    return made._generate_and_score_completions(rows)["advantages"]


def listed(values):
    return [None if np.isnan(value) else float(value) for value in values]


def in_trl_by_the_spec(folder, found, scheme, dialect=None):
    rewards = {name: listed(found.columns[name]) for name in REWARDS}
    return in_trl(folder, found, rewards, RewardSpecGRPOTrainer, spec=case.text(scheme), dialect=dialect)


def of_verl(found, tokens, rewards):
    """A DataProto as verl's trainer has it; rewards: what stands in `non_tensor_batch` beside the rest."""
    from verl import DataProto

    n, width = len(found.groups), int(tokens.max())
    mask = (torch.arange(width) < torch.tensor(tokens)[:, None]).long()
    levels = torch.zeros(n, width)
    if not np.isnan(found.total()).any():
        levels[torch.arange(n), torch.tensor(tokens) - 1] = torch.tensor(found.total(), dtype=torch.float32)
    tensors = {
        "prompts": torch.zeros(n, 2, dtype=torch.long),
        "responses": torch.full((n, width), 5),
        "response_mask": mask,
        "attention_mask": torch.cat([torch.ones(n, 2, dtype=torch.long), mask], 1),
        "token_level_rewards": levels,
    }
    uid = np.array([f"uid {group}" for group in found.groups], dtype=object)
    return DataProto.from_dict(tensors, {"uid": uid, "reward_extra_info": np.array(found.rows()), **rewards})


def in_verl(found, tokens, estimator, config, rewards=None):
    """Advantages [N] of verl's own `compute_advantage`; the same for every token of a response, or this fails."""
    from verl.trainer.ppo.ray_trainer import compute_advantage

    data = of_verl(found, tokens, rewards or {})
    norm_by_std = config.pop("norm_adv_by_std", True)
    data = compute_advantage(data, adv_estimator=estimator, norm_adv_by_std_in_grpo=norm_by_std, config=config)
    advantages, mask = data.batch["advantages"], data.batch["response_mask"]
    torch.testing.assert_close(advantages, advantages[:, :1] * mask)
    return advantages[:, 0]


def in_verl_by_the_spec(found, tokens, scheme, gaps=True, dialect=None):
    spec = rewardspec.loads(case.text(scheme, gaps))
    served = Advantages(spec if dialect is None else spec.under(dialect), seed=0)

    def serve(rewards, mask):
        rollouts = of_data_proto(None, of_verl(found, tokens, {}), mask, rewards)
        return served(rollouts, mask, case.STEP, case.TOTAL_STEPS)

    with verl_adapter._served_by(serve):
        return in_verl(found, tokens, verl_adapter.NAME, {})


def token_counts(found):
    return np.random.default_rng(1).integers(1, 10, len(found.groups))


# The same from all


@EVERY_SCHEME
def test_adapters_and_module_give_what_the_reference_gives(scheme, tmp_path):
    found = case.batch().sorted()  # TRL's groups stand together
    expected = case.expected(scheme, found)
    case.close(case.written(tmp_path, scheme)(found), expected)
    case.close(in_trl_by_the_spec(tmp_path, found, scheme), expected)
    case.close(in_verl_by_the_spec(found, token_counts(found), scheme), expected)


@pytest.mark.parametrize("sizes", [case.EVEN, case.RAGGED], ids=["even", "ragged"])
@EVERY_SCHEME
def test_interleaved_groups_give_what_the_reference_gives(scheme, sizes, tmp_path):
    found = case.batch(sizes)
    assert (np.diff(found.groups) < 0).any()
    expected = case.expected(scheme, found)
    case.close(case.written(tmp_path, scheme)(found), expected)
    case.close(in_verl_by_the_spec(found, token_counts(found), scheme), expected)


@EVERY_SCHEME
def test_every_part_of_the_case_counts(scheme):
    found, others = case.batch(), case.batch(gaps=False)
    expected = case.expected(scheme, found)
    changed = {
        "schedule": case.expected(scheme, found, step=0),
        "missing values": case.expected(scheme, others),
        "ignored, not 0": case.expected(scheme, found, gaps=False),
    }
    assert {what for what, other in changed.items() if np.abs(other - expected).max() < 1e-3} == set()
    if scheme != "gdpo":  # which moves all by the mean of the batch
        assert not expected[found.groups == 1].any()


# What trainers compute themselves, from rewards that are gated by hand


TRL = {
    "grpo": {},
    "dr_grpo": {"scale_rewards": "none"},
    "gdpo": {"multi_objective_aggregation": "normalize_then_sum"},
}


@pytest.mark.parametrize("scheme", TRL)
def test_dialect_trl_gives_what_trls_own_trainer_gives(scheme, tmp_path):
    found = case.batch().sorted()
    gated = {name: listed(values) for name, values in found.gated().items()}
    changes = TRL[scheme] | {"reward_weights": list(case.weights().values())}
    expected = in_trl(tmp_path, found, gated, changes=changes)
    case.close(in_trl_by_the_spec(tmp_path, found, scheme, dialect="trl"), expected)
    case.close(case.written(tmp_path, scheme, dialect="trl")(found), expected)


VERL = {
    "grpo": ("grpo", {}),
    "dr_grpo": ("grpo", {"norm_adv_by_std": False}),
    "gdpo": ("gdpo", {"gdpo_reward_keys": list(case.weights()), "gdpo_reward_weights": list(case.weights().values())}),
}


@pytest.mark.parametrize("sizes", [case.EVEN, (2, 3, 8, 5, 4)], ids=["even", "ragged"])
@pytest.mark.parametrize("scheme", VERL)
def test_dialect_verl_gives_what_verls_own_estimators_give(scheme, sizes, tmp_path):
    found = case.batch(sizes, gaps=False)  # in verl one missing value makes a group NaN
    tokens = token_counts(found)
    estimator, config = VERL[scheme]
    expected = in_verl(found, tokens, estimator, dict(config), found.gated(gaps=False))
    case.close(in_verl_by_the_spec(found, tokens, scheme, gaps=False, dialect="verl"), expected)
    case.close(case.written(tmp_path, scheme, gaps=False, dialect="verl")(found, tokens=tokens), expected)
