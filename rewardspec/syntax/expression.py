"""Expression text to syntax tree."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import inf
from typing import Any, Literal

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from rewardspec.resources import resource
from rewardspec.syntax.foreign import way_out_at
from rewardspec.syntax.tree import Call, Expr, If, Name, Number, Operation, Signature
from rewardspec.text.diagnostics import Report, shorten
from rewardspec.text.source import Source, Span

MOST_TOKENS = 1000
DEEPEST = 100
LONGEST_NUMBER = 40
LARGEST_EXPONENT = 300

KEYWORDS = frozenset({"if", "else", "and", "or", "not"})
NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z", re.ASCII)

_WAYS_OUT = {
    "=": "a comparison is written `==`",
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`, or `!=`",
    "^": "a power is written `**`",
    '"': "names stand without quotes here",
    "'": "names stand without quotes here",
    "[": "there are no brackets in expressions; `min`, `max` and the like take values apart by commas",
    "{": "there are no braces in expressions",
    "≤": "write `<=`",
    "≥": "write `>=`",
    "≠": "write `!=`",
    "×": "write `*`",
    "−": "write a plain `-`",
    "?": "write `a if condition else b`",
    ".": "numbers are written `0.5` or `1e-4`; values have no attributes",
}


class _Rejected(Exception):
    """An expression that reads well but is over a limit."""

    def __init__(self, code: str, message: str, span: Span, help: str | None = None):
        self.code, self.message, self.span, self.help = code, message, span, help


@cache
def _parser() -> Lark:
    return Lark(
        resource("grammar/expr.lark").read_text(encoding="utf-8"),
        parser="lalr",
        start=["start", "signature"],
        keep_all_tokens=True,
        maybe_placeholders=False,
        transformer=_Builder(),  # inside the parse: a transformer run afterwards recurses as deep as the tree
    )


def parse_expression(text: str, at: Callable[[int, int], Span], report: Report) -> Expr | None:
    """The tree of `text`, or None with the reason in `report`.

    `at(start, end)` gives the span of characters of `text`.
    """
    found = _parse(text, at, report, "start")
    assert found is None or isinstance(found, Expr), "the grammar's start is an expression"
    return found


def parse_signature(text: str, at: Callable[[int, int], Span], report: Report) -> Signature | None:
    """The left side of a definition, `name` or `name(x, y=1)`."""
    if "(" in text:
        found = _parse(text, at, report, "signature")
        assert found is None or isinstance(found, Signature), "the grammar's signature is one"
        return found
    if not NAME.match(text) or text in KEYWORDS:
        report.error(
            "bad-name",
            f"`{shorten(text)}` cannot be a name",
            at(0, len(text)),
            help="names are letters, digits and `_`, and do not begin with a digit",
        )
        return None
    return Signature(at(0, len(text)), text, None)


def read(source: Source, report: Report) -> Expr | None:
    """The tree of a whole source."""
    return parse_expression(source.text, source.span, report)


def _parse(
    text: str, at: Callable[[int, int], Span], report: Report, start: Literal["start", "signature"]
) -> Expr | Signature | None:
    end_of_text = len(text.rstrip())
    try:
        for count, token in enumerate(_parser().lex(text)):
            if count == MOST_TOKENS:
                raise _Rejected("too-large", f"an expression of over {MOST_TOKENS} words and signs", at(0, end_of_text))
            if token.type == "NUMBER":
                _check_number(token, at)
        _place.at = at
        made: Any = _parser().parse(text, start=start)  # what `_Builder` makes; lark says that it gives trees
        tree: Expr | Signature = made[0]
        return tree
    except _Rejected as error:
        report.error(error.code, error.message, error.span, help=error.help)
    except UnexpectedCharacters as error:
        where = error.pos_in_stream or 0
        char = text[where]
        report.error(
            "syntax",
            f"unexpected `{shorten(char)}`",
            at(where, where + 1),
            help=way_out_at(text, where) or _WAYS_OUT.get(char),
        )
    except UnexpectedEOF:
        _ends_early(text, at, report)
    except UnexpectedToken as error:
        token = error.token
        if token.type == "$END":
            _ends_early(text, at, report)
        else:
            start_pos, end_pos = _ends(token)
            report.error(
                "syntax",
                f"unexpected `{shorten(str(token))}`",
                at(start_pos, end_pos),
                help=way_out_at(text, start_pos) or _token_help(text, token),
            )
    return None


def _ends(token: Token) -> tuple[int, int]:
    """The first character of a token, and the one after its last."""
    assert token.start_pos is not None and token.end_pos is not None, "lark places every token of a text"
    return token.start_pos, token.end_pos


def _ends_early(text: str, at: Callable[[int, int], Span], report: Report) -> None:
    end = len(text.rstrip())
    if not end:
        report.error("syntax", "an expression is missing here", at(0, len(text)))
        return
    opened = text.count("(") > text.count(")")
    report.error(
        "syntax",
        "the expression ends too early",
        at(end - 1, end),
        help=way_out_at(text, end - 1) or ("a `(` is not closed" if opened else None),
    )


def _token_help(text: str, token: Token) -> str | None:
    start, _ = _ends(token)
    if token == "=" or text[start : start + 1] == "=":
        return _WAYS_OUT["="]
    if token == "else":
        return "write `a if condition else b`"
    if token == "if":
        return "`if` stands after its value: `a if condition else b`"
    if token == ")":
        return "there is no `(` to close" if text.count("(") < text.count(")") else None
    if token == "," and "(" not in text[:start]:
        return "commas stand only between the arguments of a function"
    before = text[:start].rstrip()
    if token.type in ("NAME", "NUMBER") and before and (before[-1].isalnum() or before[-1] in "_)"):
        return "an operator is missing before it"
    return None


def _check_number(token: Token, at: Callable[[int, int], Span]) -> None:
    span = at(*_ends(token))
    if len(token) > LONGEST_NUMBER:
        raise _Rejected("too-large", f"a number of over {LONGEST_NUMBER} characters", span)
    _, _, exponent = token.lower().partition("e")
    if exponent and abs(int(exponent)) > LARGEST_EXPONENT:
        raise _Rejected("too-large", f"`{token}` is out of range", span, "exponents go from -300 to 300")


def number(token: str) -> Fraction | float:
    """The exact value of a number as it is written."""
    return inf if token == ".inf" else Fraction(token if token[0] != "." else "0" + token)


_place = threading.local()  # `at` of the parse that is running in this thread


Part = tuple[Any, int, int, int]  # an expression (or a keyword or parameter with its name), its ends, its depth
Children = list[Any]  # parts and tokens, in the order of the grammar's rule


class _Builder(Transformer[Token, Any]):
    """Bottom-up: each method gets what its parts came to, `(expr, start, end, depth)` or tokens."""

    @property
    def at(self) -> Callable[[int, int], Span]:
        at: Callable[[int, int], Span] = _place.at
        return at

    def _made(self, kind: type[Expr], start: int, end: int, parts: list[Part], *fields: object) -> Part:
        depth = 1 + max((part[3] for part in parts), default=0)
        if depth > DEEPEST:
            raise _Rejected("too-deep", f"an expression nested more than {DEEPEST} deep", self.at(start, end))
        return kind(self.at(start, end), *fields), start, end, depth

    def number(self, children: Children) -> Part:
        (token,) = children
        return self._made(Number, token.start_pos, token.end_pos, [], number(token))

    def name(self, children: Children) -> Part:
        (token,) = children
        return self._made(Name, token.start_pos, token.end_pos, [], str(token))

    def parenthesised(self, children: Children) -> Part:
        opening, (expr, _, _, depth), closing = children
        return expr, opening.start_pos, closing.end_pos, depth

    def keyword(self, children: Children) -> Part:
        name, _, (value, _, end, depth) = children
        key = Name(self.at(name.start_pos, name.end_pos), str(name))
        return (key, value), name.start_pos, end, depth

    def call(self, children: Children) -> Part:
        name, closing = children[0], children[-1]
        parts = [child for child in children if not isinstance(child, Token)]
        function = Name(self.at(name.start_pos, name.end_pos), str(name))
        keywords = tuple(part[0] for part in parts if isinstance(part[0], tuple))
        arguments = tuple(part[0] for part in parts if not isinstance(part[0], tuple))
        seen_keyword = False
        for part in parts:
            if isinstance(part[0], tuple):
                seen_keyword = True
            elif seen_keyword:
                raise _Rejected("syntax", "an argument without a name after one with a name", part[0].span)
        return self._made(Call, name.start_pos, closing.end_pos, parts, function, arguments, keywords)

    def _chain(self, children: Children) -> Part:
        """`a - b + c` from the left: one flat node for a run of one operator."""
        result: Part = children[0]
        for i in range(1, len(children), 2):
            operator, part = str(children[i]), children[i + 1]
            expr, start, _, _ = result
            if isinstance(expr, Operation) and expr.operator == operator and operator in "+*":
                depth = max(result[3], part[3] + 1)
                merged = Operation(self.at(start, part[2]), operator, (*expr.operands, part[0]))
                result = merged, start, part[2], depth
            else:
                result = self._made(Operation, start, part[2], [result, part], operator, (expr, part[0]))
        return result

    sum = product = power = _chain

    def _flat(self, children: Children) -> Part:
        """`a and b and c`, one node, also where parentheses hold some of it together."""
        parts, operator = children[::2], str(children[1])
        operands: list[Expr] = []
        for expr, *_ in parts:
            same = isinstance(expr, Operation) and expr.operator == operator
            operands += expr.operands if same else (expr,)
        return self._made(Operation, parts[0][1], parts[-1][2], parts, operator, tuple(operands))

    disjunction = conjunction = _flat

    def comparison(self, children: Children) -> Part:
        """`a < b <= c` is `a < b and b <= c`."""
        links = [
            self._made(Operation, left[1], right[2], [left, right], str(operator), (left[0], right[0]))
            for left, operator, right in zip(children[::2], children[1::2], children[2::2], strict=False)
        ]
        if len(links) == 1:
            return links[0]
        return self._made(Operation, links[0][1], links[-1][2], links, "and", tuple(link[0] for link in links))

    def negation(self, children: Children) -> Part:
        word, part = children
        return self._made(Operation, word.start_pos, part[2], [part], "not", (part[0],))

    def factor(self, children: Children) -> Part:
        sign, part = children
        if sign == "+":
            return part[0], sign.start_pos, part[2], part[3]
        if isinstance(part[0], Number):
            return self._made(Number, sign.start_pos, part[2], [], -part[0].value)
        return self._made(Operation, sign.start_pos, part[2], [part], "neg", (part[0],))

    def ternary(self, children: Children) -> Part:
        then, _, condition, _, otherwise = children
        parts = [condition, then, otherwise]
        return self._made(If, then[1], otherwise[2], parts, condition[0], then[0], otherwise[0])

    def parameter(self, children: Children) -> Part:
        name = children[0]
        default = children[2][0] if len(children) > 1 else None
        return (str(name), default), name.start_pos, 0, 0

    def signature(self, children: Children) -> tuple[Signature]:
        name, closing = children[0], children[-1]
        parameters = tuple(child[0] for child in children if not isinstance(child, Token))
        span = self.at(name.start_pos, closing.end_pos)
        names = [parameter for parameter, _ in parameters]
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise _Rejected("duplicate-parameter", f"parameter `{min(twice)}` stands twice", span)
        return (Signature(span, str(name), parameters),)
