"""`by=` a value that hardly ever repeats.

`by=` divides a group into subsets of equal values. If the value is measured on a scale, nearly every rollout is
alone in its subset. A subset of one rollout has no spread, and its rollout does not differ from the mean.

Not warned about: columns with `id: true`; votes (`count(x, by=x)`); and values with names such as problem, role or
answer, which several rollouts share.

```yaml
signals: {tokens: {range: [0, .inf]}}
components: {correct: {values: [0, 1]}}
advantage: zscore(correct, by=tokens)
```

Divide by something with few values: `by=tokens > 2000`, `by=floor(tokens / 1000)`. If the values are ids, such as the
number of an episode, declare them with `id: true`.

It follows from the formula.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.groups.parts import columns_of
from rewardspec.ir.graph import walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.words import words_of
from rewardspec.ops.domain import Level
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.diagnostics import Diagnostic

_SHARED = {"prompt", "problem", "question", "query", "task", "topic", "source", "dataset", "domain", "role", "player"}
_SHARED |= {"agent", "user", "instance", "group", "cluster", "turn", "state", "anchor", "answer", "level", "difficulty"}


@finding("by-splits-group", __doc__)
def by_splits_group(facts: Facts) -> Iterator[Diagnostic]:
    for node in walk([facts.program.advantage, *facts.shaped.values()]):
        if node.op not in REDUCTIONS or len(node.args) < 3 or node.attributes[0] is not Level.GROUP:
            continue
        by = node.args[2]
        if by.domain.ids:
            continue  # that rollouts share it is what an id is for
        if node.op in ("count", "sum", "any", "all") or any(words_of(n) & _SHARED for n in columns_of([by])):
            continue  # votes are counted, or rollouts share the value
        if by.domain.values is None and by.op in ("column", "coalesce", "required"):
            name = next((n.attributes[0] for n in walk([by]) if n.op == "column"), "this")
            yield facts.warn(
                "by-splits-group",
                f"only rollouts with exactly equal `{name}` are compared",
                facts.own_place(node),
                help=f"divide by something with few values: `by={name} > 2000` or `by=floor({name} / 1000)`",
            )
            return
