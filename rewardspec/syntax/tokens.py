"""Expression text to tokens: the terminals of `grammar/expr.lark`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from math import inf
from typing import NamedTuple

KEYWORDS = frozenset({"if", "else", "and", "or", "not"})
NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z", re.ASCII)
END = "the end"

_TOKEN = re.compile(
    r"(?P<NUMBER>([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|\.inf\b)"
    r"|(?P<NAME>(?!(if|else|and|or|not)\b)[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<COMPARE>[<>=!]=|[<>])|(?P<ADD>[-+])|(?P<own>\*\*|[(),=]|if|else|and|or|not)|(?P<MULTIPLY>[*/])"
    r"|(?P<space>[ \t\f\r\n]+)"
)


class Token(NamedTuple):
    """A word or sign of an expression, with its offsets. `kind`: for keywords and brackets their text."""

    kind: str
    text: str
    start: int
    end: int


class Unlexed(Exception):
    """Raised for a character that cannot begin a token. `at`: its offset."""

    def __init__(self, at: int):
        self.at = at


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a text, `END` last. Raises Unlexed."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unlexed(at)
        kind, found = match.lastgroup, match.group()
        assert kind is not None
        if kind != "space":
            yield Token(found if kind == "own" else kind, found, at, match.end())
        at = match.end()
    yield Token(END, "", at, at)


def number(token: str) -> Fraction | float:
    """The exact value of a number token."""
    return inf if token == ".inf" else Fraction(token if token[0] != "." else "0" + token)
