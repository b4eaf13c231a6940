"""The compiled function held to the interpreter."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import torch

import rewardspec
from reference.declared import Scope
from reference.interpreter import Batch, Evaluation, RolloutError, interpret
from reference.measured import lengths_of, measured_columns, one_value
from reference.nodes import ROLLOUT, SpecError
from reference.numbers import Arithmetic, NoValue, TooClose, digits
from reference.reader import Reader

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53, "list": 2.0**-24, "int64": 2.0**-24}
TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}
SAFETY = 16  # times the bound on rounding
ILL = 1e-2  # relative: a batch that floats know less of is no test


class Disagreement(AssertionError):
    """The package and the interpreter differ."""


def stored(values, kind):
    """What a column of this type holds: each number as its float type has it."""
    as_float = np.float64 if kind == "float64" else np.float32
    whole = kind in ("list", "int64")  # whole numbers are what they are

    def held(v):
        if isinstance(v, list):
            return [held(item) for item in v]
        if not isinstance(v, Fraction) or (whole and v.denominator == 1):
            return v
        return Fraction(float(as_float(float(v))))

    return [held(v) for v in values]


def given(values, kind, flat=False):
    """A column as it is handed to the compiled function. flat: of a list, one item after the other."""
    if values and isinstance(values[0], list):
        return given([v for one in values for v in one], kind) if flat else [given(one, "list") for one in values]
    if any(not isinstance(v, Fraction) and v is not None for v in values):  # names, ids
        return values
    if kind == "list":
        return [None if v is None else int(v) if v.denominator == 1 else float(v) for v in values]
    if kind == "int64":
        return torch.tensor([int(v) for v in values])
    return torch.tensor([math.nan if v is None else float(v) for v in values], dtype=TYPES[kind])


def read(draft):
    """The interpreter's reading, or None where the spec is not well-formed."""
    try:
        return Reader(draft.text, draft.dialect)
    except SpecError:
        return None


def compiled(draft):
    """The package's reading: (function, []) or (None, codes of errors)."""
    try:
        return rewardspec.compile(rewardspec.loads(draft.text), dialect=draft.dialect), []
    except rewardspec.SpecError as error:
        return None, [d.code for d in error.diagnostics if d.severity == "error"]


def check_compiled(draft, reader, fn, data):
    """What came of one batch: `equal`, `raises` (both) or `too close`. Raises Disagreement. Of a spec with state, the
    batch's becomes what the function makes of it.

    With a column of float64 the call is computed in that, but what is rounding is told by the coarsest column.
    """
    read = {data.types[name] for name in fn.spec.columns if name in data.types}
    before = data.state
    try:
        return _checked(reader, fn, data, "float64")
    except Disagreement:
        if not {"float32", "float64"} <= read:
            raise
    data.state = before
    return _checked(reader, fn, data, "float32")


def _checked(reader, fn, data, finest):
    read_columns = reader.read_columns & {*fn.spec.columns}
    read_here = {name: data.types[name] for name in read_columns}
    numbers = {k for name, k in read_here.items() if not reader.columns[name].symbols and not reader.columns[name].ids}
    unit = UNIT[finest if "float64" in numbers else "float32"]
    columns = {name: given(values, data.types[name], data.flat) for name, values in data.columns.items()}
    more = {"state": data.state} if reader.states else {}
    said = lengths_given(reader, fn, data)
    more |= {"lengths": said} if said else {}
    before = data.state
    try:
        got = fn(columns, data.groups, step=data.step, total_steps=data.total_steps, seed=0, **more)
        shares, data.state = got.shares, got.state if reader.states else None
    except ValueError as error:
        got = error
    for name in reader.read_columns - read_columns:  # nothing depends on it, as `x >= 0` where it cannot be less
        column = reader.columns[name]
        if (column.missing == "error" and lacks(data.columns[name])) or is_refused(column, data.columns[name]):
            return "unread"
    batch = Batch(
        {name: stored(values, data.types[name]) for name, values in data.columns.items()},
        data.groups,
        data.step,
        data.total_steps,
        None if isinstance(got, ValueError) else got.copies.tolist(),
        data.lengths,
        before,
    )
    try:
        want = interpret(reader, batch, unit, {name: UNIT[kind] for name, kind in data.types.items()}, read_columns)
    except TooClose:
        return "too close"
    except (RolloutError, NoValue) as error:
        if not isinstance(got, ValueError):
            raise Disagreement(
                f"the language has an error: {error}\ngot advantages {got.advantages.tolist()}"
            ) from None
        return "raises"
    if isinstance(got, ValueError):
        raise Disagreement(f"got {got}\nexpected advantages {[show(a) for a in want.advantages]}")
    if ill(want.advantages) or any(ill(v) for v in want.rewards.values()):
        return "too close"
    same("kept", got.kept.tolist(), want.kept)
    do = Arithmetic(unit)
    close = partial(near, do)
    for name, values in want.rewards.items():
        close(f"reward {name}", got.rewards[name], values)
    for name, values in want.weights.items():
        values = values if isinstance(values, list) else [values]
        close(f"weight {name}", got.weights[name].expand(len(values)), values)
    close("advantages", got.advantages, want.advantages)
    check_copies(got, batch, reader)
    check_state(close, got, want)
    check_lists(got, reader, batch)
    if shares is not None:
        total = sum(shares.values())
        largest = max((float(share.abs().max()) for share in shares.values() if len(share)), default=0.0)
        close("the sum of shares", total, want.advantages, slack=1e-4 * scale(want.advantages) + 1e-6 * largest)
    return "equal"


