"""Side by side with the trainers' own code, as installed: TRL 1.16.0 and verl 0.9.1."""

import pytest
import torch
from peers import trl_advantages, verl_gdpo, verl_grpo

import rewardspec

WEIGHTS = [1.0, 0.5, 2.0]


def spec(scheme, eps, missing=False):
    policy = ", missing: ignore" if missing else ""
    rows = "\n".join(f"  r{i}: {{range: [-9, 9], weight: {w}{policy}}}" for i, w in enumerate(WEIGHTS))
    return f"rewardspec: 1\ncomponents:\n{rows}\nnumerics: {{eps: {eps}}}\nadvantage: {scheme}\n"


def rewards(kind, rollouts=96):
    generator = torch.Generator().manual_seed(len(kind))
    if kind == "binary":
        return torch.randint(0, 2, (rollouts, 3), generator=generator).float()
    return torch.randn(rollouts, 3, generator=generator)


def ours(scheme, eps, data, groups):
    fn = rewardspec.compile(rewardspec.loads(spec(scheme, eps)))
    return fn({f"r{i}": data[:, i] for i in range(3)}, groups).advantages


@pytest.mark.parametrize("kind", ["normal", "binary"])
@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize(("scheme", "aggregation"), [("grpo", "sum_then_normalize"), ("gdpo", "normalize_then_sum")])
def test_trl(scheme, aggregation, size, kind):
    data = rewards(kind)
    expected = trl_advantages(data, torch.tensor(WEIGHTS), size, aggregation)
    torch.testing.assert_close(ours(scheme, 1e-4, data, size), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("scale", "scheme"), [("batch", "batch_grpo"), ("none", "dr_grpo")])
def test_trl_scales(scale, scheme):
    data = rewards("normal")
    expected = trl_advantages(data, torch.tensor(WEIGHTS), 4, "sum_then_normalize", scale)
    torch.testing.assert_close(ours(scheme, 1e-4, data, 4), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["normal", "binary"])
def test_verl_grpo(kind):
    data = rewards(kind)
    total = (data * torch.tensor(WEIGHTS)).sum(1)
    torch.testing.assert_close(ours("grpo", 1e-6, data, 4), verl_grpo(total, 4), atol=1e-5, rtol=1e-5)


def test_verl_gdpo_where_every_response_is_one_token_long():
    data = rewards("normal")
    # verl divides by sqrt(var + 1e-8) in its batch step, where eps is added to the root here
    torch.testing.assert_close(ours("gdpo", 1e-6, data, 4), verl_gdpo(data, WEIGHTS, 4), atol=1e-5, rtol=1e-5)


def test_gdpo_worked_example():
    """GDPO Sec. 2: (0,1) gives +-0.7071 and (0,2) gives +-1.4142, where GRPO gives both the same."""
    text = (
        "rewardspec: 1\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1]}}\nnumerics: {eps: 0}\nadvantage: SCHEME\n"
    )
    decoupled = rewardspec.compile(rewardspec.loads(text.replace("SCHEME", "decoupled")))
    grpo = rewardspec.compile(rewardspec.loads(text.replace("SCHEME", "grpo")))
    one, two = {"a": [0, 1], "b": [0, 0]}, {"a": [0, 1], "b": [0, 1]}
    assert decoupled(one, 2).advantages.tolist() == pytest.approx([-0.7071, 0.7071], abs=1e-4)
    assert decoupled(two, 2).advantages.tolist() == pytest.approx([-1.4142, 1.4142], abs=1e-4)
    assert torch.equal(grpo(one, 2).advantages, grpo(two, 2).advantages)


def test_total_of_equal_sums_is_not_lost_in_its_parts():
    """GDPO Sec. 2: totals (1,1,1) made of (1,1,0) and (0,0,1) leave GRPO nothing.

    Each component keeps its own advantage under GDPO. At equal weights the two cancel exactly, so the
    paper's "not zero" holds for the parts, and for the sum once the weights differ.
    """
    columns = {"a": [1, 1, 0], "b": [0, 0, 1]}
    for weight, expected in ((1, [0, 0, 0]), (0.5, [0.2887, 0.2887, -0.5774])):  # (1 - w) (1, 1, -2) / sqrt(3)
        text = f"rewardspec: 1\ncomponents: {{a: {{values: [0, 1]}}, b: {{values: [0, 1], weight: {weight}}}}}\n"
        out = rewardspec.compile(rewardspec.loads(text + "advantage: decoupled\n"))(columns, 3)
        assert out.advantages.tolist() == pytest.approx(expected, abs=1e-4)
        assert out.shares["a"].tolist() == pytest.approx([0.5774, 0.5774, -1.1547], abs=1e-4)
        grpo = rewardspec.compile(rewardspec.loads(text + "advantage: grpo\n"))(columns, 3)
        assert (weight != 1) or grpo.advantages.tolist() == [0, 0, 0]
