"""What verl calls on every response: a dict whose names are the spec's; `score` is for verl's own tables."""

import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    answers = re.findall(r"<answer>\s*(-?\d+)\s*</answer>", solution_str)
    correct = float(answers[-1:] == [ground_truth])
    return {"score": correct, "correct": correct, "form": float(len(answers) == 1)}
