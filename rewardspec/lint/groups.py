"""Groups: what a policy's groups are left with, at sizes that the caller names."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from math import prod

from rewardspec.groups.parts import columns_of, connected, independent_terms
from rewardspec.groups.points import PolicyModel, column_points, users_of
from rewardspec.groups.states import States, find_states, is_boundary, of_rollout
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.finding import NO_LENGTH, NO_OUTCOME, NOT_EXACT, OF_BATCH, Facts, finding
from rewardspec.lint.outcome import Outcome, words_of
from rewardspec.lint.weights import scattered
from rewardspec.lower.lower import Program
from rewardspec.ops.domain import Level
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.diagnostics import Diagnostic, Label

MOSTLY = 0.5  # of groups without gradient
SIZES = (4, 8, 16, 32)  # of groups that a spread is looked for in
MOST_ROLLOUTS = 64  # of a group that is counted
MOST_CASES = 3000  # values of columns that are looked through for what one rollout can be
MOST_VALUES = 2_000_000  # of nodes, in all groups that are tried
NEVER = 1e-6
_SHARED = {"prompt", "problem", "question", "query", "task", "topic", "source", "dataset", "domain", "role", "player"}
_SHARED |= {"agent", "user", "instance", "group", "cluster", "turn", "state", "anchor", "answer", "level", "difficulty"}


@finding("dead-groups")
def dead_groups(facts: Facts) -> Iterator[Diagnostic]:
    """Most groups have no gradient at the success rate that is stated.

    Where all rollouts of a prompt succeed or all fail, advantages are 0 and the prompt is paid for without being
    learnt from. With a success rate p and groups of G this happens to p^G + (1 - p)^G of the groups of a lone binary
    reward: 66% at p = 0.05 and G = 8. Asked for with `rewardspec check SPEC --p correct=0.05 -g 8`; values for which
    no rate is given are taken to come up equally often. trl#3857, ROLL#397 and gem#113 are runs at loss 0.

    ```yaml
    components: {correct: {values: [0, 1]}}
    advantage: grpo
    ```

    Take larger groups, easier prompts or partial credit (`values: [0, 0.5, 1]`); draw the groups that have a gradient
    again (`keep:` and `refill:`). `rewardspec simulate SPEC --p correct=0.05 -g 8,16,32` shows how far each helps.
    """
    if not facts.run.rates or facts.depends_on_batch("dead-groups"):
        return
    if facts.question.step == "shift":
        facts.leave_out("dead-groups", OF_BATCH)
        return
    from rewardspec.groups.rates import policy

    model = policy(facts.program, facts.run.rates)
    facts = facts.with_eps if facts.divides_by_eps else facts
    read = {n.attributes[0] for n in walk([facts.question.root]) if n.op == "given"}
    if "total_steps" in read and facts.run.total_steps is None:
        facts.leave_out("dead-groups", NO_LENGTH)
        return
    for size, share, is_all in _dead_shares(facts, model):
        if not share > MOSTLY:
            continue
        rates = ", ".join(f"{name}={float(rate):g}" for name, rate in facts.run.rates.items())
        larger = ",".join(str(n) for n in (size, 2 * size, 4 * size) if n <= MOST_ROLLOUTS)
        places = [facts.component_place(name) for name in facts.run.rates if name in facts.shaped]
        many = f"{share:.0%}" if is_all else f"at least {int(100 * share)}%"
        start = " at the first step" if read & {"step", "progress"} else ""
        yield facts.warn(
            "dead-groups",
            f"{many} of groups of {size} have no gradient{start} under {rates}",
            facts.advantage_place(),
            labels=tuple(Label(place, "succeeds that often") for place in places),
            help="larger groups, easier prompts or partial credit leave fewer; "
            f"`rewardspec simulate SPEC --p {rates.replace(' ', '')} -g {larger}` shows how many",
        )


def _dead_shares(facts: Facts, model: PolicyModel) -> Iterator[tuple[int, float, bool]]:
    """(group size, share of groups in which every advantage is 0, whether that is all of them), of the first step.

    Where there are many groups only those of rollouts that are alike are looked at: then the share is at least this.
    """
    program, root = facts.question.program, facts.question.root
    total = Fraction(facts.run.total_steps or 1)
    moment = {"step": Fraction(0), "total_steps": total, "progress": Fraction(0)}
    if _joint_cases(program, root) > MOST_CASES:
        facts.leave_out("dead-groups", f"there are over {MOST_CASES} kinds of rollouts; `simulate --p` counts them")
        return
    states = find_states(program, [root], moment, model=model)
    if not states.complete:
        facts.leave_out("dead-groups", "there are too many kinds of rollouts; `simulate --p` draws some")
        return
    left = MOST_VALUES // len(walk([root]))  # rollouts
    evaluate = GroupEvaluator(root, states.start, moment)
    for size in facts.run.sizes:
        is_all = 3 * states.count(size) * size <= left
        groups = list(states.each_group(size, states.count(size)) if is_all else _alike_groups(states, size))
        left -= len(groups) * size
        if left < 0:
            facts.leave_out("dead-groups", f"there are too many groups of {size}; `simulate --p` draws some")
            return
        if sum(mass for *_, mass in groups) > MOSTLY:
            dead = (mass for members, columns, mass in groups if all(v == 0 for v in evaluate(members, columns)))
            yield size, sum(dead), is_all


def _alike_groups(states: States, size: int) -> Iterator[tuple[tuple, dict, float]]:
    """Groups of one rollout `size` times, and how often they come up."""
    for columns, odds in states.groups:
        for row, mass in states.rollouts.items():
            if mass**size > NEVER:
                yield (row,) * size, columns, odds * mass**size


def _joint_cases(program: Program, root: Node) -> int:
    """How many values of columns have to be looked through to find what one rollout can be."""
    nodes = walk([root])
    points, _, complete = column_points(program, [root])
    own, users = of_rollout(nodes), users_of(nodes)
    start = [n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, [root])]
    cases = 0 if complete else MOST_CASES + 1
    for members in connected(start):
        terms = [[t] for t in independent_terms(program.graph, members[0])] if len(members) == 1 else [members]
        for term in terms:
            cases += prod(len(points[n]) for n in walk(term) if n in points)
    return cases


@finding("keep-never-holds")
def keep_never_holds(facts: Facts) -> Iterator[Diagnostic]:
    """A `keep` that no group satisfies.

    Groups that `keep` leaves out have advantage 0, and the declared domains allow no group that it keeps: nothing is
    ever learnt, and the loss is 0 from the first step. It follows from the declared domains.

    ```yaml
    components: {correct: {values: [0, 1]}}
    keep: mean(correct) > 1                          # meant: mean(correct) < 1
    advantage: grpo
    ```

    Write the threshold on the scale that is declared: `keep: 0 < mean(correct) and mean(correct) < 1`.
    """
    keep = facts.program.keep
    if keep is not None and (keep.constant == 0 or keep.domain.constant == 0):
        yield facts.warn(
            "keep-never-holds",
            "no group is ever kept, so every advantage is 0",
            facts.root_node.get("keep").span,
            note="never true",
            help="write the threshold on the scale that is declared",
        )


@finding("keep-dead-groups")
def keep_dead_groups(facts: Facts) -> Iterator[Diagnostic]:
    """A `keep` that leaves out groups of wrong answers, and keeps groups of right ones that are as dead.

    Where all rollouts of a prompt succeed nothing is better than anything else, and the group has no gradient, as where
    all fail. Kept, it takes a place in the batch, dilutes what is averaged over it, and counts in statistics of the
    batch. DAPO (arXiv:2503.14476), Eq. 11, leaves out both.

    ```yaml
    components: {correct: {values: [0, 1]}}
    keep: mean(correct) > 0
    advantage: grpo
    ```

    Write `keep: 0 < mean(correct) < 1`, or `keep: var(correct, ddof=0) >= 1e-6`.
    """
    keep, outcome = facts.question.program.keep, facts.outcome
    if facts.program.keep is None or facts.program.keep.constant is not None:
        return
    if outcome is None:
        facts.leave_out("keep-dead-groups", NO_OUTCOME)
        return
    if facts.question.step == "shift" or facts.depends_on_batch("keep-dead-groups"):
        return
    kept_dead, wrong_kept = None, False
    for group, advantages in facts.each_of_some_groups():
        right, kept = facts.right_in(group), facts.values(keep, group)
        if advantages is None or right is None or kept is None or None in (*right, *advantages):
            facts.leave_out("keep-dead-groups", NOT_EXACT)
            return
        if not any(right) and kept[0] == 1:
            wrong_kept = True
        if all(right) and kept[0] == 1:
            if any(advantages):
                return  # groups of right answers are learnt from
            kept_dead = kept_dead or (group, advantages)
    if kept_dead is not None and not wrong_kept:
        yield facts.warn(
            "keep-dead-groups",
            f"groups in which all are right are kept, and have no gradient: {facts.table(*kept_dead)}",
            facts.root_node.get("keep").span,
            help=_keep_live(outcome),
        )


def _keep_live(outcome: Outcome) -> str:
    if outcome.is_condition:
        return f"`keep: 0 < mean({outcome.component}) < 1` leaves them out, too"
    return f"`and not all({outcome.condition})` leaves them out, too"


@finding("group-of-one")
def group_of_one(facts: Facts) -> Iterator[Diagnostic]:
    """Groups of one rollout, and an advantage that compares within groups.

    One rollout has no other to be compared with: its deviation from the mean of its group is 0, and what is done over
    the batch afterwards (`gdpo`, `batch_grpo`, `reinforce_baseline`) works on zeros. Found by
    `rewardspec check SPEC -g 1`; groups of one also come of `num_generations: 1`, of prompts that are not repeated, and
    of group ids that differ by rollout. R1-V#67 and trl#3991 are wrong group layouts.

    ```yaml
    components: {correct: {values: [0, 1]}}
    advantage: batch_grpo
    ```

    Sample several rollouts a prompt, or compare with the batch: `zscore(total, over=batch)`.
    """
    if 1 not in facts.run.sizes or facts.looks_at_batch:  # what is compared with the batch is no matter of groups
        return
    groups, _ = facts.question.groups(1, 0)
    alone = [((row,), *rest) for members, *rest in scattered(facts) for row in members]
    found = [facts.advantages(group) for group in [*groups, *alone]]
    if all(values == [0] for values in found):
        yield facts.warn(
            "group-of-one",
            "in groups of one no rollout has an advantage",
            facts.advantage_place(),
            note="compares within groups",
            help="sample several rollouts a prompt, or compare with the batch: `zscore(total, over=batch)`",
        )


@finding("spread-always-zero")
def spread_always_zero(facts: Facts) -> Iterator[Diagnostic]:
    """Normalised within a subset in which nothing ever differs.

    `where=` leaves one rollout of a group, or only rollouts with equal values. One value, or equal ones, have no spread
    and a z-score of them is 0, always: the term is dead. It follows from the formula of the z-score, and is said where
    no group of up to 32 that was tried has a spread.

    ```yaml
    components: {correct: {values: [0, 1]}, style: {range: [0, 1]}}
    advantage: zscore(correct) + zscore(style, where=style == max(style))
    ```

    Widen the subset (`where=rank(style) > group_size / 2`), or compare it with the rest: `style - mean(style)`.
    """
    nodes = [n for n in walk([facts.question.root]) if n.op in ("std", "var") and n.args[1].constant is None]
    if not nodes or facts.depends_on_batch("spread-always-zero"):
        return
    groups = [group for some in facts.some_groups.values() for group in some]
    groups += [*_alike(facts), *(group for size in SIZES for group in scattered(facts, size))]
    for node in nodes:
        if node.args[0].level is Level.ROLLOUT and all(_is_flat(facts, node, group) for group in groups):
            yield facts.warn(
                "spread-always-zero",
                "what is normalised here never differs within its `where=`",
                facts.own_place(node),
                note="always 0",
                help="widen the subset, or compare it with the rest of the group: `x - mean(x)`",
            )
            return


@finding("by-splits-group")
def by_splits_group(facts: Facts) -> Iterator[Diagnostic]:
    """`by=` a value that hardly ever repeats.

    A group is divided by equal values. Where the value is measured on a scale nearly every rollout is a subset of
    its own, and one rollout has no spread and no deviation from its mean. Votes (`count(x, by=x)`) are counted like
    that on purpose, and values that by their name are shared (a problem, a role, an answer) are left alone. It follows
    from the formula.

    ```yaml
    signals: {tokens: {range: [0, .inf]}}
    components: {correct: {values: [0, 1]}}
    advantage: zscore(correct, by=tokens)
    ```

    Divide by something with few values: `by=tokens > 2000`, `by=floor(tokens / 1000)`.
    """
    for node in walk([facts.program.advantage, *facts.shaped.values()]):
        if node.op not in REDUCTIONS or len(node.args) < 3 or node.attributes[0] is not Level.GROUP:
            continue
        by = node.args[2]
        if node.op in ("count", "sum", "any", "all") or any(words_of(n) & _SHARED for n in columns_of([by])):
            continue  # votes are counted, or the value is one that rollouts have in common
        if by.domain.values is None and by.op in ("column", "coalesce", "required"):
            name = next((n.attributes[0] for n in walk([by]) if n.op == "column"), "this")
            yield facts.warn(
                "by-splits-group",
                f"only rollouts of exactly equal `{name}` are compared with each other",
                facts.own_place(node),
                help=f"divide by something with few values: `by={name} > 2000`, `by=floor({name} / 1000)`",
            )
            return


def _alike(facts: Facts) -> list[tuple]:
    """Larger groups of rollouts of two or four kinds."""
    states, _ = facts.question.states()
    draw = random.Random(0)
    columns = {name: points[0] for name, points in facts.question.coarse.items()}
    return [
        (tuple(draw.choices(draw.sample(states, min(kinds, len(states))), k=size)), columns, moment)
        for size in SIZES
        for kinds in (2, 4)
        for moment in facts.question.moments
    ]


def _is_flat(facts: Facts, node: Node, group: tuple) -> bool:
    values = facts.values(node, group)
    return values is not None and all(value == 0 for value in values)
