"""A trainer's logged rollouts, and the advantages that a spec would have given them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rewardspec.logs.columns import PREFIX, flat, group_id, group_key, held_as, step_key, step_of, values_of
from rewardspec.logs.names import Keys, read_by_names
from rewardspec.logs.parts import BATCH, RolloutFile, opened
from rewardspec.logs.rollout_log import about_of
from rewardspec.logs.rows import BadLog, Unread, located
from rewardspec.prove.liveness import Liveness
from rewardspec.spec import Spec, compile


@dataclass(frozen=True)
class Log:
    """Logged rollouts: the columns of the spec, and the group and step of each rollout.

    about: what a file of our own rollout log says of its batch.
    """

    columns: dict[str, list[object]]
    groups: list[Hashable]
    steps: list[Hashable]
    about: Mapping[str, Any] = field(default_factory=dict)


def read_log(path: Path, spec: Spec, group_by: str | None = None, prefix: str = PREFIX) -> Log:
    """The rollouts of a JSON lines or Parquet file, as TRL, verl or `rewardspec score` write them.

    A column is found by its name, with or without `prefix`, at the top of a row or under `rewards`. Rollouts of one
    prompt and step are a group. Prompts and completions are not kept. Raises BadLog, which names the wrong rows, and
    OSError.
    """

    def choose(keys: Keys) -> _Names:
        top, found = list(keys.top), list(keys.found)
        try:
            held = held_as(path, spec, spec.columns, found, prefix, "reads")
            return group_key(path, top, found, group_by, held.values()), step_key(top), held
        except BadLog as error:
            raise _Lacking(str(error)) from None

    with opened(path) as file:
        about = (None if file.schema is None else about_of(file.schema)) or {}
        try:
            return read_by_names(file, choose, lambda names, passing: _read(file, spec, names, passing, about))
        except _Lacking as error:
            unread = _unread(file)
            raise BadLog("\n".join([*([located(path, unread)] if unread else []), str(error)])) from None


_Names = tuple[str, str | None, dict[str, str]]  # of the group, of the step, of each column


class _Lacking(BadLog):
    """The file has no column that is needed."""


def _read(
    file: RolloutFile, spec: Spec, names: _Names, passing: Callable[[Keys], None], about: Mapping[str, Any]
) -> Log:
    key, step, held = names
    log = Log({name: [] for name in held}, [], [], about)
    columns = [(log.columns[name], spec.program.columns[name], called) for name, called in held.items()]
    known: dict[Hashable, Hashable] = {}  # each group once: it can be a whole prompt
    problems: list[tuple[int, str]] = []
    for part in file.parts(BATCH):
        rows = part.rows()
        keys = Keys()
        keys.add(rows)
        passing(keys)
        for number, row in enumerate(rows, part.first + 1):
            if isinstance(row, Unread):
                problems += [(number, row.reason)] if row.text.strip() else []
                continue
            values = flat(row)
            try:
                of = step  # the field that an error is about
                moment = step_of(values.get(step)) if step else 0
                of = key
                group = (moment, group_id(values.get(key)))
                found = []
                for _, column, of in columns:
                    found.append(values_of(column, values.get(of)))
            except ValueError as error:
                problems.append((number, f"`{of}` {error}"))
                continue
            for (kept, _, _), value in zip(columns, found, strict=True):
                kept.append(value)
            log.groups.append(known.setdefault(group, group))
            log.steps.append(moment)
    if not log.steps and not problems:
        raise file.without_rows()
    if problems:
        raise BadLog(located(file.path, problems))
    return log


def _unread(file: RolloutFile) -> list[tuple[int, str]]:
    """The rows that are no rollouts, with the reasons."""
    return [
        (number, row.reason)
        for part in file.parts(BATCH)
        for number, row in enumerate(part.rows(), part.first + 1)
        if isinstance(row, Unread) and row.text.strip()
    ]


@dataclass(frozen=True)
class Replay:
    """A spec run over a log: its sizes, and the liveness of its groups after the batch's normalisation."""

    rollouts: int
    groups: int
    steps: int
    signal: Liveness

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def by_step(spec: Spec, log: Log, total_steps: int | None = None) -> Iterator[tuple[list[int], Any]]:
    """The rows and the Result of each step of a log, computed as one batch. Raises BadLog.

    The state of a spec begins at its first value and is carried through the steps in their order. In a file of our own
    rollout log it is that of the run, if it is a run of this spec; so are the number of steps and the seed.
    """
    fn = compile(spec)
    places: dict[Hashable, list[int]] = {}
    for i, step in enumerate(log.steps):
        places.setdefault(step, []).append(i)
    told = log.about if {*places} == {log.about.get("step")} else {}
    last = (
        total_steps or told.get("total_steps") or max((step for step in places if isinstance(step, int)), default=None)
    )
    state, seed = fn.initial_state(), told.get("seed", 0)
    if state is not None and told.get("state") and told.get("fingerprint") == spec.fingerprint:
        state = fn.checked_state(told["state"])
    for step, rows in places.items() if state is None else sorted(places.items()):  # state goes from step to step
        columns = {name: [values[i] for i in rows] for name, values in log.columns.items()}
        ids = [log.groups[i] for i in rows]
        try:
            out = fn(
                columns, ids, step=step if isinstance(step, int) else None, total_steps=last, seed=seed, state=state
            )
        except ValueError as error:
            raise BadLog(f"{spec.name}, step {step}: {error}") from None
        state = out.state
        yield rows, out


def replay(spec: Spec, log: Log, total_steps: int | None = None) -> Replay:
    """The spec run over a log, step by step. Raises BadLog for rollouts that the spec does not allow."""
    advantages, shares, dead, without, spread, groups, steps = [], [], 0, 0, 0.0, 0, 0
    of_items = spec.program.advantage.level.listed
    for rows, out in by_step(spec, log, total_steps):
        found = out.metrics()
        count = len({log.groups[i] for i in rows})
        steps += 1
        groups += count
        dead += round(found["groups_without_signal"] * count)
        spread += found["advantage_spread"] * count
        advantages.append(out.advantages.double().numpy())
        without += round(found["rollouts_without_signal"] * len(rows)) if of_items else int((advantages[-1] == 0).sum())
        shares.append(out.shares)
    whole = np.concatenate(advantages)
    rollouts = len(log.steps)
    signal = Liveness(dead / groups, without / rollouts, spread / groups, _variance_shares(spec, whole, shares))
    return Replay(rollouts, groups, steps, signal)


def _variance_shares(spec: Spec, advantage: np.ndarray, shares: list[dict[str, Any] | None]) -> dict[str, float] | None:
    known = [found for found in shares if found is not None]
    if len(known) < len(shares):
        return None
    if not advantage.size or (advantage == advantage[0]).all():
        return None  # a mean is rounded, and what it leaves of the variance is noise
    centered = advantage - advantage.mean()
    variance = float(centered @ centered)
    return {
        name: float(np.concatenate([found[name].double().numpy() for found in known]) @ centered) / variance
        for name in spec.components
    }
