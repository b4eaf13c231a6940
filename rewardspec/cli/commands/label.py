"""`rewardspec label`: trajectories labelled with reward tokens."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.options import Prefix, Set
from rewardspec.cli.printing.lines import misuse, say
from rewardspec.cli.printing.progress import counted, progress
from rewardspec.cli.printing.table import console, table
from rewardspec.cli.reading import STDIN, loaded
from rewardspec.logs.columns import PREFIX
from rewardspec.logs.outputs import check_paths, held, replace
from rewardspec.logs.parts import opened
from rewardspec.scoring.label import label
from rewardspec.scoring.processes import best_for
from rewardspec.text.shown import shown


def command(
    trajectories: Annotated[
        Path,
        typer.Argument(
            help="JSON lines: `messages`, or `prompt` and `completion`, and the rewards.", show_default=False
        ),
    ],
    spec: Annotated[
        Path,
        typer.Argument(
            help="A spec with `condition:`: a file, a published name, `-` for standard input.",
            show_default=False,
            autocompletion=completing.specs,
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the fine-tuning set here.", show_default=False)],
    prefix: Prefix = PREFIX,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many processes label. By default one; for files of many lines, one for each core.",
            show_default=False,
        ),
    ] = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Label trajectories with reward tokens: the stage 1 fine-tuning set of RC-GRPO.

    rewardspec label trajectories.jsonl rc_grpo/rc_grpo -o labelled.jsonl

    The token is added to the first user message. Lines that cannot be labelled are reported and skipped.
    """
    read = loaded(spec, set_)
    try:
        reads = {"spec": spec, "source": trajectories}
        output = check_paths(output, {what: path for what, path in reads.items() if path != STDIN})
        with held(output), opened(trajectories, output.parent) as file, progress("labelling") as show:
            lines = counted(file.lines(), show, "labelling")
            labelled, tally = label(read, lines, prefix, processes or best_for(file.count))
            replace(output, partial(_write, labelled))
    except OSError as error:
        misuse(f"cannot label {shown(trajectories)} into {shown(output)}: {error.strerror or error}")
    except ValueError as error:
        misuse(str(error))
    for number, reason in tally.bad:
        say(f"{shown(trajectories)}:{number}: skipped: {reason}", err=True)
    skipped = f", {len(tally.bad)} line{'s' * (len(tally.bad) != 1)} skipped" if tally.bad else ""
    say(f"wrote {tally.labelled} trajectories to {shown(output)}{skipped}")
    prior = tally.prior()
    assert read.condition is not None, "`label` refuses a spec without one"
    stated = read.condition.prior
    rows = [
        (name, str(count), f"{prior[name]:.4g}", f"{float(stated[name]):.4g}") for name, count in tally.counts.items()
    ]
    table(console(), None, ("token", "trajectories", "share", "prior in the spec"), rows)
    if any(abs(prior[name] - p) > 0.01 for name, p in stated.items()) and tally.labelled:
        implied = ", ".join(f"{name}: {prior[name]:.4g}" for name in list(prior)[:-1])
        say(f"the prior that training draws from should be the share in this set: `prior: {{{implied}}}`")
    raise typer.Exit(0 if tally.labelled else 1)


def _write(lines: Iterable[str], path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        out.writelines(line + "\n" for line in lines)
