"""Open the log of a run: find its files, know its format by its content, and say what it does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewardspec.logs.columns import listed
from rewardspec.logs.files import log_files
from rewardspec.logs.format import Format, Head, Mark, Rollout
from rewardspec.logs.records import head_of
from rewardspec.logs.registry import registered
from rewardspec.logs.rows import BadLog
from rewardspec.logs.run import Run, Step, Trained
from rewardspec.logs.steps import UNLIKE, Taken, batches_of, lacking, read_steps, rollouts_of
from rewardspec.text.diagnostics import did_you_mean, shorten
from rewardspec.text.shown import shown

LOOK = 32  # rows of the first and of the last file


@dataclass(frozen=True)
class Opened:
    """The files of a log, of one format and in their order: heads, without rows. The rest is that of a `Run`."""

    form: Format
    heads: Sequence[Head]
    taken: Taken
    columns: tuple[str, ...]
    lost: tuple[str, ...]
    spec: Trained | None

    def run(self) -> Run:
        read = tuple(head.path for head in self.heads)
        return Run(read, self.form.name, self.columns, self.steps, self.lost, self.spec)

    def steps(self) -> Iterator[Step]:
        return read_steps(self.heads, self.form, self.taken, self.columns)


def open_run(
    paths: Sequence[Path],
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    group_by: str | None = None,
) -> Run:
    """The run that files, or the files in folders, hold; nothing but their beginnings is read.

    format: the name of a format; by default it is known by the content of the files.
    columns: new name to the name in the log, where `score.acc` is `acc` inside `score`. `step`, `group` and
        `advantage` say which column is the step, the group, the advantage.
    group_by: the column whose equal values, in one step, are a group.

    `columns` of the run are those of its first rows; a step also has those that appear later.
    Raises BadLog with everything that is wrong, OSError.
    """
    return open_files(paths, format=format, columns=columns, group_by=group_by).run()


def open_files(
    paths: Sequence[Path],
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    group_by: str | None = None,
    since: Mapping[Path, Mark] | None = None,
) -> Opened:
    """As `open_run`. since: where the rows of files are read from, by default all."""
    taken = Taken(dict(columns or {}), group_by)
    known = registered()
    if format is not None and format not in known:
        near = did_you_mean(format, known)
        raise BadLog(f"unknown format `{shorten(format)}`{f': {near}' if near else ''}; known are {', '.join(known)}")
    files, named = log_files(paths)
    heads, unread = _heads(files, named)
    form, heads, left = _format(heads, format, bool(taken.columns))
    chosen, said = form.choose(heads)
    begin, end = (head_of(head.path, LOOK) for head in (chosen[0], chosen[-1]))
    problems = [head.problem for head in chosen if head.problem] or lacking((begin, end), form, taken)
    if problems:
        raise BadLog("\n".join(dict.fromkeys(problems)))
    heads, names = _begun(chosen, begin, end, form, taken)
    if not form.sharded and not form.alone:
        _refuse_twice(heads, form)
    lost = (*_lost(begin, heads, form, taken, [*left, *unread]), *said)
    if since:
        heads = [replace(head, since=since.get(head.path, head.since)) for head in heads]
    return Opened(form, heads, taken, names, lost, form.spec(end))


def _begun(
    heads: Sequence[Head], begin: Head, end: Head, form: Format, taken: Taken
) -> tuple[list[Head], tuple[str, ...]]:
    """The files with the steps that they begin with, without their rows, and the columns. Raises BadLog.

    A file whose first rows are wrong is read to its end, so that all of them are named.
    """
    found, problems = [], []
    names: dict[str, None] = {}
    for place, head in enumerate(heads):
        head = begin if place == 0 else end if place == len(heads) - 1 else head_of(head.path)
        try:
            rollouts = [one for row in head.rows for one in rollouts_of(row, head.path, form, taken)]
            rollouts = rollouts or next(batches_of(head, form, taken), [])  # rows can be without rollouts
        except ValueError:
            try:
                for _ in batches_of(head, form, taken):
                    pass
            except BadLog as error:
                problems.append(str(error))
            continue
        names |= dict.fromkeys(name for one in rollouts for name in one.values)
        first = rollouts[0].step if rollouts else None
        found.append(replace(head, rows=(), metadata={}, first=first))
    if problems:
        raise BadLog("\n".join(problems))
    return found, tuple(names)


def _refuse_twice(heads: Sequence[Head], form: Format) -> None:
    """Raise BadLog if two files begin with one step: they are of two logs."""
    seen: dict[int, Path] = {}
    for head in heads:
        if head.first is not None:
            other = seen.setdefault(head.first, head.path)
            if other != head.path:
                raise BadLog(f"step {head.first} is in {shown(other)} and in {shown(head.path)}: {form.apart}")


def _lost(
    begin: Head, heads: Sequence[Head], form: Format, taken: Taken, left: Sequence[tuple[Path, str]]
) -> list[str]:
    """What the log does not hold. Raises BadLog if that is its groups."""
    told = list(form.lost(begin))
    rollouts = [one for row in begin.rows for one in rollouts_of(row, begin.path, form, taken)]
    if taken.group_by:
        name = shorten(taken.group_by)
        told.append(f"groups: rollouts of a step with one `{name}` are one group, also if it was drawn twice")
    elif "group" not in taken.columns:
        groups = form.groups(begin)
        if groups is None:
            raise BadLog(_no_groups(begin, form, rollouts))
        told += [groups] if groups else []
        told += form.survey(heads)
    if heads[0].first is None and not any(one.startswith("steps:") for one in told):
        told.append(f"steps: the log has none, so that {'each' if len(heads) > 1 else 'the'} file is one step")
    if form.name == "table" and all(one.advantage is None for one in rollouts):
        told.append("advantages: the log has no column `advantage`")
    if left:
        each = ", ".join(f"{shown(path)} ({reason})" for path, reason in left[:3])
        told.append(f"files: not read: {each}{f' and {len(left) - 3:,} more' if len(left) > 3 else ''}")
    return told


def _no_groups(head: Head, form: Format, rollouts: Sequence[Rollout]) -> str:
    names = list(dict.fromkeys(name for one in rollouts for name in one.values))
    lacks = f"{shown(head.path)} ({form.name}) does not say which rollouts are of one group"
    offer = next((name for name in form.offers if name in names), None)
    if offer is not None:
        return (
            f"{lacks}: with --group-by {offer} the rollouts of a step with one prompt are a group, "
            "also if the prompt was drawn twice"
        )
    return f"{lacks}: name a column that does, --group-by NAME; it has {listed(names)}"


# --- formats


def _heads(files: Sequence[Path], named: set[Path]) -> tuple[list[Head], list[tuple[Path, str]]]:
    """The beginnings of files; of a folder's files those that cannot be read are apart."""
    heads, problems = [], []
    for path in files:
        try:
            head = head_of(path)
        except BadLog as error:
            problems.append((path, str(error)))
            continue
        fits = tuple(form.name for form in registered().values() if head.kind in form.kinds and _fits(form, head))
        heads.append(replace(head, rows=(), fits=fits))
    if problems and (not heads or any(path in named for path, _ in problems)):
        raise BadLog("\n".join(message for _, message in problems[:8]))
    return heads, [(path, message.removeprefix(shown(path)).strip(": ")) for path, message in problems]


