"""Whether a spec can be computed where a trainer hands over one group at a time, without the step of training."""

from __future__ import annotations

from rewardspec.spec import Spec


def beyond_a_group(spec: Spec, reader: str) -> list[str]:
    """What a spec asks for beyond the columns of one group, a line each with fixes; empty if nothing.

    reader: what sees the group, for the messages: "the worker".
    """
    found, needs = [], spec.needs
    if spec.program.copies is not None:
        found.append(f"{spec.name} has `refill`, which draws among the groups of a batch")
        needs -= {"step"}  # the draw needs it
    elif "batch" in needs:
        found.append(
            f"{spec.name} looks at the whole batch (`gdpo` and `whiten` do, `over=batch` and `batch_size`), and "
            f"{reader} sees one group: `decoupled` is `gdpo` without that step"
        )
    moment = ("progress",) if "progress" in needs else ("step", "total_steps")  # `progress` needs both
    found += [f"{spec.name} uses `{name}`, which {reader} is not told" for name in moment if name in needs]
    return found
