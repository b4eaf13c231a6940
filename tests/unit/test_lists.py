"""Lists inside a rollout: the compiled function against loops over rollouts and items."""

import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rewardspec

SPEC = """rewardspec: 1
name: turns
lists: {turn: {ordered: true}}
signals:
  called: {values: [0, 1], level: turn}
  cost: {range: [-2, 2], level: turn, missing: ignore}
components:
  outcome: {range: [0, 1]}
  tool: {expr: called, weight: 0.5}
"""


def compiled(advantage, text=SPEC):
    return rewardspec.compile(rewardspec.loads(f"{text}advantage: {advantage}\n"))


numbers = st.integers(-8, 8).map(lambda n: n / 4)
rollouts = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.one_of(st.none(), numbers)), max_size=4)


@st.composite
def batches(draw):
    """Columns, and a group for each rollout, in any order."""
    lists = draw(st.lists(rollouts, min_size=1, max_size=9))
    groups = draw(st.lists(st.integers(0, 3), min_size=len(lists), max_size=len(lists)))
    outcome = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(lists), max_size=len(lists)))
    columns = {
        "outcome": outcome,
        "called": [[a for a, _ in r] for r in lists],
        "cost": [[b for _, b in r] for r in lists],
    }
    return columns, groups


def present(values):
    return [v for v in values if v is not None]


def reductions(columns, groups):
    """Each expression and its value at every item, by loops."""
    costs, n = columns["cost"], len(groups)
    own = [sum(present(c)) for c in costs]
    pooled = [present([v for j in range(n) if groups[j] == groups[i] for v in costs[j]]) for i in range(n)]
    everything = present([v for c in costs for v in c])
    mean = lambda values: sum(values) / len(values) if values else 0.0  # noqa: E731
    at_place = lambda i, k: mean(  # noqa: E731
        present([costs[j][k] for j in range(n) if groups[j] == groups[i] and k < len(costs[j])])
    )
    of_items = {
        "sum(cost, over=rollout)": lambda i, k: own[i],
        "coalesce(mean(cost), 0)": lambda i, k: mean(pooled[i]),
        "coalesce(mean(cost, over=batch), 0)": lambda i, k: mean(everything),
        "coalesce(mean(cost, by=position), 0)": at_place,
        "count(cost, over=rollout)": lambda i, k: len(present(costs[i])),
        "coalesce(max(cost, over=rollout), -9)": lambda i, k: max(present(costs[i]), default=-9),
        "position": lambda i, k: k + 1,
        "coalesce(before(cost), 7)": lambda i, k: 7 if k == 0 or costs[i][k - 1] is None else costs[i][k - 1],
        "coalesce(after(cost), 7)": lambda i, k: (
            7 if k + 1 == len(costs[i]) or costs[i][k + 1] is None else costs[i][k + 1]
        ),
        "so_far(cost)": lambda i, k: sum(present(costs[i][: k + 1])),
        "returns(cost)": lambda i, k: sum(present(costs[i][k:])),
        "returns(cost, 0.5)": lambda i, k: sum(0.5**d * v for d, v in enumerate(costs[i][k:]) if v is not None),
        "outcome": lambda i, k: columns["outcome"][i],
        "mean(sum(called, over=rollout))": lambda i, k: mean(
            [sum(columns["called"][j]) for j in range(n) if groups[j] == groups[i]]
        ),
    }
    return {text: [[of(i, k) for k in range(len(costs[i]))] for i in range(n)] for text, of in of_items.items()}


EXPRESSIONS = tuple(reductions({"outcome": [0.0], "called": [[0.0]], "cost": [[0.0]]}, [0]))
FUNCTIONS = {text: compiled(f"{text} + 0 * called") for text in EXPRESSIONS}


