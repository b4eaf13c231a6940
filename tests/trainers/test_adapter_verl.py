"""The adapter for verl 0.9.1 in verl's own `main_ppo`; what is faked is in verl_fakes.py."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from logged_again import logged_files, named_alike
from places import ROOT
from verl_model import write_model

pytest.importorskip("verl")

import rewardspec
from rewardspec.adapters.common import record
from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.verl import hook as adapter
from rewardspec.adapters.verl import settings as verl_settings
from rewardspec.adapters.verl.rollouts import Advantages, of_data_proto, of_transfer_queue
from rewardspec.adapters.verl.tokens import conditioned

pytestmark = pytest.mark.filterwarnings("ignore")  # what importing a trainer says is not about us

EXAMPLE = ROOT / "examples" / "verl"

SPEC = """\
rewardspec: 1
name: in-verl
lists: {digit: {}}
signals:
  even: {values: [0, 1], level: digit}
  truncated: {values: [0, 1]}
  data_source: {values: [math, code]}
components:
  correct: {values: [0, 1]}
  form: {values: [0, 1], weight: 0.5}
  style: {range: [0, 1], missing: ignore, weight: 1 - progress}
  ended: {expr: 1 - truncated, weight: (1 - progress) * ends}
  coded: {expr: correct, when: data_source == code, weight: 1 - progress}
  evens: {expr: "mean(even, over=rollout)", weight: 1 - progress}
condition:
  tokens: {high: high, low: low}
  template: "goal {token}"
  prior: {high: 0.5}
state:
  ends: {init: 1, range: [0, 9], update: "ends + mean(correct, over=batch) / 3"}
advantage: gdpo
"""
SAVED = {"ends": 2.125}  # at the step that a run resumes from

REWARD = """\
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    digits = [int(d) for d in solution_str.split()]
    correct, form = float(sum(digits) % 2 == 0), float(digits[0] > 4)
    even = [float(d % 2 == 0) for d in digits]  # of unequal length, which verl itself cannot carry
    style = None if digits[-1] < 3 else 0.5
    return {"score": correct + form, "correct": correct, "form": form, "style": style, "even": even}
