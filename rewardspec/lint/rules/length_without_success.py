"""A length reward that also counts for wrong answers.

A component depends on the length of the response and counts whether or not the answer is right. A short (or long)
answer is easier than a right one, so the policy learns it first, and produces short wrong answers.

```yaml
signals: {tokens: {range: [0, .inf]}}
components:
  correct: {values: [0, 1]}
  length: tokens <= 4000
advantage: gdpo
```

Write `length: {expr: tokens <= 4000, when: correct >= 1}`. A lower weight does not help; a gate does: GDPO
(arXiv:2601.05242), Sec. 4.2.

It happened in open-r1#360, prime-rl#3376 and NVlabs/GDPO#10.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import walk
from rewardspec.lint.facts import NO_OUTCOME, Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.rewarded import also_rewarded_when_wrong, gate_help
from rewardspec.lint.words import words_of
from rewardspec.text.diagnostics import Diagnostic

_LENGTHS = {"length", "lengths", "len", "truncated", "truncation", "overlong"}
_COUNTED = {"token", "tokens", "word", "words", "char", "chars", "character", "characters"}
_OF_SOME_KIND = {"bad", "banned", "stop", "special", "forbidden", "repeated", "foreign", "unknown"}


@finding("length-without-success", __doc__)
def length_without_success(facts: Facts) -> Iterator[Diagnostic]:
    outcome = facts.outcome
    if outcome is None:
        read = {n.attributes[0] for n in walk(facts.shaped.values()) if n.op == "column"}
        if len(read) > 1 and any(_is_length(facts, column) for column in read):
            facts.not_checked("length-without-success", NO_OUTCOME)
        return
    for name in also_rewarded_when_wrong(facts, outcome):
        reads = {n.attributes[0] for n in walk([facts.shaped[name]]) if n.op == "column"}
        if any(_is_length(facts, column) for column in reads):
            yield facts.warn(
                "length-without-success",
                f"`{name}` rewards wrong answers for their length",
                facts.component_place(name),
                help=gate_help(facts, name, outcome),
            )


def _is_length(facts: Facts, column: str) -> bool:
    """Whether the name of a column says that it is a length, or that a limit on it was exceeded."""
    words = words_of(column)
    if column in facts.declared.states or facts.declared.columns[column].domain.ids:
        return False
    values = facts.declared.columns[column].domain.values
    counts = words & _COUNTED and not words & _OF_SOME_KIND and (values is None or len(values) > 2)
    return bool(counts or words & _LENGTHS)
