"""Columns: the domain of a signal or measured component, and the reward function that fills it."""

from __future__ import annotations

from fractions import Fraction
from math import inf

from rewardspec.language.declarations import Column, Use
from rewardspec.language.scalars import read_literal
from rewardspec.language.shape import Block
from rewardspec.ops.domain import ID, MOST_VALUES, Domain, Level, finite, interval, symbolic
from rewardspec.syntax.foreign import NAMES
from rewardspec.syntax.yaml import Scalar
from rewardspec.text.diagnostics import Report, shorten

NOT_OF_IDS = ("values", "range", "outside", "use", "python", "with")  # keys that no id has


def has_function(block: Block) -> bool:
    """Whether a column names a reward function: `use:` or `python:`."""
    return "use" in block.place or "python" in block.place


def read_function(name: str, block: Block, report: Report) -> Use | None:
    """The reward function of a column; None if it has none or the declaration is wrong."""
    if not has_function(block):
        if "with" in block.place:
            span = block.place["with"].name
            report.error("options-alone", f"`{name}` has options but no `use`", span, help="add `use:`")
        return None
    if "use" not in block and "python" not in block:
        return None  # the value is not text: reported already
    from rewardspec.language.uses import read_use  # imports the reward functions

    use = read_use(name, block, report)
    if use is None:
        return None
    for part in ("values", "range", "level"):
        if part in block.place and (use.reward is not None or part == "level") and (part != "level" or use.of is None):
            brings = f"`{name}` gets its `{part}` from the reward function" if part != "level" else ""
            message = brings or "a reward function returns one value for each rollout"
            report.error("two-domains", message, block.place[part].name, help=f"remove `{part}`")
            return None
    return use


def is_expression(use: Use | None) -> bool:
    """Whether a reward function is an expression over columns that the trainer fills, such as `tokens`."""
    return use is not None and use.reward is not None and use.reward.expression is not None


def tokens_column(use: Use) -> Column:
    """The column `tokens` for a reward function that reads it in a spec that does not declare it."""
    amount = interval(Fraction(0), inf)
    return Column("tokens", use.span, amount, amount, use.span, Level.ROLLOUT, "error", False)


def read_column(name: str, block: Block, report: Report, use: Use | None = None, gated: bool = False) -> Column | None:
    """The column of a signal or measured component; None if its domain is missing or wrong."""
    place = block.place
    if "id" in place:
        return _read_ids(name, block, report)
    wrote = [part for part in ("values", "range") if part in place]
    brought = use.domain if use is not None else None
    if len(wrote) == 2:
        span = place["range"].name
        report.error("two-domains", f"`{name}` has both `values` and `range`", span, help="keep one of them")
        return None
    if not wrote and brought is None:
        report.error(
            "no-domain",
            f"`{name}` has no domain",
            place.name,
            help="add `values: [0, 1]`, `range: [0, .inf]`, `use:`, or, for a component, `expr:`",
        )
        return None
    missing = block.word("missing", "error")
    domain, span = brought, place.name
    if use is not None and brought is not None:
        span = use.span
    else:
        domain, span = read_domain(block, report), place[wrote[0]].value
    if use is not None and use.only_when is not None and missing == "error" and not gated:
        report.error(
            "missing-everywhere-else",
            f"`{name}` is missing where `only_when` is false, and a missing value is an error",
            use.only_when.span,
            help=f"add `missing: ignore`, or `when: {use.only_when.span.text}`",
        )
        return None
    if domain is None:
        return None
    declared = domain
    if missing == "zero":
        if domain.symbols:
            message = f"the values of `{name}` are names, so a missing one cannot be 0"
            report.error("missing-zero", message, place["missing"].name, help="write `missing: ignore`")
            return None
        domain = domain if 0 in domain else domain.union(finite([Fraction(0)]))
    level = Level(block.word("level", "rollout"))
    clip = block.word("outside", "error") == "clip"
    return Column(name, place.name, declared, domain, span, level, missing, clip, gated and missing == "error")


def _read_ids(name: str, block: Block, report: Report) -> Column | None:
    """The column of a signal with `id: true`."""
    place = block.place
    wrong = [part for part in NOT_OF_IDS if part in place]
    for part in wrong:
        domain = part in ("values", "range")
        report.error(
            "two-domains",
            f"`{name}` has both `id` and `{part}`" if domain else f"`{part}` is not for ids",
            place[part].name,
            help="keep one of them: an id can have any value" if domain else f"remove `{part}`, or `id`",
        )
    missing = block.word("missing", "error")
    if missing == "zero":
        message = f"the values of `{name}` are ids, so a missing one cannot be 0"
        report.error("missing-zero", message, place["missing"].name, help="write `missing: ignore`")
    if wrong or missing == "zero" or "id" not in block:
        return None
    level = Level(block.word("level", "rollout"))
    return Column(name, place.name, ID, ID, place["id"].name, level, missing, False)


def read_domain(block: Block, report: Report) -> Domain | None:
    """The domain under `values` or `range`; None if there is neither, or it is wrong."""
    values, ends = block.several("values"), block.several("range")
    if values is not None:
        return _values(values, report)
    return _range(ends, report) if ends is not None else None


def _values(scalars: tuple[Scalar, ...], report: Report) -> Domain | None:
    if len(scalars) > MOST_VALUES:
        span = scalars[0].span.to(scalars[-1].span)
        report.error("too-large", f"more than {MOST_VALUES} values", span, help="declare a `range:` instead")
        return None
    literals = [read_literal(scalar, report) for scalar in scalars]
    if any(value is None for value in literals):
        return None
    for scalar, value in zip(scalars, literals, strict=True):
        if isinstance(value, float):
            report.error("infinite-value", "a value cannot be infinite", scalar.span, help=NAMES["inf"])
            return None
        if literals.count(value) > 1:
            message = f"`{shorten(scalar.text)}` is listed twice"
            report.error("duplicate-value", message, scalar.span, help="keep one of them")
            return None
    names = tuple(value for value in literals if isinstance(value, str))
    if len(names) == len(literals):
        return symbolic(names)
    if names:
        wrong = next(s for s, value in zip(scalars, literals, strict=True) if isinstance(value, str))
        report.error(
            "mixed-values",
            "the list mixes numbers and names",
            wrong.span,
            help=_number_instead(wrong.text) or "write only numbers, or only names",
        )
        return None
    return finite([value for value in literals if isinstance(value, Fraction)])


def _number_instead(text: str) -> str | None:
    """The help for a name that is a number in other languages: `true`, `inf`."""
    if text.lower() in ("yes", "no", "true", "false", "on", "off"):
        return f"`{text}` is a name here: write 1 or 0"
    return NAMES["inf"] if text.lower() in ("inf", "infinity") else None


def _range(pair: tuple[Scalar, ...], report: Report) -> Domain | None:
    ends: list[Fraction | float | None] = []
    read = [read_literal(scalar, report) for scalar in pair]
    for scalar, end in zip(pair, read, strict=True):
        if isinstance(end, str):
            report.error("not-a-constant", f"`{shorten(end)}` is not a number", scalar.span, help=_number_instead(end))
            return None
        ends.append(end)
    lo, hi = ends
    if lo is None or hi is None:
        return None
    if lo >= hi:
        report.error(
            "empty-range",
            f"the range from {pair[0].text} to {pair[1].text} is empty" if lo > hi else "the range is a single value",
            pair[0].span.to(pair[1].span),
            help=f"did you mean `[{pair[1].text}, {pair[0].text}]`?" if lo > hi else "declare `values:` instead",
        )
        return None
    return interval(lo, hi)
