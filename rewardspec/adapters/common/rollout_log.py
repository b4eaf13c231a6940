"""A trainer's batch as the columns of the rollout log (docs/rollout_log.md), the same for every trainer."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from rewardspec._version import __version__
from rewardspec.adapters.common.binding import BindingError, listed
from rewardspec.adapters.common.lists import as_list, listed_columns
from rewardspec.function import Result, State
from rewardspec.logs.rollout_log import LogWriter, RolloutLog
from rewardspec.logs.rollout_table import Column, Kind, Texts
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import did_you_mean

PREFIX = "rewardspec/"  # of the columns that no reward function and no data set has


HASHES = ("prompt_hash", "completion_hash")


@dataclass(frozen=True)
class Beside:
    """What a trainer has beside the spec's columns. texts: `prompt` and `completion`. more: columns; others win.

    kept: columns that the user named (`RolloutLog.columns`); they win over `more`.
    """

    texts: Mapping[str, Texts] = field(default_factory=dict)
    more: Mapping[str, Column] = field(default_factory=dict)
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)


Log = RolloutLog | str | os.PathLike | None  # what a trainer takes


def as_log(given: Log, **options: Any) -> RolloutLog | None:
    """The settings of a log: those given, or of a folder with these options. Raises BindingError."""
    try:
        return given if isinstance(given, RolloutLog | None) else RolloutLog(given, **options)
    except ValueError as error:
        raise BindingError(str(error)) from None


def log_of(given: Mapping[str, Any], names: Mapping[str, str]) -> RolloutLog | None:
    """The log of a trainer's settings; None if they name no folder. Whole numbers and lists of names may be texts.

    names: `folder`, `every`, `keep`, `text` and `columns` to their names there. Raises BindingError with all that is
    wrong.
    """
    options = {option: given[name] for option, name in names.items() if given.get(name) not in (None, "")}
    if "folder" not in options and options:
        lone = ", ".join(names[option] for option in options)
        raise BindingError(f"{lone} without {names['folder']}: set the folder of the rollout log")
    for option in ("every", "keep"):
        text = options.get(option)
        if isinstance(text, str) and text.strip().isdecimal():
            options[option] = int(text)
    columns = options.get("columns")
    if isinstance(columns, str):
        columns = filter(None, map(str.strip, columns.split(",")))
    if isinstance(columns, Iterable):
        options["columns"] = tuple(columns)
    folder = options.pop("folder", None)
    return as_log(folder, **options)


def kept_of(log: RolloutLog, column: Callable[[str], Sequence[Any] | None]) -> dict[str, Sequence[Any] | None]:
    """The values of the columns that a log keeps, None for one that no rollout has.

    column: function to the values of a name, or None. `extra_info.source` is `source` in each value of `extra_info`.
    """
    return {name: _inside(name, column) for name in log.columns}


def _inside(name: str, column: Callable[[str], Sequence[Any] | None]) -> Sequence[Any] | None:
    found = column(name)
    outer, dot, inner = name.partition(".")
    if found is not None or not dot:
        return found
    rows = column(outer) or []
    if not any(isinstance(row, Mapping) and inner in row for row in rows):
        return None
    return [row.get(inner) if isinstance(row, Mapping) else None for row in rows]


def outer_names(log: RolloutLog) -> list[str]:
    """The columns that those to keep are, or lie in."""
    return list(dict.fromkeys(part for name in log.columns for part in (name, name.partition(".")[0])))


def refuse_absent(lacks: Sequence[str], there: Collection[str], where: str) -> None:
    """Raise BindingError for columns to keep that are not there. where: what has the names, "the data set has"."""
    if lacks:
        near = [help for name in lacks if (help := did_you_mean(name, [*there]))]
        said = f"the rollout log is to keep {listed(lacks)}, which nothing has: {where} {listed(sorted(there))}"
        raise BindingError("; ".join([said, *near]))


def writer_of(log: RolloutLog, spec: Spec, trainer: str, package: str) -> LogWriter:
    """The writer of a run's log. Raises BindingError where the log cannot be written."""
    try:
        found = version(package)
    except PackageNotFoundError:
        found = None
    about = {
        "rewardspec": __version__,
        "trainer": trainer,
        "trainer_version": found,
        "name": spec.name,
        "file": spec.source.name,
        "spec": spec.source.text,
        "constants": {} if spec.made is None else dict(spec.made.constants),
        "advantage": None if spec.made is None else spec.made.advantage,
        "dialect": spec.dialect,
        "fingerprint": spec.fingerprint,
        "columns": list(spec.columns),
        "lists": listed_columns(spec),
        "components": list(spec.components),
    }
    try:
        return LogWriter(log, about)
    except (ImportError, OSError) as error:
        raise BindingError(f"the rollout log {log.folder}: {error}") from None