"""

LONGEST, EOS = 8, 1


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A tokenizer of few words, a model's configuration, eight prompts, a spec and a reward function."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("verl")
    write_model(folder / "model")
    rows = [
        {
            "data_source": ["math", "code"][i % 2],
            "prompt": [{"role": "user", "content": f"add {i} {i + 1}"}],
            "reward_model": {"style": "rule", "ground_truth": "0"},
            "extra_info": {"index": i},
            "__rollout_n__": 2 + i % 3,  # verl V1 draws as many for this prompt; V0 does not know it
        }
        for i in range(8)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "prompts.parquet")
    (folder / "spec.yaml").write_text(SPEC)
    (folder / "reward.py").write_text(REWARD)
    return folder


# No process for each CPU, most of which would have nothing to do.
RAY_LEAN = {"RAY_prestart_worker_first_driver": "0", "RAY_enable_worker_prestart": "0"}


def main_ppo(folder, *overrides, out="out.jsonl", steps=(1, 2), job=False):
    """Rows that the actor would train on, metrics by step, and what was printed, of a run of two steps of four prompts.

    steps: those that are trained; the last is the last of the run. job: as `ray job submit` starts it, with the
    modules in the runtime environment of the job.
    """
    path = folder / out
    environment = os.environ | {
        "VERL_USE_EXTERNAL_MODULES": "rewardspec.adapters.verl,verl_fakes",
        "VERL_FAKES_OUT": str(path),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "HF_HUB_OFFLINE": "1",
        "RAY_DEDUP_LOGS": "0",
        **RAY_LEAN,
    }
    if job:
        variables = {"VERL_USE_EXTERNAL_MODULES": environment["VERL_USE_EXTERNAL_MODULES"]}
        environment["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps({"runtime_env": {"env_vars": variables}})
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *OVERRIDES, *overrides]
    command = [part.replace("FOLDER", str(folder)) for part in command]
    # the actors find the spec by what the driver read: a relative path is enough
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rows = [line for line in lines if "metrics" not in line]
    metrics = {line["step"]: line["metrics"] for line in lines if "metrics" in line}
    said = done.stdout + done.stderr
    return SimpleNamespace(code=done.returncode, said=said, rows=rows, metrics=metrics, steps=steps)


OVERRIDES = shlex.split("""
algorithm.adv_estimator=rewardspec +algorithm.rewardspec.spec=spec.yaml +algorithm.rewardspec.dialect=verl
+algorithm.rewardspec.seed=7 reward.custom_reward_function.path=FOLDER/reward.py reward.num_workers=1
data.train_files=FOLDER/prompts.parquet data.val_files=FOLDER/prompts.parquet data.train_batch_size=4
data.max_prompt_length=16 data.max_response_length=8 data.dataloader_num_workers=0 data.shuffle=false
actor_rollout_ref.model.path=FOLDER/model actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=3
actor_rollout_ref.rollout.agent.num_workers=1 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1
actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1
transfer_queue.backend.SimpleStorage.num_data_storage_units=1 ray_kwargs.ray_init.num_cpus=8
+ray_kwargs.ray_init.include_dashboard=false
trainer.device=cpu trainer.n_gpus_per_node=1 trainer.logger=console trainer.total_training_steps=2
trainer.total_epochs=1 trainer.val_before_train=false trainer.test_freq=-1 trainer.resume_mode=disable
hydra.run.dir=FOLDER/hydra
""")


@pytest.fixture(scope="module")
def v1(files):
    """A run that resumes from a checkpoint after its first step."""
    record.write(files / "global_step_1", rewardspec.loads(SPEC).under("verl"), 7, SAVED)
    resumed = "trainer.resume_mode=resume_path", "trainer.resume_from_path=FOLDER/global_step_1"
    more = "trainer.total_training_steps=3", "trainer.total_epochs=2", "trainer.test_freq=3"
    more = *more, "trainer.save_freq=3", "trainer.default_local_dir=FOLDER/checkpoints"
    more = *more, "+algorithm.rewardspec.rollout_log=v1 log", "+algorithm.rewardspec.rollout_log_keep=2"
    more = *more, "+algorithm.rewardspec.rollout_log_columns=[extra_info.index,reward_model]"
    return main_ppo(files, *resumed, *more, out="v1.jsonl", steps=(2, 3))


@pytest.fixture(scope="module")
def v0(files):
    log = "+algorithm.rewardspec.rollout_log=v0 log"
    kept = "+algorithm.rewardspec.rollout_log_columns='extra_info.index, reward_model'"
    return main_ppo(files, "trainer.use_v1=false", log, kept, out="v0.jsonl", job=True)


@pytest.fixture(params=["v1", "v0"])
def run(request):
    found = request.getfixturevalue(request.param)
    assert found.code == 0, found.said[-5000:]
    return found


def rollouts(run, step):
    return [row for row in run.rows if row["step"] == step and not row["padding"]]


def length(row):
    return sum(row["response_mask"])


def one_each(rows):
    """The advantage of each response, which is the same for its tokens and 0 after them."""
    for row in rows:
        mask = np.array(row["response_mask"])
        np.testing.assert_allclose(row["advantages"], row["advantages"][0] * mask)
    return torch.tensor([row["advantages"][0] for row in rows])


def close(actual, expected):
    assert expected.abs().max() > 0.5
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def data_source(row):
    return ["math", "code"][int(re.search(r"add (\d)", row["text"])[1]) % 2]


def test_advantages_of_a_run_are_those_of_the_compiled_spec(run, files):
    """Also its state: V1 goes on at that of the checkpoint, and leaves its own in the last."""
    fn = rewardspec.compile(rewardspec.loads(SPEC), dialect="verl")
    state = fn.initial_state() if run.steps[0] == 1 else SAVED
    for step in run.steps:
        rows = rollouts(run, step)
        columns = {name: [row["info"][name] for row in rows] for name in ("correct", "form", "style")}
        columns["even"] = [json.loads(row["info"]["even"]) for row in rows]
        assert len({len(digits) for digits in columns["even"]}) > 1
        columns["tokens"] = [length(row) for row in rows]
        columns["data_source"] = [data_source(row) for row in rows]
        columns["truncated"] = [int(length(row) == LONGEST and row["responses"][LONGEST - 1] != EOS) for row in rows]
        assert None in columns["style"] and {0, 1} == {*columns["truncated"]}
        moment = {"step": step, "total_steps": run.steps[-1], "seed": 7}
        out = fn(columns, [row["uid"] for row in rows], **moment, state=state)
        close(one_each(rows), out.advantages)
        expected = {f"rewardspec/{name}": value for name, value in out.metrics().items()}
        expected |= {"rewardspec/rollouts_dropped": 0, "rewardspec/state/ends": out.state["ends"]}
        found = {name: value for name, value in run.metrics[step].items() if name in expected}
        assert found == pytest.approx(expected, abs=1e-6)
        assert out.state != state
        state = out.state
    if run.steps[0] > 1:
        assert record.read(files / "checkpoints" / f"global_step_{step}")["state"] == pytest.approx(state, abs=1e-6)


def test_the_rollout_log_of_a_run_has_what_was_trained_on(request, files):
    for name in ("v1", "v0"):
        run = request.getfixturevalue(name)
        log = logged_files(files / f"{name} log")
        assert [about["step"] for _, about in log.values()] == list(run.steps)
        for columns, about in log.values():
            rows = rollouts(run, about["step"])
            assert len(rows) == about["rollouts"] and about["total_steps"] == run.steps[-1] and about["seed"] == 7
            by_text = {}
            for row in rows:
                answer = " ".join(str(token - 4) for token in row["responses"][: length(row)] if token != EOS)
                by_text.setdefault((row["uid"], answer), []).append(row)
            for k in range(len(rows)):
                row = by_text[columns["rewardspec/group_id"][k], columns["completion"][k]].pop()
                assert row["advantages"][0] == pytest.approx(columns["rewardspec/advantage"][k], abs=1e-6)
                assert re.search(r"add \d \d+", row["text"])[0] in columns["prompt"][k]
                assert columns["rewardspec/token"][k] == row["reward_token"]
                index = columns["extra_info.index"][k]
                assert f"add {index} {index + 1}" in columns["prompt"][k]
                assert json.loads(columns["reward_model"][k]) == {"style": "rule", "ground_truth": "0"}
                assert columns["tokens"][k] == length(row) and columns["even"][k] == json.loads(row["info"]["even"])
                assert columns["score"][k] == row["info"]["score"] and columns["style"][k] == row["info"]["style"]


def test_gdpo_of_a_run_is_what_verls_own_gdpo_gives_where_it_runs(run):
    # in the last step the weight of what verl does not know has gone to 0
    from verl.trainer.ppo import core_algos

    rows = rollouts(run, run.steps[-1])
    width = max(len(row["response_mask"]) for row in rows)
    mask = torch.tensor([row["response_mask"] + [0] * (width - len(row["response_mask"])) for row in rows]).float()
    advantages, _ = core_algos.get_adv_estimator_fn("gdpo")(
        token_level_rewards=torch.zeros_like(mask),
        response_mask=mask,
        index=np.array([row["uid"] for row in rows], dtype=object),
        config={"gdpo_reward_keys": ["correct", "form"], "gdpo_reward_weights": [1, 0.5]},
        non_tensor_batch={name: np.array([row["info"][name] for row in rows]) for name in ("correct", "form")},
        batch={"prompts": torch.zeros(len(rows), 1), "attention_mask": torch.cat([mask[:, :1], mask], 1).long()},
    )
    close(one_each(rows), advantages[:, 0])


def test_groups_of_a_run_are_ragged_and_padding_has_no_advantage(v1):
    for step in v1.steps:
        uids = [row["uid"] for row in rollouts(v1, step)]
        assert {uids.count(uid) for uid in uids} == {2, 3, 4}
    padding = [row for row in v1.rows if row["padding"]]
    assert padding and not any(any(row["advantages"]) for row in padding)


def test_reward_tokens_are_in_the_prompts_and_differ_within_groups(run):
    condition = rewardspec.loads(SPEC).condition
    mixed = 0
    for step in run.steps:
        groups = {}
        for row in rollouts(run, step):
            assert row["text"].endswith(f"goal {row['reward_token']} <assistant>")
            groups.setdefault(int(re.search(r"add (\d)", row["text"])[1]), []).append(row["reward_token"])
        prompts = sorted(groups)  # in the order of the data set
        sizes = [len(groups[prompt]) for prompt in prompts]
        drawn = condition.draw(np.repeat(prompts, sizes).tolist(), seed=7, step=step)
        assert [sorted(groups[prompt]) for prompt in prompts] == [
            sorted(part) for part in np.split(np.array(drawn), np.cumsum(sizes)[:-1])
        ]
        mixed += sum(len({*names}) > 1 for names in groups.values())
    assert mixed


def test_checkpoints_of_a_run_hold_its_fingerprint_and_are_asked_for_it(v1, files):
    found = record.read(files / "checkpoints" / "global_step_3")
    spec = rewardspec.loads(SPEC).under("verl")
    assert (found["fingerprint"], found["seed"], found["spec"]) == (spec.fingerprint, 7, SPEC)
    assert "has no record of its spec" not in v1.said


# What ends a run before it trains: what is raised here ends it, as nothing between here and `main_ppo` catches it


def test_a_reward_file_that_workers_cannot_load_ends_the_run_before_models_are_loaded(tmp_path, monkeypatch):
    import ray
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    there = "import sys\nif 'default_worker' in sys.argv[0]:\n    import not_installed_there\n"
    (tmp_path / "elsewhere.py").write_text(there + REWARD)
    config = checked(f"reward.custom_reward_function.path={tmp_path / 'elsewhere.py'}")  # the driver can
    for name, value in RAY_LEAN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        with pytest.raises(BindingError) as error:
            PPOTrainerSync(config)
    finally:
        ray.shutdown()
    said = r"on [\d.]+: reward\.custom_reward_function\.path=.*elsewhere\.py cannot be loaded: ModuleNotFoundError: "
    assert re.search(said + "No module named 'not_installed_there'", str(error.value))


def test_a_setting_that_would_have_no_effect_ends_the_run_before_ray_starts():
    import ray
    import verl.trainer.main_ppo as main

    spec = f"+algorithm.rewardspec.spec={EXAMPLE / 'spec.yaml'}"
    config = config_of("algorithm.adv_estimator=rewardspec", spec, "algorithm.use_kl_in_reward=true")
    said = "algorithm.use_kl_in_reward=True has no effect under algorithm.adv_estimator=rewardspec"
    with pytest.raises(BindingError, match=said):
        main.run_ppo(config)
    assert not ray.is_initialized()


OTHER = """\
# another plugin, loaded first: another verl, without a function and a class
import verl.utils.config as c
from rewardspec.adapters.common.hooks import patch_modules
del c.validate_config
patch_modules({"verl.trainer.ppo.ray_trainer": lambda module: delattr(module, "RayPPOTrainer")})
"""
IMPORTS = """\
import verl.utils.config as c, verl.trainer.ppo.ray_trainer as t
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY as r
print(hasattr(getattr(c, "validate_config", None), "_rewardspec"), hasattr(t, "RayPPOTrainer"), "rewardspec" in r)
"""


@pytest.mark.parametrize("broken", [False, True])
def test_the_entry_point_installs_the_hooks_or_says_why_not(broken, tmp_path):
    (tmp_path / "plugin-1.dist-info").mkdir()
    (tmp_path / "plugin-1.dist-info" / "METADATA").write_text("Name: plugin\nVersion: 1\n")
    entry = "[verl.plugins]\nadapter = rewardspec.adapters.verl\n"
    (tmp_path / "plugin-1.dist-info" / "entry_points.txt").write_text(entry)
    (tmp_path / "other.py").write_text(OTHER if broken else "")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    environment |= {"VERL_USE_EXTERNAL_MODULES": "other", "VERL_USE_EXTERNAL_PLUGINS": "adapter"}
    done = subprocess.run([sys.executable, "-c", IMPORTS], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr  # whatever is missing: a run that asks for another estimator goes on
    assert done.stdout.splitlines()[-1] == f"{not broken} {not broken} True"
    for what in (
        "`verl.utils.config.validate_config`",
        "compatible `verl.trainer.ppo.ray_trainer` (AttributeError: ",  # Python words it by how far the import got
    ):
        assert (f"this verl has no {what}" in done.stderr) == broken


# Parity with verl's own estimators, on DataProtos


SCHEMES = {
    "grpo": "grpo",
    "gdpo": "gdpo",
    "rloo": "rloo",
    "reinforce_plus_plus_baseline": "reinforce_baseline",
}
WEIGHTS = {"a": 1.0, "b": 0.3, "c": -2.0}


def batch_of(seed, sizes):
    """A DataProto as V0 has it, groups interleaved, rewards without rounding noise."""
    from verl import DataProto

    rng = np.random.default_rng(seed)
    uid = rng.permutation(np.repeat([f"uid {i}" for i in range(len(sizes))], sizes)).astype(object)
    n, width = len(uid), 9
    tokens = rng.integers(1, width + 1, n)
    mask = torch.tensor(np.arange(width) < tokens[:, None]).long()
    rewards = {"a": rng.integers(0, 2, n), "b": rng.choice([0, 0.25, 0.5, 1], n), "c": rng.integers(-16, 17, n) / 8}
    rewards = {name: values.astype(np.float64) for name, values in rewards.items()}
    totals = torch.tensor(sum(WEIGHTS[name] * values for name, values in rewards.items()), dtype=torch.float32)
    levels = torch.zeros(n, width)
    levels[torch.arange(n), torch.tensor(tokens) - 1] = totals
    return DataProto.from_dict(
        {
            "prompts": torch.zeros(n, 2, dtype=torch.long),
            "responses": torch.full((n, width), 5),
            "response_mask": mask,
            "attention_mask": torch.cat([torch.ones(n, 2, dtype=torch.long), mask], 1),
            "token_level_rewards": levels,
        },
        {
            "uid": uid,
            "reward_extra_info": np.array([{k: v[i] for k, v in rewards.items()} for i in range(n)], dtype=object),
            **rewards,
        },
    )


def trainer_like():
    rollout = SimpleNamespace(response_length=LONGEST, n=3)
    config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
    return SimpleNamespace(config=config, tokenizer=SimpleNamespace(eos_token_id=EOS))


def loads(scheme, options="missing: ignore"):
    lines = [f"  {k}: {{range: [-.inf, .inf], weight: {w}, {options}}}" for k, w in WEIGHTS.items()]
    return rewardspec.loads("\n".join(["rewardspec: 1", "components:", *lines, f"advantage: {scheme}", ""]))


def adapted(spec, data):
    advantages = Advantages(spec, 0)
    mask, rewards = data.batch["response_mask"], data.batch["token_level_rewards"]
    return advantages(of_data_proto(trainer_like(), data, mask, rewards), mask, 1, 10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SCHEMES)
def test_dialect_verl_is_verls_own_estimator(name, seed):
    from verl.trainer.ppo.ray_trainer import compute_advantage

    data = batch_of(seed, [2, 3, 8, 5, 2, 16])
    actual = adapted(loads(SCHEMES[name]).under("verl"), data)
    config = {"gdpo_reward_keys": list(WEIGHTS), "gdpo_reward_weights": list(WEIGHTS.values())}
    expected = compute_advantage(data, adv_estimator=name, config=config).batch["advantages"]
    assert actual.dtype == torch.float32
    close(actual.unsqueeze(-1) * data.batch["response_mask"], expected)


def test_a_response_that_was_left_empty_has_no_part():
    data = batch_of(0, [4, 4])
    for name in ("response_mask", "attention_mask"):
        data.batch[name][3, -9:] = 0
    keep = [i for i in range(8) if i != 3]
    actual = adapted(loads("grpo"), data)
    assert actual[3] == 0
    torch.testing.assert_close(actual[keep], adapted(loads("grpo"), data.select_idxs(keep)))


def test_a_response_that_rollout_correction_rejected_counts_in_its_group():
    data = batch_of(0, [4, 4])
    expected = adapted(loads("grpo"), data)
    data.batch["response_mask"] = data.batch["response_mask"].clone()
    data.batch["response_mask"][3] = 0
    torch.testing.assert_close(adapted(loads("grpo"), data), expected)


def test_tokens_are_those_that_were_generated_before_rollout_correction():
    """As in V1, and as the tokens of turns: a length penalty is about what the model wrote."""
    data = batch_of(0, [4, 4])
    before, rewards = data.batch["response_mask"], data.batch["token_level_rewards"]
    after = before.clone()
    after[3], after[5, 0] = 0, 0
    assert after.sum() < before.sum()
    rollouts = of_data_proto(trainer_like(), data, after, rewards, before)
    assert rollouts.values("tokens") == before.sum(-1).tolist()
    assert of_data_proto(trainer_like(), data, after, rewards).values("tokens") == after.sum(-1).tolist()


def test_a_value_that_is_missing_follows_the_spec():
    data = batch_of(0, [4, 4])
    info = data.non_tensor_batch["reward_extra_info"]
    info[2]["a"] = None
    del info[5]["a"]
    columns = {k: [x.get(k) for x in info] for k in WEIGHTS}
    expected = rewardspec.compile(loads("gdpo"))(columns, data.non_tensor_batch["uid"].tolist()).advantages
    torch.testing.assert_close(adapted(loads("gdpo"), data), expected)
    with pytest.raises(ValueError, match="`a`") as error:
        adapted(loads("gdpo", "missing: error"), data)
    assert "rollout 2" in str(error.value) and data.non_tensor_batch["uid"][2] in str(error.value)


def test_a_name_that_goes_missing_later_is_an_error_with_the_names_that_are_there():
    data = batch_of(0, [4, 4])
    advantages = Advantages(loads("grpo"), 0)
    mask, rewards = data.batch["response_mask"], data.batch["token_level_rewards"]
    advantages(of_data_proto(trainer_like(), data, mask, rewards), mask, 1, 10)
    for info in data.non_tensor_batch["reward_extra_info"]:
        info["bb"] = info.pop("b")
    del data.non_tensor_batch["b"]
    with pytest.raises(BindingError, match="nothing measures `b`") as error:
        advantages(of_data_proto(trainer_like(), data, mask, rewards), mask, 2, 10)
    assert "in this batch compute_score returned `a`, `c`, `bb`" in str(error.value)


VSPO = """\
rewardspec: 1
components:
  reward: {range: [0, 1]}
