"""The names of metrics: one set in adapters, in `replay` and in docs/metrics.md, with equal values."""

import re
from dataclasses import asdict, fields

import numpy as np
import pytest
import torch
from far_device import Far
from places import ROOT

import rewardspec
from rewardspec.adapters.common.metrics import Metrics
from rewardspec.logs.run import Run, Step
from rewardspec.runs.health import StepHealth
from rewardspec.runs.replay import replay

SPEC = """\
rewardspec: 1
name: metrics
components:
  correct: {values: [0, 1]}
  brief: {range: [0, 3], weight: price, missing: ignore}
outcome: correct >= 1
state: {price: {init: 0.5, range: [0, 9], update: "price + mean(brief, over=batch)"}}
keep: max(correct) > -1
refill: mean(correct)
advantage: ADVANTAGE
"""
TURNS = """\
rewardspec: 1
name: turns
lists: {turn: {}}
signals: {useful: {values: [0, 1], level: turn}}
components: {correct: {values: [0, 1]}, tool: {expr: useful}}
outcome: correct >= 1
advantage: decoupled
"""
COLUMNS = {
    "correct": [1, 1, 0, 0, 1, 0, 1, 1],
    "brief": [1.0, None, 2.0, 2.0, 0.5, 3.0, 1.0, 1.0],
    "useful": [[1], [0, 1], [], [0], [1, 1], [1, 0, 0], [1], [1]],
}
GROUPS = [0, 0, 1, 1, 2, 2, 3, 3]


def both(text):
    """What an adapter logs of one batch, and what a replay shows of it."""
    spec = rewardspec.loads(text)
    fn, columns = rewardspec.compile(spec), {name: COLUMNS[name] for name in rewardspec.loads(text).columns}
    result = fn(columns, GROUPS, step=3, total_steps=9, state=fn.initial_state())
    metrics = Metrics(spec)(columns, GROUPS, result, result.state, step=3, total_steps=9, seed=0)
    run = Run((), "test", (), lambda: iter([Step(3, GROUPS, columns)]))
    return metrics, asdict(replay(run, [spec], total_steps=9).specs[0].steps[0])


@pytest.mark.parametrize(
    "text", [SPEC.replace("ADVANTAGE", "whiten(center(correct))"), SPEC.replace("ADVANTAGE", "grpo"), TURNS]
)
def test_adapters_log_what_replay_shows_under_its_names(text):
    metrics, row = both(text)
    assert row.pop("step") == 3
    known = {f"rewardspec/{name}": value for name, value in row.items() if value is not None}
    assert {name: metrics[name] for name in known} == pytest.approx(known, rel=1e-5, abs=1e-6)
    assert {"rewardspec/all_right", "rewardspec/all_wrong", "rewardspec/tied", "rewardspec/right"} <= known.keys()
    assert metrics["rewardspec/right"] == 5 / 8


def test_values_are_those_by_hand():
    metrics, _ = both(SPEC.replace("ADVANTAGE", "whiten(center(correct))"))
    # centered: four zeros, +-0.5, then two zeros; groups 0 and 3 are all right, group 1 is all wrong, group 2 is live
    expected = {"rollouts": 8, "groups": 4, "rollouts_without_signal": 6 / 8, "groups_without_signal": 3 / 4}
    expected |= {"all_right": 2 / 4, "all_wrong": 1 / 4, "tied": 0, "effective": 2 / 8, "groups_kept": 1}
    factor = 1 / np.std([0.5, -0.5, 0, 0, 0, 0, 0, 0], ddof=1)
    expected |= {"batch_factor": factor, "live_size": 0.5 * factor, "advantage_spread": factor / 4}
    expected |= {"raw/brief": np.mean([1, 2, 2, 0.5, 3, 1, 1]), "raw/correct": 5 / 8}
    found = {name: metrics[f"rewardspec/{name}"] for name in expected}
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("text", [SPEC.replace("ADVANTAGE", "whiten(center(correct))"), TURNS])
def test_the_host_waits_once_for_all_metrics_of_a_device(text):
    """Counted on a device that is not there; the metrics are those of columns in host memory."""
    expected, _ = both(text)
    spec = rewardspec.loads(text)
    fn, moment = rewardspec.compile(spec), {"step": 3, "total_steps": 9, "seed": 0}
    state = fn.initial_state()
    with Far() as far:
        columns = {name: COLUMNS[name] for name in spec.columns}
        for name in columns.keys() - {"useful"}:
            values = [float("nan") if value is None else value for value in columns[name]]
            columns[name] = far.put(torch.tensor(values, dtype=torch.float32))
        result = fn(columns, GROUPS, **moment, state=state)
        far.waits.clear()
        found = Metrics(spec)(columns, GROUPS, result, result.state, **moment, before=state)
        assert far.waits == ["_to_copy"]
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_an_outcome_that_nobody_measured_is_left_out():
    text = SPEC.replace("components", "signals: {solved: {values: [0, 1]}}\ncomponents").replace(
        "correct >= 1", "solved >= 1"
    )
    spec = rewardspec.loads(text.replace("ADVANTAGE", "grpo"))
    fn, columns = rewardspec.compile(spec), {name: COLUMNS[name] for name in spec.columns}
    result = fn(columns, GROUPS, step=0, total_steps=9, state=fn.initial_state())
    found = Metrics(spec)(columns, GROUPS, result, result.state, step=0, total_steps=9)
    assert "rewardspec/groups_without_signal" in found and "rewardspec/all_right" not in found


def test_the_page_has_every_name_and_no_other():
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    names = {name: row[2] for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    logged = {
        re.sub("(reward|weight|share|raw|state)/.*", r"\1/NAME", name.removeprefix("rewardspec/"))
        for text in ("grpo", "whiten(center(correct))")
        for name in both(SPEC.replace("ADVANTAGE", text))[0]
    }
    assert {*names} == logged | {"rollouts_dropped"}
    steps = {name for name, also in names.items() if also.startswith("replay") and "/" not in name}
    assert steps == {field.name for field in fields(StepHealth)} - {"step"}
