"""What an advantage is put together from, and what one rollout can be: the ground that counting stands on.

The advantage of a group is split into parts: terms of its outermost sum, those that read a column in
common taken together. Rollouts of different parts can be combined at will, so what is true of a sum
can be found from its parts. The graph shows this, whatever the scheme is called.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, product
from math import comb, factorial, inf, lcm, prod

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Graph, Node, is_elementwise, walk
from rewardspec.ir.patterns import match_zscore
from rewardspec.lower.lower import Program
from rewardspec.ops.domain import Domain, Level
from rewardspec.ops.effort import Allowance, spend, spent, weight
from rewardspec.ops.elementwise import ELEMENTWISE
from rewardspec.ops.real import UNKNOWN, Pool
from rewardspec.ops.reductions import REDUCTIONS

MOST_STATES = 4096  # of one rollout, in one part
MOST_TERMS = 2000  # of one sum
MOST_CUTS = 64  # of an interval
MOST_TRIED = 65_536  # states of columns that are looked through for those of one part
FEW = 32  # of anything that is looked at however dear it is
MOST_BITS = 2048  # of a denominator that sums have in common

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


# The batch ---------------------------------------------------------------------------------------


def without_batch(graph: Graph, advantage: Node) -> tuple[Node, bool]:
    """The advantage less what is done to it over the batch, and whether nothing else looks at the batch.

    What is left out is, for any one group of a batch, an increasing affine map: it changes no order and no count.
    """
    root = _strip(graph, advantage, scale_only=False)
    return root, not any(over_batch(node) for node in walk([root]))


def batch_step(graph: Graph, advantage: Node) -> str:
    """What the step over the batch that `without_batch` leaves out may do: "none", "scale" or "shift" as well."""
    node, kind = advantage, "none"
    while True:
        found = match_zscore(graph, node)
        if found and found.over is Level.BATCH and not found.by and found.where is None and not found.x.domain.missing:
            node, kind = found.x, kind if found.centered and kind == "shift" else "scale" if found.centered else "shift"
            continue
        match node.op, node.args:
            case "if", (condition, then, otherwise) if otherwise.constant == 0 and (
                _of_batch(condition) or condition.level is Level.GROUP
            ):
                node = then
            case "/", (x, divisor) if _of_batch(divisor) and divisor.domain.lo >= 0:
                node, kind = x, kind if kind == "shift" else "scale"
            case "-", (x, shift) if _of_batch(shift):
                node, kind = x, "shift"
            case "*", (x, factor) if _is_pull(factor):
                node, kind = x, kind if kind == "shift" else "scale"
            case "*", (factor, x) if _is_pull(factor):
                node, kind = x, kind if kind == "shift" else "scale"
            case _:
                return kind


def over_batch(node: Node) -> bool:
    """Whether a node looks at other groups."""
    if node.op in REDUCTIONS:
        return node.attributes[0] is Level.BATCH
    return node.op == "copies" or (node.op == "given" and node.attributes[0] == "batch_size")


def _of_batch(node: Node) -> bool:
    """One value for the batch that depends on its data."""
    return node.level is Level.BATCH and any(over_batch(n) for n in walk([node]))


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
        case "*", (x, factor) if _is_pull(factor):
            return _strip(graph, x, scale_only)
        case "*", (factor, x) if _is_pull(factor):
            return _strip(graph, x, scale_only)
    return node


def _is_pull(factor: Node) -> bool:
    """A positive factor that the rest of the batch gives a group, such as one made of `copies`."""
    return factor.level < Level.ROLLOUT and factor.domain.lo > 0 and any(over_batch(n) for n in walk([factor]))


# Parts -------------------------------------------------------------------------------------------


def split(graph: Graph, root: Node) -> list[Node]:
    """Nodes that add up to `root`, no two of which read the same column; as many as there are."""
    return _apart(graph, _terms(graph, root))


def _terms(graph: Graph, node: Node) -> list[Node]:
    """What a node is the sum of; itself where these are more than `MOST_TERMS`, as in sums of a value with itself."""
    try:
        return _some_terms(graph, node, [MOST_TERMS])
    except _TooManyTerms:
        return [node]


class _TooManyTerms(Exception):
    pass


def _some_terms(graph: Graph, node: Node, left: list[int]) -> list[Node]:
    left[0] -= 1
    if left[0] < 0:
        raise _TooManyTerms
    match node.op, node.args:
        case (("+" | "sum_components"), args) if not any(a.domain.missing for a in args):
            return [t for a in args for t in _some_terms(graph, a, left)]
        case "-", (a, b):
            return [*_some_terms(graph, a, left), *(graph.apply("neg", t) for t in _some_terms(graph, b, left))]
        case "neg", (a,):
            return [graph.apply("neg", t) for t in _some_terms(graph, a, left)]
        case "*", (a, b) if a.constant is not None or b.constant is not None:
            factor, inner = (a, b) if a.constant is not None else (b, a)
            return [graph.apply("*", factor, t) for t in _some_terms(graph, inner, left)]
        case "/", (a, b) if b.constant is not None:
            return [graph.apply("/", t, b) for t in _some_terms(graph, a, left)]
        case (("mean" | "sum"), (x, where)) if where.constant == 1 and not x.domain.missing:
            return [graph.reduce(node.op, t, where, None, *node.attributes) for t in _some_terms(graph, x, left)]
        case "spread", (x,):
            return [graph.spread(t, node.level) for t in _some_terms(graph, x, left)]
    return [node]


def _apart(graph: Graph, terms: Sequence[Node]) -> list[Node]:
    """The terms, those with a column in common added up."""
    blocks: list[tuple[set[str], list[Node]]] = []
    for term in terms:
        names, members = columns_of([term]), [term]
        rest = []
        for block in blocks:
            if block[0] & names:
                names, members = names | block[0], [*block[1], *members]
            else:
                rest.append(block)
        blocks = [*rest, (names, members)]
    if len(blocks) > 1:  # what reads no column is the same for all
        fixed = [block for block in blocks if not block[0]]
        blocks = [block for block in blocks if block[0]] or fixed[:1]
        blocks[0][1].extend(t for block in fixed for t in block[1] if block is not blocks[0])
    return [graph.sum_components(members) if len(members) > 1 else members[0] for _, members in blocks]


def columns_of(nodes: Sequence[Node]) -> set[str]:
    return {node.attributes[0] for node in walk(nodes) if node.op == "column"}


# What rollouts and groups can be -------------------------------------------------------------------


@dataclass(frozen=True)
class States:
    """What one rollout can be, as values of `start`, and what a group can be, with their probabilities.

    complete: whether these are all the cases that differ.
    """

    start: tuple[Node, ...]
    rollouts: dict[tuple, float]
    groups: list[tuple[dict, float]]
    complete: bool

    def count(self, size: int) -> int:
        """How many groups of `size` rollouts there are, up to the order of the rollouts."""
        return comb(len(self.rollouts) + size - 1, size) * len(self.groups)

    def each_group(self, size: int, most: int, seed: int = 0) -> Iterator[tuple[tuple, dict, float]]:
        """All groups with their probabilities, or `most` drawn by them: rollouts, columns of the group, mass."""
        rollouts, weights = list(self.rollouts), list(self.rollouts.values())
        if self.count(size) <= most:
            for group, odds in self.groups:
                for places in combinations_with_replacement(range(len(rollouts)), size):
                    mass = odds * factorial(size)
                    for place, n in Counter(places).items():
                        mass *= weights[place] ** n / factorial(n)
                    yield tuple(rollouts[i] for i in places), group, mass
            return
        draw = random.Random(seed)
        groups, odds = zip(*self.groups, strict=True)
        for _ in range(most):
            yield tuple(draw.choices(rollouts, weights, k=size)), draw.choices(groups, odds)[0], 1 / most


Model = Mapping[str, Mapping[Fraction | None, float]]  # column to the probabilities of its values
EVENLY: Model = {}  # each value as often as any other


def find_states(
    program: Program,
    roots: Sequence[Node],
    given: Mapping[str, Fraction],
    model: Model = EVENLY,
    start: Sequence[Node] | None = None,
    allowance: Allowance | None = None,
) -> States:
    """The states that the values of `roots` depend on.

    Nodes that one rollout's own columns decide are looked at as a whole (`start`, if not said), so that
    columns which lead to the same values are one state. model: columns that it does not mention have each
    of their values equally often. allowance: where it does not last, fewer states are looked at.
    """
    allowance = allowance or Allowance()
    nodes = walk(roots)
    points, coarse, complete = column_points(program, roots, model)
    own = of_rollout(nodes)
    if start is None:
        users = users_of(nodes)
        start = tuple(n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, roots))
    blocks = []
    for members in connected(start):
        values, all_cases = joint_values(program.graph, members, points, given, allowance)
        complete = complete and all_cases
        blocks.append((members, values))
    order = [n for members, _ in blocks for n in members]
    joint, all_cases = _product([list(values.items()) for _, values in blocks], MOST_STATES)
    groups, all_groups = _product([list(values.items()) for values in coarse.values()], MOST_STATES)
    place = [order.index(n) for n in start]
    rollouts: dict[tuple, float] = {}
    for parts, mass in joint:
        row = [v for part in parts for v in part]
        key = tuple(row[p] for p in place)
        rollouts[key] = rollouts.get(key, 0.0) + mass
    return States(
        tuple(start),
        rollouts,
        [(dict(zip(coarse, state, strict=True)), mass) for state, mass in groups],
        complete and all_cases and all_groups,
    )


def users_of(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for arg in node.args:
            users.setdefault(arg, []).append(node)
    return users


def column_points(
    program: Program, roots: Sequence[Node], model: Model = EVENLY, gaps: bool = False
) -> tuple[dict, dict, bool]:
    """Values that stand for all of each column, with probabilities: those of rollouts, by node, of groups, by name.

    The last says whether they stand for all. gaps: what a closed gate lets be missing is missing, too.
    """
    nodes = walk(roots)
    users, complete = users_of(nodes), True
    fine: dict[Node, dict] = {}
    coarse: dict[str, dict] = {}
    for node in (n for n in nodes if n.op == "column"):
        column = program.columns[node.attributes[0]]
        found, all_cases = points_of(column.domain, node, users, node in roots)
        complete = complete and all_cases
        if column.missing == "ignore":
            found = [*found, None]
        elif column.gated and is_read_besides(node, users):  # it may be missing where its gate is closed
            found, complete = ([*found, None], complete) if gaps else (found, False)
        odds = model.get(column.name) or {value: 1 / len(found) for value in found}
        if node.level is Level.ROLLOUT:
            fine[node] = {value: odds.get(value, 0.0) for value in found}
        else:
            coarse[column.name] = {value: odds.get(value, 0.0) for value in found}
    return fine, coarse, complete


def is_read_besides(column: Node, users: Mapping[Node, Sequence[Node]]) -> bool:
    """Whether a column is read elsewhere than where its component's gate asks for it."""
    return any(user.op != "required" for user in users.get(column, []))


