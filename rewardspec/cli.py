"""The commands. Each parses its options and calls one function.

Exit status: 0 clean, 1 errors in a spec, 2 misuse of the command.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from rewardspec._version import __version__
from rewardspec.logs.columns import PREFIX
from rewardspec.spec import Spec, read_file
from rewardspec.spec import check as check_source
from rewardspec.text.diagnostics import Diagnostic, SpecError, did_you_mean
from rewardspec.text.shown import Inert, inert_json, printed, shown

app = typer.Typer(
    help="Reward specs: read, checked, compiled to one torch advantage function.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Files = Annotated[list[Path], typer.Argument(help="Spec files (YAML).", show_default=False)]
File = Annotated[Path, typer.Argument(help="A spec file (YAML).", show_default=False)]
Dialect = Annotated[
    str | None,
    typer.Option(help="Take a trainer's numbers: trl, verl, openrlhf or nemo_rl.", show_default=False),
]
Trust = Annotated[bool, typer.Option("--trust", help="Import and run whatever functions the spec names.")]
AllowPython = Annotated[
    list[str],
    typer.Option(
        "--allow-python",
        metavar="MODULE",
        help="Let the spec name functions of this module or package by `python:`, or this `module:function`.",
    ),
]
Prefix = Annotated[str, typer.Option(help="What the names of columns begin with that `rewardspec score` has added.")]
Set = Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Set a constant of `define:`.")]


def main() -> None:
    """Entry point of the `rewardspec` command."""
    try:
        app()
    except BrokenPipeError:  # `| head`: whoever read us has seen enough
        sys.stderr.close()
        sys.exit(0)


def _say(text: str, err: bool = False) -> None:
    """Print lines of ours, whatever of others is in them."""
    typer.echo(printed(text), err=err)


def _say_json(value: object) -> None:
    typer.echo(inert_json(json.dumps(value, indent=2)))


def _misuse(message: str) -> NoReturn:
    _say(f"rewardspec: {message}", err=True)
    raise typer.Exit(2)


def _constants(settings: list[str]) -> dict[str, str]:
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip() or not value.strip():
            _misuse(f"--set takes NAME=VALUE, not {setting!r}")
        found[name.strip()] = value.strip()
    return found


def _allowed(trust: bool, modules: list[str]) -> bool | tuple[str, ...]:
    """What `--trust` and `--allow-python` allow."""
    from rewardspec.scoring.permission import read_allowed

    try:
        return trust or read_allowed(modules)
    except ValueError as error:
        _misuse(f"--allow-python: {error}")


def _read(path: Path, constants: dict[str, str]) -> tuple[Spec | None, list[Diagnostic]]:
    try:
        source, report = read_file(path)
    except OSError as error:
        _misuse(f"cannot read {shown(path)}: {error.strerror or error}")
    if source is None:
        return None, report.sorted()
    spec, report = check_source(source, constants)
    return spec, report.sorted()


def _load(path: Path, settings: list[str], dialect: str | None = None) -> Spec:
    """The spec of a file; its diagnostics go to stderr, and errors end the command."""
    spec, diagnostics = _read(path, _constants(settings))
    if spec is not None and dialect is not None:
        try:
            spec = spec.under(dialect)
        except SpecError as error:
            spec, diagnostics = None, error.diagnostics
        except ValueError as error:
            _misuse(str(error))
    for diagnostic in diagnostics:
        _say(diagnostic.render() + "\n", err=True)
    if spec is None:
        raise typer.Exit(1)
    return spec


def _expand(paths: list[Path]) -> list[Path]:
    """Folders as the spec files in them; the prelude and the dialects are no specs."""
    found = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*.y*ml") if p.name != "prelude.yaml" and p.parent.name != "dialects")
        else:
            found.append(path)
    if not found:
        _misuse("no spec files there")
    return found


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        _say(f"rewardspec {__version__}")
        raise typer.Exit


@app.command()
def check(
    files: Files,
    format: Annotated[str, typer.Option(help="text, json, sarif or github.")] = "text",
    errors: Annotated[
        list[str], typer.Option("--error", metavar="CODE", help="Take this finding for an error; can be repeated.")
    ] = [],  # noqa: B006
    strict: Annotated[bool, typer.Option(help="Take every finding for an error.")] = False,
    rates: Annotated[
        str, typer.Option("--p", metavar="NAME=P,...", help="How often columns or components with two values succeed.")
    ] = "",
    group_sizes: Annotated[
        str, typer.Option("-g", "--group-size", help="Group sizes of the run: `8`, `2,4,8` or `2..8`.")
    ] = "",
    total_steps: Annotated[int | None, typer.Option(help="The length of training.", min=1, show_default=False)] = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Say everything that is wrong with specs, before anything runs."""
    from rewardspec.groups.rates import read_rates
    from rewardspec.lint.finding import Run, codes, look, page
    from rewardspec.lint.report import github, sarif

    if format not in ("text", "json", "sarif", "github"):
        _misuse(f"--format is text, json, sarif or github, not {format!r}")
    for code in errors:
        if code not in codes():
            _misuse(f"there is no finding {code!r}; `rewardspec list findings` shows all")
    if rates and not group_sizes:
        _misuse("--p tells how many groups have a gradient in groups of a size: add -g 8")
    sizes = _sizes(group_sizes) if group_sizes else []
    try:
        stated = read_rates(rates) if rates else {}
    except ValueError as error:
        _misuse(str(error))
    constants = _constants(set_)
    found: list[Diagnostic] = []
    notes: list[Diagnostic] = []  # what was not looked at
    paths = _expand(files)
    for path in paths:
        spec, diagnostics = _read(path, constants)
        if spec is not None:
            try:
                said, left = look(spec, Run(stated, sizes, total_steps))
            except ValueError as error:
                _misuse(f"{shown(path)}: {error}")
            raised = [replace(d, severity="error") if strict or d.code in errors else d for d in said]
            diagnostics = [*diagnostics, *raised]
            notes += left
        found += diagnostics
    if format == "json":
        _say_json([d.to_json() for d in (*found, *notes)])
    elif format == "sarif":
        _say_json(sarif([*found, *notes], page))
    elif format == "github":
        for diagnostic in (*found, *notes):
            typer.echo(github(diagnostic))
    else:
        for diagnostic in found:
            _say(diagnostic.render() + "\n")
        for note in notes:
            _say(f"{shown(note.span.source.name)}: {note.render()}")
        broken = sum(d.severity == "error" for d in found)
        warnings = len(found) - broken
        files_word = f"{len(paths)} spec" + "s" * (len(paths) != 1)
        counts = f"{broken} error{'s' * (broken != 1)}, {warnings} warning{'s' * (warnings != 1)}"
        _say(f"{files_word} checked: {counts}")
        if warnings:
            _say("`rewardspec explain CODE` says more; `allow: {CODE: reason}` in the spec silences one")
    raise typer.Exit(1 if any(d.severity == "error" for d in found) else 0)


