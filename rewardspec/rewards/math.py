"""Mathematical answers: whether they are right, and whether they are whole numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from rewardspec.rewards.reward import BadReference, Within, each, refuse, reward
from rewardspec.rewards.tagged import answer_part, last_element

LONGEST = 4000  # characters of an answer: no real answer is longer
_NUMBER = re.compile(r"[-+]?(\d{1,300}|\d{1,3}(,\d{3}){1,30})(\.\d{1,300})?")
_WHOLE = re.compile(r"[-+]?\d{1,300}")


@reward("math.correct", domain=(0, 1), inputs=("completion", "answer"), many=True)
def correct(
    completions: Sequence[str],
    answers: Sequence[str | float],
    *,
    tag: str = "none",
    timeout: Annotated[float, Within(gt=0, le=3600)] = 5.0,
) -> list[float]:
    """1 if the final answer is mathematically equal to the ground truth, else 0, for each completion.

    The final answer is the last `\\boxed{...}` after the thought, or else the last expression that math-verify finds
    there; with a `tag` both are searched in the last such element. Numbers are compared exactly. Other answers are
    compared by math-verify in separate processes; one that takes longer than `timeout` seconds is wrong.

    answers: LaTeX or plain text, with or without `$` or `\\boxed`, or numbers. Raises BadReference for one that
    cannot be read.
    Source: math-verify, github.com/huggingface/Math-Verify.
    """
    from rewardspec.rewards.math_worker import UNREADABLE, verify_all

    golds = each(_gold, answers)
    found = [_candidate(completion, tag) for completion in completions]
    scores: list[float | None] = []
    for text, gold in zip(found, golds, strict=True):
        number, wanted = _number(_boxed(text) or text), _number(_boxed(gold) or gold)
        scores.append(0.0 if not text.strip() else float(number == wanted) if None not in (number, wanted) else None)
    left = [i for i, score in enumerate(scores) if score is None]
    bad: dict[int, str] = {}
    for i, held in zip(left, verify_all([(golds[i], found[i]) for i in left], timeout), strict=True):
        scores[i] = float(held is True)
        if held == UNREADABLE:
            bad[i] = f"math-verify cannot read `{golds[i][:80]}`"
    refuse(bad)
    return [score or 0.0 for score in scores]


@reward("math.integer", domain=(0, 1))
def integer(completion: str, *, tag: str = "answer") -> float:
    """1 if the answer is a whole number in digits, else 0.

    The answer is the last `<tag>...</tag>`; with `tag: none` the last `\\boxed{...}`. Commas between thousands and a
    `$` before or after are ignored.
    Source: GDPO, arXiv:2601.05242, the integer reward of the authors' examples.
    """
    found = _boxed(answer_part(completion)) if tag == "none" else last_element(completion, tag)
    bare = (found or "").strip().strip("$").strip()
    return float(bool(_WHOLE.fullmatch(bare)) or (bool(_NUMBER.fullmatch(bare)) and "." not in bare))


def _candidate(completion: str, tag: str) -> str:
    """The last `\\boxed{...}` of the part with the final answer, or else the end of that part."""
    part = answer_part(completion) if tag == "none" else last_element(completion, tag) or ""
    boxed = _boxed(part)
    return f"\\boxed{{{boxed}}}" if boxed is not None and len(boxed) <= LONGEST else part[-LONGEST:]


def _boxed(text: str) -> str | None:
    """The content of the last `\\boxed{...}`, with matched braces; None if there is none."""
    start = text.rfind("\\boxed{")
    depth, first = 0, start + len("\\boxed{")
    for at in range(first, len(text)) if start >= 0 else ():
        if text[at] == "}" and depth == 0:
            return text[first:at]
        depth += (text[at] == "{") - (text[at] == "}")
    return None


def _number(text: str) -> Fraction | None:
    """The value of a text that is a number; None for any other text."""
    bare = text.strip().strip("$").strip()
    return Fraction(bare.replace(",", "")) if _NUMBER.fullmatch(bare) else None


def _gold(answer: str | float) -> str:
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise BadReference("a ground truth must be a text or a number")
    text = str(answer).strip()
    if not text or len(text) > LONGEST or text in ("nan", "inf", "-inf"):
        raise BadReference(f"a ground truth must have 1 to {LONGEST} characters")
    return text
