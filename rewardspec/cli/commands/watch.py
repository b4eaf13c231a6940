"""`rewardspec watch`: the health of a run as its log grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.options import GroupBy, LogFormat, LogNames, Set, TotalSteps, names_of
from rewardspec.cli.printing.lines import misuse, say
from rewardspec.cli.printing.progress import progress
from rewardspec.cli.reading import loaded


def command(
    run: Annotated[list[Path], typer.Argument(help="The folders or files that a run writes.", show_default=False)],
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec",
            metavar="SPEC",
            help="A spec file, or a published name. By default the log's own.",
            show_default=False,
            autocompletion=completing.specs,
        ),
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 5.0,
    idle: Annotated[
        float | None,
        typer.Option(help="End after as many seconds without a change. By default: never.", show_default=False),
    ] = None,
    from_: LogFormat = None,
    columns: LogNames = "",
    group_by: GroupBy = None,
    total_steps: TotalSteps = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Watch a run: a line for each new step, and the remarks of the audit as they become true.

    rewardspec watch rollouts/ --idle 600

    Ends with Ctrl-C, or with --idle. Exit status 1 if the audit has a remark then, 0 if it has none.
    """
    from rewardspec.cli.commands.replay import spec_of
    from rewardspec.cli.printing.replay import show_audit, step_line
    from rewardspec.logs.format import Mark
    from rewardspec.logs.open import Opened, open_files
    from rewardspec.logs.rows import BadLog
    from rewardspec.logs.run import Run
    from rewardspec.runs.replay import Replaying
    from rewardspec.runs.watch import Growing

    given = None if spec is None else loaded(spec, set_)
    called, told = names_of(columns), set[str]()
    under: Replaying | None = None
    opened: Run | None = None
    heard = 0  # steps of which the audit was told

    def opener(paths: Sequence[Path], since: Mapping[Path, Mark]) -> Opened:
        return open_files(paths, format=from_, columns=called, group_by=group_by, since=since)

    def tell() -> None:
        nonlocal heard
        if under is None or opened is None or under.steps == heard:
            return
        heard = under.steps
        for remark in under.found(opened).specs[0].audit:
            if remark.code not in told:
                told.add(remark.code)
                say(f"{remark.severity}[{remark.code}]: {remark.message}")

    grown = Growing(run, opener, every, idle, looked=tell)
    waiting = ExitStack()
    waiting.enter_context(progress("waiting for a step"))
    try:
        for opened, step in grown:
            waiting.close()
            if under is None:
                length = total_steps or opened.total_steps
                one = given or spec_of(opened, bool(set_))
                if length is None and {"progress", "total_steps"} & one.needs:
                    misuse(
                        f"{one.name} reads how long training is, which a run that grows does not say: --total-steps N"
                    )
                under = Replaying([one], total_steps=length)
            under.add(step)
            say(step_line(under.passes[0].steps[-1]))
    except KeyboardInterrupt:
        say("")
    except (BadLog, OSError) as error:
        misuse(str(error))
    finally:
        waiting.close()
    if under is None or opened is None or not under.steps:
        misuse("no step of a run was seen")
    found = under.found(opened).specs[0]
    for note in (*found.notes, *grown.notes()):
        say(note)
    show_audit(found.audit)
    raise typer.Exit(1 if found.audit else 0)