@app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help="One kind only, such as `rewards` or `schemes`.", show_default=False)
    ] = None,
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
) -> None:
    """Show what there is to use, each with its source: schemes, functions, rewards, dialects, specs, findings."""
    from rewardspec.language.catalogue import Entry, catalogue
    from rewardspec.lint.finding import codes, page

    if format not in ("table", "json"):
        _misuse(f"--format is table or json, not {format!r}")
    entries = [*catalogue(), *(Entry("finding", code, page(code).split("\n")[0]) for code in codes())]
    kinds = list(dict.fromkeys(entry.kind for entry in entries))
    if kind is not None:
        entries = [entry for entry in entries if entry.kind == kind.lower().removesuffix("s")]
        if not entries:
            _misuse(f"there are {', '.join(k + 's' for k in kinds)}, but no {kind!r}")
    if format == "json":
        _say_json([asdict(entry) for entry in entries])
        return
    out = _console()
    for of in dict.fromkeys(entry.kind for entry in entries):
        rows = [(entry.name, entry.about) for entry in entries if entry.kind == of]
        _table(out, f"{of.capitalize()}s", ("name", "what it is, and from where"), rows)


@app.command("compile")
def compile_(
    file: File,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the module here.", show_default=False)
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Write into the folder -o what this trainer needs: trl, verl or openrlhf.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --target: write over other files.")] = False,
    dialect: Dialect = None,
    trust: Trust = False,
    allow_python: AllowPython = [],  # noqa: B006
    set_: Set = [],  # noqa: B006
    seed: Annotated[
        int | None, typer.Option(help="With --target verl or openrlhf: of whatever is drawn.", show_default=False)
    ] = None,
) -> None:
    """Print or write a spec as a Python module that needs only torch, or as what a trainer's configuration needs."""
    if target is not None:
        _embed(file, target, output, force, dialect, set_, _allowed(trust, allow_python), seed)
        return
    if seed is not None:
        _misuse("--seed goes with --target: a module is given its seed where it is called")
    source = _load(file, set_, dialect).python
    if output is None:
        typer.echo(source, nl=False)
        return
    _keep(output, file)
    try:
        output.write_text(source, encoding="utf-8")
    except OSError as error:
        _misuse(f"cannot write {shown(output)}: {error.strerror or error}")
    _say(f"wrote {shown(output)}", err=True)


def _keep(output: Path, *reads: Path) -> None:
    """End the command where it would write over what it has read."""
    from rewardspec.logs.outputs import is_same

    for path in reads:
        if is_same(path, output):
            _misuse(f"{shown(path)} would be written over: it is the spec")


