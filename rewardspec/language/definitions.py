"""Definitions: the names, constants and functions of `define:` and of the prelude."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rewardspec.language.declarations import RESERVED, Definition
from rewardspec.language.scalars import constant, read_expression
from rewardspec.language.shape import Block
from rewardspec.ops.functions import FUNCTIONS
from rewardspec.syntax.expression import NAME, parse_expression, parse_signature
from rewardspec.syntax.tree import Signature
from rewardspec.syntax.yaml import Scalar
from rewardspec.text.diagnostics import Label, Report, did_you_mean, shorten
from rewardspec.text.source import Source, Span


@dataclass(eq=False)
class Definitions:
    """The definitions of a file: `values` have no parameters; `damaged` are names whose definition is wrong."""

    values: dict[str, Definition] = field(default_factory=dict)
    functions: dict[str, Definition] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)


def read_definitions(whole: Block, report: Report, is_prelude: bool = False) -> Definitions:
    """The definitions of a file; the prelude may define any name."""
    found = Definitions()
    define = whole.block("define")
    for text, scalar in define.ones():
        key = define.keys[text]
        signature = _signature(key, report)
        if signature is None:
            if NAME.match(text.partition("(")[0]):
                found.damaged.add(text.partition("(")[0])
            continue
        name = signature.name
        holder = found.values if signature.parameters is None else found.functions
        if not is_prelude and not _definable(whole, signature, found, report):
            continue
        if name in holder:
            first = holder[name].signature.span
            report.error(
                "duplicate-name", f"`{name}` is defined twice", key.span, labels=(Label(first, "first defined here"),)
            )
            continue
        holder[name] = Definition(signature, read_expression(scalar, report), is_prelude)
    return found


def _signature(key: Scalar, report: Report) -> Signature | None:
    piece, source = key.slice(), key.span.source
    offset = piece[1] if piece else key.span.start

    def at(start: int, end: int) -> Span:
        return source.span(offset + start, offset + end)

    return parse_signature(key.text, at, report)


def _definable(whole: Block, signature: Signature, found: Definitions, report: Report) -> bool:
    name, is_value = signature.name, signature.parameters is None
    section = next((s for s in ("signals", "components") if name in whole.block(s)), None)
    if is_value and section is not None:
        report.error(
            "duplicate-name",
            f"`{name}` is both a definition and a {section.removesuffix('s')}",
            signature.span,
            labels=(Label(whole.block(section).place[name].name, f"the {section.removesuffix('s')}"),),
            help="rename one of them",
        )
        return False
    if (name in RESERVED and is_value) or (name in FUNCTIONS and not is_value):
        report.error(
            "reserved-name",
            f"`{name}` is a reserved name",
            signature.span,
            help="choose another name",
        )
        found.damaged.add(name)
        return False
    for parameter, _ in signature.parameters or ():
        if parameter in RESERVED:
            message = f"the parameter `{parameter}` is a reserved name"
            report.error("reserved-name", message, signature.span, help="choose another name")
            return False
    return True


def set_constants(found: Definitions, constants: Mapping[str, str], report: Report) -> None:
    """Replace the values of definitions by texts of numbers, as `--set` gives them."""
    for name, text in constants.items():
        source = Source(f"--set {name}", text)
        expr = parse_expression(text, source.span, report)
        old = found.values.get(name)
        if old is None:
            report.error(
                "unknown-constant",
                f"the spec does not define `{shorten(name)}`",
                source.span(0, len(text)),
                help=did_you_mean(name, found.values, "`--set` changes constants under `define:`"),
            )
        elif expr is not None and constant(expr) is None:
            report.error("not-a-constant", f"`{shorten(text)}` is not a number", source.span(0, len(text)))
        elif expr is not None:
            found.values[name] = Definition(old.signature, expr, False)