def lengths_given(reader, fn, data):
    """Lengths of lists that the function reads: of all where columns are flat, else of those without a column."""
    by_column = {reader.columns[name].level for name in fn.spec.columns if name in reader.columns}
    return {
        name: long
        for name, long in data.lengths.items()
        if name in fn.spec.lists and (data.flat or reader.levels[name] not in by_column)
    }


def lacks(values):
    """Whether a value is missing, or an item."""
    return any(v is None or (isinstance(v, list) and None in v) for v in values)


def is_refused(column, values):
    """Whether a value is outside of what the column declares, which is an error of those that are read."""
    try:
        for v in (v for one in values for v in (one if isinstance(one, list) else [one])):
            one_value(column, v, UNIT["float32"], True)
    except RolloutError:
        return True
    return False


def check_state(close, got, want):
    """State after the batch: the same keys in the same order, and their values."""
    for name, value in want.state.items():
        if isinstance(value, list):
            same(f"keys of {name}", [key for key, _ in got.state[name]], [key for key, _ in value])
            found = torch.tensor([v for _, v in got.state[name]], dtype=torch.float64)
            close(f"state {name}", found, [v for _, v in value])
        else:
            close(f"state {name}", torch.tensor([got.state[name]], dtype=torch.float64), [value])


def check_lists(got, reader, batch):
    """Lengths beside an advantage of a list, and which rollouts are said to be without signal."""
    level = reader.advantage.level
    if level <= ROLLOUT:
        return
    long = lengths_of(reader, batch)[level]
    name = next(n for n, at in reader.levels.items() if at == level)
    same("lengths", [int(n) for n in got.lengths[name]], long)
    values = iter(got.advantages.tolist())
    dead = [not any([next(values) != 0 for _ in range(n)]) for n in long]
    said = got.metrics()["rollouts_without_signal"]
    if abs(said - sum(dead) / len(dead)) > 1e-6:
        raise Disagreement(f"rollouts_without_signal {said}, expected {sum(dead)} of {len(dead)}")


def check_copies(got, batch, reader):
    copies, kept, groups = got.copies.tolist(), got.kept.tolist(), len(batch.members)
    if reader.refill is None or not any(kept) or all(kept):
        same("copies", copies, [int(k) for k in kept])
    elif sum(copies) != groups or any((c >= 1) != k for c, k in zip(copies, kept, strict=True)):
        raise Disagreement(f"copies {copies} of kept {kept}")
    if reader.refill is not None and not any(kept):
        return  # nothing is drawn, and no row is left to train on
    rows, advantages = got.refilled
    drawn = [0] * groups
    level = reader.advantage.level
    long = lengths_of(reader, batch)[level] if level > ROLLOUT else [1] * len(batch.groups)

    def of_rows(values, among):
        """The values of each row, which has one for each item."""
        values = iter(values)
        found = [[next(values) for _ in range(long[row])] for row in among]
        same("values beyond the rows", [*values], [])
        return found

    share = [[0.0] * n for n in long]
    for row, own in zip(rows.tolist(), of_rows(advantages.tolist(), rows.tolist()), strict=True):
        drawn[batch.group_of[row]] += 1
        share[row] = [s + a for s, a in zip(share[row], own, strict=True)]
    same("rows", drawn, [c * len(m) for c, m in zip(copies, batch.members, strict=True)])
    for row, own in enumerate(of_rows(got.advantages.tolist(), range(len(long)))):
        for s, a in zip(share[row], own, strict=True):
            if copies[batch.group_of[row]] and abs(s - a) > 1e-5 * max(1, abs(a)):
                raise Disagreement(f"refilled: row {row} has {share[row]} of {own}")


def scale(values):
    return float(max((abs(digits(v.value)) for v in values if v is not None), default=0))


def ill(values):
    return any(v is not None and SAFETY * v.error > ILL * max(scale(values), 1e-3) for v in values)


def show(v):
    return None if v is None else float(v.value)


def same(what, got, want):
    if got != want:
        raise Disagreement(f"{what}: got {got}, expected {want}")


def near(arithmetic, what, got, want, slack=0.0):
    """Exact where the language's value is exact, within the bound on rounding elsewhere."""
    if len(got) != len(want):
        raise Disagreement(f"{what}: {len(got)} values, expected {len(want)}")
    for g, w in zip(got.tolist(), want, strict=True):
        if w is None or math.isnan(g):
            fits = w is None and math.isnan(g)
        else:
            fits = abs(Fraction(g) - Fraction(str(digits(w.value)))) <= slack + SAFETY * arithmetic.off(w)
        if not fits:
            raise Disagreement(f"{what}:\n got      {got.tolist()}\n expected {[show(v) for v in want]}")


def check_gates(draft, reader, batches):
    """Holds the claim that no gate of some component ever opens to batches. Raises Disagreement where all open."""
    gates = {name: reader.expression(c["when"], Scope()) for name, c in reader.components.items() if "when" in c}
    report = ""
    try:
        rewardspec.loads(draft.text)
    except rewardspec.SpecError as error:
        report = str(error)
    never = {name for name in gates if f"the gate of `{name}` never opens" in report}
    for data in batches:
        held = Batch(
            {n: stored(v, data.types[n]) for n, v in data.columns.items()}, data.groups, data.step, data.total_steps
        )
        try:
            columns = measured_columns(reader, held, Arithmetic(), {})
            look = Evaluation(reader, held, columns, Arithmetic())
            opened = {n for n in never if any(look.holds(gates[n], i) for i in range(len(data.groups)))}
        except (RolloutError, NoValue, TooClose):
            continue
        if opened:
            raise Disagreement(f"the gates of {opened} are said never to open")
