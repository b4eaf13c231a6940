"""Signal: what normalisation does to it, and whom it rewards."""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.diagnostics import Diagnostic
from rewardspec.ir.graph import Node, walk
from rewardspec.ir.patterns import ZScore, match_zscore
from rewardspec.lint.finding import Facts, finding
from rewardspec.types import Level


@finding("normalised-twice")
def normalised_twice(facts: Facts) -> Iterator[Diagnostic]:
    """A z-score of a z-score, over the same groups.

    What has mean 0 and deviation 1 in every group is not changed by being normalised again: the second step does
    nothing, but for eps. Where weights or another term stand between the two, they are what it undoes. It happened in a
    shipped configuration (CoursIA#10603), where it took the gradient along.

    ```yaml
    components: {correct: {values: [0, 1]}, style: {range: [0, 1]}}
    advantage: zscore(grpo)
    ```

    Normalise once: `grpo`, `gdpo`, or `zscore(total, over=batch)`.
    """
    graph = facts.program.graph
    for node in walk([facts.program.advantage]):
        outer = match_zscore(graph, node)
        if outer is None or outer.over is not Level.GROUP or outer.where is not None or outer.by is not None:
            continue
        if _is_normalised(facts, outer.x):
            yield facts.warn(
                "normalised-twice",
                "what is normalised here has been normalised over the same groups before",
                facts.advantage_place(),
                help="once is enough: `grpo`, or `gdpo` for one z-score a component",
            )
            return


def _is_normalised(facts: Facts, node: Node) -> bool:
    """Whether a node is a group z-score, times one number."""
    while node.op in ("*", "/", "neg", "spread"):
        inner = [a for a in node.args if a.level is Level.ROLLOUT]
        if len(inner) != 1 or any(a.level is not Level.BATCH for a in node.args if a is not inner[0]):
            return False
        (node,) = inner
    found: ZScore | None = match_zscore(facts.program.graph, node)
    return found is not None and found.over is Level.GROUP and found.where is None and found.by is None


@finding("sum-merges-groups")
def sum_merges_groups(facts: Facts) -> Iterator[Diagnostic]:
    """Summing before normalising makes different groups indistinguishable.

    Rewards are added up and the sum is normalised, so that groups whose rewards differ get one and the same advantage.
    With two binary rewards and four rollouts GRPO tells 7 groups of advantages apart, and 14 if every reward is
    normalised by itself. GDPO (arXiv:2601.05242), Sec. 2 and Fig. 2-3.

    ```yaml
    components: {correct: {values: [0, 1]}, format: {values: [0, 1]}}
    advantage: grpo
    ```

    `advantage: gdpo` keeps them apart; `rewardspec simulate SPEC -g 4 --advantage grpo --advantage gdpo` counts.
    """
    if len(facts.shaped) < 2 or facts.groups is None or 3 not in facts.groups or facts.looks_at_batch:
        return
    if facts.question.intervals:
        return
    other = _under(facts, "decoupled")
    if other is None:
        return
    own, apart = _distinct(facts, 3), _distinct(other, 3)
    if own is not None and apart is not None and own < apart and own * 4 <= apart * 3:
        yield facts.warn(
            "sum-merges-groups",
            f"in groups of 3 this tells {own} advantage groups apart; normalised one by one the rewards give {apart}",
            facts.advantage_place(),
            help="`gdpo` normalises each reward by itself before it sums",
        )


def _under(facts: Facts, scheme: str) -> Facts | None:
    from rewardspec.compiler import check

    constants = {}
    other, _ = check(facts.spec.source, constants, scheme)
    return None if other is None else Facts(other)


def _distinct(facts: Facts, size: int) -> int | None:
    groups = (facts.groups or {}).get(size)
    if groups is None:
        return None
    found = set()
    for group in groups:
        values = facts.advantages(group)
        if values is None:
            return None
        found.add(frozenset((v, values.count(v)) for v in values))
    return len(found)


@finding("phantom-gradient")
def phantom_gradient(facts: Facts) -> Iterator[Diagnostic]:
    """Groups in which every answer is wrong still have a gradient.

    Where all rollouts of a prompt fail, nothing says which way is better; yet a shaping term tells them apart, and that
    is what is learnt: to be wrong in a better format. verl-recipe#125 measured 0.04 to 0.10 with it against 0.75 with
    the term gated on the outcome.

    ```yaml
    components:
      correct: {values: [0, 1]}
      format: {values: [0, 1]}
    advantage: grpo
    ```

    Gate the other components (`when: correct >= 1`), or leave such groups out (`keep: any(correct)`). Early in training
    a format reward may be meant to teach just this: then `allow: {phantom-gradient: why}`.
    """
    outcome = facts.outcome
    for group, advantages in facts.looked_at():
        failed = facts.shaped_in(outcome, group)
        if failed is not None and not any(failed) and len(set(advantages)) > 1:
            yield facts.warn(
                "phantom-gradient",
                f"groups in which every `{outcome}` is 0 still have a gradient: {facts.table(group, advantages)}",
                facts.advantage_place(),
                help=f"gate the rest with `when: {outcome} >= 1`, or leave such groups out: `keep: any({outcome})`",
            )
            return


@finding("wrong-above-right")
def wrong_above_right(facts: Facts) -> Iterator[Diagnostic]:
    """A wrong answer can get a larger advantage than a right one.

    There is a group in which what is paid besides the outcome outweighs the outcome. That is learnt instead, as long as
    it is easier. It happened in trl#4853, open-r1#360 and prime-rl#3376.

    ```yaml
    signals: {tokens: {range: [0, .inf]}}
    components:
      correct: {values: [0, 1]}
      length: {expr: tokens <= 4000, weight: 2}
    advantage: dr_grpo
        ```

    Gate what is paid besides (`when: correct >= 1`), or keep its weights below the outcome's:
    `rewardspec verify SPEC --solve weight:length` finds how far, with
    `guarantees: {order: right_above_wrong(correct)}`.
    """
    if facts.wrong_above_right is None:
        return
    outcome, (group, advantages) = facts.outcome, facts.wrong_above_right
    yield facts.warn(
        "wrong-above-right",
        f"a wrong answer can be above a right one: {facts.table(group, advantages)}",
        facts.advantage_place(),
        help=f"gate what is paid besides `{outcome}`, or lower its weight; "
        f"`right_above_wrong({outcome})` is a guarantee that `verify` can prove",
    )
