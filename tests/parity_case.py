"""Specs, and a batch of rewards for them, that every trainer is given: what they come to by the independent reference.

Read by tests/trainers/test_parity.py (TRL, verl) and tests/openrlhf/test_parity_in_openrlhf.py, which run in
environments of their own. All numbers are multiples of 1/16, so nothing depends on the float type that carries them.
"""

import runpy
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
from reference import formulas as reference

STEP, TOTAL_STEPS = 3, 8  # as a trainer counts: TRL and OpenRLHF from 0, verl from 1
SCHEMES = ("grpo", "gdpo", "decoupled", "dr_grpo")
EVEN, RAGGED = (4,) * 6, (2, 3, 8, 1, 5, 4)

SPEC = """\
rewardspec: 1
name: parity
signals:
  length: {range: [0, 100]}
components:
  correct: {values: [0, 1]}
  style: {range: [0, 1], MISSING weight: 0.5}
  brief: {expr: length <= 6, when: correct >= 1, weight: 1 - progress}
  proof: {range: [-1, 1], when: correct >= 1, otherwise: OTHERWISE, weight: 0.25 + progress}
advantage: SCHEME
"""


def text(scheme, gaps=True):
    """The spec with a scheme. gaps: style can be missing, and proof takes no part where the answer is wrong."""
    missing, otherwise = ("missing: ignore,", "ignore") if gaps else ("", "0")
    return SPEC.replace("SCHEME", scheme).replace("MISSING", missing).replace("OTHERWISE", otherwise)


def weights(step=STEP):
    progress = step / TOTAL_STEPS
    return {"correct": 1.0, "style": 0.5, "brief": 1 - progress, "proof": 0.25 + progress}


@dataclass(frozen=True)
class Batch:
    """Rollouts: float64 columns by name, NaN where a value is missing, and the number of each one's prompt."""

    columns: dict[str, np.ndarray]
    groups: np.ndarray

    def rows(self):
        """Each rollout's values by name, None where one is missing."""
        there = {name: [None if np.isnan(x) else float(x) for x in values] for name, values in self.columns.items()}
        return [dict(zip(there, values, strict=True)) for values in zip(*there.values(), strict=True)]

    def gated(self, gaps=True):
        """What a reward function for each component of the spec would return, gates and all; NaN is no part."""
        right = self.columns["correct"] == 1
        return {
            "correct": self.columns["correct"],
            "style": self.columns["style"],
            "brief": np.where(right, self.columns["length"] <= 6, 0.0),
            "proof": np.where(right, self.columns["proof"], np.nan if gaps else 0.0),
        }

    def total(self):
        """The one reward of a trainer that knows no components: for a spec without gaps."""
        return sum(weights()[name] * values for name, values in self.gated(gaps=False).items())

    def sorted(self):
        """The same rollouts with groups together, in order of their numbers."""
        order = np.argsort(self.groups, kind="stable")
        return Batch({name: values[order] for name, values in self.columns.items()}, self.groups[order])


def batch(sizes=EVEN, gaps=True, seed=0):
    """Rollouts of groups of these sizes, interleaved. In group 0 all are wrong, and in group 1 all are alike."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    n = len(groups)
    columns = {
        "correct": rng.integers(0, 2, n),
        "style": rng.integers(0, 9, n) / 8,
        "length": rng.integers(1, 13, n),
        "proof": rng.integers(-16, 17, n) / 16,
    }
    columns = {name: values.astype(np.float64) for name, values in columns.items()}
    columns["correct"][groups == 0] = 0
    for values in columns.values():
        values[groups == 1] = values[groups == 1][0]
    if gaps:
        columns["style"][rng.random(n) < 0.3] = np.nan
    return Batch(columns, groups)


def expected(scheme, found, gaps=True, step=STEP):
    """Advantages [N] in float64 by tests/reference.py, which shares no code with what is tested."""
    return reference.SCHEMES[scheme](found.gated(gaps), weights(step), found.groups)


def written(folder, scheme, gaps=True, dialect=None):
    """What the module that `rewardspec compile` writes makes of a batch: a function to advantages [N] in float64."""
    spec, module = folder / f"{scheme}.yaml", folder / f"{scheme}.py"
    spec.write_text(text(scheme, gaps))
    options = [] if dialect is None else ["--dialect", dialect]
    command = [sys.executable, "-m", "rewardspec.cli", "compile", str(spec), "-o", str(module), *options]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    function = runpy.run_path(str(module))["advantages"]

    def advantages(found, **more):
        out = function(found.columns | more, found.groups.tolist(), step=STEP, total_steps=TOTAL_STEPS)
        return out.advantages.double().numpy()

    return advantages


def close(actual, wanted):
    actual, wanted = np.asarray(actual, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    assert np.abs(wanted).max() > 0.5, "a batch without advantages shows nothing"
    np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-6)
