"""Advantages of turns in OpenRLHF 0.11.2: its own agent executor, samples generator and experience maker."""

import asyncio
import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from experience_makers import ARGUMENTS, experiences, maker, own_tokens, samples
from logged_again import logged_files
from openrlhf.trainer.ppo_utils import samples_generator
from openrlhf.utils import agent as agents
from zscore_by_hand import zscore

import rewardspec
from rewardspec.adapters import openrlhf as adapter
from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.openrlhf.filter import Filter
from rewardspec.adapters.openrlhf.rollouts import Advantages
from rewardspec.adapters.openrlhf.turns import separated
from rewardspec.logs.rollout_log import RolloutLog
from rewardspec.rewards import for_openrlhf

pytestmark = pytest.mark.filterwarnings("ignore")  # what importing a trainer says is not about us

SPEC = """\
rewardspec: 1
name: turns-in-openrlhf
lists: {turn: {ordered: true}}
signals:
  called: {range: [0, 1], level: turn, missing: ignore}
  reward: {range: [-10, 10], level: turn}
  tokens: {range: [0, 16], level: turn}
components:
  correct: {values: [0, 1]}
  tool: {expr: called, weight: 0.5}
  paid: {expr: reward, weight: 0.25}
  short: {expr: 0 - tokens, weight: 0.125}
advantage: decoupled
"""
# Three groups of four; a turn is (tokens that the model writes, tokens of feedback, `called` or None)
ROLLOUTS = [
    [[(2, 1, 0.5), (1, 0, None)], [(3, 0, None)], [(1, 2, 0.2), (1, 0, 0.9), (2, 0, None)], [(1, 1, 0.1), (2, 0, 0.3)]],
    [[(1, 0, 0.4)], [(2, 2, 0.6), (2, 0, None)], [(1, 0, None), (3, 0, None)], [(2, 1, 0.2), (1, 1, 0.2), (1, 0, 0.2)]],
    [[(1, 1, 0.1), (1, 1, 0.2), (1, 1, 0.3), (1, 0, None)], [(4, 0, None)], [(2, 0, 1.0)], [(1, 3, 0.7), (1, 0, None)]],
]


def correct(turns):
    return float(len(turns) % 2)


def rewards(turns):
    return [0.5 * k + n for k, (n, _, _) in enumerate(turns)]


class Agent(agents.AgentInstanceBase):
    """Steps through the turns of its rollout."""

    def __init__(self):
        self.turns = left.pop(0)

    async def step(self, states, **kwargs):
        at = getattr(self, "at", 0)
        self.at = at + 1
        _, feedback, called = self.turns[at]
        logs = {} if called is None else {"called": torch.tensor([called])}
        return {
            "rewards": torch.tensor([rewards(self.turns)[at]]),
            "scores": torch.tensor(0.5),
            "environment_feedback": " w" * feedback,
            "done": self.at == len(self.turns),
            "extra_logs": logs | {"correct": torch.tensor([correct(self.turns)])},
        }


left = []


def responses(executor=agents.MultiTurnAgentExecutor):
    """What OpenRLHF's executor returns for all rollouts."""

    def tokenize(text, **_):
        return {"input_ids": torch.tensor([[5] * len(text.split())], dtype=torch.long)}

    async def generate(turns, *_, **__):
        n = turns.pop(0)[0]
        return SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=[7] * n, text=" a" * n, finish_reason="stop", logprobs=None)]
        )

    found = []
    for group, rollouts in enumerate(ROLLOUTS):
        for turns in rollouts:
            left.append(turns)
            script = list(turns)
            engine = SimpleNamespace(generate=lambda *a, script=script, **k: generate(script))
            parameters = SimpleNamespace(max_tokens=None, logprobs=None)
            run = executor(Agent).execute(f"prompt {group}", "", parameters, 16, tokenize, engine)
            found.append(asyncio.run(run) | {"prompt": f"prompt {group}"})
    return found


def installed(text=SPEC, **changed):
    """A maker with the hooks in it, and its rollouts."""
    made = maker(text, **changed)
    made.rewardspec.step = 3
    return made, responses()


