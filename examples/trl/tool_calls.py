"""A task with two rewards of different difficulty, in a vocabulary small enough to learn it on a CPU.

A prompt such as `will it rain in paris on monday` requires

    <think> weather </think> <tool_call> {"name": "weather", "parameters": { "city": "paris" , "day": "monday" }}
    </tool_call>

on one line. The rewards are those of GDPO's tool calling (arXiv:2601.05242, App. C), for one call.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

from from_scratch import supervise, tokenizer_of
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

VALUES = {
    "city": ("paris", "lima", "oslo", "cairo", "delhi", "rome", "tokyo", "quito"),
    "day": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "today"),
    "topic": ("sports", "music", "money", "health", "science", "films", "books", "games"),
}
TOOLS = {  # name: parameters and the words of a request
    "weather": (("city", "day"), ("will it rain in {city} on {day}", "on {day} how warm is {city}")),
    "trains": (("city", "day"), ("a train to {city} for {day}", "leave {day} by rail for {city}")),
    "news": (("city", "topic"), ("what is new in {city} about {topic}", "latest {topic} from {city}")),
    "remind": (("topic", "day"), ("do not let me forget {topic} on {day}", "note for {day} that {topic} is due")),
}
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
PUNCTUATION = ('{"name":', '"parameters":', "{", ",", "}}")
FORMAT = re.compile(r"<think> (.+) </think> <tool_call> (.+) </tool_call>")
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def tasks() -> list[dict]:
    """All 512 prompts, each with the expected call as JSON text."""
    found = []
    for name, (parameters, phrases) in TOOLS.items():
        first, second = parameters
        for phrase in phrases:
            for a in VALUES[first]:
                for b in VALUES[second]:
                    arguments = {first: a, second: b}
                    gold = json.dumps({"name": name, "parameters": arguments})
                    found.append({"prompt": phrase.format(**arguments), "gold": gold})
    return [{"prompt_id": i, **task} for i, task in enumerate(found)]


def written(gold: str) -> str:
    """The expected answer of a task, with spaces between tokens."""
    call = json.loads(gold)
    arguments = " , ".join(f'"{key}": "{value}"' for key, value in call["parameters"].items())
    name = call["name"]
    return f'<think> {name} </think> <tool_call> {{"name": "{name}", "parameters": {{ {arguments} }}}} </tool_call>'


def format(completions: Sequence[str], **_) -> list[float]:
    """1 if thought and call are in their tags, each tag once and in order."""
    once = [all(text.count(tag) == 1 for tag in TAGS) for text in completions]
    return [float(ok and FORMAT.fullmatch(text) is not None) for ok, text in zip(once, completions, strict=True)]


def correctness(completions: Sequence[str], gold: Sequence[str], **_) -> list[float]:
    """From -3 to 3: 6 R / 4 - 3 (ToolRL, arXiv:2504.13958), where R is at most 4: name, parameters, two values."""
    return [6 * _matched(text, json.loads(call)) / 4 - 3 for text, call in zip(completions, gold, strict=True)]


def _matched(text: str, gold: dict) -> float:
    """1 for the name, up to 1 for the parameters' names, 1 for each right value; 0 for another tool or no call."""
    calls = CALL.findall(text)
    try:
        call = json.loads(calls[0]) if len(calls) == 1 else None
    except ValueError:
        return 0.0
    if not isinstance(call, dict) or call.get("name") != gold["name"]:
        return 0.0
    made, wanted = call.get("parameters"), gold["parameters"]
    if not isinstance(made, dict):
        return 1.0
    keys = len(made.keys() & wanted.keys()) / len(made.keys() | wanted.keys())
    return 1.0 + keys + sum(made.get(key) == value for key, value in wanted.items())


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each word of the prompts and each piece of the answers."""
    return tokenizer_of(text for task in tasks() for text in (task["prompt"], written(task["gold"])))


def warm_up(model: Qwen2ForCausalLM, words: PreTrainedTokenizerFast, seed: int, examples: int, steps: int) -> None:
    """Supervised steps on a few answered tasks: the model then is unsure of the format and mostly wrong."""
    chosen = random.Random(seed).sample(tasks(), examples)
    rows = [(words(t["prompt"]).input_ids, [*words(written(t["gold"])).input_ids, 1]) for t in chosen]
    supervise(model, [(prompt + answer, [0] * len(prompt) + [1] * len(answer)) for prompt, answer in rows], steps)
