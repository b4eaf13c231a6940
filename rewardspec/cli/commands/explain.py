"""`rewardspec explain`: a spec's compiled expressions and graph, or the page of a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli.options import Dialect, File, Set, TableOrJson, TotalSteps, one_of
from rewardspec.cli.printing.lines import misuse, say, say_json
from rewardspec.cli.reading import STDIN, loaded
from rewardspec.lint import codes, page
from rewardspec.text.diagnostics import did_you_mean
from rewardspec.text.shown import shown


def command(
    file: File,
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

    With the code of a finding instead of a file, show the page of that finding.
    """
    one_of(format, "table", "json")
    if file != STDIN and not file.exists() and _explain_finding(file):
        return
    from rewardspec.cli.printing.table import console, table
    from rewardspec.prove.explain import HEADS, explain
    from rewardspec.prove.schedule import read_moments, schedule

    spec = loaded(file, set_, dialect)
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
    out = console()
    out.print(f"{spec.name}  (fingerprint {spec.fingerprint})", markup=False, highlight=False)
    if spec.about:
        for line in spec.about.split("\n"):
            out.print(f"  {shown(line)}", markup=False, highlight=False)
    out.print(f"  needs: {', '.join(found.needs) or 'nothing but its columns'}", markup=False, highlight=False)
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


def _explain_finding(file: Path) -> bool:
    """Print the page of a finding; False if `file` is not a code. An unknown code ends the command."""
    text = page(file.name)
    if text is not None:
        say(f"{file.name}\n\n{text}")
    elif file.name == str(file) and not file.suffix:
        near = did_you_mean(file.name, codes(), "`rewardspec list findings` shows the codes that have a page")
        misuse(f"no file and no page is named {file.name!r}: {near}")
    return text is not None
