"""What `score` would ask judges about a file, counted without asking anyone: `rewardspec score --dry-run`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rewardspec.language.declarations import Use
from rewardspec.logs.columns import PREFIX
from rewardspec.logs.names import Keys, read_by_names
from rewardspec.logs.parts import RolloutFile
from rewardspec.logs.rows import Unread
from rewardspec.rewards.reward import Call
from rewardspec.scoring.component_cache import ComponentCache, InFile
from rewardspec.scoring.measure import Names, read_row
from rewardspec.scoring.scorer import Scorer, Scores
from rewardspec.spec import Spec

RUNS_PROGRAMS = "code."  # a family whose functions take seconds a rollout, and are not called


@dataclass
class Asked:
    """What one reward function would ask an endpoint.

    rows: rollouts that it would be asked about. unsure: those of them whose `only_when` reads values that are not known
    before the run: they may not be asked about. kept: further rollouts, whose values the component cache has.
    requests: different ones. recalled: those that the judge's cache answers. prompt_tokens: of the others, about.
    completion_tokens: of their answers, at most; None for no end. reads: the columns of `only_when` that are not known.
    """

    model: str
    rows: int = 0
    unsure: int = 0
    kept: int = 0
    requests: int = 0
    recalled: int = 0
    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    reads: list[str] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return self.requests - self.recalled


@dataclass
class DryRun:
    """What `score` would ask. bad: rows that it would skip. others: the user's functions, which may ask as well."""

    rows: int = 0
    bad: int = 0
    judges: dict[str, Asked] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


def dry_run(
    spec: Spec,
    file: RolloutFile,
    group_by: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
    prefix: str = PREFIX,
    cache: Path | None = None,
    only_failed: bool = False,
) -> DryRun:
    """What `score` would ask about the rows of a file, which is read part by part.

    No request is sent, no function of the user's is imported, and no cache is written. Of reward functions only those
    are called that an `only_when` of a judge reads and that compute: none that runs programs. progress: called with the
    number of rows done. cache, only_failed: see `score`. Raises BadLog, ScoringError, OSError.
    """
    kept = None if cache is None or not cache.exists() else ComponentCache(_ReadOnly(cache), only_failed)
    others = [name for name, use in spec.uses.items() if use.python is not None]

    def choose(keys: Keys) -> Names:
        return Names.of(file.path, spec, keys, group_by, prefix)

    def read(names: Names, passing: Callable[[Keys], None]) -> DryRun:
        scorer = _Counting(spec, kept)
        found, seen = DryRun(others=others), False
        for part in file.parts(scorer.at_once):
            rows, keys, given = part.rows(), Keys(), []
            keys.add(rows)
            passing(keys)
            seen = seen or bool(keys.top)
            for row in rows:
                one = row if isinstance(row, Unread) else read_row(spec, names, row)
                if isinstance(row, Unread) or not hasattr(one, "values"):
                    found.bad += 1
                else:
                    given.append({**row, **one.values})
            found.bad += len(scorer.measure(given).bad)
            found.rows += len(rows)
            progress(found.rows)
        if not seen:
            raise file.without_rows()
        found.judges = {name: counted.total() for name, counted in scorer.counted.items()}
        return found

    return read_by_names(file, choose, read)


def _computes(use: Use) -> bool:
    """Whether a function only computes, in this process or in others."""
    return use.reward is not None and use.reward.calls is None and not use.reward.name.startswith(RUNS_PROGRAMS)


def _never(**_: object) -> None:
    """In place of the user's functions."""
    raise AssertionError("a dry run calls no function of the user's")


class _ReadOnly(InFile):
    def keep(self, version: str, texts: Mapping[str, str]) -> bool:
        return True


