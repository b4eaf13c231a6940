"""What a policy's groups are left with: against sums by hand, brute force and the compiled function."""

import json
import math
import subprocess
import sys
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb

import numpy as np
import pytest
from commands_in_process import run
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ, SPECS

import rewardspec
from rewardspec.groups.batch import without_batch
from rewardspec.groups.points import column_points
from rewardspec.groups.rates import binary_names, policy, read_rates
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.prove.growth import Vectors, add, vectors
from rewardspec.prove.replay import BadLog, read_log, replay
from rewardspec.prove.simulate import count_groups

ORM = rewardspec.load(SPECS / "papo/orm.yaml").program
MATH = rewardspec.load(SPECS / "gdpo/math.yaml")
CONDITIONED = rewardspec.load(SPECS / "gdpo/math_conditioned.yaml")


# Growing sums


@st.composite
def parts(draw):
    """Two sets of vectors as a part has them: all orders of them, with probabilities."""
    size = draw(st.integers(1, 4))
    values = st.lists(
        st.sampled_from([Fraction(0), Fraction(1), Fraction(-1, 2), Fraction(2)]), min_size=size, max_size=size
    )
    return [draw(st.lists(values, min_size=1, max_size=4)) for _ in range(2)]


@pytest.mark.slow
@given(parts())
def test_sums_are_those_of_all_orders(drawn):
    a, b = (vectors((v, 1 / len(part)) for v in part) for part in drawn)
    found = add(a, b)
    size = len(drawn[0][0])

    def orders(part):
        """Every order of each vector, each as likely as any other."""
        from itertools import permutations

        rows = {}
        for v in part:
            for order in permutations(range(size)):
                key = tuple(v[i] for i in order)
                rows[key] = rows.get(key, 0) + 1 / len(part) / math.factorial(size)
        return rows

    expected = {}
    for (x, p), (y, q) in product(orders(drawn[0]).items(), orders(drawn[1]).items()):
        key = tuple(sorted(i + j for i, j in zip(x, y, strict=True)))
        expected[key] = expected.get(key, 0) + p * q
    actual = {tuple(sorted(found.values[i] for i in row)): m for row, m in zip(found.rows, found.mass, strict=True)}
    assert set(actual) == set(expected)
    for key, mass in expected.items():
        assert actual[key] == pytest.approx(mass)
    assert isinstance(found, Vectors)


@st.composite
def specs(draw):
    """A spec of two or three components with gates, and the number of rollouts to count groups of."""
    domains = [draw(st.sampled_from([[0, 1], [0, 0.5, 1], [-1, 0, 2]])) for _ in range(draw(st.integers(2, 3)))]
    lines = []
    for i, values in enumerate(domains):
        weight = draw(st.sampled_from(["1", "0.5", "1/3", "3"]))
        gate = (
            draw(st.sampled_from(["", ", when: c0 >= 1, otherwise: 0", ", when: c0 >= 1, otherwise: ignore"]))
            if i
            else ""
        )
        lines.append(f"  c{i}: {{values: {values}, weight: {weight}{gate}}}\n")
    scheme = draw(
        st.sampled_from(["grpo", "dr_grpo", "decoupled", "gdpo", "rloo", "batch_grpo", "zscore(c0) + center(c1)"])
    )
    return "rewardspec: 1\ncomponents:\n" + "".join(lines) + f"advantage: {scheme}\n", draw(st.integers(1, 3))


def enumerated(program, size):
    """Distinct advantage and reward groups, dead groups and rollouts, by trying every group of columns."""
    root, _ = without_batch(program.graph, program.advantage)
    shaped = [c.shaped for c in program.components]
    points, _, _ = column_points(program, [root, *shaped], size)
    columns = list(points)
    states = list(product(*(list(p) for p in points.values())))
    advantage = GroupEvaluator(root, columns, {})
    rewards = [GroupEvaluator(node, columns, {}) for node in shaped]
    seen, seen_rewards, dead, zero = set(), set(), 0.0, 0.0
    for members in combinations_with_replacement(range(len(states)), size):
        counts = [members.count(i) for i in set(members)]
        mass = math.factorial(size) / math.prod(map(math.factorial, counts)) / len(states) ** size
        rows = [states[i] for i in members]
        values = advantage(rows, {})
        key = frozenset((v, values.count(v)) for v in values)
        seen.add(key)
        made = list(zip(*(r(rows, {}) for r in rewards), strict=True))
        seen_rewards.add(frozenset((v, made.count(v)) for v in made))
        dead += mass * (len(set(values)) == 1)
        zero += mass * sum(v == 0 for v in values) / size
    return len(seen), len(seen_rewards), dead, zero


