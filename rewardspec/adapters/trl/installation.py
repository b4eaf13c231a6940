"""`install`: a spec for the trainers of a command line that names no trainer class."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from rewardspec.adapters.common.binding import BindingError, read_spec
from rewardspec.adapters.common.rollout_log import Log, as_log
from rewardspec.adapters.trl.adapter import (
    GRPOTrainer,
    RewardSpecGRPOTrainer,
    RewardSpecRLOOTrainer,
    RLOOTrainer,
    bind,
    with_functions,
)
from rewardspec.logs.rollout_log import RolloutLog
from rewardspec.scoring.permission import Allowed, NotAllowed
from rewardspec.spec import Spec

_installed: dict[type, tuple[Spec, bool]] = {}
_allowed: dict[type, Allowed] = {}
_logs: dict[type, RolloutLog | None] = {}


def install(
    spec: Spec | str | PathLike,
    *,
    dialect: str | None = None,
    constants: Mapping[str, object] = {},
    move_rows: bool = False,
    allow_python: Allowed = False,
    rollout_log: Log = None,
) -> None:
    """Make every `GRPOTrainer` and `RLOOTrainer` that this process creates from now on use a spec.

    For command lines without a trainer class: `trl grpo` imports the modules of `reward_funcs` before it creates its
    trainer, so a call at the top level of such a module is enough. Subclasses do not change. Arguments are those of
    `RewardSpecMixin`.
    Raises BindingError if another spec was installed before.
    """
    read, log = read_spec(spec, constants, dialect), as_log(rollout_log)
    for trainer, ours in ((GRPOTrainer, RewardSpecGRPOTrainer), (RLOOTrainer, RewardSpecRLOOTrainer)):
        before = _installed.get(trainer)
        if before is None:
            trainer.__init__ = _with_spec(trainer, ours)
        elif before[0].fingerprint != read.fingerprint or before[1] != move_rows:
            raise BindingError(
                f"{before[0].name} is already installed, so {read.name} (or the same with other constants, "
                "dialect or `move_rows`) cannot be: a process has one spec"
            )
        _installed[trainer], _allowed[trainer], _logs[trainer] = (read, move_rows), allow_python, log


def _with_spec(trainer: type, ours: type) -> Callable:
    """An `__init__` for a trainer class that turns its instances into ours, with the installed spec."""
    original: Any = trainer.__init__  # type: ignore[misc]  # of this very class

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is not trainer:
            return original(self, *args, **kwargs)
        if isinstance(kwargs.get("reward_funcs"), list):  # `trl_hook.spec` stands for the spec and measures nothing
            kwargs["reward_funcs"] = [f for f in kwargs["reward_funcs"] if not getattr(f, "stands_for_spec", False)]
        try:
            args, kwargs = with_functions(_installed[trainer][0], args, kwargs, _allowed[trainer])
        except NotAllowed as error:
            modules = ",".join(error.modules)
            raise BindingError(f"{error}; for the command `trl`: REWARDSPEC_ALLOW_PYTHON={modules}") from None
        original(self, *args, **kwargs)
        self.__class__ = ours
        spec, move_rows = _installed[trainer]
        bind(self, spec, move_rows, _logs.get(trainer))  # type: ignore[arg-type]  # it is one of ours from here on

    return __init__
