"""The torch source of every kind of node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from rewardspec.emit.shapes import Shapes, Weighted
from rewardspec.emit.uses import Cancelling
from rewardspec.ir.node import Node, walk
from rewardspec.ir.patterns import Center, ZScore
from rewardspec.lower.names import PI
from rewardspec.ops.domain import Level
from rewardspec.ops.operator import CALL, Elementwise, Reduction, Scan, Structural
from rewardspec.ops.operators import COMPARISONS, REDUCTIONS, SCANS

SEGMENTED = frozenset({"mean", "sum", "count", "std", "var", "min", "max", "any", "all"})  # of items of lists
ATOM = 10  # precedence of a name or a call


class Sources:
    """The expression of each node. source: function to the text of an operand, or to the name of its line.

    `source(node, as_condition, least)` has parentheses if its precedence is below `least`.
    """

    def __init__(self, shapes: Shapes, settling: Mapping[Node, Cancelling], source: Callable[[Node, bool, int], str]):
        self.shapes, self.settling, self.source = shapes, settling, source
        self.lists: dict[Level, str] = {}  # the variables of the lists
        self.python: dict[Node, bool] = {}
        self.covering: dict[tuple[Node, Level], bool] = {}

    def number(self, node: Node, least: int = 0) -> str:
        return self.source(node, False, least)

    def compute(self, node: Node) -> tuple[str, int]:
        """The source of a value, and its precedence."""
        text, precedence = self.computed(node)
        found = self.settling.get(node)
        if found is None:
            return text, precedence
        return self.settled(node, text, *(ts for ts in (found.statistics, found.others) if ts)), ATOM

    def settled(self, node: Node, text: str, *terms: Sequence[Node]) -> str:
        """A sum, 0 where its terms cancel. terms: statistics, then the rest."""
        lists = [f"[{', '.join(self.level(t, node) for t in ts)}]" for ts in terms]
        return f"{'segment_' * node.level.listed}settled({self.frame(node.level)}, {text}, {', '.join(lists)})"

    def computed(self, node: Node) -> tuple[str, int]:
        fused = self.shapes.fused(node)
        if fused:
            return self.weighted_zscores(fused), ATOM
        found = self.shapes.zscore(node)
        if found:
            return self.zscore_call(found), ATOM
        center = self.shapes.center(node)
        if center:
            return self.center_call(node, center), ATOM
        op = node.operator
        if isinstance(op, Elementwise):
            return self.elementwise(node, op)
        if isinstance(op, Reduction):
            return self.reduction(node, op), ATOM
        if isinstance(op, Structural):
            return self.structural(node, op)
        if isinstance(op, Scan):
            gamma = [] if node.attributes[0] in (None, 1) else [f"{op.parameter}={float(node.attributes[0])!r}"]
            arguments = [self.lists[node.level], self.whole(node.args[0], node.level), *gamma]
            return f"{op.kernel}({', '.join(arguments)})", ATOM
        match node.op:
            case "const":
                value = float(node.attributes[0])
                return repr(value), ATOM if value >= 0 else 7
            case "missing":
                return 'float("nan")', ATOM
            case "column":
                return f'batch["{node.attributes[0]}"]', ATOM
            case "given":
                return self.given(node), ATOM
            case "position":
                return f"{self.lists[node.level]}.position", ATOM
        raise AssertionError(f"no source for {node!r}")

    def structural(self, node: Node, op: Structural) -> tuple[str, int]:
        args = node.args
        match node.op:
            case "spread":
                inner = self.source(args[0], node.boolean, 0)
                if node.level.listed:
                    return self.on_items(args[0], node.level, inner), ATOM
                if args[0].level is Level.GROUP:
                    return f"batch.spread({inner})", ATOM
                return (f"batch.full({inner})" if node.level is Level.ROLLOUT else f"batch.full_groups({inner})"), ATOM
            case "sum_components":
                if not any(a.domain.missing for a in args):
                    return " + ".join(self.level(a, node, least=5) for a in args), 5
                return f"add_present([{', '.join(self.level(a, node, tensor=True) for a in args)}])", ATOM
            case "required":
                text = op.torch.format(self.number(args[0]))
                return text, ATOM if text.isidentifier() else 0
            case "present":
                texts = [self.number(args[0])]
            case "coalesce":
                texts = [self.level(a, node, tensor=True) for a in args]
            case "if":
                condition, then, otherwise = args
                both = self.is_python(then) and self.is_python(otherwise)
                texts = [self.level(condition, node, as_condition=True)]
                texts += [self.tensor(then) if both else self.branch(then, node), self.branch(otherwise, node)]
            case "copies":
                texts = [self.whole(a, Level.GROUP, as_condition=i in op.conditions) for i, a in enumerate(args)]
            case _:
                raise AssertionError(f"no source for {node!r}")
        return op.torch.format(*texts), op.precedence if op.precedence < CALL else ATOM

    def level(self, node: Node, user: Node, least: int = 0, tensor: bool = False, as_condition: bool = False) -> str:
        """A node's source at the level of its user: a group's value is spread over its rollouts."""
        if user.level.listed and Level.BATCH < node.level <= Level.ROLLOUT and not self.is_python(node):
            return self.on_items(node, user.level, self.source(node, as_condition, 0))
        if node.level is Level.GROUP and user.level is Level.ROLLOUT and node.op != "const":
            return f"batch.spread({self.source(node, as_condition, 0)})"
        return self.tensor(node, least) if tensor else self.source(node, as_condition, least)

    def branch(self, node: Node, choice: Node) -> str:
        """What a choice may take, in the type of the columns: `step` is a float64, and makes those of a choice such."""
        text = self.level(node, choice)
        alone = choice.level > Level.BATCH and all(arg.level is Level.BATCH for arg in choice.args[1:])
        moments = ("step", "total_steps", "progress")
        if alone and any(n.op == "given" and n.attributes[0] in moments for n in walk([node])):
            return f"batch.number({text})"
        return text

    def frame(self, level: Level) -> str:
        """The variable of what has a value of this level: the batch, or a list."""
        return self.lists.get(level, "batch")

    def on_items(self, node: Node, level: Level, text: str) -> str:
        """A coarser node's source at the items of a list."""
        items = self.lists[level]
        if node.level is Level.BATCH or self.is_python(node):
            return f"{items}.full({text})"
        return f"{items}.spread({f'batch.spread({text})' if node.level is Level.GROUP else text})"

    def tensor(self, node: Node, least: int = 0) -> str:
        """A node's source as a tensor; a Python number is converted."""
        return f"batch.value({self.number(node)})" if self.is_python(node) else self.number(node, least)

    def is_python(self, node: Node) -> bool:
        """Whether the source of a node is a Python number, not a tensor."""
        if node.op in ("const", "missing") or (node.op == "given" and node.attributes[0] in ("eps", "pi")):
            return True
        if node not in self.python:
            self.python[node] = node.operator.arithmetic and all(self.is_python(a) for a in node.args)
        return self.python[node]

    def given(self, node: Node) -> str:
        (name,) = node.attributes
        match name:
            case "eps":
                return "EPS"
            case "pi":
                return repr(float(PI))
            case "group_size":
                return "batch.group_sizes().to(batch.dtype)"
            case "batch_size":
                return "batch.value(float(batch.n))"
        return f'batch.given("{name}", {"None" if name == "progress" else name})'

    def elementwise(self, node: Node, op: Elementwise) -> tuple[str, int]:
        if op.hides_missing and node.domain.missing:
            text = op.torch.format(*(self.level(a, node, least=op.precedence + 1, tensor=True) for a in node.args))
            gone = " | ".join(f"torch.isnan({self.level(a, node)})" for a in node.args if a.domain.missing)
            return f'torch.where({gone}, float("nan"), {text})', ATOM
        if node.op == "not" and node.args[0].op == "present":
            return f"torch.isnan({self.number(node.args[0].args[0])})", ATOM
        if op.limit:
            number = next((a for a in node.args if self.is_python(a)), None)
            other = next((a for a in node.args if a is not number), None)
            if number is not None and other is not None and not self.is_python(other):
                return op.limit.format(self.level(other, node, least=CALL), self.number(number)), ATOM
        if op.precedence == CALL:  # a function of tensors
            return op.torch.format(*(self.level(a, node, least=CALL, tensor=True) for a in node.args)), ATOM
        texts = []
        for i, arg in enumerate(node.args):
            least = op.precedence if i == 0 and op.repeats else op.precedence + 1
            text = self.level(arg, node, least=least, as_condition=i in op.conditions)
            texts.append(self.as_measured(node, i, text))
        if not op.arithmetic and all(self.is_python(a) for a in node.args):
            texts[0] = self.tensor(node.args[0])
        return op.torch.format(*texts), op.precedence

    def as_measured(self, node: Node, i: int, text: str) -> str:
        """The source of operand `i`; a constant compared with values of a column is rounded as the column."""
        value = node.args[i].constant
        if value is None or node.op not in COMPARISONS:
            return text
        column = _picked_from(node.args[1 - i])
        if column is None or column.domain.values is not None:
            return text  # computed, or snapped to declared values
        bits = abs(value.numerator).bit_length()
        odd = abs(value.numerator) >> (((value.numerator & -value.numerator).bit_length() - 1) if value else 0)
        if value.denominator & (value.denominator - 1) == 0 and odd.bit_length() <= 8 and bits < 16:
            return text  # every float type holds it
        return f'batch.rounded({text}, "{column.attributes[0]}")'

    # Reductions ----------------------------------------------------------------------------------

    def layout(self, x: Node, over: Level, by: Node | None) -> str:
        if x.level.listed:
            layout = f"{self.lists[x.level]}.in_{over}" + ("s" if over > Level.BATCH else "")
        elif over is Level.GROUP:
            layout = "batch.groups"
        else:
            layout = "batch.rollouts" if x.level is Level.ROLLOUT else "batch.among_groups"
        if by is None:
            return layout
        return f"{layout}.by({self.whole(by, x.level)})"

    def whole(self, node: Node, level: Level, as_condition: bool = False) -> str:
        """A node's source as a tensor with a value for every row of a layout."""
        text = self.source(node, as_condition, 0)
        if level.listed:
            if node.level is not level:
                return self.on_items(node, level, text)
            return text if self.covers(node, level) else f"{self.lists[level]}.full({text})"
        if node.level is Level.GROUP and level is Level.ROLLOUT:
            text = f"batch.spread({text})"
        if not self.covers(node, level):
            return f"batch.full({text})" if level is Level.ROLLOUT else f"batch.full_groups({text})"
        return text

    def covers(self, node: Node, level: Level) -> bool:
        """Whether the tensor of a node surely has an element for every row, without broadcasting."""
        if node.level < level:
            return False
        if (
            node.op in ("column", "spread", "copies", "position")
            or node.op in REDUCTIONS
            or node.op in SCANS
            or self.shapes.zscore(node)
            or self.shapes.fused(node)
        ):
            return node.op != "spread" or level.listed or node.args[0].level < Level.GROUP
        if (node, level) not in self.covering:
            found = any(a.level is node.level and self.covers(a, level) for a in node.args)
            self.covering[node, level] = found
        return self.covering[node, level]

    def mask(self, x: Node, where: Node | None) -> str | None:
        parts = []
        if where is not None and where.constant != 1:
            parts.append(self.whole(where, x.level, as_condition=True))
        if x.domain.missing:
            parts.append(f"~torch.isnan({self.whole(x, x.level)})")
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else " & ".join(f"({p})" if " " in p else p for p in parts)

    def reduction(self, node: Node, op: Reduction) -> str:
        x, where, *by = node.args
        over, parameter = node.attributes
        layout = self.layout(x, over, by[0] if by else None)
        arguments = [self.whole(x, x.level, as_condition=0 in op.conditions)]
        mask = self.mask(x, where)
        if mask:
            arguments.append(mask)
        if op.parameter == "ddof":
            arguments.append(f"ddof={int(parameter)}")
            arguments += self.summands_argument(x)
        elif op.parameter == "k":
            arguments.append(f"k={int(parameter)}")
        elif op.parameter:
            arguments.append(f"{op.parameter}={float(parameter)!r}")
        if x.level.listed and node.op in SEGMENTED:
            call = f"segment_{node.op}({', '.join([layout, *arguments])})"
        else:
            call = f"{layout}.{'map' if op.keeps_level else 'reduce'}({', '.join([op.kernel, *arguments])})"
        return f"{layout}.back({call})" if by and not op.keeps_level else call

    def zscore_call(self, found: ZScore) -> str:
        x, mask = self.whole(found.x, found.x.level), self.mask(found.x, found.where)
        options = [] if found.eps is None else [f"eps={self.number(found.eps)}"]
        if found.ddof != 1:
            options.append(f"ddof={int(found.ddof)}")
        sums = self.summands_argument(found.x)
        bounded = any(argument.startswith("bound=") for argument in sums)
        if (
            found.centered
            and bounded
            and not found.x.level.listed
            and found.over is Level.BATCH
            and not mask
            and found.by is None
        ):
            return f"whitened({', '.join(['batch', x, *options, *sums])})"
        arguments = [x, *([mask] if mask else []), *options]
        if found.centered:
            arguments.append("centered=True")
        return self.mapped("zscore", found.x, self.layout(found.x, found.over, found.by), [*arguments, *sums])

    def center_call(self, node: Node, found: Center) -> str:
        """`x - mean(x)`: where the mean is of some values only, a kernel for those and the difference for the rest."""
        x, mask = found.x, self.mask(found.x, found.where)
        arguments = [self.whole(x, x.level), *([mask] if mask else []), *self.summands_argument(x)]
        call = self.mapped("center", x, self.layout(x, found.over, found.by), arguments)
        if mask is None:
            return call
        rest = 'float("nan")'
        if found.where is not None or found.x is not node.args[0]:
            rest = " - ".join(self.level(a, node, least=6) for a in node.args)
            terms = self.shapes.summands(x)
            rest = rest if terms is None else self.settled(node, rest, terms)
        return f"torch.where({mask}, {call}, {rest})"

    def mapped(self, kernel: str, x: Node, layout: str, arguments: list[str]) -> str:
        """A kernel that gives a value for every row."""
        if x.level.listed:
            return f"segment_{kernel}({', '.join([layout, *arguments])})"
        return f"{layout}.map({', '.join([f'group_{kernel}', *arguments])})"

    def weighted_zscores(self, fused: Weighted) -> str:
        return f"weighted_zscores({self.weighted_arguments(fused)})"

    def weighted_arguments(self, fused: Weighted) -> str:
        values = ", ".join(self.whole(x, Level.ROLLOUT) for x, _ in fused.terms)
        weights = ", ".join("1.0" if w is None else self.number(w) for _, w in fused.terms)
        eps = "0.0" if fused.eps is None else self.number(fused.eps)
        ddof = "" if fused.ddof == 1 else f", ddof={int(fused.ddof)}"
        apart = _apart([x for x, _ in fused.terms])
        known = f", apart={float(apart)!r}" if apart else ""
        return f"batch, [{values}], [{weights}], eps={eps}{ddof}{known}"

    def summands_argument(self, x: Node) -> list[str]:
        """Arguments that give a kernel the magnitude of the summands of `x`."""
        fused = self.shapes.fused(x)
        if fused:
            arguments = [f"summands=lambda: largest_zscores({self.weighted_arguments(fused)})"]
            weights = [Fraction(1) if w is None else w.constant for _, w in fused.terms]
            known = [abs(w) for w in weights if w is not None]
            return arguments + ([f"bound={float(max(known))!r}"] if len(known) == len(weights) else [])
        terms = self.shapes.summands(x)
        return [] if terms is None else [f"summands=lambda: largest({', '.join(self.level(t, x) for t in terms)})"]


def _picked_from(node: Node) -> Node | None:
    """The only column among the values that a node chooses from; None if there are more, or values are computed."""
    found: set[Node] = set()
    seen, stack = {node}, [node]
    while stack:
        current = stack.pop()
        if current.op == "column":
            found.add(current)
            continue
        if current.op in ("const", "missing"):
            continue
        match current.op:
            case "if":
                parts = current.args[1:]
            case "coalesce" | "minimum" | "maximum" | "required" | "spread":
                parts = current.args
            case "min" | "max":
                parts = current.args[:1]
            case _:
                return None
        stack += [part for part in parts if part not in seen]
        seen.update(parts)
    return found.pop() if len(found) == 1 else None


def _apart(nodes: list[Node]) -> Fraction | None:
    """The least distance between two values of one node, if rounding cannot hide it; else None.

    All values must be declared ones or constants, and at most 1024 times that distance.
    """
    least, largest = [], Fraction(0)
    for node in nodes:
        column, values = _picked_from(node), node.domain.values
        if not values or column is None or column.domain.values is None:
            return None
        least += [b - a for a, b in pairwise(values)]
        largest = max(largest, *map(abs, values))
    return min(least) if least and largest <= 1024 * min(least) else None
