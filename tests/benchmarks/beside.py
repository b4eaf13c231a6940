"""Two checkouts, timed in one run: `make bench BASE=path/to/other/checkout`, or any revision of git for BASE.

Each has a process of its own; they take turns, so that what else the machine does falls on both. A line for each thing
that is timed: the time here, and the median of here / base over all rounds, with the middle half of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from timeit import Timer

HERE = Path(__file__).resolve().parents[2]
SIZES = [(512, 4, 2), (8192, 16, 3), (131072, 16, 4)]  # rollouts, group size, components
ROUNDS = 15
SECONDS = 0.05  # about as long is each round, at least one call
TEXT = "specs/gdpo/math.yaml"


def gdpo(components: int) -> str:
    lines = "\n".join(f"  r{i}: {{values: [0, 1]}}" for i in range(components))
    return f"rewardspec: 1\ncomponents:\n{lines}\nadvantage: gdpo\n"


def timers(folder: Path) -> dict[str, Timer]:
    """What is timed, by name, in the checkout that this process imports."""
    import torch

    import rewardspec

    assert Path(rewardspec.__file__).parents[1] == folder, "another checkout is imported"
    torch.set_num_threads(1)
    text = (folder / TEXT).read_text(encoding="utf-8")
    check = [sys.executable, "-m", "rewardspec.cli", "check", str(folder / TEXT)]
    found = {
        "text to function": Timer(lambda: rewardspec.compile(rewardspec.loads(text))),
        "rewardspec check": Timer(lambda: subprocess.run(check, stdout=subprocess.DEVNULL)),
    }
    for rollouts, group, components in SIZES:
        fn = rewardspec.compile(rewardspec.loads(gdpo(components)))
        generator = torch.Generator().manual_seed(0)
        columns = {f"r{i}": torch.randint(0, 2, (rollouts,), generator=generator).float() for i in range(components)}

        def call(fn=fn, columns=columns, group=group):
            return fn(columns, groups=group).advantages

        found[f"gdpo {rollouts}x{group}x{components}"] = Timer(call)
    return found


def answer(folder: Path) -> None:
    """A process of one checkout: its names in the first line, then seconds a call for each name that it reads."""
    found = timers(folder)
    print(*found, sep="\t", flush=True)
    calls = {name: max(1, round(SECONDS / min(timer.repeat(3, 1)))) for name, timer in found.items()}
    for line in sys.stdin:
        name = line.rstrip("\n")
        print(found[name].timeit(calls[name]) / calls[name], flush=True)


@contextmanager
def checkout(base: str) -> Iterator[Path]:
    """The folder of a checkout; of a revision, one that is there as long as it is needed."""
    if Path(base).is_dir():
        yield Path(base).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder).resolve() / "base"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", there, base], cwd=HERE, check=True)
        try:
            yield there
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", there], cwd=HERE, check=True)


def started(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--answer", str(folder)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=folder)


def seconds(process: subprocess.Popen[str], name: str) -> float:
    assert process.stdin and process.stdout
    process.stdin.write(name + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main(base: str, rounds: int = ROUNDS) -> None:
    with checkout(base) as there, started(HERE) as new, started(there) as old:
        assert new.stdout and old.stdout
        names = new.stdout.readline().rstrip("\n").split("\t")
        if old.stdout.readline().rstrip("\n").split("\t") != names:
            raise SystemExit(f"{base} cannot be timed: see above")
        print(f"{'':<20} {'here':>10}   here / base")
        for name in names:
            pairs = [(seconds(new, name), seconds(old, name)) for _ in range(rounds)]
            ratios = [here / base for here, base in pairs]
            low, _, high = quantiles(ratios, n=4)
            here = median(here for here, _ in pairs) * 1000
            print(f"{name:<20} {here:7.2f} ms   {median(ratios):.2f} ({low:.2f} to {high:.2f})", flush=True)
        for process in (new, old):
            assert process.stdin
            process.stdin.close()


if __name__ == "__main__":
    if sys.argv[1] == "--answer":
        answer(Path(sys.argv[2]))
    else:
        main(sys.argv[1])
