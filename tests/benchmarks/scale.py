"""Files of many rollouts: rows a second and peak memory, of this checkout and of another, in turns.

    python tests/benchmarks/scale.py --rows 1000000 --base path/to/other/checkout

Rows are tool calls of some 2 KB, scored by `toolrl.format`, `correctness` and `think_length`; sorted by group, then
shuffled. Each command is a process of its own; its memory is the largest resident size of it and its children together,
sampled from /proc, or from `getrusage` where there is none.
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
SPEC = """rewardspec: 1
name: tools
components:
  form: {use: toolrl.format}
  right: {use: toolrl.correctness}
  thought: {use: toolrl.think_length}
advantage: gdpo
"""


def rows(count: int) -> Iterator[str]:
    """Lines of rollouts; after the first 3,200 their texts repeat, under other groups."""
    made = completions()
    for i in range(count):
        completion, answer = made[i % len(made)]
        prompt = f"Prompt {i // ROLLOUTS}: " + "which tool is to be called, and how? " * 10
        yield json.dumps({"group": i // ROLLOUTS, "prompt": prompt, "completion": completion, "answer": answer}) + "\n"


def files(folder: Path, count: int) -> dict[str, Path]:
    found = {order: folder / f"{order}.jsonl" for order in ("sorted", "shuffled")}
    with open(found["sorted"], "w") as out:
        out.writelines(rows(count))
    places, at = [], 0
    with open(found["sorted"], "rb") as file:
        for line in file:
            places.append(at)
            at += len(line)
    random.Random(0).shuffle(places)
    with open(found["sorted"], "rb") as file, open(found["shuffled"], "wb") as out:
        for place in places:
            file.seek(place)
            out.write(file.readline())
    return found


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
    parser.add_argument("--folder", type=Path, help="where the files are made, with room for six times their size")
    given = parser.parse_args()
    checkouts = {"here": HERE, **({"base": given.base.resolve()} if given.base else {})}
    with tempfile.TemporaryDirectory(dir=given.folder) as made:
        folder = Path(made)
        (folder / "spec.yaml").write_text(SPEC)
        sources = files(folder, given.rows)
        print(f"{given.rows:,} rows of {sources['sorted'].stat().st_size / given.rows:,.0f} bytes")
        for order, source in sources.items():
            for name, checkout in checkouts.items():
                output = folder / f"{name}.jsonl"
                spec = str(folder / "spec.yaml")
                scoring = ["score", spec, str(source), "-o", str(output)]
                for command in (scoring, ["simulate", spec, "--rollouts", str(output)]):
                    spent, used, most = run(checkout, command)
                    rates = f"{given.rows / spent:9,.0f} rows/s {given.rows / used:9,.0f} a second of a core"
                    print(f"{command[0]:<9}{order:<9}{name:<5}{rates} {most / 1e6:7,.0f} MB", flush=True)
                output.unlink()


if __name__ == "__main__":
    main()
