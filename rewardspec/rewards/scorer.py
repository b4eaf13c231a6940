"""The reward functions of a spec, run over rollouts."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rewardspec.diagnostics import did_you_mean, shorten
from rewardspec.rewards.reward import BadReference

MOST_TOLD = 5  # rows that a message names


class ScoringError(ValueError):
    """Rollouts that cannot be scored: a column that is not there, a malformed ground truth. The message names rows."""


@dataclass
class Scores:
    """What was measured: for each column a value a row, None where there is none; and rows that cannot be scored."""

    columns: dict[str, list[float | None]]
    bad: dict[int, str] = field(default_factory=dict)


class Scorer:
    """Measures rollouts with the reward functions that a spec names.

    spec: a loaded Spec. Functions of the user's (`python:`) are imported here and nowhere else.
    Raises ScoringError for a spec that names none, and for a function that cannot be imported.
    """

    def __init__(self, spec):
        self.spec, self.uses = spec, spec.uses
        if not self.uses:
            raise ScoringError(f"{spec.name} names no reward function: add `use: toolrl.format`, say, to a component")
        self.names = [name for name in self.uses if name in spec.columns]  # the others are compared alone
        self.measures = {name: _own(use) if use.reward is None else _named(use) for name, use in self.uses.items()}

    def measure(self, rows: Sequence[Mapping]) -> Scores:
        """Every function once for every row; what `only_when` leaves out is None.

        rows: each with `completion` and `prompt`, texts or chat messages, and the columns that functions read.
        """
        rows = [{**row, **{k: as_text(row[k]) for k in ("prompt", "completion") if k in row}} for row in rows]
        scores = Scores({})
        late = [name for name, use in self.uses.items() if use.only_when is not None]
        for name in [*(n for n in self.uses if n not in late), *late]:
            places = [i for i in range(len(rows)) if i not in scores.bad]
            if name in late:
                try:
                    columns = {c: _together(c, scores, rows, places) for c in self.spec.compared(name)}
                    asked = self.spec.asked(name, columns)
                except ValueError as error:
                    raise ScoringError(f"`only_when` of `{name}`: {error}") from None
                places = [i for i, wanted in zip(places, asked, strict=True) if wanted]
            scores.columns[name] = self._column(name, rows, places, scores.bad)
        return Scores({name: scores.columns[name] for name in self.names}, scores.bad)

    def required(self, rows: Sequence[Mapping]) -> list[dict[str, float | None]]:
        """`measure` of rows that all have to be good, a row at a time. Raises ScoringError."""
        found = self.measure(rows)
        if found.bad:
            told = [f"rollout {i}: {reason}" for i, reason in sorted(found.bad.items())[:MOST_TOLD]]
            more = len(found.bad) - len(told)
            raise ScoringError("\n".join([*told, *([f"and {more} more"] if more > 0 else [])]))
        return [{name: values[i] for name, values in found.columns.items()} for i in range(len(rows))]

    def _column(self, name: str, rows, places, bad: dict[int, str]) -> list[float | None]:
        values: list[float | None] = [None] * len(rows)
        measure = self.measures[name]
        try:
            for i, value in zip(places, measure([rows[i] for i in places]), strict=True):
                values[i] = None if value is None or value != value else float(value)
            return values
        except (BadReference, MissingField):
            pass
        except (ValueError, RuntimeError, ModuleNotFoundError) as error:
            if self.uses[name].reward is None:  # the user's own: whatever it raises is theirs to see
                raise
            raise ScoringError(f"`{name}`: {error}") from error
        for i in places:  # one at a time, to tell the good from the bad
            try:
                (value,) = measure([rows[i]])
                values[i] = None if value is None or value != value else float(value)
            except (BadReference, MissingField) as error:
                bad[i] = f"`{name}`: {error}"
        return values


class MissingField(ValueError):
    """A rollout without a column that a reward function reads."""


def _field(row: Mapping, name: str) -> object:
    if name not in row:
        near = did_you_mean(name, [str(key) for key in row], f"it has {', '.join(f'`{shorten(str(k))}`' for k in row)}")
        raise MissingField(f"there is no column `{name}`; {near}")
    return row[name]


def _together(column: str, scores: Scores, rows: Sequence[Mapping], places: Sequence[int]) -> list:
    """A column that a condition compares: measured before, or in the rows."""
    values = scores.columns.get(column)
    return [_field(rows[i], column) if values is None else values[i] for i in places]


Measure = Callable[[Sequence[Mapping]], Sequence[float | None]]


def _named(use) -> Measure:
    """A reward function by its name, over rows."""
    reward, options = use.reward, use.options
    # one that need not be there has to be, if the spec says where
    needed = {use.inputs[name]: name not in reward.optional or use.inputs[name] != name for name in reward.inputs}

    def inputs(row: Mapping) -> list:
        return [_field(row, field) if needed[field] else row.get(field) for field in needed]

    def many(rows: Sequence[Mapping]) -> Sequence[float | None]:
        return reward.function(*map(list, zip(*map(inputs, rows), strict=True)), **options) if rows else []

    def one_by_one(rows: Sequence[Mapping]) -> Sequence[float | None]:
        return [reward.function(*inputs(row), **options) for row in rows]

    return many if reward.many else one_by_one


def _own(use) -> Measure:
    """A function of the user's: one rollout at a time, or, where it takes `completions`, all of them as TRL does."""
    module, _, path = use.python.partition(":")
    try:
        function = importlib.import_module(module)
        for part in path.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise ScoringError(f"`python: {use.python}` of `{use.column}` cannot be imported: {error}") from None
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    everything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    batched = any(p.name == "completions" for p in named)
    called = {"prompt": "prompts", "completion": "completions"} if batched else {}  # what the function calls a field
    fields = {called.get(field, field): field for field in ("prompt", "completion")}

    def taken(row: Mapping) -> dict[str, str]:
        """The parameters that are given, and the field of a row that each holds."""
        has = {**{called.get(field, field): field for field in row}, **fields}
        own = [p.name for p in named if p.default is p.empty or has.get(p.name) in row]
        return {name: has.get(name, name) for name in (dict.fromkeys([*own, *has]) if everything else own)}

    def by_row(rows: Sequence[Mapping]) -> list[float | None]:
        return [function(**{name: _field(row, field) for name, field in taken(row).items()}) for row in rows]

    def by_batch(rows: Sequence[Mapping]) -> list[float | None]:
        if not rows:
            return []
        columns = {name: [_field(row, field) for row in rows] for name, field in taken(rows[0]).items()}
        values = function(**columns)
        if len(values) != len(rows):
            raise ScoringError(f"`{use.python}` gave {len(values)} values for {len(rows)} completions")
        return values

    return by_batch if batched else by_row


def as_text(value: object) -> object:
    """A text, or chat messages as the text that was generated; anything else as it is.

    Of a completion only what the assistant wrote counts: contents, and calls as `<tool_call>` elements. Where no
    message is the assistant's (a prompt), it is the content of all.
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(m, Mapping) for m in value):
        return value
    own = [m for m in value if m.get("role") == "assistant"]
    return "\n".join(part for message in own or value for part in _parts(message))


def _parts(message: Mapping) -> list[str]:
    content = message.get("content")
    parts = (
        [content] if isinstance(content, str) else [p.get("text", "") for p in content or () if isinstance(p, Mapping)]
    )
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        arguments = function.get("arguments", {})
        held = arguments if isinstance(arguments, str) else json.dumps(arguments)
        parts.append(f'<tool_call>\n{{"name": {json.dumps(function.get("name"))}, "arguments": {held}}}\n</tool_call>')
    return [part for part in parts if part]
