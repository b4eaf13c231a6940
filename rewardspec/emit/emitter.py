"""Graph to torch source.

Only this module ever runs: in process it is loaded from the text that `rewardspec compile` prints. Each value has a
line, under its name in the spec.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable, Mapping

from rewardspec.emit.lines import Lines, wrapped
from rewardspec.emit.runtime_source import support_names, support_source
from rewardspec.ir.checks import find_checks
from rewardspec.ir.node import Node, walk
from rewardspec.ir.shares import find_shares
from rewardspec.language.declarations import Column
from rewardspec.lower.program import Program, StateValue
from rewardspec.ops.domain import Level
from rewardspec.text.quoting import python_file

STATE_NAMES = frozenset({"state", "before", "result", "initial_state", "STATE"})  # of modules with state
LARGEST = 3.4e38  # about the largest float32

HEAD = """\
def advantages(columns, groups, *, step=None, total_steps=None, seed=0{parameters}):
    \"\"\"The advantages of a batch of rollouts, as a `Result`.

    columns: names to tensors, arrays or lists of N values; None and NaN are missing.
    groups: one group size, or N hashable ids.{more}
    step, total_steps: the training step and their number. seed: of random draws (`refill`).
{about}    Raises RolloutError, naming column, rollout and group, where the advantage is undefined.
    \"\"\"
{before}    batch = {batch}"""
BATCH = "Batch(columns, groups, COLUMNS, step, total_steps, seed)"
LIST_BATCH = "ListBatch(columns, groups, COLUMNS, LISTS, lengths, step, total_steps, seed)"
OF_LISTS = """
    lengths: for columns of a list that are flat, {'LIST': N lengths}; others hold a list for each rollout."""

STATE_HEAD = """\
def initial_state():
    \"\"\"The state before the first batch.\"\"\"
    return first_state(STATE)


"""
ABOUT_STATE = """\
    state: `initial_state()`, then the `state` of the result before. It is plain JSON, and is not changed.
"""


LAST = "advantages = read_once(advantages)"  # below what it calls
RUNTIME = """\


# The runtime: what the lines above call. It knows nothing of the spec.


