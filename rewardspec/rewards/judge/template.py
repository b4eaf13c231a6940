"""The text of a rubric, from `specs/rubrics` or from the spec, filled with a rollout."""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Sequence
from functools import lru_cache

from ruamel.yaml import YAML

from rewardspec.resources import resource
from rewardspec.rewards.reward import BadReference

_PLACES = ("prompt", "completion", "answer", "fence")
_PLACE = re.compile(r"\{(" + "|".join(_PLACES) + r")\}")
_CONTROL_TOKEN = re.compile(r"<(?=([|｜])[^<>|｜\s]{1,40}\1>)")  # of Qwen, Llama, gpt-oss, DeepSeek


@lru_cache(maxsize=64)
def _shipped(name: str) -> tuple[str, tuple[float, ...]]:
    """Text and scores of a rubric in `specs/rubrics`. Raises ValueError."""
    known = {path.stem: path for path in resource("specs/rubrics").glob("*.md")}
    if name not in known:
        raise ValueError(
            f"`template`: no rubric is named `{name}`; there are {', '.join(sorted(known))}, "
            "or write the text of one, with `{completion}` in it"
        )
    _, head, text = known[name].read_text(encoding="utf-8").split("---\n", 2)
    return text.strip(), tuple(float(score) for score in YAML(typ="safe").load(head)["scores"])


def rubric_text(template: str, scores: Sequence[float] | str) -> tuple[str, tuple[float, ...]]:
    """The text of a rubric, and its scores. Raises ValueError."""
    if re.fullmatch(r"[\w-]*", template):
        text, own = _shipped(template)
        if scores != "rubric" and set(scores) != set(own):
            given = ", ".join(f"{score:g}" for score in own)
            raise ValueError(f"`scores`: the rubric `{template}` has the scores {given}; remove `scores`")
        return text, own
    if "{completion}" not in template:
        raise ValueError("`template` has no `{completion}`, so it would judge nothing")
    for word in re.findall(r"\{(\w+)\}", template):
        near = difflib.get_close_matches(word.lower(), _PLACES, n=1, cutoff=0.8)
        if near and word not in _PLACES:
            raise ValueError(f"`template` has an unknown `{{{word}}}`; did you mean `{{{near[0]}}}`?")
    if isinstance(scores, str):
        raise ValueError("your own rubric needs `scores`, the numbers that it can give, such as [0, 0.5, 1]")
    return template, tuple(scores)


def filled(text: str, prompt: str, completion: str, answer: str) -> str:
    """The rubric filled with one rollout; places in the rollout's own texts are not filled."""
    # the mark is a hash of all texts, so a completion cannot contain it and close the fence
    whole = "\0".join((prompt, completion, answer)).encode("utf-8", "surrogatepass")
    values = {"prompt": prompt, "completion": completion, "answer": answer}
    # some servers read control tokens anywhere: `<|im_end|>` in a completion would end our message
    values = {place: _CONTROL_TOKEN.sub("< ", value) for place, value in values.items()}
    values["fence"] = hashlib.sha256(whole).hexdigest()[:12]
    return _PLACE.sub(lambda place: values[place[1]], text)


def reference(answer: object) -> str:
    """The text of a ground truth for the judge, one line for each answer if there are several."""
    if isinstance(answer, int | float) and not isinstance(answer, bool) and math.isfinite(answer):
        return str(answer)
    golds = [answer] if isinstance(answer, str) else list(answer) if isinstance(answer, list | tuple) else []
    if not golds or not all(isinstance(gold, str) and gold.strip() for gold in golds):
        raise BadReference(
            "the rubric reads `answer`, which must be a text, a list of texts or a number, none of them empty, "
            f"not {answer!r:.80}"
        )
    return golds[0] if len(golds) == 1 else "\n".join(f"- {gold}" for gold in golds)
