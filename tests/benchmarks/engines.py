"""The same functions over the same file by each engine, in one run: rows a second, and rows a second of a core.

    python tests/benchmarks/engines.py --rows 60000

`score` with 1 and 2 processes; `score --engine ray` on a cluster of this machine with 1 and 2 cores, started before and
not counted; `datasets.map` of the same functions, which computes no advantages and no groups, with 1 and 2 processes.
Each reads JSON lines and writes them, in a session of its own, whose processes' seconds are counted together. Rows are
those of `scale.py`, of some 2 KB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scale import FUNCTIONS, lines

ENGINES = ("plain", "ray", "datasets")


def processor() -> float:
    """Seconds of the processor of all processes of this session, and of those of theirs that ended."""
    session, used = str(os.getsid(0)), 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                said = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if said[3] == session:
                used += sum(int(ticks) for ticks in said[11:15])
    return used / os.sysconf("SC_CLK_TCK")


def timed(work: Callable[[], object]) -> dict[str, float]:
    began, used = time.perf_counter(), processor()
    work()
    return {"seconds": time.perf_counter() - began, "used": processor() - used}


def plain(spec: Path, source: Path, output: Path, workers: int) -> dict[str, float]:
    import rewardspec

    return timed(lambda: rewardspec.score(spec, source, output, processes=workers))


def ray(spec: Path, source: Path, output: Path, workers: int) -> dict[str, float]:
    import ray

    import rewardspec
    from rewardspec.scoring.ray import score

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=workers, include_dashboard=False, object_store_memory=512 << 20, logging_level="ERROR")
    return timed(lambda: score(rewardspec.load(spec), str(source), str(output)))  # before Ray's processes end


def datasets(spec: Path, source: Path, output: Path, workers: int) -> dict[str, float]:
    import datasets

    from rewardspec.rewards.catalogue import find_reward

    rewards = [found for name in FUNCTIONS if (found := find_reward(name)) is not None]

    def measure(row: dict[str, Any]) -> dict[str, Any]:
        return {f"scored/c{i}": one.function(*(row[n] for n in one.inputs)) for i, one in enumerate(rewards)}

    def work() -> None:
        read: Any = datasets.load_dataset("json", data_files=str(source), split="train", cache_dir=str(output))
        read.map(measure, num_proc=workers).to_json(str(output / "out.jsonl"), num_proc=workers)

    datasets.disable_progress_bars()
    return timed(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        engine, workers, folder = given.one
        run = {"plain": plain, "ray": ray, "datasets": datasets}[engine]
        output = Path(folder, f"{engine}-{workers}.jsonl")
        print(json.dumps(run(Path(folder, "spec.yaml"), Path(folder, "rows.jsonl"), output, int(workers))))
        return
    with tempfile.TemporaryDirectory() as folder:
        components = "".join(f"  c{i}: {{use: {name}}}\n" for i, name in enumerate(FUNCTIONS))
        Path(folder, "spec.yaml").write_text(f"rewardspec: 1\ncomponents:\n{components}advantage: gdpo\n")
        with open(Path(folder, "rows.jsonl"), "w") as out:
            out.writelines(lines(given.rows, shuffled=False))
        size = Path(folder, "rows.jsonl").stat().st_size / given.rows
        print(f"{given.rows:,} rows of {size:,.0f} bytes, {' '.join(FUNCTIONS)}")
        for engine in given.engines:
            for workers in given.workers:
                environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
                command = [sys.executable, __file__, "--one", engine, str(workers), folder]
                ended = subprocess.run(command, env=environment, start_new_session=True, capture_output=True)
                if ended.returncode:
                    raise SystemExit(ended.stderr.decode(errors="replace"))
                found = json.loads(ended.stdout.splitlines()[-1])
                rates = [given.rows / found[name] for name in ("seconds", "used")]
                print(
                    f"{engine:<9}{workers:>2} {rates[0]:9,.0f} rows/s {rates[1]:9,.0f} a second of a core", flush=True
                )


if __name__ == "__main__":
    main()