@pytest.mark.slow
@settings(deadline=None, max_examples=60, derandomize=True, database=None)
@given(batches())
def test_every_reduction_and_place_is_a_loop(batch):
    columns, groups = batch
    for text, expected in reductions(columns, groups).items():
        out = FUNCTIONS[text](columns, groups)
        assert out.lengths["turn"].tolist() == [len(c) for c in columns["cost"]]
        for found, wanted in zip(out.nested(), expected, strict=True):
            assert found == pytest.approx(wanted, abs=1e-6), text


DECOUPLED = compiled("decoupled")


def zscores(values, groups):
    """z-scores of nested values, pooled by group."""
    result = []
    for i, row in enumerate(values):
        pool = [v for j, other in enumerate(values) if groups[j] == groups[i] for v in other]
        std = np.std(pool, ddof=1) if len(pool) > 1 and max(pool) > min(pool) else 0.0
        result.append([(v - np.mean(pool)) / (std + 1e-6) if std else 0.0 for v in row])
    return result


@pytest.mark.slow
@settings(deadline=None, max_examples=60, derandomize=True, database=None)
@given(batches())
def test_decoupled_normalises_each_component_at_its_own_level(batch):
    columns, groups = batch
    out = DECOUPLED(columns, groups)
    outcome = zscores([[v] for v in columns["outcome"]], groups)
    tool = zscores(columns["called"], groups)
    expected = [[outcome[i][0] + 0.5 * v for v in row] for i, row in enumerate(tool)]
    for found, wanted in zip(out.nested(), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-5)
    assert torch.allclose(sum(out.shares.values()), out.advantages, atol=1e-6)
    assert out.rewards["outcome"].shape == (len(groups),)
    assert out.rewards["tool"].tolist() == [v for row in columns["called"] for v in row]
    dead = [all(abs(v) < 1e-9 for v in row) for row in expected]
    assert out.metrics()["rollouts_without_signal"] == pytest.approx(sum(dead) / len(dead))
    again = pickle.loads(pickle.dumps(out))
    assert torch.equal(again.advantages, out.advantages) and again.metrics() == pytest.approx(
        out.metrics(), nan_ok=True
    )


def test_columns_can_be_nested_or_flat():
    lists = {"called": [[1, 0], [], [0], [1, 1, 0]], "cost": [[0.5, None], [], [1], [0, 0, 2]]}
    outcome = [1, 0, 0.5, 1]
    nested = DECOUPLED({"outcome": outcome, **lists}, 2)
    called = torch.tensor([1.0, 0, 0, 1, 1, 0])
    flat = DECOUPLED({"outcome": outcome, "called": called}, 2, lengths={"turn": [2, 0, 1, 3]})
    ragged = [torch.tensor(row, dtype=torch.float32) for row in lists["called"]]
    tensors = DECOUPLED({"outcome": outcome, "called": torch.nested.nested_tensor(ragged, layout=torch.jagged)}, 2)
    arrays = DECOUPLED({"outcome": outcome, "called": [np.array(row) for row in lists["called"]]}, 2)
    for other in (flat, tensors, arrays):
        assert torch.allclose(other.advantages, nested.advantages)


@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("of", [np.array, torch.tensor])
def test_lists_that_are_arrays_keep_their_type(kind, of):
    rows, dtype = [[0.1, 0.2], [], [0.4]], getattr(torch, kind)
    fn = compiled("cost - mean(cost) + 0 * called")
    kinds = {"dtype": getattr(np if of is np.array else torch, kind)}
    for lists in ([of(row, **kinds) for row in rows], [of(row, **kinds) if row else row for row in rows]):
        columns = {"cost": lists, "called": [[0, 1], [], [1]], "outcome": [0, 1, 1]}
        assert fn(columns, groups=3).advantages.dtype is dtype


def test_a_batch_without_items():
    out = DECOUPLED({"outcome": [1, 0], "called": [[], []]}, 2)
    assert out.advantages.shape == (0,) and out.nested() == [[], []]
    assert out.metrics()["rollouts_without_signal"] == 1
    fn = compiled("outcome - mean(outcome) + coalesce(mean(tool, over=batch), 5)")
    assert fn({"outcome": [1, 0], "called": [[], []]}, 2).advantages.tolist() == [5.5, 4.5]


