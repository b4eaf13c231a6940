"""What is compared before training goes on, and dynamic filtering in the real SamplesGenerator of OpenRLHF 0.11.2."""

from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from experience_makers import arguments
from logged_again import logged_files
from openrlhf.datasets import PromptDataset
from openrlhf.trainer.ppo_utils import samples_generator
from torch.utils.data import DataLoader

import rewardspec
from rewardspec.adapters import openrlhf as adapter
from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.record import record
from rewardspec.adapters.embedding import embedded, write
from rewardspec.adapters.openrlhf import checks, hook
from rewardspec.adapters.openrlhf.kept import KEPT
from rewardspec.adapters.openrlhf.rollouts import Advantages
from rewardspec.logs.rollout_log import RolloutLog

pytestmark = pytest.mark.filterwarnings("ignore")  # what importing a trainer says is not about us

SPEC = """\
rewardspec: 1
name: two
define: {half: 0.5}
components:
  correct: {values: [0, 1], weight: 8}
  form: {values: [0, 1], weight: 8 - 8 * progress}
advantage: gdpo
"""

# Dynamic filtering


def generator(monkeypatch, groups, text=SPEC, **changed):
    """A real generator whose engines answer each prompt with the (correct, form) of its group."""
    adapter.install(adapter.Settings.of(rewardspec.loads(text)))
    made = object.__new__(samples_generator.SamplesGenerator)
    made.args = arguments(algo__dynamic_filtering_enable=True, algo__dynamic_filtering_range=(0, 1), **changed)
    made.prompts_dataloader = [(None, [prompt], [""], [None]) for prompt in groups]

    def dispatch(prompts, labels, images=None, **_):
        return [
            [
                {
                    "prompt": prompt,
                    "label": "",
                    "observation_tokens": [7, 8, 5, 5],
                    "action_ranges": [(2, 4)],
                    "rollout_log_probs": None,
                    "reward": 8.0 * (correct + form),
                    "scores": 8.0 * (correct + form),
                    "extra_logs": {"correct": correct, "form": form},
                }
                for correct, form in groups[prompt]
            ]
            for prompt in prompts
        ]

    made._dispatch_prompts_to_vllm = dispatch
    ray = SimpleNamespace(wait=lambda refs, **_: (refs[:1], refs[1:]), get=lambda ref: ref)
    monkeypatch.setattr(samples_generator, "ray", ray)
    return made


GROUPS = {  # scores of 8 and 16: by its own range from 0 to 1 OpenRLHF keeps none
    "cancel": [(1, 0), (0, 1)],  # at equal weights
    "same": [(1, 1), (1, 1)],
    "form": [(1, 1), (1, 0)],
    "alive": [(1, 0), (0, 0)],
    "late": [(0, 0), (1, 1)],
}


def drawn(made, prompts, **options):
    options = {"n_samples_per_prompt": 2, "max_len": 16, **options}
    iterator = iter(made.prompts_dataloader)
    found, taken, exhausted = made._generate_vllm(iterator, prompts, True, **options)
    return [sample.prompts[0] for sample in found], taken, exhausted


def test_groups_with_signal_under_the_spec_are_kept_whatever_their_scores(monkeypatch):
    made = generator(monkeypatch, GROUPS)
    assert drawn(made, 3) == (["form"] * 2 + ["alive"] * 2 + ["late"] * 2, 5, False)
    fn = rewardspec.compile(rewardspec.loads(SPEC))
    for prompt, group in GROUPS.items():
        columns = dict(zip(("correct", "form"), zip(*group, strict=True), strict=True))
        out = fn({name: list(values) for name, values in columns.items()}, 2, step=0, total_steps=6)
        assert (out.advantages.abs().max() > 0) == (prompt not in ("same", "cancel"))


def test_the_moment_counts_and_prompts_can_run_out(monkeypatch):
    made = generator(monkeypatch, GROUPS)
    made.rewardspec_step = 2 * len(GROUPS)  # the end: `form` weighs nothing
    kept, taken, exhausted = drawn(made, 4)
    assert kept == ["cancel"] * 2 + ["alive"] * 2 + ["late"] * 2 and (taken, exhausted) == (5, True)


def test_stock_filtering_is_left_alone_where_it_is_off(monkeypatch):
    made = generator(monkeypatch, GROUPS)
    found, taken, _ = made._generate_vllm(iter(made.prompts_dataloader), 2, False, n_samples_per_prompt=2, max_len=16)
    assert [sample.prompts[0] for sample in found] == ["cancel"] * 2 + ["same"] * 2 and taken == 2


def test_groups_of_other_sizes_are_not_cut_into_one_another(monkeypatch):
    ragged = {"short": [(1, 1)], "long": [(1, 1), (1, 0), (0, 0)]}  # two of two, by the count alone
    with pytest.raises(BindingError, match=r"2 of 2 prompts do not have 2 rollouts .*the first is prompt 0, with 1"):
        drawn(generator(monkeypatch, ragged), 2)


