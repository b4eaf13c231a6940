"""Graph to torch source.

The module written here is the only thing that ever runs: in process it is loaded from the same
text that `rewardspec compile` prints. One line a value, under the spec's own names.
"""

from __future__ import annotations

import builtins
import keyword
import struct
from collections.abc import Callable

from rewardspec.emit.runtime_source import support_names, support_source
from rewardspec.emit.shapes import Key
from rewardspec.emit.sources import ATOM, Sources
from rewardspec.ir.checks import find_checks
from rewardspec.ir.graph import Node, walk
from rewardspec.ir.shares import find_shares
from rewardspec.language.declarations import Column
from rewardspec.lower.lower import Program
from rewardspec.ops.domain import Level
from rewardspec.text.quoting import python_file

_OWN_NAMES = ("batch", "columns", "groups", "step", "total_steps", "seed", "shares", "rewarded", "advantages")
_OWN_NAMES += ("torch", "math", "EPS", "COLUMNS")

LARGEST = 3.4e38  # about what float32 can hold
WIDEST = 100  # a value used once goes into its user's line up to about this many characters

_WORDS = {
    "<": "below", "<=": "at_most", ">": "above", ">=": "at_least", "==": "equals", "!=": "differs",
    "+": "sum", "-": "difference", "*": "product", "/": "ratio", "**": "power", "if": "chosen",
    "sum_components": "sum", "not": "without",
}  # fmt: skip


def emit_module(program: Program, name: str, about: str, fingerprint: str, version: str) -> str:
    """The source of a module whose `advantages(columns, groups, ...)` computes the program."""
    emitter = Emitter(program)
    body = emitter.body()
    lines = [support_source(body), ""]
    if "EPS" in body:
        lines += [f"EPS = {float(program.eps)!r}  # added to every standard deviation", ""]
    head = [_ascii(" ".join(name.split()) or "advantages"), *([""] if about else [])]
    head += [_ascii(line) for line in about.splitlines()[:20]]
    head += [
        "",
        f"Compiled by rewardspec {version} from a spec with fingerprint {fingerprint}.",
        "It needs torch alone.",
    ]
    return python_file(head, "\n" + "\n".join(lines) + "\n" + body)


def _ascii(text: str) -> str:
    return "".join(c if ord(c) < 128 else "?" for c in text)[:100]