def _embed(
    file: Path,
    target: str,
    folder: Path | None,
    force: bool,
    dialect: str | None,
    settings: list[str],
    allowed,
    seed: int | None,
) -> None:
    from rewardspec.adapters.common.binding import BindingError
    from rewardspec.adapters.embedding import TARGETS, Occupied, embedded, write

    if target not in TARGETS:
        _misuse(f"--target is {', '.join(TARGETS)}, not {target!r}")
    if folder is None:
        _misuse("--target writes several files: name a folder with -o")
    try:
        loaded, constants = _load(file, settings, dialect), _constants(settings)
        for path in write(embedded(loaded, target, allowed, constants, seed), folder, force):
            _say(f"wrote {shown(path)}", err=True)
    except BindingError as error:
        _misuse(str(error))
    except Occupied as error:
        _misuse(f"{error}: name another folder, or say --force")
    except OSError as error:
        _misuse(f"cannot write into {shown(folder)}: {error.strerror or error}")


@app.command()
def explain(
    file: File,
    at: Annotated[
        str, typer.Option(metavar="0,30,100%", help="Also show values and weights at these steps or shares of the run.")
    ] = "",
    total_steps: Annotated[int | None, typer.Option(help="The length of training.", min=1, show_default=False)] = None,
    dialect: Dialect = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Show what a spec comes down to: its expressions, its graph, every value's level and domain.

    In place of a file it takes the code of a finding, and explains that.
    """
    from rewardspec.lint.finding import codes, page
    from rewardspec.prove.explain import explain as explain_spec
    from rewardspec.prove.schedule import read_moments, schedule

    if not file.exists() and page(file.name) is not None:
        _say(f"{file.name}\n\n{page(file.name)}")
        return
    if not file.exists() and file.name == str(file) and not file.suffix:
        near = did_you_mean(file.name, codes(), "`rewardspec list findings` shows the codes that have a page")
        _misuse(f"there is no file and no page {file.name!r}: {near}")
    spec = _load(file, set_, dialect)
    rows = []
    if at:
        try:
            moments = read_moments(at, total_steps)
            rows = schedule(spec, moments, total_steps)
        except ValueError as error:
            _misuse(str(error))
    found = explain_spec(spec)
    out = _console()
    out.print(f"{spec.name}  (fingerprint {spec.fingerprint})", markup=False, highlight=False)
    if spec.about:
        for line in spec.about.split("\n"):
            out.print(f"  {shown(line)}", markup=False, highlight=False)
    _table(out, "Columns", ("name", "level", "domain", "missing", "measured by"), found.columns)
    _table(out, "Components", ("name", "value", "weight"), found.components)
    if rows:
        _table(out, "Over the run", ("component", "", *(moment.text for moment in moments)), rows)
    _table(out, "Expressions", ("name", "meaning"), found.definitions)
    if found.guarantees:
        _table(out, "Guarantees", ("name", "must hold"), found.guarantees)
    _table(out, "Values", ("", "name", "operation", "level", "domain"), found.values)


@app.command("label")
def label_(
    trajectories: Annotated[
        Path,
        typer.Argument(
            help="JSON lines: `messages`, or `prompt` and `completion`, and the rewards.", show_default=False
        ),
    ],
    spec: Annotated[Path, typer.Argument(help="A spec file with `condition:`.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the fine-tuning set here.", show_default=False)],
    prefix: Prefix = PREFIX,
    set_: Set = [],  # noqa: B006
) -> None:
    """Label trajectories with reward tokens: the stage 1 fine-tuning set of RC-GRPO.

    The token goes into the first user message. Lines that cannot be labelled are reported and left out.
    """
    from rewardspec.logs.outputs import check_paths, held
    from rewardspec.logs.outputs import replace as replace_file
    from rewardspec.logs.rows import read_lines
    from rewardspec.scoring.label import label

    loaded = _load(spec, set_)
    try:
        output = check_paths(output, {"spec": spec, "source": trajectories})
        with held(output):
            labelled, tally = label(loaded, read_lines(trajectories), prefix)
            text = "".join(line + "\n" for line in labelled)
            replace_file(output, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))
    except OSError as error:
        _misuse(f"cannot label {shown(trajectories)} into {shown(output)}: {error.strerror or error}")
    except ValueError as error:
        _misuse(str(error))
    for number, reason in tally.bad:
        _say(f"{shown(trajectories)}:{number}: left out: {reason}", err=True)
    left_out = f", {len(tally.bad)} line{'s' * (len(tally.bad) != 1)} left out" if tally.bad else ""
    _say(f"wrote {tally.labelled} trajectories to {shown(output)}{left_out}")
    prior = tally.prior()
    rows = [
        (name, str(count), f"{prior[name]:.4g}", f"{loaded.condition.prior[name]:.4g}")
        for name, count in tally.counts.items()
    ]
    _table(_console(), None, ("token", "trajectories", "share", "prior in the spec"), rows)
    if any(abs(prior[name] - p) > 0.01 for name, p in loaded.condition.prior.items()) and tally.labelled:
        implied = ", ".join(f"{name}: {prior[name]:.4g}" for name in list(prior)[:-1])
        _say(f"the prior that training draws from should be the share in this set: `prior: {{{implied}}}`")
    raise typer.Exit(0 if tally.labelled else 1)


@app.command("score")
def score_(
    spec: Annotated[
        Path, typer.Argument(help="A spec file whose components name reward functions.", show_default=False)
    ],
    rollouts: Annotated[
        Path,
        typer.Argument(
            help="JSON lines or Parquet: `prompt`, `completion`, and the columns that the functions read.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Write the scored rows here, Parquet or JSON lines.", show_default=False),
    ],
    group_by: Annotated[
        str | None, typer.Option(help="The column that tells the groups apart.", show_default=False)
    ] = None,
    total_steps: Annotated[int | None, typer.Option(help="The length of training.", min=1, show_default=False)] = None,
    prefix: Annotated[str, typer.Option(help="What the names of the columns that are added begin with.")] = PREFIX,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew, whatever a run has left behind.")] = False,
    trust: Trust = False,
    allow_python: AllowPython = [],  # noqa: B006
    key_host: Annotated[
        list[str],
        typer.Option(metavar="http://HOST:PORT", help="A judge, not at OPENAI_BASE_URL, that gets OPENAI_API_KEY too."),
    ] = [],  # noqa: B006
    set_: Set = [],  # noqa: B006
) -> None:
    """Score completions with the spec's reward functions, and add rewards and advantages.

    What is added is called `scored/NAME` and `scored/advantage`; rows keep all that they had. An interrupted run is
    taken up where it stopped. Rows that cannot be scored are reported and kept aside.
    """
    from rich.progress import Progress

    from rewardspec.logs.outputs import BadPath
    from rewardspec.logs.rows import BadLog
    from rewardspec.rewards.reward import ScoringError
    from rewardspec.scoring.permission import NotAllowed
    from rewardspec.scoring.score import score

    loaded = _load(spec, set_)
    allowed = _allowed(trust, allow_python)
    if allowed:
        sys.path.append(str(Path.cwd()))  # where functions of the user's are looked for, as `python -m` does
    _allow_key(key_host)
    try:
        with Progress(console=_console(stderr=True), transient=True) as bar:
            task = bar.add_task("scoring", total=None)
            summary = score(
                loaded,
                rollouts,
                output,
                group_by,
                total_steps,
                lambda done, of: bar.update(task, completed=done, total=of),
                allowed,
                prefix,
                restart,
            )
    except KeyboardInterrupt:
        _say(f"stopped; the same command goes on with what is in {shown(output)}.partial", err=True)
        raise typer.Exit(130) from None
    except OSError as error:
        _misuse(f"cannot score {shown(rollouts)} into {shown(output)}: {error.strerror or error}")
    except NotAllowed as error:
        options = " ".join(f"--allow-python {module}" for module in error.modules)
        _misuse(f"{error.fact}: if you trust it, say {options}, or --trust for all that the spec names")
    except (BadLog, BadPath, ScoringError, ModuleNotFoundError) as error:
        _misuse(str(error))
    for number, reason in summary.bad[:20]:
        _say(f"{shown(rollouts)}:{number}: left out: {reason}", err=True)
    if summary.bad:
        _say(f"{len(summary.bad)} rows left out, kept in {shown(summary.aside)}", err=True)
    if summary.resumed:
        _say(f"took up {summary.resumed} rows of an earlier run", err=True)
    if summary.changed:
        _say(f"{summary.changed} rows of an earlier run are others now, and were scored again", err=True)
    if not summary.scored:
        _say(f"no row could be scored, and nothing was written to {shown(output)}", err=True)
        raise typer.Exit(1)
    _say(f"wrote {summary.scored} rollouts in {summary.groups} groups to {shown(output)}")
    rows = [(name, f"{summary.mean[name]:.4g}", str(summary.missing[name])) for name in summary.mean]
    _table(_console(), None, ("reward", "mean", "missing"), rows)


def _allow_key(hosts: list[str]) -> None:
    from rewardspec.rewards.judge import allow_key

    try:
        allow_key(*hosts)
    except (ValueError, ModuleNotFoundError) as error:
        _misuse(str(error))


@app.command()
def simulate(
    files: Files,
    group_sizes: Annotated[str, typer.Option("-g", "--group-size", help="Group sizes: `2,4,8` or `2..8`.")] = "2,4,8",
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
    scheme: Annotated[
        list[str],
        typer.Option("--advantage", help="Count under this scheme in place of the spec's own; can be repeated."),
    ] = [],  # noqa: B006
    rates: Annotated[
        str, typer.Option("--p", metavar="NAME=P,...", help="How often columns or components with two values succeed.")
    ] = "",
    sweep: Annotated[
        bool, typer.Option(help="Also the share without signal as all success rates go from 0 to 1.")
    ] = False,
    rollouts: Annotated[
        Path | None, typer.Option(help="A rollout log (JSON lines or Parquet) to run the specs on.", show_default=False)
    ] = None,
    group_by: Annotated[
        str | None, typer.Option(help="The log's column that tells groups apart.", show_default=False)
    ] = None,
    prefix: Prefix = PREFIX,
    plot: Annotated[Path | None, typer.Option(help="Draw the counts and the signal here.", show_default=False)] = None,
    step: Annotated[int, typer.Option(help="The training step that schedules are read at.", min=0)] = 0,
    total_steps: Annotated[int, typer.Option(help="The length of training.", min=1)] = 1,
    set_: Set = [],  # noqa: B006
) -> None:
    """How much signal survives a spec: groups that can be told apart, and what a policy's groups are left with."""
    if format not in ("table", "json"):
        _misuse(f"--format is table or json, not {format!r}")
    sizes = _sizes(group_sizes)
    given = {
        "step": Fraction(step),
        "total_steps": Fraction(total_steps),
        "progress": min(Fraction(step, total_steps), Fraction(1)),
    }
    specs, files_of = [], []
    for path in _expand(files):
        for label, spec in _under(_load(path, set_), scheme):
            specs.append((label, spec))
            files_of.append(str(path))
    if rollouts is not None:
        _replay(specs, rollouts, group_by, format, None if total_steps == 1 else total_steps, prefix)
        return
    rows = _counted(specs, sizes, rates, given, format == "table")
    if plot is not None:
        _keep(plot, *files)
        _plot(plot, specs, rows, given)
    curves = _swept(specs, sizes[-1], rates, given) if sweep else {}
    if format == "json":
        files_by = dict(zip((label for label, _ in specs), files_of, strict=True))
        found: dict = {"rows": [row.to_json() | {"file": files_by[row.spec]} for row in rows]}
        if sweep:
            found["sweep"] = {
                label: [{"p": p, **row.signal.__dict__} for p, row in curve if row.signal]
                for label, curve in curves.items()
            }
        _say_json(found)
    else:
        _show_counts(rows, rates)
        _show_sweep(curves, sizes[-1])
    if any(row.interrupted for row in rows):
        raise typer.Exit(130)


def _counted(specs, sizes: list[int], rates: str, given, is_shown: bool) -> list:
    """A count for every spec and size, up to an interrupt; progress goes to a terminal."""
    from rewardspec.groups.rates import policy, read_rates
    from rewardspec.prove.simulate import count_groups

    rows = []
    try:
        wanted = read_rates(rates) if rates else {}
        models = [policy(spec.program, wanted) for _, spec in specs]
    except ValueError as error:
        _misuse(str(error))
    watched = is_shown and sys.stderr.isatty()
    for (label, spec), model in zip(specs, models, strict=True):
        for size in sizes:

            def show(n, label=label, size=size):
                return typer.echo(f"\r{shown(label)}, {size} rollouts: {n:,} ", nl=False, err=True)

            rows.append(count_groups(spec.program, label, size, given, model=model, progress=show if watched else None))
            if watched:
                typer.echo("\r\033[K", nl=False, err=True)
            if rows[-1].interrupted:
                return rows
    return rows


def _show_counts(rows: list, rates: str) -> None:
    out = _console()
    heads = ("spec", "group size", "reward groups", "advantage groups", "kept apart", "count")
    heads += ("groups without signal", "rollouts without", "spread")
    shown = []
    for row in rows:
        signal = ("", "", "")
        if row.signal is not None:
            most = "" if row.signal.exact else "<= "
            signal = (
                f"{most}{row.signal.groups_without_signal:.1%}",
                f"{most}{row.signal.rollouts_without_signal:.1%}",
                f"{row.signal.spread:.3g}",
            )
        counts = (
            _count(row.reward_groups, row.exact),
            _count(row.advantage_groups, row.exact),
            f"{row.advantage_groups / row.reward_groups:.2g}",
        )
        shown.append((row.spec, str(row.group_size), *counts, "exact" if row.exact else "at least", *signal))
    _table(out, None, heads, shown)
    parts = [
        (row.spec, str(row.group_size), _shares(row.signal.shares)) for row in rows if row.signal and row.signal.shares
    ]
    if any(len(row.signal.shares) > 1 for row in rows if row.signal and row.signal.shares):
        _table(out, "Share of the advantage's variance", ("spec", "group size", "components"), parts)
    if any(row.interrupted for row in rows):
        _say("broken off: what was known by then")
    elif not all(row.exact for row in rows):
        _say("at least: not every case was tried, or not every value is exact (of an interval only some are looked at)")
    _say(f"signal: under {rates or 'every value as often as any other'}; the step over the batch is left out")


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())


