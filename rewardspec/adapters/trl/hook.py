"""A spec for `trl grpo` and `trl rloo`, which have no key for a trainer class.

    env:
      REWARDSPEC: spec.yaml            # or the text of a spec, after `|`
    reward_funcs:
      - rewardspec.adapters.trl_hook.spec
      - my_rewards.correct

TRL imports `reward_funcs` before it builds its trainer; that import installs the spec. Variables:

REWARDSPEC: the path of a spec, or its text.
REWARDSPEC_DIALECT: a trainer's numerics, such as `trl`.
REWARDSPEC_SET: `name=value` for names of `define:`, separated by commas.
REWARDSPEC_MOVE_ROWS: 1 to move the rows of groups that are drawn again.
REWARDSPEC_ROLLOUT_LOG: the folder of the rollout log, docs/rollout_log.md. REWARDSPEC_ROLLOUT_LOG_EVERY,
REWARDSPEC_ROLLOUT_LOG_KEEP, REWARDSPEC_ROLLOUT_LOG_TEXT and REWARDSPEC_ROLLOUT_LOG_COLUMNS: its options.
REWARDSPEC_ALLOW_PYTHON: modules, separated by commas, whose functions the spec may name by `python:`; 1 for all.

A module of reward functions can instead call `rewardspec.adapters.trl.install(...)` itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.rollout_log import log_of
from rewardspec.adapters.trl.installation import install
from rewardspec.scoring.permission import Allowed, read_allowed

LOG = {
    "folder": "REWARDSPEC_ROLLOUT_LOG",
    "every": "REWARDSPEC_ROLLOUT_LOG_EVERY",
    "keep": "REWARDSPEC_ROLLOUT_LOG_KEEP",
    "text": "REWARDSPEC_ROLLOUT_LOG_TEXT",
    "columns": "REWARDSPEC_ROLLOUT_LOG_COLUMNS",
}


def spec(**_) -> list[float]:
    """The placeholder of the spec in `reward_funcs`. It measures nothing, and the trainer never gets it."""
    raise BindingError("`rewardspec.adapters.trl_hook.spec` measures nothing: this trainer was not built by `trl`")


spec.stands_for_spec = True  # type: ignore[attr-defined]  # what `install` looks for


def options(variables: Mapping[str, str]) -> dict:
    """The arguments of `install` from environment variables. Raises BindingError for a missing or malformed one."""
    if not variables.get("REWARDSPEC", "").strip():
        raise BindingError("`rewardspec.adapters.trl_hook` reads the spec from REWARDSPEC: its path, or its text")
    constants = {}
    for part in filter(None, (p.strip() for p in variables.get("REWARDSPEC_SET", "").split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise BindingError(f"REWARDSPEC_SET has `{part}`: write name=value, separated by commas")
        constants[name.strip()] = value.strip()
    move_rows = variables.get("REWARDSPEC_MOVE_ROWS", "0")
    if move_rows not in ("0", "1"):
        raise BindingError(f"REWARDSPEC_MOVE_ROWS is `{move_rows}`: write 0 or 1")
    return {
        "spec": variables["REWARDSPEC"],
        "dialect": variables.get("REWARDSPEC_DIALECT") or None,
        "constants": constants,
        "move_rows": move_rows == "1",
        "allow_python": _allowed(variables.get("REWARDSPEC_ALLOW_PYTHON", "0")),
        "rollout_log": log_of(variables, LOG),
    }


def _allowed(text: str) -> Allowed:
    if text.strip() in ("", "0", "1"):
        return text.strip() == "1"
    try:
        return read_allowed(text)
    except ValueError as error:
        raise BindingError(f"REWARDSPEC_ALLOW_PYTHON: {error}") from None


given = options(os.environ)
install(given.pop("spec"), **given)
