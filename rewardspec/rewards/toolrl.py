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

# an answer as a model should write it, or its calls alone, as values or as JSON text
Reference = str | Sequence[Mapping[str, Any]]


@reward("toolrl.format", domain=(0, 1))
def format(completion: str, answer: Reference, *, opened: bool = False) -> float:
    """1 where the completion is laid out like the ground truth, else 0.

    That is `<think>...</think>` and then, a line each, `<tool_call>`, the calls and `</tool_call>`, or
    `<response>...</response>`, or both, as the ground truth has them; each tag once, nothing before or after.

    answer: a text with the tags, or a list of calls. opened: the prompt has `<think>` at its end, so that
    the completion does not begin with it. Raises BadReference.
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
        raise ValueError(f"`lo` is below `hi`; here they are {lo:g} and {hi:g}")
    whole = between(lo, hi)
    if pairing == "greedy" and granularity != "original":
        raise ValueError("the authors' greedy pairing goes with `granularity: original` alone")
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
    """How far the tool calls match those of the ground truth, from `lo` to `hi`.

    Names as multisets (intersection over union), and for each call of the ground truth the share of
    parameter names and the number of equal values in the call of the same name that it is paired with; the
    pairing is the best there is. Values are equal as JSON: `"5"` is not 5. Only exactly the calls of the
    ground truth, in any order, get `hi`; calls that cannot be read, or where none should be, get `lo`. A
    ground truth without calls asks for none.

    granularity: `fine` wants all names, and each call's parameter names, exactly; `intermediate` wants a call's
    parameters as a whole, one term a call; `coarse` wants everything.
    pairing: `greedy` is what the authors' published code does: each call of the ground truth in its order takes
    the best call that is left, values are equal as in Python, and a ground truth without calls scores 0.
    answer: a text with the tags, or a list of calls (or JSON text of one), where arguments that are null count as
    absent: a table that holds calls as structures adds them. Raises BadReference.
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
    """The score of a prediction over the greatest there is."""
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
    """Python's own equality, by which 1 is `true`."""
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
    """The greatest sum of scores over pairs of calls of one name, no call in two pairs."""
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
    """The pairs of rows and columns with the greatest sum."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ModuleNotFoundError:
        raise ModuleNotFoundError("`toolrl.correctness` needs scipy: pip install 'rewardspec[rewards]'") from None
    return zip(*linear_sum_assignment(table, maximize=True), strict=True)


def _as_published(completion: str, gold: tuple[Call, ...], lo: float, hi: float) -> float:
    """The authors' code: one call a line in the first element, pairs taken one after the other."""
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
        if best > 0:  # a call without anything right is left for the next
            total += best
            del left[-at]
    return hi if total == _most(gold) else lo + (hi - lo) * total / _most(gold)


def _most(gold: Sequence[Call]) -> int:
    """S_max: the names, and for each call its parameters' names and their values."""
    return 1 + len(gold) + sum(len(parameters) for _, parameters in gold)


@reward("toolrl.think_length", domain=lambda **_: between(0, 1))
def think_length(completion: str, *, target: Annotated[float, Within(gt=0, allow_inf_nan=False)] = 512.0) -> float:
    """Words of the thought over `target`, at most 1; for a target that moves use `toolrl.think_words`.

    Words are what white space separates; a thought without an end has none.
    Source: ToolRL, arXiv:2504.13958, Sec. 5.1, length reward.
    """
    return min(len(thought(completion).split()) / target, 1.0)


@reward("toolrl.think_words", domain=lambda **_: between(0, float("inf")))
def think_words(completion: str) -> float:
    """The number of words between the think tags, a signal for a length reward of one's own.

    Source: ToolRL, arXiv:2504.13958, Sec. 5.1.
    """
    return float(len(thought(completion).split()))


def _gold_parts(answer: Reference) -> tuple[tuple[Call, ...] | None, bool]:
    """The calls of a ground truth, None where it has no such element, and whether it has a response."""
    if isinstance(answer, str):
        return _read_gold(answer)
    if not isinstance(answer, Sequence):
        raise BadReference("a ground truth is a text with tags, or a list of calls")
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
