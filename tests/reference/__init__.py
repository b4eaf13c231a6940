"""Second opinions, sharing no code with `rewardspec`.

formulas: the prelude's schemes in NumPy, from the papers. parser, declared, nodes, reader, measured, numbers,
statistics, interpreter: the language itself, from grammar/LANGUAGE.md, one rollout and one item at a time, in exact or
60-digit arithmetic. author: random specs and batches. brute: every small group.
"""
