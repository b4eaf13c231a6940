"""The state of a spec: values that are carried from batch to batch (`state:`)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import inf

from rewardspec.language.columns import read_domain
from rewardspec.language.declarations import Column, State
from rewardspec.language.names import check_name
from rewardspec.language.scalars import read_expression, read_literal
from rewardspec.language.shape import Block
from rewardspec.ops.domain import Level
from rewardspec.text.diagnostics import Label, Report, did_you_mean, shorten
from rewardspec.text.numbers import format_number

MOST_STATES = 16
MOST_KEYS = 10_000_000  # of one state
DEFAULT_MOST = 100_000


def read_states(
    whole: Block, columns: Mapping[str, Column], damaged: set[str], report: Report
) -> tuple[dict[str, State], set[str]]:
    """The states of a file, and the names of those that are wrong.

    columns: those of the file; damaged: the names whose declaration is wrong.
    """
    section = whole.block("state")
    found: dict[str, State] = {}
    wrong = {name for name in section.keys if name not in section}
    for name, block in section.blocks():
        state = None
        if len(found) >= MOST_STATES:
            report.error("too-large", f"over {MOST_STATES} states", block.place.name)
        elif _usable_name(whole, name, report):
            state = _state(name, block, columns, damaged, report)
        if state is None:
            wrong.add(name)
        else:
            found[name] = state
    return found, wrong


def _usable_name(whole: Block, name: str, report: Report) -> bool:
    span = whole.block("state").place[name].name
    if not check_name(name, span, report):
        return False
    for section, kind in (("signals", "signal"), ("components", "component"), ("define", "definition")):
        if name in whole.block(section).keys:
            report.error(
                "duplicate-name",
                f"`{name}` is both a state and a {kind}",
                span,
                labels=(Label(whole.block(section).keys[name].span, f"the {kind}"),),
                help="rename one of them",
            )
            return False
    return True


def _state(name: str, block: Block, columns: Mapping[str, Column], damaged: set[str], report: Report) -> State | None:
    """One state; None if something in it is wrong, with all reasons reported."""
    place = block.place
    domain, init = read_domain(block, report), _first(block, report)
    update = read_expression(block.one("update"), report)
    right = domain is not None and init is not None and update is not None
    if domain is not None and init is not None and init not in domain:
        report.error(
            "outside-range",
            f"`{name}` begins at {format_number(init)}, outside its range {domain}",
            place.of("init"),
            labels=(Label(place.of("range"), "its range"),),
            help="change `init` or `range`",
        )
        right = False
    by, most = _by(name, block, columns, damaged, report), _most(block, report)
    if "most" in place and "by" not in place:
        help = "remove it, or add `by:` with the signal that has the keys"
        report.error("most-alone", f"`{name}` has `most` but no `by`: it is one number", place["most"].name, help=help)
        right = False
    if not right or ("by" in place and by is None) or most is None:
        return None
    assert domain is not None and init is not None and update is not None
    level = Level.BATCH if by is None else Level.GROUP
    value = Column(name, place.name, domain, domain, place.of("range"), level, "error", False)
    about = block.one("about")
    return State(value, place, init, update, by, most, None if about is None else about.text)


def _first(block: Block, report: Report) -> Fraction | None:
    scalar = block.one("init")
    value = None if scalar is None else read_literal(scalar, report)
    if scalar is not None and (isinstance(value, str) or value in (inf, -inf)):
        message = f"`{shorten(scalar.text)}` is not a finite number"
        report.error("not-a-constant", message, scalar.span, help="write a number within `range`")
    return value if isinstance(value, Fraction) else None


def _by(name: str, block: Block, columns: Mapping[str, Column], damaged: set[str], report: Report) -> str | None:
    """The column that has the keys of a state; None if there is none or it is wrong."""
    scalar = block.one("by")
    if scalar is None or scalar.text in damaged:
        return None
    column = columns.get(scalar.text)
    if column is None:
        help = did_you_mean(scalar.text, columns, f"declare it: `{scalar.text}: {{id: true, level: group}}`")
        report.error("unknown-name", f"no signal is named `{shorten(scalar.text)}`", scalar.span, help=help)
    elif column.level is not Level.GROUP:
        report.error(
            "wrong-level",
            f"`{name}` needs one key per group, and `{column.name}` is one value per {column.level}",
            scalar.span,
            labels=(Label(column.span, "the signal"),),
            help="declare the signal with `level: group`",
        )
    elif not column.domain.nominal:
        report.error(
            "not-an-id",
            f"the keys of `{name}` are ids or names, and the values of `{column.name}` are numbers",
            scalar.span,
            labels=(Label(column.span, "the signal"),),
            help=f"declare it as `{column.name}: {{id: true, level: group}}`",
        )
    else:
        return column.name
    return None


def _most(block: Block, report: Report) -> int | None:
    scalar = block.one("most")
    if scalar is None:
        return DEFAULT_MOST
    value = read_literal(scalar, report)
    if isinstance(value, Fraction) and value.denominator == 1 and 1 <= value <= MOST_KEYS:
        return int(value)
    if value is not None:
        report.error("most", f"`most` must be a whole number from 1 to {MOST_KEYS}", scalar.span)
    return None
