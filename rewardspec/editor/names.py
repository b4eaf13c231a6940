"""The names of a spec, with every place where each occurs, also inside expressions and in files that do not parse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from rewardspec.language.outline import Entry
from rewardspec.language.slots import slot_at
from rewardspec.syntax.tokens import END, KEYWORDS, NAME, Token, Unlexed, tokens

Space = Literal["value", "function", "parameter", "list", "token", "axis", "symbol"]
_OF_TOKENS = (("condition", "prior"), ("condition", "label"))
SECTIONS = {"signals": "signal", "components": "component", "state": "state"}


@dataclass(frozen=True)
class Symbol:
    """A name with its meaning: names of two spaces can be equal. owner: of a parameter, the name of its function."""

    space: Space
    name: str
    owner: str = ""


@dataclass(frozen=True)
class Occurrence:
    """A place where a name is written. declares: where it is declared."""

    symbol: Symbol
    start: int
    end: int
    declares: bool = False


@dataclass(frozen=True, eq=False)
class Declared:
    """A name of the spec. kind: signal, component, state, definition, function, parameter, list or token."""

    symbol: Symbol
    kind: str
    entry: Entry
    start: int
    end: int


@dataclass(eq=False)
class Names:
    """The names that a spec declares, and all occurrences in the order of the text."""

    declared: dict[Symbol, Declared] = field(default_factory=dict)
    occurrences: list[Occurrence] = field(default_factory=list)

    def at(self, offset: int) -> Occurrence | None:
        """The name at an offset, or that ends there."""
        return next((one for one in self.occurrences if one.start <= offset <= one.end), None)

    def of(self, symbol: Symbol) -> list[Occurrence]:
        return [one for one in self.occurrences if one.symbol == symbol]

    def value(self, name: str) -> Declared | None:
        """The declaration of a name that expressions can read as a value."""
        return self.declared.get(Symbol("value", name))

    def named(self, space: Space, owner: str = "") -> list[Declared]:
        return [d for symbol, d in self.declared.items() if symbol.space == space and symbol.owner == owner]


def lexed(text: str) -> list[Token]:
    """The tokens of an expression as far as it is typed; characters that begin none are left out."""
    found: list[Token] = []
    at = 0
    while True:
        try:
            for token in tokens(text[at:]):
                if token.kind != END:
                    found.append(token._replace(start=token.start + at, end=token.end + at))
            return found
        except Unlexed as error:
            at += error.at + 1


def written(text: str, entry: Entry) -> tuple[str, int] | None:
    """The text of a single value and its offset, without quotes; None if there is none, or if it has escapes."""
    if entry.value is None:
        return None
    start, end = entry.value
    quote = text[start]
    if quote in "|>":
        header = text.find("\n", start, end) + 1
        return (text[header:end], header) if header else ("", end)
    if quote not in "\"'":
        return text[start:end], start
    closed = end - start > 1 and text[end - 1] == quote
    body = text[start + 1 : end - closed]
    return None if (quote == '"' and "\\" in body) or (quote == "'" and "''" in body) else (body, start + 1)


def names_of(text: str, root: Entry) -> Names:
    """The names of a text, whose outline is `root`."""
    found = Names()
    symbols: dict[str, frozenset[str]] = {}
    for section, kind in SECTIONS.items():
        for entry in _keys(root.get(section)):
            _declare(found, Symbol("value", entry.name), kind, entry, _place(entry))
            values = entry.get("values")
            if values is not None:
                texts = {(written(text, one) or ("", 0))[0] for one in values.entries}
                symbols[entry.name] = frozenset(t for t in texts if NAME.match(t) and t not in KEYWORDS)
    for entry in _keys(root.get("lists")):
        _declare(found, Symbol("list", entry.name), "list", entry, _place(entry))
    for entry in _keys(root.at("condition", "tokens")):
        _declare(found, Symbol("token", entry.name), "token", entry, _place(entry))
    define = root.get("define")
    signatures = {id(entry): _signature(found, text, entry) for entry in _entries(define)}
    reader = _Reader(found, symbols)
    for entry in root.walk():
        reader.entry(text, entry, signatures.get(id(entry), ""))
    found.occurrences = sorted(set(found.occurrences), key=lambda one: (one.start, not one.declares))
    return found


def _entries(section: Entry | None) -> list[Entry]:
    return (
        [] if section is None else [entry for entry in section.entries if entry.key is not None and not entry.partial]
    )


def _keys(section: Entry | None) -> list[Entry]:
    """The entries whose key is a name."""
    return [entry for entry in _entries(section) if NAME.match(entry.name) and entry.name not in KEYWORDS]


def _place(entry: Entry) -> tuple[int, int]:
    assert entry.key is not None, "an entry with a name has a key"
    return entry.key


def _declare(found: Names, symbol: Symbol, kind: str, entry: Entry, place: tuple[int, int]) -> None:
    found.declared.setdefault(symbol, Declared(symbol, kind, entry, *place))
    found.occurrences.append(Occurrence(symbol, *place, declares=True))


def _signature(found: Names, text: str, entry: Entry) -> str:
    """Declare what a key of `define:` does: a value, or a function with its parameters. The name of the function."""
    start, end = _place(entry)
    parts = lexed(text[start:end])
    if not parts or parts[0].kind != "NAME":
        return ""
    name, place = parts[0].text, (start + parts[0].start, start + parts[0].end)
    if len(parts) == 1:
        _declare(found, Symbol("value", name), "definition", entry, place)
        return ""
    _declare(found, Symbol("function", name), "function", entry, place)
    depth = 0
    for before, token in pairwise(parts):
        depth += (token.kind == "(") - (token.kind == ")")
        if depth == 1 and token.kind == "NAME" and before.kind in ("(", ","):
            place = (start + token.start, start + token.end)
            _declare(found, Symbol("parameter", token.text, name), "parameter", entry, place)
    return name


@dataclass(eq=False)
class _Reader:
    """Adds the occurrences of every entry. symbols: for a column its values, where those are names."""

    found: Names
    symbols: dict[str, frozenset[str]]

    def entry(self, text: str, entry: Entry, function: str) -> None:
        slot = slot_at(entry.path)
        token = Symbol("token", entry.name)
        if entry.path[:-1] in _OF_TOKENS and entry.key is not None and token in self.found.declared:
            self.found.occurrences.append(Occurrence(token, *entry.key))
        if entry.path[:1] == ("define",) and len(entry.path) == 2 and entry.key is not None:
            self.defaults(text, entry)
        piece = written(text, entry)
        if slot is None or piece is None:
            return
        body, offset = piece
        if slot.role == "expression" or (slot.short == "expression" and not entry.entries):
            self.expression(lexed(body), offset, function)
        elif slot.role == "reward":
            self.expression(_only_when(lexed(body)), offset, "")
        elif slot.role == "key column" and NAME.match(body):
            self.add(Symbol("value", body), offset, 0, len(body))
        elif slot.or_list and Symbol("list", body) in self.found.declared:
            self.add(Symbol("list", body), offset, 0, len(body))

    def add(self, symbol: Symbol, offset: int, start: int, end: int) -> None:
        self.found.occurrences.append(Occurrence(symbol, offset + start, offset + end))

    def defaults(self, text: str, entry: Entry) -> None:
        """The names in the default values of parameters: `zscore(x, over=group)`."""
        start, end = _place(entry)
        parts = lexed(text[start:end])
        depth, value = 0, False
        rest = []
        for before, token in pairwise(parts):
            depth += (token.kind == "(") - (token.kind == ")")
            if depth == 1 and token.kind == ",":
                value = False
            rest += [token] if value else []
            value = value or (depth == 1 and token.kind == "=" and before.kind == "NAME")
        self.expression(rest, start, "")

    def expression(self, parts: list[Token], offset: int, function: str) -> None:
        """The names of an expression; `function`: whose parameters it can read."""
        calls: list[str] = []
        for i, token in enumerate(parts):
            before = parts[i - 1] if i else None
            if token.kind == "(":
                calls.append(before.text if before is not None and before.kind == "NAME" else "")
            elif token.kind == ")" and calls:
                calls.pop()
            elif token.kind == "NAME":
                symbol = self.meaning(parts, i, calls[-1] if calls else "", function)
                if symbol is not None:
                    self.add(symbol, offset, token.start, token.end)

    def meaning(self, parts: list[Token], i: int, call: str, function: str) -> Symbol | None:
        """What a name in an expression stands for; None for the keyword of a function of the language."""
        name = parts[i].text
        before = parts[i - 1] if i else None
        after = parts[i + 1].kind if i + 1 < len(parts) else END
        if after == "(":
            return Symbol("function", name)
        if after == "=" and before is not None and before.kind in ("(", ","):
            own = Symbol("parameter", name, call)
            return own if own in self.found.declared else None
        if function and Symbol("parameter", name, function) in self.found.declared:
            return Symbol("parameter", name, function)
        if before is not None and before.kind == "=" and parts[i - 2].text == "over":
            return Symbol("axis", name)
        if call == "position" and Symbol("list", name) in self.found.declared:
            return Symbol("list", name)
        column = self.compared(parts, i)
        if column is not None and name in self.symbols.get(column, ()):
            return Symbol("symbol", name, column)
        return Symbol("value", name)

    def compared(self, parts: list[Token], i: int) -> str | None:
        """The name that is compared with the one at `i`."""
        for sign, other in ((i - 1, i - 2), (i + 1, i + 2)):
            if min(sign, other) >= 0 and max(sign, other) < len(parts) and parts[sign].text in ("==", "!="):
                if parts[other].kind == "NAME":
                    return parts[other].text
                if parts[other].kind == ")" and other >= 2 and parts[other - 1].kind == "NAME":  # `raw(task) == math`
                    return parts[other - 1].text
        return None


def _only_when(parts: list[Token]) -> list[Token]:
    """The condition among the options of `use: family.function(only_when=correct >= 1)`."""
    depth, found, inside = 0, [], False
    for i, token in enumerate(parts):
        depth += (token.kind == "(") - (token.kind == ")")
        if depth == 0 or (depth == 1 and token.kind == ","):
            inside = False
        if inside:
            found.append(token)
        inside = inside or (token.kind == "=" and depth == 1 and parts[i - 1].text == "only_when")
    return found


def scope(names: Names, function: str) -> Iterator[Declared]:
    """The names that an expression can read as values; `function`: the definition that it is the body of."""
    if function:
        yield from names.named("parameter", function)
    yield from names.named("value")
