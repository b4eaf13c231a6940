"""Logs of trainers that are not installed here, rebuilt from the source that writes them.

Each `written` function repeats, line by line, what the named file of the trainer does with a batch.
"""

import json
import pickle
from dataclasses import asdict, dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rewardspec.logs.format import TORCH, Head
from rewardspec.logs.open import open_run
from rewardspec.logs.registry import registered
from rewardspec.logs.rows import BadLog
from rewardspec.logs.steps import Taken, rollouts_of


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


# --- ms-swift 4.6.0.dev0


def flush(step, n=4, key="step", **more):
    """swift/rlhf_trainers/grpo_trainer.py, `log`: `table`; with gen_step that of swift/megatron/trainers."""
    return {
        key: [str(step) if key == "step" else step] * n,
        "prompt": [f"p{step} {i // 2}" for i in range(n)],
        "completion": [f"c{step} {i}" for i in range(n)],
        "Format": [float(i % 2) for i in range(n)],
        "MathAccuracy": [None if i == 0 else 1.0 for i in range(n)],
        "advantages": [i - 1.5 for i in range(n)],
        **more,
    }


@pytest.mark.parametrize("key", ["step", "gen_step"])
def test_ms_swift_lists(tmp_path, key):
    tables = [flush(step, key=key, num_turns=[1, 2, 3, 4]) for step in (9, 10)]
    path = lines(tmp_path / "completions.jsonl", [*tables, tables[1]])  # the last flush of a run is written twice
    with pytest.raises(BadLog, match="--group-by prompt"):
        open_run([path])
    run = open_run([tmp_path], group_by="prompt")
    steps = list(run.steps())
    assert run.format == "ms-swift"
    assert [step.number for step in steps] == [9, 10]
    assert [len(step) for step in steps] == [4, 4], "what is logged twice is read once"
    assert steps[0].groups == ["p9 0", "p9 0", "p9 1", "p9 1"]
    assert steps[0].columns["Format"] == [0, 1, 0, 1]
    assert steps[0].columns["MathAccuracy"] == [None, 1, 1, 1]
    assert steps[0].columns["num_turns"] == [1, 2, 3, 4]
    assert steps[0].advantages == [-1.5, -0.5, 0.5, 1.5]
    assert set(run.columns) == {"prompt", "completion", "Format", "MathAccuracy", "num_turns"}


def test_ms_swift_of_ray(tmp_path):
    """swift/ray/megatron/base_trainer.py, `_maybe_log_completions`."""
    rows = [{"gen_step": s, "prompt": "p", "completion": "c", "reward": 0.5} for s in (0, 0, 1, 1)]
    run = open_run([lines(tmp_path / "completions.jsonl", rows)], group_by="prompt")
    assert [(step.number, step.columns["reward"]) for step in run.steps()] == [(0, [0.5, 0.5]), (1, [0.5, 0.5])]
    assert any(line.startswith("components: ") for line in run.lost)


def test_a_run_that_was_started_again(tmp_path):
    path = lines(tmp_path / "completions.jsonl", [flush(step) for step in (1, 2, 1)])
    with pytest.raises(BadLog, match=r"completions\.jsonl:3: step 1 comes after step 2: .* split the file before"):
        list(open_run([path], group_by="prompt").steps())


def test_ms_swift_with_a_list_that_is_too_short(tmp_path):
    path = lines(tmp_path / "completions.jsonl", [flush(1), {**flush(2), "Format": [1.0]}])
    with pytest.raises(BadLog, match=r"completions\.jsonl:2: `Format` is no list of 4 values"):
        list(open_run([path], group_by="prompt").steps())


# --- NeMo-RL 0.6.0


def nemo_rl(path, batch):
    """nemo_rl/utils/logger.py, `log_batched_dict_as_jsonl`: slices of one, tensors as lists."""
    size = len(batch["rewards"])
    rows = []
    for i in range(size):
        sample = {key: value[i : i + 1] for key, value in batch.items()}
        rows.append({**{k: v.tolist() if hasattr(v, "tolist") else v for k, v in sample.items()}, "idx": i})
    return lines(path, rows)


