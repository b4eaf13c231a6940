"""What `rewardspec` exports: a function for each command that works on specs.

Each takes a spec that `load` or `loads` has read, or the path of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, overload

from rewardspec.language.files import read_file
from rewardspec.lint import Run, codes, findings
from rewardspec.spec import Spec, compile, is_text, load, loads
from rewardspec.spec import check as check_source
from rewardspec.text.diagnostics import Diagnostic, did_you_mean, shorten
from rewardspec.text.source import Source

if TYPE_CHECKING:  # `check` answers at once: what computes is imported by the functions that need it
    from rewardspec.prove.diff import Difference
    from rewardspec.prove.diff_on_log import LogDifference
    from rewardspec.prove.replay import Replay
    from rewardspec.prove.simulate import Simulation
    from rewardspec.prove.verify import Verdict
    from rewardspec.scoring.permission import Allowed
    from rewardspec.scoring.score import Summary

__all__ = ["check", "compile", "diff", "load", "loads", "score", "simulate", "verify"]

Given = Spec | str | PathLike[str]  # a spec, or the path of one
Rate = float | Fraction
MOST_ROLLOUTS = 64  # of a group


def check(
    spec: Given,
    *,
    constants: Mapping[str, object] = {},
    rates: Mapping[str, Rate] = {},
    group_sizes: int | Iterable[int] = (),
    total_steps: int | None = None,
    strict: bool = False,
    errors: Sequence[str] = (),
) -> list[Diagnostic]:
    """Everything there is to say of a spec, as `rewardspec check` says it: errors, findings, and notes at the end.

    for diagnostic in rewardspec.check("specs/gdpo/math.yaml"):
        print(diagnostic.render())

    spec: a spec, the path of one, or its text. constants: for names of `define:`. rates: how often columns or
    components with two values succeed, 0 to 1, and group_sizes: of the run; together they tell how many groups are
    dead. total_steps: the length of training. strict, errors: take every finding, or those of these codes, for errors.

    A spec with errors raises nothing. Raises OSError for a file that cannot be read, ValueError for an option.
    """
    known = codes()
    for code in errors:
        if code not in known:
            near = did_you_mean(code, known, "`rewardspec list findings` shows all")
            raise ValueError(f"errors: there is no finding {shorten(code)!r}; {near}")
    sizes = _sizes(group_sizes) if group_sizes != () else []
    if rates and not sizes:
        raise ValueError("rates tell how many groups are dead in groups of a size: give group_sizes too, such as [8]")
    run = Run(_rates(rates), sizes, total_steps)
    if isinstance(spec, Spec):
        if constants:
            raise ValueError("constants are set where a spec is read: load(path, constants=...)")
        found, notes = _found(spec, [*spec.diagnostics], run, strict, errors)
        return [*found, *notes]
    if isinstance(spec, str) and is_text(spec):
        source: Source | None = Source("<spec>", spec)
        report = None
    else:
        source, report = read_file(spec)
    if source is None:
        assert report is not None, "a file without text has a reason"
        return report.sorted()
    found, notes = check_text(source, {name: str(value) for name, value in constants.items()}, run, strict, errors)
    return [*found, *notes]


def check_text(
    source: Source, constants: Mapping[str, str], run: Run, strict: bool = False, errors: Sequence[str] = ()
) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """The errors and findings of a text, and notes on what was not looked at. Raises ValueError for rates."""
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
    seed: int = 0,
    progress: Callable[[int, int, int], None] | None = None,
) -> list[Verdict]:
    """A verdict on each of the spec's `guarantees:`, proved for every group of these sizes, or refuted by one.

    [verdict.status for verdict in rewardspec.verify("specs/rc_grpo/rc_grpo.yaml", range(2, 5))]

    A spec without guarantees has no verdicts. seed: of groups that are drawn where there are too many to try.
    progress: called with the size of the groups, how many were tried, of how many. Raises SpecError, OSError,
    ValueError for a size.
    """
    from rewardspec.prove.verify import verify

    return verify(_spec(spec), _sizes(group_sizes), progress, seed)


@overload
def simulate(
    spec: Given,
    group_sizes: int | Iterable[int] = ...,
    *,
    rates: Mapping[str, Rate] = ...,
    step: int = ...,
    total_steps: int | None = ...,
    seed: int = ...,
    progress: Callable[[int], None] | None = ...,
) -> list[Simulation]: ...


@overload
def simulate(
    spec: Given,
    *,
    rollouts: str | PathLike[str],
    group_by: str | None = ...,
    prefix: str = ...,
    total_steps: int | None = ...,
) -> Replay: ...


def simulate(
    spec: Given,
    group_sizes: int | Iterable[int] | None = None,
    *,
    rates: Mapping[str, Rate] | None = None,
    step: int | None = None,
    total_steps: int | None = None,
    seed: int | None = None,
    progress: Callable[[int], None] | None = None,
    rollouts: str | PathLike[str] | None = None,
    group_by: str | None = None,
    prefix: str | None = None,
) -> list[Simulation] | Replay:
    """How much signal survives a spec: in every group of these sizes (2, 4 and 8), or in a log of rollouts.

    rewardspec.simulate("specs/gdpo/math.yaml", 4, rates={"correct": 0.3})[0].signal.groups_without_signal
    rewardspec.simulate("spec.yaml", rollouts="rollouts.parquet").signal.groups_without_signal

    rates: how often columns or components with two values succeed; others have each value equally often.
    step, total_steps: when schedules are looked at. seed: of groups that are drawn where there are too many to try.
    progress: called with the number of distinct advantage groups so far.
    rollouts: a log (JSON lines or Parquet). group_by: its column that tells groups apart. prefix: what the names of
    its columns begin with that `score` has added.
    Raises SpecError, OSError, BadLog (a ValueError) for rows that are wrong, ValueError for an option.
    """
    from rewardspec.groups.rates import policy
    from rewardspec.logs.columns import PREFIX
    from rewardspec.prove.replay import read_log, replay
    from rewardspec.prove.simulate import simulate

    read = _spec(spec)
    if rollouts is not None:
        _only("rollouts", group_sizes=group_sizes, rates=rates, step=step, seed=seed, progress=progress)
        log = read_log(Path(rollouts), read, group_by, PREFIX if prefix is None else prefix)
        return replay(read, log, total_steps)
    _only("group_sizes", group_by=group_by, prefix=prefix)
    stated = _rates(rates or {})
    policy(read.program, stated)  # what cannot be given is refused before anything is counted
    moment = {"step": step or 0, "total_steps": total_steps or 1, "seed": seed or 0}
    sizes = _sizes((2, 4, 8) if group_sizes is None else group_sizes)
    return [simulate(read, size, rates=stated, progress=progress, **moment) for size in sizes]


@overload
def diff(before: Given, after: Given, group_sizes: int | Iterable[int] = ...) -> Difference: ...


@overload
def diff(
    before: Given,
    after: Given,
    *,
    rollouts: str | PathLike[str],
    group_by: str | None = ...,
    prefix: str = ...,
    total_steps: int | None = ...,
) -> LogDifference: ...


def diff(
    before: Given,
    after: Given,
    group_sizes: int | Iterable[int] | None = None,
    *,
    rollouts: str | PathLike[str] | None = None,
    group_by: str | None = None,
    prefix: str | None = None,
    total_steps: int | None = None,
) -> Difference | LogDifference:
    """How two specs differ: what they say, and the advantages of groups of these sizes (2 and 3), or of a log.

    rewardspec.diff("before.yaml", "after.yaml").is_none

    rollouts: a log (JSON lines or Parquet). group_by, prefix: as `simulate` takes them. total_steps: of the run that
    the log is of. Raises SpecError, OSError, BadLog (a ValueError) for rows that are wrong, ValueError for an option.
    """
    from rewardspec.logs.columns import PREFIX
    from rewardspec.prove.diff import difference
    from rewardspec.prove.diff_on_log import difference_on_log

    specs = _spec(before), _spec(after)
    if rollouts is None:
        _only("group_sizes", group_by=group_by, prefix=prefix, total_steps=total_steps)
        return difference(*specs, _sizes((2, 3) if group_sizes is None else group_sizes))
    _only("rollouts", group_sizes=group_sizes)
    return difference_on_log(*specs, Path(rollouts), group_by, total_steps, PREFIX if prefix is None else prefix)


def score(
    spec: Given,
    rollouts: str | PathLike[str],
    output: str | PathLike[str],
    *,
    group_by: str | None = None,
    total_steps: int | None = None,
    allow_python: Allowed = False,
    prefix: str | None = None,
    restart: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Score the completions of a file by the spec's reward functions, write them with their advantages, and sum up.

    rewardspec.score("spec.yaml", "rollouts.jsonl", "scored.parquet").mean

    rollouts: JSON lines or Parquet with `prompt`, `completion` and what the functions read. output: gets these rows
    with `scored/NAME` and `scored/advantage`. allow_python: modules, or `module:function`, that the spec may name by
    `python:`; True for all. restart: measure again what an interrupted run has left. progress: called with how many
    rows are done, of how many. Raises SpecError, OSError, and ValueErrors: NotAllowed, BadLog, BadPath, ScoringError.
    """
    from rewardspec.logs.columns import PREFIX
    from rewardspec.scoring.score import score

    shown = progress or (lambda done, of: None)
    files = Path(rollouts), Path(output)
    added = PREFIX if prefix is None else prefix
    return score(_spec(spec), *files, group_by, total_steps, shown, allow_python, added, restart)


def _spec(given: Given) -> Spec:
    return given if isinstance(given, Spec) else load(given)


def _sizes(given: int | Iterable[int]) -> list[int]:
    sizes = [given] if isinstance(given, int) else [*given]
    if not sizes or not all(isinstance(size, int) and 1 <= size <= MOST_ROLLOUTS for size in sizes):
        raise ValueError(f"group_sizes are whole numbers from 1 to {MOST_ROLLOUTS}, such as [2, 4, 8], not {given!r}")
    return sizes


def _rates(given: Mapping[str, Rate]) -> dict[str, Fraction]:
    """Rates as they are written: 0.3 is 3/10."""
    rates = {}
    for name, rate in given.items():
        if not 0 <= rate <= 1:
            raise ValueError(f"rates go from 0 to 1, such as {{'correct': 0.3}}; that of {shorten(name)!r} is {rate}")
        rates[name] = rate if isinstance(rate, Fraction) else Fraction(str(rate))
    return rates


def _only(what: str, **others: object) -> None:
    """Raise ValueError for options that say nothing beside another one."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise ValueError(
            f"{' and '.join(given)} cannot be given where {what} are looked at: leave out one or the other"
        )