@pytest.mark.parametrize(
    "columns, lengths, words",
    [
        ({"called": [[1], 0]}, None, "column `called` is 0 at rollout 1: it should be a list"),
        ({"called": [[1], None]}, None, "column `called` is None at rollout 1"),
        ({"called": [1, 0]}, {"turn": [1, 2]}, "column `called` has 2 values, and `lengths of turn` adds up to 3"),
        ({"called": [1, 0]}, {"turns": [1, 1]}, "the spec has no list 'turns', its lists are turn"),
        ({"called": [1, 0]}, {"turn": [1, 0.5]}, "it should hold N whole numbers from 0"),
        (
            {"called": [[1, 2], [0]]},
            None,
            "column `called` is 2 at turn 1 of rollout 0 of group 0: it should be one of 0, 1",
        ),
        ({"called": [[1, 0], [0]]}, {"turn": [2, 2]}, "`called` has 1 items at rollout 1, and `lengths of turn` has 2"),
        ({"called": [[1, 0], [0], [1]]}, None, "column `called` has 3 values for 2 group ids"),
        ({}, None, "column `called` is missing"),
    ],
)
def test_errors_name_the_rollout_and_both_counts(columns, lengths, words):
    with pytest.raises(DECOUPLED.RolloutError) as error:
        DECOUPLED({"outcome": [1, 0], **columns}, [0, 0], lengths=lengths)
    assert words in str(error.value)


def test_a_spec_without_lists_takes_no_lengths():
    fn = rewardspec.compile(rewardspec.loads("rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\n"))
    with pytest.raises(ValueError, match="the spec has no lists"):
        fn({"a": [1, 0]}, 2, lengths={"turn": [1, 1]})


def test_an_item_is_named_in_interleaved_groups():
    fn = compiled("tool / cost")
    columns = {"outcome": [1, 0], "called": [[1, 1], [0, 1, 1]], "cost": [[1, 1], [1, 1, 0]]}
    with pytest.raises(ValueError, match="at turn 2 of rollout 1 of group 'p'"):
        fn({name: values * 2 for name, values in columns.items()}, ["q", "p", "q", "p"])
    columns["called"][1][2] = 7
    with pytest.raises(ValueError, match="column `called` is 7 at turn 2 of rollout 1 of group 'p'"):
        fn({name: values * 2 for name, values in columns.items()}, ["q", "p", "q", "p"])


def test_lengths_of_a_list_that_nothing_reads_are_ignored():
    text = SPEC.replace("lists: {turn: {ordered: true}}", "lists:\n  turn: {ordered: true}\n  criterion: {}")
    columns, lengths = {"outcome": [1, 0], "called": [1, 0, 1]}, {"turn": [1, 2], "criterion": [5, 0]}
    assert compiled("decoupled", text)(columns, 2, lengths=lengths).advantages.shape == (3,)


def test_gamma_is_given_by_name_or_by_place():
    columns = {"outcome": [1, 0], "called": [[1, 0, 1], []]}
    for expression in ("returns(called, 0.5)", "returns(called, gamma=0.5)", "returns(called, gamma=1 / 2)"):
        assert compiled(expression)(columns, 2).advantages.tolist() == [1.25, 0.5, 1]
    for expression in ("returns(called, 0.5, gamma=0.5)", "returns(called, gama=0.5)", "before(called, gamma=0.5)"):
        with pytest.raises(rewardspec.SpecError):
            compiled(expression)


def test_a_list_with_an_item_has_a_mean():
    fn = compiled("called + (abs(center(2 if position > 0 else 0, over=batch)) + 0.5) ** -1")
    assert fn({"outcome": [1, 0], "called": [[1, 0], []]}, 2).advantages.tolist() == [3, 2]


