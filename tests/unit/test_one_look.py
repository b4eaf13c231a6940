"""The host looks at the device once a call, counted on a device that is not there (`far_device`)."""

import random
import subprocess
import sys

import pytest
import torch
from far_device import SHAPED_BY_VALUES, Far, here
from places import EXAMPLES
from reference.author import Author
from reference.batches import batch
from reference.checks import compiled, given, lengths_given, read
from torch.utils._python_dispatch import TorchDispatchMode

import rewardspec

TWO = "components: {a: {values: [0, 1]}, b: {range: [0, 1]}}\n"
TURNS = "lists: {turn: {}}\nsignals: {n: {level: turn, range: [0, 9]}}\ncomponents: {a: {values: [0, 1]}}\n"
GRADED = "components: {a: {values: [0, 0.1, 0.3]}, b: {range: [0, .inf], outside: clip}}\nadvantage: grpo\n"
SPECS = {
    "grpo": f"{TWO}advantage: grpo\n",
    "gdpo": f"{TWO}advantage: gdpo\n",
    "binary gdpo": "components: {a: {values: [0, 1]}, b: {values: [0, 1]}}\nadvantage: gdpo\n",
    "values and clip": GRADED,
    "missing": "components: {a: {values: [0, 1], missing: ignore}, b: {range: [0, 1]}}\nadvantage: gdpo\n",
    "schedule": "components: {a: {values: [0, 1], weight: 1 - progress}, b: {range: [0, 1]}}\nadvantage: gdpo\n",
    "keep": f"{TWO}keep: var(a) > 0\nadvantage: grpo\n",
    "refill": f"{TWO}keep: var(a) > 0\nrefill: var(b)\nadvantage: gdpo\n",
    "by": f"signals: {{d: {{values: [1, 2, 3]}}}}\n{TWO}advantage: zscore(total, by=d)\n",
    "quantile": f"{TWO}advantage: total - quantile(total, 0.5)\n",
    "ids": f"signals: {{d: {{id: true}}}}\n{TWO}advantage: total - mean(total, by=d)\n",
    "state": f"state: {{level: {{range: [0, 1], init: 0.5, update: '0.9 * level + 0.1 * mean(b, over=batch)'}}}}\n"
    f"{TWO}advantage: total - level\n",
    "list": f"{TURNS}advantage: zscore(a) + zscore(n)\n",
    "sums of a list": f"{TURNS}advantage: zscore(a) + n - mean(n) + std_others(0.3 * n + a, over=group)\n",
}
GROUPS = {
    "a size": 4,
    "ids in order": [*"wwwwxxxxyyyyzzzz"],
    "ragged ids": [*"wxwywzwywwyyxxwz"],
    "ids on the device": torch.tensor([0] * 4 + [5] * 4 + [2] * 4 + [9] * 4),
    "ragged ids on the device": torch.tensor([3, 1, 3, 1, 3, 1, 1, 1, 1, 3, 7, 7, 9, 3, 1, 3]),
}


def made(name):
    return rewardspec.compile(rewardspec.loads(f"rewardspec: 1\n{SPECS[name]}"))


def columns_of(fn):
    rng = torch.Generator().manual_seed(5)
    a = torch.randint(0, 2, (16,), generator=rng)
    found = {"a": a.float(), "b": torch.rand(16, generator=rng).round(decimals=2)}
    declared = {name: fn.spec.program.columns[name].declared for name in "ab" if name in fn.spec.columns}
    if len(declared["a"].values) == 3:
        found["a"] = torch.tensor([0.0, 0.1, 0.3])[torch.randint(0, 3, (16,), generator=rng)]
        found["b"][0] = -1.0
    if "b" in declared and declared["b"].values:
        found["b"] = found["a"].roll(3)
    if fn.spec.program.columns["a"].missing == "ignore":
        found["a"][3] = torch.nan
    found["d"] = torch.randint(1, 4, (16,), generator=rng)
    found["n"] = torch.randint(0, 9, (16, 2), generator=rng).float()
    return {name: x for name, x in found.items() if name in fn.spec.columns}


def options_of(fn):
    return {"step": 3, "total_steps": 10, **({"state": fn.initial_state()} if fn.initial_state() else {})}


def far_column(far, x):
    return far.put(x) if isinstance(x, torch.Tensor) else x


