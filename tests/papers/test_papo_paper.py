"""What PAPO says of itself: Sec. 4.2-4.3, 5.3 and 6, Fig. 4."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT

import rewardspec

SPECS = ROOT / "specs/papo"
ORM, PRM, MULT, FULLNORM, PAPO, DAPO = (
    rewardspec.compile(SPECS / f"{name}.yaml") for name in ("orm", "prm", "mult", "fullnorm", "papo", "papo_dapo")
)
NAN = math.nan


def advantages(fn, outcome, process, **columns):
    """Of one group; the process is not judged where the answer is wrong."""
    judged = [p if o else None for o, p in zip(outcome, process, strict=True)]
    return fn({"outcome": outcome, "process": judged, **columns}, len(outcome)).advantages.tolist()


groups = st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from([0, 0.5, 1])), min_size=1, max_size=16)


@pytest.mark.slow
@given(groups)
def test_fewer_than_two_right_answers_reduce_to_grpo(group):
    right = 0
    group = [(o * (right := right + o) <= 1 and o, p) for o, p in group]  # the first right answer stays
    outcome, process = [int(o) for o, _ in group], [p for _, p in group]
    assert sum(outcome) <= 1
    assert advantages(PAPO, outcome, process) == advantages(ORM, outcome, process)


def test_all_right_leaves_the_process_part():
    """Sec. 4.3: then GRPO has no gradient, and PAPO that of the reasoning, by hand (1, 1, -1, -1) * sqrt(3) / 2."""
    outcome, process = [1, 1, 1, 1], [1, 1, 0.5, 0.5]
    assert advantages(ORM, outcome, process) == [0] * 4
    assert advantages(PAPO, outcome, process) == pytest.approx([0.8660, 0.8660, -0.8660, -0.8660], abs=1e-4)


def test_right_answer_with_poor_reasoning_can_fall_below_zero():
    """Sec. 5.3: the least advantage among right answers is below 0 under PAPO, never under ORM."""
    outcome, process = [1, 1, 1, 0], [1, 1, 0, 1]
    found = advantages(PAPO, outcome, process)
    # outcome: (1 - 3/4) / 0.5 = 0.5; process among 1, 1, 0: mean 2/3, std 0.57735: -1.1547
    assert found == pytest.approx([0.5 + 0.57735, 0.5 + 0.57735, 0.5 - 1.1547, -1.5], abs=1e-4)
    assert found[2] < 0 < min(advantages(ORM, outcome, process)[:3])


@pytest.mark.slow
@given(groups)
def test_orm_never_punishes_a_right_answer(group):
    outcome, process = zip(*group, strict=True)
    assert all(a >= 0 for a, o in zip(advantages(ORM, outcome, process), outcome, strict=True) if o)


@pytest.mark.slow
@given(groups)
def test_wrong_answers_have_no_process_part(group):
    outcome, process = zip(*group, strict=True)
    papo, orm = advantages(PAPO, outcome, process), advantages(ORM, outcome, process)
    assert [a for a, o in zip(papo, outcome, strict=True) if not o] == pytest.approx(
        [a for a, o in zip(orm, outcome, strict=True) if not o], abs=1e-6
    )


def test_fullnorm_repeats_the_outcome_where_reasoning_is_alike():
    """Sec. 6: with wrong answers at 0 the process part tells right from wrong once more; PAPO's has nothing to add."""
    outcome, process = [1, 1, 0, 0], [1, 1, 1, 1]
    orm = advantages(ORM, outcome, process)
    assert advantages(PAPO, outcome, process) == orm
    assert advantages(FULLNORM, outcome, process) == pytest.approx([2 * a for a in orm])


def test_mult_hardly_tells_reasoning_apart_in_mixed_groups():
    """Sec. 6: in one pass the outcome dominates; the gap between good and fair reasoning is half that of PAPO."""
    outcome, process = [1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 0.5, 0.5, 1, 1, 1, 1]
    papo, mult = advantages(PAPO, outcome, process), MULT({"outcome": outcome, "process": process}, 8).advantages
    # Mult: rewards 1, 1, .5, .5, 0, 0, 0, 0 have std 0.4432, so 0.5 apart is 1.128; PAPO: std 0.2887, so 1.732
    assert mult[0] - mult[2] == pytest.approx(0.5 / 0.4432, abs=1e-3)
    assert papo[0] - papo[2] == pytest.approx(0.5 / 0.2887, abs=1e-3)


