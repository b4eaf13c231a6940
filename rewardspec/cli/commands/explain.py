"""`rewardspec explain`: a spec as compiled, or the page of a word."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewardspec.cli import completing
from rewardspec.cli.options import Dialect, Set, TableOrJson, TotalSteps, one_of
from rewardspec.cli.printing.lines import misuse, say, say_json, say_wrapped
from rewardspec.cli.printing.markdown import show_markdown
from rewardspec.cli.reading import STDIN, is_published, loaded
from rewardspec.text.diagnostics import nearest
from rewardspec.text.shown import shown

if TYPE_CHECKING:
    from rewardspec.manual import Page
    from rewardspec.spec import Spec

SETTINGS = {"ignore_unknown_options": True}  # `explain --p` shows what the option of other commands means


def command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC|WORD",
            help="A spec: a file, a published name, `-` for standard input. Or a word: a scheme, a function, a key, a "
            "finding, an option.",
            show_default=False,
            autocompletion=completing.words_of_explain,
        ),
    ],
    at: Annotated[
        str,
        typer.Option(
            metavar="0,30,100%", help="Also show values and weights at these steps, or percentages of the run."
        ),
    ] = "",
    total_steps: TotalSteps = None,
    dialect: Dialect = None,
    format: TableOrJson = "table",
    set_: Set = [],  # noqa: B006
) -> None:
    """Show a spec as compiled: its expressions, its graph, the level and domain of every value.

    rewardspec explain spec.yaml --at 0,30,100% --total-steps 300

    Of a word instead, show its page: a scheme (`grpo`), a function (`zscore`), a reward function
    (`toolrl.correctness`), a published spec (`gdpo/math`), a finding (`phantom-gradient`), a key (`when`), an option
    (`--p`).
    """
    one_of(format, "table", "json")
    if total_steps is not None and not at:
        misuse("--total-steps needs --at: it says how many steps 100% are")
    word, is_file = str(file), os.path.exists(file) and not file.is_dir()  # a folder has nothing to be explained
    pages = [] if file == STDIN or is_file else _pages(word)
    if pages and not is_published(file):
        given = {"--at": at, "--dialect": dialect, "--set": set_}
        for option in (name for name, value in given.items() if value):
            misuse(f"{option} needs a spec, and {shown(word)!r} is none: it is a {pages[0].kind}")
        _show_pages(pages, format)
        return
    if is_file and not file.suffix and "/" not in word and _pages(word):
        say(f"note: `{shown(word)}` is the file here, not the page", err=True)
    _explain(loaded(file, set_, dialect), at, total_steps, format, pages)


def _explain(spec: Spec, at: str, total_steps: int | None, format: str, pages: list[Page]) -> None:
    """Print a spec as compiled; of a published one its page first."""
    from rewardspec.prove.explain import HEADS, explain
    from rewardspec.prove.schedule import read_moments, schedule

    moments, rows = [], []
    if at:
        try:
            moments = read_moments(at, total_steps)
            rows = schedule(spec, moments, total_steps)
        except ValueError as error:
            misuse(str(error))
    found = explain(spec)
    if format == "json":
        head = {"name": spec.name, "fingerprint": spec.fingerprint, "about": spec.about}
        times = [moment.text for moment in moments]
        run = [{"component": r[0], "what": r[1], "at": dict(zip(times, r[2:], strict=True))} for r in rows]
        say_json({**head, **found.to_json(), **({"over_the_run": run} if at else {})})
        return
    from rewardspec.cli.printing.table import console, table

    _show_pages(pages, format)
    out = console()
    out.print(f"{spec.name}  (fingerprint {spec.fingerprint})")
    if spec.about and not pages:
        for line in spec.about.split("\n"):
            say_wrapped(line, "  ")
    say_wrapped(f"needs: {', '.join(found.needs) or 'nothing but its columns'}", "  ")
    table(out, "Columns", HEADS["columns"], found.columns)
    table(out, "Components", HEADS["components"], found.components)
    if found.state:
        table(out, "State", HEADS["state"], found.state)
    if rows:
        table(out, "Over the run", ("component", "", *(moment.text for moment in moments)), rows)
    table(out, "Expressions", HEADS["definitions"], found.definitions)
    if found.guarantees:
        table(out, "Guarantees", HEADS["guarantees"], found.guarantees)
    table(out, "Values", ("", *HEADS["values"][1:]), found.values)


def _pages(word: str) -> list[Page]:
    """The pages of a word; an unknown word that cannot be a file ends the command."""
    from rewardspec.manual import names, pages_named
    from rewardspec.manual.page import Page

    if word.startswith("--"):
        found = _option(word)
        return [Page("option", word, found)]
    pages = pages_named(word)
    if pages or os.path.exists(word) or "/" in word or Path(word).suffix in (".yaml", ".yml"):
        return pages
    from rewardspec.syntax.foreign import NAMES

    of_specs = {name.partition("/")[2]: name for name in names() if "/" in name}
    near = of_specs.get(word) or nearest(word, names(), least=0.7)
    part = word.lower() if "." not in word else word.lower().partition(".")[0] + "."
    having = [name for name in names() if len(part) > 2 and part in name]
    help = NAMES.get(word.lower()) or (f"did you mean `{near}`?" if near else None)
    if help is None and having:
        some = ", ".join(f"`{name}`" for name in having[:5])
        help = f"names with `{shown(part)}` are {some}{', ...' * (len(having) > 5)}"
    misuse(f"no file and no page is named '{shown(word)}': {help or '`rewardspec list` shows the names'}")


def _option(word: str) -> str:
    """What an option means, by command, as Markdown. An unknown one ends the command."""
    from rewardspec.cli import app

    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    abouts: dict[str, dict[str, str]] = {}  # option to its meanings, each with the commands that have it
    for name in group.list_commands(context):
        for param in group.get_command(context, name).params:
            for option in (one for one in param.opts if one.startswith("--")):
                of = abouts.setdefault(option, {})
                metavar = "" if param.is_flag else f" {param.metavar or param.name.upper()}"
                about = f"`{option}{metavar}`: {param.help or ''}"
                of[about] = f"{of[about]}, {name}" if about in of else name
    if word not in abouts:
        near = nearest(word, abouts)
        misuse(f"no command has the option {shown(word)}{f': did you mean `{near}`?' if near else ''}")
    return "\n\n".join(f"{about}\n\nIt is an option of {commands}." for about, commands in abouts[word].items())


def _show_pages(pages: list[Page], format: str) -> None:
    if format == "json":
        say_json([{"kind": p.kind, "name": p.name, "page": p.body, "related": [*p.related]} for p in pages])
        return
    for page in pages:
        if sys.stdout.isatty():
            show_markdown(page.text)
        else:
            say(f"{page.text}\n")
