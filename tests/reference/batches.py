"""Random batches for random specs."""

from dataclasses import dataclass, field
from fractions import Fraction

from reference.author import BATCH, GROUP


@dataclass
class Data:
    """columns: Fractions, symbols, ids or None, N each, or N lists of them. types: of each column: list, float32 or
    float64. lengths: of each list. flat: whether its columns are handed over flat, beside them. state: before the call.
    """

    columns: dict
    groups: list
    types: dict
    step: int | None
    total_steps: int | None
    lengths: dict = field(default_factory=dict)
    flat: bool = False
    state: dict | None = None


def batch(draft, rng):
    """A random batch for a spec: ragged, interleaved or in order."""
    sizes = [rng.choice([1, 2, 2, 3, 4]) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.4:
        sizes = [rng.randint(1, 5)] * rng.randint(1, 3)
    groups = [g for g, size in enumerate(sizes) for _ in range(size)]
    if rng.random() < 0.5:
        rng.shuffle(groups)
    kind = rng.choice(["list", "float32", "float64", "mixed", "mixed"])
    columns, types = {}, {}
    gated, rare = (0.02, 0.001) if draft.tame else (0.2, 0.004)
    flat = bool(draft.lists) and rng.random() < 0.5
    lengths = {level: list_lengths(groups, rng) for level in draft.lists}
    for column in draft.columns:
        values = []
        pool = rng.sample(column.values, min(len(column.values), rng.choice([1, 2, 2, 9])))  # some groups are alike
        long = lengths.get(column.level)
        places = groups if long is None else range(sum(long))
        for _ in places:
            value = rng.choice(pool)
            if rng.random() < (0.2 if column.missing != "error" else gated if column.gated else rare):
                value = None
            elif not column.symbols and not column.ids and rng.random() < (0.2 if column.outside == "clip" else rare):
                value = value + rng.choice([-5, Fraction(1, 4), 5])
            values.append(value)
        if column.level == GROUP:
            values = [values[groups.index(g)] for g in groups]
        if column.level == BATCH:
            values = [values[0]] * len(values)
        one = iter(values)
        columns[column.name] = values if long is None else [[next(one) for _ in range(n)] for n in long]
        types[column.name] = rng.choice(["list", "float32", "float64"]) if kind == "mixed" else kind
        if all(isinstance(v, Fraction) and v.denominator == 1 for v in values) and rng.random() < 0.3:
            types[column.name] = "int64"
        if column.ids or (long is not None and not flat):
            types[column.name] = "list"
    if draft.dialect is not None and "tokens" not in columns:
        columns["tokens"] = [Fraction(rng.choice([1, 2, 4, 8])) for _ in groups]
        types["tokens"] = "float32"
    said = {draft.lists[level]: found for level, found in lengths.items()}
    return Data(columns, groups, types, rng.randint(0, 4), 4, said, flat)


def list_lengths(groups, rng):
    """How many items each rollout has: often one or two, at times none."""
    pool = rng.choice([[0, 1, 2, 3], [1, 2], [2], [0, 0, 1, 4], [3, 1], [0, 2]])
    return [rng.choice(pool) for _ in groups]