"""


def emit_module(program: Program, head: list[str]) -> str:
    """The source of a module whose `advantages(columns, groups, ...)` computes the program. head: its comments.

    What the spec is comes first, and the runtime that it calls below it.
    """
    body = _body(program)
    imports = "\nimport math\n\nimport torch\n\n"
    runtime = support_source(f"{body}\n{LAST}")
    return python_file(head, imports + _constants(program, body) + body + RUNTIME + f"{runtime}\n\n{LAST}\n")


def emit_split(program: Program, head: list[str], runtime: str) -> tuple[str, str]:
    """The same in two modules: that of the spec, and its runtime, which is called `runtime` and lies beside it."""
    body = f"{_body(program)}\n\n{LAST}\n"
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    names = ", ".join(sorted((used & support_names()) | {"RolloutError"}))
    imports = "\nimport torch\n\n" if "torch" in used else "\n"
    imports += f"if __package__:\n    from .{runtime} import {names}\nelse:\n    from {runtime} import {names}\n\n"
    about = ["The runtime of a module that rewardspec compiled. It needs torch alone."]
    beside = python_file(about, "\nimport math\n\nimport torch\n\n\n" + support_source(body))
    return python_file(head, imports + _constants(program, body) + body), beside


def _constants(program: Program, body: str) -> str:
    return f"EPS = {float(program.eps)!r}  # added to each standard deviation\n\n" if "EPS" in body else ""


def _body(program: Program) -> str:
    """COLUMNS, and the function `advantages`."""
    states = program.states.values()
    lines = Lines(program.graph, STATE_NAMES if states else frozenset())
    after = {state.declared.name: state.after for state in states}
    checks = find_checks(
        program.graph,
        [program.advantage, *(n for c in program.components for n in (c.shaped, c.weight)), *after.values()],
    )
    computed = [*program.results, *after.values()]
    outputs = [*computed, *([] if program.total is None else [program.total])]
    listed = sorted({n.level for n in walk(outputs) if n.level.listed}, key=str)
    lines.name_lists(listed)
    lines.start([(n, n is program.keep) for n in computed] + [(check.bad, True) for check in checks])
    for component in program.components:
        lines.number(component.shaped)
    for check in checks:
        lines.add(f"{lines.sources.frame(check.bad.level)}.refuse({lines.condition(check.bad)}, {check.what!r})")
    advantage = lines.number(program.advantage)
    rewards = _mapping({c.name: lines.number(c.shaped) for c in program.components})
    weights = _mapping({c.name: lines.number(c.weight) for c in program.components})
    arguments = [advantage, rewards, weights]
    if listed:
        levels = {"advantage": program.advantage, **({} if program.total is None else {"total": program.total})}
        levels |= {f"reward/{c.name}": c.shaped for c in program.components}
        arguments.append(_mapping({k: lines.sources.lists[n.level] for k, n in levels.items() if n.level.listed}))
    if program.keep is not None:
        arguments.append(f"kept={lines.condition(program.keep)}")
    if program.copies is not None:
        arguments.append(f"copies={lines.number(program.copies)}")
    carried = _mapping({name: lines.number(node) for name, node in after.items()})
    main = lines.take()
    later = _shares(program, lines)
    if later:
        arguments.append("shares=shares")
    if program.total is not None:
        total = program.total
        made = lines.emitted.get((total, False), ("", 0))[0]
        if not made.isidentifier():
            later += _later(lines, "rewarded", [total], lambda: lines.number(total))
        arguments.append(f"total={made if made.isidentifier() else 'rewarded'}")
    read = {
        node.attributes[0] for node, _ in lines.emitted if node.op == "column"
    }  # includes columns that only a check reads
    read |= {state.declared.by for state in states}
    columns = [_column(column) for name, column in program.columns.items() if name in read]
    head = ["# The columns that are read, with their domains.", "COLUMNS = ["]
    head += [*(f"    {line}," for line in columns), "]"]
    head += [f"LISTS = {tuple(level.name for level in listed)!r}"] if listed else []
    head += [""]
    parts = {"parameters": ", lengths=None" * bool(listed), "more": OF_LISTS * bool(listed)}
    parts |= {"about": "", "before": ""}
    ids = any(column.domain.ids for name, column in program.columns.items() if name in read)
    parts["batch"] = "Id" * ids + (LIST_BATCH if listed else BATCH)
    if states:
        head += ["# The state, with its first values and ranges.", "STATE = ["]
        head += [*(f"    {_state(state)}," for state in states), "]", "", "", STATE_HEAD.rstrip()]
        parts |= {"parameters": parts["parameters"] + ", state=None", "about": ABOUT_STATE}
        parts["before"] = "    before = State(state, STATE)\n"
        head += ["", "", HEAD.format(**parts), "    before.read(batch, columns)"]
    else:
        head += ["", HEAD.format(**parts)]
    largest = max((abs(node.attributes[0]) for node, _ in lines.emitted if node.op == "const"), default=0)
    if largest > LARGEST:
        head.append(f"    batch.hold({float(largest)!r})")
    kind = "ListResult" if listed else "Result"
    tail = wrapped(f"    {'result =' if states else 'return'} {kind}(batch, {', '.join(arguments)})")
    if states:
        tail += wrapped(f"    return with_state(result, before, {carried})")
    return "\n".join([*head, *main, *later, *([""] if later else []), *tail]) + "\n"


def _mapping(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in values.items()) + "}"


def _shares(program: Program, lines: Lines) -> list[str]:
    """The lines of a function for the components' shares; none if the advantage is not a sum of them."""
    found = find_shares(program.graph, program.advantage, len(program.components))
    if found is None:
        return []
    named = list(zip((c.name for c in program.components), found, strict=True))
    return _later(lines, "shares", found, lambda: _mapping({name: lines.number(node) for name, node in named}))


def _later(lines: Lines, name: str, nodes: list[Node], result: Callable[[], str]) -> list[str]:
    """The lines of an inner function, for a value that is computed on first access."""
    outer = lines.emitted
    lines.emitted, lines.indent = dict(outer), "        "
    lines.start([(n, False) for n in nodes])
    made = result()
    found = ["", f"    def {name}():", *lines.take(), *wrapped(f"        return {made}")]
    lines.emitted, lines.indent = outer, "    "
    return found


def _state(state: StateValue) -> str:
    """An entry of STATE."""
    declared = state.declared
    ends = (("low", declared.column.domain.lo), ("high", declared.column.domain.hi))
    options: dict[str, object] = {"init": float(declared.init)}
    options |= {key: float(end) for key, end in ends if not isinstance(end, float)}
    if declared.by is not None:
        options |= {"by": declared.by, "most": declared.most}
    if state.after.domain.missing:
        options["missing"] = True
    return f"({declared.name!r}, {{" + ", ".join(f"{key!r}: {value!r}" for key, value in options.items()) + "})"


def _column(column: Column) -> str:
    """An entry of COLUMNS."""
    options: dict[str, object] = {}
    domain = column.declared
    if domain.ids:
        options["ids"] = True
    elif domain.symbols is not None:
        options["symbols"] = domain.symbols
    elif domain.values is not None:
        values = tuple(float(v) for v in domain.values)
        options["values"] = values
        if len({struct.pack("f", v) for v in values if abs(v) < 3e38}) < len(values):
            options["fine"] = True  # some of them are equal in float32
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
