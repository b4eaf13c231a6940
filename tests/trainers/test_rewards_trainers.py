"""Specs that measure everything themselves, inside the trainers."""

import copy
import textwrap

import pytest

pytest.importorskip("trl")

from judge_server import said, serving
from tiny_model import tiny_model, tiny_tokenizer
from trl_runs import data_set, digit, settings, trainer

import rewardspec
from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.embedding import embedded, write
from rewardspec.adapters.trl import RewardSpecGRPOTrainer
from rewardspec.rewards import NotAllowed

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


@pytest.mark.parametrize(
    ("passed", "options"), [([], {"allow_python": "trl_runs"}), ([digit], {})], ids=["none passed", "one passed"]
)
def test_trl_trains_with_the_functions_that_the_spec_names(tmp_path, passed, options):
    run = trainer(tmp_path, SPEC, reward_funcs=passed, changes={"max_steps": 2}, **options)
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
    with pytest.raises(NotAllowed, match="would import and run trl_runs:digit"):
        RewardSpecGRPOTrainer(tiny_model(), args=settings(tmp_path), spec=SPEC, **made)
    run = RewardSpecGRPOTrainer(tiny_model(), args=settings(tmp_path), spec=SPEC, allow_python=True, **made)
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


def test_a_spec_that_trainers_measure_needs_no_functions(tmp_path):
    spec = "rewardspec: 1\ncomponents: {brief: {use: gdpo.length(limit=4)}}\nadvantage: grpo\n"
    run = trainer(tmp_path, spec, reward_funcs=[], changes={"max_steps": 1})
    run.train()
    fn = rewardspec.compile(rewardspec.loads(spec))
    for generation in run.generations:
        expected = fn({"tokens": [len(ids) for ids in generation["ids"]]}, 4).advantages.tolist()
        assert generation["out"]["advantages"].tolist() == pytest.approx(expected)


def test_a_function_may_bear_the_name_of_the_column_that_it_reads(tmp_path):
    spec = (
        "rewardspec: 1\ncomponents: {level: {use: qa.exact_match, with: {tag: none, answer: level}}}\nadvantage: grpo\n"
    )
    run = trainer(tmp_path, spec, reward_funcs=[], changes={"max_steps": 1})
    run.train()
    assert run.reward_func_names == ["level"]


def test_columns_that_functions_read_are_looked_for_before_training(tmp_path):
    spec = "rewardspec: 1\ncomponents: {same: {use: qa.exact_match}}\nadvantage: grpo\n"
    with pytest.raises(BindingError, match=r"has no column `answer`.*with: \{answer: COLUMN\}"):
        trainer(tmp_path, spec, reward_funcs=[])
    there = spec.replace("exact_match}", "exact_match, with: {answer: level}}")
    with pytest.raises(BindingError, match="remove_unused_columns=False"):
        trainer(tmp_path, there, reward_funcs=[], changes={"remove_unused_columns": True})


def test_names_and_numbers_of_the_data_set_are_told_apart_before_training(tmp_path):
    spec = "rewardspec: 1\nsignals: {level: {range: [0, 1]}}\ncomponents: {a: level}\nadvantage: grpo\n"
    with pytest.raises(BindingError, match=r"`level` of `train_dataset` holds .*, not one number"):
        trainer(tmp_path, spec, reward_funcs=[])


def test_a_reward_model_and_functions_of_the_spec(tmp_path):
    from transformers import AutoModelForSequenceClassification

    causal = tiny_model()
    config = copy.deepcopy(causal.config)
    config.num_labels = 1
    model = AutoModelForSequenceClassification.from_config(config)
    model.config.pad_token_id = tiny_tokenizer().pad_token_id
    model.config._name_or_path = "somewhere/Reward-0.6B"
    spec = SPEC.replace("signals:", "signals:\n  Reward_0_6B: {range: [-.inf, .inf]}").replace(
        "  long:", "  model: Reward_0_6B\n  long:"
    )
    made = {"train_dataset": data_set(), "processing_class": tiny_tokenizer()}
    run = RewardSpecGRPOTrainer(
        causal,
        args=settings(tmp_path),
        spec=spec,
        allow_python=["trl_runs"],
        reward_funcs=[model],
        reward_processing_classes=[tiny_tokenizer()],
        **made,
    )
    assert run.reward_func_names == ["Reward-0.6B", "digit", "same", "words"]
    run.train()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], None),
        ([1.0, 1.0, 1.0], None),
        ([2.0], r"`reward_weights=\[2.0, 1.0, 1.0\]` has no effect on the advantages of"),
        ([1.0, 1.0], "`reward_weights` has 2 values for 1 reward functions, and 2 of "),
        ([], "`reward_weights` has 0 values for 1 reward functions, and 2 of "),
    ],
)
def test_weights_and_tokenizers_may_be_those_of_the_functions_that_are_passed(tmp_path, weights, message):
    args = settings(tmp_path, reward_weights=weights)
    made = (tiny_model(), digit, args, data_set(), None, tiny_tokenizer(), tiny_tokenizer())  # by their places
    if message is not None:
        with pytest.raises(BindingError, match=message):
            RewardSpecGRPOTrainer(*made, spec=SPEC)
        return
    run = RewardSpecGRPOTrainer(*made, spec=SPEC)
    assert run.reward_func_names == ["digit", "same", "words"] and run.reward_weights.tolist() == [1, 1, 1]
    assert args.reward_weights == weights