def test_ids_that_are_tuples_can_be_flat():
    text = SPEC.replace("signals:", "signals:\n  place: {id: true, level: turn}")
    fn = compiled("called - mean(called, over=rollout, by=place)", text)
    columns, lengths = {"outcome": [1, 0], "called": [1, 0, 1]}, {"turn": [1, 2]}
    for place in ([3, ("e", 1), ("e", 1)], [("e", 1)] * 3, [[3], [("e", 1)] * 2], [(3,), ("e", "e")]):
        out = fn(columns | {"place": place}, 2, lengths=lengths)
        assert out.advantages.tolist() == [0, -0.5, 0.5]
    even = {"outcome": [1, 0], "called": [1, 0, 1, 1], "place": ["p", ("e", 1), ("e", 1), "p"]}
    assert fn(even, 2, lengths={"turn": [2, 2]}).advantages.tolist() == [0, 0, 0, 0]
    none = {"outcome": [1, 0], "called": [], "place": []}
    assert fn(none, 2, lengths={"turn": [0, 0]}).advantages.tolist() == []


GAINS = """rewardspec: 1
lists: {turn: {ordered: true}}
signals: {gained: {range: [-1, 1], level: turn}}
components: {correct: {values: [0, 1]}}
"""


def test_the_worked_examples_of_the_findings_about_turns():
    """baseline-depends-on-stopping and long-rollouts-outweigh: the numbers on their pages."""

    def advantages(expression, gained):
        return compiled(expression, GAINS)({"correct": [0] * len(gained), "gained": gained}, len(gained)).nested()

    stopping = [[1], [1], [1, -1], [1, -1]]
    assert advantages("center(gained, by=position)", stopping) == [[0], [0], [0, 0], [0, 0]]
    instead = advantages("returns(gained) - mean(sum(gained, over=rollout))", stopping)
    assert instead == [[0.5], [0.5], [-0.5, -1.5], [-0.5, -1.5]]
    uneven = [[1, 1], [0] * 12]
    assert [row[0] for row in advantages("center(gained)", uneven)] == pytest.approx([0.86, -0.14], abs=0.005)
    assert [row[0] for row in advantages("gained - mean(mean(gained, over=rollout))", uneven)] == [0.5, -0.5]


SUMMED = """rewardspec: 1
lists: {turn: {}}
signals:
  x: {range: [-.inf, .inf], level: turn, missing: ignore}
  y: {range: [-.inf, .inf], level: turn}
  c: {values: [0, 1], level: turn}
components: {correct: {values: [0, 1]}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("function", ["center", "loo", "zscore"])
@pytest.mark.parametrize("options", ["", ", where=c > 0", ", by=c", ", over=rollout", ", over=batch"])
def test_items_that_differ_by_rounding_have_no_spread(function, options):
    # x + y is 0.7 up to rounding, where x was measured
    items = {"x": [[0.1, 0.7, math.nan], [0.6, 0.3]], "y": [[0.6, 0.0, 0.25], [0.1, 0.4]], "c": [[1, 1, 0], [0, 1]]}
    fn = compiled(f"coalesce({function}(x + y{options}), 0)", SUMMED)
    assert fn({"correct": [0, 1], **items}, 2).advantages.tolist() == [0] * 5


@pytest.mark.parametrize("gate", ["position >= 1", "called >= 0", "called >= 1"])
@pytest.mark.parametrize("value", ["x", "log(x)", "log(x) + late", "1 / (x * x) - late"])
def test_a_gate_of_items_selects_nothing_in_a_rollout_without_items(gate, value):
    """Whether or not the domains alone decide it."""
    text = """rewardspec: 1
lists: {turn: {}}
signals: {called: {values: [0, 1], level: turn}, x: {values: [0, 1]}}
components:
  late: {values: [0, 1], when: "%s", otherwise: 0}
  e: {expr: "%s", when: "%s", otherwise: 0}
