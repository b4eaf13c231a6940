"""Components that are never read."""

from __future__ import annotations

from rewardspec.groups.parts import columns_of
from rewardspec.ir.node import Node
from rewardspec.lint.facts import Facts
from rewardspec.lower.program import Program


def unread(facts: Facts, name: str) -> bool:
    """Whether neither the advantage, `keep`, `copies` and state nor guarantees, labels and the outcome read it."""
    program = facts.program
    columns = columns_of([facts.shaped[name]])
    decides = [n for n in (program.advantage, program.keep, program.copies) if n is not None]
    read = columns_of([*decides, *stated(program), *(state.after for state in program.states.values())])
    return bool(columns) and not columns & read and bool(columns_of([program.advantage]))


def stated(program: Program) -> list[Node]:
    """What a spec states beside its results: guarantees, labels, the outcome."""
    right = [] if program.outcome is None else [program.outcome.holds, program.outcome.fails]
    return [*program.guarantees.values(), *program.labels.values(), *right]
