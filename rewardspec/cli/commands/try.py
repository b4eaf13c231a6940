"""`rewardspec try`: one group of rollouts, written by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from rewardspec.cli.options import Dialect, File, Set, TableOrJson, TotalSteps, one_of
from rewardspec.cli.printing.lines import misuse, say_json
from rewardspec.cli.reading import loaded, under
from rewardspec.spec import Spec


def command(
    file: File,
    columns: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE,...", help="The columns of a group, a value for each rollout; `-` is none."),
    ],
    advantage: Annotated[
        str,
        typer.Option(metavar="SCHEME,...", help="In place of the spec's own: schemes side by side, as `grpo,gdpo`."),
    ] = "",
    step: Annotated[int | None, typer.Option(help="The step of training.", min=0, show_default=False)] = None,
    total_steps: TotalSteps = None,
    set_: Set = [],  # noqa: B006
    dialect: Dialect = None,
    format: TableOrJson = "table",
) -> None:
    """Compute one group: its gates, rewards, shares and advantages.

    rewardspec try spec.yaml correct=1,1,0,0 tokens=900,5200,700,6100 --advantage grpo,gdpo
    """
    one_of(format, "table", "json")
    given: dict[str, str] = {}
    for text in columns:
        name, equals, values = text.partition("=")
        if not equals or not name.strip():
            misuse(f"write NAME=VALUE,..., such as `correct=1,1,0,0`, not {text!r}")
        if name.strip() in given:
            misuse(f"`{name.strip()}` is given twice")
        given[name.strip()] = values
    from rewardspec.runs.one_group import BadGroup, OneGroup, one_group, read_columns

    spec = loaded(file, set_, dialect)
    schemes = _schemes(advantage)
    labelled = [(scheme, _under(spec, scheme, dialect)) for scheme in schemes] or [(spec.name, spec)]
    found: list[tuple[str, OneGroup]] = []
    try:
        for label, one in labelled:
            found.append((label, one_group(one, read_columns(one, given), step=step, total_steps=total_steps)))
    except BadGroup as error:
        misuse(str(error))
    except ValueError as error:
        said = str(error).replace("`step=`", "`--step N`").replace("`total_steps=`", "`--total-steps N`")
        said = said.replace("pass `lengths=`", "`try` cannot be told how many items a rollout has")
        misuse(f"{label}: {said}")
    if format == "json":
        say_json([{"advantage": label, **one.to_json()} for label, one in found])
    else:
        from rewardspec.cli.printing.one_group import show_groups

        show_groups(found)


def _schemes(text: str) -> list[str]:
    """Schemes, separated by commas outside of brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _under(spec: Spec, scheme: str, dialect: str | None) -> Spec:
    found = under(spec, scheme)
    return found if dialect is None else found.under(dialect)