def nemo_batch(**more):
    """nemo_rl/algorithms/grpo.py, `log_data`: two prompts, two rollouts each; the third has two turns."""
    mask = torch.tensor([[0, 0, 1, 1, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 1], [0, 0, 1, 1, 1]])
    ids = torch.tensor([[5, 6, 1, 2, 0], [5, 6, 3, 0, 0], [7, 8, 1, 2, 3], [7, 8, 2, 2, 2]])
    advantages = torch.tensor([-0.5, 0.5, 0.25, -0.25])[:, None].expand(4, 5).clone()
    advantages[3, 4] = 9.0
    return {
        "content": [["sys\nq", "a"], ["sys\nq", "b"], ["r", "c", "tool", "d"], ["r", "e"]],
        "rewards": [0.0, 1.0, 0.5, 0.0],
        "input_lengths": [4, 3, 5, 5],
        "token_ids": ids.tolist(),
        "token_loss_mask": mask.tolist(),
        "sample_loss_mask": [1.0] * 4,
        "advantages": advantages.tolist(),
        "generation_logprobs": [[0.0] * 5] * 4,
        "prev_logprobs": [[0.0] * 5] * 4,
        **more,
    }


def test_nemo_rl(tmp_path):
    nemo_rl(tmp_path / "train_data_step9.jsonl", nemo_batch())
    nemo_rl(tmp_path / "train_data_step10.jsonl", nemo_batch())
    lines(tmp_path / "val_data_step10.jsonl", [{"content": [["q", "a"]], "rewards": [1.0], "idx": 0}])
    with pytest.raises(BadLog, match="--group-by prompt_id"):
        open_run([tmp_path])
    run = open_run([tmp_path], group_by="prompt_id")
    steps = list(run.steps())
    assert [step.number for step in steps] == [9, 10]
    step = steps[0]
    assert [step.groups.count(group) for group in step.groups] == [2, 2, 2, 2]
    assert step.columns["rewards"] == [0.0, 1.0, 0.5, 0.0]
    assert step.columns["tokens"] == [2, 1, 2, 3]
    assert step.columns["prompt"] == ["sys\nq", "sys\nq", None, "r"]
    assert step.columns["completion"] == ["a", "b", "r\n\nc\n\ntool\n\nd", "e"]
    assert step.advantages == [-0.5, 0.5, 0.25, None], "the tokens of the last have different ones"
    assert any("val_data_step10.jsonl (is not of format nemo-rl)" in line for line in run.lost)
    assert any(line.startswith("components: ") for line in run.lost)


def test_nemo_rl_with_dynamic_sampling(tmp_path):
    batch = nemo_batch(rewards=[0.0] * 4, filtered_rewards=[0.0, 1.0, 0.5, 0.0])
    nemo_rl(tmp_path / "train_data_step1.jsonl", batch)
    run = open_run([tmp_path], group_by="prompt_id")
    assert "rewards" not in run.columns
    assert next(run.steps()).columns["filtered_rewards"] == [0.0, 1.0, 0.5, 0.0]


# --- NeMo Gym 0.5.1


def gym_row(task, rollout, **more):
    """nemo_gym/rollout_collection.py and base_resources_server.py."""
    output = [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "name": "get_weather", "arguments": '{"city": "Rome"}', "call_id": "x", "id": "f"},
        {"type": "function_call_output", "call_id": "x", "output": "sunny"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sun."}]},
    ]
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"weather {task}?", "type": "message"}]},
        "response": {"output": output, "usage": {"input_tokens": 5, "output_tokens": 7}},
        "reward": 0.75,
        "correct": 1.0,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": "a"},
        **more,
    }


