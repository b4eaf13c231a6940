"""The report of a spec: what the commands say of it, in one place, and what its components can earn."""

import json

import pytest
from pages_by_hand import SPECS, data_of
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.prove.earnings import earnings, earnings_over_run

SCHEDULED = """\
rewardspec: 1
name: scheduled
signals: {tokens: {range: [0, .inf]}}
components:
  correct: {values: [0, 1], weight: 2}
  style: {range: [-1, 1], weight: 0.5 * (1 - progress)}
  brief: {expr: tokens <= 100, when: correct >= 1, weight: progress}
  long: {expr: -tokens}
outcome: correct >= 1
advantage: gdpo
"""


def run(*arguments, status=0):
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    assert done.exit_code == status, done.output
    return done


@pytest.fixture
def file(tmp_path):
    (tmp_path / "a.yaml").write_text(SPECS["a"])
    return tmp_path / "a.yaml"


@pytest.mark.slow
def test_a_report_says_what_the_commands_say(file):
    spec = rewardspec.load(file)
    found = rewardspec.report(file, group_sizes=[2, 3], rates={"correct": 0.3}).to_json()
    assert found["verdicts"] == [verdict.to_json() for verdict in rewardspec.verify(spec, [2, 3])]
    counts = rewardspec.simulate(spec, [2, 3], rates={"correct": 0.3})
    assert found["counts"] == [count.to_json() for count in counts]
    said = rewardspec.check(spec, rates={"correct": 0.3}, group_sizes=[2, 3])
    assert found["findings"] == [one.to_json() for one in said if one.severity != "note"]
    assert found["notes"] == [one.message for one in said if one.severity == "note"]
    assert (found["name"], found["fingerprint"]) == ("sums", spec.fingerprint)
    (verdict,) = found["verdicts"]
    assert verdict["status"] == "refuted" and verdict["counterexample"]["size"] == 2


def test_dead_groups_by_rate_are_those_of_the_binomial(tmp_path):
    (tmp_path / "one.yaml").write_text("rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\n")
    found = rewardspec.report(tmp_path / "one.yaml", group_sizes=[3]).swept
    assert [row.rate for row in found] == pytest.approx([i / 10 for i in range(11)])
    for row in found:  # all right, or none
        assert row.groups_without_signal == pytest.approx(row.rate**3 + (1 - row.rate) ** 3)


def test_what_components_can_earn():
    found = {row.name: row for row in earnings(rewardspec.loads(SCHEDULED))}
    assert [(row.low, row.high) for row in found.values()] == [(0, 2), (-0.5, 0.5), (0, 1), (None, 0)]
    assert (found["brief"].when, found["brief"].weight) == ("correct >= 1", "progress")
    assert found["correct"].when is None and found["correct"].values == "{0, 1}"


def test_what_components_can_earn_over_a_run():
    rows = earnings_over_run(rewardspec.loads(SCHEDULED), None, moments=5)
    of = {(row.name, row.progress): (row.weight_low, row.weight_high, row.low, row.high) for row in rows}
    assert of["style", 0.25] == (0.375, 0.375, -0.375, 0.375)
    assert of["brief", 0.75] == (0.75, 0.75, 0, 0.75)
    assert {of["correct", p] for p in (0, 0.25, 0.5, 0.75, 1)} == {(2, 2, 0, 2)}
    steps = [row.step for row in earnings_over_run(rewardspec.loads(SCHEDULED), 3) if row.name == "style"]
    assert steps == [0, 1, 2, 3]  # no step twice


@pytest.mark.slow
def test_a_spec_that_does_not_change_has_nothing_over_a_run(file):
    found = rewardspec.report(file, group_sizes=2)
    assert (found.over_run, found.unknown) == ((), "")


@pytest.mark.slow
def test_the_length_of_a_run_is_asked_for_and_never_guessed(tmp_path):
    text = SCHEDULED.replace("weight: progress", 'weight: "min(step / 100, 1)"')
    (tmp_path / "s.yaml").write_text(text)
    found = rewardspec.report(tmp_path / "s.yaml", group_sizes=2)
    assert found.over_run == () and "the spec reads `step`" in found.unknown
    rows = rewardspec.report(tmp_path / "s.yaml", group_sizes=2, total_steps=200).over_run
    weights = {row.step: row.weight_high for row in rows if row.name == "brief"}
    assert (weights[0], weights[100], weights[200]) == (0, 1, 1)


@pytest.mark.slow
def test_the_command_writes_the_page_and_prints_its_numbers(file, tmp_path):
    pytest.importorskip("bokeh")
    done = run(file, "-g", "2", "-o", tmp_path / "page.html", "--format", "json")
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert data["kind"] == "report" and data["found"] == json.loads(done.stdout)
    assert data["source"] == {"text": SPECS["a"], "end": "", "cut": 0, "length": len(SPECS["a"])}
    assert [text.partition("\n")[0] for text in data["rendered"]] == [
        f"{one['severity']}[{one['code']}]: {one['message']}" for one in data["found"]["findings"]
    ]
    assert all(data["pages"][one["code"]] for one in data["found"]["findings"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a.yaml",), "name the page: -o page.html"),
        (("a.yaml", "-o", "a.yaml"), "is read and would be overwritten"),
        (("a.yaml", "--format", "json", "--p", "corect=0.3"), "corect"),
    ],
)
def test_what_is_wrong_is_said(file, monkeypatch, arguments, said):
    pytest.importorskip("bokeh")
    monkeypatch.chdir(file.parent)
    assert said in " ".join(run(*arguments, status=2).stderr.split())
