"""The adapter in the real RemoteExperienceMaker of OpenRLHF 0.11.2, on Experiences made by its own code."""

import copy
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from experience_makers import GROUPS, SIZE, arguments, by_place, experiences, maker, own_tokens, stock
from logged_again import logged_files, named_alike
from openrlhf.trainer.ppo_utils import experience_maker
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

import rewardspec
from rewardspec.adapters import openrlhf as adapter
from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.openrlhf import checks
from rewardspec.logs.rollout_log import RolloutLog

pytestmark = pytest.mark.filterwarnings("ignore")  # what importing a trainer says is not about us

SPEC = """\
rewardspec: 1
name: in-openrlhf
signals:
  tokens: {range: [0, .inf]}
  truncated: {values: [0, 1]}
components:
  correct: {values: [0, 1]}
  style: {range: [0, 1], weight: 0.5}
  brief: {expr: tokens <= 4, weight: progress}
  ended: {expr: 1 - truncated, weight: 0.25}
outcome: correct >= 1
advantage: gdpo
"""

OF_REWARD = """\
rewardspec: 1
name: of-reward
signals:                        # which `responses` has besides
  correct: {values: [0, 1]}
  style: {range: [0, 1]}
components:
  reward: {range: [-.inf, .inf]}
advantage: SCHEME
"""

DYNAMIC = pytest.mark.parametrize("dynamic", [False, True], ids=["micro-batches", "balanced"])


def responses(seed=0, integers=False):
    """What a rollout actor returns, in prompt order: prompts of 3 tokens, one or two turns of the model's own."""
    draw = torch.Generator().manual_seed(seed)

    def upto(n):
        return int(torch.randint(n, (), generator=draw))

    found = []
    for i in range(GROUPS * SIZE):
        turns = [1 + upto(4) for _ in range(1 + upto(2))]
        observation, ranges = [7, 8, 9], []
        for turn in turns:
            ranges.append((len(observation), len(observation) + turn))
            observation = [*observation, *[5] * turn, 6, 6]  # two tokens of the environment's after each turn
        correct, style = float(upto(2)), upto(5) / 4
        found.append(
            {
                "prompt": f"prompt {i // SIZE}",
                "label": "",
                "observation_tokens": observation,
                "action_ranges": ranges,
                "rollout_log_probs": None,
                "truncated": upto(3) == 0,
                "reward": upto(5) if integers else correct + style + float(torch.rand((), generator=draw)),
                "scores": correct,
                "extra_logs": {"correct": torch.tensor([correct]), "style": style},
            }
        )
    return found


def columns(found):
    return {
        "correct": [float(r["extra_logs"]["correct"]) for r in found],
        "style": [r["extra_logs"]["style"] for r in found],
        "tokens": [sum(end - start for start, end in r["action_ranges"]) for r in found],
        "truncated": [float(r["truncated"]) for r in found],
    }


# Advantages


@DYNAMIC
def test_advantages_are_those_of_the_spec_on_columns_in_prompt_order(tmp_path, dynamic):
    made, found = maker(SPEC, train__dynamic_batch_enable=dynamic, log=RolloutLog(tmp_path)), responses()
    batches = experiences(made, found)
    places = [place for batch in batches for place in batch.index]
    assert len(batches) > 1 and (places != sorted(places)) == dynamic
    done = made.compute_advantages_and_returns(batches)
    expected = rewardspec.compile(rewardspec.loads(SPEC))(columns(found), SIZE, step=3, total_steps=10)
    assert expected.advantages.abs().min() > 0
    for tokens, advantage in zip(by_place(done, own_tokens), expected.advantages, strict=True):
        torch.testing.assert_close(tokens, advantage.expand(len(tokens)), rtol=0, atol=0)
    returns = torch.stack(by_place(done, lambda batch, i: batch.info["return"][i]))
    torch.testing.assert_close(returns, expected.advantages)
    for batch in done:
        assert batch.advantages.dtype == torch.float32 and batch.kl is None
        assert torch.equal(batch.advantages, batch.returns)
    own = {f"rewardspec/{name}": x for name, x in expected.metrics().items()}
    assert own.items() <= made.rewardspec.metrics().items()
    assert made.rewardspec.metrics()["rewardspec/weight/brief"] == pytest.approx(0.3)
    made.rewardspec.log.flush()
    ((name, (log, about)),) = logged_files(tmp_path).items()
    assert name == "step_00000003.parquet" and about["total_steps"] == 10
    assert {"all_right", "all_wrong", "tied", "right", "batch_factor"} <= named_alike(
        made.rewardspec.metrics(), tmp_path
    )
    for tokens, advantage in zip(by_place(done, own_tokens), log["rewardspec/advantage"], strict=True):
        assert tokens.tolist() == [advantage] * len(tokens)
    assert log["prompt"] == [r["prompt"] for r in found] and log["tokens"] == columns(found)["tokens"]
    assert log["reward"] == pytest.approx([r["reward"] for r in found]) and log["score"] == columns(found)["correct"]
    written = [r["observation_tokens"][r["action_ranges"][0][0] : r["action_ranges"][-1][1]] for r in found]
    assert [[*map(int, text.split())] for text in log["completion"]] == written
    assert any(6 in tokens for tokens in written), "answers of the environment"