def _swept(specs, size: int, rates: str, given) -> dict:
    from rewardspec.groups.rates import read_rates
    from rewardspec.prove.plot import by_rate

    names = list(read_rates(rates)) if rates else []
    return {label: by_rate(spec, size, given, points=11, names=names) for label, spec in specs}


def _show_sweep(curves: dict, size: int) -> None:
    for title, value in (("Groups", "groups_without_signal"), ("Rollouts", "rollouts_without_signal")):
        if not curves:
            return
        rates = [f"{p:.0%}" for p, _ in next(iter(curves.values()))]
        rows = [
            (label, *(f"{getattr(row.signal, value):.1%}" if row.signal else "" for _, row in curve))
            for label, curve in curves.items()
        ]
        _table(_console(), f"{title} without signal by success rate, {size} rollouts", ("spec", *rates), rows)


def _plot(path: Path, specs, rows: list, given) -> None:
    from rewardspec.prove.plot import draw

    try:
        draw(path, specs, rows, given)
    except ModuleNotFoundError:
        _misuse("drawing needs matplotlib: pip install 'rewardspec[plots]'")
    except (OSError, ValueError) as error:
        _misuse(f"cannot draw {shown(path)}: {error}")
    _say(f"wrote {shown(path)}", err=True)


def _replay(specs, path: Path, group_by: str | None, format: str, total_steps: int | None, prefix: str) -> None:
    from rewardspec.logs.rows import BadLog
    from rewardspec.prove.replay import read_log, replay

    found = []
    for label, spec in specs:
        try:
            found.append((label, replay(spec, read_log(path, spec, group_by, prefix), total_steps)))
        except (BadLog, OSError) as error:
            _misuse(str(error))
    if format == "json":
        _say_json({"rows": [{"spec": label, **result.to_json()} for label, result in found]})
        return
    heads = ("spec", "rollouts", "groups", "steps", "groups without signal", "rollouts without", "spread", "variance")
    rows = [
        (
            label,
            f"{r.rollouts:,}",
            f"{r.groups:,}",
            str(r.steps),
            f"{r.signal.groups_without_signal:.1%}",
            f"{r.signal.rollouts_without_signal:.1%}",
            f"{r.signal.spread:.3g}",
            _shares(r.signal.shares) if r.signal.shares else "",
        )
        for label, r in found
    ]
    _table(_console(), None, heads, rows)


