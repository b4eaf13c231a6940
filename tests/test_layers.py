"""Imports go down only, and what answers at once never imports torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "rewardspec"
LAYERS = [  # of ARCHITECTURE.md, from the top; rooms of one layer do not know each other
    {"cli"},
    {"adapters"},
    {"lint"},
    {"analysis"},
    {"compiler"},
    {"conditioning"},
    {"emit"},
    {"ir"},
    {"spec"},
    {"syntax", "ops", "rewards"},
    {"diagnostics"},
    {"source", "types", "resources", "quoting"},
    {"shown"},
]
DEPTH = {room: depth for depth, rooms in enumerate(LAYERS) for room in rooms}
FILES = sorted(ROOT.rglob("*.py"))


def imports(path):
    """Every module that a file imports, also inside its functions, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def room(module):
    """The room of `rewardspec.room...`; None for the package itself."""
    return next((part for part in module.split(".")[1:2] if part in DEPTH), None)


def test_every_file_has_a_room():
    names = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}
    assert names - {"__init__", "__main__", "_version"} <= DEPTH.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path):
    own = room("rewardspec." + path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."))
    wrong = []
    for module, line in imports(path):
        if module.split(".")[0] != "rewardspec" or module.startswith("rewardspec._version") or own is None:
            continue
        target = room(module)  # None: the package's own names, for those above the compiler
        below = DEPTH["compiler"] if target is None else DEPTH[target]
        if target != own and below <= DEPTH[own]:
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
    assert not wrong


def test_emit_support_needs_torch_alone():
    for path in ROOT.glob("emit/support/*.py"):
        for module, line in imports(path):
            known = module in ("torch", "math") or module.startswith("rewardspec.emit.support")
            assert known, f"{path.name}:{line} imports {module}"


def test_only_the_support_code_adapters_and_what_openrlhf_is_given_import_torch():
    users = {path for path in FILES if any(module.split(".")[0] == "torch" for module, _ in imports(path))}
    assert users
    users -= {ROOT / "rewards" / "trainers.py"}
    assert all(path.parent in (ROOT / "emit" / "support", ROOT / "adapters") for path in users)


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
from rewardspec.compiler import check
from rewardspec.source import Source
good = "rewardspec: 1\\ncomponents: {{a: {{values: [0, 1]}}}}\\nadvantage: gdpo\\n"
bad = good.replace("gdpo", "gdop")
{use}
heavy = {{"torch", "numpy", "pandas", "trl", "scipy", "sacrebleu", "math_verify", "openai"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
