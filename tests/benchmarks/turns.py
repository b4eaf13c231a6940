"""Methods on turns, timed in one run beside other ways to compute them: `make bench`.

8,192 rollouts in groups of 16, with 1 to 30 turns each. Prints the processor time of a call of each method, and how
many times as much as that the others take: `decoupled` of as many values as rollouts without turns, with as many
components; torch as one would write it, with `scatter_reduce`; and a loop over ids in Python, as verl has it. Calls
take turns, because other programs and the processor's clock change in the course of a run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median

import torch

import rewardspec

ROLLOUTS, GROUP, MOST, STATES = 8192, 16, 30, 40
ROUNDS = 40
GAMMA = 0.95

METHODS = {
    "MT-GRPO": (
        "components: {outcome: {range: [0, 1]}, tool: {range: [0, 1], level: turn}}\nadvantage: decoupled\n",
        2,
    ),
    "GiGPO": (
        "signals: {state: {id: true, level: turn}}\n"
        "components: {outcome: {range: [0, 1]}, tool: {range: [0, 1], level: turn}}\n"
        f"advantage: zscore(outcome) + zscore(returns(tool, gamma={GAMMA}), by=state)\n",
        2,
    ),
    "returns": (
        f"components: {{value: {{expr: 'returns(tool, gamma={GAMMA})'}}}}\n"
        "signals: {tool: {range: [0, 1], level: turn}}\nadvantage: grpo\n",
        1,
    ),
}


def data() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, MOST + 1, (ROLLOUTS,), generator=draw)
    turns = int(lengths.sum())
    return {
        "lengths": lengths,
        "outcome": torch.rand(ROLLOUTS, generator=draw),
        "tool": torch.rand(turns, generator=draw),
        "state": torch.randint(0, STATES, (turns,), generator=draw),
    }


def compiled(name: str, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    fn = rewardspec.compile(rewardspec.loads(f"rewardspec: 1\nlists: {{turn: {{ordered: true}}}}\n{METHODS[name][0]}"))
    columns = {column: x[column] for column in fn.spec.columns}
    return lambda: fn(columns, groups=GROUP, lengths={"turn": x["lengths"]}).advantages


def of_rollouts(name: str, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """`decoupled` of as many rollouts as there are turns."""
    count = METHODS[name][1]
    names = [f"r{i}" for i in range(count)]
    lines = "".join(f"  {one}: {{range: [0, 1]}}\n" for one in names)
    fn = rewardspec.compile(rewardspec.loads(f"rewardspec: 1\ncomponents:\n{lines}advantage: decoupled\n"))
    n = len(x["tool"]) // GROUP * GROUP
    draw = torch.Generator().manual_seed(1)
    columns = {one: torch.rand(n, generator=draw) for one in names}
    return lambda: fn(columns, groups=GROUP).advantages


def in_torch(name: str, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    def zscore(v: torch.Tensor, of: torch.Tensor, count: int) -> torch.Tensor:
        def added(x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(count).scatter_reduce_(0, of, x, "sum")

        ones = added(torch.ones_like(v))
        away = v - (added(v) / ones.clamp(min=1))[of]
        std = (added(away.square()) / (ones - 1).clamp(min=1)).sqrt()
        return away / (std[of] + 1e-6)

    def call() -> torch.Tensor:
        lengths = x["lengths"]
        groups = ROLLOUTS // GROUP
        rollout = torch.arange(ROLLOUTS).repeat_interleave(lengths)
        tool, group = x["tool"], rollout // GROUP
        if name != "MT-GRPO":
            padded = torch.zeros(ROLLOUTS, MOST)
            inside = torch.arange(MOST) < lengths[:, None]
            padded[inside] = tool
            running = torch.zeros(ROLLOUTS)
            for k in range(MOST - 1, -1, -1):
                running = padded[:, k] + GAMMA * running
                padded[:, k] = running
            tool = padded[inside]
        if name == "returns":
            return zscore(tool, group, groups)
        outcome = zscore(x["outcome"], torch.arange(ROLLOUTS) // GROUP, groups)[rollout]
        if name == "MT-GRPO":
            return outcome + zscore(tool, group, groups)
        same = torch.unique(group * STATES + x["state"], return_inverse=True)[1]
        return outcome + zscore(tool, same, int(same.max()) + 1)

    return call


def in_a_loop(name: str, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """As verl's `compute_grpo_outcome_advantage` and GiGPO's code: lists of scores for each id."""

    def zscore(v: torch.Tensor, ids: list) -> torch.Tensor:
        v, scores = v.clone(), defaultdict(list)
        for i, one in enumerate(ids):
            scores[one].append(v[i])
        stacked = {one: torch.stack(each) for one, each in scores.items()}
        mean = {one: each.mean() for one, each in stacked.items()}
        std = {one: each.std() if len(each) > 1 else torch.tensor(1.0) for one, each in stacked.items()}
        for i, one in enumerate(ids):
            v[i] = (v[i] - mean[one]) / (std[one] + 1e-6)
        return v

    def call() -> torch.Tensor:
        rollouts = [i for i, n in enumerate(x["lengths"].tolist()) for _ in range(n)]
        groups, tool = [i // GROUP for i in rollouts], x["tool"]
        if name != "MT-GRPO":
            values, running, last = tool.tolist(), 0.0, -1
            for t in range(len(values) - 1, -1, -1):
                running = values[t] + (GAMMA * running if rollouts[t] == last else 0.0)
                values[t], last = running, rollouts[t]
            tool = torch.tensor(values)
        if name == "returns":
            return zscore(tool, groups)
        outcome = zscore(x["outcome"], [i // GROUP for i in range(ROLLOUTS)])[rollouts]
        if name == "MT-GRPO":
            return outcome + zscore(tool, groups)
        return outcome + zscore(tool, list(zip(groups, x["state"].tolist(), strict=True)))

    return call


def seconds(call: Callable[[], torch.Tensor]) -> float:
    """Processor seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    x = data()
    print(f"{ROLLOUTS} rollouts in groups of {GROUP}, {len(x['tool'])} turns; medians of {ROUNDS} rounds")
    for name in METHODS:
        ours, loop = compiled(name, x), in_a_loop(name, x)
        others = {"`decoupled` of rollouts": of_rollouts(name, x), "the torch": in_torch(name, x)}
        for other in (others["the torch"], loop):
            # a state that was seen once has no advantage here; in float32 loops differ by rounding
            torch.testing.assert_close(ours().float(), other(), atol=1e-3, rtol=1e-3, msg=f"{name} differs")
        rounds = [(seconds(ours), {who: seconds(call) for who, call in others.items()}) for _ in range(ROUNDS)]
        own = median(mine for mine, _ in rounds)
        parts = [f"{median(mine / theirs[who] for mine, theirs in rounds):.2f} times {who}" for who in others]
        print(f"{name}: {1000 * own:.1f} ms, {', '.join(parts)}, {own / seconds(loop):.2g} times the loop")


if __name__ == "__main__":
    main()
