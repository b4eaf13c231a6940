"""The text of a spec file to its declarations; all mistakes are reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from rewardspec.language.columns import (
    has_function,
    is_expression,
    read_column,
    read_function,
    tokens_column,
)
from rewardspec.language.components import read_allow, read_component
from rewardspec.language.declarations import (
    MOST_COMPONENTS,
    Column,
    Component,
    Declarations,
    Use,
)
from rewardspec.language.definitions import read_definitions, set_constants
from rewardspec.language.keys import VERSION
from rewardspec.language.lists import read_lists
from rewardspec.language.names import check_name
from rewardspec.language.scalars import read_expression, read_literal
from rewardspec.language.shape import Block, read_shape
from rewardspec.language.state import read_states
from rewardspec.language.tokens import read_reward_tokens
from rewardspec.text.diagnostics import Label, Report, shorten
from rewardspec.text.source import Source


def read_declarations(source: Source, report: Report, constants: Mapping[str, str] = {}) -> Declarations | None:
    """The declarations of a spec file; None if it is not YAML (reasons in `report`).

    constants: name to the text of a number, which replaces the value under `define:`.
    """
    whole = read_shape(source, report)
    if whole is None:
        return None
    _check_version(whole, report)
    eps, ddof = read_numerics(whole, report)
    lists = read_lists(whole, report)
    columns = Columns(whole)
    _read_signals(columns, report)
    components = _read_components(columns, report)
    definitions = read_definitions(whole, report)
    set_constants(definitions, constants, report)
    damaged = columns.damaged | definitions.damaged
    states, wrong = read_states(whole, columns.known, damaged, report)
    damaged |= wrong
    for section in ("signals", "components"):
        block = whole.block(section)
        damaged |= {name for name in block.keys if name not in block}
    _check_sections(whole, damaged, report)
    guarantees = {name: read_expression(text, report) for name, text in whole.block("guarantees").ones()}
    return Declarations(
        source,
        whole.place,
        title=_text(whole, "name"),
        about=_text(whole, "about"),
        origin=_text(whole, "source"),
        lists=lists,
        columns=columns.known,
        components=components,
        values=definitions.values,
        functions=definitions.functions,
        uses=columns.uses,
        states=states,
        outcome=read_expression(whole.one("outcome"), report),
        keep=read_expression(whole.one("keep"), report),
        refill=read_expression(whole.one("refill"), report),
        advantage=read_expression(whole.one("advantage"), report),
        guarantees={name: expr for name, expr in guarantees.items() if expr is not None},
        reward_tokens=read_reward_tokens(whole.block("condition"), report) if "condition" in whole else None,
        allow=read_allow(whole),
        eps=eps,
        ddof=ddof,
        damaged=frozenset(damaged),
    )


def read_shipped(source: Source, report: Report) -> Declarations:
    """The declarations of the prelude or a dialect: numerics, the columns that it reads, and definitions."""
    whole = read_shape(source, report)
    assert whole is not None, f"{source.name} does not read"
    eps, ddof = read_numerics(whole, report)
    columns = Columns(whole)
    for name, block in whole.block("signals").blocks():
        columns.read_signal(name, block, report)
    found = read_definitions(whole, report, is_prelude=True)
    return Declarations(
        source,
        whole.place,
        about=_text(whole, "about"),
        origin=_text(whole, "source"),
        columns=columns.known,
        values=found.values,
        functions=found.functions,
        eps=eps,
        ddof=ddof,
    )


def _text(whole: Block, key: str) -> str | None:
    found = whole.one(key)
    return None if found is None else found.text


@dataclass(eq=False)
class Columns:
    """The columns of a spec so far, the functions that fill them, and the names whose declaration is wrong."""

    whole: Block
    known: dict[str, Column] = field(default_factory=dict)
    uses: dict[str, Use] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)

    def read_signal(self, name: str, block: Block, report: Report) -> None:
        use = read_function(name, block, report) if "id" not in block.place else None
        self.keep_function(name, use)
        if use is not None and is_expression(use):
            assert use.reward is not None
            help = "move it to `components:`, with `weight: 0` if it is not rewarded"
            message = f"`{use.reward.name}` is computed from other columns, so it is not a signal"
            report.error("derived-signal", message, use.span, help=help)
            use = None
        asked = use is not None or "id" in block.place or not has_function(block)
        column = read_column(name, block, report, use) if asked else None
        if column is None:
            self.damaged.add(name)
        else:
            self.known[name] = column

    def keep_function(self, name: str, use: Use | None) -> None:
        """Record the function that fills a column; for an expression, the column `tokens` that it reads."""
        if use is None:
            return
        if not is_expression(use):
            self.uses[name] = use
        elif not any("tokens" in self.whole.block(section) for section in ("signals", "components")):
            self.known.setdefault("tokens", tokens_column(use))


def _read_signals(columns: Columns, report: Report) -> None:
    for name, block in columns.whole.block("signals").blocks():
        if _usable_name(columns, name, "signals", report):
            columns.read_signal(name, block, report)


def _read_components(columns: Columns, report: Report) -> dict[str, Component]:
    found: dict[str, Component] = {}
    for name, block in columns.whole.block("components").blocks():
        if not _usable_name(columns, name, "components", report):
            continue
        if len(found) >= MOST_COMPONENTS:
            report.error("too-large", f"over {MOST_COMPONENTS} components", block.place.name)
            columns.damaged.add(name)
            continue
        read = read_component(name, block, report)
        columns.keep_function(name, read.use)
        if read.column is not None:
            columns.known[name] = read.column
        columns.damaged |= {name} if read.damaged else set()
        found[name] = read.component
    return found


def _usable_name(columns: Columns, name: str, section: str, report: Report) -> bool:
    """Whether a signal or component can have this name."""
    whole = columns.whole
    span = whole.block(section).place[name].name
    if not check_name(name, span, report):
        pass  # reported
    elif section == "components" and name in whole.block("signals"):
        report.error(
            "duplicate-name",
            f"`{name}` is both a signal and a component",
            span,
            labels=(Label(whole.block("signals").place[name].name, "the signal"),),
            help="rename one of them, or move the keys of the signal to the component",
        )
    else:
        return True
    columns.damaged.add(name)
    return False


def _check_version(whole: Block, report: Report) -> None:
    said = whole.one("rewardspec")
    if said is not None and said.text != VERSION:
        report.error(
            "version",
            f"unknown language version {shorten(said.text)}",
            said.span,
            help=f"write `rewardspec: {VERSION}`, the version that this release reads",
        )


def read_numerics(whole: Block, report: Report) -> tuple[Fraction, Fraction]:
    """`eps` and `ddof`, or their defaults."""
    found = {"eps": Declarations.eps, "ddof": Declarations.ddof}
    for name, scalar in whole.block("numerics").ones():
        value = read_literal(scalar, report)
        if isinstance(value, Fraction) and 0 <= value <= 1 and (name == "eps" or value.denominator == 1):
            found[name] = value
        elif value is not None:
            allowed = "between 0 and 1" if name == "eps" else "0 or 1: a variance is divided by the count minus `ddof`"
            report.error("numerics", f"`{name}` must be {allowed}", scalar.span)
    return found["eps"], found["ddof"]


def _check_sections(whole: Block, damaged: set[str], report: Report) -> None:
    """Report required sections that are missing, and `refill` without `keep`."""
    place = whole.place
    start = place.value.source.span(place.value.start, place.value.start + 1)
    if "components" not in place:
        report.error("no-components", "the spec has no components", start, help="add `components:` with at least one")
    elif not whole.block("components").held and not damaged:
        span = place["components"].name
        report.error("no-components", "the spec has no components", span, help="add one: `correct: {values: [0, 1]}`")
    if "refill" in place and "keep" not in place:
        report.error(
            "refill-alone",
            "`refill` has no effect without `keep`: no group is dropped",
            place["refill"].name,
            help="add `keep: var(total, ddof=0) >= 1e-6`",
        )
    if "advantage" not in place:
        report.error(
            "no-advantage",
            "the spec has no `advantage`",
            start,
            help="add `advantage: gdpo`, or another scheme",
        )
