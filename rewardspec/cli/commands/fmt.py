"""`rewardspec fmt`: specs in canonical format."""

from __future__ import annotations

from typing import Annotated

import typer

from rewardspec.cli.options import Files
from rewardspec.cli.printing.lines import misuse, say
from rewardspec.cli.printing.progress import progress
from rewardspec.cli.reading import STDIN, complain, expanded, is_published, name_of, read_source
from rewardspec.syntax.formatter import formatted


def command(
    files: Files,
    is_check: Annotated[bool, typer.Option("--check", help="Change nothing; status 1 if a file would change.")] = False,
) -> None:
    """Format specs: indentation, space, redundant parentheses. Comments stay.

    rewardspec fmt specs/ --check

    Standard input is formatted to standard output.
    """
    changed, broken = [], False
    paths = expanded(files)
    if not is_check:
        for name in filter(is_published, paths):
            misuse(f"{name} is a published spec and is not rewritten: copy it with `rewardspec new NAME --like {name}`")
    with progress("formatting") as show:
        for number, path in enumerate(paths):
            if show is not None:
                show(f"formatting {name_of(path)}", number, len(paths))
            try:
                source, report = read_source(path)
                text = None if source is None else formatted(source, report)
                complain(report.sorted())
                broken = broken or text is None
                if text is None or source is None:
                    continue
                if path == STDIN and not is_check:
                    typer.echo(text, nl=False)
                elif text != source.text:
                    changed.append(path)
                    if not is_check:
                        path.write_text(text, encoding="utf-8", newline="\n")
            except OSError as error:
                misuse(f"cannot format {name_of(path)}: {error.strerror or error}")
    for path in changed:
        say(f"would format {name_of(path)}" if is_check else f"formatted {name_of(path)}")
    raise typer.Exit(1 if broken or (changed and is_check) else 0)
