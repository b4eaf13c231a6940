"""Points: values that represent the whole domain of a column.

A column of `[0, 1]` that is only compared with 0.5 has three pieces: below, at and above 0.5. One point of each piece
is enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import inf

from rewardspec.groups.renaming import id_points
from rewardspec.ir.node import Node, walk
from rewardspec.lower.program import Program
from rewardspec.ops.domain import Domain, Level
from rewardspec.ops.operators import COMPARISONS, ELEMENTWISE

MOST_CUTS = 64  # of an interval


Point = Fraction | None  # a value of a column; None where it is missing
Odds = dict[Point, float]  # probabilities of a column's values
ITEMS = 2  # of a list at most, in the groups that are tried if nothing else is asked for


@dataclass(frozen=True)
class PolicyModel:
    """odds: by column, the probabilities of its values; of other columns all values are equally likely.

    items: the most items of a list. All lengths up to that are equally likely, and items are independent.
    """

    odds: Mapping[str, Mapping[Point, float]] = field(default_factory=dict)
    items: int = ITEMS


EVENLY = PolicyModel()  # all values of a column are equally likely


def column_points(
    program: Program, roots: Sequence[Node], size: int, model: PolicyModel = EVENLY, gaps: bool = False
) -> tuple[dict[Node, Odds], dict[str, Odds], bool]:
    """Points of each column with their probabilities: of rollouts or items by node, of groups by name.

    The third result is whether the points represent all values. size: of the largest groups, which can have as many
    different ids. gaps: also try as missing a column that may be missing while its gate is closed.
    """
    nodes = walk(roots)
    users, complete, ids = users_of(nodes), True, id_points(nodes, size, model.items).of
    fine: dict[Node, Odds] = {}
    coarse: dict[str, Odds] = {}
    for node in (n for n in nodes if n.op == "column"):
        column = program.column(node.attributes[0])
        points, all_cases = (ids[node], True) if node in ids else points_of(column.domain, node, users, node in roots)
        found: list[Point] = [*points]
        complete = complete and all_cases
        if column.missing == "ignore":
            found = [*found, None]
        elif column.gated and is_read_besides(node, users):  # it may be missing while its gate is closed
            found, complete = ([*found, None], complete) if gaps else (found, False)
        odds = model.odds.get(column.name) or {value: 1 / len(found) for value in found}
        if node.level >= Level.ROLLOUT:
            fine[node] = {value: odds.get(value, 0.0) for value in found}
        else:
            coarse[column.name] = {value: odds.get(value, 0.0) for value in found}
    return fine, coarse, complete


def points_of(
    domain: Domain, node: Node, users: Mapping[Node, Sequence[Node]], is_result: bool = False
) -> tuple[list[Fraction], bool]:
    """Points of a column, and whether they represent all of its values.

    They do for a set of values, and for an interval that is only compared with constants: one point is kept of each
    piece between these. Other intervals are cut where the column, or an affine function of it, meets a constant.
    is_result: the column itself is a result, so each of its values counts.
    """
    if domain.values is not None:
        return list(domain.values), True
    own = users.get(node, [])
    compared = all(
        user.op in COMPARISONS and all(a is node or a.constant is not None for a in user.args) for user in own
    )
    complete = compared and not is_result
    cuts = {c for c in _meetings(node, users) if domain.lo <= c <= domain.hi}
    ends = [Fraction(e) for e in (domain.lo, domain.hi) if abs(e) != inf]
    marks = sorted({*cuts, *ends})
    if not marks:
        marks = [Fraction(0)]
    between = [(a + b) / 2 for a, b in pairwise(marks)]
    if domain.lo == -inf:
        between.append(marks[0] - 1)
    if domain.hi == inf:
        between.append(marks[-1] + 1)
    points = sorted({*marks, *between})
    return (_one_a_piece(points, own, node) if complete else points), complete


def _meetings(column: Node, users: Mapping[Node, Sequence[Node]]) -> set[Fraction]:
    """Values of a column at which it, or an affine function of it, is compared with or clipped to a constant."""
    found: set[Fraction] = set()
    queue, seen = [(column, Fraction(1), Fraction(0))], {column}
    while queue and len(found) < MOST_CUTS:
        node, slope, shift = queue.pop()  # node = slope * column + shift, in this piece
        for user in users.get(node, []):
            constants = [a.constant for a in user.args if a is not node]
            value = constants[0] if len(constants) == 1 else None
            image = None
            match user.op:
                case "<" | "<=" | ">" | ">=" | "==" | "!=" | "minimum" | "maximum" if value is not None:
                    found.add((value - shift) / slope)
                    image = None if user.boolean else (slope, shift)
                case "neg":
                    image = (-slope, -shift)
                case "+" if value is not None:
                    image = (slope, shift + value)
                case "-" if value is not None:
                    image = (slope, shift - value) if user.args[0] is node else (-slope, value - shift)
                case "*" if value:
                    image = (slope * value, shift * value)
                case "/" if value and user.args[0] is node:
                    image = (slope / value, shift / value)
                case "if" if node in user.args[1:]:
                    image = (slope, shift)
                case "required" | "spread" | "coalesce":
                    image = (slope, shift)
            if image is not None and user not in seen:
                seen.add(user)
                queue.append((user, *image))
    return found


def _one_a_piece(points: list[Fraction], comparisons: Sequence[Node], node: Node) -> list[Fraction]:
    """The points, without those that every comparison treats like an earlier one."""
    seen: dict[tuple[object, ...], Fraction] = {}
    for point in points:
        key = tuple(ELEMENTWISE[c.op].exact(*(point if a is node else a.constant for a in c.args)) for c in comparisons)
        seen.setdefault(key, point)
    return list(seen.values())


def is_read_besides(column: Node, users: Mapping[Node, Sequence[Node]]) -> bool:
    """Whether a column is read anywhere else than behind its component's gate."""
    return any(user.op != "required" for user in users.get(column, []))


def users_of(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for arg in node.args:
            users.setdefault(arg, []).append(node)
    return users