def log_batch(
    writer: LogWriter,
    spec: Spec,
    columns: Mapping[str, Any],
    result: Result,
    groups: Sequence[int],
    *,
    step: int,
    total_steps: int | None,
    seed: int,
    before: State | None,
    ids: Sequence[str] | None = None,
    beside: Callable[[], Beside] = lambda: Beside(),
) -> None:
    """Write a batch of N rollouts into the log. What fails is a warning: a log ends no training.

    columns: those that the spec read. groups: the number of each rollout's group, in order of first appearance.
    before: the state before the batch. ids: the trainer's own name of each rollout's group. beside: called once.
    """
    try:
        made = columns_of(spec, columns, result, np.asarray(groups), step, ids, beside())
        about = {
            "total_steps": total_steps,
            "seed": seed,
            "rollouts": len(groups),
            "groups": len(result.kept),
            "state": state_of(spec, before, columns),
            "state_after": state_of(spec, result.state, columns),
        }
        writer.write(step, made, about)
    except Exception as problem:
        writer.skip(step, problem)


def columns_of(
    spec: Spec,
    columns: Mapping[str, Any],
    result: Result,
    groups: np.ndarray,
    step: int,
    ids: Sequence[str] | None,
    beside: Beside,
) -> dict[str, Column]:
    """The columns of a batch by name: those of the trainer, those that were measured, those that were computed."""
    n = len(groups)
    found = {f"{PREFIX}step": Column("whole", np.full(n, step)), f"{PREFIX}group": Column("whole", groups)}
    if ids is not None:
        found[f"{PREFIX}group_id"] = Column("name", ids)
    found[f"{PREFIX}rollout"] = Column("whole", np.arange(n))
    measured = {name: _measured(spec, name, columns[name]) for name in spec.columns}
    for name, values in beside.texts.items():
        found[PREFIX + name if {name, f"{name}_hash"} & measured.keys() else name] = Column("text", values)
    found |= measured
    more = {**beside.more, **{name: Column("any", values) for name, values in beside.kept.items()}}
    found |= {name: column for name, column in more.items() if name not in found and name not in HASHES}
    for name, column in _computed(spec, result, groups).items():
        found[PREFIX + name] = column
    return found


def _measured(spec: Spec, name: str, values: Any) -> Column:
    """A column that the spec read."""
    declared = spec.program.columns[name]
    domain = declared.domain
    kind: Kind = "id" if domain.ids else "name" if domain.nominal else "number"
    if not declared.level.listed:
        return Column(kind, _plain(values))
    rows = [as_list(row) or [] for row in (values.tolist() if hasattr(values, "tolist") else values)]
    return Column(kind, [item for row in rows for item in row], [len(row) for row in rows])


def _plain(values: Any) -> Any:
    """A tensor as an array, of a type that NumPy has; anything else as it is."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return (values.double() if values.is_floating_point() else values).numpy()


def _computed(spec: Spec, result: Result, groups: np.ndarray) -> dict[str, Column]:
    """What the spec computed; where a list's items have a value, a list for each rollout."""
    program = spec.program
    levels = {f"reward/{component.name}": component.shaped.level for component in program.components}
    found: dict[str, Any] = {f"reward/{name}": values for name, values in result.rewards.items()}
    for name, values in (result.shares or {}).items():
        found[f"share/{name}"], levels[f"share/{name}"] = values, program.advantage.level
    if result.total is not None and program.total is not None:
        found["total"], levels["total"] = result.total, program.total.level
    found["advantage"], levels["advantage"] = result.advantages, program.advantage.level
    made = {}
    for name, values in found.items():
        level = levels[name]
        lengths = result.lengths[level.name].cpu().numpy() if level.listed else None
        made[name] = Column("number", _plain(values), lengths)
    for name, counts in result.lengths.items():
        made[f"length/{name}"] = Column("whole", _plain(counts))
    for name, weights in result.weights.items():
        own = _plain(weights)
        made[f"weight/{name}"] = Column("number", own[groups] if own.ndim else np.full(len(groups), own))
    made["kept"] = Column("truth", _plain(result.kept)[groups])
    made["copies"] = Column("whole", _plain(result.copies)[groups])
    return made


def state_of(spec: Spec, state: State | None, columns: Mapping[str, Any]) -> dict[str, Any] | None:
    """A state for the log: of one with keys those of this batch, because there can be millions of others."""
    if state is None:
        return None
    found = {}
    for name, value in state.items():
        by = spec.declarations.states[name].by
        if by is None:
            found[name] = value
        else:
            here = columns[by]
            keys = {*(here.tolist() if hasattr(here, "tolist") else here)}
            found[name] = [[key, number] for key, number in value if key in keys]
    return found


def numbered(ids: Sequence[Any]) -> list[int]:
    """The number of each rollout's group, in order of first appearance: numbered("bba") = [0, 0, 1]."""
    known: dict[Any, int] = {}
    return [known.setdefault(of, len(known)) for of in ids]
