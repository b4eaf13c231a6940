"""Expression text to syntax tree, by recursive descent over the grammar of `grammar/expr.lark`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NoReturn

from rewardspec.syntax.foreign import help_at
from rewardspec.syntax.tokens import END, KEYWORDS, NAME, Token, Unlexed, number, tokens
from rewardspec.syntax.tree import Call, Expr, If, Name, Number, Operation, Signature
from rewardspec.text.diagnostics import Report, shorten
from rewardspec.text.source import Source, Span

__all__ = ["KEYWORDS", "NAME", "number", "parse_expression", "parse_signature", "read"]

MOST_TOKENS = 1000
DEEPEST = 100
LONGEST_NUMBER = 40
LARGEST_EXPONENT = 300

_FIXES = {
    "=": "write `==` to compare",
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`, or `!=`",
    "^": "write `**` for a power",
    '"': "write names without quotes",
    "'": "write names without quotes",
    "[": "write lists as arguments: `min(a, b)`",
    "{": "write `(` and `)`",
    "≤": "write `<=`",
    "≥": "write `>=`",
    "≠": "write `!=`",
    "×": "write `*`",
    "−": "write a plain `-`",
    "?": "write `a if condition else b`",
    ".": "write numbers as `0.5` or `1e-4`; values have no attributes",
}


class _Rejected(Exception):
    """An expression that the grammar accepts but a rule rejects: a limit, an argument's position."""

    def __init__(self, code: str, message: str, span: Span, help: str | None = None):
        self.code, self.message, self.span, self.help = code, message, span, help


class _Unexpected(Exception):
    """A token that the grammar does not allow in its place."""

    def __init__(self, token: Token):
        self.token = token


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
            f"`{shorten(text)}` is not a valid name",
            at(0, len(text)),
            help="use letters, digits and `_`, not a digit first",
        )
        return None
    return Signature(at(0, len(text)), text, None)


def read(source: Source, report: Report) -> Expr | None:
    """The tree of a source that is one expression."""
    return parse_expression(source.text, source.span, report)


def _parse(
    text: str, at: Callable[[int, int], Span], report: Report, start: Literal["start", "signature"]
) -> Expr | Signature | None:
    try:
        reader = _Reader(_checked(text, at), at)
        found: Expr | Signature = reader.expression()[0] if start == "start" else reader.signature()
        reader.take(END)
        return found
    except _Rejected as error:
        report.error(error.code, error.message, error.span, help=error.help)
    except Unlexed as error:
        where = error.at
        char = text[where]
        report.error(
            "syntax",
            f"unexpected `{shorten(char)}`",
            at(where, where + 1),
            help=help_at(text, where) or _FIXES.get(char),
        )
    except _Unexpected as error:
        token = error.token
        if token.kind == END:
            _ends_early(text, at, report)
        else:
            report.error(
                "syntax",
                f"unexpected `{shorten(token.text)}`",
                at(token.start, token.end),
                help=help_at(text, token.start) or _token_help(text, token),
            )
    return None


def _checked(text: str, at: Callable[[int, int], Span]) -> list[Token]:
    """The tokens of a text. Raises _Rejected for too many, and for a number that is too long or large."""
    found: list[Token] = []
    for token in tokens(text):
        if len(found) == MOST_TOKENS and token.kind != END:
            message = f"the expression has more than {MOST_TOKENS} tokens"
            raise _Rejected("too-large", message, at(0, len(text.rstrip())))
        if token.kind == "NUMBER":
            _check_number(token, at)
        found.append(token)
    return found


def _ends_early(text: str, at: Callable[[int, int], Span], report: Report) -> None:
    end = len(text.rstrip())
    if not end:
        report.error("syntax", "expected an expression", at(0, len(text)))
        return
    opened = text.count("(") > text.count(")")
    report.error(
        "syntax",
        "the expression ends too early",
        at(end - 1, end),
        help=help_at(text, end - 1) or ("close the `(`" if opened else None),
    )


def _token_help(text: str, token: Token) -> str | None:
    start = token.start
    if text[start : start + 1] == "=":
        return _FIXES["="]
    if token.text == "else":
        return "write `a if condition else b`"
    if token.text == "if":
        return "write the value before `if`: `a if condition else b`"
    if token.text == ")":
        return "remove it, or add a `(`" if text.count("(") < text.count(")") else None
    if token.text == "," and "(" not in text[:start]:
        return "use commas only between the arguments of a function"
    before = text[:start].rstrip()
    if token.kind in ("NAME", "NUMBER") and before and (before[-1].isalnum() or before[-1] in "_)"):
        return "add an operator before it"
    return None