@pytest.mark.slow
@settings(max_examples=25 * FUZZ)
@given(specs())
def test_counts_and_signal_are_those_of_brute_force(drawn):
    text, size = drawn
    program = rewardspec.loads(text).program
    groups, rewards, dead, zero = enumerated(program, size)
    count = count_groups(program, "", size)
    assert count.exact
    assert (count.advantage_groups, count.reward_groups) == (groups, rewards)
    assert count.signal.groups_without_signal == pytest.approx(dead)
    assert count.signal.rollouts_without_signal == pytest.approx(zero)
    if count.signal.shares:
        assert sum(count.signal.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("advantage", ["dr_grpo", "total - mean(total)", "0.1 + 0 * total"])
def test_an_advantage_that_does_not_vary_has_no_shares(advantage):
    """1/3 is rounded, and so is the variance of a lone rollout's advantages; 0% of each would be a claim."""
    text = f"""rewardspec: 1
components:
  a: {{values: [0, 1]}}
  b: {{values: [0, 1], weight: 1/3, when: a >= 1, otherwise: 0}}
advantage: {advantage}
"""
    assert count_groups(rewardspec.loads(text).program, "", 1).signal.shares is None


def test_kinds_of_groups_overlap():
    text = """rewardspec: 1
signals: {hard: {values: [0, 1], level: group}}
components:
  a: {values: [0, 1]}
  b: {expr: a, when: hard == 1}
advantage: grpo
"""
    count = count_groups(rewardspec.loads(text).program, "", 3)
    # hard: (0,0) (1,1); not: (0,0) (1,0): 4 multisets each, of which (0,0) three times is both
    assert (count.reward_groups, count.exact) == (7, True)


# A policy


@pytest.mark.parametrize("p", [0, 0.1, 0.5, 0.9, 1])
def test_dead_groups_of_one_binary_reward(p):
    for size in (1, 4, 8):
        signal = count_groups(ORM, "", size, model=policy(ORM, {"outcome": p})).signal
        expected = p**size + (1 - p) ** size if size > 1 else 1
        assert signal.groups_without_signal == pytest.approx(expected)
        assert signal.rollouts_without_signal == pytest.approx(expected)


def test_spread_of_two_rollouts():
    """z-scores of 0 and 1 are 1.4142 apart; half of the groups have that."""
    assert count_groups(ORM, "", 2).signal.spread == pytest.approx(0.5 * math.sqrt(2))


def test_independent_rewards_multiply():
    model = policy(MATH.program, {"correct": 0.3, "length": 0.8})
    signal = count_groups(MATH.program, "", 4, model=model).signal
    alike = [0.3**4 + 0.7**4, 0.8**4 + 0.2**4]
    # both alike, or the length the very reverse of the answer: then the two z-scores cancel
    reverse = sum(comb(4, k) * 0.3**k * 0.7 ** (4 - k) * 0.2**k * 0.8 ** (4 - k) for k in range(1, 4))
    assert signal.groups_without_signal == pytest.approx(alike[0] * alike[1] + reverse)
    shares = np.array([1 - alike[0], 1 - alike[1]])
    assert list(signal.shares.values()) == pytest.approx(shares / shares.sum())


@pytest.mark.parametrize("spec", [MATH, CONDITIONED], ids=["math", "conditioned"])
def test_signal_is_what_the_compiled_function_gives(spec):
    rng = np.random.default_rng(0)
    n = 4 * 30_000
    columns = {"correct": (rng.random(n) < 0.3).astype(float), "tokens": np.where(rng.random(n) < 0.8, 100.0, 9000.0)}
    model = policy(spec.program, {"correct": 0.3, "length": 0.8})
    signal = count_groups(spec.program, "", 4, model=model).signal
    out = rewardspec.compile(rewardspec.loads(spec.source.text, advantage="decoupled"))(columns, 4)
    found = out.metrics()
    assert signal.groups_without_signal == pytest.approx(found["groups_without_signal"], abs=0.01)
    assert signal.rollouts_without_signal == pytest.approx(found["rollouts_without_signal"], abs=0.01)
    assert signal.spread == pytest.approx(found["advantage_spread"], abs=0.02)
    variance = float((out.advantages**2).mean())
    for name, share in signal.shares.items():
        assert share == pytest.approx(float((out.shares[name] * out.advantages).mean()) / variance, abs=0.01)


def test_rates_of_columns_and_components():
    assert read_rates("correct=0.3, length=1/4") == {"correct": Fraction(3, 10), "length": Fraction(1, 4)}
    assert binary_names(CONDITIONED.program) == ["correct", "length"]
    assert binary_names(rewardspec.load(SPECS / "vspo/vspo.yaml").program) == ["format"]
    model = policy(CONDITIONED.program, {"length": 0.8})
    assert sum(p for value, p in model.odds["tokens"].items() if value <= 4000) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("correct", "rates are written"),
        ("correct=2", "each from 0 to 1"),
        ("correct=x", "rates are written"),
        ("correct=1/0", "rates are written"),
        ("correct=0.1,correct=0.2", "two rates"),
        ("corect=0.1", "did you mean `correct`"),
        ("tokens=0.1,length=0.2", "second rate of the column `tokens`"),
    ],
)
def test_rates_that_say_nothing(text, message):
    with pytest.raises(ValueError, match=message):
        policy(MATH.program, read_rates(text))
    with pytest.raises(ValueError, match="has 3 values"):
        program = rewardspec.load(SPECS / "papo/prm.yaml").program
        policy(program, {"process": 0.5})


