"""The state of a spec (`state:`) in the checkpoints and logs of a trainer."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rewardspec.adapters.common.binding import BindingError, listed
from rewardspec.function import AdvantageFunction, State
from rewardspec.text.shown import printed

logger = logging.getLogger(__name__)


def logged(state: State | None) -> dict[str, float]:
    """The states of batch level for a trainer's log, `state/NAME`; those with keys are left out."""
    return {f"state/{name}": value for name, value in (state or {}).items() if isinstance(value, float)}


def restored(found: object, function: AdvantageFunction, where: str, anyway: bool = False) -> State | None:
    """The state that a checkpoint has for a spec; None for a spec without state.

    found: the record in the checkpoint (`record.py`), None if there is none. where: the checkpoint, in words. anyway:
    where there is no state that fits, begin at the first one, with a warning. Raises BindingError for that else.
    """
    first = function.initial_state()
    if first is None:
        return None
    state = found.get("state") if isinstance(found, Mapping) else None
    if state is None:
        problem = f"{where} has no state, and {function.spec.name} carries {listed(first)} from step to step"
    else:
        try:
            return function.checked_state(state)
        except ValueError as error:
            problem = f"the state in {where} does not fit {function.spec.name}: {'; '.join(str(error).splitlines())}"
    if not anyway:
        raise BindingError(f"{problem}: resume from a checkpoint of this spec, or begin a new run from its model")
    logger.warning("rewardspec: %s", printed(f"{problem}: it begins at {first}"))
    return first