def numbers(out):
    """All that a result says."""
    parts = {"advantages": out.advantages, **out.rewards, **out.weights, **(out.shares or {})}
    parts |= {"kept": out.kept, "copies": out.copies, "rows": out.refilled[0], "again": out.refilled[1]}
    parts |= {} if out.total is None else {"total": out.total}
    said = {name: here(x).tolist() for name, x in (parts | out.lengths).items()}
    return repr((said, out.state, out.metrics()))


@pytest.mark.parametrize("name", SPECS)
def test_one_wait_a_call_whatever_the_groups(name):
    fn = made(name)
    columns, options = columns_of(fn), options_of(fn)
    for what, groups in GROUPS.items():
        with Far() as far:
            there = {key: far.put(x) for key, x in columns.items()}
            for _ in range(2 if what == "a size" else 1):  # the second call has the plan of the first
                far.waits.clear()
                out = fn(there, far_column(far, groups), **options)
                waits = [*far.waits]
                assert waits == ["_to_copy"], what
                assert out.advantages.device.type == "cuda"
                found = numbers(out)
        assert found == numbers(fn(columns, groups, **options)) == numbers(fn(columns, groups, **options)), what


def test_what_waits_is_counted():
    """The count itself: each of these makes the host wait for a real device."""
    with Far() as far:
        x = far.put(torch.tensor([1.0, 2.0, 2.0]))
        for look in (
            lambda: x.sum().item(),
            lambda: x.tolist(),
            lambda: x.cpu(),
            lambda: torch.equal(x, x),
            lambda: x[x > 1],
            lambda: x.unique(),
            lambda: (x > 1).nonzero(),
            lambda: bool((x > 1).any()),
            lambda: torch.tensor(1.0, device=x.device),
            lambda: x.repeat_interleave(far.put(torch.tensor([1, 2, 3]))),
        ):
            far.waits.clear()
            look()
            assert len(far.waits) == 1
        far.waits.clear()
        torch.full((), 1.0, device=x.device) + torch.ones(3).to(x.device, non_blocking=True) * x
        assert not far.waits
        with pytest.raises(RuntimeError, match="of the device and of the CPU"):
            x + torch.ones(3)


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["grpo", "gdpo", "binary gdpo", "missing", "values and clip", "keep", "schedule"])
def test_no_operation_depends_on_values_in_host_memory_either(name, monkeypatch):
    """The path on a CPU is that of a device: all numbers are read at the end, after the last operation."""
    fn = made(name)
    columns, options, read = columns_of(fn), options_of(fn), []
    real = torch.Tensor.tolist
    with Seen() as seen:
        monkeypatch.setattr(torch.Tensor, "tolist", lambda x: read.append(len(seen.names)) or real(x))
        for groups in (4, None, 4, [*"wwwwxxxxyyyyzzzz"]):  # the third reads its columns by the plan of the first
            read.clear()
            seen.names.clear()
            fn(columns, groups or 4, **options)
            if groups is None:  # what sizes and options alone decide is found once
                continue
            assert not SHAPED_BY_VALUES & {*seen.names}
            assert read and {*read} == {len(seen.names)}


BAD = {
    "a": [torch.tensor([0.0, 1.0] * 7 + [7.0, torch.nan]), torch.full((16,), torch.inf)],
    "b": [torch.linspace(-1, 2, 16), torch.full((15,), 0.5), torch.full((16,), 0.5, dtype=torch.complex64)],
}


@pytest.mark.parametrize("name", ["grpo", "gdpo", "schedule", "keep"])
def test_what_is_wrong_is_said_as_by_the_call_that_looks(name):
    fn = made(name)
    careful = fn.module_function.__wrapped__
    for column, values in BAD.items():
        for value in values:
            columns = {**columns_of(fn), column: value}
            for options in ({}, {"step": 1, "total_steps": 2}):
                with pytest.raises(fn.RolloutError) as said:
                    careful(columns, 4, **options)
                with pytest.raises(fn.RolloutError) as found:
                    fn(columns, 4, **options)
                assert str(found.value) == str(said.value)