class Emitter(Sources):
    """One module."""

    def __init__(self, program: Program):
        super().__init__(program.graph)
        self.program = program
        self.lines: list[str] = []
        self.indent = "    "
        self.emitted: dict[Key, tuple[str, int]] = {}  # source and its precedence
        self.uses: dict[Key, int] = {}
        self.taken = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *support_names(), *_OWN_NAMES}

    def body(self) -> str:
        program = self.program
        checks = find_checks(
            self.graph, [program.advantage, *(n for c in program.components for n in (c.shaped, c.weight))]
        )
        wanted = [(n, n is program.keep) for n in program.results] + [(check.bad, True) for check in checks]
        self.count_uses(wanted)
        for component in program.components:
            self.number(component.shaped)
        for check in checks:
            self.lines += _wrapped(f"{self.indent}batch.refuse({self.condition(check.bad)}, {check.what!r})")
        advantage = self.number(program.advantage)
        rewards = self.names({c.name: self.number(c.shaped) for c in program.components})
        weights = self.names({c.name: self.number(c.weight) for c in program.components})
        arguments = [advantage, rewards, weights]
        if program.keep is not None:
            arguments.append(f"kept={self.condition(program.keep)}")
        if program.copies is not None:
            arguments.append(f"copies={self.number(program.copies)}")
        main, self.lines = self.lines, []
        later = self.shares()
        if later:
            arguments.append("shares=shares")
        if program.total is not None:
            key = (program.total, False)
            made = self.emitted[key][0] if key in self.emitted else ""
            if not made.isidentifier():
                later += self.later("rewarded", [program.total], lambda: self.number(program.total))
            arguments.append(f"total={made if made.isidentifier() else 'rewarded'}")
        columns = [self.column_line(column) for column in self.columns()]
        head = [
            "# The columns that are read, and what is known of them.",
            "COLUMNS = [",
            *(f"    {line}," for line in columns),
            "]",
            "",
            "",
            "def advantages(columns, groups, *, step=None, total_steps=None, seed=0):",
            '    """The advantages of a batch of rollouts, as a `Result`.',
            "",
            "    columns: names to tensors, arrays or lists of N values (None or NaN where missing).",
            "    groups: one group size, or N ids of any hashable kind.",
            "    step, total_steps: of training. seed: of anything drawn.",
            "    Raises RolloutError, naming column, rollout and group, for rollouts it cannot be computed on.",
            '    """',
            "    batch = Batch(columns, groups, COLUMNS, step, total_steps, seed)",
        ]
        largest = max((abs(node.constant) for node, _ in self.emitted if node.op == "const"), default=0)
        if largest > LARGEST:
            head.append(f"    batch.hold({float(largest)!r})")
        tail = _wrapped(f"    return Result(batch, {', '.join(arguments)})")
        return "\n".join([*head, *main, *later, *([""] if later else []), *tail]) + "\n"

    def names(self, values: dict[str, str]) -> str:
        return "{" + ", ".join(f"{name!r}: {value}" for name, value in values.items()) + "}"

    def shares(self) -> list[str]:
        """A function for the components' shares; nothing where the advantage is no sum of them."""
        program = self.program
        found = find_shares(self.graph, program.advantage, len(program.components))
        if found is None:
            return []
        named = list(zip((c.name for c in program.components), found, strict=True))
        return self.later("shares", found, lambda: self.names({name: self.number(node) for name, node in named}))

    def later(self, name: str, nodes: list[Node], result: Callable[[], str]) -> list[str]:
        """A function inside the function, for what is computed when somebody asks for it."""
        outer = self.emitted
        self.emitted = dict(outer)
        self.count_uses([(n, False) for n in nodes])
        self.indent = "        "
        made = result()
        lines = ["", f"    def {name}():", *self.lines, *_wrapped(f"        return {made}")]
        self.emitted, self.indent, self.lines = outer, "    ", []
        return lines

    def columns(self) -> list[Column]:
        used = {node.attributes[0] for node, _ in self.emitted if node.op == "column"}  # also what only a check reads
        return [column for name, column in self.program.columns.items() if name in used]

    def column_line(self, column: Column) -> str:
        options: dict[str, object] = {}
        domain = column.declared
        if domain.symbols is not None:
            options["symbols"] = domain.symbols
        elif domain.values is not None:
            options["values"] = tuple(float(v) for v in domain.values)
            if len({struct.pack("f", v) for v in options["values"] if abs(v) < 3e38}) < len(domain.values):
                options["fine"] = True  # float32 has one place for several of them
        else:
            options |= {
                key: float(end) for key, end in (("low", domain.lo), ("high", domain.hi)) if not isinstance(end, float)
            }
        if column.level is not Level.ROLLOUT:
            options["level"] = str(column.level)
        if column.missing == "ignore" or column.gated:
            options["missing"] = True
        if column.missing == "zero":
            options["zero"] = True
        if column.clip:
            options["clip"] = True
        return f"({column.name!r}, {{" + ", ".join(f"{key!r}: {value!r}" for key, value in options.items()) + "})"

    # Lines ---------------------------------------------------------------------------------------

    def number(self, node: Node, least: int = 0) -> str:
        return self.source(node, False, least)

    def condition(self, node: Node, least: int = 0) -> str:
        return self.source(node, True, least)

    def source(self, node: Node, as_condition: bool, least: int) -> str:
        key = (node, as_condition)
        if key not in self.emitted:
            for other in self.pending(key):  # what it takes comes first, without recursion
                self.emitted[other] = self.made(other)
        text, precedence = self.emitted[key]
        return f"({text})" if precedence < least else text

    def pending(self, key: Key) -> list[Key]:
        order, seen, stack = [], {key}, [(key, iter(self.needs(key)))]
        while stack:
            current, rest = stack[-1]
            for other in rest:
                if other not in seen and other not in self.emitted:
                    seen.add(other)
                    stack.append((other, iter(self.needs(other))))
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
            text, precedence = self.compute(node)
        named = (
            node in self.graph.names
            and node.op != "given"
            and node.level is not Level.BATCH
            and as_condition == node.boolean
        )
        if as_condition and (node, False) in self.uses:
            named = False
        named = named or (node in self.graph.names and node.boolean and not as_condition)
        once = self.uses.get(key, 0) < 2 or (precedence == ATOM and text.isidentifier() and not named)
        if self.is_python(node) and node.op != "neg" and len(text) < 30:
            return text, precedence
        if once and not named and len(text) + len(self.indent) < WIDEST * 0.7:
            return text, precedence
        name = self.fresh(node, as_condition)
        if name == text:
            return name, ATOM
        self.lines += _wrapped(f"{self.indent}{name} = {text}")
        return name, ATOM

    def fresh(self, node: Node, as_condition: bool) -> str:
        """A variable name: the spec's own where it has one, else what the value is."""
        base = self.graph.names.get(node)
        if base is None:
            inner = next((self.graph.names[a] for a in walk([node])[::-1] if a in self.graph.names), "value")
            base = node.attributes[0] if node.op in ("given", "column") else f"{_WORDS.get(node.op, node.op)}_{inner}"
        if as_condition and (node, False) in self.uses:
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


def _wrapped(line: str) -> list[str]:
    """A line too wide to read, with the arguments of its last bracket on lines of their own."""
    if len(line) <= WIDEST or line[-1] not in ")}":
        return [line]
    depth, start, cuts = 0, None, []
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
    comma = "," if is_call else ""  # a comma would make a tuple of what is only in parentheses
    return [line[: start + 1], *(f"{margin}    {part}{comma}" for part in parts if part), margin + line[-1]]
