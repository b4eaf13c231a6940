"""Open the log of a run: find its files, know its format by its content, and say what it does not hold."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rewardspec.logs.columns import listed
from rewardspec.logs.format import Format, Head
from rewardspec.logs.records import head_of
from rewardspec.logs.registry import registered
from rewardspec.logs.rows import BadLog
from rewardspec.logs.run import Run
from rewardspec.logs.steps import UNLIKE, Taken, batches_of, first_step, lacking, read_steps, rollouts_of
from rewardspec.text.diagnostics import did_you_mean, shorten
from rewardspec.text.shown import shown

ENDINGS = (".parquet", ".pq", ".jsonl", ".csv", ".tsv", ".arrow", ".pt")  # of files that are taken from a folder
MOST_FILES = 100_000
LOOK = 32  # rows of the first and of the last file


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
    taken = Taken(dict(columns or {}), group_by)
    known = registered()
    if format is not None and format not in known:
        near = did_you_mean(format, known)
        raise BadLog(f"unknown format `{shorten(format)}`{f': {near}' if near else ''}; known are {', '.join(known)}")
    files, named = _files(paths)
    heads, unread = _heads(files, named)
    form, heads, left = _format(heads, format, bool(taken.columns))
    left += unread
    chosen, said = form.choose(heads)
    heads = [head_of(h.path, LOOK) if h is chosen[0] or h is chosen[-1] else h for h in chosen]
    problems = [head.problem for head in heads if head.problem] or lacking(heads, form, taken)
    if not problems:
        problems = _wrong(heads, form, taken)
    if problems:
        raise BadLog("\n".join(dict.fromkeys(problems)))
    if not form.sharded and not form.alone:
        _refuse_twice(heads, form, taken)
    lost = (*_lost(heads, form, taken, left), *said)
    names = tuple(dict.fromkeys(name for head in heads for name in _names(head, form, taken)))
    paths_read = tuple(head.path for head in heads)
    return Run(paths_read, form.name, names, lambda: read_steps(heads, form, taken, names), lost, form.spec(heads[-1]))


def _refuse_twice(heads: Sequence[Head], form: Format, taken: Taken) -> None:
    """Raise BadLog if two files begin with one step: they are of two logs."""
    seen: dict[int, Path] = {}
    for head in heads:
        step = first_step(head, form, taken)
        if step is not None:
            other = seen.setdefault(step, head.path)
            if other != head.path:
                raise BadLog(f"step {step} is in {shown(other)} and in {shown(head.path)}: {form.apart}")


def _names(head: Head, form: Format, taken: Taken) -> list[str]:
    return [name for row in head.rows for one in rollouts_of(row, head.path, form, taken) for name in one.values]


def _wrong(heads: Sequence[Head], form: Format, taken: Taken) -> list[str]:
    """Messages about files whose first rows are wrong: everything that is wrong in them."""
    problems = []
    for head in heads:
        try:
            for row in head.rows:
                rollouts_of(row, head.path, form, taken)
        except ValueError:
            try:
                for _ in batches_of(head, form, taken):
                    pass
            except BadLog as error:
                problems.append(str(error))
    return problems


def _lost(heads: Sequence[Head], form: Format, taken: Taken, left: Sequence[tuple[Path, str]]) -> tuple[str, ...]:
    """What the log does not hold. Raises BadLog if that is its groups."""
    told = list(form.lost(heads[0]))
    first = next(iter(one for row in heads[0].rows for one in rollouts_of(row, heads[0].path, form, taken)), None)
    if taken.group_by:
        name = shorten(taken.group_by)
        told.append(f"groups: rollouts of a step with one `{name}` are one group, also if it was drawn twice")
    elif "group" not in taken.columns:
        groups = form.groups(heads[0])
        if groups is None:
            raise BadLog(_no_groups(heads[0], form, taken))
        told += [groups] if groups else []
        told += form.survey(heads)
    if first is not None and first.step is None and not any(one.startswith("steps:") for one in told):
        told.append(
            "steps: the log has none, so that each file is one step"
            if len(heads) > 1
            else "steps: the log has none, so that the file is one step"
        )
    if form.name == "table" and "advantage" not in taken.columns and first is not None and first.advantage is None:
        told.append("advantages: the log has no column `advantage`")
    if left:
        each = ", ".join(f"{shown(path)} ({reason})" for path, reason in left[:3])
        told.append(f"files: not read: {each}{f' and {len(left) - 3:,} more' if len(left) > 3 else ''}")
    return tuple(told)


def _no_groups(head: Head, form: Format, taken: Taken) -> str:
    names = list(dict.fromkeys(_names(head, form, taken)))
    lacks = f"{shown(head.path)} ({form.name}) does not say which rollouts are of one group"
    offer = next((name for name in form.offers if name in names), None)
    if offer is not None:
        return (
            f"{lacks}: with --group-by {offer} the rollouts of a step with one prompt are a group, "
            "also if the prompt was drawn twice"
        )
    return f"{lacks}: name a column that does, --group-by NAME; it has {listed(names)}"


# --- files


def _files(paths: Sequence[Path]) -> tuple[list[Path], set[Path]]:
    """The files of these paths, those of a folder in the order of the numbers in their names; which were named."""
    problems, found, named = [], [], set()
    for path in paths:
        if path.is_dir():
            try:
                inner = _in_folder(path)
            except BadLog as error:
                problems.append(str(error))
                continue
            if not inner:
                problems.append(f"{shown(path)} has no file that ends in {', '.join(ENDINGS)}")
            found += inner
        elif path.is_file():
            found.append(path)
            named.add(path)
        else:
            problems.append(f"there is no {shown(path)}" if not path.exists() else f"{shown(path)} is not a file")
    if not paths:
        problems.append("no file or folder is named")
    if problems:
        raise BadLog("\n".join(problems))
    return list(dict.fromkeys(found)), named


def _in_folder(folder: Path) -> list[Path]:
    if (folder / "dataset_dict.json").is_file():
        inner = sorted(one.name for one in folder.iterdir() if (one / "state.json").is_file())
        raise BadLog(f"{shown(folder)} has several data sets: name one, as {shown(folder / (inner or ['train'])[0])}")
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        return _saved(folder)
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if is_log(name)]
        if len(found) > MOST_FILES:
            raise BadLog(f"{shown(folder)} has more than {MOST_FILES:,} files: name a folder in it")
    return sorted(found, key=lambda path: _natural(str(path)))


def is_log(name: str) -> bool:
    """Whether a file of a folder is looked into, by its name."""
    return not name.startswith(".") and name.lower().endswith(ENDINGS)


def _natural(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"([0-9]{1,18})", name)]


def _saved(folder: Path) -> list[Path]:
    """The files of a folder that `datasets` saved, in its order."""
    try:
        state = json.loads((folder / "state.json").read_text("utf-8"))
        names = [one["filename"] for one in state["_data_files"]]
        assert all(isinstance(name, str) for name in names), "names are texts"
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
        raise BadLog(f"{shown(folder / 'state.json')} does not name the files of a data set") from None
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise BadLog(f"{shown(folder / 'state.json')} names a file in another folder: {shorten(outside[0])}")
    return [folder / name for name in names]


def _heads(files: Sequence[Path], named: set[Path]) -> tuple[list[Head], list[tuple[Path, str]]]:
    """The beginnings of files; of a folder's files those that cannot be read are apart."""
    heads, problems = [], []
    for path in files:
        try:
            head = head_of(path)
        except BadLog as error:
            problems.append((path, str(error)))
            continue
        heads.append(head)
    if problems and (not heads or any(path in named for path, _ in problems)):
        raise BadLog("\n".join(message for _, message in problems[:8]))
    return heads, [(path, message.removeprefix(shown(path)).strip(": ")) for path, message in problems]


# --- formats


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
        names = [form.name for form in known.values() if head.kind in form.kinds and _fits(form, head)]
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
