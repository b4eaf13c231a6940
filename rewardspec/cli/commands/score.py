"""`rewardspec score`: the completions of a file, scored by a spec's reward functions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.options import AllowPython, Set, TotalSteps, Trust, allowed_by
from rewardspec.cli.printing.lines import misuse, say
from rewardspec.cli.printing.progress import bar
from rewardspec.cli.printing.table import console, table
from rewardspec.cli.reading import loaded
from rewardspec.logs.columns import PREFIX
from rewardspec.logs.outputs import BadPath
from rewardspec.logs.rows import BadLog
from rewardspec.rewards.reward import ScoringError
from rewardspec.scoring.permission import NotAllowed
from rewardspec.scoring.score import Summary, score
from rewardspec.text.shown import shown


def command(
    spec: Annotated[
        Path,
        typer.Argument(
            help="A spec whose components name reward functions: a file, a published name, `-` for standard input.",
            show_default=False,
            autocompletion=completing.specs,
        ),
    ],
    rollouts: Annotated[
        str,
        typer.Argument(
            help="JSON lines or Parquet: `prompt`, `completion`, and the columns that the functions read. With "
            "--engine ray also a folder, or a URI.",
            show_default=False,
            metavar="PATH",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            help="Write the scored rows here, Parquet or JSON lines; with --engine ray into a new folder.",
            show_default=False,
            metavar="PATH",
        ),
    ],
    group_by: Annotated[
        str | None, typer.Option(help="The column that identifies the group.", show_default=False)
    ] = None,
    total_steps: TotalSteps = None,
    prefix: Annotated[str, typer.Option(help="The prefix of the added columns.")] = PREFIX,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start again; discard the results of an interrupted run.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many processes run reward functions. By default one; for files of many rows, and functions of "
            "rewardspec that only compute, one for each core.",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(
            help="Keep what functions say of rows in this SQLite file, with --engine ray in a folder at any address, "
            "and ask only what it does not have.",
            show_default=False,
            metavar="PATH",
        ),
    ] = None,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="With --cache: ask again where there was no answer.")
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            help="plain: this process and processes of its own. ray: a cluster, at RAY_ADDRESS or of this machine.",
            autocompletion=completing.words("plain", "ray"),
        ),
    ] = "plain",
    requests_per_minute: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="With --engine ray: the most that judges are asked, by all workers.", show_default=False
        ),
    ] = None,
    tokens_per_minute: Annotated[
        float | None,
        typer.Option(
            min=1, help="With --engine ray: the most tokens that judges read and write, about.", show_default=False
        ),
    ] = None,
    trust: Trust = False,
    allow_python: AllowPython = [],  # noqa: B006
    key_host: Annotated[
        list[str],
        typer.Option(
            metavar="http://HOST:PORT", help="Another judge, besides OPENAI_BASE_URL, that may receive OPENAI_API_KEY."
        ),
    ] = [],  # noqa: B006
    set_: Set = [],  # noqa: B006
) -> None:
    """Score completions with the spec's reward functions, and add rewards and advantages.

    rewardspec score spec.yaml rollouts.jsonl -o scored.parquet --group-by prompt

    Rows keep their columns and get `scored/NAME` and `scored/advantage`. An interrupted run resumes where it stopped.
    Rows that cannot be scored are reported and written to a separate file.
    """
    on_ray = _is_ray(engine)
    if on_ray:
        _refuse("ray", **{"--processes": processes})
    else:
        _refuse(engine, **{"--requests-per-minute": requests_per_minute, "--tokens-per-minute": tokens_per_minute})
        uri = next((one for one in (rollouts, output, cache or "") if "://" in one), None)
        if uri is not None:
            misuse(f"{shown(uri)} is no file of this machine: URIs are read with --engine ray")
    read = loaded(spec, set_)
    allowed = allowed_by(trust, allow_python)
    if allowed:
        sys.path.append(str(Path.cwd()))  # import the user's functions from here, as `python -m` does
    _allow_key(key_host)
    try:
        with bar("scoring", "computing advantages, and writing") as progress:
            if on_ray:
                from rewardspec.scoring import ray

                limited = requests_per_minute is not None or tokens_per_minute is not None
                summary = ray.score(
                    read,
                    rollouts,
                    output,
                    group_by,
                    total_steps,
                    progress,
                    allowed,
                    prefix,
                    restart,
                    ray.Limits(requests_per_minute, tokens_per_minute) if limited else None,
                    key_host,
                    cache,
                    only_failed,
                )
            else:
                summary = score(
                    read,
                    Path(rollouts),
                    Path(output),
                    group_by,
                    total_steps,
                    progress,
                    allowed,
                    prefix,
                    restart,
                    processes,
                    None if cache is None else Path(cache),
                    only_failed,
                )
    except KeyboardInterrupt:
        say(f"interrupted; run the same command to resume from {shown(output)}.partial", err=True)
        raise typer.Exit(130) from None
    except OSError as error:
        misuse(f"cannot score {shown(rollouts)} into {shown(output)}: {error.strerror or error}")
    except NotAllowed as error:
        options = " ".join(f"--allow-python {module}" for module in error.modules)
        misuse(f"{error.fact}: if you trust it, add {options}, or --trust for every function of the spec")
    except (BadLog, BadPath, ScoringError, ModuleNotFoundError) as error:
        misuse(str(error))
    _show(summary, rollouts, output)


def _show(summary: Summary, rollouts: str, output: str) -> None:
    """Print the summary of a run; if no row was scored, end the command with status 1."""
    for number, reason in summary.bad[:20]:
        say(f"{shown(rollouts)}:{number}: skipped: {reason}", err=True)
    if summary.bad:
        say(f"{len(summary.bad)} rows skipped, written to {shown(summary.aside)}", err=True)
    if summary.resumed:
        say(f"resumed: {summary.resumed} rows of an earlier run are kept", err=True)
    if summary.changed:
        say(f"{summary.changed} rows changed since an earlier run and were scored again", err=True)
    if summary.recalled or summary.asked:
        say(f"cache: {summary.recalled} values were kept, {summary.asked} were asked for", err=True)
    if not summary.scored:
        say(f"no row could be scored; nothing was written to {shown(output)}", err=True)
        raise typer.Exit(1)
    say(f"wrote {summary.scored} rollouts in {summary.groups} groups to {shown(output)}")
    rows = [(name, f"{summary.mean[name]:.4g}", str(summary.missing[name])) for name in summary.mean]
    table(console(), None, ("reward", "mean", "missing"), rows)


def _is_ray(engine: str) -> bool:
    if engine not in ("plain", "ray"):
        misuse(f"--engine {shown(engine)}: there are plain and ray")
    return engine == "ray"


def _refuse(engine: str, **given: object) -> None:
    """End the command for options that an engine does not have."""
    named = [option for option, value in given.items() if value is not None]
    if named:
        misuse(f"--engine {engine} has no {' and no '.join(named)}")


def _allow_key(hosts: list[str]) -> None:
    from rewardspec.rewards.judge import allow_key

    try:
        allow_key(*hosts)
    except (ValueError, ModuleNotFoundError) as error:
        misuse(str(error))