def expected():
    """The advantage of each token that the model wrote, rollout by rollout."""
    flat = [turns for rollouts in ROLLOUTS for turns in rollouts]
    groups = [g for g, rollouts in enumerate(ROLLOUTS) for _ in rollouts]
    of = [i for i, turns in enumerate(flat) for _ in turns]
    own = [groups[i] for i in of]
    called = [np.nan if c is None else c for turns in flat for _, _, c in turns]
    paid = [r for turns in flat for r in rewards(turns)]
    tokens = [n for turns in flat for n, _, _ in turns]
    values = zscore([correct(turns) for turns in flat], groups)[of] + 0.5 * zscore(called, own)
    values += 0.25 * zscore(paid, own) - 0.125 * zscore(tokens, own)
    return [[values[j] for j in range(len(of)) if of[j] == i for _ in range(tokens[j])] for i in range(len(flat))]


def rows(batches):
    found = {place: own_tokens(batch, i) for batch in batches for i, place in enumerate(batch.index)}
    return [found[place] for place in sorted(found)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_advantage_of_a_step_goes_onto_its_tokens(tmp_path, dynamic):
    made, found = installed(train__dynamic_batch_enable=dynamic, log=RolloutLog(tmp_path))
    assert sum(
        end == start
        for r in found
        for (_, end), (start, _) in zip(r["action_ranges"], r["action_ranges"][1:], strict=False)
    )
    batches = made.compute_advantages_and_returns(experiences(made, found))
    for actual, wanted in zip(rows(batches), expected(), strict=True):
        assert actual.dtype == torch.float32
        torch.testing.assert_close(actual, torch.tensor(wanted, dtype=torch.float32), rtol=1e-6, atol=1e-6)
    for batch in batches:
        assert not (batch.advantages * ~batch.action_mask.bool()).any()
        torch.testing.assert_close(batch.returns, batch.advantages)
        assert "called" not in batch.info and batch.info["return"].shape == (len(batch.index),)
    made.rewardspec.log.flush()
    ((log, _),) = logged_files(tmp_path).values()
    for tokens, advantages, own in zip(rows(batches), log["rewardspec/advantage"], log["tokens"], strict=True):
        of_tokens = [advantage for advantage, n in zip(advantages, own, strict=True) for _ in range(int(n))]
        assert tokens.tolist() == pytest.approx(of_tokens, abs=1e-6)
    flat = [turns for group in ROLLOUTS for turns in group]
    assert [[c if c is None else round(c, 6) for c in row] for row in log["called"]] == [
        [c for _, _, c in turns] for turns in flat
    ]
    assert made.rewardspec.metrics()["rewardspec/reward/correct"] == pytest.approx(
        np.mean([correct(turns) for group in ROLLOUTS for turns in group])
    )


def test_a_kl_penalty_is_added_for_each_token_as_usual():
    made, found = installed(kl=0.1)
    plain, made_plain = expected(), experiences(made, found, kl_seed=4)
    kl = [batch.kl.clone() for batch in made_plain]
    masks = [batch.action_mask.bool() for batch in made_plain]
    batches = made.compute_advantages_and_returns(made_plain)
    for batch, penalty, mask in zip(batches, kl, masks, strict=True):
        for i, place in enumerate(batch.index):
            own = penalty[i][mask[i]].double()
            wanted = torch.tensor(plain[place]) - 0.1 * own.flip(0).cumsum(0).flip(0)
            torch.testing.assert_close(batch.advantages[i][mask[i]], wanted.float(), rtol=1e-5, atol=1e-6)


def test_a_list_of_the_last_step_is_the_list():
    made, found = installed()
    whole = copy.deepcopy(found)
    for response in whole:  # without what the adapter recorded, as from an executor of one's own
        steps = response.pop("rewardspec_steps")
        response["extra_logs"]["called"] = [float(s["called"]) if "called" in s else None for s in steps]
        response["extra_logs"]["reward"] = torch.tensor([float(s["reward"]) for s in steps])
    batches = made.compute_advantages_and_returns(experiences(made, whole))
    for actual, wanted in zip(rows(batches), expected(), strict=True):
        torch.testing.assert_close(actual, torch.tensor(wanted, dtype=torch.float32), rtol=1e-6, atol=1e-6)


ONE = "rewardspec: 1\nlists: {turn: {}}\nsignals: {called: {range: [0, 1], level: turn}}\n"


def test_rollouts_whose_ranges_and_items_differ_are_named_with_both_counts():
    made, found = installed(ONE + "components: {tool: called}\nadvantage: decoupled\n")
    for response in found:
        response["extra_logs"]["called"] = [0.5] * len(response["action_ranges"])
        response.pop("rewardspec_steps")
    found[5]["extra_logs"]["called"] = [0.5, 0.5, 0.5]
    with pytest.raises(BindingError) as error:
        made.compute_advantages_and_returns(experiences(made, found))
    said = "rollout 5 of group 1 has 3 items of the list `turn`, and the model wrote 2 stretches of tokens"
    assert said in str(error.value) and "rollout 4" not in str(error.value)


def test_a_rollout_without_its_list_is_named():
    made, found = installed(ONE + "components: {tool: called}\nadvantage: decoupled\n")
    for response in found:
        response["extra_logs"]["called"] = [0.5] * len(response["action_ranges"])
        response.pop("rewardspec_steps")
    del found[7]["extra_logs"]["called"]
    with pytest.raises(BindingError, match="11 of 12 rollouts have a list `called`; the first without is rollout 7"):
        experiences(made, found)


def test_a_spec_that_reduces_lists_gives_one_advantage_to_a_rollout():
    text = ONE.replace("level: turn}", "level: turn, missing: ignore}")
    made, found = installed(text + 'components: {tool: "sum(called, over=rollout)"}\nadvantage: grpo\n')
    batches = made.compute_advantages_and_returns(experiences(made, found))
    sums = [sum(c or 0 for _, _, c in turns) for group in ROLLOUTS for turns in group]
    wanted = zscore(sums, [i // 4 for i in range(12)])
    for actual, value in zip(rows(batches), wanted, strict=True):
        torch.testing.assert_close(actual, torch.full_like(actual, value), rtol=1e-5, atol=1e-6)


RUBRIC = """\
rewardspec: 1
lists: {criterion: {}}
signals:
  met: {python: "own:met", values: [0, 1], level: criterion, missing: ignore}
  points: {python: "own:points", range: [-9, 9], level: criterion}
components:
  short: {python: "own:short", range: [0, 1], missing: zero, weight: 0}
  rubric: {expr: "sum(met * points, over=rollout)"}
advantage: total
"""


def test_functions_of_the_spec_measure_lists(monkeypatch):
    """In OpenRLHF's executor for a `reward_func`: lists of one item and of none, and an item that was not measured."""
    functions = {
        "met": lambda completion, label: [None if word == "?" else float(word in completion) for word in label],
        "points": lambda label: [float(len(word)) for word in label],
        "short": lambda completion: None,
    }
    monkeypatch.setitem(ARGUMENTS, "rollout.n_samples_per_prompt", 2)
    made = maker(RUBRIC)
    executor = agents.SingleTurnAgentExecutor("http://not-asked")
    executor.reward_func = for_openrlhf(made.rewardspec.spec, functions=functions)
    text = " of a bb"
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "p" * ids.count(5) + text[: ids.count(7)])
    tokenize = type("", (), {"__call__": lambda _, **__: {"input_ids": torch.tensor([[5]])}, **vars(tokenizer)})
    tokenize.decode = staticmethod(tokenizer.decode)

    async def generate(n):
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=[7] * n, finish_reason="stop", logprobs=None)])

    labels, found = [["bb"], ["bb", "a", "?"], []], []
    for place, label in enumerate(labels):
        for n in (5, 8):
            engine = SimpleNamespace(generate=lambda *_, n=n, **__: generate(n))
            parameters = SimpleNamespace(max_tokens=8, logprobs=None)
            found.append(asyncio.run(executor.execute("p", label, parameters, 16, tokenize(), engine)))
            found[-1]["prompt"] = f"prompt {place}"
    assert found[3]["extra_logs"]["met"] == [[1, 1, None]]
    batches = made.compute_advantages_and_returns(experiences(made, found))
    assert [row[0].item() for row in rows(batches)] == [0, 2, 1, 3, 0, 0]