keep: var(total, ddof=0) >= 1e-6
refill: (max(total, over=batch) - mean(total)) * var(total, ddof=0) / 0.1
advantage: grpo * (2 - 1 / copies)
"""


def test_vspo_weighs_groups_by_how_often_they_are_drawn():
    spec = rewardspec.loads(VSPO)
    data = batch_of(3, [4, 4, 4, 4])
    uid, info = data.non_tensor_batch["uid"].tolist(), data.non_tensor_batch["reward_extra_info"]
    for i in range(16):
        info[i]["reward"] = 0.5 if uid[i] == uid[0] else info[i]["b"]
    advantages = Advantages(spec, 5)
    mask, rewards = data.batch["response_mask"], data.batch["token_level_rewards"]
    found = advantages(of_data_proto(trainer_like(), data, mask, rewards), mask, 7, 10)
    out = rewardspec.compile(spec)({"reward": [x["reward"] for x in info]}, uid, step=7, total_steps=10, seed=5)
    assert out.copies.max() > 1 and out.copies.min() == 0
    close(found, out.advantages)
    assert advantages.metrics()["rewardspec/most_copies"] == out.copies.max()


def test_score_is_what_verl_has_as_the_reward():
    spec = rewardspec.loads("rewardspec: 1\ncomponents:\n  score: {range: [-.inf, .inf]}\nadvantage: grpo\n")
    data = batch_of(1, [4, 4])
    close(adapted(spec.under("verl"), data), adapted(loads("grpo").under("verl"), data))


def test_a_trainer_that_does_not_serve_rewards_is_told_so():
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer, compute_advantage

    class Other(RayPPOTrainer):
        def fit(self):
            pass

    with pytest.raises(BindingError, match="Other overrides `fit`"):
        Other(checked())
    with pytest.raises(BindingError, match=r"trainers of verl\.trainer\.main_ppo"):
        compute_advantage(batch_of(0, [4, 4]), adv_estimator="rewardspec", config={})


# V1: rows are keys of TransferQueue


def queue_of(monkeypatch, rows, **more):
    """A TransferQueue that holds (key, mask, info, is_padding) for each row, and the batch of all of them."""
    import transfer_queue

    data = {
        "extra_fields": [{"reward_extra_info": info} for _, _, info, _ in rows],
        "response_mask": [torch.tensor(mask) for _, mask, _, _ in rows],
        "responses": [torch.full((len(mask),), 5) for _, mask, _, _ in rows],
        **more,
    }
    keys = [key for key, *_ in rows]

    def kv_batch_get(keys, partition_id, select_fields):
        at = [batch.keys.index(key) for key in keys]
        names = data if select_fields is None else [name for name in select_fields if name in data]
        return {name: [data[name][i] for i in at] for name in names}

    batch = SimpleNamespace(keys=keys, tags=[{"is_padding": padding} for *_, padding in rows], partition_id="train")
    monkeypatch.setattr(transfer_queue, "kv_batch_get", kv_batch_get)
    return batch


def of_queue(spec, batch, mask, prompts=0):
    advantages = Advantages(spec, 0)
    found = of_transfer_queue(trainer_like(), batch, lambda: [0.0] * len(mask), advantages.wanted, prompts)
    return advantages(found, mask, 1, 10), found


def test_outputs_of_one_session_are_one_rollout_and_share_its_advantage(monkeypatch):
    rows = [
        ("u_1_1", [1, 1, 1], {"a": 1.0}, False),
        ("u_0_0", [1, 0, 1], {"a": 0.0}, False),
        ("u_1_0", [1, 1, 0], {"a": 1.0}, False),
        ("pad7_0_0", [0], {"a": 1.0}, True),
        ("u_2_0", [1], {"a": 0.0}, False),
    ]
    spec = rewardspec.loads(
        "rewardspec: 1\nsignals:\n  tokens: {range: [0, .inf]}\n"
        "components:\n  a: {values: [0, 1]}\n  long: tokens >= 5\nadvantage: dr_grpo\n"
    )
    advantages, found = of_queue(spec, queue_of(monkeypatch, rows), torch.ones(5, 3))
    assert found.rows == [[2, 0], [1], [4]] and found.groups == ["u", "u", "u"]
    # rewards 2 (right, and of five tokens in two outputs), 0 and 0, less their mean
    torch.testing.assert_close(advantages, torch.tensor([4 / 3, -2 / 3, 4 / 3, 0, -2 / 3]))


def test_rollouts_that_are_lost_on_the_way_are_counted(monkeypatch):
    rows = [("u_0_0", [1], {"a": 1.0}, False), ("u_2_0", [0], {"a": 0.0}, False), ("pad7_0_0", [0], {}, True)]
    batch = queue_of(monkeypatch, rows)
    spec = rewardspec.loads("rewardspec: 1\ncomponents:\n  a: {values: [0, 1]}\nadvantage: grpo\n")
    advantages = Advantages(spec, 0)
    found = of_transfer_queue(trainer_like(), batch, lambda: [0.0] * 3, advantages.wanted, prompts=2)
    advantages(found, torch.ones(3, 1), 1, 10)
    # two prompts of three: one rollout is there, one without a response, one failed, and a whole group did
    assert advantages.metrics()["rewardspec/rollouts_dropped"] == pytest.approx(5 / 6)


def test_a_batch_of_nothing_but_padding_has_no_advantages(monkeypatch):
    batch = queue_of(monkeypatch, [("pad7_0_0", [0], {}, True), ("pad7_1_0", [0], {}, True)])
    advantages, _ = of_queue(loads("grpo"), batch, torch.zeros(2, 1))
    assert advantages.tolist() == [0, 0]


def test_rollouts_without_their_reward_tokens_are_an_error(monkeypatch):
    text = SPEC[SPEC.index("condition:") :].replace("gdpo", "grpo").replace("mean(correct", "mean(a")
    spec = rewardspec.loads("rewardspec: 1\ncomponents:\n  a: {values: [0, 1]}\n" + text)
    rows = [("u_0_0", [1], {"a": 1}, False), ("u_1_0", [1], {"a": 0}, False)]
    lists = [["high", "low"]] * 2  # as submitted: no worker has put one into a prompt
    with pytest.raises(BindingError, match="ran without the reward tokens"):
        of_queue(spec, queue_of(monkeypatch, rows, reward_token=lists), torch.ones(2, 1))
    of_queue(spec, queue_of(monkeypatch, rows, reward_token=["high", "low"]), torch.ones(2, 1))


def test_validation_asks_for_the_best():
    condition = rewardspec.loads(SPEC).condition
    rollout = {"raw_prompt": [{"role": "user", "content": "add 1 2"}], "session_id": 1}
    found = conditioned(condition, rollout, validate=True)
    assert found["raw_prompt"] == [{"role": "user", "content": condition.render("add 1 2", "high")}]
    found = conditioned(condition, rollout | {"reward_token": ["high", "low"]}, validate=False)
    assert found["reward_token"] == "low" and found["raw_prompt"] != rollout["raw_prompt"]
    with pytest.raises(BindingError, match="no reward token"):
        conditioned(condition, rollout, validate=False)


# Settings


def config_of(*overrides):
    import verl.trainer
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(Path(verl.trainer.__file__).parent / "config"), version_base=None):
        return compose("ppo_trainer", list(overrides))


def checked(*overrides, spec=None):
    spec = EXAMPLE / "spec.yaml" if spec is None else spec
    ours = "algorithm.adv_estimator=rewardspec", f"+algorithm.rewardspec.spec={spec}", "actor_rollout_ref.rollout.n=4"
    config = config_of(*ours, *overrides)
    verl_settings.check_run(config)
    return config


FILTER = ["algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["algorithm.use_kl_in_reward=true"], "actor.use_kl_loss=true"),
        (["algorithm.norm_adv_by_std_in_grpo=false"], "`advantage: dr_grpo`"),
        (["algorithm.gamma=0.99"], "algorithm.gamma=0.99 has no effect"),
        (["algorithm.use_pf_ppo=true"], "adv_estimator=gae"),
        (["+algorithm.gdpo_reward_keys=[a,b]"], "the spec names its components"),
        (["+algorithm.gdpo_reward_weights=[1,2]"], "give `weight:`"),
        (["+reward.reward_kwargs.overlong_buffer_cfg.enable=true"], "write `overlong"),
        (["custom_reward_function.path=r.py"], "set reward.custom_reward_function.path"),
        (["critic.enable=true"], "critic.enable=True has no effect"),
        (FILTER, "algorithm.filter_groups.metric=acc has no effect"),
        ([*FILTER, "trainer.use_v1=false"], "has no effect with trainer.use_v1=False"),
        ([*FILTER, "trainer.v1.sampler.custom_sampler.path=mine.py"], "mine.py already filters groups"),
        (["+algorithm.rewardspec.resume_changed=3"], "expected true or false"),
        (["+algorithm.rewardspec.sed=3"], "unknown key algorithm.rewardspec.sed"),
        (["+algorithm.rewardspec.seed=x"], "expected an integer"),
        (["+algorithm.rewardspec.rollout_log_every=2"], "algorithm.rewardspec: rollout_log_every without rollout_log"),
        (
            ["+algorithm.rewardspec.rollout_log=logs", "+algorithm.rewardspec.rollout_log_keep=-1"],
            "algorithm.rewardspec: `keep` of the rollout log is -1",
        ),
        (["algorithm.rewardspec.spec=null"], "algorithm.rewardspec.spec is not set"),
        (["algorithm.rewardspec.spec=no/such.yaml"], "no/such.yaml"),
        (["algorithm.adv_estimator=grpo"], "set algorithm.adv_estimator=rewardspec"),
        (["actor_rollout_ref.rollout.n=1"], "in groups of one no rollout has an advantage"),
        (["reward.custom_reward_function.path=nothere.py"], "nothere.py: there is no such file in"),
    ],
)
def test_settings_that_do_not_go_with_a_spec_are_refused(overrides, said):
    with pytest.raises(BindingError, match=re.escape(said)):
        checked(*overrides)


def test_groups_of_one_are_fine_for_a_spec_that_compares_with_the_batch(tmp_path):
    (tmp_path / "spec.yaml").write_text(
        "rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: zscore(total, over=batch)\n"
    )
    checked("actor_rollout_ref.rollout.n=1", spec=tmp_path / "spec.yaml")


def test_reward_tokens_need_verls_own_agent_loop_manager():
    with pytest.raises(BindingError, match="reward tokens"):
        checked(
            "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=mine.Manager",
            spec=ROOT / "specs/rc_grpo/rc_grpo.yaml",
        )


def test_other_estimators_are_left_alone():
    config = config_of("algorithm.adv_estimator=grpo", "algorithm.use_kl_in_reward=true")
    before = str(config)
    verl_settings.check_run(config)
    assert str(config) == before


def test_the_run_carries_the_spec_and_the_module_to_other_machines(monkeypatch):
    import verl  # noqa: F401 - not with the variable

    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "mine")
    config = checked("+algorithm.rewardspec.constants.limit=32")
    assert config.algorithm.rewardspec.spec == (EXAMPLE / "spec.yaml").read_text()
    variables = config.ray_kwargs.ray_init.runtime_env.env_vars
    assert variables.VERL_USE_EXTERNAL_MODULES == "mine,rewardspec.adapters.verl"
    carried, _ = verl_settings.settings(config)
    assert carried.fingerprint == rewardspec.load(EXAMPLE / "spec.yaml", constants={"limit": 32}).fingerprint
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "")
    where = "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES"
    variables = checked(f"{where}=theirs").ray_kwargs.ray_init.runtime_env.env_vars
    assert variables.VERL_USE_EXTERNAL_MODULES == "theirs,rewardspec.adapters.verl"
    verl_settings.check_run(config)  # V0 checks again, in the actor
    assert verl_settings.settings(config)[0].fingerprint == carried.fingerprint


def in_job(monkeypatch, **variables):
    """As `ray job submit` sets it for its driver."""
    environment = {"runtime_env": {"env_vars": variables}, "metadata": {}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(environment))
    return environment["runtime_env"]


@pytest.mark.parametrize("of_run", [None, "theirs"])
def test_a_job_that_names_the_module_itself_can_be_merged_by_ray(monkeypatch, of_run):
    from omegaconf import OmegaConf
    from ray.runtime_env.runtime_env import _merge_runtime_env

    where = "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES"
    own = [] if of_run is None else [f"{where}={of_run}"]
    of_job = in_job(monkeypatch, VERL_USE_EXTERNAL_MODULES="theirs,rewardspec.adapters.verl")
    config = checked(*own)
    of_run = OmegaConf.to_container(config.ray_kwargs.ray_init.get("runtime_env", OmegaConf.create({})))
    merged = _merge_runtime_env(of_job, of_run)  # None: Ray's own word for "no"
    assert merged["env_vars"] == {"VERL_USE_EXTERNAL_MODULES": "theirs,rewardspec.adapters.verl"}


def test_a_job_that_names_other_variables_is_given_the_module(monkeypatch):
    from ray.runtime_env.runtime_env import _merge_runtime_env

    of_job = in_job(monkeypatch, HF_HOME="/models")
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "rewardspec.adapters.verl")
    variables = checked().ray_kwargs.ray_init.runtime_env.env_vars
    merged = _merge_runtime_env(of_job, {"env_vars": dict(variables)})
    assert merged["env_vars"] == {"HF_HOME": "/models", "VERL_USE_EXTERNAL_MODULES": "rewardspec.adapters.verl"}


def test_modules_that_job_and_run_name_apart_are_an_error_that_says_where_to_put_them(monkeypatch):
    in_job(monkeypatch, VERL_USE_EXTERNAL_MODULES="rewardspec.adapters.verl")
    where = "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES"
    with pytest.raises(BindingError, match="add theirs there, and remove this"):
        checked(f"{where}=theirs")


@pytest.mark.parametrize("of_job", ["theirs", ""])
def test_a_job_that_names_modules_without_the_adapter_is_told_so_unless_verl_finds_it(monkeypatch, of_job):
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "theirs,rewardspec.adapters.verl")  # of the driver alone
    in_job(monkeypatch, VERL_USE_EXTERNAL_MODULES=of_job, VERL_USE_EXTERNAL_PLUGINS="none")
    with pytest.raises(BindingError, match=f"set {of_job}{',' * bool(of_job)}rewardspec.adapters.verl there"):
        checked()
    in_job(monkeypatch, VERL_USE_EXTERNAL_MODULES=of_job)
    monkeypatch.setattr(verl_settings, "entry_points", lambda group: [])
    with pytest.raises(BindingError, match="without the adapter"):
        checked()
    plugin = SimpleNamespace(name="rewardspec", value="rewardspec.adapters.verl")
    monkeypatch.setattr(verl_settings, "entry_points", lambda group: [plugin])
    checked()


@pytest.mark.parametrize("text", ["${oops}", "a: ${b\n}", "\\u0024{x} $ ${ ${{"])
def test_a_spec_with_dollar_and_brace_travels_as_its_text(tmp_path, text):
    from omegaconf import OmegaConf

    (tmp_path / "spec.yaml").write_text(f"# {text!r}\n" + (EXAMPLE / "spec.yaml").read_text())
    config = checked(spec=tmp_path / "spec.yaml")
    (tmp_path / "spec.yaml").unlink()  # another machine
    OmegaConf.resolve(config)  # as verl does, in place
    found, _ = verl_settings.settings(OmegaConf.create(OmegaConf.to_container(config)))
    assert found.source.text.startswith(f"# {text!r}\n")


def test_machines_that_read_the_spec_in_another_way_are_an_error():
    config = checked()
    config.algorithm.rewardspec.fingerprint = "0123456789ab"
    with pytest.raises(BindingError, match="install the same rewardspec on all machines"):
        verl_settings.settings(config)


# The reward function, before anything starts

USES = """\
rewardspec: 1
name: uses
define: {half: 0.5}
components:
  same: {use: qa.exact_match, weight: half}
