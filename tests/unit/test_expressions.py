"""Expressions: text to tree and back, precedence, and where errors stand."""

import re
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from places import FUZZ

from rewardspec.syntax.expression import KEYWORDS, read
from rewardspec.syntax.tree import Call, If, Name, Number, Operation, format_expr
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source

SPAN = Source("tree", "").span(0, 0)
COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]
steady = settings(max_examples=300 * FUZZ)


def tree(text):
    report = Report()
    expr = read(Source("expr", text), report)
    assert expr is not None, report.diagnostics[0].render()
    return expr


def error(text):
    report = Report()
    assert read(Source("expr", text), report) is None, text
    (diagnostic,) = report.diagnostics
    return diagnostic


def shape(expr):
    """A tree without its places."""
    match expr:
        case Number():
            return expr.value
        case Name():
            return expr.text
        case Call():
            keywords = [(name.text, shape(value)) for name, value in expr.keywords]
            return ("call", expr.function.text, [shape(a) for a in expr.arguments], keywords)
        case Operation():
            return (expr.operator, *map(shape, expr.operands))
        case If():
            return ("if", shape(expr.condition), shape(expr.then), shape(expr.otherwise))


def parts(expr):
    yield expr
    match expr:
        case Call():
            inner = [*expr.arguments, *(value for _, value in expr.keywords)]
        case Operation():
            inner = expr.operands
        case If():
            inner = [expr.then, expr.condition, expr.otherwise]
        case _:
            inner = []
    for part in inner:
        yield from parts(part)


def operation(operator, *operands):
    return Operation(SPAN, operator, operands)


def run(operator, operands):
    """A run of one operator is one node: of `+` and `*` from the left, of `and` and `or` wherever it stands."""

    def same(x):
        return isinstance(x, Operation) and x.operator == operator

    merged = operands if operator in ("and", "or") else operands[:1]
    flat = [y for x in merged for y in (x.operands if same(x) else (x,))]
    return operation(operator, *flat, *operands[len(merged) :])


def negated(x):
    return Number(SPAN, -x.value) if isinstance(x, Number) else operation("neg", x)


names = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,6}", fullmatch=True).filter(lambda n: n.isascii() and n not in KEYWORDS)
leaves = st.one_of(
    names.map(lambda n: Name(SPAN, n)),
    st.integers(-999, 10**15).map(lambda n: Number(SPAN, Fraction(n))),
    st.decimals(-1000, 1000, places=3).map(lambda d: Number(SPAN, Fraction(d))),
    st.sampled_from([Fraction("1e-300"), Fraction("1e300"), Fraction("-2.5e-7"), float("inf")]).map(
        lambda v: Number(SPAN, v)
    ),
)


def larger(inner):
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.builds(run, st.sampled_from(["+", "*", "and", "or"]), several),
        st.builds(operation, st.sampled_from(["-", "/", "**", *COMPARISONS]), inner, inner),
        inner.map(negated),
        inner.map(lambda x: operation("not", x)),
        st.builds(If, st.just(SPAN), inner, inner, inner),
        st.builds(
            lambda f, arguments, keywords: Call(SPAN, Name(SPAN, f), tuple(arguments), tuple(keywords)),
            names,
            st.lists(inner, min_size=1, max_size=3),
            st.lists(st.tuples(names.map(lambda n: Name(SPAN, n)), inner), max_size=2),
        ),
    )


exprs = st.recursive(leaves, larger, max_leaves=20)


@pytest.mark.slow
@steady
@given(exprs)
def test_parse_of_format_is_the_same_tree(expr):
    text = format_expr(expr)
    assert shape(tree(text)) == shape(expr), text


@pytest.mark.slow
@steady
@given(exprs)
def test_format_of_parse_is_the_same_text(expr):
    text = format_expr(expr)
    assert format_expr(tree(text)) == text


@pytest.mark.slow
@steady
@given(exprs)
def test_the_text_under_a_node_is_that_node(expr):
    for part in parts(tree(format_expr(expr))):
        assert shape(tree(part.span.text)) == shape(part), part.span.text


@pytest.mark.slow
@steady
@given(exprs, st.randoms(use_true_random=False))
def test_space_and_parentheses_around_a_value_change_nothing(expr, random):
    whole = tree(format_expr(expr))
    text, part = whole.span.text, random.choice(list(parts(whole)))
    inner = text[part.span.start : part.span.end]
    spaced = f"{text[: part.span.start]} ( \n {inner}\t) {text[part.span.end :]}"
    parenthesised = tree(spaced)
    names = [p.text for p in parts(whole) if isinstance(p, Name)]
    assert [p.text for p in parts(parenthesised) if isinstance(p, Name)] == names
    if part is whole or isinstance(part, Number | Name | Call):
        assert shape(parenthesised) == shape(whole)


