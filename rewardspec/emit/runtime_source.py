"""The parts of `runtime/` that a module needs, as text."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

# in the order of a module
FILES = (
    *("once", "columns", "layout", "plan", "batch", "statistics", "weighted", "philox", "draws", "result"),
    *("segments", "items", "lists", "ids", "state"),
)


@cache
def _parts() -> dict[str, tuple[str, frozenset[str]]]:
    """Each top-level definition with its source and the names it uses."""
    parts = {}
    for file in FILES:
        text = (Path(__file__).parent / "runtime" / f"{file}.py").read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                names = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
                parts[node.name] = (source, names)
    return parts


def support_names() -> set[str]:
    """All names that the support code can define in a module."""
    return set(_parts())


def support_source(body: str) -> str:
    """The support code that `body` needs, directly or indirectly, in the order of `FILES`."""
    parts = _parts()
    wanted: set[str] = set()
    queue = [n.id for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Name)]
    while queue:
        name = queue.pop()
        if name in parts and name not in wanted:
            wanted.add(name)
            queue += parts[name][1]
    return "\n\n\n".join(source for name, (source, _) in parts.items() if name in wanted) + "\n"
