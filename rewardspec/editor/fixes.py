"""Edits that mend what a diagnostic names: those of its help text, and `allow:` for a finding.

An edit is offered only if the file with it reads, and no longer has the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rewardspec.editor.document import Document
from rewardspec.editor.refer import replaced
from rewardspec.language.outline import Entry
from rewardspec.language.slots import slot_at
from rewardspec.lint import registered
from rewardspec.text.diagnostics import Diagnostic

Edit = tuple[int, int, str]  # the characters from start to end become the text

MOST_FIXES = 4  # of one diagnostic
A_REASON = "explain here why this is meant"

_PUT = re.compile(r"(did you mean|write|add|begin with|begin it with|declare|remove|set|give|quote)\b[^`]*?`([^`]+)`")
_MORE = re.compile(r"(?:, (?:or |or, [a-z ]+, )?`[^`]+`)*")  # further ways
_OTHERS = re.compile(r"`([^`]+)`")
_KEY = re.compile(r"([A-Za-z_][\w-]*):(?: (.*))?")
_SECTION = re.compile(r"\{([A-Za-z_]\w*): (.+)\}")  # `signals: {tokens: {range: [0, .inf]}}`
_UNKNOWN = {  # codes whose text is a name, for which the help has another
    *("unknown-name", "unknown-function", "unknown-key", "unknown-word", "unknown-reward", "unknown-option"),
    *("unknown-finding", "unknown-symbol", "unknown-token", "unknown-argument"),
}
# Codes whose help shows how such a text could be, not what is meant.
_EXAMPLES = {"bad-use", "missing-option", "no-components"}


@dataclass(frozen=True)
class Fix:
    """Edits that mend one diagnostic. title: what they do. is_usual: the one to propose first."""

    title: str
    edits: tuple[Edit, ...]
    is_usual: bool = False


def fixes(document: Document, diagnostic: Diagnostic) -> list[Fix]:
    """The edits for a diagnostic of this document, the usual one first."""
    found: list[Fix] = []
    for fix in _proposed(document, diagnostic):
        if len(found) < MOST_FIXES and fix.edits not in [one.edits for one in found]:
            after = Document(replaced(document.text, fix.edits), document.source.name)
            if _mends(document, after, diagnostic):
                found.append(Fix(fix.title, fix.edits, not found))
    if diagnostic.severity == "warning" and diagnostic.code in registered():
        found += [fix for fix in _allowances(document, diagnostic) if _still_reads(document, fix)]
    return found


def _mends(before: Document, after: Document, diagnostic: Diagnostic) -> bool:
    """Whether a file reads, no longer has the error, and has no new one: except where a name is now known."""
    left = [(d.code, d.message) for d in after.checked[1] if d.severity == "error"]
    had = [(d.code, d.message) for d in before.checked[1] if d.severity == "error"]
    if any(code in ("yaml", "syntax") and (code, message) not in had for code, message in left):
        return False
    if diagnostic.severity != "error":
        return set(left) <= set(had)
    own = (diagnostic.code, diagnostic.message)
    return left.count(own) < had.count(own) and (set(left) <= set(had) or diagnostic.code in _UNKNOWN)


def _still_reads(document: Document, fix: Fix) -> bool:
    after = Document(replaced(document.text, fix.edits), document.source.name)
    return {d.code for d in after.checked[1]} <= {d.code for d in document.checked[1]}


# What a help text proposes -------------------------------------------------------------------------


def _proposed(document: Document, diagnostic: Diagnostic) -> Iterator[Fix]:
    """The edits that the help text could mean."""
    text = diagnostic.help or ""
    if diagnostic.code in _EXAMPLES:
        return
    for match in _PUT.finditer(text):
        verb, first = match[1], match[2]
        rest = text[match.end() :]
        for put in [first, *_OTHERS.findall(_MORE.match(rest)[0])]:  # type: ignore[index]  # it matches no text, too
            yield from _edits(document, diagnostic, verb, put)
    if re.search(r"\bremove it\b", text) and diagnostic.code == "syntax":
        yield Fix(f"Remove `{diagnostic.span.text}`", ((diagnostic.span.start, diagnostic.span.end, ""),))
    elif re.search(r"\bremove it\b", text):
        yield from _removed(document, diagnostic, "")


def _edits(document: Document, diagnostic: Diagnostic, verb: str, put: str) -> Iterator[Fix]:
    span = diagnostic.span
    start, end = span.start, min(span.end, len(document.text))
    if verb == "remove":
        yield from _removed(document, diagnostic, put)
        return
    if verb == "quote":
        raw = put.strip('"')
        if document.text.startswith(raw, start):
            yield Fix(f"Quote `{raw}`", ((start, start + len(raw), f'"{raw}"'),))
        return
    key = _KEY.fullmatch(put)
    if key is not None and key[1] == "allow":
        return  # `_allowances` has it, with a reason to fill in
    if key is not None:
        value = A_REASON if diagnostic.code == "no-reason" else key[2] or ""
        yield from _with_key(document, start, key[1], value)
        return
    if diagnostic.code == "syntax" and not re.fullmatch(r"[^\w\s]{1,2}|and|or|not", put):
        return
    if "..." in put or (verb not in ("did you mean", "write") and diagnostic.code not in _UNKNOWN):
        return
    line = document.text[document.text.rfind("\n", 0, start) + 1 : start]
    again = next((n for n in range(min(len(line), len(put) - 1), 2, -1) if line.endswith(put[:n])), 0)
    start -= again  # `task == 1`, for which the help is `task == math`, is underlined at the 1
    if put[:1] == "[" and document.text[start - 1 : start] == "[":
        start, end = start - 1, end + 1
    if diagnostic.code == "unknown-reward":  # its options stay
        end = start + len(re.split(r"[\s(]", document.text[start:end])[0])
    around = document.text[max(0, start - 1) : start] + document.text[end : end + 1]
    spaced = f" {put} " if put.isalpha() and not document.text[start].isalnum() and not around.isspace() else put
    if document.text[end : end + 1] == "(" and put.endswith(")"):  # the function alone
        put = spaced = put.partition("(")[0]
    yield Fix(f"Change `{_short(document.text[start:end])}` to `{_short(put)}`", ((start, end, spaced),))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 40 else text[:37] + "..."


def _removed(document: Document, diagnostic: Diagnostic, key: str) -> Iterator[Fix]:
    """Without the key at the place of the diagnostic, or without the one of this name beside it."""
    start = diagnostic.span.start
    for entry in document.outline.walk():
        if entry.key is None:
            continue
        holder = document.outline.at(*entry.path[:-1]) if "-" not in entry.path else None
        here = entry.key[0] <= start < entry.key[1] or (
            entry.value is not None and entry.value[0] <= start < entry.value[1]
        )
        beside = key and entry.name == key and holder is not None and holder.start <= start <= holder.end
        if (here and key in ("", entry.name)) or beside:
            yield Fix(f"Remove `{entry.name}`", (_without(document, entry),))


def _without(document: Document, entry: Entry) -> Edit:
    """The edit that removes an entry: its lines, or its part of a `{ }` with a comma."""
    text = document.text
    line = text.rfind("\n", 0, entry.start) + 1
    if not text[line : entry.start].strip():
        end = text.find("\n", max(entry.start, entry.end - 1))
        return (line, len(text) if end < 0 else end + 1, "")
    after = re.compile(r"\s*,\s*").match(text, entry.end)
    if after is not None:
        return (entry.start, after.end(), "")
    before = re.search(r"\s*,\s*\Z", text[: entry.start])
    return (before.start() if before is not None else entry.start, entry.end, "")


# Keys to add ---------------------------------------------------------------------------------------


def _with_key(document: Document, at: int, key: str, value: str) -> Iterator[Fix]:
    """The key with this value in the mapping around a place, or else in the spec itself."""
    entry = document.entry_at(at)
    path = () if entry is None else entry.path
    while True:
        slot = slot_at(path)
        if slot is not None and ((slot.role == "keys" and key in slot.keys) or slot.role == "code"):
            break
        if not path:
            return
        path = path[:-1]
    holder = _around(document, path, at)
    if holder is None:
        return
    own = holder.get(key)
    if own is not None and own.key is not None:
        if value and own.value is None and not own.entries and not own.bracket:
            colon = document.text.find(":", own.key[1]) + 1
            yield Fix(f"Write `{_short(f'{key}: {value}')}`", ((colon, colon, f" {value}"),))
        elif value and own.value is not None:
            yield Fix(f"Write `{_short(f'{key}: {value}')}`", ((*own.value, value),))
        elif (inner := _SECTION.fullmatch(value)) is not None and own.get(inner[1]) is None:
            edit = added(document, own, f"{inner[1]}: {inner[2]}")
            if edit is not None:
                yield Fix(f"Add `{_short(f'{inner[1]}: {inner[2]}')}` to `{key}`", (edit,))
        return
    edit = added(document, holder, f"{key}: {value}" if value else f"{key}: ")
    if edit is not None and value:
        yield Fix(f"Add `{_short(f'{key}: {value}')}`", (edit,))


def _around(document: Document, path: tuple[str, ...], at: int) -> Entry | None:
    if not path:
        return document.outline
    around = [one for one in document.outline.walk() if one.path == path and one.start <= at <= one.end]
    return max(around, key=lambda one: one.start, default=None)


def added(document: Document, holder: Entry, text: str) -> Edit | None:
    """The edit that adds `key: value` to a mapping, first where it is the version; None for a single value."""
    whole = document.text
    if holder.bracket == "{" and holder.closed:
        inner = [one for one in holder.entries if one.key is not None]
        if inner:
            return (inner[-1].end, inner[-1].end, f", {text}")
        at = whole.find("{", holder.key[1] if holder.key else 0, holder.end) + 1
        return (at, at, text) if at else None
    if holder is document.outline:
        if text.startswith("rewardspec:"):
            return (0, 0, text + "\n")
        return (len(whole), len(whole), ("" if whole.endswith("\n") or not whole else "\n") + text + "\n")
    keys = [one for one in holder.entries if one.key is not None and not one.partial]
    if not holder.entries and holder.value is None and holder.key is not None and not holder.bracket:
        colon = whole.find(":", holder.key[1]) + 1
        return (colon, colon, f" {{{text}}}")
    if not keys or holder.bracket:
        return None
    last = keys[-1]
    column = keys[0].start - whole.rfind("\n", 0, keys[0].start) - 1
    end = len(whole[: last.end].rstrip())
    line = whole.find("\n", end)
    end = len(whole) if line < 0 else line  # after the comment of the line
    return (end, end, "\n" + " " * column + text)


# Findings ------------------------------------------------------------------------------------------


def _allowances(document: Document, diagnostic: Diagnostic) -> Iterator[Fix]:
    """`allow:` with a reason to fill in: in the component that the finding is about, and in the spec."""
    code, at = diagnostic.code, diagnostic.span.start
    entry = document.entry_at(at)
    if (
        entry is not None
        and entry.path[:1] == ("components",)
        and len(entry.path) > 1
        and not registered()[code].of_spec
    ):
        component = document.outline.at(*entry.path[:2])
        if component is not None:
            yield from _allowed(document, component, code, f"Allow `{code}` in `{component.name}`, with a reason")
    yield from _allowed(document, document.outline, code, f"Allow `{code}` in this spec, with a reason")


def _allowed(document: Document, holder: Entry, code: str, title: str) -> Iterator[Fix]:
    allow = holder.get("allow")
    if allow is not None and allow.entries:
        edit = added(document, allow, f"{code}: {A_REASON}")
    elif allow is not None:
        return
    elif holder is document.outline:
        edit = added(document, holder, f"allow:\n  {code}: {A_REASON}")
    else:
        edit = added(document, holder, f"allow: {{{code}: {A_REASON}}}")
        if edit is None and holder.value is not None:  # `half: 0.5 * x` becomes a mapping
            value = document.text[slice(*holder.value)]
            quoted = f'"{value}"' if any(c in value for c in ",{}[]") and value[0] not in "\"'" else value
            if "\n" not in value and value[0] not in "|>":
                edit = (*holder.value, f"{{expr: {quoted}, allow: {{{code}: {A_REASON}}}}}")
    if edit is not None:
        yield Fix(title, (edit,))
