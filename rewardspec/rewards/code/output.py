"""Whether what a program wrote is what it should have written.

It is compared line by line, white space at the ends of lines and empty lines at the end aside. A line also holds
where it has as many words, and each is the same, or both are numbers, one of them not whole, that differ by no more
than 1e-6, relative or absolute.
"""

from __future__ import annotations

import math
import re

_WHOLE = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]{1,4})?")


def same_output(written: str, expected: str) -> bool:
    """Whether what a program wrote is what it should have written."""
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