advantage: grpo
"""


def uses(tmp_path, *overrides, constants=""):
    """A run whose reward function is `for_verl` of the same file, perhaps with other constants."""
    (tmp_path / "spec.yaml").write_text(USES)
    (tmp_path / "reward.py").write_text(
        "import rewardspec\nfrom rewardspec.rewards import for_verl\n"
        f"compute_score = for_verl(rewardspec.load({str(tmp_path / 'spec.yaml')!r}{constants}))\n"
    )
    reward = f"reward.custom_reward_function.path={tmp_path / 'reward.py'}"
    return checked(reward, *overrides, spec=tmp_path / "spec.yaml")


def test_what_scores_and_what_computes_advantages_are_one_spec(tmp_path):
    constant = "+algorithm.rewardspec.constants.half=0.3"
    uses(tmp_path)
    uses(tmp_path, "+algorithm.rewardspec.dialect=verl")  # of the advantages alone
    uses(tmp_path, constant, constants=", constants={'half': 0.3}")
    with pytest.raises(BindingError) as error:
        uses(tmp_path, constant)
    scores, advantages = (rewardspec.loads(USES, constants=c).fingerprint for c in ({}, {"half": 0.3}))
    assert f"it scores by 'uses', fingerprint {scores}" in str(error.value)
    assert f"with constants half=0.3, fingerprint {advantages}" in str(error.value)


def test_generated_files_score_and_weigh_by_the_same_constants(tmp_path):
    from rewardspec.adapters.embedding import embedded, write

    spec = rewardspec.loads(USES, constants={"half": "0.25"})
    write(embedded(spec, "verl", constants={"half": "0.25"}, seed=4), tmp_path)
    words = shlex.split((tmp_path / "run_verl.sh").read_text().partition("verl.trainer.main_ppo \\")[2])
    ours = [word for word in words if word.startswith("+algorithm.rewardspec.") and ".spec=" not in word]
    config = checked(f"reward.custom_reward_function.path={tmp_path / 'reward.py'}", *ours, spec=tmp_path / "spec.yaml")
    assert verl_settings.settings(config)[0].fingerprint == spec.fingerprint
    assert verl_settings.settings(config)[1] == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import not_installed_anywhere\n", "No module named 'not_installed_anywhere'"),
        ("def compute_scores(): pass\n", "Object not found in module"),
        ("def compute_score(:\n", "SyntaxError"),
    ],
)
def test_a_reward_file_that_does_not_load_is_found_where_training_is_started(tmp_path, text, said):
    (tmp_path / "reward.py").write_text(text)
    with pytest.raises(BindingError, match=re.escape(said)) as error:
        checked(f"reward.custom_reward_function.path={tmp_path / 'reward.py'}")
    assert "reward.py cannot be loaded" in str(error.value)


# Other trainers


@pytest.mark.parametrize("name", ["fully_async_policy", "one_step_off_policy"])
def test_trainers_that_are_not_served_are_refused_before_ray_starts(name):
    import ray
    import verl.trainer.main_ppo as main
    from omegaconf import OmegaConf

    runner = {"fully_async_policy": "FullyAsyncTaskRunner", "one_step_off_policy": "OneStepTaskRunner"}[name]
    runner = ray.remote(type(runner, (), {}))
    config = config_of("algorithm.adv_estimator=rewardspec", f"+algorithm.rewardspec.spec={EXAMPLE / 'spec.yaml'}")
    with pytest.raises(BindingError, match=f"{name} is not supported"):
        main.run_ppo(config, task_runner_class=runner)
    config = OmegaConf.merge(config, {"algorithm": {"adv_estimator": "grpo"}})
    with pytest.raises(BindingError, match="does not read it"):  # verl's own guards are skipped there
        main.run_ppo(config, task_runner_class=runner)
    assert not ray.is_initialized()


# Groups without signal


def filter_of(monkeypatch, spec, rows):
    """verl's own replay buffer, with a trainer that has a spec, on a TransferQueue that holds the rows."""
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    class Trainer:
        config = trainer_like().config
        tokenizer = trainer_like().tokenizer
        global_steps, total_training_steps = 5, 10
        rewardspec = Advantages(spec, 0)

        def refill(self, n):
            pass

    sums = [torch.tensor([float(sum(info.values()))]) for _, _, info, _ in rows]
    batch = queue_of(monkeypatch, rows, rm_scores=sums)
    buffer = ReplayBuffer("sync", {}, None, "drop", {}, refill_fn=Trainer().refill, filter_groups_metric="reward")
    buffer.partitions["train"] = dict(zip(batch.keys, batch.tags, strict=True))
    buffer.finished_keys["train"] = {key.split("_")[0] for key in batch.keys}
    return buffer


