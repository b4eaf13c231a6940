"""What GDPO (arXiv:2601.05242) says of its own examples."""

import pytest
import torch

import rewardspec


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
