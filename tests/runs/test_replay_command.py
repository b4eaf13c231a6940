"""`rewardspec replay` on files: the run of the example, conditions, JSON, and logs that lack something."""

import json

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from places import ROOT
from typer.testing import CliRunner

import rewardspec
from rewardspec.adapters.common.rollout_log import log_batch, writer_of
from rewardspec.cli import app
from rewardspec.logs.rollout_log import RolloutLog

EXAMPLE = ROOT / "examples" / "trl"


def run(*arguments, status=0):
    done = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    assert done.exit_code == status, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The first run of the example under GDPO and under GRPO, as files of their own."""
    folder = tmp_path_factory.mktemp("runs")
    table = pq.read_table(EXAMPLE / "rollouts.parquet")
    for scheme in ("gdpo", "grpo"):
        rows = pc.and_(pc.equal(table["scheme"], scheme), pc.equal(table["seed"], 0))
        pq.write_table(table.filter(rows), folder / f"{scheme}.parquet")
    return folder


@pytest.mark.parametrize("scheme", ["gdpo", "grpo"])
def test_the_example_replayed_under_its_own_spec_has_its_logged_advantages(trained, scheme):
    done = run(trained / f"{scheme}.parquet", "--spec", EXAMPLE / f"tools_{scheme}.yaml", "--format", "json")
    found = json.loads(done.stdout)
    (spec,) = found["specs"]
    assert found["format"] == "trl" and found["lost"]
    assert spec["logged"]["rollouts"] > 100 and spec["logged"]["largest"] < 1e-6
    steps = found["steps"]
    assert {"step", "rollouts", "groups", "groups_without_signal", "all_right", "all_wrong", "tied"} <= steps[0].keys()
    assert {"name", "mean", "std", "at_low", "at_high", "share", "with_outcome", "with_length"} <= found["components"][
        0
    ].keys()
    amplified = "batch-step-amplifies" in [remark["code"] for remark in found["audit"]]
    assert amplified == (scheme == "gdpo")


def test_two_specs_are_compared_and_conditions_set_the_status(trained):
    specs = "--spec", EXAMPLE / "tools_gdpo.yaml", "--spec", EXAMPLE / "tools_grpo.yaml"
    found = json.loads(run(trained / "gdpo.parquet", *specs, "--format", "json").stdout)
    assert {"sign_flips", "same_order", "revived", "killed", "rollouts"} <= found["difference"].keys()
    assert len({row["spec"] for row in found["steps"]}) == 2
    done = run(trained / "gdpo.parquet", *specs, "--fail-on", "sign_flips > 2, groups_without_signal > 0.1", status=1)
    assert "groups_without_signal is" in done.stderr and "sign_flips is" not in done.stderr
    assert "this is no forecast" in done.stdout and "An audit" in done.stdout


OWN = """\
rewardspec: 1
name: own
define: {most: 3}
components: {correct: {values: [0, 1]}, brief: {range: [0, 3], weight: "most * progress"}}
advantage: grpo
"""


def test_our_own_log_is_replayed_under_its_own_spec(tmp_path):
    """Constants, dialect and the length of training stand in the log."""
    own = rewardspec.loads(OWN, constants={"most": 5}).under("trl")
    fn = rewardspec.compile(own)
    writer = writer_of(RolloutLog(tmp_path / "rollouts"), own, "trl", "1.16.0")
    for step in range(4):
        columns = {"correct": [1.0, 0, 0, 1], "brief": [0.5, 2, 1, 3 - step / 2]}
        out = fn(columns, 2, step=step, total_steps=10)
        log_batch(writer, own, columns, out, [0, 0, 1, 1], step=step, total_steps=10, seed=0, before=None)
    writer.flush()
    found = json.loads(run(tmp_path / "rollouts", "--format", "json").stdout)
    (spec,) = found["specs"]
    assert (found["format"], spec["name"], spec["fingerprint"]) == ("rewardspec", "own", own.fingerprint)
    assert spec["logged"] == {"rollouts": 16, "largest": pytest.approx(0, abs=1e-6)}
    assert rewardspec.replay(tmp_path / "rollouts").specs[0].fingerprint == own.fingerprint
    assert "--set is for specs that --spec names" in run(tmp_path / "rollouts", "--set", "most=1", status=2).stderr


@pytest.mark.slow
def test_suggestions_are_made_if_they_are_asked_for(trained):
    arguments = trained / "grpo.parquet", "--spec", EXAMPLE / "tools_grpo.yaml", "--suggest"
    assert isinstance(json.loads(run(*arguments, "--format", "json").stdout)["suggestions"], list)
    assert "this log" in run(*arguments).stdout or "no change that was tried" in run(*arguments).stdout


def test_the_function_gives_what_the_command_gives(trained):
    found = rewardspec.replay(trained / "gdpo.parquet", EXAMPLE / "tools_gdpo.yaml", by="prompt_id")
    spec = EXAMPLE / "tools_gdpo.yaml"
    done = run(trained / "gdpo.parquet", "--spec", spec, "--by", "prompt_id", "--format", "json")
    assert json.loads(json.dumps(found.to_json())) == json.loads(done.stdout)
    assert found.specs[0].by


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name one with --spec"),
        (("--spec", EXAMPLE / "tools_gdpo.yaml", "--fail-on", "dead"), "--fail-on: cannot read 'dead'"),
        (("--spec", EXAMPLE / "tools_gdpo.yaml", "--columns", "a"), "--columns needs NAME=NAME"),
        (("--spec", EXAMPLE / "tools_gdpo.yaml", "--by", "level"), "no column `level`"),
        (("--spec", ROOT / "specs" / "gdpo" / "math.yaml"), "no column `"),
    ],
)
def test_what_is_wrong_is_said(trained, arguments, said):
    assert said in " ".join(run(trained / "gdpo.parquet", *arguments, status=2).stderr.split())


def test_a_run_that_is_not_there(tmp_path):
    spec = EXAMPLE / "tools_gdpo.yaml"
    assert run(tmp_path / "none", "--spec", spec, status=2).stderr.startswith("rewardspec: ")
    assert run(tmp_path, "--spec", spec, status=2).stderr.startswith("rewardspec: ")
