"""The launcher with OpenRLHF's own command line, Ray actors, trainers and reward calls; see openrlhf_fakes.py."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from forks import forks
from logged_again import flat, logged_files

import rewardspec
from rewardspec.adapters import openrlhf as adapter
from rewardspec.adapters.embedding import embedded, write
from rewardspec.adapters.openrlhf import launcher

pytestmark = pytest.mark.filterwarnings("ignore")  # what importing a trainer says is not about us

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "openrlhf"

SPEC = """\
rewardspec: 1
name: in-openrlhf
signals:
  tokens: {range: [0, .inf]}
  truncated: {values: [0, 1]}
components:
  correct: {values: [0, 1]}
  form: {values: [0, 1], weight: half}
  style: {range: [0, 1], missing: ignore, weight: 0.5}
  brief: {expr: tokens <= 3, weight: progress}
  ended: {expr: 1 - truncated, weight: 1 - progress}
define: {half: 1}
advantage: gdpo
"""

REWARD = """\
import torch


def scores(digits):
    return {"correct": float(sum(digits) % 2 == 0), "form": float(digits[0] > 4),
            "style": float("nan") if digits[-1] < 3 else digits[-1] / 9}


def reward_func(queries, prompts, labels):
    assert len(queries) == len(prompts) == len(labels) == 1
    digits = [int(word) for word in queries[0][len(prompts[0]):].split() if word.isdigit()]
    if labels[0] == "broken" and len(digits) > 2:
        raise ZeroDivisionError
    found = scores(digits)
    reward = torch.tensor([found["correct"] + found["form"]])
    return {"rewards": reward, "scores": reward, "extra_logs": {k: torch.tensor([v]) for k, v in found.items()}}
"""

ARGUMENTS = shlex.split("""
--algo.advantage.estimator group_norm --algo.kl.init_coef 0 --reward.remote_url FOLDER/reward.py
--actor.model_name_or_path FOLDER/model --actor.num_gpus_per_node 1 --vllm.num_engines 1 --ds.attn_implementation eager
--data.prompt_dataset FOLDER/prompts.jsonl --data.label_key label --data.max_len 12
--rollout.max_new_tokens 4 --rollout.n_samples_per_prompt 3 --rollout.batch_size 4 --rollout.micro_batch_size 5
--train.batch_size 12 --train.num_episodes 2 --ckpt.path FOLDER/ckpt
""")

DIGITS = 3  # the token of the digit 0
PROMPTS = 9  # two batches of four and one of one


def tokenizer(folder, digit="{}"):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", "<unk>", *(digit.format(i) for i in range(10)), "add", "and"]
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    made.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    made.save_pretrained(folder)
    LlamaConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=1).save_pretrained(folder)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A tokenizer of few words, prompts, a spec and a reward function."""
    folder = tmp_path_factory.mktemp("openrlhf")
    tokenizer(folder / "model")
    for name, label in {"prompts": "fine", "broken": "broken"}.items():
        lines = [json.dumps({"input": f"add {i} and {i + 1}", "label": label, "first": i}) for i in range(PROMPTS)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "spec.yaml").write_text(SPEC)
    (folder / "reward.py").write_text(REWARD)
    (folder / "ckpt" / "_actor").mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def fork(tmp_path_factory):
    """A command that does what `python` does, without ten seconds of imports; Ray starts actors with it, too."""
    with forks(tmp_path_factory.mktemp("forks") / "socket") as command:
        yield command


def run(python, folder, ours, *stock, out="out.jsonl", resume=0, command=None, job=None):
    """Batches of rows that the policy would train on, and what was printed.

    python: the command of `fork`, or [sys.executable], for processes that import everything themselves. resume:
    training steps that the checkpoint has seen, for `--ckpt.load_enable`. job: variables in the runtime environment of
    a job, as `ray job submit` starts it.
    """
    path = folder / out
    states = {"episode": 0, "global_step": resume, "total_consumed_prompts": 0, "data_loader_state_dict": {}}
    environment = os.environ | {
        "OPENRLHF_FAKES_OUT": str(path),
        "OPENRLHF_FAKES_RESUME": json.dumps(states),
        "RAY_DEDUP_LOGS": "0",
        "COLUMNS": "1000",
    }
    if python != [sys.executable]:
        environment["OPENRLHF_FAKES_PYTHON"] = shlex.join(python)
    if job is not None:
        environment |= job | {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"env_vars": job}})}
    if command is None:
        command = [*python, "-m", "openrlhf_fakes", *shlex.split(ours), "--", *ARGUMENTS, *stock]
        command = [part.replace("FOLDER", str(folder)) for part in command]
    # a relative path of the spec is enough: its text goes to the actors
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    batches = [[]]
    for line in lines:
        if "trained" in line:
            batches.append([])
        elif "prompt" in line:
            batches[-1].append(line)
    saved = [line for line in lines if "saved" in line]
    said = done.stdout + done.stderr
    return SimpleNamespace(code=done.returncode, said=said, errors=done.stderr, batches=batches[:-1], saved=saved)


