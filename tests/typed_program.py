"""A user's program, and mistakes that a type checker has to find: `make lint` reads this file, and nothing runs it.

Strict mypy says so if a line that should be refused is not: its `type: ignore` is then unused.
"""

import rewardspec
from rewardspec import AdvantageFunction, Diagnostic, Result, Spec

spec: Spec = rewardspec.load("spec.yaml", constants={"limit": 3})
fn: AdvantageFunction = rewardspec.compile(spec, dialect="trl")
out: Result = fn({"correct": [1, 0]}, groups=2, step=3)
values: list[float] = out.advantages.tolist()
logged: dict[str, float] = out.metrics()
found: list[Diagnostic] = rewardspec.check("spec.yaml", rates={"correct": 0.5}, group_sizes=8)
proved: list[str] = [v.name for v in rewardspec.verify(spec, range(2, 5)) if v.proved]
live: int = rewardspec.simulate(spec, 4)[0].advantage_groups
log: int = rewardspec.simulate(spec, rollouts="log.jsonl").rollouts
same: bool = rewardspec.diff("a.yaml", spec).is_none
means: dict[str, float] = rewardspec.score(spec, "rows.jsonl", "out.jsonl").mean
turns: Result = fn({"called": [[1, 0], [1]]}, groups=2, lengths={"turn": [2, 1]}, state=fn.initial_state())

fn({"correct": [1, 0]}, groups=None)  # type: ignore[arg-type]
fn(1, {"correct": [1, 0]}, groups=2)  # type: ignore[arg-type, misc]
text: str = rewardspec.diff("a.yaml", spec).is_none  # type: ignore[assignment]
