"""The score, or the list of scores, in the answer of a judge."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

LONGEST = 100_000  # characters that are read, from the end: many times the length of a normal answer
MOST_READ = 10 * LONGEST  # characters read as JSON in all: objects that do not end are read repeatedly
_LABEL = r"(?:score|rating|grade)"
_VALUE = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
# All its quantifiers are possessive: with backtracking, time would grow with the square of a run of white space.
_LABELLED = re.compile(  # `Score: 1`, `**Score**: 1`, `score is 1`, `<score>1`, `Score (0 to 1): 1`, `score: \boxed{1}`
    rf"(?<![\w/]){_LABEL}['\"*_`]*+(?:\s*+\([^()\n]{{0,40}}+\))?\s*+"
    r"(?:[:=>]|(?:is|of|should\ be)\b\s*+[:=]?+(?=\W*+(?:boxed\W*+)?[0-9]))"
    rf"[\s'\"*_`$({{\[]*+(?:\\boxed\s*+{{\s*+)?(?P<value>{_VALUE})?(?=(?P<more>.{{0,12}}))",
    re.IGNORECASE,
)
# `1/2`, `0,5`, `50%`, `1e5`, `1 or 0`, `0 - 1`: the first number is not the score
_GOES_ON = re.compile(r"[\w%/]|\.[0-9]|\s*[/%,;|~–-]\s*[0-9]|\s+(?:or|to|and|out of)\s+[0-9]", re.IGNORECASE)
_LONE = re.compile(_VALUE)
_HEADED = re.compile(r"(?:[A-Za-z][A-Za-z ]{0,40}:)?[ \t*_`]*")  # nothing, or `Verdicts:`, before a list
_OPENS = re.compile(r"\{\s*\"")


def find_score(said: str, scores: Sequence[float]) -> float | None:
    """The one of `scores` that a judge gave; None if it gave none of them.

    `Score: 1` or `{"score": 1}`: the later one counts if there are several. Without either, a last line that is only a
    number counts. The thought of a reasoning model, before `</think>`, is not read.
    """
    text = _spoken(said)
    try:
        objects = list(_objects(text))
    except _TooMuch:
        return None
    labelled = list(_LABELLED.finditer(text, objects[-1][0] if objects else 0))
    value = _labelled(labelled[-1]) if labelled else _number(objects[-1][1]) if objects else _lone(text)
    return next((float(score) for score in scores if score == value), None)


def find_verdicts(said: str, scores: Sequence[float], count: int) -> tuple[float, ...] | None:
    """The list of `count` scores, each one of `scores`, that an answer ends with; None if it does not.

    `[1, 0, 1]`, or `Verdicts: [1, 0, 1]`, in a code fence or not, and nothing after it. A list of another length, or
    with anything else in it, is no answer: the places of its verdicts would not be known.
    """
    found = some_verdicts(said, scores, count)
    known = tuple(score for score in found or () if score is not None)
    return known if found is not None and len(known) == count else None


def some_verdicts(said: str, scores: Sequence[float], count: int) -> tuple[float | None, ...] | None:
    """The list of `count` values that an answer ends with, None for each that is not one of `scores`.

    None if the answer does not end with a list of that length: places of verdicts would not be known.
    """
    text = _spoken(said).rstrip(" \t\r\n*_`")
    start = text.rfind("[")
    before = text[:start].rpartition("\n")[2].strip(" \t*_`#>")
    if start < 0 or not _HEADED.fullmatch(before):
        return None
    try:
        given = json.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, list) or len(given) != count:
        return None
    return tuple(
        None if isinstance(one, bool) else next((float(score) for score in scores if score == one), None)
        for one in given
    )


def _spoken(said: str) -> str:
    """The end of an answer, without the thought before it; nothing of a thought without an end."""
    text = said[-LONGEST:].rpartition("</think>")[2]
    return "" if text.lstrip().startswith("<think>") else text


def _labelled(found: re.Match[str]) -> float | None:
    value, more = found["value"], found["more"]
    if value is None or _GOES_ON.match(more):
        return None
    if "\n" in found[0] and more.strip(" \t*_`$'\"(){}[]."):  # a heading with a list below
        return None
    return float(value)


class _TooMuch(Exception):
    """The text would be read too many times."""


def _objects(text: str) -> Iterator[tuple[int, object]]:
    """(end, score) of each outermost JSON object with a key `score`.

    If an object does not end, those inside it are tried. Raises _TooMuch if that takes too long.
    """
    decoder, end, left = json.JSONDecoder(), 0, MOST_READ
    while found := _OPENS.search(text, end):
        end = found.start() + 1
        if left < 0:
            raise _TooMuch
        try:
            value, whole = decoder.raw_decode(text, found.start())
        except json.JSONDecodeError as error:
            left -= max(error.pos - found.start(), LONGEST // 100)  # Python counts the lines before an error
        except (ValueError, RecursionError):  # a number with too many digits
            left -= LONGEST // 10
        else:
            left -= whole - found.start()
            keys = [key for key in value if re.fullmatch(_LABEL, key, re.IGNORECASE)]
            if keys:
                end = whole
                yield end, value[keys[-1]]


def _number(value: object) -> float | None:
    """A JSON number, or a text that is one."""
    if isinstance(value, str):
        return float(value) if _LONE.fullmatch(value.strip()) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _lone(text: str) -> float | None:
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    bare = last.replace("\\boxed", "").strip(" \t*_`#$(){}[]<>'\"").removesuffix(".")
    return float(bare) if _LONE.fullmatch(bare) else None
