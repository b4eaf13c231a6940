"""The names that a spec gives: signals, components, state, lists."""

from __future__ import annotations

from collections.abc import Collection

from rewardspec.language.declarations import RESERVED
from rewardspec.syntax.expression import KEYWORDS, NAME
from rewardspec.text.diagnostics import Report, shorten
from rewardspec.text.source import Span


def check_name(name: str, span: Span, report: Report, reserved: Collection[str] = RESERVED) -> bool:
    """Whether a text can be a name, and is not a reserved one; reported if not."""
    if not NAME.match(name) or name in KEYWORDS:
        help = "use letters, digits and `_`, not a digit first"
        report.error("bad-name", f"`{shorten(name)}` is not a valid name", span, help=help)
    elif name in reserved:
        report.error("reserved-name", f"`{name}` is a reserved name", span, help="choose another name")
    else:
        return True
    return False
