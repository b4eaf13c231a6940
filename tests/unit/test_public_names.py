"""Names that README, the documentation, the examples and written scripts of version 0.1 use go on working."""

import re
import subprocess
import sys
from importlib import import_module

import pytest
from places import ROOT

NAMES = [  # module, what is imported from it; without a trainer
    ("rewardspec", ["SpecError", "Spec", "load", "loads", "compile", "Diagnostic"]),
    ("rewardspec.rewards", ["for_trl", "for_verl", "for_openrlhf", "Scorer", "ScoringError", "NotAllowed"]),
    ("rewardspec.rewards", ["BadReference", "Reward", "all_rewards", "find_reward", "reward", "toolrl", "judge"]),
    ("rewardspec.rewards.toolrl", ["correctness"]),
    ("rewardspec.rewards.code", ["pass_rate", "no_error"]),
    ("rewardspec.rewards.sandbox", ["protections"]),
    ("rewardspec.rewards.code.sandbox", ["protections"]),
    ("rewardspec.rewards.judge", ["rubric"]),
    ("rewardspec.rewards.judge_key", ["allow_key"]),
    ("rewardspec.adapters.binding", ["BindingError"]),
    ("rewardspec.adapters.openrlhf", ["main", "install"]),
    ("rewardspec.adapters.verl", ["estimator", "install"]),
]
OF_TRL = [
    ("rewardspec.adapters.trl", ["RewardSpecGRPOTrainer", "RewardSpecRLOOTrainer", "RewardSpecMixin", "install"]),
    ("rewardspec.adapters.trl_async", ["RewardSpecAsyncGRPOTrainer"]),
]


@pytest.mark.parametrize(("module", "names"), NAMES, ids=[f"{module} {names[0]}" for module, names in NAMES])
def test_public_names_are_where_they_were(module, names):
    program = f"from {module} import {', '.join(names)}\nimport sys\n"
    program += "assert not {'trl', 'verl', 'ray', 'openrlhf', 'torch'} & set(sys.modules), 'it imports a trainer'\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("module", "names"), OF_TRL, ids=[module for module, _ in OF_TRL])
def test_names_that_need_trl_are_where_they_were(module, names):
    pytest.importorskip("trl")
    found = import_module(module)
    assert all(hasattr(found, name) for name in names)


def test_every_name_that_is_documented_is_tried_here():
    files = [ROOT / "README.md", ROOT / "grammar/LANGUAGE.md", *sorted((ROOT / "docs").rglob("*.md"))]
    files += [path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".yaml", ".sh")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    modules = set(re.findall(r"rewardspec\.(?:adapters|rewards)(?:\.[a-z_]+)*", text))
    known = {module for module, _ in [*NAMES, *OF_TRL]}
    known |= {f"{module}.{name}" for module, names in NAMES for name in names}
    # these run when they are imported, and tests of their trainers do that
    known |= {"rewardspec.adapters.trl_hook.spec", "rewardspec.adapters", "rewardspec.adapters.trl.hook.spec"}
    assert modules <= known, modules - known


def test_scripts_of_earlier_versions_find_the_quoting_of_paths():
    command = [sys.executable, "-m", "rewardspec.quoting", "a b'c"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "'a b\\'c'\n")
    assert subprocess.run([*command[:-1], "${x}"], capture_output=True, cwd=ROOT).returncode == 1


def test_openrlhf_is_started_by_its_module():
    command = [sys.executable, "-m", "rewardspec.adapters.openrlhf", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "python -m rewardspec.adapters.openrlhf --spec SPEC" in " ".join(
        done.stdout.split()
    )
