"""Advantages of turns in verl 0.9.1: its own tool agent, reward loop and trainers' code, with a scripted model."""

import asyncio
import copy
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from logged_again import close, logged_files
from verl_model import WORDS, write_model

pytest.importorskip("verl")

from zscore_by_hand import zscore

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.verl import hook as adapter
from rewardspec.adapters.verl import settings as verl_settings
from rewardspec.adapters.verl.rollouts import Advantages
from rewardspec.adapters.verl.turns import of_turns

pytestmark = pytest.mark.filterwarnings("ignore")  # what importing a trainer says is not about us

CALL = len(WORDS) + 1
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPEC = """\
rewardspec: 1
name: turns-in-verl
lists: {turn: {ordered: true}}
signals:
  tool_rewards: {range: [0, 1], level: turn, missing: ignore}
  words: {range: [0, 99], level: turn}
  tokens: {range: [0, .inf], level: turn}
components:
  correct: {values: [0, 1]}
  tool: {expr: tool_rewards, weight: 0.5}
  brief: {expr: 0 - words, weight: 0.25}
  short: {expr: 0 - tokens, weight: 0.125}
advantage: decoupled
"""
REWARD = """\
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    turns = [turn.split("<tool>")[0].split() for turn in solution_str.replace("<assistant>", "|").split("|")]
    words = [len([word for word in turn if word != "<eos>"]) for turn in turns]
    return {"score": 1.0, "correct": float(turns[-1][-1] == "7"), "words": words}
"""
# For each prompt the rollouts, and for each of these the words of every turn; `call` asks the tool for the word before
SCRIPTS = [
    ["1 call|2 5 call|7", "3 call|8", "7", "5 5 5 5 call|4 call|3 call|7 7"],
    ["9 call|6", "1 call|1 call|7", "2 2 2"],
]


def rewards_of_tools(script):
    """For each turn what the tool gave, None if it was not called."""
    turns = [turn.split() for turn in script.split("|")]
    return [int(turn[-2]) / 10 if turn[-1] == "call" else None for turn in turns]


def expected(scripts, groups):
    """The advantage of each turn of each rollout, from the scripts alone."""
    of_turn = [i for i, script in enumerate(scripts) for _ in script.split("|")]
    tools = [np.nan if reward is None else reward for script in scripts for reward in rewards_of_tools(script)]
    words = [len(turn.split()) for script in scripts for turn in script.split("|")]
    correct = zscore([float(script.endswith("7")) for script in scripts], groups)
    turns = [groups[i] for i in of_turn]
    flat = correct[of_turn] + 0.5 * zscore(tools, turns) - (0.25 + 0.125) * zscore(words, turns)  # a word is a token
    return [[flat[j] for j in range(len(flat)) if of_turn[j] == i] for i in range(len(scripts))]


def on_tokens(values, mask):
    """Token by token: the k-th run of ones has the k-th value."""
    runs = [(one, len(list(run))) for one, run in itertools.groupby(mask)]
    assert sum(one for one, _ in runs) == len(values)
    left = iter(values)
    return [value for one, n in runs for value in [next(left) if one else 0.0] * n]


class Server:
    """The model: for each prompt the next of its scripts, turn by turn."""

    def __init__(self, scripts):
        self.left, self.turns = [list(found) for found in scripts], {}

    async def generate(self, request_id, *, prompt_ids, **_):
        from verl.workers.rollout.replica import TokenOutput

        if request_id not in self.turns:
            which = prompt_ids[prompt_ids.index(WORDS.index("add")) + 1] - WORDS.index("0")
            self.turns[request_id] = self.left[which].pop(0).split("|")
        words = self.turns[request_id].pop(0).split()
        tokens = [CALL if word == "call" else WORDS.index(word) for word in words]
        return TokenOutput(token_ids=tokens, log_probs=[-1.0] * len(tokens), extra_fields={})


