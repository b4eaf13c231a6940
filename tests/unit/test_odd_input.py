"""Whatever a caller gives: advantages, or a RolloutError of a readable length, never an error of torch or Python."""

import datetime
import decimal
import fractions
import sys
import threading
import types
import warnings

import numpy as np
import pytest
import torch

import rewardspec

TWO = "rewardspec: 1\nsignals: {t: {range: [0, .inf]}}\ncomponents: {a: {values: [0, 1]}, b: {range: [0, 1]}"
PLAIN = f"{TWO}}}\nadvantage: gdpo\n"
GOOD = {"a": [1, 0, 1, 0], "b": [0.5, 0.2, 0.1, 0.9], "t": [1, 2, 3, 4]}
warnings.simplefilter("ignore", UserWarning)  # prototypes of torch


def made(text):
    return rewardspec.compile(rewardspec.loads(text))


KINDS = ("g", "u8", "u2", ">f4", ">f8", ">i2", "f2", "?", "O", "U")
TYPES = (torch.float8_e4m3fn, torch.bfloat16, torch.bool, torch.uint32, torch.complex64)


def columns():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.tensor([1.0]), torch.tensor([0.0])])
        quantized = torch.quantize_per_tensor(torch.zeros(4), 1.0, 0, torch.quint8)
    numbers = np.array([1, 0, 1, 0])
    return {
        "backwards": numbers[::-1],
        "every other": np.array([1, 9, 0, 9, 1, 9, 0, 9])[::2],
        **{f"array of {kind}": numbers.astype(kind) for kind in KINDS},
        "read-only": np.broadcast_to(np.float32(1), (4,)),
        "dates": numbers.astype("datetime64[D]"),
        "complex array": numbers.astype(complex),
        "sparse": torch.tensor([1.0, 0, 1, 0]).to_sparse(),
        "nested": nested,
        "quantized": quantized,
        "meta": torch.zeros(4, device="meta"),
        "parameter": torch.nn.Parameter(torch.ones(4)),
        **{f"tensor of {kind}": torch.zeros(4).to(kind) for kind in TYPES},
        "matrix": torch.zeros(2, 2),
        "number in a tensor": torch.tensor(1.0),
        "number": 1,
        "none": None,
        "text": "abcd",
        "bytes": b"abcd",
        "dict": {0: 1},
        "set": {0, 1, 2, 3},
        "function": len,
        "lists": [[1], [0], [1], [0]],
        "decimals": [decimal.Decimal(1)] * 4,
        "fractions": [fractions.Fraction(1)] * 4,
        "infinite": [float("inf")] * 4,
        "too large for a float": [10**400] * 4,
        "too large for float32": [1e39] * 4,
        "long text": ["1" * 100_000] * 4,
        "days": [datetime.date(2020, 1, 1)] * 4,
        "tensors": [torch.tensor(1.0)] * 4,
        "vectors": [torch.zeros(2)] * 4,
        "complex": [1j] * 4,
        "empty": [],
    }  # fmt: skip


GROUPS = {
    "zero": 0, "negative": -1, "true": True, "float": 2.0, "huge": 10**30, "mixed": [1, "a", None, (1, 2)],
    "unhashable": [[1], [2], [1], [2]], "nan": [float("nan")] * 4, "matrix of ids": torch.zeros(2, 2, dtype=torch.long),
    "floats": torch.tensor([0.5] * 4), "long labels": ["x" * 100_000] * 4,
}  # fmt: skip
MOMENTS = {
    "text": "x", "nan": float("nan"), "inf": float("inf"), "huge": 10**400, "negative": -1, "list": [1], "half": 0.5,
    "tensor": torch.tensor(3), "vector": torch.zeros(2), "numpy": np.float64(3), "true": True, "complex": 1j,
    "meta": torch.tensor(1, device="meta"), "none": None,
}  # fmt: skip


def outcome(fn, *arguments, **options):
    try:
        found = fn(*arguments, **options).advantages
        assert found.device.type == "cpu" and torch.isfinite(found).all()
        return found
    except fn.RolloutError as error:
        assert 0 < len(str(error)) < 1000
        return str(error)


def test_any_column_and_any_groups():
    fn = made(PLAIN)
    for name, values in columns().items():
        for groups in (2, list("xyxy")):
            assert outcome(fn, {**GOOD, "a": values}, groups) is not None, name
        outcome(fn, GOOD, values)
    for groups in GROUPS.values():
        outcome(fn, GOOD, groups)
        outcome(fn, {**GOOD, "a": [7] * 4}, groups)
    for given in (None, [1], "abc", {}, 3):
        assert isinstance(outcome(fn, given, 2), str)


