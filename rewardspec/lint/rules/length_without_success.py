"""A length reward that is paid for wrong answers.

A component looks at the length of the response and counts whether or not the answer is right. Being short (or
long) is easier than being right, so that is what is learnt first, and wrong short answers are what comes of it.
GDPO (arXiv:2601.05242), Sec. 4.2: a lower weight does not mend it; a gate does. It happened in open-r1#360,
prime-rl#3376 and NVlabs/GDPO#10.

```yaml
signals: {tokens: {range: [0, .inf]}}
components:
  correct: {values: [0, 1]}
  length: tokens <= 4000
advantage: gdpo
```

Write `length: {expr: tokens <= 4000, when: correct >= 1}`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import walk
from rewardspec.lint.facts import NO_OUTCOME, Facts
from rewardspec.lint.paid import gate_help, paid_besides
from rewardspec.lint.registry import finding
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
            facts.leave_out("length-without-success", NO_OUTCOME)
        return
    for name in paid_besides(facts, outcome):
        reads = {n.attributes[0] for n in walk([facts.shaped[name]]) if n.op == "column"}
        if any(_is_length(facts, column) for column in reads):
            yield facts.warn(
                "length-without-success",
                f"`{name}` is paid for its length whether or not `{outcome.shown}` holds",
                facts.component_place(name),
                help=gate_help(facts, name, outcome),
            )


def _is_length(facts: Facts, column: str) -> bool:
    """Whether a column is a length, or whether there was too much of it, by the words of its name."""
    words = words_of(column)
    values = facts.declared.columns[column].domain.values
    counts = words & _COUNTED and not words & _OF_SOME_KIND and (values is None or len(values) > 2)
    return bool(counts or words & _LENGTHS)
