"""The text of numbers in the language."""

from __future__ import annotations

from fractions import Fraction

LARGEST = Fraction(10) ** 308  # about the largest float


def format_number(value: Fraction | float) -> str:
    """A number as text: `0.5`, `1e-06`, `.inf`, `1 / 3`. Parsing the text gives the same number."""
    if isinstance(value, float):
        return ".inf" if value > 0 else "-.inf"
    if value.denominator == 1 and abs(value.numerator) < 10**15:
        return str(value.numerator)
    if abs(value) <= LARGEST and Fraction(repr(float(value))) == value:
        return repr(float(value))
    rest, places = value.denominator, 0
    for factor in (2, 5):
        count = 0
        while rest % factor == 0:
            rest, count = rest // factor, count + 1
        places = max(places, count)
    if rest != 1:
        return f"{value.numerator} / {value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator)  # a finite decimal
    short = digits.rstrip("0")
    return f"{'-' * (value < 0)}{short}e{len(digits) - len(short) - places}"
