"""The keys and values of a spec file as far as it is typed: for editors, whose files are rarely whole.

    outline("components:\\n  correct: {val")  # the entries `components`, and in it `correct`, and in it `val`

`syntax/yaml.py` decides what a file means, and a test holds the two together on files that it reads. Nothing is an
error here: a bracket or quote that is not closed ends where the next key begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rewardspec.syntax.yaml import LARGEST_FILE

DEEPEST = 20  # what is nested deeper is text

_QUOTED = r'"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\n]|'')*'"
_KEY = re.compile(
    rf"(?P<key>{_QUOTED}|(?![-?:][ \t\n]|[#\"'&*!|>%@`{{}}\[\],])(?:(?! \#|:[ \t\n]|:\Z)[^\n])+?)[ \t]*:(?=[ \t\n]|\Z)"
)
_FLOW_KEY = re.compile(
    rf"(?P<key>{_QUOTED}|(?:(?! \#|:[ \t\n,{{}}\[\]]|:\Z)[^\n,{{}}\[\]\"'])+?)[ \t]*:(?=[ \t\n,{{}}\[\]]|\Z)"
)
_QUOTED_KEY = re.compile(rf"(?P<key>{_QUOTED})[ \t]*:")
_TO_END = re.compile(r"[ \t\n]*\Z")
_COMMENT = re.compile(r"[ \t]#")
_HEADER = re.compile(r"[|>][-+0-9]*[ \t]*(#[^\n]*)?(?=\n|\Z)")


@dataclass(eq=False)
class Entry:
    """A key with its value, or an item of a list.

    path: the keys that lead to it, with its own last; `-` for an item. key: its characters, without quotes; None for
    an item. value: the characters of a single value as written, with its quotes; None if it has none. entries: what is
    inside it. start, end: all of it. bracket: `{` or `[` if what is inside is written so; closed: whether it ends with
    one, too. partial: a word without a `:`, which may become a key.
    """

    path: tuple[str, ...]
    start: int
    end: int
    key: tuple[int, int] | None = None
    value: tuple[int, int] | None = None
    entries: list[Entry] = field(default_factory=list)
    bracket: str = ""
    closed: bool = True
    partial: bool = False

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else ""

    def get(self, name: str) -> Entry | None:
        """The entry of a key inside this one; the first if there are several."""
        return next((one for one in self.entries if one.name == name and not one.partial), None)

    def at(self, *path: str) -> Entry | None:
        """The entry at the end of a path of keys; None if there is none."""
        found: Entry | None = self
        for name in path:
            found = None if found is None else found.get(name)
        return found

    def walk(self) -> Iterator[Entry]:
        """All entries inside this one, in the order of the text."""
        waiting = list(reversed(self.entries))
        while waiting:
            one = waiting.pop()
            yield one
            waiting += reversed(one.entries)


@dataclass(frozen=True)
class Cursor:
    """The place at the end of a text.

    path: of the value that is typed; for a key that of the mapping which it is in. is_key: whether a key could begin
    here. start: where the key or value begins. bracket: of the mapping or list that is typed in.
    """

    path: tuple[str, ...]
    is_key: bool
    start: int
    bracket: str = ""


def outline(text: str) -> Entry:
    """The entries of a text, inside one for the whole file; of one that is too large for a spec, those of its start."""
    return _Scanner(text[:LARGEST_FILE]).read()


def cursor(text: str) -> Cursor | None:
    """What is typed at the end of a text; None in a comment, and where a file is too large."""
    if len(text) > LARGEST_FILE:
        return None
    scanner = _Scanner(text)
    scanner.read()
    return scanner.cursor


class _Scanner:
    """Reads block entries line by line, and brackets by descent. `cursor` is set where the text ends."""

    def __init__(self, text: str):
        self.text, self.end = text, len(text)
        self.root = Entry((), 0, len(text))
        self.open: list[tuple[int, Entry]] = [(-1, self.root)]  # (column, entry), each inside the one before
        self.cursor: Cursor | None = None
        self.commented = False

    def read(self) -> Entry:
        at = 0
        while at < self.end:
            at = self.line(at)
        last = self.text.rfind("\n") + 1
        if self.cursor is None and not self.commented and not self.text[last:].strip():
            self.blank(self.end - last)
        return self.root

    def line(self, at: int) -> int:
        """Read the line at `at`, and the further lines of its value; the offset after them."""
        column = 0
        while at < self.end and self.text[at] in " \t":
            at, column = at + 1, column + 1
        if at >= self.end or self.text[at] == "\n":
            return at + 1
        if self.text[at] == "#" or (not column and self.text.startswith(("---", "...", "%"), at)):
            return self.comment(at)
        while self.is_dash(at) and len(self.open) < DEEPEST:
            self.close(column, is_item=True)
            entry = self.inside(at, "-")
            self.open.append((column, entry))
            after = at + 1
            while after < self.end and self.text[after] in " \t":
                after += 1
            column, at = column + after - at, after
            entry.end = at
        if at >= self.end:
            self.note(self.open[-1][1].path, True, at)
            return at
        if self.text[at] == "\n":
            return at + 1
        key = _KEY.match(self.text, at)
        if key is None:
            return self.scalar(at, column)
        self.close(column)
        entry = self.inside(at, _unquoted(key["key"]))
        entry.key = _inside_quotes(self.text, key.start("key"), key.end("key"))
        entry.end = key.end()
        self.open.append((column, entry))
        return self.value(key.end(), entry, column)

    def is_dash(self, at: int) -> bool:
        return self.text.startswith("-", at) and (at + 1 >= self.end or self.text[at + 1] in " \t\n")

    def close(self, column: int, is_item: bool = False) -> None:
        """Close the entries that something at this column is not inside of."""
        while self.open[-1][0] > column or (
            self.open[-1][0] == column and (not is_item or self.open[-1][1].name == "-" or self.open[-1][1].value)
        ):
            self.open.pop()

    def inside(self, at: int, name: str) -> Entry:
        """A new entry of the innermost open one."""
        holder = self.open[-1][1]
        entry = Entry((*holder.path, name), at, at)
        holder.entries.append(entry)
        return entry

    def stretch(self, end: int) -> None:
        """The open entries go at least up to `end`."""
        for _, entry in self.open:
            entry.end = max(entry.end, end)

    def scalar(self, at: int, column: int) -> int:
        """A line without a key: a value, more of one, or a key that is still typed."""
        self.close(column)
        top_column, top = self.open[-1]
        if top is not self.root and not top.entries:
            if top.value is None and not top.bracket:
                return self.value(at, top, top_column)
            if top.value is not None:  # what is below a value and could not belong to it
                top.value = (top.value[0], self.plain(at, top_column, top))
                self.stretch(top.value[1])
                return self.after(top.value[1])
        entry = self.inside(at, "")
        end = self.line_end(at)
        entry.path = (*top.path, self.text[at:end].strip())
        entry.key, entry.partial = (at, at + len(self.text[at:end].rstrip())), True
        entry.end = entry.key[1]
        self.stretch(entry.end)
        if end >= self.end and not self.commented:
            self.note(top.path, True, at)
        return self.after(end)

    def value(self, at: int, entry: Entry, column: int) -> int:
        """Read the value of an entry from `at`; the offset of the line after it."""
        begin = at
        while at < self.end and self.text[at] in " \t":
            at += 1
        if at >= self.end:
            self.note(entry.path, False, at)
        elif self.text[at] == "#" and at > begin:
            return self.comment(at)
        elif self.text[at] in "{[":
            at = self.brackets(at, entry, column, 0)
        elif self.text[at] != "\n":
            start = at
            at = self.block(at, column) if _HEADER.match(self.text, at) else self.one(at, column, entry)
            entry.value = (start, at)
            if at >= self.end:
                self.note(entry.path, False, start)
        self.stretch(at)
        return self.after(at)

    def one(self, at: int, column: int, entry: Entry) -> int:
        quote = self.text[at]
        if quote not in "\"'":
            return self.plain(at, column, entry)
        return self.quoted(at, column)

    def quoted(self, at: int, column: int) -> int:
        """The end of a quoted value; the end of its line if it is not closed before the next key."""
        quote, i, line = self.text[at], at + 1, self.line_end(at)
        while i < self.end:
            char = self.text[i]
            if char == ("\\" if quote == '"' else quote) and (quote == '"' or self.text[i + 1 : i + 2] == quote):
                i += 1  # what follows is no end
            elif char == quote:
                return i + 1
            elif char == "\n" and not self.continues(i + 1, column):
                return line
            i += 1
        return self.end if "\n" not in self.text[at:].rstrip("\n") else line

    def continues(self, at: int, column: int) -> bool:
        """Whether a line can belong to a value that began at an entry of this column."""
        while True:
            start = at
            while at < self.end and self.text[at] in " \t":
                at += 1
            if at >= self.end or self.text[at] != "\n":
                break
            at += 1
        return at < self.end and at - start > column and _KEY.match(self.text, at) is None

    def plain(self, at: int, column: int, entry: Entry) -> int:
        """The end of a plain value, which later lines continue if they are indented more than its key."""
        end = self.plain_line(at)
        while (following := self.continued(end, column)) is not None:
            end = self.plain_line(following)
        rest = _TO_END.match(self.text, end)
        if rest is not None and not self.commented:
            line = self.text.rfind("\n", end) + 1
            if not line or self.end - line > column:
                self.note(entry.path, False, at)
        return end

    def continued(self, end: int, column: int) -> int | None:
        """The offset of the line that continues a plain value; None if none does."""
        line = self.line_end(end)
        if self.text[end:line].strip() or not self.continues(line + 1, column):
            return None
        following = line + 1
        while self.text[following] in " \t\n":
            following += 1
        return None if self.text[following] == "#" else following

    def plain_line(self, at: int) -> int:
        """The end of a plain value on one line, before a comment."""
        end = self.line_end(at)
        comment = _COMMENT.search(self.text, at, end)
        if comment is not None:
            self.commented = self.commented or end >= self.end
            end = comment.start()
        return at + len(self.text[at:end].rstrip())

    def block(self, at: int, column: int) -> int:
        """The end of the text after `|` or `>`."""
        end = self.line_end(at)
        while end < self.end:
            line = end + 1
            stop = self.line_end(line)
            text = self.text[line:stop]
            if text.strip() and len(text) - len(text.lstrip(" ")) <= column:
                break
            if not text.strip() and stop >= self.end and len(text) <= column:
                break
            end = stop
        return end

    def brackets(self, at: int, entry: Entry, column: int, depth: int) -> int:
        """Read what is inside `{ }` or `[ ]`, which begin at `at`; the offset after them."""
        entry.bracket = self.text[at]
        close = "}" if entry.bracket == "{" else "]"
        at += 1
        while True:
            at = self.space(at, column)
            if at >= self.end:
                if not self.commented:
                    self.note(entry.path if close == "}" else (*entry.path, "-"), close == "}", at, entry.bracket)
                break
            char = self.text[at]
            if char in "}]":
                entry.end = at + 1
                return at + 1
            if char == "\n":
                break
            at = at + 1 if char == "," else self.part(at, entry, column, depth)
        entry.end, entry.closed = at, False
        return at

    def part(self, at: int, entry: Entry, column: int, depth: int) -> int:
        """One key with its value, or one item, inside brackets."""
        key = (_QUOTED_KEY if self.text[at] in "\"'" else _FLOW_KEY).match(self.text, at)
        if entry.bracket == "{" and key is not None and not _in_call(key["key"]):
            one = Entry((*entry.path, _unquoted(key["key"])), at, key.end())
            one.key = _inside_quotes(self.text, key.start("key"), key.end("key"))
            at = self.space(key.end(), column)
        else:
            one = Entry((*entry.path, "-"), at, at)
        entry.entries.append(one)
        if at >= self.end or self.text[at] in ",}]\n":
            if at >= self.end and not self.commented:
                self.note(one.path, False, at, entry.bracket)
        elif self.text[at] in "{[" and depth < DEEPEST:
            at = self.brackets(at, one, column, depth + 1)
        else:
            start = at
            at = self.quoted(at, column) if self.text[at] in "\"'" else self.flow_plain(at, column)
            at = max(at, start + 1)
            is_word = entry.bracket == "{" and one.key is None
            if is_word:
                one.key, one.partial, one.path = (start, at), True, (*entry.path, self.text[start:at])
            else:
                one.value = (start, at)
            if not self.commented and not self.text[at:].strip(" \t"):
                self.note(entry.path if is_word else one.path, is_word, start, entry.bracket)
        one.end = at
        return at

    def flow_plain(self, at: int, column: int) -> int:
        """The end of a plain value inside brackets. A comma within its parentheses belongs to it."""
        calls, i, end = 0, at, at
        while i < self.end:
            char = self.text[i]
            if char == "\n":
                if not self.continues(i + 1, column) or self.text[i + 1 : self.line_end(i + 1)].lstrip()[:1] == "#":
                    break
            elif char in "[]{}" or (char == "," and not calls) or (char == "#" and self.text[i - 1] in " \t\n"):
                break
            calls += (char == "(") - (char == ")" and calls > 0)
            i += 1
            end = end if char in " \t\n" else i
        return end

    def space(self, at: int, column: int) -> int:
        """The offset after space and comments inside brackets; that of a line break after which they have ended."""
        while at < self.end:
            char = self.text[at]
            if char == "\n":
                rest = at + 1
                while rest < self.end and self.text[rest] in " \t\n":
                    rest += 1
                here = rest - self.text.rfind("\n", 0, rest) - 1
                if rest < self.end and here <= column and self.text[rest] not in "]},#":
                    return at
                if rest < self.end and here > column and self.is_block_key(rest, column):
                    return at
                at = rest
            elif char == "#" and self.text[at - 1] in " \t\n{[,":
                at = self.line_end(at)
                self.commented = self.commented or at >= self.end
            elif char in " \t":
                at += 1
            else:
                break
        return at

    def is_block_key(self, at: int, column: int) -> bool:
        """Whether a line inside brackets looks like a key of a block: what follows is no part of the brackets."""
        key = _KEY.match(self.text, at)
        line = self.text[at : self.line_end(at)]
        return key is not None and not line.rstrip().endswith((",", "}", "]")) and "," not in key["key"]

    def comment(self, at: int) -> int:
        end = self.line_end(at)
        self.commented = self.commented or end >= self.end
        return end + 1

    def line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return self.end if end < 0 else end

    def after(self, at: int) -> int:
        """The offset of the next line; what is left of this one is a comment, or no YAML."""
        end = self.line_end(at)
        if end >= self.end and "#" in self.text[at:end]:
            self.commented = True
        return end + 1

    def note(self, path: tuple[str, ...], is_key: bool, start: int, bracket: str = "") -> None:
        if self.cursor is None:
            self.cursor = Cursor(path, is_key, start, bracket)

    def blank(self, column: int) -> None:
        """The cursor on a line of nothing but space."""
        while self.open[-1][0] >= column:
            self.open.pop()
        self.note(self.open[-1][1].path, True, self.end)


def _unquoted(key: str) -> str:
    if key[:1] == "'":
        return key[1:-1].replace("''", "'")
    return key[1:-1] if key[:1] == '"' else key.rstrip()


def _inside_quotes(text: str, start: int, end: int) -> tuple[int, int]:
    return (start + 1, end - 1) if text[start : start + 1] in ('"', "'") else (start, end)


def _in_call(key: str) -> bool:
    """Whether a colon is inside the parentheses of a call, so that no key ends before it."""
    return key[:1] not in ("'", '"') and key.count("(") > key.count(")")
