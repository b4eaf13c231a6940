"""`rewardspec simulate`: how much signal survives a spec, in enumerated groups or in a rollout log."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.options import (
    Files,
    GroupBy,
    MaybeItems,
    MaybePrefix,
    Rates,
    Set,
    TableOrJson,
    TotalSteps,
    one_of,
    refuse,
    sizes_of,
)
from rewardspec.cli.printing.counts import show_counts, show_replays, show_sweep
from rewardspec.cli.printing.lines import misuse, say, say_json
from rewardspec.cli.printing.progress import progress
from rewardspec.cli.reading import NAME_OF_STDIN, STDIN, expanded, keep, loaded, under
from rewardspec.groups.points import ITEMS
from rewardspec.groups.rates import policy, read_rates
from rewardspec.logs.columns import PREFIX
from rewardspec.prove.simulate import Simulation, count_groups
from rewardspec.spec import Spec
from rewardspec.text.shown import shown

Labelled = list[tuple[str, Spec]]
Moment = Mapping[str, Fraction]
SIZES = "2,4,8"


def command(
    files: Files,
    group_sizes: Annotated[
        str,
        typer.Option(
            "-g", "--group-size", metavar="SIZES", help=f"Group sizes: `2,4,8` or `2..8`; by default {SIZES}."
        ),
    ] = "",
    format: TableOrJson = "table",
    scheme: Annotated[
        list[str],
        typer.Option(
            "--advantage",
            metavar="SCHEME",
            help="Simulate under this scheme instead of the spec's; can be repeated.",
            autocompletion=completing.schemes,
        ),
    ] = [],  # noqa: B006
    rates: Rates = "",
    sweep: Annotated[
        bool, typer.Option(help="Also show the share without signal for success rates from 0 to 1.")
    ] = False,
    items: MaybeItems = None,
    rollouts: Annotated[
        Path | None, typer.Option(help="Run the specs on this rollout log (JSON lines or Parquet).", show_default=False)
    ] = None,
    group_by: GroupBy = None,
    prefix: MaybePrefix = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a plot of the counts and the signal to this file.", show_default=False)
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            help="The training step at which schedules are evaluated; by default 0.", min=0, show_default=False
        ),
    ] = None,
    total_steps: TotalSteps = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Show how much signal survives a spec: the groups that advantages distinguish, and the share of dead groups.

    rewardspec simulate spec.yaml -g 8 --p correct=0.3 --advantage grpo --advantage gdpo
    """
    one_of(format, "table", "json")
    if rollouts is not None:
        of_groups = {"-g": group_sizes, "--p": rates, "--sweep": sweep, "--items": items, "--step": step}
        refuse("cannot be combined with --rollouts, which takes the groups of a log", **{"--plot": plot, **of_groups})
    else:
        refuse("cannot be used without --rollouts", **{"--group-by": group_by, "--prefix": prefix})
    if plot is not None:
        keep(plot, *files)
    sizes, items = sizes_of(group_sizes or SIZES), ITEMS if items is None else items
    now, end = Fraction(step or 0), Fraction(total_steps or 1)
    given = {"step": now, "total_steps": end, "progress": min(now / end, Fraction(1))}
    specs, files_of = [], []
    for path in expanded(files):
        for label, spec in _under(loaded(path, set_), scheme):
            specs.append((label, spec))
            files_of.append(NAME_OF_STDIN if path == STDIN else str(path))
    if rollouts is not None:
        with progress("computing the log"):
            _replay(specs, rollouts, group_by, format, total_steps, prefix or PREFIX)
        return
    rows = _counted(specs, sizes, rates, given, items)
    if plot is not None:
        with progress("drawing"):
            _plot(plot, specs, rows, given, items)
    with progress("trying success rates"):
        curves = _swept(specs, sizes[-1], rates, given, items) if sweep else {}
    if format == "json":
        files_by = dict(zip((label for label, _ in specs), files_of, strict=True))
        found: dict[str, object] = {"rows": [row.to_json() | {"file": files_by[row.spec]} for row in rows]}
        if sweep:
            found["sweep"] = {
                label: [{"p": p, **row.signal.__dict__} for p, row in curve if row.signal]
                for label, curve in curves.items()
            }
        say_json(found)
    else:
        show_counts(rows, rates)
        show_sweep(curves, sizes[-1])
    if any(row.interrupted for row in rows):
        raise typer.Exit(130)


def _under(spec: Spec, schemes: list[str]) -> Labelled:
    """The spec itself, or the spec under each of the schemes."""
    return [(f"{spec.name}: {scheme}", under(spec, scheme)) for scheme in schemes] or [(spec.name, spec)]


def _counted(specs: Labelled, sizes: list[int], rates: str, given: Moment, items: int) -> list[Simulation]:
    """A count for every spec and size, until interrupted; progress is shown on a terminal."""
    rows: list[Simulation] = []
    try:
        wanted = read_rates(rates) if rates else {}
        models = [policy(spec.program, wanted, items) for _, spec in specs]
    except ValueError as error:
        misuse(str(error))
    with progress("simulating") as show:
        for (label, spec), model in zip(specs, models, strict=True):
            for size in sizes:

                def tell(found: int, label: str = label, size: int = size) -> None:
                    assert show is not None
                    show(f"{label}, {size} rollouts: {found:,} advantage groups")

                rows.append(count_groups(spec.program, label, size, given, model=model, progress=show and tell))
                if rows[-1].interrupted:
                    return rows
    return rows


def _swept(
    specs: Labelled, size: int, rates: str, given: Moment, items: int
) -> dict[str, list[tuple[float, Simulation]]]:
    from rewardspec.prove.plot import by_rate

    names = list(read_rates(rates)) if rates else []
    return {label: by_rate(spec, size, given, points=11, names=names, items=items) for label, spec in specs}


def _plot(path: Path, specs: Labelled, rows: list[Simulation], given: Moment, items: int) -> None:
    from rewardspec.prove.plot import draw

    try:
        draw(path, specs, rows, given, items)
    except ModuleNotFoundError:
        misuse("--plot needs matplotlib: pip install 'rewardspec[plots]'")
    except (OSError, ValueError) as error:
        misuse(f"cannot draw {shown(path)}: {error}")
    say(f"wrote {shown(path)}", err=True)


def _replay(
    specs: Labelled, path: Path, group_by: str | None, format: str, total_steps: int | None, prefix: str
) -> None:
    from rewardspec.logs.rows import BadLog
    from rewardspec.prove.replay import read_log, replay

    found = []
    for label, spec in specs:
        try:
            found.append((label, replay(spec, read_log(path, spec, group_by, prefix), total_steps)))
        except (BadLog, OSError) as error:
            misuse(str(error))
    if format == "json":
        say_json({"rows": [{"spec": label, **result.to_json()} for label, result in found]})
    else:
        show_replays(found)
