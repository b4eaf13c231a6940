"""What could be written at a place: keys, names, schemes, functions, reward functions with their options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from rewardspec.editor import known
from rewardspec.editor.document import Document
from rewardspec.editor.names import Declared, lexed, scope
from rewardspec.editor.rewards import Option, options, reward_at
from rewardspec.language.declarations import OF_PLACES
from rewardspec.language.outline import Cursor, Entry, cursor
from rewardspec.language.slots import Slot, slot_at
from rewardspec.lint import registered
from rewardspec.rewards.catalogue import all_rewards, find_reward
from rewardspec.rewards.reward import Reward
from rewardspec.syntax.tokens import KEYWORDS, Token

_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9.-]*\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")
_VALUE = re.compile(r"[\w.]*\Z")

MOST_ITEMS = 300  # that are sent: a file can declare thousands of names


@dataclass(frozen=True)
class Item:
    """One proposal: `insert` in place of the characters from `start` to the cursor.

    kind: key, word, axis, keyword, option, scheme, definition, function, reward, finding, or the kind of a declared
    name. detail: a few words beside the label. about: Markdown. rank: of several, lower ones come first.
    """

    label: str
    kind: str
    insert: str
    start: int
    detail: str = ""
    about: str = ""
    rank: int = 5


def completions(document: Document, offset: int) -> list[Item]:
    """What could be written at an offset, the likeliest first. Empty in comments and in free text."""
    before = document.text[:offset]
    place = cursor(before)
    if place is None:
        return []
    if not document.is_spec:  # it could begin one
        start = _start(before)
        first = [Item("rewardspec", "key", "rewardspec: 1\n", start, about="begins a reward spec")]
        return first if document.may_become_spec and place.is_key and not place.path else []
    slot = slot_at(place.path)
    found: Iterator[Item] = iter(())
    if place.is_key:
        found = _as_key(document, before, place, slot)
    elif slot is not None and slot.role in ("keys", "names", "options", "code", "items"):
        line = before[before.rfind("\n") + 1 : place.start]
        is_first = not line.strip() or line.strip() == "-"  # on the line below a key, or after a dash
        is_word = _WORD.fullmatch(before, place.start) is not None or place.start == len(before)
        keys = _as_key(document, before, place, slot) if is_first and is_word else iter(())
        # after `length:` a line break comes as often as a value
        is_value = slot.short is not None and before[-1:] != ":"
        found = chain(keys, _expression(document, before, place) if is_value else ())
    elif slot is not None:
        found = _as_value(document, before, place, slot)
    elif place.path[-2:-1] == ("with",):
        found = _option_value(document, before, place)
    items = sorted(found, key=lambda item: item.rank)
    if before[-1:] == ":" and not place.is_key:  # a value is written after a space
        return [Item(i.label, i.kind, " " + i.insert, i.start, i.detail, i.about, i.rank) for i in items]
    return items


def fitting(items: list[Item], before: str) -> list[Item]:
    """All items, or at most `MOST_ITEMS` of those that begin with what is typed; an editor asks again as it changes."""
    if len(items) <= MOST_ITEMS:
        return items
    begun = [item for item in items if item.label.lower().startswith(before[item.start :].lower())]
    return begun[:MOST_ITEMS]


def _start(before: str, word: re.Pattern[str] = _WORD) -> int:
    """Where the word that is typed begins."""
    match = word.search(before)
    return len(before) if match is None else match.start()


# Keys --------------------------------------------------------------------------------------------


def _as_key(document: Document, before: str, place: Cursor, slot: Slot | None) -> Iterator[Item]:
    """Keys of the mapping at the cursor, without those that it has; or a value on the line below its key."""
    if slot is None:
        return
    start = _start(before)
    here = _mapping(document, place, len(before))
    others = [one for one in here.entries if not one.start <= len(before) <= one.start + len(one.name)] if here else []
    taken = {one.name for one in others}
    match slot.role:
        case "keys":
            indent = None if place.bracket == "{" else start - before.rfind("\n") - 1
            for name, about in slot.keys.items():
                if name not in taken and not _excluded(name, taken):
                    insert = _with_value((*place.path, name), name, indent)
                    yield Item(name, "key", insert, start, about=about, rank=_rank(slot, name))
            if place.path[-1:] == ("-",) and slot.short is not None and not taken and before[-1:] == " ":
                yield from _expression(document, before, place)
        case "options":
            for one in _options_beside(document, place.path):
                if one.name not in taken:
                    yield Item(one.name, "option", f"{one.name}: ", start, about=one.about, rank=_of_option(one))
        case "code":
            of_component = len(place.path) > 1
            for code, finding in registered().items():
                if code not in taken and not (of_component and finding.of_spec):
                    yield Item(code, "finding", f"{code}: ", start, about=finding.page)
        case "names" if place.path[:1] == ("condition",):
            for token in document.names.named("token"):
                if token.symbol.name not in taken:
                    yield Item(token.symbol.name, "token", f"{token.symbol.name}: ", start)
        case "names" | "items":
            return
        case _:
            yield from _as_value(document, before, place, slot)


def _mapping(document: Document, place: Cursor, offset: int) -> Entry | None:
    """The mapping that a key at the cursor belongs to: of several items of a list the one around it."""
    if "-" not in place.path:
        return document.outline.at(*place.path)
    around = [one for one in document.outline.walk() if one.path == place.path and one.start <= offset]
    return max(around, key=lambda one: one.start, default=None)


_MEASURED = {"values", "range", "use", "python", "id"}
_DERIVED = {"expr", "stages"}
_NEEDS = {  # key: any of these is beside it
    "with": {"use", "python"},
    "squash": {"stages"},
    "otherwise": {"when"},
    "refill": {"keep"},
    "most": {"by"},
}


def _excluded(name: str, taken: set[str]) -> bool:
    """Whether a key cannot be beside those that a mapping has."""
    if name in ("level", "missing", "outside", *_MEASURED) and _DERIVED & taken:
        return not (name == "range" and "scale" in taken)
    if name in _DERIVED | _MEASURED and _MEASURED & taken:
        return True
    return name in _NEEDS and not _NEEDS[name] & taken


def _with_value(path: tuple[str, ...], name: str, indent: int | None) -> str:
    """A key with what comes after it: a space, or a new line for what is inside it. indent: None inside brackets."""
    slot = slot_at(path)
    if indent is None or slot is None or slot.role not in ("keys", "names", "options", "code"):
        return f"{name}: "
    return f"{name}:\n" + " " * (indent + 2)


_COMMON = ("values", "range", "use", "expr", "when", "weight", "signals", "define", "guarantees", "add", "update")


def _rank(slot: Slot, name: str) -> int:
    return 0 if name in slot.required else 1 if name in _COMMON else 2


# Values ------------------------------------------------------------------------------------------


def _as_value(document: Document, before: str, place: Cursor, slot: Slot) -> Iterator[Item]:
    start = _start(before)
    match slot.role:
        case "expression":
            yield from _expression(document, before, place)
        case "word":
            lists = [one.symbol.name for one in document.names.named("list")] if slot.or_list else []
            for word in (*slot.words, *lists):
                told = "default" if word == slot.default else "list" if word in lists else ""
                yield Item(word, "word", word, start, detail=told, rank=0)
        case "reward":
            yield from _reward(document, before, place)
        case "key column":
            for one in document.names.named("value"):
                entry = one.entry.get("id")
                if one.kind == "signal" and entry is not None:
                    yield Item(one.symbol.name, one.kind, one.symbol.name, start)
        case "text" if place.path == ("rewardspec",):
            yield Item("1", "word", "1", start)
        case "text" if place.path[-2:] == ("range", "-"):
            yield Item(".inf", "word", ".inf", _start(before, re.compile(r"\.?[a-z]*\Z")), detail="no upper bound")
            yield Item("-.inf", "word", "-.inf", _start(before, re.compile(r"-?\.?[a-z]*\Z")), detail="no lower bound")


def _expression(document: Document, before: str, place: Cursor) -> Iterator[Item]:
    """The names, functions and keywords that can be written at the end of an expression."""
    parts = lexed(before[place.start :])
    start = _start(before, _NAME)
    typed = parts[-1] if parts and parts[-1].end == len(before) - place.start else None  # up to the cursor
    if typed is not None and typed.kind == "NUMBER":
        return
    if typed is not None and (typed.kind == "NAME" or typed.kind in KEYWORDS):
        parts = parts[:-1]
    last = parts[-1].kind if parts else ""
    if last == "=" and len(parts) > 1 and parts[-2].text == "over":
        for axis in known.axes().values():
            if axis.name != "rollout" or document.names.named("list"):
                yield Item(axis.name, "axis", axis.name, start, about=axis.about, rank=0)
    elif last in ("NAME", "NUMBER", ")"):  # an operator comes next; none is offered for a mere space
        for word in ("and", "or", "if", "else") if start < len(before) else ():
            yield Item(word, "keyword", f"{word} ", start, rank=1)
    else:
        yield from _symbols(document, parts, start)
        call = _call(parts)
        if last == ",":
            yield from _keywords(document, call, start)
        yield from _own_names(document, place, start, call)
        yield from _names_of_places(document, place, start, bool(parts))
        yield from _names_of_language(document, start, place.path == ("advantage",) and not parts)


def _own_names(document: Document, place: Cursor, start: int, call: str) -> Iterator[Item]:
    """The names that the spec declares, without the one that is declared here: a state alone can read itself."""
    for own in scope(document.names, _function(place)):
        name = own.symbol.name
        if own.entry.path != place.path[: len(own.entry.path)] or own.kind in ("parameter", "state") or call == "raw":
            yield Item(name, own.kind, name, start, detail=own.kind, about=_declared(document, own), rank=1)
    for own in document.names.named("function"):
        yield Item(own.symbol.name, "function", f"{own.symbol.name}(", start, detail=own.entry.name, rank=2)


def _names_of_places(document: Document, place: Cursor, start: int, begun: bool) -> Iterator[Item]:
    """The names with a meaning in some places alone."""
    if place.path[-1:] == ("otherwise",) and not begun:
        yield Item("ignore", "word", "ignore", start, about=OF_PLACES["ignore"], rank=0)
    if place.path[:1] == ("guarantees",):
        yield Item("advantage", "given", "advantage", start, about=OF_PLACES["advantage"], rank=1)
    if document.names.named("list"):
        yield Item("position", "function", "position", start, about=OF_PLACES["position"], rank=4)


def _names_of_language(document: Document, start: int, schemes_first: bool) -> Iterator[Item]:
    """The names of the language that the spec does not hide."""
    names = {own.symbol.name for own in document.names.named("value")}
    for one in known.values().values():
        if one.name not in names:
            rank = 0 if one.kind == "scheme" and schemes_first else 4 if one.kind == "given" else 3
            yield Item(one.name, one.kind, one.name, start, detail=one.kind, about=_formula(one), rank=rank)
    for one in known.functions().values():
        yield Item(one.name, "function", f"{one.name}(", start, detail=one.signature, about=_formula(one), rank=3)
    yield Item("not", "keyword", "not ", start, rank=5)


def _function(place: Cursor) -> str:
    """The function of `define:` whose body is typed, whose parameters are names there."""
    if place.path[:1] != ("define",) or len(place.path) < 2:
        return ""
    name, bracket, _ = place.path[1].partition("(")
    return name.strip() if bracket else ""


def _call(parts: list[Token]) -> str:
    """The function whose arguments are typed; empty for none."""
    calls: list[str] = []
    for i, token in enumerate(parts):
        if token.kind == "(":
            calls.append(parts[i - 1].text if i and parts[i - 1].kind == "NAME" else "")
        elif token.kind == ")" and calls:
            calls.pop()
    return calls[-1] if calls else ""


def _keywords(document: Document, call: str, start: int) -> Iterator[Item]:
    """The arguments of a function that are given by name."""
    own = document.names.named("parameter", call)
    names = [one.symbol.name for one in own]
    if not own and call in known.functions():
        names = list(known.functions()[call].keywords)
    for name in names:
        yield Item(f"{name}=", "keyword", f"{name}=", start, rank=0)


def _symbols(document: Document, parts: list[Token], start: int) -> Iterator[Item]:
    """The values of a column of names, after `task ==`."""
    if len(parts) < 2 or parts[-1].text not in ("==", "!="):
        return
    column = document.names.value(parts[-2].text)
    values = None if column is None else column.entry.get("values")
    for one in values.entries if values is not None else ():
        text = document.text[slice(*one.value)] if one.value is not None else ""
        if _NAME.fullmatch(text):
            yield Item(text, "word", text, start, detail=f"value of {column.symbol.name}" if column else "", rank=0)


def _declared(document: Document, own: Declared) -> str:
    text = document.text[own.entry.start : min(own.entry.end, own.entry.start + 200)].rstrip()
    return f"```yaml\n{text}\n```" if "```" not in text else ""


def _formula(one: known.Known) -> str:
    if one.definition is None:
        return one.about
    body = one.definition.body
    return f"{one.about}\n\n```\n{one.signature} = {body.span.text}\n```" if body is not None else one.about


# Reward functions --------------------------------------------------------------------------------


def _reward(document: Document, before: str, place: Cursor) -> Iterator[Item]:
    """Reward functions, or, within parentheses, the options of one and their values."""
    begin = place.start + before.startswith(("'", '"'), place.start)
    name, bracket, rest = before[begin:].partition("(")
    if not bracket:
        for reward in all_rewards():
            about = f"`{reward.signature}`\n\n{reward.about}"
            yield Item(reward.name, "reward", reward.name, begin, detail=_returns(reward), about=about)
        return
    found = find_reward(name.strip())
    if found is None or rest.count("(") < rest.count(")"):
        return
    given = re.findall(r"([A-Za-z_]\w*)\s*=(?!=)", rest)
    if "only_when" in given:  # the rest is a condition
        at = before.rfind("=", 0, before.rfind("only_when") + len("only_when ="))
        yield from _expression(document, before, Cursor(place.path, False, at + 1, place.bracket))
    elif re.search(r"=\s*[^,=]*\Z", rest):
        for item in _values_of(found, given[-1], _start(before, _VALUE)):
            if item.label != "null":  # which only `with:` can give
                yield item
    else:
        for one in options(found):
            if one.name not in given:
                start = _start(before, _NAME)
                yield Item(f"{one.name}=", "option", f"{one.name}=", start, about=one.about, rank=_of_option(one))


def _returns(reward: Reward) -> str:
    return "computed from columns" if reward.expression is not None else ", ".join(reward.inputs)


def _of_option(option: Option) -> int:
    return 0 if option.default is None and option.name != "only_when" else 1


def _options_beside(document: Document, path: tuple[str, ...]) -> list[Option]:
    """The options of the function that `use:` names beside `with:`."""
    holder = document.outline.at(*path[:-1])
    reward = reward_at(document.text, holder.get("use")) if holder is not None else None
    if reward is not None:
        return list(options(reward))
    return [Option("only_when", "a condition: the function runs only where it is true")]


def _option_value(document: Document, before: str, place: Cursor) -> Iterator[Item]:
    holder = document.outline.at(*place.path[:-2])
    reward = reward_at(document.text, holder.get("use")) if holder is not None else None
    if reward is not None:
        yield from _values_of(reward, place.path[-1], _start(before, _VALUE))


def _values_of(reward: Reward, name: str, start: int) -> Iterator[Item]:
    for option in options(reward):
        if option.name == name:
            for value in option.values:
                told = "default" if value == option.default else ""
                yield Item(value, "word", value, start, detail=told, rank=0)