def test_advantages_are_float32_beside_log_probabilities_of_less():
    made, found = maker(SPEC), responses()
    done = made.compute_advantages_and_returns(experiences(made, found, kl_type=torch.bfloat16))
    expected = rewardspec.compile(rewardspec.loads(SPEC))(columns(found), SIZE, step=3, total_steps=10).advantages
    actual = torch.stack([tokens[0] for tokens in by_place(done, own_tokens)])
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


SCHEMES = {"group_norm": "grpo", "rloo": "rloo", "dr_grpo": "dr_grpo", "reinforce_baseline": "reinforce_baseline"}
WITH_KL = [
    (estimator, kl) for estimator in SCHEMES for kl in (0.0, 0.1) if (estimator, kl) != ("reinforce_baseline", 0.1)
]


@pytest.mark.parametrize("seed", range(3))
@DYNAMIC
@pytest.mark.parametrize(("estimator", "kl"), WITH_KL)  # reinforce_baseline whitens the KL along with the rewards
def test_dialect_gives_what_the_original_method_gives(estimator, kl, dynamic, seed):
    text = OF_REWARD.replace("SCHEME", SCHEMES[estimator])
    made = maker(text, kl, "openrlhf", train__dynamic_batch_enable=dynamic)
    batches = experiences(made, responses(seed), kl_seed=seed + 1)
    expected = stock(made, batches, estimator)
    actual = made.compute_advantages_and_returns(batches)
    whitened = estimator == "reinforce_baseline"
    assert max(original.advantages[original.action_mask.bool()].abs().max() for original in expected) > 0.5
    for ours, original in zip(actual, expected, strict=True):
        mask = ours.action_mask.bool()
        torch.testing.assert_close(ours.advantages[mask], original.advantages[mask], rtol=1e-5, atol=1e-6)
        assert ours.info.keys() == original.info.keys()
        for name in ours.info.keys() - ({"return"} if whitened else set()):
            torch.testing.assert_close(ours.info[name], original.info[name])
        assert ours.rewards.dtype == original.rewards.dtype and ours.kl is original.kl is None
        if not whitened:
            torch.testing.assert_close(ours.returns[mask], original.returns[mask], rtol=1e-5, atol=1e-6)


PENALTIES = {
    "overlong": {"reward__overlong_buffer_len": 7, "reward__overlong_penalty_factor": 0.5},
    "stop properly": {"reward__stop_properly_penalty_coef": 0.5},
}


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_length_penalties_change_the_reward_that_a_spec_reads(penalty):
    made = maker(OF_REWARD.replace("SCHEME", "grpo"), dialect="openrlhf", **penalty)
    batches = experiences(made, responses(integers=True))  # a penalty is no whole number
    before, theirs = [batch.rewards.clone() for batch in batches], copy.deepcopy(batches)
    expected = RemoteExperienceMaker.compute_advantages_and_returns.__wrapped__(made, theirs)
    actual = made.compute_advantages_and_returns(batches)
    assert any((batch.rewards != old).any() for batch, old in zip(actual, before, strict=True))
    for ours, original in zip(actual, expected, strict=True):
        assert torch.equal(ours.rewards, original.rewards) and torch.equal(ours.info["reward"], original.info["reward"])
        mask = ours.action_mask.bool()
        torch.testing.assert_close(ours.advantages[mask], original.advantages[mask], rtol=1e-5, atol=1e-6)