TWO = """\
rewardspec: 1
components:
  correct: {values: [0, 1]}
  form: {values: [0, 1], weight: 1 - progress}
advantage: gdpo
"""


def test_groups_without_signal_under_the_spec_are_filtered_whatever_their_score(monkeypatch):
    groups = {
        "cancel": [(1, 0), (0, 1)],  # scores 1 and 1: verl itself would filter it, and gdpo tells them apart
        "faded": [(1, 1), (1, 1)],
        "alive": [(1, 0), (0, 0)],
    }
    rows = [
        (f"{uid}_{i}_0", [1], {"correct": float(a), "form": float(b)}, False)
        for uid, found in groups.items()
        for i, (a, b) in enumerate(found)
    ]
    buffer = filter_of(monkeypatch, rewardspec.loads(TWO), rows)
    uids, counts = buffer._dapo_filtered_keys("train")
    assert uids == {"faded"} and dict(counts) == {1.5: 1}  # 1 + (1 - 5 / 10)
    assert buffer._dapo_filtered_keys("train") == (uids, counts)  # from the cache
    fn = rewardspec.compile(rewardspec.loads(TWO))
    found = fn({"correct": [1, 0, 1, 1, 1, 0], "form": [0, 1, 1, 1, 0, 0]}, groups=2, step=5, total_steps=10).advantages
    assert found[0] != found[1] and found[2] == found[3] and found[4] != found[5]
    monkeypatch.setattr(type(buffer.refill_fn.__self__), "rewardspec", None)  # verl's own test of the score
    buffer._dapo_classification_cache.clear()
    assert buffer._dapo_filtered_keys("train")[0] == {"cancel", "faded"}