def _count(number: int, exact: bool) -> str:
    return f"{number:,}" if exact else f">= {number:,}"


def _under(spec: Spec, schemes: list[str]) -> list[tuple[str, Spec]]:
    """The spec as it is, or once under each of the schemes."""
    if not schemes:
        return [(spec.name, spec)]
    found = []
    for scheme in schemes:
        other, report = check_source(spec.source, advantage=scheme)
        if other is None:
            for diagnostic in report.sorted():
                _say(diagnostic.render() + "\n", err=True)
            raise typer.Exit(1)
        found.append((f"{spec.name}: {scheme}", other))
    return found


@app.command()
def schema() -> None:
    """Print the JSON Schema of specs, for editors: `# yaml-language-server: $schema=spec.schema.json`."""
    from rewardspec.language.editor import json_schema
    from rewardspec.lint.finding import OF_SPEC, findings

    about = {code: finding.page.split("\n")[0] for code, finding in findings().items()}
    _say_json(json_schema(about, OF_SPEC))


@app.command()
def fmt(
    files: Files,
    is_check: Annotated[bool, typer.Option("--check", help="Change nothing; status 1 if a file would change.")] = False,
) -> None:
    """Lay specs out canonically: indentation, space, needless parentheses. Comments stay."""
    from rewardspec.syntax.formatter import laid_out

    changed, broken = [], False
    for path in _expand(files):
        try:
            source, report = read_file(path)
            text = None if source is None else laid_out(source, report)
            for diagnostic in report.sorted():
                _say(diagnostic.render() + "\n", err=True)
            broken = broken or text is None
            if text is None or source is None or text == source.text:
                continue
            changed.append(path)
            if not is_check:
                path.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            _misuse(f"cannot lay out {shown(path)}: {error.strerror or error}")
    for path in changed:
        _say(f"would lay out {shown(path)}" if is_check else f"laid out {shown(path)}")
    raise typer.Exit(1 if broken or (changed and is_check) else 0)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the new spec; the file is NAME.yaml.", show_default=False)],
    like: Annotated[
        str, typer.Option(help="A published spec to begin with, such as papo or gdpo/math.")
    ] = "gdpo/math_conditioned",
) -> None:
    """Begin a spec from a published one."""
    from rewardspec.language.editor import is_name, spec_like

    if not is_name(name):
        _misuse(f"{name!r} cannot be a name: letters, digits, `-`, `_` and `.`")
    path = Path(f"{name}.yaml")
    try:
        text = spec_like(name, like)
        with open(path, "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        _misuse(f"{shown(path)} exists")
    except ValueError as error:
        _misuse(str(error))
    except OSError as error:
        _misuse(f"cannot write {shown(path)}: {error.strerror or error}")
    _say(f"wrote {shown(path)}")


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="A spec file.", show_default=False)],
    after: Annotated[Path, typer.Argument(help="Another one.", show_default=False)],
    group_sizes: Annotated[str, typer.Option("-g", "--group-size", help="Group sizes to compare.")] = "2,3",
    rollouts: Annotated[
        Path | None,
        typer.Option(
            help="Compare on a rollout log (JSON lines or Parquet) in place of small groups.", show_default=False
        ),
    ] = None,
    group_by: Annotated[
        str | None, typer.Option(help="The log's column that tells groups apart.", show_default=False)
    ] = None,
    prefix: Prefix = PREFIX,
    total_steps: Annotated[int | None, typer.Option(help="The length of training.", min=1, show_default=False)] = None,
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
) -> None:
    """How two specs differ in meaning: what they say, and the advantages of small groups, or of a rollout log.

    Exit status 1 if they do.
    """
    from rewardspec.logs.rows import BadLog
    from rewardspec.prove.diff import difference, difference_on_log

    if format not in ("table", "json"):
        _misuse(f"--format is table or json, not {format!r}")
    specs = _load(before, []), _load(after, [])
    try:
        found = (
            difference(*specs, _sizes(group_sizes))
            if rollouts is None
            else difference_on_log(*specs, rollouts, group_by, total_steps, prefix)
        )
    except (BadLog, OSError) as error:
        _misuse(str(error))
    if format == "json":
        _say_json(found.to_json())
    else:
        _show_difference(found)
    raise typer.Exit(0 if found.is_none else 1)


