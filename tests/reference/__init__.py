"""Second opinions, sharing no code with `rewardspec`.

formulas: the prelude's schemes in NumPy, from the papers. parser, numbers, reader, interpreter: the language itself,
from grammar/LANGUAGE.md, one rollout at a time, in exact or 60-digit arithmetic. author: random specs and batches.
brute: every small group.
"""
