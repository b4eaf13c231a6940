"""The reward functions of a spec, run over rollouts."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeGuard

from rewardspec.language.declarations import Use
from rewardspec.rewards.reward import BadReference, Reward, ScoringError, refuse
from rewardspec.scoring.component_cache import ComponentCache
from rewardspec.scoring.permission import Allowed, check_given, own_functions
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import did_you_mean, shorten

CHUNK = 256  # rows that are measured between two writes of what was measured
WAVES = 16  # rows at once for each request of a judge that is under way
MOST_AT_ONCE = 1024
MOST_NAMED = 5  # rows that a message names
TEXTS = ("prompt", "completion")


@dataclass
class Scores:
    """Measured columns, [N] each with None for missing; and the rows that cannot be scored, with reasons.

    A column of a list's level holds a list of numbers and None for each row.
    """

    columns: dict[str, list[Any]]
    bad: dict[int, str] = field(default_factory=dict)


class Scorer:
    """Measures rollouts with the reward functions that a spec names.

    spec: a loaded Spec. allow_python: the user functions (`python:`) that may be imported: True for all, else names of
    modules, packages or `module:function`. They are imported here and nowhere else.
    functions: functions by column that replace those of the spec; the replaced ones are not imported.
    only: the columns to measure; all by default. cache: what functions said before.
    Raises NotAllowed (a ScoringError) for functions that are not allowed, ScoringError for one that cannot be imported.
    """

    def __init__(
        self,
        spec: Spec,
        allow_python: Allowed = False,
        functions: Mapping[str, Callable[..., Any]] = {},
        only: Collection[str] | None = None,
        cache: ComponentCache | None = None,
    ):
        self.spec, self.uses, self.cache = spec, spec.uses, cache
        check_given(functions, self.uses, spec.name)
        self.names = [name for name in self.uses if name in spec.columns]  # the other columns are only compared
        if only is not None:
            self.names = [name for name in self.names if name in only]
            compared = [n for name in self.names if self.uses[name].only_when is not None for n in spec.compared(name)]
            self.uses = {name: use for name, use in self.uses.items() if name in {*self.names, *compared}}
        paths = {name: use.python for name, use in self.uses.items() if use.python is not None}
        self.own = own_functions(spec.name, paths, allow_python, {n: f for n, f in functions.items() if n in self.uses})
        made = {
            name: _own(self.own[name], name) if use.reward is None or name in self.own else _named(use, use.reward)
            for name, use in self.uses.items()
        }
        self.measures = made
        self.needs = {name: one.needs for name, one in made.items()}  # fields that a rollout must have

    @property
    def asking(self) -> dict[str, Use]:
        """The uses that ask endpoints, by column."""
        return {n: use for n, use in self.uses.items() if use.reward is not None and use.reward.calls is not None}

    @property
    def at_once(self) -> int:
        """The rows of a part of a file. Judges get more of them: at the end of a part few requests are under way.

        Not where each row has many requests, which are in memory together.
        """
        few = [use.options for use in self.asking.values() if use.of is None or use.options.get("calls") == "all"]
        most = max((int(str(options.get("concurrency", 0))) for options in few), default=0)
        return min(max(CHUNK, WAVES * most), MOST_AT_ONCE)

    def measure(self, rows: Sequence[Mapping[str, Any]]) -> Scores:
        """The columns of these rows, each function called once for each row; None where `only_when` is false.

        rows: each with `completion` and `prompt`, as texts or chat messages, and the columns that functions read.
        """
        scores = Scores({})
        late = [name for name, use in self.uses.items() if use.only_when is not None]
        for name in [*(n for n in self.uses if n not in late), *late]:
            places: Sequence[int] = range(len(rows))
            if scores.bad:
                places = [i for i in places if i not in scores.bad]
            wanted = self._wanted(name, rows, places, scores) if name in late else places
            scores.columns[name] = self._column(name, rows, wanted, scores)
        return Scores({name: scores.columns[name] for name in self.names}, scores.bad)

    def required(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The measured values of each row, by column. Raises ScoringError if a row cannot be scored."""
        found = self.measure(rows)
        if found.bad:
            named = [f"rollout {i}: {reason}" for i, reason in sorted(found.bad.items())[:MOST_NAMED]]
            more = len(found.bad) - len(named)
            raise ScoringError("\n".join([*named, *([f"and {more} more"] if more > 0 else [])]))
        return [{name: values[i] for name, values in found.columns.items()} for i in range(len(rows))]

    def _wanted(
        self, name: str, rows: Sequence[Mapping[str, Any]], places: Sequence[int], scores: Scores
    ) -> Sequence[int]:
        """The places of rows for which `only_when` of a function is true."""
        try:
            columns = {c: _compared(c, scores, rows, places) for c in self.spec.compared(name)}
            asked = self.spec.asked(name, columns)
        except ValueError as error:
            raise ScoringError(f"`only_when` of `{name}`: {error}") from None
        return [i for i, wanted in zip(places, asked, strict=True) if wanted]

    def _column(self, name: str, rows: Sequence[Mapping[str, Any]], places: Sequence[int], scores: Scores) -> list[Any]:
        values: list[Any] = [None] * len(rows)
        bad, of = scores.bad, self.uses[name].of
        lengths: dict[int, dict[str, int]] = {}  # of the other columns of the list, by row
        if of is not None:
            lengths = {i: self._lengths(of, row, scores, i) for i, row in enumerate(rows) if i not in bad}
            bad |= {i: _unlike(of, known) for i, known in lengths.items() if len({*known.values()}) > 1}
            places = [i for i in places if i not in bad]
        one = self.measures[name]

        def measure(given: Mapping[int, Any]) -> Sequence[Any]:
            if self.cache is None:
                return one.ask(list(given.values()))
            return self.cache.measured(name, self.uses[name], self.own.get(name), given, one.ask)

        every = one.together([rows[i] for i in places])
        given: dict[int, Any] = dict(zip(places, every, strict=True)) if every is not None else {}
        for i in places if every is None else ():
            try:
                given[i] = one.inputs(rows[i])
            except BadField as error:
                bad[i] = f"`{name}`: {error}"
        try:
            try:
                found = measure(given)
            except BadReference as error:  # it names all bad rows: measure the others
                at = list(given)
                bad |= {at[k]: f"`{name}`: {reason}" for k, reason in error.rows.items()}
                given = {i: values for i, values in given.items() if i not in bad}
                found = measure(given)
        except (ValueError, RuntimeError, ModuleNotFoundError) as error:
            if name in self.own:  # a user function: the user should see its own error
                raise
            raise ScoringError(f"`{name}`: {error}") from error
        if of is None:
            numbers = _numbers(name, found)
            if len(given) == len(rows) == len(numbers):
                return numbers  # a row each, in their order
            for i, number in zip(given, numbers, strict=True):
                values[i] = number
            return values
        measured = dict(zip(given, found, strict=True))
        for i, known in lengths.items():
            if i not in bad:
                values[i] = _items(name, of, measured.get(i), known, i, bad)
        return values

    def _lengths(self, of: str, row: Mapping[str, Any], scores: Scores, place: int) -> dict[str, int]:
        """How many items each column of a list has in a row, and each column that a function goes through."""
        declared = self.spec.declarations.columns
        names = [name for name in self.spec.columns if declared[name].level.name == of]
        held = {name: row.get(name) for name in names if name not in self.spec.uses}
        for use in self.uses.values():
            if use.of == of and use.reward is not None and use.reward.items is not None:
                field = use.inputs[use.reward.items]
                held[field] = row.get(field)
        held |= {name: scores.columns[name][place] for name in names if name in scores.columns}
        return {name: len(value) for name, value in held.items() if _is_list(value)}


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value is a list, as JSON, tables and trainers hold it: a sequence, an array, a tensor."""
    return not isinstance(value, str | bytes | Mapping) and hasattr(value, "__len__") and hasattr(value, "__getitem__")


def _unlike(of: str, lengths: Mapping[str, int]) -> str:
    (first, n), *others = lengths.items()
    other, m = next((name, length) for name, length in others if length != n)
    return f"`{shorten(first)}` has {n} items of the list `{of}`, and `{shorten(other)}` has {m}"


def _items(
    column: str, of: str, value: Any, known: Mapping[str, int], place: int, bad: dict[int, str]
) -> list[float | None] | None:
    """The items that a function gave for one row; None, with a reason in `bad`, if they are not as many as others are.

    known: how many items the other columns of the list have. A missing list stands for as many missing items.
    """
    if value is None and known:
        return [None] * next(iter(known.values()))
    if value is None:
        bad[place] = f"`{column}`: None where a list is needed; give None for each item of `{of}` instead"
        return None
    if not _is_list(value):
        raise ScoringError(
            f"`{column}`: rollout {place} got {shorten(repr(value))}, and `level: {of}` needs a list for each rollout"
        )
    found = []
    for at, item in enumerate(value, 1):
        try:
            found.append(_number(column, item))
        except ScoringError as error:
            raise ScoringError(f"{error} (rollout {place}, {of} {at})") from None
    lengths = {**known, column: len(found)}
    if len({*lengths.values()}) > 1:
        bad[place] = _unlike(of, lengths)
        return None
    return found


def _number(column: str, value: Any) -> float | None:
    try:
        return None if value is None or value != value else float(value)
    except (TypeError, ValueError, OverflowError):
        raise ScoringError(f"`{column}`: {shorten(repr(value))} is not a number") from None


def _numbers(column: str, found: Sequence[Any]) -> list[float | None]:
    if {*map(type, found)} <= {float}:
        return [None if value != value else value for value in found]
    return [_number(column, value) for value in found]


class BadField(ValueError):
    """A rollout lacks a column that a reward function reads, or has something else where a text is needed."""


def _field(row: Mapping[str, Any], name: str, text: bool = False) -> object:
    if name not in row:
        near = did_you_mean(name, [str(key) for key in row], f"it has {', '.join(f'`{shorten(str(k))}`' for k in row)}")
        raise BadField(f"there is no column `{name}`; {near}")
    try:
        return as_text(row[name]) if text else row[name]
    except BadField as error:
        raise BadField(f"column `{name}`: {error}") from None


def _compared(column: str, scores: Scores, rows: Sequence[Mapping[str, Any]], places: Sequence[int]) -> list[Any]:
    """A column that `only_when` compares: as measured, else from the rows."""
    values = scores.columns.get(column)
    return [_field(rows[i], column) if values is None else values[i] for i in places]


Row = Mapping[str, Any]


@dataclass(frozen=True)
class Measure:
    """How a column is measured.

    inputs: what the function reads of a row; raises BadField. together: the same of many rows at once, which takes less
    time; None where that is not known to be right, for one of them. ask: the function's values for many inputs. needs:
    the fields that a row must have.
    """

    inputs: Callable[[Row], object]
    ask: Callable[[Sequence[Any]], Sequence[Any]]
    needs: list[str]
    together: Callable[[Sequence[Row]], Sequence[object] | None] = lambda rows: None


def _named(use: Use, reward: Reward) -> Measure:
    """The measure of a reward function of ours."""
    options = use.options
    # an optional input is required if the spec names its field
    needed = {
        name: name not in reward.optional or field != name or name == reward.items for name, field in use.inputs.items()
    }

    def inputs(row: Row) -> tuple[Any, ...]:
        return tuple(
            _field(row, field, name in TEXTS) if needed[name] or field in row else None
            for name, field in use.inputs.items()
        )

    def together(rows: Sequence[Row]) -> list[tuple[Any, ...]] | None:
        columns = []
        for name, read in use.inputs.items():
            try:
                column = [row[read] for row in rows]
            except KeyError:
                return None
            if name in TEXTS and not {*map(type, column)} <= {str}:
                return None
            columns.append(column)
        return list(zip(*columns, strict=True))

    def many(given: Sequence[Any]) -> Sequence[Any]:
        return reward.function(*map(list, zip(*given, strict=True)), **options) if given else []

    def one_by_one(given: Sequence[Any]) -> list[Any]:
        values: list[Any] = []
        bad: dict[int, str] = {}
        function = partial(reward.function, **options)
        for one in given:
            try:
                values.append(function(*one))
            except BadReference as error:
                bad[len(values)] = str(error)
                values.append(None)
        refuse(bad)
        return values

    needs = [use.inputs[name] for name in needed if needed[name]]
    return Measure(inputs, many if reward.many else one_by_one, needs, together)


MESSAGES = "messages"  # a parameter of user functions: the completion as chat messages, unless a column has the name


def _messages(row: Mapping[str, Any]) -> object:
    if MESSAGES in row:
        return row[MESSAGES]
    found = _field(row, "completion")
    if isinstance(found, str):
        raise BadField("the completion is a text, and the function reads `messages`: chat messages are needed")
    return found


def _copied(value: Any) -> Any:
    """A value whose lists and dicts are others': a function that changes what it reads changes no other's."""
    if type(value) is list:
        return [_copied(item) for item in value]
    return {key: _copied(item) for key, item in value.items()} if type(value) is dict else value


def _own(function: Callable[..., Any], column: str) -> Measure:
    """The measure of a user function: one rollout at a time, or, if it takes `completions`, all at once as in TRL."""
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    everything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    batched = any(p.name == "completions" for p in named)
    plural = {"prompt": "prompts", "completion": "completions"} if batched else {}  # parameter names by field
    singular = {name: field for field, name in plural.items()}

    def inputs(row: Mapping[str, Any]) -> dict[str, object]:
        fields = {p.name: singular.get(p.name, p.name) for p in named}
        fields = {p.name: fields[p.name] for p in named if p.default is p.empty or fields[p.name] in row}
        if everything:
            fields |= {plural.get(field, field): field for field in row}
        return {
            name: _copied(_messages(row) if field == MESSAGES else _field(row, field, field in TEXTS))
            for name, field in fields.items()
        }

    def by_row(given: Sequence[dict[str, Any]]) -> list[Any]:
        return [function(**one) for one in given]

    def by_batch(given: Sequence[dict[str, Any]]) -> Sequence[Any]:
        if not given:
            return []
        names = [name for name in given[0] if all(name in one for one in given)]
        values: Sequence[Any] = function(**{name: [one[name] for one in given] for name in names})
        if len(values) != len(given):
            raise ScoringError(f"the function of `{column}` returned {len(values)} values for {len(given)} completions")
        return values

    needed = [singular.get(p.name, p.name) for p in named if p.default is p.empty and p.name != MESSAGES]
    return Measure(inputs, by_batch if batched else by_row, needed)


def as_text(value: object) -> str:
    """A text unchanged, or the generated text of chat messages. Raises BadField for anything else.

    The generated text is what the assistant wrote: contents, and tool calls as `<tool_call>` elements. If no message is
    the assistant's, as in a prompt, it is the text of all messages.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence) or not all(isinstance(m, Mapping) for m in value):
        raise BadField(f"{shorten(repr(value))} is neither a text nor a list of chat messages")
    own = [m for m in value if m.get("role") == "assistant"]
    return "\n".join(part for message in own or value for part in _parts(message))


def _parts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    parts = [{"text": content}] if isinstance(content, str) else [] if content is None else content
    calls = message.get("tool_calls") or []
    if not _mappings(parts) or not _mappings(calls):
        raise BadField("a message needs a `content`, a text or a list of parts; its `tool_calls` must be a list")
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return [text for text in (*texts, *map(_written, calls)) if text]


def _mappings(values: object) -> bool:
    return isinstance(values, Sequence) and all(isinstance(value, Mapping) for value in values)


def _written(call: Mapping[str, Any]) -> str:
    """The tool call of a message as a model would write it, in the format of ToolRL."""
    function = call.get("function", call)
    if not isinstance(function, Mapping):
        raise BadField("a tool call needs a `function`")
    name, arguments = json.dumps(function.get("name"), default=str), function.get("arguments", {})
    held = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
    return f'<tool_call>\n{{"name": {name}, "parameters": {held}}}\n</tool_call>'
