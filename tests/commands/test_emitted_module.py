"""The emitted module: what the spec is comes first, and the runtime after it or in a second file."""

import ast
import subprocess
import sys

import pytest
from commands_in_process import run

import rewardspec

# with a state, lists, kept and refilled groups, ids, and none of these
NAMES = ("gdpo/code_filtered", "gigpo/gigpo", "laconic/laconic", "mt_grpo/mt_grpo", "papo/papo", "vspo/vspo")
RUNTIME = "\n\n\n# The runtime: what the lines above call. It knows nothing of the spec.\n\n\n"
CALL = """
from {module} import RolloutError, advantages
out = advantages({{"correct": [1, 0, 1, 0], "tokens": [10, 10, 9000, 9000]}}, groups=2)
print([round(a, 4) for a in out.advantages.tolist()])
try:
    advantages({{"correct": [1, 0, 2, 0], "tokens": [1, 1, 1, 1]}}, groups=2)
except RolloutError as error:
    print(error)
"""


def defined(text):
    return [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_module_opens_with_what_the_spec_is(name):
    spec = rewardspec.load(name)
    own, runtime = spec.python.split(RUNTIME)
    head = [line for line in own.split("\n") if line.startswith("#")]
    assert not [line for line in spec.python.split("\n") if line.strip() == "#"]
    assert head[1] == f"# {spec.name}" and any(line.startswith("# Advantage: ") for line in head)
    rewards = head[head.index("# Rewards:") + 1 :][: len(spec.components)]
    assert [line[2:].strip().split(":")[0].split(",")[0] for line in rewards] == [*spec.components][:20]
    assert defined(own) == ["initial_state"] * bool(spec.program.states) + ["advantages"]
    assert "RolloutError" in defined(runtime)
    split, beside = spec.python_split("m_runtime")
    *lines, last = runtime.rstrip("\n").split("\n")
    assert last == "advantages = read_once(advantages)"
    assert split.endswith(f"{own[own.index('# The columns that are read') :]}\n\n\n{last}\n")  # the same lines
    assert beside.endswith("\n".join(lines).rstrip("\n") + "\n") and defined(beside) == defined(runtime)


def test_heading_says_what_is_computed():
    spec = rewardspec.load("gdpo/math_conditioned", constants={"limit": 3000}).under("verl")
    head = spec.python.partition("\nimport")[0]
    for line in (
        "# Rewards:\n#   correct\n#   length: tokens <= limit if correct >= 1 else 0, weight length_weight\n",
        "# Advantage: gdpo\n#   limit = 3000\n",
        f"from a spec with fingerprint {spec.fingerprint}, with the numbers of verl.\n# It needs torch alone.\n",
    ):
        assert line in head
    spec = rewardspec.load("vspo/vspo")
    assert "# Kept are groups where " in spec.python and "# Others are refilled by " in spec.python
    wide = "".join(f"  c{i}: {{values: [0, 1]}}\n" for i in range(30))
    assert "#   and 10 more\n" in rewardspec.loads(f"rewardspec: 1\ncomponents:\n{wide}advantage: grpo\n").python


@pytest.mark.slow
def test_split_module_runs_beside_its_runtime_and_in_a_package(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    modules = ("advantage", "package.advantage")
    for module in modules:
        path = tmp_path / f"{module.replace('.', '/')}.py"
        done = run("compile", "gdpo/math", "-o", path, "--split")
        assert done.returncode == 0 and path.with_name("advantage_runtime.py").exists()
    (tmp_path / "run.py").write_text("".join(CALL.format(module=module) for module in modules))
    done = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # two groups, (1,0) each in `correct`, `length` (1,1) and (0,0): z-scores 0.7071 over a batch std of 0.8165
    assert done.stdout.count("[0.866, -0.866, 0.866, -0.866]\n") == 2
    assert done.stdout.count("column `correct` is 2 at rollout 2 of group 1") == 2


@pytest.mark.parametrize("output", [[], ["-o", "a b.py"], ["-o", "advantage.txt"]])
def test_split_needs_a_module(output, tmp_path):
    done = run("compile", "gdpo/math", "--split", *output, cwd=tmp_path)
    assert done.returncode == 2 and "--split writes two modules" in done.stderr and not [*tmp_path.iterdir()]


def test_split_is_for_modules_alone(tmp_path):
    done = run("compile", "gdpo/math", "--split", "--target", "verl", "-o", "x", cwd=tmp_path)
    assert done.returncode == 2 and "--split cannot be combined with --target" in done.stderr
