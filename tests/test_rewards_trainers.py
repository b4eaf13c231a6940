"""Specs that measure everything themselves, inside the trainers."""

import pytest
from tiny_model import tiny_model, tiny_tokenizer
from trl_runs import data_set, digit, settings, trainer

import rewardspec
from rewardspec.adapters.embedding import embedded, write
from rewardspec.adapters.trl import RewardSpecGRPOTrainer

pytestmark = pytest.mark.filterwarnings("ignore")  # what trainers say is not about us

SPEC = """
rewardspec: 1
name: measures-itself
signals:
  tokens: {range: [0, .inf]}
components:
  digit: {python: "trl_runs:digit", values: [0, 1]}
  same: {use: qa.exact_match, with: {tag: none, answer: level}}
  words: {use: toolrl.think_words, with: {only_when: digit >= 1}, missing: ignore, weight: 0.01}
  long: tokens / 100
advantage: dr_grpo
"""
TOOLS = """
rewardspec: 1
components: {format: {use: toolrl.format}, correctness: {use: toolrl.correctness}}
advantage: gdpo
"""


@pytest.mark.parametrize("passed", [[], [digit]], ids=["none passed", "one passed"])
def test_trl_trains_with_the_functions_that_the_spec_names(tmp_path, passed):
    run = trainer(tmp_path, SPEC, reward_funcs=passed, changes={"max_steps": 2})
    assert run.reward_func_names == ["digit", "same", "words"]
    run.train()
    fn = rewardspec.compile(rewardspec.loads(SPEC))
    for generation in run.generations:
        columns = dict(
            zip(
                run.reward_func_names,
                generation["rewards"].T,
                strict=True,
            )
        )
        assert columns["digit"].tolist() == digit(generation["completions"])
        columns["tokens"] = [len(ids) for ids in generation["ids"]]
        assert generation["out"]["advantages"].tolist() == pytest.approx(fn(columns, 4).advantages.tolist())


def test_trl_needs_no_reward_functions_at_all(tmp_path):
    made = {"train_dataset": data_set(), "processing_class": tiny_tokenizer()}
    run = RewardSpecGRPOTrainer(tiny_model(), args=settings(tmp_path), spec=SPEC, **made)
    assert run.reward_func_names == ["digit", "same", "words"]


def test_verl_loads_the_reward_file_that_compile_writes(tmp_path):
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import get_custom_reward_fn

    write(embedded(rewardspec.loads(TOOLS), "verl"), tmp_path)
    config = {"reward": {"custom_reward_function": {"path": str(tmp_path / "reward.py"), "name": "compute_score"}}}
    compute_score = get_custom_reward_fn(OmegaConf.create(config))
    gold = '<think>t</think>\n<tool_call>\n{"name": "f", "parameters": {"x": 1}}\n</tool_call>'
    found = compute_score(data_source="d", solution_str=gold, ground_truth=gold, extra_info={"index": 3})
    assert found == {"score": 4, "format": 1, "correctness": 3}


def test_openrlhf_file_gives_what_its_reward_func_returns(tmp_path):
    write(embedded(rewardspec.loads(TOOLS), "openrlhf"), tmp_path)
    names = {"__file__": str(tmp_path / "reward.py")}
    exec((tmp_path / "reward.py").read_text(), names)
    found = names["reward_func"](["pq"], ["p"], ["<response>x</response>"])
    assert {name: values.tolist() for name, values in found["extra_logs"].items()} == {
        "format": [0],
        "correctness": [3],
    }


def test_no_reward_file_where_something_else_has_to_be_measured():
    spec = rewardspec.loads(TOOLS.replace("components: {", "components: {other: {values: [0, 1]}, "))
    assert "reward.py" not in embedded(spec, "verl")
