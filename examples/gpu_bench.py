"""Compiled GDPO beside TRL's and verl's own code and a copy of the data, on a GPU or a CPU.

    python examples/gpu_bench.py                  # on the GPU
    python examples/gpu_bench.py --device cpu     # where there is none
    python examples/gpu_bench.py --alone          # without trainers installed

For each size a line for each contender: the median and the middle half of the time a call takes, waited for; kernels
launched (on a CPU: operations); how often the host waits for the device; and the most memory that a call takes beside
the data. Waits are those that torch itself reports (`set_sync_debug_mode`). On a CPU nothing waits: there they are
counted on a device that is not there (tests/far_device.py), where a contender's code runs on it.

It needs a checkout, since the trainers' code is cut out by tests/peers.py.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import rewardspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from far_device import Far  # beside the tests
from peers import trl_advantages

SIZES = ["512x4x2", "8192x16x3", "131072x16x4", "1048576x16x8"]  # rollouts, group size, components
MOST_FOR_VERL = 131072  # it loops over groups in Python
EPS = 1e-4  # TRL's
ROW = "{:34}{:>12}{:>20}{:>9}{:>10}{:>7}{:>8}"

Call = Callable[[], object]


class Counted(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def gdpo(components: int) -> rewardspec.AdvantageFunction:
    lines = "\n".join(f"  r{i}: {{values: [0, 1]}}" for i in range(components))
    text = f"rewardspec: 1\ncomponents:\n{lines}\nadvantage: gdpo\nnumerics: {{eps: {EPS:.0e}}}\n"
    return rewardspec.compile(rewardspec.loads(text))


def verl_gdpo(rewards: torch.Tensor, size: int) -> Call:
    """A call of verl's estimator, as its trainer makes it: components as arrays, the rest on the device."""
    import numpy as np
    from verl.trainer.ppo import core_algos

    n, k = rewards.shape
    mask = torch.ones(n, 1, device=rewards.device)
    names = [f"r{i}" for i in range(k)]
    host = rewards.cpu().numpy()
    given = {
        "token_level_rewards": torch.zeros_like(mask),
        "response_mask": mask,
        "index": np.repeat(np.arange(n // size), size).astype(object),
        "config": {"gdpo_reward_keys": names, "gdpo_reward_weights": [1.0] * k},
        "non_tensor_batch": {name: host[:, i] for i, name in enumerate(names)},
        "batch": {
            "prompts": torch.zeros(n, 1, dtype=torch.long, device=rewards.device),
            "attention_mask": torch.ones(n, 2, dtype=torch.long, device=rewards.device),
        },
    }
    estimator = core_algos.get_adv_estimator_fn("gdpo")
    return lambda: estimator(**given)[0]


def graph_of(fn: rewardspec.AdvantageFunction, columns: dict[str, torch.Tensor], size: int) -> Call:
    """`fn.ahead` as a CUDA graph: one launch for all kernels, and nobody waits."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            fn.ahead(columns, size)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        advantages, sound = fn.ahead(columns, size)

    def call():
        graph.replay()
        return advantages, sound

    return call


def contenders(rewards: torch.Tensor, size: int, alone: bool) -> dict[str, Call]:
    n, k = rewards.shape
    fn, weights = gdpo(k), torch.ones(k, device=rewards.device)
    columns = {f"r{i}": column.clone() for i, column in enumerate(rewards.unbind(1))}
    ids = [i // size for i in range(n)]
    mixed = torch.arange(n, device=rewards.device) % (n // size)
    found: dict[str, Call] = {
        "a copy of the columns": lambda: [x.clone() for x in columns.values()],
        "rewardspec": lambda: fn(columns, size).advantages,
        "rewardspec, a list of ids": lambda: fn(columns, ids).advantages,
        "rewardspec, ids of the device": lambda: fn(columns, mixed).advantages,
        "rewardspec, ahead": lambda: fn.ahead(columns, size)[0],
    }
    if torch.cuda.is_available() and rewards.is_cuda:
        found["rewardspec, ahead, a CUDA graph"] = graph_of(fn, columns, size)
    if not alone:
        found["TRL"] = lambda: trl_advantages(rewards, weights, size, "normalize_then_sum")
        if n <= MOST_FOR_VERL:
            found["verl"] = verl_gdpo(rewards, size)
    return found


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def times(calls: dict[str, Call], device: torch.device, seconds: float) -> dict[str, list[float]]:
    """Seconds of each call, in turns, until about so many have passed for each."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    while open_ := [name for name, taken in found.items() if len(taken) < 3 or sum(taken) < seconds]:
        for name in open_:
            settle(device)
            start = time.perf_counter()
            calls[name]()
            settle(device)
            found[name].append(time.perf_counter() - start)
    return found


def launches(call: Call, device: torch.device) -> int:
    if device.type != "cuda":
        with Counted() as counted:
            call()
        return counted.count
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        call()
        settle(device)
    return sum(event.count for event in seen.key_averages() if "Launch" in event.key and event.key.startswith("cu"))


def waits(call: Call) -> int:
    """How often the host waits for a GPU, as torch reports it."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return sum("synchronizing" in str(one.message) for one in said)


def waits_of_a_device(rewards: torch.Tensor, size: int, alone: bool) -> dict[str, int | None]:
    """How often each contender would wait; None where its code does not run on the device that is not there."""
    found: dict[str, int | None] = {}
    with Far() as far:
        for name, call in contenders(far.put(rewards), size, alone).items():
            far.waits.clear()
            try:
                call()
                found[name] = len(far.waits)
            except Exception:
                found[name] = None
    return found


def memory(call: Call, device: torch.device) -> float | None:
    """MiB that a call takes at most, beside what is there before it."""
    if device.type != "cuda":
        return None
    settle(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    settle(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def main(argv: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--sizes", nargs="+", default=SIZES, metavar="NxGxK", help="rollouts, group size, components")
    options.add_argument("--seconds", type=float, default=1.0, help="of each contender and size, about")
    options.add_argument("--alone", action="store_true", help="without TRL and verl")
    given = options.parse_args(argv)
    device = torch.device(given.device)
    torch.set_num_threads(1)
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{platform.processor() or platform.machine()}, one thread"
    )
    print(f"{name}, torch {torch.__version__}, rewardspec {rewardspec.__version__}")
    for text in given.sizes:
        n, size, components = map(int, text.split("x"))
        generator = torch.Generator().manual_seed(n)
        host = torch.randint(0, 2, (n, components), generator=generator).float()
        rewards = host.to(device)
        calls = contenders(rewards, size, given.alone)
        on_gpu = device.type == "cuda"
        waited = {k: waits(call) for k, call in calls.items()} if on_gpu else waits_of_a_device(host, size, given.alone)
        taken = times(calls, device, given.seconds)
        ours = median(taken["rewardspec"])
        print(f"\n{text}")
        print(ROW.format("", "us a call", "middle half", "/ ours", "launches", "waits", "MiB"))
        for who, call in calls.items():
            low, middle, high = quantiles(taken[who], n=4)
            about = f"{low * 1e6:.0f} to {high * 1e6:.0f}", f"{middle / ours:.2f}", launches(call, device)
            print(ROW.format(who, f"{middle * 1e6:.0f}", *about, shown(waited.get(who)), shown(memory(call, device))))


def shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.4g}"


if __name__ == "__main__":
    main()