def test_large_advantages_are_not_clipped():
    found = responses()
    for r in found:
        r["reward"] *= 100
    made = maker(OF_REWARD.replace("SCHEME", "dr_grpo"))
    done = made.compute_advantages_and_returns(experiences(made, found))
    expected = rewardspec.compile(made.rewardspec.spec)({"reward": [r["reward"] for r in found]}, SIZE).advantages
    assert expected.abs().max() > 20
    torch.testing.assert_close(torch.stack([tokens[0] for tokens in by_place(done, own_tokens)]), expected)


def test_groups_are_drawn_again_by_seed_and_step():
    text = OF_REWARD.replace("SCHEME", "grpo * (2 - 1 / copies)") + "keep: mean(reward) > limit\nrefill: mean(reward)\n"
    text += "define: {limit: 0}\n"
    found = responses()
    rewards = torch.tensor([r["reward"] for r in found])
    limit = str(rewards.reshape(GROUPS, SIZE).mean(1).min().item() + 1e-3)  # one group is left out
    counts = set()
    for seed in range(4):
        made = maker(text, constants={"limit": limit}, seed=seed, train__dynamic_batch_enable=True)
        done = made.compute_advantages_and_returns(experiences(made, found))
        function = rewardspec.compile(rewardspec.loads(text, constants={"limit": limit}))
        expected = function({"reward": rewards}, SIZE, step=3, seed=seed)
        counts.add(tuple(expected.copies.tolist()))
        actual = torch.stack([tokens[0] for tokens in by_place(done, own_tokens)])
        torch.testing.assert_close(actual, expected.advantages)
    assert len(counts) == 2


def test_missing_values_are_nan_where_the_spec_ignores_them():
    found = responses()
    found[2]["extra_logs"]["style"] = float("nan")
    made = maker(SPEC.replace("style: {", "style: {missing: ignore, "))
    done = made.compute_advantages_and_returns(experiences(made, found))
    given = columns(found) | {"style": [None if i == 2 else r["extra_logs"]["style"] for i, r in enumerate(found)]}
    expected = rewardspec.compile(made.rewardspec.spec)(given, SIZE, step=3, total_steps=10).advantages
    torch.testing.assert_close(torch.stack([tokens[0] for tokens in by_place(done, own_tokens)]), expected)


def test_columns_can_be_what_openrlhf_has_itself():
    text = OF_REWARD.replace("reward: {", "score: {").replace("SCHEME", "dr_grpo + kl")
    made = maker(text.replace("components", "  kl: {range: [0, .inf]}\ncomponents"), kl=0.0)
    found = responses()
    batches = experiences(made, found)
    for batch in batches:
        batch.info["kl"] = torch.tensor(batch.index) / 10
    done = made.compute_advantages_and_returns(batches)
    scores = torch.tensor([r["scores"] for r in found]).reshape(GROUPS, SIZE)
    expected = (scores - scores.mean(1, keepdim=True)).flatten() + torch.arange(GROUPS * SIZE) / 10
    torch.testing.assert_close(torch.stack([tokens[0] for tokens in by_place(done, own_tokens)]), expected)


# Columns that are not what they should be


def said(error):
    return str(error.value)


def test_rollouts_without_a_value_are_counted():
    found = responses()
    for i in (5, 9):
        del found[i]["extra_logs"]["style"]
    with pytest.raises(BindingError) as error:
        experiences(maker(SPEC), found)
    assert "10 of 12 rollouts have `style`; the first without is rollout 5." in said(error)
    assert "Failed to fetch reward" in said(error) and "NaN where it was not measured" in said(error)


def test_rollouts_without_a_reward_are_counted():
    found = responses()
    found[0] |= {"reward": None, "scores": None, "extra_logs": {}}  # what is left where reward_func raised
    with pytest.raises(BindingError) as error:
        experiences(maker(SPEC), found)
    assert "11 of 12 rollouts have a reward; the first without is rollout 0." in said(error)
    assert "11 of 12 rollouts have `correct`" in said(error) and "11 of 12 rollouts have `style`" in said(error)


def test_name_that_nothing_measures_is_shown_with_those_there_are():
    found = responses()
    for r in found:
        r["extra_logs"]["corect"] = r["extra_logs"].pop("correct")
    with pytest.raises(BindingError) as error:
        experiences(maker(SPEC), found)
    assert "nothing measures `correct`, which in-openrlhf reads; did you mean `corect`?" in said(error)
    assert "extra_logs hold `style`, `corect` in this batch" in said(error)


