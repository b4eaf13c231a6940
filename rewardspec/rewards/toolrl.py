"""Tool calls: ToolRL's format, correctness and length of thought (arXiv:2504.13958)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Literal

from rewardspec.ops.domain import Domain, finite
from rewardspec.rewards.reward import BadReference, Within, between, reward
from rewardspec.rewards.tagged import (
    Call,
    Malformed,
    as_call,
    elements,
    predicted_calls,
    read_calls,
    read_json,
    same,
    thought,
    wanted_calls,
)

# a model answer, or only its calls, as values or as JSON text
Reference = str | Sequence[Mapping[str, Any]]


@reward("toolrl.format", domain=(0, 1))
def format(completion: str, answer: Reference, *, opened: bool = False) -> float:
    """1 if the completion has the format of the ground truth, else 0.

    The format is `<think>...</think>`, then `<tool_call>`, the calls and `</tool_call>` on separate lines, or
    `<response>...</response>`, or both, as in the ground truth. Each tag appears once, with nothing before or after.

    answer: a text with the tags, or a list of calls. opened: the prompt ends with `<think>`, so the completion does not
    begin with it. Raises BadReference.
    Source: ToolRL, arXiv:2504.13958, Sec. 3.3, format reward.
    """
    text = "<think>" + completion if opened else completion
    calls, responds = _gold_parts(answer)
    parts = [("<think>", "</think>")]
    parts += [("\n<tool_call>\n", "\n</tool_call>")] if calls is not None else []
    parts += [("\n<response>", "</response>")] if responds else []
    if any(text.count(mark.strip("\n")) != 1 for pair in parts for mark in pair):
        return 0.0
    marks = [parts[0][0], *(end + start for (_, end), (start, _) in pairwise(parts)), parts[-1][1]]
    at = 0
    for i, mark in enumerate(marks):
        found = text.find(mark, at)
        if found < 0 or (i == 0 and found):
            return 0.0
        at = found + len(mark)
    return float(at == len(text))


def _correctness_domain(*, granularity: str, pairing: str, lo: float, hi: float) -> Domain:
    if lo >= hi:
        raise ValueError(f"`lo` must be below `hi`; they are {lo:g} and {hi:g}")
    whole = between(lo, hi)
    if pairing == "greedy" and granularity != "original":
        raise ValueError("`pairing: greedy` needs `granularity: original`")
    if granularity == "coarse":
        return finite([Fraction(whole.lo), Fraction(whole.hi)])
    return whole if lo <= 0 <= hi or pairing == "optimal" else between(min(lo, 0.0), max(hi, 0.0))


@reward("toolrl.correctness", domain=_correctness_domain)
def correctness(
    completion: str,
    answer: Reference,
    *,
    granularity: Literal["original", "fine", "intermediate", "coarse"] = "original",
    pairing: Literal["optimal", "greedy"] = "optimal",
    lo: Annotated[float, Within(ge=-1e9, le=1e9)] = -3.0,
    hi: Annotated[float, Within(ge=-1e9, le=1e9)] = 3.0,
) -> float:
    """How well the tool calls match those of the ground truth, from `lo` to `hi`.

    The score adds up three terms: the match of tool names as multisets (intersection over union), and for each gold
    call the match of its parameter names (the same) and the number of equal values, in the call of the same name with
    which it is paired. The pairing is optimal. Values are compared as JSON: `"5"` is not 5. Exactly the gold calls, in
    any order, score `hi`. Unreadable calls score `lo`, and so do calls where the ground truth has none.

    granularity: `fine` requires all tool names, and all parameter names of a call, exactly; `intermediate` counts the
    parameters of a call as one term; `coarse` requires everything.
    pairing: `greedy` follows the authors' published code: each gold call, in order, takes the best remaining call;
    values are compared as in Python; a ground truth without calls scores 0.
    answer: a text with the tags, or a list of calls or its JSON text. Null arguments in a list count as absent, because
    tables add them. Raises BadReference.
    Source: ToolRL, arXiv:2504.13958, Sec. 3.3 and 5.3.
    """
    gold, _ = _gold_parts(answer)
    if pairing == "greedy":
        return _as_published(completion, gold or (), lo, hi)
    made, gold = predicted_calls(completion), gold or ()
    if made is None:
        return lo
    share = _share(made, gold, granularity)
    return hi if share == 1 else lo + (hi - lo) * share


def _share(made: tuple[Call, ...], gold: tuple[Call, ...], granularity: str) -> float:
    """The score of a prediction divided by the largest possible score."""
    names, wanted = Counter(name for name, _ in made), Counter(name for name, _ in gold)
    if not gold:
        return float(not made)
    if granularity == "coarse":
        return float(names == wanted and _paired(made, gold, _whole) == len(gold))
    exact = granularity == "fine"
    name = float(names == wanted) if exact else (names & wanted).total() / (names | wanted).total()
    if granularity == "intermediate":
        return (name + _paired(made, gold, _whole)) / (1 + len(gold))
    return (name + _paired(made, gold, _fine if exact else _partial)) / _most(gold)


def _whole(made: Mapping[str, Any], gold: Mapping[str, Any]) -> float:
    return float(same(made, gold))


def _values(made: Mapping[str, Any], gold: Mapping[str, Any], equal: Callable[[object, object], bool] = same) -> int:
    return sum(key in made and equal(made[key], value) for key, value in gold.items())


def _equal(a: object, b: object) -> bool:
    """Equality in Python, where 1 equals `true`."""
    try:
        return a == b
    except RecursionError:
        return False


def _fine(made: Mapping[str, Any], gold: Mapping[str, Any]) -> float:
    return (made.keys() == gold.keys()) + _values(made, gold)


def _partial(made: Mapping[str, Any], gold: Mapping[str, Any], equal: Callable[[object, object], bool] = same) -> float:
    either = len(made.keys() | gold.keys())
    return (len(made.keys() & gold.keys()) / either if either else 1.0) + _values(made, gold, equal)


def _paired(made: Sequence[Call], gold: Sequence[Call], score: Callable[[Any, Any], float]) -> float:
    """The largest sum of scores over pairs of calls with equal names, each call in at most one pair."""
    groups: dict[str, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for side, calls in enumerate((made, gold)):
        for name, parameters in calls:
            groups[name][side].append(parameters)
    total = 0.0
    for ours, theirs in groups.values():
        if len(ours) == 1 or len(theirs) == 1:
            total += max((score(a, b) for a in ours for b in theirs), default=0.0)
        elif ours and theirs:
            table = [[score(a, b) for b in theirs] for a in ours]
            total += sum(table[i][j] for i, j in _assignment(table))
    return total


def _assignment(table: list[list[float]]) -> Iterator[tuple[int, int]]:
    """The pairs of rows and columns with the largest sum."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ModuleNotFoundError:
        raise ModuleNotFoundError("`toolrl.correctness` needs scipy: pip install 'rewardspec[rewards]'") from None
    return zip(*linear_sum_assignment(table, maximize=True), strict=True)


