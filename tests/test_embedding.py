"""`rewardspec compile SPEC --target TRAINER -o DIR`: files that a trainer's configuration can use as they are."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rewardspec
from rewardspec.adapters.embedding import TARGETS, embedded, write
from rewardspec.compiler import load_module

SPECS = Path(__file__).parents[1] / "specs"
FILES = ["gdpo/math", "toolrl/smooth", "rc_grpo/rc_grpo", "vspo/vspo"]


@pytest.mark.parametrize("dialect", [None, "trl"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("target", TARGETS)
def test_files_hold_the_spec_and_its_module(target, name, dialect, tmp_path):
    spec = rewardspec.load(SPECS / f"{name}.yaml")
    spec = spec if dialect is None else spec.under(dialect)
    paths = write(embedded(spec, target), tmp_path / "new" / "folder")
    assert {path.name for path in paths} > {"spec.yaml", "advantage.py"}
    again = rewardspec.load(tmp_path / "new/folder/spec.yaml")
    assert (again if dialect is None else again.under(dialect)).fingerprint == spec.fingerprint
    assert load_module((tmp_path / "new/folder/advantage.py").read_text(), "<module>").advantages
    configuration = [path for path in paths if path.name not in ("spec.yaml", "advantage.py")]
    assert all(spec.fingerprint in path.read_text() for path in configuration)
    for script in (path for path in configuration if path.suffix == ".sh"):
        assert script.stat().st_mode & 0o111
        subprocess.run(["bash", "-n", script], check=True)
        assert (f"dialect={dialect}" in script.read_text() or f"--dialect {dialect}" in script.read_text()) == bool(
            dialect
        )


@pytest.mark.parametrize("name", FILES)
def test_configuration_of_trl_embeds_the_spec(name):
    import yaml

    spec = rewardspec.load(SPECS / f"{name}.yaml")
    settings = yaml.safe_load(embedded(spec.under("trl"), "trl")["trl.yaml"])
    assert rewardspec.loads(settings["env"]["REWARDSPEC"]).fingerprint == spec.fingerprint
    assert settings["env"]["REWARDSPEC_DIALECT"] == "trl"
    assert settings["reward_funcs"][0] == "rewardspec.adapters.trl_hook.spec"


def test_module_gives_what_the_spec_gives(tmp_path):
    spec = rewardspec.load(SPECS / "gdpo/math.yaml")
    module = load_module(embedded(spec, "verl")["advantage.py"], "<module>")
    columns = {"correct": [1, 0, 1, 0], "tokens": [10, 10, 9000, 9000]}
    assert torch.equal(module.advantages(columns, 2).advantages, rewardspec.compile(spec)(columns, 2).advantages)


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "rewardspec.cli", *map(str, arguments)], capture_output=True, text=True
    )


def test_compile_command_with_a_target(tmp_path):
    math = SPECS / "gdpo/math.yaml"
    done = run("compile", math, "--target", "verl", "--dialect", "verl", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "run_verl.sh" in done.stderr
    for arguments, message in (
        (["--target", "verrl", "-o", tmp_path], "--target is"),
        (["--target", "verl"], "name a folder"),
        (["--target", "verl", "-o", tmp_path, "--set", "limit=3"], "change its `define:`"),
        (["--target", "verl", "-o", math], "cannot write"),
    ):
        done = run("compile", math, *arguments)
        assert done.returncode == 2
        assert message in done.stderr
