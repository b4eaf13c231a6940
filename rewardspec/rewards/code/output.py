"""Whether the output of a program equals the expected output.

It is compared line by line, ignoring white space at the end of lines and empty lines at the end. Two lines are also
equal if they have as many words and all words match: equal texts, or numbers, at least one of them not an integer,
within 1e-6, relative or absolute.
"""

from __future__ import annotations

import math
import re

_WHOLE = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]{1,4})?")


def same_output(written: str, expected: str) -> bool:
    """Whether the output of a program equals the expected output."""
    found, wanted = (text.rstrip().split("\n") for text in (written, expected))
    return len(found) == len(wanted) and all(map(_same_line, found, wanted))


def _same_line(found: str, wanted: str) -> bool:
    if found.rstrip() == wanted.rstrip():
        return True
    a, b = found.split(), wanted.split()
    return len(a) == len(b) and all(x == y or _near(x, y) for x, y in zip(a, b, strict=True))


def _near(a: str, b: str) -> bool:
    if not (_NUMBER.fullmatch(a) and _NUMBER.fullmatch(b)) or (_WHOLE.fullmatch(a) and _WHOLE.fullmatch(b)):
        return False
    x, y = float(a), float(b)
    return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= 1e-6 * max(1.0, abs(y))
