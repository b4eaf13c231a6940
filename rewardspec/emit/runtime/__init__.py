"""What emitted modules are built on: reading columns, laying out groups, statistics.

The emitter copies from these files the classes and functions that a spec needs, without their
imports, so a compiled module depends on torch alone: nothing here may import anything else.

Values of a batch have one of three shapes. One for every rollout: [P, G] where the groups are dense
(P groups of G rollouts that stand together), else [N], sorted by group. One for every group: [P, 1]
where dense, else [P]. One for the batch: [].
"""
