"""`Spec.needs` on random specs: what is not in it can be left out, and nothing changes."""

import random

import pytest
import torch
from places import FUZZ
from reference.author import Author
from reference.batches import batch
from reference.checks import compiled, given

FIELDS = ("advantages", "total", "kept")


def spoken(fn, columns, groups, **moment):
    """The outputs of a call as numbers, None if it raises."""
    try:
        out = fn(columns, groups, **moment)
    except fn.RolloutError:
        return None
    found = {name: getattr(out, name) for name in FIELDS if getattr(out, name) is not None}
    return found | {f"reward {name}": values for name, values in out.rewards.items()}


def same(one, other, text):
    assert (one is None) == (other is None), text
    if one is not None and other is not None:
        assert one.keys() == other.keys(), text
        for name, values in one.items():
            close(values, other[name], f"{name} of\n{text}")


def close(one, other, text):
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, equal_nan=True, msg=lambda m: f"{text}\n{m}")


def by_group(fn, columns, groups, **moment):
    """As `spoken` of the batch, from calls with one group each."""
    rows = {g: [i for i, other in enumerate(groups) if other == g] for g in dict.fromkeys(groups)}
    found = {}
    for at, places in enumerate(rows.values()):
        mine = {
            name: values[places] if isinstance(values, torch.Tensor) else [values[i] for i in places]
            for name, values in columns.items()
        }
        out = spoken(fn, mine, [0] * len(places), **moment)
        if out is None:
            return None
        for name, values in out.items():
            size, to = (len(rows), [at]) if name == "kept" else (len(groups), places)
            found.setdefault(name, torch.zeros(size, dtype=values.dtype))[to] = values
    return found


@pytest.mark.parametrize("part", range(4 * FUZZ))
def test_what_is_not_needed_changes_nothing(part):
    seen = dict.fromkeys(("batch", "step", "total_steps", "tokens"), 0)
    for seed in range(40 * part, 40 * part + 40):
        draft = Author(seed).spec()
        fn, _ = compiled(draft)
        if fn is None:
            continue
        needs, rng = fn.spec.needs, random.Random(seed)
        data = batch(draft, rng)
        columns = {
            name: given(values, "list" if isinstance(next(filter(None, values), 0), str) else "float64")
            for name, values in data.columns.items()
        }
        moment = {"step": data.step, "total_steps": data.total_steps}
        whole = spoken(fn, columns, data.groups, **moment)
        if "batch" not in needs and whole is not None:
            same(whole, by_group(fn, columns, data.groups, **moment), draft.text)
            seen["batch"] += 1
        for name in {"step", "total_steps"} - needs:
            for value in (None, 1, 10**6):
                same(whole, spoken(fn, columns, data.groups, **moment | {name: value}), draft.text)
            seen[name] += 1
        if "tokens" not in needs:
            columns.pop("tokens", None)
            same(whole, spoken(fn, columns, data.groups, **moment), draft.text)
            seen["tokens"] += whole is not None
    assert all(seen.values()), seen
