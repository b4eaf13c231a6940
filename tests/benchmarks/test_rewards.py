"""Tool-call completions scored in a second, on one core: `make bench`. Half of them are right, half are not."""

import json
import random

import pytest

from rewardspec.rewards import toolrl

ROLLOUTS = 16  # of one prompt


def completions(seed=0, prompts=200):
    """(completion, answer) for each rollout: thoughts of 120 words, one to three calls of one to five parameters."""
    draw = random.Random(seed)
    words = ["the", "user", "wants", "tool", "parameter", "so", "I", "should", "call", "it", "with", "value"]

    def calls():
        return [
            {
                "name": f"tool_{draw.randrange(9)}",
                "parameters": {f"p{k}": draw.choice([k, "text", 1.5, [1, 2]]) for k in range(draw.randint(1, 5))},
            }
            for _ in range(draw.randint(1, 3))
        ]

    def output(made):
        thought = " ".join(draw.choices(words, k=120))
        lines = "\n".join(map(json.dumps, made))
        return f"<think> {thought} </think>\n<tool_call>\n{lines}\n</tool_call>"

    rows = []
    for _ in range(prompts):
        gold = calls()
        answer = output(gold)
        rows += [(output(gold if draw.random() < 0.5 else calls()), answer) for _ in range(ROLLOUTS)]
    return rows


@pytest.mark.parametrize("pairing", ["optimal", "greedy"])
def test_tool_calls(benchmark, pairing):
    rows = completions()

    def score():
        return [
            (toolrl.format(made, gold), toolrl.correctness(made, gold, pairing=pairing), toolrl.think_length(made))
            for made, gold in rows
        ]

    found = benchmark.pedantic(score, rounds=10, warmup_rounds=1)
    benchmark.extra_info["completions a second"] = round(len(rows) / benchmark.stats.stats.median)
    assert all(form == 1 for form, _, _ in found)
    print(f"\n{pairing}: {benchmark.extra_info['completions a second']} completions a second")
