"""The public functions of `rewardspec`, one for each command that works on specs.

Each takes a spec, as `load` and `loads` return it, the path of a file, or the name of a published spec.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, overload

import rewardspec  # its names are imported when type hints are asked for: `check` stays fast
from rewardspec.language.files import read_file
from rewardspec.language.published import located
from rewardspec.lint import Run, codes, findings
from rewardspec.spec import Spec, compile, constant_text, is_text, load, loads
from rewardspec.spec import check as check_source
from rewardspec.text.diagnostics import Diagnostic, did_you_mean, shorten
from rewardspec.text.source import Source

if TYPE_CHECKING:
    import rewardspec.rewards.judge

__all__ = ["check", "compile", "diff", "load", "loads", "replay", "report", "score", "simulate", "verify"]

Given = Spec | str | PathLike[str]  # a spec, or the path or published name of one
Rate = float | Fraction
MOST_ROLLOUTS = 64  # of a group
MOST_ITEMS = 16  # of a list


def check(
    spec: Given,
    *,
    constants: Mapping[str, object] = {},
    rates: Mapping[str, Rate] = {},
    group_sizes: int | Iterable[int] = (),
    total_steps: int | None = None,
    items: int = 2,
    strict: bool = False,
    errors: Sequence[str] = (),
) -> list[Diagnostic]:
    """The diagnostics of a spec, as `rewardspec check` prints them: errors, findings, then notes.

    for diagnostic in rewardspec.check("gdpo/math"):
        print(diagnostic.render())

    spec: a spec, the path or published name of one, or its text. constants: values for names under `define:`. rates:
    success rates, 0 to 1, of columns or components with two values; with group_sizes, they give the share of dead
    groups. total_steps: the length of training. items: the most items of a list in the groups that are tried.
    strict: treat every finding as an error. errors: treat the findings of these codes as errors.

    A spec with errors does not raise. Raises OSError for a file that cannot be read, ValueError for a wrong option.
    """
    known = codes()
    for code in errors:
        if code not in known:
            near = did_you_mean(code, known, "`rewardspec list findings` shows all")
            raise ValueError(f"errors: unknown finding {shorten(code)!r}; {near}")
    sizes = _sizes(group_sizes) if group_sizes != () else []
    if rates and not sizes:
        raise ValueError("rates need group_sizes, such as [8]")
    run = Run(_rates(rates), sizes, total_steps, _items(items))
    if isinstance(spec, Spec):
        if constants:
            raise ValueError("set constants when the spec is loaded: load(path, constants=...)")
        found, notes = _found(spec, [*spec.diagnostics], run, strict, errors)
        return [*found, *notes]
    if isinstance(spec, str) and is_text(spec):
        source: Source | None = Source("<spec>", spec)
        report = None
    else:
        source, report = read_file(spec)
        if note := located(spec).note:
            warnings.warn(note, stacklevel=2)
    if source is None:
        assert report is not None, "a file without text has a reason"
        return report.sorted()
    found, notes = check_text(
        source, {name: constant_text(value) for name, value in constants.items()}, run, strict, errors
    )
    return [*found, *notes]


def check_text(
    source: Source, constants: Mapping[str, str], run: Run, strict: bool = False, errors: Sequence[str] = ()
) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """The errors and findings of a text, and notes on what was not checked. Raises ValueError for wrong rates."""
    spec, report = check_source(source, constants)
    return (report.sorted(), []) if spec is None else _found(spec, report.sorted(), run, strict, errors)


def _found(
    spec: Spec, said: list[Diagnostic], run: Run, strict: bool, errors: Sequence[str]
) -> tuple[list[Diagnostic], list[Diagnostic]]:
    found = findings(spec, run)
    raised = [replace(d, severity="error") if strict or d.code in errors else d for d in found.warnings]
    return [*said, *raised], [*found.notes]


def verify(
    spec: Given,
    group_sizes: int | Iterable[int] = range(2, 9),
    *,
    items: int = 2,
    seed: int = 0,
    progress: Callable[[int, int, int], None] | None = None,
) -> list[rewardspec.Verdict]:
    """A verdict on each guarantee of a spec: proved for every group of these sizes, or refuted by one.

    [verdict.status for verdict in rewardspec.verify("specs/rc_grpo/rc_grpo.yaml", range(2, 5))]

    A spec without guarantees has no verdicts. items: the most items of a list inside a rollout: proofs are for lists of
    up to so many, as `verdict.items` and its reason say. seed: for random groups if there are too many to try all.
    progress: called with the group size, the number of groups tried, and the number to try. Raises SpecError, OSError,
    and ValueError for a wrong size.
    """
    from rewardspec.prove.verify import verify

    return verify(_spec(spec), _sizes(group_sizes), progress, _whole("seed", seed, 0, 0), _items(items))


@overload
def simulate(
    spec: Given,
    group_sizes: int | Iterable[int] = ...,
    *,
    rates: Mapping[str, Rate] = ...,
    items: int = ...,
    step: int = ...,
    total_steps: int | None = ...,
    seed: int = ...,
    progress: Callable[[int], None] | None = ...,
) -> list[rewardspec.Simulation]: ...


@overload
def simulate(
    spec: Given,
    *,
    rollouts: str | PathLike[str],
    group_by: str | None = ...,
    prefix: str = ...,
    total_steps: int | None = ...,
) -> rewardspec.Replay: ...


def simulate(
    spec: Given,
    group_sizes: int | Iterable[int] | None = None,
    *,
    rates: Mapping[str, Rate] | None = None,
    items: int | None = None,
    step: int | None = None,
    total_steps: int | None = None,
    seed: int | None = None,
    progress: Callable[[int], None] | None = None,
    rollouts: str | PathLike[str] | None = None,
    group_by: str | None = None,
    prefix: str | None = None,
) -> list[rewardspec.Simulation] | rewardspec.Replay:
    """The signal that survives a spec: in all groups of these sizes (default 2, 4 and 8), or in a log of rollouts.

    rewardspec.simulate("specs/gdpo/math.yaml", 4, rates={"correct": 0.3})[0].signal.groups_without_signal
    rewardspec.simulate("spec.yaml", rollouts="rollouts.parquet").signal.groups_without_signal

    rates: success rates of columns or components with two values; the values of others are equally likely.
    items: the most items of a list inside a rollout, by default 2; all lengths up to that are equally likely.
    step, total_steps: the time at which schedules are evaluated. seed: for random groups if there are too many to try
    all. progress: called with the number of distinct advantage groups so far.
    rollouts: a log (JSON lines or Parquet). group_by: its column that identifies the group. prefix: the prefix of the
    columns that `score` added.
    Raises SpecError, OSError, BadLog (a ValueError) for wrong rows, ValueError for a wrong option.
    """
    from rewardspec.groups.points import ITEMS
    from rewardspec.groups.rates import policy
    from rewardspec.logs.columns import PREFIX
    from rewardspec.prove.replay import read_log, replay
    from rewardspec.prove.simulate import simulate

    read = _spec(spec)
    if rollouts is not None:
        _only("rollouts", group_sizes=group_sizes, rates=rates, items=items, step=step, seed=seed, progress=progress)
        log = read_log(Path(rollouts), read, group_by, PREFIX if prefix is None else prefix)
        return replay(read, log, total_steps)
    _only("group_sizes", group_by=group_by, prefix=prefix)
    stated = _rates(rates or {})
    most = ITEMS if items is None else _items(items)
    policy(read.program, stated)  # raises for wrong rates before anything is counted
    moment = {
        "step": _whole("step", step, 0, 0),
        "total_steps": _whole("total_steps", total_steps, 1, 1),
        "seed": _whole("seed", seed, 0, 0),
    }
    sizes = _sizes((2, 4, 8) if group_sizes is None else group_sizes)
    return [simulate(read, size, rates=stated, progress=progress, items=most, **moment) for size in sizes]


@overload
def diff(
    before: Given, after: Given, group_sizes: int | Iterable[int] = ..., *, items: int = ...
) -> rewardspec.Difference: ...


@overload
def diff(
    before: Given,
    after: Given,
    *,
    rollouts: str | PathLike[str],
    group_by: str | None = ...,
    prefix: str = ...,
    total_steps: int | None = ...,
) -> rewardspec.LogDifference: ...


def diff(
    before: Given,
    after: Given,
    group_sizes: int | Iterable[int] | None = None,
    *,
    items: int | None = None,
    rollouts: str | PathLike[str] | None = None,
    group_by: str | None = None,
    prefix: str | None = None,
    total_steps: int | None = None,
) -> rewardspec.Difference | rewardspec.LogDifference:
    """The difference of two specs: in their keys, and in the advantages of groups (default sizes 2 and 3) or of a log.

    rewardspec.diff("before.yaml", "after.yaml").is_none

    items: the most items of a list inside a rollout, by default 2. rollouts: a log (JSON lines or Parquet). group_by,
    prefix: as for `simulate`. total_steps: the length of the logged
    run. Raises SpecError, OSError, BadLog (a ValueError) for wrong rows, ValueError for a wrong option.
    """
    from rewardspec.groups.points import ITEMS
    from rewardspec.logs.columns import PREFIX
    from rewardspec.prove.diff import difference
    from rewardspec.prove.diff_on_log import difference_on_log

    specs = _spec(before), _spec(after)
    if rollouts is None:
        _only("group_sizes", group_by=group_by, prefix=prefix, total_steps=total_steps)
        sizes = _sizes((2, 3) if group_sizes is None else group_sizes)
        return difference(*specs, sizes, ITEMS if items is None else _items(items))
    _only("rollouts", group_sizes=group_sizes, items=items)
    return difference_on_log(*specs, Path(rollouts), group_by, total_steps, PREFIX if prefix is None else prefix)


def score(
    spec: Given,
    rollouts: str | PathLike[str],
    output: str | PathLike[str],
    *,
    group_by: str | None = None,
    total_steps: int | None = None,
    allow_python: bool | str | Collection[str] = False,
    prefix: str | None = None,
    restart: bool = False,
    progress: Callable[[int, int], None] | None = None,
    processes: int | None = None,
    cache: str | PathLike[str] | None = None,
    only_failed: bool = False,
    account: rewardspec.rewards.judge.Account | None = None,
) -> rewardspec.Summary:
    """Score the completions of a file, write them with rewards and advantages, and return a summary.

    rewardspec.score("spec.yaml", "rollouts.jsonl", "scored.parquet").mean

    rollouts: JSON lines or Parquet with `prompt`, `completion` and the columns that the functions read. output: these
    rows, with `scored/NAME` and `scored/advantage`. allow_python: modules, or `module:function`, that `python:` may
    name; True for all. restart: discard the results of an interrupted run. progress: called with the number of rows
    done and the number of all rows. processes: how many run reward functions; by default one, or, for many rows and
    functions of rewardspec that only compute, one for each core. cache: a file that keeps what
    functions say of rows. only_failed: ask again where it has no answer. account: limits, a budget and prices of
    judges, `rewards.judge.Account(budget=Budget(calls=1000))`; it has their counts afterwards. Raises SpecError,
    OSError, and these ValueErrors: NotAllowed, BadLog, BadPath, ScoringError.
    """
    from rewardspec.logs.columns import PREFIX
    from rewardspec.scoring.score import score

    shown = progress or (lambda done, of: None)
    files = Path(rollouts), Path(output)
    added = PREFIX if prefix is None else prefix
    kept = None if cache is None else Path(cache)
    return score(
        _spec(spec),
        *files,
        group_by,
        total_steps,
        shown,
        allow_python,
        added,
        restart,
        processes,
        kept,
        only_failed,
        account,
    )


def replay(
    run: str | PathLike[str] | Sequence[str | PathLike[str]],
    specs: Given | Sequence[Given] = (),
    *,
    by: str | None = None,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    group_by: str | None = None,
    total_steps: int | None = None,
    output: str | PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> rewardspec.RunReplay:
    """What the steps of a logged run come to under one spec, or under two that are compared.

    rewardspec.replay("completions", "spec.yaml").specs[0].audit

    run: files, or the folders that they are in. specs: by default the one that the log has. by: a column by whose
    values groups are counted, too. format: what wrote the log, if that is not plain. columns: names of the spec to
    names in the log. group_by: the column of the log that identifies the group. output: a page to write, one HTML file
    that opens from disk. progress: called after each step with the steps and rollouts so far. Raises SpecError,
    OSError, and these ValueErrors: BadLog for a log that lacks something, BadPath, NoLibrary if no page can be drawn.
    """
    from rewardspec.logs.open import open_run
    from rewardspec.logs.rows import BadLog
    from rewardspec.runs.batches import own_spec
    from rewardspec.runs.replay import replay

    paths = [run] if isinstance(run, str | PathLike) else run
    if output is not None:
        from rewardspec.pages.page import check_page

        check_page(Path(output), [Path(path) for path in (*paths, *_files(specs))])
    opened = open_run([Path(path) for path in paths], format=format, columns=columns, group_by=group_by)
    given = [specs] if isinstance(specs, str | PathLike | Spec) else [*specs]
    found = [_spec(one) for one in given]
    if not found:
        if opened.spec is None:
            raise BadLog("the log does not have the spec that it was trained under: pass it")
        found = [own_spec(opened.spec)]
    replayed = replay(opened, found, by=by, total_steps=total_steps, progress=progress)
    if output is not None:
        from rewardspec.pages.page import write_page
        from rewardspec.pages.replay import replay_page

        write_page(Path(output), replay_page(replayed, found))
    return replayed


def report(
    spec: Given,
    output: str | PathLike[str] | None = None,
    *,
    group_sizes: int | Iterable[int] = (2, 4, 8),
    rates: Mapping[str, Rate] = {},
    items: int = 2,
    total_steps: int | None = None,
) -> rewardspec.SpecReport:
    """All that can be said of a spec without a run, and its page.

    rewardspec.report("specs/gdpo/math.yaml", "page.html").findings

    output: a page to write, one HTML file that opens from disk. group_sizes: those of which groups are counted and
    guarantees are tried. rates: success rates of columns or components with two values. items: the most items of a list
    inside a rollout. total_steps: the length of training. Raises SpecError, OSError, and these ValueErrors: BadPath,
    NoLibrary if no page can be drawn, others for a wrong option.
    """
    from rewardspec.pages.report import report, report_page

    if output is not None:
        from rewardspec.pages.page import check_page

        check_page(Path(output), [Path(path) for path in _files([spec])])
    length = None if total_steps is None else _whole("total_steps", total_steps, 1, 1)
    read = _spec(spec)
    found = report(read, _sizes(group_sizes), rates=_rates(rates), items=_items(items), total_steps=length)
    if output is not None:
        from rewardspec.pages.page import write_page

        write_page(Path(output), report_page(found))
    return found


def _files(given: Given | Sequence[Given]) -> list[str | PathLike[str]]:
    specs = [given] if isinstance(given, str | PathLike | Spec) else given
    return [one for one in specs if not isinstance(one, Spec)]


def _spec(given: Given) -> Spec:
    return given if isinstance(given, Spec) else load(given)


def _sizes(given: int | Iterable[int]) -> list[int]:
    sizes = [*given] if isinstance(given, Iterable) else [given]
    if not sizes or not all(type(size) is int and 1 <= size <= MOST_ROLLOUTS for size in sizes):
        raise ValueError(f"group_sizes must be integers from 1 to {MOST_ROLLOUTS}, such as [2, 4, 8], not {given!r}")
    return sizes


def _items(given: int) -> int:
    if type(given) is not int or not 0 <= given <= MOST_ITEMS:
        raise ValueError(f"items must be an integer from 0 to {MOST_ITEMS}, not {shorten(repr(given))}")
    return given


def _whole(name: str, given: int | None, least: int, default: int) -> int:
    if given is None:
        return default
    if type(given) is not int or given < least:
        raise ValueError(f"{name} must be an integer from {least}, not {shorten(repr(given))}")
    return given


def _rates(given: Mapping[str, Rate]) -> dict[str, Fraction]:
    """Rates as exact fractions of their decimal text: 0.3 is 3/10."""
    if not isinstance(given, Mapping):
        raise ValueError(f"rates must map names to numbers, such as {{'correct': 0.3}}, not {shorten(repr(given))}")
    rates = {}
    for name, rate in given.items():
        if isinstance(rate, bool) or not isinstance(rate, int | float | Fraction):
            raise ValueError(f"rates must be numbers; the rate of {shorten(str(name))!r} is {shorten(repr(rate))}")
        if not 0 <= rate <= 1:
            raise ValueError(f"rates must be from 0 to 1; the rate of {shorten(name)!r} is {rate}")
        rates[name] = rate if isinstance(rate, Fraction) else Fraction(str(rate))
    return rates


def _only(what: str, **others: object) -> None:
    """Raise ValueError for options that have no effect together with `what`."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise ValueError(f"{' and '.join(given)} cannot be combined with {what}: give one or the other")
