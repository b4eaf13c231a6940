"""The section `lists:`: what every rollout has several of."""

from __future__ import annotations

from rewardspec.language.declarations import MOST_LISTS, NO_LISTS, ItemList
from rewardspec.language.names import check_name
from rewardspec.language.shape import Block
from rewardspec.text.diagnostics import Report


def read_lists(whole: Block, report: Report) -> dict[str, ItemList]:
    """The lists of a spec by name; all mistakes are reported."""
    found: dict[str, ItemList] = {}
    for name, block in whole.block("lists").blocks():
        span = block.place.name
        if not check_name(name, span, report, reserved=()):
            continue
        if name in NO_LISTS:
            message = f"`{name}` is a level or an axis already, so no list can be named so"
            report.error("reserved-name", message, span, help="name the list after its items: `turn`, `criterion`")
        elif len(found) >= MOST_LISTS:
            report.error("too-large", f"over {MOST_LISTS} lists", span)
        else:
            found[name] = ItemList(name, block.place, block.word("ordered") == "true")
    return found