def expected(folder, rows, step, total_steps, function=None, **options):
    """The compiled spec's result on the rows, scored and measured here."""
    scores = runpy.run_path(str(folder / "reward.py"))["scores"]
    responses = [row["response"] for row in rows]
    scored = [scores([token - DIGITS for token in response if token >= DIGITS]) for response in responses]
    columns = {name: [found[name] for found in scored] for name in scored[0]}
    columns["tokens"] = [len(response) for response in responses]
    columns["truncated"] = [float(response[-1] != 1) for response in responses]  # does not end the text
    function = function or rewardspec.compile(folder / "spec.yaml", **options)
    return function(columns, [row["prompt"] for row in rows], step=step, total_steps=total_steps)


def assert_rows(folder, batches, steps, total_steps, **options):
    for rows, step in zip(batches, steps, strict=True):
        result = expected(folder, rows, step, total_steps, **options)
        assert result.advantages.abs().max() > 0.5
        for row, advantage in zip(rows, result.advantages, strict=True):
            assert row["dtype"] == "torch.float32"
            actual = torch.tensor(row["advantages"])
            torch.testing.assert_close(actual, advantage.expand(len(actual)), rtol=1e-6, atol=1e-6)


def logged(said, name):
    """The values of a metric in the lines of OpenRLHF's steps."""
    return [float(value) for value in re.findall(rf"Global step \d+: .*'{re.escape(name)}': ([-\d.e]+)", said)]


def script(python, folder, file, *stock):
    """The command that runs a script whose `python -m rewardspec.adapters.openrlhf` is the fakes' launcher."""
    called = folder / "bin" / "python"
    called.parent.mkdir()
    called.write_text(f'#!/bin/sh\nshift 2\nexec {shlex.join(python)} -m openrlhf_fakes "$@"\n')
    called.chmod(0o755)
    return ["bash", "-c", f'export PATH="{called.parent}:$PATH"; exec bash {shlex.join([str(file), *stock])}']


def test_script_trains_on_the_advantages_of_the_spec_and_its_module(files, fork, tmp_path):
    spec = rewardspec.load(files / "spec.yaml").under("openrlhf")
    write(embedded(spec, "openrlhf"), tmp_path)
    stock = [part.replace("FOLDER", str(files)) for part in ARGUMENTS]
    command = script(fork, tmp_path, tmp_path / "run_openrlhf.sh", *stock, "--ckpt.save_steps", "3")
    # as a job that sets a variable which OpenRLHF sets as well: Ray refuses what both name
    done = run(fork, tmp_path, "", command=command, job={"NCCL_DEBUG": "INFO"})
    assert done.code == 0, done.said
    assert [(line["saved"], line["rewardspec"]["fingerprint"]) for line in done.saved] == [
        (3, spec.fingerprint),
        (6, spec.fingerprint),
    ]
    assert "[rewardspec] advantages of in-openrlhf, fingerprint" in done.said
    assert [len(rows) for rows in done.batches] == [12, 12, 3] * 2
    assert_rows(files, done.batches, range(6), 6, dialect="openrlhf")
    module = runpy.run_path(str(tmp_path / "advantage.py"))
    assert_rows(files, done.batches, range(6), 6, function=module["advantages"])
    assert any(row["truncated"] for rows in done.batches for row in rows)
    assert logged(done.said, "rewardspec/weight/brief") == pytest.approx([i / 6 for i in range(6)])
    first = expected(files, done.batches[0], 0, 6, dialect="openrlhf")
    assert logged(done.said, "rewardspec/reward/form")[0] == pytest.approx(first.rewards["form"].mean().item())


def test_asynchronous_trainer_goes_on_from_a_checkpoint(files, fork):
    stock = "--train.async_enable", "--train.dynamic_batch_enable", "--train.max_tokens_per_gpu", "30"
    ours = "--spec spec.yaml --set half=0.5 --rollout-log rollouts --rollout-log-keep 4"
    ours += " --rollout-log-columns first"
    done = run(fork, files, ours, *stock, "--ckpt.load_enable", out="async.jsonl", resume=2)
    assert done.code == 0, done.said
    assert [len(rows) for rows in done.batches] == [12, 12, 3] * 2
    # six more steps, as of a run of six: the fake checkpoint does not say which prompts it has seen
    text = SPEC.replace("half: 1", "half: 0.5")
    (files / "halved").mkdir()
    (files / "halved" / "spec.yaml").write_text(text)
    (files / "halved" / "reward.py").write_text(REWARD)
    assert_rows(files / "halved", done.batches, range(2, 8), 6)
    assert logged(done.said, "rewardspec/weight/form") == [0.5] * 6
    assert re.search("the checkpoint in .*ckpt has no record of its spec", done.said)
    for step, (columns, about) in zip(range(4, 8), logged_files(files / "rollouts").values(), strict=True):
        rows = done.batches[step - 2]
        assert about["step"] == step and about["rollouts"] == len(rows) and about["total_steps"] == 6
        found = zip(columns["tokens"], columns["rewardspec/advantage"], strict=True)
        trained = [(len(row["response"]), row["advantages"][0]) for row in rows]
        assert flat(sorted(map(list, found))) == pytest.approx(flat(sorted(map(list, trained))), abs=1e-6)
        assert {*columns["prompt"]} == {row["prompt"] for row in rows} and all(columns["completion"])
        assert [f"add {i} and {i + 1}" for i in columns["first"]] == columns["prompt"]


