"""Whether another declaration of a component changes any advantage."""

from __future__ import annotations

from rewardspec.groups.batch import over_batch
from rewardspec.groups.points import users_of
from rewardspec.ir.graph import Node, walk
from rewardspec.ir.patterns import match_zscore
from rewardspec.language.declarations import Component
from rewardspec.lint.eps import SMALL, outweighed_by_eps
from rewardspec.lint.facts import OF_BATCH, Facts
from rewardspec.lint.items import flat
from rewardspec.lint.scattered import scattered
from rewardspec.lower.program import Program
from rewardspec.ops.domain import Level
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import SpecError

MOST_LOWERED = 6_000  # nodes, over all variations of weights and scales


def changes_nothing(facts: Facts, name: str, changed: Component, code: str) -> str | None:
    """How it is known that another declaration of a component gives the same advantages: the end of a claim.

    "" by the graphs or by all small groups, `facts.bound` by all of these with lists; None if it does not. If neither
    proves it, and no group shows a difference, the finding `code` is noted as not checked.
    """
    every = facts.groups.all or {}
    try_groups = 3 in every and not facts.question.intervals
    if not try_groups and len(facts.question.program.graph.nodes) * len(facts.shaped) > MOST_LOWERED:
        facts.not_checked(code, f"there are too many components ({len(facts.shaped)}) to vary each")
        return None
    other = variation(facts.spec, name, changed)
    if other is None:
        return None
    theirs = Facts(other, facts.run)
    if facts.declared.eps > SMALL or any(outweighed_by_eps(of) is not None for of in (facts, theirs)):
        return None  # eps makes scales matter
    if _same_graphs(facts, theirs):
        return ""
    of_batch = facts.reads_batch or theirs.reads_batch or not (_only_divides(facts) and _only_divides(theirs))
    small = [group for groups in every.values() for group in groups] if try_groups and not of_batch else []
    moved, unknown = False, not small
    for group in [*small, *scattered(facts)]:
        a = facts.groups.values(facts.question.program.advantage, group)  # the group for the whole batch
        b = facts.groups.elsewhere(theirs.groups, group, whole=True)
        if a is None or b is None:
            unknown = True
        elif a != b:
            return None
        else:
            moved = moved or any(flat(a))
    if unknown and moved:
        facts.not_checked(
            code, OF_BATCH if of_batch else "it changed nothing in the groups that were tried, which are not all"
        )
    return facts.bound if moved and not unknown else None


def _only_divides(facts: Facts) -> bool:
    """Whether the batch is read only for a mean that is subtracted and a deviation that divides.

    Then a weight without effect in a batch of one group has no effect in any batch, unless columns of the group
    make groups differ.
    """
    order = walk([facts.question.program.advantage])
    users = users_of(order)
    queue = [n for n in order if over_batch(n)]
    if queue and facts.question.coarse:
        return False
    while queue:
        node = queue.pop()
        if over_batch(node) and (node.op not in ("std", "mean") or node.args[0].level < Level.ROLLOUT):
            return False
        for user in users.get(node, []):
            if user.op in ("spread", "required"):
                queue.append(user)
            elif not (
                (user.op == "/" and user.args[1] is node and node.op != "mean")
                or (user.op == "-" and user.args[1] is node and node.op != "std")
                or (user.op == ">" and user.args[1].constant == 0)
            ):
                return False
    return True


def _same_graphs(facts: Facts, theirs: Facts) -> bool:
    """Whether two specs are equal except for what z-scores cancel, so that all their advantages are equal."""
    numbers: dict[tuple[object, ...], int] = {}
    first, second = (_numbered(of.question.program, numbers) for of in (facts, theirs))
    return first == second


def _numbered(program: Program, numbers: dict[tuple[object, ...], int]) -> int:
    """A number for the advantage, equal for equal values. A z-score has that of its input without scale and shift."""
    own: dict[Node, int] = {}

    def number(node: Node) -> int:
        if node in own:
            return own[node]
        key: tuple[object, ...]
        z = match_zscore(program.graph, node)
        if z and z.where is None and z.by is None and z.eps is None:
            key = ("zscore", z.over, z.ddof, number(_unscaled_node(z.x, z.over)))
        else:
            key = (node.op, node.attributes, node.level, *(number(a) for a in node.args))
        own[node] = numbers.setdefault(key, len(numbers))
        return own[node]

    return number(program.advantage)


def _unscaled_node(node: Node, over: Level) -> Node:
    """`node` without positive factors and shifts that are equal over a group (or batch): a z-score cancels them."""
    while True:
        coarse = [(a.args[0] if a.op == "spread" else a).level <= over < node.level for a in node.args]
        match node.op, node.args:
            case "+" | "*", (a, b) if coarse[0] != coarse[1]:
                same, rest = (a, b) if coarse[0] else (b, a)
            case "-" | "/", (rest, same) if coarse[1] and not coarse[0]:
                pass
            case _:
                return node
        if same.domain.missing or not same.domain.bounded or (node.op in "*/" and not same.domain.lo > 0):
            return node
        node = rest


def variation(spec: Spec, name: str, changed: Component) -> Spec | None:
    """The spec with another declaration of one component; None if that has an error."""
    try:
        return spec.varied(components={**spec.declarations.components, name: changed})
    except SpecError:
        return None