def test_a_rollout_without_its_rewards_is_named(monkeypatch):
    made = generator(monkeypatch, GROUPS)
    answers, dispatch = [], made._dispatch_prompts_to_vllm

    def failing(prompts, labels, **options):  # what OpenRLHF leaves of a reward_func that raised
        answers.extend(dispatch(prompts, labels, **options))
        answers[0][1] |= {"reward": None, "scores": None, "extra_logs": {}}
        return answers

    made._dispatch_prompts_to_vllm = failing
    with pytest.raises(
        BindingError, match=r"nothing measures `correct`(.|\n)*of the prompt \['cancel'\]. OpenRLHF hides"
    ):
        drawn(made, 2)


# Columns of the data set for the rollout log


def test_the_rollout_log_keeps_columns_of_the_data_set(monkeypatch, tmp_path):
    rows = [
        {"input": "alive", "label": "1", "source": "math", "more": {"level": 3}},
        {"input": "form", "label": "1", "source": "code", "more": {"level": 4}},
        {"input": "late", "label": "2", "source": "math", "more": {"level": 5}},
        {"input": "late", "label": "2", "source": "code", "more": {"level": 5}},  # which of them is not known
    ]
    log = RolloutLog(tmp_path, text="none", columns=["source", "more.level"])
    made = generator(monkeypatch, GROUPS)
    names = {"data__input_key": "input", "data__label_key": "label", "vllm__enable_sleep": False}
    made.args = arguments(**names, rollout__n_samples_per_prompt=2, algo__dynamic_filtering_enable=False)
    adapter.install(adapter.Settings.of(rewardspec.loads(SPEC), log=log))
    strategy = SimpleNamespace(args=made.args, is_rank_0=lambda: False)
    data = PromptDataset(Dataset.from_list(rows), None, strategy)
    answer = made._dispatch_prompts_to_vllm

    def dispatch(prompts, labels, **options):
        given = answer(prompts, labels, **options)
        return [[response | {"label": label} for response in group] for group, label in zip(given, labels, strict=True)]

    made._dispatch_prompts_to_vllm = dispatch
    made.prompts_dataloader = DataLoader(data, batch_size=1, collate_fn=data.collate_fn)
    found, *_ = made.generate_samples(n_samples_per_prompt=2, max_len=16)
    advantages = Advantages(rewardspec.loads(SPEC))
    advantages.step, advantages.total_steps = 4, 10
    advantages.open_log(log, None)
    advantages.kept = [getattr(sample, KEPT) for sample in found]
    for place, sample in enumerate(found):
        sample.index = [place]
    advantages(found, 2)
    advantages.log.flush()
    columns, _ = logged_files(tmp_path)["step_00000004.parquet"]
    assert columns["source"] == ["math", "math", "code", "code", None, None]
    assert columns["more.level"] == [3, 3, 4, 4, 5, 5]
    unlike = adapter.Settings.of(rewardspec.loads(SPEC), log=RolloutLog(tmp_path, columns=["sorce", "more.grade"]))
    adapter.install(unlike)
    other = PromptDataset(Dataset.from_list(rows), None, strategy)
    loader = DataLoader(other, batch_size=1, collate_fn=other.collate_fn)
    with pytest.raises(BindingError, match=r"to keep `sorce`, `more.grade`, .* `source`; did you mean `source`"):
        samples_generator.SamplesGenerator(strategy, loader, None, None, [])


FILTER = {"algo__dynamic_filtering_enable": True, "algo__dynamic_filtering_range": (0, 1)}


@pytest.mark.parametrize(
    ("text", "changed", "said"),
    [
        (SPEC, {"algo__dynamic_filtering_range": (0.1, 0.9)}, "dynamic_filtering_range has no effect"),
        (SPEC, {"train__async_enable": True}, "generates without knowing the step"),
        (SPEC.replace("8 - 8 * progress", "kl").replace("components:", "signals: {kl: {range: [0, .inf]}}\ncomponents:")
         .replace("weight: kl", "weight: 1").replace("gdpo", "grpo - kl"), {}, "`kl` is unknown"),
        (SPEC.replace("gdpo", "grpo\nkeep: std(correct) > 0\nrefill: var(total)"), {}, "(`refill`)"),
    ],
)  # fmt: skip
def test_filtering_that_cannot_ask_the_spec_is_refused(text, changed, said):
    spec = rewardspec.loads(text)
    with pytest.raises(BindingError) as error:
        checks.check_settings(arguments(**FILTER | changed), spec)
    assert said in str(error.value)


# Before training


