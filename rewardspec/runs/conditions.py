"""Conditions on a replay, for `--fail-on`: the code of a remark, a severity, or a number compared with a limit."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, fields

from rewardspec.runs.audit import CODES, ERROR, WARNING
from rewardspec.runs.compare import AgainstAnother
from rewardspec.runs.health import MEANS, mean_over
from rewardspec.runs.replay import RunReplay

COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
OF_DIFFERENCE = tuple(f.name for f in fields(AgainstAnother) if f.name != "rollouts")


@dataclass(frozen=True)
class Condition:
    """A condition as it was written, and whether it holds of a replay: if so, the words that say why.

    unknown: whether a replay lacks the number that it compares, so that it neither holds nor does not.
    """

    text: str
    holds: Callable[[RunReplay], str | None]
    unknown: Callable[[RunReplay], bool] = lambda found: False


def condition_of(text: str) -> Condition:
    """`warning`, `component-dead` or `groups_without_signal > 0.5`. Raises ValueError with what can be written.

    Numbers of steps are means over the groups (or rollouts) of the run, of the first spec.
    """
    text = text.strip()
    if text in (ERROR, WARNING):
        return Condition(text, lambda found: _remarks(found, lambda r: r.severity == text or r.severity == ERROR))
    if text in CODES:
        return Condition(text, lambda found: _remarks(found, lambda r: r.code == text))
    match = re.fullmatch(r"(\w+)\s*(>=|<=|>|<)\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)", text)
    try:
        limit = float(match[3]) if match else 0.0
    except ValueError:
        match = None
    if match is None or match[1] not in (*MEANS, *OF_DIFFERENCE):
        raise ValueError(
            f"cannot read {text!r}: write a severity (error, warning), a remark ({', '.join(CODES)}), or a comparison "
            f"such as `groups_without_signal > 0.5`, of {', '.join((*MEANS, *OF_DIFFERENCE))}"
        )
    name, compare = match[1], COMPARE[match[2]]

    def holds(found: RunReplay) -> str | None:
        value = _value(found, name)
        return f"{name} is {value:.4g}" if value is not None and compare(value, limit) else None

    return Condition(text, holds, lambda found: _value(found, name) is None)


def _remarks(found: RunReplay, wanted: Callable[..., bool]) -> str | None:
    codes = dict.fromkeys(remark.code for spec in found.specs for remark in spec.audit if wanted(remark))
    return ", ".join(codes) or None


def _value(found: RunReplay, name: str) -> float | None:
    """A number of a replay; None where it is not known."""
    if name in OF_DIFFERENCE:
        return getattr(found.difference, name, None)
    return mean_over(found.specs[0].steps, name)
