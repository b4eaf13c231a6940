"""What an editor shows about the place under the mouse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rewardspec.editor import known
from rewardspec.editor.document import Document
from rewardspec.editor.names import Declared, Occurrence
from rewardspec.editor.rewards import reward_at
from rewardspec.editor.values import known_value
from rewardspec.language.declarations import OF_PLACES, Declarations
from rewardspec.language.slots import slot_at
from rewardspec.manual import pages_named
from rewardspec.prove.explain import used_definitions
from rewardspec.syntax.tree import Expr, format_expr
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import shown

MOST_LINES = 12  # of a declaration that is shown
MOST_DEFINITIONS = 8


@dataclass(frozen=True)
class Hover:
    """Markdown about the characters from `start` to `end`."""

    markdown: str
    start: int
    end: int


def hover(document: Document, offset: int) -> Hover | None:
    """What is known about the place; None if there is nothing to say."""
    found = document.names.at(offset)
    if found is not None:
        text = _of_name(document, found)
        if text:
            return Hover(text, found.start, found.end)
    entry = document.entry_at(offset)
    if entry is None:
        return None
    slot = slot_at(entry.path)
    if slot is not None and slot.role == "reward" and entry.value is not None:
        named = reward_at(document.text, entry)
        if named is not None and entry.value[0] <= offset <= entry.value[1]:
            return Hover(_page(named.name, "reward"), *entry.value)
    if entry.key is None or not entry.key[0] <= offset <= entry.key[1]:
        return None
    inside = slot_at(entry.path[:-1])
    if inside is not None and inside.role == "code":
        return Hover(text, *entry.key) if (text := _page(entry.name, "finding", "error")) else None
    if slot is None or inside is None or inside.role not in ("keys", "options"):
        return None
    lines = [f"`{entry.name}`: {slot.about}"]
    if slot.words:
        words = ", ".join(f"`{word}`" + (" (default)" if word == slot.default else "") for word in slot.words)
        lines.append(f"one of {words}" + (", or the name of a list" if slot.or_list else ""))
    return Hover("\n\n".join(lines), *entry.key)


def _page(name: str, *kinds: str) -> str:
    """The page of the manual about a name; empty if there is none."""
    found = next((one for one in pages_named(name) if one.kind in kinds), None)
    if found is None:
        return ""
    return f"`{name}`: {'reward function' if found.kind == 'reward' else found.kind}\n\n{found.body}"


def _of_name(document: Document, found: Occurrence) -> str:
    symbol = found.symbol
    own = document.names.declared.get(symbol)
    if own is not None:
        return _of_own(document, own)
    match symbol.space:
        case "value":
            one = known.values().get(symbol.name)
            if one is None and symbol.name in OF_PLACES:
                return f"`{symbol.name}`: {OF_PLACES[symbol.name]}"
        case "function":
            one = known.functions().get(symbol.name)
        case "axis":
            one = known.axes().get(symbol.name)
        case "symbol":
            return f"`{symbol.name}`: a value of `{symbol.owner}`"
        case _:
            one = None
    return "" if one is None else _of_language(document, one)


def _of_own(document: Document, own: Declared) -> str:
    """About a name that the spec declares: what it comes down to, its level and domain, its declaration."""
    name, kind = own.symbol.name, own.kind
    if kind == "parameter":
        return f"`{name}`: a parameter of `{own.symbol.owner}`"
    parts = [f"`{name}`: {kind}"]
    declared = document.declared
    if declared is not None and kind in ("component", "signal", "state", "definition"):
        parts += _facts(document, declared, name)
    if declared is None or name not in declared.values:  # a definition is its formula, which is there
        parts.append(fenced(_text(document, own), "yaml"))
    return "\n\n".join(parts)


def _facts(document: Document, declared: Declarations, name: str) -> Iterator[str]:
    """What is known of a value: its level and domain, what it comes down to, its weight, what measures it."""
    value = known_value(document, name)
    if value is not None:
        yield value.about()
    component, use = declared.components.get(name), declared.uses.get(name)
    body = declared.values[name].body if name in declared.values else None if component is None else component.value
    if body is not None and format_expr(body) not in (f"raw({name})", f"required(raw({name}))"):  # more than measured
        yield fenced("\n".join(_chain(document, [(name, format_expr(body))], body)))
    if component is not None and component.weight is not None:
        yield f"weight `{shorten(format_expr(component.weight), 80)}`"
    if use is not None:
        text = shorten(str(use), 80).replace("`", "'")  # a spec cannot end the code that it is shown as
        yield f"measured by `{text}`"


def _of_language(document: Document, one: known.Known) -> str:
    parts = [f"`{one.signature}`: {'name of the language' if one.kind == 'given' else one.kind}"]
    parts += [one.about] if one.about else []
    if one.definition is not None and one.definition.body is not None:
        lines = _chain(document, [(one.signature, format_expr(one.definition.body))], one.definition.body, True)
        parts.append(fenced("\n".join(lines)))
    value = known_value(document, one.name) if one.kind in ("scheme", "definition", "given") else None
    parts += [value.about()] if value is not None else []
    return "\n\n".join(parts)


def _chain(document: Document, lines: list[tuple[str, str]], body: Expr, in_prelude: bool = False) -> list[str]:
    """A definition, and those that it uses."""
    declared = document.declared
    if declared is not None:
        own = {name for name, _ in lines}
        used = [pair for pair in used_definitions(declared, [body], in_prelude) if pair[0] not in own]
        lines = [*lines, *used[:MOST_DEFINITIONS]]
        more = len(used) - MOST_DEFINITIONS
        return [f"{shown(n)} = {shown(e)}" for n, e in lines] + ([f"... and {more} more"] if more > 0 else [])
    return [f"{shown(n)} = {shown(e)}" for n, e in lines]


def _text(document: Document, own: Declared) -> str:
    """The text of a declaration."""
    lines = document.text[own.entry.start : own.entry.end].rstrip().split("\n")
    indent = own.entry.start - document.text.rfind("\n", 0, own.entry.start) - 1
    lines = [lines[0], *(line[indent:] if not line[:indent].strip() else line for line in lines[1:])]
    return "\n".join([*lines[:MOST_LINES], *(["..."] if len(lines) > MOST_LINES else [])])


def fenced(text: str, language: str = "") -> str:
    """A text of the spec as a block of code, which nothing in it can end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
