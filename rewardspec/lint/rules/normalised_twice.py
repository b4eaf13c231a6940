"""A z-score of a z-score, over the same groups or twice over the batch.

A value with mean 0 and deviation 1 does not change if it is normalised again: except for eps, the second step has no
effect. If weights or another term come between the two, the second step undoes them. A sum of z-scores (`decoupled`)
is rescaled in each group, so the effect of weights and rare rewards depends on the other rewards of the group.

```yaml
components: {correct: {values: [0, 1]}, style: {range: [0, 1]}}
advantage: zscore(grpo)
```

Normalise once: `grpo`, `gdpo`, or `zscore(total, over=batch)`.

It happened in a published configuration (CoursIA#10603), where it removed the gradient, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import Graph, Node, walk
from rewardspec.ir.patterns import ZScore, match_zscore
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.summands import summands
from rewardspec.ops.domain import Level
from rewardspec.text.diagnostics import Diagnostic, Label


@finding("normalised-twice", __doc__)
def normalised_twice(facts: Facts) -> Iterator[Diagnostic]:
    graph = facts.program.graph
    for node in walk([facts.program.advantage]):
        outer = match_zscore(graph, node)
        if outer is None or outer.where is not None or outer.by is not None or outer.x.level < Level.ROLLOUT:
            continue
        if _is_normalised(graph, outer.x, outer.over):
            same = "the batch" if outer.over is Level.BATCH else "the same groups"
            yield facts.warn(
                "normalised-twice",
                f"this is already normalised over {same}",
                facts.advantage_place(),
                help="normalise once: `grpo`, or `gdpo` for one z-score per component",
            )
            return
        if outer.over is Level.BATCH and (part := _normalised_part(facts, outer.x)) is not None:
            yield facts.warn(
                "normalised-twice",
                f"`{part}` is normalised over the batch twice: alone and in the sum",
                facts.component_place(part),
                labels=(Label(facts.advantage_place(), "normalised again here"),),
                help="normalise once: whiten the sum of the measured values, or each reward separately",
            )
            return


def _normalised_part(facts: Facts, whole: Node) -> str | None:
    """A component of a weighted sum that is normalised over the batch, if another component is not."""
    summed = summands(whole, set(facts.shaped.values()))
    matched = {name: match_zscore(facts.program.graph, node) for name, node in facts.shaped.items() if node in summed}
    found = {
        n: z is not None and z.over is Level.BATCH and z.where is None and z.by is None for n, z in matched.items()
    }
    return next((name for name in found if found[name]), None) if not all(found.values()) else None


def _is_normalised(graph: Graph, node: Node, over: Level) -> bool:
    """Whether a node is computed only from z-scores over `over`: scaled, shifted, summed, whitened over the batch."""
    return _is_normalised_at(node.level, graph, node, over)


def _is_normalised_at(level: Level, graph: Graph, node: Node, over: Level) -> bool:
    """As `_is_normalised`, of z-scores of this level: one of rollouts is none of their items."""
    found: ZScore | None = match_zscore(graph, node)
    if found is not None and found.where is None and found.by is None and found.x.level >= Level.ROLLOUT:
        whitened = found.over is Level.BATCH and _is_normalised_at(level, graph, found.x, over)
        return found.x.level is level and (found.over is over or whitened)
    inner = [a for a in node.args if a.level >= Level.ROLLOUT and a.constant is None]
    match node.op:
        case "*" | "/" | "spread" | "neg" | "+" | "-" | "sum_components":
            if any(a.level is not Level.BATCH for a in node.args if a not in inner and a.constant is None):
                return False
            if len(inner) > 1 and (node.op in ("*", "/") or over is Level.BATCH):
                return False
            return bool(inner) and all(_is_normalised_at(level, graph, a, over) for a in inner)
    return False
