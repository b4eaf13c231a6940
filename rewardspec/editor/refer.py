"""From a name to its declaration, to every place where it occurs, and to another name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardspec.editor import known
from rewardspec.editor.document import Document
from rewardspec.editor.names import Occurrence, Symbol, written
from rewardspec.editor.rewards import reward_at
from rewardspec.language.declarations import NO_LISTS, RESERVED
from rewardspec.language.files import read_file
from rewardspec.language.slots import slot_at
from rewardspec.lint import registered
from rewardspec.resources import resource
from rewardspec.syntax.tokens import KEYWORDS, NAME
from rewardspec.text.diagnostics import shorten
from rewardspec.text.source import Source

LARGEST_MODULE = 2**20  # bytes of a file of the user's that is read to find a function

_PYTHON = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Target:
    """A place in this file (`path` is None), or in another one."""

    path: Path | None
    source: Source
    start: int
    end: int


class CannotRename(ValueError):
    """A name that cannot be changed, or not to this. The message has the reason."""


def definition(document: Document, offset: int, folders: Sequence[Path] = ()) -> Target | None:
    """The place that declares the name at an offset: in the spec, the prelude, or a reward function's file.

    folders: where modules under `python:` are looked for. They are read as text, never imported.
    """
    found = document.names.at(offset)
    if found is not None:
        own = document.names.declared.get(found.symbol)
        if own is not None:
            return Target(None, document.source, own.start, own.end)
        table = known.functions() if found.symbol.space == "function" else known.values()
        one = table.get(found.symbol.name) if found.symbol.space in ("function", "value") else None
        if one is not None and one.definition is not None:
            span = one.definition.signature.span
            return Target(resource("specs/prelude.yaml"), span.source, span.start, span.end)
    entry = document.entry_at(offset)
    slot = None if entry is None else slot_at(entry.path)
    if entry is None or slot is None:
        return None
    if slot.role == "reward":
        reward = reward_at(document.text, entry)
        return None if reward is None else _of_function(inspect.unwrap(reward.function))
    if slot.role == "python":
        piece = written(document.text, entry)
        return None if piece is None else _of_python(piece[0].strip(), folders)
    if entry.path[-2:-1] == ("allow",) and entry.name in registered():
        return _of_function(registered()[entry.name].look)
    return None


def _of_function(function: object) -> Target | None:
    """The first line of a function of this package."""
    code = getattr(function, "__code__", None)
    return None if code is None else _at_line(Path(code.co_filename), code.co_firstlineno)


def _at_line(path: Path, line: int) -> Target | None:
    try:
        source, _ = read_file(path)
    except OSError:
        return None
    if source is None or line > len(source.line_starts):
        return None
    start = source.line_starts[line - 1]
    return Target(path, source, start, start + len(source.line(line)))


def _of_python(text: str, folders: Sequence[Path]) -> Target | None:
    """The function `package.module:name` in a file below one of the folders, found without running it."""
    match = _PYTHON.fullmatch(text)
    if match is None:
        return None
    steps = match[1].split(".")
    made = re.compile(rf"^(?:(?:async )?def |class ){match[2]}\b|^{match[2]}\b[^=\n]*=", re.MULTILINE)
    for folder in folders:
        for path in (folder.joinpath(*steps).with_suffix(".py"), folder.joinpath(*steps, "__init__.py")):
            try:
                if path.is_file() and path.stat().st_size <= LARGEST_MODULE:
                    source = Source(str(path), path.read_text(encoding="utf-8", errors="replace"))
                    found = made.search(source.text)
                    start = 0 if found is None else found.start()
                    return Target(path, source, start, start + len(source.line(source.line_column(start)[0])))
            except (OSError, ValueError):
                continue
    return None


def references(document: Document, offset: int) -> list[Occurrence]:
    """All places of the name at an offset, its declaration among them."""
    found = document.names.at(offset)
    return [] if found is None else document.names.of(found.symbol)


def renamed_at(document: Document, offset: int) -> Occurrence:
    """The name at an offset, if it can be renamed. Raises CannotRename."""
    found = document.names.at(offset) if document.is_spec else None
    if found is None:
        raise CannotRename("there is no name here")
    name = found.symbol.name
    if found.symbol in document.names.declared:
        return found
    of_language = name in known.values() or name in known.functions() or name in known.axes()
    what = "is a name of the language" if of_language else "is not declared in this file"
    raise CannotRename(f"`{shorten(name)}` {what}, so it cannot be renamed")


def rename(document: Document, offset: int, name: str) -> list[tuple[int, int]]:
    """The places in which the name at an offset becomes `name`. Raises CannotRename.

    The file with the new name has the same meaning of every other name, and no other errors; else it is refused.
    """
    found = renamed_at(document, offset)
    symbol, names = found.symbol, document.names
    if name == symbol.name:
        return []
    if not NAME.match(name) or name in KEYWORDS:
        raise CannotRename(f"`{shorten(name)}` is not a valid name: use letters, digits and `_`, not a digit first")
    _check_free(document, symbol, name)
    places = [(one.start, one.end) for one in names.of(symbol)]
    changed = Document(replaced(document.text, [(start, end, name) for start, end in places]), document.source.name)
    new = Symbol(symbol.space, name, symbol.owner)
    before = [_renamed(one.symbol, symbol, new) for one in names.occurrences]
    if [one.symbol for one in changed.names.occurrences] != before:
        raise CannotRename(f"`{name}` would have another meaning in a place where `{symbol.name}` is used")
    codes = [d.code for d in document.checked[1]]
    if [d.code for d in changed.checked[1]] != codes:
        raise CannotRename(f"with the name `{name}` the spec would have other errors")
    return places


def _renamed(one: Symbol, old: Symbol, new: Symbol) -> Symbol:
    """A symbol after the renaming: the name itself, or a parameter or value that belongs to it."""
    if one == old:
        return new
    owns = (one.space == "parameter" and old.space == "function") or (one.space == "symbol" and old.space == "value")
    return Symbol(one.space, one.name, new.name) if owns and one.owner == old.name else one


def _check_free(document: Document, symbol: Symbol, name: str) -> None:
    """Refuse a name that is taken, by the spec or by the language."""
    other = document.names.declared.get(Symbol(symbol.space, name, symbol.owner))
    if other is not None:
        raise CannotRename(f"`{name}` is taken: the spec has a {other.kind} of this name")
    taken = {
        "value": name in RESERVED or name in known.values(),
        "function": name in known.functions(),
        "parameter": name in RESERVED,
        "list": name in NO_LISTS,
    }
    if taken.get(symbol.space, False):
        raise CannotRename(f"`{name}` is taken: it is a name of the language")


def replaced(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """A text with the characters from `start` to `end` of each edit replaced. The edits do not overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