def _show_difference(found) -> None:
    out = _console()
    if found.is_none:
        _say("the same in all that was compared")
        return
    if found.changes:
        rows = [(c.what, c.before or "-", c.after or "-") for c in found.changes]
        _table(out, "What they say", ("", "before", "after"), rows)
    logged = getattr(found, "logged", None)
    if logged is not None:
        example = logged.example
        heads = ("", "rollouts", "groups")
        rows = [
            ("in the log", f"{logged.rollouts:,}", f"{logged.groups:,}"),
            ("the advantage changes", f"{logged.changed:,}", f"{logged.groups_changed:,}"),
            ("its sign flips", f"{logged.signs:,}", ""),
            ("signal lost", "", f"{logged.died:,}"),
            ("signal found", "", f"{logged.revived:,}"),
        ]
        _table(out, f"Advantages, on average {logged.moved:.3g} apart", heads, rows)
    else:
        first = next((s for s in found.sizes if s.example), None)
        example = first and first.example
        heads = ("group size", "groups", "advantages change", "a sign flips", "signal lost", "signal found")
        rows = [tuple(map(str, (s.size, s.groups, s.changed, s.signs, s.died, s.revived))) for s in found.sizes]
        moments = f", at any of {found.moments} moments" if found.moments > 1 else ""
        _table(out, f"Advantages, less the step over the batch{moments}", heads, rows)
    if example:
        names = list(example[0][0])
        rows = [(*(_cell(r[n]) for n in names), f"{a:.6g}", f"{b:.6g}") for r, a, b in example]
        title = "The group that changes most"
        if logged is None:
            moment = ", ".join(f"{name} {_cell(value)}" for name, value in first.moment.items())
            title = "The first group that changes" + (f", at {moment}" if moment else "")
        _table(out, title, (*names, "before", "after"), rows)
    if logged is None and not found.exact:
        _say(f"not everything was compared: {'; '.join(found.left_out)}")