OF_ITEMS = """rewardspec: 1
lists: {turn: {ordered: true}}
signals:
  kind: {values: [red, blue]}
  seen: {values: [red, blue], level: turn, missing: ignore}
  place: {id: true, level: turn, missing: ignore}
  player: {id: true}
  prompt: {id: true, level: group}
  day: {id: true, level: batch}
  x: {range: [0, 9], level: turn}
components:
  a: {values: [0, 1]}
  t: {expr: returns(x), when: seen == red or kind == red}
state: {held: {init: 0, range: [0, 9], by: prompt, update: held + mean(a)}}
advantage: center(x, by=place) + center(t) + held + center(a, by=player) + (1 if place == day else 0)
"""
ITEMS = {
    "kind": ["red"] * 4, "seen": [["red"], [], ["blue", None], ["red"]], "place": [[7], [], [None, "p"], [8]],
    "player": [1, 2, 1, 2], "prompt": ["p"] * 4, "day": 7, "x": [[1], [], [2, 3], [4]], "a": [1, 0, 0, 1],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ITEMS)
def test_any_column_of_lists_ids_and_names(name):
    """As a column, as the value of a rollout, and as an item."""
    fn = made(OF_ITEMS)
    state = {"state": fn.initial_state()}
    assert outcome(fn, ITEMS, 4, **state).shape == (4,)
    for what, odd in columns().items():
        handed = [odd, [*[1] * 3, odd]]
        if isinstance(ITEMS[name], list):
            handed.append([odd, *ITEMS[name][1:]])
        if isinstance(ITEMS[name], list) and isinstance(ITEMS[name][0], list):
            handed.append([[odd], *ITEMS[name][1:]])
        for value in handed:
            assert outcome(fn, ITEMS | {name: value}, 4, **state) is not None, what
            if name == "prompt":
                one = {column: v if column == "day" else v[:1] for column, v in ITEMS.items()}
                assert outcome(fn, one | {name: value}, 1, **state) is not None, what


def test_every_column_that_cannot_be_read_is_named_with_its_place():
    fn = made(PLAIN)
    assert outcome(fn, {"a": [1, [0], 1, 0], "b": [0, 0, {}, 0], "t": [1, 2, 3, 10**500]}, 2).splitlines() == [
        "column `a` is [0] at rollout 1: it should hold one number for each rollout",
        "column `b` is {} at rollout 2: it should hold one number for each rollout",
    ]
    assert outcome(fn, {"a": [1, 0, 1, "x"], "b": [0, "1", 0, 0]}, 2).splitlines() == [
        "column `a` is 'x' at rollout 3 of group 1: it should hold numbers",
        "column `b` is '1' at rollout 1 of group 0: it should hold numbers",
    ]
    both = outcome(fn, {"a": [1, 0, 1, 0, 1], "b": [0] * 3}, list("xxyy")).splitlines()
    assert both == ["column `a` has 5 values for 4 group ids", "column `b` has 3 values for 4 group ids"]
    large = outcome(made(f"{TWO}, c: t}}\nadvantage: grpo\n"), {**GOOD, "t": [1, 2, 3, 10**500]}, 2)
    assert large == "column `t` is a number of over 80 digits at rollout 3: no float is as large"


TURNS = """rewardspec: 1
lists: {turn: {}}
signals: {x: {range: [0, 9], level: turn}, y: {range: [0, 9], level: turn}}
components: {a: {values: [0, 1]}}
advantage: a + sum(x * y, over=rollout)
"""


def test_every_list_that_cannot_be_read_is_named_with_its_place():
    fn = made(TURNS)
    nested = {"a": [1, 2], "x": [[1], [2, [3]]], "y": [[1], [2, 3, 4]]}
    assert outcome(fn, nested, 2).splitlines() == [
        "`y` has 3 items at rollout 1, and `x` has 2: columns of the list `turn` have equal lengths",
        "column `a` is 2 at rollout 1 of group 0: it should be one of 0, 1",
    ]
    nested["y"] = [[1], [None, "3"]]
    assert outcome(fn, nested, 2) == "column `x` is [3] at turn 1 of rollout 1: it should hold one number for each turn"
    nested |= {"a": [1, 0], "x": [[1], [2, 3]]}
    assert outcome(fn, nested, 2) == "column `y` is '3' at turn 1 of rollout 1 of group 0: it should hold numbers"
    assert outcome(fn, {"x": [None, 1], "y": "ab"}, 2).splitlines() == [
        "column `x` is None at rollout 0: it should be a list (and 1 more)",
        "column `y` is 'ab' at rollout 0: it should be a list",
        "column `a` is missing",
        "the given columns are `x`, `y`",
    ]


