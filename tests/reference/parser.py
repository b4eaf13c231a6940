"""Expressions read by descent, from grammar/expr.lark alone: a tree of tuples.

A number is a Fraction (or inf), a name a str, anything else (operator, operands...): `("+", a, b)`, `("neg", a)`,
`("if", condition, then, otherwise)`, `("call", function, (arguments...), ((name, value)...))`.
"""

import math
import re
from fractions import Fraction
from functools import cache

TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|\.inf\b)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign>\*\*|<=|>=|==|!=|[-+*/<>(),=])|(?P<end>$))"
)
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
KEYWORDS = ("if", "else", "and", "or", "not")


class NotRead(Exception):
    """The text is no expression."""


@cache
def parse(text):
    """The tree of an expression."""
    reader = Tokens(text)
    tree = ternary(reader)
    reader.expect("")
    return tree


def parse_signature(text):
    """(name, parameters): parameters are (name, default or None), or None for a value."""
    reader = Tokens(text)
    name = reader.name()
    if not reader.take("("):
        reader.expect("")
        return name, None
    parameters = []
    while not parameters or reader.take(","):
        parameter = reader.name()
        parameters.append((parameter, ternary(reader) if reader.take("=") else None))
    reader.expect(")")
    reader.expect("")
    return name, tuple(parameters)


class Tokens:
    def __init__(self, text):
        self.found, at, text = [], 0, text.rstrip()
        while True:
            match = TOKEN.match(text, at)
            if match is None:
                raise NotRead(f"{text[at:]!r}")
            self.found.append((match.lastgroup, match.group(match.lastgroup)))
            at = match.end()
            if match.lastgroup == "end":
                break
        self.at = 0

    def peek(self):
        return self.found[self.at]

    def take(self, *texts):
        """The next token if it is one of these signs or keywords, else None."""
        kind, text = self.peek()
        if kind != "number" and text in texts:
            self.at += 1
            return text
        return None

    def expect(self, text):
        if self.take(text) is None:
            raise NotRead(f"{text!r} expected, found {self.peek()[1]!r}")

    def name(self):
        kind, text = self.peek()
        if kind != "name" or text in KEYWORDS:
            raise NotRead(f"a name expected, found {text!r}")
        self.at += 1
        return text


def ternary(reader):
    then = operands(reader, "or", lambda r: operands(r, "and", negation))
    if not reader.take("if"):
        return then
    condition = operands(reader, "or", lambda r: operands(r, "and", negation))
    reader.expect("else")
    return ("if", condition, then, ternary(reader))


def operands(reader, word, inner):
    """`a or b or c`, read as one operation with all its operands."""
    found = [inner(reader)]
    while reader.take(word):
        found.append(inner(reader))
    return found[0] if len(found) == 1 else (word, *found)


def negation(reader):
    return ("not", negation(reader)) if reader.take("not") else comparison(reader)


def comparison(reader):
    """`a < b <= c` is `a < b and b <= c`."""
    left, pairs = summed(reader), []
    while operator := reader.take(*COMPARISONS):
        right = summed(reader)
        pairs.append((operator, left, right))
        left = right
    return left if not pairs else pairs[0] if len(pairs) == 1 else ("and", *pairs)


def left_to_right(reader, signs, inner):
    tree = inner(reader)
    while operator := reader.take(*signs):
        tree = (operator, tree, inner(reader))
    return tree


def summed(reader):
    return left_to_right(reader, "+-", lambda r: left_to_right(r, "*/", factor))


def factor(reader):
    sign = reader.take("+", "-")
    if sign is None:
        return power(reader)
    inner = factor(reader)
    return inner if sign == "+" else ("neg", inner)


def power(reader):
    base = atom(reader)
    return ("**", base, factor(reader)) if reader.take("**") else base


def atom(reader):
    if reader.take("("):
        tree = ternary(reader)
        reader.expect(")")
        return tree
    kind, text = reader.peek()
    if kind == "number":
        reader.at += 1
        return math.inf if text == ".inf" else Fraction(text)
    name = reader.name()
    return call(reader, name) if reader.take("(") else name


def call(reader, function):
    arguments, keywords = [], []
    while True:
        kind, text = reader.peek()
        if kind == "name" and reader.found[reader.at + 1][1] == "=":
            reader.at += 2
            keywords.append((text, ternary(reader)))
        else:
            arguments.append(ternary(reader))
        if not reader.take(","):
            break
        if reader.peek()[1] == ")":
            break
    reader.expect(")")
    return ("call", function, tuple(arguments), tuple(keywords))