def test_mult_and_fullnorm_take_a_wrong_answer_for_0_whatever_the_judge_says():
    outcome, process, other = [1, 1, 0, 0], [1, 0.5, 0, 0], [1, 0.5, 1, 0.5]
    for fn in (MULT, FULLNORM):
        assert advantages(fn, outcome, process) == advantages(fn, outcome, other)
        assert advantages(fn, outcome, process) == fn({"outcome": outcome, "process": other}, 4).advantages.tolist()


def test_judge_must_be_asked_about_right_answers():
    for fn in (MULT, FULLNORM, PAPO):
        with pytest.raises(ValueError, match="`process` is missing at rollout 1"):
            fn({"outcome": [0, 1], "process": [None, None]}, 2)


# Fig. 4a. What the paper gives: groups of 8, the share of rollouts without advantage under ORM from about 40% to 69%,
# under PAPO 44% late in training, and then the process part active in 70% of the groups; training reward 55 to 62%.
# What is assumed here, to get there: each prompt has a success rate of its own, drawn from a Beta distribution whose
# mean rises from 0.40 to 0.62 while it moves to its ends (alpha + beta from 1.05 down to 0.35: prompts become always
# solved or never), which gives ORM's curve and the 70%. The judge scores right answers 1, 0.5, 0 with probability
# 0.91, 0.07, 0.02, independently; this is fitted to PAPO's 44%. So the two ends show that the figure is consistent
# with one model, and the order of the curves in between is what follows.
MEANS = np.linspace(0.40, 0.62, 6)
SPREADS = np.geomspace(1.05, 0.35, 6)
JUDGE = [0.91, 0.07, 0.02]


def simulated(mean, spread, rng, prompts=6000, size=8):
    rates = rng.beta(mean * spread, (1 - mean) * spread, prompts)
    outcome = (rng.random((prompts, size)) < rates[:, None]).astype(float).reshape(-1)
    process = np.where(outcome == 1, rng.choice([1, 0.5, 0], len(outcome), p=JUDGE), NAN)
    return {"outcome": outcome, "process": process}


@pytest.mark.slow
def test_share_of_rollouts_without_signal_as_in_figure_4():
    rng = np.random.default_rng(0)
    orm, papo, active = [], [], []
    for mean, spread in zip(MEANS, SPREADS, strict=True):
        columns = simulated(mean, spread, rng)
        orm.append(ORM(columns, 8).metrics()["rollouts_without_signal"])
        papo.append(PAPO(columns, 8).metrics()["rollouts_without_signal"])
        active.append((columns["outcome"].reshape(-1, 8).sum(1) >= 2).mean())
    # in percent: ORM 41 45 50 56 64 68, PAPO 35 36 37 39 42 45, process part active 60 61 65 66 70 71
    assert orm[0] == pytest.approx(0.40, abs=0.02)
    assert orm[-1] == pytest.approx(0.69, abs=0.02)
    assert papo[-1] == pytest.approx(0.44, abs=0.02)
    assert active[-1] == pytest.approx(0.70, abs=0.03)
    assert all(b > a for a, b in itertools.pairwise(orm))
    gaps = [a - b for a, b in zip(orm, papo, strict=True)]
    assert all(b > a > 0 for a, b in itertools.pairwise(gaps))


# On DAPO


def test_dapo_leaves_out_groups_in_which_nothing_differs():
    columns = {
        "correct": [1, 0, 1, 1, 1, 1, 0, 0],
        "process": [1, None, 1, 0.5, 1, 1, None, None],
        "tokens": [10, 10, 10, 10, 10, 8192, 10, 8192],
    }
    out = DAPO(columns, 2)
    assert out.kept.tolist() == [True, True, False, False]
    assert out.advantages.view(4, 2)[2:].tolist() == [[0, 0], [0, 0]]
    assert out.advantages[2] == -out.advantages[3] == pytest.approx(math.sqrt(0.5), abs=1e-4)


def test_dapo_takes_the_overlong_penalty_from_the_outcome():
    """DAPO Eq. 13 with limit 8192 and buffer 4096: 0 up to 4096, -0.5 in the middle, -1 at the limit."""
    columns = {"correct": [1, 1, 1, 0], "process": [1, 1, 1, None], "tokens": [4096, 6144, 9000, 10]}
    assert DAPO(columns, 4).rewards["outcome"].tolist() == [1, 0.5, 0, 0]
    assert not torch.isnan(DAPO(columns, 4).advantages).any()
