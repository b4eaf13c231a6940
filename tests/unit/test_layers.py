"""Imports go down only, and what answers at once never imports torch."""

import ast
import subprocess
import sys
from functools import cache

import pytest
from places import PACKAGE

LAYERS = [  # of docs/design.md, from the top; rooms of one layer do not know each other
    {"cli"},
    {"api"},
    {"editor"},
    {"manual"},
    {"adapters"},
    {"pages"},
    {"runs"},
    {"lint"},
    {"prove"},
    {"groups"},
    {"scoring"},
    {"logs"},
    {"spec"},
    {"function"},
    {"reward_tokens"},
    {"emit"},
    {"lower"},
    {"ir"},
    {"language"},
    {"rewards"},
    {"syntax", "ops", "quoting"},  # quoting: an older name of text/quoting.py, which scripts of users call
    {"text"},
    {"resources"},
]
DEPTH = {room: depth for depth, rooms in enumerate(LAYERS) for room in rooms}
# Whose `__getattr__` looks public names up when they are asked for, also those of rooms above: see the tables in them.
FORWARDS = {"__init__.py", "rewards/__init__.py", "adapters/trl/__init__.py"}
FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path):
    """Every module that a file imports when it runs, also inside its functions, with the line."""
    return tuple(_imports(path, parsed(path)))


def _imports(path, tree):
    for_types = {
        node
        for part in ast.walk(tree)
        if isinstance(part, ast.If) and getattr(part.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def room(module):
    """The room of `rewardspec.room...`; None for the package itself."""
    return next((part for part in module.split(".")[1:2] if part in DEPTH), None)


def test_every_file_has_a_room():
    names = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}
    assert names - {"__init__", "__main__", "_version"} <= DEPTH.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path):
    own = room("rewardspec." + path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."))
    wrong = []
    for module, line in imports(path):
        if module.split(".")[0] != "rewardspec" or module.startswith("rewardspec._version") or own is None:
            continue
        target = room(module)  # None: the package's own names, for those above the compiler
        below = DEPTH["spec"] if target is None else DEPTH[target]
        if target != own and below <= DEPTH[own]:
            wrong.append(f"{path.relative_to(PACKAGE)}:{line} imports {module}")
    assert not wrong


def test_names_are_looked_up_late_in_known_places_alone():
    for path in FILES:
        made = {node.name for node in parsed(path).body if hasattr(node, "name")}
        assert "__getattr__" not in made or path.relative_to(PACKAGE).as_posix() in FORWARDS, path


def test_emit_support_needs_torch_alone():
    for path in PACKAGE.glob("emit/runtime/*.py"):
        for module, line in imports(path):
            known = module in ("torch", "math") or module.startswith("rewardspec.emit.runtime")
            assert known, f"{path.name}:{line} imports {module}"


def test_only_what_emitted_modules_carry_and_what_is_for_one_trainer_imports_torch():
    users = {path for path in FILES if any(module.split(".")[0] == "torch" for module, _ in imports(path))}
    assert users
    trainers = [path for path in (PACKAGE / "adapters").iterdir() if path.is_dir() and path.name != "common"]
    loads = PACKAGE / "logs" / "weights_only.py"  # files of torch, when one is opened
    assert all(path.parent in (PACKAGE / "emit" / "runtime", *trainers) or path == loads for path in users)


def test_what_trainers_share_knows_none_of_them():
    names = {path.name for path in (PACKAGE / "adapters").iterdir() if path.is_dir()} - {"common", "__pycache__"}
    for path in (PACKAGE / "adapters").rglob("*.py"):
        own = path.relative_to(PACKAGE / "adapters").parts[0]
        for module, line in imports(path):
            target = module.removeprefix("rewardspec.adapters.").split(".")[0]
            wrong = module.startswith("rewardspec.adapters.") and target in names - {own} and own in names | {"common"}
            assert not wrong, f"{path.relative_to(PACKAGE)}:{line} imports {module}"


@pytest.mark.parametrize(
    "use",
    [
        "pass",
        "rewardspec.loads(good)",
        "rewardspec.loads(good.replace('values: [0, 1]', 'use: toolrl.format'))",
        "check(Source('spec.yaml', bad))[1].sorted()[0].render()",
        "rewardspec.cli",
    ],
)
def test_checking_a_spec_never_imports_torch(use):
    program = f"""
import sys
import rewardspec, rewardspec.cli
from rewardspec.spec import check
from rewardspec.text.source import Source
good = "rewardspec: 1\\ncomponents: {{a: {{values: [0, 1]}}}}\\nadvantage: gdpo\\n"
bad = good.replace("gdpo", "gdop")
{use}
heavy = {{"torch", "numpy", "pandas", "trl", "scipy", "sacrebleu", "math_verify", "openai"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_yaml_and_keys_are_not_known_past_the_reader():
    own = ("syntax", "language")
    inner = ("rewardspec.syntax.yaml", "rewardspec.language.keys", "rewardspec.language.shape")
    users = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        for module, _ in imports(path)
        if path.relative_to(PACKAGE).parts[0] not in own and module.startswith(inner)
    }
    assert not users


def modules():
    """Every module of the package to those of the package that it imports, wherever the import stands."""
    names = {}
    for path in FILES:
        name = "rewardspec." + path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
        names[name.removesuffix(".__init__")] = path
    found = {}
    for name, path in names.items():
        wanted = {module for module, _ in imports(path)}
        found[name] = {w if w in names else w.rpartition(".")[0] for w in wanted} & names.keys() - {name}
    return found


def test_no_circle_of_imports():
    below = modules()
    done = set()

    def walk(name, way):
        assert name not in way, " -> ".join([*way[way.index(name) :], name])
        if name not in done:
            for other in sorted(below[name]):
                walk(other, [*way, name])
            done.add(name)

    for name in sorted(below):
        walk(name, [])
