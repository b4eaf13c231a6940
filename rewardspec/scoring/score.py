"""The completions in a file, scored by the reward functions of a spec, with their advantages.

The file is read twice, some rows at a time: to measure them, and to write them. Between the two only numbers are in
memory, so that the order of the rows costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rewardspec.logs.columns import PREFIX, listed
from rewardspec.logs.names import Keys, read_by_names
from rewardspec.logs.outputs import BadPath, beside, check_paths, held
from rewardspec.logs.parts import RolloutFile, opened
from rewardspec.logs.rows import BadLog
from rewardspec.scoring.advantages import advantages
from rewardspec.scoring.component_cache import ComponentCache, InFile
from rewardspec.scoring.measure import Names
from rewardspec.scoring.packed import Packed, Ragged
from rewardspec.scoring.parquet import Kinds, joined
from rewardspec.scoring.partial import SUFFIX, Partial
from rewardspec.scoring.permission import Allowed
from rewardspec.scoring.processes import Task, best_processes, measured_in_order
from rewardspec.scoring.scorer import Scorer
from rewardspec.scoring.table import Gathering, Table
from rewardspec.scoring.versions import versions
from rewardspec.scoring.writing import Scored, check_format, is_table, write_scored
from rewardspec.spec import Spec
from rewardspec.text.shown import shown

if TYPE_CHECKING:
    from rewardspec.rewards.judge.account import Account, Used
    from rewardspec.scoring.accounts import AccountFile

ASIDE = ".bad.jsonl"  # the suffix of the file of bad rows
WITHOUT_CACHE = "which rows had no answer is known from a cache: name the one of the earlier run"
ADVANTAGE = "advantage"  # a reserved name: no column of a spec has it


@dataclass
class Summary:
    """The outcome of scoring a file.

    aside: the file of bad rows. scored, resumed: rows in all, and rows whose rewards an earlier run had measured. bad:
    (row number from 1, reason). missing: rows without a value, or without that of an item, by column. mean: of each
    column, over the items of lists. judges: what models were asked, by name. stopped: requests that were not sent, by
    the part of the budget that was spent.
    """

    aside: Path
    scored: int = 0
    resumed: int = 0
    changed: int = 0  # rows that changed since an earlier run
    bad: list[tuple[int, str]] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)
    mean: dict[str, float] = field(default_factory=dict)
    groups: int = 0
    asked: int = 0  # values that functions were asked for, of those that a cache keeps
    recalled: int = 0  # and values that it had
    judges: dict[str, Used] = field(default_factory=dict)
    stopped: dict[str, int] = field(default_factory=dict)

    def count(self, account: Account | None) -> None:
        """Have the counts of an account of judges."""
        if account is not None:
            self.judges, self.stopped = account.used, account.stopped


def score(
    spec: Spec,
    source: Path,
    output: Path,
    group_by: str | None = None,
    total_steps: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    allow_python: Allowed = False,
    prefix: str = PREFIX,
    restart: bool = False,
    processes: int | None = None,
    cache: Path | None = None,
    only_failed: bool = False,
    account: Account | None = None,
) -> Summary:
    """Score the rows of `source` (JSON lines or Parquet) into `output` (in the format of its suffix).

    `{"group": 1, "completion": "..."}` becomes `{..., "scored/correct": 1.0, "scored/advantage": 0.7}`: each row keeps
    its data and gets, with `prefix`, the columns that reward functions measure and its advantage among the good rows of
    its group. Bad rows go to `OUTPUT.bad.jsonl` with their numbers and reasons. Measured rewards are saved next to
    `output` until the run ends; another run of the same spec and functions resumes from them, for rows that have not
    changed.

    restart: measure all rows again. progress: called with the number of rows done, and of all rows. processes: how many
    measure; by default one, or for many rows and functions that only compute one for each core. cache: a file that
    keeps what functions say of rows, see `ComponentCache`. only_failed: ask again where a kept value is None. account:
    the limits and the budget of judges; it has their counts afterwards, also after an error.
    Raises BadPath, BadLog, ScoringError, OSError.
    """
    if only_failed and cache is None:
        raise BadPath(WITHOUT_CACHE)
    scorer = Scorer(spec, allow_python, cache=None if cache is None else ComponentCache(InFile(cache), only_failed))
    reads = {"spec": Path(spec.source.name), "source": source, **({} if cache is None else {"cache": cache})}
    suffixes = {SUFFIX: "the rewards so far", ASIDE: "the file of bad rows"}
    output = check_paths(output, reads, suffixes)
    check_format(output)
    with held(output), opened(source, output.parent) as file:
        how_many = processes or best_processes(scorer, file.count)
        with _counted(scorer, account, how_many) as (account, shared):
            run = _Run(scorer, file, output, prefix, progress, restart, how_many, allow_python, shared)
            table, gathered = run.measured(group_by)
        added = {prefix + name: table.columns[name] for name in scorer.names}
        summary = Summary(beside(output, ASIDE), resumed=gathered.resumed, changed=gathered.stale)
        summary.asked, summary.recalled = gathered.asked, gathered.recalled
        try:
            computed = advantages(spec, table, total_steps)
        except BadLog as error:  # rewards may have taken hours: keep them
            write_scored(output, summary.aside, Scored(file, table, added, run.kinds))
            aside = f", and {len(table.bad)} bad rows are in {shown(summary.aside)}" if table.bad else ""
            raise BadLog(f"{error}\nthe rewards without advantages are in {shown(output)}{aside}") from None
        added[prefix + ADVANTAGE] = computed
        write_scored(output, summary.aside, Scored(file, table, added, run.kinds))
        run.partial.remove()
    summary.count(account)
    summary.bad = sorted((i + 1, reason) for i, reason in table.bad.items())
    summary.scored = int(table.good.sum())
    summary.groups = len(np.unique(np.stack([table.steps[table.good], table.groups[table.good]]), axis=1).T)
    for name in scorer.names:
        summary.missing[name], summary.mean[name] = _missing_and_mean(table.columns[name], table)
    return summary


@dataclass
class _Run:
    """A file that is being measured. See `score`."""

    scorer: Scorer
    file: RolloutFile
    output: Path
    prefix: str
    progress: Callable[[int, int], None]
    restart: bool
    processes: int
    allowed: Allowed
    account: AccountFile | None
    partial: Partial = field(init=False)
    kinds: Kinds | None = None  # what the columns of JSON lines become in Parquet

    def measured(self, group_by: str | None) -> tuple[Table, Gathering]:
        """The table of the rows, and what it was gathered from. Raises BadLog, ScoringError."""
        spec, path = self.scorer.spec, self.file.path

        def choose(keys: Keys) -> Names:
            check_names(path, list(keys.top), self.scorer.names, self.prefix)
            return Names.of(path, spec, keys, group_by, self.prefix)

        resumes = beside(self.output, SUFFIX).exists() and not self.restart  # its names are those of the whole file
        return read_by_names(self.file, choose, self._measure, at_once=not resumes)

    def _measure(self, names: Names, passing: Callable[[Keys], None]) -> tuple[Table, Gathering]:
        """Measure all rows, a part at a time."""
        scorer, file, spec = self.scorer, self.file, self.scorer.spec
        heading = {
            "spec": spec.fingerprint,
            **versions(scorer.uses, scorer.own),
            **{f"column {n}": c for n, c in names.held.items()},
        }
        columns = {name: spec.program.columns[name].level.listed for name in scorer.names}
        to_parquet = is_table(self.output) and file.schema is None
        self.partial = Partial(self.output, heading, file.count, columns, self.restart)
        self.restart = True  # measured again under other names
        gathered, kinds, done = Gathering(), Kinds(), 0

        def tasks() -> Iterator[Task]:
            for part in file.parts(scorer.at_once):
                yield part, self.partial.of(part), to_parquet

        self.progress(0, file.count)
        with closing(self.partial):
            for part in measured_in_order(scorer, names, tasks(), self.processes, self.allowed, self.account):
                passing(part.keys)
                self.partial.add(part.lines)
                gathered.add(part)
                if part.kinds is not None:
                    kinds = joined([kinds, part.kinds])
                done += part.count
                self.progress(done, file.count)
        self.kinds = kinds if to_parquet else None
        if len(gathered) != file.count or not gathered.found:
            file.check_unchanged()
            raise file.without_rows()
        gathered.stale += self.partial.beyond
        return gathered.table(), gathered


@contextmanager
def _counted(
    scorer: Scorer, account: Account | None, processes: int
) -> Iterator[tuple[Account | None, AccountFile | None]]:
    """Have the judges of all processes use an account. Without judges, and without an account, nothing is loaded."""
    if account is None and not scorer.asking:
        yield None, None
        return
    from rewardspec.rewards.judge.account import Account
    from rewardspec.scoring.accounts import of_processes

    account = account or Account()
    with of_processes(account, processes) as shared:
        yield account, shared


def check_names(path: Path, top: Sequence[str], names: Sequence[str], prefix: str) -> None:
    """Raise BadLog if a column that is added would overwrite one in the file."""
    found = {str(name) for name in top}
    taken = [prefix + name for name in (*names, ADVANTAGE) if prefix + name in found]
    if taken:
        raise BadLog(
            f"{shown(path)} already has {listed(taken)}, which would be overwritten: choose another prefix, "
            "such as --prefix again/"
        )


def _missing_and_mean(column: Packed, table: Table) -> tuple[int, float]:
    """How many good rows miss a value, or that of an item; and the mean of the others."""
    good = table.good
    if isinstance(column, Ragged):
        rows = np.repeat(np.arange(len(column.lengths)), np.maximum(column.lengths, 0))
        missing = np.isnan(column.numbers) & good[rows]
        present = column.numbers[good[rows] & ~missing]
        return len(np.unique(rows[missing])), float(present.mean()) if len(present) else float("nan")
    assert isinstance(column, np.ndarray), "measured values are numbers"
    present = column[good & ~np.isnan(column)]
    return int(np.isnan(column[good]).sum()), float(present.mean()) if len(present) else float("nan")
