"""`rewardspec compile SPEC --target TRAINER -o DIR`: files that a trainer's configuration can use as they are."""

import itertools
import runpy
import shlex
import subprocess

import pytest
import torch
from commands_in_process import run
from places import SPECS

import rewardspec
from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.embedding import TARGETS, Occupied, embedded, write
from rewardspec.function import load_module

FILES = ["gdpo/math", "toolrl/smooth", "rc_grpo/rc_grpo", "vspo/vspo"]


@pytest.mark.parametrize("dialect", [None, "trl"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("target", TARGETS)
def test_files_hold_the_spec_and_its_module(target, name, dialect, tmp_path):
    spec = rewardspec.load(SPECS / f"{name}.yaml")
    if target == "openrlhf" and spec.condition is not None:
        with pytest.raises(BindingError, match="has reward tokens"):
            embedded(spec, target)
        return
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


def test_compile_command_with_a_target(tmp_path):
    math = SPECS / "gdpo/math.yaml"
    done = run("compile", math, "--target", "verl", "--dialect", "verl", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "run_verl.sh" in done.stderr
    for arguments, message in (
        (["--target", "verrl", "-o", tmp_path], "--target must be"),
        (["--target", "verl"], "give a folder"),
        (["--target", "trl", "-o", tmp_path, "--seed", "3"], "TRL draws with its own `seed`"),
        (["--seed", "3"], "--seed needs --target"),
        (["--target", "verl", "-o", math], "cannot write"),
        (["--target", "verl", "-o", tmp_path], "spec.yaml"),  # what another spec wrote there
    ):
        done = run("compile", SPECS / "gdpo/math_grpo.yaml" if "spec.yaml" in message else math, *arguments)
        assert done.returncode == 2
        assert message in done.stderr


def test_what_a_user_wrote_is_not_written_over(tmp_path):
    spec = rewardspec.load(SPECS / "toolrl/original.yaml")
    write(embedded(spec, "verl"), tmp_path)
    write(embedded(spec, "verl"), tmp_path)  # the same again
    (tmp_path / "reward.py").write_text("mine")
    with pytest.raises(Occupied, match=r"reward\.py"):
        write(embedded(spec, "verl"), tmp_path)
    assert (tmp_path / "reward.py").read_text() == "mine"
    write(embedded(spec, "verl"), tmp_path, force=True)
    assert "for_verl" in (tmp_path / "reward.py").read_text()


def test_files_ask_for_what_nothing_else_measures():
    text = """rewardspec: 1
signals: {level: {values: [easy, hard]}}
components:
  format: {use: toolrl.format}
  other: {values: [0, 1], when: level == easy}
advantage: grpo
"""
    spec = rewardspec.loads(text)
    assert "not measure level, other:" in embedded(spec, "verl")["reward.py"]
    trl = embedded(spec, "trl")["trl.yaml"]
    assert "my_rewards.other" in trl and "my_rewards.level" not in trl
    measured = rewardspec.loads(
        "rewardspec: 1\nsignals: {score: {range: [0, 1]}}\ncomponents: {a: score}\nadvantage: grpo\n"
    )
    assert 'a dict with "score".' in embedded(measured, "verl")["run_verl.sh"]
    with pytest.raises(BindingError, match="are names, but OpenRLHF carries only numbers"):
        embedded(spec, "openrlhf")


USES = """rewardspec: 1
define: {limit: 0.5, half: 0.5}
components:
  brief: {expr: format <= limit, weight: half}
  format: {use: toolrl.format}
advantage: grpo
"""
CONSTANTS = {"limit": "0.25", "half": "1 / 3"}


def said(target, files):
    """The constants and the seed that a generated configuration hands to its trainer, as the trainer reads them."""
    if target == "trl":
        import yaml

        from rewardspec.adapters.trl.hook import options

        return options(yaml.safe_load(files["trl.yaml"])["env"])["constants"], None
    script = files[f"run_{target}.sh"]
    if target == "openrlhf":
        words = shlex.split(script.partition("adapters.openrlhf ")[2])
        pairs = list(itertools.pairwise(words))
        return dict(b.split("=", 1) for a, b in pairs if a == "--set"), next(int(b) for a, b in pairs if a == "--seed")
    from hydra.core.override_parser.overrides_parser import OverridesParser

    words = [word for word in shlex.split(script.partition("main_ppo \\")[2]) if ".spec=" not in word and "=" in word]
    values = {o.key_or_group: o.value() for o in OverridesParser.create().parse_overrides(words)}
    where = "algorithm.rewardspec."
    constants = {k.removeprefix(where + "constants."): str(v) for k, v in values.items() if ".constants." in k}
    return constants, values[where + "seed"]


@pytest.mark.parametrize("target", TARGETS)
def test_constants_and_seed_stand_in_what_is_written(target, monkeypatch, tmp_path):
    if target == "trl":  # importing the hook would change TRL's trainers for the tests that follow
        monkeypatch.setenv("REWARDSPEC", str(SPECS / "gdpo/math.yaml"))
        monkeypatch.setattr("rewardspec.adapters.trl.installation.install", lambda *_, **__: None)
    spec, seed = rewardspec.loads(USES, constants=CONSTANTS), None if target == "trl" else 11
    files = embedded(spec, target, constants=CONSTANTS, seed=seed)
    assert said(target, files) == (CONSTANTS, seed)
    if target != "trl":
        write(files, tmp_path)
        name = {"verl": "compute_score", "openrlhf": "reward_func"}[target]
        assert runpy.run_path(str(tmp_path / "reward.py"))[name].spec.fingerprint == spec.fingerprint
    assert spec.fingerprint in "".join(text for name, text in files.items() if name != "advantage.py")


def test_a_script_adds_to_the_modules_that_verl_imports(tmp_path):
    (line,) = [
        line
        for line in embedded(rewardspec.loads(USES), "verl")["run_verl.sh"].splitlines()
        if line.startswith("export VERL_USE_EXTERNAL_MODULES")
    ]
    for before, after in (("mine", "mine,rewardspec.adapters.verl"), ("", "rewardspec.adapters.verl")):
        done = subprocess.run(
            ["bash", "-euc", f"{line}; echo $VERL_USE_EXTERNAL_MODULES"],
            env={"VERL_USE_EXTERNAL_MODULES": before} if before else {},
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == after
