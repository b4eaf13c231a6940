"""The text of a rubric, from `specs/rubrics` or from the spec, filled with a rollout."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from ruamel.yaml import YAML

from rewardspec.resources import resource
from rewardspec.rewards.reward import BadReference

MOST_CRITERIA = 64  # of one rollout
LONGEST_CRITERION = 10_000  # characters
CRITERIA = {"each": "criterion", "all": "criteria"}  # the place that holds them in a template, by what a call is about
_PLACES = ("prompt", "completion", "answer", "fence")
_PLACE = re.compile(r"\{(\w+)\}")
_BREAKS = {ord(x): f"\\u{ord(x):04x}" for x in "\x85\u2028\u2029"}  # of lines, which JSON leaves in a text
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


def rubric_text(
    template: str, scores: Sequence[float] | str, calls: str | None = None
) -> tuple[str, tuple[float, ...]]:
    """The text of a rubric, and its scores. Raises ValueError.

    calls: `each` if the text is about one criterion, `all` if about a list of them, None if about neither.
    """
    if re.fullmatch(r"[\w-]*", template):
        text, own = _shipped(template)
        _check_criteria(text, f"the rubric `{template}`", calls, shipped=True)
        if scores != "rubric" and set(scores) != set(own):
            given = ", ".join(f"{score:g}" for score in own)
            raise ValueError(f"`scores`: the rubric `{template}` has the scores {given}; remove `scores`")
        return text, own
    if "{completion}" not in template:
        raise ValueError("`template` has no `{completion}`, so it would judge nothing")
    _check_criteria(template, "it", calls, shipped=False)
    places = (*_PLACES, *([] if calls is None else [CRITERIA[calls]]))
    for word in re.findall(r"\{(\w+)\}", template):
        near = difflib.get_close_matches(word.lower(), places, n=1, cutoff=0.8)
        if near and word not in places:
            raise ValueError(f"`template` has an unknown `{{{word}}}`; did you mean `{{{near[0]}}}`?")
    if isinstance(scores, str):
        raise ValueError("your own rubric needs `scores`, the numbers that it can give, such as [0, 0.5, 1]")
    return template, tuple(scores)


def _check_criteria(text: str, called: str, calls: str | None, shipped: bool) -> None:
    """Raise ValueError for a rubric that does not hold the criteria in the place of `calls`."""
    here = [way for way, place in CRITERIA.items() if f"{{{place}}}" in text]
    if calls is None:
        if shipped and here:
            raise ValueError(f"`template`: {called} is for a list of criteria: add `criteria` and `level`")
    elif here != [calls]:
        has = " and ".join(f"`{{{CRITERIA[way]}}}`" for way in here)
        raise ValueError(
            f"`template`: `calls: {calls}` needs `{{{CRITERIA[calls]}}}` in the text, and {called} has {has or 'none'}"
            + (f"; did you mean `calls: {here[0]}`?" if len(here) == 1 else "")
        )


def filled(text: str, prompt: str, completion: str, answer: str, **criteria: str) -> str:
    """The rubric filled with one rollout; places in the rollout's own texts are not filled.

    criteria: the text for `{criterion}` or `{criteria}`.
    """
    values = {"prompt": prompt, "completion": completion, "answer": answer, **criteria}
    # the mark is a hash of all texts, so a completion cannot contain it and close the fence
    whole = "\0".join(values.values()).encode("utf-8", "surrogatepass")
    # some servers read control tokens anywhere: `<|im_end|>` in a completion would end our message
    values = {place: _CONTROL_TOKEN.sub("< ", value) for place, value in values.items()}
    values["fence"] = hashlib.sha256(whole).hexdigest()[:12]
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)


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


def criteria_of(given: object) -> list[str]:
    """The texts of a rollout's criteria. Raises BadReference."""
    given = given.tolist() if hasattr(given, "tolist") else given  # an array, as tables hold lists
    if not isinstance(given, list | tuple):
        raise BadReference(f"the criteria must be a list of texts, or of objects with `criterion`, not {given!r:.80}")
    if len(given) > MOST_CRITERIA:
        raise BadReference(f"there are {len(given)} criteria, and a judge is asked about {MOST_CRITERIA} at most")
    texts = [one.get("criterion") if isinstance(one, Mapping) else one for one in given]
    found: list[str] = []
    for place, text in enumerate(texts, 1):
        if not isinstance(text, str) or not text.strip():
            raise BadReference(
                f"criterion {place} must be a text, or an object with a text `criterion`, not {given[place - 1]!r:.80}"
            )
        if len(text) > LONGEST_CRITERION:
            raise BadReference(f"criterion {place} has {len(text):,} characters, and at most {LONGEST_CRITERION:,} fit")
        found.append(text)
    return found


def numbered(criteria: Sequence[str]) -> str:
    """Criteria as lines, each a number and the text in quotes: no line break in a text can pass for another one."""
    quoted = [json.dumps(text, ensure_ascii=False).translate(_BREAKS) for text in criteria]
    return "\n".join(f"{i}. {text}" for i, text in enumerate(quoted, 1))