@pytest.mark.parametrize(
    ("last", "earlier", "found"),
    [
        ([[1.0]], {}, [1]),
        ([[1.0, 0.0]], {}, [1, 0]),
        ([[]], {}, []),
        ([1.0, 0.0], {}, [1, 0]),
        ([1.0], {}, [None, None, 1]),
        ([[1.0]], {"met": torch.tensor([[0.5]])}, [0.5, 0.5, 1]),
    ],
)
def test_a_list_of_the_last_step_is_nested_where_it_could_be_the_number_of_a_step(last, earlier, found):
    logs = {"met": torch.tensor(last)}
    response = {"extra_logs": logs, "action_ranges": [(1, 2)] * 3, "rewardspec_steps": [earlier, earlier, logs]}
    assert separated(response, ["met"])[1].lists == {"met": found}


def test_a_rollout_of_no_steps_has_an_empty_list():
    response = {"extra_logs": {}, "action_ranges": [], "rewardspec_steps": []}
    assert separated(response, ["met"])[1].lists == {"met": []}


@pytest.mark.parametrize("advantage", ["correct / position", "correct - 0.1 * max(position, over=rollout)"])
def test_a_list_that_only_places_are_read_of_is_that_of_the_steps(advantage):
    made, found = installed(
        f"rewardspec: 1\nlists: {{turn: {{}}}}\ncomponents: {{correct: {{values: [0, 1]}}}}\nadvantage: {advantage}\n"
    )
    flat = [turns for rollouts in ROLLOUTS for turns in rollouts]
    batches = made.compute_advantages_and_returns(experiences(made, found))
    for actual, turns in zip(rows(batches), flat, strict=True):
        of_turns = [correct(turns) / (k + 1) for k in range(len(turns))]
        if "max" in advantage:
            of_turns = [correct(turns) - 0.1 * len(turns)] * len(turns)
        wanted = [value for value, (n, _, _) in zip(of_turns, turns, strict=True) for _ in range(n)]
        torch.testing.assert_close(actual, torch.tensor(wanted), rtol=1e-6, atol=1e-6)
    group = samples(found)[:4]
    test = Filter(made.rewardspec.spec, 0)
    assert test._is_live(group, 3, 10) and not test._is_live([group[0], group[0]], 3, 10)