def test_names_that_do_not_fit_are_an_error_of_the_first_groups(monkeypatch):
    # the filter looks at groups before there is a batch
    spec = rewardspec.loads("rewardspec: 1\nname: wrong\ncomponents:\n  corect: {values: [0, 1]}\nadvantage: grpo\n")
    info = {"score": 1.0, "correct": 1.0, "form": 0.0, "style": 0.5}
    buffer = filter_of(monkeypatch, spec, [("u_0_0", [1], info, False), ("u_1_0", [1], info, False)])
    with pytest.raises(BindingError) as error:
        buffer._dapo_filtered_keys("train")
    for said in (
        "nothing measures `corect`, which wrong reads; did you mean `correct`?",
        "in the first batch compute_score returned `score`, `correct`, `form`, `style`",
        "the adapter fills in `score`, `tokens`, `truncated`",
    ):
        assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("advantage: zscore(total, over=batch) if mean(a) > mean(a, over=batch) else 0", "depends on the rest of"),
        ("keep: std(a) > 0\nrefill: var(total)\nadvantage: grpo", "(`refill`)"),
        ("state:\n  s: {init: 0, range: [0, 1], update: s}\nadvantage: grpo * s", "depends on its state"),
    ],
)
def test_specs_that_cannot_judge_a_group_by_itself_are_refused_a_filter(tmp_path, text, said):
    (tmp_path / "spec.yaml").write_text(f"rewardspec: 1\ncomponents: {{a: {{values: [0, 1]}}}}\n{text}\n")
    with pytest.raises(BindingError, match=re.escape(said)):
        checked("algorithm.filter_groups.enable=true", spec=tmp_path / "spec.yaml")
    checked("algorithm.filter_groups.enable=true")


