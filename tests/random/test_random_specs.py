"""Random well-typed specs: rejected with diagnostics, or compiled to source that runs."""

import random

import pytest
import torch
from places import FUZZ

import rewardspec
from rewardspec.function import load_module

HEAD = """rewardspec: 1
signals:
  task: {{values: [x, y]}}
  difficulty: {{range: [0, 1], level: group}}
  multiplier: {{range: [0, 3], level: batch}}
components:
  a: {{values: [0, 1]}}
  b: {{range: [-1, 1], weight: {weight}}}
  c: {{values: [0, 0.5, 1], missing: ignore}}
  d: {{expr: {value}, when: {gate}, otherwise: {otherwise}}}
advantage: {advantage}
"""
LEAVES = [
    "a",
    "b",
    "c",
    "raw(b)",
    "0.5",
    "2",
    "-3",
    "1e-4",
    "pi",
    "progress",
    "step",
    "group_size",
    "multiplier",
    "difficulty",
]
SCHEMES = ["d", "total", "grpo", "gdpo", "decoupled", "rloo", "batch_grpo", "required(c)", "missing"]
SCHEMES += [f"{f}(rewards, over=components)" for f in ("sum", "max", "mean", "std", "count")]
FUNCTIONS = ["abs", "sigmoid", "tanh", "exp", "log", "sqrt", "cos", "floor", "round", "sign", "present"]
REDUCTIONS = ["mean", "sum", "std", "var", "min", "max", "count", "quantile", "kth", "rank", "any", "all"]
REDUCTIONS += ["center", "zscore", "loo", "minmax"]


class Author:
    """Writes random expressions."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.leaves = LEAVES

    def number(self, depth=3):
        pick, chance = self.random.choice, self.random.random()
        if depth <= 0 or chance < 0.2:
            return pick(self.leaves)
        inner = lambda: self.number(depth - 1)  # noqa: E731
        if chance < 0.45:
            return f"({inner()} {pick('+-*/')} {inner()})"
        if chance < 0.5:
            return pick([f"(-{inner()})", f"({inner()}) ** {pick(['2', '0.5', '-1', 'c'])}"])
        if chance < 0.62:
            return f"{pick(FUNCTIONS)}({inner()})"
        if chance < 0.7:
            return f"({inner()} if {self.condition(depth - 1)} else {inner()})"
        if chance < 0.8:
            return f"{pick(['min', 'max', 'coalesce'])}({inner()}, {inner()})"
        name = pick(REDUCTIONS)
        x = self.condition(depth - 1) if name in ("any", "all") else inner()
        rest = {"quantile": ", 0.3", "kth": f", {pick('123')}"}.get(name, "")
        rest += pick(["", "", ", over=group", ", over=batch"])
        rest += pick(["", "", f", where={self.condition(depth - 1)}"]) + pick(["", "", "", ", by=task"])
        return f"{name}({x}{rest})"

    def condition(self, depth=1):
        pick, chance = self.random.choice, self.random.random()
        if depth <= 0 or chance < 0.5:
            return f"{pick('abc')} {pick(['<', '<=', '>', '>=', '==', '!='])} {pick(['0', '0.5', '1', 'b', 'c'])}"
        if chance < 0.6:
            return f"task {pick(['==', '!='])} {pick('xy')}"
        if chance < 0.8:
            return f"({self.condition(depth - 1)} {pick(['and', 'or'])} {self.condition(depth - 1)})"
        return (
            f"not {self.condition(depth - 1)}"
            if chance < 0.9
            else f"{self.number(depth - 1)} > {self.number(depth - 1)}"
        )

    def spec(self):
        pick = self.random.choice
        value, gate, otherwise = self.number(2), self.condition(), pick(["0", "ignore", "a"])
        self.leaves = LEAVES + SCHEMES
        advantage = pick([self.number(), f"center({self.number()})", f"zscore({self.number()}, over=batch)"])
        weight = pick(["1", "difficulty", "multiplier", "1 - progress"])
        # quoted: in the flow mapping of `d`, YAML would end an expression at a comma
        text = HEAD.format(
            value=f'"{value}"', gate=f'"{gate}"', otherwise=otherwise, weight=weight, advantage=advantage
        )
        return text + pick(["", "", "", "keep: any(a > 0)\n", "keep: var(total) > 0.1\n", "keep: difficulty > 0.2\n"])


def rollouts(random, groups, size):
    n = groups * size
    generator = torch.Generator().manual_seed(random.randrange(10**6))
    c = torch.randint(0, 3, (n,), generator=generator).double() / 2
    return {
        "task": [random.choice("xy") for _ in range(n)],
        "difficulty": torch.rand(groups, 1, generator=generator).double().expand(groups, size).reshape(-1),
        "multiplier": random.random() * 3,
        "a": torch.randint(0, 2, (n,), generator=generator).double(),
        "b": torch.rand(n, generator=generator).double() * 2 - 1,
        "c": torch.where(torch.rand(n, generator=generator) < 0.3, float("nan"), c),
    }


def outcome(module, columns, groups):
    """Everything a result gives, or the message of the error."""
    try:
        out = module.advantages(columns, groups, step=3, total_steps=10)
        shares = out.shares
    except module.RolloutError as error:
        return str(error)
    assert torch.isfinite(out.advantages).all()
    assert all(len(x) == len(out.advantages) for x in out.rewards.values())
    assert all(isinstance(v, float) for v in out.metrics().values())
    return out.advantages, shares, out.weights, out.kept


@pytest.mark.parametrize("seed", range(4 * FUZZ))
def test_random_specs_are_rejected_or_run(seed):
    author = Author(seed)
    ran = 0
    for _ in range(90):
        author.leaves = LEAVES
        text = author.spec()
        try:
            spec = rewardspec.loads(text)
        except rewardspec.SpecError as error:
            assert error.diagnostics, text
            continue
        module = load_module(spec.python, "<random>")
        size, count = author.random.choice([1, 2, 4]), author.random.randint(1, 4)
        columns = rollouts(author.random, count, size)
        dense = outcome(module, columns, size)
        order = torch.randperm(count * size, generator=torch.Generator().manual_seed(seed))
        moved = {
            name: x if name == "multiplier" else [x[i] for i in order] if name == "task" else x[order]
            for name, x in columns.items()
        }
        ragged = outcome(module, moved, (torch.arange(count * size) // size)[order])
        assert isinstance(dense, str) == isinstance(ragged, str), f"{text}\n{dense}\n{ragged}"
        if isinstance(dense, str):
            continue
        ran += 1
        torch.testing.assert_close(ragged[0], dense[0][order], atol=1e-7, rtol=1e-7, msg=lambda m, t=text: f"{m}\n{t}")
        if dense[1] is not None:
            total = sum(dense[1].values())
            torch.testing.assert_close(total, dense[0], atol=1e-6, rtol=1e-6, msg=lambda m, t=text: f"{m}\n{t}")
    assert ran >= 10