def test_groups_are_filtered_by_the_advantages_of_their_turns(monkeypatch):
    text = ONE + "components: {tool: called}\nadvantage: decoupled\n"
    adapter.install(adapter.Settings.of(rewardspec.loads(text)))
    groups = {"same": [[0.5, 0.5], [0.5]], "alive": [[0.1, 0.5], [0.5]]}
    made = object.__new__(samples_generator.SamplesGenerator)
    from experience_makers import arguments

    made.args = arguments(algo__dynamic_filtering_enable=True, algo__dynamic_filtering_range=(0, 1))
    made.prompts_dataloader = [(None, [prompt], [""], [None]) for prompt in groups]
    base = {"label": "", "observation_tokens": [7, 5, 5, 5], "rollout_log_probs": None, "reward": 1.0, "scores": 1.0}
    made._dispatch_prompts_to_vllm = lambda prompts, labels, images=None, **_: [
        [
            base | {"prompt": p, "action_ranges": [(1 + k, 2 + k) for k in range(len(c))], "extra_logs": {"called": c}}
            for c in groups[p]
        ]
        for p in prompts
    ]
    ray = SimpleNamespace(wait=lambda refs, **_: (refs[:1], refs[1:]), get=lambda ref: ref)
    monkeypatch.setattr(samples_generator, "ray", ray)
    found, _, _ = made._generate_vllm(iter(made.prompts_dataloader), 1, True, n_samples_per_prompt=2, max_len=16)
    assert [sample.prompts[0] for sample in found] == ["alive", "alive"]


def test_lists_go_with_samples_that_are_sent_to_the_trainer():
    import pickle

    made, found = installed()
    sent = pickle.loads(pickle.dumps(samples(found)))  # the asynchronous trainer puts them into a queue
    advantages = Advantages(made.rewardspec.spec)
    advantages.check(sent, ARGUMENTS["rollout.n_samples_per_prompt"], True)
