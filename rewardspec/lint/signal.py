"""Signal: what normalisation does to it, and whom it rewards."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb

from rewardspec.ir.graph import Graph, Node, walk
from rewardspec.ir.patterns import ZScore, match_zscore
from rewardspec.lint.finding import MOST_LOOKED_AT, NOT_EXACT, Facts, finding
from rewardspec.ops.domain import Level
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.diagnostics import Diagnostic, Label
from rewardspec.text.numbers import format_number

MOST_COUNTED = 2000  # groups, over all moments and all values of columns of the group


@finding("normalised-twice")
def normalised_twice(facts: Facts) -> Iterator[Diagnostic]:
    """A z-score of a z-score, over the same groups or twice over the batch.

    What has mean 0 and deviation 1 is not changed by being normalised again: the second step does
    nothing, but for eps. Where weights or another term stand between the two, they are what it undoes. It happened in a
    shipped configuration (CoursIA#10603), where it took the gradient along. A sum of z-scores (`decoupled`) is scaled
    anew in every group, so that what weights and rare rewards are worth depends on what else the group has.

    ```yaml
    components: {correct: {values: [0, 1]}, style: {range: [0, 1]}}
    advantage: zscore(grpo)
    ```

    Normalise once: `grpo`, `gdpo`, or `zscore(total, over=batch)`.
    """
    graph = facts.program.graph
    for node in walk([facts.program.advantage]):
        outer = match_zscore(graph, node)
        if outer is None or outer.where is not None or outer.by is not None or outer.x.level is not Level.ROLLOUT:
            continue
        if _is_normalised(graph, outer.x, outer.over):
            same = "the batch" if outer.over is Level.BATCH else "the same groups"
            yield facts.warn(
                "normalised-twice",
                f"what is normalised here has been normalised over {same} before",
                facts.advantage_place(),
                help="once is enough: `grpo`, or `gdpo` for one z-score a component",
            )
            return
        if outer.over is Level.BATCH and (part := _normalised_part(facts, outer.x)) is not None:
            yield facts.warn(
                "normalised-twice",
                f"`{part}` is normalised over the batch by itself, and again with the rest",
                facts.component_place(part),
                labels=(Label(facts.advantage_place(), "over the batch again"),),
                help="once is enough: sum what was measured and whiten that, or normalise each reward by itself",
            )
            return


def _normalised_part(facts: Facts, whole: Node) -> str | None:
    """A component, normalised over the batch, of a weighted sum in which another one is not."""
    summands = _summands(whole, set(facts.shaped.values()))
    matched = {name: match_zscore(facts.program.graph, node) for name, node in facts.shaped.items() if node in summands}
    found = {
        n: z is not None and z.over is Level.BATCH and z.where is None and z.by is None for n, z in matched.items()
    }
    return next((name for name in found if found[name]), None) if not all(found.values()) else None


def _is_normalised(graph: Graph, node: Node, over: Level) -> bool:
    """Whether a node is made of z-scores over the same rollouts: scaled, shifted, added up, whitened over the batch."""
    found: ZScore | None = match_zscore(graph, node)
    if found is not None and found.where is None and found.by is None and found.x.level is Level.ROLLOUT:
        return found.over is over or (found.over is Level.BATCH and _is_normalised(graph, found.x, over))
    inner = [a for a in node.args if a.level is Level.ROLLOUT and a.constant is None]
    match node.op:
        case "*" | "/" | "spread" | "neg" | "+" | "-" | "sum_components":
            if any(a.level is not Level.BATCH for a in node.args if a not in inner and a.constant is None):
                return False
            if len(inner) > 1 and (node.op in ("*", "/") or over is Level.BATCH):
                return False
            return bool(inner) and all(_is_normalised(graph, a, over) for a in inner)
    return False


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
    question = facts.question
    if (
        question.intervals
        or not _normalises_a_sum(facts)
        or _is_ordered_bonus(facts)
        or facts.depends_on_batch("sum-merges-groups")
    ):
        return
    size = next((n for n in (3, 2) if _count(facts, n) <= MOST_LOOKED_AT), None)
    if size is None:
        facts.leave_out("sum-merges-groups", f"there are over {MOST_LOOKED_AT} groups of 2")
        return
    other = _under(facts, "decoupled")
    if other is None:
        return
    kinds = [(columns, moment) for columns in _each(question.coarse) for moment in question.moments]
    looked_at = kinds[: 1 + MOST_COUNTED // _count(facts, size)]
    found = []
    for kind in looked_at:
        groups = [(members, *kind) for members in combinations_with_replacement(question.states()[0], size)]
        own = _distinct(facts.advantages(group) for group in groups)
        apart = _distinct(facts.transferred(other, group) for group in groups)
        if own is None or apart is None:
            facts.leave_out("sum-merges-groups", NOT_EXACT)
            return
        found.append((own, apart, *kind))
    own, apart, columns, moment = min(found, key=lambda f: Fraction(f[0], f[1]))
    if own < apart and own * 4 <= apart * 3:
        everywhere = question.complete and len(found) == len(kinds) and len({f[:2] for f in found}) == 1
        yield facts.warn(
            "sum-merges-groups",
            f"in groups of {size} this tells {own} advantage groups apart"
            + ("" if everywhere else _at(facts, columns, moment))
            + f"; normalised one by one the rewards give {apart}",
            facts.advantage_place(),
            help="`gdpo` normalises each reward by itself before it sums",
        )


def _is_ordered_bonus(facts: Facts) -> bool:
    """Whether all but the outcome counts with it alone and is worth less together: then the sum says what is meant."""
    outcome = facts.outcome
    if outcome is None or outcome.component is None or not outcome.is_binary:
        return False
    worth = {}
    for component in facts.program.components:
        weight, domain = component.weight.constant, component.shaped.domain
        if weight is None or not domain.bounded:
            return False
        worth[component.name] = abs(weight) * (domain.hi - domain.lo)
    others = [name for name in worth if name != outcome.component and worth[name]]
    gated = all(facts.counts_only_where(name, outcome.expr) for name in others)
    return gated and sum(worth[name] for name in others) < worth[outcome.component]


def _normalises_a_sum(facts: Facts) -> bool:
    """Whether a sum of several components is what the group is compared by, and no component is left out."""
    question = facts.question
    shaped = {c.shaped for c in question.program.components if c.weight.constant != 0}
    sums = [_summands(n.args[0], shaped) for n in walk([question.root]) if n.op in REDUCTIONS]
    return any(len(one) > 1 for one in sums) and set().union(*sums) == shaped


def _summands(node: Node, shaped: set[Node]) -> set[Node]:
    """The components that a node is a weighted sum of."""
    if node in shaped:
        return {node}
    match node.op:
        case "sum_components" | "+" | "-" | "neg" | "spread" | "required" | "*" | "/":
            inner = [a for a in node.args if a.level is Level.ROLLOUT or node.op in ("spread", "required")]
            if len(inner) > 1 and node.op in "*/":
                return set()
        case "coalesce":
            inner = [node.args[0]]
        case "if" if node.args[2].constant is not None or node.args[2].op == "missing":
            inner = [node.args[1]]
        case _:
            return set()
    return {found for a in inner for found in _summands(a, shaped)}


def _count(facts: Facts, size: int) -> int:
    states, complete = facts.question.states()
    return comb(len(states) + size - 1, size) if complete else MOST_LOOKED_AT + 1


def _each(points: dict[str, list]) -> Iterator[dict]:
    for values in product(*points.values()):
        yield dict(zip(points, values, strict=True))


def _at(facts: Facts, columns: dict, moment: dict) -> str:
    """The kind of group, and the moment, that a count is of: ` where `d` is 2, at step 30`."""
    nodes = {n.attributes[0]: n for n in walk(facts.question.nodes) if n.op == "column"}
    where = []
    for name, value in columns.items():
        symbols = nodes[name].domain.symbols
        shown = "missing" if value is None else symbols[int(value)] if symbols else format_number(value)
        where.append(f"`{name}` is {shown}")
    read = {n.attributes[0] for n in walk(facts.question.nodes) if n.op == "given"}
    when = [f"{name} {format_number(value)}" for name, value in moment.items() if name in read]
    found = ["where " + " and ".join(where)] if where else []
    found += ["at " + ", ".join(when)] if when else []
    return " " + ", ".join(found) if found else ""


def _under(facts: Facts, scheme: str) -> Facts | None:
    from rewardspec.spec import check

    constants = {}
    other, _ = check(facts.spec.source, constants, scheme)
    return None if other is None else Facts(other)


def _distinct(all_advantages: Iterator[list | None]) -> int | None:
    """How many advantage groups can be told apart; None where some have no exact value."""
    found = set()
    for advantages in all_advantages:
        if advantages is None:
            return None
        found.add(frozenset((v, advantages.count(v)) for v in advantages))
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
    for group, advantages in facts.looked_at("phantom-gradient"):
        if len(set(advantages)) > 1 and _is_all_wrong(facts, group):
            outcome = facts.outcome
            failed = f"`{outcome.condition}` holds for none"
            if outcome.is_binary:
                failed = f"every `{outcome.component}` is {format_number(facts.shaped[outcome.component].domain.lo)}"
            yield facts.warn(
                "phantom-gradient",
                f"groups in which {failed} still have a gradient: {facts.table(group, advantages)}",
                facts.advantage_place(),
                help=f"{facts.gate_rest_help}, or leave such groups out: "
                + (f"`keep: {outcome.any}`" if facts.program.keep is None else f"`and {outcome.any}` in `keep`"),
            )
            return


def _is_all_wrong(facts: Facts, group: tuple) -> bool:
    """Whether all rollouts are wrong, and alike in all that says so and in all penalties."""
    right = facts.right_in(group)
    if right is None or any(r is not False for r in right):
        return False
    truth = facts.question.program.outcome
    reads = {n for n in walk([truth.holds, truth.fails]) if n.op == "column"}
    if any(len({row[at] for row in group[0]}) > 1 for at, n in enumerate(facts.question.fine) if n in reads):
        return False
    penalties = [name for name in facts.shaped if not facts.pays(name)]
    return all((values := facts.shaped_in(name, group)) is not None and len(set(values)) == 1 for name in penalties)


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
        help=(
            f"gate what is paid besides `{outcome.shown}`, or lower its weight"
            if any(name not in outcome.reads for name in facts.paid_where_wrong)
            else "take less off right answers"
        )
        + (outcome.how != "guarantee") * f"; `{outcome.guarantee}` is a guarantee that `verify` can prove",
    )
