"""The reward functions of a spec: `use:` with its options under `with:`, or `python:`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from rewardspec.language.declarations import Use
from rewardspec.language.scalars import read_expression
from rewardspec.language.shape import Block
from rewardspec.ops.domain import Level
from rewardspec.rewards.catalogue import all_rewards, find_reward
from rewardspec.rewards.reward import Reward
from rewardspec.syntax.expression import parse_expression
from rewardspec.syntax.tree import Call, Expr
from rewardspec.syntax.yaml import Mapping, Scalar, Sequence
from rewardspec.text.diagnostics import Report, did_you_mean, shorten
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Span

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_NAMED = re.compile(r"\s*([A-Za-z_]\w*)\.([A-Za-z_]\w*)\s*(\(.*\))?\s*", re.DOTALL)
_PYTHON = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
FIXED = ("completion", "tokens")  # inputs that every rollout has; the others are columns of the data set


def read_use(name: str, block: Block, report: Report) -> Use | None:
    """The reward function of a column that has one; None if it is wrong."""
    before = len(report.diagnostics)
    given, only_when = _options(block.free("with"), report)
    own = block.one("python")
    level = Level(block.word("level", "rollout"))
    of = level.name if level.listed else None
    if own is not None:
        return _python(name, block, own, given, only_when, of, report)
    scalar = block.one("use")
    assert scalar is not None, "the caller checks that there is a function"
    match = _NAMED.fullmatch(scalar.text)
    if match is None:
        report.error(
            "bad-use",
            f"`{shorten(scalar.text)}` is not the name of a reward function",
            scalar.span,
            help="write `toolrl.format`, with options in parentheses or under `with:`; "
            "`rewardspec list rewards` shows all",
        )
        return None
    called = f"{match[1]}.{match[2]}"
    reward = find_reward(called)
    if reward is None:
        known = [found.name for found in all_rewards()]
        from difflib import get_close_matches

        short = get_close_matches(match[2], [k.partition(".")[2] for k in known], n=1)
        near = did_you_mean(called, known) or next(
            (f"did you mean `{k}`?" for k in known if short and k.endswith("." + short[0])), None
        )
        report.error(
            "unknown-reward",
            f"unknown reward function `{shorten(called)}`",
            scalar.span,
            help=near or "`rewardspec list rewards` shows all; for your own write `python: package.module:function`",
        )
        return None
    if match[3]:
        inner, asked = _arguments(scalar, report)
        for option, (place, _) in inner.items():
            if option in given:
                report.error("duplicate-option", f"`{shorten(option)}` is also set under `with:`", place)
        given, only_when = {**given, **inner}, asked or only_when
        if len(report.diagnostics) > before:
            return None
    of = of if reward.items is not None else None
    inputs = {field: field for field in reward.inputs if field != reward.items or of is not None}
    if reward.items in given and of is None:
        report.error(
            "bad-option",
            f"with `{reward.items}`, `{reward.name}` gives a list for each rollout",
            given.pop(reward.items)[0],
            help="add `level:` with the name of a list, such as `level: criterion`",
        )
    for field in [field for field in inputs if field in given and field not in FIXED]:
        place, value = given.pop(field)
        if isinstance(value, str) and value:
            inputs[field] = value
        else:
            report.error("bad-option", f"`{field}` must be the name of a data set column", place)
    try:
        options = reward.options({option: value for option, (_, value) in given.items()})
        domain = reward.domain(**options, **({"listed": of is not None} if reward.items is not None else {}))
    except ValueError as error:
        _refused(error, reward, given, scalar.span, report)
        return None
    if reward.expression is not None and only_when is not None:
        report.error(
            "bad-option",
            f"`{reward.name}` is computed from other columns and takes no `only_when`",
            only_when.span,
            help=f"did you mean `when: {only_when.span.text}`?",
        )
    if len(report.diagnostics) > before:
        return None
    return Use(name, scalar.span, reward, None, options, inputs, only_when, domain, of)


def as_expression(use: Use, report: Report) -> Expr:
    """The expression of a reward function that is computed from columns, placed where the spec names it."""
    assert use.reward is not None and use.reward.expression is not None, "the caller checks that it is an expression"
    values = {k: format_number(Fraction(repr(v))) for k, v in use.options.items()}
    expr = parse_expression(use.reward.expression.format(**values), lambda start, end: use.span, report)
    assert expr is not None, f"the expression of {use.reward.name} does not read"
    return expr


Given = dict[str, tuple[Span, object]]  # option: its place and value, a text, or a list or mapping of texts


def _options(node: Mapping | None, report: Report) -> tuple[Given, Expr | None]:
    """The options under `with:`, and `only_when` separately."""
    given: Given = {}
    only_when = None
    for key, value in node.items if node is not None else ():
        if key.text == "only_when":
            if isinstance(value, Scalar):
                only_when = read_expression(value, report)
            else:
                report.error("bad-option", "`only_when` must be a condition such as `correct >= 1`", value.span)
        elif isinstance(value, Scalar):
            given[key.text] = value.span, None if value.style is None and value.text == "null" else value.text
        elif (plain := _values(value)) is not None:
            given[key.text] = value.span, plain
        else:
            message = f"`{shorten(key.text)}` must be a value, or a list or mapping of values"
            report.error("bad-option", message, value.span)
    return given, only_when


def _values(node: Sequence | Mapping) -> list[str] | dict[str, object] | None:
    """A list or mapping of single values; None if it contains anything else."""
    if isinstance(node, Mapping):
        pairs = {key.text: _plain(item) for key, item in node.items if isinstance(item, Scalar)}
        return pairs if len(pairs) == len(node.items) else None
    texts = [item.text for item in node.items if isinstance(item, Scalar)]
    return texts if len(texts) == len(node.items) else None


def _plain(scalar: Scalar) -> object:
    """A value in a mapping, which has no annotated type: a number or truth value if it is written as one."""
    words = {"true": True, "false": False, "null": None}
    if scalar.style is not None or scalar.text in words:
        return words.get(scalar.text, scalar.text) if scalar.style is None else scalar.text
    try:
        return int(scalar.text) if re.fullmatch(r"[-+]?\d{1,18}", scalar.text) else float(scalar.text)
    except ValueError:
        return scalar.text


def _arguments(scalar: Scalar, report: Report) -> tuple[Given, Expr | None]:
    """The options in the parentheses of `use: family.function(option=value)`, and `only_when` separately."""
    text, offset = scalar.slice() or (scalar.text, None)
    source = scalar.span.source

    def at(start: int, end: int) -> Span:
        return scalar.span if offset is None else source.span(offset + start, offset + end)

    expr = parse_expression(text.replace(".", "_", 1), at, report)  # same length, so that places stay right
    if not isinstance(expr, Call):
        return {}, None
    for argument in expr.arguments:
        report.error("bad-option", "an option needs a name: `granularity=coarse`", argument.span)
    given: Given = {}
    only_when = None
    for key, value in expr.keywords:
        if key.text == "only_when":
            only_when = value
        elif key.text in given:
            report.error("duplicate-option", f"`{shorten(key.text)}` is given twice", key.span)
        else:
            written = value.span.text if offset is not None else text[value.span.start : value.span.end]
            given[key.text] = value.span, written
    return given, only_when


def _refused(error: ValueError, reward: Reward, given: Given, span: Span, report: Report) -> None:
    """What is wrong with options: by themselves, or together."""
    from pydantic import ValidationError  # takes a tenth of a second

    if isinstance(error, ValidationError):
        for one in error.errors():
            _report(one, reward, given, span, report)
        return
    named = re.match(r"`(\w+)`", str(error))
    place = given[named[1]][0] if named and named[1] in given else span
    report.error("bad-option", str(error), place)


def _report(error: ErrorDetails, reward: Reward, given: Given, span: Span, report: Report) -> None:
    """Report one validation error of pydantic."""
    option = str(error["loc"][0])
    place = given[option][0] if option in given else span
    known = [*reward.defaults, *(i for i in reward.inputs if i not in FIXED), "only_when"]
    match error["type"]:
        case "extra_forbidden":
            help = did_you_mean(option, known, f"the options are {', '.join(f'`{k}`' for k in known)}")
            report.error("unknown-option", f"`{reward.name}` has no option `{shorten(option)}`", place, help=help)
        case "missing":
            report.error(
                "missing-option", f"`{reward.name}` needs `{option}`", span, help=f"write `{reward.signature}`"
            )
        case _:
            said = error["msg"][0].lower() + error["msg"][1:]
            report.error("bad-option", f"`{option}`: {said}", place, help=f"write `{reward.signature}`")


def _python(
    name: str, block: Block, scalar: Scalar, given: Given, only_when: Expr | None, of: str | None, report: Report
) -> Use | None:
    if not _PYTHON.fullmatch(scalar.text):
        report.error(
            "bad-use",
            f"`{shorten(scalar.text)}` is not the path of a Python function",
            scalar.span,
            help="write `python: package.module:function`",
        )
        return None
    if "use" in block.place:
        report.error("two-functions", f"`{name}` has both `use` and `python`", scalar.span, help="keep one of them")
        return None
    for option, (place, _) in given.items():
        report.error(
            "unknown-option",
            f"a `python:` function takes only the option `only_when`, not `{shorten(option)}`",
            place,
            help="name a parameter of the function after the data set column that it reads",
        )
    if of is not None and only_when is not None:
        report.error(
            "bad-option",
            f"`{name}` has a list for each rollout, also where `only_when` is false",
            only_when.span,
            help="remove `only_when`, and return None for the items that are not measured",
        )
        return None
    if given:
        return None
    return Use(name, scalar.span, None, scalar.text, {}, {}, only_when, None, of)