def test_nemo_gym(tmp_path):
    rows = [gym_row(t, r, reward_components={"correct": 0.5, "schema": 1.0}) for t in (0, 1) for r in (0, 1)]
    run = open_run([lines(tmp_path / "rollouts.jsonl", rows)])
    (step,) = run.steps()
    assert run.format == "nemo-gym"
    assert step.number is None
    assert step.groups == [0, 0, 1, 1]
    assert step.columns["schema"] == [1.0] * 4
    assert step.columns["correct"] == [1.0] * 4, "a field of the environment of the same name"
    assert step.columns["reward_components.correct"] == [0.5] * 4
    assert step.columns["output_tokens"] == [7] * 4
    assert "weather 0?" in step.columns["prompt"][0]
    assert "get_weather" in step.columns["completion"][0] and step.columns["completion"][0].endswith("Sun.")
    assert any(line.startswith("steps: ") for line in run.lost)


def test_nemo_gym_without_an_index_of_tasks(tmp_path):
    row = gym_row(0, 0)
    del row["_ng_task_index"]
    with pytest.raises(BadLog, match="--group-by prompt"):
        open_run([lines(tmp_path / "rollouts.jsonl", [row])])


# --- slime 0.3.1


def sample(index, group, reward, **more):
    """slime/utils/types.py, `Sample.to_dict()`."""
    return {
        "group_index": group,
        "index": index,
        "rollout_id": None,
        "prompt": [{"role": "user", "content": f"p{group}"}],
        "tokens": torch.arange(5),
        "response": f"c{index}",
        "response_length": 3,
        "label": "1",
        "reward": reward,
        "loss_mask": [1, 1, 1],
        "rollout_log_probs": [0.0, 0.0, 0.0],
        "remove_sample": False,
        "status": "completed",
        "metadata": {"source": "gsm8k", "difficulty": torch.tensor(0.5)},
        "spec_info": {"spec_verify_ct": 0},
        "prefix_cache_info": {"cached_tokens": 0},
        **more,
    }


def dump(path, number, samples):
    """slime/observability/rollout_data_utils.py, `save_debug_rollout_data`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"rollout_id": number, "samples": samples}, path)
    return path


def test_slime(tmp_path):
    for number in (9, 10):
        samples = [sample(i, i // 2, {"acc": float(i % 2), "format": 1.0}) for i in range(4)]
        dump(tmp_path / "rollout_data" / f"{number}.pt", number, samples)
    run = open_run([tmp_path])
    steps = list(run.steps())
    assert run.format == "slime"
    assert [step.number for step in steps] == [9, 10]
    assert steps[0].groups == [0, 0, 1, 1]
    assert steps[0].columns["acc"] == [0, 1, 0, 1]
    assert steps[0].columns["format"] == [1, 1, 1, 1]
    assert steps[0].columns["prompt"] == ["p0", "p0", "p1", "p1"]
    assert steps[0].columns["metadata"][0] == {"source": "gsm8k", "difficulty": 0.5}
    assert "tokens" not in steps[0].columns
    assert steps[0].places[3] == (tmp_path / "rollout_data" / "9.pt", 4)
    assert any("--reward-key" in line for line in run.lost)
    by_source = open_run([tmp_path], columns={"source": "metadata.source"})
    assert next(by_source.steps()).columns["source"] == ["gsm8k"] * 4


def test_slime_keeps_the_last_sample_of_a_rollout(tmp_path):
    samples = [sample(i, 0, float(i), rollout_id=i // 2) for i in range(4)]
    (step,) = open_run([dump(tmp_path / "0.pt", 0, samples)]).steps()
    assert step.columns["completion"] == ["c1", "c3"]


def test_evaluations_of_slime_are_not_mixed_in(tmp_path):
    dump(tmp_path / "3.pt", 3, [sample(0, 0, 1.0)])
    dump(tmp_path / "eval_3.pt", 3, [sample(0, 0, 1.0)])
    with pytest.raises(BadLog, match="begin with `eval_` are evaluations"):
        open_run([tmp_path])


class Touch:
    """What a hostile pickle does: it runs a function when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("zipped", [True, False])
