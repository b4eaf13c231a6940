"""Reward functions that start processes or ask an endpoint: rows a second, and rows a second of a core.

    python tests/benchmarks/outside.py

A core's time is that of this process and of those that it starts; the endpoint is a server here whose time is not
counted, and that answers after 50 ms. No row is asked twice, as answers are kept. Functions are called with 256 rows at
once, as `score` does.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import rewardspec
from rewardspec.scoring.scorer import Scorer

AT_ONCE = 256
DELAY = 0.05
PROGRAM = "```python\nimport sys\nnumbers = [int(line) for line in sys.stdin]\nprint(sum(numbers) + {i})\n```"
RUBRIC = "Is this answer clear?\n{completion}\nEnd with `Score: ` and 0 or 1."


def processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def serve() -> None:
    """Answer until the pipe ends; the first line says where."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from judge_server import Reply, said, serving

    answer = said("It is.\n\nScore: 1")
    with serving(lambda text, before: Reply(body=answer.body, delay=DELAY)) as server:
        print(server.url, flush=True)
        sys.stdin.read()


def rate(name: str, use: str, rows: list[dict[str, Any]]) -> None:
    spec = rewardspec.loads(f"rewardspec: 1\ncomponents:\n  c: {{{use}, missing: zero}}\nadvantage: grpo\n")
    scorer = Scorer(spec)
    scorer.measure(rows[:16])  # imports, connections
    rows = rows[16:]
    began, used = time.perf_counter(), processor()
    found = [
        value for i in range(0, len(rows), AT_ONCE) for value in scorer.measure(rows[i : i + AT_ONCE]).columns["c"]
    ]
    spent, used = time.perf_counter() - began, processor() - used
    right = sum(value == 1 for value in found) / len(found)
    rates = f"{len(rows) / spent:9,.0f} rows/s {len(rows) / used:9,.0f} a second of a core"
    print(f"{name:<34}{rates} {len(rows):7,} rows, {right:.0%} right", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer rows")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve()
    text = "so the answer is found by adding what is asked for, step by step; " * 30

    def count(rows: int) -> range:
        return range(16 + int(rows * given.scale))

    sums = [{"completion": f"{text}\\boxed{{\\frac{{{i}}}{{{i + 7}}}}}", "answer": f"{i}/{i + 7}"} for i in count(2048)]
    rate("math.correct, of fractions", "use: math.correct, with: {tag: none}", sums)
    for tests in (1, 8):
        cases = [{"input": "1\n" * n, "output": ""} for n in range(1, tests + 1)]
        programs = [
            {
                "completion": PROGRAM.format(i=i + tests * 1_000_000),
                "tests": [{**one, "output": str(n + i + tests * 1_000_000)} for n, one in enumerate(cases, 1)],
            }
            for i in count(256 if tests == 1 else 96)
        ]
        rate(f"code.pass_rate, {tests} test{'s' * (tests > 1)} a program", "use: code.pass_rate", programs)
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().decode().strip()
        for under_way in (32, 128):
            texts = [{"prompt": "what?", "completion": f"{text} {under_way} {i}"} for i in count(2048)]
            options = f"model: m, url: '{url}', scores: [0, 1], cache: none, key: none, concurrency: {under_way}"
            template = RUBRIC.replace("\n", "\\n")
            rate(
                f"judge.rubric, {under_way} under way",
                f'use: judge.rubric, with: {{template: "{template}", {options}}}',
                texts,
            )
    finally:
        server.communicate()


if __name__ == "__main__":
    main()
