"""Files of many rollouts: rows a second and peak memory, of this checkout and of another, in turns.

    python tests/benchmarks/scale.py --rows 1000000 --base path/to/other/checkout

Rows are tool calls of some 2 KB, scored by `toolrl.format`, `correctness` and `think_length`; sorted by group, then
shuffled. Each command is a process of its own. Its memory is the largest resident size of it and its children together,
sampled from /proc. Seconds of the processor say more than seconds where other work shares the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from test_rewards import ROLLOUTS, completions

HERE = Path(__file__).resolve().parents[2]
FUNCTIONS = ["toolrl.format", "toolrl.correctness", "toolrl.think_length"]


def lines(count: int, shuffled: bool) -> Iterator[str]:
    """Lines of rollouts; after the first 3,200 their texts repeat, under other groups."""
    made = [(json.dumps(completion), json.dumps(answer)) for completion, answer in completions()]
    order = list(range(count))
    if shuffled:
        random.Random(0).shuffle(order)
    which = "which tool is to be called, and how? " * 10
    for i in order:
        completion, answer = made[i % len(made)]
        group = i // ROLLOUTS
        prompt = f'"group": {group}, "prompt": "Prompt {group}: {which}"'
        yield f'{{{prompt}, "completion": {completion}, "answer": {answer}}}\n'


def resident(process: int) -> int:
    """Bytes in memory of a process and its children; 0 where /proc does not say."""
    found = 0
    try:
        found = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            found += resident(int(child))
    except (OSError, IndexError):
        pass
    return found


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(checkout: Path, arguments: list[str]) -> tuple[float, float, int]:
    """Seconds, seconds of the processor, and the most bytes in memory."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rewardspec.cli", *arguments]
    before, began, most = processor(), time.perf_counter(), 0
    with subprocess.Popen(command, env=environment, cwd=checkout, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, resident(process.pid))
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{arguments} ended with {process.returncode}")
    return time.perf_counter() - began, processor() - before, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--base", type=Path, help="another checkout, measured in turns with this one")
    parser.add_argument("--orders", nargs="+", default=["sorted", "shuffled"], choices=["sorted", "shuffled"])
    parser.add_argument("--commands", nargs="+", default=["score", "simulate"], choices=["score", "simulate"])
    parser.add_argument("--functions", nargs="+", default=FUNCTIONS, help="of completions and answers")
    parser.add_argument("--folder", type=Path, help="where the files are made, with room for three times their size")
    given = parser.parse_args()
    checkouts = {"here": HERE, **({"base": given.base.resolve()} if given.base else {})}
    with tempfile.TemporaryDirectory(dir=given.folder) as made:
        folder = Path(made)
        components = "".join(f"  c{i}: {{use: {name}}}\n" for i, name in enumerate(given.functions))
        spec_text = f"rewardspec: 1\nname: tools\ncomponents:\n{components}advantage: gdpo\n"
        (folder / "spec.yaml").write_text(spec_text)
        source, spec = folder / "rows.jsonl", str(folder / "spec.yaml")
        for order in given.orders:
            with open(source, "w") as out:
                out.writelines(lines(given.rows, order == "shuffled"))
            print(f"{given.rows:,} rows of {source.stat().st_size / given.rows:,.0f} bytes, {order}", flush=True)
            for name, checkout in checkouts.items():
                output = folder / f"{name}.jsonl"
                arguments = {
                    "score": ["score", spec, str(source), "-o", str(output)],
                    "simulate": ["simulate", spec, "--rollouts", str(output)],
                }
                for command in given.commands:
                    spent, used, most = run(checkout, arguments[command])
                    rates = f"{given.rows / spent:9,.0f} rows/s {given.rows / used:9,.0f} a second of a core"
                    print(f"{command:<9}{name:<5}{rates} {most / 1e6:7,.0f} MB", flush=True)
                output.unlink()


if __name__ == "__main__":
    main()
