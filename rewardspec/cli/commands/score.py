"""`rewardspec score`: the completions of a file, scored by a spec's reward functions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.judging import account_of, check_account
from rewardspec.cli.options import AllowPython, Set, TableOrJson, TotalSteps, Trust, allowed_by, one_of
from rewardspec.cli.printing.lines import misuse, say, say_json
from rewardspec.cli.printing.progress import bar, progress
from rewardspec.cli.printing.scored import dry_run_json, show_dry_run, show_judges, show_summary, summary_json
from rewardspec.cli.reading import loaded
from rewardspec.logs.columns import PREFIX
from rewardspec.logs.outputs import BadPath
from rewardspec.logs.parts import RolloutFile, opened
from rewardspec.logs.rows import BadLog
from rewardspec.rewards.judge.account import Account
from rewardspec.rewards.reward import ScoringError
from rewardspec.scoring.dry_run import DryRun
from rewardspec.scoring.permission import NotAllowed
from rewardspec.scoring.score import score
from rewardspec.spec import Spec
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
        str | None,
        typer.Option(
            "-o",
            "--output",
            help="Write the scored rows here, Parquet or JSON lines; with --engine ray into a new folder.",
            show_default=False,
            metavar="PATH",
        ),
    ] = None,
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
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Ask nothing, write nothing; say what judges would be asked.")
    ] = False,
    requests_per_minute: Annotated[
        float | None,
        typer.Option(min=0.001, help="The most that judges are asked, by all processes.", show_default=False),
    ] = None,
    tokens_per_minute: Annotated[
        float | None,
        typer.Option(min=1, help="The most tokens that judges read and write, about.", show_default=False),
    ] = None,
    budget: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=NUMBER,...",
            help="The most that judges are asked in this run: calls, retries, tokens, cost, minutes. Exit status 3 if "
            "it is spent.",
        ),
    ] = [],  # noqa: B006
    price: Annotated[
        list[str],
        typer.Option(
            metavar="[MODEL=]IN,OUT", help="The price of a million tokens that a judge reads, and that it writes."
        ),
    ] = [],  # noqa: B006
    format_: TableOrJson = "table",
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
    Rows that cannot be scored are reported and written to a separate file. With --dry-run it says what judges would be
    asked.
    """
    on_ray, is_json = _is_ray(engine), one_of(format_, "table", "json") == "json"
    if on_ray:
        _refuse("ray", **{"--processes": processes})
    elif uri := next((one for one in (rollouts, output or "", cache or "") if "://" in one), None):
        misuse(f"{shown(uri)} is no file of this machine: URIs are read with --engine ray")
    if output is None and not dry:
        misuse("-o is missing: name the file to write, or add --dry-run")
    account = account_of(budget, price, requests_per_minute, tokens_per_minute)
    read = loaded(spec, set_)
    check_account(read, account)
    _allow_key(key_host)
    if dry:
        found = _dry_run(read, rollouts, group_by, prefix, cache, only_failed, on_ray)
        say_json(dry_run_json(found, account)) if is_json else show_dry_run(found, account, rollouts)
        return
    assert output is not None, "it was asked for above"
    allowed = allowed_by(trust, allow_python)
    if allowed:
        sys.path.append(str(Path.cwd()))  # import the user's functions from here, as `python -m` does
    with _ended(rollouts, output, account), bar("scoring", "computing advantages, and writing") as done:
        if on_ray:
            from rewardspec.scoring import ray

            summary = ray.score(
                read,
                rollouts,
                output,
                group_by,
                total_steps,
                done,
                allowed,
                prefix,
                restart,
                account,
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
                done,
                allowed,
                prefix,
                restart,
                processes,
                None if cache is None else Path(cache),
                only_failed,
                account,
            )
    if is_json:
        say_json(summary_json(summary, account, output))
    else:
        show_summary(summary, account, rollouts, output)
    raise typer.Exit(3 if account.stopped else 0 if summary.scored else 1)


def _dry_run(
    spec: Spec, rollouts: str, group_by: str | None, prefix: str, cache: str | None, only_failed: bool, on_ray: bool
) -> DryRun:
    """What judges would be asked, counted in this process; what --engine ray reads is read as it does."""
    from rewardspec.scoring.dry_run import dry_run

    if on_ray and cache is not None:
        misuse("a dry run reads no folder of --engine ray: leave --cache out, and it says what would be asked without")
    kept = None if cache is None else Path(cache)
    with _ended(rollouts, "nothing", None), progress("counting") as show, ExitStack() as stack:
        if on_ray:
            from rewardspec.scoring.storage import Pieces, pieces_of

            file: RolloutFile = Pieces(pieces_of(rollouts))
            count = None
        else:
            file = stack.enter_context(opened(Path(rollouts)))
            count = file.count

        def tell(done: int) -> None:
            if show is not None:
                show("counting", done, count)

        return dry_run(spec, file, group_by, tell, prefix, kept, only_failed)


@contextmanager
def _ended(rollouts: str, output: str, account: Account | None) -> Iterator[None]:
    """End the command with a message where it fails, after what judges were asked."""

    def told() -> None:
        if account is not None:
            show_judges(account, err=True)

    try:
        yield
    except KeyboardInterrupt:
        told()
        resume = "" if account is None else f"; run the same command to resume from {shown(output)}.partial"
        say(f"interrupted{resume}", err=True)
        raise typer.Exit(130) from None
    except OSError as error:
        told()
        what = f"score {shown(rollouts)} into {shown(output)}" if account is not None else f"read {shown(rollouts)}"
        misuse(f"cannot {what}: {error.strerror or error}")
    except NotAllowed as error:
        options = " ".join(f"--allow-python {module}" for module in error.modules)
        misuse(f"{error.fact}: if you trust it, add {options}, or --trust for every function of the spec")
    except (BadLog, BadPath, ScoringError, ModuleNotFoundError) as error:
        told()
        misuse(str(error))


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
