"""Graph to torch source.

The module written here is the only thing that ever runs: in process it is loaded from the same
text that `rewardspec compile` prints. One line a value, under the spec's own names.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from fractions import Fraction

from rewardspec.emit.kernels import support_names, support_source
from rewardspec.ir.checks import find_checks
from rewardspec.ir.graph import Graph, Node, walk
from rewardspec.ir.lower import PI, Program
from rewardspec.ir.patterns import ZScore, match_zscore
from rewardspec.ir.shares import find_shares
from rewardspec.ops.elementwise import ELEMENTWISE
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.spec.declarations import Column
from rewardspec.types import Level

Key = tuple[Node, bool]  # a value as a number (False) or as a condition (True)

_WORDS = {
    "<": "below", "<=": "at_most", ">": "above", ">=": "at_least", "==": "equals", "!=": "differs",
    "+": "sum", "-": "difference", "*": "product", "/": "ratio", "**": "power", "if": "chosen",
    "sum_components": "sum", "not": "without",
}  # fmt: skip
WIDEST = 100  # a value used once goes into its user's line up to this many characters
_ATOM = 10  # precedence of a name or a call


@dataclass(frozen=True)
class Weighted:
    """`sum of w * zscore(x)` over components, for one kernel to do at once."""

    terms: tuple[tuple[Node, Node | None], ...]  # (x, weight)
    over: Level
    ddof: Fraction
    eps: Node | None


def emit_module(program: Program, name: str, about: str, fingerprint: str, version: str) -> str:
    """The source of a module whose `advantages(columns, groups, ...)` computes the program."""
    emitter = _Emitter(program)
    body = emitter.body()
    title = " ".join(name.split()) or "advantages"
    lines = [f"# {line}".rstrip() for line in _comment(title, about, fingerprint, version)]
    lines += ["", support_source(body), ""]
    if "EPS" in body:
        lines += [f"EPS = {float(program.eps)!r}  # added to every standard deviation", ""]
    return "\n".join(lines) + "\n" + body


def _comment(name: str, about: str, fingerprint: str, version: str) -> list[str]:
    text = [name.encode("ascii", "replace").decode(), ""]
    for line in about.splitlines()[:20]:
        text.append("".join(c if c.isprintable() and ord(c) < 128 else "?" for c in line)[:100])
    text += ["", f"Compiled by rewardspec {version} from a spec with fingerprint {fingerprint}.", "It needs torch alone."]
    return text


class _Emitter:
    def __init__(self, program: Program):
        self.program = program
        self.graph: Graph = program.graph
        self.lines: list[str] = []
        self.indent = "    "
        self.emitted: dict[Key, tuple[str, int]] = {}  # source and its precedence
        self.taken = set(keyword.kwlist) | set(keyword.softkwlist) | support_names() | {
            "batch", "columns", "groups", "step", "total_steps", "seed", "shares", "advantages", "torch", "EPS", "COLUMNS", "math",
        }  # fmt: skip
        self.taken |= set(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)
        self.uses: dict[Key, int] = {}
        self.zscores: dict[Node, ZScore | None] = {}
        self.weighted: dict[Node, Weighted | None] = {}

    # The module ----------------------------------------------------------------------------------

    def body(self) -> str:
        program = self.program
        checks = find_checks(self.graph, [program.advantage, *(c.shaped for c in program.components)])
        outputs = [program.advantage, *(c.shaped for c in program.components), *(c.weight for c in program.components)]
        conditions = [check.bad for check in checks] + ([] if program.keep is None else [program.keep])
        self.count_uses([(n, False) for n in outputs] + [(n, True) for n in conditions])
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
        main, self.lines = self.lines, []
        shares = self.shares()
        if shares:
            arguments.append("shares=shares")
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
            "    batch = Batch(columns, groups, COLUMNS, step, total_steps)",
        ]
        tail = _wrapped(f"    return Result(batch, {', '.join(arguments)})")
        return "\n".join([*head, *main, *shares, *tail]) + "\n"

    def names(self, values: dict[str, str]) -> str:
        return "{" + ", ".join(f"{name!r}: {value}" for name, value in values.items()) + "}"

    def shares(self) -> list[str]:
        """A function inside the function: it is called when somebody asks for the shares."""
        program = self.program
        found = find_shares(self.graph, program.advantage, len(program.components))
        if found is None:
            return []
        outer = self.emitted
        self.emitted = dict(outer)
        self.count_uses([(n, False) for n in found])
        self.indent = "        "
        made = self.names({c.name: self.number(s) for c, s in zip(program.components, found, strict=True)})
        lines = ["", "    def shares():", *self.lines, *_wrapped(f"        return {made}"), ""]
        self.emitted, self.indent, self.lines = outer, "    ", []
        return lines

    def columns(self) -> list[Column]:
        used = {node.attributes[0] for node, _ in self.emitted if node.op == "column"}  # also what only a check reads
        return [column for name, column in self.program.columns.items() if name in used]

    def column_line(self, column: Column) -> str:
        options: dict[str, object] = {}
        domain = column.domain
        if domain.symbols is not None:
            options["symbols"] = domain.symbols
        elif domain.values is not None:
            options["values"] = tuple(float(v) for v in domain.values)
        else:
            options |= {key: float(end) for key, end in (("low", domain.lo), ("high", domain.hi)) if not isinstance(end, float)}
        if column.level is not Level.ROLLOUT:
            options["level"] = str(column.level)
        if column.missing == "ignore" or column.gated:
            options["missing"] = True
        if column.missing == "zero":
            options["zero"] = True
        if column.clip:
            options["clip"] = True
        return f"({column.name!r}, {{" + ", ".join(f"{key!r}: {value!r}" for key, value in options.items()) + "})"

    # What depends on what, once kernels stand for whole shapes ----------------------------------

    def plain_center(self, node: Node) -> bool:
        """`x - mean(x)` over every value of a group or the batch."""
        if node.op != "-" or node.args[1].op != "mean":
            return False
        x, mean = node.args
        return mean.args[0] is x and mean.args[1].constant == 1 and len(mean.args) == 2 and x.level is Level.ROLLOUT and not x.domain.missing

    def zscore(self, node: Node) -> ZScore | None:
        if node not in self.zscores:
            self.zscores[node] = match_zscore(self.graph, node)
        return self.zscores[node]

    def fused(self, node: Node) -> Weighted | None:
        """Two or more plain group z-scores in one sum over components."""
        if node not in self.weighted:
            self.weighted[node] = self.find_weighted(node)
        return self.weighted[node]

    def find_weighted(self, node: Node) -> Weighted | None:
        if node.op != "sum_components":
            return None
        terms, kinds = [], set()
        for term in node.args:
            weight, inner = None, term
            if term.op == "*" and term.args[0].level < Level.ROLLOUT:
                weight, inner = term.args
            found = self.zscore(inner)
            plain = found and found.over is Level.GROUP and not found.where and not found.by and not found.centered
            if not plain or found.x.domain.missing or self.summands(found.x) is not None or self.fused(found.x):
                return None
            terms.append((found.x, weight))
            kinds.add((found.over, found.ddof, found.eps))
        return Weighted(tuple(terms), *kinds.pop()) if len(kinds) == 1 else None

    def needs(self, key: Key) -> list[Key]:
        """The values that one line takes: each as a number or as a condition."""
        node, as_condition = key
        if node.boolean and not as_condition:
            return [(node, True)]
        if as_condition and not node.boolean:
            return [(node, False)]
        fused = self.fused(node)
        if fused:
            return [(n, False) for term in fused.terms for n in term if n is not None]
        found = self.zscore(node)
        if found:
            condition = [(found.where, True)] if found.where is not None else []
            numbers = [n for n in (found.x, found.by, *(self.summands(found.x) or ())) if n is not None]
            return [(n, False) for n in numbers] + condition
        if node.op == "not" and node.args[0].op == "present":
            return [(node.args[0].args[0], False)]
        if self.plain_center(node):
            return [(n, False) for n in (node.args[0], *(self.summands(node.args[0]) or ()))]
        conditions = [a for i, a in enumerate(node.args) if self.takes_condition(node, i)]
        numbers = [a for i, a in enumerate(node.args) if not self.takes_condition(node, i)]
        if node.op in ("std", "var"):
            numbers += self.summands(node.args[0]) or ()
        return [(a, False) for a in numbers] + [(a, True) for a in conditions if a.constant != 1]

    def takes_condition(self, node: Node, i: int) -> bool:
        if node.op in ("and", "or", "not"):
            return True
        if node.op == "spread":
            return node.boolean
        if node.op in REDUCTIONS:
            return i == 1 or (i == 0 and node.op in ("any", "all"))
        return node.op == "if" and i == 0

    def count_uses(self, roots: list[Key]) -> None:
        self.uses = {root: 2 for root in roots}  # results have lines of their own
        seen, stack = set(roots), list(roots)
        while stack:
            for key in self.needs(stack.pop()):
                self.uses[key] = self.uses.get(key, 0) + 1
                if key not in seen:
                    seen.add(key)
                    stack.append(key)

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
            text, precedence = f"batch.number({self.condition(node)})", _ATOM
        elif as_condition and not node.boolean:
            text, precedence = f"{self.number(node, 2)} == 1.0", 1
        else:
            text, precedence = self.compute(node)
        named = node in self.graph.names and node.op != "given" and node.level is not Level.BATCH and as_condition == node.boolean
        if as_condition and (node, False) in self.uses:
            named = False
        named = named or (node in self.graph.names and node.boolean and not as_condition)
        once = self.uses.get(key, 0) < 2 or (precedence == _ATOM and text.isidentifier() and not named)
        if self.is_python(node) and node.op != "neg" and len(text) < 30:
            return text, precedence
        if once and not named and len(text) + len(self.indent) < WIDEST * 0.7:
            return text, precedence
        name = self.fresh(node, as_condition)
        if name == text:
            return name, _ATOM
        self.lines += _wrapped(f"{self.indent}{name} = {text}")
        return name, _ATOM

    def fresh(self, node: Node, as_condition: bool) -> str:
        """A variable name: the spec's own where it has one, else what the value is."""
        base = self.graph.names.get(node)
        if base is None:
            inner = next((self.graph.names[a] for a in walk([node])[::-1] if a in self.graph.names), "value")
            base = node.attributes[0] if node.op in ("given", "column") else f"{_WORDS.get(node.op, node.op)}_{inner}"
        if as_condition and (node, False) in self.uses:
            base += "_holds"
        base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in base)[:40].lstrip("0123456789") or "value"
        name, n = base if base not in self.taken else base + "_", 2
        while name in self.taken:
            name, n = f"{base}_{n}", n + 1
        self.taken.add(name)
        return name

    # Values --------------------------------------------------------------------------------------

    def compute(self, node: Node) -> tuple[str, int]:
        fused = self.fused(node)
        if fused:
            return self.weighted_zscores(fused), _ATOM
        found = self.zscore(node)
        if found:
            return self.zscore_call(found), _ATOM
        op = node.op
        if self.plain_center(node):
            x = node.args[0]
            arguments = ["group_center", self.whole(x, Level.ROLLOUT), *self.summands_argument(x)]
            return f"{self.layout(x, node.args[1].attributes[0], None)}.map({', '.join(arguments)})", _ATOM
        if op in ELEMENTWISE:
            return self.elementwise(node)
        if op in REDUCTIONS:
            return self.reduction(node), _ATOM
        match op:
            case "const":
                value = float(node.constant)
                return repr(value), _ATOM if value >= 0 else 7
            case "missing":
                return 'float("nan")', _ATOM
            case "column":
                return f'batch["{node.attributes[0]}"]', _ATOM
            case "given":
                return self.given(node), _ATOM
            case "spread":
                inner = self.source(node.args[0], node.boolean, 0)
                if node.args[0].level is Level.GROUP:
                    return f"batch.spread({inner})", _ATOM
                return (f"batch.full({inner})" if node.level is Level.ROLLOUT else f"batch.full_groups({inner})"), _ATOM
            case "required":
                text = self.number(node.args[0])
                return text, _ATOM if text.isidentifier() else 0
            case "present":
                return f"~torch.isnan({self.number(node.args[0])})", 7
            case "coalesce":
                x, otherwise = node.args
                return f"torch.where(torch.isnan({self.tensor(x)}), {self.level(otherwise, node)}, {self.level(x, node)})", _ATOM
            case "if":
                return self.choice(node), _ATOM
            case "sum_components":
                if any(a.domain.missing for a in node.args):
                    return f"add_present([{', '.join(self.level(self_, node, tensor=True) for self_ in node.args)}])", _ATOM
                return " + ".join(self.level(a, node, least=5) for a in node.args), 5
        raise AssertionError(f"no source for {node!r}")

    def level(self, node: Node, user: Node, least: int = 0, tensor: bool = False, as_condition: bool = False) -> str:
        """A node's source at the level of its user: a group's value is spread over its rollouts."""
        if node.level is Level.GROUP and user.level is Level.ROLLOUT and node.op != "const":
            return f"batch.spread({self.source(node, as_condition, 0)})"
        return self.tensor(node) if tensor else self.source(node, as_condition, least)

    def tensor(self, node: Node) -> str:
        """A node's source as a tensor, also where it is a number in Python."""
        text = self.number(node)
        return f"batch.value({text})" if self.is_python(node) else text

    def is_python(self, node: Node) -> bool:
        """Whether the source of a node is a number in Python, not a tensor."""
        if node.op in ("const", "missing") or (node.op == "given" and node.attributes[0] in ("eps", "pi")):
            return True
        return node.op in ("+", "-", "*", "/", "**", "neg", "sum_components") and all(self.is_python(a) for a in node.args)

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

    def elementwise(self, node: Node) -> tuple[str, int]:
        op = ELEMENTWISE[node.op]
        if node.op == "not" and node.args[0].op == "present":
            return f"torch.isnan({self.number(node.args[0].args[0])})", _ATOM
        logical = node.op in ("and", "or", "not")
        if node.op in ("minimum", "maximum"):
            limit = next((a for a in node.args if self.is_python(a)), None)
            other = next((a for a in node.args if a is not limit), None)
            if limit is not None and other is not None and not self.is_python(other):
                side = "max" if node.op == "minimum" else "min"
                return f"{self.level(other, node, least=9)}.clamp({side}={self.number(limit)})", _ATOM
        if op.precedence == 9:  # a function of tensors
            return op.torch.format(*(self.level(a, node, least=9, tensor=True) for a in node.args)), _ATOM
        tighter = op.precedence + 1
        texts = []
        for i, arg in enumerate(node.args):
            least = op.precedence if i == 0 and op.precedence in (2, 4, 5, 6) else tighter
            if node.op == "neg":
                least = 7
            text = self.level(arg, node, least=least, as_condition=logical)
            texts.append(self.as_measured(node, i, text))
        if op.boolean and all(self.is_python(a) for a in node.args):
            texts[0] = self.tensor(node.args[0])
        return op.torch.format(*texts), op.precedence

    def as_measured(self, node: Node, i: int, text: str) -> str:
        """A constant that is compared with a column, rounded as the column is."""
        limit, other = node.args[i], node.args[1 - i] if len(node.args) == 2 else None
        if other is None or other.op != "column" or limit.constant is None or not ELEMENTWISE[node.op].boolean:
            return text
        if other.domain.values is not None:
            return text  # its values are taken as declared
        value, bits = limit.constant, abs(limit.constant.numerator).bit_length()
        odd = abs(value.numerator) >> (((value.numerator & -value.numerator).bit_length() - 1) if value else 0)
        if value.denominator & (value.denominator - 1) == 0 and odd.bit_length() <= 8 and bits < 16:
            return text  # every float type holds it
        return f'batch.rounded({text}, "{other.attributes[0]}")'

    def choice(self, node: Node) -> str:
        condition, then, otherwise = node.args
        parts = [self.level(condition, node, as_condition=True)]
        both = self.is_python(then) and self.is_python(otherwise)
        parts.append(self.tensor(then) if both else self.level(then, node))
        parts.append(self.level(otherwise, node))
        return f"torch.where({', '.join(parts)})"

    # Reductions ----------------------------------------------------------------------------------

    def layout(self, x: Node, over: Level, by: Node | None) -> str:
        if over is Level.GROUP:
            layout = "batch.groups"
        else:
            layout = "batch.rollouts" if x.level is Level.ROLLOUT else "batch.among_groups"
        if by is None:
            return layout
        return f"{layout}.by({self.whole(by, x.level)})"

    def whole(self, node: Node, level: Level, as_condition: bool = False) -> str:
        """A node's source as a tensor with a value for every row of a layout."""
        text = self.source(node, as_condition, 0)
        if node.level is Level.GROUP and level is Level.ROLLOUT:
            text = f"batch.spread({text})"
        if not self.covers(node, level):
            return f"batch.full({text})" if level is Level.ROLLOUT else f"batch.full_groups({text})"
        return text

    def covers(self, node: Node, level: Level) -> bool:
        """Whether the tensor of a node surely has an element for every row (no broadcast left to do)."""
        if node.level < level and not (node.level is Level.GROUP and level is Level.ROLLOUT and node.op == "column"):
            return False
        if node.op in ("column", "spread") or node.op in REDUCTIONS or self.zscore(node) or self.fused(node):
            return node.op != "spread" or node.args[0].level < Level.GROUP
        return any(a.level is node.level and self.covers(a, level) for a in node.args)

    def mask(self, x: Node, where: Node | None) -> str | None:
        parts = []
        if where is not None and where.constant != 1:
            parts.append(self.whole(where, x.level, as_condition=True))
        if x.domain.missing:
            parts.append(f"~torch.isnan({self.whole(x, x.level)})")
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else " & ".join(f"({p})" if " " in p else p for p in parts)

    def reduction(self, node: Node) -> str:
        x, where, *by = node.args
        over, parameter = node.attributes
        layout = self.layout(x, over, by[0] if by else None)
        kernel = f"group_{node.op}"
        arguments = [kernel, self.whole(x, x.level, as_condition=x.boolean and node.op in ("any", "all"))]
        mask = self.mask(x, where)
        if mask:
            arguments.append(mask)
        if node.op in ("std", "var"):
            arguments.append(f"ddof={int(parameter)}")
            arguments += self.summands_argument(x)
        if node.op == "quantile":
            arguments.append(f"q={float(parameter)!r}")
        call = f"{layout}.{'map' if REDUCTIONS[node.op].keeps_level else 'reduce'}({', '.join(arguments)})"
        if by and not REDUCTIONS[node.op].keeps_level:
            return f"{layout}.back({call})"
        return call

    def zscore_call(self, found: ZScore) -> str:
        layout = self.layout(found.x, found.over, found.by)
        arguments = ["group_zscore", self.whole(found.x, found.x.level)]
        mask = self.mask(found.x, found.where)
        if mask:
            arguments.append(mask)
        if found.eps is not None:
            arguments.append(f"eps={self.number(found.eps)}")
        if found.ddof != 1:
            arguments.append(f"ddof={int(found.ddof)}")
        if found.centered:
            arguments.append("centered=True")
        arguments += self.summands_argument(found.x)
        return f"{layout}.map({', '.join(arguments)})"

    def weighted_zscores(self, fused: Weighted) -> str:
        return f"weighted_zscores({self.weighted_arguments(fused)})"

    def weighted_arguments(self, fused: Weighted) -> str:
        values = ", ".join(self.whole(x, Level.ROLLOUT) for x, _ in fused.terms)
        weights = ", ".join("1.0" if w is None else self.number(w) for _, w in fused.terms)
        eps = "0.0" if fused.eps is None else self.number(fused.eps)
        ddof = "" if fused.ddof == 1 else f", ddof={int(fused.ddof)}"
        return f"batch, [{values}], [{weights}], eps={eps}{ddof}"

    # Rounding ------------------------------------------------------------------------------------

    def summands_argument(self, x: Node) -> list[str]:
        """What tells a kernel how large the values were that `x` was summed from."""
        fused = self.fused(x)
        if fused:
            bound = [abs(w.constant) if w is not None and w.constant is not None else w for _, w in fused.terms]
            bound = [Fraction(1) if w is None else w for w in bound]
            known = all(isinstance(w, Fraction) for w in bound)
            arguments = [f"summands=lambda: largest_zscores({self.weighted_arguments(fused)})"]
            return arguments + ([f"bound={float(max(bound))!r}"] if known else [])
        terms = self.summands(x)
        return [] if terms is None else [f"summands=lambda: largest({', '.join(self.level(t, x) for t in terms)})"]

    def summands(self, x: Node) -> list[Node] | None:
        """The values that `x` was summed from: rounding shows in the last place of the largest.

        None where nothing was summed, or every sum is exact in every float type.
        """
        if self.fused(x):
            return None  # its terms are never there one by one
        found = self.summed(x)
        if found is None or (_exact_in_floats(x) and all(_exact_in_floats(t) for t in found)):
            return None
        return found

    def summed(self, x: Node) -> list[Node] | None:
        if self.zscore(x):
            return None
        if x.op == "-" and x.args[1].op == "mean" and x.args[1].args[0] is x.args[0]:
            return self.summed(x.args[0]) or [x.args[0]]  # the mean is no larger than the largest of the group
        if x.op in ("sum_components", "+", "-") or x.op in ("if", "neg", "minimum", "maximum", "coalesce"):
            parts = x.args[1:] if x.op == "if" else x.args
            inner = [(a, self.summed(a)) for a in parts]
            if x.op not in ("sum_components", "+", "-") and all(s is None for _, s in inner):
                return None
            terms = [t for a, s in inner for t in (s if s is not None else [a])]
            return [t for t in dict.fromkeys(terms) if t.op != "missing" and t.constant != 0] if len(terms) < 64 else None
        if x.op in ("*", "/"):
            a, b = x.args
            for summed, other, flip in ((a, b, False), (b, a, True)):
                terms = self.summed(summed) if other.level < Level.ROLLOUT and not (flip and x.op == "/") else None
                if terms is not None:
                    return [self.graph.apply(x.op, t, other) for t in terms]
        return None


def _wrapped(line: str) -> list[str]:
    """A line too wide to read, with the arguments of its last bracket on lines of their own."""
    if len(line) <= WIDEST or line[-1] not in ")}":
        return [line]
    depth, start, cuts = 0, None, []
    quote = ""
    for i, char in enumerate(line):
        if quote:
            quote = "" if char == quote and line[i - 1] != "\\" else quote
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
    return [line[: start + 1], *(f"{margin}    {part}," for part in parts if part), margin + line[-1]]


def _exact_in_floats(node: Node) -> bool:
    values = node.domain.values
    return values is not None and all(
        v.denominator & (v.denominator - 1) == 0 and abs(v.numerator).bit_length() <= 20 and v.denominator <= 2**20
        for v in values
    )
