"""Reward functions by family: rows a second of one core, called in a loop, by a `Scorer`, and by `score` on a file.

    python tests/benchmarks/families.py

Times are of the processor, those of child processes included, so that what else the machine does matters little. The
rows are those of `test_rewards.py`, of some 2 KB with their prompts; each figure is the best of nine rounds.
"""

from __future__ import annotations

import json
import math
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

from test_rewards import completions

import rewardspec
from rewardspec.rewards.catalogue import find_reward
from rewardspec.scoring.scorer import Scorer

ROUNDS = 9
FUNCTIONS = {
    "toolrl": ["toolrl.format", "toolrl.correctness", "toolrl.think_length"],
    "think": ["think.format"],
    "prs": ["prs.format"],
    "qa": ["qa.exact_match"],
    "math.integer": ["math.integer"],
    "math.correct": ["math.correct"],  # of numbers, which are compared here: others go to processes
}


def processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def best(*works: Callable[[], object]) -> list[float]:
    """The least seconds of each, which are done in turns: so what else the machine does slows all of them."""
    found = [math.inf for _ in works]
    for _ in range(ROUNDS):
        for i, work in enumerate(works):
            began = processor()
            work()
            found[i] = min(found[i], processor() - began)
    return found


def main() -> None:
    texts = [
        {"group": i // 16, "prompt": "which tool is to be called? " * 12, "completion": c, "answer": a}
        for i, (c, a) in enumerate(completions(prompts=500))
    ]
    print(f"{len(texts)} rows of {len(json.dumps(texts[0])):,} bytes or so: rows a second of a core")
    print(f"{'':<16}{'bare':>9}{'Scorer':>9}{'score':>9}")
    for family, names in FUNCTIONS.items():
        rewards = [found for name in names if (found := find_reward(name)) is not None]
        assert len(rewards) == len(names), "all are in the catalogue"
        rows = texts
        if family == "math.correct":
            rows = [
                {**r, "completion": f"{r['completion']} \\boxed{{{i % 2}}}", "answer": 1} for i, r in enumerate(texts)
            ]
        components = "\n".join(f"  c{i}: {{use: {name}}}" for i, name in enumerate(names))
        spec = rewardspec.loads(f"rewardspec: 1\ncomponents:\n{components}\nadvantage: grpo\n")
        scorer = Scorer(spec)
        calls = [(r.function, r.inputs, spec.uses[f"c{i}"].options) for i, r in enumerate(rewards)]

        def bare(calls=calls, rewards=rewards, rows=rows) -> None:
            for reward, (function, inputs, options) in zip(rewards, calls, strict=True):
                if reward.many:
                    function(*([row[name] for row in rows] for name in inputs), **options)
                    continue
                for row in rows:
                    function(*(row[name] for name in inputs), **options)

        def scored(scorer=scorer, rows=rows) -> None:
            for first in range(0, len(rows), 256):
                scorer.measure(rows[first : first + 256])

        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "rows.jsonl")
            source.write_text("".join(json.dumps(row) + "\n" for row in rows))

            def whole(spec=spec, source=source) -> None:
                rewardspec.score(spec, source, source.with_name("out.jsonl"), processes=1)

            rates = [len(rows) / spent for spent in best(bare, scored, whole)]
        share = f"{rates[1] / rates[0]:9.2f} of bare"
        print(f"{family:<16}" + "".join(f"{rate:9,.0f}" for rate in rates) + share, flush=True)


if __name__ == "__main__":
    main()