class _Counted:
    """The requests of one function, by hash: 13 bytes each where a cache would answer the second of two equal ones."""

    def __init__(self, use: Use):
        most = use.options.get("max_tokens")
        self.asked = Asked(str(use.options.get("model", "")))
        self.most = None if most is None else int(str(most))
        self.names, self.prompts, self.recalled = array("Q"), array("I"), array("B")

    def add(self, calls: Sequence[Call]) -> None:
        for call in calls:
            if call.completion is not None:
                self.most = call.completion
            if call.keeps:
                self.names.append(int(call.name[:16], 16))
                self.prompts.append(min(call.prompt, 2**32 - 1))
                self.recalled.append(call.recalled)
            else:
                self.asked.requests += 1
                self.asked.prompt_tokens += call.prompt

    def total(self) -> Asked:
        asked = self.asked
        _, first = np.unique(np.frombuffer(self.names, np.uint64), return_index=True)
        recalled = np.frombuffer(self.recalled, np.uint8)[first] > 0
        asked.requests += len(first)
        asked.recalled = int(recalled.sum())
        asked.prompt_tokens += int(np.frombuffer(self.prompts, np.uint32)[first][~recalled].sum(dtype=np.int64))
        asked.completion_tokens = None if self.most is None else asked.calls * self.most
        return asked


class _Counting(Scorer):
    """A scorer that counts the requests of functions that ask endpoints."""

    def __init__(self, spec: Spec, cache: ComponentCache | None):
        super().__init__(spec, functions={n: _never for n, use in spec.uses.items() if use.python}, cache=cache)
        self.counted = {name: _Counted(use) for name, use in self.asking.items()}
        gates = {c for n in self.counted if self.uses[n].only_when is not None for c in spec.compared(n)}
        self.uses = {n: use for n, use in self.uses.items() if n in self.counted or (n in gates and _computes(use))}
        self.names = [name for name in self.names if name in self.uses]
        for name in self.counted:
            ask = partial(self._count, self.uses[name], self.counted[name])
            self.measures[name] = replace(self.measures[name], ask=ask)
        self.known: dict[str, set[int]] = {}  # of measured columns, the rows whose values are known
        self.unsure: dict[str, set[int]] = {}  # of functions, the rows for which `only_when` is not known

    def measure(self, rows: Sequence[Mapping[str, Any]]) -> Scores:
        self.known, self.unsure = {}, {}
        return super().measure(rows)

    def _count(self, use: Use, counted: _Counted, given: Sequence[Any]) -> list[None]:
        assert use.reward is not None and use.reward.calls is not None, "these are counted"
        if given:
            counted.add(use.reward.calls(*map(list, zip(*given, strict=True)), **use.options))
        return [None] * len(given)

    def _wanted(
        self, name: str, rows: Sequence[Mapping[str, Any]], places: Sequence[int], scores: Scores
    ) -> Sequence[int]:
        measured = [column for column in self.spec.compared(name) if column in self.spec.uses]
        unknown = {i for i in places if any(i not in self.known.get(column, ()) for column in measured)}
        self.unsure[name] = unknown
        if name in self.counted and unknown:
            self.counted[name].asked.reads = measured
        wanted = {*super()._wanted(name, rows, [i for i in places if i not in unknown], scores)} | unknown
        return [i for i in places if i in wanted]

    def _column(self, name: str, rows: Sequence[Mapping[str, Any]], places: Sequence[int], scores: Scores) -> list[Any]:
        before = 0 if self.cache is None else self.cache.recalled
        values = super()._column(name, rows, places, scores)
        unsure = self.unsure.get(name, set())
        if name not in self.counted:
            self.known[name] = {*range(len(rows))} - unsure
            return values
        asked, kept = self.counted[name].asked, 0 if self.cache is None else self.cache.recalled - before
        good = [i for i in places if i not in scores.bad]
        self.known[name] = {i for i in good if isinstance(values[i], float)}
        asked.kept += kept
        asked.rows += len(good) - kept
        asked.unsure += sum(1 for i in good if i in unsure and i not in self.known[name])
        return values
