"""The GitHub Action: its steps as the runner starts them, `bash -eo pipefail`, with what its inputs become."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from places import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["id"]: step for step in ACTION["runs"]["steps"] if "id" in step}
GOOD = "rewardspec: 1\nname: sound\ncomponents: {a: {values: [0, 1]}}\noutcome: a >= 1\nadvantage: grpo\n"
BAD = GOOD.replace("values", "valuess")
DEAD = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1]}}\noutcome: a >= 1\nadvantage: grpo\n"


@pytest.fixture
def ran(tmp_path):
    """Runs a step with inputs in a folder of its own; gives the process, and the step's outputs."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "rewardspec"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m rewardspec "$@"\n')
    command.chmod(0o755)

    def run(name, **inputs):
        inputs = {key: value["default"] for key, value in ACTION["inputs"].items()} | inputs
        given = {
            key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: inputs[m[1]], value)
            for key, value in STEPS[name]["env"].items()
        }
        (tmp_path / "out").write_text("")
        environment = os.environ | given | {
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path),
            "GITHUB_OUTPUT": str(tmp_path / "out"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
        done = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done, dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines())

    return run


def test_inputs_reach_no_script_as_text():
    """`${{ inputs.x }}` in a script would be run as part of it."""
    for step in ACTION["runs"]["steps"]:
        assert "uses" in step or (step["shell"] == "bash" and "${{" not in step["run"])


def test_every_expression_names_what_there_is():
    said = re.findall(r"(inputs|steps)\.([\w-]+)", (ROOT / "action.yml").read_text())
    assert {name for kind, name in said if kind == "inputs"} == {*ACTION["inputs"]}
    assert {name for kind, name in said if kind == "steps"} <= {*STEPS}


@pytest.mark.slow
def test_findings_are_shown_and_written(ran, tmp_path):
    (tmp_path / "my specs").mkdir()
    (tmp_path / "my specs" / "good.yaml").write_text(GOOD)
    done, out = ran("check", specs="my specs\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(Path(out["sarif"]).read_text())["version"] == "2.1.0"
    (tmp_path / "my specs" / "bad.yaml").write_text(BAD)
    done, out = ran("check", specs="my specs")
    assert done.returncode == 1 and "::error file=my specs/bad.yaml" in done.stdout
    assert {r["level"] for r in json.loads(Path(out["sarif"]).read_text())["runs"][0]["results"]} == {"error"}


@pytest.mark.slow
def test_a_hostile_name_is_a_name(ran, tmp_path):
    done, _ = ran("check", specs='"; touch ran; $(touch ran) `touch ran`')
    assert done.returncode and not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_run_is_audited(ran, tmp_path):
    rows = [
        {"step": s, "group": f"{s}/{g}", "a": (g + i) % 2, "b": 0} for s in range(4) for g in range(6) for i in (0, 1)
    ]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, text in (("spec.yaml", GOOD), ("dead.yaml", DEAD)):
        (tmp_path / name).write_text(text)
    given = "--from=table\n--group-by=group\n--spec="
    done, out = ran("replay", run="run.jsonl", **{"run-arguments": f"{given}spec.yaml"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path(out["report"]).read_text().startswith("<!doctype html")
    done, out = ran("replay", run="run.jsonl", **{"run-arguments": f"{given}dead.yaml"})
    assert done.returncode == 1 and "component-dead" in done.stdout + done.stderr
    assert "component-dead" in (tmp_path / "summary").read_text()
