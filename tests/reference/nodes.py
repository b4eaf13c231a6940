"""What a spec is made of once it is read: nodes, and the levels of their values."""

from dataclasses import dataclass
from fractions import Fraction

BATCH, GROUP, ROLLOUT = 0, 1, 2  # items of lists: 3, 4, ..., a level for each list, in their order
LEVELS = {"batch": BATCH, "group": GROUP, "rollout": ROLLOUT}
OF_EACH = ("rank", "std_others")  # one for each rollout, or item
OF_SEVERAL = ("+", "-", "*", "/", "**", "min", "max", "comb", "<", "<=", ">", ">=", "==", "!=", "and", "or")


class SpecError(Exception):
    """The spec is not well-formed."""


class Node:
    """An operation on nodes. level: what there is one value for."""

    def __init__(self, op, args=(), attribute=None, level=BATCH):
        self.op, self.args, self.attribute, self.level = op, args, attribute, level


@dataclass(frozen=True)
class Axis:
    name: str


@dataclass(frozen=True)
class Bundle:
    """A node for each component."""

    nodes: tuple


def finest(levels):
    """The level of an operation on values of these levels. Items of two lists never meet."""
    levels = list(levels)
    if len({level for level in levels if level > ROLLOUT}) > 1:
        raise SpecError("values of two lists")
    return max(levels)


def walk(roots):
    """Every node that these are made of."""
    seen, todo = {}, [r for r in roots if r is not None]
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            todo += node.args
    return list(seen.values())


def normalised(term):
    """Whether a value is measured against a statistic over its group or the batch: factors of such a level aside,
    and in every branch that is not one value for a whole group.
    """
    op = term.op
    if op == "reduce" and (term.attribute[1] != "rollout" or term.level < ROLLOUT):
        return True
    if op in ("column", "position", "given", "const", "missing", "symbol", "state"):
        return False
    fine = [a for a in term.args if a.level >= ROLLOUT]
    if op in ("*", "/"):
        return any(map(normalised, fine if fine else term.args))
    if op == "if":
        branches = [a for a in term.args[1:] if a.level >= ROLLOUT]
        return all(map(normalised, branches)) if branches else normalised(term.args[0])
    if op == "coalesce":
        return bool(fine) and all(map(normalised, fine))
    return any(map(normalised, term.args))


def constant_of(node):
    """The number that an expression of numbers alone is."""
    if node.op == "const":
        return node.attribute
    do = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "neg": lambda a: -a}
    do |= {"/": lambda a, b: Fraction(a) / b}
    if node.op not in do:
        raise SpecError("a constant has to be here")
    return do[node.op](*map(constant_of, node.args))
