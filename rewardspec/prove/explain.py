"""A spec's compiled expressions, as `rewardspec explain` prints them."""

from __future__ import annotations

from dataclasses import dataclass

from rewardspec.ir.needs import NEEDS
from rewardspec.ir.node import Node, walk
from rewardspec.language.declarations import Declarations, Definition
from rewardspec.language.prelude import prelude
from rewardspec.ops.domain import Level
from rewardspec.ops.operators import REDUCTIONS
from rewardspec.spec import Spec
from rewardspec.syntax.tree import Call, Expr, If, Name, Operation, format_expr
from rewardspec.text.numbers import format_number


@dataclass(frozen=True)
class Explanation:
    """Tables of text.

    columns: (name, level, domain, how missing values are treated, reward function).
    components: (name, expression, weight).
    definitions: (name, expression) of everything that the advantage uses, in order of use.
    values: (number, name, operation, level, domain) of every node.
    needs: what the spec asks of a trainer, as `Spec.needs`, in a fixed order.
    state: (name, level or key, range, first value, value after a batch).
    """

    columns: list[tuple[str, str, str, str, str]]
    components: list[tuple[str, str, str]]
    definitions: list[tuple[str, str]]
    values: list[tuple[str, str, str, str, str]]
    guarantees: list[tuple[str, str]]
    needs: list[str]
    state: list[tuple[str, str, str, str, str]]

    def to_json(self) -> dict[str, object]:
        """Each table as a list of rows by the names of their columns; `needs` as a list of names."""
        rows: dict[str, object] = {"needs": self.needs}
        for table, heads in HEADS.items():
            keys = [head.replace(" ", "_") for head in heads]
            rows[table] = [dict(zip(keys, row, strict=True)) for row in getattr(self, table)]
        return rows


HEADS = {  # names of columns, by table
    "columns": ("name", "level", "domain", "missing", "measured by"),
    "components": ("name", "value", "weight"),
    "state": ("name", "of each", "range", "begins at", "after a batch"),
    "definitions": ("name", "meaning"),
    "guarantees": ("name", "must hold"),
    "values": ("number", "name", "operation", "level", "domain"),
}


def explain(spec: Spec) -> Explanation:
    declared = spec.declarations
    columns = [
        (
            c.name,
            str(c.level),
            str(c.domain),
            "the gate decides" if c.gated else c.missing,
            str(declared.uses.get(c.name, "")),
        )
        for c in declared.columns.values()
    ]
    components = [
        (name, format_expr(c.value), format_expr(c.weight))
        for name, c in declared.components.items()
        if c.value and c.weight
    ]
    assert declared.advantage is not None, "a spec that was read has an advantage"
    definitions = [("advantage", format_expr(declared.advantage))]
    if declared.keep is not None:
        definitions.insert(0, ("keep", format_expr(declared.keep)))
    if declared.outcome is not None:
        definitions.insert(0, ("outcome", format_expr(declared.outcome)))
    updates = [state.update for state in declared.states.values()]
    stated = (declared.advantage, declared.keep, declared.outcome, *updates)
    definitions += used_definitions(declared, [e for e in stated if e is not None])
    guarantees = [(name, format_expr(e)) for name, e in declared.guarantees.items()]
    needs: list[str] = [name for name in NEEDS if name in spec.needs]
    return Explanation(columns, components, definitions, _values(spec), guarantees, needs, states(spec))


def states(spec: Spec) -> list[tuple[str, str, str, str, str]]:
    """The states of a spec as text: (name, level or key, range, first value, value after a batch)."""
    return [
        (s.name, s.by or "batch", str(s.column.domain), format_number(s.init), format_expr(s.update))
        for s in spec.declarations.states.values()
    ]


def used_definitions(declared: Declarations, roots: list[Expr], in_prelude: bool = False) -> list[tuple[str, str]]:
    """(signature, expression) of the definitions that expressions use, directly or through other definitions.

    in_prelude: the expressions are the prelude's own, whose names are not those of the spec.
    """
    shipped_with = prelude(declared.dialect)
    found: dict[tuple[str, bool], Definition] = {}
    queue = [(root, in_prelude) for root in roots]
    while queue:
        expr, in_prelude = queue.pop(0)
        for name, is_call in _names(expr):
            own = {} if in_prelude else (declared.functions if is_call else declared.values)
            shipped = shipped_with.functions if is_call else shipped_with.values
            if not is_call and not in_prelude and _declares(declared, name):
                continue
            definition = own.get(name) or shipped.get(name)
            if definition is not None and definition.body is not None and (name, is_call) not in found:
                found[name, is_call] = definition
                queue.append((definition.body, definition.prelude))
    return [(d.signature.span.text, format_expr(d.body)) for d in found.values() if d.body is not None]


def _declares(declared: Declarations, name: str) -> bool:
    return name in declared.components or name in declared.columns or name in declared.states


def _names(expr: Expr) -> list[tuple[str, bool]]:
    match expr:
        case Name(text=text):
            return [(text, False)]
        case Call():
            parts = [*expr.arguments, *(value for _, value in expr.keywords)]
            return [(expr.function.text, True), *(n for part in parts for n in _names(part))]
        case Operation(operands=operands):
            return [n for operand in operands for n in _names(operand)]
        case If():
            return [n for part in (expr.then, expr.condition, expr.otherwise) for n in _names(part)]
    return []


def _values(spec: Spec) -> list[tuple[str, str, str, str, str]]:
    program = spec.program
    roots = [program.advantage, *(c.shaped for c in program.components)] + ([program.keep] if program.keep else [])
    roots += [state.after for state in program.states.values()]
    nodes = [n for n in walk(roots) if n.op != "const"]
    number = {node: f"%{i}" for i, node in enumerate(nodes)}
    names = dict(program.graph.names) | {program.advantage: "advantage"}

    def text(node: Node) -> str:
        return format_number(node.constant) if node.constant is not None else number[node]

    rows = []
    for node in nodes:
        args = [text(a) for a in node.args]
        if node.op in REDUCTIONS:
            over, parameter = node.attributes
            args = [
                args[0],
                *([] if node.args[1].constant == 1 else [f"where={args[1]}"]),
                *(f"by={a}" for a in args[2:]),
            ]
            args += ["over=batch"] if over is Level.BATCH else []
            args += [f"{REDUCTIONS[node.op].parameter}={parameter}"] if parameter is not None else []
            shown = f"{node.op}({', '.join(args)})"
        elif node.op in ("column", "given"):
            kind = "" if node.op == "given" else "state " if node.attributes[0] in program.states else "column "
            shown = f"{kind}{node.attributes[0]}"
        elif node.op == "sum_components":
            shown = " + ".join(args)
        elif len(args) == 2 and not node.op.isalpha():
            shown = f"{args[0]} {node.op} {args[1]}"
        elif node.op == "if":
            shown = f"{args[1]} if {args[0]} else {args[2]}"
        else:
            shown = f"{node.op}({', '.join(args)})"
        rows.append((number[node], names.get(node, ""), shown, str(node.level), str(node.domain)))
    return rows
