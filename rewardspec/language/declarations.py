"""A document's words read: columns with their domains, definitions, components as expressions.

Component sections come down to expressions of the core language here (`desugar`): what `scale`,
`when` or `stages` mean is written in the language itself, with its functions and the prelude's.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Map
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf

from rewardspec.language.document import VERSION, Component, Document, Measured, read_document
from rewardspec.language.scalars import constant, read_expression, read_literal
from rewardspec.language.uses import Use, as_expression, read_use
from rewardspec.ops.domain import MOST_VALUES, Domain, Level, finite, interval, symbolic
from rewardspec.ops.functions import FUNCTIONS
from rewardspec.syntax.expression import KEYWORDS, NAME, parse_expression, parse_signature
from rewardspec.syntax.foreign import NAMES
from rewardspec.syntax.tree import Call, Expr, If, Name, Number, Operation, Signature
from rewardspec.syntax.yaml import Mapping, Node, Scalar
from rewardspec.text.diagnostics import Label, Report, did_you_mean, shorten
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Source, Span

MOST_COMPONENTS = 64
AXES = ("group", "batch", "components")
GIVEN = ("step", "total_steps", "progress", "group_size", "batch_size", "pi", "eps", "rewards", "weights", "missing")
GIVEN += ("copies",)
RESERVED = frozenset({*AXES, *GIVEN, "advantage", "raw", "ignore"})


@dataclass(frozen=True, eq=False)
class Column:
    """What is measured: a column of the rollouts."""

    name: str
    span: Span
    declared: Domain  # what a value that is measured can be
    domain: Domain  # the same, and the 0 that stands for a missing one
    domain_span: Span
    level: Level
    missing: str  # "error", "ignore" or "zero"
    clip: bool
    gated: bool = False  # a closed gate replaces a missing value, so the gate decides, not the column


@dataclass(frozen=True, eq=False)
class Definition:
    """A name or function of the prelude or of `define:`."""

    signature: Signature
    body: Expr | None  # None where it could not be read
    prelude: bool

    @property
    def name(self) -> str:
        return self.signature.name


@dataclass(frozen=True, eq=False)
class ComponentDeclaration:
    """A component: its shaped value and its weight as expressions."""

    name: str
    span: Span
    value: Expr | None
    weight: Expr | None
    when: Expr | None


@dataclass(frozen=True, eq=False)
class ConditionDeclaration:
    """Reward tokens: name to text, probability and the condition that labels a trajectory with it."""

    span: Span
    tokens: dict[str, str]
    prior: dict[str, Fraction]  # adds up to 1
    labels: dict[str, Expr]  # of all but the last token; empty where the spec says none
    template: str  # with `{prompt}` and `{token}`


@dataclass(eq=False)
class Declarations:
    """Everything a spec declares, read but not yet given meaning."""

    source: Source
    document: Document
    root: Mapping
    columns: dict[str, Column] = field(default_factory=dict)
    components: dict[str, ComponentDeclaration] = field(default_factory=dict)
    values: dict[str, Definition] = field(default_factory=dict)
    functions: dict[str, Definition] = field(default_factory=dict)
    outcome: Expr | None = None  # under which a rollout is right
    keep: Expr | None = None
    refill: Expr | None = None
    advantage: Expr | None = None
    guarantees: dict[str, Expr] = field(default_factory=dict)
    condition: ConditionDeclaration | None = None
    uses: dict[str, Use] = field(default_factory=dict)  # columns that reward functions fill
    eps: Fraction = Fraction(1, 10**6)
    ddof: Fraction = Fraction(1)
    dialect: str | None = None
    given: dict[str, Fraction] = field(default_factory=dict)  # `step` and the like, where they are known already
    damaged: set[str] = field(default_factory=set)  # names whose declaration is wrong: no more said of them


def read_declarations(source: Source, report: Report, constants: Map[str, str] = {}) -> Declarations | None:
    """The declarations of a spec file, `constants` replacing what `define:` says of their names."""
    found = read_document(source, report)
    if found is None:
        return None
    document, root = found
    declared = Declarations(source, document, root)
    if document.rewardspec.text != VERSION:
        report.error(
            "version",
            f"version {shorten(document.rewardspec.text)} of the language is not known here",
            document.rewardspec.span,
            help=f"this release reads `rewardspec: {VERSION}`",
        )
    read_numerics(declared, report)
    for name, signal in document.signals.items():
        if _usable_name(declared, name, "signals", report):
            read_signal(declared, name, signal, report)
    for name, component in document.components.items():
        if _usable_name(declared, name, "components", report):
            _read_component(declared, name, component, report)
    read_definitions(declared, report, is_prelude=False)
    _set_constants(declared, constants, report)
    for section in ("signals", "components"):
        whole = root.get(section)
        if isinstance(whole, Mapping):
            declared.damaged |= {key.text for key, _ in whole.items if key.text not in getattr(document, section)}
    _read_rest(declared, report)
    declared.condition = _read_condition(declared, report)
    return declared


# Sections ----------------------------------------------------------------------------------------


def _usable_name(declared: Declarations, name: str, section: str, report: Report) -> bool:
    key = declared.root.get(section).key(name)
    if not NAME.match(name) or name in KEYWORDS:
        message = f"`{shorten(name)}` cannot be a name"
        report.error(
            "bad-name", message, key.span, help="names are letters, digits and `_`, and do not begin with a digit"
        )
    elif name in RESERVED:
        report.error(
            "reserved-name", f"`{name}` has a meaning of its own in the language", key.span, help="choose another name"
        )
    elif section == "components" and name in declared.document.signals:
        first = declared.root.get("signals").key(name)
        report.error(
            "duplicate-name",
            f"`{name}` is a signal and a component",
            key.span,
            labels=(Label(first.span, "the signal"),),
            help="a component can be measured itself; rename one of them",
        )
    elif len(declared.components) >= MOST_COMPONENTS:
        report.error("too-large", f"over {MOST_COMPONENTS} components", key.span)
    else:
        return True
    declared.damaged.add(name)
    return False


def read_numerics(declared: Declarations, report: Report) -> None:
    numerics = declared.document.numerics
    for name, least, most in (("eps", 0, 1), ("ddof", 0, 1)):
        scalar = getattr(numerics, name)
        if scalar is None:
            continue
        value = read_literal(scalar, report)
        if isinstance(value, Fraction) and least <= value <= most and (name == "eps" or value.denominator == 1):
            setattr(declared, name, value)
        elif value is not None:
            allowed = "a number from 0 to 1" if name == "eps" else "0 or 1: the count less `ddof` divides the variance"
            report.error("numerics", f"`{name}` is {allowed}", scalar.span)


def read_signal(declared: Declarations, name: str, signal: Measured, report: Report) -> None:
    place = declared.root.get("signals")
    use = _read_use(declared, name, place, signal, report)
    if use is not None and use.reward is not None and use.reward.expression is not None:
        help = "write it under `components:`, with `weight: 0` if it is not rewarded"
        report.error("derived-signal", f"`{use.reward.name}` is worked out from other columns", use.span, help=help)
        use = None
    column = _column(name, place, signal, report, use) if use is not None or not _uses(place.get(name)) else None
    if column is None:
        declared.damaged.add(name)
    else:
        declared.columns[name] = column


def _uses(node: Node) -> bool:
    return isinstance(node, Mapping) and (node.key("use") is not None or node.key("python") is not None)


def _read_use(declared: Declarations, name: str, place: Mapping, measured: Measured, report: Report) -> Use | None:
    """The reward function of a column, kept among the declarations; None where there is none, or it is wrong."""
    node = place.get(name)
    if not _uses(node):
        if isinstance(node, Mapping) and node.key("with") is not None:
            report.error(
                "options-alone", f"`{name}` has options but no `use`", node.key("with").span, help="add `use:`"
            )
        return None
    if measured.use is None and measured.python is None:
        return None  # what stands there is no text, which has been said
    use = read_use(name, node, measured, report)
    if use is None:
        return None
    for part in ("values", "range", "level"):
        if node.key(part) is not None and (use.reward is not None or part == "level"):
            brings = f"`{name}` has its `{part}` from the reward function" if part != "level" else ""
            message = brings or "a reward function gives a value for every rollout"
            report.error("two-domains", message, node.key(part).span, help="leave it out")
            return None
    if use.reward is None or use.reward.expression is None:
        declared.uses[name] = use
    elif "tokens" not in declared.document.signals and "tokens" not in declared.document.components:
        amount = interval(Fraction(0), inf)
        tokens = Column("tokens", use.span, amount, amount, use.span, Level.ROLLOUT, "error", False)
        declared.columns.setdefault("tokens", tokens)
    return use


def _column(
    name: str, place: Mapping, measured: Measured, report: Report, use: Use | None = None, gated: bool = False
) -> Column | None:
    """The column of a signal or measured component; None where it does not say what it can be."""
    key, node = place.key(name), place.get(name)
    wrote = [part for part in ("values", "range") if isinstance(node, Mapping) and node.key(part) is not None]
    known = use is not None and use.domain is not None
    if len(wrote) == 2:
        report.error(
            "two-domains", f"`{name}` has both `values` and `range`", node.key("range").span, help="keep one of them"
        )
        return None
    if not wrote and not known:
        report.error(
            "no-domain",
            f"nothing says what `{name}` can be",
            key.span,
            help="add `values: [0, 1]`, `range: [0, .inf]`, `use:`, or, for a component, `expr:`",
        )
        return None
    if known:
        domain, span = use.domain, use.span
    else:
        domain = _values(measured, report) if wrote == ["values"] else _range(measured.range, report)
        span = node.get(wrote[0]).span
    if use is not None and use.only_when is not None and measured.missing == "error" and not gated:
        report.error(
            "missing-everywhere-else",
            f"`{name}` is measured only where this holds, and elsewhere a missing value is an error",
            use.only_when.span,
            help=f"add `missing: ignore`, or `when: {use.only_when.span.text}`",
        )
        return None
    if domain is None:
        return None
    declared = domain
    if measured.missing == "zero":
        if domain.symbols:
            report.error(
                "missing-zero", f"`{name}` holds names: no 0 can stand for a missing one", node.key("missing").span
            )
            return None
        domain = domain if 0 in domain else domain.union(finite([Fraction(0)]))
    return Column(
        name,
        key.span,
        declared,
        domain,
        span,
        Level[measured.level.upper()],
        measured.missing,
        measured.outside == "clip",
        gated and measured.missing == "error",
    )


def _values(measured: Measured, report: Report) -> Domain | None:
    if measured.values is None:
        return None
    if len(measured.values) > MOST_VALUES:
        span = measured.values[0].span.to(measured.values[-1].span)
        report.error("too-large", f"over {MOST_VALUES} values", span, help="declare a `range:`")
        return None
    literals = [read_literal(scalar, report) for scalar in measured.values]
    if any(value is None for value in literals):
        return None
    for scalar, value in zip(measured.values, literals, strict=True):
        if isinstance(value, float):
            report.error("infinite-value", "a value cannot be infinite", scalar.span, help=NAMES["inf"])
            return None
        if literals.count(value) > 1:
            report.error(
                "duplicate-value", f"`{shorten(scalar.text)}` stands twice", scalar.span, help="keep one of them"
            )
            return None
    if all(isinstance(value, str) for value in literals):
        return symbolic(tuple(literals))
    if any(isinstance(value, str) for value in literals):
        wrong = next(s for s, value in zip(measured.values, literals, strict=True) if isinstance(value, str))
        report.error(
            "mixed-values",
            "numbers and names cannot stand together",
            wrong.span,
            help=_number_instead(wrong.text) or "write numbers, or names alone",
        )
        return None
    return finite(literals)


def _number_instead(text: str) -> str | None:
    """What to write where a number is wanted, for a name that is one elsewhere."""
    if text.lower() in ("yes", "no", "true", "false", "on", "off"):
        return f"`{text}` is a name here; a truth value is written 1 or 0"
    return NAMES["inf"] if text.lower() in ("inf", "infinity") else None


def _range(pair: list[Scalar] | None, report: Report) -> Domain | None:
    if pair is None:
        return None
    ends = [read_literal(scalar, report) for scalar in pair]
    for scalar, end in zip(pair, ends, strict=True):
        if isinstance(end, str):
            report.error("not-a-constant", f"`{shorten(end)}` is not a number", scalar.span, help=_number_instead(end))
            return None
    lo, hi = ends
    if lo is None or hi is None:
        return None
    if lo >= hi:
        report.error(
            "empty-range",
            f"a range from {pair[0].text} to {pair[1].text} holds nothing" if lo > hi else "a range of one value",
            pair[0].span.to(pair[1].span),
            help=f"did you mean `[{pair[1].text}, {pair[0].text}]`?" if lo > hi else "declare `values:`",
        )
        return None
    return interval(lo, hi)


def _read_component(declared: Declarations, name: str, component: Component, report: Report) -> None:
    place = declared.root.get("components")
    key, node = place.key(name), place.get(name)
    wrote = {k.text for k, _ in node.items} if isinstance(node, Mapping) else set()
    when = read_expression(component.when, report)
    sources = [
        part
        for part in ("expr", "stages")
        if part in wrote or (part == "expr" and isinstance(node, Scalar) and node.text)
    ]
    use = _read_use(declared, name, place, component, report)
    if not sources and wrote & {"use", "python"} and use is None:
        value = None
    elif not sources and not wrote & {"values", "range", "use"}:
        value = None
        _column(name, place, component, report, use)
    elif not sources and use is not None and use.reward is not None and use.reward.expression is not None:
        value = _worked_out(name, node, use, wrote, report)
    elif not sources:
        column = _column(name, place, component, report, use, gated=component.when is not None)
        if column is not None:
            declared.columns[name] = column
        value = _measured(name, key, column, report)
    else:
        value = _derived(name, node, component, sources, wrote, report)
    if value is not None and component.scale is not None:
        value = _scaled(declared, name, value, component, node, use, report)
    elif "scale" in wrote and component.scale is None:
        value = None
    if value is not None and "when" in wrote:
        value = _gated(declared, name, value, component, when, report)
    if "otherwise" in wrote and "when" not in wrote and component.otherwise is not None:
        report.error(
            "otherwise-alone",
            f"`{name}` has `otherwise` but no `when`",
            node.key("otherwise").span,
            help="say `when:` it counts, or leave `otherwise` out",
        )
    if "squash" in wrote and "stages" not in sources:
        help = "leave it out, or write `expr: sigmoid(...)`"
        report.error("not-staged", "`squash` is for `stages`", node.key("squash").span, help=help)
    weight = read_expression(component.weight, report)
    if value is None:
        declared.damaged.add(name)
    if "weight" in wrote and weight is None:
        declared.damaged.add(name)
    elif weight is None:
        weight = Number(key.span, Fraction(1))
    declared.components[name] = ComponentDeclaration(name, key.span, value, weight, when)


def _call(function: str, *arguments: Expr) -> Call:
    span = arguments[0].span
    return Call(span, Name(span, function), arguments)


def _measured(name: str, key: Scalar, column: Column | None, report: Report) -> Expr | None:
    if column is None:
        return None
    raw = _call("raw", Name(key.span, name))
    return _call("required", raw) if column.gated else raw


def _worked_out(name: str, node: Mapping, use: Use, wrote: set[str], report: Report) -> Expr | None:
    """The value of a component whose reward function is an expression over other columns."""
    wrong = [part for part in ("missing", "outside") if part in wrote]
    for part in wrong:
        report.error(
            "not-measured",
            f"`{part}` is for what is measured; `{use.reward.name}` is worked out from `tokens`",
            node.key(part).span,
            help="say it of `tokens`, under `signals:`",
        )
    return None if wrong else as_expression(use, report)


def _derived(
    name: str, node: Node, component: Component, sources: list[str], wrote: set[str], report: Report
) -> Expr | None:
    if len(sources) == 2:
        report.error(
            "two-values", f"`{name}` has both `expr` and `stages`", node.key("stages").span, help="keep one of them"
        )
        return None
    usable = True
    measured = ("values", "level", "missing", "outside", "use", "python", "with")
    for part in measured + (() if component.scale else ("range",)):
        if part in wrote:
            help = "a derived value's domain is inferred" if part in ("values", "range") else "leave it out"
            report.error(
                "not-measured", f"`{part}` is for what is measured; `{name}` is derived", node.key(part).span, help=help
            )
            usable = False
    if sources == ["expr"]:
        expr = read_expression(component.expr, report)
        return expr if usable else None
    if component.stages is None:
        return None
    if not component.stages:
        report.error("no-stages", f"`{name}` has an empty list of stages", node.key("stages").span)
        return None
    terms: list[Expr] = []
    passed: list[Expr] = []
    for i, stage in enumerate(component.stages):
        add, gate = read_expression(stage.add, report), read_expression(stage.when, report)
        if add is None or (stage.when is not None and gate is None):
            usable = False
            continue
        if i and component.squash:
            add = _call(component.squash, add)
        passed += [gate] if gate is not None else []
        if passed:
            gates = passed[0] if len(passed) == 1 else Operation(passed[-1].span, "and", tuple(passed))
            add = If(add.span, gates, add, Number(add.span, Fraction(0)))
        terms.append(add)
    if not usable:
        return None
    return terms[0] if len(terms) == 1 else Operation(terms[0].span.to(terms[-1].span), "+", tuple(terms))


def _scaled(
    declared: Declarations,
    name: str,
    value: Expr,
    component: Component,
    node: Mapping,
    use: Use | None,
    report: Report,
) -> Expr | None:
    span = node.key("scale").span
    low, high = (read_expression(scalar, report) for scalar in component.scale)
    column = declared.columns.get(name)
    silent = Report() if column else report  # what is wrong with a column's own domain has been said
    if use is not None and use.domain is not None:
        domain = use.domain
    else:
        domain = _values(component, silent) if component.values is not None else _range(component.range, silent)
    if low is None or high is None or (domain is None and component.range is not None):
        return None
    if domain is None or not domain.bounded or domain.symbols:
        report.error(
            "scale-without-range",
            f"nothing bounds `{name}`, so `scale` has nothing to map from",
            span,
            help="give it a `range:` with two finite ends",
        )
        return None
    if domain.lo == domain.hi:
        report.error("scale-without-range", f"`{name}` has one value only, so `scale` has nothing to map from", span)
        return None
    ends = [Number(span, Fraction(end)) for end in (domain.lo, domain.hi)]
    return _call("rescale", value, *ends, low, high)


def _gated(
    declared: Declarations, name: str, value: Expr, component: Component, when: Expr | None, report: Report
) -> Expr | None:
    if when is None:
        return None
    if component.otherwise is None:
        otherwise: Expr | None = Number(when.span, Fraction(0))
    elif component.otherwise.text == "ignore":
        otherwise = Name(component.otherwise.span, "missing")
    else:
        otherwise = read_expression(component.otherwise, report)
    return None if otherwise is None else If(value.span, when, value, otherwise)


def read_definitions(declared: Declarations, report: Report, is_prelude: bool) -> None:
    place = declared.root.get("define")
    for text, scalar in declared.document.define.items():
        key = place.key(text)
        piece = key.slice()
        offset = piece[1] if piece else key.span.start
        at: Callable[[int, int], Span] = lambda start, end, o=offset: key.span.source.span(o + start, o + end)  # noqa: B023, E731
        signature = parse_signature(text, at, report)
        if signature is None:
            if NAME.match(text.partition("(")[0]):
                declared.damaged.add(text.partition("(")[0])
            continue
        holder = declared.values if signature.parameters is None else declared.functions
        name = signature.name
        if not is_prelude and not _definable(declared, signature, report):
            continue
        if name in holder:
            first = holder[name].signature.span
            report.error("duplicate-name", f"`{name}` is defined twice", key.span, labels=(Label(first, "first here"),))
            continue
        body = read_expression(scalar, report)
        holder[name] = Definition(signature, body, is_prelude)


def _definable(declared: Declarations, signature: Signature, report: Report) -> bool:
    name = signature.name
    if signature.parameters is None and (name in declared.document.signals or name in declared.document.components):
        section = "signals" if name in declared.document.signals else "components"
        first = declared.root.get(section).key(name)
        report.error(
            "duplicate-name",
            f"`{name}` is defined, and also stands under `{section}`",
            signature.span,
            labels=(Label(first.span, "here"),),
            help="rename one of them",
        )
        return False
    if (name in RESERVED and signature.parameters is None) or (signature.parameters is not None and name in FUNCTIONS):
        report.error(
            "reserved-name",
            f"`{name}` has a meaning of its own in the language",
            signature.span,
            help="choose another name",
        )
        declared.damaged.add(name)
        return False
    for parameter, _ in signature.parameters or ():
        if parameter in RESERVED:
            report.error(
                "reserved-name", f"`{parameter}` cannot be a parameter: it has a meaning of its own", signature.span
            )
            return False
    return True


def _set_constants(declared: Declarations, constants: Map[str, str], report: Report) -> None:
    for name, text in constants.items():
        source = Source(f"--set {name}", text)
        expr = parse_expression(text, source.span, report)
        old = declared.values.get(name)
        if old is None:
            report.error(
                "unknown-constant",
                f"`{shorten(name)}` is not defined in the spec, so it cannot be set",
                source.span(0, len(text)),
                help=did_you_mean(name, declared.values, "constants are set under `define:`"),
            )
        elif expr is not None and constant(expr) is None:
            report.error("not-a-constant", f"`{shorten(text)}` is not a number", source.span(0, len(text)))
        elif expr is not None:
            declared.values[name] = Definition(old.signature, expr, False)


def _read_rest(declared: Declarations, report: Report) -> None:
    document, root = declared.document, declared.root
    start = root.span.source.span(root.span.start, root.span.start + 1)
    if not document.components and root.key("components") is None:
        report.error("no-components", "the spec rewards nothing", start, help="add `components:`, at least one")
    elif not document.components and not declared.damaged:
        report.error("no-components", "the spec rewards nothing", root.key("components").span, help="add a component")
    declared.outcome = read_expression(document.outcome, report)
    declared.keep = read_expression(document.keep, report)
    declared.refill = read_expression(document.refill, report)
    if root.key("refill") is not None and root.key("keep") is None:
        report.error(
            "refill-alone",
            "nothing leaves the batch, so there is no place to fill",
            root.key("refill").span,
            help="say which groups stay: `keep: var(total, ddof=0) >= 1e-6`",
        )
    declared.advantage = read_expression(document.advantage, report)
    if root.key("advantage") is None:
        report.error(
            "no-advantage",
            "the spec does not say how rewards become advantages",
            start,
            help="add `advantage: gdpo`, or another scheme",
        )
    for name, scalar in document.guarantees.items():
        expr = read_expression(scalar, report)
        if expr is not None:
            declared.guarantees[name] = expr


def _read_condition(declared: Declarations, report: Report) -> ConditionDeclaration | None:
    section, place = declared.document.condition, declared.root.get("condition")
    if section is None:
        return None
    names, last = list(section.tokens), next(reversed(section.tokens), None)
    parts = {part: place.get(part) for part in ("tokens", "prior", "label")}
    if len(names) < 2:
        report.error(
            "too-few-tokens",
            "to tell rollouts apart there have to be two tokens at least",
            place.key("tokens").span,
            help="write `tokens: {high: <|high_reward|>, low: <|low_reward|>}`",
        )
    for name, text in section.tokens.items():
        if not NAME.match(name) or name in KEYWORDS:
            report.error("bad-name", f"`{shorten(name)}` cannot be a name", parts["tokens"].key(name).span)
        twin = next(n for n, other in section.tokens.items() if other.text == text.text)
        if not text.text or twin != name:
            message = f"`{name}` and `{twin}` are the same text" if text.text else f"`{name}` has no text"
            report.error("duplicate-token", message, text.span if text.text else parts["tokens"].key(name).span)
    for part in ("prior", "label"):
        for name in getattr(section, part):
            if name not in names:
                span = parts[part].key(name).span
                report.error(
                    "unknown-token", f"there is no token `{shorten(name)}`", span, help=did_you_mean(name, names)
                )
        missing = [name for name in names[:-1] if name not in getattr(section, part)]
        if missing and (part == "prior" or section.label):
            report.error(
                "missing-token",
                f"`{part}` does not mention `{missing[0]}`",
                place.key(part).span,
                help=f"only the last token, `{last}`, can be left out: it has the rest",
            )
    if last in section.label:
        span = parts["label"].key(last).span
        report.error(
            "rest", f"`{last}` is the last token: it is given where no other label holds", span, help="leave it out"
        )
    prior = _read_prior(section.prior, names, place, report)
    labels = {name: read_expression(scalar, report) for name, scalar in section.label.items()}
    template = section.template.text
    if template.count("{token}") != 1 or template.count("{prompt}") > 1:
        report.error(
            "template",
            "`{token}` has to stand in the template once, and `{prompt}` once at most",
            section.template.span,
            help='write `template: "[Reward Goal: {token}]"`',
        )
    template = template if "{prompt}" in template else "{prompt}\n" + template
    tokens = {name: text.text for name, text in section.tokens.items()}
    labels = {name: expr for name, expr in labels.items() if expr is not None}
    return ConditionDeclaration(place.span, tokens, prior, labels, template)


def _read_prior(section: dict[str, Scalar], names: list[str], place: Mapping, report: Report) -> dict[str, Fraction]:
    """The probability of every token, the last one's worked out where it is left to."""
    prior = {}
    for name, scalar in section.items():
        value = read_literal(scalar, report)
        if isinstance(value, Fraction) and 0 <= value <= 1:
            prior[name] = value
        elif value is not None:
            report.error(
                "not-a-probability",
                f"`{shorten(scalar.text)}` is no probability",
                scalar.span,
                help="write a number from 0 to 1",
            )
    whole = sum(prior.values())
    if len(prior) == len(section) and (whole > 1 or (len(prior) == len(names) and whole != 1)):
        spans = [scalar.span for scalar in section.values()]
        report.error(
            "not-a-probability",
            f"these add up to {format_number(whole)}",
            spans[0].to(spans[-1]),
            help="all of them together are 1",
        )
    return {name: prior.get(name, 1 - whole) for name in names}
