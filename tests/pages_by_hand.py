"""A run with hostile texts, two specs to replay it under, and what its page shows, computed from the log."""

import json
import re

import numpy as np

STEPS, GROUPS, SIZE = 26, 3, 4
LONG = "The end is near. " * 60_000  # a megabyte
HOSTILE = [
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">",
    "</script><!-- <script> --><b>bold</b>",
    "a\u202eb\u2066c\u200bd",
    "nul \0, escape \x1b[31m, a lone surrogate \ud800.",
]
NOTED = "The log has no text of completions, so rollouts unfold without it."
_A = """\
rewardspec: 1
name: sums
about: Pays length, whether or not the answer is right
components:
  correct: {values: [0, 1]}
  long: {range: [0, 1], weight: 2}
outcome: correct >= 1
guarantees: {right above wrong: right_above_wrong()}
numerics: {eps: 0}
advantage: grpo
"""
SPECS = {
    "a": _A,
    "b": _A.replace("name: sums", "name: gated").replace("weight: 2", "when: correct >= 1").replace("grpo", "gdpo"),
}


def log(path):
    """Write the run: long wrong answers, some of which have hostile texts, in groups of four."""
    rng = np.random.default_rng(3)
    rows = []
    for step in range(STEPS):
        for group in range(GROUPS):
            rate = (0.0, 0.5, 1.0)[group % 3]
            for i in range(SIZE):
                correct = int(rng.random() < rate)
                long = round(float(rng.random()) * (0.4 if correct else 1), 3)
                text = f"The answer is {i}, with an {'e' if correct else 'error'}.\n\tSo it is."
                row = {"step": step, "group": f"{step}/{group}", "prompt": f"What is {group}?", "completion": text}
                rows.append(row | {"correct": correct, "long": long, "source": "ab"[group % 2], "tokens": len(rows)})
    worst = sorted((row for row in rows if not row["correct"]), key=lambda row: -row["long"])
    for rank, row in enumerate(worst):  # whichever of them the audit shows
        row["completion"] = LONG if rank in range(0, 40, 5) else HOSTILE[rank % len(HOSTILE)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return rows


def data_of(text):
    """The data of a page, as another reader of JSON finds them."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def by_hand(rows):
    """Step to the fraction of dead groups under `a`, and to the mean reward, in NumPy."""
    found = {}
    for step in range(STEPS):
        own = [row for row in rows if row["step"] == step]
        totals = np.array([row["correct"] + 2 * row["long"] for row in own]).reshape(GROUPS, SIZE)
        right = np.array([row["correct"] for row in own])
        found[step] = {
            "groups_without_signal": float((np.ptp(totals, axis=1) == 0).mean()),
            "total": float(totals.mean()),
            "right": float(right.mean()),
        }
    return found