def connected(nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    """The nodes, those with a column in common together."""
    blocks: list[tuple[set[str], tuple[Node, ...]]] = []
    for node in nodes:
        names, members = columns_of([node]), (node,)
        touching = [block for block in blocks if block[0] & names]
        for block in touching:
            names, members = names | block[0], block[1] + members
        blocks = [block for block in blocks if block not in touching] + [(names, members)]
    return [members for _, members in blocks]


def joint_values(
    graph: Graph, nodes: tuple[Node, ...], points: dict, given, allowance: Allowance | None = None
) -> tuple[dict[tuple, float], bool]:
    """The joint values that nodes of one rollout can have, with their probabilities, and whether these are all.

    It takes two thirds of what is left of the allowance at most: where that does not last, a few are drawn.
    """
    allowance = allowance or Allowance()
    if len(nodes) == 1:
        terms = _apart(graph, _terms(graph, nodes[0]))
        if len(terms) > 1:  # a sum of what is independent: only its value matters, not how it came about
            return _sums(graph, terms, points, given, allowance)
    columns = [n for n in walk(nodes) if n.op == "column"]
    choices = [list(points[c].items()) for c in columns]
    complete = prod(map(len, choices)) <= MOST_TRIED
    rows, _ = _product(choices, MOST_TRIED if complete else MOST_STATES)
    evaluators = [GroupEvaluator(node, columns, given) for node in nodes]
    found, own = {}, allowance.part()
    for tried, (row, mass) in enumerate(rows):
        if own.is_spent and tried >= FEW:
            found = {}
            for row, mass in _drawn(choices, max(FEW, tried // 4)):
                _add_value(found, evaluators, row, mass)
            return found, False
        complete = _add_value(found, evaluators, row, mass) and complete
    return found, complete


def _add_value(found: dict[tuple, float], evaluators: Sequence[GroupEvaluator], row: tuple, mass: float) -> bool:
    """Add what a rollout's columns lead to; whether it could be told."""
    key = tuple(e.pool.known(e.values([row], {})[0]) for e in evaluators)
    if any(v is UNKNOWN for v in key):
        return False
    found[key] = found.get(key, 0.0) + mass
    return True


def _sums(
    graph: Graph, terms: list[Node], points: dict, given, allowance: Allowance
) -> tuple[dict[tuple, float], bool]:
    """The values of a sum of terms that are independent of each other. Dear ones are followed in part."""
    found = [joint_values(graph, (term,), points, given, allowance) for term in terms]
    choices = [[(value, mass) for (value,), mass in values.items()] for values, _ in found]
    complete, own = all(all_cases for _, all_cases in found), allowance.part()
    scale = _common_denominator([value for values in choices for value, _ in values])
    if scale:  # whole numbers are added much faster
        choices = [[(int(value * scale), mass) for value, mass in values] for values in choices]
    sums: dict = {0 if scale else Fraction(0): 1.0}
    most, cost = MOST_TRIED, 0.4 if scale else 4.0  # cost: of one addition
    for at, values in enumerate(choices):
        fits = max(FEW, int(own.left / (len(choices) - at) / (cost * max(1, len(values)))))
        if len(sums) > min(most, fits):
            kept = random.Random(0).sample(list(sums), min(MOST_STATES, fits))
            sums, complete, most = {value: sums[value] for value in kept}, False, MOST_STATES
        grown, pool, before = {}, Pool(), spent()
        for a, p in sums.items():
            for b, q in values:
                value = a + b if scale else pool.known(a + b)
                grown[value] = grown.get(value, 0.0) + p * q
                if not scale:
                    spend(4 * weight(value))
        if scale:
            spend(int(cost * len(sums) * len(values)))
        else:
            cost = max(cost, (spent() - before) / max(1, len(sums) * len(values)))
        sums = grown
    if len(sums) > MOST_TRIED:
        kept = random.Random(0).sample(list(sums), MOST_STATES)
        sums, complete = {value: sums[value] for value in kept}, False
    return {(Fraction(value, scale) if scale else value,): mass for value, mass in sums.items()}, complete


def _common_denominator(values: Sequence) -> int:
    """What makes all of them whole; 0 where they are no fractions, or it is large."""
    scale = 1
    for value in values:
        if not isinstance(value, Fraction):
            return 0
        scale = lcm(scale, value.denominator)
        if scale.bit_length() > MOST_BITS:
            return 0
    return scale


def of_rollout(nodes: Sequence[Node]) -> set[Node]:
    """Nodes whose value a rollout's own columns decide."""
    own: set[Node] = set()
    for node in nodes:
        alone = node.op in ("const", "missing") or (
            node.op == "given" and node.level is Level.BATCH and not over_batch(node)
        )
        column = node.op == "column" and node.level is Level.ROLLOUT
        if alone or column or ((is_elementwise(node) or node.op == "required") and all(a in own for a in node.args)):
            own.add(node)
    return own


def is_boundary(node: Node, own: set[Node], users: dict[Node, list[Node]], roots: Sequence[Node]) -> bool:
    return node.level is Level.ROLLOUT and (node in roots or any(u not in own for u in users.get(node, [])))


def _product(parts: Sequence[Sequence[tuple]], most: int) -> tuple[list[tuple[tuple, float]], bool]:
    """Every combination of (value, probability) pairs, or `most` drawn by them; and whether these are all."""
    count = 1
    for pairs in parts:
        count *= len(pairs)
    if count <= most:
        return [(tuple(v for v, _ in row), prod(p for _, p in row)) for row in product(*parts)], True
    return _drawn(parts, most), False


def _drawn(parts: Sequence[Sequence[tuple]], most: int) -> list[tuple[tuple, float]]:
    """`most` combinations of (value, probability) pairs, drawn by the probabilities."""
    draw = random.Random(0)
    columns = [list(zip(*pairs, strict=True)) for pairs in parts]
    rows = Counter(tuple(draw.choices(values, odds)[0] for values, odds in columns) for _ in range(most))
    return [(row, n / most) for row, n in rows.items()]


def points_of(
    domain: Domain, node: Node, users: Mapping[Node, Sequence[Node]], is_result: bool = False
) -> tuple[list[Fraction], bool]:
    """Values of a column that stand for all of them, and whether they do.

    An interval that is only ever compared with constants falls into the pieces between them. Others are
    cut where something changes: where they, or what is affine in them, meet a constant.
    is_result: whether its values themselves are asked for.
    """
    if domain.values is not None:
        return list(domain.values), True
    own = users.get(node, [])
    compared = all(
        user.op in _COMPARISONS and all(a is node or a.constant is not None for a in user.args) for user in own
    )
    complete = compared and not is_result
    cuts = {c for c in _meetings(node, users) if domain.lo <= c <= domain.hi}
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
    return (_one_a_piece(points, own, node) if complete else points), complete


def _meetings(column: Node, users: Mapping[Node, Sequence[Node]]) -> set[Fraction]:
    """Where a column, or a value that follows it affinely, is compared with a constant or held by one."""
    found: set[Fraction] = set()
    queue, seen = [(column, Fraction(1), Fraction(0))], {column}
    while queue and len(found) < MOST_CUTS:
        node, slope, shift = queue.pop()  # node = slope * column + shift, in the piece that is looked at
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
    """The points, less those that no comparison tells from one before."""
    seen: dict[tuple, Fraction] = {}
    for point in points:
        key = tuple(ELEMENTWISE[c.op].exact(*(point if a is node else a.constant for a in c.args)) for c in comparisons)
        seen.setdefault(key, point)
    return list(seen.values())