# Checkpoints


def test_a_checkpoint_knows_its_spec_and_a_run_under_another_does_not_go_on(tmp_path, caplog):
    from rewardspec.adapters.verl.checkpoints import check_checkpoint, mark_checkpoint

    def trainer(config, step=0):
        return SimpleNamespace(config=config, global_steps=step, rewardspec=Advantages(*verl_settings.settings(config)))

    where = f"trainer.default_local_dir={tmp_path}"
    check_checkpoint(trainer(checked(where)))  # nothing to resume from
    mark_checkpoint(trainer(checked(where), 7))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("7")  # as verl leaves it
    check_checkpoint(trainer(checked(where)))
    other = where, "+algorithm.rewardspec.constants.limit=1"
    with pytest.raises(BindingError, match="resume_changed=true") as error:
        check_checkpoint(trainer(checked(*other)))
    for constants in ({}, {"limit": 1}):
        assert rewardspec.load(EXAMPLE / "spec.yaml", constants=constants).fingerprint in str(error.value)
    check_checkpoint(trainer(checked(*other, "+algorithm.rewardspec.resume_changed=true")))
    check_checkpoint(trainer(checked(*other, "trainer.resume_mode=disable")))
    path = "trainer.resume_mode=resume_path", f"trainer.resume_from_path={tmp_path / 'global_step_7'}"
    with pytest.raises(BindingError, match="global_step_7 was trained under"):
        check_checkpoint(trainer(checked(*path, "+algorithm.rewardspec.constants.limit=1")))
    (tmp_path / "global_step_7" / record.FILE).write_text("{")
    check_checkpoint(trainer(checked(*other)))
    assert "has no record of its spec" in caplog.text


