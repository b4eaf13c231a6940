"""Random specs read twice: by rewardspec, and by the definitional interpreter in tests/reference/.

Three checks: the compiled function on random batches; what `simulate` counts, on every group of a small spec; what
`verify` says of guarantees, on every group. `SPECS=10000 pytest tests/random/test_second_reading.py` reads as many;
what came of that is in tests/reference/outcome.md.
"""

import os
import random
import re
import sys
from collections import Counter
from fractions import Fraction as F

import pytest
from reference.author import Author, Column, Draft
from reference.batches import Data, batch
from reference.brute import check_counts, check_verdicts
from reference.checks import Disagreement, check_compiled, check_gates, compiled, read

import rewardspec

SPECS = int(os.environ.get("SPECS", "330"))
CHUNKS = 6
# What is known to be wrong and not mended yet: why, and what such a failure says. Empty when all is well.
NOT_YET = {}
# Errors that say what a domain allows, which the interpreter does not look at; `gate-never-opens` is looked at.
OF_DOMAINS = {"gate-never-opens", "undefined", "otherwise-needed", "too-large"}


def read_large(seed):
    """What came of a spec and three batches: how often each outcome. Raises Disagreement."""
    draft = Author(seed).spec()
    reader = read(draft)
    fn, codes = compiled(draft)
    if fn is None:
        if reader is not None and not {*codes} <= OF_DOMAINS:
            raise Disagreement(f"refused ({', '.join(codes)}), and well-formed by the reference")
        if reader is not None and "gate-never-opens" in codes:
            check_gates(draft, reader, [batch(draft, random.Random(seed + n)) for n in range(5)])
        return Counter(["refused"]), draft.features
    if reader is None:
        raise Disagreement("accepted, and not well-formed by the reference")
    rng = random.Random(seed)
    return Counter(check_compiled(draft, reader, fn, batch(draft, rng)) for _ in range(3)), draft.features


def read_small(seed):
    """What came of a small spec of which every group is tried. Raises Disagreement."""
    draft = Author(seed, small=True).spec()
    try:
        spec = rewardspec.loads(draft.text)
    except rewardspec.SpecError:
        return Counter(["refused"]), draft.features
    said = Counter(f"count: {check_counts(draft, spec, size)}" for size in (2, 3))
    return said + check_verdicts(draft, spec, [2, 3], random.Random(seed)), draft.features


def run(read_one, small, seeds):
    """Outcomes and features of many specs. Fails with every disagreement, each with its spec."""
    outcomes, features, wrong = Counter(), set(), []
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        for seed in seeds:
            try:
                found, used = read_one(seed)
            except Exception as error:
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                known = small and next((why for why, words in NOT_YET.items() if re.match(words, said)), None)
                if known:
                    outcomes[known] += 1
                    continue
                text = Author(seed, small=small).spec().text
                wrong.append(f"Author({seed}, small={small})\n{text}\n{type(error).__name__}: {error}")
            else:
                outcomes += found
                features |= used
    finally:
        sys.setrecursionlimit(limit)
    assert not wrong, f"{len(wrong)} of {len(seeds)} specs, {dict(outcomes)}\n\n" + "\n\n".join(wrong[:20])
    return outcomes, features


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_compiled_functions_give_what_the_language_says(chunk):
    outcomes, features = run(read_large, False, range(chunk, SPECS * 2 // 3, CHUNKS))
    print(dict(outcomes))
    called = outcomes["equal"] + outcomes["raises"] + outcomes["too close"]
    assert outcomes["equal"] > 0.6 * called
    assert outcomes["too close"] < 0.06 * called
    assert outcomes["refused"] < 0.4 * (called / 3 + outcomes["refused"])
    if SPECS >= 300:
        missing = {
            "keep",
            "stages",
            "gate",
            "scale",
            "where",
            "by",
            "symbols",
            "group column",
            "batch column",
        } - features
        assert not missing


@pytest.mark.parametrize("chunk", range(CHUNKS // 2))
def test_counts_and_verdicts_are_so_of_every_group(chunk):
    outcomes, _ = run(read_small, True, range(chunk, SPECS // 6, CHUNKS // 2))
    print(dict(outcomes))
    assert outcomes["count: exact"] > outcomes["count: bound"] > 0
    assert outcomes["proved"] > 0 and outcomes["refuted"] > 0


# The checks can fail --------------------------------------------------------------------------------

PAIRS = [
    ("advantage: grpo", "advantage: dr_grpo"),
    ("advantage: grpo", "advantage: grpo\nnumerics: {ddof: 0}"),
    ("advantage: grpo", "advantage: grpo\nnumerics: {eps: 1e-3}"),
    ("advantage: gdpo", "advantage: decoupled"),
    ("advantage: rank(a + b)", "advantage: rank(b)"),
    ("advantage: a - mean(a)", "advantage: a - mean(a, over=batch)"),
    ("advantage: a / (b + 1)", "advantage: a / b"),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_the_check_sees_another_function(one, other):
    head = "rewardspec: 1\ncomponents:\n  a: {values: [0, 1]}\n  b: {values: [0, 0.5, 1]}\n"
    columns = {"a": [F(n) for n in (0, 1, 1, 0, 1, 0, 0, 0)], "b": [F(n, 2) for n in (0, 1, 2, 2, 1, 0, 2, 1)]}
    data = Data(columns, [0, 0, 0, 0, 1, 1, 1, 1], dict.fromkeys(columns, "float32"), None, None)
    mine, theirs = Draft(head + one + "\n", []), Draft(head + other + "\n", [])
    assert check_compiled(mine, read(mine), compiled(mine)[0], data) == "equal"
    with pytest.raises(Disagreement):
        check_compiled(mine, read(mine), compiled(theirs)[0], data)


def test_the_checks_see_a_wrong_count_and_a_wrong_verdict():
    text = """rewardspec: 1
components:
  a: {values: [0, 1]}
  b: {values: [0, 1], weight: %s}
advantage: "dr_grpo"
guarantees:
  order: right_above_wrong(a)
"""
    columns = [Column(name, [F(0), F(1)], 2, "error", "error", component=True) for name in "ab"]
    mine = Draft(text % "0.5", columns, inner="dr_grpo", advantage="dr_grpo")
    right, wrong = (rewardspec.loads(text % weight) for weight in ("0.5", "1"))
    assert check_counts(mine, right, 2) == "exact"
    assert check_verdicts(mine, right, [2], random.Random(0)) == Counter(proved=1)
    with pytest.raises(Disagreement):
        check_counts(mine, wrong, 2)
    with pytest.raises(Disagreement):
        check_verdicts(mine, wrong, [2], random.Random(0))