def reward_file(tmp_path, constants):
    spec = rewardspec.loads(
        SPEC.replace("{values: [0, 1], weight: 8}", "{use: qa.exact_match, weight: half}"), constants=constants
    )
    write(embedded(spec, "openrlhf", constants=constants), tmp_path)
    return spec, str(tmp_path / "reward.py")


def test_what_scores_and_what_computes_advantages_are_one_spec(tmp_path):
    spec, file = reward_file(tmp_path, {"half": "0.25"})
    text = spec.source.text
    assert checks.reward_problems([file], None, text, "spec.yaml", {"half": "0.25"}) == []
    (problem,) = checks.reward_problems([file], None, text, "spec.yaml", {"half": "0.3"})
    assert spec.fingerprint in problem and "with constants half=0.3, fingerprint" in problem


def test_a_reward_file_that_does_not_load_is_found_where_training_is_started(tmp_path):
    for text, said in (("import nothing_of_the_kind", "nothing_of_the_kind"), ("x = 1", "no attribute 'reward_func'")):
        (tmp_path / "reward.py").write_text(text)
        (problem,) = checks.reward_problems(str(tmp_path / "reward.py"), None, SPEC, "spec.yaml", {})
        assert "reward.py cannot be loaded" in problem and said in problem


def test_machines_that_read_the_spec_in_another_way_are_an_error():
    settings = adapter.Settings(SPEC, "spec.yaml", {}, "0123456789ab")
    with pytest.raises(BindingError, match="install the same rewardspec on all machines"):
        settings.spec()


@pytest.mark.parametrize("changed", [False, True])
def test_a_checkpoint_of_another_spec_is_gone_on_from_only_where_that_is_said(changed):
    spec, other = rewardspec.loads(SPEC), rewardspec.loads(SPEC.replace("gdpo", "grpo"))
    adapter.install(adapter.Settings.of(spec, resume_changed=changed))
    trainer = SimpleNamespace(experience_maker=SimpleNamespace(rewardspec=Advantages(spec)), args=arguments())

    def resumed(states):
        return hook._compared(trainer, lambda: {"global_step": 3} | states)()

    assert resumed({"rewardspec": record(spec, 0)})["global_step"] == 3
    resumed({})
    if changed:
        resumed({"rewardspec": record(other, 0)})
        return
    with pytest.raises(BindingError, match="--resume-changed") as error:
        resumed({"rewardspec": record(other, 0)})
    assert spec.fingerprint in str(error.value) and other.fingerprint in str(error.value)


CARRIED = """\
rewardspec: 1
name: carried
components: {correct: {values: [0, 1]}}
state:
  rate: {init: 0.5, range: [0, 1], update: "0.5 * rate + 0.5 * mean(correct, over=batch)"}
advantage: correct - rate
"""


def test_state_goes_with_the_checkpoints_and_a_resumed_run_equals_one_that_was_not_cut(tmp_path):
    adapter.install(adapter.Settings.of(rewardspec.loads(CARRIED)))

    def trainer():
        advantages = Advantages(rewardspec.loads(CARRIED))
        return SimpleNamespace(experience_maker=SimpleNamespace(rewardspec=advantages), args=arguments())

    def step(run, answers):
        mask = torch.ones(len(answers), 2, dtype=torch.bool)
        info = {"correct": torch.tensor(answers)}
        index = list(range(len(answers)))
        batch = SimpleNamespace(index=index, rewards=info["correct"], info=info, action_mask=mask, truncated=mask[:, 0])
        (found,) = run.experience_maker.rewardspec([batch], 2)
        return found.tolist(), run.experience_maker.rewardspec.state

    batches = [[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]]
    whole, cut, saved = trainer(), trainer(), []
    cut.experience_maker.rewardspec.open_log(RolloutLog(tmp_path, text="none"), None)
    cut.experience_maker.rewardspec.step = 5
    expected = [step(whole, answers) for answers in batches]
    assert expected[1] == ([-0.625, -0.625, 0.375, -0.625], {"rate": 0.4375})
    assert [step(cut, answers) for answers in batches[:2]] == expected[:2]
    hook._marked(cut, lambda first, second, states: saved.append(states))("tag", None, {"global_step": 2})
    log = logged_files(tmp_path)
    assert [*log] == ["step_00000005.parquet", "step_00000005_1.parquet"], "complete when the step is saved"
    assert [about["state_after"] for _, about in log.values()] == [state for _, state in expected[:2]]
    resumed = trainer()
    hook._compared(resumed, lambda: saved[0])()
    assert [step(resumed, answers) for answers in batches[2:]] == expected[2:], "bit for bit"
    del saved[0]["rewardspec"]["state"]
    with pytest.raises(BindingError, match="has no state, and carried carries `rate` from step to step"):
        hook._compared(trainer(), lambda: saved[0])()