def _check_number(token: Token, at: Callable[[int, int], Span]) -> None:
    span = at(token.start, token.end)
    if len(token.text) > LONGEST_NUMBER:
        raise _Rejected("too-large", f"the number has more than {LONGEST_NUMBER} characters", span)
    _, _, exponent = token.text.lower().partition("e")
    if exponent and abs(int(exponent)) > LARGEST_EXPONENT:
        raise _Rejected("too-large", f"`{token.text}` is out of range", span, "use an exponent from -300 to 300")


Part = tuple[Any, int, int, int]  # an expression (or a keyword argument), start, end, depth
Run = list[Any]  # parts, and the texts of the operators between them

_LEVELS = {"or": 1, "and": 2, "COMPARE": 4, "ADD": 5, "MULTIPLY": 6}  # how tightly an operator binds
_NOT = 3


class _Reader:
    """A cursor over tokens; each method reads the part of the grammar that it is named after.

    Runs of operators and signs are loops; only brackets recurse.
    """

    def __init__(self, found: list[Token], at: Callable[[int, int], Span]):
        self.found, self.at = found, at
        self.place = self.brackets = 0

    @property
    def next(self) -> Token:
        return self.found[self.place]

    def take(self, kind: str) -> Token:
        """The next token. Raises _Unexpected if it is of another kind."""
        token = self.found[self.place]
        if token.kind != kind:
            raise _Unexpected(token)
        self.place += 1
        return token

    def expression(self) -> Part:
        """`a if b else c if d else e`, from the right."""
        found = [self.operators()]
        while self.next.kind == "if":
            self.take("if")
            found.append(self.operators())
            self.take("else")
            found.append(self.operators())
        made = found.pop()
        while found:
            condition, then = found.pop(), found.pop()
            parts = [condition, then, made]
            made = self.made(If, then[1], made[2], parts, condition[0], then[0], made[0])
        return made

    def operators(self) -> Part:
        """`a or not b < c + d * e`: a stack of open runs of operators, each binding tighter than the one below."""
        begun: list[tuple[int, Run]] = []
        while True:
            while self.next.kind == "not" and (not begun or begun[-1][0] <= _NOT):
                begun.append((_NOT, [self.take("not")]))
            part = self.factor()
            level = _LEVELS.get(self.next.kind, 0)
            while begun and begun[-1][0] > level:
                ended, run = begun.pop()
                part = self.run(ended, [*run, part])
            if not level:
                return part
            operator = self.take(self.next.kind).text
            if begun and begun[-1][0] == level:
                begun[-1][1].extend([part, operator])
            else:
                begun.append((level, [part, operator]))

    def factor(self) -> Part:
        """`-a ** -b ** c`, from the right."""
        found: list[tuple[list[Token], Part]] = []
        while not found or self.next.kind == "**":
            if found:
                self.take("**")
            signs = []
            while self.next.kind == "ADD":
                signs.append(self.take("ADD"))
            found.append((signs, self.atom()))
        made: Part | None = None
        for signs, part in reversed(found):
            made = part if made is None else self.chain([part, "**", made])
            for sign in reversed(signs):
                made = self.signed(sign, made)
        assert made is not None
        return made

    def atom(self) -> Part:
        """A number, a name, a call, or an expression in brackets."""
        token = self.next
        if token.kind == "NUMBER":
            self.take("NUMBER")
            return self.made(Number, token.start, token.end, [], number(token.text))
        if token.kind == "NAME":
            self.take("NAME")
            return (
                self.call(token) if self.next.kind == "(" else self.made(Name, token.start, token.end, [], token.text)
            )
        self.open()
        expr, _, _, depth = self.expression()
        return expr, token.start, self.close(), depth

    def call(self, name: Token) -> Part:
        self.open()
        parts = []
        while self.next.kind != ")":
            parts.append(self.argument())
            if self.next.kind != ")":
                self.take(",")
        end = self.close()
        function = Name(self.at(name.start, name.end), name.text)
        keywords = tuple(part[0] for part in parts if isinstance(part[0], tuple))
        arguments = tuple(part[0] for part in parts if not isinstance(part[0], tuple))
        seen_keyword = False
        for part in parts:
            if isinstance(part[0], tuple):
                seen_keyword = True
            elif seen_keyword:
                raise _Rejected("syntax", "a positional argument follows a named one", part[0].span)
        return self.made(Call, name.start, end, parts, function, arguments, keywords)

    def argument(self) -> Part:
        """`x`, or `name=x`."""
        name = self.next
        if name.kind != "NAME" or self.found[self.place + 1].kind != "=":
            return self.expression()
        self.take("NAME")
        self.take("=")
        value, _, end, depth = self.expression()
        return (Name(self.at(name.start, name.end), name.text), value), name.start, end, depth

    def signature(self) -> Signature:
        """`name(x, y=1)`."""
        name = self.take("NAME")
        self.open()
        parameters: list[tuple[str, Expr | None]] = []
        while parameters or self.next.kind != ")":
            parameter = self.take("NAME").text
            default = None
            if self.next.kind == "=":
                self.take("=")
                default = self.expression()[0]
            parameters.append((parameter, default))
            if self.next.kind == ")":
                break
            self.take(",")
        span = self.at(name.start, self.close())
        names = [parameter for parameter, _ in parameters]
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise _Rejected("duplicate-parameter", f"the parameter `{min(twice)}` appears twice", span)
        return Signature(span, name.text, tuple(parameters))

    def open(self) -> None:
        token = self.take("(")
        self.brackets += 1
        if self.brackets > DEEPEST:
            self.too_deep(token.start, token.end)

    def close(self) -> int:
        """The offset after the closing bracket."""
        self.brackets -= 1
        return self.take(")").end

    def made(self, kind: type[Expr], start: int, end: int, parts: list[Part], *fields: object) -> Part:
        depth = 1 + max((part[3] for part in parts), default=0)
        if depth > DEEPEST:
            self.too_deep(start, end)
        return kind(self.at(start, end), *fields), start, end, depth

    def too_deep(self, start: int, end: int) -> NoReturn:
        raise _Rejected("too-deep", f"the expression is nested more than {DEEPEST} deep", self.at(start, end))

    def run(self, level: int, run: Run) -> Part:
        """The node of operands and operators of one level."""
        if level == _NOT:
            word, part = run
            return self.made(Operation, word.start, part[2], [part], "not", (part[0],))
        if level < _NOT:
            return self.flat(run)
        return self.comparison(run) if level == _LEVELS["COMPARE"] else self.chain(run)

    def chain(self, run: Run) -> Part:
        """`a - b + c`, from the left; a run of `+` or of `*` is one flat node."""
        result: Part = run[0]
        for operator, part in zip(run[1::2], run[2::2], strict=True):
            expr, start, _, _ = result
            if isinstance(expr, Operation) and expr.operator == operator and operator in "+*":
                depth = max(result[3], part[3] + 1)
                merged = Operation(self.at(start, part[2]), operator, (*expr.operands, part[0]))
                result = merged, start, part[2], depth
            else:
                result = self.made(Operation, start, part[2], [result, part], operator, (expr, part[0]))
        return result

    def flat(self, run: Run) -> Part:
        """`a and b and c` as one flat node, with or without parentheses inside."""
        parts, operator = run[::2], run[1]
        operands: list[Expr] = []
        for expr, *_ in parts:
            same = isinstance(expr, Operation) and expr.operator == operator
            operands += expr.operands if same else (expr,)
        return self.made(Operation, parts[0][1], parts[-1][2], parts, operator, tuple(operands))

    def comparison(self, run: Run) -> Part:
        """`a < b <= c` as `a < b and b <= c`."""
        links = [
            self.made(Operation, left[1], right[2], [left, right], operator, (left[0], right[0]))
            for left, operator, right in zip(run[::2], run[1::2], run[2::2], strict=False)
        ]
        if len(links) == 1:
            return links[0]
        return self.made(Operation, links[0][1], links[-1][2], links, "and", tuple(link[0] for link in links))

    def signed(self, sign: Token, part: Part) -> Part:
        if sign.text == "+":
            return part[0], sign.start, part[2], part[3]
        if isinstance(part[0], Number):
            return self.made(Number, sign.start, part[2], [], -part[0].value)
        return self.made(Operation, sign.start, part[2], [part], "neg", (part[0],))
