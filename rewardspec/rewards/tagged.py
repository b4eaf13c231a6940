"""The text that models write: elements in tags, tool calls in JSON. All functions are linear in the text's length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite

MOST_DIGITS = 400  # of an integer in a tool call: Python's own limit is ten times that, and slow


class Malformed(ValueError):
    """A text or value is not the tool calls or the JSON that it should be."""


def answer_part(text: str) -> str:
    """The text after the first `</think>`; the whole text if there is none."""
    _, closed, rest = text.partition("</think>")
    return rest if closed else text


def thought(text: str) -> str:
    """The text of the thought, `""` if it has no end. It may begin without `<think>`, which prompts can end with."""
    inner, closed, _ = text.partition("</think>")
    if not closed:
        return ""
    return inner.partition("<think>")[2] if "<think>" in inner else inner


def elements(text: str, tag: str) -> Iterator[str | None]:
    """The content of every `<tag>...</tag>`, in order; None at the end for one that is not closed."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    at = text.find(opening)
    while at >= 0:
        end = text.find(closing, at)
        if end < 0:
            yield None
            return
        yield text[at + len(opening) : end]
        at = text.find(opening, end)


def last_element(text: str, tag: str) -> str | None:
    """The content of the last closed `<tag>...</tag>`; None if there is none."""
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, max(end, 0))
    return text[start + len(tag) + 2 : end] if start >= 0 else None


def in_order(text: str, tags: tuple[str, ...]) -> bool:
    """Whether each tag opens once and closes once, in this order, one element after the other."""
    at = 0
    for tag in tags:
        for mark in (f"<{tag}>", f"</{tag}>"):
            at = text.find(mark, at)
            if at < 0 or text.count(mark) != 1:
                return False
            at += len(mark)
    return True


def _refused(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError("a number with too many digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_constant=_refused, parse_int=_whole)


def read_json(text: str) -> object:
    """The value of a JSON text; for a repeated key the last value. Raises Malformed."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(_why(error)) from None


def _why(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {str(error)[:80]}"


def read_calls(text: str, arguments: tuple[str, ...] = ("parameters",)) -> tuple[Call, ...]:
    """The tool calls of a text: JSON objects with white space between. Raises Malformed."""
    calls, at = [], 0
    text = text.strip()
    while at < len(text):
        try:
            found, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise Malformed(_why(error)) from None
        calls.append(as_call(found, arguments))
        while at < len(text) and text[at].isspace():
            at += 1
    return tuple(calls)


Call = tuple[str, Mapping[str, object]]  # name, parameters


def as_call(found: object, arguments: tuple[str, ...] = ("parameters",)) -> Call:
    """The name and the parameters of a call. Raises Malformed."""
    if not isinstance(found, Mapping):
        raise Malformed("a tool call must be a JSON object")
    name = found.get("name")
    held = next((found[key] for key in arguments if key in found), None)
    if not isinstance(name, str) or not isinstance(held, Mapping):
        raise Malformed(f"a tool call needs a `name`, a text, and `{'` or `'.join(arguments)}`, an object")
    return name, held


ARGUMENTS = ("arguments", "parameters", "args")  # their names in data sets


def wanted_calls(given: object) -> tuple[Call, ...]:
    """The calls of a ground truth: a list or its JSON text, also in the format of chat messages. Raises Malformed.

    Nulls in a list count as absent, because a table adds every key to every row; in JSON text they are values.
    """
    calls = read_json(given) if isinstance(given, str) else given
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise Malformed("not a list of calls")
    try:
        return tuple(_gold_call(call if isinstance(given, str) else _without_null(call)) for call in calls)
    except RecursionError as error:
        raise Malformed(_why(error)) from None


def _gold_call(call: object) -> Call:
    call = call.get("function", call) if isinstance(call, Mapping) else call
    if isinstance(call, Mapping):
        call = {key: read_json(v) if key in ARGUMENTS and isinstance(v, str) else v for key, v in call.items()}
    return as_call(call, ARGUMENTS)


def _without_null(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_null(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_null(inner) for inner in value]
    if isinstance(value, float) and not isfinite(value):
        raise Malformed(f"JSON has no {value}")
    return value


def same(a: object, b: object) -> bool:
    """Whether two JSON values are equal: `true` is not 1, 1 is 1.0, and the order of keys does not matter."""
    left = [(a, b)]
    while left:
        a, b = left.pop()
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                return False
            left += [(a[key], b[key]) for key in a]
        elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
            if len(a) != len(b):
                return False
            left += zip(a, b, strict=True)
        elif isinstance(a, bool) != isinstance(b, bool) or a != b:
            return False
    return True


@lru_cache(maxsize=8)
def predicted_calls(completion: str) -> tuple[Call, ...] | None:
    """The calls in the `<tool_call>` elements after the thought; None if one cannot be read.

    The last few results are cached, so that several rewards of one rollout read it once.
    """
    found = list(elements(answer_part(completion), "tool_call"))
    closed = [inner for inner in found if inner is not None]
    if len(closed) < len(found):
        return None
    try:
        return tuple(call for inner in closed for call in read_calls(inner))
    except Malformed:
        return None