@pytest.mark.parametrize(
    "lengths", [{"turn": [-1, 3]}, {"turn": [2**62, 2**62]}, {"turns": [1, 1]}, "turn", {"turn": 2}]
)
def test_what_is_wrong_with_lengths_is_not_held_against_columns(lengths):
    found = outcome(made(TURNS), {"a": [1, 0], "x": [1, 2], "y": [1, 2]}, 2, lengths=lengths)
    assert isinstance(found, str) and found.startswith("lengths") and len(found.splitlines()) == 1


def test_what_pandas_calls_missing_is_missing():
    pandas = pytest.importorskip("pandas")
    fn = made(PLAIN.replace("b: {range: [0, 1]", "b: {range: [0, 1], missing: ignore"))
    wanted = outcome(fn, {**GOOD, "b": [0.5, None, 0.1, 0.9]}, 2)
    for given in (pandas.array([0.5, None, 0.1, 0.9], dtype="Float64"), [0.5, pandas.NA, 0.1, 0.9]):
        assert torch.allclose(outcome(fn, {**GOOD, "b": given}, 2).float(), wanted, atol=1e-6)
    turns = made(TURNS.replace("y: {range: [0, 9]", "y: {range: [0, 9], missing: ignore"))
    lists = {"a": [1, 0], "x": [[1, 2], []], "y": [pandas.array([1, None], dtype="Int64"), []]}
    assert outcome(turns, lists, 2).tolist() == [2, 0]
    text = "rewardspec: 1\nsignals: {k: {values: [x, y], missing: ignore}}\n"
    named = made(text + "components: {a: {values: [0, 1], when: k == x}}\nadvantage: a\n")
    assert outcome(named, {"a": [1, 1], "k": pandas.array(["x", None], dtype="string")}, 2).tolist() == [1, 0]


def test_a_name_that_is_nan_is_missing():
    """As in a data frame."""
    fn = made(
        "rewardspec: 1\nsignals: {k: {values: [x, y]}}\ncomponents: {a: {values: [0, 1], when: k == x}}\nadvantage: a"
    )
    message = "column `k` is missing at rollout 1 of group 0: it should be one of x, y"
    assert outcome(fn, {"a": [1, 0], "k": ["x", float("nan")]}, 2) == message


@pytest.mark.parametrize("what", ["step", "total_steps", "seed"])
def test_any_moment(what):
    fn = made(f"{TWO}, c: progress * b + step / total_steps}}\nkeep: var(a) > 0\nrefill: var(a)\nadvantage: gdpo\n")
    for name, value in MOMENTS.items():
        found = outcome(fn, GOOD, 2, **{"step": 1, "total_steps": 3, "seed": 0, what: value})
        if name in ("text", "nan", "inf", "list", "vector", "complex", "meta"):
            assert isinstance(found, str) and what in found, name


def test_arrays_are_the_numbers_they_hold():
    fn, given = made(PLAIN), columns()
    wanted = outcome(fn, GOOD, 2)
    for name in (
        "every other",
        "array of g",
        "array of u8",
        "array of >f4",
        "array of >i2",
        "array of f2",
        "array of O",
    ):
        assert torch.allclose(outcome(fn, {**GOOD, "a": given[name]}, 2).float(), wanted, atol=1e-6), name
    assert torch.equal(outcome(fn, {**GOOD, "a": np.array([0, 1, 0, 1])[::-1]}, 2), wanted)


LARGE = [
    "max(t, 1e39)", "min(-t, -1e39)", "t + 1e39", "1e39 if a else t", "1e300 - t", "t * 1e39", "t / 1e300",
    "t if step < 30 else 1e300", "max(t, 1e39) / 1e39",
]  # fmt: skip


@pytest.mark.parametrize("expression", LARGE)
def test_number_that_float32_cannot_hold_is_refused_with_a_way_out(expression):
    fn = made(f"{TWO}, c: '{expression}'}}\nadvantage: grpo\n")
    with pytest.raises(
        fn.RolloutError, match=r"the spec contains 1e\+3.* more than float32 can hold: pass a float64 column"
    ):
        fn(GOOD, 2, step=1)
    wide = {**GOOD, "t": torch.tensor(GOOD["t"], dtype=torch.float64)}
    found = outcome(fn, wide, 2, step=1)
    assert isinstance(found, torch.Tensor) and found.dtype is torch.float64