@pytest.mark.slow
@steady
@given(st.from_regex(r"([0-9]{1,17}(\.[0-9]{0,17})?|\.[0-9]{1,17})([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_a_number_keeps_its_exact_value(text):
    assume(len(text) <= 40)
    value = tree(text).value
    assert value == Fraction(text)
    assert shape(tree(format_expr(Number(SPAN, value)))) == value


@pytest.mark.parametrize("text", ["(a + b) + c", "(a * b) * c", "(a and b) and c", "(a or b) or c"])
def test_parentheses_that_change_nothing_are_no_part_of_the_tree(text):
    first = tree(text)
    assert shape(tree(format_expr(first))) == shape(first)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a * b + c", "(a * b) + c"),
        ("a - b - c", "(a - b) - c"),
        ("a / b / c", "(a / b) / c"),
        ("a / b * c", "(a / b) * c"),
        ("a - b + c", "(a - b) + c"),
        ("a ** b ** c", "a ** (b ** c)"),
        ("-a ** b", "-(a ** b)"),
        ("-2 ** 2", "-(2 ** 2)"),
        ("a ** -b", "a ** (-b)"),
        ("-a * b", "(-a) * b"),
        ("--a", "-(-a)"),
        ("+a", "a"),
        ("-2", "(-2)"),
        ("a < b + c", "a < (b + c)"),
        ("not a < b", "not (a < b)"),
        ("not not a", "not (not a)"),
        ("not a and b", "(not a) and b"),
        ("a or b and c", "a or (b and c)"),
        ("a and b or c", "(a and b) or c"),
        ("a if b else c", "(a) if (b) else (c)"),
        ("a or b if c or d else e", "(a or b) if (c or d) else e"),
        ("a if b else c if d else e", "a if b else (c if d else e)"),
        ("a < b < c", "a < b and b < c"),
        ("a < b <= c != d", "a < b and b <= c and c != d"),
        ("a < b == c", "a < b and b == c"),
        ("a + 1 < b < c + 1", "(a + 1 < b) and (b < (c + 1))"),
        ("f(a, b=c if d else e,)", "f(a, b=(c if d else e))"),
        ("1e-4", "0.0001"),
        (".5", "0.5"),
        ("1.", "1"),
        ("1E2", "100"),
        ("notion", "(notion)"),
        ("if_", "(if_)"),
    ],
)
def test_precedence(text, meaning):
    assert shape(tree(text)) == shape(tree(meaning))


@pytest.mark.parametrize(
    ("text", "different"),
    [
        ("(a < b) < c", "a < b < c"),
        ("-(a) ** b", "(-a) ** b"),
        ("(a ** b) ** c", "a ** b ** c"),
        ("a - (b - c)", "a - b - c"),
    ],
)
def test_parentheses_that_matter(text, different):
    assert shape(tree(text)) != shape(tree(different))


@pytest.mark.parametrize(
    ("text", "start", "under"),
    [
        ("", 0, ""),
        ("a +", 2, "+"),
        ("a + ", 2, "+"),
        ("f(a", 2, "a"),
        ("a b", 2, "b"),
        ("2a", 1, "a"),
        ("a + * b", 4, "*"),
        ("f(a,, b)", 4, ","),
        ("a)", 1, ")"),
        ("()", 1, ")"),
        ("a = 1", 2, "="),
        ("a ? b : c", 2, "?"),
        ("a.b", 1, "."),
        ("a $ (b", 2, "$"),
        ("a +\n  * b", 6, "*"),
        ("if a then b", 0, "if"),
        ("a else b", 2, "else"),
        ("a and or b", 6, "or"),
        ("f(x=1, a)", 7, "a"),
        ("a + 1e999", 4, "1e999"),
        ("a + " + "9" * 41, 4, "9" * 41),
        ("a < < b", 4, "<"),
        ("a[0]", 1, "["),
        ("é", 0, "é"),
        ("a 'b'", 2, "'"),
        ("1 if a", 5, "a"),
    ],
)
def test_errors_stand_where_they_are(text, start, under):
    found = error(text)
    assert (found.span.start, found.span.text) == (start, under)


@pytest.mark.slow
@steady
@given(exprs, st.data())
def test_a_strange_sign_is_found_wherever_it_stands(expr, data):
    text = format_expr(expr)
    at = data.draw(st.integers(0, len(text)))
    # the first half of `.inf` or `!=` alone is stranger
    assume(all(not found.start() < at < found.end() for found in re.finditer(r"\.inf|!=", text)))
    found = error(text[:at] + "$" + text[at:])
    assert found.span.start == at
    assert found.span.text == "$"


@pytest.mark.slow
@steady
@given(exprs, st.data())
def test_half_an_expression_is_an_error_inside_it(expr, data):
    text = format_expr(expr)
    half = text[: data.draw(st.integers(0, len(text)))] + data.draw(st.sampled_from([" +", " and", "(", " if", ","]))
    found = error(half)
    assert 0 <= found.span.start <= found.span.end <= len(half)
    assert found.message
    assert found.render()


def test_words_are_not_read_in_parts():
    assert error("a orb").span.text == "orb"
    assert error("1 ifx else 2").span.text == "ifx"
    assert tree("1if x else 2")


def test_limits_are_where_they_are_said_to_be():
    assert tree("(" * 100 + "a" + ")" * 100)
    assert error("(" * 101 + "a" + ")" * 101).code == "too-deep"
    assert tree("+" * 998 + "a")
    assert tree("-" * 99 + "a")
    assert error("-" * 100 + "a").code == "too-deep"
    assert tree(" + ".join(["a"] * 500))  # 999 words and signs
    assert error(" + ".join(["a"] * 501)).code == "too-large"
    assert tree("9" * 40).value == 10**40 - 1
