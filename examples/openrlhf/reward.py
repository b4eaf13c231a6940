"""The reward function, which OpenRLHF calls on one response at a time: names in `extra_logs` are the spec's.

`rewards` and `scores` are for OpenRLHF's own tables; the spec reads neither. OpenRLHF hides
exceptions raised here; the run then stops with the number of rollouts without a value.
"""

import re

import torch


def reward_func(queries, prompts, labels):
    answers = re.findall(r"<answer>\s*(-?\d+)\s*</answer>", queries[0][len(prompts[0]) :])
    correct, form = float(answers[-1:] == [labels[0]]), float(len(answers) == 1)
    return {
        "rewards": torch.tensor([correct]),
        "scores": torch.tensor([correct]),
        "extra_logs": {"correct": torch.tensor([correct]), "form": torch.tensor([form])},
    }