STATE = """\
state:
  price: {init: 0.5, range: [-9, 9], update: "price + 0.25 * mean(c, over=batch)"}
  level_of: {init: 0.5, range: [0, 1], by: task, update: 0.5 * level_of + 0.5 * mean(b)}
"""


def test_state_goes_with_the_checkpoints_and_a_resumed_run_equals_one_that_was_not_cut(tmp_path, caplog):
    from rewardspec.adapters.verl.checkpoints import check_checkpoint, mark_checkpoint

    head = "rewardspec: 1\nname: carried\nsignals: {task: {id: true, level: group}}\ncomponents:\n"
    head += "".join(f"  {k}: {{range: [-9, 9], weight: {w}}}\n" for k, w in WEIGHTS.items())
    (tmp_path / "spec.yaml").write_text(head + STATE + "outcome: c > 0\nadvantage: grpo + price - level_of\n")
    (tmp_path / "plain.yaml").write_text(head + "advantage: grpo\n")
    where = f"trainer.default_local_dir={tmp_path}"

    def trainer(*more, spec="spec.yaml", step=0):
        config = checked(where, *more, spec=tmp_path / spec)
        return SimpleNamespace(config=config, global_steps=step, rewardspec=Advantages(*verl_settings.settings(config)))

    def step(run, seed):
        data = batch_of(seed, [2, 3, 4])
        data.non_tensor_batch["task"] = np.array([(int(u[-1]) + seed) % 4 for u in data.non_tensor_batch["uid"]])
        mask, rewards = data.batch["response_mask"], data.batch["token_level_rewards"]
        found = run.rewardspec(of_data_proto(trainer_like(), data, mask, rewards), mask, seed, 10)
        return found.tolist(), run.rewardspec.state

    whole = trainer("+algorithm.rewardspec.rollout_log=logs", "+algorithm.rewardspec.rollout_log_text=none")
    log = verl_settings.rollout_log(whole.config)
    assert log.folder == str(Path("logs").absolute())
    whole.rewardspec.open_log(replace(log, folder=tmp_path / "logs"))
    expected = [step(whole, seed) for seed in range(4)]
    whole.rewardspec.log.flush()
    for (columns, about), (advantages, state) in zip(logged_files(tmp_path / "logs").values(), expected, strict=True):
        assert columns["rewardspec/advantage"] == advantages and about["state_after"]["price"] == state["price"]
        assert dict(about["state_after"]["level_of"]).items() <= dict(state["level_of"]).items()
    assert whole.rewardspec.metrics()["rewardspec/state/price"] == expected[-1][1]["price"]
    assert {"all_right", "all_wrong", "tied", "right"} <= named_alike(whole.rewardspec.metrics(), tmp_path / "logs")
    assert len({state["price"] for _, state in expected}) == 4 and len(expected[-1][1]["level_of"]) == 4
    cut = trainer(step=2)
    assert [step(cut, seed) for seed in range(2)] == expected[:2]
    mark_checkpoint(cut)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("2")  # as verl leaves it
    resumed = trainer()
    check_checkpoint(resumed)
    assert [step(resumed, seed) for seed in (2, 3)] == expected[2:], "bit for bit"
    file = tmp_path / "global_step_2" / record.FILE
    found = json.loads(file.read_text())
    del found["state"]
    file.write_text(json.dumps(found))
    with pytest.raises(BindingError, match="global_step_2 has no state, and carried carries `price`, `level_of`"):
        check_checkpoint(trainer())
    anyway = trainer("+algorithm.rewardspec.resume_changed=true")
    check_checkpoint(anyway)
    assert anyway.rewardspec.state == {"price": 0.5, "level_of": []} and "has no state" in caplog.text


def test_a_checkpoint_of_another_version_says_so_and_prints_nothing_raw(tmp_path):
    spec = rewardspec.load(EXAMPLE / "spec.yaml")
    then = record.record(spec, 0)
    for found, said in (
        (then | {"fingerprint": "0\n::error::\x1b[2J"}, r"^(?!.*(?:\n|\x1b|which may read))"),
        (then | {"fingerprint": "0", "rewardspec": "0.0.1"}, r"by rewardspec 0.0.1, and this is .*, which may read"),
        ({"fingerprint": "0"}, "by rewardspec of unknown version"),
    ):
        with pytest.raises(BindingError, match=said):
            record.compare(found, spec, "the checkpoint", "--resume-changed")
    for torn in ("", '{"fingerprint": "0', "[1]", "null", '{"fingerprint": 3}', "\udcff"):
        (tmp_path / record.FILE).write_bytes(torn.encode("utf-8", "surrogateescape"))
        told = record.compare(record.read(tmp_path), spec, "the checkpoint", "--resume-changed")
        assert told == "the checkpoint has no record of its spec"


def test_the_spec_can_stand_in_the_configuration():
    from omegaconf import OmegaConf, open_dict

    config = config_of("algorithm.adv_estimator=rewardspec")
    with open_dict(config):
        config.algorithm.rewardspec = OmegaConf.create({"spec": SPEC, "seed": 3})
    spec, seed = verl_settings.settings(config)
    assert (spec.name, seed) == ("in-verl", 3)


def test_a_hook_that_is_not_there_is_said_at_once_and_again_at_the_start(monkeypatch, caplog):
    monkeypatch.setattr(verl_settings, "missing_hooks", missing := [])
    monkeypatch.setattr(adapter, "missing_hooks", missing)
    adapter._hook(SimpleNamespace(__name__="PPOTrainer"), "_compute_advantage", lambda original: original)
    assert "this verl has no `PPOTrainer._compute_advantage`" in caplog.text
    with pytest.raises(BindingError, match=r"tested with 0\.9\.1"):
        checked()


def test_importing_rewardspec_imports_no_trainer():
    code = "import sys, rewardspec; print('torch' in sys.modules, 'verl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]


# The example


def test_the_example_goes_together(tmp_path):
    words = shlex.split((EXAMPLE / "run.sh").read_text().partition("verl.trainer.main_ppo")[2].replace('"$@"', ""))
    config = config_of(*[word.replace("$here", str(EXAMPLE)).replace("$model", "m") for word in words if word.strip()])
    spec, _ = verl_settings.settings(config)
    compute_score = runpy.run_path(str(EXAMPLE / "reward.py"))["compute_score"]
    found = compute_score("sums", "17 + 4 is <answer>21</answer>", "21", {})
    assert found == {"score": 1, "correct": 1, "form": 1}
    assert {*spec.columns} == {*found, "tokens"} - {"score"}
    runpy.run_path(str(EXAMPLE / "data.py"))["main"](tmp_path)
    assert (tmp_path / "train.parquet").stat().st_size > 10_000
