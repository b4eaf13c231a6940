"""How many advantage groups survive a spec (GDPO, arXiv:2601.05242, Sec. 2 and Fig. 2-3).

An advantage group is the vector of advantages of one group of rollouts, their order ignored. The
step over the batch is left out, as in the paper: for any one batch it is an increasing affine map,
which changes no count.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, product
from math import comb, inf

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Graph, Node, is_elementwise, walk
from rewardspec.ir.lower import Program
from rewardspec.ir.patterns import match_zscore
from rewardspec.ops.elementwise import ELEMENTWISE
from rewardspec.ops.exact import Inexact
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.types import Domain, Level

MOST_GROUPS = 20_000  # groups that are tried for one count; beyond them as many are drawn
MOST_STATES = 4096  # of one rollout

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class Count:
    """reward_groups: distinct groups of shaped rewards; advantage_groups: of advantages.

    exact: whether these are the numbers, or only numbers that they are at least.
    """

    spec: str
    group_size: int
    reward_groups: int
    advantage_groups: int
    exact: bool

    def to_json(self) -> dict:
        return asdict(self)


def count_groups(
    program: Program, name: str, group_size: int, given: Mapping[str, Fraction] | None = None, seed: int = 0
) -> Count:
    """Distinct reward and advantage groups over every group that the declared domains allow.

    given: `step`, `total_steps` and `progress` (all 0 if not said).
    """
    given = {name: Fraction(0) for name in ("step", "total_steps", "progress")} | dict(given or {})
    root, exact = without_batch(program.graph, program.advantage)
    shaped = [component.shaped for component in program.components]
    for floats in (False, True):
        try:
            states = _states(program, root, shaped, given, floats)
            rewards, advantages = _count(root, shaped, given, states, group_size, seed, floats)
        except Inexact:
            continue  # once more, in floats
        exact = exact and states.complete and not floats and states.groups_of(group_size) <= MOST_GROUPS
        return Count(name, group_size, rewards, advantages, exact)
    raise AssertionError("floats have a value for everything")


@dataclass(frozen=True)
class _States:
    """What one rollout can be, as values of `start`, and what a group can be.

    complete: whether these are all the cases that differ.
    """

    start: tuple[Node, ...]
    rollouts: list[tuple]
    groups: list[dict]
    complete: bool

    def groups_of(self, size: int) -> int:
        """How many groups of `size` rollouts there are, up to the order of the rollouts."""
        return comb(len(self.rollouts) + size - 1, size) * len(self.groups)

    def each_group(self, size: int, seed: int) -> Iterator[tuple[tuple, dict]]:
        """All of them, or as many as are tried, drawn at random."""
        if self.groups_of(size) <= MOST_GROUPS:
            yield from (
                (members, group)
                for group in self.groups
                for members in combinations_with_replacement(self.rollouts, size)
            )
            return
        draw = random.Random(seed)
        for _ in range(MOST_GROUPS):
            yield tuple(draw.choice(self.rollouts) for _ in range(size)), draw.choice(self.groups)


def _count(
    root: Node, shaped: list[Node], given, states: _States, size: int, seed: int, floats: bool
) -> tuple[int, int]:
    advantage = GroupEvaluator(root, states.start, given, floats)
    rewards = [GroupEvaluator(node, states.start, given, floats) for node in shaped]
    advantages_seen, rewards_seen = set(), set()
    for members, group in states.each_group(size, seed):
        columns = [reward(members, group) for reward in rewards]
        rewards_seen.add(_unordered(zip(*columns, strict=True)))
        values = advantage(members, group)
        if floats:  # equal to nine digits counts as equal, so this is never too many
            values = [None if v is None else float(f"{v:.9g}") + 0.0 if abs(v) > 1e-9 else 0.0 for v in values]
        advantages_seen.add(_unordered(values))
    return len(rewards_seen), len(advantages_seen)


def _unordered(values: Iterable) -> frozenset:
    return frozenset(Counter(values).items())


def without_batch(graph: Graph, advantage: Node) -> tuple[Node, bool]:
    """The advantage less what is done to it over the batch, and whether nothing else looks at the batch."""
    root = _strip(graph, advantage, scale_only=False)
    return root, not any(_over_batch(node) for node in walk([root]))


def _over_batch(node: Node) -> bool:
    if node.op in REDUCTIONS:
        return node.attributes[0] is Level.BATCH
    return node.op == "copies" or (node.op == "given" and node.attributes[0] == "batch_size")


def _of_batch(node: Node) -> bool:
    """One value for the batch that depends on its data."""
    return node.level is Level.BATCH and any(_over_batch(n) for n in walk([node]))


def _strip(graph: Graph, node: Node, scale_only: bool) -> Node:
    """`node` without increasing affine steps that are the same for the whole batch.

    scale_only: a shift must stay, because 0 stands beside this value.
    """
    found = match_zscore(graph, node)
    whole = found and found.over is Level.BATCH and not found.by and found.where is None
    if whole and not found.x.domain.missing and (found.centered or not scale_only):
        return _strip(graph, found.x, scale_only)
    match node.op, node.args:
        case "if", (condition, then, otherwise) if otherwise.constant == 0 and _of_batch(condition):
            return _strip(graph, then, scale_only)  # a batch without any spread is left out
        case "if", (condition, then, otherwise) if otherwise.constant == 0 and condition.level is Level.GROUP:
            return graph.if_(condition, _strip(graph, then, scale_only=True), otherwise)
        case "/", (x, divisor) if _of_batch(divisor) and divisor.domain.lo >= 0:
            return _strip(graph, x, scale_only)
        case "-", (x, shift) if _of_batch(shift) and not scale_only:
            return _strip(graph, x, scale_only)
    return node


# States of a rollout -----------------------------------------------------------------------------


def _states(program: Program, root: Node, shaped: list[Node], given, floats: bool) -> _States:
    nodes = walk([root, *shaped])
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for arg in node.args:
            users.setdefault(arg, []).append(node)
    complete = True
    fine: dict[Node, list] = {}
    coarse: dict[str, list] = {}
    for node in (n for n in nodes if n.op == "column"):
        column = program.columns[node.attributes[0]]
        points, all_cases = _points(node, column.domain, users)
        if column.missing == "ignore":
            points = [*points, None]
        complete = complete and all_cases
        if node.level is Level.ROLLOUT:
            fine[node] = points
        else:
            coarse[column.name] = points
    own = _of_rollout(nodes)
    start = tuple(n for n in nodes if n in own and n.op != "const" and _is_boundary(n, own, users, [root, *shaped]))
    columns = _product(fine)
    if len(columns) > MOST_STATES:
        columns, complete = random.Random(0).sample(columns, MOST_STATES), False
    evaluators = [GroupEvaluator(node, tuple(fine), given, floats) for node in start]
    raw = [tuple(float(v) if floats and v is not None else v for v in state.values()) for state in columns]
    rollouts = [tuple(e([state], {})[0] for e in evaluators) for state in raw]
    return _States(start, list(dict.fromkeys(rollouts)), _product(coarse), complete)


def _of_rollout(nodes: list[Node]) -> set[Node]:
    """Nodes whose value a rollout's own columns decide."""
    own: set[Node] = set()
    for node in nodes:
        alone = node.op in ("const", "missing") or (
            node.op == "given" and node.level is Level.BATCH and not _over_batch(node)
        )
        column = node.op == "column" and node.level is Level.ROLLOUT
        if alone or column or ((is_elementwise(node) or node.op == "required") and all(a in own for a in node.args)):
            own.add(node)
    return own


