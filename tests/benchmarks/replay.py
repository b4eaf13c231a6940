"""Logs of many rollouts: processor time and peak memory of `rewardspec replay`, each command a process of its own.

    python tests/benchmarks/replay.py --rollouts 1000000 --files 122

Rollouts are in groups of 16, a step a file, of 1 KB of text each; Parquet, then the first tenth as one file of JSON
lines. The second spec differs in a gate. The first is declared with a guarantee, which real groups break.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parents[2]
SIZE = 16  # of a group
SPEC = """\
rewardspec: 1
name: sums
signals: {tokens: {range: [0, 100000]}}
components:
  correct: {values: [0, 1], weight: 2}
  tidy: {range: [0, 1]}
  brief: {expr: "clip(1 - tokens / 4096, 0, 1)", weight: 0.5}
outcome: correct >= 1
guarantees: {right first: right_above_wrong()}
advantage: gdpo
"""
OTHER = SPEC.replace("name: sums", "name: gated").replace(
    "tidy: {range: [0, 1]}", "tidy: {range: [0, 1], when: correct >= 1}"
)


def write(folder: Path, rollouts: int, files: int) -> int:
    """Write a log, and its first tenth as JSON lines; the number of rollouts."""
    draw, each = np.random.default_rng(0), rollouts // files // SIZE * SIZE
    (folder / "log").mkdir()
    with open(folder / "tenth.jsonl", "w") as lines:
        for step in range(files):
            group = np.arange(each) // SIZE
            correct = (draw.random(each) < draw.beta(0.5, 1, each // SIZE)[group]).astype(float)
            columns = {
                "step": np.full(each, step),
                "group": group,
                "prompt": [f"Prompt {step} {g}: " + "what is asked " * 14 for g in group],
                "completion": [f"Answer {i}: " + "so it must be that " * 42 for i in range(each)],
                "source": np.where(group % 3 == 0, "math", "code"),
                "correct": correct,
                "tidy": draw.integers(0, 6, each) / 5,
                "tokens": draw.integers(10, 5000, each),
            }
            table = pa.table(columns)
            pq.write_table(table, folder / "log" / f"{step:05}.parquet")
            if step < files / 10:
                lines.writelines(json.dumps(row) + "\n" for row in table.to_pylist())
    return each * files


def measured(command: list[str], cwd: Path) -> tuple[float, int, int]:
    """Seconds of the processor, the largest resident size in bytes, and how much a command printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rewardspec", *command],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
    )
    printed = len(process.stdout.read())  # type: ignore[union-attr]
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=122)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        count = write(folder, given.rollouts, given.files)
        (folder / "a.yaml").write_text(SPEC)
        (folder / "b.yaml").write_text(OTHER)
        one, two = ["--spec", "a.yaml"], ["--spec", "a.yaml", "--spec", "b.yaml"]
        print(f"{count:,} rollouts in {given.files:,} files")
        for what, command in {
            "one spec": ["replay", "log", *one],
            "two specs": ["replay", "log", *two],
            "two specs, a page and JSON": ["replay", "log", *two, "-o", "page.html", "--format", "json"],
            "one spec, a tenth in JSON lines": ["replay", "tenth.jsonl", *one],
        }.items():
            seconds, memory, printed = measured([*command, "--from", "table", "--by", "source"], folder)
            print(f"{what}: {seconds:.1f} s of a processor, {memory / 2**20:,.0f} MiB, {printed:,} bytes printed")
        print(f"the page: {(folder / 'page.html').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
