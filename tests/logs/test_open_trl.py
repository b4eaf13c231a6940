"""Logs that TRL's own trainers write, read again: what is read equals what the trainer had in its hands."""

import json

import pytest

pytest.importorskip("trl")
pytest.importorskip("pyarrow")

from tiny_model import tiny_model, tiny_tokenizer
from trl import GRPOTrainer
from trl_runs import data_set, digit, letters, settings

from rewardspec.logs.open import open_run

pytestmark = pytest.mark.slow


class Seen:
    """Reward functions that keep what they were given and what they gave."""

    def __init__(self):
        self.calls = []

    def functions(self):
        def first(prompts, completions, log_extra=None, **_):
            values = digit(completions)
            values[0] = None  # of no value in TRL
            log_extra("difficulty", [len(str(one)) for one in prompts])
            self.calls.append((list(prompts), list(completions), values))
            return values

        def second(completions, **_):
            values = letters(completions)
            self.calls[-1] += (values,)
            return values

        return [first, second]


@pytest.mark.parametrize("conversational", [False, True])
def test_what_trl_writes_is_read(tmp_path, conversational):
    seen, logged = Seen(), []

    class Watched(GRPOTrainer):
        def log(self, logs, *args):
            if self._logs["prompt"]:
                logged.append((self.state.global_step, list(self._logs["advantages"])))
            super().log(logs, *args)

    args = settings(tmp_path, log_completions=True, per_device_train_batch_size=8, max_steps=3)
    trainer = Watched(
        tiny_model(), seen.functions(), args, data_set(conversational=conversational), processing_class=tiny_tokenizer()
    )
    trainer.train()

    run = open_run([tmp_path])
    steps = list(run.steps())
    assert run.format == "trl"
    assert {"prompt", "completion", "first", "second", "difficulty"} == set(run.columns)
    assert [step.number for step in steps] == [1, 2, 3]
    for step, (prompts, completions, one, two), advantages in zip(steps, seen.calls, logged, strict=False):
        text = [p[0]["content"] for p in prompts] if conversational else prompts
        assert step.columns["prompt"] == text
        assert step.columns["completion"] == [c[0]["content"] if conversational else c for c in completions]
        assert step.columns["first"] == one
        assert step.columns["second"] == pytest.approx(two)
        assert step.columns["difficulty"] == [len(str(p)) for p in prompts]
        assert step.groups == [0] * 4 + [1] * 4
        assert step.number == advantages[0]
        assert step.advantages == pytest.approx(advantages[1])
        assert [row for _, row in step.places] == list(range(1, 9))
        assert step.places[0][0].name == f"completions_{step.number:05d}.parquet"


def test_rollouts_that_are_trained_on_twice_are_read_once(tmp_path):
    args = settings(tmp_path, log_completions=True, num_iterations=2, max_steps=4)
    trainer = GRPOTrainer(tiny_model(), [letters], args, data_set(), processing_class=tiny_tokenizer())
    trainer.train()
    assert len(list(tmp_path.glob("completions/*.parquet"))) == 4
    run = open_run([tmp_path / "completions"])
    assert [step.number for step in run.steps()] == [1, 3]
    assert any("is logged again is read once" in line for line in run.lost)


def table(path, prompts, step=1, **columns):
    import pandas

    n = len(prompts)
    rows = {"step": [step] * n, "prompt": prompts, "completion": [f"{step} {i}" for i in range(n)]}
    rows |= {"right": [i % 2 for i in range(n)], **columns, "advantage": [0.5] * n}
    pandas.DataFrame(rows).to_parquet(path)
    return path


def test_a_prompt_that_was_drawn_twice_in_a_row_is_said(tmp_path):
    table(tmp_path / "completions_00001.parquet", ["a"] * 4 + ["b"] * 4, 1)
    table(tmp_path / "completions_00002.parquet", ["c"] * 8 + ["d"] * 4, 2)
    run = open_run([tmp_path])
    (said,) = [line for line in run.lost if "drawn twice" in line]
    assert "4 adjacent rows have one prompt, but in 1 places 8 or more have it" in said
    assert "completions_00002.parquet" in said
    assert [step.groups for step in run.steps()] == [[0] * 4 + [1] * 4, [0] * 8 + [1] * 4]


def test_a_prompt_that_comes_back_in_a_step_is_a_group_of_its_own(tmp_path):
    table(tmp_path / "completions_00001.parquet", ["a"] * 4 + ["b"] * 4 + ["a"] * 4)
    run = open_run([tmp_path])
    (step,) = run.steps()
    assert step.groups == [0] * 4 + [1] * 4 + [2] * 4
    assert not any("drawn twice" in line for line in run.lost)
    (by_prompt,) = open_run([tmp_path], group_by="prompt").steps()
    assert by_prompt.groups == ["a"] * 4 + ["b"] * 4 + ["a"] * 4


def test_groups_of_odd_sizes_are_said(tmp_path):
    table(tmp_path / "completions_00001.parquet", ["a"] * 4 + ["b"] * 4 + ["c"] * 3)
    assert any("the log cuts batches there" in line for line in open_run([tmp_path]).lost)


def test_columns_can_be_renamed_and_a_column_can_give_groups(tmp_path):
    table(tmp_path / "completions_00001.parquet", ["a"] * 4, task=[1, 1, 2, 2], info=[{"acc": i} for i in range(4)])
    run = open_run([tmp_path], columns={"correct": "info.acc", "group": "task"})
    (step,) = run.steps()
    assert step.columns["correct"] == [0, 1, 2, 3]
    assert step.groups == [1, 1, 2, 2]
    assert json.dumps(sorted(run.columns)) == '["completion", "correct", "info", "prompt", "right"]'