# Logs


ROWS = [
    {"step": s, "prompt": f"q{q}", "completion": "...", "correct": c, "tokens": t, "advantage": 0.0}
    for s in (0, 1)
    for q, group in enumerate([[(1, 10), (0, 10)], [(1, 10), (1, 9000)], [(0, 10), (0, 10)]])
    for c, t in group
]


def written(path, rows):
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["log.jsonl", "log.parquet"])
def test_log_of_a_trainer(tmp_path, name):
    found = replay(MATH, read_log(written(tmp_path / name, ROWS), MATH))
    assert (found.rollouts, found.groups, found.steps) == (12, 6, 2)
    assert found.signal.groups_without_signal == pytest.approx(1 / 3)
    assert found.signal.rollouts_without_signal == pytest.approx(1 / 3)
    assert sum(found.signal.shares.values()) == pytest.approx(1)


def test_log_in_verls_way(tmp_path):
    rows = [
        {
            "input": r["prompt"],
            "output": "",
            "score": 0,
            "step": r["step"],
            "correct": r["correct"],
            "response_length": r["tokens"],
        }
        for r in ROWS
    ]
    nested = [
        {"prompt": r["prompt"], "step": r["step"], "rewards": {"correct": r["correct"]}, "tokens": r["tokens"]}
        for r in ROWS
    ]
    expected = replay(MATH, read_log(written(tmp_path / "a.jsonl", ROWS), MATH))
    assert replay(MATH, read_log(written(tmp_path / "b.jsonl", rows), MATH)) == expected
    assert replay(MATH, read_log(written(tmp_path / "c.jsonl", nested), MATH)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rollouts"),
        ("nonsense\n", ":1: not JSON"),
        ('{"prompt": 1}\n[1]\n', ":2: not a JSON object"),
        ('{"correct": 1, "tokens": 2}\n', "identifies groups"),
        ('{"prompt": 1, "corect": 1, "tokens": 2}\n', "no column `correct` .did you mean `corect`"),
    ],
)
def test_log_that_cannot_be_read(tmp_path, text, message):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(BadLog, match=message):
        read_log(path, MATH)


def test_log_with_values_that_the_spec_does_not_allow(tmp_path):
    path = written(tmp_path / "log.jsonl", [{**row, "correct": 2} for row in ROWS])
    with pytest.raises(BadLog, match="step 0: column `correct` is 2"):
        replay(MATH, read_log(path, MATH))


# The command


@pytest.mark.slow
def test_simulate_command(tmp_path):
    files = [SPECS / "gdpo/math.yaml", SPECS / "gdpo/math_conditioned.yaml"]
    done = run("simulate", *files, "-g", "4", "--p", "correct=0.3,length=0.8", "--sweep", "--plot", tmp_path / "f.png")
    assert done.returncode == 0, done.stderr
    assert "15.1%" in done.stdout
    assert "exact" in done.stdout
    assert "by success rate" in done.stdout
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    done = run("simulate", *files, "-g", "4", "--p", "correct=0.3", "--sweep", "--format", "json")
    found = json.loads(done.stdout)
    assert [row["exact"] for row in found["rows"]] == [True, True]
    assert len(found["sweep"]["gdpo-math"]) == 11
    log = written(tmp_path / "log.jsonl", ROWS)
    done = run("simulate", *files, "--rollouts", log)
    assert "33.3%" in done.stdout
    found = json.loads(
        run("simulate", files[0], "--rollouts", log, "--group-by", "completion", "--format", "json").stdout
    )
    assert found["rows"][0]["groups"] == 2
    for arguments, message in (
        (["--p", "x=0.5"], "no column or component `x`"),
        (["--rollouts", "none.jsonl"], "none.jsonl"),
    ):
        done = run("simulate", files[0], *arguments)
        assert done.returncode == 2
        assert message in done.stderr


@pytest.mark.slow
def test_interrupt_leaves_what_is_known(tmp_path):
    """As Ctrl-C in a terminal: the count so far, marked as such, and status 130."""
    lines = "".join(f"  r{i}: {{values: [0, 0.5, 1]}}\n" for i in range(30))
    path = tmp_path / "large.yaml"
    path.write_text(f"rewardspec: 1\ncomponents:\n{lines}advantage: gdpo\n")
    program = (
        "import os, signal, sys, threading; threading.Timer(4, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in the background a shell has it ignored
    )
    program += (
        f"sys.argv = ['rewardspec', 'simulate', {str(path)!r}, '-g', '6']\nfrom rewardspec.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert ">=" in done.stdout
    assert "interrupted" in done.stdout