def look(what: int):
    """Look.

    Args:
        what: what
    """
    return "8 9", what / 10


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    import verl.trainer
    from hydra import compose, initialize_config_dir
    from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser

    @ToolParser.register("call")
    class Parser(ToolParser):
        async def extract_tool_calls(self, responses_ids, tools=None):
            text = self.tokenizer.decode(responses_ids)
            calls = [FunctionCall(name="look", arguments=f'{{"what": {n}}}') for n in re.findall(r"(\d) call", text)]
            return text, calls

    folder = tmp_path_factory.mktemp("verl")
    write_model(folder / "model", [*WORDS, "<tool>", "call"], TEMPLATE)
    (folder / "spec.yaml").write_text(SPEC)
    (folder / "reward.py").write_text(REWARD)
    where = verl.trainer.__path__[0] + "/config"
    with initialize_config_dir(where, version_base=None):
        return compose(
            "ppo_trainer",
            [
                "algorithm.adv_estimator=rewardspec",
                f"+algorithm.rewardspec.spec={folder / 'spec.yaml'}",
                f"actor_rollout_ref.model.path={folder / 'model'}",
                f"reward.custom_reward_function.path={folder / 'reward.py'}",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.multi_turn.format=call",
                "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=3",
                "data.max_prompt_length=16",
                "data.max_response_length=40",
                "data.train_batch_size=2",
            ],
        )


def workers(config, kind, scripts=SCRIPTS):
    """verl's own agent loop worker and reward loop worker, without Ray between them."""
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.tools.function_tool import FunctionTool
    from verl.tools.schemas import OpenAIFunctionToolSchema

    rewards = RewardLoopWorker(config)
    handle = SimpleNamespace(compute_score=SimpleNamespace(remote=rewards.compute_score))
    worker = kind(config, Server(scripts), reward_loop_worker_handles=[handle])
    function = {"name": "look", "description": "", "parameters": {"type": "object", "properties": {}, "required": []}}
    schema = OpenAIFunctionToolSchema(type="function", function=function)
    worker.tools = [FunctionTool(name="look", fn=look, tool_schema=schema)]
    return worker


def prompt(i):
    """What the data set has for a prompt."""
    return {
        "raw_prompt": [{"role": "user", "content": f"add {i}"}],
        "data_source": "test",
        "reward_model": {"ground_truth": "7"},
        "uid": f"prompt {i}",
        "global_steps": 1,
    }


TRAJECTORY = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}


