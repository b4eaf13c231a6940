"""A task with two turns in a vocabulary of 62 words: ask a tool, then answer from what it found.

    what colour are the apples in lima      the prompt
    <call> apples lima <eos>                turn 1, by the model
    <result> seven red anna                 the tool: price, colour and owner
    <answer> red <eos>                      turn 2, by the model

What the tool finds is drawn anew for each prompt and step, so an answer cannot be learned by heart.
"""

from __future__ import annotations

import random
from functools import cache

from from_scratch import supervise, tokenizer_of
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

ITEMS = ("apples", "pears", "plums", "grapes", "figs", "dates", "limes", "nuts")
PLACES = ("paris", "lima", "oslo", "cairo", "delhi", "rome", "tokyo", "quito")
FIELDS = {  # in the order of a result
    "price": ("one", "two", "three", "four", "five", "six", "seven", "eight"),
    "colour": ("red", "green", "blue", "black", "white", "brown", "pink", "grey"),
    "owner": ("anna", "ben", "carl", "dora", "emil", "frida", "gus", "hana"),
}
PHRASES = {
    "price": ("what do the {item} in {place} cost", "in {place} how much for the {item}"),
    "colour": ("what colour are the {item} in {place}", "in {place} do the {item} look bright"),
    "owner": ("who sells the {item} in {place}", "in {place} whose are the {item}"),
}
UNKNOWN = "<result> unknown"


def tasks() -> list[dict]:
    """All 384 prompts, each with what it asks for."""
    asked = [
        {"prompt": phrase.format(item=item, place=place), "item": item, "place": place, "field": field}
        for field, phrases in PHRASES.items()
        for phrase in phrases
        for item in ITEMS
        for place in PLACES
    ]
    return [{"prompt_id": i, **task} for i, task in enumerate(asked)]


TASKS = {task["prompt"]: task for task in tasks()}


class Market:
    """The tool, and what is right for one prompt. `key` decides the prices, colours and owners."""

    def __init__(self, prompt: str, key: object):
        self.task, self.key = TASKS[prompt], (prompt, key)

    def _found(self, item: str, place: str) -> dict[str, str]:
        return dict(zip(FIELDS, _drawn(self.key, item, place), strict=True))

    def result(self, turn: str) -> str | None:
        """What the tool writes after a turn; None after a turn that is no call."""
        first, *rest = turn.split() or [""]
        if first != "<call>":
            return None
        if len(rest) != 2 or rest[0] not in ITEMS or rest[1] not in PLACES:
            return UNKNOWN
        return f"<result> {' '.join(self._found(*rest).values())}"

    @property
    def right(self) -> tuple[str, str]:
        """The turns that are wanted."""
        item, place = self.task["item"], self.task["place"]
        return f"<call> {item} {place}", f"<answer> {self._found(item, place)[self.task['field']]}"

    def outcome(self, turns: list[str]) -> float:
        """1 if the last turn is the right answer. It can be guessed, once in eight times."""
        return float(turns[-1] == self.right[1])

    def calls(self, turns: list[str]) -> list[float]:
        """For each turn: 1 for the call that is wanted, 0.5 for another that the tool can read, else 0.

        Only the first turn can be a call: the tool is asked once.
        """
        result = self.result(turns[0])
        first = 1.0 if turns[0] == self.right[0] else 0.5 if result not in (None, UNKNOWN) else 0.0
        return [first, *[0.0] * (len(turns) - 1)]


@cache
def _drawn(*key: object) -> list[str]:
    draw = random.Random(str(key))
    return [draw.choice(values) for values in FIELDS.values()]


def rollouts(prompts: list[str], trainer) -> dict:
    """A `rollout_func` of TRL's: the model writes a turn, the tool answers a call, the model writes another.

    `env_mask` is 0 on what the tool wrote. `turns` has the texts of the model, `outcome` and `call` their rewards,
    and `starts` the place of each turn among the tokens of the completion.
    """
    words = trainer.processing_class
    # Rollouts of one prompt in one step ask the same market.
    markets = [Market(prompt, (trainer.args.seed, trainer.state.global_step)) for prompt in prompts]
    asked = words(prompts).input_ids
    completions = written(trainer, asked)
    masks = [[1] * len(ids) for ids in completions]
    turns = [[text] for text in words.batch_decode(completions, skip_special_tokens=True)]
    starts = [[0] for _ in prompts]
    results = [market.result(texts[0]) for market, texts in zip(markets, turns, strict=True)]
    rows = [i for i, result in enumerate(results) if result is not None]
    for i in rows:
        found = words(results[i]).input_ids
        completions[i], masks[i] = completions[i] + found, masks[i] + [0] * len(found)
        starts[i].append(len(masks[i]))
    for i, ids in zip(rows, written(trainer, [asked[i] + completions[i] for i in rows]) if rows else [], strict=True):
        completions[i], masks[i] = completions[i] + ids, masks[i] + [1] * len(ids)
        turns[i].append(words.decode(ids, skip_special_tokens=True))
    return {
        "prompt_ids": asked,
        "completion_ids": completions,
        "logprobs": None,
        "env_mask": masks,
        "turns": turns,
        "starts": starts,
        "outcome": [market.outcome(texts) for market, texts in zip(markets, turns, strict=True)],
        "call": [market.calls(texts) for market, texts in zip(markets, turns, strict=True)],
    }


def written(trainer, contexts: list[list[int]]) -> list[list[int]]:
    """What the model writes after each context, up to <eos> and with it. There is a token at least."""
    batch = trainer.processing_class.pad({"input_ids": contexts}, return_tensors="pt")
    ids = trainer.model.generate(**batch, generation_config=trainer.generation_config)
    rows = ids[:, batch["input_ids"].shape[1] :].tolist()
    end = trainer.processing_class.eos_token_id
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each word of the prompts, calls, results and answers."""
    values = [word for column in FIELDS.values() for word in column]
    return tokenizer_of([*TASKS, "<call> <answer>", UNKNOWN, *values])


def warm_up(model: Qwen2ForCausalLM, words: PreTrainedTokenizerFast, seed: int, examples: int, steps: int) -> None:
    """Supervised steps on a few rollouts as they should be; what the tool writes is not learned."""
    rows = []
    for prompt in random.Random(seed).sample(list(TASKS), examples):
        market = Market(prompt, "warm-up")
        call, answer = market.right
        parts = [(prompt, 0), (f"{call} <eos>", 1), (market.result(call), 0), (f"{answer} <eos>", 1)]
        tokens = [(token, own) for text, own in parts for token in words(text).input_ids]
        rows.append(([token for token, _ in tokens], [own for _, own in tokens]))
    supervise(model, rows, steps)