def _is_boundary(node: Node, own: set[Node], users: dict[Node, list[Node]], roots: list[Node]) -> bool:
    return node.level is Level.ROLLOUT and (node in roots or any(u not in own for u in users.get(node, [])))


def _product(columns: dict) -> list[dict]:
    count = 1
    for points in columns.values():
        count *= len(points)
    if count > 16 * MOST_STATES:
        draw = random.Random(0)
        return [{name: draw.choice(points) for name, points in columns.items()} for _ in range(4 * MOST_STATES)]
    return [dict(zip(columns, state, strict=True)) for state in product(*columns.values())]


def _points(node: Node, domain: Domain, users: dict[Node, list[Node]]) -> tuple[list[Fraction], bool]:
    """Values of a column that stand for all of them, and whether they do.

    An interval that is only ever compared with constants falls into the pieces between them.
    """
    if domain.values is not None:
        return list(domain.values), True
    cuts: set[Fraction] = set()
    complete = True
    for user in users.get(node, []):
        other = [a for a in user.args if a is not node]
        if user.op in _COMPARISONS and len(other) == 1 and other[0].constant is not None:
            cuts.add(other[0].constant)
        else:
            complete = False
    cuts = {c for c in cuts if domain.lo <= c <= domain.hi}
    ends = [e for e in (domain.lo, domain.hi) if abs(e) != inf]
    marks = sorted({*cuts, *ends})
    if not marks:
        marks = [Fraction(0)]
    between = [(a + b) / 2 for a, b in pairwise(marks)]
    if domain.lo == -inf:
        between.append(marks[0] - 1)
    if domain.hi == inf:
        between.append(marks[-1] + 1)
    points = sorted({*marks, *between})
    if complete:
        points = _one_a_piece(points, [u for u in users.get(node, [])], node)
    return points, complete


def _one_a_piece(points: list[Fraction], comparisons: list[Node], node: Node) -> list[Fraction]:
    """The points, less those that no comparison tells from one before."""
    seen: dict[tuple, Fraction] = {}
    for point in points:
        key = tuple(ELEMENTWISE[c.op].exact(*(point if a is node else a.constant for a in c.args)) for c in comparisons)
        seen.setdefault(key, point)
    return list(seen.values())