def _format(heads: list[Head], format: str | None, columns: bool) -> tuple[Format, list[Head], list[tuple[Path, str]]]:
    """The format of files, the files that have it, and those that have none. Raises BadLog if that is not certain."""
    known = registered()
    if format is not None:
        form = known[format]
        fitting = [head for head in heads if head.kind in form.kinds]
        if not fitting:
            raise BadLog(f"{shown(heads[0].path)} is {heads[0].kind}, and {form.about} is {' or '.join(form.kinds)}")
        return form, fitting, [(head.path, f"is {head.kind}") for head in heads if head not in fitting]
    by_format: dict[str, list[Head]] = {}
    left, problems = [], []
    for head in heads:
        names = head.fits
        if len(names) > 1:
            either = " or ".join(f"--from {name}" for name in names)
            problems.append(f"{shown(head.path)} can be {' or '.join(names)}: say which, {either}; {_looked_at(head)}")
        elif names:
            by_format.setdefault(names[0], []).append(head)
        else:
            left.append(head)
    if problems:
        raise BadLog("\n".join(problems[:8]))
    if len(by_format) > 1:
        each = "; ".join(f"{shown(found[0].path)} is {name}" for name, found in by_format.items())
        raise BadLog(f"the files are of several formats: {each}: name the files of one")
    if by_format:
        ((name, found),) = by_format.items()
        return known[name], found, [(head.path, f"is not of format {name}") for head in left]
    if columns:
        return _format(heads, "table", columns)
    raise BadLog(_unknown(heads))


def _fits(form: Format, head: Head) -> bool:
    try:
        return form.matches(head)
    except UNLIKE:  # a value of another type than the trainer writes
        return False


def _looked_at(head: Head) -> str:
    return f"it is {head.kind} with {listed(list(head.columns))}" if head.columns else f"it is {head.kind}"


def _unknown(heads: Sequence[Head]) -> str:
    head = heads[0]
    if head.problem:
        return "\n".join(head.problem for head in heads[:8] if head.problem)
    forms = [form for form in registered().values() if form.name != "table"]
    told = "".join(f"\n  {form.name}: {form.marks} ({', '.join(form.kinds)})" for form in forms)
    return (
        f"{shown(head.path)} is of no known format; {_looked_at(head)}\n"
        "Name its columns: --columns prompt=question,correct=score.acc,step=iteration --group-by prompt. "
        f"If all have their names already: --from table. Known formats, and what shows them:{told}"
    )