def test_gaps_are_seen_where_batches_were_made_without_the_check():
    made, found = maker(SPEC), responses()
    batches = experiences(made, found)
    batches[1].info["style"] = batches[1].info["style"][:-2]
    with pytest.raises(BindingError, match="`style` has 10 values for 12 rollouts"):
        made.compute_advantages_and_returns(batches)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_values_that_are_no_numbers_are_counted(value):
    made, found = maker(SPEC), responses()
    for i in (1, 6, 7):
        found[i]["extra_logs"]["style"] = float(value)
    with pytest.raises(BindingError) as error:
        made.compute_advantages_and_returns(experiences(made, found))
    assert "rollout 1" in said(error) and "`style` is NaN or infinite in 3 of 12 rollouts" in said(error)
    assert "`missing: ignore`" in said(error)


def test_reward_that_is_no_number_is_said_to_be_none():
    made, found = maker(OF_REWARD.replace("SCHEME", "grpo")), responses()
    found[4]["reward"] = float("nan")
    with pytest.raises(BindingError, match="`reward` is NaN or infinite in 1 of 12 rollouts"):
        made.compute_advantages_and_returns(experiences(made, found))


@pytest.mark.parametrize("name", ["kl", "reward"])
def test_name_that_openrlhf_overwrites_is_refused(name):
    found = responses()
    for r in found:
        r["extra_logs"][name] = 1.0
    text = OF_REWARD.replace("SCHEME", "grpo + kl").replace("components", "  kl: {range: [0, 9]}\ncomponents")
    with pytest.raises(BindingError, match=f"^`{name}` of extra_logs is overwritten by OpenRLHF's own: [^\n]*$"):
        experiences(maker(text), found)


UNLIKE = {
    "one left out": (
        lambda found: found[:-1],
        "1 of 3 prompts do not have 4 rollouts",
        "the first is prompt 2, with 3",
    ),
    "three and five": (
        lambda found: [*found[:3], found[3] | {"prompt": "prompt 1"}, *found[4:]],
        "2 of 3 prompts do not have 4 rollouts (--rollout.n_samples_per_prompt)",
        "the first is prompt 0, with 3",
    ),
}


@pytest.mark.parametrize(("change", "counted", "first"), UNLIKE.values(), ids=UNLIKE)
def test_groups_of_unlike_sizes_are_refused(change, counted, first):
    with pytest.raises(BindingError) as error:
        experiences(maker(SPEC), change(responses()))
    assert counted in said(error) and first in said(error)


def test_prompt_that_is_drawn_twice_in_a_row_is_two_groups():
    found = [r | {"prompt": "the same"} for r in responses()]
    made = maker(SPEC)
    done = made.compute_advantages_and_returns(experiences(made, found))
    expected = rewardspec.compile(rewardspec.loads(SPEC))(columns(found), SIZE, step=3, total_steps=10).advantages
    torch.testing.assert_close(torch.stack([tokens[0] for tokens in by_place(done, own_tokens)]), expected)


def test_places_that_are_no_order_are_refused():
    made = maker(SPEC)
    batches = experiences(made, responses())
    batches[0].index = [*batches[0].index[:-1], 0]
    with pytest.raises(BindingError, match="are not 0 to 11, each once"):
        made.compute_advantages_and_returns(batches)


def test_schedule_without_a_step_is_an_error():
    made = maker(SPEC)
    made.rewardspec.step = None  # a trainer with a training step of its own
    with pytest.raises(BindingError, match="the spec uses `progress`"):
        made.compute_advantages_and_returns(experiences(made, responses()))


def test_name_that_the_spec_does_not_read_is_let_through_with_one_warning(caplog):
    found = responses()
    for r in found:
        r["extra_logs"]["style_"] = 0.0
    made = maker(SPEC)
    for _ in range(2):
        experiences(made, found)
    warnings = [record.getMessage() for record in caplog.records if "style_" in record.getMessage()]
    assert warnings == ["rewardspec: extra_logs also hold `style_`, which the spec does not read"]


def test_name_that_is_declared_and_not_read_is_logged():
    made, found = maker(OF_REWARD.replace("SCHEME", "grpo")), responses()
    assert made.rewardspec.spec.columns == ("reward",)
    done = made.compute_advantages_and_returns(experiences(made, found))
    logged = torch.stack(by_place(done, lambda batch, i: batch.info["style"][i]))
    torch.testing.assert_close(logged, torch.tensor(columns(found)["style"]))


