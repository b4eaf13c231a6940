"""`grammar/expr.lark` and the reader of expressions say the same of every text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import UnexpectedToken
from places import FUZZ

from rewardspec.resources import resource
from rewardspec.syntax.expression import parse_expression, parse_signature
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source

TEXT = resource("grammar/expr.lark").read_text(encoding="utf-8")
GRAMMAR = Lark(TEXT, parser="lalr", lexer="basic", start=["start", "signature"])
WORDS = [
    "a",
    "b",
    "f(",
    "(",
    ")",
    ",",
    "=",
    "==",
    "<",
    "!=",
    "+",
    "-",
    "*",
    "/",
    "**",
    "if",
    "else",
    "and",
    "or",
    "not",
]
WORDS += ["1", ".5", "2e3", ".inf", "1.", "x1", "orb", "ifx"]
texts = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
often = settings(max_examples=1500 * FUZZ)


def by_grammar(text, start):
    """Where the first word is that cannot stand there; None for a text that reads."""
    try:
        GRAMMAR.parse(text, start=start)
    except UnexpectedToken as error:
        return len(text.rstrip()) - 1 if error.token.type == "$END" else error.token.start_pos
    return None


def by_reader(text, parse):
    report = Report()
    if parse(text, Source("expr", text).span, report) is not None:
        return None
    (diagnostic,) = report.diagnostics
    # arguments in the wrong order and doubled parameters are no matter of grammar
    return diagnostic.span.start if diagnostic.message.startswith(("unexpected", "the expression ends")) else None


@pytest.mark.parametrize("text", ["a if b else c if d else e", "f(a, b=1,)", "not a < b <= c", "-a ** -b", "a - (b)"])
def test_what_the_grammar_has_is_read(text):
    assert by_grammar(text, "start") is None
    assert by_reader(text, parse_expression) is None


@pytest.mark.slow
@often
@given(texts.filter(bool))
def test_an_expression_is_read_as_far_as_the_grammar_goes(text):
    assert by_reader(text, parse_expression) == by_grammar(text, "start")


@pytest.mark.slow
@often
@given(texts, st.sampled_from([")", ""]))
def test_a_signature_is_read_as_far_as_the_grammar_goes(inside, end):
    text = f"f({inside}{end}"
    assert by_reader(text, parse_signature) == by_grammar(text, "signature")
