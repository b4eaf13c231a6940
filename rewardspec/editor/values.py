"""The level and domain of a name, as far as the spec can be read."""

from __future__ import annotations

from dataclasses import dataclass

from rewardspec.editor.document import Document
from rewardspec.ir.graph import Node, TooLarge
from rewardspec.ir.stack import deep_stack
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Bundle, Skip, Truth, Value
from rewardspec.syntax.tree import Name
from rewardspec.text.diagnostics import Report
from rewardspec.text.shown import shown


@dataclass(frozen=True)
class KnownValue:
    """What a value is: its level, its domain, and whether it is a condition or has one value for each component."""

    level: str
    domain: str
    each: tuple[tuple[str, str], ...] = ()  # of a bundle: component and domain

    def about(self) -> str:
        """One line of Markdown: `one value for each rollout, in {0, 1}`."""
        if self.each:
            inner = "; ".join(f"`{name}` in `{domain}`" for name, domain in self.each[:6])
            return f"a bundle, one value for each component: {inner}" + ("; ..." if len(self.each) > 6 else "")
        of = "the batch" if self.level == "batch" else f"each {self.level}"
        return f"one value for {of}, in `{self.domain}`"


def known_value(document: Document, name: str) -> KnownValue | None:
    """The level and domain of a name in expressions; None if it is wrong, or no value."""
    declared = document.declared
    if declared is None:
        return None
    report = Report()
    try:
        with deep_stack():
            lowering = Lowering(declared, report)
            value = lowering.value(Name(declared.place.value, name), lowering.user)
    except (Skip, TooLarge):
        return None
    return _known(value, tuple(declared.components))


def _known(value: Value, components: tuple[str, ...]) -> KnownValue | None:
    match value:
        case Node():
            return KnownValue(str(value.level), shown(str(value.domain)))
        case Truth(holds=holds):
            return KnownValue(str(holds.level), "{0, 1}")
        case Bundle(values=values):
            inner = [_known(one, ()) for one in values]
            pairs = zip(components, inner, strict=False)
            return KnownValue("", "", tuple((name, one.domain) for name, one in pairs if one is not None))
    return None
