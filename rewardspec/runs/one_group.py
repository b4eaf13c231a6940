"""One group of rollouts, written by hand: its gates, rewards, shares and advantages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import isfinite
from typing import Any

from rewardspec.function import AdvantageFunction, Result
from rewardspec.language.declarations import Column
from rewardspec.logs.columns import values_of
from rewardspec.ops.domain import Level
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import did_you_mean, shorten

MOST_ROLLOUTS = 4096
MISSING = ("", "-", "missing", "null", "none")


class BadGroup(ValueError):
    """Columns that are no group of a spec. The message has a line for each problem."""


@dataclass(frozen=True)
class OneGroup:
    """A group under a spec: name to [N] values each; of items a list for each rollout, None is missing.

    gates: of components with `when:`, whether it holds. rewards: shaped values. shares: of the advantage; None if it is
    no sum of shares. weights: of the components. advantages: [N]. kept: whether the group is in the batch.
    """

    name: str
    columns: Mapping[str, Sequence[Any]]
    gates: Mapping[str, Sequence[Any]]
    rewards: Mapping[str, Sequence[Any]]
    weights: Mapping[str, float]
    shares: Mapping[str, Sequence[Any]] | None
    advantages: Sequence[Any]
    kept: bool

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def read_columns(spec: Spec, given: Mapping[str, str]) -> dict[str, list[Any]]:
    """The columns of a group from texts such as `1,1,0,0`; one value is that of all rollouts.

    Values of items are a JSON list of lists: `[[1, 0], [1]]`. `-` is missing. Raises BadGroup with all problems.
    """
    columns, problems = spec.program.columns, []
    found: dict[str, list[Any]] = {}
    for name, text in given.items():
        if name not in columns:
            near = did_you_mean(name, [*columns])
            problems.append(f"{spec.name} has no column `{shorten(name)}`" + (f" ({near})" if near else ""))
            continue
        try:
            found[name] = _values(columns[name], text)
        except ValueError as error:
            problems.append(f"`{name}` {error}")
    lacking = [name for name in spec.columns if name not in given]
    if lacking:
        names = ", ".join(f"`{name}`" for name in lacking)
        example = f"{lacking[0]}={_example(columns[lacking[0]])}"
        problems.append(f"{spec.name} also reads {names}: write {example}")
    size = max(map(len, found.values()), default=0)
    for name, values in found.items():
        if len(values) == 1 and not columns[name].level.listed:
            found[name] = values * size
        elif len(values) != size:
            problems.append(f"`{name}` has {len(values)} values, and others have {size}")
    if size > MOST_ROLLOUTS:
        problems.append(f"a group of {size} rollouts: at most {MOST_ROLLOUTS} are taken")
    if problems or not size:
        raise BadGroup("\n".join(problems or ["name the columns of a group: correct=1,1,0,0"]))
    return found


def _values(column: Column, text: str) -> list[Any]:
    if column.level.listed or text.lstrip().startswith("["):
        try:
            rows = json.loads(text)
        except (ValueError, RecursionError):
            rows = None
        if not isinstance(rows, list):
            raise ValueError(f"is {shorten(text)!r}: write the items of each rollout as lists, `[[1, 0], [1]]`")
        return [values_of(column, row) for row in rows]
    return [values_of(column, _value(column, part.strip())) for part in text.split(",")]


def _value(column: Column, text: str) -> Any:
    if text.lower() in MISSING:
        return None
    if column.domain.symbols is not None or (column.domain.ids and not text.lstrip("-").isdigit()):
        return text
    try:
        value = float(Fraction(text)) if "/" in text else float(text)
        if not isfinite(value):
            raise ValueError
        return value
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ValueError(f"has {shorten(text)!r}: it must be a number") from None


def _example(column: Column) -> str:
    symbols = column.domain.symbols
    if column.level.listed:
        return "'[[1, 0], [1]]'"
    return ",".join(symbols[:2]) if symbols else "1,0"


def one_group(
    spec: Spec, columns: Mapping[str, Sequence[Any]], *, step: int | None = None, total_steps: int | None = None
) -> OneGroup:
    """A group under a spec, as a batch of its own. Raises ValueError (RolloutError) for values it does not allow."""
    moment: dict[str, Any] = {"step": step, "total_steps": total_steps}
    out = _called(spec, columns, moment)
    level = spec.program.advantage.level
    return OneGroup(
        spec.name,
        {name: [*values] for name, values in columns.items() if name in spec.columns},
        _gates(spec, columns, moment),
        {c.name: _told(out, out.rewards[c.name], c.shaped.level) for c in spec.program.components},
        {name: float(x.double().mean()) for name, x in out.weights.items()},
        None if out.shares is None else {name: _told(out, x, level) for name, x in out.shares.items()},
        _told(out, out.advantages, level),
        bool(out.kept[0]),
    )


def _called(spec: Spec, columns: Mapping[str, Sequence[Any]], moment: Mapping[str, Any]) -> Result:
    """What a spec makes of a group, where every state is at its beginning."""
    fn = AdvantageFunction(spec)
    read = {name: [*values] for name, values in columns.items() if name in spec.columns}
    size = len(next(iter(columns.values())))
    return fn(read, [0] * size, **moment, state=fn.initial_state())


def _told(out: Result, values: Any, level: Level) -> list[Any]:
    """[N] values; of items a list for each rollout. None is missing."""
    plain = [None if v != v else v for v in values.tolist()]
    if not level.listed:
        return plain
    items = iter(plain)
    return [[next(items) for _ in range(n)] for n in out.lengths[level.name].tolist()]


def _gates(spec: Spec, columns: Mapping[str, Sequence[Any]], moment: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Whether `when:` of each component holds, for each rollout or item; left out if it reads what is not given."""
    size = len(next(iter(columns.values())))
    known = {**columns, **{name: [float(state.init)] * size for name, state in spec.declarations.states.items()}}
    found: dict[str, list[Any]] = {}
    for name, declared in spec.declarations.components.items():
        if declared.when is None:
            continue
        gate = spec.indicator(declared.when)
        if set(gate.columns) <= known.keys():
            out = _called(gate, known, moment)
            found[name] = _held(_told(out, out.advantages, gate.program.advantage.level))
    return found


def _held(values: Sequence[Any]) -> list[Any]:
    return [_held(value) if isinstance(value, list) else value > 0 for value in values]
