"""Whether a spec can be computed where a trainer hands over one group at a time, without the step of training."""

from __future__ import annotations

from rewardspec.spec import Spec


def beyond_a_group(spec: Spec, reader: str) -> list[str]:
    """A line for each need of a spec beyond the columns of one group, with fixes; empty if there is none.

    reader: the part that reads the group, for messages: "the worker".
    """
    found, needs = [], spec.needs
    if spec.program.copies is not None:
        found.append(f"{spec.name} has `refill`, which draws among the groups of a batch")
        needs -= {"step"}  # the draw needs it
    elif "state" in needs:
        found.append(f"{spec.name} carries state from batch to batch, but {reader} has one group")
    elif "batch" in needs:
        found.append(
            f"{spec.name} depends on the whole batch (as `gdpo`, `whiten`, `over=batch` and `batch_size` do), but "
            f"{reader} has one group: `decoupled` is `gdpo` without that step"
        )
    moment = ("progress",) if "progress" in needs else ("step", "total_steps")  # `progress` needs both
    found += [f"{spec.name} reads `{name}`, which {reader} does not know" for name in moment if name in needs]
    return found