def test_a_hostile_pickle_is_refused_and_does_not_run(tmp_path, zipped):
    touched, path = tmp_path / "touched", tmp_path / "0.pt"
    torch.save({"rollout_id": 0, "samples": [Touch(touched)]}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(BadLog, match="can run code" if zipped else "is not a file that torch.save writes now"):
        open_run([path])
    assert not touched.exists()
    path.write_bytes(pickle.dumps({"rollout_id": 0, "samples": [Touch(touched)]}))
    with pytest.raises(BadLog, match="not opened"):
        open_run([path])
    assert not touched.exists()


def test_a_reward_that_is_no_plain_number_is_refused_with_what_to_do(tmp_path):
    import numpy

    path = dump(tmp_path / "0.pt", 0, [sample(0, 0, numpy.float64(1.0))])
    with pytest.raises(BadLog, match=r"needs `numpy\S*scalar`.*save it with those alone"):
        open_run([path])


@pytest.mark.parametrize("prompt", [{("a",): 1}, "itself"])
def test_a_prompt_of_an_odd_shape_is_refused_in_words(tmp_path, prompt):
    if prompt == "itself":
        prompt = []
        prompt.append(prompt)
    with pytest.raises(BadLog, match=r"0\.pt:1: "):
        open_run([dump(tmp_path / "0.pt", 0, [sample(0, 0, 1.0, prompt=prompt)])])


def test_a_torch_file_that_is_cut_short_is_refused_in_words(tmp_path):
    path = dump(tmp_path / "0.pt", 0, [sample(0, 0, 1.0)])
    for size in (5, 100, path.stat().st_size // 2, path.stat().st_size - 8):
        (tmp_path / "cut.pt").write_bytes(path.read_bytes()[:size])
        with pytest.raises(BadLog):
            open_run([tmp_path / "cut.pt"])


# --- verifiers 0.3 and prime-rl 0.8.0


def trace(rewards, advantage=None, trainable=True, name="agent"):
    """verifiers/v1/trace.py, `Trace`, dumped with exclude_none."""
    credit = [] if advantage is None else [advantage] * 2
    nodes = [
        {"message": {"role": "user", "content": "q"}, "sampled": False, "token_ids": [1, 2], "mask": [False, False]},
        {
            "parent": 0,
            "message": {"role": "assistant", "content": "a"},
            "sampled": True,
            "token_ids": [3, 4, 5],
            "mask": [False, True, True],
            "logprobs": [0.0, 0.0],
            **({"advantages": credit} if credit else {}),
        },
    ]
    return {
        "version": 1,
        "task": {"type": "T", "data": {"idx": 1}},
        "agent": {"config": {}, "name": name, "trainable": trainable},
        "nodes": nodes,
        "rewards": rewards,
        "metrics": {"num_turns": 1.0, "right": 0.25},
        "ok": True,
        "stop_condition": "done",
    }


def episode(traces, key="t1", **more):
    """verifiers/v1/episode.py, `Episode.to_record()`."""
    task = {"type": "T", "data": {"idx": 1}, "key": key}
    return {"id": "e", "env": {"id": "gsm8k"}, "task": task, "ok": True, "errors": [], "traces": traces, **more}


REWARDS = {"right": {"score": 1.0, "weight": 1.0}, "short": {"score": 0.5, "weight": 0.1}, "late": None}


def test_verifiers_traces(tmp_path):
    rows = [episode([trace(REWARDS)], key) for key in ("t1", "t1", "t2")]
    rows += [episode([], "t3"), episode([trace(REWARDS, trainable=False, name="judge")], "t4")]
    run = open_run([lines(tmp_path / "traces.jsonl", rows)])
    (step,) = run.steps()
    assert run.format == "verifiers"
    assert step.groups == ["t1", "t1", "t2"]
    assert step.columns["right"] == [1.0] * 3
    assert step.columns["right.weight"] == [1.0] * 3
    assert step.columns["metrics.right"] == [0.25] * 3, "a metric of the same name"
    assert step.columns["short.weight"] == [0.1] * 3
    assert step.columns["late"] == [None] * 3
    assert step.columns["prompt"] == ["q"] * 3
    assert step.columns["completion"] == ["a"] * 3
    assert step.columns["tokens"] == [2] * 3
    assert step.advantages is None


def test_prime_rl(tmp_path):
    for number in (9, 10):
        run = {"type": "train", "id": "r", "work": {"type": "train", "step": number - 1}}
        rows = [episode([trace(REWARDS, advantage=a)], "t1", group={"id": f"g{a > 0}"}, run=run) for a in (0.5, -0.5)]
        lines(tmp_path / "rollouts" / f"step_{number}" / "train" / "effective" / "traces.jsonl", rows)
    lines(tmp_path / "metrics.jsonl", [{"step": 1, "time": 0.0, "loss": 1.0}])
    run = open_run([tmp_path])
    steps = list(run.steps())
    assert run.format == "prime-rl"
    assert [step.number for step in steps] == [9, 10], "the batch, not the step of dispatch"
    assert steps[0].groups == ["gTrue", "gFalse"]
    assert steps[0].advantages == [0.5, -0.5]
    lines(tmp_path / "rollouts" / "step_9" / "train" / "all" / "traces.jsonl", rows)
    with pytest.raises(BadLog, match="train/effective"):
        open_run([tmp_path])


def test_episodes_without_a_trace_do_not_hide_the_step_of_a_file(tmp_path):
    run = {"type": "train", "id": "r", "work": {"type": "train", "step": 3}}
    for number in (2, 1):
        rows = [episode([], run=run), episode([trace(REWARDS, 1.0)], group={"id": "g"}, run=run)]
        folder = tmp_path / f"{number % 2}" / "rollouts" / f"step_{number}" / "train" / "all"
        lines(folder / "traces.jsonl", rows)
    assert [step.number for step in open_run([tmp_path]).steps()] == [1, 2]


def test_prime_rl_without_its_folders(tmp_path):
    run = {"type": "train", "id": "r", "work": {"type": "train", "step": 3}}
    path = lines(tmp_path / "t.jsonl", [episode([trace(REWARDS, 1.0)], group={"id": "g"}, run=run)])
    read = open_run([path])
    assert next(read.steps()).number == 3
    assert any(line.startswith("steps: ") for line in read.lost)


def test_verifiers_results(tmp_path):
    """verifiers/legacy/utils/save_utils.py, `state_to_output`."""
    row = {
        "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
        "completion": [{"role": "assistant", "content": "a"}],
        "answer": "1",
        "reward": 0.9,
        "timing": {"total": 1.0},
        "is_completed": True,
        "is_truncated": False,
        "metrics": {"correct": 1.0, "format": 0.5},
        "correct": 1.0,
        "format": 0.5,
    }
    rows = [{"example_id": i // 2, **row} for i in range(4)]
    run = open_run([lines(tmp_path / "results.jsonl", rows)])
    (step,) = run.steps()
    assert run.format == "verifiers"
    assert step.groups == [(0,), (0,), (1,), (1,)]
    assert step.columns["correct"] == [1.0] * 4
    assert step.columns["prompt"][0] == "system: s\n\nuser: q"
    assert step.columns["completion"][0] == "a"


# --- tinker-cookbook 0.5.5


@dataclass
class Transition:
    step_idx: int
    ob_len: int
    ac_len: int
    reward: float
    metrics: dict
    episode_done: bool = True
    logs: dict = field(default_factory=dict)


def summary(iteration, group, number, steps, split="train"):
    """tinker_cookbook/rl/rollout_logging.py, `serialize_rollout_summaries`."""
    return {
        "schema_version": 1,
        "split": split,
        "iteration": iteration,
        "group_idx": group,
        "traj_idx": number,
        "tags": ["math"],
        "sampling_client_step": iteration,
        "total_reward": sum(step.reward for step in steps),
        "final_reward": 0.0,
        "trajectory_metrics": {"solved": 1.0},
        "steps": [asdict(step) for step in steps],
        "final_ob_len": 9,
    }


def test_tinker(tmp_path):
    for iteration in (9, 10):
        rows = [
            summary(iteration, g, t, [Transition(0, 5, 7, 0.5, {"correct": float(t), "format": 1.0})])
            for g in (0, 1)
            for t in (0, 1)
        ]
        lines(tmp_path / f"iteration_{iteration:06d}" / "train_rollout_summaries.jsonl", rows)
    run = open_run([tmp_path])
    steps = list(run.steps())
    assert run.format == "tinker"
    assert [step.number for step in steps] == [9, 10]
    assert steps[0].groups == [0, 0, 1, 1]
    assert steps[0].columns["correct"] == [0, 1, 0, 1]
    assert steps[0].columns["steps.correct"] == [[0], [1], [0], [1]]
    assert steps[0].columns["solved"] == [1] * 4
    assert steps[0].columns["total_reward"] == [0.5] * 4
    assert steps[0].columns["tokens"] == [7] * 4
    lines(tmp_path / "iteration_000009" / "eval_x_rollout_summaries.jsonl", [summary(9, 0, 0, [], "eval/x")])
    with pytest.raises(BadLog, match="train_rollout_summaries"):
        open_run([tmp_path])


def test_tinker_of_several_steps(tmp_path):
    turns = [Transition(i, 5, 7, 0.5, {"called": float(i)}) for i in range(3)]
    (step,) = open_run([lines(tmp_path / "x.jsonl", [summary(0, 0, 0, turns)])]).steps()
    assert step.columns["steps.called"] == [[0.0, 1.0, 2.0]]
    assert step.columns["steps.reward"] == [[0.5, 0.5, 0.5]]
    assert "called" not in step.columns
    assert step.columns["tokens"] == [21]


# --- all


WRITTEN = {
    "ms-swift": flush(1),
    "nemo-rl": {**{k: v[:1] for k, v in nemo_batch().items()}, "idx": 0},
    "nemo-gym": gym_row(0, 0),
    "slime": {"rollout_id": 0, "samples": [sample(0, 0, {"acc": 1.0})]},
    "prime-rl": episode([trace(REWARDS, 1.0)], run={"type": "train", "work": {"step": 1}}, group={"id": "g"}),
    "verifiers": episode([trace(REWARDS)]),
    "tinker": summary(0, 0, 0, [Transition(0, 1, 1, 1.0, {"a": 1.0})]),
    "verl": {"input": "p", "output": "c", "gts": None, "score": 1.0, "step": 1, "uid": "a_0_0"},
}


def head(name, row):
    return Head("x", TORCH if name == "slime" else "JSON lines", [row], list(row))


def test_no_format_is_taken_for_another():
    for name, row in WRITTEN.items():
        found = [form.name for form in registered().values() if form.matches(head(name, row))]
        assert found == [name]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def changed(value, draw):
    """A value with some part of it replaced by another."""
    if draw(st.integers(0, 5)) == 0:
        return draw(JSON)
    if isinstance(value, dict) and value:
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: changed(value[key], draw)}
    if isinstance(value, list) and value:
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], changed(value[place], draw), *value[place + 1 :]]
    return draw(JSON)


@pytest.mark.slow
@given(st.data())
def test_odd_rows_are_refused_in_words_or_read(tmp_path_factory, data):
    name = data.draw(st.sampled_from(sorted(set(WRITTEN) - {"slime"})))
    row = changed(WRITTEN[name], data.draw)
    path = tmp_path_factory.mktemp("odd") / "file.jsonl"
    for form in (None, name):
        try:
            run = open_run([lines(path, [row])], format=form, group_by=data.draw(st.sampled_from([None, "prompt"])))
            assert all(len(step) for step in run.steps())
        except BadLog as error:
            assert str(error)


@given(st.data())
def test_odd_samples_of_slime_are_refused_in_words_or_read(data):
    row = changed(WRITTEN["slime"], data.draw)
    if isinstance(row, dict):
        try:
            rollouts_of(row, "x", registered()["slime"], Taken({}, None))
        except ValueError as error:
            assert str(error)
