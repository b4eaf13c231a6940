"""Which sides of `and` and `or` are evaluated: compiled function against second reading, in every position."""

from fractions import Fraction
from itertools import product

import pytest
from reference.author import Draft
from reference.batches import Data
from reference.checks import check_compiled, compiled, read

CONDITIONS = [
    "m > 1 and 1 / b > 1",
    "m > 1 or 1 / b > 1",
    "not (m > 1 and 1 / b > 1)",
    "not (m > 1 or 1 / b > 1)",
    "not m > 1 and 1 / b > 1",
    "not (not m > 1 or not 1 / b > 1)",
    "1 / b > 1 or m > 1",
    "m > 1 and (m > 0 or 1 / b > 1)",
    "(m > 1 or a) and 1 / b > 1",
    "not (m > 1 and a or 1 / b > 1)",
    "missing and 1 / b > 1",
    "missing or 1 / b > 1",
]
POSITIONS = {
    "if": "  e: {{expr: '1 if {} else 0'}}\nadvantage: e + a\n",
    "value": "  e: {{expr: '{}'}}\nadvantage: coalesce(e, 2) + a\n",
    "present": "  e: {{expr: '1 if present({}) else 0'}}\nadvantage: e + a\n",
    "when": "  e: {{values: [0, 1], when: '{}', otherwise: 0}}\nadvantage: e + a\n",
    "where": "  e: {{expr: 'sum(a, where={})'}}\nadvantage: e + a\n",
    "keep": "keep: any(({}) * 1)\nadvantage: a\n",
    "any": "keep: any({})\nadvantage: a\n",
    "chosen": "  e: {{expr: '1 if {} else 1 / a'}}\nadvantage: e + a\n",
    "definition": "define: {{c: '{}'}}\nadvantage: (2 if c else 1 if not c else 0) + a\n",
}
HEAD = (
    "rewardspec: 1\ncomponents:\n  a: {values: [0, 1]}\n  b: {values: [0, 0.5, 1]}\n"
    "  m: {values: [0, 1, 2], missing: ignore}\n"
)
ROWS = [*product((0, 1), (0, 0.5, 1), (None, 0, 2))]  # a, b, m


@pytest.mark.parametrize("position", POSITIONS)
def test_what_a_condition_evaluates_is_what_the_language_says(position):
    outcomes = set()
    for condition in CONDITIONS:
        draft = Draft(HEAD + POSITIONS[position].format(condition), [])
        reader, (fn, codes) = read(draft), compiled(draft)
        if fn is None:
            assert "missing" in condition or not codes, f"{draft.text}\n{codes}"
            continue
        for a, b, m in ROWS:  # groups of one: an error is of one rollout
            columns = {"a": [Fraction(a)], "b": [Fraction(b)], "m": [None if m is None else Fraction(m)]}
            if "e: {values" in draft.text:
                columns["e"] = [Fraction(1)]
            data = Data(columns, [0], dict.fromkeys(columns, "float32"), None, None)
            try:
                outcomes.add(check_compiled(draft, reader, fn, data))
            except AssertionError as error:
                raise AssertionError(f"{draft.text}a, b, m = {a}, {b}, {m}\n{error}") from None
    assert {"equal", "raises"} <= outcomes
