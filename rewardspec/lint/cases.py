"""How many combinations of column values there are to try for the kinds of rollouts of a policy."""

from __future__ import annotations

from math import prod

from rewardspec.groups.blocks import blocks_of
from rewardspec.groups.parts import connected, independent_terms
from rewardspec.groups.points import column_points, users_of
from rewardspec.groups.states import is_boundary, of_rollout
from rewardspec.ir.node import Node, walk
from rewardspec.lower.program import Program

MOST_CASES = 3000  # that are tried


def joint_cases(program: Program, root: Node, items: int) -> int:
    """The number of combinations of column values that show all kinds of rollouts."""
    nodes = walk([root])
    points, _, complete = column_points(program, [root], 1)
    own, users = of_rollout(nodes), users_of(nodes)
    start = [n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, [root])]
    cases = 0 if complete else MOST_CASES + 1
    for members in connected(start):
        terms = [[t] for t in independent_terms(program.graph, members[0])] if len(members) == 1 else [members]
        for term in terms:
            cases += prod(block.count for block in blocks_of(program.graph, walk(term), points, items))
    return cases