def test_values_off_by_rounding_are_repaired_in_a_second_run():
    fn = made("values and clip")
    half = {"a": torch.tensor([0.0, 0.1, 0.3, 0.1]).bfloat16(), "b": torch.rand(4)}
    exact = {**half, "a": torch.tensor([0.0, 0.1, 0.3, 0.1])}
    assert torch.equal(fn(half, 4).advantages, fn(exact, 4).advantages)
    fn = made("grpo")
    almost = {"a": torch.tensor([0.0, 1.0000001, 1.0, 0.0]), "b": torch.tensor([0.0, 1.0000001, 0.5, 0.25])}
    assert torch.equal(fn(almost, 4).advantages, fn({n: x.clamp(max=1) for n, x in almost.items()}, 4).advantages)
    assert not made("grpo").ahead(almost, 4)[1]


def test_columns_that_can_be_read_once():
    fn = made("grpo")
    columns = columns_of(fn)
    once = {name: (v for v in x.tolist()) for name, x in columns.items()}
    expected = fn({name: x.tolist() for name, x in columns.items()}, [*"abab"] * 4).advantages
    assert torch.equal(fn(once, (g for g in [*"abab"] * 4)).advantages, expected)


def test_ahead_waits_for_nothing():
    for name in ("grpo", "gdpo", "binary gdpo", "missing", "values and clip", "schedule", "keep", "quantile"):
        fn = made(name)
        columns = columns_of(fn)
        with Far() as far:
            there = {key: far.put(x) for key, x in columns.items()}
            advantages, sound = fn.ahead(there, 4, step=3, total_steps=10)
            assert not far.waits
            assert bool(sound)
            assert torch.equal(here(advantages), fn(columns, 4, step=3, total_steps=10).advantages)
            if name != "values and clip":
                assert not fn.ahead({**there, "a": there["a"] + 0.5}, 4, step=3, total_steps=10)[1]
    with Far() as far:
        for name in ("by", "refill", "list", "ids", "state"):
            fn = made(name)
            with pytest.raises(fn.RolloutError, match="call the function itself"):
                fn.ahead({key: far.put(x) for key, x in columns_of(fn).items()}, 4, step=3, total_steps=10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_compiler_takes_all_of_it():
    for name in ("grpo", "gdpo", "missing", "keep"):
        fn = made(name)
        columns = columns_of(fn)
        function = torch.compile(lambda given, fn=fn: fn.ahead(given, 4), backend="aot_eager", fullgraph=True)
        advantages, sound = function(columns)
        assert sound
        torch.testing.assert_close(advantages, fn(columns, 4).advantages)
        assert not function({**columns, "a": columns["a"] + 0.5})[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_random_specs_are_computed_as_by_the_call_that_looks(seed):
    """Bit by bit, on the CPU and on the device; what is wrong is said in the same words."""
    draft = Author(seed).spec()
    reader, (fn, _) = read(draft), compiled(draft)
    if fn is None or reader is None:
        return
    rng = random.Random(seed)
    data = batch(draft, rng)
    columns = {name: given(values, data.types[name], data.flat) for name, values in data.columns.items()}
    options = {"step": data.step, "total_steps": data.total_steps, "seed": 0}
    options |= {"state": fn.initial_state()} if reader.states else {}
    options |= {"lengths": lengths_given(reader, fn, data)} if lengths_given(reader, fn, data) else {}

    def said(call, columns, groups):
        try:
            return numbers(call(columns, groups, **options))
        except fn.RolloutError as error:
            return str(error)

    expected = said(fn.module_function.__wrapped__, columns, data.groups)
    assert said(fn, columns, data.groups) == expected
    with Far() as far:
        there = {name: far_column(far, x) for name, x in columns.items()}
        groups = rng.choice([data.groups, far.put(torch.tensor(data.groups))])
        assert said(fn, there, groups) == expected
        if expected.startswith("({"):
            far.waits.clear()
            fn(there, groups, **options)
            assert len(far.waits) <= 1


@pytest.mark.slow
def test_the_benchmark_for_a_gpu_runs_on_a_cpu():
    command = [sys.executable, EXAMPLES / "gpu_bench.py", "--device", "cpu", "--alone", "--sizes", "64x4x2"]
    said = subprocess.run([*command, "--seconds", "0.01"], capture_output=True, text=True, check=True, timeout=240)
    rows = {line[:34].strip(): line[34:].split() for line in said.stdout.splitlines() if line[34:].split()}
    waits = {name: cells[-2] for name, cells in rows.items() if name.startswith(("a copy", "rewardspec"))}
    assert waits == {
        "a copy of the columns": "0",
        "rewardspec": "1",
        "rewardspec, a list of ids": "1",
        "rewardspec, ids of the device": "1",
        "rewardspec, ahead": "0",
    }