@app.command()
def verify(
    files: Files,
    group_sizes: Annotated[str, typer.Option("-g", "--group-size", help="Group sizes: `2,4,8` or `2..8`.")] = "2..8",
    solve: Annotated[
        str, typer.Option(metavar="weight:NAME", help="Find the weights for which all guarantees hold.")
    ] = "",
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
    dialect: Dialect = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Prove the guarantees of specs, or show the smallest group that breaks one (exit status 1)."""
    from rewardspec.prove.verify import BROKEN_OFF, REFUTED
    from rewardspec.prove.verify import verify as verify_spec

    if format not in ("table", "json"):
        _misuse(f"--format is table or json, not {format!r}")
    sizes = _sizes(group_sizes)
    specs = [(path, _load(path, set_, dialect)) for path in _expand(files)]
    if solve:
        _solve(specs, solve, sizes, format)
        return
    if not any(spec.program.guarantees for _, spec in specs):
        _misuse("no spec here has `guarantees:`; `rewardspec list` shows ready-made ones")
    watched = format == "table" and sys.stderr.isatty()

    found = []
    for path, spec in specs:

        def show(size: int, tried: int, of: int, label=spec.name) -> None:
            typer.echo(f"\r\033[K{shown(label)}: groups of {size}, {tried:,} of {of:,} ", nl=False, err=True)

        found.append((path, spec, verify_spec(spec, sizes, show if watched else None)))
        if any(verdict.reason == BROKEN_OFF for verdict in found[-1][2]):
            break
    if watched:
        typer.echo("\r\033[K", nl=False, err=True)
    if format == "json":
        rows = [
            {"file": str(path), "spec": spec.name, "guarantees": [v.to_json() for v in verdicts]}
            for path, spec, verdicts in found
        ]
        _say_json({"rows": rows})
    else:
        _show_verdicts(found)
    verdicts = [verdict for _, _, own in found for verdict in own]
    broken_off = any(verdict.reason == BROKEN_OFF for verdict in verdicts)
    raise typer.Exit(1 if any(v.status == REFUTED for v in verdicts) else 130 if broken_off else 0)


def _show_verdicts(found: list) -> None:
    out = _console()
    rows = [
        (spec.name, v.name, v.status, _ranges([*v.sizes]), f"{v.groups:,}", v.reason)
        for _, spec, verdicts in found
        for v in verdicts
    ]
    _table(out, None, ("spec", "guarantee", "verdict", "group sizes", "groups tried", ""), rows)
    for _, spec, verdicts in found:
        for verdict in verdicts:
            if verdict.counterexample is not None:
                _show_counterexample(out, spec, verdict)


def _show_counterexample(out, spec: Spec, verdict) -> None:
    group = verdict.counterexample
    title = f"{spec.name}: a group of {group.size} breaks `{verdict.name}`"
    if group.group:
        title += " at " + ", ".join(f"{name} {_cell(value)}" for name, value in group.group.items())
    own = {name: values for name, values in group.shaped.items() if values != group.columns.get(name)}
    heads = (
        "",
        *group.columns,
        *(f"{name} (shaped)" if name in group.columns else name for name in own),
        "advantage",
        "",
    )
    rows = [
        (
            str(i),
            *(_cell(values[i]) for values in (*group.columns.values(), *own.values())),
            "-" if advantage is None else f"{advantage:.6g}",
            "<-" if i in group.breaking else "",
        )
        for i, advantage in enumerate(group.advantages)
    ]
    _table(out, title, heads, rows)


def _cell(value) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _ranges(sizes: list[int]) -> str:
    """`2..8` for consecutive sizes."""
    if len(sizes) > 2 and sizes == list(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]}..{sizes[-1]}"
    return ", ".join(map(str, sizes))


def _solve(specs, what: str, sizes: list[int], format: str) -> None:
    """The safe weights of a component; exit status 1 where a spec has none."""
    from rewardspec.prove.solve import solve_weight

    kind, _, name = what.partition(":")
    if kind != "weight" or not name:
        _misuse(f"--solve takes weight:NAME, not {what!r}")
    watched = format == "table" and sys.stderr.isatty()
    found = []
    try:
        for _, spec in specs:
            if not spec.program.guarantees:
                _misuse(f"{spec.name} has no `guarantees:` that could limit a weight")

            def show(weight, label=spec.name):
                typer.echo(f"\r\033[K{shown(label)}: {shown(name)} {float(weight):.9g} ", nl=False, err=True)

            try:
                found.append((spec.name, solve_weight(spec, name, sizes, progress=show if watched else None)))
            except ValueError as error:
                _misuse(str(error))
    finally:
        if watched:
            typer.echo("\r\033[K", nl=False, err=True)
    if format == "json":
        _say_json({"rows": [{"spec": label, **asdict(s)} for label, s in found]})
    else:
        for label, s in found:
            _say(f"{label}, groups of {_ranges(sizes)}: `{name}`: {_safe_weights(s)}")
    raise typer.Exit(1 if any(s.is_none for _, s in found) else 0)


def _safe_weights(solution) -> str:
    if solution.is_none:
        return f"no weight is safe: {_broken(solution.at_zero)} at 0, and at every other that was tried"
    parts = []
    for first, last in solution.intervals:
        low = f"from {first.weight:.7g}" if first.safe else f"above {first.weight:.7g}"
        if first.broken:
            low += f" ({_broken(first.broken)} {'below' if first.weight else 'at'} it)"
        if not last.broken:
            parts.append(f"{low}; nothing breaks up to {last.weight:,.0f}")
        else:
            high = f"up to {last.weight:.7g}" if last.safe else f"below {last.weight:.7g}"
            parts.append(f"{low} {high} ({_broken(last.broken)} {'beyond' if last.safe else 'from'} it)")
    return (
        "safe " + "; and ".join(parts) + ("" if solution.proved else "; no group was found that breaks one, not proved")
    )


def _broken(names: list[str]) -> str:
    return f"{' and '.join(f'`{name}`' for name in names)} {'fails' if len(names) == 1 else 'fail'}"


def _sizes(text: str) -> list[int]:
    sizes: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        try:
            sizes += range(int(first), int(last) + 1) if dots else [int(first)]
        except ValueError:
            _misuse(f"group sizes are written `2,4,8` or `2..8`, not {text!r}")
    if not sizes or min(sizes) < 1 or max(sizes) > 64:
        _misuse("group sizes go from 1 to 64")
    return sizes


def _console(stderr: bool = False):
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 200
    return Console(file=Inert(sys.stderr if stderr else sys.stdout), width=width, soft_wrap=False)


def _table(console, title: str | None, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    if title:
        console.print(shown(title), style="bold", markup=False, highlight=False)
    table = Table(box=SIMPLE, pad_edge=False)
    for head in heads:
        numeric = rows and all(
            row[heads.index(head)][:1].isdigit() or row[heads.index(head)][:2] == ">=" for row in rows
        )
        table.add_column(Text(shown(head)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell)) for cell in row))
    console.print(table)


if __name__ == "__main__":
    main()
