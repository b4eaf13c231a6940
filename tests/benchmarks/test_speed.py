"""Compiled GDPO against TRL's and verl's own code, side by side: `make bench`.

One thread; input checks included on our side. The ratios to quote are those of one run.
"""

import pytest
import torch
from peers import trl_advantages, verl_gdpo

import rewardspec

SIZES = [(512, 4, 2), (8192, 16, 3), (131072, 16, 4), (1048576, 16, 8)]
MOST_FOR_VERL = 131072  # it loops over groups in Python


def data(rollouts, components):
    generator = torch.Generator().manual_seed(rollouts)
    return torch.randint(0, 2, (rollouts, components), generator=generator).float()


def gdpo(components):
    lines = "\n".join(f"  r{i}: {{values: [0, 1]}}" for i in range(components))
    return rewardspec.loads(f"rewardspec: 1\ncomponents:\n{lines}\nadvantage: gdpo\nnumerics: {{eps: 1e-4}}\n")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def measure(benchmark, function, rollouts):
    rounds = {512: 300, 8192: 200, 131072: 20}.get(rollouts, 5)
    return benchmark.pedantic(function, rounds=rounds, warmup_rounds=2)


@pytest.mark.parametrize(("rollouts", "group", "components"), SIZES)
@pytest.mark.parametrize("who", ["rewardspec", "trl", "verl"])
def test_gdpo(benchmark, who, rollouts, group, components):
    benchmark.group = f"{rollouts}x{group}x{components}"
    rewards = data(rollouts, components)
    weights = torch.ones(components)
    expected = trl_advantages(rewards, weights, group, "normalize_then_sum")
    if who == "rewardspec":
        fn = rewardspec.compile(gdpo(components))
        columns = {f"r{i}": rewards[:, i].contiguous() for i in range(components)}
        out = measure(benchmark, lambda: fn(columns, groups=group).advantages, rollouts)
    elif who == "trl":
        out = measure(benchmark, lambda: trl_advantages(rewards, weights, group, "normalize_then_sum"), rollouts)
    else:
        if rollouts > MOST_FOR_VERL:
            pytest.skip("verl's estimator takes minutes a call here")
        rounds = 5 if rollouts < 10_000 else 1
        out = benchmark.pedantic(lambda: verl_gdpo(rewards, [1.0] * components, group), rounds=rounds)
        return  # its eps and its whitening differ; the parity tests compare them
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def test_text_to_function(benchmark):
    """From the text of the math spec to a function that can be called."""
    from rewardspec.resources import resource

    text = resource("specs/gdpo/math.yaml").read_text()
    benchmark.pedantic(lambda: rewardspec.compile(rewardspec.loads(text)), rounds=30, warmup_rounds=1)