# Settings

REFUSED = {
    "estimator": ({"algo__advantage__estimator": "gae"}, "--algo.advantage.estimator gae: pass group_norm"),
    "gamma": ({"algo__advantage__gamma": 0.99}, "--algo.advantage.gamma 0.99 has no effect"),
    "lambd": ({"algo__advantage__lambd": 0.95}, "--algo.advantage.lambd 0.95 has no effect"),
    "no std": ({"algo__advantage__no_std_norm": True}, "write `advantage: dr_grpo`"),
    "clip": ({"reward__clip_range": [-5.0, 5.0]}, "write `advantage: clip(..., -5, 5)`"),
    "overlong": ({"reward__overlong_buffer_len": 4.0}, "write `overlong(tokens, LIMIT, BUFFER)` in the spec"),
    "stop": ({"reward__stop_properly_penalty_coef": -0.5}, "read `truncated` in the spec, or `reward`"),
    "reward model": (
        {"reward__remote_url": None},
        "nothing measures `correct`, `style`: a reward model gives only `reward`",
    ),
}


@pytest.mark.parametrize(("changed", "message"), REFUSED.values(), ids=REFUSED)
def test_setting_that_contradicts_the_spec_is_refused_when_the_maker_is_built(changed, message):
    with pytest.raises(BindingError) as error:
        maker(SPEC, **changed)
    assert message in said(error)


def test_contradictions_are_told_all_at_once():
    changed = {key: value for changes, _ in REFUSED.values() for key, value in changes.items()}
    with pytest.raises(BindingError) as error:
        maker(SPEC, **changed)
    assert len(said(error).splitlines()) == len(REFUSED)


def test_defaults_and_what_has_an_effect_are_not_refused():
    spec = rewardspec.loads(OF_REWARD.replace("SCHEME", "grpo"))
    checks.check_settings(arguments(reward__overlong_buffer_len=4.0, reward__remote_url=None), spec)
    checks.check_settings(arguments(reward__remote_url=None, train__agent_func_path="agent.py"), rewardspec.loads(SPEC))


def test_spec_that_cannot_be_served_is_refused():
    text = SPEC.replace("signals:", "signals:\n  task: {values: [math, code]}").replace(
        "gdpo", "grpo if task == code else 0"
    )
    with pytest.raises(BindingError, match=r"the values of `task` are names.*declare `values: \[0, 1\]`"):
        maker(text)
    tokens = "condition:\n  tokens: {high: h, low: l}\n  template: '{token}'\n  prior: {high: 0.5}\n"
    with pytest.raises(BindingError, match="reward tokens"):
        maker(SPEC + tokens)


def test_arguments_of_another_version_are_named():
    old = SimpleNamespace(advantage_estimator="group_norm", n_samples_per_prompt=4)
    with pytest.raises(BindingError, match=r"this OpenRLHF has no algo.advantage.estimator.*tested with 0\.11\.2"):
        checks.check_settings(old, rewardspec.loads(SPEC))


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (RemoteExperienceMaker, "compute_advantages_and_returns"),
        (RemoteExperienceMaker, "split_rollout_samples"),
        (RemoteExperienceMaker, "get_cumulative_returns"),
        (experience_maker, "apply_length_penalties"),
        (experience_maker, "RemoteExperienceMaker"),
    ],
)
def test_version_without_a_hook_is_named(monkeypatch, owner, name):
    monkeypatch.delattr(owner, name)
    with pytest.raises(BindingError, match=rf"this OpenRLHF has no `.*{name}`: the adapter was tested with 0\.11\.2"):
        adapter.install(adapter.Settings.of(rewardspec.loads(SPEC)))


def test_steps_are_batches_of_prompts_in_all_episodes():
    assert checks.total_steps(arguments(), 7) == 6  # 3 + 3 + 1 prompts, twice
    assert checks.total_steps(arguments(rollout__vllm_generate_batch_size=2), 7) == 8  # 2 + 2 + 2 + 1
    assert checks.total_steps(arguments(rollout__vllm_generate_batch_size=6), 7) == 6  # what is left is kept


def test_importing_the_adapter_imports_no_trainer():
    code = "import sys, rewardspec.adapters.openrlhf; print({'torch', 'ray', 'openrlhf'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
