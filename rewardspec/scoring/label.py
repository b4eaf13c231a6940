"""Trajectories labelled with reward tokens: the fine-tuning set of stage 1 in RC-GRPO (arXiv:2602.03025, Eq. 1)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any

from rewardspec.ir.checks import find_checks
from rewardspec.ir.exact import GroupEvaluator, items_of
from rewardspec.ir.graph import walk
from rewardspec.language.declarations import Column
from rewardspec.logs.columns import PREFIX, values_of
from rewardspec.logs.parts import BATCH
from rewardspec.logs.rows import Twice, once
from rewardspec.ops.domain import Level
from rewardspec.ops.exact import Inexact
from rewardspec.scoring.processes import done_in_order
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import shorten
from rewardspec.text.numbers import format_number

ROUNDING = Fraction(1, 10**6)  # relative: 0.1 written as float32 is read as 0.1
TOKEN_KEY = "reward_token"  # the key of a line's token


class BadLine(ValueError):
    """A line cannot be labelled; the message is the reason."""


@dataclass
class Tally:
    """How many lines got each token, and the lines that got none. bad: (line number, reason)."""

    counts: dict[str, int]
    bad: list[tuple[int, str]] = field(default_factory=list)

    @property
    def labelled(self) -> int:
        return sum(self.counts.values())

    def prior(self) -> dict[str, float]:
        """The fraction of labelled trajectories with each token: the prior that training should draw from."""
        return {name: count / max(self.labelled, 1) for name, count in self.counts.items()}


class Labeller:
    """Labels trajectories by the `condition:` of a spec. Raises ValueError for a spec without labels."""

    def __init__(self, spec: Spec, prefix: str = PREFIX):
        self.spec, self.prefix = spec, prefix
        program = spec.program
        if spec.condition is None:
            raise ValueError(f"{spec.name} has no `condition:`, so there are no reward tokens to label with")
        if not program.labels:
            raise ValueError(f"`condition:` of {spec.name} has no `label:`, which defines when each token is given")
        self.condition = spec.condition
        checks = find_checks(program.graph, list(program.labels.values()))
        self.wanted = [*program.labels.values(), *(check.bad for check in checks)]
        self.words = [check.what for check in checks]
        columns = [node for node in walk(self.wanted) if node.op == "column"]
        self.columns = [program.columns[node.attributes[0]] for node in columns]
        fine = [node for node in columns if node.level >= Level.ROLLOUT]
        counted = {node.level for node in fine}
        if unknown := [n.level for n in walk(self.wanted) if n.level.listed and n.level not in counted]:
            raise ValueError(
                f"a label of {spec.name} reads no column of the list `{unknown[0]}`, so its length is unknown: compare "
                "a column of that list, or one with the number of its items"
            )
        self.own = [node.attributes[0] for node in fine]
        self.exact = [GroupEvaluator(node, fine, {}) for node in self.wanted]
        self.floats = [GroupEvaluator(node, fine, {}, floats=True) for node in self.wanted]

    def token(self, row: Mapping[str, Any]) -> str:
        """The name of the token for the rewards of one trajectory. Raises BadLine."""
        ids: dict[object, Fraction] = {}
        values = {column.name: _value(column, row, self.prefix, ids) for column in self.columns}
        _check_lengths(self.columns, values)
        holds = [self._at(i, values) for i in range(len(self.wanted))]
        labels = list(self.spec.program.labels)
        for failed, words in zip(holds[len(labels) :], self.words, strict=True):
            if failed:
                raise BadLine(words)
        return next((name for name, held in zip(labels, holds, strict=False) if held), list(self.condition.tokens)[-1])

    def _at(self, i: int, values: Mapping[str, Any]) -> bool:
        row = tuple(values[name] for name in self.own)
        try:
            found = self.exact[i]([row], values)
        except Inexact:
            found = self.floats[i]([tuple(_float(value) for value in row)], values)
        return any(value == 1 for value in items_of(found[0]))

    def labelled(self, text: str) -> tuple[str, str]:
        """A line of the fine-tuning set, and the name of its token. Raises BadLine."""
        try:
            row = json.loads(text, object_pairs_hook=once)
        except RecursionError:
            raise BadLine("nested too deeply") from None
        except Twice as error:
            raise BadLine(str(error)) from None
        except ValueError as error:
            raise BadLine(f"not JSON: {shorten(str(error), 80)}") from None
        if not isinstance(row, dict):
            raise BadLine("not a JSON object with `messages` and the rewards")
        messages = _messages(row)
        if TOKEN_KEY in row or any(text in _text(m) for m in messages for text in self.condition.tokens.values()):
            raise BadLine("already has a reward token")
        name = self.token(row)
        try:
            rendered = self.condition.render(messages, name)
        except ValueError as error:
            raise BadLine(str(error)) from None
        rest = {key: value for key, value in row.items() if key not in ("messages", "prompt", "completion")}
        line = json.dumps({"messages": rendered, TOKEN_KEY: name, **rest}, ensure_ascii=False)
        return (line if _is_utf8(line) else json.dumps(json.loads(line))), name


Lines = tuple[int, list[bytes]]  # the number of the first, and lines that follow each other
Labelled = list[tuple[int, str, str]]  # of each line its number, and itself with its token; or "" and the reason


@dataclass
class Labelling:
    """The labelling of lines, for any process."""

    spec: Spec
    prefix: str

    def __call__(self, task: Lines) -> Labelled:
        first, lines = task
        found: Labelled = []
        for number, raw in enumerate(lines, first):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if text:
                    found.append((number, *self.labeller.labelled(text)))
            except UnicodeDecodeError:
                found.append((number, "", "not UTF-8 text"))
            except BadLine as error:
                found.append((number, "", str(error)))
        return found

    @cached_property
    def labeller(self) -> Labeller:
        return Labeller(self.spec, self.prefix)


def label(spec: Spec, lines: Iterable[bytes], prefix: str = PREFIX, processes: int = 1) -> tuple[Iterator[str], Tally]:
    """An iterator of the labelled lines, and a tally that is complete when the iterator is exhausted.

    prefix: of the columns that `rewardspec score` added, which are preferred. processes: how many label.
    """
    work = Labelling(spec, prefix)
    tally = Tally(dict.fromkeys(work.labeller.condition.tokens, 0))

    def tasks() -> Iterator[Lines]:
        number, left = 1, iter(lines)
        while some := list(islice(left, BATCH)):
            yield number, some
            number += len(some)

    def each() -> Iterator[str]:
        alone = processes == 1 or spec.made is None  # a variation of a spec has no text that could be sent
        done = map(work, tasks()) if alone else done_in_order(Labelling(spec, prefix), tasks(), processes)
        for part in done:
            for number, line, said in part:
                if line:
                    tally.counts[said] += 1
                    yield line
                else:
                    tally.bad.append((number, said))

    return each(), tally


Point = Fraction | None  # None: missing


def _float(value: Point | tuple[Point, ...]) -> Any:
    if isinstance(value, tuple):
        return tuple(_float(item) for item in value)
    return None if value is None else float(value)


def _check_lengths(columns: Sequence[Column], values: Mapping[str, Point | tuple[Point, ...]]) -> None:
    """Raise BadLine unless the columns of each list have equal lengths."""
    first: dict[Level, tuple[str, int]] = {}
    for column in columns:
        own = values[column.name]
        if isinstance(own, tuple):
            other, count = first.setdefault(column.level, (column.name, len(own)))
            if count != len(own):
                raise BadLine(
                    f"`{column.name}` has {len(own)} items of the list `{column.level}`, and `{other}` has {count}"
                )


def _value(
    column: Column, row: Mapping[str, Any], prefix: str, ids: dict[object, Fraction]
) -> Point | tuple[Point, ...]:
    """The value of a column in a line: scored, at the top or under `rewards`; None if missing where that is allowed.

    Of a list's level a tuple. ids: the number that stands for each id of the line; new ones are added.
    """
    rewards = row.get("rewards")
    inner = rewards.get(column.name) if isinstance(rewards, Mapping) else None
    value = next((v for v in (row.get(prefix + column.name), row.get(column.name), inner) if v is not None), None)
    if column.level.listed and value is None:
        raise BadLine(f"`{column.name}` is missing: it must be a list, of the items of `{column.level}`")
    try:
        found = values_of(column, value)
    except ValueError as error:
        raise BadLine(f"`{column.name}` {error}") from None
    if column.level.listed:
        return tuple(_point(column, item, ids, f" at {column.level} {place}") for place, item in enumerate(found, 1))
    return _point(column, found, ids)


def _point(column: Column, value: Any, ids: dict[object, Fraction], at: str = "") -> Point:
    """One value of a column, as it counts. at: where it is in a list, for BadLine, which is raised."""
    if value is None:
        if column.missing == "zero":
            return Fraction(0)
        if column.missing == "ignore" or column.gated:
            return None
        raise BadLine(f"`{column.name}`{at} is missing")
    domain = column.domain
    if domain.ids:
        return ids.setdefault(value, Fraction(len(ids)))
    if domain.symbols is not None:
        if value not in domain.symbols:
            raise BadLine(
                f"`{column.name}`{at} is {shorten(repr(value))}: it must be one of {', '.join(domain.symbols)}"
            )
        return Fraction(domain.symbols.index(value))
    assert not isinstance(value, str)  # numeric columns have numbers
    if abs(value) == float("inf"):
        raise BadLine(f"`{column.name}`{at} is {shorten(repr(value))}: it must be finite")
    number = Fraction(repr(value)) if isinstance(value, float) else Fraction(int(value))
    if domain.values is not None:
        nearest = min(domain.values, key=lambda v: abs(v - number))
    else:
        nearest = Fraction(min(max(number, domain.lo), domain.hi))
    if column.clip or abs(nearest - number) <= ROUNDING * abs(nearest):
        return nearest
    raise BadLine(f"`{column.name}`{at} is {shorten(format_number(number))}: it must be in {domain}")


def _messages(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A trajectory as chat messages: its `messages`, or its `prompt` and `completion`, as texts or messages."""
    if "messages" in row:
        found = row["messages"]
    elif "prompt" in row and "completion" in row:
        found = [*_side(row["prompt"], "user"), *_side(row["completion"], "assistant")]
    else:
        raise BadLine("has neither `messages` nor `prompt` and `completion`")
    if not isinstance(found, list) or not found or not all(isinstance(m, dict) and "role" in m for m in found):
        raise BadLine("`messages` must be a list of messages with `role` and `content`")
    return found


def _side(value: object, role: str) -> list[Any]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list):
        raise BadLine("`prompt` and `completion` must be texts or lists of messages")
    return value


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