advantage: decoupled
"""
    fn = rewardspec.compile(rewardspec.loads(text % (gate, value, gate)))
    columns = {"late": [1, None], "called": [[1, 1], []], "x": [1, 0]}
    out = fn(columns, groups=2, lengths={"turn": [2, 0]})
    assert out.nested() == [[0, 0], []]
    with pytest.raises(ValueError, match=r"`late` is missing at .*rollout 1"):
        fn(columns | {"called": [[], [1, 1]]}, groups=2, lengths={"turn": [0, 2]})


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_an_infinite_value_stays_in_its_list(kind):
    columns = {"correct": torch.zeros(2, dtype=kind), "gained": torch.tensor([-1, 1, 0, 0, 1, -1], dtype=kind)}
    for of_items, expected in (
        ("returns({})", [[5, 5, 2, 1], [5, 0]]),
        ("returns({}, 0.5)", [[5, 5, 1.5, 1], [5, 0]]),
        ("so_far({})", [[0, 5, 5, 5], [5, 5]]),
    ):
        fn = compiled(f"clip({of_items.format('exp(1000 * gained)')}, 0, 5)", GAINS)  # exp(1000) is infinite
        assert fn(columns, 2, lengths={"turn": [4, 2]}).nested() == expected, of_items


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", ["", ", by=c", ", where=c > 0", ", over=rollout", ", over=batch"])
def test_equal_items_have_no_spread_and_columns_are_not_written_to(kind, options):
    text, draw = SUMMED.replace("turn: {}", "turn: {ordered: true}"), torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 60, (64,), generator=draw)
    turns = int(lengths.sum())
    for value in (0.1, 16777215.0, 1 / 3, 1e-30, -1e30):
        columns = {
            "correct": torch.zeros(64, dtype=kind),
            "x": torch.full((turns,), value, dtype=kind),
            "y": torch.zeros(turns, dtype=kind),
            "c": torch.randint(0, 2, (turns,), generator=draw),
        }
        kept = {name: x.clone() for name, x in columns.items()}
        for function in ("center", "zscore"):
            fn = compiled(f"coalesce({function}(x{options}), 0) + 0 * so_far(y) * returns(y)", text)
            for groups in (8, torch.arange(64) % 5):
                assert not fn(columns, groups, lengths={"turn": lengths}).advantages.any(), value
        assert all(torch.equal(x, kept[name]) for name, x in columns.items())


@pytest.mark.parametrize("keys", ["", ", when: correct >= 1"])
def test_gated_column_of_items_has_the_kernel_of_a_zscore(keys):
    spec = rewardspec.loads(
        "rewardspec: 1\nlists: {turn: {ordered: true}}\n"
        f"components: {{correct: {{values: [0, 1]}}, tool: {{values: [0, 1], level: turn{keys}}}}}\n"
        "advantage: decoupled\n"
    )
    body = spec.python.partition("# The runtime")[0]
    assert "segment_zscore" in body
    assert "segment_std" not in body


def test_an_undefined_value_can_be_asked_for_by_items_of_two_lists():
    fn = rewardspec.compile(
        rewardspec.loads("""
rewardspec: 1
lists: {turn: {ordered: true}, criterion: {}}
signals:
  x: {range: [-1, 1]}
  met: {values: [0, 1], level: turn}
  fits: {values: [0, 1], level: criterion}
components:
  a: {expr: "1 / x if met > 0 else 0"}
  b: {expr: "sum(1 / x if fits > 0 else 0, over=rollout)"}
advantage: a + b
""")
    )
    none, one = [[0], []], [[1], []]
    assert fn({"x": [0, 1], "met": none, "fits": none}, [0, 0]).nested() == [[0.0], []]
    for met, fits in ((one, none), (none, one)):
        with pytest.raises(ValueError, match="`1 / x` is a division by 0 at rollout 0 of group 0"):
            fn({"x": [0, 1], "met": met, "fits": fits}, [0, 0])
    assert fn({"x": [1, 0], "met": one, "fits": one}, [0, 0]).nested() == [[2.0], []]