def in_v0(config, scripts=SCRIPTS):
    """A batch of V0 with advantages, by verl's `_postprocess` and `compute_advantage`, and the adapter's result."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.trainer.ppo import ray_trainer
    from verl.trainer.ppo.reward import extract_reward

    rows = [i for i, found in enumerate(scripts) for _ in found]

    async def run():
        worker = workers(config, AgentLoopWorker, scripts)
        loops = [dict(agent_name="tool_agent", trace=False, **prompt(i)) for i in rows]
        return worker._postprocess([await worker._run_agent_loop({}, TRAJECTORY, **loop) for loop in loops])

    batch = asyncio.run(run())
    batch.non_tensor_batch["uid"] = np.array([f"prompt {i}" for i in rows], dtype=object)
    batch.batch["token_level_rewards"] = batch.batch["token_level_scores"] = extract_reward(batch)[0]
    return batch, lambda: compute_v0(ray_trainer, config, batch)


def trainer_of(config):
    tokenizer = SimpleNamespace(eos_token_id=1)
    made = Advantages(*verl_settings.settings(config))
    made.open_log(verl_settings.rollout_log(config))
    return SimpleNamespace(
        config=config,
        tokenizer=tokenizer,
        rewardspec=made,
        global_steps=1,
        total_training_steps=10,
        parameter_sync_step=1,
    )


def with_log(config, folder):
    from omegaconf import open_dict

    config = copy.deepcopy(config)
    with open_dict(config):
        config.algorithm.rewardspec.rollout_log, config.algorithm.rewardspec.rollout_log_text = str(folder), "none"
    return config


def assert_logged(folder, ours, scripts=SCRIPTS):
    """The advantages of turns in the log are those by hand, which `assert_tokens` has found on the tokens."""
    ours.log.flush()
    ((columns, _),) = logged_files(folder).values()
    flat, groups = [s for found in scripts for s in found], [i for i, found in enumerate(scripts) for _ in found]
    close(columns["rewardspec/advantage"], [list(map(float, values)) for values in expected(flat, groups)])
    assert columns["rewardspec/group"] == groups and columns["rewardspec/length/turn"] == [
        len(row) for row in columns["rewardspec/advantage"]
    ]


def compute_v0(ray_trainer, config, batch):
    trainer = trainer_of(config)
    token = adapter._running.set(trainer)
    try:
        out = ray_trainer.compute_advantage(batch, adv_estimator="rewardspec", config=config.algorithm)
    finally:
        adapter._running.reset(token)
    return out, trainer.rewardspec


def assert_tokens(batch_mask, advantages, scripts=SCRIPTS):
    flat, groups = [s for found in scripts for s in found], [i for i, found in enumerate(scripts) for _ in found]
    for values, mask, row in zip(expected(flat, groups), batch_mask, advantages, strict=True):
        mask = [int(x) for x in mask]
        np.testing.assert_allclose(row[: len(mask)], on_tokens(values, mask), rtol=1e-6, atol=1e-6)


def test_v0_puts_the_advantage_of_a_turn_onto_its_tokens(config, tmp_path):
    batch, compute = in_v0(with_log(config, tmp_path))
    out, ours = compute()
    assert_logged(tmp_path, ours)
    assert out.batch["advantages"].dtype == torch.float32
    assert_tokens(batch.batch["response_mask"].tolist(), out.batch["advantages"].tolist())
    torch.testing.assert_close(out.batch["returns"], out.batch["advantages"])
    assert out.batch["advantages"].abs().max() > 1
    metrics = ours.metrics()
    assert metrics["rewardspec/reward/correct"] == pytest.approx(4 / 7)
    tools = [x for found in SCRIPTS for s in found for x in rewards_of_tools(s) if x is not None]
    assert metrics["rewardspec/reward/tool"] == pytest.approx(np.mean(tools))


def test_v0_has_the_turns_of_before_rollout_correction_which_takes_tokens_out_of_the_loss(config):
    from verl.trainer.ppo import rollout_corr_helper

    batch, compute = in_v0(config)
    before = batch.batch["response_mask"].clone()
    token = adapter._running.set(object())
    try:
        batch.batch["old_log_probs"] = torch.zeros_like(before, dtype=torch.float32)
        batch.batch["rollout_log_probs"] = torch.zeros_like(before, dtype=torch.float32)
        batch.batch["rollout_log_probs"][0, 1], batch.batch["rollout_log_probs"][1] = -9, -9
        options = {"rollout_is": None, "rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_2.0"}
        from omegaconf import OmegaConf

        rollout_corr_helper.compute_rollout_correction_and_add_to_batch(batch, OmegaConf.create(options))
    finally:
        adapter._running.reset(token)
    after = batch.batch["response_mask"]
    assert after[0, 1] == 0 < before[0, 1] and after[1].sum() == 0
    out, _ = compute()
    found = out.batch["advantages"]
    assert not found[after == 0].any()
    flat = [s for found in SCRIPTS for s in found]
    for row, values in enumerate(expected(flat, [i for i, found in enumerate(SCRIPTS) for _ in found])):
        wanted = torch.tensor(on_tokens(values, before[row].tolist())) * after[row]
        torch.testing.assert_close(found[row], wanted.float(), rtol=1e-6, atol=1e-6)


class Queue:
    """TransferQueue in this process."""

    def __init__(self, monkeypatch):
        import transfer_queue

        self.rows, self.tags = {}, {}
        monkeypatch.setattr(transfer_queue, "init", lambda: None)
        monkeypatch.setattr(transfer_queue, "async_kv_batch_put", self.put_later)
        monkeypatch.setattr(transfer_queue, "kv_batch_put", self.put)
        monkeypatch.setattr(transfer_queue, "kv_batch_get", self.get)

    async def put_later(self, keys, fields, partition_id, tags=None):
        self.put(keys, partition_id, fields, tags)

    def put(self, keys, partition_id, fields, tags=None):
        for i, key in enumerate(keys):
            values = {name: getattr(fields[name][i], "data", fields[name][i]) for name in fields.keys()}  # noqa: SIM118
            values = {name: v if name in TENSORS else getattr(fields[name][i], "data", v) for name, v in values.items()}
            self.rows.setdefault(key, {}).update(values)
            self.tags[key] = self.tags.get(key) if tags is None else tags[i]
        return self.batch()

    def batch(self):
        from transfer_queue import KVBatchMeta

        return KVBatchMeta(partition_id="train", keys=list(self.rows), tags=list(self.tags.values()))

    def get(self, keys, partition_id, select_fields=None):
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        names = [n for n in self.rows[keys[0]] if select_fields is None or n in select_fields]
        rows = [{name: self.rows[key][name] for name in names} for key in keys]
        found = list_of_dict_to_tensordict([{k: v for k, v in row.items() if k not in TENSORS} for row in rows])
        for name in [name for name in names if name in TENSORS]:
            found[name] = torch.nested.as_nested_tensor([row[name] for row in rows], layout=torch.jagged)
        return found


TENSORS = {"responses", "prompts", "response_mask", "loss_mask", "rm_scores", "advantages", "returns", "input_ids"}
CUT = {"response_mask", "responses", "rm_scores", "rollout_log_probs", "old_log_probs"}  # of the response
TENSORS |= {"position_ids", "rollout_log_probs", "old_log_probs"}


def in_v1(config, monkeypatch, scripts=SCRIPTS):
    """The queue after verl's V1 agent loop worker, and a function that computes advantages in it."""
    from verl.trainer.ppo.v1 import agent_loop_tq, trainer_base

    queue = Queue(monkeypatch)

    async def run():
        worker = workers(config, agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class, scripts)
        for i, found in enumerate(scripts):
            for session in range(len(found)):
                await worker._run_agent_loop(
                    {}, TRAJECTORY, agent_name="tool_agent", trace=False, session_id=session, **prompt(i)
                )

    asyncio.run(run())
    for row in queue.rows.values():
        row["old_log_probs"] = row["rollout_log_probs"].clone()
    trainer = trainer_of(config)

    def compute():
        metrics = {}
        trainer_base.PPOTrainer._compute_advantage(trainer, queue.batch(), metrics)
        return metrics

    compute.trainer = trainer
    return queue, compute


