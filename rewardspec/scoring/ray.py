"""Files and datasets of any size, scored on one machine or many by Ray: `pip install 'rewardspec[ray]'`.

score(spec, "s3://bucket/rollouts/", "s3://bucket/scored/")

Reward functions run in Ray Data, each family in a pool of its own. What they say is numbers; these are kept beside the
output as soon as a piece of the input is measured, brought together by group, and become advantages. Texts are never
shuffled: pieces are read a second time to be written. So all but the measuring is cheap to do again, and nothing that
was measured is lost where a worker, a machine or the whole run ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from rewardspec.logs.columns import PREFIX
from rewardspec.logs.outputs import BadPath, held
from rewardspec.logs.rows import PARQUET, BadLog
from rewardspec.rewards.judge.account import Account
from rewardspec.scoring import remote
from rewardspec.scoring.parquet import Kinds, joined
from rewardspec.scoring.permission import Allowed
from rewardspec.scoring.run import TOGETHER, Progress, Run, cluster, got, library, task_of
from rewardspec.scoring.score import ASIDE, WITHOUT_CACHE, Summary
from rewardspec.scoring.scorer import Scorer
from rewardspec.scoring.storage import Place, is_half_moved, pieces_of, place, publish, without_rows
from rewardspec.scoring.writing import check_format
from rewardspec.spec import Spec
from rewardspec.text.shown import shown

PARTIAL = ".partial"  # a folder beside the output: what an interrupted run resumes from


def score(
    spec: Spec,
    source: str,
    output: str,
    group_by: str | None = None,
    total_steps: int | None = None,
    progress: Progress = lambda done, of: None,
    allow_python: Allowed = False,
    prefix: str = PREFIX,
    restart: bool = False,
    account: Account | None = None,
    key_hosts: Sequence[str] = (),
    cache: str | None = None,
    only_failed: bool = False,
) -> Summary:
    """Score the rollouts at an address into a folder of files, as `rewardspec.scoring.score.score` does one file.

    source: a file or a folder, JSON lines or Parquet; a path, or a URI of pyarrow or fsspec. output: a folder that is
    not there yet; its suffix says the format, else it is the input's. Rows are in the input's order, in `part-00000`
    and so on; `_SUCCESS` is written last. Bad rows are in `OUTPUT.bad.jsonl`. Until the end, what was measured is in
    the folder `OUTPUT.partial`, from which another run of the same spec, functions and input resumes.

    progress: pieces done, and of all. cache: a folder at any address that keeps what functions say of rows, as the
    cache of the plain engine does. only_failed: ask again where a kept value is None. account: limits and a budget of
    judges, for all workers together; it has their counts afterwards, also after an error.
    Raises BadPath, BadLog, ScoringError, OSError.
    """
    library()
    scorer = Scorer(spec, allow_python)
    account = account or (Account() if scorer.asking else None)
    target = place(output)
    check_format(Path(target.path))
    beside = target.longer(PARTIAL)
    if target.exists() and not target.is_local and not is_half_moved(target, beside):
        raise BadPath(f"{shown(output)} exists: name another output, or move it away")
    source_place = place(source)
    made = [target.longer(end) for end in ("", PARTIAL, ASIDE)]
    if _is_in(target, source_place):
        raise BadPath(f"{shown(output)} is in the input {shown(source)}: name an output elsewhere")
    if any(_is_in(source_place, one) for one in made):
        raise BadPath(f"{shown(source)} is where {shown(output)} is made: name an output elsewhere")
    cache = _cache(cache, only_failed, *made, source_place)
    with ExitStack() as held_here:
        if target.is_local:
            os.makedirs(os.path.dirname(target.path), exist_ok=True)
            held_here.enter_context(held(Path(target.path)))
            if target.exists() and target.names():
                raise BadPath(f"{shown(output)} exists: name another output, or move it away")
        if restart:
            beside.remove_folder()
        pieces = pieces_of(source)
        suffix = remote.suffix_of(target.path, pieces[0].table)
        to_parquet = suffix in PARQUET and not pieces[0].table
        files = remote.InFiles(pieces)
        run = Run(scorer, files, allow_python, prefix, group_by, source, to_parquet, account, key_hosts, progress)
        run.cache, run.only_failed = cache, only_failed
        held_here.enter_context(cluster(bool(allow_python)))
        run.measure(beside)
        if not run.head.keys.top:
            raise without_rows(pieces)
        try:
            outputs = _outputs(files)
            answers, groups = run.answers(total_steps, outputs)
        except BadLog as error:
            raise BadLog(f"{error}\nthe rewards are kept in {shown(beside.address)}") from None
        summary = _written(run, target, beside, suffix, answers, outputs, groups)
    summary.count(account)
    return summary


@dataclass
class Scored:
    """A scored dataset: `dataset` has the good rows; summary.bad says what is wrong with the others."""

    dataset: Any
    summary: Summary


def score_dataset(
    dataset: Any,
    spec: Spec,
    group_by: str | None = None,
    total_steps: int | None = None,
    allow_python: Allowed = False,
    prefix: str = PREFIX,
    account: Account | None = None,
    key_hosts: Sequence[str] = (),
    cache: str | None = None,
    only_failed: bool = False,
) -> Scored:
    """The good rows of a `ray.data.Dataset` with `scored/NAME` and `scored/advantage`, in the order of its blocks.

    The dataset is computed once and held in Ray's object store, which spills to disk. account: see `score`.
    Raises BadLog, ScoringError.
    """
    ray = library()
    scorer = Scorer(spec, allow_python)
    account = account or (Account() if scorer.asking else None)
    cache = _cache(cache, only_failed)
    blocks = remote.InBlocks(dataset.to_arrow_refs())
    if not len(blocks):
        raise BadLog("the dataset has no rows")
    run = Run(scorer, blocks, allow_python, prefix, group_by, "the dataset", False, account, key_hosts)
    run.cache, run.only_failed = cache, only_failed
    run.measure(None)
    if not run.head.keys.top:
        raise BadLog("the dataset has no rollouts")
    answers, groups = run.answers(total_steps, [[i] for i in range(len(blocks))])
    task = task_of(remote.block_written)
    names = scorer.names
    refs = [
        task.remote(run.shared_spec, run.shared_source, run.kept, i, names, prefix, *answers[i])
        for i in range(len(blocks))
    ]
    summary = Summary(Path(), asked=run.asked, recalled=run.recalled)
    tally, offset, made = _Tallies(names), 0, []
    for i, ref in enumerate(refs):
        found: remote.Written = got(ref)
        tally.add(summary, replace(found, bad={offset + row: why for row, why in found.bad.items()}))
        offset += run.head.counts[i]
        made.append(ray.put(found.block))
    tally.finish(summary, groups)
    summary.count(account)
    return Scored(ray.data.from_arrow_refs(made), summary)


def _outputs(files: remote.InFiles) -> list[list[int]]:
    """The pieces of each file of output: consecutive ones of one file."""
    found: list[list[int]] = []
    for i, piece in enumerate(files.pieces):
        same = found and files.pieces[found[-1][0]].address == piece.address
        if same and len(found[-1]) < TOGETHER:
            found[-1].append(i)
        else:
            found.append([i])
    return found


def _written(
    run: Run,
    output: Place,
    beside: Place,
    suffix: str,
    answers: Sequence[Sequence[Any]],
    outputs: Sequence[Sequence[int]],
    groups: int,
) -> Summary:
    """Write all files of output beside it, then put them in its place."""
    files, names = run.source, run.scorer.names
    kinds: Kinds | None = joined(run.head.kinds) if run.to_parquet else None
    several = len({piece.address for piece in files.pieces}) > 1
    rows, targets = dict.fromkeys((piece.address for piece in files.pieces), 0), []
    made, aside = beside / "output", beside / "bad"
    for number, pieces in enumerate(outputs):
        address = files.pieces[pieces[0]].address
        name = f"part-{number:05}{suffix}"
        targets.append(remote.Target(made.address, aside.address, name, pieces, rows[address], several))
        rows[address] += sum(run.head.counts[piece] for piece in pieces)
    while True:
        for folder in (made, aside):
            folder.remove_folder()
            folder.make_folder()
        task = task_of(remote.written)
        found: list[remote.Written] = got(
            [
                task.remote(run.shared_spec, run.shared_source, run.kept, target, names, run.prefix, kinds, *answers[i])
                for i, target in enumerate(targets)
            ]
        )
        other = [one.kinds for one in found if one.kinds is not None]
        if not other:
            break
        kinds = {
            name: None if any(one[name] is None for one in other) else kind for name, kind in (kinds or {}).items()
        }
    bad = output.longer(ASIDE)
    summary = Summary(cast(Path, bad.address), resumed=run.resumed, asked=run.asked, recalled=run.recalled)
    tally = _Tallies(names)
    for one in found:
        tally.add(summary, one)
    tally.finish(summary, groups)
    if summary.bad:
        with bad.system.open_output_stream(bad.path) as file:
            for name in aside.names():
                file.write((aside / name).read())
    elif bad.exists():
        bad.system.delete_file(bad.path)
    if summary.scored:
        publish(made, output, not output.is_local and is_half_moved(output, beside))
    beside.remove_folder()
    return summary


class _Tallies:
    """What a Summary says of columns, output by output."""

    def __init__(self, names: Sequence[str]):
        self.of = {name: remote.Tally() for name in names}

    def add(self, summary: Summary, found: remote.Written) -> None:
        summary.scored += found.scored
        summary.bad += [(i + 1, reason) for i, reason in found.bad.items()]
        for name, tally in found.tallies.items():
            self.of[name].add(tally)

    def finish(self, summary: Summary, groups: int) -> None:
        summary.groups = groups
        for name, tally in self.of.items():
            summary.missing[name] = tally.missing
            summary.mean[name] = tally.total / tally.count if tally.count else float("nan")


def _cache(cache: str | None, only_failed: bool, *others: Place) -> str | None:
    """The address of a cache, a path made absolute. Raises BadPath for one that is in another place, or around it."""
    if cache is None:
        if only_failed:
            raise BadPath(WITHOUT_CACHE)
        return None
    found = place(cache)
    other = next((one for one in others if _is_in(found, one) or _is_in(one, found)), None)
    if other is not None:
        raise BadPath(f"the cache {shown(cache)} and {shown(other.address)} need folders of their own")
    if found.exists() and not found.is_folder():
        raise BadPath(f"{shown(cache)} is a file: with --engine ray a cache is a folder")
    return found.address


def _is_in(one: Place, other: Place) -> bool:
    """Whether a place is another, or in it."""
    return (one.path.rstrip("/") + "/").startswith(other.path.rstrip("/") + "/")
