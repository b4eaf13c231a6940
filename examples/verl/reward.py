"""The reward function, which verl calls on each response: the names of the spec, and `score` for verl's tables."""

import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    answers = re.findall(r"<answer>\s*(-?\d+)\s*</answer>", solution_str)
    correct = float(answers[-1:] == [ground_truth])
    return {"score": correct, "correct": correct, "form": float(len(answers) == 1)}