def test_v1_puts_the_advantage_of_a_turn_onto_its_tokens(config, monkeypatch, tmp_path):
    queue, compute = in_v1(with_log(config, tmp_path), monkeypatch)
    assert [row["extra_fields"]["tool_rewards"] for row in queue.rows.values()][:3] == [[0.1, 0.5], [0.3], []]
    metrics = compute()
    assert_logged(tmp_path, compute.trainer.rewardspec)
    rows = list(queue.rows.values())
    assert_tokens([r["response_mask"].tolist() for r in rows], [r["advantages"].tolist() for r in rows])
    assert all(torch.equal(row["returns"], row["advantages"]) for row in rows)
    assert metrics["rewardspec/rollouts_dropped"] == 0 and "rewardspec/reward/tool" in metrics
    # lists are texts where verl averages what reward functions return
    assert rows[0]["extra_fields"]["reward_extra_info"]["words"] == "[2, 3, 1]"


def test_v1_has_the_turns_of_before_rollout_correction(config, monkeypatch):
    from omegaconf import OmegaConf

    options = {"rollout_correction": {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_2.0"}}
    queue, compute = in_v1(OmegaConf.merge(config, {"algorithm": options}), monkeypatch)
    before = {key: row["response_mask"].clone() for key, row in queue.rows.items()}
    queue.rows["prompt 0_0_0"]["rollout_log_probs"][1] -= 9  # in the middle of the first turn
    queue.rows["prompt 0_1_0"]["rollout_log_probs"] -= 9
    compute()
    flat = [s for found in SCRIPTS for s in found]
    for key, values in zip(queue.rows, expected(flat, [0] * 4 + [1] * 3), strict=True):
        row, mask = queue.rows[key], before[key].clone()
        if key == "prompt 0_0_0":
            mask[1] = 0
        if key == "prompt 0_1_0":
            mask[:] = 0
        assert torch.equal(row["response_mask"].long(), mask)
        wanted = torch.tensor(on_tokens(values, before[key].tolist())) * mask
        torch.testing.assert_close(row["advantages"], wanted.float(), rtol=1e-6, atol=1e-6)


def test_v1_outputs_of_one_session_have_the_turns_of_one_rollout(config, monkeypatch):
    """An agent that starts again with a shorter prompt: the second half of a rollout's turns is a row of its own."""
    queue, compute = in_v1(config, monkeypatch)
    key, split = "prompt 0_3_0", 16  # four turns, the first two of 5 and 2 tokens with 4 of the tool after each
    whole = queue.rows.pop(key)
    tag = queue.tags.pop(key)
    assert whole["response_mask"].tolist()[:split] == [1] * 5 + [0] * 4 + [1] * 2 + [0] * 4 + [1]
    for i, part in enumerate((slice(0, 15), slice(15, None))):
        row = {name: value[part] if name in CUT else value for name, value in whole.items()}
        queue.rows[f"prompt 0_3_{i}"], queue.tags[f"prompt 0_3_{i}"] = row, tag
    queue.rows = dict(reversed(queue.rows.items()))  # the later output first
    queue.tags = dict(reversed(queue.tags.items()))
    compute()
    found = [*queue.rows["prompt 0_3_0"]["advantages"].tolist(), *queue.rows["prompt 0_3_1"]["advantages"].tolist()]
    flat = [s for scripts in SCRIPTS for s in scripts]
    values = expected(flat, [0] * 4 + [1] * 3)[3]
    np.testing.assert_allclose(found, on_tokens(values, whole["response_mask"].tolist()), rtol=1e-6, atol=1e-6)


def test_rollouts_whose_turns_and_items_differ_are_named_with_both_counts(config, monkeypatch):
    from omegaconf import OmegaConf

    without = "\n".join(line for line in SPEC.splitlines() if "tokens" not in line)
    config = OmegaConf.merge(config, {"algorithm": {"rewardspec": {"spec": without}}})
    queue, compute = in_v1(config, monkeypatch)
    for row in queue.rows.values():
        info = row["extra_fields"]["reward_extra_info"]
        row["extra_fields"]["tool_rewards"] = [0.5] * len(row["extra_fields"]["tool_rewards"])
        row["extra_fields"].pop("rewardspec_turns", None)
        info["words"] = str([1] * (4 if row["uid"] == "prompt 0" else 3))
    queue.rows["prompt 0_3_0"]["extra_fields"]["tool_rewards"] = [0.5] * 4
    with pytest.raises(ValueError, match=r"`words` has 4 items at rollout 0, and `tool_rewards` has 2") as error:
        compute()
    for row in queue.rows.values():
        row["extra_fields"]["tool_rewards"] = [0.5] * (4 if row["uid"] == "prompt 0" else 3)
    with pytest.raises(BindingError) as error:
        compute()
    said = "rollout 0 of group prompt 0 has 4 items of the list `turn`, and the model wrote 3 stretches of tokens"
    assert said in str(error.value) and "rollout 3" not in str(error.value)


@pytest.mark.parametrize("more", ["", " + max(0, tokens - 99)"])
def test_none_in_place_of_a_list_is_as_many_missing_items(config, monkeypatch, more):
    """As many as there are turns, or as another column of the list has."""
    from omegaconf import OmegaConf

    text = """rewardspec: 1
lists: {turn: {}}
signals: {words: {range: [0, 99], level: turn, missing: zero}, tokens: {range: [0, 99], level: turn}}
components: {brief: {expr: "0 - words"}}
advantage: brief
"""
    text = text.replace("0 - words", f"0 - words{more}")
    config = OmegaConf.merge(config, {"algorithm": {"rewardspec": {"spec": text}}})
    queue, compute = in_v1(config, monkeypatch)
    queue.rows["prompt 0_0_0"]["extra_fields"]["reward_extra_info"]["words"] = None
    compute()
    first, second, *_ = [row["advantages"].tolist() for row in queue.rows.values()]
    assert not any(first) and second[:2] == [-2, -2]


def test_two_rewards_of_tools_in_one_turn_are_an_error_that_says_what_to_do(config, monkeypatch):
    _, compute = in_v1(config, monkeypatch, [["1 call|2 call 5 call|7", "7"]])
    with pytest.raises(BindingError, match="rollout 0 of group prompt 0 has 2 rewards of tools in turn 2") as error:
        compute()
    assert "max_parallel_calls=1" in str(error.value)


REDUCED = """\
rewardspec: 1
lists: {turn: {}}
signals:
  tool_rewards: {range: [0, 1], level: turn}
components:
  correct: {values: [0, 1]}
  tool: {expr: "sum(tool_rewards, over=rollout)", weight: 0.5}
advantage: grpo
"""


def test_lists_that_a_spec_reduces_are_those_of_the_calls_and_rollouts_have_one_advantage(config):
    from omegaconf import OmegaConf

    config = OmegaConf.merge(config, {"algorithm": {"rewardspec": {"spec": REDUCED}}})
    batch, compute = in_v0(config, [["1 call|2 call 5 call|7", "7", "4 call|3"]])
    out, _ = compute()
    totals = np.array([1 + 0.4, 1, 0.2])  # 0.1 + 0.2 + 0.5 by three calls in two turns
    values = (totals - totals.mean()) / (totals.std(ddof=1) + 1e-6)
    wanted = torch.tensor(values)[:, None] * batch.batch["response_mask"]
    torch.testing.assert_close(out.batch["advantages"], wanted.float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("advantage", ["correct / position", "correct - 0.1 * max(position, over=rollout)"])
def test_a_list_that_only_places_are_read_of_is_that_of_the_turns(config, monkeypatch, advantage):
    from omegaconf import OmegaConf

    from rewardspec.adapters.verl.filter import Filter

    text = (
        f"rewardspec: 1\nlists: {{turn: {{}}}}\ncomponents: {{correct: {{values: [0, 1]}}}}\nadvantage: {advantage}\n"
    )
    config = OmegaConf.merge(config, {"algorithm": {"rewardspec": {"spec": text}}})
    queue, compute = in_v1(config, monkeypatch)
    compute()
    flat = [script for scripts in SCRIPTS for script in scripts]
    for row, script in zip(queue.rows.values(), flat, strict=True):
        right, n = float(script.endswith("7")), len(script.split("|"))
        values = [right - 0.1 * n] * n if "max" in advantage else [right / (k + 1) for k in range(n)]
        wanted = on_tokens(values, row["response_mask"].tolist())
        np.testing.assert_allclose(row["advantages"].tolist(), wanted, rtol=1e-6, atol=1e-6)
    partitions = {"train": {key: tag for key, tag in queue.tags.items() if key.startswith("prompt 0")}}
    buffer = SimpleNamespace(partitions=partitions)
    assert Filter(trainer_of(config))._totals(buffer, "train", {"prompt 0"}) == {"prompt 0": None}  # live


KEEP = SPEC.replace(
    "advantage: decoupled", "keep: std(correct) > 0\nrefill: var(correct)\nadvantage: decoupled * copies"
)


def test_keep_and_refill_weigh_the_turns_of_a_group(config):
    from omegaconf import OmegaConf

    scripts = [*SCRIPTS, ["7", "1 call|7"]]
    config = OmegaConf.merge(config, {"algorithm": {"rewardspec": {"spec": KEEP}}})
    batch, compute = in_v0(config, scripts)
    out, ours = compute()
    copies = ours.result.copies
    assert copies[2] == 0 and copies.sum() == 3
    flat, groups = [s for found in scripts for s in found], [i for i, found in enumerate(scripts) for _ in found]
    for row, values in enumerate(expected(flat, groups)):
        values = [value * copies[groups[row]].item() for value in values]
        wanted = torch.tensor(on_tokens(values, batch.batch["response_mask"][row].tolist()))
        torch.testing.assert_close(out.batch["advantages"][row], wanted.float(), rtol=1e-6, atol=1e-6)


def test_groups_whose_turns_have_equal_advantages_are_filtered(config, monkeypatch):
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    scripts = [["7", "7"], ["1 call|7", "2 call|7"], ["7", "3"]]
    queue, _ = in_v1(config, monkeypatch, scripts)
    trainer = trainer_of(config)
    trainer.refill = lambda n: None
    owner = type("Trainer", (), {**vars(trainer), "refill": lambda self, n: None})()
    buffer = ReplayBuffer("sync", {}, None, "drop", {}, refill_fn=owner.refill, filter_groups_metric="reward")
    buffer.partitions["train"] = dict(queue.tags)
    buffer.finished_keys["train"] = {"prompt 0", "prompt 1", "prompt 2"}
    assert buffer._dapo_filtered_keys("train")[0] == {"prompt 0"}


def test_a_reward_of_a_turn_that_left_no_stretch_of_its_own_is_an_error():
    """An empty answer of a tool joins two turns into one stretch: later rewards would go onto other turns."""
    assert of_turns([[0.5, 1.0]], [[0, 2]], [3], ["p"]) == [[0.5, None, 1.0]]
    with pytest.raises(BindingError) as error:
        of_turns([[0.25], [0.5, 1.0]], [[0], [0, 2]], [1, 2], ["p", "q"])
    message = "rollout 1 of group q has a reward of a tool in turn 3, and the model wrote 2 stretches of tokens"
    assert str(error.value).startswith(message)