def _as_published(completion: str, gold: tuple[Call, ...], lo: float, hi: float) -> float:
    """The score of the authors' code: one call on each line of the first element, paired greedily."""
    if not gold:
        return 0.0
    inner = next(elements(completion, "tool_call"), None)
    try:
        made = [as_call(read_json(line)) for line in (inner or "").strip().split("\n")]
    except Malformed:
        return lo
    names, wanted = Counter(name for name, _ in made), Counter(name for name, _ in gold)
    total, left = (names & wanted).total() / (names | wanted).total(), list(made)
    for name, parameters in gold:
        scores = [(_partial(call[1], parameters, _equal), -i) for i, call in enumerate(left) if call[0] == name]
        best, at = max(scores, default=(0.0, 0))
        if best > 0:  # a call without any match stays for the next gold call
            total += best
            del left[-at]
    return hi if total == _most(gold) else lo + (hi - lo) * total / _most(gold)


def _most(gold: Sequence[Call]) -> int:
    """S_max: 1 for the tool names, and for each call 1 for its parameter names and 1 for each value."""
    return 1 + len(gold) + sum(len(parameters) for _, parameters in gold)


@reward("toolrl.think_length", domain=lambda **_: between(0, 1))
def think_length(completion: str, *, target: Annotated[float, Within(gt=0, allow_inf_nan=False)] = 512.0) -> float:
    """The number of words of the thought, divided by `target`, at most 1.

    For a target that changes use `toolrl.think_words`. Words are separated by white space; a thought without an end has
    none.
    Source: ToolRL, arXiv:2504.13958, Sec. 5.1, length reward.
    """
    return min(len(thought(completion).split()) / target, 1.0)


@reward("toolrl.think_words", domain=lambda **_: between(0, float("inf")))
def think_words(completion: str) -> float:
    """The number of words between the think tags, for your own length reward.

    Source: ToolRL, arXiv:2504.13958, Sec. 5.1.
    """
    return float(len(thought(completion).split()))


def _gold_parts(answer: Reference) -> tuple[tuple[Call, ...] | None, bool]:
    """The calls of a ground truth, None if it has no `<tool_call>`, and whether it has a response."""
    if isinstance(answer, str):
        return _read_gold(answer)
    if not isinstance(answer, Sequence):
        raise BadReference("a ground truth must be a text with tags, or a list of calls")
    return _calls(answer), False


def _calls(answer: str | Sequence[Any]) -> tuple[Call, ...]:
    try:
        return wanted_calls(answer)
    except Malformed as error:
        raise BadReference(f"ground truth: {error}") from None


@lru_cache(maxsize=1024)
def _read_gold(text: str) -> tuple[tuple[Call, ...] | None, bool]:
    if text.lstrip()[:1] == "[":
        return _calls(text), False
    rest = text.partition("</think>")[2] if "</think>" in text else text
    found, responses = list(elements(rest, "tool_call")), list(elements(rest, "response"))
    closed = [inner for inner in found if inner is not None]
    if len(closed) < len(found) or None in responses or not (found or responses):
        problem = "is not closed" if found or responses else "is missing"
        raise BadReference(f"ground truth: `<tool_call>` or `<response>` {problem}")
    try:
        calls = tuple(call for inner in closed for call in read_calls(inner))
    except Malformed as error:
        raise BadReference(f"ground truth: {error}") from None
    return (calls if found else None), bool(responses)