@pytest.mark.parametrize("stock", [[], ["--train.async_enable"]], ids=["synchronous", "asynchronous"])
def test_errors_of_the_reward_function_stop_training_with_what_is_missing(files, fork, stock):
    broken = "--data.prompt_dataset", "FOLDER/broken.jsonl"
    done = run(fork, files, "--spec spec.yaml", *broken, *stock, out=f"broken{len(stock)}.jsonl")
    assert done.code == 1
    assert done.batches == []
    assert re.search(r"rewardspec: \d+ of 12 rollouts have a reward; the first without is rollout \d+", done.errors)
    assert re.search(r"\d+ of 12 rollouts have `correct`", done.errors)
    last = done.errors[done.errors.index("rewardspec: ") :]
    assert "Traceback" not in last.splitlines()[0] and "BindingError" not in last


WITH_STOCK = {
    "estimator": (["--algo.advantage.estimator", "gae"], "gae: pass group_norm"),
    "no such file": (["--reward.remote_url", "nothere.py"], "nothere.py: there is no such file in"),
    "several": (["--algo.advantage.gamma", "0.9", "--reward.clip_range", "-5", "5"], "--reward.clip_range has"),
}


@pytest.mark.parametrize(("stock", "message"), WITH_STOCK.values(), ids=WITH_STOCK)
def test_arguments_that_contradict_the_spec_are_refused_before_ray_starts(files, fork, stock, message):
    done = run(fork, files, "--spec spec.yaml", *stock)
    assert done.code == 1 and done.errors.count("rewardspec: ") == 1
    assert message in done.errors and "Traceback" not in done.errors
    assert "Started a local Ray instance" not in done.said


OURS = {
    "no file": ("--spec none.yaml", "rewardspec: [Errno 2] No such file or directory: 'none.yaml'"),
    "dialect": ("--spec spec.yaml --dialect vllm", "rewardspec: dialect 'vllm' is not known; there are"),
    "constant": ("--spec spec.yaml --set nothing=1", "`nothing`"),
    "not a pair": ("--spec spec.yaml --set half", "'half' is not NAME=VALUE"),
    "log": (
        "--spec spec.yaml --rollout-log-keep 0 --rollout-log logs --rollout-log-text some",
        "rewardspec: `keep` of the rollout log is 0: it must be a whole number, 1 or more\n`text` of the rollout log",
    ),
    "seed": ("--spec spec.yaml --seed minus", "--seed: invalid int value: 'minus'"),
    "no spec": ("", "the following arguments are required: --spec"),
}


@pytest.mark.parametrize(("ours", "message"), OURS.values(), ids=OURS)
def test_spec_that_cannot_be_read_is_refused(files, ours, message):
    command = [sys.executable, "-m", "rewardspec.adapters.openrlhf", *shlex.split(ours), "--", *ARGUMENTS]
    done = run([sys.executable], files, "", command=command)
    assert done.code != 0
    assert message in done.errors and "Traceback" not in done.errors


def test_errors_of_training_are_not_shown_as_errors_of_the_spec(files, monkeypatch):
    def stock(arguments):
        raise FileNotFoundError("prompts.jsonl")

    monkeypatch.setattr(launcher, "_install_in_driver", lambda settings, spec: None)
    monkeypatch.setattr(launcher, "_run_stock", stock)
    with pytest.raises(FileNotFoundError):
        adapter.main(["--spec", str(files / "spec.yaml")])


def test_example_runs(tmp_path):
    tokenizer(tmp_path / "model", digit="<answer>{}</answer>")
    for file in EXAMPLE.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    runpy.run_path(str(tmp_path / "data.py"), run_name="__main__")
    python = [sys.executable]  # every process, and every actor, imports by itself what it needs
    command = script(python, tmp_path, "run.sh", str(tmp_path / "model"), "--data.max_samples", "128")
    done = run(python, tmp_path, "", command=command)
    assert done.code == 0, done.said
    assert [len(rows) for rows in done.batches] == [512, 512]
    assert any(row["advantages"][0] for row in done.batches[1])
    assert logged(done.said, "rewardspec/weight/brief") == [0, 0.125]
