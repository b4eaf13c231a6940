"""OpenRLHF's third of tests/trainers/test_parity.py: the same specs, batch, written module and reference."""

import numpy as np
import parity_case as case
import pytest
import torch
from experience_makers import by_place, experiences, maker, own_tokens, stock

pytestmark = pytest.mark.filterwarnings("ignore")  # what importing a trainer says is not about us

EVERY_SCHEME = pytest.mark.parametrize("scheme", case.SCHEMES)
OWN = {"grpo": "group_norm", "dr_grpo": "dr_grpo"}


def responses(found, rewards):
    """What rollout actors return for a batch whose groups stand together, in responses of 1 to 9 tokens."""
    draw = np.random.default_rng(1)
    return [
        {
            "prompt": f"prompt {group}",
            "label": "",
            "observation_tokens": [7, 8, 9, *[5] * (tokens := int(draw.integers(1, 10)))],
            "action_ranges": [(3, 3 + tokens)],
            "rollout_log_probs": None,
            "truncated": False,
            "reward": float(reward),
            "scores": float(reward),
            "extra_logs": {name: float("nan") if value is None else value for name, value in row.items()},
        }
        for group, reward, row in zip(found.groups, rewards, found.rows(), strict=True)
    ]


def batches_of(found, scheme, gaps=True, dialect=None):
    """A maker with the spec in it, and Experiences of the batch, in an order that balances their lengths."""
    made = maker(case.text(scheme, gaps), dialect=dialect, train__dynamic_batch_enable=True)
    made.rewardspec.step, made.rewardspec.total_steps = case.STEP, case.TOTAL_STEPS
    rewards = np.zeros(len(found.groups)) if gaps else found.total()
    batches = experiences(made, responses(found, rewards))
    places = [place for batch in batches for place in batch.index]
    assert len(batches) > 1 and places != sorted(places)
    return made, batches


def each(batches):
    """The advantage of each rollout, [N] in the order of its batch; the same for all its tokens, or this fails."""
    found = by_place(batches, own_tokens)
    for tokens in found:
        torch.testing.assert_close(tokens, tokens[:1].expand(len(tokens)))
    return torch.stack([tokens[0] for tokens in found])


@EVERY_SCHEME
def test_adapter_and_module_give_what_the_reference_gives(scheme, tmp_path):
    found = case.batch().sorted()
    expected = case.expected(scheme, found)
    case.close(case.written(tmp_path, scheme)(found), expected)
    made, batches = batches_of(found, scheme)
    case.close(each(made.compute_advantages_and_returns(batches)), expected)


@pytest.mark.parametrize("scheme", OWN)
def test_dialect_openrlhf_gives_what_its_own_estimators_give(scheme, tmp_path):
    found = case.batch(gaps=False).sorted()  # in OpenRLHF one missing value makes a group NaN
    made, batches = batches_of(found, scheme, gaps=False, dialect="openrlhf")
    expected = each(stock(made, batches, OWN[scheme]))
    case.close(each(made.compute_advantages_and_returns(batches)), expected)
    case.close(case.written(tmp_path, scheme, gaps=False, dialect="openrlhf")(found), expected)
