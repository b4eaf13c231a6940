"""Components that are never read."""

from __future__ import annotations

from rewardspec.groups.parts import columns_of
from rewardspec.lint.facts import Facts


def unread(facts: Facts, name: str) -> bool:
    """Whether neither the advantage, `keep` and `copies` nor guarantees, labels and the outcome read a component."""
    program = facts.program
    columns = columns_of([facts.shaped[name]])
    decides = [n for n in (program.advantage, program.keep, program.copies) if n is not None]
    stated = [*decides, *program.guarantees.values(), *program.labels.values()]
    stated += [] if program.outcome is None else [program.outcome.holds, program.outcome.fails]
    return bool(columns) and not columns & columns_of(stated) and bool(columns_of([program.advantage]))
