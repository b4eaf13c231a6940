"""Imports go down only (see the rooms in the layers below), and checking needs no torch."""

import ast
from pathlib import Path

import rewardspec

PACKAGE = Path(rewardspec.__file__).parent
LAYERS = [  # from the bottom; a room imports from its own layer and those before it
    {"source", "types", "resources", "_version"},
    {"diagnostics"},
    {"syntax", "ops"},
    {"spec"},
    {"ir"},
    {"emit"},
    {"compiler"},
    {"analysis"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = [p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE]


def test_every_room_has_a_layer():
    assert {room(path) for path in FILES} == set(LEVEL)


def test_imports_go_down_only():
    wrong = []
    for path in FILES:
        for name in imports(path):
            if name.startswith("rewardspec."):
                other = name.split(".")[1]
                own = room(path)
                late_only = (own, other) == ("types", "syntax")  # how a domain is written, asked for when it is shown
                if other != own and LEVEL[other] >= LEVEL[own] and LEVEL[own] and not late_only:
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_only_the_support_code_imports_torch():
    users = {path for path in FILES if any(name.split(".")[0] == "torch" for name in imports(path))}
    assert users
    assert all(path.parent == PACKAGE / "emit" / "support" for path in users)


def test_support_code_imports_nothing_else():
    for path in (PACKAGE / "emit" / "support").glob("*.py"):
        others = {name for name in imports(path) if not name.startswith("rewardspec.emit.support")}
        assert others <= {"math", "torch"}
