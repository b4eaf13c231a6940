"""The support code of emitted modules: columns, groups, statistics.

The emitter copies from these files the classes and functions that a spec needs, without their imports. A compiled
module needs torch alone, so nothing here may import anything else.

A tensor of a batch has one of three shapes:

| level | dense: P groups of G adjacent rollouts | ragged: sorted by group |
|---|---|---|
| rollout | [P, G] | [N] |
| group | [P, 1] | [P] |
| batch | [] | [] |
"""