@pytest.mark.parametrize("domain", ["values: [0, 1e39]", "range: [-1e300, 1e300]", "range: [0, 1e39], outside: clip"])
def test_domain_that_float32_cannot_hold(domain):
    fn = made(f"{TWO}, c: {{{domain}}}}}\nadvantage: grpo\n")
    for c in ([0, 1e39, 0, 1e39], [0.0, 1e38, 1e38, 0], torch.tensor([0, 1e39, 0, 1e39])):
        outcome(fn, {**GOOD, "c": c}, 2)
    wide = outcome(fn, {**GOOD, "c": torch.tensor([0, 1e39, 0, 1e39], dtype=torch.float64)}, 2)
    assert torch.allclose(wide, torch.tensor([-0.7071, 0.7071] * 2, dtype=torch.float64), atol=1e-4)


def test_scale_that_outgrows_float32_is_refused():
    scale = 'scale: [0, "1 if step < 30 else 1e300"]'
    fn = made(f"{TWO}, c: {{range: [0, 1], {scale}}}}}\nadvantage: grpo\n")
    with pytest.raises(fn.RolloutError, match="1e\\+300"):
        fn({**GOOD, "c": [0, 1, 0, 1]}, 2, step=31)


@pytest.mark.parametrize("scheme", ["gdpo", "grpo", "batch_grpo", "rank(total)", "reinforce_baseline"])
def test_lists_do_not_need_a_device_that_holds_values(scheme):
    """Under `torch.device("meta")`, as when a model is laid out before it is loaded."""
    text = f"""rewardspec: 1
signals: {{k: {{values: [x, y]}}}}
components: {{a: {{values: [0, 1]}}, b: {{range: [0, 1], missing: ignore}}, c: k == x}}
keep: var(a) >= 0
advantage: {scheme}
"""
    given = {"a": [1, 0, 1, 0], "b": [0.5, None, 0.1, 0.9], "k": ["x", "y", "y", "y"]}
    fn = made(text)
    for groups in (2, list("xyxy"), list("xyyy"), torch.tensor([1, 2, 1, 2])):
        plain = fn(given, groups)
        with torch.device("meta"):
            found = fn(given, groups)
            assert found.metrics() == plain.metrics()
            assert torch.equal(found.advantages, plain.advantages)
            assert all(
                torch.equal(found.rewards[name].nan_to_num(9), plain.rewards[name].nan_to_num(9)) for name in "abc"
            )


def test_groups_are_drawn_without_a_device_that_holds_values():
    fn = made(f"{TWO}}}\nkeep: var(a) > 0\nrefill: var(a)\nadvantage: gdpo\n")
    given = {"a": [1, 0, 1, 1], "b": [0.5, 0.2, 0.1, 0.9]}
    plain = fn(given, 2, step=1)
    with torch.device("meta"):
        found = fn(given, 2, step=1)
        assert torch.equal(found.copies, plain.copies) and torch.equal(found.refilled[0], plain.refilled[0])


@pytest.mark.slow
def test_many_groups_need_no_default_device():
    fn = made(PLAIN)
    n = 2**17
    given = {"a": [0, 1] * n, "b": [0.5, 0.25] * n}
    plain = fn(given, 2)
    with torch.device("meta"):
        assert torch.equal(fn(given, 2).advantages, plain.advantages)


def test_mapping_of_any_kind_is_read():
    fn = made(PLAIN)
    assert torch.equal(fn(types.MappingProxyType(GOOD), 2).advantages, fn(GOOD, 2).advantages)


@pytest.mark.slow
def test_recursion_limit_is_put_back_after_loads_in_several_threads():
    text, before, failures = PLAIN, sys.getrecursionlimit(), []

    def load():
        try:
            for _ in range(10):
                rewardspec.loads(text).python  # noqa: B018
        except Exception as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=load) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures and sys.getrecursionlimit() == before


def test_deep_spec_loads_while_another_thread_finishes():
    """Who ends first must not take the room of who is still at it."""
    from rewardspec.ir.stack import deep_stack

    before = sys.getrecursionlimit()
    with deep_stack():
        raised = sys.getrecursionlimit()
        with deep_stack():
            pass
        other = threading.Thread(target=lambda: rewardspec.loads(PLAIN))
        other.start()
        other.join()
        assert sys.getrecursionlimit() == raised > before
    assert sys.getrecursionlimit() == before