def test_constants_go_with_a_text_not_with_a_spec_that_was_read(tmp_path):
    with pytest.raises(BindingError, match="has been read already"):
        trainer(tmp_path, rewardspec.loads(SPEC), reward_funcs=[], constants={"w": 3})


WEIGHED = """
rewardspec: 1
signals: {tokens: {range: [0, .inf]}, data_source: {values: [math, code]}}
components:
  format: {use: toolrl.format, weight: 0.5}
  correctness: {use: toolrl.correctness, missing: ignore, weight: 2 * progress}
  late: {expr: format, weight: 1 if step < 30 else 0.25}
  growing: {expr: format, weight: step}
  relative: {expr: format - mean(format)}
  long: tokens / 100
  math: {expr: format, when: data_source == math, weight: 8}
advantage: gdpo
"""
GOLD = '<think>t</think>\n<tool_call>\n{"name": "f", "parameters": {"x": 1}}\n</tool_call>'


@pytest.mark.parametrize(("source", "score"), [("math", 0.5 + 2 * 3 + 0.25 + 8), ("code", 0.5 + 2 * 3 + 0.25)])
def test_score_is_the_weighted_total_as_far_as_one_rollout_tells_it(source, score):
    compute_score = rewardspec.rewards.for_verl(rewardspec.loads(WEIGHED))
    found = compute_score(data_source=source, solution_str=GOLD, ground_truth=GOLD)
    assert found == {"score": score, "format": 1, "correctness": 3}  # right, at the end of the run


@pytest.mark.parametrize(
    ("total", "score"),
    [("correct * (1 + 2 * bonus)", 3.0), ("correct * tokens", 1.25), ("correct - mean(correct)", 1.25)],
)
def test_score_is_what_the_spec_defines_as_its_total_where_one_rollout_tells_it(total, score):
    text = f"""
    rewardspec: 1
    signals: {{tokens: {{range: [0, .inf]}}}}
    define: {{total: {total}}}
    components:
      correct: {{use: qa.exact_match, with: {{tag: none}}}}
      bonus: {{expr: correct, weight: 0.25}}
    advantage: zscore(total)
    """
    compute_score = rewardspec.rewards.for_verl(rewardspec.loads(textwrap.dedent(text)))
    assert compute_score("qa", "Paris", "Paris")["score"] == score


def test_rewards_and_scores_of_openrlhf_are_the_weighted_total():
    text = WEIGHED.replace(", data_source: {values: [math, code]}", "").replace(
        "  math: {expr: format, when: data_source == math, weight: 8}\n", ""
    )
    reward_func = rewardspec.rewards.for_openrlhf(rewardspec.loads(text))
    found = reward_func(["p" + GOLD, "pno"], ["p", "p"], [GOLD, GOLD])
    assert found["rewards"].tolist() == found["scores"].tolist()
    # a completion without a call is as wrong as can be: -3 of correctness, at twice the weight
    assert found["rewards"].tolist() == [0.5 + 2 * 3 + 0.25, 2 * -3]


def test_a_value_that_is_missing_is_none_to_verl_whose_validation_skips_it():
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    spec = """rewardspec: 1
components:
  same: {use: qa.exact_match, with: {tag: none}}
  words: {use: toolrl.think_words, with: {only_when: same >= 1}, missing: ignore, weight: 0.01}
advantage: grpo
"""
    compute_score = rewardspec.rewards.for_verl(rewardspec.loads(spec))
    infos = [compute_score("d", text, "7") for text in ("<think>a b</think>7", "8", "7")]
    assert [info["words"] is None for info in infos] == [True, True, False] or infos[1]["words"] is None
    found = process_validation_metrics(
        ["d"] * 3, ["u"] * 3, {"reward": [0.0] * 3} | {k: [info[k] for info in infos] for k in infos[0]}
    )
    values = [value for metrics in found["d"].values() for value in metrics.values()]
    assert values and not any(value != value for value in values)


def test_trl_trains_with_a_judge_of_each_prompts_criteria(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    criteria = [["1", "2", "x"][: 1 + i % 3] for i in range(16)]
    points = [[3, -1, 2][: len(texts)] for texts in criteria]

    def judge(text, _before):
        criterion, _, completion = text.partition("|")
        return said(f"Score: {int(criterion in completion)}")

    with serving(judge) as server:
        spec = f"""rewardspec: 1
lists: {{criterion: {{}}}}
signals:
  met:
    use: judge.rubric
    level: criterion
    with:
      template: "{{criterion}}|{{completion}}"
      scores: [0, 1]
      model: m
      url: {server.url}
      criteria: rubric
      cache: none
  points: {{range: [-10, 10], level: criterion}}
components: {{rubric: "sum(met * points, over=rollout)"}}
advantage: rubric - mean(rubric)
"""
        data = data_set().add_column("rubric", criteria).add_column("points", points)
        run = trainer(tmp_path, spec, reward_funcs=[], data=data, changes={"max_steps": 2})
        run.train()
    seen = set()
    for generation in run.generations:
        rewards = [
            sum(p for c, p in zip(row["rubric"], row["points"], strict=True) if c in text)
            for row, text in zip(generation["rows"], generation["completions"], strict=True)
        ]
        mean = sum(rewards) / len(rewards)
        assert generation["out"]["advantages"].tolist() == pytest.approx([r - mean for r in rewards])
        seen |= {*rewards}
    assert len(seen) > 1
