"""Lines of a function, one for each value, under its name in the spec; a value used once is inlined."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Sequence

from rewardspec.emit.runtime_source import support_names
from rewardspec.emit.shapes import Key, Shapes
from rewardspec.emit.sources import ATOM, Sources
from rewardspec.emit.uses import Uses
from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level

_OWN_NAMES = {
    "batch",
    "columns",
    "groups",
    "step",
    "total_steps",
    "seed",
    "lengths",
    "shares",
    "rewarded",
    "advantages",
}
_OWN_NAMES |= {"torch", "math", "EPS", "COLUMNS"}

WIDEST = 100  # of a line with inlined values, about


class Lines:
    """The lines of one function, and the name of each value."""

    def __init__(self, graph: Graph, names: frozenset[str] = frozenset()) -> None:
        self.graph = graph
        shapes = Shapes(graph)
        self.uses = Uses(shapes)
        self.sources = Sources(shapes, self.uses.settling, self.source)
        self.lines: list[str] = []
        self.indent = "    "
        self.emitted: dict[Key, tuple[str, int]] = {}  # source and its precedence
        self.taken = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *support_names(), *_OWN_NAMES, *names}

    def name_lists(self, levels: Sequence[Level]) -> None:
        """Begin with a variable for each list."""
        for level in levels:
            name = level.name if level.name not in self.taken else f"{level.name}_"
            while name in self.taken:
                name += "_"
            self.taken.add(name)
            self.sources.lists[level] = name
            self.add(f"{name} = batch.lists[{level.name!r}]")

    def add(self, text: str) -> None:
        self.lines += wrapped(f"{self.indent}{text}")

    def start(self, roots: Sequence[Key]) -> None:
        """Begin lines for these roots: a value that they use twice gets a name."""
        self.uses.count_from(list(roots))

    def take(self) -> list[str]:
        """Remove and return the lines so far."""
        lines, self.lines = self.lines, []
        return lines

    def number(self, node: Node, least: int = 0) -> str:
        return self.source(node, False, least)

    def condition(self, node: Node, least: int = 0) -> str:
        return self.source(node, True, least)

    def source(self, node: Node, as_condition: bool, least: int) -> str:
        key = (node, as_condition)
        if key not in self.emitted:
            for other in self.pending(key):  # operands first, without recursion
                self.emitted[other] = self.made(other)
        text, precedence = self.emitted[key]
        return f"({text})" if precedence < least else text

    def pending(self, key: Key) -> list[Key]:
        order, seen, stack = [], {key}, [(key, iter(self.uses.needs(key)))]
        while stack:
            current, rest = stack[-1]
            for other in rest:
                if other not in seen and other not in self.emitted:
                    seen.add(other)
                    stack.append((other, iter(self.uses.needs(other))))
                    break
            else:
                stack.pop()
                order.append(current)
        return order

    def made(self, key: Key) -> tuple[str, int]:
        """The source of a value, or the name of the line that computes it."""
        node, as_condition = key
        if node.boolean and not as_condition:
            text, precedence = f"batch.number({self.condition(node)})", ATOM
        elif as_condition and node.constant is not None:
            return str(node.constant == 1), ATOM
        elif as_condition and not node.boolean:
            text, precedence = f"{self.number(node, 2)} == 1.0", 1
        else:
            text, precedence = self.sources.compute(node)
        named = (
            node in self.graph.names
            and node.op != "given"
            and node.level is not Level.BATCH
            and as_condition == node.boolean
        )
        if as_condition and (node, False) in self.uses.count:
            named = False
        named = named or (node in self.graph.names and node.boolean and not as_condition)
        once = self.uses.count.get(key, 0) < 2 or (precedence == ATOM and text.isidentifier() and not named)
        if self.sources.is_python(node) and node.op != "neg" and len(text) < 30:
            return text, precedence
        if once and not named and len(text) + len(self.indent) < WIDEST * 0.7:
            return text, precedence
        name = self.fresh(node, as_condition)
        if name == text:
            return name, ATOM
        self.add(f"{name} = {text}")
        return name, ATOM

    def fresh(self, node: Node, as_condition: bool) -> str:
        """A new variable name: the name in the spec, or one from the operator."""
        base = self.graph.names.get(node)
        if base is None:
            inner = next((self.graph.names[a] for a in walk([node])[::-1] if a in self.graph.names), "value")
            base = node.attributes[0] if node.op in ("given", "column") else f"{node.operator.word or node.op}_{inner}"
        if as_condition and (node, False) in self.uses.count:
            base += "_holds"
        base = (
            "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in base)[:40].lstrip("0123456789")
            or "value"
        )
        name, n = base if base not in self.taken else base + "_", 2
        while name in self.taken:
            name, n = f"{base}_{n}", n + 1
        self.taken.add(name)
        return name


def wrapped(line: str) -> list[str]:
    """The line; if it is too wide, with the arguments of its last bracket on separate lines."""
    if len(line) <= WIDEST or line[-1] not in ")}":
        return [line]
    depth = 0
    start: int | None = None
    cuts: list[int] = []
    quote, escaped = "", False
    for i, char in enumerate(line):
        if quote:
            quote = "" if char == quote and not escaped else quote
            escaped = char == "\\" and not escaped
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
            if depth == 1:
                start, cuts = i, []
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 1:
            cuts.append(i)
    if start is None or line[len(line) - 1] != {"(": ")", "{": "}", "[": "]"}[line[start]]:
        return [line]
    margin = " " * (len(line) - len(line.lstrip()))
    ends = [*cuts, len(line) - 1]
    parts = [line[a + 1 : b].strip() for a, b in zip([start, *cuts], ends, strict=True)]
    is_call = line[start] != "(" or line[start - 1].isalnum() or line[start - 1] == "_"
    comma = "," if is_call else ""  # in plain parentheses a comma would make a tuple
    return [line[: start + 1], *(f"{margin}    {part}{comma}" for part in parts if part), margin + line[-1]]
